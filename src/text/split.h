/* Cutting text into words before byte-pair encoding: the regular expressions of well-known
 * tokenizers, written out.
 *
 *   GPT-2    's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *   Llama 3  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
 *            ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
 *   Qwen 2   the same with \p{N} for \p{N}{1,3} */
#ifndef WEFT_TEXT_SPLIT_H
#define WEFT_TEXT_SPLIT_H

#include <stdbool.h>
#include <stddef.h>

typedef enum weft_word_rule {
    WEFT_WORDS_NONE, /* the whole text is one word */
    WEFT_WORDS_GPT2,
    WEFT_WORDS_LLAMA3,
    WEFT_WORDS_QWEN2
} weft_word_rule_t;

/* Length of the first word of `text`; at least 1. `length` >= 1. */
size_t weft__split_next(weft_word_rule_t split, const char *text, size_t length);

/* Which of them a regular expression is, by its text; false if it is none that we know. */
bool weft__split_by_pattern(const char *pattern, weft_word_rule_t *split_p);

#endif
