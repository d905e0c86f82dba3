/* CRC-32C, by instruction or by table. */
#include "base/checksum.h"

#include <pthread.h>
#include <string.h>

#define POLYNOMIAL 0x82F63B78u /* Castagnoli's, reflected */

static uint32_t table[8][256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* table[k][b]: what byte b does to the checksum when k more bytes follow it. */
static void make_table(void)
{
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t crc = b;
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
        }
        table[0][b] = crc;
    }
    for (uint32_t b = 0; b < 256; b++) {
        for (int k = 1; k < 8; k++) {
            table[k][b] = table[k - 1][b] >> 8 ^ table[0][table[k - 1][b] & 0xFF];
        }
    }
}

uint32_t weft__crc32c_plain(uint32_t before, const void *bytes, size_t count)
{
    pthread_once(&once, make_table);
    const uint8_t *at = bytes;
    uint32_t crc = ~before;
    for (; count >= 8; count -= 8, at += 8) {
        uint32_t low = crc ^ ((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
                              (uint32_t)at[3] << 24);
        crc = table[7][low & 0xFF] ^ table[6][low >> 8 & 0xFF] ^ table[5][low >> 16 & 0xFF] ^
              table[4][low >> 24] ^ table[3][at[4]] ^ table[2][at[5]] ^ table[1][at[6]] ^
              table[0][at[7]];
    }
    for (; count > 0; count--, at++) {
        crc = crc >> 8 ^ table[0][(crc ^ *at) & 0xFF];
    }
    return ~crc;
}

#if defined(__x86_64__)

__attribute__((target("sse4.2"))) static uint32_t crc32c_sse42(uint32_t before, const void *bytes,
                                                               size_t count)
{
    const uint8_t *at = bytes;
    uint64_t crc = ~before;
    for (; count >= 8; count -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        crc = __builtin_ia32_crc32di(crc, word);
    }
    for (; count > 0; count--, at++) {
        crc = __builtin_ia32_crc32qi((uint32_t)crc, *at);
    }
    return ~(uint32_t)crc;
}

uint32_t weft__crc32c(uint32_t before, const void *bytes, size_t count)
{
    return __builtin_cpu_supports("sse4.2") ? crc32c_sse42(before, bytes, count)
                                            : weft__crc32c_plain(before, bytes, count);
}

#else

uint32_t weft__crc32c(uint32_t before, const void *bytes, size_t count)
{
    return weft__crc32c_plain(before, bytes, count);
}

#endif
