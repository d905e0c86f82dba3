/* ctest: timeout=120 */
/* Whole models: gradients with dropout against differences of the loss, accumulation, the order in
 * which gradients are ready, bf16, same bits, and generation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "kernel/cpu/blas.h"
#include "kernel/numbers.h"
#include "model/rig.h"

static weft_model_config_t config_of(weft_family_t family)
{
    weft_model_config_t c = {.family = family,
                             .layers = 2,
                             .width = 24,
                             .heads = 4,
                             .kv_heads = 4,
                             .head_dim = 6,
                             .ffn = 40,
                             .vocab = 51,
                             .context = 80,
                             .tied = true,
                             .norm_eps = 1e-5f,
                             .rope_theta = 10000.0f,
                             .init_std = 0.02f};
    if (family == WEFT_LLAMA) {
        c.kv_heads = 2;
        c.tied = false;
    }
    return c;
}

static const weft_family_t families[] = {WEFT_GPT2, WEFT_LLAMA};

static void open_random(rig_t *rig, weft_model_config_t config, weft_shape_t shape)
{
    rig_options_t options = {.config = config, .shape = shape};
    rig_open(rig, &options);
    rig_init(rig, numbers_seed(), 10.0f);
    rig_tokens(rig, numbers_seed());
}

/* ---- gradients ---------------------------------------------------------------------------- */

/* Move all parameters by `step` along a random direction. */
static void move(rig_t *rig, float step)
{
    for (int i = 0; i < rig->model->param_count; i++) {
        uint64_t key = weft__name_key(numbers_seed() + 1, rig->model->params[i].name);
        float *w = rig->params[i];
        for (int64_t j = 0; j < rig->model->params[i].count; j++) {
            w[j] += (weft__rng_at(key, (uint64_t)j) & 1) != 0 ? step : -step;
        }
    }
}

/* The gradient's slope along that direction, and its length. */
static double slope_of(const rig_t *rig, double *length_p)
{
    double slope = 0, square = 0;
    for (int i = 0; i < rig->model->param_count; i++) {
        uint64_t key = weft__name_key(numbers_seed() + 1, rig->model->params[i].name);
        const float *g = rig->grads[i];
        for (int64_t j = 0; j < rig->model->params[i].count; j++) {
            slope += (weft__rng_at(key, (uint64_t)j) & 1) != 0 ? (double)g[j] : -(double)g[j];
            square += (double)g[j] * (double)g[j];
        }
    }
    *length_p = sqrt(square);
    return slope;
}

static double difference(rig_t *rig, float step)
{
    move(rig, step);
    double above = rig_run(rig);
    move(rig, -2 * step);
    double below = rig_run(rig);
    move(rig, step);
    return (above - below) / (2 * (double)step);
}

/* With dropout everywhere: backward must use the masks of forward. Wrong ones would be off by about
 * the gradient's length. */
static void gradients_match_differences_with_dropout(void **state)
{
    (void)state;
    for (int f = 0; f < 2; f++) {
        rig_t rig;
        weft_model_config_t config = config_of(families[f]);
        config.embed_dropout = families[f] == WEFT_GPT2 ? 0.1f : 0;
        config.residual_dropout = families[f] == WEFT_GPT2 ? 0.2f : 0;
        config.attention_dropout = 0.15f;
        open_random(&rig, config, WEFT_SHAPE(2, 70));
        rig.pass.seed = 5;
        rig.pass.step = 3;
        rig_run(&rig);
        double length, slope = slope_of(&rig, &length);
        /* Two steps, so that the third derivative drops out. */
        double differences = (4 * difference(&rig, 5e-4f) - difference(&rig, 1e-3f)) / 3;
        if (!(fabs(slope - differences) < 2e-2 * length)) {
            fail_msg("family %d: the gradient says %g, differences %g; its length is %g", f, slope,
                     differences, length);
        }
        rig_close(&rig);
    }
}

static void dropout_changes_with_step_and_sample(void **state)
{
    rig_t rig;
    weft_model_config_t config = config_of(WEFT_GPT2);
    (void)state;
    config.residual_dropout = 0.5f;
    open_random(&rig, config, WEFT_SHAPE(1, 20));
    double first = rig_run(&rig), again = rig_run(&rig);
    rig.pass.step = 1;
    double later = rig_run(&rig);
    rig.pass.step = 0;
    rig.pass.sample_first = 1;
    double other = rig_run(&rig);
    rig.pass.sample_first = 0;
    rig.pass.training = false;
    double without = rig_run(&rig);
    assert_true(first == again);
    assert_true(first != later && first != other && later != other && without != first);
    rig_close(&rig);
}

