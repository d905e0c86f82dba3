/* Pairs: the same work done in several ways, timed next to each other in one run and compared.
 *
 * ways[0] is the baseline. The others are what is held against it: a one-sided pattern against
 * sends and receives, compressed gradients against f32, buckets against single tensors. All must
 * leave the same results, or results within a bound that the pair states; check() runs each on
 * fresh data and counts what differs from a reference that none of them made.
 *
 * A pair is a const table in a file below src/bench/, and a line in pairs.c. `weft bench NAME` and
 * `weft pairs run NAME` then measure it, by weft__pair_measure, which knows nothing of what a pair
 * does:
 *
 *     static const weft_pair_t weft__pair_x = {
 *         .target = "x", .group = "links", .text = "what one round does",
 *         .ways = {{"slow", slowly}, {"fast", quickly}}, .min = 1 << 10, .max = 1 << 20,
 *         .open = open_x, .check = check_x};
 *
 * A round may take microseconds or seconds: a loop is as many rounds as fill some milliseconds, at
 * least one. */
#ifndef WEFT_BENCH_PAIR_H
#define WEFT_BENCH_PAIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weft/symm.h>
#include <weft/weft.h>

#include "base/log.h"
#include "base/trace.h"
#include "bench/bench.h"
#include "bench/samples.h"

#define WEFT_PAIR_OWNED 16
#define WEFT_PAIR_WAYS 6

typedef struct weft_pair_run {
    const struct weft_pair *pair;
    weft_comm_h comm;
    weft_symm_h symm; /* NULL unless the pair has a heap */
    int rank, size;
    size_t bytes;         /* the size under way */
    uint64_t seed;        /* of the data: another one for every check, the same on all ranks */
    double parts;         /* what is timed happens so often in a round: 1 unless open() says more */
    weft_stream_h stream; /* GPUs: where calls go; NULL on virtual ones */
    void *ctx;            /* the pair's own */

    /* Bytes of memory that way i needs on this rank, where that is part of the comparison: set by
     * open() or by the way's loop. The most over ranks is reported. 0: not said. */
    uint64_t held[WEFT_PAIR_WAYS];

    struct {
        void *memory;
        weft_status_t (*release)(void *memory);
    } owned
        [WEFT_PAIR_OWNED]; /* what the calls below allocated; the driver frees it after close() */
    int owned_count;
} weft_pair_run_t;

typedef weft_status_t (*weft_pair_loop_fn)(weft_pair_run_t *run, int rounds);

typedef struct weft_pair_way {
    const char *name; /* as the head of a column: "send/recv" */

    /* Required: `rounds` times; called by all ranks after a barrier. */
    weft_pair_loop_fn loop;
} weft_pair_way_t;

typedef struct weft_pair {
    const char *target; /* what is given to weft bench and weft pairs run: "handoff" */
    const char *name;   /* this row of it: "put"; NULL: the target has one */
    const char *group;  /* "one-sided", "links", "compression", "data parallel" ... */
    const char *text;   /* what a round does */
    const char *bound;  /* how far results may be apart: "2^-9 of the largest"; NULL: equal */
    const char *advise; /* the operation it stands for in --advise; NULL: none */
    size_t min, max;    /* bytes, where the user gives none; 0: it has no size */
    size_t unit;        /* bytes are rounded up to a multiple of it; 0: any */
    bool shards;        /* ... of it times the number of ranks */
    int ranks;          /* it needs so many */
    bool gpu;           /* also runs on GPUs */

    /* ways[0] is the baseline; the first without a loop ends the list. With one way alone it is a
     * benchmark, and no matter for weft pairs. */
    weft_pair_way_t ways[WEFT_PAIR_WAYS];

    /* Optional, by the number of a way, asked after open(): why it cannot run here, in words
     * ("graphs need a GPU"); NULL: it can. The same on all ranks. Not for the baseline. */
    const char *(*absent[WEFT_PAIR_WAYS])(const weft_pair_run_t *run);

    /* Bytes that its allocations take on the symmetric heap of each rank; NULL: it has none. */
    size_t (*heap)(const weft_pair_run_t *run);

    /* Required, collective: buffers and state for run->bytes. */
    weft_status_t (*open)(weft_pair_run_t *run);

    /* Optional: ends what open began and what is not memory. Called as well if open failed, if it
     * has set run->ctx. */
    void (*close)(weft_pair_run_t *run);

    /* Optional: plain copies of as many bytes as one rank has to move in a round, a floor for
     * all. */
    weft_pair_loop_fn copy;

    /* Required, collective: results of this rank, of all ways, that are wrong. */
    weft_status_t (*check)(weft_pair_run_t *run, size_t *wrong_p);
} weft_pair_t;

/* Ways of the pair; 1 or more. */
int weft__pair_ways(const weft_pair_t *pair);

#define WEFT_PAIR_TRACK 1 /* of a trace: loops of ways; row 0 has the pairs */

/* How a pair is measured. */
typedef struct weft_pair_plan {
    int iters;        /* rounds of a loop; 0: as many as fill loop_ns */
    double loop_ns;   /* length of a timed loop */
    int trials;       /* blocks that are run before, to find out how many rounds fill one */
    int least, most;  /* blocks, at most WEFT_SAMPLE_MOST; a block is one loop of every way */
    double budget_ns; /* more blocks than `least` only while all of them took less than that; ... */
    double half_width;   /* ... and until all ratios are as sure (bench/statistics.h) */
    bool check;          /* verify results */
    uint64_t seed;       /* of data and of the order inside blocks */
    weft_trace_t *trace; /* of this rank: gets a span for every loop; NULL: none is wanted */
} weft_pair_plan_t;

/* What came out for one size. */
typedef struct weft_pair_row {
    const weft_pair_t *pair;
    int ranks;
    size_t bytes;
    weft_sample_t ways[WEFT_PAIR_WAYS], copy; /* repeats == 0: not measured */
    const char *absent[WEFT_PAIR_WAYS];       /* why a way was left out; NULL: it was not */
    uint64_t held[WEFT_PAIR_WAYS];            /* bytes, the most over ranks; 0: not said */
    size_t wrong;
} weft_pair_row_t;

/* Median time of the baseline over that of way i; 0 if one of them was not measured. */
double weft__pair_ratio(const weft_pair_row_t *row, int i);

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

/* One pair at one size, as all ranks of `comm`; the row is the same on all of them. */
weft_status_t weft__pair_measure(const weft_pair_plan_t *plan, const weft_pair_t *pair,
                                 weft_comm_h comm, size_t bytes, weft_pair_row_t *row_p);

/* The plan of a benchmark, with a seed that all ranks share: as many blocks as the user asked
 * for. */
weft_status_t weft__pair_plan(const weft_bench_t *bench, weft_comm_h comm,
                              weft_pair_plan_t *plan_p);

/* "handoff/put", or the target alone where it has one row. */
#define WEFT_PAIR_LABEL 64
void weft__pair_label(const weft_pair_t *pair, char label[WEFT_PAIR_LABEL]);

/* Why the pair cannot run with the ranks of `comm` on the devices of this process; "": it can. */
void weft__pair_refusal(const weft_pair_t *pair, weft_comm_h comm, char *text, size_t room);

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
