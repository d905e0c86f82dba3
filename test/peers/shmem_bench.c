/*
 * shmem_bench: times the one-sided calls of whichever OpenSHMEM it was compiled against, so that
 * tools/peers-shmem can put implementations side by side. Only names of OpenSHMEM 1.4 are used, but
 * for put-with-signal, which is 1.5: where it is missing, its row is a put, a fence and a flag.
 *
 *   flag             half a round trip of one word between PEs 2k and 2k+1
 *   put-fence-flag   the same with data before the flag: put, fence, flag
 *   put-signal       the same by the best call there is
 *   barrier          shmem_barrier_all
 *   lock-alone       one PE takes and gives back a lock that nobody else wants
 *   lock-all         all PEs want one lock; time from one owner to the next
 *   put-quiet get fetch-add    8 bytes at the next PE; all PEs at once
 *   put get          blocks at the next PE (a quiet after 16 puts), and memcpy of as many bytes in
 *                    the same loop, to and from the same memory where shmem_ptr tells its address:
 *                    bandwidth
 *   sum              reduction of floats over all PEs: the 1 KiB row is a small gradient
 *
 * Every row is verified on data that changes from row to row. The time of a call is that of the
 * slowest PE, in loops of about 20 ms.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <shmem.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define HAS_1_5 (SHMEM_MAJOR_VERSION > 1 || SHMEM_MINOR_VERSION >= 5)
#define MAX_SIZES 64
#define MAX_REPEAT 32
#define MIN_ITERS 4
#define MAX_ITERS 40000
#define TARGET_SECONDS 0.02
#define LINE 8    /* words of a cache line */
#define WINDOW 16 /* puts of a block between two quiets */

typedef struct bench bench_t;

typedef struct op {
    const char *name;
    bool sized;
    bool halved; /* a call is a round trip */
    bool shared; /* a call per PE is one after the other: time is per call of anybody */
    void (*call)(bench_t *b, int iters);
    long (*check)(bench_t *b); /* wrong results here, on fresh data */
} op_t;

struct bench {
    int me, npes, next, partner; /* partner: -1 for an odd PE out */
    size_t bytes, capacity;
    unsigned salt;
    const op_t *op;
    unsigned char *src;  /* private */
    unsigned char *dst;  /* symmetric */
    unsigned char *copy; /* symmetric: what the memcpy beside put and get moves, if not `dst` */
    long *flag, *word, *counter, *lock;
    uint64_t *signal;
    double *times; /* symmetric, one per PE */
    long *wrongs;
    long token, got;
    float *sum_src, *sum_dst, *sum_work;
    long *sum_sync;
};

typedef struct result {
    const char *op;
    size_t bytes;
    int iters, loops;
    double us[MAX_REPEAT], copy_us[MAX_REPEAT]; /* copy: only beside put and get */
    long wrong;
} result_t;

static double now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

