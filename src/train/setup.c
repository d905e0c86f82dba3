/* From options to what they mean here: see setup.h. */
#include "train/setup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <weft/device.h>

#include "base/log.h"
#include "base/output.h"
#include "base/settings.h"
#include "base/trace.h"
#include "text/sources.h"
#include "train/checkpoint_parts.h"
#include "train/progress.h"
#include "train/run_folder.h"
#include "train/run_plan.h"

/* ---- device and precision ----------------------------------------------------------------- */

static void choose_type(weft_setup_t *setup)
{
    weft_train_config_t *config = setup->config;
    if (strcmp(config->precision, "auto") == 0) {
        config->precision = strcmp(setup->device, "cuda") == 0 ? "bf16" : "fp32";
    }
    setup->type = strcmp(config->precision, "fp16") == 0   ? WEFT_F16
                  : strcmp(config->precision, "bf16") == 0 ? WEFT_BF16
                                                           : WEFT_F32;
}

static weft_status_t choose_device(weft_setup_t *setup)
{
    weft_train_config_t *config = setup->config;
    if (strcmp(weft__settings()->device, config->device) != 0) {
        weft__settings_set("WEFT_DEVICE", config->device);
    }
    WEFT_TRY(weft_device_kind(&setup->device));
    config->device = setup->device;
    bool gpus = strcmp(setup->device, "cuda") == 0;
    weft__machine_read(gpus, &setup->machine);
    choose_type(setup);
    return WEFT_OK;
}

/* ---- the model ---------------------------------------------------------------------------- */

static bool same_model(const weft_model_config_t *a, const weft_model_config_t *b)
{
    return a->family == b->family && a->layers == b->layers && a->width == b->width &&
           a->heads == b->heads && a->kv_heads == b->kv_heads && a->head_dim == b->head_dim &&
           a->ffn == b->ffn && a->context == b->context && a->tied == b->tied;
}

/* The model of a checkpoint is that checkpoint's. --model may repeat it, but not contradict it. */
static weft_status_t model_of_checkpoint(weft_setup_t *setup)
{
    const char *asked = setup->config->model;
    weft_model_config_t other;
    WEFT_TRY(weft__config_find(setup->loaded.path, &setup->model));
    bool inherited = asked == setup->config->earlier_model; /* its file may be gone */
    if (strcmp(asked, "tiny") == 0 || inherited) {          /* "tiny": nothing was asked for */
        return WEFT_OK;
    }
    WEFT_TRY(weft__config_find(asked, &other));
    if (!same_model(&other, &setup->model)) {
        return weft__fail(WEFT_ERR_INVALID,
                          "--model %s is another model than the one in %s; leave --model out to go "
                          "on with that one",
                          asked, setup->loaded.path);
    }
    return WEFT_OK;
}

const char *weft__setup_resume(const weft_train_config_t *config)
{
    if (strcmp(config->resume, "auto") != 0) {
        return config->resume;
    }
    /* A folder that cannot be listed is no new one: loading from it says why it cannot be. */
    bool there = config->out[0] != '\0' &&
                 weft__checkpoint_newest(config->out, INT64_MAX) != WEFT_CHECKPOINT_NONE;
    return there ? config->out : "";
}

static weft_status_t load_checkpoint(weft_setup_t *setup, const char *path)
{
    WEFT_TRY(weft__checkpoint_load(path, WEFT_LOAD_ALL, &setup->loaded));
    setup->has_loaded = true;
    return WEFT_OK;
}

static weft_status_t has_weights(const char *folder, bool *has_p)
{
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json"};
    char path[WEFT_PATH_BYTES];
    *has_p = false;
    for (int i = 0; i < 2 && !*has_p; i++) {
        WEFT_TRY(weft__path_join(path, folder, names[i]));
        WEFT_TRY(weft__is_file(path, has_p));
    }
    return WEFT_OK;
}

