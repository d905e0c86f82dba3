/* Parameters that are swapped while others read them.
 *
 * Version v of a replica lies in its buffer v % 2. Readers pin a buffer (a count per reading rank
 * and buffer, in the replica), then make sure that nobody has begun to overwrite it. A writer says
 * that it begins (`writing`), then waits for the pins. Both sides write one word and then read the
 * other's, in sequentially consistent order, so at least one of them notices the other:
 *
 *     reader                              writer
 *     v = current                         writing = v + 2
 *     pins[me][v % 2] += 1                wait until all pins[*][v % 2] are 0
 *     writing >= v + 2? unpin, again      copy; current = v + 2
 *
 * On GPUs kernels do the same without pins: readers look at `writing` after they have read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "device/device.h"
#include "symm/cuda/cuda.h"
#include "symm/shared.h"
#include "symm/shmem/copy.h"

struct weft_params {
    weft_symm_h symm;
    size_t bytes;
    char *head; /* weft_params_head_t, symmetric, as are the buffers */
    char *buffer[2];
};

#define ASK_EVERY 32 /* looks at a pin between questions whether its rank lives */

static weft_params_head_t *head_on(const struct weft_params *params, int rank)
{
    return weft__symm_at(params->symm, params->head, rank);
}

static weft_word_t *word(uint64_t *at)
{
    return (weft_word_t *)at;
}

/* ---- making ----------------------------------------------------------------------------- */

weft_status_t weft_params_create(weft_symm_h symm, size_t bytes, weft_params_h *params_p)
{
    weft_status_t status = weft__symm_check(symm, "params_create");
    if (status != WEFT_OK) {
        return status;
    }
    if (!params_p || bytes == 0) {
        return weft__fail(WEFT_ERR_INVALID, "weft_params_create: %s",
                          params_p ? "0 bytes of parameters" : "params_p is NULL");
    }
    void *part[3] = {NULL};
    size_t sizes[3] = {sizeof(weft_params_head_t) + (size_t)symm->size * 2 * sizeof(uint64_t),
                       bytes, bytes};
    weft_params_h params = calloc(1, sizeof(*params));
    if (!params) {
        return weft__reach_break(symm->comm, WEFT_ERR_NO_MEMORY, symm->rank,
                                 "rank %d has no memory to describe parameters", symm->rank);
    }
    for (int i = 0; i < 3 && status == WEFT_OK; i++) {
        status = weft_symm_malloc(symm, sizes[i], &part[i]);
    }
    if (status != WEFT_OK) { /* on all ranks alike */
        char why[WEFT_ERROR_TEXT];
        snprintf(why, sizeof(why), "%s", weft_last_error());
        for (int i = 0; i < 3 && part[i]; i++) {
            weft_symm_free(symm, part[i]);
        }
        free(params);
        return weft__fail(status, "%s", why);
    }
    *params = (struct weft_params){
        .symm = symm, .bytes = bytes, .head = part[0], .buffer = {part[1], part[2]}};
    *params_p = params;
    return WEFT_OK;
}

weft_status_t weft_params_destroy(weft_params_h params)
{
    if (!params) {
        return WEFT_OK;
    }
    weft_status_t status = weft_symm_free(params->symm, params->head);
    for (int i = 0; i < 2; i++) {
        weft_status_t freed = weft_symm_free(params->symm, params->buffer[i]);
        status = status == WEFT_OK ? freed : status;
    }
    free(params);
    return status;
}

weft_status_t weft_params_view(weft_params_h params, weft_params_view_t *view_p)
{
    if (!params || !view_p) {
        return weft__refuse_null("params_view", params ? "view" : "handle");
    }
    const char *base = params->symm->base;
    *view_p = (weft_params_view_t){
        .bytes = params->bytes,
        .head = (uint64_t)(params->head - base),
        .buffer = {(uint64_t)(params->buffer[0] - base), (uint64_t)(params->buffer[1] - base)}};
    return WEFT_OK;
}

weft_status_t weft_params_version(weft_params_h params, uint64_t *version_p)
{
    if (!params || !version_p) {
        return weft__refuse_null("params_version", params ? "place for the version" : "handle");
    }
    return weft_symm_atomic_fetch(params->symm, &((weft_params_head_t *)params->head)->current,
                                  version_p, params->symm->rank, NULL);
}

/* ---- reading ---------------------------------------------------------------------------- */

