/* Where the fixtures of an area of tests are, scratch folders, and files for tests. */
#ifndef WEFT_TEST_BASE_FIXTURE_H
#define WEFT_TEST_BASE_FIXTURE_H

#include <stddef.h>

/* "test/<area>/fixtures/<name>"; valid until the fourth call after this one. */
const char *fixture(const char *area, const char *name);

/* A new empty folder under $TMPDIR, /dev/shm or /tmp, removed when its maker ends. */
const char *scratch(void);

/* "<scratch>/name"; valid until the 64th call after this one. */
const char *in_scratch(const char *name);

void write_file(const char *path, const void *bytes, size_t size);

/* Does the last error sentence contain `part`? Prints it if not. */
int error_says(const char *part);

#endif