static void choose_dropout(weft_setup_t *setup)
{
    float dropout = (float)setup->config->dropout;
    setup->model.embed_dropout = setup->model.attention_dropout = dropout;
    setup->model.residual_dropout = dropout;
}

static weft_status_t choose_model(weft_setup_t *setup)
{
    weft_train_config_t *config = setup->config;
    const char *resume = weft__setup_resume(config);
    if (resume[0] != '\0') {
        WEFT_TRY(load_checkpoint(setup, resume));
        setup->resumed = !setup->loaded.foreign;
        WEFT_TRY(model_of_checkpoint(setup));
    } else {
        bool weights;
        WEFT_TRY(weft__config_find(config->model, &setup->model));
        WEFT_TRY(has_weights(config->model, &weights));
        if (weights && !config->benchmark) { /* a folder: start from them */
            WEFT_TRY(load_checkpoint(setup, config->model));
        }
    }
    if (setup->resumed && setup->loaded.state.seed != (uint64_t)config->seed) {
        return weft__fail(WEFT_ERR_INVALID,
                          "--seed is %d, but %s was trained with %llu: the order of the data would "
                          "be another; give --seed %llu",
                          config->seed, setup->loaded.path,
                          (unsigned long long)setup->loaded.state.seed,
                          (unsigned long long)setup->loaded.state.seed);
    }
    choose_dropout(setup);
    return WEFT_OK;
}

/* ---- the tokenizer ------------------------------------------------------------------------ */

/* A model with weights goes on with the tokens it knows; what shards were made with, they do not
 * say. */
static weft_status_t find_tokenizer(weft_setup_t *setup, bool shards)
{
    weft_train_config_t *config = setup->config;
    config->tokenizer = shards ? "none" : "bytes";
    if (!setup->has_loaded) {
        return WEFT_OK;
    }
    WEFT_TRY(weft__path_join(setup->tokenizer_file, setup->loaded.path, "tokenizer.json"));
    bool there;
    WEFT_TRY(weft__is_file(setup->tokenizer_file, &there));
    if (there && shards &&
        weft__tokenizer_open(setup->tokenizer_file, &setup->tokenizer) != WEFT_OK) {
        weft__warn("%s is not used: %s", setup->tokenizer_file, weft_last_error());
    } else if (there) {
        config->tokenizer = setup->tokenizer_file;
    } else if (!shards) {
        return weft__fail(WEFT_ERR_INVALID,
                          "%s has no tokenizer.json, so that %s cannot be turned into its tokens: "
                          "give --tokenizer FILE",
                          setup->loaded.path, config->data);
    }
    return WEFT_OK;
}

/* What is wrong with data is told when it is opened. */
static bool is_shards(const char *data)
{
    weft_sources_t sources;
    if (weft__sources_find(data, &sources) != WEFT_OK) {
        return false;
    }
    bool shards = sources.shards;
    weft__sources_free(&sources);
    return shards;
}

static weft_status_t choose_tokenizer(weft_setup_t *setup)
{
    weft_train_config_t *config = setup->config;
    if (config->benchmark) { /* its tokens stand for nothing */
        return WEFT_OK;
    }
    bool shards = is_shards(config->data);
    if (strcmp(config->tokenizer, "auto") == 0) {
        WEFT_TRY(find_tokenizer(setup, shards));
    }
    if (strcmp(config->tokenizer, "none") != 0) {
        return setup->tokenizer != NULL
                   ? WEFT_OK
                   : weft__tokenizer_open(config->tokenizer, &setup->tokenizer);
    }
    if (!shards) {
        return weft__fail(WEFT_ERR_INVALID,
                          "--tokenizer none is for token shards, and %s is text: leave it out, or "
                          "give a tokenizer.json",
                          config->data);
    }
    if (config->sample_every > 0) {
        return weft__fail(WEFT_ERR_INVALID,
                          "--sample cannot write text: %s has tokens, and what they stand for is "
                          "not known; give --tokenizer FILE as well, or leave --sample out",
                          config->data);
    }
    return WEFT_OK;
}

