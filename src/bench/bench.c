/* Runs a collective over a range of sizes, times it and verifies what it left behind. */
#include "bench/bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "bench/pattern.h"
#include "bench/table.h"
#include "comm/comm.h"

#define TARGET_NS 30e6 /* length of a timed loop */
#define MOST_ITERS 20000

/* Sends and receives are measured as a ping-pong between neighbours. */
#define SENDRECV WEFT_COLL_SEND

/* No call at all: every rank copies its own buffer, at the same time. S bytes read and S written per
 * rank is also the least that an all-reduce can do, so this is the floor to hold it against. */
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

bool weft__bench_knows(const char *name)
{
    bool known = false;
    for (int c = 0; c < WEFT_COLL_COUNT; c++) {
        known = known || selected(name, (weft_coll_t)c);
    }
    return known;
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
        weft_status_t status = weft_send(src, run->count, type, partner, run->comm, NULL);
        return status != WEFT_OK ? status
                                 : weft_recv(dst, run->count, type, partner, run->comm, NULL);
    }
    weft_status_t status = weft_recv(dst, run->count, type, partner, run->comm, NULL);
    return status != WEFT_OK ? status : weft_send(src, run->count, type, partner, run->comm, NULL);
}

static weft_status_t call_once(const run_t *run)
{
    const weft_bench_t *b = run->bench;
    weft_comm_h comm = run->comm;
    size_t n = run->count;
    char *src, *dst;
    buffers(run, &src, &dst);
    switch (run->coll) {
    case WEFT_COLL_ALLREDUCE:
        return weft_allreduce(src, dst, n, b->type, b->op, comm, NULL);
    case WEFT_COLL_REDUCE:
        return weft_reduce(src, dst, n, b->type, b->op, b->root, comm, NULL);
    case WEFT_COLL_BROADCAST:
        return weft_broadcast(src, dst, n, b->type, b->root, comm, NULL);
    case WEFT_COLL_REDUCE_SCATTER:
        return weft_reduce_scatter(src, dst, n, b->type, b->op, comm, NULL);
    case WEFT_COLL_ALLGATHER:
        return weft_allgather(src, dst, n, b->type, comm, NULL);
    case WEFT_COLL_GATHER:
        return weft_gather(src, dst, n, b->type, b->root, comm, NULL);
    case WEFT_COLL_SCATTER:
        return weft_scatter(src, dst, n, b->type, b->root, comm, NULL);
    case WEFT_COLL_ALLTOALL:
        return weft_alltoall(src, dst, n, b->type, comm, NULL);
    case WEFT_COLL_BARRIER:
        return weft_barrier(comm, NULL);
    case COPY:
        weft__kernels()->copy(dst, src, n * run->element, run->store);
        return WEFT_OK;
    default:
        return ping_pong(run, src, dst);
    }
}

/* ---- data ------------------------------------------------------------------------------- */

static void prepare(const run_t *run)
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
    memset(dst, 0xA5, (size_t)dst_blocks * run->count * run->element);
    weft__pattern_fill(&run->pattern, run->rank, 0, (size_t)src_blocks * run->count, src);
}

static size_t verify(const run_t *run)
{
    char *src, *dst;
    buffers(run, &src, &dst);
    size_t n = run->count, bytes = n * run->element, wrong = 0;
    size_t me = (size_t)run->rank;
    int root = run->bench->root;
    const weft_pattern_t *p = &run->pattern;
    switch (run->coll) {
    case WEFT_COLL_ALLREDUCE:
        return weft__pattern_check(p, -1, 0, n, dst);
    case WEFT_COLL_REDUCE:
        return run->rank == root ? weft__pattern_check(p, -1, 0, n, dst) : 0;
    case WEFT_COLL_BROADCAST:
        return weft__pattern_check(p, root, 0, n, dst);
    case COPY:
        return weft__pattern_check(p, run->rank, 0, n, dst);
    case WEFT_COLL_REDUCE_SCATTER:
        return weft__pattern_check(p, -1, me * n, n, dst);
    case WEFT_COLL_SCATTER:
        return weft__pattern_check(p, root, me * n, n, dst);
    case WEFT_COLL_GATHER:
    case WEFT_COLL_ALLGATHER:
        for (int r = 0; r < run->size && (run->coll == WEFT_COLL_ALLGATHER || run->rank == root);
             r++) {
            wrong += weft__pattern_check(p, r, 0, n, dst + (size_t)r * bytes);
        }
        return wrong;
    case WEFT_COLL_ALLTOALL:
        for (int r = 0; r < run->size; r++) {
            wrong += weft__pattern_check(p, r, me * n, n, dst + (size_t)r * bytes);
        }
        return wrong;
    case SENDRECV:
        return (run->rank ^ 1) < run->size ? weft__pattern_check(p, run->rank ^ 1, 0, n, dst) : 0;
    default:
        return 0;
    }
}

