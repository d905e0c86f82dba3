/* ctest: labels=tsan */
/* The settings table: defaults, parsing, complaints, and what is shown. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/settings.h"

static char warnings[8][256];
static int warning_count;
static char algo_entry[] = "WEFT_ALGO=tree"; /* main puts it into the environment as it is */

static void collect(const char *text)
{
    assert_true(warning_count < 8);
    snprintf(warnings[warning_count++], sizeof(warnings[0]), "%s", text);
}

static void parse(char *const *environment, weft_settings_t *out)
{
    warning_count = 0;
    weft__settings_parse(environment, out, collect);
}

static void every_default_parses(void **state)
{
    (void)state;
    char *const nothing[] = {NULL};
    weft_settings_t got;
    parse(nothing, &got);
    assert_int_equal(warning_count, 0);
    assert_string_equal(got.log, "warn");
    assert_int_equal(got.timeout, 300000);
    assert_int_equal(got.pool_keep, (size_t)1 << 30);
    assert_int_equal(got.spin, -1);
    assert_string_equal(got.master_addr, "");

    /* A default that does not parse would be reported when given as a value. */
    char text[sizeof(weft_settings_t)][128];
    char *all[sizeof(weft_settings_t)];
    int count = 0;
#define GIVE(kind, field, name, value, help)                                                       \
    snprintf(text[count], sizeof(text[0]), "%s=%s", name, value);                                  \
    all[count] = text[count];                                                                      \
    count++;
    WEFT_SETTINGS_TABLE(GIVE)
#undef GIVE
    all[count] = NULL;
    parse(all, &got);
    assert_int_equal(warning_count, 0);
}

static void values_of_every_kind(void **state)
{
    (void)state;
    char *const environment[] = {"PATH=/bin",        "WEFT_TIMEOUT=1.5s", "WEFT_CHUNK=64K",
                                 "WEFT_DEVICES=3",   "WEFT_ALGO=ring",    "WEFT_RANK=7",
                                 "WEFT_POOL_KEEP=0", "WEFTISH=1",         NULL};
    weft_settings_t got;
    parse(environment, &got);
    assert_int_equal(warning_count, 0);
    assert_int_equal(got.timeout, 1500);
    assert_int_equal(got.chunk, 65536);
    assert_int_equal(got.devices, 3);
    assert_string_equal(got.algo, "ring");
    assert_int_equal(got.rank, 7);
    assert_int_equal(got.pool_keep, 0);
    assert_int_equal(got.size, -1);
}

static void malformed_value_warns_and_default_holds(void **state)
{
    (void)state;
    char *const environment[] = {"WEFT_TIMEOUT=soon", "WEFT_CHUNK=-1", "WEFT_DEVICES=3.5", NULL};
    weft_settings_t got;
    parse(environment, &got);
    assert_int_equal(warning_count, 3);
    assert_string_equal(warnings[0], "WEFT_TIMEOUT=soon is not a time such as 300, 1.5s, 20ms or "
                                     "5m; using 300");
    assert_non_null(strstr(warnings[1], "WEFT_CHUNK=-1 is not a size"));
    assert_non_null(strstr(warnings[2], "WEFT_DEVICES=3.5 is not a whole number"));
    assert_int_equal(got.timeout, 300000);
    assert_int_equal(got.chunk, 1 << 20);
    assert_int_equal(got.devices, 8);
    weft__settings_parse(environment, &got, NULL); /* nobody to tell */
    assert_int_equal(got.devices, 8);
}

static void unknown_variable_warns_with_nearest(void **state)
{
    (void)state;
    char long_name[4096] = "WEFT_";
    memset(long_name + 5, 'A', sizeof(long_name) - 8);
    memcpy(long_name + sizeof(long_name) - 3, "=1", 3);
    char *const environment[] = {
        "WEFT_TIMOUT=5", "WEFT_PURPLE=1",          "WEFT_=1",         "WEFT_RANK_7",
        long_name,       "WEFT_BIN=/usr/bin/weft", "WEFT_BUILD=/tmp", NULL};
    weft_settings_t got;
    parse(environment, &got);
    assert_int_equal(warning_count, 4);
    assert_string_equal(warnings[0],
                        "WEFT_TIMOUT is not a setting of Weft; did you mean WEFT_TIMEOUT?");
    assert_string_equal(warnings[1], "WEFT_PURPLE is not a setting of Weft; weft info lists them");
    assert_string_equal(warnings[2], "WEFT_ is not a setting of Weft; weft info lists them");
    assert_non_null(strstr(warnings[3], "is not a setting of Weft; weft info"));
}

