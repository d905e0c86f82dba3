/* Encoding and decoding. A text is cut at the names of added tokens, what is between into words,
 * and these are encoded. */
#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "text/tokenizer_parts.h"

/* Is this what is kept with a checkpoint for bytes? Then it is encoded as such: faster, and in any
 * parts. */
static bool is_of_bytes(const char *json, size_t length)
{
    char *own;
    size_t own_length;
    if (weft__tokenizer_of_bytes(&own, &own_length) != WEFT_OK) {
        return false;
    }
    bool same = length == own_length && memcmp(json, own, length) == 0;
    free(own);
    return same;
}

weft_status_t weft__tokenizer_open(const char *path, weft_tokenizer_t **tokenizer_p)
{
    char file[WEFT_PATH_BYTES], *json;
    size_t length;
    bool bytes = strcmp(path, "bytes") == 0;
    weft_status_t status = WEFT_OK;
    if (bytes) {
        status = weft__tokenizer_of_bytes(&json, &length);
    } else {
        bool folder;
        WEFT_TRY(weft__is_folder(path, &folder));
        status = weft__path_join(file, folder ? path : "", folder ? "tokenizer.json" : path);
        status = status == WEFT_OK ? weft__file_read(file, &json, &length) : status;
    }
    if (status != WEFT_OK) {
        return status;
    }
    status = weft__tokenizer_load(json, length, bytes ? "bytes" : file, tokenizer_p);
    bytes = bytes || is_of_bytes(json, length);
    free(json);
    if (status == WEFT_OK) {
        (*tokenizer_p)->bytes = bytes;
    }
    return status;
}

void weft__tokenizer_close(weft_tokenizer_t *tokenizer)
{
    if (tokenizer == NULL) {
        return;
    }
    for (int i = 0; i < tokenizer->added_count; i++) {
        free(tokenizer->added[i].name);
    }
    free(tokenizer->added);
    weft__names_destroy(tokenizer->passes[0]);
    weft__names_destroy(tokenizer->passes[1]);
    weft__bpe_destroy(tokenizer->bpe);
    free(tokenizer->json);
    free(tokenizer);
}

bool weft__tokenizer_is_bytes(const weft_tokenizer_t *tokenizer)
{
    return tokenizer->bytes;
}

uint32_t weft__tokenizer_vocab(const weft_tokenizer_t *tokenizer)
{
    return tokenizer->vocab;
}

int64_t weft__tokenizer_end(const weft_tokenizer_t *tokenizer)
{
    return tokenizer->end;
}

uint32_t weft__tokenizer_identity(const weft_tokenizer_t *tokenizer)
{
    return tokenizer->identity;
}

const char *weft__tokenizer_json(const weft_tokenizer_t *tokenizer, size_t *length_p)
{
    *length_p = tokenizer->json_length;
    return tokenizer->json;
}

/* ---- encoding ------------------------------------------------------------------------------- */

static weft_status_t encode_words(weft_tokenizer_t *t, const char *text, size_t length,
                                  weft_tokens_t *tokens)
{
    if (t->bytes) {
        weft_status_t status = weft__tokens_reserve(tokens, length);
        for (size_t i = 0; i < length && status == WEFT_OK; i++) {
            tokens->at[tokens->count++] = (unsigned char)text[i];
        }
        return status;
    }
    while (length > 0) {
        size_t word = weft__split_next(t->split, text, length);
        WEFT_TRY(weft__bpe_encode(t->bpe, text, word, t->whole, tokens));
        text += word;
        length -= word;
    }
    return WEFT_OK;
}

static weft_status_t encode_from(weft_tokenizer_t *t, int number, const char *text, size_t length,
                                 bool specials, weft_tokens_t *tokens);

/* Cut `text` at `matches`, the last of which comes first, and encode what is between with the
 * passes after pass `number`. Of names that overlap the one that starts first is taken. */
