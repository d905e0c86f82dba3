/* ctest: timeout=60 */
/* The textbook program of NCCL: one process, two devices, one grouped all-reduce. Nothing in it is
 * Weft's. On virtual GPUs:
 *
 *     weftcc -nccl examples/30-nccl.c -o 30-nccl && ./30-nccl
 *
 * and on a machine with two GPUs, with NVIDIA's libraries:
 *
 *     nvcc examples/30-nccl.c -lnccl -o 30-nccl && ./30-nccl */
#include <stdio.h>
#include <stdlib.h>

#include <cuda_runtime.h>
#include <nccl.h>

#define CUDA(call)                                                                                 \
    do {                                                                                           \
        cudaError_t error = call;                                                                  \
        if (error != cudaSuccess) {                                                                \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error));                         \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define NCCL(call)                                                                                 \
    do {                                                                                           \
        ncclResult_t result = call;                                                                \
        if (result != ncclSuccess) {                                                               \
            fprintf(stderr, "%s: %s: %s\n", #call, ncclGetErrorString(result),                     \
                    ncclGetLastError(NULL));                                                       \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

enum { DEVICES = 2, COUNT = 1 << 20 };

int main(void)
{
    int devices[DEVICES] = {0, 1};
    ncclComm_t comms[DEVICES];
    cudaStream_t streams[DEVICES];
    float *src[DEVICES], *dst[DEVICES], *host = malloc(COUNT * sizeof(float));

    NCCL(ncclCommInitAll(comms, DEVICES, devices));
    for (int i = 0; i < DEVICES; i++) {
        for (int k = 0; k < COUNT; k++) {
            host[k] = (float)(k % 100 + 1000 * i);
        }
        CUDA(cudaSetDevice(i));
        CUDA(cudaStreamCreate(&streams[i]));
        CUDA(cudaMalloc((void **)&src[i], COUNT * sizeof(float)));
        CUDA(cudaMalloc((void **)&dst[i], COUNT * sizeof(float)));
        CUDA(cudaMemcpy(src[i], host, COUNT * sizeof(float), cudaMemcpyHostToDevice));
    }

    NCCL(ncclGroupStart());
    for (int i = 0; i < DEVICES; i++) {
        NCCL(ncclAllReduce(src[i], dst[i], COUNT, ncclFloat, ncclSum, comms[i], streams[i]));
    }
    NCCL(ncclGroupEnd());

    int wrong = 0;
    for (int i = 0; i < DEVICES; i++) {
        CUDA(cudaSetDevice(i));
        CUDA(cudaStreamSynchronize(streams[i]));
        CUDA(cudaMemcpy(host, dst[i], COUNT * sizeof(float), cudaMemcpyDeviceToHost));
        for (int k = 0; k < COUNT; k++) {
            wrong += host[k] != (float)(2 * (k % 100) + 1000);
        }
        CUDA(cudaFree(src[i]));
        CUDA(cudaFree(dst[i]));
        CUDA(cudaStreamDestroy(streams[i]));
        NCCL(ncclCommDestroy(comms[i]));
    }
    free(host);
    printf("%d devices added %d floats: %d wrong\n", DEVICES, COUNT, wrong);
    return wrong != 0;
}
