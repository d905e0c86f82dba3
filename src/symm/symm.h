/* The inside of a symmetric heap.
 *
 *     base                                    base + bytes
 *     +---------------------------------------+------+
 *     | what weft_symm_malloc hands out       | head |     the same on every rank
 *     +---------------------------------------+------+
 *
 * The memory of every rank is mapped here, so a symmetric address of this rank is its own on
 * another one by way of its offset. A call is a value (weft_symm_call_t): checked once at the API
 * edge, with addresses that are valid here, then carried out by the kind of device that the heap is
 * on, at once or on a stream. */
#ifndef WEFT_SYMM_SYMM_H
#define WEFT_SYMM_SYMM_H

#include <pthread.h>
#include <stdatomic.h>

#include "comm/reach.h"
#include "symm/arena.h"
#include "symm/call.h"

#define WEFT_SYMM_MAGIC 0x5745465453594d4dull
#define WEFT_SYMM_ALIGN 256u
#define WEFT_SYMM_HEAD_BYTES 4096u /* weft_symm_head of symm_device.cuh */

/* What a kind of device does for a heap. */
typedef struct weft_symm_ops {
    weft_status_t (*open)(
        weft_symm_h symm);           /* the heap is there on all ranks; may set symm->kind */
    void (*close)(weft_symm_h symm); /* undoes open; never fails */
    /* Do it now (stream NULL) or queue it. */
    weft_status_t (*call)(const weft_symm_call_t *call, weft_stream_h stream);
    /* Fill in what only this kind knows of a view; WEFT_OK where that is nothing. */
    weft_status_t (*view)(weft_symm_h symm, weft_symm_view_t *view);
    /* WEFT_OK, or why waits fail. */
    weft_status_t (*error)(weft_symm_h symm);
} weft_symm_ops_t;

extern const weft_symm_ops_t weft__symm_cpu, weft__symm_cuda;

struct weft_symm {
    uint64_t magic; /* WEFT_SYMM_MAGIC while it lives */
    weft_comm_h comm;
    int rank, size, device;
    const weft_symm_ops_t *ops;
    size_t bytes;
    char *base; /* of this rank */
    char **at;  /* [size]: of every rank, as mapped here */
    weft_arena_t arena;
    pthread_mutex_t lock;   /* of the arena: weft_symm_stats may be asked by any thread */
    _Atomic uint64_t *live; /* a bit for each granule of the arena: it is allocated. Written under
                             * the lock; read without it, by whoever was given the memory */
    void *kind;             /* the ops' own */
};

/* WEFT_ERR_INVALID with a sentence unless `symm` is a heap. `who` is the API call without weft_. */
weft_status_t weft__symm_check(weft_symm_h symm, const char *who);

/* Is [addr, addr + bytes) in this rank's heap, and `rank` a rank? */
weft_status_t weft__symm_check_range(weft_symm_h symm, const char *who, const char *what,
                                     const void *addr, size_t bytes, int rank);

/* Is what is in this rank's heap (checked before) allocated? Its first and last byte are looked at:
 * what lies between the two is not. */
weft_status_t weft__symm_refuse_freed(weft_symm_h symm, const char *who, const char *what,
                                      const void *addr, size_t bytes);

static inline bool weft__symm_is_live(const struct weft_symm *symm, uint64_t offset)
{
    uint64_t granule = offset / WEFT_ARENA_GRANULE;
    return atomic_load_explicit(&symm->live[granule / 64], memory_order_relaxed) >> granule % 64 &
           1;
}

static inline weft_status_t weft__symm_check_live(weft_symm_h symm, const char *who,
                                                  const char *what, const void *addr, size_t bytes)
{
    uint64_t offset = (uint64_t)((const char *)addr - symm->base);
    bool live = bytes == 0 ||
                (weft__symm_is_live(symm, offset) && weft__symm_is_live(symm, offset + bytes - 1));
    return __builtin_expect(live, 1) ? WEFT_OK
                                     : weft__symm_refuse_freed(symm, who, what, addr, bytes);
}

/* Refuses structures that only virtual GPUs have. */
weft_status_t weft__symm_check_host(weft_symm_h symm, const char *who);

/* An address of this rank's heap, on `rank`. Checked before. */
static inline void *weft__symm_at(const struct weft_symm *symm, const void *addr, int rank)
{
    return symm->at[rank] + ((const char *)addr - symm->base);
}

/* All-gather `count` words of this rank into all[size][count], compare them with everybody's and
 * refuse differences, naming the word by texts[i] (NULL: it may differ). A barrier as well.
 * Collective. */
weft_status_t weft__symm_agree(weft_symm_h symm, const char *who, const uint64_t *mine, int count,
                               const char *const *texts);

/* Wait for all ranks, in the calling thread. */
weft_status_t weft__symm_meet(weft_symm_h symm);

#endif
