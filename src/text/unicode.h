/* Classes of characters, as tokenizers cut text by them. */
#ifndef WEFT_TEXT_UNICODE_H
#define WEFT_TEXT_UNICODE_H

#include <stddef.h>
#include <stdint.h>

typedef enum weft_char_class {
    WEFT_CHAR_OTHER,
    WEFT_CHAR_LETTER, /* \p{L} */
    WEFT_CHAR_NUMBER, /* \p{N} */
    WEFT_CHAR_SPACE   /* \s: the property White_Space */
} weft_char_class_t;

weft_char_class_t weft__char_class(uint32_t point);

/* The class of the character at `at`, of which `room` >= 1 bytes may be read; *length_p is its
 * length. A byte that is no UTF-8 is a character of its own, OTHER. */
weft_char_class_t weft__char_at(const unsigned char *at, size_t room, int *length_p);

#endif
