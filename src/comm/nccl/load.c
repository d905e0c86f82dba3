/* Finding NCCL. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/settings.h"
#include "comm/nccl/api.h"

typedef struct symbol {
    const char *name;
    size_t offset; /* of its slot in weft_nccl_api_t */
    bool needed;
} symbol_t;

static const symbol_t symbols[] = {
#define NEED(name, result, arguments) {"nccl" #name, offsetof(weft_nccl_api_t, name), true},
#define MAY(name, result, arguments) {"nccl" #name, offsetof(weft_nccl_api_t, name), false},
    WEFT_NCCL_TABLE(NEED, MAY)
#undef NEED
#undef MAY
};

/* NULL, or the name of the first needed function that the library does not have. */
static const char *resolve(void *library, weft_nccl_api_t *api)
{
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *address = dlsym(library, symbols[i].name);
        if (!address && symbols[i].needed) {
            return symbols[i].name;
        }
        /* POSIX lets an address of dlsym be a function's; C has no cast for that. */
        memcpy((char *)api + symbols[i].offset, &address, sizeof(address));
    }
    return NULL;
}

static void print_version(int version, char *text, size_t room)
{
    if (version < 10000) { /* up to 2.8 a digit less */
        version = version / 1000 * 10000 + version % 1000;
    }
    snprintf(text, room, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
}

bool weft__nccl_load(const char *library, weft_nccl_api_t *api_p, char *why, size_t room)
{
    weft_nccl_api_t api = {0};
    char have[32], oldest[32];
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        snprintf(why, room,
                 "NCCL cannot be loaded (%s); install libnccl2, or set WEFT_NCCL to the path of "
                 "libnccl.so.2",
                 dlerror());
        return false;
    }
    if (dlsym(handle, "weft_is_nccl")) {
        snprintf(why, room,
                 "%s is Weft's own library, which carries out NCCL's calls with this one; set "
                 "WEFT_NCCL to the path of NVIDIA's",
                 library);
        return false;
    }
    print_version(WEFT_NCCL_OLDEST, oldest, sizeof(oldest));
    const char *missing = resolve(handle, &api);
    if (!api.GetVersion || api.GetVersion(&api.version) != WEFT_NCCL_SUCCESS) {
        snprintf(why, room, "%s is not NCCL: it does not say its version", library);
        return false;
    }
    print_version(api.version, have, sizeof(have));
    if (api.version < WEFT_NCCL_OLDEST) {
        snprintf(why, room, "NCCL %s (%s) is too old; Weft needs %s or later", have, library,
                 oldest);
        return false;
    }
    if (missing) {
        snprintf(why, room, "NCCL %s (%s) has no function %s; is it another library of that name?",
                 have, library, missing);
        return false;
    }
    weft__info("NCCL %s from %s", have, library);
    *api_p = api;
    return true;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static weft_nccl_api_t loaded;
static bool usable;
static char reason[512];

static void load(void)
{
    usable = weft__nccl_load(weft__settings()->nccl, &loaded, reason, sizeof(reason));
}

const weft_nccl_api_t *weft__nccl(const char **why_p)
{
    pthread_once(&once, load);
    if (why_p) {
        *why_p = reason;
    }
    return usable ? &loaded : NULL;
}
