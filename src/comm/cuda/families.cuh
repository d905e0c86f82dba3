/* The kernels of each family, by type and operation: a table each, in a file each, so that they are
 * compiled side by side. */
#ifndef WEFT_COMM_CUDA_FAMILIES_CUH
#define WEFT_COMM_CUDA_FAMILIES_CUH

#include "comm/cuda/launch.h"
#include <weft/types.h>

typedef void (*kernel_fn)(const weft_cuda_world_t, const weft_cuda_call_t, uint64_t);

/* Row WEFT_DTYPE_COUNT: blocks are moved, not reduced. */
typedef kernel_fn family_t[WEFT_DTYPE_COUNT + 1][WEFT_OP_COUNT];

extern const family_t line_family, even_line_family, direct_family;
extern const unsigned line_threads, direct_threads;

typedef void (*batch_fn)(const weft_cuda_world_t, const weft_cuda_call_t, const weft_cuda_batch_t);
extern const batch_fn batch_family[WEFT_DTYPE_COUNT][WEFT_OP_COUNT];

#define BY_OP(kernel, type)                                                                        \
    {                                                                                              \
        kernel<type, WEFT_SUM>, kernel<type, WEFT_PROD>, kernel<type, WEFT_MIN>,                   \
            kernel<type, WEFT_MAX>, kernel<type, WEFT_AVG>                                         \
    }
#define OF_REDUCTIONS(kernel)                                                                      \
    BY_OP(kernel, WEFT_F64), BY_OP(kernel, WEFT_F32), BY_OP(kernel, WEFT_F16),                     \
        BY_OP(kernel, WEFT_BF16), BY_OP(kernel, WEFT_I8), BY_OP(kernel, WEFT_U8),                  \
        BY_OP(kernel, WEFT_I32), BY_OP(kernel, WEFT_U32), BY_OP(kernel, WEFT_I64),                 \
        BY_OP(kernel, WEFT_U64), BY_OP(kernel, WEFT_F8E4M3), BY_OP(kernel, WEFT_F8E5M2)
#define BY_TYPE(kernel)                                                                            \
    {                                                                                              \
        OF_REDUCTIONS(kernel),                                                                     \
        {                                                                                          \
            kernel<-1, WEFT_SUM>                                                                   \
        }                                                                                          \
    }

#endif