/* Two micro-batches give the sum of what one batch of both gives, with dropout too. */
static void micro_batches_add_up(void **state)
{
    (void)state;
    for (int f = 0; f < 2; f++) {
        rig_t whole, half;
        weft_model_config_t config = config_of(families[f]);
        config.attention_dropout = 0.1f;
        config.residual_dropout = families[f] == WEFT_GPT2 ? 0.1f : 0;
        open_random(&whole, config, WEFT_SHAPE(4, 9));
        open_random(&half, config, WEFT_SHAPE(2, 9));
        double loss = rig_run(&whole), sum = 0;
        half.pass.loss_scale = whole.pass.loss_scale;
        for (int i = 0; i < 2; i++) {
            memcpy(half.acts.tokens, whole.acts.tokens + i * 18, 18 * sizeof(int32_t));
            memcpy(half.acts.targets, whole.acts.targets + i * 18, 18 * sizeof(int32_t));
            half.pass.sample_first = 2 * i;
            sum += rig_run(&half) / 2;
        }
        assert_true(fabs(sum - loss) < 1e-6);
        for (int i = 0; i < whole.model->param_count; i++) {
            assert_true(rig_apart(half.grads[i], whole.grads[i], whole.model->params[i].count) <
                        2e-5);
        }
        rig_close(&whole);
        rig_close(&half);
    }
}

/* ---- ready gradients ---------------------------------------------------------------------- */

typedef struct ready {
    rig_t *rig;
    int last;      /* the lowest parameter told of so far */
    int calls[64]; /* by parameter */
    float *copy[64];
} ready_t;

/* What is told to be ready does not change any more. */
static void note_ready(void *arg, int first, int count)
{
    ready_t *ready = arg;
    assert_true(first + count <= ready->last);
    ready->last = first;
    for (int i = first; i < first + count; i++) {
        size_t bytes = (size_t)ready->rig->model->params[i].count * sizeof(float);
        ready->calls[i]++;
        ready->copy[i] = malloc(bytes);
        memcpy(ready->copy[i], ready->rig->grads[i], bytes);
    }
}

static void gradients_are_ready_once_and_in_reverse(void **state)
{
    (void)state;
    for (int f = 0; f < 2; f++) {
        rig_t rig;
        open_random(&rig, config_of(families[f]), WEFT_SHAPE(2, 7));
        ready_t ready = {.rig = &rig, .last = rig.model->param_count};
        rig.pass.grad_ready = note_ready;
        rig.pass.grad_ready_arg = &ready;
        rig_run(&rig);
        for (int i = 0; i < rig.model->param_count; i++) {
            assert_int_equal(ready.calls[i], 1);
            assert_memory_equal(ready.copy[i], rig.grads[i],
                                (size_t)rig.model->params[i].count * sizeof(float));
            free(ready.copy[i]);
        }
        rig_close(&rig);
    }
}

/* ---- types, bits -------------------------------------------------------------------------- */

static void sixteen_bits_are_near_f32(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        rig_t exact, rough;
        bool bf16 = i < 2;
        rig_options_t options = {.config = config_of(families[i % 2]),
                                 .type = bf16 ? WEFT_BF16 : WEFT_F16,
                                 .shape = WEFT_SHAPE(2, 33)};
        open_random(&exact, options.config, options.shape);
        rig_open(&rough, &options);
        rig_init(&rough, numbers_seed(), 10.0f);
        rig_tokens(&rough, numbers_seed());
        double apart = fabs(rig_run(&rough) / rig_run(&exact) - 1), dot = 0, a = 0, b = 0;
        for (int p = 0; p < exact.model->param_count; p++) {
            const float *x = exact.grads[p], *y = rough.grads[p];
            for (int64_t j = 0; j < exact.model->params[p].count; j++) {
                dot += (double)x[j] * (double)y[j];
                a += (double)x[j] * (double)x[j];
                b += (double)y[j] * (double)y[j];
            }
        }
        if (!(apart < (bf16 ? 0.02 : 0.002) && dot / sqrt(a * b) > (bf16 ? 0.995 : 0.9999))) {
            fail_msg("%s: loss off by %g, cosine of gradients %g", weft_dtype_name(options.type),
                     apart, dot / sqrt(a * b));
        }
        rig_close(&exact);
        rig_close(&rough);
    }
}

