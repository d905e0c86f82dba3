/* Reading safetensors. Nothing in a header is believed before it was checked: the file may come
 * from anywhere. */
#include "train/safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json_read.h"
#include "base/log.h"
#include "train/tensor_files.h"

#define HEADER_MOST ((uint64_t)100 << 20) /* as the format's own package */

typedef struct type_row {
    const char *name;
    weft_dtype_t dtype;
    int bytes;
} type_row_t;

static const type_row_t types[] = {
    {"F64", WEFT_F64, 8},
    {"F32", WEFT_F32, 4},
    {"F16", WEFT_F16, 2},
    {"BF16", WEFT_BF16, 2},
    {"I8", WEFT_I8, 1},
    {"U8", WEFT_U8, 1},
    {"I32", WEFT_I32, 4},
    {"U32", WEFT_U32, 4},
    {"I64", WEFT_I64, 8},
    {"U64", WEFT_U64, 8},
    {"BOOL", WEFT_DTYPE_COUNT, 1},
    {"I16", WEFT_DTYPE_COUNT, 2},
    {"U16", WEFT_DTYPE_COUNT, 2},
    {"F8_E4M3", WEFT_DTYPE_COUNT, 1},
    {"F8_E5M2", WEFT_DTYPE_COUNT, 1},
};

const char *weft__tensor_type_name(weft_dtype_t dtype)
{
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (types[i].dtype == dtype && dtype != WEFT_DTYPE_COUNT) {
            return types[i].name;
        }
    }
    return NULL;
}

/* a * b, UINT64_MAX if that or one of them does not fit. */
static uint64_t multiply(uint64_t a, uint64_t b)
{
    uint64_t product;
    return a == UINT64_MAX || b == UINT64_MAX || __builtin_mul_overflow(a, b, &product) ? UINT64_MAX
                                                                                        : product;
}

uint64_t weft__tensor_elements(const weft_tensor_form_t *form)
{
    uint64_t elements = 1;
    for (int i = 0; i < form->dims; i++) {
        elements = multiply(elements, form->shape[i]);
    }
    return elements;
}

uint64_t weft__tensor_bytes(const weft_tensor_form_t *form)
{
    size_t each = weft_dtype_size(form->dtype);
    return each != 0 ? multiply(weft__tensor_elements(form), each) : UINT64_MAX;
}

const char *weft__tensor_shape_text(const weft_tensor_form_t *form, char *out, size_t room)
{
    size_t at = (size_t)snprintf(out, room, "[");
    for (int i = 0; i < form->dims && at < room; i++) {
        at += (size_t)snprintf(out + at, room - at, "%s%" PRIu64, i > 0 ? ", " : "",
                               form->shape[i]);
    }
    if (at < room) {
        snprintf(out + at, room - at, "]");
    }
    return out;
}

/* ---- one file ------------------------------------------------------------------------------- */

typedef struct reading {
    const char *path;
    const uint8_t *data; /* after the header */
    uint64_t size;       /* of it */
} reading_t;

static weft_status_t bad_tensor(const reading_t *r, const char *name, const char *what)
{
    return weft__fail(WEFT_ERR_INVALID, "%s is damaged: tensor %.100s %s", r->path, name, what);
}

static weft_status_t read_shape(const reading_t *r, const weft_json_value_t *shape,
                                weft_tensor_form_t *form)
{
    if (shape == NULL || shape->kind != WEFT_JSON_ARRAY || shape->length > WEFT_TENSOR_DIMS) {
        return bad_tensor(r, form->name, "has no shape of at most 8 dimensions");
    }
    const weft_json_value_t *one = weft__json_first(shape);
    for (; one != NULL; one = weft__json_next(shape, one)) {
        if (!weft__json_to_uint(one, &form->shape[form->dims++])) {
            return bad_tensor(r, form->name, "has a shape of other things than numbers");
        }
    }
    return WEFT_OK;
}

static weft_status_t read_place(const reading_t *r, const weft_json_value_t *place,
                                const type_row_t *type, weft_tensor_t *out)
{
    uint64_t begin, end;
    const weft_json_value_t *first = weft__json_first(place);
    if (place == NULL || place->kind != WEFT_JSON_ARRAY || place->length != 2 ||
        !weft__json_to_uint(first, &begin) || !weft__json_to_uint(first + 1, &end)) {
        return bad_tensor(r, out->form.name, "has no data_offsets");
    }
    if (begin > end || end > r->size) {
        return bad_tensor(r, out->form.name,
                          end > r->size ? "ends after the end of the file"
                                        : "ends before it begins");
    }
    uint64_t wanted = multiply(weft__tensor_elements(&out->form), (uint64_t)type->bytes);
    if (end - begin != wanted) {
        return bad_tensor(r, out->form.name, "has another size than its shape and type need");
    }
    out->data = r->data + begin;
    out->bytes = end - begin;
    return WEFT_OK;
}

