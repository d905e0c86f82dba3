/* UTF-8: which bytes are a character. */
#ifndef WEFT_BASE_UTF8_H
#define WEFT_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length of the valid character at `at`, of which `room` bytes may be read; 0 if there is none: no
 * stray or missing continuation bytes, no overlong forms, no surrogates, nothing above U+10FFFF. */
static inline int weft__utf8_length(const unsigned char *at, size_t room)
{
    if (room == 0 || at[0] > 0xF4) {
        return 0;
    }
    int length = at[0] < 0x80 ? 1 : at[0] < 0xC2 ? 0 : at[0] < 0xE0 ? 2 : at[0] < 0xF0 ? 3 : 4;
    if (length == 0 || (size_t)length > room) {
        return 0;
    }
    for (int i = 1; i < length; i++) {
        if ((at[i] & 0xC0) != 0x80) {
            return 0;
        }
    }
    bool bad = (at[0] == 0xE0 && at[1] < 0xA0) || (at[0] == 0xED && at[1] > 0x9F) ||
               (at[0] == 0xF0 && at[1] < 0x90) || (at[0] == 0xF4 && at[1] > 0x8F);
    return bad ? 0 : length;
}

/* The code point of a valid character of `length` bytes. */
static inline uint32_t weft__utf8_decode(const unsigned char *at, int length)
{
    static const unsigned char first[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    uint32_t point = at[0] & first[length];
    for (int i = 1; i < length; i++) {
        point = point << 6 | (at[i] & 0x3Fu);
    }
    return point;
}

/* Writes up to 4 bytes, returns how many. */
static inline int weft__utf8_encode(uint32_t point, char *out)
{
    if (point < 0x80) {
        out[0] = (char)point;
        return 1;
    }
    if (point < 0x800) {
        out[0] = (char)(0xC0 | point >> 6);
        out[1] = (char)(0x80 | (point & 0x3F));
        return 2;
    }
    if (point < 0x10000) {
        out[0] = (char)(0xE0 | point >> 12);
        out[1] = (char)(0x80 | (point >> 6 & 0x3F));
        out[2] = (char)(0x80 | (point & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | point >> 18);
    out[1] = (char)(0x80 | (point >> 12 & 0x3F));
    out[2] = (char)(0x80 | (point >> 6 & 0x3F));
    out[3] = (char)(0x80 | (point & 0x3F));
    return 4;
}

#endif
