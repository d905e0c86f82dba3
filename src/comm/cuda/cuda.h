/* The cuda transport: collectives by our own kernels, for ranks on GPUs of one host.
 *
 * It stands on comm/host, which brings the ranks together, watches them, names errors and splits
 * communicators. A call launches one kernel and returns. The
 * kernels of the ranks meet on the GPU (launch.h); the host only steps in when something goes
 * wrong: one thread of the process, the watch, looks after all its communicators (watch.c). */
#ifndef WEFT_COMM_CUDA_CUDA_H
#define WEFT_COMM_CUDA_CUDA_H

#include <pthread.h>

#include "comm/cuda/launch.h"
#include "comm/cuda/tune.h"
#include "comm/host/host.h"
#include "comm/nccl/nccl.h"
#include "comm/watch.h"
#include "device/cuda.h"

/* What a rank tells the others about its GPU, behind its block of the segment. All but the atomics
 * is written before the rank is JOINED. */
typedef struct weft_cuda_peer_info {
    uint8_t uuid[16];
    int32_t gpu, sms, mps;
    int32_t share, concurrent_comms; /* blocks that this rank may have at once; communicators that
                                        share them */
    /* For NCCL: the id is rank 0's, made by whoever comes first; whether each rank came in. */
    _Atomic uint32_t id_state, came_in;
    weft_nccl_id_t id;
    weft_cuda_ref_t mailbox;  /* slab and offset */
    uint64_t mailbox_address; /* in the owner's process */
    _Atomic uint64_t
        issued; /* calls made so far: released with what is below, acquired by watches */
    _Atomic uint64_t sig, count; /* of the last one */
    /* Messages asked for so far, to and from each rank: released by the rank, acquired by
     * watches. */
    _Atomic uint32_t sends[WEFT_CUDA_RANKS], recvs[WEFT_CUDA_RANKS];
    _Atomic uint64_t launched; /* calls whose kernel is queued: released by the rank, acquired by
                                  * ranks of the same process (weft__cuda_keep_up) */
    /* Slabs of this rank. Entries below `slabs` are valid: released by the owner (publish),
     * acquired by the others' watches, which map them and say so in `mapped`. */
    _Atomic uint32_t slabs;
    struct {
        uint64_t id;
        uint64_t base, bytes; /* in the owner's process; 0 bytes: there is none of this number */
        uint8_t handle[WEFT_CUDA_IPC_BYTES];
    } slab[WEFT_CUDA_SLABS];
    /* How many slabs of rank [p] this rank has mapped: released by its watch, acquired by p before
     * it lets a kernel use such a slab. */
    _Atomic uint32_t mapped[WEFT_CUDA_RANKS];
} weft_cuda_peer_info_t;

/* Memory that queued work still uses; given back once `event` has passed. */
typedef struct weft_cuda_loan {
    void *device[2], *host;
    void *event; /* NULL: used by a graph, kept until the communicator closes */
    struct weft_cuda_loan *next;
} weft_cuda_loan_t;

typedef struct weft_cuda {
    weft_host_t *host;
    weft_comm_h comm;
    int rank, size, device, gpu;
    weft_cuda_peer_info_t *infos[WEFT_CUDA_RANKS];
    weft_cuda_world_t world;
    weft_cuda_mailbox_t *mailbox; /* this rank's own */
    bool far;                     /* some ranks are other processes */
    int most_blocks;              /* of a kernel; see weft__cuda_blocks */
    weft_cuda_tune_t tune;
    weft_nccl_t *nccl;        /* NULL: our own kernels carry calls of all sizes */
    _Atomic int engine_known; /* did all ranks come in? 1 yes, -1 no, 0 not asked yet */
    /* The latest call that NCCL has: released with its number, which is 0 before, acquired by the
     * watch ... */
    _Atomic uint64_t engine_sig, engine_count, engine_call;
    _Atomic bool engine_inside;      /* the caller is inside NCCL, which may connect ranks there */
    void *engine_start, *engine_end; /* events around that call */
    weft_arrivals_t arrivals;        /* ... which has this, and looks now and then */
    uint64_t engine_looked_ns, engine_failed_ns;
    bool overlaps; /* a small call is made resident before the one before it has ended */

    weft_stream_h own;     /* for calls on NULL streams; made when needed */
    uint64_t issued;       /* calls queued */
    uint64_t marks;        /* launches that were waited for */
    bool captured;         /* some call is in a graph, which may run at any time */
    _Atomic bool failed;   /* CUDA has reported an error; relaxed, tells the watch to look closer */
    weft_cuda_past_t last; /* the stream of the call before; read by the watch under `lock` */
    void *order;           /* event that ties streams together; made when needed */
    bool behind;           /* calls on other streams than `own` are perhaps not done */
    void *pace;            /* event: the stream has come so far; made when needed */
    int queued;            /* operations since then, see WEFT_CUDA_PACE */
    weft_cuda_loan_t *loans;

    /* Mapped slabs of other processes: [size][WEFT_CUDA_SLABS], written by the watch. Pinned, so
     * that kernels find what was mapped after they were queued: the watch cannot write to the GPU,
     * as a copy may stand in a hardware queue behind a kernel that waits for it. */
    void **mapped;
    _Atomic uint32_t news; /* how often that happened; released by the watch */
    uint64_t *slabs;       /* the same table in device memory, copied before a call by its stream */
    uint32_t copied;       /* value of `news` then */

    weft_cuda_report_t *report; /* pinned, with `stop` behind it */
    uint32_t *stop;
    pthread_mutex_t lock; /* between the watch and those who report an error */
    uint64_t gone_ns;     /* when the watch first missed a rank that it waits for */
    uint64_t unmapped_ns; /* when the watch first failed to map others' memory; 0: it did not */
    bool told;            /* the report was turned into an error */
    struct weft_reach_observer *observers; /* of the watch, under its lock */
    struct weft_cuda *next;                /* of the watch */
} weft_cuda_t;

