/* Finding and loading checkpoints. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "train/checkpoint_parts.h"

_Static_assert(sizeof(((weft_loaded_t *)0)->path) == WEFT_PATH_BYTES, "a path fits");

static weft_status_t has(const char *folder, const char *name, bool *has_p)
{
    char path[WEFT_PATH_BYTES];
    WEFT_TRY(weft__path_join(path, folder, name));
    WEFT_TRY(weft__is_file(path, has_p));
    return *has_p ? WEFT_OK : weft__is_folder(path, has_p);
}

/* What a folder without a checkpoint is: none, a run's, or whatever it is. */
static weft_status_t resolve_bare(const char *path, char *out)
{
    bool folder, metrics, machine;
    WEFT_TRY(weft__is_folder(path, &folder));
    if (!folder) {
        return weft__fail(WEFT_ERR_NOT_FOUND, "there is no folder %s to load from", path);
    }
    WEFT_TRY(has(path, "metrics.jsonl", &metrics));
    WEFT_TRY(has(path, "machine.json", &machine));
    if (metrics || machine) {
        return weft__fail(WEFT_ERR_NOT_FOUND, "the run in %s has saved no checkpoint to load",
                          path);
    }
    return weft__path_join(out, "", path);
}

/* The folder that `path` means, into `out`. */
static weft_status_t resolve(const char *path, char *out)
{
    char name[WEFT_CHECKPOINT_NAME], link[WEFT_PATH_BYTES];
    bool state, latest;
    WEFT_TRY(has(path, WEFT_CHECKPOINT_STATE, &state));
    WEFT_TRY(has(path, "latest", &latest));
    if (!state && latest) {
        weft_status_t status = weft__path_join(link, path, "latest");
        char *real = status == WEFT_OK ? realpath(link, NULL) : NULL;
        status = weft__path_join(out, "", real != NULL ? real : link);
        free(real);
        return status;
    }
    int64_t newest = state ? -1 : weft__checkpoint_newest(path, INT64_MAX);
    if (newest == WEFT_CHECKPOINT_UNKNOWN) {
        return WEFT_ERR_SYSTEM;
    }
    if (newest >= 0) {
        return weft__path_join(out, path, weft__checkpoint_name((uint64_t)newest, name));
    }
    return resolve_bare(path, out);
}

/* Add to the sentence which checkpoint could be taken instead. */
static weft_status_t suggest_older(const char *folder, weft_status_t status)
{
    char run[WEFT_PATH_BYTES], why[1024];
    const char *slash = strrchr(folder, '/');
    snprintf(why, sizeof(why), "%s", weft_last_error());
    snprintf(run, sizeof(run), "%.*s", slash != NULL ? (int)(slash - folder) : 1,
             slash != NULL ? folder : ".");
    int64_t number = weft__checkpoint_number(slash != NULL ? slash + 1 : folder);
    int64_t older = number >= 0 ? weft__checkpoint_newest(run, number) : -1;
    if (older >= 0) {
        return weft__fail(status, "%s; %s/step-%06" PRId64 " is an older one that could be taken",
                          why, run, older);
    }
    return status;
}

/* Map a file of tensors that the checkpoint need not have. */
static weft_status_t open_tensors(const char *folder, const weft_manifest_t *manifest,
                                  const char *name, weft_tensors_t **tensors_p)
{
    char path[WEFT_PATH_BYTES];
    bool listed = false;
    for (int i = 0; i < manifest->count; i++) {
        listed = listed || strcmp(manifest->files[i].name, name) == 0;
    }
    if (!listed) {
        return WEFT_OK;
    }
    WEFT_TRY(weft__path_join(path, folder, name));
    return weft__tensors_open(path, tensors_p);
}

static weft_status_t load_own(weft_loaded_t *out, weft_load_t want)
{
    weft_manifest_t manifest;
    char path[WEFT_PATH_BYTES];
    weft_status_t status = weft__manifest_read(out->path, &manifest);
    out->settings = manifest.settings;
    out->state = manifest.state;
    memcpy(out->run, manifest.run, sizeof(out->run));
    status = status == WEFT_OK ? weft__manifest_verify(out->path, &manifest, want) : status;
    if (status == WEFT_OK) {
        status = weft__path_join(path, out->path, WEFT_CHECKPOINT_MODEL);
        status = status == WEFT_OK ? weft__tensors_open(path, &out->model) : status;
    }
    if (status == WEFT_OK && want != WEFT_LOAD_MODEL) {
        status = open_tensors(out->path, &manifest, WEFT_CHECKPOINT_OPTIMIZER, &out->optimizer);
    }
    if (status == WEFT_OK && want != WEFT_LOAD_MODEL) {
        status = open_tensors(out->path, &manifest, WEFT_CHECKPOINT_RESIDUALS, &out->residuals);
    }
    return status == WEFT_OK ? WEFT_OK : suggest_older(out->path, status);
}

weft_status_t weft__checkpoint_load(const char *path, weft_load_t want, weft_loaded_t *out)
{
    *out = (weft_loaded_t){0};
    bool own;
    WEFT_TRY(resolve(path, out->path));
    WEFT_TRY(has(out->path, WEFT_CHECKPOINT_STATE, &own));
    out->foreign = !own;
    weft_status_t status;
    bool numbered = weft__checkpoint_number(
                        strrchr(out->path, '/') != NULL ? strrchr(out->path, '/') + 1 : "") >= 0;
    if (!out->foreign || numbered) {
        status = load_own(out, want);
    } else {
        out->state.loss_scale = 1;
        status = weft__tensors_open(out->path, &out->model);
    }
    if (status != WEFT_OK) {
        weft__checkpoint_unload(out);
    }
    return status;
}

void weft__checkpoint_unload(weft_loaded_t *loaded)
{
    weft__tensors_close(loaded->model);
    weft__tensors_close(loaded->optimizer);
    weft__tensors_close(loaded->residuals);
    free(loaded->settings);
    *loaded = (weft_loaded_t){0};
}
