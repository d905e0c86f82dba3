/* What preload_faults.so and the driver share: kinds of operations, and a page of state in a file.
 *
 * FAULT=OPERATION:K:HOW   the K-th operation of that kind fails, or the process dies there. HOW is
 *                         the name of an error (ENOSPC; with a plus, ENOSPC+, each one from the
 *                         K-th on), short (half of the bytes), end (of a stream: nothing was read)
 *                         or kill
 * FAULT_WHO=RANK          in which process: a rank, or launcher: any process that is no rank
 * FAULT_STATE=FILE        where operations are counted, and what happened is told */
#ifndef WEFT_TEST_FAULTS_H
#define WEFT_TEST_FAULTS_H

#include <stdatomic.h>

/* clang-format off */
#define FAULT_OPS(X)                                                                               \
    X(write) X(read) X(fsync) X(rename) X(mmap) X(truncate) X(fork) X(exec) X(connect) X(send)     \
    X(recv) X(malloc) X(open) X(close) X(unlink) X(mkdir) X(memfd) X(thread) X(socket) X(bind)     \
    X(accept) X(link) X(statvfs) X(stat) X(opendir) X(readdir) X(pipe) X(epoll) X(poll) X(signal)  \
    X(random) X(resolve) X(stdio) X(dup) X(lock) X(pidfd) X(advice) X(fread)
/* clang-format on */

enum {
#define FAULT_ENUM(name) FAULT_##name,
    FAULT_OPS(FAULT_ENUM)
#undef FAULT_ENUM
        FAULT_OP_COUNT
};

typedef struct {
    atomic_int counts[FAULT_OP_COUNT]; /* operations that FAULT_WHO's process came to */
    atomic_int fired;                  /* faults that were injected */
    atomic_int pid;                    /* of the process in which the first was */
    atomic_ulong offset;               /* of the caller in its file, for addr2line */
    char object[256];                  /* that file */
} fault_state_t;

#endif
