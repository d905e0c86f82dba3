/* The registry of backends. */
#include "comm/backends.h"

#include <string.h>

#include "base/log.h"
#include "base/settings.h"
#include "device/cuda.h"
#include "topo/host.h"

/* In the order in which ranks try them. */
static const weft_backend_ops_t *const backends[] = {
    &weft__backend_shm,
    &weft__backend_cuda,
    &weft__backend_nccl,
};

#define BACKENDS (sizeof(backends) / sizeof(backends[0]))

const weft_backend_ops_t *weft__backend_named(const char *name)
{
    for (size_t i = 0; i < BACKENDS; i++) {
        if (strcmp(backends[i]->name, name) == 0) {
            return backends[i];
        }
    }
    return NULL;
}

weft_status_t weft__member_here(int device, weft_member_t *member_p)
{
    weft_member_t member = {0};
    WEFT_TRY(weft__host_id(&member.host));
    if (weft__device_is_cuda()) {
        memcpy(member.gpu, weft__cuda_props(weft__cuda_gpu(device))->uuid, sizeof(member.gpu));
    }
    *member_p = member;
    return WEFT_OK;
}

/* Is it asked for? On virtual GPUs there is nothing to ask. */
static bool is_wanted(const weft_backend_ops_t *backend, const char *engine)
{
    return !weft__device_is_cuda() || strcmp(engine, "auto") == 0 ||
           strcmp(engine, backend->engine) == 0;
}

static weft_status_t check_engine(const char *engine)
{
    bool known = strcmp(engine, "auto") == 0;
    for (size_t i = 0; i < BACKENDS; i++) {
        known = known || strcmp(engine, backends[i]->engine) == 0;
    }
    return known ? WEFT_OK
                 : weft__fail(WEFT_ERR_INVALID, "WEFT_ENGINE=%s is not auto, weft or nccl", engine);
}

weft_status_t weft__backend_choose(const weft_members_t *members,
                                   const weft_backend_ops_t **backend_p)
{
    const char *engine = weft__settings()->engine;
    WEFT_TRY(check_engine(engine));
    for (size_t i = 0; i < BACKENDS; i++) {
        weft_probe_t answer = is_wanted(backends[i], engine) ? backends[i]->probe(members)
                                                             : WEFT_PROBE_NO;
        if (answer != WEFT_PROBE_NO) {
            *backend_p = answer == WEFT_PROBE_YES ? backends[i] : NULL;
            return WEFT_OK;
        }
    }
    return weft__fail(WEFT_ERR_UNSUPPORTED,
                      "ranks on several hosts need GPUs (WEFT_DEVICE=cuda) and NCCL "
                      "(WEFT_ENGINE=auto or nccl)");
}
