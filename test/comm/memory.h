/* Buffers of any kind of memory, filled and checked by the host.
 *
 * The host works on `host`. Where it cannot reach the memory itself (GPUs), that is a copy, which
 * buffer_push and buffer_pull keep in step; elsewhere it is the memory itself, and they do
 * nothing. */
#ifndef WEFT_TEST_COMM_MEMORY_H
#define WEFT_TEST_COMM_MEMORY_H

#include "comm/harness.h"

typedef struct buffer {
    char *at; /* for calls */
    char *host;
    size_t bytes;
    bool plain; /* from malloc, not from weft_malloc */
} buffer_t;

void buffer_open(buffer_t *buffer, size_t bytes, bool plain);
void buffer_close(buffer_t *buffer);

/* What the host wrote at [from, from + bytes) of it goes to the memory; what is there now comes
 * back. `from` points into `host`. */
void buffer_push(const buffer_t *buffer, const void *from, size_t bytes);
void buffer_pull(const buffer_t *buffer, void *from, size_t bytes);

/* All of it. */
void buffer_push_all(const buffer_t *buffer);
void buffer_pull_all(const buffer_t *buffer);

/* Where calls find what is at `host` for the test. */
char *buffer_at(const buffer_t *buffer, const void *host);

#endif
