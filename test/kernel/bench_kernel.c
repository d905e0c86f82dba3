/* Prints the speed of the kernels beside memcpy, in GB/s of bytes read and written:
 *     bench_kernel [-t threads] [-s smallest] [-e largest] [-k table] [-y type] [-o op] [-T]
 * Sizes are bytes of one stream and one thread. -T prints nanoseconds of tiny calls instead. Each
 * number is the best of several rounds; the contestants of a line take turns. Memory is shared, as
 * that of virtual GPUs, and no value is zero. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/settings.h"
#include "kernel/kernel.h"
#include "kernel/reference.h"

enum { STREAMS = 8, CONTESTANTS = 32, THREADS = 64 };

typedef struct contestant {
    const weft_kernels_t *table; /* NULL: memcpy */
    int streams;                 /* sources, and destinations; 0: copy */
    weft_store_t store;
    double best_ns;
} contestant_t;

static struct {
    int threads;
    size_t smallest, largest;
    const char *table;
    weft_dtype_t type;
    weft_op_t op;
    bool tiny;
} options = {1, 1 << 10, 64 << 20, NULL, WEFT_F32, WEFT_SUM, false};

static contestant_t contestants[CONTESTANTS];
static int contestant_count;

typedef struct worker {
    int index;
    void *srcs[STREAMS], *dsts[STREAMS];
} worker_t;

static worker_t workers[THREADS];
static pthread_barrier_t barrier;
static double round_ns[THREADS];

static void *shared_memory(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return memory;
}

static void call(const contestant_t *who, const worker_t *worker, size_t bytes, size_t count)
{
    if (who->table == NULL) {
        memcpy(worker->dsts[0], worker->srcs[0], bytes);
    } else if (who->streams == 0) {
        who->table->copy(worker->dsts[0], worker->srcs[0], bytes, who->store);
    } else {
        who->table->reduce(worker->dsts, who->streams, (const void *const *)worker->srcs,
                           who->streams, count, options.type, options.op, who->store);
    }
}

/* All threads at once; the slowest counts. */
static void measure(worker_t *worker, size_t bytes, int rounds)
{
    const size_t count = bytes / weft_dtype_size(options.type);
    for (int i = 0; i < contestant_count * rounds; i++) {
        contestant_t *who = &contestants[i % contestant_count];
        size_t touched = bytes * (size_t)(who->streams > 0 ? who->streams : 1);
        size_t repeats = 1 + (4 << 20) / (touched + 4096);
        call(who, worker, bytes, count);
        pthread_barrier_wait(&barrier);
        uint64_t start = weft__now_ns();
        for (size_t r = 0; r < repeats; r++) {
            call(who, worker, bytes, count);
        }
        round_ns[worker->index] = (double)(weft__now_ns() - start) / (double)repeats;
        pthread_barrier_wait(&barrier);
        if (worker->index == 0) {
            double slowest = 0;
            for (int t = 0; t < options.threads; t++) {
                slowest = round_ns[t] > slowest ? round_ns[t] : slowest;
            }
            if (who->best_ns == 0 || slowest < who->best_ns) {
                who->best_ns = slowest;
            }
        }
        pthread_barrier_wait(&barrier);
    }
}

static void print_head(void)
{
    printf("%10s", "bytes");
    for (int i = 0; i < contestant_count; i++) {
        const contestant_t *who = &contestants[i];
        char text[32];
        if (who->table == NULL) {
            snprintf(text, sizeof(text), "memcpy");
        } else {
            snprintf(text, sizeof(text), "%s:%.*d%s%s", who->table->name, who->streams > 0,
                     who->streams, who->streams > 0 ? "to" : "copy",
                     who->store == WEFT_STORE_STREAM ? "+nt" : "");
        }
        printf(" %14s", text);
    }
    printf("\n");
}

static void print_line(size_t bytes)
{
    printf("%10zu", bytes);
    for (int i = 0; i < contestant_count; i++) {
        contestant_t *who = &contestants[i];
        double moved = (double)bytes * 2 * (who->streams > 0 ? who->streams : 1);
        if (options.tiny) {
            printf(" %14.1f", who->best_ns);
        } else {
            printf(" %14.1f", moved * options.threads / who->best_ns);
        }
        who->best_ns = 0;
    }
    printf("\n");
    fflush(stdout);
}