static inline const weft_cuda_comm_ops_t *weft__cuda_kernels(void)
{
    static weft_cuda_table_t table = {.name = "weft_cuda_comm"};
    return weft__cuda_table(&table);
}

/* The largest block that LL has room for: 4 bytes of data a word. */
static inline uint64_t weft__cuda_ll_bytes(const weft_cuda_t *cuda)
{
    return cuda->world.ll_words * 4;
}

/* ---- joining (join.c) -------------------------------------------------------------------- */

/* Are two ranks on one GPU? */
bool weft__cuda_shares_gpu(const weft_cuda_t *cuda);

/* The least share of `gpu` that this process has had as a rank of any communicator, in blocks,
 * since it has some open (share.c). Those made later, of fewer ranks, must not take more: kernels
 * of all of them may wait at once. */
int weft__cuda_known_share(int gpu);
void weft__cuda_note_share(int gpu, int share);
void weft__cuda_forget_shares(void); /* if none is open */

/* Announce slabs that were made since, and wait until all ranks have mapped number `slab`. */
weft_status_t weft__cuda_publish(weft_cuda_t *cuda, int slab);

/* ---- calls (calls.c, messages.c, batch.c, measure.c) -------------------------------------- */

weft_status_t weft__cuda_launch(void *ctx, const weft_call_t *calls, int n, weft_stream_h stream);
weft_choice_t weft__cuda_choose(void *ctx, weft_coll_t coll, size_t bytes);
weft_status_t weft__cuda_tune(void *ctx, weft_coll_t coll, weft_tune_time_fn time, void *arg,
                              weft_tuned_t *tuned_p);
weft_status_t weft__cuda_exchange(weft_cuda_t *cuda, const weft_call_t *calls, int n,
                                  weft_stream_h stream, uint64_t mark);

/* Blocks for `threads` of work: at most this rank's share of what the GPU holds at once. All ranks
 * on a GPU together launch at most one block per multiprocessor, and every kernel is compiled so
 * that two fit (WEFT_CUDA_BLOCKS_PER_SM): so the kernels of one call are resident together,
 * whatever their order, and so are those of two communicators at once. Other work on the GPU delays
 * them, but does not wait for them. */
int weft__cuda_blocks(const weft_cuda_t *cuda, uint64_t threads);

/* Does a call with blocks of `bytes` read and write everybody's buffers? Else its data travels in
 * LL. The same on all ranks. */
bool weft__cuda_goes_direct(const weft_cuda_t *cuda, weft_coll_t coll, uint64_t bytes);

/* Queue the kernel of a call whose buffers kernels can reach, or of those in `batch`, which it
 * stands for. */
weft_status_t weft__cuda_queue(weft_cuda_t *cuda, const weft_call_t *call, weft_cuda_call_t *k,
                               const weft_cuda_batch_t *batch, weft_stream_h stream,
                               bool capturing);

/* GPUs need the addresses of elements to be multiples of their size. */
weft_status_t weft__cuda_check_alignment(const weft_call_t *call);

/* How many of the first of `n` all-reduces of a group, of one type and operation, one kernel
 * carries out; the same on all ranks. Do so (batch.c). */
int weft__cuda_batch_size(void *ctx, const weft_call_t *calls, int n);
weft_status_t weft__cuda_batch(weft_cuda_t *cuda, const weft_call_t *calls, int n,
                               weft_stream_h stream, uint64_t mark);

