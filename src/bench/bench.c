/* Runs a collective over a range of sizes, times it and verifies what it left behind. */
#include "bench/bench.h"

#include <math.h>
#include <string.h>

#include "base/log.h"
#include "bench/advise.h"
#include "bench/graph.h"
#include "bench/pair.h"
#include "bench/pattern.h"
#include "bench/put.h"
#include "bench/table.h"
#include "bench/timed.h"
#include "bench/tune.h"
#include "comm/comm.h"
#include "device/device.h"

#define TARGET_NS 30e6 /* length of a timed loop */
#define GRAPH_CALLS 20

/* Sends and receives are measured as a ping-pong between neighbours. */
#define SENDRECV WEFT_COLL_SEND

/* No call at all: every rank copies its own buffer, at the same time. S bytes read and S written
 * per rank is also the least that an all-reduce can do, so this is the floor to hold it against. */
#define COPY WEFT_COLL_RECV

typedef struct run {
    const weft_bench_t *bench;
    weft_comm_h comm;
    int rank, size;
    weft_coll_t coll;
    size_t count; /* elements of a block */
    size_t element;
    char *a, *b; /* two buffers of `max` bytes, plus a block */
    bool in_place;
    weft_store_t store; /* for COPY */
    weft_pattern_t pattern;
    /* On GPUs calls go to a stream, and data is made and verified in host memory. */
    weft_stream_h stream; /* NULL: virtual GPUs */
    char *host;
    void *graph; /* GRAPH_CALLS calls; NULL: not captured */
} run_t;

static const char *name_of(weft_coll_t coll)
{
    return coll == SENDRECV ? "sendrecv" : coll == COPY ? "copy" : weft__coll_info[coll].name;
}

static bool selected(const char *name, weft_coll_t coll)
{
    if (coll == WEFT_COLL_ALLTOALLV) {
        return false; /* its counts are not one number */
    }
    return strcmp(name, name_of(coll)) == 0 || (strcmp(name, "all") == 0 && coll != COPY) ||
           (coll == SENDRECV && strcmp(name, "p2p") == 0);
}

const char *weft__bench_name(int i)
{
    static const char *const names[] = {"allreduce", "reduce",   "broadcast", "reduce_scatter",
                                        "allgather", "gather",   "scatter",   "alltoall",
                                        "barrier",   "sendrecv", "p2p",       "copy",
                                        "all"};
    const int count = (int)(sizeof(names) / sizeof(names[0]));
    return i < count ? names[i] : weft__pair_target(i - count);
}

/* ---- one call --------------------------------------------------------------------------- */

/* Where src and dst are: in place they lie in one buffer as the collective demands. */
static void buffers(const run_t *run, char **src_p, char **dst_p)
{
    size_t here = (size_t)run->rank * run->count * run->element;
    *src_p = run->a;
    *dst_p = run->b;
    if (!run->in_place) {
        return;
    }
    switch (run->coll) {
    case WEFT_COLL_REDUCE_SCATTER:
        *dst_p = run->a + here;
        break;
    case WEFT_COLL_SCATTER:
        *dst_p = run->rank == run->bench->root ? run->a + here : run->b;
        break;
    case WEFT_COLL_ALLGATHER:
        *dst_p = run->a;
        *src_p = run->a + here;
        break;
    case WEFT_COLL_GATHER:
        *dst_p = run->a;
        *src_p = run->rank == run->bench->root ? run->a + here : run->b;
        break;
    default:
        *dst_p = run->a;
    }
}

/* Half a round trip is one message; a rank without a partner has nothing to do. */
static weft_status_t ping_pong(const run_t *run, char *src, char *dst)
{
    int partner = run->rank ^ 1;
    weft_dtype_t type = run->bench->type;
    if (partner >= run->size) {
        return WEFT_OK;
    }
    if (run->rank < partner) {
        WEFT_TRY(weft_send(src, run->count, type, partner, run->comm, run->stream));
        return weft_recv(dst, run->count, type, partner, run->comm, run->stream);
    }
    WEFT_TRY(weft_recv(dst, run->count, type, partner, run->comm, run->stream));
    return weft_send(src, run->count, type, partner, run->comm, run->stream);
}

