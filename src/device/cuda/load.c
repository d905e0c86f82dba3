/* Finding and loading the CUDA module. */
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/settings.h"
#include "device/cuda.h"
#include "device/cuda/load.h"

#define MODULE "libweft-cuda.so"

static struct {
    pthread_once_t once;
    const weft_cuda_device_ops_t *ops; /* NULL: see why */
    void *library;
    int gpus;
    weft_cuda_props_t *props;
    char why[400];
    bool broken;  /* there was a reason to load it, and it could not be */
    bool widened; /* the number of connections in the environment is ours, not the user's */
} module = {.once = PTHREAD_ONCE_INIT};

/* Where the module lies, seen from the file that this code is in: beside it (a build), or where an
 * installation puts libraries. */
static const char *const places[] = {"", "../", "../../", "../lib/", "../lib/" WEFT_MULTIARCH "/"};

static bool find_beside(char *path, size_t bytes)
{
    Dl_info info;
    struct link_map *map;
    char real[4096];
    if (dladdr1((void *)places, &info, (void **)&map, RTLD_DL_LINKMAP) == 0) {
        return false;
    }
    /* The program itself has no name there, and the one that it was called by need not be a
     * path. */
    if (realpath(map->l_name[0] != '\0' ? map->l_name : "/proc/self/exe", real) == NULL) {
        return false;
    }
    char *slash = strrchr(real, '/');
    slash[1] = '\0';
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        snprintf(path, bytes, "%s%s%s", real, places[i], MODULE);
        if (access(path, R_OK) == 0) {
            return true;
        }
    }
    return false;
}

static void *open_module(void)
{
    const char *asked = weft__settings()->cuda_module;
    char path[4352];
    if (asked[0] == '\0') {
        asked = find_beside(path, sizeof(path)) ? path : MODULE;
    }
    void *library = dlopen(asked, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        module.broken = true;
        snprintf(module.why, sizeof(module.why),
                 "the CUDA module cannot be loaded (%s); %ssee WEFT_CUDA_MODULE", dlerror(),
                 asked == weft__settings()->cuda_module ? "" : "it is built where nvcc is, ");
    }
    return library;
}

static const char *module_path(void *library)
{
    struct link_map *map;
    return dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 ? map->l_name : "the CUDA module";
}

static bool find_gpus(const weft_cuda_device_ops_t *ops)
{
    int error = ops->count(&module.gpus);
    if (error != 0 || module.gpus == 0) {
        snprintf(module.why, sizeof(module.why), "CUDA finds no GPU (%s)",
                 error != 0 ? ops->error_text(error) : "CUDA_VISIBLE_DEVICES?");
        return false;
    }
    module.props = calloc((size_t)module.gpus, sizeof(*module.props));
    for (int i = 0; i < module.gpus && module.props != NULL; i++) {
        error = ops->props(i, &module.props[i]);
        if (error != 0) {
            snprintf(module.why, sizeof(module.why), "GPU %d cannot be asked for what it is (%s)",
                     i, ops->error_text(error));
            return false;
        }
    }
    return module.props != NULL;
}

/* How many ranks were started on this host? The layers above know better, but are not asked by
 * those below. */
static int ranks_here(void)
{
    static const char *const names[] = {"WEFT_LOCAL_SIZE", "LOCAL_WORLD_SIZE",
                                        "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS",
                                        "SLURM_NTASKS_PER_NODE"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = getenv(names[i]);
        int ranks;
        if (value != NULL && weft__parse_int(value, &ranks) && ranks > 1) {
            return ranks;
        }
    }
    return 1;
}

/* Streams share hardware queues beyond this number, and kernels that wait for each other should not
 * stand in one queue. Processes under MPS have to make do together with what there is: 64 work, 128
 * make CUDA fail. Read by the driver when it starts. */
static void set_connections(void)
{
    int each = 64 / ranks_here();
    char text[16];
    if (getenv(WEFT_CUDA_CONNECTIONS) == NULL) {
        snprintf(text, sizeof(text), "%d", each > 32 ? 32 : each < 2 ? 2 : each);
        module.widened = setenv(WEFT_CUDA_CONNECTIONS, text, 0) == 0;
    }
}

static void load_module(void)
{
    /* Without a driver there is nothing to look for, and no need to open a large library, unless
     * one is asked for: it says itself what it needs. */
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver == NULL && weft__settings()->cuda_module[0] == '\0') {
        snprintf(module.why, sizeof(module.why), "there is no NVIDIA driver (%s)", dlerror());
        return;
    }
    set_connections();
    void *library = open_module();
    if (library == NULL) {
        return;
    }
    const weft_cuda_device_ops_t *ops = dlsym(library, WEFT_CUDA_DEVICE);
    if (ops == NULL || ops->abi != WEFT_CUDA_ABI) {
        module.broken = true;
        snprintf(module.why, sizeof(module.why), "%s is %s", module_path(library),
                 ops != NULL ? "of another version of Weft; build both together"
                             : "no CUDA module of Weft's; see WEFT_CUDA_MODULE");
        return;
    }
    if (find_gpus(ops)) {
        module.library = library;
        module.ops = ops;
    }
}

int weft__cuda_module_version(void)
{
    const char *asked = weft__settings()->cuda_module;
    char path[4352];
    if (asked[0] == '\0') {
        asked = find_beside(path, sizeof(path)) ? path : MODULE;
    }
    void *library = dlopen(asked, RTLD_LAZY | RTLD_LOCAL);
    const int *version = library != NULL ? dlsym(library, WEFT_CUDA_VERSION) : NULL;
    int found = version != NULL ? *version : 0;
    if (library != NULL) {
        dlclose(library);
    }
    return found;
}

/* CUDA starts threads of its own. They must not take signals that the program waits for: a launcher
 * would not learn that a rank has ended. */
static void load(void)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    load_module();
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

bool weft__cuda_load(const char **why_p)
{
    pthread_once(&module.once, load);
    if (why_p != NULL) {
        *why_p = module.why;
    }
    return module.ops != NULL;
}

const void *weft__cuda_table(weft_cuda_table_t *table)
{
    const uint32_t *abi = atomic_load_explicit(&table->found, memory_order_relaxed);
    if (abi == NULL) {
        abi = dlsym(module.library, table->name);
        abi = abi != NULL && *abi == WEFT_CUDA_ABI ? abi : NULL;
        atomic_store_explicit(&table->found, abi, memory_order_relaxed);
    }
    return abi;
}

const weft_cuda_device_ops_t *weft__cuda(void)
{
    return module.ops;
}

bool weft__cuda_broken_module(void)
{
    return module.broken;
}

bool weft__cuda_widened(void)
{
    return module.widened;
}

int weft__cuda_gpus(void)
{
    return module.gpus;
}

int weft__cuda_gpu(int device)
{
    return device % module.gpus;
}

const weft_cuda_props_t *weft__cuda_props(int gpu)
{
    return &module.props[gpu];
}

weft_status_t weft__cuda_status(int error, const char *what)
{
    if (error == 0) {
        return WEFT_OK;
    }
    return weft__fail(WEFT_ERR_SYSTEM, "%s: CUDA says: %s (error %d)", what,
                      module.ops->error_text(error), error);
}
