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

# What Weft carries out in more than one step, and float8.
cat >sums.c <<'END'
#include <device/cuda_module.h>
#include <dlfcn.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weft/weft.h>

enum { COUNT = 30001 };
#define DO(call)                                                                                   \
    do {                                                                                           \
        if (call) {                                                                                \
            fprintf(stderr, "%s: %s; %s\n", #call, ncclGetLastError(NULL), weft_last_error());     \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static int rank, size, wrong;
static ncclComm_t comm;
static weft_stream_h stream;
static void *native;
static float host[COUNT];

static void put(void *to, const void *from, size_t bytes)
{
    DO(weft_memcpy(to, from, bytes, stream));
    DO(weft_stream_synchronize(stream));
}

static void fill(float *x)
{
    for (int i = 0; i < COUNT; i++) {
        host[i] = (float)(i % 100 + rank);
    }
    put(x, host, sizeof(host));
}

/* Are they `by` times the sum over ranks r of (r + 1) times what r had, of which rank `first` on are
 * this one's? */
static void check(const char *what, const float *x, int count, int first, float by)
{
    put(host, x, (size_t)count * sizeof(float));
    for (int i = 0; i < count; i++) {
        float sum = 0;
        for (int r = 0; r < size; r++) {
            sum += (float)(r + 1) * (float)((first + i) % 100 + r);
        }
        if (host[i] != by * sum && wrong++ < 3) {
            fprintf(stderr, "%s: element %d is %g, not %g\n", what, i, host[i], by * sum);
        }
    }
}

static void premultiplied(float *x, float *y)
{
    float factor = (float)(rank + 1), *scalar;
    ncclRedOp_t at_once, later;
    DO(weft_malloc((void **)&scalar, 4));
    DO(ncclRedOpCreatePreMulSum(&at_once, &factor, ncclFloat, ncclScalarHostImmediate, comm));
    DO(ncclRedOpCreatePreMulSum(&later, scalar, ncclFloat, ncclScalarDevice, comm));
    fill(x);
    put(scalar, &factor, 4);
    DO(ncclAllReduce(x, y, COUNT, ncclFloat, at_once, comm, native));
    check("all-reduce", y, COUNT, 0, 1);
    DO(ncclReduce(x, y, COUNT, ncclFloat, later, size - 1, comm, native));
    if (rank == size - 1) {
        check("reduce", y, COUNT, 0, 1);
    }
    int part = COUNT / size;
    DO(ncclReduceScatter(x, y, part, ncclFloat, later, comm, native));
    check("reduce-scatter", y, part, rank * part, 1);
    DO(ncclGroupStart()); /* two halves in place, with one call that is none of these between them */
    DO(ncclAllReduce(x, x, 15000, ncclFloat, later, comm, native));
    DO(ncclAllReduce(y, y, 10, ncclFloat, ncclMax, comm, native));
    DO(ncclAllReduce(x + 15000, x + 15000, COUNT - 15000, ncclFloat, at_once, comm, native));
    DO(ncclGroupEnd());
    check("group", x, COUNT, 0, 1);
    DO(ncclRedOpDestroy(at_once, comm));
    weft_pool_stats_t before, after;
    DO(weft_pool_stats(0, &before));
    for (int i = 0; i < 50; i++) { /* memory that many calls borrow comes back */
        fill(x);
        DO(ncclAllReduce(x, x, COUNT, ncclFloat, later, comm, native));
        check("again", x, COUNT, 0, 1);
    }
    DO(weft_pool_stats(0, &after));
    if (after.in_use > before.in_use + 5 * sizeof(host)) {
        wrong++;
        fprintf(stderr, "%zu bytes are in use, and %zu were\n", after.in_use, before.in_use);
    }
}

/* Recorded once, run three times with other data and another scalar, and calls between. What the
 * program allocates meanwhile is not the graph's. */
static void in_a_graph(float *x, float *y)
{
    static char sevens[sizeof(host) - 4096]; /* one of these and a small call fit into the graph's */
    char *mine[8];
    float factor = (float)(rank + 1), *scalar;
    void *module = dlopen(getenv("WEFT_CUDA_MODULE"), RTLD_NOW), *graph;
    const weft_cuda_device_ops_t *cuda = dlsym(module, "weft_cuda_device");
    ncclRedOp_t op;
    DO(weft_malloc((void **)&scalar, 4));
    DO(ncclRedOpCreatePreMulSum(&op, scalar, ncclFloat, ncclScalarDevice, comm));
    DO(cuda->graph_begin(0, native));
    DO(ncclAllReduce(x, y, COUNT, ncclFloat, op, comm, native));
    DO(cuda->graph_end(0, native, &graph));
    for (int i = 1; i <= 3; i++) {
        float other = (float)i * factor;
        fill(x);
        put(scalar, &other, 4);
        DO(cuda->graph_launch(0, graph, native));
        check("graph", y, COUNT, 0, (float)i);
        DO(ncclAllReduce(x, x, COUNT, ncclFloat, op, comm, native));
        check("beside a graph", x, COUNT, 0, (float)i);
        DO(ncclAllReduce(x, x, 1, ncclFloat, op, comm, native)); /* takes back what it may */
        for (int k = 0; i == 1 && k < 8; k++) {
            memset(sevens, 7, sizeof(sevens));
            DO(weft_malloc((void **)&mine[k], sizeof(sevens)));
            put(mine[k], sevens, sizeof(sevens));
        }
    }
    for (int k = 0; k < 8; k++) {
        put(host, mine[k], sizeof(sevens));
        wrong += memcmp(host, sevens, sizeof(sevens)) != 0;
    }
    DO(cuda->graph_destroy(0, graph));
}

/* 1.5 + 1.5 + ... by `size` ranks, and twice that; e4m3 has them all for up to 5 ranks. */
static void float8(void)
{
    static unsigned char codes[COUNT], two = 0x40;
    unsigned char *x;
    ncclRedOp_t op;
    float sum[2] = {1.5f * (float)size, 3.0f * (float)size};
    DO(weft_malloc((void **)&x, COUNT));
    DO(ncclRedOpCreatePreMulSum(&op, &two, ncclFloat8e4m3, ncclScalarHostImmediate, comm));
    for (int pass = 0; pass < 2; pass++) {
        memset(codes, 0x3c, COUNT);
        put(x, codes, COUNT);
        DO(ncclAllReduce(x, x, COUNT, ncclFloat8e4m3, pass ? op : ncclSum, comm, native));
        put(codes, x, COUNT);
        for (int i = 0; i < COUNT; i++) {
            float value = (float)(8 + (codes[i] & 7)) / 8 * (float)(1 << ((codes[i] >> 3) - 7));
            if (value != sum[pass] && wrong++ < 3) {
                fprintf(stderr, "float8: element %d is %#x\n", i, codes[i]);
            }
        }
    }
}

int main(void)
{
    ncclUniqueId id;
    float *x, *y;
    rank = atoi(getenv("RANK"));
    size = atoi(getenv("WORLD_SIZE"));
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
    DO(fread(&id, sizeof(id), 1, file) != 1);
    DO(ncclCommInitRank(&comm, size, id, rank));
    DO(weft_stream_create(&stream));
    DO(weft_stream_native(stream, &native));
    DO(weft_malloc((void **)&x, sizeof(host)));
    DO(weft_malloc((void **)&y, sizeof(host)));
    premultiplied(x, y);
    in_a_graph(x, y);
    float8();
    printf("%d wrong\n", wrong);
    return ncclCommDestroy(comm) || weft_stream_destroy(stream);
}
END
cc -I"$WEFT_SOURCE/include" -I"$WEFT_SOURCE/include/weft/nccl" -I"$WEFT_SOURCE/src" sums.c -o sums -L"$WEFT_BUILD/nccl" \
    -lnccl -L"$WEFT_BUILD" -lweft -ldl -Wl,-rpath,"$WEFT_BUILD/nccl:$WEFT_BUILD" || exit 1

# right RANKS [PROGRAM]: the sum is; differs, late RANKS: the rank that differs or is late is named
right() {
    rm -f id
    err=$("$weft" run -n "$1" ./"${2:-prog}" 2>&1)
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
right 3 sums
SOFT_GPUS=2 right 2 sums
differs 3
late 2

name="an NCCL behind it, a GPU for each rank"
with_nccl
export WEFT_ENGINE=nccl SOFT_GPUS=2
right 2
late 2 # of calls that differ this NCCL, unlike the true one, does not wait for ever

[ $failures = 0 ] || exit 1
