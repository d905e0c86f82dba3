/* Short forms for reading parts of results that may be missing. */
#ifndef WEFT_REPORT_VALUES_H
#define WEFT_REPORT_VALUES_H

#include <stddef.h>

#include <weft/status.h>

#include "base/json_read.h"

/* A finite number; NaN if there is none. */
double weft__value_number(const weft_json_value_t *object, const char *key);

/* A string; "" if there is none. */
const char *weft__value_text(const weft_json_value_t *object, const char *key);

/* A member that is an array (or an object); NULL if there is none, or nothing is in it. */
const weft_json_value_t *weft__value_array(const weft_json_value_t *object, const char *key);
const weft_json_value_t *weft__value_object(const weft_json_value_t *object, const char *key);

/* Any scalar as text, in `room` if it is no string. */
const char *weft__value_shown(const weft_json_value_t *value, char *room, size_t size);

/* The finite numbers of an array (NULL: none), malloced, and how many. */
weft_status_t weft__value_list(const weft_json_value_t *array, double **numbers_p, size_t *count_p);

double weft__values_median(double *numbers, size_t count); /* sorts them; NaN if there are none */

/* Memory for `count` (also 0) zeroed elements; WEFT_ERR_NO_MEMORY with a sentence. */
weft_status_t weft__values_alloc(void *pointer_p, size_t count, size_t size);

#endif
