/* Queues of tasks with stealing: the deque of Chase and Lev, one in every rank's heap.
 *
 * Tasks top to bottom - 1 are queued, task n in slot n % slots. The owner works at the bottom,
 * thieves at the top; all accesses to the two are sequentially consistent, which is what the race
 * for the last task needs: the owner lowers the bottom and then looks at the top, a thief looks at
 * the top and then at the bottom, and whoever moves the top has the task. A thief copies the task
 * before it moves the top; the slot is used again only after the top has moved, so if the move
 * succeeds the copy is whole.
 *
 * The end: `busy` of a rank counts its turns to work, and its lowest bit says whether it has work
 * in hand. A rank says so before it takes a task. Whoever sees all ranks idle, all queues empty,
 * and then all `busy` words as before, knows that in between nobody had work, hence nobody made
 * any. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "symm/shared.h"

typedef struct queue {
    _Alignas(128) weft_word_t top;
    _Alignas(128) weft_word_t bottom;
    _Alignas(128) weft_word_t busy;
    _Alignas(128) weft_word_t slots[];
} queue_t;

struct weft_work {
    weft_symm_h symm;
    size_t slots, task_bytes, task_words;
    queue_t *queue;  /* symmetric */
    bool *told;      /* [size]: deaths that this rank was told of */
    uint64_t *seen;  /* [size]: busy words, for the end */
    uint64_t random; /* whom to rob first */
};

static queue_t *queue_on(const struct weft_work *work, int rank)
{
    return weft__symm_at(work->symm, work->queue, rank);
}

static weft_word_t *slot_at(const struct weft_work *work, queue_t *queue, uint64_t number)
{
    return queue->slots + (number & (work->slots - 1)) * work->task_words;
}

/* ---- making ----------------------------------------------------------------------------- */

static void free_work(weft_work_h work)
{
    if (work) {
        free(work->told);
        free(work->seen);
        free(work);
    }
}

weft_status_t weft_work_create(weft_symm_h symm, size_t tasks, size_t task_bytes,
                               weft_work_h *work_p)
{
    WEFT_TRY(weft__symm_check_host(symm, "work_create"));
    if (!work_p) {
        return weft__refuse_null("work_create", "place for the queue");
    }
    if (tasks == 0 || tasks > (size_t)1 << 28 || task_bytes == 0 || task_bytes > (size_t)1 << 20) {
        return weft__fail(WEFT_ERR_INVALID,
                          "weft_work_create: queues of %zu tasks of %zu bytes cannot be had; 1 to "
                          "2^28 tasks of 1 byte to 1M",
                          tasks, task_bytes);
    }
    weft_work_h work = calloc(1, sizeof(*work));
    if (work) {
        work->told = calloc((size_t)symm->size, sizeof(*work->told));
        work->seen = calloc((size_t)symm->size, sizeof(*work->seen));
    }
    if (!work || !work->told || !work->seen) {
        free_work(work);
        return weft__reach_break(symm->comm, WEFT_ERR_NO_MEMORY, symm->rank,
                                 "rank %d has no memory to describe queues of tasks", symm->rank);
    }
    void *queue = NULL;
    work->symm = symm;
    work->slots = weft__power_of_two(tasks);
    work->task_bytes = task_bytes;
    work->task_words = weft__words(task_bytes);
    work->random = (uint64_t)symm->rank + 1;
    weft_status_t status = weft_symm_malloc(
        symm, sizeof(queue_t) + work->slots * work->task_words * 8, &queue);
    if (status != WEFT_OK) {
        free_work(work);
        return status;
    }
    work->queue = queue;
    *work_p = work;
    return WEFT_OK;
}

weft_status_t weft_work_destroy(weft_work_h work)
{
    if (!work) {
        return WEFT_OK;
    }
    weft_status_t status = weft_symm_free(work->symm, work->queue);
    free_work(work);
    return status;
}

/* ---- the deque -------------------------------------------------------------------------- */

static weft_status_t check_task(const struct weft_work *work, const char *who, const void *task)
{
    return work && task ? WEFT_OK : weft__refuse_null(who, work ? "task" : "queue");
}

weft_status_t weft_work_push(weft_work_h work, const void *task)
{
    WEFT_TRY(check_task(work, "work_push", task));
    queue_t *mine = work->queue;
    uint64_t bottom = atomic_load_explicit(&mine->bottom, memory_order_relaxed); /* our own */
    if (bottom - atomic_load(&mine->top) >= work->slots) { /* partner: thieves' moves of top */
        return WEFT_PENDING;
    }
    weft__words_store(slot_at(work, mine, bottom), task, work->task_bytes);
    atomic_store(&mine->bottom, bottom + 1); /* partner: the load in weft_work_steal */
    return WEFT_OK;
}

