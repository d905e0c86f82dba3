/* For tests of the CUDA runtime on virtual GPUs: checks that print what came back. */
#ifndef TEST_NCCL_CUDART_H
#define TEST_NCCL_CUDART_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include <weft/cudart/cuda_runtime.h>

#define EXPECT(wanted, call)                                                                       \
    do {                                                                                           \
        cudaError_t got_ = (call);                                                                 \
        if (got_ != (wanted)) {                                                                    \
            fail_msg("%s: %s, not %s", #call, cudaGetErrorName(got_), cudaGetErrorName(wanted));   \
        }                                                                                          \
    } while (0)
#define OK(call) EXPECT(cudaSuccess, call)
/* It fails with this error, which is then the last one. */
#define FAILS(wanted, call)                                                                        \
    do {                                                                                           \
        EXPECT(wanted, call);                                                                      \
        EXPECT(wanted, cudaGetLastError());                                                        \
    } while (0)

#endif
