/* A library that looks like NCCL: it writes down what it is asked, and fails, stalls or lies when
 * told to. The tests load it as Weft loads NCCL, and reach its controls by the symbol "fake_nccl".
 * The old one (FAKE_OLD) lacks functions that Weft needs. */
#ifndef WEFT_TEST_COMM_NCCL_FAKE_NCCL_H
#define WEFT_TEST_COMM_NCCL_FAKE_NCCL_H

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "comm/nccl/api.h"

#define FAKE_LOG_BYTES 65536

typedef struct fake_nccl {
    int version;
    /* This function, named without "nccl", returns this result; ncclGetLastError gives the text. */
    const char *_Atomic fails;
    _Atomic weft_nccl_result_t result;
    const char *_Atomic text;
    /* This one does not return until `stalls` is NULL, or its communicator is aborted or
     * revoked. */
    const char *_Atomic stalls;
    _Atomic int stalled; /* how often it did */
    /* Calls return "in progress" and ncclCommGetAsyncError says so this often. */
    _Atomic int in_progress;
    _Atomic int async; /* then, this weft_nccl_result_t */

    _Atomic int communicators; /* that exist, or are about to */
    _Atomic int aborted, destroyed, revoked;
    int depth; /* of groups, in the one thread that the tests use for them */

    /* One line a call, as in "AllReduce 0x1000 0x2000 8 float32 sum\n". */
    char log[FAKE_LOG_BYTES];
    size_t logged;
} fake_nccl_t;

typedef fake_nccl_t *(*fake_nccl_fn)(void);

/* Load the fake and make it Weft's NCCL; NULL, with the reason on stderr: it cannot be. */
static inline fake_nccl_t *fake_nccl_load(void)
{
    char path[1024];
    fake_nccl_fn controls = NULL;
    snprintf(path, sizeof(path), "%s/test/comm/nccl/fake_nccl.so", getenv("WEFT_BUILD"));
    setenv("WEFT_NCCL", path, 1);
    void *library = dlopen(path, RTLD_NOW);
    if (library) {
        *(void **)&controls = dlsym(library, "fake_nccl");
    }
    if (!controls) {
        fprintf(stderr, "%s\n", dlerror());
    }
    return controls ? controls() : NULL;
}

#endif
