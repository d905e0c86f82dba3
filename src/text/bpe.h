/* Byte-pair encoding of one word: start from its bytes and join, again and again, the neighbours
 * whose merge comes first in the list of merges, the leftmost of them if there are several. */
#ifndef WEFT_TEXT_BPE_H
#define WEFT_TEXT_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weft/status.h>

#include "text/tokenizer.h"

typedef struct weft_bpe weft_bpe_t;

weft_status_t weft__bpe_create(uint32_t vocab, weft_bpe_t **bpe_p);
void weft__bpe_destroy(weft_bpe_t *bpe);

/* Make `bytes` token `token` < vocab. WEFT_ERR_INVALID if the token has bytes already or they are
 * another's. */
weft_status_t weft__bpe_add(weft_bpe_t *bpe, uint32_t token, const char *bytes, size_t length);

/* `left` and `right` may be joined; `rank` is the merge's place in the list. WEFT_ERR_INVALID if
 * what they make is no token. All tokens have been added. */
weft_status_t weft__bpe_merge(weft_bpe_t *bpe, uint32_t left, uint32_t right, uint32_t rank);

/* The token that has these bytes; -1 if none has. */
int64_t weft__bpe_find(const weft_bpe_t *bpe, const char *bytes, size_t length);

/* NULL if there is no such token. */
const char *weft__bpe_bytes(const weft_bpe_t *bpe, uint32_t token, size_t *length_p);

/* Append the tokens of a word. All 256 bytes must be tokens. `whole`: a word that is a token is
 * that token, whatever the merges say. */
weft_status_t weft__bpe_encode(weft_bpe_t *bpe, const char *word, size_t length, bool whole,
                               weft_tokens_t *tokens);

/* Make room for `more` tokens. */
weft_status_t weft__tokens_reserve(weft_tokens_t *tokens, size_t more);

#endif