static weft_status_t call_once(const run_t *run)
{
    const weft_bench_t *b = run->bench;
    weft_comm_h comm = run->comm;
    weft_stream_h stream = run->stream;
    size_t n = run->count;
    char *src, *dst;
    buffers(run, &src, &dst);
    switch (run->coll) {
    case WEFT_COLL_ALLREDUCE:
        return weft_allreduce(src, dst, n, b->type, b->op, comm, stream);
    case WEFT_COLL_REDUCE:
        return weft_reduce(src, dst, n, b->type, b->op, b->root, comm, stream);
    case WEFT_COLL_BROADCAST:
        return weft_broadcast(src, dst, n, b->type, b->root, comm, stream);
    case WEFT_COLL_REDUCE_SCATTER:
        return weft_reduce_scatter(src, dst, n, b->type, b->op, comm, stream);
    case WEFT_COLL_ALLGATHER:
        return weft_allgather(src, dst, n, b->type, comm, stream);
    case WEFT_COLL_GATHER:
        return weft_gather(src, dst, n, b->type, b->root, comm, stream);
    case WEFT_COLL_SCATTER:
        return weft_scatter(src, dst, n, b->type, b->root, comm, stream);
    case WEFT_COLL_ALLTOALL:
        return weft_alltoall(src, dst, n, b->type, comm, stream);
    case WEFT_COLL_BARRIER:
        return weft_barrier(comm, stream);
    case COPY:
        if (stream) {
            return weft_memcpy(dst, src, n * run->element, stream);
        }
        weft__kernels()->copy(dst, src, n * run->element, run->store);
        return WEFT_OK;
    default:
        return ping_pong(run, src, dst);
    }
}

/* ---- data ------------------------------------------------------------------------------- */

/* to = elements [first, first + count) of `rank`. */
static weft_status_t put(const run_t *run, int rank, size_t first, size_t count, char *to)
{
    char *at = run->stream ? run->host : to;
    weft__pattern_fill(&run->pattern, rank, first, count, at);
    return run->stream ? weft_memcpy(to, at, count * run->element, NULL) : WEFT_OK;
}

/* How many of those at `from` are wrong; all of them if they cannot be had. */
static size_t compare(const run_t *run, int rank, size_t first, size_t count, const char *from)
{
    if (run->stream && weft_memcpy(run->host, from, count * run->element, NULL) != WEFT_OK) {
        return count;
    }
    return weft__pattern_check(&run->pattern, rank, first, count, run->stream ? run->host : from);
}

static weft_status_t prepare(const run_t *run)
{
    char *src, *dst;
    buffers(run, &src, &dst);
    const weft_call_t call = {.coll = run->coll, .root = run->bench->root};
    int src_blocks = weft__call_src_blocks(&call, run->rank, run->size);
    int dst_blocks = weft__call_dst_blocks(&call, run->rank, run->size);
    if (run->coll == SENDRECV || run->coll == COPY) {
        src_blocks = dst_blocks = 1;
    }
    /* Poison what will be written, then put the source in: in place they overlap. */
    WEFT_TRY(weft_memset(dst, 0xA5, (size_t)dst_blocks * run->count * run->element, NULL));
    return put(run, run->rank, 0, (size_t)src_blocks * run->count, src);
}

static size_t verify(const run_t *run)
{
    char *src, *dst;
    buffers(run, &src, &dst);
    size_t n = run->count, bytes = n * run->element, wrong = 0;
    size_t me = (size_t)run->rank;
    int root = run->bench->root;
    switch (run->coll) {
    case WEFT_COLL_ALLREDUCE:
        return compare(run, -1, 0, n, dst);
    case WEFT_COLL_REDUCE:
        return run->rank == root ? compare(run, -1, 0, n, dst) : 0;
    case WEFT_COLL_BROADCAST:
        return compare(run, root, 0, n, dst);
    case COPY:
        return compare(run, run->rank, 0, n, dst);
    case WEFT_COLL_REDUCE_SCATTER:
        return compare(run, -1, me * n, n, dst);
    case WEFT_COLL_SCATTER:
        return compare(run, root, me * n, n, dst);
    case WEFT_COLL_GATHER:
    case WEFT_COLL_ALLGATHER:
        for (int r = 0; r < run->size && (run->coll == WEFT_COLL_ALLGATHER || run->rank == root);
             r++) {
            wrong += compare(run, r, 0, n, dst + (size_t)r * bytes);
        }
        return wrong;
    case WEFT_COLL_ALLTOALL:
        for (int r = 0; r < run->size; r++) {
            wrong += compare(run, r, me * n, n, dst + (size_t)r * bytes);
        }
        return wrong;
    case SENDRECV:
        return (run->rank ^ 1) < run->size ? compare(run, run->rank ^ 1, 0, n, dst) : 0;
    default:
        return 0;
    }
}

