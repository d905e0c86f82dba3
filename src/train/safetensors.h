/* The safetensors format: 8 bytes with the length of a JSON header, the header (name -> dtype,
 * shape, place), the data. Written by us and read back by Hugging Face's packages, and the other
 * way round. */
#ifndef WEFT_TRAIN_SAFETENSORS_H
#define WEFT_TRAIN_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include <weft/status.h>
#include <weft/types.h>

#define WEFT_TENSOR_DIMS 8

/* A tensor's name and form. */
typedef struct weft_tensor_form {
    const char *name;
    weft_dtype_t dtype; /* WEFT_DTYPE_COUNT: none that weights have here (BOOL, I16, F8_...) */
    int dims;           /* 0: a scalar */
    uint64_t shape[WEFT_TENSOR_DIMS];
} weft_tensor_form_t;

/* Elements of a tensor; UINT64_MAX if that does not fit. */
uint64_t weft__tensor_elements(const weft_tensor_form_t *form);

/* Bytes of a tensor; UINT64_MAX if that does not fit or the type is unknown. */
uint64_t weft__tensor_bytes(const weft_tensor_form_t *form);

/* "[768, 2304]" into `out`; returns `out`. */
const char *weft__tensor_shape_text(const weft_tensor_form_t *form, char *out, size_t room);

/* ---- reading -------------------------------------------------------------------------------- */

typedef struct weft_tensor {
    weft_tensor_form_t form;
    const char *stored; /* the type as the file names it: "F32", "BOOL" */
    const void
        *data; /* in the mapped file; may lie at any address, so copy before use as numbers */
    size_t bytes;
} weft_tensor_t;

typedef struct weft_tensors weft_tensors_t;

/* Map tensors by `path`: a .safetensors file, a model.safetensors.index.json (all files that it
 * names), or a folder with one of these. Everything in the headers is checked first: lengths,
 * types, shapes against sizes, bounds, overlaps, gaps, names that occur twice, an index that
 * points to what is not there. WEFT_ERR_INVALID with file, tensor and reason; WEFT_ERR_NOT_FOUND
 * if there is no such file. */
weft_status_t weft__tensors_open(const char *path, weft_tensors_t **tensors_p);
void weft__tensors_close(weft_tensors_t *tensors);

int weft__tensors_count(const weft_tensors_t *tensors);
const weft_tensor_t *weft__tensors_at(const weft_tensors_t *tensors, int index);

/* The tensor of that name, or NULL. O(log n). */
const weft_tensor_t *weft__tensors_find(const weft_tensors_t *tensors, const char *name);

/* A string of the (first) file's __metadata__; NULL if it is not there. */
const char *weft__tensors_metadata(const weft_tensors_t *tensors, const char *key);

/* Copy elements [first, first + count) to `out`, converted to f32 from f32, bf16, f16 or f64.
 * WEFT_ERR_UNSUPPORTED for other types, WEFT_ERR_INVALID beyond the end. */
weft_status_t weft__tensor_to_f32(const weft_tensor_t *tensor, uint64_t first, uint64_t count,
                                  float *out);

/* ---- writing -------------------------------------------------------------------------------- */

typedef struct weft_tensor_writer weft_tensor_writer_t;

/* Create `path` with the header for `count` tensors, whose data then follows in this order. Types
 * of more bytes first keep all of them aligned. `metadata`: key, value, key, value, ..., NULL;
 * may be NULL. Names and strings are not kept. WEFT_ERR_INVALID if a name occurs twice or is
 * "__metadata__". */
weft_status_t weft__tensors_create(const char *path, const weft_tensor_form_t *forms, int count,
                                   const char *const *metadata, weft_tensor_writer_t **writer_p);

/* Append data, in pieces of any size. */
weft_status_t weft__tensors_write(weft_tensor_writer_t *writer, const void *bytes, size_t count);

/* Make it durable and close it. WEFT_ERR_INVALID if less data came than the header says. *size_p
 * and *crc_p (may be NULL) are those of the whole file. The writer is gone in any case; a file
 * that failed is left for the caller. */
weft_status_t weft__tensors_finish(weft_tensor_writer_t *writer, uint64_t *size_p, uint32_t *crc_p);

/* Close without finishing. */
void weft__tensors_abandon(weft_tensor_writer_t *writer);

#endif
