/* Pairs: the same work done in two ways, timed in turns in one run and compared.
 *
 * One way is one-sided (puts, gets, atomics and signals on a symmetric heap), or compressed. The
 * other is what it has to be held against: sends and receives or a collective for the patterns,
 * memcpy for plain puts and gets. Both must leave the same results; check() runs each on fresh data
 * and counts what differs from a reference made by neither.
 *
 * A pair is a const table below src/bench/; the runner in pair.c knows nothing about what they
 * do. */
#ifndef WEFT_BENCH_PAIR_H
#define WEFT_BENCH_PAIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weft/symm.h>
#include <weft/weft.h>

#include "base/log.h"
#include "bench/bench.h"
#include "bench/samples.h"

#define WEFT_PAIR_OWNED 8

typedef struct weft_pair_run {
    const struct weft_pair *pair;
    weft_comm_h comm;
    weft_symm_h symm;
    int rank, size;
    size_t bytes;         /* the size under way */
    uint64_t seed;        /* of the data: another one for every check, the same on all ranks */
    double parts;         /* what is timed happens so often in a round: 1 unless open() says more */
    weft_stream_h stream; /* GPUs: where calls go; NULL on virtual ones */
    void *ctx;            /* the pair's own */
    struct {
        void *memory;
        weft_status_t (*release)(void *memory);
    } owned
        [WEFT_PAIR_OWNED]; /* what the calls below allocated; the driver frees it after close() */
    int owned_count;
} weft_pair_run_t;

typedef weft_status_t (*weft_pair_loop_fn)(weft_pair_run_t *run, int rounds);

typedef struct weft_pair {
    const char *target; /* what is given to weft bench: "atomic" */
    const char *name;   /* this row of it: "fetch-add"; NULL: the target has one */
    const char *text;   /* what is timed */
    const char *way;    /* the way that is timed, as the head of a column; NULL: one-sided */
    const char *other;  /* what it is held against, as the head of a column; NULL: nothing */
    const char *advise; /* the operation it stands for in --advise; NULL: none */
    size_t min, max;    /* bytes, where the user gives none; 0: it has no size */
    size_t unit;        /* bytes are rounded up to a multiple of it; 0: any */
    bool shards;        /* ... of it times the number of ranks */
    int ranks;          /* it needs so many */
    bool gpu;           /* also runs on GPUs */

    /* Bytes that its allocations take on the heap of each rank; NULL: it has none. */
    size_t (*heap)(const weft_pair_run_t *run);

    /* Required, collective: buffers and state for run->bytes. */
    weft_status_t (*open)(weft_pair_run_t *run);

    /* Optional: ends what open began and what is not memory. Called as well if open failed. */
    void (*close)(weft_pair_run_t *run);

    /* Required. The two ways, `rounds` times; called by all ranks after a barrier. two_sided is
     * NULL where there is no `other`. */
    weft_pair_loop_fn one_sided, two_sided;

    /* Optional: plain copies of as many bytes as one rank has to move in a round, a floor for
     * both. */
    weft_pair_loop_fn copy;

    /* Required, collective: results of this rank, of both ways, that are wrong. */
    weft_status_t (*check)(weft_pair_run_t *run, size_t *wrong_p);
} weft_pair_t;

/* What came out for one size. */
typedef struct weft_pair_row {
    const weft_pair_t *pair;
    int ranks;
    size_t bytes;
    weft_sample_t one_sided, two_sided, copy; /* repeats == 0: not measured */
    size_t wrong;
} weft_pair_row_t;

/* All pairs, ended by NULL. */
extern const weft_pair_t *const weft__pairs[];

/* The targets of `weft bench` that are pairs: number i, NULL after the last. */
const char *weft__pair_target(int i);
bool weft__pair_knows(const char *target);

/* Does the target have sizes? */
bool weft__pair_sized(const char *target);

/* Measure the pairs of bench->collective as one rank of `comm`; called by all of them. Rank 0
 * prints the tables and writes the JSON file. *wrong_p: wrong results over all ranks and sizes. */
weft_status_t weft__pair_bench(const weft_bench_t *bench, weft_comm_h comm, size_t *wrong_p);

/* The range of sizes: what the user gave, the pair's own where nothing was. */
void weft__pair_range(const weft_bench_t *bench, const weft_pair_t *pair, size_t *first_p,
                      size_t *last_p);

/* One pair at one size; the row is the same on all ranks. */
weft_status_t weft__pair_measure(const weft_bench_t *bench, const weft_pair_t *pair,
                                 weft_comm_h comm, size_t bytes, weft_pair_row_t *row_p);

/* ---- timing, of collectives too --------------------------------------------------------- */

typedef struct weft_timed {
    weft_comm_h comm;
    weft_status_t (*loop)(void *ctx, int iters); /* returns when all of it has happened */
    void *ctx;
    double target_ns; /* length of a timed loop */
    int least;        /* iterations of one */
    int unit;         /* ... are rounded up to a multiple of it */
} weft_timed_t;

/* Nanoseconds of an iteration, by the slowest rank; the same on all. */
weft_status_t weft__timed_loop(const weft_timed_t *timed, int iters, double *ns_p);

/* Warm up, and find out how many iterations fill a timed loop; the same on all ranks. */
weft_status_t weft__timed_fit(const weft_timed_t *timed, int *iters_p);

/* Wrong results over all ranks. */
weft_status_t weft__timed_wrong(weft_comm_h comm, size_t wrong, size_t *all_p);

/* ---- the table (pair_table.c) ----------------------------------------------------------- */

typedef struct weft_pair_table {
    const weft_bench_t *bench;
    const weft_pair_t *last; /* of the row before */
    weft_result_t result;
} weft_pair_table_t;

void weft__pair_table_row(weft_pair_table_t *table, const weft_pair_row_t *row);
/* `status`: what came of the measuring; only of one that succeeded it is said that all is
 * verified. */
weft_status_t weft__pair_table_close(weft_pair_table_t *table, weft_status_t status, size_t wrong);

/* ---- for pairs -------------------------------------------------------------------------- */

#define WEFT_PAIR_LINE 8 /* words of a cache line: signals of different ranks do not share one */

/* GPUs: wait for what was queued, and learn whether a kernel waited in vain. */
weft_status_t weft__pair_settle(const weft_pair_run_t *run);

/* Copy `rounds` times: memcpy, or on GPUs a copy on the stream. The floor that others are held
 * against. */
weft_status_t weft__pair_copy(const weft_pair_run_t *run, void *dst, const void *src, size_t bytes,
                              int rounds);

/* `lines` has a cache line for each rank. Wait until the first words of all others' are `value` or
 * more. */
weft_status_t weft__pair_await(const weft_pair_run_t *run, const uint64_t *lines, uint64_t value);

/* Memory that the driver frees: ctx, zero; of the device; of the host where GPUs reach it; private,
 * zero and a page aligned. */
weft_status_t weft__pair_ctx(weft_pair_run_t *run, size_t bytes, void **ctx_p);
weft_status_t weft__pair_device(weft_pair_run_t *run, size_t bytes, void **memory_p);
weft_status_t weft__pair_host(weft_pair_run_t *run, size_t bytes, void **memory_p);
weft_status_t weft__pair_private(weft_pair_run_t *run, size_t bytes, void **memory_p);

/* A small whole number that depends on all three: sums of it are exact in f32. */
float weft__pair_value(uint64_t seed, int rank, size_t i);

/* `count` of them. */
void weft__pair_fill(float *to, uint64_t seed, int rank, size_t count);

#endif
