/* Lists of CPUs as the kernel writes them into files: "0-3,8". */
#ifndef WEFT_TOPO_CPU_LIST_H
#define WEFT_TOPO_CPU_LIST_H

#include <stdbool.h>
#include <stddef.h>

/* Set the bits of `mask` (`words` words) that `text`, up to a new line, lists, and no others.
 * Numbers that it has no bit for are left out. false, and the mask is empty, if it is no list or
 * names no CPU. */
bool weft__cpu_list_read(const char *text, unsigned long *mask, size_t words);

#endif