static void die(const char *format, ...)
{
    va_list args;

    fputs("shmem_bench: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(2);
}

/* ---- data ------------------------------------------------------------------------------- */

static unsigned char byte_of(const bench_t *b, int pe, size_t i)
{
    return (unsigned char)((i * 37 + (i >> 8) * 11 + (size_t)pe * 101 + b->salt * 53) % 251);
}

static void fill(const bench_t *b, unsigned char *to, int pe)
{
    for (size_t i = 0; i < b->bytes; i++) {
        to[i] = byte_of(b, pe, i);
    }
}

static long wrong_in(const bench_t *b, const unsigned char *got, int pe)
{
    long wrong = 0;

    for (size_t i = 0; i < b->bytes; i++) {
        wrong += got[i] != byte_of(b, pe, i);
    }
    return wrong;
}

/* ---- ping-pongs ------------------------------------------------------------------------- */

static void send_flag(bench_t *b, long value)
{
    shmem_long_p(b->flag, value, b->partner);
}

static void put_fence_flag(bench_t *b, long value)
{
    shmem_putmem(b->dst, b->src, b->bytes, b->partner);
    shmem_fence();
    shmem_long_p(b->flag, value, b->partner);
}

static void await_flag(bench_t *b, long value)
{
    shmem_long_wait_until(b->flag, SHMEM_CMP_GE, value);
}

#if HAS_1_5
static void put_signal(bench_t *b, long value)
{
    shmem_putmem_signal(b->dst, b->src, b->bytes, b->signal, (uint64_t)value, SHMEM_SIGNAL_SET,
                        b->partner);
}

static void await_signal(bench_t *b, long value)
{
    shmem_signal_wait_until(b->signal, SHMEM_CMP_GE, (uint64_t)value);
}
#else
#define put_signal put_fence_flag
#define await_signal await_flag
#endif

/* The even PE of a pair sends first. Values only grow, so that nothing is reset in between. */
static void ping_pong(bench_t *b, int iters, void (*tell)(bench_t *, long),
                      void (*await)(bench_t *, long))
{
    if (b->partner < 0) {
        return;
    }
    for (int i = 0; i < iters; i++) {
        long value = ++b->token;

        if (b->me < b->partner) {
            tell(b, value);
            await(b, value);
        } else {
            await(b, value);
            tell(b, value);
        }
    }
}

static void call_flag(bench_t *b, int iters)
{
    ping_pong(b, iters, send_flag, await_flag);
}

static void call_put_fence_flag(bench_t *b, int iters)
{
    ping_pong(b, iters, put_fence_flag, await_flag);
}

static void call_put_signal(bench_t *b, int iters)
{
    ping_pong(b, iters, put_signal, await_signal);
}

/* Data must be there when its flag is: looked at after a single exchange, before any barrier. */
static long check_data_ping(bench_t *b)
{
    fill(b, b->src, b->me);
    memset(b->dst, 0, b->bytes);
    shmem_barrier_all();
    b->op->call(b, 1);
    return b->partner < 0 ? 0 : wrong_in(b, b->dst, b->partner);
}

static long check_flag(bench_t *b)
{
    shmem_barrier_all();
    b->op->call(b, 3);
    return b->partner >= 0 && *b->flag < b->token;
}

/* ---- barrier and locks ------------------------------------------------------------------ */

static void call_barrier(bench_t *b, int iters)
{
    (void)b;
    for (int i = 0; i < iters; i++) {
        shmem_barrier_all();
    }
}

/* Nobody passes before everybody has come: each PE looks at the others' counts of rounds. */
static long check_barrier(bench_t *b)
{
    long wrong = 0;

    *b->word = 0;
    shmem_barrier_all();
    for (long round = 1; round <= 20; round++) {
        shmem_long_p(b->word, round, b->me);
        shmem_quiet();
        shmem_barrier_all();
        wrong += shmem_long_g(b->word, b->next) < round;
    }
    shmem_barrier_all();
    return wrong;
}

static void call_lock_alone(bench_t *b, int iters)
{
    if (b->me != b->npes - 1) {
        return;
    }
    for (int i = 0; i < iters; i++) {
        shmem_set_lock(b->lock);
        shmem_clear_lock(b->lock);
    }
}

static void call_lock_all(bench_t *b, int iters)
{
    for (int i = 0; i < iters; i++) {
        shmem_set_lock(b->lock);
        /* Not atomic: only the lock keeps increments from being lost. */
        shmem_long_p(b->counter, shmem_long_g(b->counter, 0) + 1, 0);
        shmem_quiet();
        shmem_clear_lock(b->lock);
    }
}

static long check_lock(bench_t *b)
{
    long total;

    *b->counter = 0;
    shmem_barrier_all();
    call_lock_all(b, 50);
    shmem_barrier_all();
    total = shmem_long_g(b->counter, 0);
    shmem_barrier_all();
    return total != 50L * b->npes;
}

/* ---- 8 bytes ---------------------------------------------------------------------------- */

static void call_put_quiet(bench_t *b, int iters)
{
    for (int i = 0; i < iters; i++) {
        shmem_long_p(b->word, b->token + i, b->next);
        shmem_quiet();
    }
}

static void call_get_word(bench_t *b, int iters)
{
    for (int i = 0; i < iters; i++) {
        b->got += shmem_long_g(b->word, b->next);
    }
}

static void call_fetch_add(bench_t *b, int iters)
{
    for (int i = 0; i < iters; i++) {
        b->got += shmem_long_atomic_fetch_add(b->counter, 1, b->next);
    }
}

static long check_word(bench_t *b)
{
    long before, wrong, mine = 1000 * (long)b->salt;

    *b->word = *b->counter = 0;
    shmem_barrier_all();
    shmem_long_p(b->word, mine + b->me, b->next);
    shmem_quiet();
    shmem_barrier_all();
    wrong = *b->word != mine + (b->me + b->npes - 1) % b->npes;
    wrong += shmem_long_g(b->word, b->next) != mine + b->me;
    shmem_long_atomic_fetch_add(b->counter, b->me + 1, 0); /* all PEs on one word */
    shmem_barrier_all();
    before = shmem_long_g(b->counter, 0);
    shmem_barrier_all();
    return wrong + (before != (long)b->npes * (b->npes + 1) / 2);
}

/* ---- blocks ----------------------------------------------------------------------------- */

static void call_put(bench_t *b, int iters)
{
    for (int i = 0; i < iters; i++) {
        shmem_putmem(b->dst, b->src, b->bytes, b->next);
        if (i % WINDOW == WINDOW - 1) {
            shmem_quiet();
        }
    }
    shmem_quiet();
}

static void call_get(bench_t *b, int iters)
{
    for (int i = 0; i < iters; i++) {
        shmem_getmem(b->src, b->dst, b->bytes, b->next);
    }
}

/* The compiler must not see that all copies but the last are for nothing. */
static void call_copy(bench_t *b, int iters)
{
    bool is_get = strcmp(b->op->name, "get") == 0;
    unsigned char *there = shmem_ptr(b->dst, b->next), *remote = there ? there : b->copy;

    for (int i = 0; i < iters; i++) {
        if (is_get) {
            memcpy(b->src, remote, b->bytes);
        } else {
            memcpy(remote, b->src, b->bytes);
        }
        __asm__ volatile("" ::: "memory");
    }
}

static long check_put(bench_t *b)
{
    long wrong;

    fill(b, b->src, b->me);
    memset(b->dst, 0, b->bytes);
    shmem_barrier_all();
    call_put(b, 1);
    shmem_barrier_all();
    wrong = wrong_in(b, b->dst, (b->me + b->npes - 1) % b->npes);
    shmem_barrier_all();
    return wrong;
}

static long check_get(bench_t *b)
{
    long wrong;

    fill(b, b->dst, b->me);
    memset(b->src, 0, b->bytes);
    memset(b->copy, 1, b->bytes);
    shmem_barrier_all();
    call_get(b, 1);
    wrong = wrong_in(b, b->src, b->next);
    shmem_barrier_all();
    return wrong;
}

/* ---- reduction -------------------------------------------------------------------------- */

static void call_sum(bench_t *b, int iters)
{
    int count = (int)(b->bytes / sizeof(float));

    for (int i = 0; i < iters; i++) {
#if HAS_1_5
        shmem_float_sum_reduce(SHMEM_TEAM_WORLD, b->sum_dst, b->sum_src, (size_t)count);
#else
        long *sync = b->sum_sync + (i & 1) * SHMEM_REDUCE_SYNC_SIZE;
        float *work = b->sum_work + (size_t)(i & 1) * (b->capacity / sizeof(float) / 2 + 1 +
                                                       SHMEM_REDUCE_MIN_WRKDATA_SIZE);

        shmem_float_sum_to_all(b->sum_dst, b->sum_src, count, 0, 0, b->npes, work, sync);
#endif
    }
#if !HAS_1_5
    shmem_barrier_all(); /* the next loop starts with the first of the two work arrays again */
#endif
}

static long check_sum(bench_t *b)
{
    size_t count = b->bytes / sizeof(float);
    long wrong = 0;

    for (size_t i = 0; i < count; i++) {
        b->sum_src[i] = (float)byte_of(b, b->me, i);
        b->sum_dst[i] = -1;
    }
    shmem_barrier_all();
    call_sum(b, 1);
    for (size_t i = 0; i < count; i++) {
        float expected = 0;

        for (int pe = 0; pe < b->npes; pe++) {
            expected += (float)byte_of(b, pe, i); /* whole numbers: exact in any order */
        }
        wrong += b->sum_dst[i] != expected;
    }
    shmem_barrier_all();
    return wrong;
}

static const op_t ops[] = {
    {.name = "flag", .halved = true, .call = call_flag, .check = check_flag},
    {.name = "put-fence-flag",
     .sized = true,
     .halved = true,
     .call = call_put_fence_flag,
     .check = check_data_ping},
    {.name = "put-signal",
     .sized = true,
     .halved = true,
     .call = call_put_signal,
     .check = check_data_ping},
    {.name = "barrier", .call = call_barrier, .check = check_barrier},
    {.name = "lock-alone", .call = call_lock_alone, .check = check_lock},
    {.name = "lock-all", .shared = true, .call = call_lock_all, .check = check_lock},
    {.name = "put-quiet", .call = call_put_quiet, .check = check_word},
    {.name = "get-word", .call = call_get_word, .check = check_word},
    {.name = "fetch-add", .call = call_fetch_add, .check = check_word},
    {.name = "put", .sized = true, .call = call_put, .check = check_put},
    {.name = "get", .sized = true, .call = call_get, .check = check_get},
    {.name = "sum", .sized = true, .call = call_sum, .check = check_sum},
};

#define OPS ((int)(sizeof(ops) / sizeof(ops[0])))

/* ---- timing ----------------------------------------------------------------------------- */

/* Largest time and sum of wrong results over all PEs, on all of them. */
static double slowest(bench_t *b, double mine)
{
    double most = 0;

    *b->times = mine;
    shmem_barrier_all();
    for (int pe = 0; pe < b->npes; pe++) {
        double theirs = shmem_double_g(b->times, pe);

        most = theirs > most ? theirs : most;
    }
    shmem_barrier_all();
    return most;
}

static long all_wrong(bench_t *b, long mine)
{
    long sum = 0;

    *b->wrongs = mine;
    shmem_barrier_all();
    for (int pe = 0; pe < b->npes; pe++) {
        sum += shmem_long_g(b->wrongs, pe);
    }
    shmem_barrier_all();
    return sum;
}

static double timed_loop(bench_t *b, void (*call)(bench_t *, int), int iters)
{
    double start;

    shmem_barrier_all();
    start = now();
    call(b, iters);
    return slowest(b, now() - start);
}

static int choose_iters(bench_t *b)
{
    int iters = 1;
    double seconds = timed_loop(b, b->op->call, 1);

    while (seconds < TARGET_SECONDS / 4 && iters < MAX_ITERS / 4) {
        iters *= 4;
        seconds = timed_loop(b, b->op->call, iters);
    }
    seconds = TARGET_SECONDS / (seconds / iters);
    return seconds < MIN_ITERS ? MIN_ITERS : seconds > MAX_ITERS ? MAX_ITERS : (int)seconds;
}

static void measure(bench_t *b, int repeat, result_t *r)
{
    bool with_copy = strcmp(b->op->name, "put") == 0 || strcmp(b->op->name, "get") == 0;

    b->salt++;
    *r = (result_t){.op = b->op->name, .bytes = b->op->sized ? b->bytes : 0};
    r->wrong = all_wrong(b, b->op->check(b));
    r->iters = choose_iters(b);
    for (r->loops = 0; r->loops < repeat; r->loops++) {
        double calls = r->iters;

        calls *= b->op->halved ? 2 : b->op->shared ? b->npes : 1;
        if (with_copy) {
            r->copy_us[r->loops] = timed_loop(b, call_copy, r->iters) / r->iters * 1e6;
        }
        r->us[r->loops] = timed_loop(b, b->op->call, r->iters) / calls * 1e6;
    }
    r->wrong += all_wrong(b, b->op->check(b));
}

/* ---- results ---------------------------------------------------------------------------- */

static void print_list(FILE *file, const char *key, const double *values, int count)
{
    fprintf(file, "\"%s\":[", key);
    for (int i = 0; i < count; i++) {
        fprintf(file, "%s%.5f", i ? "," : "", values[i]);
    }
    fputs("]", file);
}

/* Whole after every row and renamed into place: a run that is stopped leaves what it has. */
static void write_json(const char *path, int npes, const result_t *results, int count,
                       bool complete)
{
    char part[4096], library[SHMEM_MAX_NAME_LEN] = "";
    FILE *file;

    if (snprintf(part, sizeof(part), "%s.part", path) >= (int)sizeof(part)) {
        die("the name given to --json is too long");
    }
    file = fopen(part, "w");
    if (!file) {
        die("cannot write %s: %s", part, strerror(errno));
    }
    shmem_info_get_name(library);
    fprintf(file, "{\"bench\":\"shmem_bench\",\"library\":\"%s\",\"version\":\"%d.%d\",\"pes\":%d,",
            library, SHMEM_MAJOR_VERSION, SHMEM_MINOR_VERSION, npes);
    fputs("\"results\":[", file);
    for (int i = 0; i < count; i++) {
        const result_t *r = &results[i];

        fprintf(file, "%s\n{\"op\":\"%s\",\"bytes\":%zu,\"iters\":%d,\"wrong\":%ld,", i ? "," : "",
                r->op, r->bytes, r->iters, r->wrong);
        print_list(file, "us", r->us, r->loops);
        fputs(",", file);
        print_list(file, "copy_us", r->copy_us, r->copy_us[0] > 0 ? r->loops : 0);
        fputs("}", file);
    }
    fprintf(file, "\n],\"complete\":%s}\n", complete ? "true" : "false");
    if (fclose(file) != 0 || rename(part, path) != 0) {
        die("cannot write %s: %s", path, strerror(errno));
    }
}

static void print_result(const result_t *r)
{
    printf("%-14s %10zu B %6d iters", r->op, r->bytes, r->iters);
    for (int i = 0; i < r->loops; i++) {
        printf(" %10.3f", r->us[i]);
    }
    printf(" us  wrong %ld", r->wrong);
    if (r->copy_us[0] > 0) {
        printf("  memcpy %.3f us", r->copy_us[0]);
    }
    printf("\n");
    fflush(stdout);
}

/* ---- main ------------------------------------------------------------------------------- */

typedef struct options {
    const char *names, *json;
    size_t sizes[MAX_SIZES];
    int nsizes, repeat;
} options_t;

static int parse_sizes(const char *text, size_t *sizes)
{
    int count = 0;

    while (*text && count < MAX_SIZES) {
        char *end;
        unsigned long long value = strtoull(text, &end, 10);

        if (end == text || (*end && *end != ',') || value < 4 || value > (1ull << 32)) {
            die("--sizes takes bytes, 4 or more, with commas between: %s", text);
        }
        sizes[count++] = (size_t)value / 4 * 4;
        text = *end ? end + 1 : end;
    }
    return count;
}

static options_t read_options(int argc, char **argv)
{
    static const struct option table[] = {{"ops", required_argument, NULL, 'o'},
                                          {"sizes", required_argument, NULL, 's'},
                                          {"repeat", required_argument, NULL, 'r'},
                                          {"json", required_argument, NULL, 'j'},
                                          {NULL, 0, NULL, 0}};
    options_t o = {.repeat = 3};
    int which;

    o.nsizes = parse_sizes("8,1024,65536", o.sizes);
    while ((which = getopt_long(argc, argv, "", table, NULL)) != -1) {
        switch (which) {
        case 'o':
            o.names = optarg;
            break;
        case 's':
            o.nsizes = parse_sizes(optarg, o.sizes);
            break;
        case 'r':
            o.repeat = (int)strtol(optarg, NULL, 10);
            break;
        case 'j':
            o.json = optarg;
            break;
        default:
            die("usage: shmem_bench [--ops A,B] [--sizes N,N] [--repeat K] [--json FILE]");
        }
    }
    if (o.repeat < 1 || o.repeat > MAX_REPEAT) {
        die("--repeat takes 1 to %d", MAX_REPEAT);
    }
    return o;
}

static bool wanted(const char *names, const char *name)
{
    size_t length = strlen(name);

    for (const char *at = names; at && (at = strstr(at, name)); at += length) {
        bool starts = at == names || at[-1] == ',', ends = at[length] == ',' || !at[length];

        if (starts && ends) {
            return true;
        }
    }
    return names == NULL;
}

static void *heap(size_t bytes)
{
    void *memory = shmem_align(4096, bytes);

    if (!memory) {
        die("no %zu bytes in the symmetric heap: set SHMEM_SYMMETRIC_SIZE", bytes);
    }
    memset(memory, 0, bytes);
    return memory;
}

static void set_up(bench_t *b, const options_t *o)
{
    b->me = shmem_my_pe();
    b->npes = shmem_n_pes();
    b->next = (b->me + 1) % b->npes;
    b->partner = (b->me ^ 1) < b->npes ? b->me ^ 1 : -1;
    for (int i = 0; i < o->nsizes; i++) {
        b->capacity = o->sizes[i] > b->capacity ? o->sizes[i] : b->capacity;
    }
    b->dst = heap(b->capacity);
    b->copy = heap(b->capacity);
    long *words = heap(6 * LINE * sizeof(long));
    b->flag = words;
    b->word = words + LINE;
    b->counter = words + 2 * LINE;
    b->lock = words + 3 * LINE;
    b->signal = (uint64_t *)(words + 4 * LINE);
    b->wrongs = words + 5 * LINE;
    b->times = heap(sizeof(double));
    b->sum_src = (float *)b->dst;
    b->sum_dst = (float *)b->copy;
    b->sum_sync = heap(2 * SHMEM_REDUCE_SYNC_SIZE * sizeof(long));
    b->sum_work = heap(b->capacity + (4 + 2 * SHMEM_REDUCE_MIN_WRKDATA_SIZE) * sizeof(float));
    for (int i = 0; i < 2 * SHMEM_REDUCE_SYNC_SIZE; i++) {
        b->sum_sync[i] = SHMEM_SYNC_VALUE;
    }
    b->src = aligned_alloc(4096, (b->capacity + 4095) / 4096 * 4096);
    if (!b->src) {
        die("out of memory");
    }
    memset(b->src, 1, b->capacity);
    shmem_barrier_all();
}

int main(int argc, char **argv)
{
    options_t o = read_options(argc, argv);
    static result_t results[OPS * MAX_SIZES];
    bench_t b = {.me = 0};
    int count = 0;
    long wrong = 0;

    shmem_init();
    set_up(&b, &o);
    for (int n = 0; n < OPS; n++) {
        for (int s = 0; wanted(o.names, ops[n].name) && s < (ops[n].sized ? o.nsizes : 1); s++) {
            b.op = &ops[n];
            b.bytes = o.sizes[s];
            measure(&b, o.repeat, &results[count]);
            wrong += results[count++].wrong;
            if (b.me == 0) {
                print_result(&results[count - 1]);
            }
            if (b.me == 0 && o.json) {
                write_json(o.json, b.npes, results, count, false);
            }
        }
    }
    shmem_barrier_all();
    if (b.me == 0 && o.json) {
        write_json(o.json, b.npes, results, count, true);
    }
    shmem_finalize();
    return wrong ? 1 : 0;
}
