/* Making a symmetric heap, and allocating from it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/settings.h"
#include "comm/group.h"
#include "comm/watch.h"
#include "device/device.h"
#include "device/sysmem.h"
#include "symm/cuda/cuda.h"
#include "symm/symm.h"

/* ---- agreement -------------------------------------------------------------------------- */

static weft_status_t compare(weft_symm_h symm, const char *who, const uint64_t *all, int count,
                             const char *const *texts)
{
    for (int p = 1; p < symm->size; p++) {
        for (int i = 0; i < count; i++) {
            uint64_t first = all[i], other = all[p * count + i];
            if (texts[i] && first != other) {
                char what[80], here[32], there[32];
                weft_fault_t fault;
                snprintf(what, sizeof(what), "weft_%s: %s", who, texts[i]);
                snprintf(here, sizeof(here), "%" PRIu64, first);
                snprintf(there, sizeof(there), "%" PRIu64, other);
                weft__watch_unlike(false, what, 0, here, p, there, &fault);
                return weft__fail(fault.status, "%s", fault.text);
            }
        }
    }
    return WEFT_OK;
}

weft_status_t weft__symm_agree(weft_symm_h symm, const char *who, const uint64_t *mine, int count,
                               const char *const *texts)
{
    if (weft__group_open()) {
        return weft__fail(
            WEFT_ERR_INVALID,
            "weft_%s waits for all ranks and cannot be part of a group; let each rank "
            "call it from a thread of its own",
            who);
    }
    uint64_t *all = calloc((size_t)symm->size * (size_t)count, sizeof(*all));
    if (!all) {
        return weft__reach_break(symm->comm, WEFT_ERR_NO_MEMORY, symm->rank,
                                 "rank %d has no memory for weft_%s", symm->rank, who);
    }
    weft_status_t status = weft_allgather(mine, all, (size_t)count, WEFT_U64, symm->comm, NULL);
    status = status == WEFT_OK ? compare(symm, who, all, count, texts) : status;
    free(all);
    return status;
}

weft_status_t weft__symm_meet(weft_symm_h symm)
{
    return weft_barrier(symm->comm, NULL);
}

/* ---- checks ----------------------------------------------------------------------------- */

weft_status_t weft__symm_check(weft_symm_h symm, const char *who)
{
    if (__builtin_expect(!symm || symm->magic != WEFT_SYMM_MAGIC, 0)) {
        return weft__fail(WEFT_ERR_INVALID, "weft_%s: the symmetric heap is %s", who,
                          symm ? "none, or was destroyed" : "NULL");
    }
    return WEFT_OK;
}

static weft_status_t refuse_rank(weft_symm_h symm, const char *who, int rank)
{
    return weft__fail(WEFT_ERR_INVALID, "weft_%s: there is no rank %d; the heap has ranks 0 to %d",
                      who, rank, symm->size - 1);
}

static weft_status_t refuse_range(weft_symm_h symm, const char *who, const char *what,
                                  const void *addr, size_t bytes)
{
    ptrdiff_t offset = (const char *)addr - symm->base;
    if (offset < 0 || (size_t)offset >= symm->bytes) {
        return weft__fail(WEFT_ERR_INVALID,
                          "weft_%s: %s is %p, which is not in the symmetric heap of rank %d (%p to "
                          "%p); it must come from weft_symm_malloc",
                          who, what, addr, symm->rank, (void *)symm->base,
                          (void *)(symm->base + symm->bytes));
    }
    return weft__fail(
        WEFT_ERR_INVALID,
        "weft_%s: %s is at offset %td of the symmetric heap, and %zu bytes from there "
        "are more than its %zu",
        who, what, offset, bytes, symm->bytes);
}

weft_status_t weft__symm_check_range(weft_symm_h symm, const char *who, const char *what,
                                     const void *addr, size_t bytes, int rank)
{
    if (__builtin_expect((unsigned)rank >= (unsigned)symm->size, 0)) {
        return refuse_rank(symm, who, rank);
    }
    uintptr_t offset = (uintptr_t)addr - (uintptr_t)symm->base;
    if (__builtin_expect(offset > symm->bytes || bytes > symm->bytes - offset, 0)) {
        return refuse_range(symm, who, what, addr, bytes);
    }
    return WEFT_OK;
}