static void *work(void *arg)
{
    worker_t *worker = arg;
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET((unsigned)worker->index, &cpus);
    pthread_setaffinity_np(pthread_self(), sizeof(cpus), &cpus);
    for (int i = 0; i < STREAMS; i++) {
        worker->srcs[i] = shared_memory(options.largest);
        /* A tiny call that is repeated would read where the last one wrote, modulo 4096. */
        char *dst = shared_memory(options.largest + 4096);
        worker->dsts[i] = options.tiny ? dst + 2048 : dst;
        reference_fill(worker->srcs[i], options.largest / weft_dtype_size(options.type),
                       options.type, 1 + (uint64_t)i, 0);
        memset(worker->dsts[i], 1, options.largest);
    }
    for (size_t bytes = options.smallest; bytes <= options.largest; bytes *= options.tiny ? 2 : 4) {
        measure(worker, bytes, bytes > 4 << 20 ? 7 : 15);
        if (worker->index == 0) {
            print_line(bytes);
        }
    }
    return NULL;
}

static void enter(const weft_kernels_t *table, int streams, weft_store_t store)
{
    contestants[contestant_count++] = (contestant_t){table, streams, store, 0};
}

static void read_options(int argc, char **argv)
{
    int option;
    while ((option = getopt(argc, argv, "t:s:e:k:y:o:T")) != -1) {
        bool ok = true;
        switch (option) {
        case 't':
            ok = weft__parse_int(optarg, &options.threads) && options.threads >= 1 &&
                 options.threads <= THREADS;
            break;
        case 's':
            ok = weft__parse_size(optarg, &options.smallest) && options.smallest > 0;
            break;
        case 'e':
            ok = weft__parse_size(optarg, &options.largest) && options.largest > 0;
            break;
        case 'k':
            options.table = optarg;
            ok = weft__kernels_named(optarg) != NULL;
            break;
        case 'y':
            options.type = 0;
            while (options.type < WEFT_DTYPE_COUNT &&
                   strcmp(weft_dtype_name(options.type), optarg) != 0) {
                options.type++;
            }
            ok = options.type < WEFT_DTYPE_COUNT;
            break;
        case 'o':
            options.op = 0;
            while (options.op < WEFT_OP_COUNT && strcmp(weft_op_name(options.op), optarg) != 0) {
                options.op++;
            }
            ok = options.op < WEFT_OP_COUNT;
            break;
        case 'T':
            options.tiny = true;
            options.smallest = 8;
            options.largest = 1024;
            break;
        default:
            ok = false;
        }
        if (!ok) {
            fprintf(stderr, "usage: bench_kernel [-t threads] [-s smallest] [-e largest] "
                            "[-k table] [-y type] [-o op] [-T]\n");
            exit(2);
        }
    }
}

int main(int argc, char **argv)
{
    static const int streams[] = {0, 2, STREAMS};
    pthread_t threads[THREADS];
    read_options(argc, argv);
    printf("%s %s, %d thread(s), %s\n", weft_dtype_name(options.type), weft_op_name(options.op),
           options.threads,
           options.tiny ? "ns a call" : "GB/s read and written; Nto: N sources to N destinations");
    enter(NULL, 0, WEFT_STORE_CACHED);
    for (int i = 0; i < 3; i++) {
        for (const weft_kernels_t *const *table = reference_tables(); *table != NULL; table++) {
            if (options.table == NULL || strcmp(options.table, (*table)->name) == 0) {
                enter(*table, streams[i], WEFT_STORE_CACHED);
                if (!options.tiny) {
                    enter(*table, streams[i], WEFT_STORE_STREAM);
                }
            }
        }
    }
    print_head();
    pthread_barrier_init(&barrier, NULL, (unsigned)options.threads);
    for (int t = 0; t < options.threads; t++) {
        workers[t].index = t;
        pthread_create(&threads[t], NULL, work, &workers[t]);
    }
    for (int t = 0; t < options.threads; t++) {
        pthread_join(threads[t], NULL);
    }
    return 0;
}
