/* Where the ranks of a job on several hosts meet: rank 0 serves the store over TCP. */
#ifndef WEFT_BOOT_MASTER_H
#define WEFT_BOOT_MASTER_H

#include "boot/job.h"

typedef struct weft_master {
    char addr[256]; /* the host of rank 0 */
    int port;
    uint8_t secret[WEFT_SECRET_BYTES];
} weft_master_t;

/* Read `environ_p` (NULL: this process's environment).
 *
 * Host: WEFT_MASTER_ADDR, MASTER_ADDR, or Slurm's first node. Port: WEFT_MASTER_PORT, the one above
 * MASTER_PORT (which torchrun keeps for itself), or one between 20000 and 29999 made of the job's
 * key. Secret: WEFT_SECRET, else made of the key, which tells jobs apart but is known to whoever
 * knows the job. MPICH has no key that is the same on all hosts. WEFT_ERR_INVALID, saying what to
 * set, if one of them cannot be found. */
weft_status_t weft__master_find(char *const *environ_p, const weft_job_t *job,
                                weft_master_t *master_p);

/* Connect to the store of `job`; rank 0 starts it first, on all addresses of its host unless
 * WEFT_STORE_HOST names one. It lives as long as the process, whose exit waits a little for ranks
 * that are still connected: they may be about to read why it ends. */
weft_status_t weft__master_store(const weft_job_t *job, int timeout_ms,
                                 weft_store_conn_t **store_p);

#endif