weft_status_t weft__symm_refuse_freed(weft_symm_h symm, const char *who, const char *what,
                                      const void *addr, size_t bytes)
{
    return weft__fail(WEFT_ERR_INVALID,
                      "weft_%s: %s is at offset %td of the symmetric heap, where %zu bytes are not "
                      "allocated, or freed already",
                      who, what, (const char *)addr - symm->base, bytes);
}

weft_status_t weft__symm_check_host(weft_symm_h symm, const char *who)
{
    WEFT_TRY(weft__symm_check(symm, who));
    if (symm->ops != &weft__symm_cpu) {
        return weft__fail(WEFT_ERR_UNSUPPORTED,
                          "weft_%s: this structure lives on virtual GPUs only (WEFT_DEVICE=cpu)",
                          who);
    }
    return WEFT_OK;
}

/* ---- making it -------------------------------------------------------------------------- */

/* Memory for the heap and its head. Too little is the same on all ranks only by chance, so the
 * caller tells the others. */
static weft_status_t take_memory(weft_symm_h symm, uint64_t *ref_p)
{
    char text[WEFT_BYTES_TEXT];
    size_t all = symm->bytes + WEFT_SYMM_HEAD_BYTES;
    void *base;
    weft_status_t status = weft__device_malloc(symm->device, &base, all);
    if (status != WEFT_OK) {
        char why[WEFT_ERROR_TEXT];
        snprintf(why, sizeof(why), "%s", weft_last_error());
        return weft__fail(status,
                          "weft_symm_create: rank %d cannot have a heap of %s (WEFT_SYMM_SIZE, or "
                          "the size that the program gives): %s",
                          symm->rank, weft__bytes_text(symm->bytes, text), why);
    }
    symm->base = base;
    WEFT_TRY(weft_memset(symm->base + symm->bytes, 0, WEFT_SYMM_HEAD_BYTES, NULL));
    return weft__reach_export(symm->comm, base, all, ref_p);
}

/* Tell the others the size and where the memory is, or that there is none. */
static weft_status_t share_memory(weft_symm_h symm)
{
    size_t n = (size_t)symm->size;
    uint64_t mine[3] = {symm->bytes, 0, 0}, *all = calloc(3 * n, sizeof(*all));
    static const char *const texts[3] = {"bytes of the heap:", NULL, NULL};
    if (!all) {
        return weft__reach_break(symm->comm, WEFT_ERR_NO_MEMORY, symm->rank,
                                 "rank %d has no memory for weft_symm_create", symm->rank);
    }
    weft_status_t made = take_memory(symm, &mine[1]);
    char why[WEFT_ERROR_TEXT];
    snprintf(why, sizeof(why), "%s", made == WEFT_OK ? "" : weft_last_error());
    mine[2] = (uint64_t)-made;
    weft_status_t status = weft_allgather(mine, all, 3, WEFT_U64, symm->comm, NULL);
    status = status == WEFT_OK ? compare(symm, "symm_create", all, 3, texts) : status;
    if (status == WEFT_OK && made != WEFT_OK) {
        status = weft__fail(made, "%s", why);
    }
    for (int p = 0; p < symm->size && status == WEFT_OK; p++) {
        if (all[3 * p + 2] != 0) {
            status = weft__fail(
                (weft_status_t) - (int64_t)all[3 * p + 2],
                "weft_symm_create: rank %d cannot have a heap of %zu bytes; a smaller "
                "one (WEFT_SYMM_SIZE) or a larger WEFT_DEVICE_MEMORY may help",
                p, symm->bytes);
        } else {
            symm->at[p] = weft__reach_import(symm->comm, p, all[3 * p + 1]);
        }
    }
    free(all);
    return status;
}

/* ---- what is allocated ------------------------------------------------------------------ */

