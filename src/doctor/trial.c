#include "doctor/trial.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/version.h"
#include "bench/pattern.h"
#include "comm/backends.h"
#include "device/cuda.h"
#include "topo/host.h"

#define ROOM ((size_t)512 << 20) /* of one of three buffers, over all ranks of a host */

/* ---- data that is checked -------------------------------------------------------------------- */

typedef struct work {
    weft_comm_h comm;
    int rank, size;
    void *src, *dst; /* of the device; size x the largest count */
    void *host;
    weft_trial_t *trial;
} work_t;

typedef enum kind { ALLREDUCE, BROADCAST, ALLGATHER, REDUCE_SCATTER, ALLTOALL, RING, KINDS } kind_t;

static const char *const kind_words[KINDS] = {"allreduce",      "broadcast", "allgather",
                                              "reduce_scatter", "alltoall",  "send and receive"};

static weft_status_t carry_out(const work_t *work, kind_t kind, size_t count, weft_dtype_t type)
{
    int next = (work->rank + 1) % work->size, before = (work->rank + work->size - 1) % work->size;
    switch (kind) {
    case ALLREDUCE:
        return weft_allreduce(work->src, work->dst, count, type, WEFT_SUM, work->comm, NULL);
    case BROADCAST:
        return weft_broadcast(work->src, work->dst, count, type, work->size - 1, work->comm, NULL);
    case ALLGATHER:
        return weft_allgather(work->src, work->dst, count, type, work->comm, NULL);
    case REDUCE_SCATTER:
        return weft_reduce_scatter(work->src, work->dst, count, type, WEFT_SUM, work->comm, NULL);
    case ALLTOALL:
        return weft_alltoall(work->src, work->dst, count, type, work->comm, NULL);
    default:
        WEFT_TRY(weft_group_start());
        weft_status_t status = weft_send(work->src, count, type, next, work->comm, NULL);
        if (status == WEFT_OK) {
            status = weft_recv(work->dst, count, type, before, work->comm, NULL);
        }
        weft_status_t ended = weft_group_end();
        return status == WEFT_OK ? ended : status;
    }
}

/* How many elements of the result, which is in host memory, are wrong; *tests_p: of how many. */
static size_t compare(const work_t *work, const weft_pattern_t *pattern, kind_t kind, size_t count,
                      size_t element, int64_t *tests_p)
{
    size_t me = (size_t)work->rank, wrong = 0;
    bool blocks = kind == ALLGATHER || kind == ALLTOALL;
    *tests_p = (int64_t)(blocks ? (size_t)work->size * count : count);
    for (int r = 0; blocks && r < work->size; r++) {
        const char *block = (const char *)work->host + (size_t)r * count * element;
        wrong += weft__pattern_check(pattern, r, kind == ALLTOALL ? me * count : 0, count, block);
    }
    switch (kind) {
    case ALLREDUCE:
        return weft__pattern_check(pattern, -1, 0, count, work->host);
    case BROADCAST:
        return weft__pattern_check(pattern, work->size - 1, 0, count, work->host);
    case REDUCE_SCATTER:
        return weft__pattern_check(pattern, -1, me * count, count, work->host);
    case RING:
        return weft__pattern_check(pattern, (work->rank + work->size - 1) % work->size, 0, count,
                                   work->host);
    default:
        return wrong;
    }
}

static weft_status_t test_one(work_t *work, kind_t kind, size_t count, weft_dtype_t type)
{
    const weft_pattern_t pattern = {
        .type = type, .op = WEFT_SUM, .ranks = work->size, .salt = (unsigned)kind + 1};
    size_t element = weft_dtype_size(type), size = (size_t)work->size;
    size_t given = kind == REDUCE_SCATTER || kind == ALLTOALL ? size * count : count;
    size_t taken = kind == ALLGATHER || kind == ALLTOALL ? size * count : count;
    int64_t tests = 0;
    weft__pattern_fill(&pattern, work->rank, 0, given, work->host);
    WEFT_TRY(weft_memcpy(work->src, work->host, given * element, NULL));
    WEFT_TRY(weft_memset(work->dst, 0xa5, taken * element, NULL));
    WEFT_TRY(carry_out(work, kind, count, type));
    WEFT_TRY(weft_memcpy(work->host, work->dst, taken * element, NULL));
    size_t wrong = compare(work, &pattern, kind, count, element, &tests);
    if (wrong > 0 && work->trial->wrong == 0) {
        snprintf(work->trial->first, sizeof(work->trial->first), "%s of %zu %s on rank %d",
                 kind_words[kind], count, weft_dtype_name(type), work->rank);
    }
    work->trial->wrong += (int64_t)wrong;
    work->trial->tests += tests;
    return WEFT_OK;
}

