/* Stacked bars of objects like {"forward": 0.2, "backward": 0.5}: one bar for each object, whose
 * members are its parts; a name has the same color in all of them. */
#ifndef WEFT_REPORT_SHARES_H
#define WEFT_REPORT_SHARES_H

#include <stdio.h>

#include "base/json_read.h"
#include "report/plot.h"

#define WEFT_SHARES_PARTS 8 /* different names; values of further ones are summed as "other" */
#define WEFT_SHARES_BARS 40
#define WEFT_SHARES_LABEL 120

typedef struct weft_shares {
    weft_bar_part_t parts[WEFT_SHARES_PARTS];
    int part_count;
    weft_bar_t bars[WEFT_SHARES_BARS];
    double values[WEFT_SHARES_BARS][WEFT_SHARES_PARTS];
    char labels[WEFT_SHARES_BARS][WEFT_SHARES_LABEL], texts[WEFT_SHARES_BARS][WEFT_NUMBER_TEXT];
    int count;
    int more; /* bars that did not fit */
} weft_shares_t;

/* A first part that is in no object, such as what is not lost. To be added before the bars. */
void weft__shares_first(weft_shares_t *shares, const char *name);

/* A bar of the members of `object` that are numbers above 0, which together become `sum` (NaN: they
 * stay as they are); `first` is the value of the first part, where there is one, which is then what
 * stands beside the bar. false: there is nothing in it. */
bool weft__shares_add(weft_shares_t *shares, const char *label, const weft_json_value_t *object,
                      double first, double sum);

/* Draw them, if there are any. */
void weft__shares_draw(weft_shares_t *shares, const weft_plot_t *plot, FILE *out);

#endif
