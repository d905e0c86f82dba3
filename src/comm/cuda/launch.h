/* Collectives by kernels: what the host hands to a kernel, and the memory in which the kernels of
 * the ranks meet. Shared by the host side (C) and the kernels (CUDA C++).
 *
 * Each rank launches one kernel per call, on its own stream. The kernels of one call meet in the
 * ranks' mailboxes: memory of every rank that all the others write to. A rank writes into the
 * mailboxes of its peers and reads only its own, so that between GPUs nothing is polled over a
 * link.
 *
 *     mailbox of rank r
 *     +-----------------------------------+
 *     | state: calls made, blocks done    |  r's own kernels
 *     +-----------------------------------+
 *     | head[2][from]                     |  rank `from` announces a call: signature, count,
 *                                            buffers
 *     | done[block][from]                 |  a block of it no longer touches others' buffers
 *     | chan[from], ack[from]             |  messages from that rank, and taken by that rank
 *     +-----------------------------------+
 *     | ll[2][from][..]                 |  data of small calls, with flags in it
 *     +-----------------------------------+
 *
 * Calls are numbered from 1, by the GPU, so that they can be captured in a graph. A flag holds the
 * number of its call and fills the upper half of every 8 bytes, beside 4 bytes of data: both arrive
 * at once, so that no fence is needed, and a flag of an older call is never taken for one of this
 * call (numbers wrap after 2^32 calls: a line would have to stay unused for exactly so many). Call
 * k uses half k % 2 of head and ll. Every call waits for everybody's head before it ends, so
 * whoever starts k has seen that all have started k - 1, that is, have finished k - 2, and may
 * overwrite its half. */
#ifndef WEFT_COMM_CUDA_LAUNCH_H
#define WEFT_COMM_CUDA_LAUNCH_H

#include "device/cuda_module.h"

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_CUDA_RANKS 32        /* of one communicator */
#define WEFT_CUDA_THREADS 512     /* of a block; kernels of small calls have a warp more */
#define WEFT_CUDA_BLOCKS_PER_SM 2 /* see weft__cuda_blocks for why all are resident */
#define WEFT_CUDA_BLOCKS 256      /* of a grid, at most */
#define WEFT_CUDA_FEW 24          /* messages that travel with the launch */
#define WEFT_CUDA_PIECES 64       /* small all-reduces that one kernel carries out */
#define WEFT_CUDA_POLL_FAN 8      /* ranks that a kernel for few ranks has */
#define WEFT_CUDA_HEAD_WORDS 8    /* 32-bit words of an announcement */
#define WEFT_CUDA_LL_SPACE ((size_t)4 << 20) /* bytes of ll[][][] in a mailbox */

#define WEFT_CUDA_APART __attribute__((aligned(128))) /* on lines of its own */

/* 4 bytes of data and the number of the call they belong to. */
typedef uint64_t weft_cuda_word_t;

typedef struct weft_cuda_mailbox {
    /* Written by this rank's own kernels, one after the other. */
    /* Calls finished, one count per block: each block reads and writes its own, so that a count is
     * never written while another block has yet to read it, and none waits for the others. Block 0
     * also moves those on that a smaller grid does not have. */
    uint64_t calls[WEFT_CUDA_BLOCKS];
    uint32_t blocks;  /* of the running kernel that have finished */
    uint32_t stopped; /* something is wrong: do not wait for anything any more */
    uint32_t lane_blocks[2 * WEFT_CUDA_RANKS]; /* the same for messages, by lane */
    uint32_t sent[WEFT_CUDA_RANKS];            /* messages sent to that rank */
    uint32_t taken[WEFT_CUDA_RANKS];           /* messages received from that rank */
    /* Written by rank [from]. */
    weft_cuda_word_t head[2][WEFT_CUDA_RANKS][WEFT_CUDA_HEAD_WORDS] WEFT_CUDA_APART;
    uint64_t done[WEFT_CUDA_BLOCKS][WEFT_CUDA_RANKS];
    weft_cuda_word_t chan[WEFT_CUDA_RANKS][WEFT_CUDA_HEAD_WORDS];
    uint64_t ack[WEFT_CUDA_RANKS]; /* messages to [from] that it has taken */
    weft_cuda_word_t ll[WEFT_CUDA_LL_SPACE / 8] WEFT_CUDA_APART; /* 16 bytes at a time */
} weft_cuda_mailbox_t;

/* Why a kernel gave up. */
enum { WEFT_CUDA_FINE, WEFT_CUDA_MISMATCH, WEFT_CUDA_LATE };

/* What a kernel tells the host, in host memory: written only when something is wrong, or at the end
 * of a call that somebody waits for. `kind` is written last. */
typedef struct weft_cuda_report {
    uint32_t kind; /* 0: nothing; the first to change it fills in the rest */
    uint32_t peer;
    uint64_t call;       /* number */
    uint64_t sig, count; /* of this rank's call */
    uint64_t peer_sig, peer_count;
    uint32_t arrived[WEFT_CUDA_RANKS]; /* number of the last call that each rank has announced */
    uint64_t last_sig[WEFT_CUDA_RANKS], last_count[WEFT_CUDA_RANKS];
    uint32_t ready; /* 1 once all of the above is there */
    /* Polled by a caller that waits for a mark. */
    uint64_t finished WEFT_CUDA_APART;
} weft_cuda_report_t;

