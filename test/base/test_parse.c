/* Sizes, times, numbers, booleans, and the nearest name; and noise, which must not be accepted with
 * a value that does not print back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "base/settings.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void sizes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"0", 0},
        {"8", 8},
        {"8B", 8},
        {"64K", 65536},
        {"64k", 65536},
        {"64KB", 65536},
        {"64KiB", 65536},
        {"1.5M", 1572864},
        {"2G", (uint64_t)2 << 30},
        {"1T", (uint64_t)1 << 40},
        {"0.25K", 256},
        {"0.1K", 102},
        {"18446744073709551615", UINT64_MAX},
        {"16777215T", (uint64_t)16777215 << 40},
        {"1.00000000000000000001K", 1024},
    };
    for (size_t i = 0; i < COUNT(good); i++) {
        size_t got = 12345;
        print_message("size %s\n", good[i].text);
        assert_true(weft__parse_size(good[i].text, &got));
        assert_true(got == good[i].bytes);
    }
    static const char *const bad[] = {"",
                                      " 8",
                                      "8 ",
                                      "-1",
                                      "+1",
                                      "K",
                                      "1.K",
                                      ".5M",
                                      "1.5",
                                      "8X",
                                      "8KK",
                                      "8iB",
                                      "1e3",
                                      "0x8",
                                      "8,0",
                                      "nan",
                                      "inf",
                                      "18446744073709551616",
                                      "8Ki",
                                      "16777216T",
                                      "16777215.9999999999T1",
                                      "999999999999999999999999"};
    for (size_t i = 0; i < COUNT(bad); i++) {
        size_t got = 12345;
        print_message("not a size: \"%s\"\n", bad[i]);
        assert_false(weft__parse_size(bad[i], &got));
        assert_int_equal(got, 12345);
    }
    size_t got;
    assert_false(weft__parse_size(NULL, &got));
}

static void times(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int ms;
    } good[] = {
        {"300", 300000},    {"1.5s", 1500},
        {"20ms", 20},       {"5m", 300000},
        {"1h", 3600000},    {"0", 0},
        {"0.07s", 70},      {"0.0001s", 1},
        {"0.5ms", 1},       {"2147483647ms", INT_MAX},
        {"0.000000001", 1}, {"1.1", 1100},
    };
    for (size_t i = 0; i < COUNT(good); i++) {
        int got = -1;
        print_message("time %s\n", good[i].text);
        assert_true(weft__parse_ms(good[i].text, &got));
        assert_int_equal(got, good[i].ms);
    }
    static const char *const bad[] = {"",     "-1",  "s",   "5d",  "1.s",  "2147483648ms",
                                      "597h", "1 s", "1s ", "1e3", "1.2.3"};
    for (size_t i = 0; i < COUNT(bad); i++) {
        int got = -7;
        print_message("not a time: \"%s\"\n", bad[i]);
        assert_false(weft__parse_ms(bad[i], &got));
        assert_int_equal(got, -7);
    }
}

static void ints_and_bools(void **state)
{
    (void)state;
    int number = 0;
    assert_true(weft__parse_int("-2147483648", &number));
    assert_int_equal(number, INT_MIN);
    assert_true(weft__parse_int("2147483647", &number));
    assert_int_equal(number, INT_MAX);
    assert_true(weft__parse_int("+7", &number));
    assert_int_equal(number, 7);
    static const char *const bad[] = {"",    " 1",  "1 ",  "2147483648", "-",
                                      "--1", "1.0", "0x1", "one",        "99999999999999999999"};
    for (size_t i = 0; i < COUNT(bad); i++) {
        assert_false(weft__parse_int(bad[i], &number));
        assert_int_equal(number, 7);
    }
    static const char *const yes[] = {"1", "yes", "on", "TRUE"}, *const no[] = {"0", "No", "off",
                                                                                "false"};
    bool truth;
    for (size_t i = 0; i < COUNT(yes); i++) {
        truth = false;
        assert_true(weft__parse_bool(yes[i], &truth) && truth);
        assert_true(weft__parse_bool(no[i], &truth) && !truth);
    }
    assert_false(weft__parse_bool("", &truth));
    assert_false(weft__parse_bool("2", &truth));
    assert_false(weft__parse_bool("yess", &truth));
    assert_false(weft__parse_bool(NULL, &truth));
}

static void reals(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double value;
    } good[] = {{"0", 0}, {"-2", -2}, {"+.5", .5}, {"3e-4", 3e-4}, {"1.", 1}, {"1E5", 1e5}};
    static const char *const bad[] = {"",    " 1",  "1 ",    "e",    "1e",  "0x10", "inf",
                                      "nan", "1,5", "1e999", "1..2", "--1", "1f",   NULL};
    double value;
    for (size_t i = 0; i < COUNT(good); i++) {
        assert_true(weft__parse_real(good[i].text, &value) && value == good[i].value);
    }
    for (size_t i = 0; i < COUNT(bad); i++) {
        assert_false(weft__parse_real(bad[i], &value));
    }
    for (uint64_t i = 0; i < 20000; i++) { /* what is printed reads back as the same bits */
        uint64_t bits = weft__rng_at(8, i);
        char text[32];
        double back;
        memcpy(&value, &bits, sizeof(value));
        if (value - value == 0) {
            weft__print_real(text, sizeof(text), value);
            assert_true(weft__parse_real(text, &back) && memcmp(&back, &value, sizeof(back)) == 0);
        }
    }
}

