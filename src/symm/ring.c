/* Inboxes: every rank has a ring of slots into which all ranks push.
 *
 * Record number n lies in slot n % slots. The slot's word says which record it is about, and how
 * far:
 *
 *     FREE n --push claims--> CLAIMED n, by whom --written--> READY n --popped--> FREE n + slots
 *
 * A producer claims the slot itself (compare and swap), not a ticket, so the claim carries its
 * rank: the owner that finds the claim of a dead rank passes over it. `tail`, the next number to
 * claim, is a hint that whoever finds it behind moves on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "symm/shared.h"

enum { FREE, CLAIMED, READY };

#define ASK_EVERY 32 /* looks between questions whether a rank lives, which are system calls */

typedef struct slot {
    weft_word_t word; /* number << 12 | rank << 2 | FREE, CLAIMED or READY */
    uint64_t bytes;
    char data[];
} slot_t;

typedef struct inbox {
    _Alignas(128) weft_word_t tail; /* moved on by producers */
    _Alignas(128) weft_word_t head; /* the next number to pop: the owner's */
    _Alignas(128) char slots[];
} inbox_t;

struct weft_ring {
    weft_symm_h symm;
    size_t slots, record_bytes, slot_bytes;
    inbox_t *inbox; /* symmetric */
    bool *told;     /* [size]: deaths that this rank was told of by pop_wait */
};

static uint64_t word_of(uint64_t number, int rank, uint64_t state)
{
    return number << 12 | (uint64_t)rank << 2 | state;
}

static slot_t *slot_at(const struct weft_ring *ring, inbox_t *inbox, uint64_t number)
{
    return (slot_t *)(inbox->slots + (number & (ring->slots - 1)) * ring->slot_bytes);
}

/* ---- making ----------------------------------------------------------------------------- */

weft_status_t weft_ring_create(weft_symm_h symm, size_t slots, size_t record_bytes,
                               weft_ring_h *ring_p)
{
    WEFT_TRY(weft__symm_check_host(symm, "ring_create"));
    if (!ring_p) {
        return weft__refuse_null("ring_create", "place for the ring");
    }
    if (slots == 0 || slots > (size_t)1 << 24 || record_bytes > (size_t)1 << 30) {
        return weft__fail(WEFT_ERR_INVALID,
                          "weft_ring_create: a ring of %zu slots of %zu bytes cannot be had; 1 to "
                          "2^24 slots, records up to 1G",
                          slots, record_bytes);
    }
    weft_ring_h ring = calloc(1, sizeof(*ring));
    bool *told = calloc((size_t)symm->size, sizeof(*told));
    void *inbox = NULL;
    if (!ring || !told) {
        free(ring);
        free(told);
        return weft__reach_break(symm->comm, WEFT_ERR_NO_MEMORY, symm->rank,
                                 "rank %d has no memory to describe a ring", symm->rank);
    }
    slots = weft__power_of_two(slots);
    size_t slot_bytes = (sizeof(slot_t) + record_bytes + 63) / 64 * 64;
    weft_status_t status = weft_symm_malloc(symm, sizeof(inbox_t) + slots * slot_bytes, &inbox);
    if (status == WEFT_OK) {
        *ring = (struct weft_ring){.symm = symm,
                                   .slots = slots,
                                   .record_bytes = record_bytes,
                                   .slot_bytes = slot_bytes,
                                   .inbox = inbox,
                                   .told = told};
        for (uint64_t i = 0; i < slots; i++) {
            atomic_store_explicit(&slot_at(ring, inbox, i)->word, word_of(i, 0, FREE),
                                  memory_order_relaxed); /* before the barrier */
        }
        status = weft__symm_meet(symm);
    }
    if (status != WEFT_OK) {
        free(ring);
        free(told);
        return status;
    }
    *ring_p = ring;
    return WEFT_OK;
}

weft_status_t weft_ring_destroy(weft_ring_h ring)
{
    if (!ring) {
        return WEFT_OK;
    }
    weft_status_t status = weft_symm_free(ring->symm, ring->inbox);
    free(ring->told);
    free(ring);
    return status;
}

/* ---- pushing ---------------------------------------------------------------------------- */

