/* A rank for tests: find the job, meet all other ranks at its store, say who it was. */
#include <stdio.h>
#include <stdlib.h>

#include "boot/job.h"

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, weft_last_error());
    return 1;
}

int main(void)
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
        if (weft__store_get(store, key, &value, &bytes, 10000) != WEFT_OK) {
            return fail("get");
        }
        if (value != i) {
            fprintf(stderr, "rank %d says it is %d\n", i, value);
            return 1;
        }
    }
    printf("%s %d/%d %d/%d met\n", job->launcher, job->rank, job->size, job->local_rank,
           job->local_size);
    fflush(stdout);
    if (weft__store_barrier(store, "end", job->size, 10000) != WEFT_OK) {
        return fail("barrier");
    }
    weft__store_close(store);
    return 0;
}
