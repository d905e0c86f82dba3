/* Parsers for settings and options. Decimal numbers are read by hand: strtod follows the locale and
 * loses the low digits of large sizes. */
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/settings.h"

#define FRACTION_SCALE 1000000u /* as many units of a terabyte still fit in 64 bits */

typedef struct decimal {
    uint64_t whole;
    uint64_t millionths; /* the first six digits after the point */
    bool has_fraction;
    bool more; /* a later digit is not zero */
} decimal_t;

/* Digits, optionally a point and more digits. *rest_p is what follows. */
static bool parse_decimal(const char *text, decimal_t *out, const char **rest_p)
{
    memset(out, 0, sizeof(*out));
    if (!isdigit((unsigned char)*text)) {
        return false;
    }
    for (; isdigit((unsigned char)*text); text++) {
        unsigned digit = (unsigned)(*text - '0');
        if (out->whole > (UINT64_MAX - digit) / 10) {
            return false;
        }
        out->whole = out->whole * 10 + digit;
    }
    if (*text == '.') {
        text++;
        if (!isdigit((unsigned char)*text)) {
            return false;
        }
        out->has_fraction = true;
        uint64_t scale = FRACTION_SCALE;
        for (; isdigit((unsigned char)*text); text++) {
            unsigned digit = (unsigned)(*text - '0');
            scale /= 10;
            out->millionths += digit * scale;
            out->more |= scale == 0 && digit != 0;
        }
    }
    *rest_p = text;
    return true;
}

/* number x unit; a fraction of one is dropped, or rounded up. false beyond `limit`. */
static bool scale_decimal(const decimal_t *number, uint64_t unit, bool round_up, uint64_t limit,
                          uint64_t *out_p)
{
    uint64_t part = number->millionths * unit;
    bool inexact = part % FRACTION_SCALE != 0 || number->more;
    part = part / FRACTION_SCALE + (round_up && inexact ? 1 : 0);
    if (number->whole > limit / unit || number->whole * unit > limit - part) {
        return false;
    }
    *out_p = number->whole * unit + part;
    return true;
}

bool weft__parse_size(const char *text, size_t *out_p)
{
    static const char letters[] = "KMGT";
    decimal_t number;
    if (text == NULL || !parse_decimal(text, &number, &text)) {
        return false;
    }
    uint64_t unit = 1;
    const char *letter = *text != '\0' ? strchr(letters, toupper((unsigned char)*text)) : NULL;
    if (letter != NULL) {
        unit = (uint64_t)1 << (10 * (letter - letters + 1));
        text++;
    }
    bool tail = *text == '\0' || strcasecmp(text, "B") == 0 ||
                (unit > 1 && strcasecmp(text, "iB") == 0);
    uint64_t value;
    if (!tail || (unit == 1 && number.has_fraction) ||
        !scale_decimal(&number, unit, false, SIZE_MAX, &value)) {
        return false;
    }
    *out_p = (size_t)value;
    return true;
}

bool weft__parse_ms(const char *text, int *out_p)
{
    static const struct {
        const char *name;
        uint64_t ms;
    } units[] = {{"", 1000}, {"s", 1000}, {"ms", 1}, {"m", 60000}, {"h", 3600000}};

    decimal_t number;
    if (text == NULL || !parse_decimal(text, &number, &text)) {
        return false;
    }
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        uint64_t value;
        if (strcasecmp(text, units[i].name) != 0) {
            continue;
        }
        /* Rounded up: 0 may mean "for ever", and a short time must not become that. */
        if (!scale_decimal(&number, units[i].ms, true, INT_MAX, &value)) {
            return false;
        }
        *out_p = (int)value;
        return true;
    }
    return false;
}

bool weft__parse_int(const char *text, int *out_p)
{
    if (text == NULL || (!isdigit((unsigned char)*text) && *text != '-' && *text != '+')) {
        return false; /* strtol would skip spaces */
    }
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || value < INT_MIN || value > INT_MAX) {
        return false;
    }
    *out_p = (int)value;
    return true;
}

_Static_assert(INT_MAX == 2147483647, "the sentence below says so");