static void nearest_name(void **state)
{
    (void)state;
    static const char *const names[] = {"allreduce", "reduce", "broadcast", "barrier", "all", "n"};
    static const char *const pairs[][2] = {
        {"allredcue", "allreduce"},
        {"all-reduce", "allreduce"},
        {"ALLREDUCE", "allreduce"},
        {"redcue", "reduce"},
        {"bcast", NULL},
        {"broad", "broadcast"},
        {"barier", "barrier"},
        {"al", "all"},
        {"lal", "all"},
        {"x", NULL},
        {"xyz", NULL},
        {"", NULL},
        {"purple", NULL},
    };
    for (size_t i = 0; i < COUNT(pairs); i++) {
        const char *got = weft__nearest(pairs[i][0], names, (int)COUNT(names));
        print_message("nearest to \"%s\": %s\n", pairs[i][0], got != NULL ? got : "none");
        if (pairs[i][1] == NULL) {
            assert_null(got);
        } else {
            assert_non_null(got);
            assert_string_equal(got, pairs[i][1]);
        }
    }
    char huge[500];
    memset(huge, 'a', sizeof(huge) - 1);
    huge[sizeof(huge) - 1] = '\0';
    assert_null(weft__nearest(huge, names, (int)COUNT(names)));
    const char *const huge_names[] = {huge, "aab"};
    assert_string_equal(weft__nearest("aaa", huge_names, 2), "aab");
    assert_null(weft__nearest("all", names, 0));
}

/* Noise made of the characters that matter. What is accepted must print back to itself. */
static void noise_is_refused_or_consistent(void **state)
{
    (void)state;
    static const char alphabet[] = "0123456789..KMGTiBsmh -+eE\xff";
    int accepted = 0;
    for (uint64_t round = 0; round < 200000; round++) {
        uint64_t bits = weft__rng_at(2024, round);
        char text[12], again[64];
        int length = (int)(bits % 11);
        bits >>= 4;
        for (int i = 0; i < length; i++, bits /= 27) {
            text[i] = alphabet[bits % (sizeof(alphabet) - 1)];
        }
        text[length] = '\0';
        size_t size, size_again;
        if (weft__parse_size(text, &size)) {
            accepted++;
            snprintf(again, sizeof(again), "%zu", size);
            assert_true(weft__parse_size(again, &size_again));
            assert_true(size == size_again);
        }
        int ms, ms_again;
        if (weft__parse_ms(text, &ms)) {
            assert_true(ms >= 0);
            snprintf(again, sizeof(again), "%dms", ms);
            assert_true(weft__parse_ms(again, &ms_again));
            assert_int_equal(ms, ms_again);
        }
        int number;
        if (weft__parse_int(text, &number)) {
            assert_int_equal(number, strtoll(text, NULL, 10));
        }
        const char *const names[] = {"64K", "timeout", text};
        weft__nearest(text, names, 3);
    }
    assert_true(accepted > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes),          cmocka_unit_test(times),
        cmocka_unit_test(ints_and_bools), cmocka_unit_test(reals),
        cmocka_unit_test(nearest_name),   cmocka_unit_test(noise_is_refused_or_consistent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
