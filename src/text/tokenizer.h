/* Text to tokens and back.
 *
 * Two kinds: bytes (token = byte, 256 ends a text), and the byte-level BPE of a Hugging Face
 * tokenizer.json (GPT-2, Llama 3 and their like). What a file asks for that is not
 * implemented is refused with a sentence when it is loaded: what is loaded encodes exactly as the
 * `tokenizers` package does with add_special_tokens=False. */
#ifndef WEFT_TEXT_TOKENIZER_H
#define WEFT_TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weft/status.h>

typedef struct weft_tokenizer weft_tokenizer_t;

#define WEFT_BYTES_VOCAB 257 /* of bytes: 256 of them, and the end */

/* `path`: "bytes", a tokenizer.json, or a folder that has one. WEFT_ERR_UNSUPPORTED for features
 * that are not implemented, WEFT_ERR_INVALID for a file that is no tokenizer. */
weft_status_t weft__tokenizer_open(const char *path, weft_tokenizer_t **tokenizer_p);
void weft__tokenizer_close(weft_tokenizer_t *tokenizer);

bool weft__tokenizer_is_bytes(const weft_tokenizer_t *tokenizer);

/* Every token is less than this. */
uint32_t weft__tokenizer_vocab(const weft_tokenizer_t *tokenizer);

/* The token that ends a text (<|endoftext|>, <|end_of_text|>, </s>, ...); -1 if the file names
 * none. */
int64_t weft__tokenizer_end(const weft_tokenizer_t *tokenizer);

/* A number that differs between tokenizers that encode differently (the checksum of the file). */
uint32_t weft__tokenizer_identity(const weft_tokenizer_t *tokenizer);

/* A list of tokens that grows. Start from {0}; free(tokens->at) in the end. */
typedef struct weft_tokens {
    uint32_t *at;
    size_t count, room;
} weft_tokens_t;

/* Append the tokens of `text`, any bytes. Bytes that are not UTF-8 are encoded as they are (each
 * counts as neither letter, number nor space), so decoding gives them back. specials: names of
 * special tokens inside the text ("<|endoftext|>") become these tokens, as the `tokenizers`
 * package does; false treats them as text, which is what foreign text needs. Tokens added as not
 * special are found in both cases. One thread at a time per tokenizer: it remembers words that it
 * has seen. */
weft_status_t weft__tokenizer_encode(weft_tokenizer_t *tokenizer, const char *text, size_t length,
                                     bool specials, weft_tokens_t *tokens);

/* The last place in text[0, length) where it may be cut so that both parts, encoded by
 * themselves, give the tokens of the whole: before a space between two letters. 0 if there is
 * none. For texts too long to be encoded at once. */
size_t weft__tokenizer_cut(const weft_tokenizer_t *tokenizer, const char *text, size_t length);

/* The bytes of one token (not NUL-terminated; valid as long as the tokenizer); the name of a
 * special one. NULL and 0 for numbers that are no token. */
const char *weft__tokenizer_bytes(const weft_tokenizer_t *tokenizer, uint32_t token,
                                  size_t *length_p);

/* The text of tokens, without special ones and numbers that are no token; malloced and
 * NUL-terminated. *length_p (may be NULL) does not count the NUL. */
weft_status_t weft__tokenizer_decode(const weft_tokenizer_t *tokenizer, const uint32_t *tokens,
                                     size_t count, char **text_p, size_t *length_p);

/* The tokenizer as the text of a tokenizer.json that the `tokenizers` package loads, bytes
 * included, for keeping it with a checkpoint. Valid as long as the tokenizer. */
const char *weft__tokenizer_json(const weft_tokenizer_t *tokenizer, size_t *length_p);

#endif
