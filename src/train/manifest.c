/* trainer.json: the state of the run and the list of files. Its own checksum is computed with
 * zeros in the place where it is kept. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft/weft.h>

#include "base/checksum.h"
#include "base/json.h"
#include "base/json_read.h"
#include "base/log.h"
#include "train/checkpoint_parts.h"

#define FORMAT "weft checkpoint"
#define VERSION 1
#define SELF_KEY "\"self_crc32c\": \""
#define SELF_ZERO "00000000"

/* ---- writing -------------------------------------------------------------------------------- */

static void write_settings(weft_json_t *json, const char *settings)
{
    weft__json_array(json, "settings"); /* one string per line, for those who read it */
    while (settings != NULL && *settings != '\0') {
        size_t length = strcspn(settings, "\n");
        char *line = strndup(settings, length);
        weft__json_string(json, NULL, line != NULL ? line : "");
        free(line);
        settings += length + (settings[length] == '\n' ? 1 : 0);
    }
    weft__json_end(json);
}

static void write_files(weft_json_t *json, const weft_manifest_t *manifest)
{
    weft__json_object(json, "files");
    for (int i = 0; i < manifest->count; i++) {
        char crc[16];
        snprintf(crc, sizeof(crc), "%08" PRIx32, manifest->files[i].crc);
        weft__json_object(json, manifest->files[i].name);
        weft__json_uint(json, "bytes", manifest->files[i].bytes);
        weft__json_string(json, "crc32c", crc);
        weft__json_end(json);
    }
    weft__json_end(json);
}

static weft_status_t write_text(FILE *out, const weft_manifest_t *manifest)
{
    const weft_train_state_t *state = &manifest->state;
    const struct {
        const char *key;
        uint64_t value;
    } counts[] = {{"step", state->step},           {"samples", state->samples},
                  {"tokens", state->tokens},       {"seed", state->seed},
                  {"data_sum", state->data_print}, {"loss_scale_steps", state->loss_scale_steps},
                  {"skipped", state->skipped}};
    weft_json_t json;
    weft__json_start(&json, out);
    weft__json_object(&json, NULL);
    weft__json_string(&json, "format", FORMAT);
    weft__json_int(&json, "version", VERSION);
    weft__json_string(&json, "weft", weft_version());
    weft__json_string(&json, "self_crc32c", SELF_ZERO);
    weft__json_string(&json, "run", manifest->run);
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        weft__json_uint(&json, counts[i].key, counts[i].value);
    }
    weft__json_double(&json, "loss_scale", state->loss_scale);
    weft__json_double(&json, "loss", state->loss);
    write_files(&json, manifest);
    write_settings(&json, manifest->settings);
    weft__json_end(&json);
    return weft__json_finish(&json);
}

/* Where the file's own checksum stands in its text; NULL if it does not. */
static char *find_self(char *text)
{
    char *at = strstr(text, SELF_KEY);
    at = at != NULL ? at + strlen(SELF_KEY) : NULL;
    return at != NULL && strnlen(at, 8) == 8 && at[8] == '"' ? at : NULL;
}

weft_status_t weft__manifest_write(const char *folder, const weft_manifest_t *manifest)
{
    char path[WEFT_PATH_BYTES], *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for " WEFT_CHECKPOINT_STATE);
    }
    weft_status_t status = write_text(out, manifest);
    if (fclose(out) != 0 && status == WEFT_OK) {
        status = weft__fail(WEFT_ERR_NO_MEMORY, "no memory for " WEFT_CHECKPOINT_STATE);
    }
    status = status == WEFT_OK ? weft__path_join(path, folder, WEFT_CHECKPOINT_STATE) : status;
    if (status == WEFT_OK) {
        char crc[16];
        snprintf(crc, sizeof(crc), "%08" PRIx32, weft__crc32c(0, text, size));
        memcpy(find_self(text), crc, 8);
        status = weft__file_replace(path, text, size);
    }
    free(text);
    return status;
}

/* ---- reading -------------------------------------------------------------------------------- */

static bool read_crc(const char *text, uint32_t *out_p)
{
    *out_p = (uint32_t)strtoul(text, NULL, 16);
    return strlen(text) == 8 && strspn(text, "0123456789abcdefABCDEF") == 8; /* no sign, no space */
}

static weft_status_t check_self(const char *path, char *text, size_t size)
{
    uint32_t wanted;
    char kept[9] = "", *self = find_self(text);
    if (self != NULL) {
        memcpy(kept, self, 8);
        memcpy(self, SELF_ZERO, 8);
    }
    if (self == NULL || !read_crc(kept, &wanted) || weft__crc32c(0, text, size) != wanted) {
        return weft__fail(WEFT_ERR_INVALID, "%s is damaged: its checksum is not that of its text",
                          path);
    }
    return WEFT_OK;
}

