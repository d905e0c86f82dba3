/* Weft: structures that ranks share, on a symmetric heap (weft/symm.h, which includes this).
 *
 *     weft_dtensor   rows of a matrix, spread over the ranks; any slice can be read and written
 *     weft_params    a block of parameters on every rank, replaced as a whole while others read it
 *     weft_map       a hash map over all ranks; reading takes no lock
 *     weft_ring      a queue of records into every rank, from all ranks
 *     weft_work      tasks, of which idle ranks steal from busy ones
 *
 * Creating and destroying is collective, as for all symmetric memory: the same arguments on every
 * rank. All other calls concern the caller only unless they say "Collective". Several threads of
 * a rank may call them at once unless a single caller is asked for.
 *
 * When a rank dies. No structure is ever torn: each change becomes visible by one store, so what
 * the dead rank was doing has happened or has not. Locks of a dead rank pass on to whoever wants
 * them next. Calls that wait tell of each death once per handle, with WEFT_ERR_RANK_DEAD; called
 * again they go on with those who live. WEFT_ERR_TIMEOUT, after the communicator's timeout, breaks
 * nothing either. Each section says what is lost. Collective calls fail as collectives do. All of
 * this is about virtual GPUs: on real ones a rank that dies breaks the communicator, and its memory
 * is gone.
 *
 * Tensors and parameters live on virtual GPUs and real ones, the others on virtual GPUs only
 * (WEFT_ERR_UNSUPPORTED). */
#ifndef WEFT_SHARED_H
#define WEFT_SHARED_H

#include <weft/symm.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- distributed tensor ----------------------------------------------------------------- */

/* Rows 0 to rows-1, of row_bytes each. Rank r holds rows [first(r), first(r+1)), in one piece,
 * which together are all rows, in order of ranks.
 *
 * Invariants: every row has exactly one owner; all ranks agree on who it is; a rank's rows lie
 * behind each other. Who reads rows that another rank writes at the same time sees some of both:
 * order such calls with signals or barriers. Death: rows of a dead rank can be read, as it left
 * them. Rebalancing fails and changes nothing. */
typedef struct weft_dtensor *weft_dtensor_h;

/* Collective. `shards`: rows of each rank (`size` entries that add up to `rows`), or NULL: even.
 * Rows are zero. */
weft_status_t weft_dtensor_create(weft_symm_h symm, size_t rows, size_t row_bytes,
                                  const size_t *shards, weft_dtensor_h *tensor_p);
weft_status_t weft_dtensor_destroy(weft_dtensor_h tensor); /* collective; NULL is allowed */

/* This rank's own rows: their memory, the number of the first, how many. Outputs may be NULL. */
weft_status_t weft_dtensor_local(weft_dtensor_h tensor, void **ptr_p, size_t *first_p,
                                 size_t *rows_p);

/* Who owns `row`. */
weft_status_t weft_dtensor_owner(weft_dtensor_h tensor, size_t row, int *rank_p);

/* Copy rows [first, first + rows) to dst, or from src, whoever owns them. */
weft_status_t weft_dtensor_get(weft_dtensor_h tensor, size_t first, size_t rows, void *dst,
                               weft_stream_h stream);
weft_status_t weft_dtensor_put(weft_dtensor_h tensor, size_t first, size_t rows, const void *src,
                               weft_stream_h stream);

/* Collective: move rows so that each rank has `shards` of them (NULL: even). The heap must have
 * room for the new shards beside the old ones. Memory that weft_dtensor_local gave is no longer
 * valid. */
weft_status_t weft_dtensor_rebalance(weft_dtensor_h tensor, const size_t *shards);

/* For kernels: see weft_dtensor_row in <weft/symm_device.cuh>. Valid until the next rebalance. */
typedef struct weft_dtensor_view {
    uint64_t row_bytes;
    uint64_t offset; /* of the shards, in every rank's heap */
    uint64_t first[WEFT_SYMM_VIEW_RANKS + 1];
} weft_dtensor_view_t;
weft_status_t weft_dtensor_view(weft_dtensor_h tensor, weft_dtensor_view_t *view_p);

/* ---- parameters with hot swap ----------------------------------------------------------- */

/* `bytes` of parameters, a replica on every rank, in two buffers. A swap writes the new parameters
 * into the buffer that is not in use, on one rank after the other, then makes it the current one.
 *
 * Invariants: a reader sees one version, whole, or reads again; it never waits for a writer. A
 * replica's version only grows. While a swap is under way replicas may differ by that version.
 * Swaps of several ranks happen one after the other. Versions count from 0 (all zero). Death: of a
 * reader, nothing is lost. Of a writer, replicas that it has not reached keep the version before,
 * as a whole; the next swap, by any rank, first brings them to the version of those it has
 * reached. */
typedef struct weft_params *weft_params_h;

weft_status_t weft_params_create(weft_symm_h symm, size_t bytes, weft_params_h *params_p);
weft_status_t weft_params_destroy(weft_params_h params); /* collective; NULL is allowed */

/* Replace the parameters on all ranks by `bytes` (all of them) at src. By one rank; the others need
 * do nothing. Waits while readers hold the buffer that it needs (weft_params_acquire). */
weft_status_t weft_params_swap(weft_params_h params, const void *src, weft_stream_h stream);

/* Copy `bytes` from `offset` on of the replica on `rank` to dst, all of one version, which goes to
 * *version_p (may be NULL; on a stream it lives until the call is done, and on GPUs is memory that
 * they reach). */
weft_status_t weft_params_read(weft_params_h params, int rank, size_t offset, size_t bytes,
                               void *dst, uint64_t *version_p, weft_stream_h stream);

