/* The tuner's table and the parser of WEFT_ALGO. */
#include "comm/tuner.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/settings.h"
#include "topo/topo.h"

#define A(name) (1u << WEFT_ALGO_##name)

static const unsigned has[WEFT_COLL_COUNT] = {
    [WEFT_COLL_ALLREDUCE] = A(ONESHOT) | A(DIRECT) | A(RING) | A(TREE) | A(DOUBLING),
    [WEFT_COLL_REDUCE] = A(ONESHOT) | A(DIRECT) | A(TREE),
    [WEFT_COLL_BROADCAST] = A(ONESHOT) | A(DIRECT) | A(RING) | A(TREE),
    [WEFT_COLL_REDUCE_SCATTER] = A(ONESHOT) | A(DIRECT) | A(RING),
    [WEFT_COLL_ALLGATHER] = A(ONESHOT) | A(DIRECT) | A(RING) | A(DOUBLING),
    [WEFT_COLL_GATHER] = A(ONESHOT) | A(DIRECT),
    [WEFT_COLL_SCATTER] = A(ONESHOT) | A(DIRECT),
    [WEFT_COLL_ALLTOALL] = A(ONESHOT) | A(DIRECT),
    [WEFT_COLL_ALLTOALLV] = A(DIRECT),
    [WEFT_COLL_BARRIER] = A(ONESHOT),
    [WEFT_COLL_SEND] = A(DIRECT),
    [WEFT_COLL_RECV] = A(DIRECT),
};

bool weft__tuner_has(weft_coll_t coll, weft_algo_t algo)
{
    return algo == WEFT_ALGO_AUTO || (has[coll] & (1u << algo)) != 0;
}

static bool same(const char *name, const char *text, size_t length)
{
    return strlen(name) == length && strncmp(name, text, length) == 0;
}

static weft_algo_t algo_named(const char *text, size_t length)
{
    for (int a = 0; a < WEFT_ALGO_COUNT; a++) {
        if (same(weft__algo_name((weft_algo_t)a), text, length)) {
            return (weft_algo_t)a;
        }
    }
    return WEFT_ALGO_COUNT;
}

static int coll_named(const char *text, size_t length)
{
    for (int c = 0; c < WEFT_COLL_COUNT; c++) {
        if (same(weft__coll_info[c].name, text, length)) {
            return c;
        }
    }
    return WEFT_COLL_COUNT;
}

static weft_status_t fail_no_algo(weft_coll_t coll, const char *text, size_t length)
{
    char names[128] = "";
    size_t used = 0;
    for (int a = 0; a < WEFT_ALGO_COUNT; a++) {
        if (weft__tuner_has(coll, (weft_algo_t)a)) {
            used += (size_t)snprintf(names + used, sizeof(names) - used, " %s",
                                     weft__algo_name((weft_algo_t)a));
        }
    }
    return weft__fail(WEFT_ERR_INVALID, "%s has no algorithm \"%.*s\"; it has:%s",
                      weft__coll_info[coll].name, (int)length, text, names);
}

/* One item of the list: "coll:algo", or "algo" for every collective that has it. */
static weft_status_t apply_item(weft_tuner_t *tuner, const char *item, size_t length)
{
    const char *colon = memchr(item, ':', length);
    if (!colon) {
        weft_algo_t algo = algo_named(item, length);
        if (algo == WEFT_ALGO_COUNT) {
            return weft__fail(WEFT_ERR_INVALID,
                              "\"%.*s\" is no algorithm; there are auto, oneshot, direct, ring, "
                              "tree, doubling, or collective:algorithm",
                              (int)length, item);
        }
        for (int c = 0; c < WEFT_COLL_COUNT; c++) {
            if (weft__tuner_has((weft_coll_t)c, algo)) {
                tuner->forced[c] = algo;
            }
        }
        return WEFT_OK;
    }
    int coll = coll_named(item, (size_t)(colon - item));
    if (coll == WEFT_COLL_COUNT) {
        return weft__fail(WEFT_ERR_INVALID, "\"%.*s\" is no collective", (int)(colon - item), item);
    }
    size_t rest = length - (size_t)(colon - item) - 1;
    weft_algo_t algo = algo_named(colon + 1, rest);
    if (algo == WEFT_ALGO_COUNT || !weft__tuner_has((weft_coll_t)coll, algo)) {
        return fail_no_algo((weft_coll_t)coll, colon + 1, rest);
    }
    tuner->forced[coll] = algo;
    return WEFT_OK;
}

weft_status_t weft__tuner_init(weft_tuner_t *tuner, const char *spec)
{
    const weft_settings_t *settings = weft__settings();
    long cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
    int count;
    size_t last = weft__last_cache("", &count);
    *tuner = (weft_tuner_t){.oneshot_max = settings->eager_max,
                            .stream_min = settings->stream_min,
                            .cache = cache > (2 << 20) ? (size_t)cache : (size_t)2 << 20,
                            .last_cache = last,
                            .last_caches = count};
    for (const char *item = spec; *item;) {
        size_t length = strcspn(item, ",");
        if (length > 0) {
            WEFT_TRY(apply_item(tuner, item, length));
        }
        item += length + (item[length] == ',');
    }
    return WEFT_OK;
}

/* Largest payload of a rank (all of its source) for which one exchange of flags with the data
 * inside beats two exchanges around direct access; measured, docs/performance.md. In a one-shot
 * reduction every rank reads every payload, so its limit falls with the number of ranks. */
