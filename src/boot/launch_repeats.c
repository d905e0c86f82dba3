#include "boot/launch_repeats.h"

#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "boot/launch.h"

#define LINES 32        /* that are remembered; what ranks say at once is far less */
#define LINE_BYTES 1024 /* a longer one is no sentence, and is always passed on */

typedef struct said {
    int rank; /* whose line was passed on */
    size_t bytes;
    char text[LINE_BYTES];
    uint64_t by[WEFT_MAX_RANKS / 64]; /* bit r: rank r said it since it was last passed on */
} said_t;

struct weft_repeats {
    int next, count;
    said_t lines[LINES];
};

weft_repeats_t *weft__repeats_create(void)
{
    return calloc(1, sizeof(weft_repeats_t));
}

void weft__repeats_destroy(weft_repeats_t *repeats)
{
    free(repeats);
}

void weft__repeats_reset(weft_repeats_t *repeats)
{
    if (repeats != NULL) {
        repeats->next = repeats->count = 0;
    }
}

/* The number that begins at `text`, of *digits_p digits; -1: it is too large to be a rank's. */
static int read_number(const char *text, size_t bytes, size_t *digits_p)
{
    int value = 0;
    size_t digits = 0;
    while (digits < bytes && isdigit((unsigned char)text[digits])) {
        value = value < 0 || value > WEFT_MAX_RANKS ? -1 : 10 * value + text[digits] - '0';
        digits++;
    }
    *digits_p = digits;
    return value;
}

bool weft__same_words(const char *a, size_t a_bytes, int a_rank, const char *b, size_t b_bytes,
                      int b_rank)
{
    while (a_bytes > 0 && b_bytes > 0) {
        size_t a_step, b_step;
        int a_number = read_number(a, a_bytes, &a_step);
        int b_number = read_number(b, b_bytes, &b_step);
        bool own = a_step > 0 && b_step > 0 && a_number == a_rank && b_number == b_rank;
        a_step = a_step > 0 ? a_step : 1;
        b_step = b_step > 0 ? b_step : 1;
        if (!own && (a_step != b_step || memcmp(a, b, a_step) != 0)) {
            return false;
        }
        a += a_step;
        a_bytes -= a_step;
        b += b_step;
        b_bytes -= b_step;
    }
    return a_bytes == 0 && b_bytes == 0;
}

static said_t *find(weft_repeats_t *repeats, int rank, const char *line, size_t bytes)
{
    for (int i = 0; i < repeats->count; i++) {
        said_t *said = &repeats->lines[i];
        if (weft__same_words(said->text, said->bytes, said->rank, line, bytes, rank)) {
            return said;
        }
    }
    return NULL;
}

bool weft__repeats_heard(weft_repeats_t *repeats, int rank, const char *line, size_t bytes)
{
    if (repeats == NULL || bytes == 0 || bytes > LINE_BYTES) {
        return false;
    }
    uint64_t bit = (uint64_t)1 << (rank % 64);
    said_t *said = find(repeats, rank, line, bytes);
    if (said != NULL && (said->by[rank / 64] & bit) == 0) {
        said->by[rank / 64] |= bit;
        return true;
    }
    if (said == NULL) {
        said = &repeats->lines[repeats->next];
        repeats->next = (repeats->next + 1) % LINES;
        repeats->count += repeats->count < LINES;
    }
    said->rank = rank;
    said->bytes = bytes;
    memcpy(said->text, line, bytes);
    memset(said->by, 0, sizeof(said->by));
    said->by[rank / 64] = bit;
    return false;
}
