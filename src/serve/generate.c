/* Text from a model: see generate.h. */
#include "serve/generate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <weft/device.h>

#include "base/half.h"
#include "base/log.h"
#include "base/rng.h"

#define CHUNK 128 /* tokens that run through the model at once, or one of each text */

/* ---- choosing a token --------------------------------------------------------------------- */

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

/* Leave the top_k likeliest in order[0, top_k), the likeliest first; there, it starts as 0, 1,
 * ... */
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

/* ---- the model ---------------------------------------------------------------------------- */

/* One of the texts that are written. */
typedef struct text {
    uint32_t *tokens; /* all so far, prompt included */
    size_t length;
    size_t seen;    /* tokens that ran through the model, or were left out */
    int64_t cached; /* positions in the cache: the last of those */
    int made;
    bool done;
} text_t;

typedef struct writer {
    const weft_generate_t *g;
    weft_pass_t pass;
    weft_cache_t cache;
    void *cache_memory, *logits;
    int32_t *tokens; /* on the device: rows */
    void *host;      /* pinned: tokens, or logits as stored */
    float *values;   /* logits of a text as f32 */
    int *order;
    text_t *texts;
    int count;
    int64_t context; /* tokens looked back at, at most */
    weft_sequence_t *list;
    int64_t rows; /* of a batch, at most */
} writer_t;

static size_t logits_bytes(const writer_t *w)
{
    return (size_t)w->g->model->vocab_rows * weft_dtype_size(w->g->model->type);
}

static weft_status_t open_device(writer_t *w, int64_t capacity)
{
    const weft_generate_t *g = w->g;
    weft_shape_t shape = WEFT_SHAPE(1, w->rows);
    size_t logits = (size_t)w->count * logits_bytes(w), tokens = (size_t)w->rows * sizeof(int32_t);
    WEFT_TRY(
        weft_malloc(&w->cache_memory, weft__cache_bytes(g->model, w->count, capacity, w->rows)));
    WEFT_TRY(weft_malloc(&w->logits, logits));
    WEFT_TRY(weft_malloc((void **)&w->tokens, tokens));
    WEFT_TRY(weft_host_malloc(&w->host, logits > tokens ? logits : tokens));
    weft__cache_carve(g->model, w->count, capacity, w->rows, w->cache_memory, &w->cache);
    w->pass = weft__pass_make(g->model, g->compute, &shape);
    w->pass.params = g->params;
    w->pass.stream = g->stream;
    w->pass.training = false;
    return WEFT_OK;
}

static weft_status_t open_text(const writer_t *w, const weft_tokens_t *prompt, text_t *text)
{
    text->tokens = malloc((prompt->count + (size_t)w->g->tokens) * sizeof(uint32_t));
    if (text->tokens == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to write %d tokens", w->g->tokens);
    }
    memcpy(text->tokens, prompt->at, prompt->count * sizeof(uint32_t));
    text->length = prompt->count;
    if (text->length > (size_t)w->context) { /* of a prompt too long, the end counts */
        text->seen = text->length - (size_t)w->context;
    }
    return WEFT_OK;
}

static weft_status_t open_writer(const weft_generate_t *g, const weft_tokens_t *prompts, int count,
                                 writer_t *w)
{
    size_t vocab = (size_t)g->model->vocab_rows, most = 0;
    int64_t own = g->model->config.context;
    *w = (writer_t){.g = g,
                    .count = count,
                    .context = g->context < own ? g->context : own,
                    .rows = count > CHUNK ? count : CHUNK};
    w->values = malloc(vocab * sizeof(float));
    w->order = malloc(vocab * sizeof(int));
    w->texts = calloc((size_t)count, sizeof(*w->texts));
    w->list = calloc((size_t)count, sizeof(*w->list));
    if (w->values == NULL || w->order == NULL || w->texts == NULL || w->list == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to write %d tokens", g->tokens);
    }
    for (int i = 0; i < count; i++) {
        WEFT_TRY(open_text(w, &prompts[i], &w->texts[i]));
        size_t end = prompts[i].count + (size_t)g->tokens;
        most = end > most ? end : most;
    }
    return open_device(w, (int64_t)most < w->context ? (int64_t)most : w->context);
}

