/* What the files of weft pairs share. */
#ifndef WEFT_BENCH_PAIRS_INTERNAL_H
#define WEFT_BENCH_PAIRS_INTERNAL_H

#include "bench/pair.h"
#include "bench/pairs.h"
#include "bench/pairs/expectations.h"
#include "bench/statistics.h"
#include "topo/result.h"

#define WEFT_PAIRS_SIZES 32

typedef struct weft_pairs_profile {
    const char *name;
    weft_pair_plan_t plan;
    int sizes; /* 1: the middle one; 3: first, middle, last; 0: all, from one to the next by 4 */
} weft_pairs_profile_t;

/* NULL if there is none such. */
const weft_pairs_profile_t *weft__pairs_profile(const char *name);

/* The sizes at which a profile measures a pair; returns their number. One of 0 bytes for a pair
 * without sizes. */
int weft__pairs_sizes(const weft_pair_t *pair, int sizes, size_t bytes[WEFT_PAIRS_SIZES]);

/* Is the pair wanted: by its name, its target or its group, or because all are? */
bool weft__pairs_asked(const weft_pairs_t *pairs, const weft_pair_t *pair);

/* Measure a pair at one size, as all ranks of `comm`. `keep`: it is to become an expectation. Then
 * it is measured again while it is noisy, each time with more blocks and for longer; the row is the
 * last one's, and counts the wrong results of all. */
#define WEFT_PAIRS_AGAIN 3
weft_status_t weft__pairs_measure(const weft_pair_plan_t *plan, bool keep, const weft_pair_t *pair,
                                  weft_comm_h comm, size_t bytes, weft_pair_row_t *row_p);

/* ---- what rank 0 makes of rows ---------------------------------------------------------- */

typedef struct weft_pairs_report {
    const weft_pairs_t *pairs;
    uint64_t seed;
    weft_result_t result;
    weft_expectations_t expected;
    const char *group; /* of the row before */
    int judged, noisy;
    char first_noisy[2 * WEFT_PAIR_LABEL + 64]; /* its name, way and size */
    char refusal[512];                          /* why the run is not kept */
    struct {
        char name[WEFT_PAIR_LABEL], why[256];
    } * left_out; /* pairs that cannot run here */
    int left_out_count;
    weft_pairs_outcome_t outcome;
} weft_pairs_report_t;

/* The head of its result files. */
weft_result_head_t weft__pairs_head(const weft_pairs_t *pairs, const char *kind, int ranks);

weft_status_t weft__pairs_report_open(weft_pairs_report_t *report, int ranks);
weft_status_t weft__pairs_report_row(weft_pairs_report_t *report, const weft_pair_row_t *row);
weft_status_t weft__pairs_report_left_out(weft_pairs_report_t *report, const weft_pair_t *pair,
                                          const char *why);

/* Ends files and table; a failed `status` drops them. Returns the first failure. */
weft_status_t weft__pairs_report_close(weft_pairs_report_t *report, weft_status_t status);

/* Bytes as "512", "64K", "1M"; 0 as "-". */
void weft__pairs_show_size(size_t bytes, char text[32]);

/* The interval of a ratio, short. */
void weft__pairs_show_interval(const weft_ratio_t *ratio, char text[32]);

/* Is it a setting that says where a rank is, and not how it works? */
bool weft__pairs_is_location(const char *setting);

/* "release", "debug", "sanitized": times of different kinds are not compared. */
const char *weft__pairs_build(void);

#endif
