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

/* One line by rank 0, and by every rank that found something wrong; the exit status. */
static inline int verdict(const char *what, double us, long long wrong, int rank)
{
    if (rank == 0 || wrong) {
        printf("%-16s %8.2f us   %s\n", what, us, wrong ? "results DIFFER" : "results as expected");
    }
    return wrong != 0;
}

#endif