static void close_writer(writer_t *w)
{
    weft_free(w->cache_memory);
    weft_free(w->logits);
    weft_free(w->tokens);
    weft_host_free(w->host);
    for (int i = 0; i < w->count && w->texts != NULL; i++) {
        free(w->texts[i].tokens);
    }
    free(w->texts);
    free(w->list);
    free(w->values);
    free(w->order);
}

/* ---- a batch ------------------------------------------------------------------------------ */

/* Take `most` at most of the text's tokens that the model has not seen. */
static int64_t take_tokens(writer_t *w, int slot, int64_t row, int64_t most)
{
    text_t *text = &w->texts[slot];
    int32_t *host = w->host;
    if (text->cached + (int64_t)(text->length - text->seen) > w->cache.capacity) {
        text->cached = 0; /* full: go on from the second half */
        text->seen = text->length - (size_t)(w->context + 1) / 2;
    }
    int64_t left = (int64_t)(text->length - text->seen), count = left < most ? left : most;
    for (int64_t i = 0; i < count; i++) {
        host[row + i] = (int32_t)text->tokens[text->seen + (size_t)i];
    }
    return count;
}

/* All texts that are not done, each with at least one token; or the first of them. */
static weft_sequences_t make_batch(writer_t *w)
{
    weft_sequences_t batch = {.list = w->list};
    int64_t waiting = 0, most = w->g->compute->ragged ? w->count : 1;
    for (int i = 0; i < w->count; i++) {
        waiting += !w->texts[i].done;
    }
    waiting = waiting < most ? waiting : most;
    for (int i = 0; i < w->count && waiting > 0; i++) {
        if (!w->texts[i].done) {
            int64_t count = take_tokens(w, i, batch.rows, w->rows - batch.rows - --waiting);
            w->list[batch.count++] = (weft_sequence_t){
                .row = batch.rows, .length = count, .position = w->texts[i].cached, .slot = i};
            batch.rows += count;
        }
    }
    return batch;
}

/* The logits of sequence `number` of the batch, as f32. */
static const float *values_of(writer_t *w, int64_t number)
{
    int vocab = w->g->model->config.vocab;
    const char *stored = (const char *)w->host + (size_t)number * logits_bytes(w);
    if (w->g->model->type == WEFT_F32) {
        memcpy(w->values, stored, (size_t)vocab * sizeof(float));
        return w->values;
    }
    const uint16_t *halves = (const uint16_t *)(const void *)stored;
    bool f16 = w->g->model->type == WEFT_F16;
    for (int i = 0; i < vocab; i++) {
        w->values[i] = f16 ? weft__f16_to_f32(halves[i]) : weft__bf16_to_f32(halves[i]);
    }
    return w->values;
}

static bool are_numbers(const float *logits, int vocab)
{
    bool numbers = true;
    for (int i = 0; i < vocab; i++) {
        numbers = numbers && !isnan(logits[i]);
    }
    return numbers;
}

static weft_status_t write_token(writer_t *w, int slot, const float *values)
{
    const weft_generate_t *g = w->g;
    text_t *text = &w->texts[slot];
    if (!are_numbers(values, g->model->config.vocab)) {
        return weft__fail(WEFT_ERR_INVALID,
                          "the model's output is NaN or infinite: its weights are damaged, or "
                          "training had diverged when it was saved");
    }
    double draw = (double)(weft__rng_at(g->seed, (uint64_t)text->made) >> 11) * 0x1p-53;
    uint32_t token = weft__generate_pick(values, g->model->config.vocab, g->temperature, g->top_k,
                                         draw, w->order);
    text->made++;
    text->done = text->made == g->tokens || (g->end >= 0 && token == (uint32_t)g->end);
    if (g->end >= 0 && token == (uint32_t)g->end) {
        return WEFT_OK;
    }
    text->tokens[text->length++] = token;
    return g->emit(g->arg, slot, token);
}