static size_t oneshot_limit(const weft_tuner_t *tuner, weft_coll_t coll)
{
    int n = tuner->size;
    if (tuner->oneshot_max) {
        return tuner->oneshot_max < WEFT_SLOT_BYTES ? tuner->oneshot_max : WEFT_SLOT_BYTES;
    }
    if (tuner->oversubscribed && (has[coll] & A(ONESHOT))) {
        return 4096; /* an exchange costs a turn of every rank on its core: spare the second one */
    }
    switch (coll) {
    case WEFT_COLL_ALLREDUCE: /* all read all: from 1 KiB on slices are faster even for two */
        return n <= 2 ? 512 : n <= 4 ? 256 : 64;
    case WEFT_COLL_REDUCE:
        return n <= 2 ? 1024 : n <= 4 ? 256 : 64;
    case WEFT_COLL_REDUCE_SCATTER:
        return n <= 2 ? 1024 : n <= 8 ? 512 : 256;
    case WEFT_COLL_ALLGATHER:
    case WEFT_COLL_GATHER:
        return n <= 2 ? 512 : 256;
    case WEFT_COLL_BROADCAST:
    case WEFT_COLL_SCATTER:
    case WEFT_COLL_ALLTOALL:
        return n <= 2 ? 1024 : 2048;
    default:
        return 0;
    }
}

void weft__tuner_settle(weft_tuner_t *tuner, int size, bool oversubscribed)
{
    tuner->size = size;
    tuner->oversubscribed = oversubscribed;
    for (int c = 0; c < WEFT_COLL_COUNT; c++) {
        bool free = tuner->forced[c] == WEFT_ALGO_AUTO && (has[c] & A(ONESHOT)) != 0;
        size_t blocks = weft__coll_info[c].src_blocks == 'S' ? (size_t)size : 1;
        tuner->small[c] = free ? oneshot_limit(tuner, (weft_coll_t)c) / blocks + 1 : 0;
    }
}

/* Bytes of user buffers that one rank reads and writes in a direct call. */
static size_t touched(const weft_tuner_t *tuner, weft_coll_t coll, size_t bytes)
{
    size_t n = (size_t)tuner->size;
    switch (coll) {
    case WEFT_COLL_ALLREDUCE:
        return 2 * bytes;
    case WEFT_COLL_REDUCE:
    case WEFT_COLL_BROADCAST:
        return bytes + bytes / n;
    case WEFT_COLL_REDUCE_SCATTER:
    case WEFT_COLL_ALLGATHER:
        return n * bytes + bytes;
    case WEFT_COLL_ALLTOALL:
        return 2 * n * bytes;
    default:
        return 2 * bytes;
    }
}

/* From so many ranks on one last-level cache, writing through it is slower than past it. */
#define MANY 16

/* Stores that bypass the cache (non-temporal) save reading what they overwrite, and each costs a
 * way to memory.
 *
 *  - They pay once the buffers of all ranks, which are what a call reads and writes, do not fit
 *    into the last-level caches that those ranks share: every line would come from memory and go
 *    there either way. As long as they fit, the next call finds its lines there, and bypassing
 *    them is up to three times as slow.
 *  - Many ranks on one such cache are bound by its traffic, not by its size: there they pay as soon
 *    as a rank touches more than its own cache holds, in reductions and exchanges, whose sources
 *    then stay in it; in copies from four times that on. The same where the last-level cache is
 *    not known.
 *
 * Measured: docs/performance.md. */
static bool streams(const weft_tuner_t *tuner, weft_coll_t coll, size_t bytes)
{
    size_t n = (size_t)tuner->size, mine = touched(tuner, coll, bytes);
    if (tuner->stream_min) {
        return mine >= tuner->stream_min;
    }
    size_t caches = n < (size_t)tuner->last_caches ? n : (size_t)tuner->last_caches;
    if (caches > 0 && n * mine > caches * tuner->last_cache) {
        return true;
    }
    bool early = weft__coll_info[coll].reduces || coll == WEFT_COLL_ALLTOALL;
    return (caches == 0 || n >= MANY * caches) && mine >= (early ? 1 : 4) * tuner->cache;
}

weft_choice_t weft__tuner_choose(const weft_tuner_t *tuner, weft_coll_t coll, size_t bytes)
{
    weft_algo_t forced = tuner->forced[coll];
    size_t n = (size_t)tuner->size;
    size_t payload = weft__coll_info[coll].src_blocks == 'S' ? bytes * n : bytes;
    /* Small calls first: they are in a hurry. */
    if (forced == WEFT_ALGO_AUTO && payload <= oneshot_limit(tuner, coll) &&
        (has[coll] & A(ONESHOT))) {
        return (weft_choice_t){WEFT_ALGO_ONESHOT, WEFT_STORE_CACHED,
                               "small: the data travels with the flag"};
    }
    weft_store_t store = streams(tuner, coll, bytes) ? WEFT_STORE_STREAM : WEFT_STORE_CACHED;
    if (forced != WEFT_ALGO_AUTO) {
        return (weft_choice_t){forced, store, "forced"};
    }
    return (weft_choice_t){WEFT_ALGO_DIRECT, store,
                           store == WEFT_STORE_STREAM
                               ? "least traffic; stores bypass the cache"
                               : "least traffic: each rank works on its slice of all buffers"};
}
