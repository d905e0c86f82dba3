/* Data of these pairs. */
#include <string.h>

#include "bench/ways/ways.h"

weft_status_t weft__ways_fill(const weft_pair_run_t *run, void *device, float *host, uint64_t seed)
{
    weft__pair_fill(host, seed, run->rank, run->bytes / sizeof(float));
    return weft_memcpy(device, host, run->bytes, NULL);
}

weft_status_t weft__ways_compare(const weft_pair_run_t *run, const void *device, float *host,
                                 uint64_t seed, int rank, size_t *wrong_p)
{
    WEFT_TRY(weft__pair_settle(run));
    WEFT_TRY(weft_memcpy(host, device, run->bytes, NULL));
    for (size_t i = 0; i < run->bytes / sizeof(float); i++) {
        float want = rank < 0 ? 0 : weft__pair_value(seed, rank, i);
        for (int r = 0; rank < 0 && r < run->size; r++) {
            want += weft__pair_value(seed, r, i);
        }
        *wrong_p += host[i] != want;
    }
    return WEFT_OK;
}
