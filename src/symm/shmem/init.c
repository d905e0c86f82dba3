/* Starting and ending: the PEs meet by way of the job's store, each opens everybody's file, and
 * from there on the store is not needed. */
#define _GNU_SOURCE 1 /* on_exit */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/settings.h"
#include "boot/job.h"
#include "comm/reach.h"
#include "comm/watch.h"
#include "device/sysmem.h"
#include "symm/shmem/api.h"
#include "symm/shmem/copy.h"
#include "symm/shmem/env.h"
#include "symm/shmem/group.h"
#include "symm/shmem/heap.h"
#include "symm/shmem/segment.h"
#include "symm/shmem/team.h"

/* What a put reads of it is at the beginning of a page: processors hold a load back behind stores
 * to the same place of any page, and the last stores of a copy that are still under way are to the
 * end of one, if blocks are aligned. At 4 KiB this is a tenth of the time. */
_Alignas(4096) HIDDEN weft_shmem_state_t weft__shmem;

static weft_shmem_peer_info_t *infos; /* of all PEs */
static int inits;                     /* less the calls of shmem_finalize */
static pid_t pid;

/* ---- meeting ------------------------------------------------------------------------------ */

static weft_status_t check_peer_info(const weft_shmem_peer_info_t *info, int pe)
{
    const weft_shmem_peer_info_t *mine = &infos[weft__shmem.me];
    char here[WEFT_BYTES_TEXT], there[WEFT_BYTES_TEXT];
    weft_fault_t fault;
    if (info->magic != mine->magic) {
        return weft__fail(WEFT_ERR_MISMATCH, "PE %d uses another version of Weft than PE %d", pe,
                          weft__shmem.me);
    }
    if (info->host != mine->host) {
        return weft__fail(WEFT_ERR_UNSUPPORTED,
                          "PE %d runs on another host than PE %d, or in another container, or one "
                          "of them may not read /proc/sys/kernel/random/boot_id; all PEs must be "
                          "on one host",
                          pe, weft__shmem.me);
    }
    if (info->heap_bytes != mine->heap_bytes) {
        weft__watch_unlike(true, "SHMEM_SYMMETRIC_SIZE is", weft__shmem.me,
                           weft__bytes_text(mine->heap_bytes, here), pe,
                           weft__bytes_text(info->heap_bytes, there), &fault);
        return weft__fail(fault.status, "%s", fault.text);
    }
    return WEFT_OK;
}

static void name_key(char key[64], int pe)
{
    snprintf(key, 64, "shmem/%d/%d", weft__settings()->restart, pe);
}

/* Tell all who we are, and learn who they are. */
static weft_status_t exchange_peer_infos(int pes)
{
    weft_store_conn_t *store;
    weft_fault_t fault;
    char key[64];
    int timeout = weft__settings()->timeout;
    WEFT_TRY(weft__job_store(0, &store));
    name_key(key, weft__shmem.me);
    weft_status_t status = weft__store_set(store, key, &infos[weft__shmem.me], sizeof(infos[0]));
    for (int pe = 0; pe < pes && status == WEFT_OK; pe++) {
        size_t bytes = sizeof(infos[pe]);
        if (pe == weft__shmem.me) {
            continue;
        }
        name_key(key, pe);
        status = weft__store_get(store, key, &infos[pe], &bytes, timeout == 0 ? -1 : timeout);
        if (status == WEFT_ERR_TIMEOUT) {
            weft__watch_absent(weft__shmem.me, true, &(weft_seen_t){.rank = pe}, 1, timeout, NULL,
                               &fault);
            status = weft__fail(fault.status, "%s", fault.text);
        }
        if (status == WEFT_OK) {
            status = check_peer_info(&infos[pe], pe);
        }
    }
    /* nobody's file may go before all have it open */
    if (status == WEFT_OK) {
        for (int pe = 0; pe < pes && status == WEFT_OK; pe++) {
            if (pe != weft__shmem.me) {
                status = weft__shmem_segment_open(&infos[pe], pe, &weft__shmem.peers[pe]);
            }
        }
    }
    if (status == WEFT_OK) {
        snprintf(key, sizeof(key), "shmem/%d/open", weft__settings()->restart);
        status = weft__store_barrier(store, key, pes, timeout == 0 ? -1 : timeout);
    }
    weft__store_close(store);
    return status;
}

