/* Not by hwloc, whose masks grow to whatever number is in the text. */
#include "topo/cpu_list.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define WORD_BITS (8 * sizeof(unsigned long))

/* false: no digit is here. A number too large for its type is the largest of it. */
static bool read_number(const char **text_p, unsigned long *out_p)
{
    char *end;
    if (!isdigit((unsigned char)**text_p)) {
        return false;
    }
    *out_p = strtoul(*text_p, &end, 10);
    *text_p = end;
    return true;
}

static bool read_ranges(const char *text, unsigned long *mask, size_t words)
{
    bool any = false;
    for (;;) {
        unsigned long first, last;
        if (!read_number(&text, &first)) {
            return false;
        }
        last = first;
        if (*text == '-' && (text++, !read_number(&text, &last) || last < first)) {
            return false;
        }
        for (unsigned long cpu = first; cpu <= last && cpu < words * WORD_BITS; cpu++) {
            mask[cpu / WORD_BITS] |= 1ul << cpu % WORD_BITS;
            any = true;
        }
        if (*text != ',') {
            return any && (*text == '\0' || *text == '\n');
        }
        text++;
    }
}

bool weft__cpu_list_read(const char *text, unsigned long *mask, size_t words)
{
    memset(mask, 0, words * sizeof(*mask));
    if (!read_ranges(text, mask, words)) {
        memset(mask, 0, words * sizeof(*mask));
        return false;
    }
    return true;
}
