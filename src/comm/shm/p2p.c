/* Sends and receives.
 *
 * Each ordered pair of ranks has a channel: a ring of fragments, flag and data.
 *
 *  - Small (1 KiB, or 8 KiB where it cannot be reached): the message is one fragment; the sender is
 *    done when it is written.
 *  - Large: the sender posts where the message is; the receiver says where it goes; then both copy
 *    chunks of it, claimed one by one, until all are done. Whoever cannot reach the other's buffer
 *    leaves the copying to the other. So two idle cores share the work, and on one core whoever
 *    runs does it.
 *  - Large, and neither reaches the other's buffer: fragments stream through the ring.
 *
 * Sends and receives are small state machines, so that a group of them progresses in any order.
 * Within a channel messages go one at a time. */
#include <stdlib.h>

#include "base/log.h"
#include "comm/host/wait.h"
#include "comm/shm/shm.h"

#define PIECE_BYTES ((size_t)128 << 10)
#define SMALL_BYTES ((size_t)1 << 10) /* copied twice up to here even if once is possible */
#define LINGER                                                                                     \
    300 /* polls before a receiver yields even an oversubscribed core, about 15 us: if its partner
                    * runs right now, messages go to and fro without a change of process */
#define STREAM_BYTES ((size_t)8 << 20) /* messages from here on bypass the cache */

enum { KIND_WHOLE, KIND_MEET, KIND_PART };

typedef enum phase { START, MEET, COPY, STREAM, DONE } phase_t;

typedef struct transfer {
    const weft_call_t *call;
    weft_channel_t *channel;
    weft_channel_state_t *state;
    int peer;
    int before; /* index of the earlier transfer on the same channel, or -1 */
    bool sends;
    phase_t phase;
    size_t bytes, moved;
    uint64_t message; /* number of a large one */
    char *here, *there;
    bool can_copy;
    const _Atomic uint64_t *word; /* what it waits for: *word >= target */
    uint64_t target;
} transfer_t;

static weft_frag_t *frag_of(transfer_t *t, uint64_t number)
{
    return &t->channel->frag[number % WEFT_FRAGS];
}

static char *frag_data(weft_channel_t *channel, uint64_t number)
{
    weft_frag_t *frag = &channel->frag[number % WEFT_FRAGS];
    return frag->bytes <= WEFT_FRAG_INLINE ? frag->u.data : channel->payload[number % WEFT_FRAGS];
}

static weft_dtype_t frag_type(const weft_frag_t *frag)
{
    return (weft_dtype_t)(frag->sig >> 8 & 0xff);
}

static void copy(void *to, const void *from, size_t bytes)
{
    if (bytes > 0) {
        weft__kernels()->copy(to, from, bytes, WEFT_STORE_CACHED);
    }
}

static void wait_on(transfer_t *t, const _Atomic uint64_t *word, uint64_t target)
{
    t->word = word;
    t->target = target;
}

static bool ready(transfer_t *t)
{
    return atomic_load_explicit(t->word, memory_order_acquire) >= t->target;
}

/* ---- copying a large message together ---------------------------------------------------- */

static uint64_t pieces_of(const transfer_t *t)
{
    return (t->bytes + PIECE_BYTES - 1) / PIECE_BYTES;
}

/* Claim and copy chunks until there are none left. */
static void copy_pieces(weft_shm_t *shm, transfer_t *t)
{
    weft_store_t store = t->bytes >= STREAM_BYTES ? WEFT_STORE_STREAM : WEFT_STORE_CACHED;
    uint64_t end = t->message << 32 | pieces_of(t);
    uint64_t next = atomic_load_explicit(&t->channel->next, memory_order_acquire);
    while (t->can_copy && weft__host_touch(shm->host) && next >> 32 == t->message && next < end) {
        /* Partner: the other side's CAS; one of the two gets each chunk. */
        if (!atomic_compare_exchange_weak(&t->channel->next, &next, next + 1)) {
            continue;
        }
        size_t at = (size_t)(next & 0xffffffffu) * PIECE_BYTES;
        size_t n = t->bytes - at < PIECE_BYTES ? t->bytes - at : PIECE_BYTES;
        char *to = t->sends ? t->there : t->here, *from = t->sends ? t->here : t->there;
        weft__kernels()->copy(to + at, from + at, n, store);
        /* Partner: the acquire load of `done` by the side that waits. */
        atomic_fetch_add_explicit(&t->channel->done, 1, memory_order_acq_rel);
        weft__ring_bell(shm->host->me);
        next = atomic_load_explicit(&t->channel->next, memory_order_acquire);
    }
    weft__host_untouch(shm->host);
    t->phase = COPY;
    wait_on(t, &t->channel->done, end);
}

