/* Choosing the next token, and what is shown of a text. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(likeliest_token_without_temperature),
        cmocka_unit_test(tokens_come_as_often_as_they_should),
        cmocka_unit_test(terminals_are_not_given_orders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