/* ---- timing ----------------------------------------------------------------------------- */

static weft_status_t loop(const run_t *run, int iters, double *ns_p)
{
    weft_status_t status = weft_barrier(run->comm, NULL);
    uint64_t start = weft__now_ns();
    for (int i = 0; i < iters && status == WEFT_OK; i++) {
        status = call_once(run);
    }
    double ns = (double)(weft__now_ns() - start) / iters;
    if (status == WEFT_OK) {
        status = weft_allreduce(&ns, &ns, 1, WEFT_F64, WEFT_MAX, run->comm, NULL);
    }
    *ns_p = run->coll == SENDRECV ? ns / 2 : ns;
    return status;
}

/* Warm up, and find out how many iterations fill a timed loop; the same on all ranks. */
static weft_status_t calibrate(const run_t *run, int *iters_p)
{
    double ns;
    int iters = 1;
    weft_status_t status = loop(run, 2, &ns);
    while (status == WEFT_OK && run->bench->iters == 0) {
        status = loop(run, iters, &ns);
        if (ns * iters > TARGET_NS / 8 || iters >= MOST_ITERS) {
            break;
        }
        iters *= 4;
    }
    double fill = ns > 0 ? TARGET_NS / ns : MOST_ITERS;
    iters = fill < 5 ? 5 : fill > MOST_ITERS ? MOST_ITERS : (int)fill;
    *iters_p = run->bench->iters ? run->bench->iters : iters;
    return status;
}

static weft_status_t sum_wrong(const run_t *run, size_t wrong, size_t *all_p)
{
    uint64_t all = wrong;
    weft_status_t status = weft_allreduce(&all, &all, 1, WEFT_U64, WEFT_SUM, run->comm, NULL);
    *all_p = (size_t)all;
    return status;
}

/* One size, one form: verify on fresh data, time, and (out of place) verify what the loop left. */
static weft_status_t measure(run_t *run, weft_sample_t *sample)
{
    size_t wrong = 0;
    prepare(run);
    weft_status_t status = weft_barrier(run->comm, NULL);
    if (status == WEFT_OK) {
        status = call_once(run);
    }
    if (status == WEFT_OK && run->bench->check) {
        wrong += verify(run);
        status = weft_barrier(run->comm, NULL);
    }
    if (status == WEFT_OK) {
        status = calibrate(run, &sample->iters);
    }
    sample->repeats = 0;
    for (int i = 0; i < run->bench->repeat && status == WEFT_OK; i++) {
        double ns;
        status = loop(run, sample->iters, &ns);
        sample->us[sample->repeats++] = ns / 1e3;
    }
    if (status == WEFT_OK && run->bench->check && !run->in_place) {
        wrong += verify(run);
    }
    return status == WEFT_OK ? sum_wrong(run, wrong, &sample->wrong) : status;
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
    row.choice = weft__tuner_choose(&run->comm->tuner, chooses, run->count * run->element);
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

static weft_status_t measure_coll(run_t *run, weft_table_t *table, size_t *wrong_p)
{
    const weft_bench_t *b = run->bench;
    weft_status_t status = WEFT_OK;
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
    void *a = NULL, *b = NULL;
    run_t run = {.bench = bench,
                 .comm = comm,
                 .rank = comm->rank,
                 .size = comm->size,
                 .element = weft_dtype_size(bench->type),
                 .pattern = {bench->type, bench->op, comm->size, 1}};
    weft_table_t *table = NULL;
    size_t least = (size_t)comm->size * run.element;
    size_t room = (bench->max > least ? bench->max : least) + 64;
    *wrong_p = 0;
    weft_status_t status = weft_malloc(&a, room);
    status = status == WEFT_OK ? weft_malloc(&b, room) : status;
    if (status == WEFT_OK && run.rank == 0) {
        status = weft__table_open(bench, run.size, &table);
    }
    run.a = a;
    run.b = b;
    if (status != WEFT_OK) {
        goto out;
    }
    memset(a, 1, room); /* pages exist before anything is timed */
    memset(b, 1, room);
    for (int c = 0; c < WEFT_COLL_COUNT && status == WEFT_OK; c++) {
        run.coll = (weft_coll_t)c;
        if (selected(bench->collective, run.coll)) {
            status = measure_coll(&run, table, wrong_p);
        }
    }
out:
    if (table) {
        weft_status_t closed = weft__table_close(table, *wrong_p);
        status = status == WEFT_OK ? closed : status;
    }
    weft_free(a);
    weft_free(b);
    return status;
}