static void move_tail(inbox_t *inbox, uint64_t number)
{
    /* Partner: the loads of tail by all producers; if it fails, another one has moved it. */
    atomic_compare_exchange_strong(&inbox->tail, &number, number + 1);
}

/* Claim a slot: NULL if the ring is full. */
static slot_t *claim(const struct weft_ring *ring, inbox_t *inbox, uint64_t *number_p)
{
    for (;;) {
        uint64_t number = atomic_load(&inbox->tail); /* partner: move_tail */
        slot_t *slot = slot_at(ring, inbox, number);
        uint64_t word = atomic_load(&slot->word); /* partner: the stores of push and pop */
        if (word == word_of(number, 0, FREE)) {
            if (atomic_compare_exchange_strong(&slot->word, &word,
                                               word_of(number, ring->symm->rank, CLAIMED))) {
                move_tail(inbox, number);
                *number_p = number;
                return slot;
            }
        } else if (word >> 12 == number) { /* claimed by one that has not moved the tail yet */
            move_tail(inbox, number);
        } else if (word >> 12 < number && atomic_load(&inbox->tail) == number) {
            return NULL; /* it still holds the record of one round before */
        }
    }
}

static weft_status_t check_push(const struct weft_ring *ring, const char *who, int rank,
                                const void *record, size_t bytes)
{
    if (!ring || (!record && bytes > 0)) {
        return weft__refuse_null(who, ring ? "record" : "ring");
    }
    if ((unsigned)rank >= (unsigned)ring->symm->size || bytes > ring->record_bytes) {
        return weft__fail(WEFT_ERR_INVALID,
                          "weft_%s: %zu bytes for rank %d; records have up to %zu bytes, and ranks "
                          "are 0 to %d",
                          who, bytes, rank, ring->record_bytes, ring->symm->size - 1);
    }
    return WEFT_OK;
}

static weft_status_t push(const struct weft_ring *ring, inbox_t *inbox, const void *record,
                          size_t bytes)
{
    uint64_t number;
    slot_t *slot = claim(ring, inbox, &number);
    if (!slot) {
        return WEFT_PENDING;
    }
    slot->bytes = bytes;
    if (bytes > 0) {
        memcpy(slot->data, record, bytes);
    }
    /* Partner: the acquire load in pop. */
    atomic_store_explicit(&slot->word, word_of(number, ring->symm->rank, READY),
                          memory_order_release);
    return WEFT_OK;
}

weft_status_t weft_ring_push(weft_ring_h ring, int rank, const void *record, size_t bytes)
{
    WEFT_TRY(check_push(ring, "ring_push", rank, record, bytes));
    return push(ring, weft__symm_at(ring->symm, ring->inbox, rank), record, bytes);
}

typedef struct room {
    const struct weft_ring *ring;
    inbox_t *inbox;
    int rank;
    unsigned *looks;
    bool *gone_p; /* its owner is: there will never be room */
} room_t;

static bool has_room(const void *arg)
{
    const room_t *room = arg;
    uint64_t number = atomic_load(&room->inbox->tail); /* partners as in claim */
    uint64_t word = atomic_load(&slot_at(room->ring, room->inbox, number)->word);
    if (word >> 12 >= number) {
        return true;
    }
    *room->gone_p = ++*room->looks % ASK_EVERY == 0 &&
                    weft__reach_gone(room->ring->symm->comm, room->rank);
    return *room->gone_p;
}

static void describe_room(const void *arg, char *text, size_t room)
{
    const room_t *wanted = arg;
    snprintf(text, room, "room in the inbox of rank %d", wanted->rank);
}

weft_status_t weft_ring_push_wait(weft_ring_h ring, int rank, const void *record, size_t bytes)
{
    weft_status_t status = check_push(ring, "ring_push_wait", rank, record, bytes);
    if (status != WEFT_OK) {
        return status;
    }
    inbox_t *inbox = weft__symm_at(ring->symm, ring->inbox, rank);
    bool gone = false;
    unsigned looks = 0;
    const room_t room = {ring, inbox, rank, &looks, &gone};
    const weft_reach_wait_t wait = {
        .ready = has_room, .arg = &room, .describe = describe_room, .deaf = true};
    while ((status = push(ring, inbox, record, bytes)) == WEFT_PENDING && !gone) {
        status = weft__reach_await(ring->symm->comm, &wait);
        if (status != WEFT_OK) {
            return status;
        }
    }
    return status == WEFT_PENDING ? weft__reach_missed(ring->symm->comm, &wait, rank) : status;
}