static void mark(weft_symm_h symm, uint64_t offset, bool live)
{
    uint64_t at = offset / WEFT_ARENA_GRANULE;
    uint64_t end = at + weft__arena_size(&symm->arena, offset) / WEFT_ARENA_GRANULE;
    while (at < end) {
        uint64_t count = end - at < 64 - at % 64 ? end - at : 64 - at % 64;
        uint64_t bits = (count == 64 ? UINT64_MAX : (UINT64_C(1) << count) - 1) << at % 64;
        uint64_t old = atomic_load_explicit(&symm->live[at / 64], memory_order_relaxed);
        atomic_store_explicit(&symm->live[at / 64], live ? old | bits : old & ~bits,
                              memory_order_relaxed);
        at += count;
    }
}

static uint64_t take(weft_symm_h symm, size_t bytes)
{
    uint64_t offset = weft__arena_alloc(&symm->arena, bytes, WEFT_SYMM_ALIGN);
    if (offset != WEFT_ARENA_NONE) {
        mark(symm, offset, true);
    }
    return offset;
}

static void give_back(weft_symm_h symm, uint64_t offset)
{
    pthread_mutex_lock(&symm->lock);
    mark(symm, offset, false);
    weft__arena_free(&symm->arena, offset);
    pthread_mutex_unlock(&symm->lock);
}

/* ---- ends ------------------------------------------------------------------------------- */

static void free_heap(weft_symm_h symm, bool keep)
{
    symm->magic = 0;
    if (symm->base && !keep) {
        weft_free(symm->base);
    }
    weft__arena_cleanup(&symm->arena);
    pthread_mutex_destroy(&symm->lock);
    weft__comm_let_go(symm->comm);
    free(symm->at);
    free(symm->live);
    free(symm);
}

static weft_symm_h alloc_heap(weft_comm_h comm, size_t bytes)
{
    weft_symm_h symm = calloc(1, sizeof(*symm));
    char **at = calloc((size_t)comm->size, sizeof(*at));
    _Atomic uint64_t *live = calloc(bytes / WEFT_ARENA_GRANULE / 64 + 1, sizeof(*live));
    if (!symm || !at || !live || weft__arena_init(&symm->arena, bytes) != WEFT_OK) {
        free(symm);
        free(at);
        free(live);
        return NULL;
    }
    symm->live = live;
    pthread_mutex_init(&symm->lock, NULL);
    weft__comm_hold(comm);
    symm->magic = WEFT_SYMM_MAGIC;
    symm->comm = comm;
    symm->rank = comm->rank;
    symm->size = comm->size;
    symm->device = comm->device;
    symm->ops = weft__device_is_cuda() ? &weft__symm_cuda : &weft__symm_cpu;
    symm->bytes = bytes;
    symm->at = at;
    return symm;
}

weft_status_t weft_symm_create(weft_comm_h comm, size_t bytes, weft_symm_h *symm_p)
{
    WEFT_TRY(weft__reach_check(comm, "symm_create"));
    if (weft__device_is_cuda() && !weft__symm_kernels()) {
        return weft__fail(WEFT_ERR_UNSUPPORTED,
                          "weft_symm_create: the CUDA module has no kernels for symmetric heaps");
    }
    if (!symm_p || weft__group_open()) {
        return weft__fail(WEFT_ERR_INVALID, "weft_symm_create: %s",
                          symm_p
                              ? "not inside a group; let each rank call it from a thread of its own"
                              : "symm_p is NULL");
    }
    bytes = bytes ? bytes : weft__settings()->symm_size;
    if (bytes > SIZE_MAX / 2) {
        return weft__fail(WEFT_ERR_INVALID, "weft_symm_create: %zu bytes are too many", bytes);
    }
    bytes = (bytes + WEFT_SYMM_ALIGN - 1) / WEFT_SYMM_ALIGN * WEFT_SYMM_ALIGN;
    weft_symm_h symm = alloc_heap(comm, bytes);
    if (!symm) {
        return weft__reach_break(comm, WEFT_ERR_NO_MEMORY, comm->rank,
                                 "rank %d has no memory to describe a symmetric heap", comm->rank);
    }
    weft_status_t status = share_memory(symm);
    if (status == WEFT_OK) {
        status = symm->ops->open(symm);
        if (status != WEFT_OK) { /* the others have theirs: they must not count on this one */
            status = weft__reach_break(comm, status, comm->rank, "rank %d: %s", comm->rank,
                                       weft_last_error());
        }
    }
    if (status != WEFT_OK) {
        free_heap(symm, weft__reach_broken(comm) != WEFT_OK);
        return status;
    }
    *symm_p = symm;
    return WEFT_OK;
}

