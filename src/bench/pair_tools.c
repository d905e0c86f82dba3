/* What pairs are written with: memory that is freed for them, data, plain copies. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "bench/pair.h"

weft_status_t weft__pair_settle(const weft_pair_run_t *run)
{
    if (!run->stream) {
        return WEFT_OK;
    }
    WEFT_TRY(weft_stream_synchronize(run->stream));
    return run->symm ? weft_symm_error(run->symm) : WEFT_OK;
}

weft_status_t weft__pair_copy(const weft_pair_run_t *run, void *dst, const void *src, size_t bytes,
                              int rounds)
{
    for (int i = 0; i < rounds; i++) {
        if (run->stream) {
            WEFT_TRY(weft_memcpy(dst, src, bytes, run->stream));
        } else {
            memcpy(dst, src, bytes);
            __asm__ volatile("" ::: "memory"); /* all of them count, not just the last */
        }
    }
    return WEFT_OK;
}

weft_status_t weft__pair_await(const weft_pair_run_t *run, const uint64_t *lines, uint64_t value)
{
    for (int n = 1; n < run->size; n++) {
        int from = (run->rank + run->size - n) % run->size;
        WEFT_TRY(weft_symm_signal_wait(run->symm, lines + from * WEFT_PAIR_LINE, WEFT_CMP_GE, value,
                                       NULL));
    }
    return WEFT_OK;
}

weft_status_t weft__pair_ctx(weft_pair_run_t *run, size_t bytes, void **ctx_p)
{
    *ctx_p = run->ctx = calloc(1, bytes);
    return run->ctx ? WEFT_OK : weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a benchmark's state");
}

static weft_status_t own(weft_pair_run_t *run, void *memory, weft_status_t (*release)(void *))
{
    if (run->owned_count == WEFT_PAIR_OWNED) {
        release(memory);
        return weft__fail(WEFT_ERR_INVALID, "%s allocates more than %d buffers", run->pair->target,
                          WEFT_PAIR_OWNED);
    }
    run->owned[run->owned_count].memory = memory;
    run->owned[run->owned_count++].release = release;
    return WEFT_OK;
}

weft_status_t weft__pair_device(weft_pair_run_t *run, size_t bytes, void **memory_p)
{
    WEFT_TRY(weft_malloc(memory_p, bytes));
    return own(run, *memory_p, weft_free);
}

weft_status_t weft__pair_host(weft_pair_run_t *run, size_t bytes, void **memory_p)
{
    WEFT_TRY(weft_host_malloc(memory_p, bytes));
    return own(run, *memory_p, weft_host_free);
}

static weft_status_t free_private(void *memory)
{
    free(memory);
    return WEFT_OK;
}

weft_status_t weft__pair_private(weft_pair_run_t *run, size_t bytes, void **memory_p)
{
    size_t room = (bytes + 4095) / 4096 * 4096 + 4096;
    *memory_p = aligned_alloc(4096, room);
    if (!*memory_p) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for %zu bytes of data", bytes);
    }
    memset(*memory_p, 0, room);
    return own(run, *memory_p, free_private);
}

float weft__pair_value(uint64_t seed, int rank, size_t i)
{
    uint64_t mixed = (seed + (uint64_t)rank * 40503u + i) * 0x9e3779b97f4a7c15ull;
    return (float)(mixed >> 60) - 7.0f;
}

void weft__pair_fill(float *to, uint64_t seed, int rank, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        to[i] = weft__pair_value(seed, rank, i);
    }
}