/* Presets take the vocabulary they need; a model that exists has the one it has. */
static weft_status_t fit_vocabulary(weft_setup_t *setup)
{
    bool known = setup->tokenizer != NULL;
    bool open = !setup->has_loaded && weft__config_is_preset(setup->config->model);
    int bytes = open ? WEFT_BYTES_VOCAB : 0; /* the least that shards may have been made with */
    int needed = known ? (int)weft__tokenizer_vocab(setup->tokenizer) : bytes;
    if (open) {
        setup->model.vocab = setup->model.vocab < needed ? needed : setup->model.vocab;
    }
    if (open && known) {
        setup->model.eos_token = (int)weft__tokenizer_end(setup->tokenizer);
    }
    if (setup->model.vocab < needed) {
        return weft__fail(WEFT_ERR_INVALID,
                          "--tokenizer %s has %d tokens, but the model knows %d only",
                          setup->config->tokenizer, needed, setup->model.vocab);
    }
    return weft__config_check(&setup->model);
}

/* ---- the run folder ----------------------------------------------------------------------- */

/* A name without "./" before and slashes behind it. */
static const char *bare(const char *path, size_t *length_p)
{
    while (strncmp(path, "./", 2) == 0) {
        path += 2;
    }
    *length_p = strlen(path);
    while (*length_p > 1 && path[*length_p - 1] == '/') {
        --*length_p;
    }
    return path;
}

/* Of folders that may not be there yet. */
static bool same_name(const char *a, const char *b)
{
    size_t m, n;
    a = bare(a, &m);
    b = bare(b, &n);
    return m == n && strncmp(a, b, n) == 0;
}

/* Is it there, and something else than a trace? What was meant for another option is not written
 * over. */
static weft_status_t is_other_file(const char *path, bool *is_p)
{
    char start[sizeof(WEFT_TRACE_START)] = "";
    WEFT_TRY(weft__is_file(path, is_p));
    if (!*is_p) {
        return WEFT_OK;
    }
    FILE *file = fopen(path, "re");
    size_t count = file != NULL ? fread(start, 1, sizeof(start) - 1, file) : 0;
    int error = file == NULL || ferror(file) ? errno : 0;
    if (file != NULL) {
        fclose(file);
    }
    *is_p = count > 0 && strcmp(start, WEFT_TRACE_START) != 0;
    return error == 0 ? WEFT_OK
                      : weft__fail(WEFT_ERR_SYSTEM, "cannot read %s: %s", path, strerror(error));
}

/* A trace is written when all is over, which is late to learn that it cannot be. */
static weft_status_t check_trace(const char *path, const char *out)
{
    char folder[WEFT_PATH_BYTES] = ".";
    const char *slash = strrchr(path, '/');
    if (slash != NULL) {
        snprintf(folder, sizeof(folder), "%.*s", slash > path ? (int)(slash - path) : 1, path);
    }
    if (path[0] == '\0') {
        return WEFT_OK;
    }
    bool comes = false, is_folder, other;
    if (out[0] != '\0' && same_name(folder, out)) {
        WEFT_TRY(weft__is_folder(out, &comes));
        comes = !comes; /* with the run */
    }
    if (strcmp(path, "-") == 0) {
        return weft__fail(WEFT_ERR_INVALID,
                          "--trace - would mix the trace with what is printed: name a file");
    }
    WEFT_TRY(weft__is_folder(path, &is_folder));
    if (is_folder || (out[0] != '\0' && same_name(path, out)) || path[strlen(path) - 1] == '/') {
        return weft__fail(WEFT_ERR_INVALID, "--trace %s is a folder: name a file", path);
    }
    WEFT_TRY(is_other_file(path, &other));
    if (other) {
        return weft__fail(WEFT_ERR_INVALID,
                          "--trace %s is there, and is no trace: choose another name", path);
    }
    if (!comes && weft__output_check(path) != WEFT_OK) {
        char why[WEFT_PATH_BYTES + 256];
        snprintf(why, sizeof(why), "%s", weft_last_error());
        return weft__fail(WEFT_ERR_INVALID, "--trace: %s", why);
    }
    return WEFT_OK;
}