/* Run a batch through the model, and write a token of each text of which it has seen all. */
static weft_status_t run_batch(writer_t *w, const weft_sequences_t *batch)
{
    weft_stream_h stream = w->g->stream;
    size_t tokens = (size_t)batch->rows * sizeof(int32_t);
    WEFT_TRY(weft_memcpy(w->tokens, w->host, tokens, stream));
    WEFT_TRY(weft__model_extend(&w->pass, &w->cache, batch, w->tokens, w->logits));
    WEFT_TRY(weft_memcpy(w->host, w->logits, (size_t)batch->count * logits_bytes(w), stream));
    WEFT_TRY(weft_stream_synchronize(stream));
    for (int64_t i = 0; i < batch->count; i++) {
        int slot = (int)batch->list[i].slot;
        text_t *text = &w->texts[slot];
        text->seen += (size_t)batch->list[i].length;
        text->cached += batch->list[i].length;
        if (text->seen == text->length) {
            WEFT_TRY(write_token(w, slot, values_of(w, i)));
        }
    }
    return WEFT_OK;
}

static weft_status_t write_texts(writer_t *w)
{
    weft_status_t status = WEFT_OK;
    for (weft_sequences_t batch = make_batch(w); batch.count > 0 && status == WEFT_OK;) {
        status = run_batch(w, &batch);
        batch = make_batch(w);
    }
    return status;
}

static weft_status_t check_prompt(const weft_generate_t *generate, const weft_tokens_t *prompt)
{
    for (size_t i = 0; i < prompt->count; i++) {
        if (prompt->at[i] >= (uint32_t)generate->model->config.vocab) {
            return weft__fail(WEFT_ERR_INVALID,
                              "the prompt has the token %u, but the model knows %d only",
                              prompt->at[i], generate->model->config.vocab);
        }
    }
    return WEFT_OK;
}

weft_status_t weft__generate(const weft_generate_t *generate, const weft_tokens_t *prompts,
                             int count)
{
    writer_t writer;
    for (int i = 0; i < count; i++) {
        WEFT_TRY(check_prompt(generate, &prompts[i]));
    }
    weft_status_t status = open_writer(generate, prompts, count, &writer);
    if (status == WEFT_OK) {
        status = write_texts(&writer);
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

/* ---- samples of training ------------------------------------------------------------------ */

static weft_status_t collect(void *arg, int text, uint32_t token)
{
    weft_tokens_t *tokens = arg;
    (void)text;
    tokens->at[tokens->count++] = token; /* there is room for all that were asked for */
    return WEFT_OK;
}

weft_status_t weft__generate_sample(const weft_text_sample_t *sample, char **text_p)
{
    size_t length;
    weft_tokens_t start = {0}, made = {.at = calloc((size_t)sample->tokens + 1, sizeof(uint32_t))};
    weft_generate_t generate = {.model = sample->model,
                                .compute = sample->compute,
                                .params = sample->params,
                                .stream = sample->stream,
                                .tokens = sample->tokens,
                                .context = sample->context,
                                .temperature = 0.8,
                                .top_k = 50,
                                .seed = sample->seed,
                                .end = -1,
                                .emit = collect,
                                .arg = &made};
    weft_status_t status = made.at != NULL
                               ? WEFT_OK
                               : weft__fail(WEFT_ERR_NO_MEMORY, "no memory to write %d tokens",
                                            sample->tokens);
    if (status == WEFT_OK) {
        status = weft__generate_prompt(sample->tokenizer, sample->prompt, &start);
    }
    if (status == WEFT_OK) {
        status = weft__generate(&generate, &start, 1);
    }
    if (status == WEFT_OK) {
        status = weft__tokenizer_decode(sample->tokenizer, made.at, made.count, text_p, &length);
    }
    if (status == WEFT_OK) {
        weft__generate_tame(*text_p, length);
    }
    free(start.at);
    free(made.at);
    return status;
}
