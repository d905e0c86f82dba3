/* Which table of compute kernels this process uses, and what all of them share. */
#include "kernel/compute.h"

#include <string.h>

#include "base/log.h"
#include "base/rng.h"
#include "device/device.h"
#include "kernel/cpu/team.h"
#include "kernel/cuda/compute.h"

weft_status_t weft__compute(const weft_compute_t **table_p)
{
    const char *kind;
    WEFT_TRY(weft_device_kind(&kind));
    if (strcmp(kind, weft__compute_cpu.kind) != 0) {
        return weft__compute_cuda(table_p);
    }
    *table_p = &weft__compute_cpu;
    return WEFT_OK;
}

void weft__compute_threads(int count)
{
    weft__team_set(count);
}

uint64_t weft__name_key(uint64_t seed, const char *name)
{
    /* FNV-1a, then mixed with the seed by the generator itself. */
    uint64_t hash = 0xcbf29ce484222325u;
    for (const unsigned char *at = (const unsigned char *)name; *at != '\0'; at++) {
        hash = (hash ^ *at) * 0x100000001b3u;
    }
    return weft__rng_at(seed, hash);
}

uint64_t weft__mask_key(uint64_t seed, const char *site, uint64_t step)
{
    return weft__rng_at(weft__name_key(seed, site), step);
}