/* A run that goes back leaves later checkpoints behind: it must be said that this is meant. */
static weft_status_t check_later(const weft_setup_t *setup)
{
    const char *out = setup->config->out;
    char later[256], aside[WEFT_PATH_BYTES];
    WEFT_TRY(weft__run_later(out, &setup->loaded, later, sizeof(later)));
    if (later[0] == '\0' || setup->config->force) {
        return WEFT_OK;
    }
    WEFT_TRY(weft__run_aside(out, aside));
    return weft__fail(WEFT_ERR_INVALID,
                      "%s has later checkpoints than step %llu: %s. Go on from there into another "
                      "folder with --out OTHER; or in this one with --force, which moves them and "
                      "their metrics to %s",
                      out, (unsigned long long)setup->loaded.state.step, later, aside);
}

/* One run per folder: what another left there is not written over. `latest` counts, not the
 * checkpoints of the same run: one that was killed between the two starts again as if it had saved
 * nothing. */
static weft_status_t check_out(weft_setup_t *setup)
{
    const char *out = setup->config->out;
    char latest[WEFT_PATH_BYTES];
    if (out[0] == '\0') {
        return WEFT_OK;
    }
    bool is;
    WEFT_TRY(weft__is_file(out, &is));
    if (is) {
        return weft__fail(WEFT_ERR_INVALID, "--out %s is a file, but a run needs a folder", out);
    }
    if (setup->resumed) {
        WEFT_TRY(weft__run_holds(out, &setup->loaded, &setup->goes_on));
    }
    if (setup->goes_on) {
        return check_later(setup);
    }
    WEFT_TRY(weft__path_join(latest, out, "latest"));
    WEFT_TRY(weft__is_folder(latest, &is));
    if (is) {
        return weft__fail(WEFT_ERR_INVALID,
                          "%s holds the checkpoints of another run: go on with --resume %s, choose "
                          "another --out, or remove it",
                          out, out);
    }
    return weft__run_vacant(out);
}

/* ---- opening ------------------------------------------------------------------------------ */

/* Tokens of texts: with the run, or where the user keeps what can be made again. */
static weft_status_t choose_cache(weft_setup_t *setup)
{
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (setup->config->out[0] != '\0') {
        return weft__path_join(setup->cache, setup->config->out, "tokens");
    }
    if (base != NULL && base[0] == '/') {
        return weft__path_join(setup->cache, base, "weft/tokens");
    }
    if (home != NULL && home[0] == '/') {
        return weft__path_join(setup->cache, home, ".cache/weft/tokens");
    }
    setup->cache[0] = '\0'; /* shards of tokens need none */
    return WEFT_OK;
}

/* What the configuration leaves open, and whether it can work. */
static weft_status_t resolve(weft_setup_t *setup)
{
    weft_train_config_t *config = setup->config;
    weft_train_limits_t limits = {.context = setup->model.context,
                                  .layers = setup->model.layers,
                                  .heads = setup->model.heads,
                                  .kv_heads = setup->model.kv_heads,
                                  .vocab = setup->model.vocab};
    WEFT_TRY(weft__train_check(config));
    weft_status_t status = weft__train_mesh(config, &limits);
    if (status != WEFT_OK) {
        return weft__run_plan_suggest(setup, status);
    }
    WEFT_TRY(weft__train_resolve(config, &limits));
    return weft__run_plan_check(setup);
}

weft_status_t weft__setup_vary(const weft_setup_t *base, weft_train_config_t *config,
                               weft_setup_t *setup)
{
    *setup = (weft_setup_t){.config = config,
                            .device = base->device,
                            .machine = base->machine,
                            .model = base->model,
                            .gathers_beside = base->gathers_beside};
    config->device = base->device;
    config->benchmark = true;
    choose_type(setup);
    choose_dropout(setup);
    return resolve(setup);
}

