/* Choosing the next token, texts side by side, and what is shown of a text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rng.h"
#include "base/settings.h"
#include "kernel/numbers.h"
#include "model/rig.h"
#include "serve/generate.h"

enum { VOCAB = 300, DRAWS = 20000 };

static float logits[VOCAB];
static int order[VOCAB];

/* Some of them equal. */
static void fill(uint64_t seed)
{
    for (int i = 0; i < VOCAB; i++) {
        logits[i] = (float)(weft__rng_at(seed, (uint64_t)i) % 64) / 8.0f - 4.0f;
    }
}

/* How many are likelier than token i; of equal ones the first is. */
static int place_of(int i)
{
    int place = 0;
    for (int j = 0; j < VOCAB; j++) {
        place += logits[j] > logits[i] || (logits[j] == logits[i] && j < i);
    }
    return place;
}

static void likeliest_token_without_temperature(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 100; seed++) {
        fill(seed);
        uint32_t token = weft__generate_pick(logits, VOCAB, 0.0, 0, 0.7, order);
        assert_int_equal(place_of((int)token), 0);
        assert_int_equal(weft__generate_pick(logits, VOCAB, 1.0, 1, 0.999, order), token);
    }
}

/* Draws at even distances meet each token as often as its probability says, to one draw. */
static void tokens_come_as_often_as_they_should(void **state)
{
    (void)state;
    static const int tops[] = {0, 1, 2, 7, 50, VOCAB - 1, VOCAB, VOCAB + 5};
    uint64_t seed = (uint64_t)time(NULL);
    printf("seed %llu\n", (unsigned long long)seed);
    for (size_t k = 0; k < sizeof(tops) / sizeof(tops[0]); k++) {
        int top = tops[k] == 0 || tops[k] > VOCAB ? VOCAB : tops[k], met[VOCAB] = {0};
        double temperature = k % 2 == 0 ? 0.7 : 1.5, sum = 0.0;
        fill(seed + k);
        for (int d = 0; d < DRAWS; d++) {
            met[weft__generate_pick(logits, VOCAB, temperature, tops[k], (d + 0.5) / DRAWS,
                                    order)]++;
        }
        for (int i = 0; i < VOCAB; i++) {
            sum += place_of(i) < top ? exp((double)logits[i] / temperature) : 0.0;
        }
        for (int i = 0; i < VOCAB; i++) {
            double expected = place_of(i) < top ? exp((double)logits[i] / temperature) / sum : 0.0;
            assert_true(fabs(met[i] - expected * DRAWS) <= 1.0 + 1e-6);
        }
    }
}

static void terminals_are_not_given_orders(void **state)
{
    (void)state;
    char text[] = "a\033[2Jb\n\tc\r\x7f\xc3\xa9\0d";
    weft__generate_tame(text, sizeof(text) - 1);
    assert_memory_equal(text, "a?[2Jb\n\tc??\xc3\xa9?d", sizeof(text));
}

/* ---- texts side by side ------------------------------------------------------------------- */

enum { TEXTS = 6, MADE = 40, CONTEXT = 200 };

typedef struct made {
    uint32_t tokens[TEXTS][MADE];
    int count[TEXTS];
    int offset; /* of the text that is written alone */
} made_t;

static weft_status_t keep(void *arg, int text, uint32_t token)
{
    made_t *made = arg;
    int at = made->offset + text;
    made->tokens[at][made->count[at]++] = token;
    return WEFT_OK;
}

static void open_model(rig_t *rig, weft_family_t family)
{
    rig_options_t options = {.config = {.family = family,
                                        .layers = 2,
                                        .width = 24,
                                        .heads = 4,
                                        .kv_heads = family == WEFT_GPT2 ? 4 : 2,
                                        .head_dim = 6,
                                        .ffn = 40,
                                        .vocab = 51,
                                        .context = CONTEXT,
                                        .tied = true,
                                        .norm_eps = 1e-5f,
                                        .rope_theta = 10000.0f,
                                        .init_std = 0.02f},
                             .shape = WEFT_SHAPE(1, 1)};
    rig_open(rig, &options);
    rig_init(rig, numbers_seed(), 10.0f);
}

