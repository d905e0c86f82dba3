/* Weft: communicators and collectives.
 *
 * Names and argument order follow NCCL, so that porting is a rename. What holds for every call:
 *
 *  - A communicator joins `size` ranks, numbered 0 to size-1. A rank is a process or a thread and
 *    is bound to one device. One handle is used by one thread at a time (weft_comm_abort and
 *    weft_comm_error excepted); threads may take turns. A call made while another thread is in one
 *    is WEFT_ERR_INVALID and says so; should both have begun, WEFT_ERR_MISMATCH breaks the
 *    communicator.
 *  - Collectives are called by every rank of the communicator, in the same order, with the same
 *    count, type, op and root. A rank that calls something else gives WEFT_ERR_MISMATCH on all
 *    ranks, with both calls in weft_last_error().
 *  - Buffers may come from weft_malloc, or be memory of the GPU that is registered (weft_register):
 *    no extra copy; or be any other memory (staged where a peer cannot reach it). `dst` must not
 *    overlap `src`, except in place where that is allowed. A count of 0 is allowed and still counts
 *    as a call. Memory that is weft_malloc's must be in use and hold what the call needs, else
 *    WEFT_ERR_INVALID says what it has; on GPUs with the setting WEFT_CHECK_MEMORY only. Of other
 *    memory nothing is known, and nothing is checked.
 *  - `stream` NULL: the call runs in the calling thread and returns when the result is there.
 *    Otherwise it returns when queued (on GPUs, with some hundred calls in front, or ten with plain
 *    host memory, when some of these are done); the caller keeps the buffers alive until the stream
 *    has passed it, and weft_stream_synchronize or weft_comm_error reports its failure. Calls on
 *    one communicator run in the order they were made, whatever their streams (groups: see there).
 *    On GPUs a call on another stream than the one before waits until ranks of the same process
 *    have made that one.
 *  - Reductions give the same bits on all ranks, and from run to run with the same ranks, count
 *    and algorithm (of a group, those of all that ran as one). f16 and bf16 are summed in f32,
 *    except by NCCL.
 *  - Every collective waits for all ranks, with one exception: when a small broadcast, scatter,
 *    reduce or gather is made for the fourth time in a row and more, a rank that needs nothing from
 *    the others does not wait for them. What is wrong with them is then reported by a later call,
 *    at most 16 calls on.
 *  - Errors. Arguments are checked first: WEFT_ERR_INVALID changes nothing. A rank that dies is
 *    WEFT_ERR_RANK_DEAD within 2 s on all that are in a call with it; one that does not arrive,
 *    WEFT_ERR_TIMEOUT after the timeout; one that destroyed its handle, WEFT_ERR_RANK_LEFT.
 *    weft_last_error() names the rank, the call and its sizes. After any of these the communicator
 *    is broken: further calls return WEFT_ERR_BROKEN at once (queued on a stream of a virtual GPU,
 *    its next synchronize does), and only weft_comm_destroy or weft_comm_abort remain. */
#ifndef WEFT_COMM_H
#define WEFT_COMM_H

#include <weft/status.h>
#include <weft/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- making communicators --------------------------------------------------------------- */

/* Names a communicator to be. Made by one rank, handed to the others by any means. It holds the
 * address and the secret of a rendezvous inside the process that made it. */
typedef struct weft_unique_id {
    char bytes[128];
} weft_unique_id_t;

/* New fields only at the end; start from WEFT_COMM_CONFIG_INIT. */
typedef struct weft_comm_config {
    size_t size;      /* sizeof of this struct as the caller knew it */
    int timeout_ms;   /* how long to wait for a rank; -1: the setting WEFT_TIMEOUT */
    const char *algo; /* as the setting WEFT_ALGO ("allreduce:ring"); NULL: the setting */
    /* On GPUs: how many communicators of this rank may have calls in progress at the same time. A
     * call's kernel holds its part of the GPU until it ends; with more of them in progress than
     * said here, none may be able to go on. They share what a rank may take of its GPU; the largest
     * number given by a rank counts. -1: 1. */
    int concurrent_comms;
} weft_comm_config_t;

