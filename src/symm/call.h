/* One call on a symmetric heap, as a value. Shared by the host side (C) and the kernels (CUDA
 * C++). */
#ifndef WEFT_SYMM_CALL_H
#define WEFT_SYMM_CALL_H

#include <weft/symm.h>

typedef enum weft_symm_kind {
    WEFT_SYMM_COPY,   /* src to dst */
    WEFT_SYMM_SIGNAL, /* the same if there are bytes, then change word; op is a weft_signal_op_t */
    WEFT_SYMM_WAIT,   /* for word; op is a weft_cmp_t */
    WEFT_SYMM_ATOMIC, /* on word; op is a weft_symm_atomic_t */
    WEFT_SYMM_FENCE
} weft_symm_kind_t;

typedef enum weft_symm_atomic {
    WEFT_ATOMIC_SET,
    WEFT_ATOMIC_ADD,
    WEFT_ATOMIC_AND,
    WEFT_ATOMIC_OR,
    WEFT_ATOMIC_XOR,
    WEFT_ATOMIC_FETCH,
    WEFT_ATOMIC_SWAP,
    WEFT_ATOMIC_CSWAP
} weft_symm_atomic_t;

/* All addresses are valid in the calling rank. */
typedef struct weft_symm_call {
    weft_symm_h symm;
    weft_symm_kind_t kind;
    int op;
    void *dst;
    const void *src;
    size_t bytes;
    uint64_t *word;
    uint64_t value, expected;
    uint64_t *old_p; /* may be NULL */
} weft_symm_call_t;

#endif