weft_status_t weft__setup_open(weft_train_config_t *config, weft_setup_t *setup)
{
    *setup = (weft_setup_t){.config = config};
    if (config->data[0] == '\0' && !config->benchmark) {
        return weft__fail(WEFT_ERR_INVALID,
                          "say what to train on, with --data PATH: a text file, a folder, or token "
                          "shards");
    }
    if (config->benchmark) { /* before a checkpoint is looked for that it does not take */
        WEFT_TRY(weft__train_check(config));
    }
    WEFT_TRY(choose_device(setup));
    WEFT_TRY(choose_model(setup));
    WEFT_TRY(choose_tokenizer(setup));
    WEFT_TRY(fit_vocabulary(setup));
    WEFT_TRY(resolve(setup));
    WEFT_TRY(check_out(setup));
    WEFT_TRY(check_trace(config->trace, config->out));
    return choose_cache(setup);
}

static void close_data(weft_setup_t *setup)
{
    weft__data_close(setup->data);
    weft__data_close(setup->eval_data);
    setup->data = setup->eval_data = NULL;
}

void weft__setup_close(weft_setup_t *setup)
{
    close_data(setup);
    weft__tokenizer_close(setup->tokenizer);
    if (setup->has_loaded) {
        weft__checkpoint_unload(&setup->loaded);
    }
    *setup = (weft_setup_t){0};
}

static weft_status_t look_at(const char *path)
{
    weft_sources_t sources;
    WEFT_TRY(weft__sources_find(path, &sources));
    weft__sources_free(&sources);
    return WEFT_OK;
}

weft_status_t weft__setup_look(const weft_setup_t *setup)
{
    const weft_train_config_t *config = setup->config;
    if (config->benchmark) {
        return WEFT_OK;
    }
    WEFT_TRY(look_at(config->data));
    return config->eval_data[0] != '\0' ? look_at(config->eval_data) : WEFT_OK;
}

static weft_status_t prepare_one(weft_setup_t *setup, const char *path, FILE *out)
{
    weft_encoding_t encoding;
    weft__encoding_init(&encoding, out);
    const weft_data_watch_t watch = {weft__encoding_show, &encoding};
    weft_status_t status = weft__data_prepare(path, setup->tokenizer, setup->cache, &watch);
    weft__encoding_end(&encoding);
    return status;
}

weft_status_t weft__setup_prepare(weft_setup_t *setup, FILE *out)
{
    const weft_train_config_t *config = setup->config;
    if (config->benchmark) {
        return WEFT_OK;
    }
    WEFT_TRY(prepare_one(setup, config->data, out));
    return config->eval_data[0] == '\0' ? WEFT_OK : prepare_one(setup, config->eval_data, out);
}

weft_status_t weft__setup_data(weft_setup_t *setup)
{
    const weft_train_config_t *config = setup->config;
    bool apart = config->eval_data[0] != '\0';
    weft_data_options_t options = {.length = (uint32_t)config->length,
                                   .vocab = (uint32_t)setup->model.vocab,
                                   .validation = apart ? 0.0 : config->eval_share,
                                   .seed = (uint64_t)config->seed,
                                   .shuffle = true};
    close_data(setup);
    if (config->benchmark) {
        return weft__data_make_up(&options, &setup->data);
    }
    WEFT_TRY(weft__data_open(config->data, setup->tokenizer, setup->cache, &options, &setup->data));
    if (!apart) {
        return WEFT_OK;
    }
    options.shuffle = false;
    return weft__data_open(config->eval_data, setup->tokenizer, setup->cache, &options,
                           &setup->eval_data);
}

weft_slice_t weft__setup_slice(const weft_setup_t *setup)
{
    weft_slice_t slice = WEFT_SLICE_WHOLE(&setup->model);
    /* Rows that matrix units take whole; the extra ones are never read. */
    slice.vocab_multiple = strcmp(setup->device, "cuda") == 0 ? 128 : 16;
    return slice;
}
