/* Joining and splitting: calls of NCCL's that return when all ranks have made them, whenever that
 * is, and that nothing but the end of the process can interrupt. So they run in a thread of their
 * own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "comm/nccl/engine.h"
#include "device/device.h"

#define WORD_BYTES 8

struct weft_nccl_join {
    weft_nccl_request_t request;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool done, left; /* by the thread, by the one who started it */
    weft_nccl_joined_t joined;
};

/* Device memory for barriers. */
static weft_status_t make_word(const weft_nccl_binding_t *binding, void **word_p)
{
    weft_status_t status = weft__device_malloc(binding->device, word_p, WORD_BYTES);
    if (status != WEFT_OK) {
        *word_p = NULL;
        return status;
    }
    int error = binding->ops->fill(binding->gpu, *word_p, 0, WORD_BYTES, WEFT_CUDA_THREAD_STREAM);
    error = error != 0 ? error : binding->ops->stream_sync(binding->gpu, WEFT_CUDA_THREAD_STREAM);
    return error == 0 ? WEFT_OK
                      : weft__fail(WEFT_ERR_SYSTEM, "GPU %d cannot be used: %s", binding->gpu,
                                   binding->ops->error_text(error));
}

static void call_nccl(const weft_nccl_request_t *request, weft_nccl_joined_t *joined)
{
    const weft_nccl_api_t *api = request->api;
    joined->status = make_word(&request->binding, &joined->word); /* and selects the GPU */
    if (joined->status != WEFT_OK) {
        snprintf(joined->text, sizeof(joined->text), "%s", weft_last_error());
        return;
    }
    if (request->parent) {
        joined->result = api->CommSplit(request->parent->comm, request->color, request->key,
                                        &joined->comm, NULL);
        joined->result = weft__nccl_settle(request->parent, joined->result);
    } else {
        joined->result = api->CommInitRank(&joined->comm, request->size, request->id,
                                           request->rank);
        while (joined->result == WEFT_NCCL_IN_PROGRESS) {
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
            weft_nccl_result_t asked = api->CommGetAsyncError(joined->comm, &joined->result);
            joined->result = asked != WEFT_NCCL_SUCCESS ? asked : joined->result;
        }
    }
    if (joined->result != WEFT_NCCL_SUCCESS) {
        snprintf(joined->text, sizeof(joined->text), "%s", api->GetLastError(NULL));
        joined->comm = NULL;
    }
}

/* Nobody wants it any more. */
static void discard(const weft_nccl_request_t *request, weft_nccl_joined_t *joined)
{
    if (joined->comm) {
        request->api->CommAbort(joined->comm);
    }
    weft_free(joined->word);
}

static void free_join(weft_nccl_join_t *join)
{
    pthread_mutex_destroy(&join->lock);
    pthread_cond_destroy(&join->changed);
    free(join);
}

static void *run(void *arg)
{
    weft_nccl_join_t *join = arg;
    weft_nccl_t *parent = join->request.parent;
    join->request.binding.ops->relax();
    call_nccl(&join->request, &join->joined);
    if (parent) {
        weft__nccl_end(parent);
        weft__nccl_release(parent);
    }
    pthread_mutex_lock(&join->lock);
    join->done = true;
    bool left = join->left;
    pthread_cond_signal(&join->changed);
    pthread_mutex_unlock(&join->lock);
    if (left) {
        discard(&join->request, &join->joined);
        free_join(join);
    }
    return NULL;
}

weft_status_t weft__nccl_join_start(const weft_nccl_request_t *request, weft_nccl_join_t **join_p)
{
    weft_nccl_join_t *join = calloc(1, sizeof(*join));
    if (!join) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to join a communicator of NCCL's");
    }
    join->request = *request;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&join->lock, NULL);
    pthread_cond_init(&join->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);

    pthread_t thread;
    int error = pthread_create(&thread, NULL, run, join);
    if (error != 0) {
        free_join(join);
        return weft__fail(WEFT_ERR_SYSTEM, "starting a thread to join by NCCL failed: %s",
                          strerror(error));
    }
    pthread_detach(thread);
    *join_p = join;
    return WEFT_OK;
}

bool weft__nccl_join_wait(weft_nccl_join_t *join, int timeout_ms, weft_nccl_joined_t *joined_p)
{
    uint64_t end = weft__now_ns() + (uint64_t)timeout_ms * 1000000u;
    const struct timespec until = {.tv_sec = (time_t)(end / 1000000000u),
                                   .tv_nsec = (long)(end % 1000000000u)};
    int late = 0;
    pthread_mutex_lock(&join->lock);
    while (!join->done && late == 0) {
        late = pthread_cond_timedwait(&join->changed, &join->lock, &until);
    }
    bool done = join->done;
    pthread_mutex_unlock(&join->lock);
    if (done) {
        *joined_p = join->joined;
        free_join(join);
    }
    return done;
}

void weft__nccl_join_leave(weft_nccl_join_t *join)
{
    pthread_mutex_lock(&join->lock);
    join->left = true;
    bool done = join->done;
    pthread_mutex_unlock(&join->lock);
    if (done) {
        discard(&join->request, &join->joined);
        free_join(join);
    }
}
