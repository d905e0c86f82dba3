#!/bin/bash
# ctest: timeout=60 plain
# A collective that failed leaves wrong data: whatever a program asks of CUDA's runtime afterwards says so, until it
# gives the communicator up.
. "$WEFT_SOURCE/test/cli/lib.sh" || exit 1
err=
PATH=$WEFT_BUILD:$PATH

cat >prog.c <<'END'
#include <cuda_runtime.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Two devices add different counts; then what the program is told by the way it waits. */
int main(int argc, char **argv)
{
    ncclComm_t comms[2];
    float *x[2], h = 0;
    cudaEvent_t event;
    cudaStream_t streams[2];
    const char *how = argc > 1 ? argv[1] : "";
    ncclCommInitAll(comms, 2, NULL);
    for (int i = 0; i < 2; i++) {
        cudaSetDevice(i);
        cudaMalloc((void **)&x[i], 4000);
        cudaStreamCreate(&streams[i]);
    }
    ncclGroupStart();
    for (int i = 0; i < 2; i++) {
        ncclAllReduce(x[i], x[i], 1000 - i, ncclFloat, ncclSum, comms[i], streams[i]);
    }
    ncclGroupEnd();
    cudaSetDevice(1);
    cudaEventCreate(&event);
    cudaEventRecord(event, streams[1]);
    usleep(100000);
    for (int again = 0; again < 2; again++) {
        cudaError_t error = cudaSuccess;
        if (strcmp(how, "query") == 0) {
            error = cudaStreamQuery(streams[1]);
        } else if (strcmp(how, "event") == 0) {
            error = cudaEventQuery(event);
        } else if (strcmp(how, "wait") == 0) {
            error = cudaEventSynchronize(event);
        } else if (strcmp(how, "stream") == 0) {
            error = cudaStreamSynchronize(streams[1]);
        } else if (strcmp(how, "device") == 0) {
            error = cudaDeviceSynchronize();
        } else if (strcmp(how, "copy") == 0) {
            error = cudaMemcpy(&h, x[1], 4, cudaMemcpyDeviceToHost);
        }
        printf("%s\n", cudaGetErrorName(error));
    }
    if (strcmp(how, "none") != 0) {
        ncclResult_t result;
        ncclCommGetAsyncError(comms[1], &result);
        printf("async %d\n", result != ncclSuccess);
        ncclCommAbort(comms[0]);
        ncclCommAbort(comms[1]);
        printf("then %s\n", cudaGetErrorName(cudaMemcpy(&h, x[1], 4, cudaMemcpyDeviceToHost)));
        return 0;
    }
    ncclCommDestroy(comms[0]);
    ncclCommDestroy(comms[1]);
    return 0;
}
END
weftcc -O1 prog.c -nccl -o prog || exit 1

for how in query event wait stream device copy; do
    name="told by $how"
    out=$(./prog $how 2>err)
    expected=cudaErrorLaunchFailure
    case $how in query | event) expected=cudaErrorNotReady ;; esac # as if NCCL's kernel waited
    [ "$(grep -cx $expected <<<"$out")" = 2 ] || fail "not $expected twice: $out"
    expect_in "$out" "async 1"
    expect_in "$out" "then cudaSuccess"
    [ "$(grep -c 'allreduce of 999 f32' err)" = 1 ] || fail "not said once: $(cat err)"
done
name="told at the end, if nobody asked"
./prog none >out 2>err
expect_in "$(cat err)" "[weft] ncclCommDestroy: a call had failed, and nobody has asked: "

[ $failures = 0 ] || exit 1
