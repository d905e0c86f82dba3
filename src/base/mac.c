/* SipHash-2-4-128 (Aumasson and Bernstein): four 64-bit words, two rounds per 8 bytes of message,
 * four rounds before each half of the result. */
#include "base/mac.h"

#include <pthread.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rng.h"

static uint64_t load64(const uint8_t *bytes)
{
    uint64_t word = 0;
    for (int i = 0; i < 8; i++) {
        word |= (uint64_t)bytes[i] << (8 * i);
    }
    return word;
}

static void store64(uint64_t word, uint8_t *bytes)
{
    for (int i = 0; i < 8; i++) {
        bytes[i] = (uint8_t)(word >> (8 * i));
    }
}

static uint64_t rotate(uint64_t word, int bits)
{
    return word << bits | word >> (64 - bits);
}

static void rounds(uint64_t v[4], int count)
{
    for (int i = 0; i < count; i++) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = rotate(v[1], 13) ^ v[0];
        v[3] = rotate(v[3], 16) ^ v[2];
        v[0] = rotate(v[0], 32);
        v[2] += v[1];
        v[0] += v[3];
        v[1] = rotate(v[1], 17) ^ v[2];
        v[3] = rotate(v[3], 21) ^ v[0];
        v[2] = rotate(v[2], 32);
    }
}

static void absorb(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    rounds(v, 2);
    v[0] ^= word;
}

void weft__mac(const uint8_t key[WEFT_MAC_KEY_BYTES], const void *bytes, size_t count,
               uint8_t mac[WEFT_MAC_BYTES])
{
    const uint8_t *in = bytes;
    uint64_t k0 = load64(key);
    uint64_t k1 = load64(key + 8);
    /* "somepseudorandomlygeneratedbytes"; 0xee marks the 128-bit result */
    uint64_t v[4] = {k0 ^ 0x736f6d6570736575u, k1 ^ 0x646f72616e646f6du ^ 0xee,
                     k0 ^ 0x6c7967656e657261u, k1 ^ 0x7465646279746573u};
    size_t whole = count & ~(size_t)7;

    for (size_t i = 0; i < whole; i += 8) {
        absorb(v, load64(in + i));
    }
    uint64_t last = (uint64_t)count << 56;
    for (size_t i = whole; i < count; i++) {
        last |= (uint64_t)in[i] << (8 * (i - whole));
    }
    absorb(v, last);

    v[2] ^= 0xee;
    rounds(v, 4);
    store64(v[0] ^ v[1] ^ v[2] ^ v[3], mac);
    v[1] ^= 0xdd;
    rounds(v, 4);
    store64(v[0] ^ v[1] ^ v[2] ^ v[3], mac + 8);
}

static uint8_t hash_key[WEFT_MAC_KEY_BYTES];
static pthread_once_t hash_once = PTHREAD_ONCE_INIT;

static void make_hash_key(void)
{
    if (weft__random_bytes(hash_key, sizeof(hash_key)) !=
        WEFT_OK) { /* then what outsiders hardly know */
        uint64_t now = weft__now_ns(), place = (uint64_t)(uintptr_t)&now;
        store64(now, hash_key);
        store64(place ^ (uint64_t)getpid(), hash_key + 8);
    }
}

uint64_t weft__hash(const void *bytes, size_t count)
{
    uint8_t mac[WEFT_MAC_BYTES];
    pthread_once(&hash_once, make_hash_key);
    weft__mac(hash_key, bytes, count, mac);
    return load64(mac);
}

bool weft__mac_equal(const uint8_t a[WEFT_MAC_BYTES], const uint8_t b[WEFT_MAC_BYTES])
{
    /* volatile: keeps the compiler from leaving the loop at the first difference */
    volatile uint8_t difference = 0;
    for (int i = 0; i < WEFT_MAC_BYTES; i++) {
        difference |= (uint8_t)(a[i] ^ b[i]);
    }
    return difference == 0;
}
