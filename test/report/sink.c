#include "report/sink.h"

#include <stdlib.h>
#include <string.h>

void sink_open(sink_t *sink)
{
    sink->text = NULL;
    sink->out = open_memstream(&sink->text, &sink->bytes);
    if (sink->out == NULL) {
        abort();
    }
}

char *sink_close(sink_t *sink)
{
    fclose(sink->out);
    return sink->text;
}

int count_of(const char *text, const char *part)
{
    int count = 0;
    for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part)) {
        count++;
    }
    return count;
}