/* Pin the current version of the replica on `rank`, which is then the caller's to unpin. */
static uint64_t pin(const struct weft_params *params, int rank)
{
    weft_params_head_t *head = head_on(params, rank);
    for (;;) {
        uint64_t version = atomic_load(word(&head->current)); /* partner: the store in publish */
        weft_word_t *pins = word(&head->pins[params->symm->rank][version % 2]);
        atomic_fetch_add(pins, 1);                             /* partner: the loads in unpinned */
        if (atomic_load(word(&head->writing)) < version + 2) { /* partner: the store in announce */
            return version;
        }
        atomic_fetch_sub(pins, 1);
    }
}

static void unpin(const struct weft_params *params, int rank, uint64_t version)
{
    weft_params_head_t *head = head_on(params, rank);
    /* Partner: the loads in unpinned, after which the buffer is written. */
    atomic_fetch_sub_explicit(word(&head->pins[params->symm->rank][version % 2]), 1,
                              memory_order_release);
}

weft_status_t weft_params_acquire(weft_params_h params, const void **ptr_p, uint64_t *version_p)
{
    if (!params || !ptr_p || !version_p) {
        return weft__refuse_null("params_acquire", params ? "place for the result" : "handle");
    }
    WEFT_TRY(weft__symm_check_host(params->symm, "params_acquire"));
    *version_p = pin(params, params->symm->rank);
    *ptr_p = params->buffer[*version_p % 2];
    return WEFT_OK;
}

weft_status_t weft_params_release(weft_params_h params, uint64_t version)
{
    if (!params) {
        return weft__refuse_null("params_release", "handle");
    }
    WEFT_TRY(weft__symm_check_host(params->symm, "params_release"));
    int rank = params->symm->rank;
    /* Of this rank alone. One pin too few would let a swap write where somebody reads. */
    uint64_t pins = atomic_load_explicit(word(&head_on(params, rank)->pins[rank][version % 2]),
                                         memory_order_relaxed);
    if (pins == 0) {
        return weft__fail(
            WEFT_ERR_INVALID,
            "weft_params_release: rank %d does not hold version %llu: it was released "
            "already, or never acquired",
            rank, (unsigned long long)version);
    }
    unpin(params, rank, version);
    return WEFT_OK;
}

/* A read or a swap, on its way through a stream. */
typedef struct job {
    weft_params_h params;
    int rank;
    size_t offset, bytes;
    void *dst; /* NULL: a swap */
    uint64_t *version_p;
    const void *src;
} job_t;

static weft_status_t run_read(const job_t *job)
{
    uint64_t version = pin(job->params, job->rank);
    const char *from = weft__symm_at(job->params->symm, job->params->buffer[version % 2],
                                     job->rank);
    weft__shmem_copy(job->dst, from + job->offset, job->bytes);
    unpin(job->params, job->rank, version);
    if (job->version_p) {
        *job->version_p = version;
    }
    return WEFT_OK;
}

/* ---- swapping --------------------------------------------------------------------------- */

typedef struct drain {
    weft_symm_h symm;
    weft_params_head_t *head;
    int buffer;
    unsigned *looks;
} drain_t;

/* Does nobody read the buffer any more? Pins of the dead are taken away. */
static bool unpinned(const void *arg)
{
    const drain_t *drain = arg;
    bool ask = ++*drain->looks % ASK_EVERY == 0;
    for (int r = 0; r < drain->symm->size; r++) {
        weft_word_t *pins = word(&drain->head->pins[r][drain->buffer]);
        if (atomic_load(pins) != 0) { /* partner: pin and unpin of rank r */
            if (!ask || !weft__reach_gone(drain->symm->comm, r)) {
                return false;
            }
            atomic_store(pins, 0);
        }
    }
    return true;
}

/* Put version `version` into the replica on `rank`: announce, wait for readers, copy, publish. */
static weft_status_t put_version(const struct weft_params *params, int rank, uint64_t version,
                                 const void *src)
{
    weft_params_head_t *head = head_on(params, rank);
    int buffer = (int)(version % 2);
    unsigned looks = 0;
    atomic_store(word(&head->writing), version); /* announce; partner: the load in pin */
    drain_t drain = {params->symm, head, buffer, &looks};
    if (!unpinned(&drain)) {
        char what[120];
        snprintf(what, sizeof(what), "readers of rank %d to release version %llu of parameters",
                 rank, (unsigned long long)version - 2);
        weft_reach_wait_t wait = {.ready = unpinned, .arg = &drain, .what = what, .deaf = true};
        WEFT_TRY(weft__reach_await(params->symm->comm, &wait));
    }
    weft__shmem_copy(weft__symm_at(params->symm, params->buffer[buffer], rank), src, params->bytes);
    atomic_store(word(&head->current), version); /* publish; partner: the load in pin */
    return WEFT_OK;
}

static uint64_t version_on(const struct weft_params *params, int rank)
{
    return atomic_load(
        word(&head_on(params, rank)->current)); /* partner: publish; under the lock */
}

