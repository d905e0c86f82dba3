/* Values of environment variables: sizes, times, numbers, algorithms, OpenSHMEM's sizes, and whole
 * environments of settings.
 *
 *     kind[1]  text; for settings, NAME=VALUE a line
 *
 * reads: src/base/parse.c src/base/settings.c src/symm/shmem/env.c
 * besides: weft__shmem_env_print weft__shmem_env_read look_up weft__settings_set
 * weft__settings_device besides: weft__settings_print load warn_log keep keep_strings */
#include "fuzz/fuzz.h"

#include <ctype.h>
#include <math.h>
#include <strings.h>

#include "base/settings.h"
#include "comm/tuner.h"
#include "symm/shmem/env.h"

const long fuzz_runs = 30000;

/* Another way to the same number, good to the last unit: digits and a point, then `unit`. */
static long double reference(const char *text, const char **rest_p)
{
    long double value = 0, scale = 1;
    for (; isdigit((unsigned char)*text); text++) {
        value = value * 10 + (*text - '0');
    }
    if (*text == '.') {
        for (text++; isdigit((unsigned char)*text); text++) {
            scale /= 10;
            value += (*text - '0') * scale;
        }
    }
    *rest_p = text;
    return value;
}

static void check_size(const char *text)
{
    size_t value = 12345, again;
    const char *rest;
    char printed[32];
    if (!weft__parse_size(text, &value)) {
        CHECK(value == 12345);
        return;
    }
    CHECK(isdigit((unsigned char)text[0]));
    long double number = reference(text, &rest);
    const char *letters = "KMGT";
    const char *letter = *rest == '\0' ? NULL : strchr(letters, toupper((unsigned char)*rest));
    long double unit = letter == NULL ? 1 : ldexpl(1, 10 * (int)(letter - letters + 1));
    rest += letter != NULL;
    CHECK(*rest == '\0' || strcasecmp(rest, "b") == 0 || strcasecmp(rest, "ib") == 0);
    /* six digits after the point are kept: a millionth of the unit */
    CHECK(fabsl((long double)value - number * unit) <= 2 + unit * 1e-6L);
    weft__print_size(printed, sizeof(printed), value);
    CHECK(weft__parse_size(printed, &again) && again == value);
}

static void check_ms(const char *text)
{
    int value = 12345;
    const char *rest;
    if (!weft__parse_ms(text, &value)) {
        CHECK(value == 12345);
        return;
    }
    CHECK(isdigit((unsigned char)text[0]) && value >= 0);
    long double expected = reference(text, &rest);
    expected *= *rest == '\0' || strcasecmp(rest, "s") == 0 ? 1000
                : strcasecmp(rest, "m") == 0                ? 60000
                : strcasecmp(rest, "h") == 0                ? 3600000
                                                            : 1;
    CHECK(fabsl(value - expected) <= 5);
    CHECK(value > 0 || expected == 0); /* a short time must not become "for ever" */
}

static void check_numbers(const char *text)
{
    int number = 12345;
    bool truth = false;
    double real = 0.25, again;
    char printed[32];
    if (weft__parse_int(text, &number)) {
        CHECK(number == (int)strtol(text, NULL, 10));
    } else {
        CHECK(number == 12345);
    }
    CHECK(!weft__parse_bool(text, &truth) || strlen(text) <= 5);
    if (weft__parse_real(text, &real)) {
        CHECK(isfinite(real));
        weft__print_real(printed, sizeof(printed), real);
        CHECK(weft__parse_real(printed, &again) && again == real);
    } else {
        CHECK(real == 0.25);
    }
}

static void check_nearest(const char *text)
{
    static const char *const names[] = {"run", "bench", "topo", "info", "WEFT_TIMEOUT"};
    const char *nearest = weft__nearest(text, names, 5);
    for (int i = 0; i < 5; i++) {
        CHECK(strcasecmp(text, names[i]) != 0 || nearest == names[i]);
    }
}

static void check_algo(const char *text)
{
    weft_tuner_t tuner;
    if (weft__tuner_init(&tuner, text) != WEFT_OK) {
        CHECK(strlen(weft_last_error()) > 0);
        return;
    }
    tuner.size = 4;
    for (int c = 0; c < WEFT_COLL_COUNT; c++) {
        CHECK(weft__tuner_has((weft_coll_t)c, tuner.forced[c]));
        CHECK(weft__tuner_choose(&tuner, (weft_coll_t)c, 1 << 20).why != NULL);
    }
}

