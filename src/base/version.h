/* What was built. */
#ifndef WEFT_BASE_VERSION_H
#define WEFT_BASE_VERSION_H

/* The commit of the sources that the running command was built from, with a + if they differ from
 * it; "" if it is not known, and in programs that use the library. Set by the command's main,
 * before there are threads: only the command is linked anew for every commit. */
extern const char *weft__commit;

#endif
