#!/bin/bash
# ctest: timeout=120
# weftcc and weftc++ -nccl compile host programs of CUDA's runtime as they are, in C and C++, and the programs run
# without a GPU, also as ranks; kernel launches are refused by file, line and name, in the sources that are compiled only.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
PATH=$WEFT_BUILD:$PATH
sanitize=$(sed -n 's/^WEFT_SANITIZE:STRING=\(.\+\)$/-fsanitize=\1/p' "$WEFT_BUILD/CMakeCache.txt")
cd "$work" || exit 1
failures=0

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# compile COMMAND...: with status, and what was said in the file said
compile() {
    # shellcheck disable=SC2086 # nothing, or one option
    "$@" $sanitize >said 2>&1
    status=$?
}

cat >prog.c <<'C'
#include <cuda.h>
#include <cuda_fp16.h>
#include <cuda_profiler_api.h>
#include <cuda_runtime.h>
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>

#define CUDACHECK(call)                                                       \
    do {                                                                      \
        cudaError_t error = (call);                                           \
        if (error != cudaSuccess) {                                           \
            printf("%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(error)); \
            exit(1);                                                          \
        }                                                                     \
    } while (0)

static __host__ __device__ float twice(float x)
{
    return 2 * x;
}

int main(int argc, char **argv)
{
    int device = argc > 1 ? atoi(argv[1]) : 0, count, driver;
    const char *local = getenv("WEFT_LOCAL_RANK");
    float *memory, host[256];
    cudaStream_t stream;
    cudaEvent_t start, end;
    float ms;
    struct cudaDeviceProp prop;
    CUDACHECK(cudaGetDeviceCount(&count));
    CUDACHECK(cudaSetDevice(local != NULL ? atoi(local) : device));
    CUDACHECK(cudaGetDeviceProperties(&prop, 0));
    CUDACHECK(cudaStreamCreate(&stream));
    CUDACHECK(cudaEventCreate(&start));
    CUDACHECK(cudaEventCreate(&end));
    CUDACHECK(cudaMalloc((void **)&memory, sizeof(host)));
    for (int i = 0; i < 256; i++) {
        host[i] = twice(__half2float(__float2half(i)));
    }
    nvtxRangePush("copies");
    CUDACHECK(cudaEventRecord(start, stream));
    CUDACHECK(cudaMemcpyAsync(memory, host, sizeof(host), cudaMemcpyHostToDevice, stream));
    CUDACHECK(cudaMemset(memory, 0, 4));
    CUDACHECK(cudaMemcpyAsync(host, memory, sizeof(host), cudaMemcpyDeviceToHost, stream));
    CUDACHECK(cudaEventRecord(end, stream));
    CUDACHECK(cudaStreamSynchronize(stream));
    nvtxRangePop();
    CUDACHECK(cudaEventElapsedTime(&ms, start, end));
    cuDriverGetVersion(&driver);
    printf("%s, %d devices, %g %g, %s\n", prop.name, count, host[0], host[255], ms >= 0 ? "timed" : "untimed");
    CUDACHECK(cudaFree(memory));
    CUDACHECK(cudaEventDestroy(start));
    CUDACHECK(cudaEventDestroy(end));
    CUDACHECK(cudaStreamDestroy(stream));
    return 0;
}
C
cat >prog.cu <<'C'
// cuda_runtime.h is included by the compiler, as by nvcc, and brings what programs rely on
#if !defined(__CUDA_RUNTIME_H__) || !defined(__DRIVER_TYPES_H__)
#error "CUDA's names are not there"
#endif
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <iostream>
#include <vector>
__device__ int counter;
int main()
{
    std::vector<float> host(1000, 1.5f), back(1000);
    float *memory = nullptr, *managed = nullptr;
    cudaEvent_t event;
    if (cudaMalloc(&memory, 4000) != cudaSuccess || cudaMallocManaged(&managed, 4000) != cudaSuccess)
        return 1;
    if (cudaMemcpyAsync(memory, host.data(), 4000, cudaMemcpyHostToDevice) != cudaSuccess)
        return 2;
    if (cudaEventCreate(&event) != cudaSuccess || cudaEventRecord(event) != cudaSuccess)
        return 3;
    if (cudaMemcpy(back.data(), memory, 4000, cudaMemcpyDeviceToHost) != cudaSuccess || back != host)
        return 4;
    int five = 5, copied;
    memcpy(&copied, &five, sizeof(five));
    if (cudaMemcpyToSymbol(counter, &copied, sizeof(five)) != cudaSuccess || counter != 5)
        return 5;
    __half h = 1.5f;
    half sum = h + half(2.0);
    __nv_bfloat16 b(3.0f);
    b += __nv_bfloat16(1.0f);
    __nv_fp8_e4m3 f(447.0f);
    dim3 grid(3);
    std::cout << float(sum) << " " << float(b) << " " << float(f) << " " << grid.x * grid.y << std::endl;
    cudaEventDestroy(event);
    cudaFree(managed);
    return cudaFree(memory) == cudaSuccess ? 0 : 6;
}
C
wanted="Weft virtual GPU, 8 devices, 0 510, timed"

compile weftcc -nccl -std=c99 -Wall -Wextra -Werror prog.c -o prog
[ $status = 0 ] || fail "a C program: $(cat said)"
out=$(./prog 3)
[ "$out" = "$wanted" ] || fail "the C program says: $out"
out=$("$WEFT_BIN" run --no-prefix -n 3 ./prog)
[ "$out" = "$(printf '%s\n%s\n%s' "$wanted" "$wanted" "$wanted")" ] || fail "as ranks it says: $out"
out=$(WEFT_DEVICES=16 ./prog 15)
[ "$out" = "${wanted/8/16}" ] || fail "with 16 devices it says: $out"
out=$(./prog 8) && fail "there is a device 8"
[[ $out == *"invalid device ordinal" ]] || fail "of a device that is not there: $out"
out=$(WEFT_DEVICE=nonsense ./prog 2>&1) && fail "it runs on no device"
[[ $out == *WEFT_DEVICE* ]] || fail "it does not say why: $out"

# as a Makefile for CUDA would: options of nvcc, NVIDIA's libraries, a step for the object; in C++ too
compile weftc++ -nccl -O1 -std=c++11 -Wall -Werror -arch=sm_90 -gencode arch=compute_90,code=sm_90 -Xcompiler -fPIC \
    -c prog.cu -o prog.o
[ $status = 0 ] || fail "a C++ object: $(cat said)"
compile weftc++ -nccl prog.o -L/usr/local/cuda/lib64 -lcudart -lnccl -lcuda -o "a prog"
[ $status = 0 ] || fail "linking it: $(cat said)"
out=$("./a prog") || fail "the C++ program fails: $?"
[ "$out" = "3.5 4 448 3" ] || fail "the C++ program says: $out"
ldd "./a prog" | grep -q 'libweft-cudart.so.0 => /' || fail "another runtime: $(ldd "./a prog")"
compile weftcc -nccl prog.cu -o prog2
{ [ $status = 0 ] && [ "$(./prog2)" = "3.5 4 448 3" ]; } || fail "weftcc of a .cu file: $(cat said)"

# kernels
cat >kernels.h <<'C'
template <class T> static void go(T *x) { deep<<<2, 3>>>(x); }
C
cat >kernel.cu <<'C'
#include <cuda_runtime.h>
#ifdef __CUDACC__
void hidden() { other<<<1, 1>>>(); }
#endif
__global__ void add(float *x);
/* old<<<1, 1>>>(x) */
const char *text = "said<<<1, 1>>>";
int main()
{
    float *x = nullptr;
    add<<<dim3(1), 2>>>(x);
    some::scale<float, 4> <<<1, 2, 0, 0>>>(x);
}
C
cp kernel.cu "a kernel.c"
compile weftc++ -nccl kernel.cu -o kernel
[ $status = 1 ] || fail "kernels: status $status"
[ "$(cat said)" = "weftc++: kernel.cu:11: kernel add<<<>>> needs a GPU: build it with nvcc
weftc++: kernel.cu:12: kernel some::scale<<<>>> needs a GPU: build it with nvcc" ] || fail "kernels: $(cat said)"
[ ! -e kernel ] || fail "something was built"
compile weftcc -nccl -o kernel "a kernel.c"
grep -q '^weftcc: a kernel.c:11: kernel add<<<>>> needs a GPU' said || fail "in a C file: $(cat said)"
printf '#include "kernels.h"\nint main() { return 0; }\n' >includes.cu
compile weftc++ -nccl -c includes.cu
grep -q 'kernels.h:1: kernel deep<<<>>> needs a GPU' said || fail "in a header: $(cat said)"
printf '#include <cuda_runtime.h>\nconst char *f(int x) { return x ? "<<<" : ">>>"; } // a<<<b>>>\n' >harmless.cpp
compile weftc++ -nccl -c harmless.cpp
[ $status = 0 ] || fail "no kernel: $(cat said)"

# the plain wrapper, and what it shows
printf '#include <weft/weft.h>\nint main(void) { int n; return weft_device_count(&n) != WEFT_OK; }\n' >plain.c
compile weftcc plain.c -o plain
{ [ $status = 0 ] && ./plain; } || fail "a program of Weft's own: $(cat said)"
printf '#include <shmem.h>\nint main(void) { shmem_init(); shmem_finalize(); return 0; }\n' >pe.c
compile weftcc -shmem pe.c -o pe
{ [ $status = 0 ] && ./pe; } || fail "an OpenSHMEM program: $(cat said)"
weftcc -nccl --showme a.c | grep -q -- '-I.*/weft/cudart .*a.c .*-lcudart .*-lweft$' || fail "--showme"
weftcc -nccl --showme:compile | grep -q -- '^-I.*/weft/cudart .*-I.*/include$' || fail "--showme:compile"
weftcc -nccl --showme:link | grep -q -- '-lcudart .*-lweft$' || fail "--showme:link"
[ "$(weftcc --showme:compile)" = "-I$WEFT_SOURCE/include" ] || fail "--showme:compile without -nccl"
weftcc -nccl --version >said 2>&1 || fail "--version: $(cat said)"
[ $failures = 0 ]