static weft_status_t encode_between(weft_tokenizer_t *t, int number, const char *text,
                                    size_t length, bool specials,
                                    const weft_name_matches_t *matches, weft_tokens_t *tokens)
{
    size_t start = 0, at = 0; /* what is not encoded yet; what no name was found in yet */
    for (size_t i = matches->count; i-- > 0;) {
        const weft_name_match_t *match = &matches->list[i];
        const weft_added_t *found = &t->added[match->value];
        if (match->at < at) {
            continue;
        }
        at = match->at + found->length;
        if (found->special && !specials) {
            continue;
        }
        WEFT_TRY(encode_from(t, number + 1, text + start, match->at - start, specials, tokens));
        WEFT_TRY(weft__tokens_reserve(tokens, 1));
        tokens->at[tokens->count++] = found->token;
        start = at;
    }
    return encode_from(t, number + 1, text + start, length - start, specials, tokens);
}

/* Encode with pass `number` and those after it. */
static weft_status_t encode_from(weft_tokenizer_t *t, int number, const char *text, size_t length,
                                 bool specials, weft_tokens_t *tokens)
{
    if (number == 2) {
        return encode_words(t, text, length, tokens);
    }
    weft_name_matches_t matches = {0};
    weft_status_t status = WEFT_OK;
    if (t->passes[number] != NULL) {
        status = weft__names_find(t->passes[number], text, length, &matches);
    }
    if (status == WEFT_OK) {
        status = encode_between(t, number, text, length, specials, &matches, tokens);
    }
    free(matches.list);
    return status;
}

weft_status_t weft__tokenizer_encode(weft_tokenizer_t *tokenizer, const char *text, size_t length,
                                     bool specials, weft_tokens_t *tokens)
{
    return encode_from(tokenizer, 0, text, length, specials, tokens);
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

size_t weft__tokenizer_cut(const weft_tokenizer_t *tokenizer, const char *text, size_t length)
{
    if (tokenizer->split == WEFT_WORDS_NONE && !tokenizer->bytes) {
        return 0; /* the whole text is one word */
    }
    if (tokenizer->spaced) {
        return 0; /* the space may be inside of a name */
    }
    for (size_t at = length; at-- > 2;) {
        /* Every splitter ends a word of letters there, and gives the space to the next one. */
        if (text[at - 1] == ' ' && is_letter(text[at - 2]) && is_letter(text[at])) {
            return at - 1;
        }
    }
    return 0;
}

/* ---- decoding ------------------------------------------------------------------------------- */

static const weft_added_t *added_at(const weft_tokenizer_t *t, uint32_t token)
{
    int low = 0, high = t->added_count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (t->added[middle].token < token) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < t->added_count && t->added[low].token == token ? &t->added[low] : NULL;
}

const char *weft__tokenizer_bytes(const weft_tokenizer_t *tokenizer, uint32_t token,
                                  size_t *length_p)
{
    const weft_added_t *added = added_at(tokenizer, token);
    if (added != NULL) {
        *length_p = added->length;
        return added->name;
    }
    return weft__bpe_bytes(tokenizer->bpe, token, length_p);
}

weft_status_t weft__tokenizer_decode(const weft_tokenizer_t *tokenizer, const uint32_t *tokens,
                                     size_t count, char **text_p, size_t *length_p)
{
    char *text = NULL;
    size_t total = 0;
    for (int write = 0; write < 2; write++) { /* first the length, then the bytes */
        size_t at = 0;
        for (size_t i = 0; i < count; i++) {
            size_t length;
            const weft_added_t *added = added_at(tokenizer, tokens[i]);
            const char *bytes = weft__tokenizer_bytes(tokenizer, tokens[i], &length);
            if (bytes == NULL || (added != NULL && added->special)) {
                continue;
            }
            if (write) {
                memcpy(text + at, bytes, length);
            }
            at += length;
        }
        total = at;
        text = write ? text : malloc(total + 1);
        if (text == NULL) {
            return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for %zu bytes of text", total);
        }
    }
    text[total] = '\0';
    *text_p = text;
    if (length_p != NULL) {
        *length_p = total;
    }
    return WEFT_OK;
}