static weft_status_t read_tensor(const reading_t *r, const weft_json_value_t *key,
                                 weft_tensor_t *out)
{
    const weft_json_value_t *value = key + 1, *dtype = weft__json_get(value, "dtype");
    out->form.name = key->as.text;
    if (strlen(key->as.text) != key->length) {
        return bad_tensor(r, key->as.text, "has a name with a NUL in it");
    }
    const type_row_t *type = NULL;
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]) && type == NULL; i++) {
        type = weft__json_is(dtype, types[i].name) ? &types[i] : NULL;
    }
    if (type == NULL) {
        char what[64];
        snprintf(what, sizeof(what), "has the unknown type \"%.20s\"", weft__json_text(dtype, ""));
        return bad_tensor(r, out->form.name, what);
    }
    out->form.dtype = type->dtype;
    out->stored = type->name;
    WEFT_TRY(read_shape(r, weft__json_get(value, "shape"), &out->form));
    return read_place(r, weft__json_get(value, "data_offsets"), type, out);
}

static int by_place(const void *a, const void *b)
{
    const weft_tensor_t *x = a, *y = b;
    if (x->data != y->data) {
        return (const uint8_t *)x->data < (const uint8_t *)y->data ? -1 : 1;
    }
    return x->bytes < y->bytes ? -1
                               : x->bytes > y->bytes; /* an empty one comes before its neighbour */
}

/* The data must be covered once from end to end; sorts the tensors by place. */
static weft_status_t check_cover(const reading_t *r, weft_tensor_t *tensors, int count)
{
    const uint8_t *at = r->data;
    qsort(tensors, (size_t)count, sizeof(*tensors), by_place);
    for (int i = 0; i < count; i++) {
        const uint8_t *begin = tensors[i].data;
        if (begin != at) {
            return bad_tensor(r, tensors[i].form.name,
                              begin < at ? "overlaps another" : "has a gap before it");
        }
        at = begin + tensors[i].bytes;
    }
    if (at != r->data + r->size) {
        return weft__fail(WEFT_ERR_INVALID,
                          "%s is damaged: %zu bytes at its end belong to no tensor", r->path,
                          (size_t)(r->data + r->size - at));
    }
    return WEFT_OK;
}

/* Length of the header, which has been seen to fit into the file. */
static weft_status_t header_length(const char *path, const weft_mapped_t *file, uint64_t *length_p)
{
    uint64_t length = 0;
    if (file->size < 8) {
        return weft__fail(WEFT_ERR_INVALID, "%s is no safetensors file: it has only %zu bytes",
                          path, file->size);
    }
    for (int i = 7; i >= 0; i--) {
        length = length << 8 | file->data[i];
    }
    bool opens = file->size == 8 || file->data[8] == '{';
    if (length > HEADER_MOST || length < 2 || !opens) {
        return weft__fail(WEFT_ERR_INVALID,
                          "%s is no safetensors file: it does not start with the length of "
                          "a header and the header",
                          path);
    }
    if (length > file->size - 8) {
        return weft__fail(WEFT_ERR_INVALID,
                          "%s is truncated: its header takes %" PRIu64 " bytes, but only "
                          "%zu are there",
                          path, length, file->size - 8);
    }
    *length_p = length;
    return WEFT_OK;
}

static weft_status_t read_tensors(weft_tensor_file_t *file, const char *path, uint64_t length)
{
    const weft_json_value_t *root = file->header.root;
    reading_t r = {path, file->mapped.data + 8 + length, file->mapped.size - 8 - length};
    if (root->kind != WEFT_JSON_OBJECT) {
        return weft__fail(WEFT_ERR_INVALID, "%s is damaged: its header is no JSON object", path);
    }
    file->tensors = calloc((size_t)root->length + 1, sizeof(*file->tensors));
    if (file->tensors == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for the %u tensors of %s", root->length,
                          path);
    }
    const weft_json_value_t *key = weft__json_first(root);
    for (; key != NULL; key = weft__json_next(root, key)) {
        if (weft__json_is(key, "__metadata__")) {
            continue;
        }
        WEFT_TRY(read_tensor(&r, key, &file->tensors[file->count]));
        file->count++;
    }
    return check_cover(&r, file->tensors, file->count);
}

weft_status_t weft__tensor_file_open(const char *path, weft_tensor_file_t *out)
{
    weft_tensor_file_t file = {0};
    uint64_t length = 0;
    char name[WEFT_PATH_BYTES + 16];
    WEFT_TRY(weft__file_map(path, &file.mapped));
    weft_status_t status = header_length(path, &file.mapped, &length);
    if (status == WEFT_OK) {
        snprintf(name, sizeof(name), "header of %s", path);
        status = weft__json_parse((const char *)file.mapped.data + 8, length, name, &file.header);
    }
    if (status == WEFT_OK) {
        status = read_tensors(&file, path, length);
    }
    if (status != WEFT_OK) {
        weft__tensor_file_close(&file);
        return status;
    }
    *out = file;
    return WEFT_OK;
}

void weft__tensor_file_close(weft_tensor_file_t *file)
{
    free(file->tensors);
    weft__json_free(&file->header);
    weft__file_unmap(&file->mapped);
    *file = (weft_tensor_file_t){0};
}
