/* Numbers for people: how they are written, and where an axis has its ticks. */
#ifndef WEFT_REPORT_NUMBER_H
#define WEFT_REPORT_NUMBER_H

#include <stdbool.h>
#include <stddef.h>

#define WEFT_NUMBER_TEXT 32
#define WEFT_TICKS_MOST 16

typedef enum weft_number_format {
    WEFT_NUMBER_PLAIN,  /* 0.0125, 12.5, 12500, 1.2e+07 */
    WEFT_NUMBER_SI,     /* 12.5, 12.5k, 1.25M */
    WEFT_NUMBER_BYTES,  /* 512 B, 64 KiB, 1.5 GiB */
    WEFT_NUMBER_PERCENT /* 0.125 is 12.5% */
} weft_number_format_t;

/* Three or four digits that count; "-" if it is not finite. */
const char *weft__number_text(char out[WEFT_NUMBER_TEXT], double value,
                              weft_number_format_t format);

typedef enum weft_axis_scale {
    WEFT_AXIS_LINEAR,
    WEFT_AXIS_LOG2,
    WEFT_AXIS_LOG10
} weft_axis_scale_t;

/* An axis. Set what is marked, give it the values (weft__axis_fit) and let it choose its ticks
 * (weft__axis_ready). */
typedef struct weft_axis {
    const char *label;           /* set: what and unit */
    weft_axis_scale_t scale;     /* set */
    weft_number_format_t format; /* set */
    bool from_zero;              /* set, linear only: 0 is on it */
    bool whole;                  /* set: ticks are whole numbers */
    bool fitted;                 /* least and most hold */
    double least, most;          /* ends */
    double step;                 /* linear: from tick to tick */
    int count;
    double ticks[WEFT_TICKS_MOST];
} weft_axis_t;

/* Can it be drawn on this axis? Finite, and above 0 on a logarithmic one. */
bool weft__axis_shows(const weft_axis_t *axis, double value);

/* Make room for those values that can be drawn. */
void weft__axis_fit(weft_axis_t *axis, const double *values, size_t count);

/* Choose about `wanted` ticks and move the ends to them. An axis without values goes from 0 (or 1)
 * to some round number. */
void weft__axis_ready(weft_axis_t *axis, int wanted);

/* Where on the axis, from 0 to 1. What lies beyond an end is at that end, NaN at the start: a page
 * has no other coordinates. */
double weft__axis_at(const weft_axis_t *axis, double value);

/* The text of a tick; as many decimals as its neighbours. */
const char *weft__axis_text(const weft_axis_t *axis, int tick, char out[WEFT_NUMBER_TEXT]);

#endif