static void runs_repeat_bit_for_bit(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        rig_t first, second;
        weft__compute_threads(threads);
        open_random(&first, config_of(WEFT_GPT2), WEFT_SHAPE(3, 70));
        open_random(&second, config_of(WEFT_GPT2), WEFT_SHAPE(3, 70));
        assert_true(rig_run(&first) == rig_run(&second));
        for (int i = 0; i < first.model->param_count; i++) {
            assert_memory_equal(first.grads[i], second.grads[i],
                                (size_t)first.model->params[i].count * sizeof(float));
        }
        rig_close(&first);
        rig_close(&second);
    }
    weft__compute_threads(0);
}

/* A fresh pass finds anything in the gradients that it writes, and adds to the others: the next one
 * adds to all. Of more tokens than one part of a product's k has, and than the head takes at
 * once. */
static void a_fresh_pass_needs_no_zeros(void **state)
{
    (void)state;
    for (int f = 0; f < 2; f++) {
        rig_t usual, fresh;
        weft_shape_t shape = WEFT_SHAPE(60, 70);
        int written = 0;
        shape.head_rows = 1000;
        open_random(&usual, config_of(families[f]), shape);
        open_random(&fresh, config_of(families[f]), shape);
        for (int i = 0; i < fresh.model->param_count; i++) {
            if (weft__grad_is_written(fresh.model, i)) {
                memset(fresh.grads[i], 0xff, (size_t)fresh.model->params[i].count * sizeof(float));
                written++;
            }
        }
        assert_true(written >= 4 * fresh.model->config.layers);
        for (int micro = 0; micro < 2; micro++) {
            fresh.pass.fresh = micro == 0;
            rig_run(&usual);
            rig_run(&fresh);
            for (int i = 0; i < fresh.model->param_count; i++) {
                assert_true(
                    rig_apart(fresh.grads[i], usual.grads[i], fresh.model->params[i].count) < 1e-6);
            }
        }
        rig_close(&usual);
        rig_close(&fresh);
    }
}

static void a_model_learns(void **state)
{
    const weft_adamw_t adamw = {
        .lr = 1e-2f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .decay = 0.0f};
    (void)state;
    for (int f = 0; f < 2; f++) {
        rig_t rig;
        rig_options_t options = {.config = config_of(families[f]), .shape = WEFT_SHAPE(2, 16)};
        rig_open(&rig, &options);
        rig_init(&rig, numbers_seed(), 1.0f);
        rig_tokens(&rig, numbers_seed());
        double first = rig_run(&rig), last = 0;
        assert_true(fabs(first - log(51)) < 0.2); /* knows nothing yet */
        for (int step = 1; step <= 60; step++) {
            rig_zero_grads(&rig);
            last = rig_run(&rig);
            rig_step(&rig, step, &adamw, 1.0f);
        }
        assert_true(last < 0.3);
        rig_close(&rig);
    }
}

/* ---- generation --------------------------------------------------------------------------- */

/* Token by token, and a prompt in pieces: the logits of the whole sequence at once. */
static void generation_follows_forward(void **state)
{
    enum { B = 2, T = 23 };
    static const int pieces[] = {9, 1, 1, 4, 7, 1};
    (void)state;
    for (int f = 0; f < 2; f++) {
        rig_t rig;
        weft_cache_t cache;
        int32_t tokens[B * T];
        open_random(&rig, config_of(families[f]), WEFT_SHAPE(B, T));
        rig.pass.training = false;
        rig_run(&rig);
        int64_t vocab = rig.model->vocab_rows;
        float *all = malloc((size_t)(B * T * vocab) * sizeof(float));
        float *logits = malloc((size_t)(B * vocab) * sizeof(float));
        memcpy(all, rig.pass.scratch.logits, (size_t)(B * T * vocab) * sizeof(float));
        void *memory = aligned_alloc(256, weft__cache_bytes(rig.model, B, T, B * 9));
        weft__cache_carve(rig.model, B, T, B * 9, memory, &cache);
        for (int i = 0, past = 0; i < 6; past += pieces[i++]) {
            for (int b = 0; b < B; b++) {
                memcpy(tokens + b * pieces[i], rig.acts.tokens + b * T + past,
                       (size_t)pieces[i] * sizeof(int32_t));
            }
            weft_sequence_t list[B] = {{0, pieces[i], past, 0}, {pieces[i], pieces[i], past, 1}};
            weft_sequences_t batch = {B, B * pieces[i], list};
            rig_check(weft__model_extend(&rig.pass, &cache, &batch, tokens, logits), "extend");
            for (int b = 0; b < B; b++) {
                const float *expected = all + (b * T + past + pieces[i] - 1) * vocab;
                assert_true(rig_apart(logits + b * vocab, expected, vocab) < 1e-5);
            }
        }
        free(memory);
        free(all);
        free(logits);
        rig_close(&rig);
    }
}