/* ---- timing ----------------------------------------------------------------------------- */

static weft_status_t call_many(void *ctx, int iters)
{
    const run_t *run = ctx;
    for (int i = 0; i < iters; i += run->graph ? GRAPH_CALLS : 1) {
        WEFT_TRY(run->graph ? weft__bench_replay(run->graph, run->stream) : call_once(run));
    }
    return run->stream ? weft_stream_synchronize(run->stream) : WEFT_OK;
}

/* The calls of a graph, all on one stream. */
static weft_status_t capture(run_t *run)
{
    weft_status_t status = weft__bench_record(run->stream);
    for (int i = 0; i < GRAPH_CALLS && status == WEFT_OK; i++) {
        status = call_once(run);
    }
    return status == WEFT_OK ? weft__bench_recorded(run->stream, &run->graph) : status;
}

static weft_status_t time_calls(run_t *run, weft_sample_t *sample)
{
    const weft_timed_t timed = {run->comm, call_many, run,
                                TARGET_NS, 5,         run->graph ? GRAPH_CALLS : 1};
    double ns;
    if (run->bench->iters) {
        sample->iters = run->bench->iters;
        WEFT_TRY(weft__timed_loop(&timed, 2, &ns)); /* warm up */
    } else {
        WEFT_TRY(weft__timed_fit(&timed, &sample->iters));
    }
    for (sample->repeats = 0; sample->repeats < run->bench->repeat; sample->repeats++) {
        WEFT_TRY(weft__timed_loop(&timed, sample->iters, &ns));
        sample->us[sample->repeats] = (run->coll == SENDRECV ? ns / 2 : ns) / 1e3;
    }
    return WEFT_OK;
}

static weft_status_t measure_form(run_t *run, weft_sample_t *sample)
{
    size_t wrong = 0;
    WEFT_TRY(prepare(run));
    WEFT_TRY(weft_barrier(run->comm, NULL));
    WEFT_TRY(call_many(run, 1));
    if (run->bench->check) {
        wrong += verify(run);
        WEFT_TRY(weft_barrier(run->comm, NULL));
    }
    if (run->bench->graph) {
        WEFT_TRY(capture(run));
    }
    WEFT_TRY(time_calls(run, sample));
    if (run->bench->check && !run->in_place) {
        wrong += verify(run);
    }
    return weft__timed_wrong(run->comm, wrong, &sample->wrong);
}

/* One size, one form: verify on fresh data, time, and (out of place) verify what the loop left. */
static weft_status_t measure(run_t *run, weft_sample_t *sample)
{
    weft_status_t status = measure_form(run, sample);
    if (run->graph) {
        weft__bench_forget(run->graph, run->stream);
        run->graph = NULL;
    }
    return status;
}

static bool has_in_place(weft_coll_t coll)
{
    return coll != WEFT_COLL_BARRIER && coll != SENDRECV && coll != COPY;
}

static weft_status_t measure_size(run_t *run, size_t bytes, weft_table_t *table, size_t *wrong_p)
{
    const weft_coll_info_t *info = &weft__coll_info[run->coll];
    bool blocks = info->src_blocks == 'S' || info->dst_blocks == 'S';
    weft_row_t row = {.collective = name_of(run->coll)};
    run->count = bytes / run->element / (blocks ? (size_t)run->size : 1);
    run->count += run->count == 0 && bytes > 0; /* at least an element per block */
    row.count = run->count;
    row.asked = bytes;
    row.bytes = run->count * run->element * (blocks ? (size_t)run->size : 1);
    /* A copy is stored as an all-reduce of that size would be. */
    weft_coll_t chooses = run->coll == COPY ? WEFT_COLL_ALLREDUCE : run->coll;
    row.choice = weft__comm_choose(run->comm, chooses, run->count * run->element);
    run->store = row.choice.store;
    run->pattern.salt++;
    run->in_place = false;
    weft_status_t status = measure(run, &row.out_of_place);
    if (status == WEFT_OK && has_in_place(run->coll)) {
        run->in_place = true;
        row.has_in_place = true;
        status = measure(run, &row.in_place);
    }
    if (status == WEFT_OK) {
        *wrong_p += row.out_of_place.wrong + (row.has_in_place ? row.in_place.wrong : 0);
        weft__table_row(table, &row);
    }
    return status;
}

