#include "bench/put.h"

#include <stdio.h>

#include "base/log.h"
#include "bench/table.h"
#include "comm/cuda/cuda.h"

#define ROUNDS 2000
#define CHECKED 100

typedef struct ping {
    weft_cuda_t *cuda;
    weft_stream_h stream;
    double *result; /* pinned: nanoseconds one way, wrong bytes */
    uint64_t base;  /* signals used so far */
} ping_t;

static weft_status_t play(ping_t *ping, size_t bytes, int rounds, bool check)
{
    weft_cuda_t *cuda = ping->cuda;
    const weft_cuda_comm_ops_t *ops = weft__cuda_tables(NULL)->comm;
    weft_status_t status = weft_barrier(cuda->comm, NULL);
    if (status != WEFT_OK || cuda->rank > 1) {
        return status;
    }
    int error = ops->ping(cuda->gpu, &cuda->world, bytes, rounds, check, ping->base, ping->result,
                          weft__cuda_stream(ping->stream));
    ping->base += (uint64_t)rounds + 1;
    status = weft__cuda_status(error, "the kernel of a put");
    return status == WEFT_OK ? weft_stream_synchronize(ping->stream) : status;
}

static weft_status_t measure(ping_t *ping, const weft_bench_t *bench, size_t bytes, size_t *wrong_p)
{
    weft_sample_t sample = {.iters = ROUNDS};
    double least = 0, most = 0;
    weft_status_t status = play(ping, bytes, CHECKED, true);
    sample.wrong = (size_t)ping->result[1];
    for (int i = 0; i < bench->repeat && status == WEFT_OK; i++) {
        status = play(ping, bytes, ROUNDS, false);
        double us = ping->result[0] / 1e3;
        sample.us[sample.repeats++] = us;
        least = i == 0 || us < least ? us : least;
        most = us > most ? us : most;
    }
    if (status == WEFT_OK && ping->cuda->rank == 0) {
        printf("%12zu %10.3f %10.3f %10.3f %8zu\n", bytes, weft__sample_median(&sample), least,
               most, sample.wrong);
        fflush(stdout);
    }
    *wrong_p += sample.wrong;
    return status;
}

weft_status_t weft__bench_put_signal(const weft_bench_t *bench, weft_comm_h comm, size_t *wrong_p)
{
    void *result = NULL;
    *wrong_p = 0;
    if (!weft__device_is_cuda() || comm->size < 2) {
        return weft__fail(WEFT_ERR_UNSUPPORTED,
                          "put-signal is measured inside kernels, between 2 ranks: give --device "
                          "cuda and -n 2");
    }
    ping_t ping = {.cuda = comm->ctx};
    weft_status_t status = weft_stream_create(&ping.stream);
    status = status == WEFT_OK ? weft_host_malloc(&result, 2 * sizeof(double)) : status;
    if (status == WEFT_OK && comm->rank == 0) {
        printf("# put with signal from inside a kernel, one way, ranks 0 and 1 of %d; median, least "
               "and most of %d loops of %d\n%12s %10s %10s %10s %8s\n",
               comm->size, bench->repeat, ROUNDS, "bytes", "us", "least", "most", "wrong");
    }
    ping.result = result;
    for (size_t bytes = bench->min; bytes <= bench->max && bytes <= WEFT_CUDA_PING_BYTES &&
                                    status == WEFT_OK;) {
        status = measure(&ping, bench, bytes, wrong_p);
        size_t next = (size_t)((double)bytes * bench->factor);
        bytes = next > bytes ? next : bytes + 1;
    }
    if (ping.stream) {
        weft_stream_destroy(ping.stream);
    }
    weft_host_free(result);
    return status;
}