/* Who shares cores with us; are there more PEs than cores that they may run on, all together? */
static void look_at_cores(int pes)
{
    weft_shmem_state_t *s = &weft__shmem;
    const uint64_t *mine = infos[s->me].cpus;
    int cores = 0;
    for (size_t word = 0; word < sizeof(infos[0].cpus) / sizeof(infos[0].cpus[0]); word++) {
        uint64_t any = 0;
        for (int pe = 0; pe < pes; pe++) {
            any |= infos[pe].cpus[word];
            s->shares_core[pe] = s->shares_core[pe] || (infos[pe].cpus[word] & mine[word]) != 0;
        }
        cores += __builtin_popcountll(any);
    }
    s->oversubscribed = cores > 0 && pes > cores;
}

/* Before anything that could fail alone: a PE that cannot start ends, and the launcher ends the
 * others. */
static weft_status_t join(const weft_job_t *job, const weft_shmem_env_t *env)
{
    weft_shmem_state_t *s = &weft__shmem;
    s->me = job->rank;
    if (job->size > WEFT_MAX_RANKS) {
        return weft__fail(WEFT_ERR_UNSUPPORTED, "%d PEs are more than %d", job->size,
                          WEFT_MAX_RANKS);
    }
    infos = calloc((size_t)job->size, sizeof(*infos));
    if (infos == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to describe %d PEs", job->size);
    }
    weft_status_t status = weft__shmem_segment_create(job->size, env->heap_bytes, &infos[s->me]);
    if (status != WEFT_OK) {
        return status;
    }
    s->peers[s->me] = (weft_shmem_peer_t){.control = s->mine, .pid = getpid(), .pidfd = -1};
    if (job->size > 1) {
        status = exchange_peer_infos(job->size);
    }
    if (status != WEFT_OK) {
        return status;
    }
    s->joined = true;
    for (int pe = 0; pe < job->size; pe++) {
        if (pe != s->me) {
            s->peers[pe].pidfd = weft__proc_open(s->peers[pe].pid);
        }
    }
    s->kernels = weft__kernels();
    weft__shmem_copy_init();
    look_at_cores(job->size);
    s->spin = weft__wait_spin(s->oversubscribed);
    s->timeout_ms = getenv("WEFT_TIMEOUT") != NULL ? weft__settings()->timeout : 0;
    s->pes = job->size;
    return job->size > 1 ? weft__shmem_watch_start() : WEFT_OK;
}

/* ---- shmem_init --------------------------------------------------------------------------- */

static void exit_handler(int status, void *unused)
{
    weft_shmem_state_t *s = &weft__shmem;
    (void)unused;
    if (s->pes == 0 || getpid() != pid || atomic_load(&s->exiting)) {
        return; /* finalized; a child; the job is being ended */
    }
    if (status == 0) {
        inits = 1;
        shmem_finalize(); /* what programs of old expect of exit */
        return;
    }
    atomic_store(&s->mine->exit_status, status);
    atomic_store_explicit(&s->mine->state, WEFT_SHMEM_EXITED, memory_order_release);
}

static weft_status_t start(void)
{
    const weft_job_t *job;
    weft_shmem_env_t env;
    weft_status_t status = weft__job(&job);
    if (status == WEFT_OK) {
        status = weft__shmem_env_read(&env);
    }
    if (status == WEFT_OK && env.debug) {
        weft__log_set_level("debug");
    }
    if (status == WEFT_OK && job->local_size != job->size) {
        status = weft__fail(WEFT_ERR_UNSUPPORTED,
                            "%d of %d PEs are on this host; all PEs must be on one host",
                            job->local_size, job->size);
    }
    if (status == WEFT_OK) {
        status = join(job, &env);
    }
    if (status == WEFT_OK) {
        status = weft__shmem_heap_init();
    }
    if (status != WEFT_OK) {
        return status;
    }
    weft__shmem_teams_init();
    if (job->rank == 0) {
        weft__shmem_env_print(&env);
    }
    const weft_shmem_state_t *s = &weft__shmem;
    weft__debug("PE %d of %d: heap of %zu bytes at %p, global variables: %zu bytes at %p%s", s->me,
                s->pes, s->heap.bytes, (void *)s->heap.base, s->data.bytes, (void *)s->data.base,
                s->oversubscribed ? ", more PEs than cores" : "");
    weft__shmem_sync(&weft__shmem_world, "shmem_init");
    return WEFT_OK;
}

