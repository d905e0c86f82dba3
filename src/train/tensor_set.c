/* Sets of tensors: one safetensors file, or all those that an index names. */
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "base/log.h"
#include "train/tensor_files.h"

#define INDEX_NAME "model.safetensors.index.json"
#define FILE_NAME "model.safetensors"
#define FILES_MOST 4096

struct weft_tensors {
    weft_tensor_file_t *files;
    int file_count;
    const weft_tensor_t **sorted; /* by name */
    int count;
};

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const weft_tensor_t *const *)a)->form.name,
                  (*(const weft_tensor_t *const *)b)->form.name);
}

static weft_status_t sort_all(weft_tensors_t *set, const char *path)
{
    int total = 0;
    for (int f = 0; f < set->file_count; f++) {
        total += set->files[f].count;
    }
    set->sorted = calloc((size_t)total + 1, sizeof(*set->sorted));
    if (set->sorted == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for the %d tensors of %s", total, path);
    }
    for (int f = 0; f < set->file_count; f++) {
        for (int i = 0; i < set->files[f].count; i++) {
            set->sorted[set->count++] = &set->files[f].tensors[i];
        }
    }
    qsort(set->sorted, (size_t)total, sizeof(*set->sorted), by_name);
    for (int i = 1; i < total; i++) {
        if (by_name(&set->sorted[i - 1], &set->sorted[i]) == 0) {
            return weft__fail(WEFT_ERR_INVALID, "%s: tensor %s is in two files", path,
                              set->sorted[i]->form.name);
        }
    }
    return WEFT_OK;
}

/* ---- the index ------------------------------------------------------------------------------ */

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The different files of the weight map, sorted. */
static weft_status_t list_files(const weft_json_value_t *map, const char *path,
                                const char ***names_p, int *count_p)
{
    const char **names = calloc((size_t)map->length + 1, sizeof(*names));
    int count = 0, kept = 0;
    if (names == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for the names in %s", path);
    }
    const weft_json_value_t *key = weft__json_first(map);
    for (; key != NULL; key = weft__json_next(map, key)) {
        names[count] = weft__json_text(key + 1, "");
        if (names[count][0] == '\0' || strchr(names[count], '/') != NULL) {
            weft_status_t status = weft__fail(WEFT_ERR_INVALID,
                                              "%s: tensor %.100s is in no file of the "
                                              "same folder",
                                              path, key->as.text);
            free(names);
            return status;
        }
        count++;
    }
    qsort(names, (size_t)count, sizeof(*names), by_text);
    for (int i = 0; i < count; i++) {
        if (kept == 0 || strcmp(names[kept - 1], names[i]) != 0) {
            names[kept++] = names[i];
        }
    }
    if (kept > FILES_MOST) {
        free(names);
        return weft__fail(WEFT_ERR_INVALID, "%s names %d files; %d at most", path, kept,
                          FILES_MOST);
    }
    *names_p = names;
    *count_p = kept;
    return WEFT_OK;
}

static weft_status_t open_file(weft_tensors_t *set, const char *path)
{
    weft_status_t status = weft__tensor_file_open(path, &set->files[set->file_count]);
    set->file_count += status == WEFT_OK ? 1 : 0;
    return status;
}

static weft_status_t open_listed(weft_tensors_t *set, const char *path,
                                 const weft_json_value_t *map)
{
    const char **names = NULL;
    int count = 0;
    weft_status_t status = list_files(map, path, &names, &count);
    if (status != WEFT_OK) {
        return status;
    }
    set->files = calloc((size_t)count + 1, sizeof(*set->files));
    if (set->files == NULL) {
        status = weft__fail(WEFT_ERR_NO_MEMORY, "no memory for the %d files of %s", count, path);
    }
    const char *slash = strrchr(path, '/');
    char folder[WEFT_PATH_BYTES] = "", file[WEFT_PATH_BYTES];
    if (slash != NULL) {
        memcpy(folder, path, (size_t)(slash - path)); /* shorter than a path that was opened */
    }
    for (int i = 0; i < count && status == WEFT_OK; i++) {
        status = weft__path_join(file, slash == path ? "/" : folder, names[i]);
        status = status == WEFT_OK ? open_file(set, file) : status;
    }
    free(names);
    status = status == WEFT_OK ? sort_all(set, path) : status;
    const weft_json_value_t *key = weft__json_first(map);
    for (; key != NULL && status == WEFT_OK; key = weft__json_next(map, key)) {
        if (weft__tensors_find(set, key->as.text) == NULL) {
            status = weft__fail(WEFT_ERR_INVALID,
                                "%s: tensor %.100s is not in %s, nor in another of its "
                                "files",
                                path, key->as.text, weft__json_text(key + 1, ""));
        }
    }
    return status;
}

static weft_status_t open_index(weft_tensors_t *set, const char *path)
{
    weft_json_doc_t index;
    WEFT_TRY(weft__json_load(path, &index));
    const weft_json_value_t *map = weft__json_get(index.root, "weight_map");
    weft_status_t status = map != NULL && map->kind == WEFT_JSON_OBJECT && map->length > 0
                               ? open_listed(set, path, map)
                               : weft__fail(WEFT_ERR_INVALID,
                                            "%s is no index: it has no weight_map", path);
    weft__json_free(&index);
    return status;
}

