/* Jobs on several hosts. */
#include "boot/master.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mac.h"
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

static weft_status_t find_addr(char *const *environ_p, const weft_job_t *job, weft_master_t *master)
{
    const char *addr = weft__job_variable(environ_p, "WEFT_MASTER_ADDR");
    const char *nodes = weft__job_variable(environ_p, "SLURM_STEP_NODELIST");
    addr = addr ? addr : weft__job_variable(environ_p, "MASTER_ADDR");
    nodes = nodes ? nodes : weft__job_variable(environ_p, "SLURM_JOB_NODELIST");
    if (addr && strlen(addr) < sizeof(master->addr)) {
        snprintf(master->addr, sizeof(master->addr), "%s", addr);
        return WEFT_OK;
    }
    if (!addr && nodes && strcmp(job->launcher, "slurm") == 0 &&
        first_node(nodes, master->addr, sizeof(master->addr))) {
        return WEFT_OK;
    }
    return weft__fail(WEFT_ERR_INVALID,
                      "job: %d of %d ranks are on this host, and nothing says where rank 0 is; set "
                      "WEFT_MASTER_ADDR to its host, alike on all ranks",
                      job->local_size, job->size);
}

/* What all ranks of the job have in common; MPICH tells only those of one host. */
static void mac_of_job(const weft_job_t *job, const char *addr, uint8_t mac[WEFT_MAC_BYTES])
{
    const uint8_t no_key[WEFT_MAC_KEY_BYTES] = {0};
    char text[512];
    const char *key = strcmp(job->launcher, "mpich") == 0 ? "" : job->key;
    int length = snprintf(text, sizeof(text), "%s/%d/%s/%s", job->launcher, job->size, addr, key);
    weft__mac(no_key, text, (size_t)length, mac);
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
    if (job->key[0] == '\0' || strcmp(job->launcher, "mpich") == 0) {
        return weft__fail(WEFT_ERR_INVALID,
                          "job: %d of %d ranks are on this host; set WEFT_MASTER_PORT to a port "
                          "that is free on %s, alike on all ranks",
                          job->local_size, job->size, master->addr);
    }
    mac_of_job(job, master->addr, mac);
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
    mac_of_job(job, master->addr, mac);
    memcpy(master->secret, mac, WEFT_SECRET_BYTES);
    return WEFT_OK;
}

weft_status_t weft__master_find(char *const *environ_p, const weft_job_t *job,
                                weft_master_t *master_p)
{
    memset(master_p, 0, sizeof(*master_p));
    environ_p = environ_p ? environ_p : environ;
    weft_status_t status = find_addr(environ_p, job, master_p);
    status = status == WEFT_OK ? find_port(environ_p, job, master_p) : status;
    return status == WEFT_OK ? find_secret(environ_p, job, master_p) : status;
}

/* ---- the store -------------------------------------------------------------------------- */

/* The name of a host often means its loopback on the host itself, so rank 0 does not listen on that. */
static const char *listen_on(const weft_master_t *master)
{
    const char *chosen = getenv("WEFT_STORE_HOST");
    return chosen && chosen[0] ? chosen : strchr(master->addr, ':') ? "::" : "0.0.0.0";
}

static weft_status_t serve(const weft_master_t *master)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static weft_store_server_t *server; /* under the lock; never stopped */
    weft_status_t status = WEFT_OK;
    int port;
    pthread_mutex_lock(&lock);
    if (!server) {
        status = weft__store_serve(listen_on(master), master->port, master->secret, &server, &port);
        if (status == WEFT_OK) {
            weft__store_leave_running(server);
        } else {
            status = weft__fail(status, "%s; WEFT_MASTER_PORT, alike on all ranks, takes another",
                                weft_last_error());
        }
    }
    pthread_mutex_unlock(&lock);
    return status;
}

weft_status_t weft__master_store(const weft_job_t *job, weft_store_conn_t **store_p)
{
    weft_master_t master;
    int timeout = weft__settings()->timeout;
    weft_status_t status = weft__master_find(NULL, job, &master);
    if (status == WEFT_OK && job->rank == 0) {
        status = serve(&master);
    }
    return status != WEFT_OK ? status
                             : weft__store_connect(master.addr, master.port, master.secret,
                                                   timeout == 0 ? -1 : timeout, store_p);
}
