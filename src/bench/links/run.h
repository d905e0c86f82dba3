/* The state of one rank while links are measured, and its results. Inside of bench/links. */
#ifndef WEFT_BENCH_LINKS_RUN_H
#define WEFT_BENCH_LINKS_RUN_H

#include <stdint.h>
#include <string.h>

#include <weft/symm.h>

#include "base/json.h"
#include "bench/links.h"

#define WEFT_LINK_TEXT 32
#define WEFT_LINKS_ALGOS 4
#define WEFT_LINKS_SIZES 3
#define WEFT_LINKS_MEMORY 7
#define WEFT_LINKS_SENTENCE 512
#define WEFT_LINKS_MIN "--min" /* the source of an expectation that is the user's */

typedef struct weft_link_info {
    char text[WEFT_LINK_TEXT]; /* "same L3", "NV18 (NVLink 4)" */
    double expected_gbs;       /* one way, what a healthy one reaches at least; 0: not known */
    char source[WEFT_LINKS_SENTENCE / 4]; /* where that number is from */
} weft_link_info_t;

typedef struct weft_link {
    weft_link_info_t info;
    int kind; /* links of equal text have the same number */
    double one_way_gbs, both_ways_gbs, latency_us;
    bool slow;
    uint64_t wrong; /* bytes that did not arrive as they were sent */
} weft_link_t;

typedef struct weft_links_reduce {
    const char *algo;
    size_t bytes;
    double us;
    uint64_t wrong;
} weft_links_reduce_t;

typedef struct weft_links_memory {
    const char *where, *what; /* "local", "peer", "host"; "copy", "read", "write" */
    double gbs, least_gbs;    /* median over ranks; the slowest rank's */
    int least_rank;
    double expected_gbs; /* of the slowest rank's link; 0: not known */
} weft_links_memory_t;

typedef struct weft_links_finding {
    struct weft_links_finding *next;
    char text[WEFT_LINKS_SENTENCE];
} weft_links_finding_t;

/* What was found; complete on rank 0. */
typedef struct weft_links_results {
    int size;
    size_t bytes;
    size_t verified; /* bytes that were sent over each link and compared */
    bool messages;   /* sent and received: by kernels, not the copies that tables are of */
    int kinds;
    weft_link_t *links;   /* from x size + to; those from a rank to itself are empty */
    double *permutations; /* [size - 1]: GB/s of all ranks together, shift 1 first */
    double *alltoall;     /* [size]: GB/s that a rank sends to others */
    double alltoall_sum;
    uint64_t alltoall_wrong; /* bytes */
    weft_links_reduce_t reduce[WEFT_LINKS_ALGOS * WEFT_LINKS_SIZES];
    int reduces;
    weft_links_memory_t memory[WEFT_LINKS_MEMORY];
    int memories;
    weft_links_finding_t *findings, **findings_end;
    int finding_count;
} weft_links_results_t;

static inline weft_link_t *weft__links_at(const weft_links_results_t *results, int from, int to)
{
    return &results->links[(size_t)from * (size_t)results->size + (size_t)to];
}

/* Is the link held against what its kind should reach? Rates of tables are those of copies: what
 * messages reach is shown beside them, and compared with other links of its kind only. What the
 * user asks for by --min counts for both. */
static inline bool weft__links_expects(const weft_links_results_t *results, const weft_link_t *link)
{
    return link->kind >= 0 && link->info.expected_gbs > 0 &&
           (!results->messages || strcmp(link->info.source, WEFT_LINKS_MIN) == 0);
}

