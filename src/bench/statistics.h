/* Is one way faster than another? Pure functions of times; the same input gives the same answer.
 *
 * Times come in blocks: one of the baseline and one of the way, taken next to each other, in
 * random order. What is judged is the ratio inside a block, baseline over way, so above 1 the way
 * is faster: what slows the machine down for longer than a block cancels out. The ratio of a run is
 * the median over blocks, which a few disturbed blocks do not move.
 *
 * Two intervals belong to it:
 *
 *   low..high     95%, by bootstrap: blocks are drawn again with replacement, 2000 times. This is
 *                 what is shown.
 *   sure..sure    99.8%, by the sign test: order statistics of the ratios. This is what a verdict
 *                 stands on. Where both ways are the same, the random order alone decides which of
 *                 two times is the baseline's, so with a fixed number of blocks the test is exact
 *                 whatever the noise: heavy tails, drift, load that lasts for many blocks.
 *
 * How often that goes wrong, where a way is compared with itself:
 *
 *   a number of blocks that was fixed before    the sure interval misses 1 once in 500 at most
 *   blocks until the interval is narrow         once in 280 to 1400, of 10000 made-up runs each:
 *                                               looking at the width costs some of it
 *   a verdict, which needs that interval to     at most 2 in 10000 of the same runs
 *   be beyond the noise band
 *
 * These runs stop as those of the quick profile do, at 400 blocks at most. Their noise is
 * independent, drifting slowly or fast, heavy-tailed, in bursts, or of two speeds, each with
 * deviations of 3%, 9% and 27% of a time. test/bench/test_statistics.c counts four of them again,
 * in 2000 runs each. None of this is about what lasts for a whole run, such as where pages happen
 * to lie: that is a difference, and is found as one. A run that could not have told a difference of
 * 10% says so, and does not guess. */
#ifndef WEFT_BENCH_STATISTICS_H
#define WEFT_BENCH_STATISTICS_H

#include <stdint.h>

#define WEFT_NOISE_BAND 0.03      /* differences below 3% are none */
#define WEFT_NOISE_LIMIT 0.10     /* the same: an interval that has no difference of 10% */
#define WEFT_BLOCKS_FOR_A_TEST 10 /* fewer blocks cannot reach 99.8% */

typedef enum weft_verdict {
    WEFT_VERDICT_SAME,
    WEFT_VERDICT_FASTER,
    WEFT_VERDICT_SLOWER,
    WEFT_VERDICT_NOISY /* too noisy to tell */
} weft_verdict_t;

/* "the same", "faster", "slower", "noisy". */
const char *weft__verdict_name(weft_verdict_t verdict);

typedef struct weft_ratio {
    double ratio, low, high; /* of the baseline's time to the way's, and its 95% interval */
    double sure_low, sure_high;
    weft_verdict_t verdict;
} weft_ratio_t;

/* Compare the times of `count` blocks, at most WEFT_SAMPLE_MOST (bench/samples.h), all above 0. The
 * seed is that of the bootstrap. Without blocks all is 0, and noisy. */
weft_ratio_t weft__ratio_of(const double *baseline, const double *way, int count, uint64_t seed);

/* Half the width of the sure interval, as a part of the ratio; infinite with too few blocks for
 * one. At 3% a difference of 10% is found. Whether to go on must depend on the width alone: who
 * stops as soon as a difference shows finds one where there is none. */
double weft__ratio_half_width(const double *baseline, const double *way, int count);

/* The change from one run to another, each given by its times: ratio `b` over ratio `a`, so below
 * 1 the way has lost against its baseline. Runs differ by more than their blocks tell (pages,
 * cores, neighbours), so `band` is what counts as noise between runs. */
typedef struct weft_times {
    const double *baseline, *way;
    int count;
} weft_times_t;
weft_ratio_t weft__ratio_change(const weft_times_t *a, const weft_times_t *b, double band,
                                uint64_t seed);

#endif
