/* Passing the time while another process does something: for waits without a bell (wait.h has those
 * with one). */
#ifndef WEFT_COMM_HOST_IDLE_H
#define WEFT_COMM_HOST_IDLE_H

#include <stdbool.h>
#include <stdint.h>

static inline void weft__pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Ask for a line to write to. The compiler's own prefetch for writing is one for reading, unless it
 * is told that the processor has this instruction; those that do not have it ignore it. */
static inline void weft__prefetch_own(const char *line)
{
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*line));
#else
    __builtin_prefetch(line, 1);
#endif
}

/* Polls before yielding, from the setting WEFT_SPIN and whether ranks share cores. */
int weft__wait_spin(bool oversubscribed);

/* A wait without a bell: whoever writes does not know of us. Starts as {0}. */
typedef struct weft_idler {
    unsigned yields;
    uint64_t start_ns;  /* 0: the clock was not looked at yet */
    uint64_t waited_ns; /* since then, at the last look */
} weft_idler_t;

/* Give the core away once: yield, and after some milliseconds nap, for at most one. True if it
 * looked at the clock, which costs a tenth of a yield: every 16th time, and after each nap. */
bool weft__wait_idle(weft_idler_t *idler, bool oversubscribed);

#endif