/* ---- sets ----------------------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), end_length = strlen(end);
    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

/* The file that a folder means. */
static weft_status_t resolve(const char *path, char *out)
{
    bool is;
    WEFT_TRY(weft__is_folder(path, &is));
    if (!is) {
        return weft__path_join(out, "", path);
    }
    static const char *const names[] = {FILE_NAME, INDEX_NAME};
    for (int i = 0; i < 2; i++) {
        WEFT_TRY(weft__path_join(out, path, names[i]));
        WEFT_TRY(weft__is_file(out, &is));
        if (is) {
            return WEFT_OK;
        }
    }
    return weft__fail(WEFT_ERR_NOT_FOUND, "%s has neither " FILE_NAME " nor " INDEX_NAME, path);
}

weft_status_t weft__tensors_open(const char *path, weft_tensors_t **tensors_p)
{
    char file[WEFT_PATH_BYTES];
    weft_tensors_t *set = calloc(1, sizeof(*set));
    if (set == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to open %s", path);
    }
    weft_status_t status = resolve(path, file);
    if (status == WEFT_OK && ends_with(file, ".json")) {
        status = open_index(set, file);
    } else if (status == WEFT_OK) {
        set->files = calloc(1, sizeof(*set->files));
        status = set->files != NULL ? open_file(set, file)
                                    : weft__fail(WEFT_ERR_NO_MEMORY, "no memory to open %s", path);
        status = status == WEFT_OK ? sort_all(set, file) : status;
    }
    if (status != WEFT_OK) {
        weft__tensors_close(set);
        return status;
    }
    *tensors_p = set;
    return WEFT_OK;
}

void weft__tensors_close(weft_tensors_t *tensors)
{
    if (tensors == NULL) {
        return;
    }
    for (int i = 0; i < tensors->file_count; i++) {
        weft__tensor_file_close(&tensors->files[i]);
    }
    free(tensors->files);
    free(tensors->sorted);
    free(tensors);
}

int weft__tensors_count(const weft_tensors_t *tensors)
{
    return tensors->count;
}

const weft_tensor_t *weft__tensors_at(const weft_tensors_t *tensors, int index)
{
    return tensors->sorted[index];
}

const weft_tensor_t *weft__tensors_find(const weft_tensors_t *tensors, const char *name)
{
    const weft_tensor_t wanted = {.form = {.name = name}}, *key = &wanted;
    const weft_tensor_t **found = bsearch(&key, tensors->sorted, (size_t)tensors->count,
                                          sizeof(*tensors->sorted), by_name);
    return found != NULL ? *found : NULL;
}

const char *weft__tensors_metadata(const weft_tensors_t *tensors, const char *key)
{
    const weft_json_value_t *metadata = weft__json_get(tensors->files[0].header.root,
                                                       "__metadata__");
    return weft__json_text(weft__json_get(metadata, key), NULL);
}

/* ---- numbers -------------------------------------------------------------------------------- */

static float load_f32(const void *data, uint64_t at)
{
    float value;
    memcpy(&value, (const char *)data + at * 4, 4);
    return value;
}

static float load_f64(const void *data, uint64_t at)
{
    double value;
    memcpy(&value, (const char *)data + at * 8, 8);
    return (float)value;
}

static float load_f16(const void *data, uint64_t at)
{
    uint16_t bits;
    memcpy(&bits, (const char *)data + at * 2, 2);
    return weft__f16_to_f32(bits);
}

static float load_bf16(const void *data, uint64_t at)
{
    uint16_t bits;
    memcpy(&bits, (const char *)data + at * 2, 2);
    return weft__bf16_to_f32(bits);
}

weft_status_t weft__tensor_to_f32(const weft_tensor_t *tensor, uint64_t first, uint64_t count,
                                  float *out)
{
    uint64_t elements = weft__tensor_elements(&tensor->form);
    if (first > elements || count > elements - first) {
        return weft__fail(WEFT_ERR_INVALID, "elements beyond the end of tensor %s are asked for",
                          tensor->form.name);
    }
    float (*load)(const void *, uint64_t) = tensor->form.dtype == WEFT_F32    ? load_f32
                                            : tensor->form.dtype == WEFT_F64  ? load_f64
                                            : tensor->form.dtype == WEFT_F16  ? load_f16
                                            : tensor->form.dtype == WEFT_BF16 ? load_bf16
                                                                              : NULL;
    if (load == NULL) {
        return weft__fail(WEFT_ERR_UNSUPPORTED,
                          "tensor %s is of type %s; F64, F32, F16 and BF16 can be read "
                          "as numbers",
                          tensor->form.name, tensor->stored);
    }
    if (load == load_f32) {
        memcpy(out, (const char *)tensor->data + first * 4, count * 4);
        return WEFT_OK;
    }
    for (uint64_t i = 0; i < count; i++) {
        out[i] = load(tensor->data, first + i);
    }
    return WEFT_OK;
}
