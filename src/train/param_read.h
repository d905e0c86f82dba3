/* Parameters of a whole model from tensors of a checkpoint. */
#ifndef WEFT_TRAIN_PARAM_READ_H
#define WEFT_TRAIN_PARAM_READ_H

#include "model/model.h"
#include "train/safetensors.h"

/* Read the tensor `name` of a checkpoint (`path`, for sentences) as the parameter that a whole
 * model stores, in f32: `whole` has room for shape[0] x shape[1] elements, `local` for count. Where
 * there is none such, the name without its first part is tried: models saved without their head
 * lack it. */
weft_status_t weft__param_read(const weft_tensors_t *tensors, const char *path, const char *name,
                               const weft_param_t *param, float *whole, float *local);

/* Elements of the largest parameter, whole or stored: what `whole` and `local` need. */
int64_t weft__param_most(const weft_model_t *model);

#endif
