/* From a verdict to sentences. Inside of bench/links. */
#ifndef WEFT_BENCH_LINKS_FINDINGS_H
#define WEFT_BENCH_LINKS_FINDINGS_H

#include "bench/links/judge.h"
#include "bench/links/run.h"

/* Why a link is slow: one reason each. */
enum { WEFT_SLOW_NOT, WEFT_SLOW_LINK, WEFT_SLOW_BELOW, WEFT_SLOW_RANK };

typedef struct weft_links_verdict {
    unsigned char *slow;             /* [from][to]: a reason */
    double *likely_ns;               /* [from][to]: what its kind, row and column suggest */
    unsigned char *sends, *receives; /* [rank]: all links from it, to it, are slow */
} weft_links_verdict_t;

/* Add all findings to `results`; verdict NULL: there are no links. */
weft_status_t weft__links_judged(weft_links_results_t *results,
                                 const weft_links_verdict_t *verdict);

/* Free what is in *results. */
void weft__links_forget(weft_links_results_t *results);

#endif
