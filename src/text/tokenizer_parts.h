/* The inside of a tokenizer: what tokenizer_load.c reads from a file and tokenizer.c works with. */
#ifndef WEFT_TEXT_TOKENIZER_PARTS_H
#define WEFT_TEXT_TOKENIZER_PARTS_H

#include <stdbool.h>

#include "text/bpe.h"
#include "text/names.h"
#include "text/split.h"
#include "text/tokenizer.h"

/* A token that is found in the text by its name, before anything else is done with the text. */
typedef struct weft_added {
    char *name;
    size_t length;
    uint32_t token;
    bool special;
    int pass; /* 0: looked for first; 1: in what is left (the file says "normalized") */
} weft_added_t;

struct weft_tokenizer {
    weft_bpe_t *bpe;
    weft_word_rule_t split;
    bool whole; /* a word that is a token is taken as it is (the file says ignore_merges) */
    bool bytes; /* token = byte */
    uint32_t vocab;
    int64_t end;
    uint32_t identity;
    char *json;
    size_t json_length;
    weft_added_t *added; /* by token number */
    int added_count;
    bool spaced;             /* one of their names has a space in it */
    weft_names_t *passes[2]; /* names of added tokens, by their place in `added`; NULL: none */
};

/* Build from the text of a tokenizer.json, which is copied; `path` begins error sentences. */
weft_status_t weft__tokenizer_load(const char *json, size_t length, const char *path,
                                   weft_tokenizer_t **tokenizer_p);

/* The tokenizer.json for bytes, malloced. */
weft_status_t weft__tokenizer_of_bytes(char **json_p, size_t *length_p);

#endif
