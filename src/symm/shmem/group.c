/* Collectives' meeting places: see group.h. */
#include "symm/shmem/group.h"

#include <stdlib.h>
#include <string.h>

/* Signals of active sets: what we have sent to each PE and what we expect of it. Grown once. */
typedef struct count {
    uint64_t sent, expected;
} count_t;

static count_t *counts;

/* ---- teams -------------------------------------------------------------------------------- */

static weft_shmem_entry_t *entry_of(const weft_shmem_team_t *team, int i, uint64_t number)
{
    weft_shmem_control_t *control = weft__shmem.peers[weft__shmem_member(team, i)].control;
    return &control->entries[team->slot][number % WEFT_SHMEM_RING];
}

/* Has member `i` entered call `number`, or a later one? An entry is used again only for number +
 * WEFT_SHMEM_RING, so `>=` will do. */
static bool has_entered(const weft_shmem_team_t *team, int i, uint64_t number)
{
    /* Partner: the release store in enter_team. */
    return atomic_load_explicit(&entry_of(team, i, number)->call, memory_order_acquire) >= number;
}

static void await_number(const weft_shmem_team_t *team, int i, uint64_t number, const char *call)
{
    weft_shmem_waiter_t waiter = {.pe = weft__shmem_member(team, i)};
    while (!has_entered(team, i, number)) {
        weft__shmem_pause(&waiter, call);
    }
}

/* The entry of call k - RING is about to be used again: all members must be past that call. It is
 * enough to look now and then, at half a ring. */
static void make_room(weft_shmem_team_t *team, const char *call)
{
    uint64_t least = team->calls - WEFT_SHMEM_RING + 1;
    uint64_t wanted = team->calls - WEFT_SHMEM_RING / 2;
    for (int i = 0; i < team->size; i++) {
        if (i != team->me && !has_entered(team, i, wanted)) {
            wanted = least;
            await_number(team, i, least, call);
        }
    }
    team->seen = wanted;
}

static void enter_team(weft_shmem_team_t *team, const void *data, size_t bytes, const char *call)
{
    uint64_t number = ++team->calls;
    if (unlikely(number >= team->seen + WEFT_SHMEM_RING)) {
        make_room(team, call);
    }
    weft_shmem_entry_t *entry = entry_of(team, team->me, number);
    if (bytes > 0) {
        void *room = bytes <= WEFT_SHMEM_INLINE
                         ? entry->data
                         : weft__shmem.mine->bulk[team->slot][number % WEFT_SHMEM_RING];
        memcpy(room, data, bytes);
    } else {
        entry->data[0] = 0; /* for who looks for what we do not say */
    }
    /* Partner: has_entered. All that this PE has put anywhere is seen by who sees this. */
    atomic_store_explicit(&entry->call, number, memory_order_release);
}

/* ---- active sets -------------------------------------------------------------------------- */

void weft__shmem_active_set(int start, int log_stride, int size, const char *call,
                            weft_shmem_team_t *team_p)
{
    const weft_shmem_state_t *s = &weft__shmem;
    if (unlikely(s->pes == 0)) {
        weft__shmem_bad_pe(call, start, 0);
    }
    int64_t stride = log_stride >= 0 && log_stride < 31 ? INT64_C(1) << log_stride : 0;
    int64_t last = start + (size - 1) * stride;
    if (stride == 0 || size < 1 || start < 0 || last >= s->pes) {
        weft__shmem_die(
            "%s on PE %d: PE_start %d, logPE_stride %d, PE_size %d is no active set of %d "
            "PEs",
            call, s->me, start, log_stride, size, s->pes);
    }
    if (s->me < start || s->me > last || (s->me - start) % stride != 0) {
        weft__shmem_die(
            "%s on PE %d: this PE is not in the active set PE_start %d, logPE_stride %d, "
            "PE_size %d",
            call, s->me, start, log_stride, size);
    }
    *team_p = (weft_shmem_team_t){.start = start,
                                  .stride = (int)stride,
                                  .size = size,
                                  .me = (int)((s->me - start) / stride),
                                  .slot = WEFT_SHMEM_NO_SLOT};
    if (counts == NULL && (counts = calloc((size_t)s->pes, sizeof(*counts))) == NULL) {
        weft__shmem_die("%s on PE %d: no memory to count signals of %d PEs", call, s->me, s->pes);
    }
}

/* A value is overwritten two signals later. The only collective that says something (collect)
 * awaits all members before it enters its second and last call, and awaits all again: by then every
 * member has read what was said in the first. */
static void enter_set(const weft_shmem_team_t *team, const void *data, size_t bytes)
{
    uint64_t value = 0;
    memcpy(&value, data != NULL ? data : &value, bytes);
    for (int i = 0; i < team->size; i++) {
        int pe = weft__shmem_member(team, i);
        if (i != team->me) {
            weft_shmem_pair_t *pair = &weft__shmem.peers[pe].control->pairs[weft__shmem.me];
            uint64_t number = ++counts[pe].sent;
            counts[pe].expected++;
            pair->values[number % 2] = value;
            /* Partner: await_set. */
            atomic_store_explicit(&pair->signals, number, memory_order_release);
        }
    }
}

static void await_set(int pe, const char *call)
{
    const weft_shmem_pair_t *pair = &weft__shmem.mine->pairs[pe];
    weft_shmem_waiter_t waiter = {.pe = pe};
    /* Partner: enter_set. */
    while (atomic_load_explicit(&pair->signals, memory_order_acquire) < counts[pe].expected) {
        weft__shmem_pause(&waiter, call);
    }
}

/* ---- both --------------------------------------------------------------------------------- */

void weft__shmem_enter(weft_shmem_team_t *team, const void *data, size_t bytes, const char *call)
{
    if (likely(team->slot != WEFT_SHMEM_NO_SLOT)) {
        enter_team(team, data, bytes, call);
    } else {
        enter_set(team, data, bytes);
    }
}

void weft__shmem_await(weft_shmem_team_t *team, int i, const char *call)
{
    if (i == team->me) {
        return;
    }
    if (likely(team->slot != WEFT_SHMEM_NO_SLOT)) {
        await_number(team, i, team->calls, call);
    } else {
        await_set(weft__shmem_member(team, i), call);
    }
}

void weft__shmem_await_near(weft_shmem_team_t *team, const char *call)
{
    const weft_shmem_state_t *s = &weft__shmem;
    for (int i = 0; unlikely(s->oversubscribed) && i < team->size; i++) {
        if (s->shares_core[weft__shmem_member(team, i)]) {
            weft__shmem_await(team, i, call);
        }
    }
}

void weft__shmem_await_all(weft_shmem_team_t *team, const char *call)
{
    weft__shmem_await_near(team, call);
    for (int k = 1; k < team->size; k++) {
        weft__shmem_await(team, weft__shmem_turn(team, k), call);
    }
    team->seen = team->calls;
}

const void *weft__shmem_said(const weft_shmem_team_t *team, int i, size_t bytes)
{
    int pe = weft__shmem_member(team, i);
    if (team->slot == WEFT_SHMEM_NO_SLOT) {
        return &weft__shmem.mine->pairs[pe].values[counts[pe].expected % 2];
    }
    if (bytes <= WEFT_SHMEM_INLINE) {
        return entry_of(team, i, team->calls)->data;
    }
    return weft__shmem.peers[pe].control->bulk[team->slot][team->calls % WEFT_SHMEM_RING];
}

void weft__shmem_sync(weft_shmem_team_t *team, const char *call)
{
    weft__shmem_enter(team, NULL, 0, call);
    weft__shmem_await_all(team, call);
}