weft_status_t weft_symm_destroy(weft_symm_h symm)
{
    if (!symm) {
        return WEFT_OK;
    }
    WEFT_TRY(weft__symm_check(symm, "symm_destroy"));
    bool aborted = atomic_load(&symm->comm->magic) != WEFT_COMM_MAGIC;
    WEFT_TRY(aborted ? WEFT_OK : weft__comm_check(symm->comm, "symm_destroy"));
    symm->ops->close(symm); /* before the barrier: who has passed it may leave the communicator */
    weft_status_t status = aborted ? weft__reach_broken(symm->comm) : weft__symm_meet(symm);
    /* Ranks that have not noticed yet may still write: the memory must not become anything else. */
    free_heap(symm, status != WEFT_OK);
    return status;
}

/* ---- allocating ------------------------------------------------------------------------- */

static weft_status_t refuse_bytes(weft_symm_h symm, size_t bytes)
{
    char asked[WEFT_BYTES_TEXT], has[WEFT_BYTES_TEXT], used[WEFT_BYTES_TEXT], left[WEFT_BYTES_TEXT];
    weft__bytes_text(bytes, asked);
    weft__bytes_text(symm->bytes, has);
    weft__bytes_text(symm->arena.used, used);
    weft__bytes_text(weft__arena_largest(&symm->arena), left);
    return weft__fail(
        WEFT_ERR_NO_MEMORY,
        "weft_symm_malloc: the symmetric heap cannot give %s: it has %s in use of %s, "
        "and at most %s in one piece; make it larger (weft_symm_create, or "
        "WEFT_SYMM_SIZE)",
        asked, used, has, left);
}

weft_status_t weft_symm_malloc(weft_symm_h symm, size_t bytes, void **ptr_p)
{
    weft_status_t status = weft__symm_check(symm, "symm_malloc");
    if (status != WEFT_OK) {
        return status;
    }
    if (!ptr_p) {
        return weft__fail(WEFT_ERR_INVALID, "weft_symm_malloc: ptr_p is NULL");
    }
    pthread_mutex_lock(&symm->lock);
    uint64_t offset = take(symm, bytes);
    uint64_t largest = weft__arena_largest(&symm->arena), need = weft__arena_need(bytes);
    pthread_mutex_unlock(&symm->lock);
    if (offset == WEFT_ARENA_NONE && largest >= WEFT_SYMM_ALIGN &&
        need <= largest - WEFT_SYMM_ALIGN) { /* it would fit: only this rank cannot note it down */
        return weft__reach_break(symm->comm, WEFT_ERR_NO_MEMORY, symm->rank,
                                 "rank %d has no memory for the books of its symmetric heap",
                                 symm->rank);
    }
    weft_status_t filled = WEFT_OK;
    if (offset != WEFT_ARENA_NONE) { /* before all meet: nobody writes to it yet */
        filled = weft_memset(symm->base + offset, 0, bytes, NULL);
    }
    uint64_t mine[3] = {bytes, offset, (uint64_t)-filled};
    static const char *const texts[3] = {"bytes asked for:", "the offset found is",
                                         "the status of filling with zeros is"};
    status = weft__symm_agree(symm, "symm_malloc", mine, 3, texts);
    if (status == WEFT_OK && offset == WEFT_ARENA_NONE) {
        return refuse_bytes(symm, bytes);
    }
    status = status == WEFT_OK ? filled : status;
    if (status != WEFT_OK && offset != WEFT_ARENA_NONE) {
        give_back(symm, offset);
    } else if (status == WEFT_OK) {
        *ptr_p = symm->base + offset;
    }
    return status;
}