/* Prompts shorter and longer than what runs through a model at once, and than its context; texts
 * that go on from their second half; some that end early. Also on a device without ragged
 * batches. */
static void texts_do_not_depend_on_those_beside_them(void **state)
{
    static const size_t lengths[TEXTS] = {1, 150, 3, CONTEXT - 5, CONTEXT + 30, 40};
    static uint32_t prompt[CONTEXT + 30];
    weft_tokens_t prompts[TEXTS];
    (void)state;
    for (int round = 0; round < 4; round++) {
        rig_t rig;
        made_t together = {0}, alone = {0};
        open_model(&rig, round % 2 == 0 ? WEFT_GPT2 : WEFT_LLAMA);
        weft_compute_t compute = *rig.compute;
        compute.ragged = round < 2;
        weft_generate_t g = {.model = rig.model,
                             .compute = &compute,
                             .params = rig.params,
                             .tokens = MADE,
                             .context = CONTEXT,
                             .temperature = 0.8,
                             .seed = numbers_seed(),
                             .end = 7,
                             .emit = keep,
                             .arg = &together};
        for (size_t i = 0; i < CONTEXT + 30; i++) {
            prompt[i] = (uint32_t)(weft__rng_at(numbers_seed() + 1, i) % 51);
        }
        for (int i = 0; i < TEXTS; i++) {
            prompts[i] = (weft_tokens_t){.at = prompt, .count = lengths[i]};
        }
        rig_check(weft__generate(&g, prompts, TEXTS), "generate");
        g.arg = &alone;
        for (int i = 0; i < TEXTS; i++) {
            alone.offset = i;
            rig_check(weft__generate(&g, &prompts[i], 1), "generate");
        }
        for (int i = 0; i < TEXTS; i++) {
            assert_int_equal(together.count[i], alone.count[i]);
            assert_memory_equal(together.tokens[i], alone.tokens[i], sizeof(alone.tokens[i]));
        }
        rig_close(&rig);
    }
}

/* The fifth token of a text cannot be written down. */
static weft_status_t refuse_fifth(void *arg, int text, uint32_t token)
{
    int *count = arg;
    (void)text;
    (void)token;
    return ++*count < 5 ? WEFT_OK : WEFT_ERR_SYSTEM;
}

static void who_cannot_take_a_token_ends_it(void **state)
{
    (void)state;
    rig_t rig;
    uint32_t first = 1, unknown = 51;
    weft_tokens_t prompt = {.at = &first, .count = 1};
    int count = 0;
    open_model(&rig, WEFT_GPT2);
    weft_generate_t g = {.model = rig.model,
                         .compute = rig.compute,
                         .params = rig.params,
                         .tokens = MADE,
                         .context = CONTEXT,
                         .seed = numbers_seed(),
                         .end = -1,
                         .emit = refuse_fifth,
                         .arg = &count};
    assert_int_equal(weft__generate(&g, &prompt, 1), WEFT_ERR_SYSTEM);
    assert_int_equal(count, 5);
    prompt.at = &unknown;
    assert_int_equal(weft__generate(&g, &prompt, 1), WEFT_ERR_INVALID);
    assert_int_equal(count, 5);
    rig_close(&rig);
}

int main(void)
{
    weft__settings_set("WEFT_BLAS", "own"); /* a BLAS may round a draw to another token */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(likeliest_token_without_temperature),
        cmocka_unit_test(tokens_come_as_often_as_they_should),
        cmocka_unit_test(texts_do_not_depend_on_those_beside_them),
        cmocka_unit_test(who_cannot_take_a_token_ends_it),
        cmocka_unit_test(terminals_are_not_given_orders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
