/* Can ranks use our own kernels? If they are on one host and their GPUs reach each other's
 * memory. */
#include "comm/cuda/probe.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/settings.h"
#include "device/device.h"

/* As NVML writes it. */
static void write_uuid(const weft_member_t *member, char text[WEFT_GPU_TEXT])
{
    int at = snprintf(text, WEFT_GPU_TEXT, "GPU");
    for (int i = 0; i < 16; i++) {
        bool part = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
        at += snprintf(text + at, (size_t)(WEFT_GPU_TEXT - at), "%s%02x", part ? "-" : "",
                       member->gpu[i]);
    }
}

/* Its place; -1: the driver does not list it under that name, as with parts of a GPU. */
static int find_gpu(const weft_gpus_t *known, const weft_member_t *member)
{
    char text[WEFT_GPU_TEXT];
    write_uuid(member, text);
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

bool weft__cuda_reach_by(const weft_gpus_t *known, const weft_member_t *members, int n)
{
    for (int a = 0; a < n; a++) {
        for (int b = 0; b < n; b++) {
            int from = find_gpu(known, &members[a]), to = find_gpu(known, &members[b]);
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

/* What the driver says of this host: asked once, as it takes milliseconds, and others wait
 * meanwhile; kept as long as the process lives. NULL: it says nothing. */
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

/* Do the GPUs of these ranks, of one host, reach each other's memory, for all that is known? Asks
 * the driver if they are several. */
static bool gpus_reach(const weft_member_t *members, int n)
{
    bool several = false;
    for (int i = 1; i < n; i++) {
        several |= memcmp(members[i].gpu, members[0].gpu, sizeof(members[0].gpu)) != 0;
    }
    if (n > 1 && weft__settings()->gpus_apart == 2) {
        return false;
    }
    const weft_gpus_t *here = several ? gpus_here() : NULL;
    return !here || weft__cuda_reach_by(here, members, n);
}

weft_probe_t weft__cuda_probe(const weft_members_t *members)
{
    if (!weft__device_is_cuda() || members->apart) {
        return WEFT_PROBE_NO;
    }
    if (strcmp(weft__settings()->engine, "weft") == 0) {
        return WEFT_PROBE_YES; /* asked for: joining finds out */
    }
    if (!members->list) {
        return WEFT_PROBE_DEPENDS;
    }
    for (int i = 1; i < members->size; i++) {
        if (members->list[i].host != members->list[0].host) {
            return WEFT_PROBE_NO;
        }
    }
    return gpus_reach(members->list, members->size) ? WEFT_PROBE_YES : WEFT_PROBE_NO;
}
