/* Text from a model: see generate.h. */
#include "train/generate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <weft/device.h>

#include "base/half.h"
#include "base/log.h"
#include "base/rng.h"

#define CHUNK 128 /* tokens of a prompt that run through the model at once */

/* ---- choosing a token ---------------------------------------------------------------------------- */

/* Is token a likelier than b? The same everywhere, also where logits are equal. */
static bool is_likelier(const float *logits, int a, int b)
{
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
}

static int likeliest(const float *logits, int vocab)
{
    int best = 0;
    for (int i = 1; i < vocab; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    return best;
}

/* Let the token at `at` sink: in the heap order[0, count) the likelier are below the others. */
static void sink(const float *logits, int *order, int count, int at)
{
    for (int child = 2 * at + 1; child < count; child = 2 * at + 1) {
        if (child + 1 < count && is_likelier(logits, order[child], order[child + 1])) {
            child++;
        }
        if (!is_likelier(logits, order[at], order[child])) {
            return;
        }
        int token = order[at];
        order[at] = order[child];
        order[child] = token;
        at = child;
    }
}

/* Leave the top_k likeliest in order[0, top_k), the likeliest first; there, it starts as 0, 1, ... */
static void select_top(const float *logits, int vocab, int top_k, int *order)
{
    for (int i = top_k / 2 - 1; i >= 0; i--) {
        sink(logits, order, top_k, i);
    }
    for (int i = top_k; i < vocab; i++) {
        if (is_likelier(logits, i, order[0])) {
            order[0] = i;
            sink(logits, order, top_k, 0);
        }
    }
    for (int last = top_k - 1; last > 0; last--) {
        int least = order[0];
        order[0] = order[last];
        order[last] = least;
        sink(logits, order, last, 0);
    }
}

uint32_t weft__generate_pick(const float *logits, int vocab, double temperature, int top_k,
                             double draw, int *order)
{
    int best = likeliest(logits, vocab), count = vocab;
    if (!(temperature > 0.0)) {
        return (uint32_t)best;
    }
    for (int i = 0; i < vocab; i++) {
        order[i] = i;
    }
    if (top_k > 0 && top_k < vocab) {
        select_top(logits, vocab, top_k, order);
        count = top_k;
    }
    double sum = 0.0, most = (double)logits[best];
    for (int i = 0; i < count; i++) {
        sum += exp(((double)logits[order[i]] - most) / temperature);
    }
    double left = draw * sum;
    for (int i = 0; i < count; i++) {
        left -= exp(((double)logits[order[i]] - most) / temperature);
        if (left < 0.0) {
            return (uint32_t)order[i];
        }
    }
    return (uint32_t)best; /* rounding */
}

void weft__generate_tame(char *text, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        unsigned char c = (unsigned char)text[i];
        text[i] = (c < ' ' && c != '\n' && c != '\t') || c == 0x7f ? '?' : text[i];
    }
}

/* ---- the model ------------------------------------------------------------------------------------- */

typedef struct writer {
    const weft_generate_t *g;
    weft_pass_t pass;
    weft_cache_t cache;
    void *cache_memory, *logits;
    int32_t *tokens; /* on the device: CHUNK */
    void *host;      /* pinned: tokens, or logits as stored */
    float *values;   /* logits as f32 */
    int *order;
    uint32_t *text; /* all tokens so far, prompt included */
    size_t length;
    int64_t context; /* tokens looked back at, at most */
} writer_t;

static weft_status_t open_device(writer_t *w, int64_t capacity)
{
    const weft_generate_t *g = w->g;
    weft_shape_t shape = WEFT_SHAPE(1, CHUNK);
    size_t logits = (size_t)g->model->vocab_rows * weft_dtype_size(g->model->type);
    size_t host = logits > CHUNK * sizeof(int32_t) ? logits : CHUNK * sizeof(int32_t);
    WEFT_TRY(weft_malloc(&w->cache_memory, weft__cache_bytes(g->model, 1, capacity, CHUNK)));
    WEFT_TRY(weft_malloc(&w->logits, logits));
    WEFT_TRY(weft_malloc((void **)&w->tokens, CHUNK * sizeof(int32_t)));
    WEFT_TRY(weft_host_malloc(&w->host, host));
    weft__cache_carve(g->model, 1, capacity, CHUNK, w->cache_memory, &w->cache);
    w->pass = weft__pass_make(g->model, g->compute, &shape);
    w->pass.params = g->params;
    w->pass.stream = g->stream;
    w->pass.training = false;
    return WEFT_OK;
}

static weft_status_t open_writer(const weft_generate_t *g, const uint32_t *prompt, size_t count,
                                 writer_t *w)
{
    size_t vocab = (size_t)g->model->vocab_rows, most = count + (size_t)g->tokens;
    int64_t own = g->model->config.context;
    *w = (writer_t){.g = g, .length = count, .context = g->context < own ? g->context : own};
    w->values = malloc(vocab * sizeof(float));
    w->order = malloc(vocab * sizeof(int));
    w->text = malloc(most * sizeof(uint32_t));
    if (w->values == NULL || w->order == NULL || w->text == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to write %d tokens", g->tokens);
    }
    memcpy(w->text, prompt, count * sizeof(uint32_t));
    return open_device(w, (int64_t)most < w->context ? (int64_t)most : w->context);
}