weft_status_t weft_work_pop(weft_work_h work, void *task)
{
    WEFT_TRY(check_task(work, "work_pop", task));
    queue_t *mine = work->queue;
    uint64_t bottom = atomic_load_explicit(&mine->bottom, memory_order_relaxed); /* our own */
    if (bottom == atomic_load_explicit(&mine->top, memory_order_relaxed)) {
        return WEFT_PENDING; /* only we could have added one */
    }
    atomic_store(&mine->bottom, --bottom); /* partner: the loads in weft_work_steal */
    uint64_t top = atomic_load(&mine->top);
    if (top < bottom) {
        weft__words_load(task, slot_at(work, mine, bottom), work->task_bytes);
        return WEFT_OK;
    }
    if (top == bottom) { /* the last one: whoever moves the top has it */
        weft__words_load(task, slot_at(work, mine, bottom), work->task_bytes);
        bool won = atomic_compare_exchange_strong(&mine->top, &top, top + 1); /* partner: thieves */
        atomic_store(&mine->bottom, bottom + 1);
        return won ? WEFT_OK : WEFT_PENDING;
    }
    atomic_store(&mine->bottom, bottom + 1);
    return WEFT_PENDING;
}

static bool is_empty(queue_t *queue)
{
    uint64_t top = atomic_load(&queue->top); /* partners: push and pop of the owner, thieves */
    return (int64_t)(atomic_load(&queue->bottom) - top) <= 0;
}

weft_status_t weft_work_steal(weft_work_h work, int rank, void *task)
{
    WEFT_TRY(check_task(work, "work_steal", task));
    if ((unsigned)rank >= (unsigned)work->symm->size) {
        return weft__fail(WEFT_ERR_INVALID,
                          "weft_work_steal: there is no rank %d; ranks are 0 to %d", rank,
                          work->symm->size - 1);
    }
    queue_t *theirs = queue_on(work, rank);
    uint64_t top = atomic_load(&theirs->top); /* partners: the owner's pop, other thieves */
    if ((int64_t)(atomic_load(&theirs->bottom) - top) <= 0) {
        return WEFT_PENDING;
    }
    weft__words_load(task, slot_at(work, theirs, top), work->task_bytes);
    return atomic_compare_exchange_strong(&theirs->top, &top, top + 1) ? WEFT_OK : WEFT_PENDING;
}

/* ---- work until there is no more ------------------------------------------------------------ */

static void set_busy(weft_work_h work, bool busy)
{
    uint64_t now = atomic_load_explicit(&work->queue->busy, memory_order_relaxed); /* our own */
    if ((now & 1) != busy) {
        atomic_store(&work->queue->busy, now + 1); /* partner: the loads in is_over */
    }
}

/* Is there no work anywhere? Partners: set_busy of all ranks, and what is_empty says. */
static bool is_over(const struct weft_work *work)
{
    for (int p = 0; p < work->symm->size; p++) {
        work->seen[p] = atomic_load(&queue_on(work, p)->busy);
        if ((work->seen[p] & 1) && !work->told[p]) {
            return false;
        }
    }
    for (int p = 0; p < work->symm->size; p++) {
        if (!is_empty(queue_on(work, p))) {
            return false;
        }
    }
    for (int p = 0; p < work->symm->size; p++) {
        if (atomic_load(&queue_on(work, p)->busy) != work->seen[p]) {
            return false;
        }
    }
    return true;
}

/* A task of some other rank, dead ones too; false if there was none. */
static bool rob(weft_work_h work, void *task)
{
    int size = work->symm->size;
    work->random = work->random * 6364136223846793005ull + 1442695040888963407ull;
    int start = (int)((work->random >> 33) % (uint64_t)size);
    for (int i = 0; i < size; i++) {
        int p = (start + i) % size;
        if (p == work->symm->rank || is_empty(queue_on(work, p))) {
            continue;
        }
        set_busy(work, true); /* before the task is ours: it is never nobody's */
        if (weft_work_steal(work, p, task) == WEFT_OK) {
            return true;
        }
        set_busy(work, false);
    }
    return false;
}

static bool something_new(const void *arg)
{
    const struct weft_work *work = arg;
    for (int p = 0; p < work->symm->size; p++) {
        if (!is_empty(queue_on(work, p))) {
            return true;
        }
    }
    return is_over(work);
}

weft_status_t weft_work_next(weft_work_h work, void *task)
{
    weft_status_t status = check_task(work, "work_next", task);
    if (status != WEFT_OK) {
        return status;
    }
    set_busy(work, true);
    if (weft_work_pop(work, task) == WEFT_OK) {
        return WEFT_OK;
    }
    set_busy(work, false);
    for (;;) {
        if (rob(work, task)) {
            return WEFT_OK;
        }
        if (is_over(work)) {
            return WEFT_ERR_NOT_FOUND;
        }
        weft_reach_wait_t wait = {
            .ready = something_new, .arg = work, .what = "a task", .told = work->told};
        WEFT_TRY(weft__reach_await(work->symm->comm, &wait));
    }
}
