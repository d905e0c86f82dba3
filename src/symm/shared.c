#include "symm/shared.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"

#define ASK_EVERY 32 /* tries between questions whether the holder lives, which are system calls */

typedef struct attempt {
    weft_symm_h symm;
    weft_word_t *lock;
    unsigned *tries;
    bool *inherited_p;
} attempt_t;

static bool try_lock(const void *arg)
{
    const attempt_t *attempt = arg;
    uint64_t mine = (uint64_t)attempt->symm->rank + 1, holder = 0;
    /* Partner: the release in weft__symm_unlock of the holder before. */
    if (atomic_compare_exchange_strong_explicit(attempt->lock, &holder, mine, memory_order_acquire,
                                                memory_order_relaxed)) {
        return true;
    }
    if (++*attempt->tries % ASK_EVERY != 0 ||
        !weft__reach_gone(attempt->symm->comm, (int)holder - 1)) {
        return false;
    }
    /* It is dead, so nobody but those who inherit changes the word: one of them wins. */
    *attempt->inherited_p = atomic_compare_exchange_strong_explicit(
        attempt->lock, &holder, mine, memory_order_acquire, memory_order_relaxed);
    return *attempt->inherited_p;
}

weft_status_t weft__symm_lock(weft_symm_h symm, weft_word_t *lock, const char *what,
                              bool *inherited_p)
{
    unsigned tries = 0;
    *inherited_p = false;
    attempt_t attempt = {symm, lock, &tries, inherited_p};
    if (try_lock(&attempt)) {
        return WEFT_OK;
    }
    char text[120];
    snprintf(text, sizeof(text), "the lock of %s", what);
    weft_reach_wait_t wait = {.ready = try_lock, .arg = &attempt, .what = text, .deaf = true};
    return weft__reach_await(symm->comm, &wait);
}

void weft__symm_unlock(weft_word_t *lock)
{
    atomic_store_explicit(lock, 0, memory_order_release); /* partner: try_lock of the next one */
}

void weft__words_load(void *dst, const weft_word_t *src, size_t bytes)
{
    char *to = dst;
    for (; bytes > 0; src++) {
        uint64_t word = atomic_load_explicit(src, memory_order_acquire);
        size_t part = bytes < 8 ? bytes : 8;
        memcpy(to, &word, part);
        to += part;
        bytes -= part;
    }
}

void weft__words_store(weft_word_t *dst, const void *src, size_t bytes)
{
    const char *from = src;
    for (; bytes > 0; dst++) {
        uint64_t word = 0;
        size_t part = bytes < 8 ? bytes : 8;
        memcpy(&word, from, part);
        atomic_store_explicit(dst, word, memory_order_release);
        from += part;
        bytes -= part;
    }
}

size_t weft__power_of_two(size_t n)
{
    size_t power = 1;
    while (power < n) {
        power *= 2;
    }
    return power;
}

weft_status_t weft__refuse_null(const char *who, const char *what)
{
    return weft__fail(WEFT_ERR_INVALID, "weft_%s: the %s is NULL", who, what);
}