/* The writer before may have died on its way: bring all replicas to the newest version that one
 * has. Under the lock. */
static weft_status_t complete(const struct weft_params *params, uint64_t *newest_p)
{
    int from = 0;
    for (int p = 1; p < params->symm->size; p++) {
        from = version_on(params, p) > version_on(params, from) ? p : from;
    }
    *newest_p = version_on(params, from);
    const char *newest = weft__symm_at(params->symm, params->buffer[*newest_p % 2], from);
    weft_status_t status = WEFT_OK;
    for (int p = 0; p < params->symm->size && status == WEFT_OK; p++) {
        if (version_on(params, p) != *newest_p) {
            status = put_version(params, p, *newest_p, newest);
        }
    }
    return status;
}

static weft_status_t run_swap(const job_t *job)
{
    const struct weft_params *params = job->params;
    weft_word_t *lock = word(&head_on(params, 0)->lock);
    uint64_t newest;
    bool inherited;
    WEFT_TRY(weft__symm_lock(params->symm, lock, "parameters", &inherited));
    weft_status_t status = complete(params, &newest);
    /* Start with oneself, so that several writers do not all begin at rank 0. */
    for (int i = 0; i < params->symm->size && status == WEFT_OK; i++) {
        int p = (params->symm->rank + i) % params->symm->size;
        status = put_version(params, p, newest + 1, job->src);
    }
    weft__symm_unlock(lock);
    return status;
}

/* ---- calls ------------------------------------------------------------------------------ */

static weft_status_t run_job(void *arg)
{
    job_t *job = arg;
    weft_status_t status = job->dst ? run_read(job) : run_swap(job);
    free(job);
    return status;
}

static weft_status_t run_on_host(const job_t *job, weft_stream_h stream)
{
    if (!stream) {
        return job->dst ? run_read(job) : run_swap(job);
    }
    job_t *queued = malloc(sizeof(*queued));
    if (!queued) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to queue a call on parameters");
    }
    *queued = *job;
    weft_status_t status = weft__stream_push(stream, run_job, queued);
    if (status != WEFT_OK) {
        free(queued);
    }
    return status;
}

static weft_status_t run_on_gpu(const job_t *job, weft_stream_h stream)
{
    weft_symm_h symm = job->params->symm;
    const weft_symm_gpu_t *gpu = symm->kind;
    const weft_cuda_symm_ops_t *ops = weft__symm_kernels();
    int on = weft__symm_on(symm);
    void *native = NULL;
    weft_params_view_t view;
    WEFT_TRY(weft__symm_stream(symm, stream, true, &native));
    if (!weft__symm_reachable(job->dst ? job->dst : job->src)) {
        return weft__fail(WEFT_ERR_INVALID,
                          "a call on parameters: the GPU cannot reach %p; give memory from "
                          "weft_malloc or weft_host_malloc",
                          job->dst ? job->dst : job->src);
    }
    WEFT_TRY(weft_params_view(job->params, &view));
    int error = job->dst ? ops->read(on, &gpu->view, &view, job->rank, job->offset, job->bytes,
                                     job->dst, job->version_p, native)
                         : ops->swap(on, &gpu->view, &view, job->src, native);
    return weft__symm_launched(symm, error, true, stream);
}

static weft_status_t run(const job_t *job, weft_stream_h stream)
{
    return job->params->symm->ops == &weft__symm_cpu ? run_on_host(job, stream)
                                                     : run_on_gpu(job, stream);
}

weft_status_t weft_params_swap(weft_params_h params, const void *src, weft_stream_h stream)
{
    if (!params || !src) {
        return weft__refuse_null("params_swap", params ? "source" : "handle");
    }
    return run(&(job_t){.params = params, .src = src}, stream);
}

weft_status_t weft_params_read(weft_params_h params, int rank, size_t offset, size_t bytes,
                               void *dst, uint64_t *version_p, weft_stream_h stream)
{
    if (!params || !dst) {
        return weft__refuse_null("params_read", params ? "destination" : "handle");
    }
    if ((unsigned)rank >= (unsigned)params->symm->size || offset > params->bytes ||
        bytes > params->bytes - offset) {
        return weft__fail(WEFT_ERR_INVALID,
                          "weft_params_read: bytes %zu to %zu of rank %d are asked for; there are "
                          "%zu bytes, on ranks 0 to %d",
                          offset, offset + bytes, rank, params->bytes, params->symm->size - 1);
    }
    return run(&(job_t){.params = params,
                        .rank = rank,
                        .offset = offset,
                        .bytes = bytes,
                        .dst = dst,
                        .version_p = version_p},
               stream);
}
