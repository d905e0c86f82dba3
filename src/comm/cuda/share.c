/* What a process may take of a GPU, over all its communicators. */
#include <string.h>

#include "comm/cuda/cuda.h"

static pthread_mutex_t share_lock = PTHREAD_MUTEX_INITIALIZER;
static int least_share[64]; /* by number of the GPU, from 64 on shared by two; 0: none is known */

int weft__cuda_known_share(int gpu)
{
    pthread_mutex_lock(&share_lock);
    int share = least_share[gpu % 64];
    pthread_mutex_unlock(&share_lock);
    return share > 0 ? share : WEFT_CUDA_BLOCKS;
}

void weft__cuda_note_share(int gpu, int share)
{
    pthread_mutex_lock(&share_lock);
    int *least = &least_share[gpu % 64];
    *least = *least == 0 || share < *least ? share : *least;
    pthread_mutex_unlock(&share_lock);
}

void weft__cuda_forget_shares(void)
{
    pthread_mutex_lock(&share_lock);
    if (!weft__cuda_held()) {
        memset(least_share, 0, sizeof(least_share));
    }
    pthread_mutex_unlock(&share_lock);
}
