/* Jobs on several hosts. */
#include "boot/master.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/settings.h"
#include "boot/store_server.h"

extern char **environ;

/* ---- where ------------------------------------------------------------------------------ */

/* The first of Slurm's "gpu[07-09,12]-a,login1": gpu07-a. false if there is none, or no room. */
static bool first_node(const char *list, char *node, size_t room)
{
    size_t n = 0;
    bool in_range = false, taken = false; /* between brackets; behind the first number there */
    for (; *list != '\0' && (in_range || *list != ','); list++) {
        if (*list == '[') {
            in_range = true;
            taken = false;
        } else if (*list == ']') {
            in_range = false;
        } else if (in_range && (*list == '-' || *list == ',')) {
            taken = true;
        } else if (!in_range || !taken) {
            if (n + 1 >= room) {
                return false;
            }
            node[n++] = *list;
        }
    }
    node[n] = '\0';
    return n > 0 && !in_range;
}

/* "[::1]" is ::1. */
static bool copy_addr(const char *addr, char *to, size_t room)
{
    size_t n = strlen(addr);
    bool brackets = n > 2 && addr[0] == '[' && addr[n - 1] == ']';
    int length = snprintf(to, room, "%.*s", (int)(brackets ? n - 2 : n), addr + brackets);
    return length > 0 && (size_t)length < room;
}

static weft_status_t find_addr(char *const *environ_p, const weft_job_t *job, weft_master_t *master)
{
    const char *own = weft__job_variable(environ_p, "WEFT_MASTER_ADDR");
    const char *torch = weft__job_variable(environ_p, "MASTER_ADDR");
    const char *nodes = weft__job_variable(environ_p, "SLURM_STEP_NODELIST");
    nodes = nodes ? nodes : weft__job_variable(environ_p, "SLURM_JOB_NODELIST");
    if (own || torch) {
        return copy_addr(own ? own : torch, master->addr, sizeof(master->addr))
                   ? WEFT_OK
                   : weft__fail(WEFT_ERR_INVALID, "job: %s is too long for the name of a host",
                                own ? "WEFT_MASTER_ADDR" : "MASTER_ADDR");
    }
    if (nodes && strcmp(job->launcher, "slurm") == 0 &&
        first_node(nodes, master->addr, sizeof(master->addr))) {
        return WEFT_OK;
    }
    return weft__fail(WEFT_ERR_INVALID,
                      "job: %d of %d ranks are on this host, and nothing says where rank 0 is; set "
                      "WEFT_MASTER_ADDR to its host, alike on all ranks",
                      job->local_size, job->size);
}

/* What only ranks of this job have in common; NULL if the launcher says nothing of the kind. MPICH
 * tells only those of one host. torchrun's begins with the address of rank 0, which may have
 * several names. */
static const char *common_key(const weft_job_t *job)
{
    if (job->key[0] == '\0' || strcmp(job->launcher, "mpich") == 0) {
        return NULL;
    }
    const char *slash = strcmp(job->launcher, "torchrun") == 0 ? strchr(job->key, '/') : NULL;
    return slash ? slash : job->key;
}

static bool is_port(const char *text, int *port_p)
{
    return weft__parse_int(text, port_p) && *port_p >= 1 && *port_p <= 65535;
}

static weft_status_t find_port(char *const *environ_p, const weft_job_t *job, weft_master_t *master)
{
    const char *own = weft__job_variable(environ_p, "WEFT_MASTER_PORT");
    const char *torch = weft__job_variable(environ_p, "MASTER_PORT");
    uint8_t mac[WEFT_MAC_BYTES];
    if (own || torch) {
        if (!is_port(own ? own : torch, &master->port)) {
            return weft__fail(WEFT_ERR_INVALID, "job: %s=%s is not a port",
                              own ? "WEFT_MASTER_PORT" : "MASTER_PORT", own ? own : torch);
        }
        master->port += own ? 0 : master->port < 65535 ? 1 : -1;
        return WEFT_OK;
    }
    if (!common_key(job)) {
        return weft__fail(WEFT_ERR_INVALID,
                          "job: %d of %d ranks are on this host; set WEFT_MASTER_PORT to a port "
                          "that is free on %s, alike on all ranks",
                          job->local_size, job->size, master->addr);
    }
    weft__job_mac(job, common_key(job), mac);
    master->port = 20000 + (mac[0] << 8 | mac[1]) % 10000;
    return WEFT_OK;
}

