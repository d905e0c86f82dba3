/* What a run was: see record.h. */
#include "train/record.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <weft/weft.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/version.h"
#include "kernel/kernel.h"
#include "topo/result.h"

static void write_setting(const char *name, const char *value, bool is_default, const char *text,
                          void *ctx)
{
    weft_json_t *json = ctx;
    if (!is_default && strstr(text, "set by weft") == NULL) { /* those are of one start only */
        weft__json_string(json, name, value);
    }
}

void weft__record_machine(const weft_setup_t *setup, weft_json_t *json)
{
    const struct {
        const char *key, *value;
    } texts[] = {{"weft", weft_version()},
                 {"commit", weft__commit},
                 {"device", setup->device},
                 {"kernels", weft__kernels()->name},
                 {"precision", setup->config->precision},
                 {"model", setup->config->model}};
    weft__json_string(json, "kind", "train");
    weft__json_int(json, "format", WEFT_RESULT_FORMAT);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        weft__json_string(json, texts[i].key, texts[i].value);
    }
    weft__json_int(json, "ranks", setup->config->ranks);
    weft__json_int(json, "parameters", weft__config_params(&setup->model));
    weft__machine_write(&setup->machine, json);
    weft__json_object(json, "settings");
    weft__settings_each(write_setting, json);
    weft__json_end(json);
}

static weft_status_t machine_text(const weft_setup_t *setup, char **text_p, size_t *size_p)
{
    weft_json_t json;
    FILE *out = open_memstream(text_p, size_p);
    if (out == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to describe this machine");
    }
    weft__json_start(&json, out);
    weft__json_object(&json, NULL);
    weft__record_machine(setup, &json);
    weft__json_end(&json);
    weft_status_t status = weft__json_finish(&json);
    fclose(out);
    return status;
}

/* `path` from the root on, in `room`. Without a working folder it is left as it is. */
static const char *absolute(const char *path, char room[2 * WEFT_PATH_BYTES])
{
    char here[WEFT_PATH_BYTES];
    if (path[0] == '\0' || path[0] == '/' || getcwd(here, sizeof(here)) == NULL) {
        return path;
    }
    snprintf(room, 2 * WEFT_PATH_BYTES, "%s/%s", here, path);
    return room;
}

weft_status_t weft__record_settings(const weft_train_config_t *config, const char *extra,
                                    char **text_p)
{
    char rooms[6][2 * WEFT_PATH_BYTES];
    weft_train_config_t told = *config;
    told.resume = told.trace = ""; /* of the process, not of the run */
    told.data = absolute(config->data, rooms[0]);
    told.eval_data = absolute(config->eval_data, rooms[1]);
    told.out = absolute(config->out, rooms[2]);
    if (strcmp(config->tokenizer, "bytes") != 0 && strcmp(config->tokenizer, "none") != 0) {
        told.tokenizer = absolute(config->tokenizer, rooms[3]);
    }
    if (strcmp(config->tensorboard, "auto") != 0 && strcmp(config->tensorboard, "none") != 0) {
        told.tensorboard = absolute(config->tensorboard, rooms[5]);
    }
    if (!weft__config_is_preset(config->model)) {
        told.model = absolute(config->model, rooms[4]);
    }
    return weft__train_write_text(&told, extra, text_p);
}

/* machine.json, or for a run that goes on in its folder machine-STEP.json: the first stays. */
static weft_status_t machine_name(const weft_setup_t *setup, char *path)
{
    char name[64] = "machine.json";
    bool there;
    WEFT_TRY(weft__path_join(path, setup->config->out, name));
    WEFT_TRY(weft__is_file(path, &there));
    if (setup->resumed && there) {
        snprintf(name, sizeof(name), "machine-%llu.json",
                 (unsigned long long)setup->loaded.state.step);
    }
    return weft__path_join(path, setup->config->out, name);
}

weft_status_t weft__record_write(const weft_setup_t *setup)
{
    const char *folder = setup->config->out;
    char path[WEFT_PATH_BYTES], head[160], *text = NULL;
    size_t size = 0;
    WEFT_TRY(weft__folder_make(folder));
    snprintf(head, sizeof(head),
             "weft %s; repeat this run with: weft train --config FILE --out ANOTHER",
             weft_version());
    WEFT_TRY(weft__record_settings(setup->config, head, &text));
    weft_status_t status = weft__path_join(path, folder, "config");
    status = status == WEFT_OK ? weft__file_replace(path, text, strlen(text)) : status;
    free(text);
    WEFT_TRY(status);
    text = NULL;
    status = machine_text(setup, &text, &size);
    status = status == WEFT_OK ? machine_name(setup, path) : status;
    status = status == WEFT_OK ? weft__file_replace(path, text, size) : status;
    free(text);
    return status;
}

void weft__record_describe(weft_json_t *json, void *setup)
{
    const weft_setup_t *run = setup;
    char *config;
    weft__record_machine(run, json);
    if (weft__record_settings(run->config, "", &config) == WEFT_OK) {
        weft__json_string(json, "config", config);
        free(config);
    }
}
