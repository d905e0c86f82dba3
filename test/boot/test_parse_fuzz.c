/* ctest: timeout=120 */
/* The parsers of sizes, times, numbers and settings against anything.
 *
 * The first byte of an input chooses; the rest is a text, or for the settings an environment with
 * one entry a line. */
#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <strings.h>

#include "base/settings.h"
#include "fuzz.h"

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
    size_t value = 12345;
    const char *rest;
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

static void check_words(const char *text)
{
    static const char *const names[] = {"run", "bench", "topo", "info", "WEFT_TIMEOUT"};
    int number = 12345;
    bool truth = false;
    if (weft__parse_int(text, &number)) {
        CHECK(number == (int)strtol(text, NULL, 10));
    } else {
        CHECK(number == 12345);
    }
    if (weft__parse_bool(text, &truth)) {
        CHECK(strlen(text) <= 5);
    }
    const char *nearest = weft__nearest(text, names, 5);
    for (int i = 0; i < 5; i++) {
        CHECK(strcasecmp(text, names[i]) != 0 || nearest == names[i]);
    }
}

static int complaints;

static void complain(const char *text)
{
    CHECK(text != NULL && strlen(text) > 10);
    complaints++;
}

static void check_settings(char *text)
{
    char *entries[64];
    int count = 0;
    weft_settings_t settings, defaults;
    char *const nothing[] = {NULL};
    bool any = false;
    char *rest = text;
    for (char *line; count < 63 && (line = strsep(&rest, "\n")) != NULL;) {
        any = any || strncmp(line, "WEFT_", 5) == 0;
        entries[count++] = line;
    }
    entries[count] = NULL;
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
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_data = data;
    fuzz_size = size;
    if (size == 0) {
        return 0;
    }
    char *text = malloc(size);
    CHECK(text != NULL);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    switch (data[0] % 4) {
    case 0:
        check_size(text);
        break;
    case 1:
        check_ms(text);
        break;
    case 2:
        check_words(text);
        break;
    default:
        check_settings(text);
        break;
    }
    free(text);
    return 0;
}

#define TEXT(text)                                                                                 \
    {                                                                                              \
        text, sizeof(text) - 1                                                                     \
    }
static const fuzz_seed_t seeds[] = {
    TEXT("\0"
         "64K"),
    TEXT("\0"
         "1.5M"),
    TEXT("\0"
         "0.000001TiB"),
    TEXT("\0"
         "18446744073709551615"),
    TEXT("\0"
         "17179869184G"),
    TEXT("\1"
         "300"),
    TEXT("\1"
         "1.5s"),
    TEXT("\1"
         "20ms"),
    TEXT("\1"
         "5m"),
    TEXT("\1"
         "1h"),
    TEXT("\1"
         "2147483.647"),
    TEXT("\1"
         "0.0000001"),
    TEXT("\2"
         "-2147483648"),
    TEXT("\2"
         "yes"),
    TEXT("\2"
         "bnech"),
    TEXT("\2"
         "WEFT_TIMEUOT"),
    TEXT("\3"
         "WEFT_TIMEOUT=5m\nWEFT_CHUNK=64K\nWEFT_RANK=3\nHOME=/\nWEFT_LOG=debug"),
    TEXT("\3"
         "WEFT_TIMOUT=1\nWEFT_\nWEFT_=\nWEFT_SPIN=many\n=\nRANK=1"),
};

FUZZ_MAIN(seeds, sizeof(seeds) / sizeof(seeds[0]), 300000)
