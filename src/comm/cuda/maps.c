/* Slabs of other processes that are mapped here, shared by all communicators. Unmapping waits for
 * all kernels of the process, so it is put off until no communicator is open. */
#include "comm/cuda/maps.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "device/cuda.h"

typedef struct map {
    uint64_t id;
    int gpu;
    void *base;
    int uses;
    struct map *next;
} map_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static map_t *maps;

int weft__cuda_map(int gpu, uint64_t id, const uint8_t handle[WEFT_CUDA_IPC_BYTES], void **base_p)
{
    int error = 0;
    pthread_mutex_lock(&lock);
    map_t *map = maps;
    while (map && (map->id != id || map->gpu != gpu)) {
        map = map->next;
    }
    if (!map && (map = calloc(1, sizeof(*map)))) {
        error = weft__cuda()->ipc_open(gpu, handle, &map->base);
        map->id = id;
        map->gpu = gpu;
        map->next = maps;
        if (error == 0) {
            maps = map;
        } else {
            free(map);
            map = NULL;
        }
    }
    if (map) {
        map->uses++;
        *base_p = map->base;
    }
    pthread_mutex_unlock(&lock);
    return map || error ? error : -1;
}

void weft__cuda_unmap(int gpu, uint64_t id)
{
    pthread_mutex_lock(&lock);
    for (map_t *map = maps; map; map = map->next) {
        if (map->id == id && map->gpu == gpu) {
            map->uses--;
        }
    }
    pthread_mutex_unlock(&lock);
}

void weft__cuda_unmap_unused(void)
{
    pthread_mutex_lock(&lock);
    for (map_t **at = &maps; *at && !weft__cuda_held();) {
        map_t *map = *at;
        if (map->uses > 0) {
            at = &map->next;
            continue;
        }
        *at = map->next;
        weft__cuda()->ipc_close(map->gpu, map->base);
        free(map);
    }
    pthread_mutex_unlock(&lock);
}
