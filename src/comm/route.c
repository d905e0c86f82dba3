/* Choosing between shared memory and NCCL. */
#include "comm/route.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/settings.h"
#include "base/try.h"
#include "comm/shm/segment.h"
#include "device/cuda/cuda.h"
#include "device/device.h"

weft_status_t weft__route(weft_route_t *route_p)
{
    static const struct {
        const char *engine;
        weft_route_t route;
    } routes[] = {{"auto", WEFT_ROUTE_VOTE}, {"weft", WEFT_ROUTE_HOST}, {"nccl", WEFT_ROUTE_NCCL}};
    const char *engine = weft__settings()->engine;
    for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++) {
        if (strcmp(engine, routes[i].engine) == 0) {
            *route_p = weft__device_is_cuda() ? routes[i].route : WEFT_ROUTE_HOST;
            return WEFT_OK;
        }
    }
    return weft__fail(WEFT_ERR_INVALID, "WEFT_ENGINE=%s is not auto, weft or nccl", engine);
}

/* ---- GPUs of one host --------------------------------------------------------------------- */

weft_route_gpu_t weft__route_gpu(int device)
{
    weft_route_gpu_t gpu = {0};
    if (weft__device_is_cuda()) {
        memcpy(gpu.uuid, weft__cuda_props(weft__cuda_gpu(device))->uuid, sizeof(gpu.uuid));
    }
    return gpu;
}

/* As NVML writes it. */
static void write_uuid(const weft_route_gpu_t *gpu, char text[WEFT_GPU_TEXT])
{
    int at = snprintf(text, WEFT_GPU_TEXT, "GPU");
    for (int i = 0; i < 16; i++) {
        bool part = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
        at += snprintf(text + at, (size_t)(WEFT_GPU_TEXT - at), "%s%02x", part ? "-" : "",
                       gpu->uuid[i]);
    }
}

/* Its place; -1: the driver does not list it under that name, as with parts of a GPU. */
static int find_gpu(const weft_gpus_t *known, const weft_route_gpu_t *gpu)
{
    char text[WEFT_GPU_TEXT];
    write_uuid(gpu, text);
    for (int i = 0; i < known->count; i++) {
        if (strcmp(known->gpus[i].uuid, text) == 0) {
            return i;
        }
    }
    return -1;
}

static bool refused(const weft_gpus_t *known, int from, int to)
{
    const weft_gpu_pair_t *pair = weft__gpu_pair(known, from, to);
    return pair->access[WEFT_ACCESS_READ] == 0 || pair->access[WEFT_ACCESS_WRITE] == 0;
}

bool weft__route_reach_by(const weft_gpus_t *known, const weft_route_gpu_t *gpus, int n)
{
    for (int a = 0; a < n; a++) {
        for (int b = 0; b < n; b++) {
            int from = find_gpu(known, &gpus[a]), to = find_gpu(known, &gpus[b]);
            if (from >= 0 && to >= 0 && from != to && refused(known, from, to)) {
                const char *why = weft__gpu_pair(known, from, to)->refusal;
                weft__info("GPU %d of rank %d does not reach the memory of GPU %d of rank %d%s%s: "
                           "NCCL carries all calls",
                           known->gpus[from].index, a, known->gpus[to].index, b, why ? ", " : "",
                           why ? why : "");
                return false;
            }
        }
    }
    return true;
}

/* What the driver says of this host: asked once, as it takes milliseconds, and others wait meanwhile; kept as
 * long as the process lives. NULL: it says nothing. */
static const weft_gpus_t *gpus_here(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static weft_gpus_t here;
    static bool known;
    pthread_mutex_lock(&lock);
    known = known || weft__gpus_read(&here) == WEFT_OK;
    pthread_mutex_unlock(&lock);
    return known ? &here : NULL;
}

bool weft__route_reach(const weft_route_gpu_t *gpus, int n)
{
    bool several = false;
    for (int i = 1; i < n; i++) {
        several |= memcmp(&gpus[i], &gpus[0], sizeof(gpus[0])) != 0;
    }
    if (n > 1 && weft__settings()->gpus_apart == 2) {
        return false;
    }
    const weft_gpus_t *here = several ? gpus_here() : NULL;
    return !here || weft__route_reach_by(here, gpus, n);
}

/* ---- votes ------------------------------------------------------------------------------ */

/* Votes are counted in the lower half of one number, those from other hosts in the upper half. */
#define FAR ((int64_t)1 << 32)

