/* weft pairs: which of several ways is faster on this machine, how sure that is, and whether it is
 * what was expected.
 *
 * The measuring is pair.h's, the judging statistics.h's. A run writes a result file (topo/result.h)
 * of the kind "pairs":
 *
 *     "profile": "quick", "seed": 123, "build": "release",
 *     "pairs": [{"name": "halo", "group": "one-sided", "bytes": 1024, "baseline": "send/recv",
 *                "ways": [{"name": "one-sided", "us": [..], "median_us": .., "ratio": 1.4,
 *                          "low": 1.3, "high": 1.5, "verdict": "faster"}],
 *                "baseline_us": [..], "wrong": 0}],
 *     "left_out": [{"name": "handoff/put", "why": "..."}], "wrong": 0
 *
 * A way that cannot run here has "left_out" instead of times; one whose memory is part of the
 * comparison has "memory_bytes"; one that has expectations has "expected_low" and
 * "expected_high". */
#ifndef WEFT_BENCH_PAIRS_H
#define WEFT_BENCH_PAIRS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weft/weft.h>

#include "topo/machine.h"

typedef struct weft_pairs {
    char *const *names; /* of pairs and groups, `name_count`; none: all */
    int name_count;
    const char *profile; /* "quick", "standard", "thorough" */
    int iters;           /* rounds of a loop; 0: as many as fill one */
    bool threads;
    const char *json;         /* file of results, or NULL */
    const char *trace;        /* file of spans, "" for none */
    const char *expectations; /* file; NULL: the one for this machine, if there is one */
    bool update;              /* take what is measured into the expectations */
    char *const *command;     /* as it was typed, ended by NULL */
    weft_machine_t machine;
} weft_pairs_t;

/* What a run came to, the same on all ranks. */
typedef struct weft_pairs_outcome {
    uint64_t wrong;   /* results */
    uint64_t outside; /* comparisons that are not what was expected */
} weft_pairs_outcome_t;

/* Is there such a profile? Is every name that of a pair or a group? WEFT_ERR_INVALID with a
 * sentence that has the nearest one. */
weft_status_t weft__pairs_check(const weft_pairs_t *pairs);

/* Row i of the profiles; word i that stands for a pair or a group, as it is typed, until the next
 * call. NULL after the last. */
const char *weft__pairs_profile_name(int i);
const char *weft__pairs_word(int i);

/* Measure, as one rank of `comm`; called by all of them. Rank 0 prints and writes files. */
weft_status_t weft__pairs_run(const weft_pairs_t *pairs, weft_comm_h comm,
                              weft_pairs_outcome_t *outcome_p);

/* Print all pairs by group; `pairs->json`: write them to a file, too. */
weft_status_t weft__pairs_list(const weft_pairs_t *pairs);

/* Compare two files of results, pair by pair, and print it. *slower_p: how many ways have lost
 * against their baselines. WEFT_ERR_INVALID if one of them is no such file, or they have nothing in
 * common. */
weft_status_t weft__pairs_compare(const char *path_a, const char *path_b, int *slower_p);

#endif