/* ---- ragged batches ----------------------------------------------------------------------- */

enum { SLOTS = 5, LONGEST = 60, ROWS = 48 };

/* A model, and texts that run through it. */
typedef struct texts {
    rig_t rig;
    weft_cache_t cache;
    void *memory;
    int32_t tokens[SLOTS][LONGEST];
    int length[SLOTS];
    float *logits; /* SLOTS x LONGEST x vocab: of those tokens that were the last of their piece */
} texts_t;

static void open_texts(texts_t *t, weft_model_config_t config, uint64_t seed)
{
    open_random(&t->rig, config, WEFT_SHAPE(1, LONGEST));
    size_t vocab = (size_t)t->rig.model->vocab_rows;
    t->memory = aligned_alloc(256, weft__cache_bytes(t->rig.model, SLOTS, LONGEST, ROWS));
    weft__cache_carve(t->rig.model, SLOTS, LONGEST, ROWS, t->memory, &t->cache);
    t->logits = calloc(SLOTS * LONGEST * vocab, sizeof(float));
    for (int i = 0; i < SLOTS; i++) {
        t->length[i] = 1 + (int)(weft__rng_at(seed, (uint64_t)i) % LONGEST);
        for (int j = 0; j < t->length[i]; j++) {
            t->tokens[i][j] = (int32_t)(weft__rng_at(seed + 1, (uint64_t)(i * LONGEST + j)) %
                                        (uint64_t)t->rig.model->config.vocab);
        }
    }
}

static void close_texts(texts_t *t)
{
    free(t->memory);
    free(t->logits);
    rig_close(&t->rig);
}

/* Run a batch; each sequence's logits are put beside its last token. */
static void extend_texts(texts_t *t, const weft_sequences_t *batch)
{
    int32_t tokens[ROWS];
    size_t vocab = (size_t)t->rig.model->vocab_rows;
    float *logits = malloc((size_t)batch->count * vocab * sizeof(float));
    for (int64_t i = 0; i < batch->count; i++) {
        const weft_sequence_t *s = &batch->list[i];
        memcpy(tokens + s->row, t->tokens[s->slot] + s->position,
               (size_t)s->length * sizeof(int32_t));
    }
    rig_check(weft__model_extend(&t->rig.pass, &t->cache, batch, tokens, logits), "extend");
    for (int64_t i = 0; i < batch->count; i++) {
        const weft_sequence_t *s = &batch->list[i];
        size_t at = (size_t)(s->slot * LONGEST + s->position + s->length - 1);
        memcpy(t->logits + at * vocab, logits + (size_t)i * vocab, vocab * sizeof(float));
    }
    free(logits);
}

/* Pieces of random lengths of random texts, until all are through. `cuts` says where pieces
 * ended. */
static void run_mixed(texts_t *t, uint64_t seed, bool cuts[SLOTS][LONGEST])
{
    int position[SLOTS] = {0};
    uint64_t draw = 0;
    for (bool left = true; left;) {
        weft_sequence_t list[SLOTS];
        weft_sequences_t batch = {.list = list};
        left = false;
        for (int i = 0; i < SLOTS; i++) {
            int slot = (i + (int)(draw % SLOTS)) % SLOTS, rest = t->length[slot] - position[slot];
            int most = ROWS - (int)batch.rows < rest ? ROWS - (int)batch.rows : rest;
            int count = most > 0 ? 1 + (int)(weft__rng_at(seed, draw) % (uint64_t)most) : 0;
            count = weft__rng_at(seed + 1, draw++) % 3 == 0 && most > 0 ? 1 : count;
            left = left || rest > count;
            if (count > 0) {
                list[batch.count++] = (weft_sequence_t){batch.rows, count, position[slot], slot};
                position[slot] += count;
                batch.rows += count;
                cuts[slot][position[slot] - 1] = true;
            }
        }
        extend_texts(t, &batch);
    }
}

