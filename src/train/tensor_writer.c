/* Writing safetensors: the header says where everything will be, so the data can be streamed. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/json.h"
#include "base/log.h"
#include "base/output.h"
#include "train/tensor_files.h"

struct weft_tensor_writer {
    char path[WEFT_PATH_BYTES];
    weft_output_t *out;
    uint64_t size;     /* written so far, header included */
    uint64_t expected; /* in the end */
    uint32_t crc;
};

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static weft_status_t check_names(const char *path, const weft_tensor_form_t *forms, int count)
{
    const char **names = calloc((size_t)count + 1, sizeof(*names));
    if (names == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for the names of %d tensors", count);
    }
    for (int i = 0; i < count; i++) {
        names[i] = forms[i].name;
    }
    names[count] = "__metadata__";
    qsort(names, (size_t)count + 1, sizeof(*names), by_name);
    weft_status_t status = WEFT_OK;
    for (int i = 1; i <= count && status == WEFT_OK; i++) {
        if (strcmp(names[i - 1], names[i]) == 0) {
            status = weft__fail(WEFT_ERR_INVALID, "%s: two tensors have the name %s", path,
                                names[i]);
        }
    }
    free(names);
    return status;
}

static void write_metadata(weft_json_t *json, const char *const *metadata)
{
    weft__json_object(json, "__metadata__");
    for (; metadata[0] != NULL; metadata += 2) {
        weft__json_string(json, metadata[0], metadata[1]);
    }
    weft__json_end(json);
}

static void write_form(weft_json_t *json, const weft_tensor_form_t *form, uint64_t begin,
                       uint64_t end)
{
    weft__json_object(json, form->name);
    weft__json_string(json, "dtype", weft__tensor_type_name(form->dtype));
    weft__json_array(json, "shape");
    for (int i = 0; i < form->dims; i++) {
        weft__json_uint(json, NULL, form->shape[i]);
    }
    weft__json_end(json);
    weft__json_array(json, "data_offsets");
    weft__json_uint(json, NULL, begin);
    weft__json_uint(json, NULL, end);
    weft__json_end(json);
    weft__json_end(json);
}

/* Write the JSON of the header to `out`; *size_p is that of the data. */
static weft_status_t describe(const char *path, const weft_tensor_form_t *forms, int count,
                              const char *const *metadata, FILE *out, uint64_t *size_p)
{
    weft_json_t json;
    uint64_t at = 0;
    weft__json_start(&json, out);
    json.compact = true;
    weft__json_object(&json, NULL);
    if (metadata != NULL && metadata[0] != NULL) {
        write_metadata(&json, metadata);
    }
    for (int i = 0; i < count; i++) {
        uint64_t bytes = weft__tensor_bytes(&forms[i]);
        if (bytes > INT64_MAX - at || forms[i].dims > WEFT_TENSOR_DIMS ||
            weft__tensor_type_name(forms[i].dtype) == NULL) {
            return weft__fail(WEFT_ERR_INVALID,
                              "%s: tensor %s has no size or type that can be written", path,
                              forms[i].name);
        }
        write_form(&json, &forms[i], at, at + bytes);
        at += bytes;
    }
    weft__json_end(&json);
    *size_p = at;
    return weft__json_finish(&json);
}

/* Length, JSON, and spaces so that the data starts at a multiple of 8; malloced. */
static weft_status_t make_header(const char *path, const weft_tensor_form_t *forms, int count,
                                 const char *const *metadata, char **header_p, size_t *length_p,
                                 uint64_t *data_p)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    if (out == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for the header of %s", path);
    }
    fputs("12345678", out); /* the length comes here */
    weft_status_t status = describe(path, forms, count, metadata, out, data_p);
    while (status == WEFT_OK && ftell(out) % 8 != 0) {
        fputc(' ', out);
    }
    if (fclose(out) != 0 && status == WEFT_OK) {
        status = weft__fail(WEFT_ERR_NO_MEMORY, "no memory for the header of %s", path);
    }
    if (status != WEFT_OK) {
        free(text);
        return status;
    }
    for (int i = 0; i < 8; i++) {
        text[i] = (char)((length - 8) >> 8 * i);
    }
    *header_p = text;
    *length_p = length;
    return WEFT_OK;
}

weft_status_t weft__tensors_create(const char *path, const weft_tensor_form_t *forms, int count,
                                   const char *const *metadata, weft_tensor_writer_t **writer_p)
{
    char *header = NULL;
    size_t length = 0;
    uint64_t data = 0;
    weft_tensor_writer_t *writer = calloc(1, sizeof(*writer));
    if (writer == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to write %s", path);
    }
    weft_status_t status = weft__path_join(writer->path, "", path);
    status = status == WEFT_OK ? check_names(path, forms, count) : status;
    status = status == WEFT_OK ? make_header(path, forms, count, metadata, &header, &length, &data)
                               : status;
    if (status == WEFT_OK) {
        writer->expected = length + data;
        status = weft__output_open_inside(path, &writer->out);
    }
    status = status == WEFT_OK ? weft__tensors_write(writer, header, length) : status;
    free(header);
    if (status != WEFT_OK) {
        weft__tensors_abandon(writer);
        return status;
    }
    *writer_p = writer;
    return WEFT_OK;
}

weft_status_t weft__tensors_write(weft_tensor_writer_t *writer, const void *bytes, size_t count)
{
    if (count > writer->expected - writer->size) {
        return weft__fail(WEFT_ERR_INVALID, "%s: more data than its tensors take", writer->path);
    }
    WEFT_TRY(weft__output_write(writer->out, bytes, count));
    writer->crc = weft__crc32c(writer->crc, bytes, count);
    writer->size += count;
    return WEFT_OK;
}

weft_status_t weft__tensors_finish(weft_tensor_writer_t *writer, uint64_t *size_p, uint32_t *crc_p)
{
    weft_status_t status = WEFT_OK;
    if (writer->size != writer->expected) {
        status = weft__fail(WEFT_ERR_INVALID,
                            "%s: %" PRIu64 " bytes of its tensors' data did not come", writer->path,
                            writer->expected - writer->size);
    }
    status = weft__output_end(writer->out, status);
    writer->out = NULL;
    if (status == WEFT_OK && size_p != NULL) {
        *size_p = writer->size;
    }
    if (status == WEFT_OK && crc_p != NULL) {
        *crc_p = writer->crc;
    }
    weft__tensors_abandon(writer);
    return status;
}

void weft__tensors_abandon(weft_tensor_writer_t *writer)
{
    if (writer != NULL) {
        weft__output_discard(writer->out);
        free(writer);
    }
}
