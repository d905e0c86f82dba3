/* The arithmetic of lost time.
 *
 * One rank trains t1 tokens in a step of T1 seconds; N ranks train tN in a step of TN. Ideally N
 * ranks are N times as fast as one:
 *
 *     ideal        T1 x s, with s = tN / (t1 x N)       s is 1 in weak scaling
 *     efficiency   ideal / TN = (throughput of N / throughput of 1) / N
 *     lost         TN - ideal, as a share of the step: 1 - efficiency
 *
 * Both steps are divided into the same parts (train/breakdown.h), which add up to them. A part has
 * lost what it takes beyond its ideal:
 *
 *     lost of a part = (its seconds of N ranks - its seconds of one rank x s) / TN
 *
 * so the lost parts add up to 1 - efficiency. Of communication, bubble and imbalance one rank has
 * none: all of theirs is lost. An optimizer that every rank runs on all weights is lost but for a
 * share of it; one that ZeRO divides may win back some, and is negative then. Computation that is
 * slower than that of one rank alone, because matrices are smaller or cores and memory are shared,
 * is in the rest, and told by itself. */
#ifndef WEFT_BENCH_SCALING_LOST_H
#define WEFT_BENCH_SCALING_LOST_H

#include "train/breakdown.h"

/*    field, as in weft_breakdown_t and in JSON; head of the column */
#define WEFT_LOST_TABLE(X)                                                                         \
    X(communication, "comm")                                                                       \
    X(bubble, "bubb.")                                                                             \
    X(imbalance, "imbal")                                                                          \
    X(optimizer, "optim")                                                                          \
    X(data, "data")                                                                                \
    X(rest, "rest")

/* Shares of the step of N ranks. */
typedef struct weft_lost {
    double efficiency;
#define WEFT_LOST_FIELD(field, head) double field;
    WEFT_LOST_TABLE(WEFT_LOST_FIELD)
#undef WEFT_LOST_FIELD
    double compute; /* the part of the rest that computation is */
} weft_lost_t;

void weft__lost(const weft_breakdown_t *one, double tokens_one, const weft_breakdown_t *many,
                double tokens_many, int ranks, weft_lost_t *lost_p);

/* The sum of the parts. */
double weft__lost_sum(const weft_lost_t *lost);

#endif