/* ---- sending ---------------------------------------------------------------------------- */

/* Is there room in the ring? If not, what to wait for. */
static bool ring_room(transfer_t *t)
{
    weft_channel_state_t *state = t->state;
    if (state->sent - state->acked < WEFT_FRAGS) {
        return true;
    }
    state->acked = atomic_load_explicit(&t->channel->consumed, memory_order_acquire);
    wait_on(t, &t->channel->consumed, state->sent - WEFT_FRAGS + 1);
    return state->sent - state->acked < WEFT_FRAGS;
}

/* Can the receiver reach the sender's buffer? */
static bool src_shared(const weft_shm_t *shm, const transfer_t *t)
{
    return shm->host->peers[t->peer].near || weft__shm_shared(shm, t->here, t->bytes);
}

/* Fill the next fragment of a channel, whose ring has room, and let the receiver see it. With
 * KIND_MEET there is no data: the fragment tells where it is. */
static void write_frag(weft_shm_t *shm, weft_channel_t *channel, weft_channel_state_t *state,
                       const weft_call_t *call, uint32_t kind, const char *data, size_t bytes)
{
    weft_frag_t *frag = &channel->frag[state->sent % WEFT_FRAGS];
    frag->count = call->count;
    frag->sig = weft__sig_pack(call, WEFT_ALGO_AUTO);
    frag->kind = kind;
    frag->bytes = (uint32_t)bytes;
    if (bytes > 0) {
        shm->kernels->copy(frag_data(channel, state->sent), data, bytes, WEFT_STORE_CACHED);
    }
    /* Partner: the acquire load of the receiver's wait. */
    atomic_store_explicit(&frag->seq, ++state->sent, memory_order_release);
    weft__ring_bell(shm->host->me);
}

static void post(weft_shm_t *shm, transfer_t *t, uint32_t kind, const char *data, size_t bytes)
{
    if (kind == KIND_MEET) {
        weft_frag_t *frag = frag_of(t, t->state->sent);
        frag->u.at.src = (uint64_t)(uintptr_t)t->here;
        frag->u.at.shared = src_shared(shm, t);
    }
    write_frag(shm, t->channel, t->state, t->call, kind, data, bytes);
}

static void send_start(weft_shm_t *shm, transfer_t *t)
{
    size_t most = src_shared(shm, t) ? SMALL_BYTES : WEFT_FRAG_BYTES;
    if (t->bytes <= most) {
        post(shm, t, KIND_WHOLE, t->here, t->bytes);
        t->phase = DONE;
        return;
    }
    post(shm, t, KIND_MEET, NULL, 0);
    t->message = ++t->state->met_out;
    t->phase = MEET;
    wait_on(t, &t->channel->clear, t->message);
}

static void send_meet(weft_shm_t *shm, transfer_t *t)
{
    bool dst_shared = t->channel->shared;
    t->there = weft__shm_reach(shm, t->peer, t->channel->dst);
    t->can_copy = dst_shared;
    if (dst_shared || src_shared(shm, t)) {
        copy_pieces(shm, t);
    } else {
        t->phase = STREAM;
    }
}

static bool send_stream(weft_shm_t *shm, transfer_t *t)
{
    bool moved = false;
    while (t->moved < t->bytes && ring_room(t)) {
        size_t left = t->bytes - t->moved;
        size_t n = left < WEFT_FRAG_BYTES ? left : WEFT_FRAG_BYTES;
        post(shm, t, KIND_PART, t->here + t->moved, n);
        t->moved += n;
        moved = true;
    }
    if (t->moved == t->bytes) {
        t->phase = DONE;
    }
    return moved;
}

static bool progress_send(weft_shm_t *shm, transfer_t *t)
{
    switch (t->phase) {
    case START:
        if (!ring_room(t)) {
            return false;
        }
        send_start(shm, t);
        return true;
    case MEET:
        if (!ready(t)) {
            return false;
        }
        send_meet(shm, t);
        return true;
    case COPY:
        t->phase = ready(t) ? DONE : COPY;
        return t->phase == DONE;
    case STREAM:
        return send_stream(shm, t);
    default:
        return false;
    }
}

/* ---- receiving -------------------------------------------------------------------------- */

static void consume(weft_shm_t *shm, transfer_t *t)
{
    atomic_store_explicit(&t->channel->consumed, ++t->state->got, memory_order_release);
    weft__ring_bell(shm->host->me);
}

