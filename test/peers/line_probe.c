/*
 * line_probe: how long a cache line takes from one core to another, one way.
 *
 *     line_probe [N]      from the first usable core to each of the N next ones (1)
 *
 * Two threads, each on a core of its own, pass one line to and fro. On virtual machines the answer
 * changes while a benchmark runs, because the cores are moved about on their host, and every small
 * message changes with it: tools/peers stamps its samples with this.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BURSTS 21
#define TRIPS 1000

typedef struct probe {
    _Alignas(256) atomic_int ball; /* even: the pinger's turn, odd: the ponger's */
} probe_t;

static double now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static void *ponger(void *arg)
{
    probe_t *p = arg;

    for (int i = 0; i < BURSTS * TRIPS; i++) {
        /* pairs with the pinger's release store of 2i + 1 */
        while (atomic_load_explicit(&p->ball, memory_order_acquire) != 2 * i + 1) {
        }
        /* pairs with the pinger's acquire load of 2i + 2 */
        atomic_store_explicit(&p->ball, 2 * i + 2, memory_order_release);
    }
    return NULL;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The thread is created on its core rather than moved there: it never competes with the pinger. */
static bool start_ponger(int cpu, probe_t *probe, pthread_t *thread_p)
{
    pthread_attr_t attr;
    cpu_set_t set;
    bool started;

    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (pthread_attr_init(&attr) != 0) {
        return false;
    }
    started = pthread_attr_setaffinity_np(&attr, sizeof(set), &set) == 0 &&
              pthread_create(thread_p, &attr, ponger, probe) == 0;
    pthread_attr_destroy(&attr);
    return started;
}

/* Nanoseconds one way between this thread's core and `cpu`: the median burst, so that a thread
 * losing its core for a moment does not count. Negative if it could not be measured. */
static double probe_pair(int cpu)
{
    static probe_t probe;
    double bursts[BURSTS], start;
    pthread_t thread;
    int turn = 0;

    atomic_store(&probe.ball, 0); /* seen by the ponger through its creation */
    if (!start_ponger(cpu, &probe, &thread)) {
        return -1;
    }
    for (int n = 0; n < BURSTS; n++) {
        start = now();
        for (int i = 0; i < TRIPS; i++, turn += 2) {
            /* pairs with the ponger's acquire load */
            atomic_store_explicit(&probe.ball, turn + 1, memory_order_release);
            /* pairs with the ponger's release store */
            while (atomic_load_explicit(&probe.ball, memory_order_acquire) != turn + 2) {
            }
        }
        bursts[n] = (now() - start) / TRIPS / 2 * 1e9;
    }
    pthread_join(thread, NULL);
    qsort(bursts, BURSTS, sizeof(bursts[0]), by_size);
    return bursts[BURSTS / 2];
}

/* Prints the time from the first usable core to each of the next ones, as many as asked for. */
static int run_probe(int limit)
{
    cpu_set_t usable, mine;
    int first = 0, done = 0;

    if (sched_getaffinity(0, sizeof(usable), &usable) != 0) {
        fprintf(stderr, "line_probe: cannot read the usable cores: %s\n", strerror(errno));
        return 1;
    }
    while (!CPU_ISSET(first, &usable)) {
        first++;
    }
    CPU_ZERO(&mine);
    CPU_SET(first, &mine);
    if (sched_setaffinity(0, sizeof(mine), &mine) != 0) {
        fprintf(stderr, "line_probe: cannot use core %d: %s\n", first, strerror(errno));
        return 1;
    }
    printf("{\"probe_ns\":[");
    for (int cpu = first + 1; cpu < CPU_SETSIZE && done < limit; cpu++) {
        double ns = CPU_ISSET(cpu, &usable) ? probe_pair(cpu) : -1;

        if (ns >= 0) {
            printf("%s%.1f", done++ ? "," : "", ns);
        }
    }
    printf("]}\n");
    return fflush(stdout) != 0 || ferror(stdout) ? 1 : 0;
}

int main(int argc, char **argv)
{
    char *end = NULL;
    long limit = argc > 1 ? strtol(argv[1], &end, 10) : 1;

    if (argc > 2 || (argc > 1 && (end == argv[1] || *end != '\0')) || limit < 1 ||
        limit > CPU_SETSIZE) {
        fputs("usage: line_probe [N]\n", stderr);
        return 2;
    }
    return run_probe((int)limit);
}
