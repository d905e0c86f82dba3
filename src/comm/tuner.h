/* The tuner: which algorithm, and which kind of store, for collective x bytes x ranks. */
#ifndef WEFT_COMM_TUNER_H
#define WEFT_COMM_TUNER_H

#include <stdbool.h>
#include <stddef.h>

#include "comm/call.h"
#include "kernel/kernel.h"

typedef struct weft_tuner {
    weft_algo_t forced[WEFT_COLL_COUNT]; /* AUTO: free choice */
    int size;                            /* ranks */
    bool oversubscribed;                 /* more ranks than cores; the same on all ranks */
    size_t oneshot_max;                  /* setting; 0: by table */
    size_t stream_min;                   /* setting; 0: by the caches */
    size_t cache;                        /* bytes of a core's own cache, at least 2 MiB */
    size_t last_cache;                   /* bytes of a last-level cache; 0: not known */
    int last_caches;                     /* how many of those the machine has */
    size_t small[WEFT_COLL_COUNT];       /* blocks of fewer bytes are one-shot; 0: ask choose */
} weft_tuner_t;

typedef struct weft_choice {
    weft_algo_t algo;
    weft_store_t store;
    const char *why; /* for --explain; a constant */
} weft_choice_t;

/* Read `spec` ("allreduce:ring,broadcast:tree", "ring", "auto") into the tuner. WEFT_ERR_INVALID
 * names the part that is wrong and what the collective does have. */
weft_status_t weft__tuner_init(weft_tuner_t *tuner, const char *spec);

/* Who the ranks are is known. Fills in `small`, so that small calls need not ask. */
void weft__tuner_settle(weft_tuner_t *tuner, int size, bool oversubscribed);

/* `bytes` is count x element size (one block). Every rank gets the same answer to the same call:
 * it depends on nothing that ranks do not share. */
weft_choice_t weft__tuner_choose(const weft_tuner_t *tuner, weft_coll_t coll, size_t bytes);

/* Can `coll` be carried out by `algo`? */
bool weft__tuner_has(weft_coll_t coll, weft_algo_t algo);

/* ---- measuring, for backends with several ways (`tune` in comm/backends.h) ---------------- */

/* Microseconds of a call with blocks of about `bytes`; called by all ranks, the same on all. */
typedef weft_status_t (*weft_tune_time_fn)(void *arg, size_t bytes, double *us_p);

#define WEFT_TUNE_NEVER UINT64_MAX

/* What was found on rank 0, and where it is kept. */
typedef struct weft_tuned {
    uint64_t ll_most;  /* blocks up to here travel with their flags */
    uint64_t nccl_min; /* from here on NCCL is faster; or WEFT_TUNE_NEVER */
    bool has_nccl;
    char path[4096];
} weft_tuned_t;

/* Largest block that the one-shot path takes in one go. */
#define WEFT_SLOT_BYTES ((size_t)64 << 10)

#endif
