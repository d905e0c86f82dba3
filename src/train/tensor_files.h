/* Inside of the safetensors reader: one file, of which tensor_set.c makes sets. */
#ifndef WEFT_TRAIN_TENSOR_FILES_H
#define WEFT_TRAIN_TENSOR_FILES_H

#include "base/file.h"
#include "base/json_read.h"
#include "train/safetensors.h"

typedef struct weft_tensor_file {
    weft_mapped_t mapped;
    weft_json_doc_t header; /* names point into it */
    weft_tensor_t *tensors; /* in the order of their data */
    int count;
} weft_tensor_file_t;

weft_status_t weft__tensor_file_open(const char *path, weft_tensor_file_t *out);
void weft__tensor_file_close(weft_tensor_file_t *file);

/* "F32" for WEFT_F32, ...; NULL for what the format has no name for. */
const char *weft__tensor_type_name(weft_dtype_t dtype);

#endif
