/* The table of inner loops for the instruction set that the including file is compiled for. */
#ifndef WEFT_KERNEL_CPU_INNER_IMPL_H
#define WEFT_KERNEL_CPU_INNER_IMPL_H

#include "kernel/cpu/attention_backward_impl.h"
#include "kernel/cpu/product_impl.h"
#include "kernel/cpu/rows_impl.h"

/* Our own product, by these vectors. */
#define OWN_PRODUCTS                                                                               \
    .product = product, .pack_strip = pack_strip, .strip_rows = strip_rows,                        \
    .packing = {.strip = STRIP, .panel = TILE_ROWS, .step = 1, .element = sizeof(float)}

#define INNER_TABLE(table_name, PRODUCTS)                                                          \
    {                                                                                              \
        .name = (table_name), .own_is_best = LANES == 16, .dropout = dropout,                      \
        .embed_forward = embed_forward, .embed_backward = embed_backward,                          \
        .norm_forward = norm_forward, .gelu_forward = gelu_forward,                                \
        .gelu_backward = gelu_backward, .swiglu_forward = swiglu_forward,                          \
        .swiglu_backward = swiglu_backward, .classify = classify,                                  \
        .classify_stats = classify_stats, .classify_finish = classify_finish, .adamw = adamw,      \
        .sumsq = sumsq, .cast = cast, .norm_backward = norm_backward, .rope = rope,                \
        .attention_forward = attention_forward, .attention_backward = attention_backward,          \
        .attention_scratch = attention_scratch, .decode = decode, .decode_append = decode_append,  \
        .tile = tile, .finish = finish, PRODUCTS, .column_sums = column_sums,                      \
        .add_partials = add_partials,                                                              \
    }

#endif