static weft_status_t find_secret(char *const *environ_p, const weft_job_t *job,
                                 weft_master_t *master)
{
    const char *secret = weft__job_variable(environ_p, "WEFT_SECRET");
    uint8_t mac[WEFT_MAC_BYTES];
    _Static_assert(WEFT_SECRET_BYTES <= WEFT_MAC_BYTES, "a mac is enough for a secret");
    if (secret) {
        return weft__secret_parse(secret, master->secret) == WEFT_OK
                   ? WEFT_OK
                   : weft__fail(WEFT_ERR_INVALID, "job: WEFT_SECRET is not %d hex digits",
                                2 * WEFT_SECRET_BYTES);
    }
    if (!common_key(job)) {
        return weft__fail(WEFT_ERR_INVALID,
                          "job: nothing tells this job of %d ranks on several hosts apart from "
                          "another; set WEFT_SECRET to %d random hex digits, alike on all ranks",
                          job->size, 2 * WEFT_SECRET_BYTES);
    }
    weft__job_mac(job, common_key(job), mac);
    memcpy(master->secret, mac, WEFT_SECRET_BYTES);
    return WEFT_OK;
}

weft_status_t weft__master_find(char *const *environ_p, const weft_job_t *job,
                                weft_master_t *master_p)
{
    memset(master_p, 0, sizeof(*master_p));
    environ_p = environ_p ? environ_p : environ;
    WEFT_TRY(find_addr(environ_p, job, master_p));
    WEFT_TRY(find_port(environ_p, job, master_p));
    return find_secret(environ_p, job, master_p);
}

/* ---- the store -------------------------------------------------------------------------- */

#define LINGER_MS 3000

static weft_store_server_t *server; /* never stopped */
static pid_t serving;               /* the process that does, not one that it forks */
static int expected; /* connections, two of each rank, that are made to join the job */

/* Others may be about to read why we end, or have yet to come, and are gone when they have. */
static void linger(void)
{
    uint64_t end = weft__now_ns() + LINGER_MS * 1000000ull;
    while ((weft__store_clients(server) > 0 || weft__store_welcomed(server) < expected) &&
           weft__now_ns() < end && getpid() == serving) {
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
}

/* The name of a host often means its loopback on the host itself, so rank 0 listens on all
 * addresses. */
static weft_status_t listen_and_serve(const weft_master_t *master)
{
    const char *chosen = getenv("WEFT_STORE_HOST"); /* the setting has a default, loopback */
    int port;
    if (chosen && chosen[0]) {
        return weft__store_serve(chosen, master->port, master->secret, &server, &port);
    }
    return weft__store_serve("::", master->port, master->secret, &server, &port) == WEFT_OK
               ? WEFT_OK
               : weft__store_serve("0.0.0.0", master->port, master->secret, &server, &port);
}

static weft_status_t serve(const weft_master_t *master, int ranks)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of server */
    weft_status_t status = WEFT_OK;
    pthread_mutex_lock(&lock);
    if (!server) {
        status = listen_and_serve(master);
        if (status == WEFT_OK) {
            weft__store_leave_running(server);
            serving = getpid();
            expected = 2 * ranks;
            atexit(linger);
        } else {
            status = weft__fail(status, "%s; WEFT_MASTER_PORT, alike on all ranks, takes another",
                                weft_last_error());
        }
    }
    pthread_mutex_unlock(&lock);
    return status;
}

#define REACH_MS 20000

/* Rank 0 goes the way that the others go: if that does not lead here, they wait in vain. */
static weft_status_t reach_ourselves(const weft_master_t *master, int timeout_ms,
                                     weft_store_conn_t **store_p)
{
    char host[65] = "?";
    int limit = timeout_ms < 0 || timeout_ms > REACH_MS ? REACH_MS : timeout_ms;
    weft_status_t status = weft__store_connect(master->addr, master->port, master->secret, limit,
                                               store_p);
    if (status == WEFT_OK) {
        return WEFT_OK;
    }
    gethostname(host, sizeof(host) - 1);
    return weft__fail(status,
                      "%s; rank 0 serves it on host %s: WEFT_MASTER_ADDR must name that, alike on "
                      "all ranks",
                      weft_last_error(), host);
}

weft_status_t weft__master_store(const weft_job_t *job, int timeout_ms, weft_store_conn_t **store_p)
{
    weft_master_t master;
    WEFT_TRY(weft__master_find(NULL, job, &master));
    if (job->rank != 0) {
        return weft__store_connect(master.addr, master.port, master.secret, timeout_ms, store_p);
    }
    WEFT_TRY(serve(&master, job->size));
    return reach_ourselves(&master, timeout_ms, store_p);
}
