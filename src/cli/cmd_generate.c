/* weft generate: write text with a trained model. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <weft/weft.h>

#include "base/log.h"
#include "base/settings.h"
#include "cli/commands.h"
#include "serve/generate.h"
#include "serve/model_load.h"

typedef struct options {
    const char *from, *prompt, *device, *tokenizer;
    int tokens, context, top_k, seed;
    double temperature;
} options_t;

static int complain(int exit_status)
{
    fprintf(stderr, "weft generate: %s\n", weft_last_error());
    return exit_status;
}

static int refuse(const char *sentence)
{
    fprintf(stderr, "weft generate: %s\n", sentence);
    return WEFT_EXIT_USAGE;
}

/* Text appears as it is made. */
static weft_status_t print_token(void *arg, int text, uint32_t token)
{
    size_t length;
    (void)text;
    const char *bytes = weft__tokenizer_bytes(arg, token, &length);
    char tame[256];
    if (bytes != NULL && length <= sizeof(tame) && isatty(STDOUT_FILENO)) {
        memcpy(tame, bytes, length);
        weft__generate_tame(tame, length);
        bytes = tame;
    }
    if (bytes != NULL) {
        fwrite(bytes, 1, length, stdout);
        fflush(stdout);
    }
    return WEFT_OK;
}

static weft_status_t generate(const options_t *o, const weft_model_loaded_t *loaded)
{
    weft_tokens_t prompt = {0};
    weft_generate_t g = {.model = loaded->model,
                         .compute = loaded->compute,
                         .params = loaded->params,
                         .tokens = o->tokens,
                         .context = o->context > 0 ? o->context : loaded->length,
                         .temperature = o->temperature,
                         .top_k = o->top_k,
                         .seed = (uint64_t)o->seed,
                         .end = weft__tokenizer_end(loaded->tokenizer),
                         .emit = print_token,
                         .arg = loaded->tokenizer};
    weft_status_t status = weft__generate_prompt(loaded->tokenizer, o->prompt, &prompt);
    if (status == WEFT_OK) {
        fputs(o->prompt, stdout);
        status = weft__generate(&g, &prompt, 1);
        fputc('\n', stdout);
    }
    free(prompt.at);
    return status;
}

int weft__cmd_generate(int argc, char **argv)
{
    options_t o = {.from = "",
                   .prompt = "",
                   .device = weft__settings_device("auto"),
                   .tokenizer = "",
                   .tokens = 256,
                   .top_k = 50,
                   .seed = 1,
                   .temperature = 0.8};
    const weft_arg_t options[] = {
        {"from", 'f', WEFT_ARG_FILE, "PATH", &o.from,
         "a run folder, a checkpoint in it, or a model folder of transformers"},
        {"prompt", 'p', WEFT_ARG_STR, "TEXT", &o.prompt, "what the text starts with"},
        {"tokens", 'n', WEFT_ARG_INT, "N", &o.tokens, "how many tokens to write (default 256)"},
        {"context", 0, WEFT_ARG_INT, "N", &o.context,
         "tokens to look back at, at most; 0: as many as it was trained with (default 0)"},
        {"temperature", 't', WEFT_ARG_REAL, "X", &o.temperature,
         "0: always the likeliest token; 1: as the model has it (default 0.8)"},
        {"top-k", 'k', WEFT_ARG_INT, "K", &o.top_k,
         "choose among the K likeliest; 0: among all (default 50)"},
        {"seed", 's', WEFT_ARG_INT, "N", &o.seed, "the same seed writes the same text (default 1)"},
        {"device", 'd', WEFT_ARG_STR, "KIND", &o.device,
         "cpu, cuda or auto (default WEFT_DEVICE if it is set, else auto)"},
        {"tokenizer", 0, WEFT_ARG_FILE, "FILE", &o.tokenizer,
         "bytes or a tokenizer.json, where the folder has none"},
    };
    static const weft_arg_range_t ranges[] = {{"tokens", 1, INT_MAX},
                                              {"context", 0, INT_MAX},
                                              {"top-k", 0, INT_MAX},
                                              {"seed", 0, INT_MAX}};
    static const weft_arg_words_t words[] = {{"device", "auto cpu cuda", NULL},
                                             {"tokenizer", "bytes", NULL}};
    const weft_args_t args = {
        .command = "weft generate",
        .synopsis = "--from PATH [OPTION]...",
        .text = "Write text with a model that weft train, or another, trained.",
        .footer = "example:\n  weft generate --from run --prompt 'int main('",
        .options = options,
        .count = (int)(sizeof(options) / sizeof(options[0])),
        .ranges = ranges,
        .range_count = (int)(sizeof(ranges) / sizeof(ranges[0])),
        .words = words,
        .words_count = (int)(sizeof(words) / sizeof(words[0]))};
    weft_args_found_t found;
    weft_model_loaded_t loaded;
    int ends = weft__command_args(&args, argc, argv, &found);
    if (ends >= 0) {
        return ends;
    }
    if (weft__args_none(&found) != WEFT_OK) {
        fprintf(stderr, "%s\n", weft_last_error());
        return WEFT_EXIT_USAGE;
    }
    if (o.from[0] == '\0') {
        return refuse("say which model to use, with --from PATH");
    }
    bool known = strcmp(o.device, "cpu") == 0 || strcmp(o.device, "cuda") == 0 ||
                 strcmp(o.device, "auto") == 0;
    if (!known) {
        return refuse("--device (or WEFT_DEVICE) takes one of: auto cpu cuda");
    }
    if (!(o.temperature >= 0.0)) {
        return refuse("--temperature must not be negative");
    }
    weft__settings_set("WEFT_DEVICE", o.device);
    weft_status_t status = weft__model_load(o.from, o.tokenizer, &loaded);
    if (status == WEFT_OK && o.context > loaded.model->config.context) {
        weft__fail(WEFT_ERR_INVALID, "--context %d is more than the %d tokens that %s takes",
                   o.context, loaded.model->config.context, o.from);
        weft__model_unload(&loaded);
        return complain(WEFT_EXIT_USAGE);
    }
    if (status == WEFT_OK) {
        status = generate(&o, &loaded);
        weft__model_unload(&loaded);
    }
    return status == WEFT_OK ? 0 : complain(1);
}
