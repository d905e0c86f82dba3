/* Numbers in order, and the one in the middle. */
#ifndef WEFT_BASE_MEDIAN_H
#define WEFT_BASE_MEDIAN_H

#include <stddef.h>

/* Sort them, the smallest first. None of them is NaN. */
void weft__sort(double *values, size_t count);

/* The median of values that are sorted; 0 without any. */
double weft__middle(const double *sorted, size_t count);

/* The same of values in any order, which are sorted by it. */
double weft__median(double *values, size_t count);

#endif