const char *weft__int_limit(const char *text)
{
    size_t sign = text[0] == '-' || text[0] == '+' ? 1 : 0;
    size_t digits = strspn(text + sign, "0123456789");
    int value;
    if (digits == 0 || text[sign + digits] != '\0' || weft__parse_int(text, &value)) {
        return "";
    }
    return text[0] == '-' ? " of at least -2147483648" : " of at most 2147483647";
}

static locale_t c_locale;
static pthread_once_t c_locale_once = PTHREAD_ONCE_INIT;

static void make_c_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

bool weft__parse_real(const char *text, double *out_p)
{
    /* strtod would also take spaces, hexadecimal, "inf" and "nan". */
    if (text == NULL || text[0] == '\0' || strspn(text, "+-.0123456789eE") != strlen(text)) {
        return false;
    }
    pthread_once(&c_locale_once, make_c_locale);
    char *end;
    errno = 0;
    double value = c_locale != (locale_t)0 ? strtod_l(text, &end, c_locale) : strtod(text, &end);
    if (*end != '\0' || !isfinite(value)) {
        return false;
    }
    *out_p = value;
    return true;
}

void weft__print_size(char *out, size_t room, size_t value)
{
    static const char *const units[] = {"", "K", "M", "G", "T"};
    int unit = 0;
    while (unit < 4 && value != 0 && value % 1024 == 0) {
        value /= 1024;
        unit++;
    }
    snprintf(out, room, "%zu%s", value, units[unit]);
}

void weft__print_real(char *out, size_t room, double value)
{
    for (int digits = 6; digits <= 17; digits++) {
        double back;
        snprintf(out, room, "%.*g", digits, value);
        char *comma = strchr(out, ','); /* of the program's locale */
        if (comma != NULL) {
            *comma = '.';
        }
        /* fewer digits may round the largest numbers up to what is none */
        if (!isfinite(value) || (weft__parse_real(out, &back) && back == value)) {
            return;
        }
    }
}

bool weft__parse_bool(const char *text, bool *out_p)
{
    static const char *const words[][2] = {
        {"0", "1"}, {"no", "yes"}, {"off", "on"}, {"false", "true"}};
    if (text == NULL) {
        return false;
    }
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        for (int truth = 0; truth < 2; truth++) {
            if (strcasecmp(text, words[i][truth]) == 0) {
                *out_p = truth != 0;
                return true;
            }
        }
    }
    return false;
}

/* ---- the nearest name ------------------------------------------------------------------- */

#define NAME_MAX_LENGTH 63

static int min_int(int a, int b)
{
    return a < b ? a : b;
}

static bool same_letter(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* Edits that make `a` of `b`: insert, delete, replace, swap neighbours. Both are short. */
static int edit_distance(const char *a, const char *b)
{
    int rows[3][NAME_MAX_LENGTH + 1];
    int a_length = (int)strlen(a), b_length = (int)strlen(b);
    for (int j = 0; j <= b_length; j++) {
        rows[0][j] = j;
    }
    for (int i = 1; i <= a_length; i++) {
        int *row = rows[i % 3];
        const int *above = rows[(i + 2) % 3], *above2 = rows[(i + 1) % 3];
        row[0] = i;
        for (int j = 1; j <= b_length; j++) {
            int replace = above[j - 1] + (same_letter(a[i - 1], b[j - 1]) ? 0 : 1);
            row[j] = min_int(replace, min_int(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) &&
                same_letter(a[i - 2], b[j - 1])) {
                row[j] = min_int(row[j], above2[j - 2] + 1);
            }
        }
    }
    return rows[a_length % 3][b_length];
}

const char *weft__nearest(const char *name, const char *const *names, int count)
{
    size_t length = strlen(name);
    if (length == 0 || length > NAME_MAX_LENGTH) {
        return NULL;
    }
    /* A slip is one edit in a short name, two or three in a longer one, or a name cut short. */
    int best = min_int(1 + (int)length / 4, 3) + 1;
    const char *nearest = NULL;
    for (int i = 0; i < count; i++) {
        if (strlen(names[i]) > NAME_MAX_LENGTH) {
            continue;
        }
        bool cut = length >= 3 && strncasecmp(name, names[i], length) == 0;
        int distance = edit_distance(name, names[i]);
        distance = cut ? min_int(distance, 1) : distance;
        if (distance < best && distance < (int)length) {
            best = distance;
            nearest = names[i];
        }
    }
    return nearest;
}