/* What stays the same from call to call. */
typedef struct weft_cuda_world {
    int rank, size;
    int wide;              /* ranks are on several GPUs: flags need the scope of the system */
    uint64_t timeout_ns;   /* 0: none */
    uint64_t ll_words;     /* of one rank in one half of ll[] */
    const uint64_t *slabs; /* [size][WEFT_CUDA_SLABS]: where others' memory is mapped here. NULL:
                            * all ranks are threads of one process, and addresses are their own */
    const uint64_t *new_slabs;  /* host memory: the same, for what is still 0 there */
    weft_cuda_report_t *report; /* host memory */
    const uint32_t *stop;       /* host memory: not 0: give up */
    weft_cuda_mailbox_t *mailbox[WEFT_CUDA_RANKS];
} weft_cuda_world_t;

/* A buffer, as announced to others: its address, or with slabs: number of the slab << 48 |
 * offset. */
typedef uint64_t weft_cuda_ref_t;

/* What a small call sends and takes: made by the host, so that kernels need not think about it. */
typedef struct weft_cuda_route {
    int32_t send_from, send_to; /* ranks that get something from this one, itself left out */
    int32_t recv_from, recv_to; /* ranks that something is taken from, this one included */
    uint64_t send_step; /* from the block for one rank to that for the next; 0: all get the same */
    uint64_t recv_step;
} weft_cuda_route_t;

typedef struct weft_cuda_call {
    int coll, type, op, root; /* weft_coll_t, weft_dtype_t, weft_op_t */
    int direct;  /* 0: data travels by the LL protocol; 1: everybody's buffers are used directly */
    int overlap; /* may be made resident before the kernel before has ended */
    int gate;   /* one warp waits for all before the grid is launched, see direct.cuh; both have the
                    * highest priority */
    int even;   /* with LL: only whole, aligned units, and at most WEFT_CUDA_POLL_FAN ranks */
    int blocks; /* of the grid */
    uint64_t mark;       /* what report->finished becomes at the end; 0: nobody waits for that */
    uint64_t sig, count; /* compared with everybody's */
    const void *src;
    void *dst;
    weft_cuda_ref_t src_ref, dst_ref;
    weft_cuda_route_t route; /* where direct is 0 */
} weft_cuda_call_t;

/* An alltoallv: bytes and where they are, per peer. */
typedef struct weft_cuda_ragged {
    uint64_t send_bytes[WEFT_CUDA_RANKS], send_at[WEFT_CUDA_RANKS];
    uint64_t recv_bytes[WEFT_CUDA_RANKS], recv_at[WEFT_CUDA_RANKS];
} weft_cuda_ragged_t;

/* Small all-reduces of a group as one call: their units stand one behind the other. */
typedef struct weft_cuda_batched {
    const void *src;
    void *dst;
    uint32_t first; /* unit of the call that it starts with */
    uint32_t bytes;
} weft_cuda_batched_t;

typedef struct weft_cuda_batch {
    int n;
    uint32_t units; /* of all */
    weft_cuda_batched_t piece[WEFT_CUDA_PIECES];
} weft_cuda_batch_t;

/* A send or receive. Messages of one lane (a peer and a direction) go one after the other. */
typedef struct weft_cuda_message {
    uint64_t sig, count, bytes; /* sig: the same on both sides */
    uint64_t call_sig;          /* of this side's call, for errors */
    char *at;                   /* recv: where it goes to */
    weft_cuda_ref_t ref;        /* send: where it is */
    int32_t peer, sends, lane;
    int32_t next; /* of the same lane; -1: the last one */
} weft_cuda_message_t;

typedef struct weft_cuda_exchange {
    const weft_cuda_message_t *messages; /* host memory that the GPU reaches, or NULL */
    int lanes, lane_blocks;              /* grid: lanes x lane_blocks */
    uint64_t mark; /* what report->finished becomes at the end; 0: nobody waits for that */
    int32_t first[2 * WEFT_CUDA_RANKS];     /* message of each lane */
    weft_cuda_message_t few[WEFT_CUDA_FEW]; /* used where messages is NULL */
} weft_cuda_exchange_t;

typedef struct weft_cuda_comm_ops {
    uint32_t abi;
    /* Load every kernel on `gpu`: done before the first call, since a first launch may wait for the
     * GPU to be idle, which it is not while a peer's kernel waits for this one. */
    int (*load)(int gpu);
    int (*collective)(int gpu, const weft_cuda_world_t *world, const weft_cuda_call_t *call,
                      void *stream);
    int (*ragged)(int gpu, const weft_cuda_world_t *world, const weft_cuda_call_t *call,
                  const weft_cuda_ragged_t *ragged, void *stream);
    int (*batch)(int gpu, const weft_cuda_world_t *world, const weft_cuda_call_t *call,
                 const weft_cuda_batch_t *batch, void *stream);
    int (*exchange)(int gpu, const weft_cuda_world_t *world, const weft_cuda_exchange_t *exchange,
                    void *stream);
} weft_cuda_comm_ops_t;

WEFT_CUDA_EXPORT const weft_cuda_comm_ops_t weft_cuda_comm;

#ifdef __cplusplus
}
#endif
#endif