static weft_status_t time_for_tuning(void *ctx, size_t bytes, double *us_p)
{
    run_t *run = ctx;
    weft_sample_t sample;
    run->count = bytes / run->element;
    run->in_place = false;
    weft_status_t status = measure(run, &sample);
    *us_p = sample.us[0];
    for (int i = 1; i < sample.repeats; i++) {
        *us_p = sample.us[i] < *us_p ? sample.us[i] : *us_p;
    }
    if (status == WEFT_OK && sample.wrong > 0) {
        return weft__fail(WEFT_ERR_SYSTEM, "%zu wrong elements while tuning", sample.wrong);
    }
    return status;
}

static bool can_be_tuned(weft_coll_t coll)
{
    return coll != WEFT_COLL_BARRIER && coll != SENDRECV && coll != COPY;
}

static weft_status_t measure_coll(run_t *run, weft_table_t *table, size_t *wrong_p)
{
    const weft_bench_t *b = run->bench;
    weft_status_t status = WEFT_OK;
    if (b->tune) {
        return can_be_tuned(run->coll)
                   ? weft__bench_tune(run->comm, run->coll, time_for_tuning, run)
                   : WEFT_OK;
    }
    if (run->coll == WEFT_COLL_BARRIER) {
        return measure_size(run, 0, table, wrong_p);
    }
    size_t bytes = b->min;
    while (bytes <= b->max && status == WEFT_OK) {
        status = measure_size(run, bytes, table, wrong_p);
        size_t next = (size_t)ceil((double)bytes * b->factor);
        bytes = next > bytes ? next : bytes + 1;
    }
    return status;
}

weft_status_t weft__bench_run(const weft_bench_t *bench, weft_comm_h comm, size_t *wrong_p)
{
    if (bench->advise) {
        return weft__bench_advise(bench, comm, wrong_p);
    }
    if (strcmp(bench->collective, "put-signal") == 0 && weft__device_is_cuda()) {
        return weft__bench_put_signal(bench, comm, wrong_p);
    }
    if (weft__pair_knows(bench->collective)) {
        return weft__pair_bench(bench, comm, wrong_p);
    }
    void *a = NULL, *b = NULL, *host = NULL;
    char why[WEFT_ERROR_TEXT]; /* cleaning up may fail as well */
    run_t run = {.bench = bench,
                 .comm = comm,
                 .rank = comm->rank,
                 .size = comm->size,
                 .element = weft_dtype_size(bench->type),
                 .pattern = {bench->type, bench->op, comm->size, 1}};
    weft_table_t lines = {.bench = bench, .ranks = comm->size}, *table = NULL;
    size_t least = (size_t)comm->size * run.element;
    size_t most = bench->tune ? ((size_t)64 << 20) * (size_t)comm->size : bench->max;
    size_t room = (most > least ? most : least) + 64;
    *wrong_p = 0;
    weft_status_t status = weft_malloc(&a, room);
    status = status == WEFT_OK ? weft_malloc(&b, room) : status;
    if (status == WEFT_OK && run.rank == 0 && !bench->tune) {
        status = weft__samples_open(&lines.result, bench, run.size);
        table = status == WEFT_OK ? &lines : NULL;
    }
    run.a = a;
    run.b = b;
    if (status == WEFT_OK && weft__device_is_cuda()) {
        status = weft_stream_create(&run.stream);
        status = status == WEFT_OK ? weft_host_malloc(&host, room) : status;
        run.host = host;
    }
    if (status != WEFT_OK) {
        goto out;
    }
    status = weft_memset(a, 1, room, NULL); /* pages exist before anything is timed */
    status = status == WEFT_OK ? weft_memset(b, 1, room, NULL) : status;
    for (int c = 0; c < WEFT_COLL_COUNT && status == WEFT_OK; c++) {
        run.coll = (weft_coll_t)c;
        if (selected(bench->collective, run.coll)) {
            status = measure_coll(&run, table, wrong_p);
        }
    }
out:
    snprintf(why, sizeof(why), "%s", status == WEFT_OK ? "" : weft_last_error());
    if (table) {
        weft_status_t closed = weft__table_close(table, status, *wrong_p);
        status = status == WEFT_OK ? closed : status;
    }
    weft_stream_destroy(run.stream);
    weft_host_free(host);
    weft_free(a);
    weft_free(b);
    return status == WEFT_OK || why[0] == '\0' ? status : weft__fail(status, "%s", why);
}
