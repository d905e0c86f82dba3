/* NCCL called directly, for comparison with Weft's nccl engine: all-reduce of f32, one rank per
 * GPU, all GPUs driven by one thread. Loops as weft bench has them.
 *
 *     nvcc -O2 -o nccl_bench nccl_bench.cu
 *     ./nccl_bench [GPUS] */
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <cuda_runtime.h>
#include <dlfcn.h>

typedef void *comm_h;
typedef int (*init_fn)(comm_h *, int, const int *);
typedef int (*allreduce_fn)(const void *, void *, size_t, int, int, comm_h, cudaStream_t);
typedef int (*group_fn)();

static double now_us()
{
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

int main(int argc, char **argv)
{
    int gpus = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 1;
    void *nccl = dlopen("libnccl.so.2", RTLD_NOW);
    if (!nccl || gpus < 1 || gpus > 16) {
        fprintf(stderr, "%s\n", nccl ? "1 to 16 GPUs" : dlerror());
        return 1;
    }
    init_fn init = (init_fn)dlsym(nccl, "ncclCommInitAll");
    allreduce_fn allreduce = (allreduce_fn)dlsym(nccl, "ncclAllReduce");
    group_fn start = (group_fn)dlsym(nccl, "ncclGroupStart"), end = (group_fn)dlsym(nccl,
                                                                                   "ncclGroupEnd");
    comm_h comms[16];
    cudaStream_t streams[16];
    float *src[16], *dst[16];
    const size_t most = (size_t)256 << 20;
    if (init(comms, gpus, NULL) != 0) {
        fprintf(stderr, "ncclCommInitAll failed\n");
        return 1;
    }
    for (int g = 0; g < gpus; g++) {
        cudaSetDevice(g);
        cudaStreamCreateWithFlags(&streams[g], cudaStreamNonBlocking);
        cudaMalloc(&src[g], most);
        cudaMalloc(&dst[g], most);
        cudaMemset(src[g], 1, most);
    }
    for (size_t bytes = 8; bytes <= most; bytes = bytes == 8           ? 1024
                                                  : bytes == 64 << 20  ? 100 << 20
                                                  : bytes == 100 << 20 ? most
                                                                       : bytes * 4) {
        double best[5];
        int iters = bytes < 1 << 20 ? 5000 : bytes < 64 << 20 ? 500 : 100;
        for (int repeat = -1; repeat < 5; repeat++) {
            double t = now_us();
            for (int i = 0; i < iters; i++) {
                if (gpus > 1) {
                    start();
                }
                for (int g = 0; g < gpus; g++) {
                    allreduce(src[g], dst[g], bytes / 4, 7 /* f32 */, 0 /* sum */, comms[g],
                              streams[g]);
                }
                if (gpus > 1) {
                    end();
                }
            }
            for (int g = 0; g < gpus; g++) {
                cudaSetDevice(g);
                cudaStreamSynchronize(streams[g]);
            }
            if (repeat >= 0) {
                best[repeat] = (now_us() - t) / iters;
            }
        }
        for (int i = 0; i < 5; i++) {
            for (int k = i + 1; k < 5; k++) {
                if (best[k] < best[i]) {
                    double x = best[i];
                    best[i] = best[k];
                    best[k] = x;
                }
            }
        }
        printf("%12zu %10.2f us (%.2f to %.2f)\n", bytes, best[2], best[0], best[4]);
    }
    return 0;
}