static void close_writer(writer_t *w)
{
    weft_free(w->cache_memory);
    weft_free(w->logits);
    weft_free(w->tokens);
    if (w->host != NULL) {
        weft_host_free(w->host);
    }
    free(w->values);
    free(w->order);
    free(w->text);
}

/* Run tokens of the text through the model until the cache holds all of it. */
static weft_status_t catch_up(writer_t *w, size_t *seen)
{
    while (*seen < w->length) {
        size_t count = w->length - *seen < CHUNK ? w->length - *seen : CHUNK;
        int32_t *host = w->host;
        for (size_t i = 0; i < count; i++) {
            host[i] = (int32_t)w->text[*seen + i];
        }
        WEFT_TRY(weft_memcpy(w->tokens, host, count * sizeof(int32_t), w->g->stream));
        WEFT_TRY(weft__model_extend(&w->pass, &w->cache, w->tokens, (int64_t)count, w->logits));
        WEFT_TRY(weft_stream_synchronize(w->g->stream));
        *seen += count;
    }
    return WEFT_OK;
}

static weft_status_t fetch_logits(writer_t *w)
{
    int vocab = w->g->model->config.vocab;
    bool wide = w->g->model->type == WEFT_F32;
    size_t bytes = (size_t)vocab * weft_dtype_size(w->g->model->type);
    WEFT_TRY(weft_memcpy(w->host, w->logits, bytes, w->g->stream));
    WEFT_TRY(weft_stream_synchronize(w->g->stream));
    if (wide) {
        memcpy(w->values, w->host, bytes);
        return WEFT_OK;
    }
    const uint16_t *halves = w->host;
    bool f16 = w->g->model->type == WEFT_F16;
    for (int i = 0; i < vocab; i++) {
        w->values[i] = f16 ? weft__f16_to_f32(halves[i]) : weft__bf16_to_f32(halves[i]);
    }
    return WEFT_OK;
}

static bool are_numbers(const float *logits, int vocab)
{
    bool numbers = true;
    for (int i = 0; i < vocab; i++) {
        numbers = numbers && !isnan(logits[i]);
    }
    return numbers;
}

static weft_status_t write_tokens(writer_t *w)
{
    const weft_generate_t *g = w->g;
    size_t half = (size_t)(w->context + 1) / 2, seen = 0;
    if (w->length > (size_t)w->context) { /* of a prompt too long, the end counts */
        seen = w->length - (size_t)w->context;
    }
    for (int i = 0; i < g->tokens; i++) {
        if (w->cache.length + (int64_t)(w->length - seen) > w->cache.capacity) {
            w->cache.length = 0; /* full: go on from the second half */
            seen = w->length - half;
        }
        WEFT_TRY(catch_up(w, &seen));
        WEFT_TRY(fetch_logits(w));
        if (!are_numbers(w->values, g->model->config.vocab)) {
            return weft__fail(
                WEFT_ERR_INVALID,
                "the model computes what is not a number: its weights are damaged, or "
                "it had diverged when it was saved");
        }
        double draw = (double)(weft__rng_at(g->seed, (uint64_t)i) >> 11) * 0x1p-53;
        uint32_t token = weft__generate_pick(w->values, g->model->config.vocab, g->temperature,
                                             g->top_k, draw, w->order);
        if (g->end >= 0 && token == (uint32_t)g->end) {
            return WEFT_OK;
        }
        w->text[w->length++] = token;
        WEFT_TRY(g->emit(g->arg, token));
    }
    return WEFT_OK;
}

weft_status_t weft__generate(const weft_generate_t *generate, const uint32_t *prompt, size_t count)
{
    writer_t writer;
    for (size_t i = 0; i < count; i++) {
        if (prompt[i] >= (uint32_t)generate->model->config.vocab) {
            return weft__fail(WEFT_ERR_INVALID,
                              "the prompt has the token %u, but the model knows %d only", prompt[i],
                              generate->model->config.vocab);
        }
    }
    weft_status_t status = open_writer(generate, prompt, count, &writer);
    if (status == WEFT_OK) {
        status = write_tokens(&writer);
    }
    close_writer(&writer);
    return status;
}

weft_status_t weft__generate_prompt(weft_tokenizer_t *tokenizer, const char *text,
                                    weft_tokens_t *tokens)
{
    static const char newline[] = "\n";
    int64_t end = weft__tokenizer_end(tokenizer);
    /* Bytes: of one file, the end is not followed by anything that a model could have learned. */
    if (text[0] == '\0' && (end < 0 || weft__tokenizer_is_bytes(tokenizer))) {
        text = newline;
    }
    if (text[0] != '\0') {
        return weft__tokenizer_encode(tokenizer, text, strlen(text), true, tokens);
    }
    tokens->at = malloc(sizeof(uint32_t));
    if (tokens->at == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a prompt");
    }
    tokens->at[0] = (uint32_t)end;
    tokens->count = tokens->room = 1;
    return WEFT_OK;
}
