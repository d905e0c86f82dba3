/* What the examples of patterns share: a clock, a verdict, and what to do when a call fails. */
#ifndef EXAMPLES_PATTERN_H
#define EXAMPLES_PATTERN_H

#include <stdio.h>
#include <time.h>
#include <weft/weft.h>

#define TRY(call)                                                                                  \
    if ((call) != WEFT_OK) {                                                                       \
        fprintf(stderr, "%s\n", weft_last_error());                                                \
        return 1;                                                                                  \
    }

static inline double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* One line by rank 0, with the times of the slowest rank, and the exit status: 0 if no rank found a
 * wrong result. */
static inline int verdict(const char *what, double one_sided_us, const char *other, double other_us,
                          long long wrong, weft_comm_h comm)
{
    int rank = 0;
    double us[2] = {one_sided_us, other_us};
    if (weft_comm_rank(comm, &rank) != WEFT_OK ||
        weft_allreduce(us, us, 2, WEFT_F64, WEFT_MAX, comm, NULL) != WEFT_OK ||
        weft_allreduce(&wrong, &wrong, 1, WEFT_I64, WEFT_SUM, comm, NULL) != WEFT_OK) {
        fprintf(stderr, "%s\n", weft_last_error());
        return 1;
    }
    if (rank == 0) {
        printf("%-16s one-sided %8.2f us   %-14s %8.2f us   %s\n", what, us[0], other, us[1],
               wrong ? "results DIFFER" : "equal results");
    }
    return wrong != 0;
}

#endif
