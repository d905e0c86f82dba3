/* Counter-based and kernel random numbers. */
#include "base/rng.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"

void weft__philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

uint64_t weft__rng_at(uint64_t seed, uint64_t index)
{
    const uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), 0, 0};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t out[4];
    weft__philox(counter, key, out);
    return (uint64_t)out[1] << 32 | out[0];
}

void weft__shuffle(uint64_t seed, uint64_t first, int *order, int count)
{
    for (int i = 0; i < count; i++) { /* from the inside out (Fisher, Yates, Durstenfeld) */
        int at = (int)(weft__rng_at(seed, first + (uint64_t)i) % (uint64_t)(i + 1));
        if (at != i) {
            order[i] = order[at];
        }
        order[at] = i;
    }
}

weft_status_t weft__random_bytes(void *out, size_t bytes)
{
    char *at = out;
    while (bytes > 0) {
        ssize_t got = getrandom(at, bytes, 0);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return weft__fail(WEFT_ERR_SYSTEM, "getrandom of %zu bytes failed: %s", bytes,
                              strerror(errno));
        }
        at += got;
        bytes -= (size_t)got;
    }
    return WEFT_OK;
}
