/* Text from a model: tokens that follow a prompt, one after the other. */
#ifndef WEFT_SERVE_GENERATE_H
#define WEFT_SERVE_GENERATE_H

#include "train/setup.h"

typedef struct weft_generate {
    const weft_model_t *model; /* whole */
    const weft_compute_t *compute;
    void *const *params; /* by index */
    weft_stream_h stream;
    int tokens;         /* how many to make, at most */
    int64_t context;    /* how many tokens to look back at, at most: as many as it has learned */
    double temperature; /* 0: always the likeliest */
    int top_k;          /* choose among the likeliest only; 0: among all */
    uint64_t seed;
    int64_t end; /* a token after which nothing follows; -1: none */

    /* Gets every token of each text as it is made; not WEFT_OK ends it and is returned. */
    weft_status_t (*emit)(void *arg, int text, uint32_t token);
    void *arg;
} weft_generate_t;

/* Continue each of the prompts (of at least one token). Texts are written side by side, the tokens
 * of prompts in one batch with those of texts that are being written, where the device takes such
 * batches; else one after the other. Where a text gets longer than `context`, or than the model's
 * own, it goes on from its second half. Memory is taken from the current device and given back. The
 * same seed gives the same text, whatever is written beside it. */
weft_status_t weft__generate(const weft_generate_t *generate, const weft_tokens_t *prompts,
                             int count);

/* The next token by these logits: pick `draw` (in [0, 1)) of the distribution. `order` has room for
 * `vocab` entries. Exposed for tests. */
uint32_t weft__generate_pick(const float *logits, int vocab, double temperature, int top_k,
                             double draw, int *order);

/* The tokens of a prompt, at least one: for an empty text it is the one that ends texts. */
weft_status_t weft__generate_prompt(weft_tokenizer_t *tokenizer, const char *text,
                                    weft_tokens_t *tokens);

/* Write a sample of training: all of it at once, decoded and tame. */
weft_status_t weft__generate_sample(const weft_text_sample_t *sample, char **text_p);

/* Bytes that a terminal would obey become question marks; new lines and tabs stay. */
void weft__generate_tame(char *text, size_t count);

#endif
