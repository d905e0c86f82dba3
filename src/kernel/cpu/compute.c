/* The CPU's table of compute kernels: how those that have independent rows or elements are cut. */
#include "kernel/compute.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "device/device.h"
#include "kernel/cpu/launch.h"

/* ---- streams ------------------------------------------------------------------------------ */

typedef struct launch {
    weft_status_t (*fn)(const void *args);
    int threads;
    _Alignas(16) char args[];
} launch_t;

static weft_status_t run_later(void *arg)
{
    launch_t *launch = arg;
    weft__team_set(launch->threads);
    weft_status_t status = launch->fn(launch->args);
    free(launch);
    return status;
}

weft_status_t weft__kernel_launch(weft_status_t (*fn)(const void *args), const void *args,
                                  size_t bytes, weft_stream_h stream)
{
    if (stream == NULL) {
        return fn(args);
    }
    launch_t *launch = malloc(sizeof(*launch) + bytes);
    if (launch == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "there is no memory to queue a kernel on a stream");
    }
    launch->fn = fn;
    launch->threads = weft__team_get();
    memcpy(launch->args, args, bytes);
    weft_status_t status = weft__stream_push(stream, run_later, launch);
    if (status != WEFT_OK) {
        free(launch);
    }
    return status;
}

/* ---- kernels over ranges ------------------------------------------------------------------ */

/* Elements that are worth a task: some tens of microseconds of work. */
enum { TASK_ELEMENTS = 16384 };

typedef struct range {
    const weft_inner_t *inner;
    const void *args;
    int64_t total, grain;
} range_t;

/* Units of `size` elements each. A few tasks per thread, so that one whose core is taken away does
 * not hold up all; none too small. Elements that vectors share stay together. */
static range_t cut_range(const void *args, int64_t total, int64_t size, int64_t multiple)
{
    int64_t smallest = weft__ceil_div(TASK_ELEMENTS, weft__most(size, 1));
    int64_t grain = weft__most(weft__ceil_div(total, 4 * weft__team_size()), smallest);
    grain = weft__ceil_div(grain, multiple) * multiple;
    return (range_t){weft__inner(), args, total, grain};
}

#define RANGE_KERNEL(name, args_t, units, unit_size, step)                                         \
    static void name##_task(const void *arg, int64_t task, void *scratch)                          \
    {                                                                                              \
        const range_t *range = arg;                                                                \
        int64_t first = task * range->grain;                                                       \
        (void)scratch;                                                                             \
        range->inner->name(range->args, first, weft__least(first + range->grain, range->total));   \
    }                                                                                              \
    static weft_status_t run_##name(const void *arg)                                               \
    {                                                                                              \
        const args_t *args = arg;                                                                  \
        range_t range = cut_range(args, units, unit_size, step);                                   \
        return weft__team_run(weft__ceil_div(range.total, range.grain), 0, name##_task, &range);   \
    }

RANGE_KERNEL(dropout, weft_dropout_t, args->rows, args->width, 1)
RANGE_KERNEL(embed_forward, weft_embed_t, args->batch * args->seq, args->width, 1)
RANGE_KERNEL(embed_backward, weft_embed_t, args->width, args->batch * args->seq, 16)
RANGE_KERNEL(norm_forward, weft_norm_t, args->rows, args->width, 1)
RANGE_KERNEL(gelu_forward, weft_gelu_t, args->count, 1, 64)
RANGE_KERNEL(gelu_backward, weft_gelu_t, args->count, 1, 64)
RANGE_KERNEL(swiglu_forward, weft_swiglu_t, args->rows, args->width, 1)
RANGE_KERNEL(swiglu_backward, weft_swiglu_t, args->rows, args->width, 1)
RANGE_KERNEL(classify, weft_classify_t, args->rows, args->ld, 1)
RANGE_KERNEL(classify_stats, weft_classify_t, args->rows, args->ld, 1)
RANGE_KERNEL(classify_finish, weft_classify_t, args->rows, args->ld, 1)
RANGE_KERNEL(adamw, weft_adamw_t, args->count, 1, 64)
RANGE_KERNEL(sumsq, weft_sumsq_t, weft__ceil_div(args->count, WEFT_SUMSQ_CHUNK), WEFT_SUMSQ_CHUNK,
             1)
RANGE_KERNEL(cast, weft_cast_t, args->count, 1, 64)

#define run_matmul weft__run_matmul
#define run_norm_backward weft__run_norm_backward
#define run_rope weft__run_rope
#define run_attention_forward weft__run_attention_forward
#define run_attention_backward weft__run_attention_backward
#define run_decode weft__run_decode
#define run_clip weft__run_clip

/* ---- the table ---------------------------------------------------------------------------- */

#define ON_STREAM(name, args_t)                                                                    \
    static weft_status_t name##_on_stream(const args_t *args, weft_stream_h stream)                \
    {                                                                                              \
        return weft__kernel_launch(run_##name, args, sizeof(*args), stream);                       \
    }
WEFT_COMPUTE_TABLE(ON_STREAM)

#define LIST_ON_STREAM(name, args_t)                                                               \
    static weft_status_t name##_list(const args_t *list, int count, weft_stream_h stream)          \
    {                                                                                              \
        for (int i = 0; i < count; i++) {                                                          \
            WEFT_TRY(name##_on_stream(&list[i], stream));                                          \
        }                                                                                          \
        return WEFT_OK;                                                                            \
    }
WEFT_COMPUTE_LISTS(LIST_ON_STREAM)

/* Embedding and attention need none: threads have scratch of their own. */
static size_t no_embed_work(const weft_embed_t *args)
{
    (void)args;
    return 0;
}

static size_t no_attention_work(const weft_attention_t *args)
{
    (void)args;
    return 0;
}

#define SLOT(name, args_t) .name = name##_on_stream,
#define LIST_SLOT(name, args_t) .name##_list = name##_list,

const weft_compute_t weft__compute_cpu = {
    .kind = "cpu",
    .ragged = true,
    .head_elements = 1 << 21,
    WEFT_COMPUTE_TABLE(SLOT) WEFT_COMPUTE_LISTS(LIST_SLOT).embed_work = no_embed_work,
    .norm_work = weft__norm_work_cpu,
    .attention_work = no_attention_work,
};
