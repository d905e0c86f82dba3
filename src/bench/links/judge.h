/* Which links are slow: statistics over samples, without any measuring, so that tests can try it on
 * numbers whose truth they know.
 *
 *     samples[sweep][from][to]
 *       / how much slower than usual the machine was in that sweep    (the median over all links)
 *       -> the median over sweeps: the time of a link
 *       / the median of its kind of link
 *       / what its row and its column have in common                  (median polish)
 *       -> the residual, as a logarithm: 0 for a link as any other
 *
 * A link is slow if its residual is above 3 times the noise of its kind (a standard deviation, by a
 * MAD; noise_of in judge.c has the derivation), and above a margin, so that links that are all but
 * equal raise no alarm. Rows and columns are taken out because memory differs: a rank
 * whose pages lie badly receives everything some percent slower, and that is no link's fault. A
 * whole row or column is judged as well, with a wider margin.
 *
 * Kinds with fewer than 4 links are not judged: there is nothing to compare. With fewer than 5
 * ranks nothing is taken out of rows and columns, which would hide a slow link in them. */
#ifndef WEFT_BENCH_LINKS_JUDGE_H
#define WEFT_BENCH_LINKS_JUDGE_H

#include <stdbool.h>
#include <stddef.h>

#include <weft/status.h>

#define WEFT_JUDGE_LINKS 4 /* of a kind, at least */
#define WEFT_JUDGE_RANKS 5 /* for rows and columns */
#define WEFT_JUDGE_MANY 32 /* links of a kind that tell its noise by themselves */
#define WEFT_JUDGE_DEVIATIONS 3
#define WEFT_JUDGE_SCALE 1.4826 /* of a MAD, to be a standard deviation where values are normal */

/* Margins, as times of a link over what is expected of it. First measurement: worth another look.
 * Second: slow. A link that takes 30% longer lies in the middle between the second one and none. */
#define WEFT_JUDGE_SUSPECT 1.07
#define WEFT_JUDGE_SLOW 1.13
#define WEFT_JUDGE_RANK 1.40 /* all links of a rank */

enum { WEFT_JUDGE_LINK = 1, WEFT_JUDGE_SENDS = 2, WEFT_JUDGE_RECEIVES = 4 };

typedef struct weft_judge {
    int size;         /* ranks */
    const int *kinds; /* [from][to], -1: no such link */
    double *ns;       /* [from][to]: time of a link; 0: not measured */
    double *residual; /* [from][to]: logarithm of its time over what is expected of it */
    double *likely;   /* [from][to]: ns that its kind, row and column suggest; 0: not judged */
    double *sends, *receives; /* [rank]: what a row and a column have in common, as logarithms */
    unsigned char *slow;      /* [from][to]: WEFT_JUDGE_LINK, _SENDS, _RECEIVES */
    int slow_count;
    double noise; /* of a link's time, as a part of it: a standard deviation over all links */
    double
        limit; /* a link is slow above this residual: the largest of all kinds, margin included */
} weft_judge_t;

/* Judge `sweeps` sweeps; `margin` is for links. All arrays are allocated here. */
weft_status_t weft__judge(int size, const int *kinds, int sweeps, const double *samples,
                          double margin, weft_judge_t *judge_p);
void weft__judge_cleanup(weft_judge_t *judge);

#endif