/* Do the GPUs of all voters, who have left word of them, reach each other? */
static bool voters_reach(weft_store_conn_t *store, const char *key, int size, int timeout_ms)
{
    bool reach = true;
    weft_status_t status = WEFT_OK;
    weft_route_gpu_t *gpus = calloc((size_t)size, sizeof(*gpus));
    for (int r = 0; r < size && gpus && status == WEFT_OK; r++) {
        char name[128];
        size_t bytes = sizeof(gpus[r]);
        snprintf(name, sizeof(name), "%s/voter/%d", key, r);
        status = weft__store_get(store, name, &gpus[r], &bytes, timeout_ms);
    }
    if (gpus && status == WEFT_OK) {
        reach = weft__route_reach(gpus, size);
    }
    free(gpus);
    return reach;
}

/* The last one to vote says what it comes to. */
static weft_status_t decide(weft_store_conn_t *store, const char *key, int size, bool far,
                            int timeout_ms)
{
    char name[128];
    int32_t route = far || !voters_reach(store, key, size, timeout_ms) ? WEFT_ROUTE_NCCL
                                                                       : WEFT_ROUTE_HOST;
    snprintf(name, sizeof(name), "%s/route", key);
    return weft__store_set(store, name, &route, sizeof(route));
}

weft_status_t weft__route_vote(weft_store_conn_t *store, const char *key, int rank, int size,
                               weft_route_gpu_t gpu, int timeout_ms)
{
    char name[128];
    uint64_t mine, first;
    WEFT_TRY(weft__host_id(&mine));
    first = mine;
    size_t bytes = sizeof(first);
    int64_t votes;
    snprintf(name, sizeof(name), "%s/host", key);
    weft_status_t status = rank == 0 ? weft__store_set(store, name, &mine, sizeof(mine))
                                     : weft__store_get(store, name, &first, &bytes, timeout_ms);
    if (status == WEFT_ERR_TIMEOUT) {
        return weft__fail(status, "rank 0 did not open the communicator within %.1f s",
                          timeout_ms / 1000.0);
    }
    if (status == WEFT_OK) { /* also to be named if others are missed */
        bool taken = true;
        bytes = 0;
        snprintf(name, sizeof(name), "%s/voter/%d", key, rank);
        status = weft__store_offer(store, name, &gpu, sizeof(gpu), &taken, NULL, &bytes);
        if (!taken) { /* before it votes twice */
            return weft__fail(WEFT_ERR_INVALID, "rank %d of this communicator has joined already",
                              rank);
        }
    }
    if (status == WEFT_OK) {
        snprintf(name, sizeof(name), "%s/votes", key);
        status = weft__store_add(store, name, 1 + (first != mine ? FAR : 0), &votes);
    }
    return status == WEFT_OK && votes % FAR == size
               ? decide(store, key, size, votes >= FAR, timeout_ms)
               : status;
}

/* "rank 2, rank 5": those who have not voted. */
static void list_missing(weft_store_conn_t *store, const char *key, int size, char *text,
                         size_t room)
{
    size_t used = 0;
    text[0] = '\0';
    for (int r = 0; r < size && used < room; r++) {
        char name[128];
        weft_route_gpu_t gpu;
        size_t bytes = sizeof(gpu);
        bool found = false;
        snprintf(name, sizeof(name), "%s/voter/%d", key, r);
        if (weft__store_look(store, name, &gpu, &bytes, &found) == WEFT_OK && !found) {
            int n = snprintf(text + used, room - used, "%srank %d", used ? ", " : "", r);
            used += n > 0 ? (size_t)n : 0;
        }
    }
}

/* The rank gives up. Without its vote the others still wait for it, and name it if it does not come back. */
static void withdraw(weft_store_conn_t *store, const char *key, int rank)
{
    char name[128];
    uint64_t mine = 0, first = 0;
    size_t bytes = sizeof(first);
    bool found = false;
    int64_t votes;
    snprintf(name, sizeof(name), "%s/host", key);
    if (weft__host_id(&mine) == WEFT_OK &&
        weft__store_look(store, name, &first, &bytes, &found) == WEFT_OK && found) {
        snprintf(name, sizeof(name), "%s/votes", key);
        weft__store_add(store, name, -1 - (first != mine ? FAR : 0), &votes);
        snprintf(name, sizeof(name), "%s/voter/%d", key, rank);
        weft__store_delete(store, name);
    }
}

weft_status_t weft__route_count(weft_store_conn_t *store, const char *key, int rank, int size,
                                int timeout_ms, weft_route_t *route_p)
{
    char name[128];
    int32_t route = WEFT_ROUTE_HOST;
    size_t bytes = sizeof(route);
    snprintf(name, sizeof(name), "%s/route", key);
    weft_status_t status = weft__store_get(store, name, &route, &bytes, timeout_ms);
    if (status == WEFT_ERR_TIMEOUT) {
        char missing[400];
        list_missing(store, key, size, missing, sizeof(missing));
        withdraw(store, key, rank);
        return weft__fail(status, "did not join the communicator of %d ranks within %.1f s: %s",
                          size, timeout_ms / 1000.0, missing);
    }
    *route_p = (weft_route_t)route;
    return status;
}