/* The same pieces of each text, with nothing beside it. */
static void run_alone(texts_t *t, bool cuts[SLOTS][LONGEST])
{
    for (int slot = 0; slot < SLOTS; slot++) {
        for (int first = 0, at = 0; at < t->length[slot]; at++) {
            if (cuts[slot][at]) {
                weft_sequence_t one = {0, at + 1 - first, first, slot};
                extend_texts(t, &(weft_sequences_t){1, one.length, &one});
                first = at + 1;
            }
        }
    }
}

/* One as small as the others here, and one whose sums are so long that they are cut. */
static weft_model_config_t config_of_texts(weft_family_t family, bool large)
{
    weft_model_config_t c = config_of(family);
    if (large) {
        c.width = c.heads * 80;
        c.head_dim = 80;
        c.ffn = 1100;
        c.vocab = 517;
    }
    return c;
}

/* Prompts in pieces beside single tokens: each sequence gets the logits that it has alone. The
 * order of sums is ours to choose only where products are. */
static void sequences_do_not_depend_on_their_batch(void **state)
{
    bool exact = weft__blas_sgemm() == NULL;
    (void)state;
    for (int round = 0; round < 10; round++) {
        uint64_t seed = numbers_seed() + 10 * (uint64_t)round;
        static texts_t mixed, alone;
        bool cuts[SLOTS][LONGEST] = {{false}};
        weft_model_config_t config = config_of_texts(families[round % 2], round >= 8);
        open_texts(&mixed, config, seed);
        open_texts(&alone, config, seed);
        run_mixed(&mixed, seed + 2, cuts);
        run_alone(&alone, cuts);
        int64_t count = SLOTS * LONGEST * mixed.rig.model->vocab_rows;
        if (exact) {
            assert_memory_equal(mixed.logits, alone.logits, (size_t)count * sizeof(float));
        }
        assert_true(rig_apart(mixed.logits, alone.logits, count) < 1e-5);
        close_texts(&mixed);
        close_texts(&alone);
    }
}

static void sequences_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    static texts_t t;
    open_texts(&t, config_of(WEFT_LLAMA), 1);
    const weft_sequence_t lists[][2] = {
        {{0, 5, LONGEST - 4, 0}, {5, 1, 0, 1}}, /* behind the end of a slot */
        {{0, 0, 0, 0}, {0, 1, 0, 1}},           /* no token */
        {{0, 5, 0, 0}, {6, 1, 0, 1}},           /* a gap */
        {{0, 5, 0, 0}, {5, 1, 0, SLOTS}},       /* no slot */
        {{0, 5, -1, 0}, {5, 1, 0, 1}},          /* before the first position */
        {{0, ROWS, 0, 0}, {ROWS, 1, 0, 1}},     /* more rows than there is room for */
    };
    int32_t tokens[ROWS + 1] = {0};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        weft_sequences_t batch = {2, lists[i][0].length + lists[i][1].length, lists[i]};
        assert_int_equal(weft__model_extend(&t.rig.pass, &t.cache, &batch, tokens, t.logits),
                         WEFT_ERR_INVALID);
    }
    close_texts(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_match_differences_with_dropout),
        cmocka_unit_test(dropout_changes_with_step_and_sample),
        cmocka_unit_test(micro_batches_add_up),
        cmocka_unit_test(gradients_are_ready_once_and_in_reverse),
        cmocka_unit_test(sixteen_bits_are_near_f32),
        cmocka_unit_test(runs_repeat_bit_for_bit),
        cmocka_unit_test(a_fresh_pass_needs_no_zeros),
        cmocka_unit_test(a_model_learns),
        cmocka_unit_test(generation_follows_forward),
        cmocka_unit_test(sequences_do_not_depend_on_their_batch),
        cmocka_unit_test(sequences_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
