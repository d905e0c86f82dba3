/* How a kernel of the CPU's table reaches a stream, and its tasks the team. Internal. */
#ifndef WEFT_KERNEL_CPU_LAUNCH_H
#define WEFT_KERNEL_CPU_LAUNCH_H

#include "kernel/cpu/inner.h"
#include "kernel/cpu/team.h"

/* Run fn(args) now (stream NULL) or later, on a copy of its `bytes` of arguments. */
weft_status_t weft__kernel_launch(weft_status_t (*fn)(const void *args), const void *args,
                                  size_t bytes, weft_stream_h stream);

/* Kernels with their own files; each is the run function for weft__kernel_launch. */
weft_status_t weft__run_matmul(const void *args);
weft_status_t weft__run_norm_backward(const void *args);
weft_status_t weft__run_rope(const void *args);
weft_status_t weft__run_attention_forward(const void *args);
weft_status_t weft__run_attention_backward(const void *args);
weft_status_t weft__run_decode(const void *args);
weft_status_t weft__run_clip(const void *args);

size_t weft__norm_work_cpu(const weft_norm_t *args);

static inline int64_t weft__ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static inline int64_t weft__least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t weft__most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* `count` in pieces of at most `most`, as even as they come in multiples of `unit`: how large they
 * are. */
static inline int64_t weft__even_part(int64_t count, int64_t most, int64_t unit)
{
    int64_t parts = weft__ceil_div(count, most);
    return parts > 0 ? weft__ceil_div(weft__ceil_div(count, parts), unit) * unit : unit;
}

#endif
