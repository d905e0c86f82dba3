/* The table of inner loops for the instruction set that the including file is compiled for. */
#ifndef WEFT_KERNEL_CPU_INNER_IMPL_H
#define WEFT_KERNEL_CPU_INNER_IMPL_H

#include "kernel/cpu/attention_backward_impl.h"
#include "kernel/cpu/product_impl.h"
#include "kernel/cpu/rows_impl.h"

/* ---- the end of a matrix product --------------------------------------------------------- */

INLINE void finish_row(const weft_finish_t *f, int64_t r, weft_dtype_t type, weft_dtype_t c_type)
{
    const weft_matmul_t *a = f->args;
    const float *from = f->from + r * f->ld_from;
    int64_t at = (f->row + r) * a->ldc + f->column;
    for (int64_t i = 0; i < f->n; i += LANES) {
        int64_t left = f->n - i;
        lanes_t y = load(from, i, left, WEFT_F32);
        if (a->bias != NULL) {
            y += load(a->bias, f->column + i, left, type);
        }
        if (a->add != NULL) {
            y += load(a->add, at + i, left, type);
        }
        if (a->epilogue == WEFT_EPILOGUE_GELU) {
            if (a->aux != NULL) {
                store(a->aux, at + i, left, y, type);
            }
            y = gelu_lanes(y);
        } else if (a->epilogue == WEFT_EPILOGUE_DGELU) {
            y *= gelu_slope(load(a->aux, at + i, left, type));
        }
        if (a->accumulate) {
            y += load(a->c, at + i, left, c_type);
        }
        store(a->c, at + i, left, y, c_type);
    }
}

static void finish(const weft_finish_t *f)
{
    for (int64_t r = 0; r < f->m; r++) {
        if (f->args->type == WEFT_F32) {
            finish_row(f, r, WEFT_F32, WEFT_F32);
        } else if (f->args->c_type == WEFT_F32) {
            finish_row(f, r, WEFT_BF16, WEFT_F32);
        } else {
            finish_row(f, r, WEFT_BF16, WEFT_BF16);
        }
    }
}

#define INNER_TABLE(table_name)                                                                    \
    {                                                                                              \
        .name = (table_name), .dropout = dropout, .embed_forward = embed_forward,                  \
        .embed_backward = embed_backward, .norm_forward = norm_forward,                            \
        .gelu_forward = gelu_forward, .gelu_backward = gelu_backward,                              \
        .swiglu_forward = swiglu_forward, .swiglu_backward = swiglu_backward,                      \
        .classify = classify, .classify_stats = classify_stats,                                    \
        .classify_finish = classify_finish, .adamw = adamw, .sumsq = sumsq, .cast = cast,          \
        .norm_backward = norm_backward, .rope = rope, .attention_forward = attention_forward,      \
        .attention_backward = attention_backward, .attention_scratch = attention_scratch,          \
        .decode = decode, .decode_append = decode_append, .tile = tile, .product = product,        \
        .finish = finish, .column_sums = column_sums, .add_partials = add_partials,                \
    }

#endif
