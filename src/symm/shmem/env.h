/* The environment variables of the specification: SHMEM_*, and SMA_*, their deprecated names. */
#ifndef WEFT_SYMM_SHMEM_ENV_H
#define WEFT_SYMM_SHMEM_ENV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weft/status.h>

#define WEFT_SHMEM_HEAP_DEFAULT "512M"
#define WEFT_SHMEM_HEAP_MOST (UINT64_C(1) << 62) /* bytes; sizes are smaller */

typedef struct weft_shmem_env {
    size_t heap_bytes;     /* SHMEM_SYMMETRIC_SIZE */
    const char *heap_text; /* as it was written */
    bool version, info, debug;
} weft_shmem_env_t;

/* WEFT_ERR_INVALID if the size is none. */
weft_status_t weft__shmem_env_read(weft_shmem_env_t *env_p);

/* "20m", "3.1M", ".5g", "20kk" (what follows the factor does not count), rounded up. False: no
 * size. */
bool weft__shmem_parse_size(const char *text, size_t *bytes_p);

/* What SHMEM_VERSION and SHMEM_INFO ask for, on stdout. */
void weft__shmem_env_print(const weft_shmem_env_t *env);

#endif