static bool read_files(const weft_json_value_t *files, weft_manifest_t *out)
{
    const weft_json_value_t *key = weft__json_first(files);
    for (; key != NULL; key = weft__json_next(files, key)) {
        weft_listed_file_t *file = &out->files[out->count];
        if (out->count == WEFT_CHECKPOINT_FILES_MOST || key->length >= sizeof(file->name) ||
            strchr(key->as.text, '/') != NULL ||
            !weft__json_to_uint(weft__json_get(key + 1, "bytes"), &file->bytes) ||
            !read_crc(weft__json_text(weft__json_get(key + 1, "crc32c"), ""), &file->crc)) {
            return false;
        }
        snprintf(file->name, sizeof(file->name), "%s", key->as.text);
        out->count++;
    }
    return true;
}

static bool read_settings(const weft_json_value_t *lines, char **out_p)
{
    size_t size = 0;
    FILE *out = open_memstream(out_p, &size);
    if (out == NULL) {
        return false;
    }
    const weft_json_value_t *line = weft__json_first(lines);
    for (; line != NULL; line = weft__json_next(lines, line)) {
        fprintf(out, "%s\n", weft__json_text(line, ""));
    }
    return fclose(out) == 0;
}

static weft_status_t read_text(const char *path, const weft_json_value_t *root,
                               weft_manifest_t *out)
{
    int64_t version = 0;
    weft__json_to_int(weft__json_get(root, "version"), &version);
    if (!weft__json_is(weft__json_get(root, "format"), FORMAT) || version != VERSION) {
        return weft__fail(WEFT_ERR_INVALID,
                          "%s is not of a checkpoint that this version of Weft can read", path);
    }
    weft_train_state_t *state = &out->state;
    bool good = weft__json_to_uint(weft__json_get(root, "step"), &state->step) &&
                weft__json_to_uint(weft__json_get(root, "samples"), &state->samples) &&
                weft__json_to_uint(weft__json_get(root, "tokens"), &state->tokens) &&
                weft__json_to_uint(weft__json_get(root, "seed"), &state->seed) &&
                weft__json_to_uint(weft__json_get(root, "loss_scale_steps"),
                                   &state->loss_scale_steps) &&
                weft__json_to_double(weft__json_get(root, "loss_scale"), &state->loss_scale) &&
                read_files(weft__json_get(root, "files"), out);
    if (!good) {
        return weft__fail(WEFT_ERR_INVALID, "%s is damaged: a part of the state is missing", path);
    }
    /* Checkpoints of older versions have none. */
    snprintf(out->run, sizeof(out->run), "%s", weft__json_text(weft__json_get(root, "run"), ""));
    weft__json_to_uint(weft__json_get(root, "skipped"), &state->skipped);
    weft__json_to_uint(weft__json_get(root, "data_sum"), &state->data_print);
    if (!weft__json_to_double(weft__json_get(root, "loss"), &state->loss)) {
        state->loss = __builtin_nan(""); /* written as null */
    }
    if (!read_settings(weft__json_get(root, "settings"), &out->settings)) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for the settings in %s", path);
    }
    return WEFT_OK;
}

weft_status_t weft__manifest_read(const char *folder, weft_manifest_t *out)
{
    char path[WEFT_PATH_BYTES], *text;
    size_t size;
    weft_json_doc_t doc;
    *out = (weft_manifest_t){0};
    WEFT_TRY(weft__path_join(path, folder, WEFT_CHECKPOINT_STATE));
    WEFT_TRY(weft__file_read(path, &text, &size));
    weft_status_t status = check_self(path, text, size);
    status = status == WEFT_OK ? weft__json_parse(text, size, path, &doc) : status;
    free(text);
    if (status == WEFT_OK) {
        status = read_text(path, doc.root, out);
        weft__json_free(&doc);
    }
    return status;
}

/* ---- comparing ------------------------------------------------------------------------------ */

static weft_status_t verify_file(const char *folder, const weft_listed_file_t *listed,
                                 bool checksums)
{
    char path[WEFT_PATH_BYTES];
    weft_mapped_t file;
    weft_status_t status = weft__path_join(path, folder, listed->name);
    status = status == WEFT_OK ? weft__file_map(path, &file) : status;
    if (status != WEFT_OK) {
        return status;
    }
    if (file.size != listed->bytes) {
        status = weft__fail(
            WEFT_ERR_INVALID, "%s is %s: it has %zu bytes, %" PRIu64 " were written", path,
            file.size < listed->bytes ? "truncated" : "damaged", file.size, listed->bytes);
    } else if (checksums && weft__crc32c(0, file.data, file.size) != listed->crc) {
        status = weft__fail(WEFT_ERR_INVALID,
                            "%s is damaged: its checksum is not the one it was written with", path);
    }
    weft__file_unmap(&file);
    return status;
}

weft_status_t weft__manifest_verify(const char *folder, const weft_manifest_t *manifest,
                                    weft_load_t want)
{
    weft_status_t status = WEFT_OK;
    for (int i = 0; i < manifest->count && status == WEFT_OK; i++) {
        const weft_listed_file_t *file = &manifest->files[i];
        bool trains = strcmp(file->name, WEFT_CHECKPOINT_OPTIMIZER) == 0 ||
                      strcmp(file->name, WEFT_CHECKPOINT_RESIDUALS) == 0;
        if (want != WEFT_LOAD_MODEL || !trains) {
            status = verify_file(folder, file, want != WEFT_LOAD_LOOK);
        }
    }
    return status;
}
