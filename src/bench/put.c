#include "bench/put.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "bench/patterns/gpu.h"
#include "bench/samples.h"
#include "bench/table.h"
#include "comm/comm.h"

#define ROUNDS 2000
#define CHECKED 100

typedef struct game {
    weft_comm_h comm;
    weft_symm_h symm;
    weft_symm_view_t view;
    weft_stream_h stream;
    weft_bench_ping_t ping;
    weft_result_t result; /* rank 0 */
} game_t;

static weft_status_t play(game_t *game, size_t bytes, int rounds, bool check)
{
    weft_status_t status = weft_barrier(game->comm, NULL);
    if (status != WEFT_OK || game->comm->rank > 1) {
        return status;
    }
    game->ping.bytes = bytes;
    game->ping.rounds = rounds;
    game->ping.check = check;
    int error = weft__bench_kernels()->ping(weft__bench_gpu(game->comm), &game->view, &game->ping,
                                            weft__cuda_stream(game->stream));
    game->ping.base += (uint64_t)rounds + 1;
    WEFT_TRY(weft__cuda_status(error, "the kernel of a put"));
    WEFT_TRY(weft_stream_synchronize(game->stream));
    return weft_symm_error(game->symm);
}

static void json_row(weft_json_t *json, size_t bytes, const weft_sample_t *sample)
{
    weft__json_object(json, NULL);
    weft__json_string(json, "target", "put-signal");
    weft__json_string(json, "name", "inside a kernel");
    weft__json_uint(json, "bytes", bytes);
    weft__sample_write(json, "us", sample);
    weft__json_int(json, "iters", sample->iters);
    weft__json_uint(json, "wrong", sample->wrong);
    weft__json_end(json);
}

static weft_status_t measure(game_t *game, const weft_bench_t *bench, size_t bytes, size_t *wrong_p)
{
    weft_sample_t sample = {.iters = ROUNDS};
    double least = 0, most = 0;
    weft_status_t status = play(game, bytes, CHECKED, true);
    sample.wrong = (size_t)game->ping.result[1];
    for (int i = 0; i < bench->repeat && status == WEFT_OK; i++) {
        status = play(game, bytes, ROUNDS, false);
        double us = game->ping.result[0] / 1e3;
        sample.us[sample.repeats++] = us;
        least = i == 0 || us < least ? us : least;
        most = us > most ? us : most;
    }
    if (status == WEFT_OK && game->comm->rank == 0) {
        printf("%12zu %10.3f %10.3f %10.3f %8zu\n", bytes, weft__sample_median(&sample), least,
               most, sample.wrong);
        fflush(stdout);
        if (game->result.file) {
            json_row(&game->result.json, bytes, &sample);
        }
    }
    *wrong_p += sample.wrong;
    return status;
}

static weft_status_t set_up(game_t *game)
{
    void *buffer, *signal, *result;
    weft_status_t status = weft_symm_create(game->comm, 2 * WEFT_BENCH_PING_BYTES, &game->symm);
    status = status == WEFT_OK ? weft__bench_load(game->comm) : status;
    status = status == WEFT_OK ? weft_symm_view(game->symm, &game->view) : status;
    status = status == WEFT_OK ? weft_symm_malloc(game->symm, WEFT_BENCH_PING_BYTES, &buffer)
                               : status;
    status = status == WEFT_OK ? weft_symm_malloc(game->symm, sizeof(uint64_t), &signal) : status;
    status = status == WEFT_OK ? weft_stream_create(&game->stream) : status;
    status = status == WEFT_OK ? weft_host_malloc(&result, 2 * sizeof(double)) : status;
    if (status == WEFT_OK) {
        memset(result, 0, 2 * sizeof(double)); /* ranks that only watch leave it so */
        game->ping = (weft_bench_ping_t){.buffer = buffer, .signal = signal, .result = result};
    }
    return status;
}

static weft_status_t clean_up(game_t *game, weft_status_t status)
{
    weft_stream_destroy(game->stream);
    weft_host_free(game->ping.result);
    weft_status_t destroyed = weft_symm_destroy(game->symm);
    return status == WEFT_OK ? destroyed : status;
}

weft_status_t weft__bench_put_signal(const weft_bench_t *bench, weft_comm_h comm, size_t *wrong_p)
{
    game_t game = {.comm = comm};
    *wrong_p = 0;
    if (!weft__device_is_cuda() || comm->size < 2) {
        return weft__fail(WEFT_ERR_UNSUPPORTED,
                          "put-signal is measured inside kernels, between 2 ranks: give --device "
                          "cuda and -n 2");
    }
    weft_status_t status = set_up(&game);
    if (status == WEFT_OK && comm->rank == 0) {
        status = weft__samples_open(&game.result, bench, comm->size);
    }
    if (status == WEFT_OK && comm->rank == 0) {
        printf(
            "# put with signal from inside a kernel, one way, ranks 0 and 1 of %d; median, least "
            "and most of %d loops of %d\n%12s %10s %10s %10s %8s\n",
            comm->size, bench->repeat, ROUNDS, "bytes", "us", "least", "most", "wrong");
    }
    size_t last = bench->max && bench->max < WEFT_BENCH_PING_BYTES ? bench->max
                                                                   : WEFT_BENCH_PING_BYTES;
    for (size_t bytes = bench->min ? bench->min : 8; bytes <= last && status == WEFT_OK;) {
        status = measure(&game, bench, bytes, wrong_p);
        size_t next = (size_t)((double)bytes * bench->factor);
        bytes = next > bytes ? next : bytes + 1;
    }
    return clean_up(&game, weft__samples_close(&game.result, status, *wrong_p));
}
