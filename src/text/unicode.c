/* Classes of characters: a byte for each of the first plane, made from runs when first needed. */
#include "text/unicode.h"

#include <pthread.h>
#include <stdbool.h>

#include "base/utf8.h"
#include "text/unicode_table.h"

#define PLANE 0x10000u

static uint8_t plane[PLANE];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool is_space(uint32_t point)
{
    return (point >= 0x09 && point <= 0x0D) || point == 0x20 || point == 0x85 || point == 0xA0 ||
           point == 0x1680 || (point >= 0x2000 && point <= 0x200A) || point == 0x2028 ||
           point == 0x2029 || point == 0x202F || point == 0x205F || point == 0x3000;
}

static void fill(const uint16_t *runs, size_t count, weft_char_class_t class)
{
    uint32_t point = 0;
    for (size_t i = 0; i < count && point < PLANE; i++) {
        for (uint32_t end = point + runs[i]; point < end && point < PLANE; point++) {
            plane[point] = i % 2 == 1 ? (uint8_t) class : plane[point];
        }
    }
}

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void make_plane(void)
{
    fill(letter_runs, COUNT(letter_runs), WEFT_CHAR_LETTER);
    fill(number_runs, COUNT(number_runs), WEFT_CHAR_NUMBER);
    for (uint32_t point = 0; point <= 0x3000; point++) {
        plane[point] = is_space(point) ? WEFT_CHAR_SPACE : plane[point];
    }
}

static bool in_runs(const uint16_t *runs, size_t count, uint32_t point)
{
    uint32_t end = 0;
    for (size_t i = 0; i < count; i++) {
        end += runs[i];
        if (point < end) {
            return i % 2 == 1;
        }
    }
    return false;
}

weft_char_class_t weft__char_class(uint32_t point)
{
    pthread_once(&once, make_plane);
    if (point < PLANE) {
        return (weft_char_class_t)plane[point];
    }
    return in_runs(letter_runs, COUNT(letter_runs), point)   ? WEFT_CHAR_LETTER
           : in_runs(number_runs, COUNT(number_runs), point) ? WEFT_CHAR_NUMBER
                                                             : WEFT_CHAR_OTHER;
}

weft_char_class_t weft__char_at(const unsigned char *at, size_t room, int *length_p)
{
    if (at[0] < 0x80) {
        unsigned char lower = at[0] | 0x20;
        *length_p = 1;
        return lower >= 'a' && lower <= 'z'                  ? WEFT_CHAR_LETTER
               : at[0] >= '0' && at[0] <= '9'                ? WEFT_CHAR_NUMBER
               : at[0] == ' ' || (at[0] >= 9 && at[0] <= 13) ? WEFT_CHAR_SPACE
                                                             : WEFT_CHAR_OTHER;
    }
    int length = weft__utf8_length(at, room);
    if (length == 0) {
        *length_p = 1;
        return WEFT_CHAR_OTHER;
    }
    *length_p = length;
    return weft__char_class(weft__utf8_decode(at, length));
}
