/* The splitters. Each follows the alternatives of its expression in their order; what an
 * alternative could give back to let the rest match is worked out beforehand, so nothing is tried
 * twice. */
#include "text/split.h"

#include <string.h>

#include "text/unicode.h"

typedef struct scan {
    const unsigned char *text;
    size_t length;
} scan_t;

static weft_char_class_t class_at(scan_t s, size_t at, int *bytes_p)
{
    *bytes_p = 0;
    return at < s.length ? weft__char_at(s.text + at, s.length - at, bytes_p) : WEFT_CHAR_OTHER;
}

/* Where the run of characters of `class` that starts at `at` ends, after `most` of them at the
 * latest. */
static size_t run(scan_t s, size_t at, weft_char_class_t class, size_t most)
{
    int bytes;
    for (; most > 0 && at < s.length && class_at(s, at, &bytes) == class; most--) {
        at += (size_t)bytes;
    }
    return at;
}

/* Length of 's, 't, 're, 've, 'm, 'll or 'd; 0 if there is none. */
static size_t contraction(scan_t s, bool any_case)
{
    static const char *const endings[] = {"s", "t", "re", "ve", "m", "ll", "d"};
    if (s.length < 2 || s.text[0] != '\'') {
        return 0;
    }
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
        size_t length = strlen(endings[i]), same = 0;
        while (same < length && 1 + same < s.length) {
            unsigned char c = s.text[1 + same];
            c = any_case && c >= 'A' && c <= 'Z' ? (unsigned char)(c | 0x20) : c;
            if (c != (unsigned char)endings[i][same]) {
                break;
            }
            same++;
        }
        if (same == length) {
            return 1 + length;
        }
    }
    /* U+017F, the long s, is an s to whoever ignores case. */
    return any_case && s.length >= 3 && memcmp(s.text + 1, "\xC5\xBF", 2) == 0 ? 3 : 0;
}

/* \s+(?!\S)|\s+ at a space: all but the last one, which belongs to the word after it; all of them
 * at the end of the text; or the only one. */
static size_t spaces(scan_t s)
{
    size_t at = 0, last = 0;
    int bytes;
    while (at < s.length && class_at(s, at, &bytes) == WEFT_CHAR_SPACE) {
        last = at;
        at += (size_t)bytes;
    }
    return at == s.length || last == 0 ? at : last;
}

/* \s*[\r\n]+ at a space: up to the last line end among the spaces; 0 if there is none. */
static size_t line_ends(scan_t s)
{
    size_t at = 0, after = 0;
    int bytes;
    while (at < s.length && class_at(s, at, &bytes) == WEFT_CHAR_SPACE) {
        after = s.text[at] == '\r' || s.text[at] == '\n' ? at + 1 : after;
        at += (size_t)bytes;
    }
    return after;
}

static size_t next_gpt2(scan_t s)
{
    size_t length = contraction(s, false);
    if (length > 0) {
        return length;
    }
    int bytes;
    size_t first = s.text[0] == ' ' ? 1 : 0; /* the space that ` ?` takes */
    weft_char_class_t class = class_at(s, first, &bytes);
    if (bytes > 0 && class != WEFT_CHAR_SPACE) {
        return run(s, first, class, s.length);
    }
    return spaces(s);
}

/* [^\r\n\p{L}\p{N}]?\p{L}+ : 0 if it does not match. */
static size_t letters(scan_t s)
{
    int bytes, after;
    weft_char_class_t class = class_at(s, 0, &bytes);
    if (class == WEFT_CHAR_LETTER) {
        return run(s, 0, WEFT_CHAR_LETTER, s.length);
    }
    if (class == WEFT_CHAR_NUMBER || s.text[0] == '\r' || s.text[0] == '\n' ||
        class_at(s, (size_t)bytes, &after) != WEFT_CHAR_LETTER) {
        return 0;
    }
    return run(s, (size_t)bytes, WEFT_CHAR_LETTER, s.length);
}

static size_t next_llama3(scan_t s, size_t digits)
{
    size_t length = contraction(s, true);
    length = length > 0 ? length : letters(s);
    length = length > 0 ? length : run(s, 0, WEFT_CHAR_NUMBER, digits);
    if (length > 0) {
        return length;
    }
    int bytes;
    size_t first = s.text[0] == ' ' ? 1 : 0;
    if (class_at(s, first, &bytes) == WEFT_CHAR_OTHER && bytes > 0) {
        size_t end = run(s, first, WEFT_CHAR_OTHER, s.length);
        while (end < s.length && (s.text[end] == '\r' || s.text[end] == '\n')) {
            end++;
        }
        return end;
    }
    length = line_ends(s);
    return length > 0 ? length : spaces(s);
}

size_t weft__split_next(weft_word_rule_t split, const char *text, size_t length)
{
    scan_t s = {(const unsigned char *)text, length};
    switch (split) {
    case WEFT_WORDS_GPT2:
        return next_gpt2(s);
    case WEFT_WORDS_LLAMA3:
        return next_llama3(s, 3);
    case WEFT_WORDS_QWEN2:
        return next_llama3(s, 1);
    case WEFT_WORDS_NONE:
        break;
    }
    return length;
}

bool weft__split_by_pattern(const char *pattern, weft_word_rule_t *split_p)
{
    /* Spellings found in published files; those with a second + differ in speed only. */
    static const struct {
        const char *pattern;
        weft_word_rule_t split;
    } known[] = {
        {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
         WEFT_WORDS_GPT2},
        {"'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
         WEFT_WORDS_GPT2},
        {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
         " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
         WEFT_WORDS_LLAMA3},
        {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}|"
         " ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
         WEFT_WORDS_LLAMA3},
        {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|"
         " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
         WEFT_WORDS_QWEN2},
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(known[i].pattern, pattern) == 0) {
            *split_p = known[i].split;
            return true;
        }
    }
    return false;
}