static weft_status_t check_match(weft_shm_t *shm, transfer_t *t, weft_frag_t *frag)
{
    if (frag->count == t->call->count && frag_type(frag) == t->call->type) {
        return WEFT_OK;
    }
    return weft__host_differs(shm->host, t->peer, frag->sig, frag->count, t->call->count);
}

static void recv_meet(weft_shm_t *shm, transfer_t *t, weft_frag_t *frag)
{
    weft_channel_t *channel = t->channel;
    bool near = shm->host->peers[t->peer].near;
    bool dst_shared = near || weft__shm_shared(shm, t->here, t->bytes);
    t->there = weft__shm_reach(shm, t->peer, frag->u.at.src);
    t->can_copy = frag->u.at.shared;
    t->message = ++t->state->met_in;
    consume(shm, t);
    channel->dst = (uint64_t)(uintptr_t)t->here;
    channel->shared = dst_shared;
    atomic_store_explicit(&channel->next, t->message << 32, memory_order_relaxed);
    atomic_store_explicit(&channel->done, t->message << 32, memory_order_relaxed);
    atomic_store_explicit(&channel->clear, t->message, memory_order_release);
    weft__ring_bell(shm->host->me);
    if (t->can_copy || dst_shared) {
        copy_pieces(shm, t);
    } else {
        t->phase = STREAM;
        wait_on(t, &frag_of(t, t->state->got)->seq, t->state->got + 1);
    }
}

static weft_status_t recv_start(weft_shm_t *shm, transfer_t *t)
{
    weft_frag_t *frag = frag_of(t, t->state->got);
    WEFT_TRY(check_match(shm, t, frag));
    if (frag->kind == KIND_MEET) {
        recv_meet(shm, t, frag);
        return WEFT_OK;
    }
    copy(t->here, frag_data(t->channel, t->state->got), frag->bytes);
    consume(shm, t);
    t->phase = DONE;
    return WEFT_OK;
}

static void recv_part(weft_shm_t *shm, transfer_t *t)
{
    weft_frag_t *frag = frag_of(t, t->state->got);
    copy(t->here + t->moved, frag_data(t->channel, t->state->got), frag->bytes);
    t->moved += frag->bytes;
    consume(shm, t);
    wait_on(t, &frag_of(t, t->state->got)->seq, t->state->got + 1);
    t->phase = t->moved == t->bytes ? DONE : STREAM;
}

static weft_status_t progress_recv(weft_shm_t *shm, transfer_t *t, bool *moved_p)
{
    if (t->phase == START) {
        wait_on(t, &frag_of(t, t->state->got)->seq, t->state->got + 1);
    }
    *moved_p = ready(t);
    if (!*moved_p) {
        return WEFT_OK;
    }
    if (t->phase == START) {
        return recv_start(shm, t);
    }
    if (t->phase == STREAM) {
        recv_part(shm, t);
    } else {
        t->phase = DONE;
    }
    return WEFT_OK;
}

/* ---- running a batch -------------------------------------------------------------------- */

static void make_transfer(weft_shm_t *shm, const weft_call_t *call, transfer_t *t)
{
    bool sends = call->coll == WEFT_COLL_SEND;
    int peer = call->root;
    *t = (transfer_t){.call = call,
                      .channel = sends ? weft__shm_channel(shm, shm->rank, peer)
                                       : weft__shm_channel(shm, peer, shm->rank),
                      .state = &shm->states[peer],
                      .peer = peer,
                      .before = -1,
                      .sends = sends,
                      .bytes = call->count * weft_dtype_size(call->type),
                      .here = sends ? (char *)(uintptr_t)call->src : call->dst};
}

/* Link each transfer to the earlier one on its channel. */
static void link_transfers(weft_shm_t *shm, transfer_t *all, int n, int *last)
{
    for (int i = 0; i < 2 * shm->size; i++) {
        last[i] = -1;
    }
    for (int i = 0; i < n; i++) {
        int state = 2 * all[i].peer + all[i].sends;
        all[i].before = last[state];
        last[state] = i;
    }
}

static weft_status_t pass(weft_shm_t *shm, transfer_t *all, int n, int *left_p, int *first_p,
                          bool *moved_p)
{
    *left_p = 0;
    *first_p = -1;
    *moved_p = false;
    for (int i = 0; i < n; i++) {
        transfer_t *t = &all[i];
        if (t->phase == DONE) {
            continue;
        }
        if (t->before < 0 || all[t->before].phase == DONE) {
            bool moved = false;
            weft_status_t status = WEFT_OK;
            shm->host->current = t->call;
            if (t->sends) {
                moved = progress_send(shm, t);
            } else {
                status = progress_recv(shm, t, &moved);
            }
            if (status != WEFT_OK) {
                return status;
            }
            *moved_p = *moved_p || moved;
            *first_p = *first_p < 0 && t->phase != DONE ? i : *first_p;
        }
        *left_p += t->phase != DONE;
    }
    return WEFT_OK;
}

