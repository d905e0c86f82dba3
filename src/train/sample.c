/* Text written during training, to see what the model has learned. */
#include <stdlib.h>

#include "base/log.h"
#include "train/generate.h"
#include "train/trainer.h"

static weft_status_t collect(void *arg, uint32_t token)
{
    weft_tokens_t *tokens = arg;
    tokens->at[tokens->count++] = token; /* there is room for all that were asked for */
    return WEFT_OK;
}

weft_status_t weft__sample(weft_trainer_t *t, const char *prompt, int count, char **text_p)
{
    size_t length;
    weft_tokens_t start = {0}, made = {.at = calloc((size_t)count + 1, sizeof(uint32_t))};
    weft_generate_t generate = {.model = t->model,
                                .compute = t->compute,
                                .params = t->params,
                                .stream = t->stream,
                                .tokens = count,
                                .context = t->config->length,
                                .temperature = 0.8,
                                .top_k = 50,
                                .seed = (uint64_t)t->config->seed + t->state.step,
                                .end = -1,
                                .emit = collect,
                                .arg = &made};
    weft_status_t status = made.at != NULL ? WEFT_OK
                                           : weft__fail(WEFT_ERR_NO_MEMORY,
                                                        "no memory to write %d tokens", count);
    if (status == WEFT_OK) {
        status = weft__generate_prompt(t->setup->tokenizer, prompt, &start);
    }
    if (status == WEFT_OK) {
        status = weft__generate(&generate, start.at, start.count);
    }
    if (status == WEFT_OK) {
        status = weft__tokenizer_decode(t->setup->tokenizer, made.at, made.count, text_p, &length);
    }
    if (status == WEFT_OK) {
        weft__generate_tame(*text_p, length);
    }
    free(start.at);
    free(made.at);
    return status;
}