static weft_status_t test_all(work_t *work, size_t largest)
{
    /* inside a flag, one-shot, one chunk, several */
    static const size_t counts[] = {1, 1000, 20000, 300000, 3000000};
    static const weft_dtype_t types[] = {WEFT_F32, WEFT_I32};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]) && counts[i] <= largest; i++) {
        for (int kind = 0; kind < KINDS; kind++) {
            WEFT_TRY(test_one(work, (kind_t)kind, counts[i], types[i % 2]));
        }
    }
    return WEFT_OK;
}

/* ---- who the ranks are ----------------------------------------------------------------------- */

static void describe(weft_trial_rank_t *me)
{
    char nccl[512] = "";
    const char *kind = "";
    weft__host_id(&me->host);
    gethostname(me->name, sizeof(me->name) - 1);
    snprintf(me->weft, sizeof(me->weft), "%s %.30s", weft_version(), weft__commit);
    if (weft_device_kind(&kind) != WEFT_OK || strcmp(kind, "cuda") != 0) {
        return;
    }
    weft_gpus_t gpus;
    if (weft__gpus_read(&gpus) == WEFT_OK) {
        snprintf(me->driver, sizeof(me->driver), "%.31s", gpus.driver);
        weft__gpus_cleanup(&gpus);
    }
    weft__backend_named("nccl")->about(nccl, sizeof(nccl));
    if (nccl[0] >= '0' && nccl[0] <= '9') {
        snprintf(me->nccl, sizeof(me->nccl), "%.31s", nccl);
    }
}

/* What every rank has, as bytes, on all; work->src and dst hold it meanwhile. */
static weft_status_t gather(work_t *work, const void *mine, size_t bytes, void *all)
{
    WEFT_TRY(weft_memcpy(work->src, mine, bytes, NULL));
    WEFT_TRY(weft_allgather(work->src, work->dst, bytes, WEFT_U8, work->comm, NULL));
    return weft_memcpy(all, work->dst, bytes * (size_t)work->size, NULL);
}

typedef struct tally {
    int64_t tests, wrong;
    char first[64];
} tally_t;

/* Add up what ranks found, so that all have the same. */
static weft_status_t sum_up(work_t *work)
{
    weft_trial_t *trial = work->trial;
    tally_t mine = {.tests = trial->tests, .wrong = trial->wrong};
    tally_t *all = calloc((size_t)work->size, sizeof(*all));
    memcpy(mine.first, trial->first, sizeof(mine.first));
    if (all == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for what %d ranks found", work->size);
    }
    weft_status_t status = gather(work, &mine, sizeof(mine), all);
    trial->tests = trial->wrong = 0;
    trial->first[0] = '\0';
    for (int r = 0; r < work->size && status == WEFT_OK; r++) {
        trial->tests += all[r].tests;
        trial->wrong += all[r].wrong;
        if (all[r].wrong > 0 && trial->first[0] == '\0') {
            memcpy(trial->first, all[r].first, sizeof(trial->first));
        }
    }
    free(all);
    return status;
}