#define WEFT_COMM_CONFIG_INIT                                                                      \
    {                                                                                              \
        sizeof(weft_comm_config_t), -1, NULL, -1                                                   \
    }

/* Where this process stands in the job that started it (weft run, torchrun, mpirun, srun). Without
 * a launcher it is a job of one. All outputs may be NULL. */
weft_status_t weft_job_info(int *rank_p, int *size_p, int *local_rank_p, int *local_size_p);

/* The communicator of all ranks of the job. Collective over the job. On the current device.
 * `config` may be NULL. */
weft_status_t weft_comm_init_job(weft_comm_h *comm_p, const weft_comm_config_t *config);

/* Make an id for weft_comm_init_rank. The process must live until all ranks have joined. */
weft_status_t weft_unique_id_create(weft_unique_id_t *id_p);

/* The id that every rank which knows `id` gets with the same `number`, without asking another: it
 * names one more communicator, at the same rendezvous. */
weft_status_t weft_unique_id_derive(const weft_unique_id_t *id, uint64_t number,
                                    weft_unique_id_t *id_p);

/* Join, as `rank` of `nranks`, the communicator named by `id`, on the current device. Blocks until
 * all ranks have joined. Ranks may be processes, threads, or both mixed. Inside a group the call
 * is deferred to weft_group_end, so that one thread can join several ranks. */
weft_status_t weft_comm_init_rank(weft_comm_h *comm_p, int nranks, weft_unique_id_t id, int rank,
                                  const weft_comm_config_t *config);

/* Make `ndev` ranks in this process at once, rank i on device devlist[i] (NULL: device i), which
 * must be below weft_device_count; several ranks may have the same. `comms` has room for ndev
 * handles. Use them from one thread each, or from one thread inside weft_group_start/end. */
weft_status_t weft_comm_init_all(weft_comm_h *comms, int ndev, const int *devlist);

/* Split: ranks that pass the same `color` form a new communicator, ordered by `key`, then by rank.
 * A negative color joins none and gets NULL. Collective over `comm`. */
weft_status_t weft_comm_split(weft_comm_h comm, int color, int key, weft_comm_h *new_p,
                              const weft_comm_config_t *config);

/* Finish this rank's queued calls and free the handle. Not collective; NULL is allowed.
 * WEFT_ERR_INVALID, and nothing changes, while something of this rank still needs it: a symmetric
 * heap, a call in a group that is open, a call in another thread (weft_comm_abort is for that). */
weft_status_t weft_comm_destroy(weft_comm_h comm);

/* Break the communicator for all its ranks, from any thread: calls in progress on it, here and on
 * other ranks, return WEFT_ERR_ABORTED and name this rank. Frees the handle. Symmetric heaps on it
 * are still to be destroyed, which then returns WEFT_ERR_ABORTED. */
weft_status_t weft_comm_abort(weft_comm_h comm);

weft_status_t weft_comm_rank(weft_comm_h comm, int *rank_p);
weft_status_t weft_comm_size(weft_comm_h comm, int *size_p);
weft_status_t weft_comm_device(weft_comm_h comm, int *device_p);

/* The state of the communicator: WEFT_OK, or the error that broke it. `text_p` (may be NULL) gets
 * its sentence, "" if there is none, valid while the handle lives. Never blocks. */
weft_status_t weft_comm_error(weft_comm_h comm, const char **text_p);

/* ---- groups ----------------------------------------------------------------------------- */

/* Calls between start and end are deferred to the end and may then run together: sends and
 * receives in any order, small all-reduces that follow each other, of one type, operation and
 * stream, as one (up to 255, and 64 KiB together), and several ranks driven by one thread. So none
 * of them may need what another one writes. Every rank groups the same collectives, and the same of
 * them on one stream. Groups nest; the outermost end runs them. Calls on NULL streams are done when
 * weft_group_end returns. If a call inside the group was refused, weft_group_end runs nothing and
 * returns that error. */