/* ---- popping ---------------------------------------------------------------------------- */

/* Leave the slot of record `number` to the one that comes a round later. */
static void give_back(const struct weft_ring *ring, slot_t *slot, uint64_t number)
{
    /* Partners: the load in claim of the next producer; nobody but the owner reads head. */
    atomic_store_explicit(&slot->word, word_of(number + ring->slots, 0, FREE),
                          memory_order_release);
    atomic_store_explicit(&ring->inbox->head, number + 1, memory_order_relaxed);
}

/* Pass over what dead ranks have begun, if `ask` says to find out. The next slot, and its word. */
static slot_t *next_slot(const struct weft_ring *ring, bool ask, uint64_t *number_p,
                         uint64_t *word_p)
{
    for (;;) {
        *number_p = atomic_load_explicit(&ring->inbox->head, memory_order_relaxed);
        slot_t *slot = slot_at(ring, ring->inbox, *number_p);
        *word_p = atomic_load_explicit(&slot->word, memory_order_acquire); /* partner: push */
        bool claimed = (*word_p & 3) == CLAIMED && *word_p >> 12 == *number_p;
        if (!claimed || !ask || !weft__reach_gone(ring->symm->comm, (int)(*word_p >> 2 & 0x3ff))) {
            return slot;
        }
        /* It may have finished just before it died. */
        *word_p = atomic_load_explicit(&slot->word, memory_order_acquire);
        if ((*word_p & 3) != CLAIMED) {
            return slot;
        }
        move_tail(ring->inbox, *number_p);
        give_back(ring, slot, *number_p);
    }
}

static weft_status_t pop(const struct weft_ring *ring, bool ask, void *record, size_t *bytes_p,
                         int *from_p)
{
    uint64_t number, word;
    slot_t *slot = next_slot(ring, ask, &number, &word);
    if ((word & 3) != READY || word >> 12 != number) {
        return WEFT_PENDING;
    }
    if (slot->bytes > 0) {
        memcpy(record, slot->data, slot->bytes);
    }
    if (bytes_p) {
        *bytes_p = slot->bytes;
    }
    if (from_p) {
        *from_p = (int)(word >> 2 & 0x3ff);
    }
    give_back(ring, slot, number);
    return WEFT_OK;
}

static weft_status_t check_pop(const struct weft_ring *ring, const char *who, const void *record)
{
    return ring && (record || ring->record_bytes == 0)
               ? WEFT_OK
               : weft__refuse_null(who, ring ? "place for the record" : "ring");
}

weft_status_t weft_ring_pop(weft_ring_h ring, void *record, size_t *bytes_p, int *from_p)
{
    WEFT_TRY(check_pop(ring, "ring_pop", record));
    return pop(ring, true, record, bytes_p, from_p);
}

typedef struct arrival {
    const struct weft_ring *ring;
    unsigned *looks;
} arrival_t;

static bool has_record(const void *arg)
{
    const arrival_t *arrival = arg;
    uint64_t number, word;
    next_slot(arrival->ring, ++*arrival->looks % ASK_EVERY == 0, &number, &word);
    return (word & 3) == READY && word >> 12 == number;
}

weft_status_t weft_ring_pop_wait(weft_ring_h ring, void *record, size_t *bytes_p, int *from_p)
{
    WEFT_TRY(check_pop(ring, "ring_pop_wait", record));
    weft_status_t status = pop(ring, false, record, bytes_p, from_p);
    if (status == WEFT_PENDING) {
        unsigned looks = 0;
        arrival_t arrival = {ring, &looks};
        weft_reach_wait_t wait = {
            .ready = has_record, .arg = &arrival, .what = "a record", .told = ring->told};
        status = weft__reach_await(ring->symm->comm, &wait);
        status = status == WEFT_OK ? pop(ring, false, record, bytes_p, from_p) : status;
    }
    return status;
}