static weft_status_t introduce(work_t *work)
{
    weft_trial_rank_t me = {0};
    struct timespec now;
    describe(&me);
    WEFT_TRY(weft_barrier(work->comm, NULL));
    WEFT_TRY(weft_barrier(work->comm, NULL)); /* the first may have to connect ranks */
    clock_gettime(CLOCK_REALTIME, &now);
    me.clock_us = (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
    return gather(work, &me, sizeof(me), work->trial->list);
}

weft_status_t weft__trial_run(weft_comm_h comm, bool threads, bool thorough, weft_trial_t *trial_p)
{
    weft_trial_t trial = {.threads = threads};
    work_t work = {.comm = comm, .trial = &trial};
    size_t largest = thorough ? 3000000 : 300000;
    WEFT_TRY(weft_comm_rank(comm, &work.rank));
    WEFT_TRY(weft_comm_size(comm, &work.size));
    /* many ranks: their blocks have to fit into a machine that runs them all */
    size_t most = ROOM / 4 / (size_t)work.size / (size_t)work.size;
    largest = largest > most ? (most > 1000 ? most : 1000) : largest;
    size_t bytes = largest * 4 * (size_t)work.size;
    bytes = bytes < sizeof(weft_trial_rank_t) * (size_t)work.size
                ? sizeof(weft_trial_rank_t) * (size_t)work.size
                : bytes;
    trial.ranks = work.size;
    snprintf(trial.backend, sizeof(trial.backend), "%s", comm->backend->name);
    trial.list = calloc((size_t)work.size, sizeof(*trial.list));
    work.host = malloc(bytes);
    weft_status_t status = WEFT_OK;
    if (trial.list == NULL || work.host == NULL) {
        status = weft__fail(WEFT_ERR_NO_MEMORY, "no memory for data to compare");
    }
    status = status == WEFT_OK ? weft_malloc(&work.src, bytes) : status;
    status = status == WEFT_OK ? weft_malloc(&work.dst, bytes) : status;
    status = status == WEFT_OK ? test_all(&work, largest) : status;
    status = status == WEFT_OK ? sum_up(&work) : status;
    status = status == WEFT_OK ? introduce(&work) : status;
    weft_free(work.src);
    weft_free(work.dst);
    free(work.host);
    if (status != WEFT_OK) {
        free(trial.list);
        return status;
    }
    *trial_p = trial;
    return WEFT_OK;
}

void weft__trial_free(weft_trial_t *trial)
{
    free(trial->list);
    *trial = (weft_trial_t){0};
}

/* ---- as JSON --------------------------------------------------------------------------------- */

void weft__trial_write(const weft_trial_t *trial, weft_json_t *json)
{
    weft__json_string(json, "backend", trial->backend);
    weft__json_bool(json, "threads", trial->threads);
    weft__json_int(json, "tests", trial->tests);
    weft__json_int(json, "wrong", trial->wrong);
    weft__json_string(json, "first", trial->first);
    weft__json_array(json, "ranks");
    for (int i = 0; i < trial->ranks; i++) {
        const weft_trial_rank_t *rank = &trial->list[i];
        weft__json_object(json, NULL);
        weft__json_uint(json, "host", rank->host);
        weft__json_int(json, "clock_us", rank->clock_us);
        weft__json_string(json, "name", rank->name);
        weft__json_string(json, "weft", rank->weft);
        weft__json_string(json, "driver", rank->driver);
        weft__json_string(json, "nccl", rank->nccl);
        weft__json_end(json);
    }
    weft__json_end(json);
}

static void take_text(const weft_json_value_t *object, const char *key, char *text, size_t room)
{
    snprintf(text, room, "%s", weft__json_text(weft__json_get(object, key), ""));
}

weft_status_t weft__trial_read(const weft_json_value_t *object, weft_trial_t *trial_p)
{
    const weft_json_value_t *ranks = weft__json_get(object, "ranks");
    weft_trial_t trial = {0};
    if (ranks == NULL || ranks->kind != WEFT_JSON_ARRAY || ranks->length == 0 ||
        ranks->length > WEFT_MAX_RANKS ||
        !weft__json_to_int(weft__json_get(object, "tests"), &trial.tests) ||
        !weft__json_to_int(weft__json_get(object, "wrong"), &trial.wrong)) {
        return weft__fail(WEFT_ERR_INVALID, "the ranks did not say what they found");
    }
    weft__json_to_bool(weft__json_get(object, "threads"), &trial.threads);
    take_text(object, "backend", trial.backend, sizeof(trial.backend));
    take_text(object, "first", trial.first, sizeof(trial.first));
    trial.list = calloc(ranks->length, sizeof(*trial.list));
    if (trial.list == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for what %u ranks found", ranks->length);
    }
    for (const weft_json_value_t *at = weft__json_first(ranks); at != NULL;
         at = weft__json_next(ranks, at)) {
        weft_trial_rank_t *rank = &trial.list[trial.ranks++];
        weft__json_to_uint(weft__json_get(at, "host"), &rank->host);
        weft__json_to_int(weft__json_get(at, "clock_us"), &rank->clock_us);
        take_text(at, "name", rank->name, sizeof(rank->name));
        take_text(at, "weft", rank->weft, sizeof(rank->weft));
        take_text(at, "driver", rank->driver, sizeof(rank->driver));
        take_text(at, "nccl", rank->nccl, sizeof(rank->nccl));
    }
    *trial_p = trial;
    return WEFT_OK;
}

weft_status_t weft__trial_keep(weft_doctor_t *doctor, const weft_trial_t *trial)
{
    size_t count = (size_t)doctor->trial_count;
    weft_trial_t *trials = realloc(doctor->trials, (count + 1) * sizeof(*trials));
    if (trials == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for what ranks found");
    }
    trials[count] = *trial;
    doctor->trials = trials;
    doctor->trial_count++;
    return WEFT_OK;
}
