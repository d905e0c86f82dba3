/* A rank for tests: find the job, meet all other ranks at its store, say who it was. With two
 * numbers it then asks for as many seconds of grace as the first says, and takes as many as the
 * second to end after SIGTERM. */
#define _GNU_SOURCE 1 /* pause, sigaction */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "boot/job.h"

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, weft_last_error());
    return 1;
}

static volatile sig_atomic_t asked;

static void on_term(int signal)
{
    asked = signal;
}

static int end_slowly(const weft_job_t *job, double grace, double seconds)
{
    struct sigaction action = {.sa_handler = on_term};
    sigset_t term, before;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_BLOCK, &term, &before);
    sigaction(SIGTERM, &action, NULL);
    if (job->rank == 0 && weft__job_ask_grace(grace) != WEFT_OK) {
        return fail("grace");
    }
    printf("ready\n");
    fflush(stdout);
    while (!asked) {
        sigsuspend(&before);
    }
    usleep((useconds_t)(seconds * 1e6)); /* SIGTERM is blocked again */
    printf("ended\n");
    return 0;
}

int main(int argc, char **argv)
{
    const weft_job_t *job;
    weft_store_conn_t *store;
    char key[32];
    if (weft__job(&job) != WEFT_OK) {
        return fail("job");
    }
    if (weft__job_store(0, &store) != WEFT_OK) {
        return fail("store");
    }
    snprintf(key, sizeof(key), "rank/%d", job->rank);
    if (weft__store_set(store, key, &job->rank, sizeof(job->rank)) != WEFT_OK) {
        return fail("set");
    }
    for (int i = 0; i < job->size; i++) {
        int value = -1;
        size_t bytes = sizeof(value);
        snprintf(key, sizeof(key), "rank/%d", i);
        if (weft__store_get(store, key, &value, &bytes, 60000) != WEFT_OK) {
            return fail("get");
        }
        if (value != i) {
            fprintf(stderr, "rank %d says it is %d\n", i, value);
            return 1;
        }
    }
    if (printf("%s %d/%d %d/%d met\n", job->launcher, job->rank, job->size, job->local_rank,
               job->local_size) < 0 ||
        fflush(stdout) != 0) {
        fprintf(stderr, "cannot write to stdout: %s\n", strerror(errno));
        return 1;
    }
    if (weft__store_barrier(store, "end", job->size, 60000) != WEFT_OK) {
        return fail("barrier");
    }
    weft__store_close(store);
    return argc > 2 ? end_slowly(job, strtod(argv[1], NULL), strtod(argv[2], NULL)) : 0;
}