static void set_to_nothing_is_not_set(void **state)
{
    (void)state;
    char *const environment[] = {"WEFT_TIMEOUT=", "WEFT_ALGO=", NULL};
    weft_settings_t got;
    parse(environment, &got);
    assert_int_equal(warning_count, 0);
    assert_int_equal(got.timeout, 300000);
    assert_string_equal(got.algo, "auto");
}

static void *read_settings(void *arg)
{
    (void)arg;
    const weft_settings_t *got = weft__settings();
    return got->timeout == 90500 ? (void *)got : NULL;
}

/* main has set the environment; this is the first use of the process's settings. */
static void first_use_from_many_threads(void **state)
{
    (void)state;
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, read_settings, NULL), 0);
    }
    for (int i = 0; i < 8; i++) {
        void *got;
        assert_int_equal(pthread_join(threads[i], &got), 0);
        assert_ptr_equal(got, weft__settings());
    }
    assert_true(weft__log_on(WEFT_LOG_ERROR));
    assert_false(weft__log_on(WEFT_LOG_WARN));
}

static void strings_outlive_the_environment(void **state)
{
    (void)state;
    const weft_settings_t *got = weft__settings();
    assert_string_equal(got->algo, "tree");
    memcpy(algo_entry, "WEFT_ALGO=ring", sizeof(algo_entry));
    assert_string_equal(getenv("WEFT_ALGO"), "ring");
    assert_string_equal(got->algo, "tree");
}

typedef struct row {
    int count, changed;
    char timeout[32], secret[32], chunk[32], text[128];
} row_t;

static void note(const char *name, const char *value, bool is_default, const char *text, void *ctx)
{
    row_t *row = ctx;
    row->count++;
    row->changed += is_default ? 0 : 1;
    if (strcmp(name, "WEFT_TIMEOUT") == 0) {
        snprintf(row->timeout, sizeof(row->timeout), "%s", value);
        snprintf(row->text, sizeof(row->text), "%s", text);
    } else if (strcmp(name, "WEFT_SECRET") == 0) {
        snprintf(row->secret, sizeof(row->secret), "%s", value);
    } else if (strcmp(name, "WEFT_CHUNK") == 0) {
        snprintf(row->chunk, sizeof(row->chunk), "%s", value);
    }
}

static void each_and_print_show_values_but_no_secret(void **state)
{
    (void)state;
    row_t row = {0};
    int rows = 0;
    weft__settings_each(note, &row);
#define COUNT(kind, field, name, value, text) rows++;
    WEFT_SETTINGS_TABLE(COUNT)
#undef COUNT
    assert_int_equal(row.count, rows);
    assert_int_equal(row.changed, 4); /* those set in main, but not the malformed one */
    assert_string_equal(row.timeout, "90500ms");
    assert_string_equal(row.secret, "(set)");
    assert_string_equal(row.chunk, "1M");
    assert_non_null(strstr(row.text, "late rank"));

    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    weft__settings_print(out);
    fclose(out);
    assert_non_null(strstr(text, "\nWEFT_TIMEOUT         90500ms           how long"));
    assert_non_null(strstr(text, "(default 5m)\n"));
    for (const char *line = text; *line != '\0'; line += strcspn(line, "\n") + 1) {
        assert_true(strcspn(line, "\n") <= 80);
    }
    assert_null(strstr(text, "0123456789abcdef"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_default_parses),
        cmocka_unit_test(values_of_every_kind),
        cmocka_unit_test(malformed_value_warns_and_default_holds),
        cmocka_unit_test(unknown_variable_warns_with_nearest),
        cmocka_unit_test(set_to_nothing_is_not_set),
        cmocka_unit_test(first_use_from_many_threads),
        cmocka_unit_test(strings_outlive_the_environment),
        cmocka_unit_test(each_and_print_show_values_but_no_secret),
    };
    /* "error" also keeps the warnings about the malformed ones off the screen. */
    setenv("WEFT_LOG", "error", 1);
    setenv("WEFT_TIMEOUT", "90.5s", 1);
    putenv(algo_entry);
    setenv("WEFT_SECRET", "0123456789abcdef0123456789abcdef", 1);
    setenv("WEFT_CHUNK", "nonsense", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
