/* Expectations: what ratios a machine is known to reach, one file for each kind of machine.
 *
 *     {"kind": "expectations", "format": 1,
 *      "key": {"device": "virtual GPU", "devices": 2, "processor": "AMD EPYC", "cpus": 2,
 *              "ranks": 2, "ranks_are": "processes", "build": "release"},
 *      "pairs": [{"name": "halo", "bytes": 8192, "way": "one-sided", "low": 1.2, "high": 1.7}],
 *      "history": [{"commit": "...", "version": "...", "started": "...", "profile": "quick",
 *                   "seed": 7, "settings": {those that are not the default},
 *                   "pairs": [{"name": ..., "bytes": ..., "way": ..., "ratio": 1.4, "low": 1.35,
 *                              "high": 1.44}]}]}
 *
 * A run is outside if its sure interval (bench/statistics.h) has no point of the range. --update
 * adds the run to the history. If its interval meets the old range, or the run before was one of
 * the same commit, the range grows to hold it; otherwise the new one takes its place: somebody
 * changed something, looked at it and wants it. */
#ifndef WEFT_BENCH_PAIRS_EXPECTATIONS_H
#define WEFT_BENCH_PAIRS_EXPECTATIONS_H

#include <stdbool.h>

#include "base/file.h"
#include "base/json_read.h"
#include "bench/pair.h"
#include "bench/pairs.h"
#include "bench/statistics.h"

#define WEFT_EXPECTED_MARGIN 0.10 /* runs differ by as much as that from each other */

typedef struct weft_expectation {
    char name[WEFT_PAIR_LABEL];
    char way[WEFT_PAIR_LABEL];
    uint64_t bytes;
    double low, high;
    bool measured; /* in this run; then: */
    weft_ratio_t now;
} weft_expectation_t;

typedef struct weft_expectations {
    char path[WEFT_PATH_BYTES];     /* "": there is none for this machine */
    char fallback[WEFT_PATH_BYTES]; /* where --update-expectations makes one then */
    char key[512];                  /* in words */
    weft_json_doc_t doc;            /* of the file, for its history; root NULL: a new one */
    weft_expectation_t *rows;
    int count, room;
    int ranks;
    const char *refusal; /* why this run must not become an expectation; NULL: it may */
} weft_expectations_t;

/* Find and read the file. That there is none is no failure, unless the user named one and does not
 * want to make it. WEFT_ERR_INVALID if it is no file of expectations or for another machine. */
weft_status_t weft__expectations_open(weft_expectations_t *expected, const weft_pairs_t *pairs,
                                      int ranks);
void weft__expectations_close(weft_expectations_t *expected);

/* What is expected of a way; NULL: nothing. */
const weft_expectation_t *weft__expectations_of(const weft_expectations_t *expected,
                                                const char *name, const char *way, size_t bytes);

/* Is it outside, and by how much: 0.2 is a ratio 20% above the range, -0.2 one below it; 0: inside,
 * or too noisy to tell. */
double weft__expectation_missed(const weft_expectation_t *expected, const weft_ratio_t *ratio);

/* What came out, for the update. */
weft_status_t weft__expectations_add(weft_expectations_t *expected, const char *name,
                                     const char *way, size_t bytes, const weft_ratio_t *ratio);

/* The fields of the key, into an open object. */
void weft__expectations_write_key(weft_json_t *json, const weft_pairs_t *pairs, int ranks);

/* Read the file at `path` again, as another process may have changed it, and keep what was added to
 * `expected`. */
weft_status_t weft__expectations_reload(weft_expectations_t *expected, const weft_pairs_t *pairs,
                                        const char *path);

/* Write the file, with the run in its history. Of several processes that do so at once none is
 * lost: each locks the folder, reads the file again, and adds its own. WEFT_ERR_INVALID, with the
 * reason, if the run must not become an expectation. */
weft_status_t weft__expectations_update(weft_expectations_t *expected, const weft_pairs_t *pairs,
                                        uint64_t seed);

#endif