weft_status_t weft_group_start(void);
weft_status_t weft_group_end(void);

/* ---- collectives ------------------------------------------------------------------------ */

/* dst[i] = op over all ranks of src[i], on every rank. In place: dst == src. */
weft_status_t weft_allreduce(const void *src, void *dst, size_t count, weft_dtype_t type,
                             weft_op_t op, weft_comm_h comm, weft_stream_h stream);

/* As weft_allreduce, but the result only reaches `root`; dst may be NULL elsewhere. */
weft_status_t weft_reduce(const void *src, void *dst, size_t count, weft_dtype_t type, weft_op_t op,
                          int root, weft_comm_h comm, weft_stream_h stream);

/* dst on every rank = src of `root`; src is ignored elsewhere. In place: dst == src on root. */
weft_status_t weft_broadcast(const void *src, void *dst, size_t count, weft_dtype_t type, int root,
                             weft_comm_h comm, weft_stream_h stream);

/* Every rank has size x count elements in src; rank r gets block r, reduced over all ranks, in dst
 * (count elements). In place: dst == src + rank x count. */
weft_status_t weft_reduce_scatter(const void *src, void *dst, size_t count, weft_dtype_t type,
                                  weft_op_t op, weft_comm_h comm, weft_stream_h stream);

/* Every rank gives count elements; dst (size x count elements) holds rank r's as block r, on every
 * rank. In place: src == dst + rank x count. */
weft_status_t weft_allgather(const void *src, void *dst, size_t count, weft_dtype_t type,
                             weft_comm_h comm, weft_stream_h stream);

/* As weft_allgather, but only `root` receives; dst may be NULL elsewhere. In place on root. */
weft_status_t weft_gather(const void *src, void *dst, size_t count, weft_dtype_t type, int root,
                          weft_comm_h comm, weft_stream_h stream);

/* Block r of root's src (size x count elements) goes to dst of rank r (count elements); src may be
 * NULL elsewhere. In place on root: dst == src + root x count. */
weft_status_t weft_scatter(const void *src, void *dst, size_t count, weft_dtype_t type, int root,
                           weft_comm_h comm, weft_stream_h stream);

/* Block p of src (count elements) goes to block `rank` of dst on rank p. src and dst hold
 * size x count elements. In place: dst == src. */
weft_status_t weft_alltoall(const void *src, void *dst, size_t count, weft_dtype_t type,
                            weft_comm_h comm, weft_stream_h stream);

/* As weft_alltoall with a count and an offset (both in elements) per peer. sendcounts[p] here must
 * equal recvcounts[rank] on p. The four arrays have `size` entries and are copied by the call.
 * Never in place. */
weft_status_t weft_alltoallv(const void *src, const size_t *sendcounts, const size_t *sendoffsets,
                             void *dst, const size_t *recvcounts, const size_t *recvoffsets,
                             weft_dtype_t type, weft_comm_h comm, weft_stream_h stream);

/* Returns (or lets the stream pass) when every rank has arrived. */
weft_status_t weft_barrier(weft_comm_h comm, weft_stream_h stream);

/* ---- point to point --------------------------------------------------------------------- */

/* Send count elements to `peer`, which calls weft_recv with the same count and type. Messages
 * between two ranks arrive in order. A small message may be buffered; never rely on it: put sends
 * and receives that must run together into a group. Sending to oneself needs a group. */
weft_status_t weft_send(const void *src, size_t count, weft_dtype_t type, int peer,
                        weft_comm_h comm, weft_stream_h stream);
weft_status_t weft_recv(void *dst, size_t count, weft_dtype_t type, int peer, weft_comm_h comm,
                        weft_stream_h stream);

#ifdef __cplusplus
}
#endif
#endif
