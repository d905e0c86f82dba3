/* Who am I? The rank environment, whoever started us. */
#ifndef WEFT_BOOT_JOB_H
#define WEFT_BOOT_JOB_H

#include <stdint.h>

#include <weft/status.h>

#include "base/mac.h"
#include "boot/store.h"

/* Ranks of a job and of a communicator at most: what is more is refused by who starts it. */
#define WEFT_MAX_RANKS 1024

typedef struct weft_job {
    int rank, size, local_rank, local_size;
    const char *launcher; /* "weft", "torchrun", "openmpi", "mpich", "slurm", "none" */
    char key[128];        /* tells jobs of foreign launchers apart; "" for weft and none */
} weft_job_t;

/* The value of `name`, or NULL; an empty one counts as absent, as shells cannot always unset. */
const char *weft__job_variable(char *const *environ_p, const char *name);

/* Read `environ_p` (NULL: this process's environment). Weft's own variables win, then torchrun's,
 * Open MPI's, MPICH's (PMI), Slurm's; none of them: rank 0 of 1. WEFT_ERR_INVALID, naming the
 * variables, if they contradict each other (rank >= size, one set without the other). */
weft_status_t weft__job_read(char *const *environ_p, weft_job_t *job_p);

/* A number made of the launcher, the size and `key`, which all ranks of `job` can make. */
void weft__job_mac(const weft_job_t *job, const char *key, uint8_t mac[WEFT_MAC_BYTES]);

/* This process's job, read once. Also sets the log's rank and the default device. */
weft_status_t weft__job(const weft_job_t **job_pp);

/* WEFT_ERR_INVALID, with a sentence, if a launcher started another number of ranks than the `asked`
 * of the command line. Whoever was started by nobody may ask for any number. */
weft_status_t weft__job_check_ranks(const weft_job_t *job, int asked);

/* Connect to the job's store, within timeout_ms (-1: for ever, 0: what WEFT_TIMEOUT says). Under
 * `weft run` it is the launcher's (WEFT_MASTER_ADDR/PORT/SECRET). Under another launcher rank 0
 * serves it on an abstract unix socket named after the job's key, and the kernel's word for the
 * peer's user id takes the place of the secret; no file, no port. If it is on several hosts,
 * master.h says where. A job of one starts its own. The server lives as long as the process. */
weft_status_t weft__job_store(int timeout_ms, weft_store_conn_t **store_p);

/* Tell the launcher, where it is `weft`, how long this job may take to end after a signal: it kills
 * nobody before. One rank is enough; what was said last counts. Ranks of other launchers say
 * nothing. */
weft_status_t weft__job_ask_grace(double seconds);

#define WEFT_JOB_GRACE_KEY "weft/grace" /* in the store: milliseconds, int64_t */
#define WEFT_JOB_GRACE_MOST_MS 86400000

#endif