weft_status_t weft_symm_free(weft_symm_h symm, void *ptr)
{
    weft_status_t status = weft__symm_check(symm, "symm_free");
    if (status != WEFT_OK || !ptr) {
        return status;
    }
    uint64_t offset = (uint64_t)((char *)ptr - symm->base);
    pthread_mutex_lock(&symm->lock);
    bool known = weft__arena_size(&symm->arena, offset) != 0;
    pthread_mutex_unlock(&symm->lock);
    if (!known) {
        return weft__fail(
            WEFT_ERR_INVALID,
            "weft_symm_free: %p is not in use: freed already, or not the address that "
            "weft_symm_malloc gave",
            ptr);
    }
    static const char *const texts[1] = {"what is freed is at offset"};
    status = weft__symm_agree(symm, "symm_free", &offset, 1, texts);
    if (status == WEFT_OK) {
        give_back(symm, offset);
    }
    return status;
}

/* ---- questions -------------------------------------------------------------------------- */

static weft_status_t check_place(weft_symm_h symm, const char *who, const void *place)
{
    WEFT_TRY(weft__symm_check(symm, who));
    if (!place) {
        return weft__fail(WEFT_ERR_INVALID, "weft_%s: there is no pointer for the result: NULL",
                          who);
    }
    return WEFT_OK;
}

weft_status_t weft_symm_rank(weft_symm_h symm, int *rank_p)
{
    WEFT_TRY(check_place(symm, "symm_rank", rank_p));
    *rank_p = symm->rank;
    return WEFT_OK;
}

weft_status_t weft_symm_size(weft_symm_h symm, int *size_p)
{
    WEFT_TRY(check_place(symm, "symm_size", size_p));
    *size_p = symm->size;
    return WEFT_OK;
}

weft_status_t weft_symm_comm(weft_symm_h symm, weft_comm_h *comm_p)
{
    WEFT_TRY(check_place(symm, "symm_comm", comm_p));
    *comm_p = symm->comm;
    return WEFT_OK;
}

weft_status_t weft_symm_stats(weft_symm_h symm, weft_symm_stats_t *stats_p)
{
    WEFT_TRY(check_place(symm, "symm_stats", stats_p));
    pthread_mutex_lock(&symm->lock);
    *stats_p = (weft_symm_stats_t){.bytes = symm->bytes,
                                   .used = symm->arena.used,
                                   .largest = weft__arena_largest(&symm->arena),
                                   .count = symm->arena.count};
    pthread_mutex_unlock(&symm->lock);
    return WEFT_OK;
}

void *weft_symm_ptr(weft_symm_h symm, const void *addr, int rank)
{
    if (weft__symm_check(symm, "symm_ptr") != WEFT_OK ||
        weft__symm_check_range(symm, "symm_ptr", "addr", addr, 1, rank) != WEFT_OK) {
        return NULL;
    }
    return weft__symm_at(symm, addr, rank);
}

weft_status_t weft_symm_view(weft_symm_h symm, weft_symm_view_t *view_p)
{
    WEFT_TRY(check_place(symm, "symm_view", view_p));
    if (symm->size > WEFT_SYMM_VIEW_RANKS) {
        return weft__fail(WEFT_ERR_UNSUPPORTED,
                          "weft_symm_view: a view has room for %d ranks, and there are %d",
                          WEFT_SYMM_VIEW_RANKS, symm->size);
    }
    weft_symm_view_t view = {.rank = symm->rank, .size = symm->size, .bytes = symm->bytes};
    view.timeout_ns = (uint64_t)symm->comm->timeout_ms * 1000000u;
    for (int p = 0; p < symm->size; p++) {
        view.base[p] = symm->at[p];
    }
    WEFT_TRY(symm->ops->view(symm, &view));
    *view_p = view;
    return WEFT_OK;
}

weft_status_t weft_symm_error(weft_symm_h symm)
{
    WEFT_TRY(weft__symm_check(symm, "symm_error"));
    return symm->ops->error(symm);
}
