/* What a rank's memory is used for.
 *
 * Everything that a worker (worker.h) allocates goes through a ledger, which adds it up by kind. A
 * dry ledger only adds up: the prediction of a plan is the ledger of a worker that was made without
 * memory, so it cannot differ from what the plan will ask for. docs/memory.md has the formulas. */
#ifndef WEFT_PARALLEL_MEMORY_H
#define WEFT_PARALLEL_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include <weft/status.h>

#define WEFT_MEMORY_TABLE(X)                                                                       \
    X(WEIGHTS, "parameters", "weights of this rank, in the type of the model")                     \
    X(GRADIENTS, "gradients", "f32, of all parameters here or of this rank's shards")              \
    X(OPTIMIZER, "optimizer", "two moments, and f32 copies of 16-bit weights")                     \
    X(ACTIVATIONS, "activations", "what forward keeps, of all micro-batches under way")            \
    X(BUFFERS, "buffers", "work of kernels, messages, gathered weights, gradients on their way")   \
    X(HOST, "host", "on the host: offloaded optimizer state (not part of the total)")

typedef enum weft_memory_kind {
#define WEFT_MEMORY_ENUM(name, text, help) WEFT_MEMORY_##name,
    WEFT_MEMORY_TABLE(WEFT_MEMORY_ENUM)
#undef WEFT_MEMORY_ENUM
        WEFT_MEMORY_KINDS
} weft_memory_kind_t;

typedef struct weft_ledger {
    bool dry; /* nothing is allocated, pointers are NULL */
    size_t bytes[WEFT_MEMORY_KINDS];
} weft_ledger_t;

/* weft_malloc, or weft_host_malloc for WEFT_MEMORY_HOST; bytes are counted as the pool rounds them.
 * Contents are zero. */
weft_status_t weft__ledger_malloc(weft_ledger_t *ledger, weft_memory_kind_t kind, size_t bytes,
                                  void *memory_pp);

/* Device memory of all kinds. */
size_t weft__ledger_total(const weft_ledger_t *ledger);

/* A line for ranks that are alike, and a head line. `peak` is what was measured; NULL: nothing was
 * yet. */
void weft__ledger_print_head(FILE *out, bool peak);
void weft__ledger_print(FILE *out, int first, int last, const weft_ledger_t *ledger,
                        const size_t *peak);

#endif
