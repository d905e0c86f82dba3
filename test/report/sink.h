/* What a function writes to a file, as text. */
#ifndef WEFT_TEST_REPORT_SINK_H
#define WEFT_TEST_REPORT_SINK_H

#include <stdio.h>

typedef struct sink {
    FILE *out;
    char *text;
    size_t bytes;
} sink_t;

void sink_open(sink_t *sink);

/* Close it; the text is to be freed. */
char *sink_close(sink_t *sink);

/* How often `part` is in `text`. */
int count_of(const char *text, const char *part);

#endif