/* This rank's replica without a copy: *ptr_p stays as it is until weft_params_release, with the
 * same version. Keep it briefly: the swap after next waits. Virtual GPUs only; kernels read with
 * weft_params_read_block. */
weft_status_t weft_params_acquire(weft_params_h params, const void **ptr_p, uint64_t *version_p);
weft_status_t weft_params_release(weft_params_h params, uint64_t version);

/* The version of this rank's replica. */
weft_status_t weft_params_version(weft_params_h params, uint64_t *version_p);

/* For kernels: see weft_params_read_block in <weft/symm_device.cuh>. */
typedef struct weft_params_view {
    uint64_t bytes;
    uint64_t head;      /* offset, in every rank's heap, of the words that say what is current */
    uint64_t buffer[2]; /* offsets of the two buffers */
} weft_params_view_t;
weft_status_t weft_params_view(weft_params_h params, weft_params_view_t *view_p);

/* ---- hash map --------------------------------------------------------------------------- */

/* Keys are any 64-bit numbers, values have a fixed size. A key lives on the rank that its hash
 * says.
 *
 * Invariants: a key is in the map at most once. A find takes no lock and never waits: it returns a
 * value as some insert left it, whole. Inserts and erases of keys of one rank exclude each other.
 * Death: an insert or erase of the dead rank has happened or has not. Its keys can still be found
 * and changed, since its memory stays. */
typedef struct weft_map *weft_map_h;

/* Room for `capacity` keys in all, wherever their hashes put them (with overwhelming
 * probability). */
weft_status_t weft_map_create(weft_symm_h symm, size_t capacity, size_t value_bytes,
                              weft_map_h *map_p);
weft_status_t weft_map_destroy(weft_map_h map); /* collective; NULL is allowed */

/* Insert, or replace the value. WEFT_ERR_NO_MEMORY if the key's rank has no room left. */
weft_status_t weft_map_insert(weft_map_h map, uint64_t key, const void *value);

/* WEFT_ERR_NOT_FOUND, without a sentence being written, if it is not there. value may be NULL. */
weft_status_t weft_map_find(weft_map_h map, uint64_t key, void *value);
weft_status_t weft_map_erase(weft_map_h map, uint64_t key);

/* Keys in the map now, over all ranks; exact while nobody changes it. */
weft_status_t weft_map_count(weft_map_h map, size_t *count_p);

/* ---- ring buffer ------------------------------------------------------------------------ */

/* Every rank has an inbox of `slots` records of up to record_bytes. All ranks push into it, its
 * owner pops: one thread of it at a time.
 *
 * Invariants: records of one rank are popped in the order it pushed them; each exactly once; none
 * is seen before it is whole. Death: records that were pushed are delivered. One that the dead rank
 * had begun is left out. Pushing to a dead rank is WEFT_ERR_RANK_DEAD when its inbox is full. */
typedef struct weft_ring *weft_ring_h;

/* `slots` is rounded up to a power of two. */
weft_status_t weft_ring_create(weft_symm_h symm, size_t slots, size_t record_bytes,
                               weft_ring_h *ring_p);
weft_status_t weft_ring_destroy(weft_ring_h ring); /* collective; NULL is allowed */

/* Into the inbox of `rank`. WEFT_PENDING if it is full; push_wait waits for room. */
weft_status_t weft_ring_push(weft_ring_h ring, int rank, const void *record, size_t bytes);
weft_status_t weft_ring_push_wait(weft_ring_h ring, int rank, const void *record, size_t bytes);

/* From this rank's inbox: to `record` (room for record_bytes), its bytes, who sent it (may be
 * NULL). WEFT_PENDING if there is none; pop_wait waits for one. */
weft_status_t weft_ring_pop(weft_ring_h ring, void *record, size_t *bytes_p, int *from_p);
weft_status_t weft_ring_pop_wait(weft_ring_h ring, void *record, size_t *bytes_p, int *from_p);

/* ---- work-stealing queue ---------------------------------------------------------------- */

/* Every rank has a queue of up to `tasks` tasks of task_bytes. Its owner (one thread of it) pushes
 * and pops at one end, the newest first; all others steal at the other end, the oldest first.
 *
 * Invariants: each task is handed out exactly once. weft_work_next ends with WEFT_ERR_NOT_FOUND on
 * all ranks once no task is queued and no rank works on one (it might push more). Death: tasks in
 * the queue of a dead rank are stolen by the others. The one it worked on is lost (at most one),
 * which is what WEFT_ERR_RANK_DEAD of weft_work_next says, once to every rank. */
typedef struct weft_work *weft_work_h;

/* `tasks` is rounded up to a power of two. */
weft_status_t weft_work_create(weft_symm_h symm, size_t tasks, size_t task_bytes,
                               weft_work_h *work_p);
weft_status_t weft_work_destroy(weft_work_h work); /* collective; NULL is allowed */

/* Into this rank's queue. WEFT_PENDING if it is full. */
weft_status_t weft_work_push(weft_work_h work, const void *task);

/* From this rank's queue, or that of `rank`; *task is copied. WEFT_PENDING if there is none, or
 * (steal) another rank was faster. */
weft_status_t weft_work_pop(weft_work_h work, void *task);
weft_status_t weft_work_steal(weft_work_h work, int rank, void *task);

/* The next task: this rank's own, else one that is stolen, else wait for one. Asking for the next
 * means that the one before is finished. WEFT_ERR_NOT_FOUND, without a sentence being written: all
 * work is done. Push first tasks, and weft_symm_barrier, before any rank's first call; after the
 * end, the same again. */
weft_status_t weft_work_next(weft_work_h work, void *task);

#ifdef __cplusplus
}
#endif
#endif