typedef struct weft_links_run {
    const weft_links_t *links;
    weft_comm_h comm;
    weft_symm_h symm;     /* NULL: ranks cannot reach each other's memory; messages instead */
    weft_stream_h stream; /* GPUs; NULL on virtual ones */
    weft_event_h begin, end;
    int rank, size;
    size_t bytes;   /* of a transfer */
    size_t slots;   /* transfers go to so many, one after the other, ... */
    size_t slot;    /* ... of which this is the next, so that they find no cache warm */
    double ns;      /* of a transfer, about */
    int iters;      /* transfers of a sample */
    char *dst;      /* slots x bytes that others write: symmetric, unless there are messages */
    char *src;      /* bytes, of this device */
    char *host;     /* bytes, of the host */
    char *all[2];   /* size x block bytes each, for all-to-all; NULL until then */
    uint64_t *go;   /* symmetric: the number of the step that may begin */
    uint64_t *tick; /* symmetric: what the ranks of a step tell each other */
    uint64_t *ping; /* symmetric: signals beside data */
    /* Counted alike by all ranks. */
    uint64_t steps, ticks;
    bool met; /* all ranks are here: the next step need not wait for `go` */
    uint64_t seed;
    int slow_from, slow_to, slow_percent; /* planted by the setting WEFT_TEST_SLOW_LINK */
} weft_links_run_t;

/* ---- run.c ------------------------------------------------------------------------------ */

weft_status_t weft__links_open(weft_links_run_t *run);
void weft__links_close(weft_links_run_t *run);

/* A step of a measurement: one rank, or two, are at work, and all others sleep. All ranks make the
 * same calls. */
typedef struct weft_links_step {
    int leader, partner; /* partner -1: none */
    int next;            /* leader of the step that follows; -1: all ranks meet first */
    int ticks;           /* signals that the two exchange */
    weft_status_t (*work)(weft_links_run_t *run, const struct weft_links_step *step);
    void *ctx;
} weft_links_step_t;
weft_status_t weft__links_step(weft_links_run_t *run, const weft_links_step_t *step);
weft_status_t weft__links_meet(weft_links_run_t *run);

/* Inside of a step: the two ranks wait for each other. Takes one tick; `tick` counts from 1. */
weft_status_t weft__links_handshake(weft_links_run_t *run, const weft_links_step_t *step, int tick);

/* Wait until work on the stream is done. */
weft_status_t weft__links_settle(const weft_links_run_t *run);

/* Time `iters` transfers of `bytes` to rank `to`, in ns for one of them. Where ranks exchange
 * messages, it has to take them meanwhile. */
weft_status_t weft__links_put(weft_links_run_t *run, int to, size_t bytes, int iters, double *ns_p);
weft_status_t weft__links_take(weft_links_run_t *run, int from, size_t bytes, int iters);

/* Time of copies on this device, likewise. */
weft_status_t weft__links_copy(weft_links_run_t *run, void *dst, const void *src, size_t bytes,
                               int iters, double *ns_p);

/* Everybody's `bytes` at `mine`, one after the other, on all ranks. Host memory. */
weft_status_t weft__links_gather(const weft_links_run_t *run, const void *mine, void *all,
                                 size_t bytes);

/* ---- the rest --------------------------------------------------------------------------- */

/* kinds.c: fills in `info` and `kind` of all links, on all ranks. */
weft_status_t weft__links_kinds(weft_links_run_t *run, weft_links_results_t *results);

/* one_way.c: `sweeps` samples of each link. *ns_p, on all ranks, to be freed: [sweep][from][to] ns
 * per transfer, 0 from a rank to itself. */
weft_status_t weft__links_one_way(weft_links_run_t *run, int sweeps, double **ns_p);
/* Choose run->iters, and how many sweeps there is time for, at most `most`. */
weft_status_t weft__links_plan(weft_links_run_t *run, double seconds, int most, int *sweeps_p);
/* Do bytes arrive as they are sent? Fills in `wrong` of all links, on all ranks. */
weft_status_t weft__links_verify(weft_links_run_t *run, weft_links_results_t *results);

/* exchange.c */
weft_status_t weft__links_exchange(weft_links_run_t *run, int repeats,
                                   weft_links_results_t *results);
/* together.c: takes about `seconds`. */
weft_status_t weft__links_together(weft_links_run_t *run, int repeats, double seconds,
                                   weft_links_results_t *results);
/* memory.c */
weft_status_t weft__links_memory(weft_links_run_t *run, int repeats, weft_links_results_t *results);

/* show.c, write.c: rank 0 */
void weft__links_show(const weft_links_t *links, const weft_links_results_t *results);
void weft__links_write(weft_json_t *json, const weft_links_results_t *results);

#endif
