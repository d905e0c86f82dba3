/* Parameters from tensors of a checkpoint: see param_read.h. */
#include "train/param_read.h"

#include <string.h>

#include "base/log.h"

static int64_t whole_count(const weft_param_t *param)
{
    return param->shape[0] * param->shape[1];
}

int64_t weft__param_most(const weft_model_t *model)
{
    int64_t most = 0;
    for (int i = 0; i < model->param_count; i++) {
        int64_t whole = whole_count(&model->params[i]), local = model->params[i].count;
        most = whole > most ? whole : most;
        most = local > most ? local : most;
    }
    return most;
}

static const weft_tensor_t *find_tensor(const weft_tensors_t *tensors, const char *name)
{
    const weft_tensor_t *tensor = weft__tensors_find(tensors, name);
    const char *dot = strchr(name, '.');
    if (tensor == NULL && dot != NULL) {
        tensor = weft__tensors_find(tensors, dot + 1);
    }
    return tensor;
}

weft_status_t weft__param_read(const weft_tensors_t *tensors, const char *path, const char *name,
                               const weft_param_t *param, float *whole, float *local)
{
    char shape[64];
    const weft_tensor_t *tensor = find_tensor(tensors, name);
    if (tensor == NULL) {
        return weft__fail(WEFT_ERR_INVALID, "%s has no tensor %s, which the model needs", path,
                          name);
    }
    const weft_tensor_form_t *form = &tensor->form;
    bool fits = form->dims == param->dims && form->shape[0] == (uint64_t)param->shape[0] &&
                (form->dims < 2 || form->shape[1] == (uint64_t)param->shape[1]);
    if (!fits) {
        return weft__fail(WEFT_ERR_INVALID,
                          "%s: %s has the shape %s, but the model's is [%lld, %lld]", path, name,
                          weft__tensor_shape_text(form, shape, sizeof(shape)),
                          (long long)param->shape[0], (long long)param->shape[1]);
    }
    WEFT_TRY(weft__tensor_to_f32(tensor, 0, (uint64_t)whole_count(param), whole));
    weft__param_cut(param, 0, sizeof(float), whole, local);
    return WEFT_OK;
}