/* Can this rank's own GPU read and write it, pinned host memory included (buffers.c)? */
bool weft__cuda_reaches(const weft_cuda_t *cuda, const void *ptr, size_t bytes);

/* Where a buffer is for others, if their kernels can reach it; that they cannot is no error
 * (buffers.c). */
weft_status_t weft__cuda_ref(weft_cuda_t *cuda, const void *ptr, size_t bytes,
                             weft_cuda_ref_t *ref_p, bool *reached_p);

/* A call counts for 2 operations on its stream (a gate and a grid), and for what it stages; after
 * WEFT_CUDA_PACE of them a rank looks how far its stream has come, so that never more than twice as
 * many stand there. The driver has room for a thousand behind a kernel that waits, but only for 27
 * calls with a function before and behind it. A thread that finds none waits with the driver's
 * locks held: other ranks of the process could not queue what it waits for, nor the watch map
 * memory. With these numbers two communicators may share a stream. */
#define WEFT_CUDA_PACE 240
#define WEFT_CUDA_PINNED_OPS 38
#define WEFT_CUDA_COPY_OPS 3   /* copies and an event */
#define WEFT_CUDA_ENGINE_OPS 2 /* events, beside the call of NCCL's */

/* Before a launch on `stream`: make it run after the call before, whatever stream that was on. */
weft_status_t weft__cuda_in_order(weft_cuda_t *cuda, weft_stream_h stream, bool *capturing_p);

/* ---- NCCL for large calls (engine.c) --------------------------------------------------------- */

/* In the steps of joining; failures only mean that NCCL is not used. */
void weft__cuda_engine_enter(weft_cuda_t *cuda);
void weft__cuda_engine_settle(weft_cuda_t *cuda);

/* Is a call with blocks of `bytes` NCCL's? The same on all ranks. */
bool weft__cuda_engine_takes(weft_cuda_t *cuda, weft_coll_t coll, uint64_t bytes);
/* Is this one? Float8 is not, where it is reduced: NCCL refuses that on GPUs before Hopper, and
 * rounds every partial sum elsewhere. */
bool weft__cuda_engine_takes_call(weft_cuda_t *cuda, const weft_call_t *call);
weft_status_t weft__cuda_engine_launch(weft_cuda_t *cuda, const weft_call_t *call,
                                       weft_stream_h stream, bool capturing);
void weft__cuda_engine_close(weft_cuda_t *cuda);

/* For the watch: has NCCL failed, is a rank late for its call, or in another one? Calls in graphs
 * are not looked at: they run when their graph does. */
void weft__cuda_engine_look(weft_cuda_t *cuda, uint64_t now);

/* Once a stream has been waited for: have calls of NCCL's gone well? When they fail their kernels
 * end, too. */
weft_status_t weft__cuda_engine_check(weft_cuda_t *cuda);

/* ---- plain host memory (pinned.c) ----------------------------------------------------------- */

typedef struct weft_cuda_list weft_cuda_list_t; /* of copies */

typedef struct weft_cuda_pinned {
    weft_cuda_loan_t *loan; /* NULL: nothing is replaced */
    weft_cuda_list_t *out;  /* results, to where they belong */
} weft_cuda_pinned_t;

/* Replace buffers of `n` calls that are plain host memory by pinned memory, filled in stream
 * order. */
weft_status_t weft__cuda_pin_in(weft_cuda_t *cuda, weft_call_t *calls, int n, weft_stream_h stream,
                                weft_cuda_pinned_t *pinned_p);
/* After their kernel was queued, which went as `status` says: bring the results back, in stream
 * order and unless it gives up; if somebody waits for `mark`, they are there on return. */
weft_status_t weft__cuda_pin_out(weft_cuda_t *cuda, const weft_cuda_pinned_t *pinned,
                                 weft_stream_h stream, bool capturing, uint64_t mark,
                                 weft_status_t status);

/* ---- other buffers that kernels cannot reach (staging.c) ------------------------------------*/

typedef struct weft_cuda_staging {
    weft_cuda_loan_t *loan; /* NULL: nothing is staged */
    void *to;               /* where the result goes; NULL: the kernel puts it there itself */
    size_t bytes;
} weft_cuda_staging_t;

/* Replace those buffers of `call` (src, dst) by memory of the device, filled in stream order. */
weft_status_t weft__cuda_staging_in(weft_cuda_t *cuda, weft_call_t *call, bool src, bool dst,
                                    weft_stream_h stream, weft_cuda_staging_t *staging_p);
