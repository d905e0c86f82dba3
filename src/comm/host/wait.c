/* Waiting: see wait.h. */
#include "comm/host/wait.h"

#include <errno.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/settings.h"
#include "comm/call.h"
#include "device/device.h"

#define MS 1000000ull
/* Yield this long before sleeping: well over what it takes to wake a chain of ranks one after the
 * other, or slow waking would put the next rank to sleep and never end. */
#define YIELD_NS (20 * MS)
#define YIELD_CROWDED_NS (4 * MS)
#define YIELD_LANE_NS (MS / 5)
#define LANE_BYTES ((size_t)1 << 20)
#define SLEEP_NS (50 * MS) /* look around at least this often while asleep */
#define NAP_NS (1 * MS)
#define NAP_LEAST_NS (MS / 20)
#define CHECK_NS (20 * MS) /* look for dead peers this often */

static long membarrier(int command)
{
    return syscall(SYS_membarrier, command, 0, 0);
}

bool weft__wait_init(void)
{
    long offered = membarrier(MEMBARRIER_CMD_QUERY);
    return offered > 0 && (offered & MEMBARRIER_CMD_GLOBAL_EXPEDITED) &&
           membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) == 0;
}

int weft__wait_spin(bool oversubscribed)
{
    int asked = weft__settings()->spin;
    if (asked >= 0) {
        return asked;
    }
    /* Crowded: whoever we wait for may need this very core. Otherwise about 50 us. */
    return oversubscribed ? 0 : 1000;
}

void weft__wake_all(weft_rank_block_t *block)
{
    /* Partner: the sleeper's load of wake before its futex_wait. */
    atomic_fetch_add_explicit(&block->wake, 1, memory_order_seq_cst);
    syscall(SYS_futex, &block->wake, FUTEX_WAKE, 0x7fffffff, NULL, NULL, 0);
}

void weft__wait_fence(const weft_host_t *host)
{
    if (host->naps || membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED) != 0) {
        nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    }
}

bool weft__wait_idle(weft_idler_t *idler, bool oversubscribed)
{
    if ((idler->yields++ & 15) != 15) {
        sched_yield();
        return false;
    }
    uint64_t now = weft__now_ns();
    idler->start_ns = idler->start_ns == 0 ? now : idler->start_ns;
    idler->waited_ns = now - idler->start_ns;
    if (idler->waited_ns < (oversubscribed ? YIELD_CROWDED_NS : YIELD_NS)) {
        sched_yield();
        return true;
    }
    uint64_t nap = idler->waited_ns / 64;
    nap = nap < NAP_LEAST_NS ? NAP_LEAST_NS : nap > NAP_NS ? NAP_NS : nap;
    nanosleep(&(struct timespec){.tv_nsec = (long)nap}, NULL);
    idler->yields = 15; /* awake: look at the clock again next time */
    return true;
}

static void sleep_on(weft_host_t *host, weft_rank_block_t *block, const _Atomic uint64_t *word,
                     uint64_t target, uint64_t ns)
{
    atomic_fetch_add_explicit(&block->sleepers, 1, memory_order_seq_cst);
    if (!host->naps) {
        membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
    }
    uint32_t wake = atomic_load_explicit(&block->wake, memory_order_seq_cst);
    bool broken = atomic_load_explicit(&host->segment->head->broken, memory_order_seq_cst) == 2;
    if (!broken && atomic_load_explicit(word, memory_order_seq_cst) < target) {
        struct timespec limit = {.tv_sec = 0, .tv_nsec = (long)ns};
        syscall(SYS_futex, &block->wake, FUTEX_WAIT, wake, &limit, NULL, 0);
    }
    atomic_fetch_sub_explicit(&block->sleepers, 1, memory_order_seq_cst);
}

/* How long to yield before sleeping. Beside a rank that computes, for something large: not long. A
 * thread that yields gets its share of the core all the same, which the rank could use, and being
 * woken late is nothing against such a call. */
static uint64_t patience(const weft_host_t *host)
{
    const weft_call_t *call = host->current;
    if (weft__lane_is_self() && !host->naps && call != NULL &&
        call->count * weft_dtype_size(call->type) >= LANE_BYTES) {
        return YIELD_LANE_NS;
    }
    return host->oversubscribed ? YIELD_CROWDED_NS : YIELD_NS;
}

weft_status_t weft__wait_step(weft_host_t *host, weft_waiter_t *waiter, int peer,
                              const _Atomic uint64_t *word, uint64_t target)
{
    if (waiter->polls < host->spin) {
        waiter->polls++;
        weft__pause();
        return WEFT_OK;
    }
    if (atomic_load_explicit(&host->segment->head->broken, memory_order_acquire) == 2) {
        return weft__host_broken(host);
    }
    /* The clock is read on every 16th yield: it costs a tenth of one. */
    if (waiter->start_ns == 0 || (++waiter->polls & 15) == 0) {
        uint64_t now = weft__now_ns();
        if (waiter->start_ns == 0) {
            waiter->start_ns = now;
            waiter->check_ns = now + CHECK_NS;
        }
        if (now >= waiter->check_ns) {
            waiter->check_ns = now + CHECK_NS;
            const weft_host_wait_t wait = {peer, word, target};
            uint64_t waited = now - waiter->start_ns, warn = (uint64_t)weft__settings()->warn_after;
            WEFT_TRY(weft__host_look(host, &wait, waited));
            if (!waiter->warned && warn > 0 && waited >= warn * MS) {
                waiter->warned = true;
                weft__host_warn(host, &wait, waited);
            }
        }
        if (now - waiter->start_ns >= patience(host)) {
            uint64_t ns = waiter->several ? NAP_NS / 5 : host->naps ? NAP_NS : SLEEP_NS;
            sleep_on(host, host->peers[peer].block, word, target, ns);
            waiter->polls |= 15; /* awake: look at the clock next time */
            return WEFT_OK;
        }
    }
    sched_yield();
    return WEFT_OK;
}

weft_status_t weft__wait_slow(weft_host_t *host, int peer, const _Atomic uint64_t *word,
                              uint64_t target)
{
    weft_waiter_t waiter = {0};
    while (atomic_load_explicit(word, memory_order_acquire) < target) {
        weft_status_t status = weft__wait_step(host, &waiter, peer, word, target);
        if (status != WEFT_OK) {
            /* While joining: whoever broke it may have joined before it did. Then so have we, and
             * the first call is told. */
            bool joined = !host->current &&
                          atomic_load_explicit(word, memory_order_acquire) >= target;
            if (joined) {
                atomic_store_explicit(&host->told, false, memory_order_relaxed);
            }
            return joined ? WEFT_OK : status;
        }
    }
    return WEFT_OK;
}
