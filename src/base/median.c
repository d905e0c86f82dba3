#include "base/median.h"

#include <stdlib.h>

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void weft__sort(double *values, size_t count)
{
    if (count > 0) { /* there may be no address then */
        qsort(values, count, sizeof(*values), by_value);
    }
}

double weft__middle(const double *sorted, size_t count)
{
    return count == 0  ? 0
           : count % 2 ? sorted[count / 2]
                       : sorted[count / 2 - 1] / 2 + sorted[count / 2] / 2; /* no overflow */
}

double weft__median(double *values, size_t count)
{
    weft__sort(values, count);
    return weft__middle(values, count);
}