DEFINE(int, init_thread, int requested, int *provided)
{
    static bool ended;
    if (requested < SHMEM_THREAD_SINGLE || requested > SHMEM_THREAD_MULTIPLE) {
        return 1;
    }
    if (inits++ == 0) {
        if (ended) {
            weft__shmem_die("%s was called again after shmem_finalize", CALL);
        }
        ended = true;
        pid = getpid();
        if (start() != WEFT_OK) {
            weft__log_write(WEFT_LOG_ERROR, "shmem_init: %s", weft_last_error());
            weft__shmem.pes = 0;
            inits = 0;
            return 1;
        }
        on_exit(exit_handler, NULL);
        weft__shmem.thread_level = requested;
    }
    if (provided != NULL) {
        *provided = weft__shmem.thread_level;
    }
    return 0;
}

DEFINE(void, init, void)
{
    int provided;
    if (pshmem_init_thread(SHMEM_THREAD_SINGLE, &provided) != 0) {
        exit(1);
    }
}

DEFINE(void, query_thread, int *provided)
{
    *provided = weft__shmem.thread_level;
}

DEFINE(void, finalize, void)
{
    weft_shmem_state_t *s = &weft__shmem;
    if (s->pes == 0 || --inits > 0) {
        return;
    }
    atomic_thread_fence(memory_order_seq_cst);
    weft__shmem_sync(&weft__shmem_world, CALL);
    /* Partner: look_after in watches, after our process has ended. */
    atomic_store_explicit(&s->mine->state, WEFT_SHMEM_LEFT, memory_order_release);
    weft__shmem_watch_stop();
    weft__shmem_teams_cleanup();
    weft__shmem_heap_cleanup();
    for (int pe = 0; pe < s->pes; pe++) {
        if (pe != s->me) {
            weft__proc_close(s->peers[pe].pid);
            weft__shmem_segment_close(&infos[pe], &s->peers[pe]);
        }
    }
    weft__shmem_segment_cleanup();
    s->pes = 0;
    s->heap = (weft_shmem_span_t){0, 0};
    free(infos);
    s->joined = false;
    infos = NULL;
}

void pshmem_global_exit(int status)
{
    weft__shmem_end(status);
}

void shmem_global_exit(int status) __attribute__((weak, alias("pshmem_global_exit")));

/* ---- queries ------------------------------------------------------------------------------ */

DEFINE(int, my_pe, void)
{
    return weft__shmem.pes > 0 ? weft__shmem.me : -1;
}

DEFINE(int, n_pes, void)
{
    return weft__shmem.pes > 0 ? weft__shmem.pes : -1;
}

DEFINE(int, pe_accessible, int pe)
{
    return pe >= 0 && pe < weft__shmem.pes;
}

DEFINE(void *, ptr, const void *dest, int pe)
{
    const weft_shmem_state_t *s = &weft__shmem;
    if (pe < 0 || pe >= s->pes) {
        return NULL;
    }
    if (weft__shmem_within(&s->heap, dest, 1)) {
        return (char *)(uintptr_t)dest + s->peers[pe].heap;
    }
    if (weft__shmem_within(&s->data, dest, 1) && s->peers[pe].data != WEFT_SHMEM_APART) {
        return (char *)(uintptr_t)dest + s->peers[pe].data;
    }
    return NULL;
}

DEFINE(int, addr_accessible, const void *addr, int pe)
{
    return pshmem_ptr(addr, pe) != NULL;
}

DEFINE(void, info_get_version, int *major, int *minor)
{
    *major = SHMEM_MAJOR_VERSION;
    *minor = SHMEM_MINOR_VERSION;
}

DEFINE(void, info_get_name, char *name)
{
    memcpy(name, SHMEM_VENDOR_STRING, sizeof(SHMEM_VENDOR_STRING));
}

DEFINE(void, pcontrol, int level, ...)
{
    (void)level; /* for tools that define it themselves */
}
