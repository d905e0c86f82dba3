/* The parts of the section of links. */
#ifndef WEFT_REPORT_SECTION_LINKS_H
#define WEFT_REPORT_SECTION_LINKS_H

#include <stdio.h>

#include "base/json_read.h"

/* What weft links measures beside pairs: permutations, all-to-all, all-reduce by algorithm, memory.
 * What is missing is left out. */
weft_status_t weft__links_more(const weft_json_value_t *root, FILE *out);

#endif
