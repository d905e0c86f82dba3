/* Windows over shared memory: everybody's buffers at hand, numbered steps, a closing barrier. */
#include "base/log.h"
#include "comm/host/wait.h"
#include "comm/shm/shm.h"

#define LAST_STEP 0xffffffu

/* How far a rank is inside a window: window number << 24 | step. Released by signal, acquired by
 * wait. */
static uint64_t progress_of(const weft_shm_t *shm, uint32_t step)
{
    return shm->window << 24 | step;
}

static void window_signal(weft_window_t *window, uint32_t step)
{
    weft_shm_t *shm = window->ctx;
    /* Partner: the acquire load in window_wait of whoever depends on this step. */
    atomic_store_explicit(&shm->host->me->progress, progress_of(shm, step), memory_order_release);
    weft__ring_bell(shm->host->me);
}

static weft_status_t window_wait(weft_window_t *window, int peer, uint32_t step)
{
    weft_shm_t *shm = window->ctx;
    if (step == 0) {
        return WEFT_OK; /* it announced the call, which nobody signals again */
    }
    return weft__wait(shm->host, peer, &shm->host->peers[peer].block->progress,
                      progress_of(shm, step));
}

static weft_status_t close_window(weft_window_t *window)
{
    window_signal(window, LAST_STEP);
    for (int i = 1, p = window->rank; i < window->size; i++) {
        p = weft__next(p, window->size);
        WEFT_TRY(window_wait(window, p, LAST_STEP));
    }
    return WEFT_OK;
}

static const weft_algo_fn algorithms[WEFT_ALGO_COUNT] = {
    [WEFT_ALGO_DIRECT] = weft__direct,
    [WEFT_ALGO_RING] = weft__ring,
    [WEFT_ALGO_TREE] = weft__tree,
    [WEFT_ALGO_DOUBLING] = weft__doubling,
};

weft_status_t weft__shm_in_window(weft_shm_t *shm, const weft_call_t *call, weft_store_t store,
                                  weft_algo_fn algorithm)
{
    weft_host_t *host = shm->host;
    char **src = shm->pointers, **dst = src + shm->size, **tmp = dst + shm->size;
    shm->window++;
    weft_window_t window = {.rank = shm->rank,
                            .size = shm->size,
                            .call = call,
                            .src = src,
                            .dst = dst,
                            .tmp = tmp,
                            .kernels = shm->kernels,
                            .store = store,
                            .chunk = shm->chunk,
                            .ctx = shm,
                            .signal = window_signal,
                            .wait = window_wait};
    weft_status_t status = WEFT_OK;
    if (algorithm) {
        status = weft__host_touch(host) ? algorithm(&window) : weft__host_broken(host);
        weft__host_untouch(host);
    }
    if (status == WEFT_OK) {
        status = close_window(&window);
    }
    /* A rank that gave up after its last step may have taken its buffers back since. */
    if (status == WEFT_OK && weft__host_is_broken(host)) {
        status = weft__host_broken(host);
    }
    if (status == WEFT_OK) {
        host->seq++;
    }
    return status;
}

weft_status_t weft__shm_window(weft_shm_t *shm, const weft_call_t *call, weft_choice_t choice)
{
    return weft__shm_in_window(shm, call, choice.store,
                               call->count ? algorithms[choice.algo] : NULL);
}