/* Of a batch only the first is waited for; is one of the others waiting for a rank that is gone? */
static weft_status_t check_others(weft_shm_t *shm, transfer_t *all, int n)
{
    weft_status_t status = WEFT_OK;
    for (int i = 0; i < n && status == WEFT_OK; i++) {
        transfer_t *t = &all[i];
        if (t->phase != DONE && t->word && (t->before < 0 || all[t->before].phase == DONE)) {
            shm->host->current = t->call;
            status = weft__host_look(shm->host, &(weft_host_wait_t){t->peer, t->word, t->target},
                                     0);
        }
    }
    return status;
}

static weft_status_t run_transfers(weft_shm_t *shm, transfer_t *all, int n)
{
    const weft_waiter_t fresh = {.several = n > 1};
    weft_waiter_t waiter = fresh;
    for (;;) {
        int left, first;
        bool moved;
        weft_status_t status = pass(shm, all, n, &left, &first, &moved);
        if (status != WEFT_OK || left == 0) {
            return status;
        }
        if (moved || first < 0) {
            waiter = fresh;
            continue;
        }
        transfer_t *t = &all[first];
        shm->host->current = t->call;
        uint64_t check_ns = waiter.check_ns;
        WEFT_TRY(weft__wait_step(shm->host, &waiter, t->peer, t->word, t->target));
        WEFT_TRY((n > 1 && waiter.check_ns != check_ns) ? check_others(shm, all, n) : WEFT_OK);
    }
}

/* A message on its own. Small ones, the common case, go without a state machine. */
static weft_status_t run_one(weft_shm_t *shm, const weft_call_t *call)
{
    weft_channel_state_t *state = &shm->states[call->root];
    size_t bytes = call->count * weft_dtype_size(call->type);
    transfer_t t;
    shm->host->current = call;
    if (call->coll == WEFT_COLL_SEND) {
        if (bytes > SMALL_BYTES || state->sent - state->acked >= WEFT_FRAGS) {
            goto general;
        }
        weft_channel_t *channel = weft__shm_channel(shm, shm->rank, call->root);
        write_frag(shm, channel, state, call, KIND_WHOLE, call->src, bytes);
        return WEFT_OK;
    }
    weft_channel_t *channel = weft__shm_channel(shm, call->root, shm->rank);
    weft_frag_t *frag = &channel->frag[state->got % WEFT_FRAGS];
    weft__linger(&frag->seq, state->got + 1, LINGER);
    WEFT_TRY(weft__wait(shm->host, call->root, &frag->seq, state->got + 1));
    if (frag->kind == KIND_WHOLE && frag->count == call->count && frag_type(frag) == call->type) {
        shm->kernels->copy(call->dst, frag_data(channel, state->got), bytes, WEFT_STORE_CACHED);
        atomic_store_explicit(&channel->consumed, ++state->got, memory_order_release);
        weft__ring_bell(shm->host->me);
        return WEFT_OK;
    }
general:
    make_transfer(shm, call, &t);
    return run_transfers(shm, &t, 1);
}

static weft_status_t run_batch(weft_shm_t *shm, const weft_call_t *calls, int n)
{
    transfer_t *all = malloc((size_t)n * sizeof(*all));
    int *last = malloc(2 * (size_t)shm->size * sizeof(*last));
    weft_status_t status;
    if (!all || !last) {
        status = weft__host_break(shm->host, WEFT_ERR_NO_MEMORY, shm->rank,
                                  "rank %d has no memory for a group of %d sends and receives",
                                  shm->rank, n);
    } else {
        for (int i = 0; i < n; i++) {
            make_transfer(shm, &calls[i], &all[i]);
        }
        link_transfers(shm, all, n, last);
        status = run_transfers(shm, all, n);
    }
    free(all);
    free(last);
    return status;
}

weft_status_t weft__shm_exchange(void *ctx, const weft_call_t *calls, int n)
{
    weft_shm_t *shm = ctx;
    if (weft__host_is_broken(shm->host)) {
        return weft__host_refuse(shm->host);
    }
    weft_status_t status = n == 1 ? run_one(shm, calls) : run_batch(shm, calls, n);
    if (__builtin_expect(status != WEFT_OK, 0)) {
        weft__host_drain(shm->host);
    }
    return status;
}