static void check_shmem(const char *text)
{
    size_t bytes = 12345;
    if (weft__shmem_parse_size(text, &bytes)) {
        CHECK(bytes < WEFT_SHMEM_HEAP_MOST);
        CHECK(isdigit((unsigned char)text[0]) || text[0] == '.');
    } else {
        CHECK(bytes == 12345);
    }
}

static int complaints;

static void complain(const char *text)
{
    CHECK(text != NULL && strlen(text) > 10);
    complaints++;
}

static void look_at(const char *name, const char *value, bool is_default, const char *text,
                    void *ctx)
{
    CHECK(strncmp(name, "WEFT_", 5) == 0 && value != NULL && text[0] != '\0');
    *(int *)ctx += is_default;
}

static void check_settings(char *text)
{
    char *entries[64];
    weft_settings_t settings, defaults;
    char *const nothing[] = {NULL};
    bool any = false;
    int count = fuzz_lines(text, entries, 64), named = 0;
    for (int i = 0; i < count; i++) {
        any = any || strncmp(entries[i], "WEFT_", 5) == 0;
    }
    complaints = 0;
    weft__settings_parse(nothing, &defaults, complain);
    CHECK(complaints == 0);
    weft__settings_parse(entries, &settings, complain);
    CHECK(complaints <= count && (any || complaints == 0));
    /* nothing is left unset, whatever was wrong */
    CHECK(settings.log != NULL && settings.algo != NULL && settings.secret != NULL);
    CHECK(settings.timeout >= 0);
    if (!any) {
        CHECK(settings.timeout == defaults.timeout && settings.chunk == defaults.chunk);
        CHECK(settings.rank == defaults.rank && settings.spin == defaults.spin);
    }
    weft__settings_parse(entries, &settings, NULL);
    weft__settings_each(look_at, &named);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_rest_t rest = {data, size};
    uint8_t kind = fuzz_byte(&rest);
    char *text = fuzz_text(&rest, FUZZ_ALL);
    switch (kind % 7) {
    case 0:
        check_size(text);
        break;
    case 1:
        check_ms(text);
        break;
    case 2:
        check_numbers(text);
        break;
    case 3:
        check_nearest(text);
        break;
    case 4:
        check_algo(text);
        break;
    case 5:
        check_shmem(text);
        break;
    default:
        check_settings(text);
        break;
    }
    free(text);
    return 0;
}

static void words(void)
{
    static const char *const units[] = {"K", "MiB",      "GB",  "TiB", "ms", "s",
                                        "h", "0.000001", "yes", "off", "e-5"};
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        fuzz_word(units[i]);
    }
#define NAME(kind, field, name, value, text) fuzz_word(name "=");
    WEFT_SETTINGS_TABLE(NAME)
#undef NAME
    for (int c = 0; c < WEFT_COLL_COUNT; c++) {
        fuzz_word(weft__coll_info[c].name);
    }
    for (int a = 0; a < WEFT_ALGO_COUNT; a++) {
        fuzz_word(weft__algo_name((weft_algo_t)a));
    }
}

void fuzz_seeds(void)
{
    static const struct {
        uint8_t kind;
        const char *text;
    } seeds[] = {
        {0, "64K"},
        {0, "1.5M"},
        {0, "0.000001TiB"},
        {0, "18446744073709551615"},
        {0, "17179869184G"},
        {1, "300"},
        {1, "1.5s"},
        {1, "20ms"},
        {1, "5m"},
        {1, "1h"},
        {1, "2147483.647"},
        {1, "0.0000001"},
        {2, "-2147483648"},
        {2, "yes"},
        {2, "3e-4"},
        {2, "-1.7976931348623157e308"},
        {3, "bnech"},
        {3, "WEFT_TIMEUOT"},
        {4, "allreduce:ring,broadcast:tree"},
        {4, "ring,auto,alltoall:direct"},
        {5, "20kk"},
        {5, ".5m"},
        {5, "1.5g"},
        {6, "WEFT_TIMEOUT=5m\nWEFT_CHUNK=64K\nWEFT_RANK=3\nHOME=/\nWEFT_LOG=debug\nWEFT_POOL=no"},
        {6, "WEFT_TIMOUT=1\nWEFT_\nWEFT_=\nWEFT_SPIN=many\n=\nRANK=1\nWEFT_OVERLAP=2"},
    };
    words();
    for (size_t i = 0; i < sizeof(seeds) / sizeof(seeds[0]); i++) {
        fuzz_seed_kind(seeds[i].kind, seeds[i].text);
    }
}