/* After the kernel of `n` calls was queued, which went as `status` says: bring their results back,
 * and lend what was staged. If somebody waits for `mark` and something was, it is waited for
 * here. */
weft_status_t weft__cuda_staging_end(weft_cuda_t *cuda, const weft_call_t *calls,
                                     const weft_cuda_staging_t *stages, int n, weft_stream_h stream,
                                     bool capturing, uint64_t mark, weft_status_t status);
/* Lend memory until the stream has passed here, or `for_good`, until the communicator closes: to a
 * graph, or where something has failed, whose error must stay this thread's last one. */
weft_status_t weft__cuda_lend(weft_cuda_t *cuda, weft_cuda_loan_t *loan, weft_stream_h stream,
                              bool for_good);
/* There is no memory to stage a call: the others are in it, or will be, so the communicator is
 * broken. */
weft_status_t weft__cuda_no_room(weft_cuda_t *cuda);
/* Take back a loan that nothing uses; of those lent, what is no longer used, or (all)
 * everything. */
void weft__cuda_take_back(weft_cuda_t *cuda, weft_cuda_loan_t *loan);
void weft__cuda_reclaim(weft_cuda_t *cuda, bool all);

/* ---- errors (fault.c, watch.c) -------------------------------------------------------------- */

/* Break the communicator for all ranks, unless it is broken already. */
void weft__cuda_break(weft_cuda_t *cuda, weft_status_t status, int culprit, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* For the watch (comm/watch.h): what a rank says in its peer info that it has called, and its
 * state; the same of all, who are `size`; what this one waits in: its last call. */
weft_seen_t weft__cuda_see(const weft_cuda_t *cuda, int rank);
int weft__cuda_see_all(const weft_cuda_t *cuda, weft_seen_t seen[WEFT_CUDA_RANKS]);
weft_waiting_t weft__cuda_waiting(const weft_cuda_t *cuda, int peer);
/* Break the communicator if that is a fault. */
bool weft__cuda_judge(weft_cuda_t *cuda, const weft_waiting_t *waiting, const weft_seen_t *seen,
                      int n);

/* Is it broken? Also turns a kernel's report into an error, and ends our kernels if it is. */
bool weft__cuda_broken(weft_cuda_t *cuda);

/* Have our kernels given up, or been told to? Changes nothing, and may be asked by a stream. */
bool weft__cuda_stopped(const weft_cuda_t *cuda);

/* WEFT_OK, or what broke it, as the error of this thread: for those who tell the caller. */
weft_status_t weft__cuda_check(weft_cuda_t *cuda);

/* Something has failed here. True: the watch found a rank that is the reason within this time, and
 * the communicator is broken. */
#define WEFT_CUDA_BLAME_NS 1000000000u
bool weft__cuda_blamed(weft_cuda_t *cuda);

/* CUDA reports an error. When a process dies its memory goes, and kernels of others that were using
 * it fail: so the rank that died is named, if there is one, and `what` otherwise, or with error 0
 * what this thread's last error says. */
weft_status_t weft__cuda_failed(weft_cuda_t *cuda, int error, const char *what);

/* weft__cuda_check, _engine_check or _failed, as weft__cuda_remember wants it. */
weft_status_t weft__cuda_ask(void *ctx, int error);

/* Before something waits on the GPU for the call before: wait until all ranks of this process have
 * launched that call.
 *
 * Streams of a process may share a hardware queue, in which a wait for an event holds up what
 * stands behind it. If one rank could run ahead, its waits could stand before the kernels of ranks
 * that it waits for. As it is, every kernel of call k is queued before anything that waits for call
 * k. */
weft_status_t weft__cuda_keep_up(weft_cuda_t *cuda);

/* Wait until the launch with that mark is done. */
weft_status_t weft__cuda_await(weft_cuda_t *cuda, uint64_t mark);
/* The same for what cannot tell the host itself. */
weft_status_t weft__cuda_await_idle(weft_cuda_t *cuda);

weft_status_t weft__cuda_watch(weft_cuda_t *cuda);
void weft__cuda_unwatch(weft_cuda_t *cuda);
/* An observer of the watch comes or goes; it is not being asked any more when this returns. */
void weft__cuda_observe(void *ctx, weft_reach_observer_t *observer, bool comes);
/* Map what others have announced; under cuda->lock. */
weft_status_t weft__cuda_map_slabs(weft_cuda_t *cuda);

/* Let kernels that CUDA's stream `native` starts from here on find all slabs in device memory. */
weft_status_t weft__cuda_copy_slabs(weft_cuda_t *cuda, void *native);
/* Give device memory back when no kernel of another rank can write to it any more. */
void weft__cuda_defer_free(void *memory);

#endif
