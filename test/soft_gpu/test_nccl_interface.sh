#!/bin/bash
# ctest: timeout=60 plain
# Programs of NCCL's on GPUs, through Weft's libnccl.so.2: by Weft's own kernels, several ranks on one GPU, and by an
# NCCL behind it, which Weft then watches.
. "$WEFT_SOURCE/test/soft_gpu/soft_gpu.sh"
. "$WEFT_SOURCE/test/cli/lib.sh" || exit 1
err=

cat >prog.c <<'END'
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weft/weft.h>

enum { COUNT = 100000 };

int main(int argc, char **argv)
{
    int rank = atoi(getenv("RANK")), size = atoi(getenv("WORLD_SIZE"));
    float *host = malloc(COUNT * sizeof(float)), *x;
    weft_stream_h stream;
    void *native; /* what such a program has as a cudaStream_t */
    ncclUniqueId id;
    ncclComm_t comm;
    ncclResult_t result;
    if (rank == 0) {
        FILE *file = fopen("id.part", "w");
        if (ncclGetUniqueId(&id) || !file || fwrite(&id, sizeof(id), 1, file) != 1 || fclose(file)) {
            return 1;
        }
        rename("id.part", "id");
    }
    FILE *file;
    while (!(file = fopen("id", "r"))) {
        usleep(1000);
    }
    if (fread(&id, sizeof(id), 1, file) != 1 || ncclCommInitRank(&comm, size, id, rank) ||
        ncclMemAlloc((void **)&x, COUNT * sizeof(float)) || weft_stream_create(&stream) ||
        weft_stream_native(stream, &native)) {
        return fprintf(stderr, "%s; %s\n", ncclGetLastError(NULL), weft_last_error()), 1;
    }
    for (int i = 0; i < COUNT; i++) {
        host[i] = (float)(i % 1000 + rank);
    }
    weft_memcpy(x, host, COUNT * sizeof(float), stream);
    int odd = argc > 1 && rank == 1; /* the rank that is late, or calls something else */
    int count = odd && strcmp(argv[1], "differs") == 0 ? 7 : COUNT;
    if (odd && strcmp(argv[1], "late") == 0) {
        sleep(5);
    }
    result = ncclAllReduce(x, x, (size_t)count, ncclFloat, ncclSum, comm, native);
    weft_stream_synchronize(stream);
    if (result == ncclSuccess) {
        ncclCommGetAsyncError(comm, &result);
    }
    if (result != ncclSuccess) {
        return fprintf(stderr, "told: %s\n", ncclGetLastError(comm)), 3;
    }
    weft_memcpy(host, x, COUNT * sizeof(float), stream);
    weft_stream_synchronize(stream);
    int wrong = 0;
    for (int i = 0; i < COUNT; i++) {
        wrong += host[i] != (float)(size * (i % 1000) + size * (size - 1) / 2);
    }
    printf("%d wrong\n", wrong);
    return ncclMemFree(x) || ncclCommDestroy(comm) || weft_stream_destroy(stream);
}
END
cc -I"$WEFT_SOURCE/include" -I"$WEFT_SOURCE/include/weft/nccl" prog.c -o prog -L"$WEFT_BUILD/nccl" -lnccl \
    -L"$WEFT_BUILD" -lweft -Wl,-rpath,"$WEFT_BUILD/nccl:$WEFT_BUILD" || exit 1

# right RANKS: the sum is; differs, late RANKS: the rank that differs or is late is named
right() {
    rm -f id
    err=$("$weft" run -n "$1" ./prog 2>&1)
    status=$?
    expect_status 0
    [ "$(grep -c ' 0 wrong$' <<<"$err")" = "$1" ] || fail "$err"
}
late() {
    rm -f id
    err=$(WEFT_TIMEOUT=2 "$weft" run -n "$1" ./prog late 2>&1)
    expect_in "$err" "[0] told: timed out after 2.0 s in call 1, allreduce of 100000 f32, sum: not arrived: rank 1 ("
}
differs() {
    rm -f id
    err=$("$weft" run -n "$1" ./prog differs 2>&1)
    expect_in "$err" "allreduce of 7 f32"
    expect_in "$err" "allreduce of 100000 f32"
}

name="3 ranks on one GPU"
right 3
differs 3
late 2

name="an NCCL behind it, a GPU for each rank"
with_nccl
export WEFT_ENGINE=nccl SOFT_GPUS=2
right 2
late 2 # of calls that differ this NCCL, unlike the true one, does not wait for ever

[ $failures = 0 ] || exit 1
