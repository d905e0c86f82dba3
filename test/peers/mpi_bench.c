/*
 * mpi_bench: the peer of `weft bench`. It times the collectives of whichever MPI it was compiled
 * against with the same sizes, the same data and the same JSON, so that tools/peers can put the
 * two side by side.
 *
 * Sizes are bytes with the meaning nccl-tests gives them: the larger of one rank's send and
 * receive buffer. With N ranks and `count` floats a rank contributes (or gets):
 *
 *   allreduce broadcast reduce sendrecv    bytes = count * 4
 *   allgather gather                       bytes = N * count * 4   (received)
 *   reduce_scatter scatter alltoall        bytes = N * count * 4   (sent)
 *
 * A size too small to give every rank one element is run with one: `count` in the result says so.
 *
 * A size is done in this order: fill, one call, verify (this also faults every page in), find the
 * number of iterations, then the timed loops. The time of a call is that of the slowest rank.
 * Calls of a loop are not separated by barriers, so rooted operations may overlap, as they do in
 * a program.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <mpi.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define MAX_SIZES 128
#define MAX_REPEAT 64
#define MIN_ITERS 5
#define MAX_ITERS 20000
#define TARGET_SECONDS 0.02 /* of a timed loop, where MIN_ITERS and MAX_ITERS allow */
#define ENOUGH_SECONDS 0.5  /* of timed loops: a size that took so long is not repeated further */
#define VALUES 64

typedef struct bench bench_t;

typedef struct collective {
    const char *name;
    bool scaled;   /* bytes count N blocks of `count` rather than one */
    bool in_place; /* has a form whose result lands where the input was */
    void (*call)(bench_t *b);
} collective_t;

typedef struct options {
    const collective_t *collective;
    size_t sizes[MAX_SIZES];
    int nsizes;
    int iters; /* 0: measured */
    int repeat;
    bool in_place;
    bool check_always; /* verify after every timed loop too */
    const char *json;
} options_t;

struct bench {
    const options_t *opt;
    const collective_t *collective;
    char library[MPI_MAX_LIBRARY_VERSION_STRING];
    float *src, *dst;
    size_t capacity;       /* elements in each of src and dst */
    int rank, ranks, peer; /* peer: the other half of the pair, -1 for an odd rank out */
    int count;
    bool in_place;
    bool general_scatter; /* MPI_Reduce_scatter was found faster than its block form */
    int *counts;          /* for MPI_Reduce_scatter */
};

typedef struct result {
    size_t bytes;
    int count, iters;
    int loops;
    double us[MAX_REPEAT]; /* one for each of the loops */
    long wrong;
} result_t;

static void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

static void die(const char *format, ...)
{
    va_list args;
    int started = 0;

    fputs("mpi_bench: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    MPI_Initialized(&started);
    if (started) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    exit(1);
}

static double now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* ---- the calls ------------------------------------------------------------------------- */

static void call_allreduce(bench_t *b)
{
    MPI_Allreduce(b->in_place ? MPI_IN_PLACE : b->src, b->dst, b->count, MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
}

static void call_reduce_scatter(bench_t *b)
{
    const void *src = b->in_place ? MPI_IN_PLACE : b->src;

    if (b->general_scatter) {
        MPI_Reduce_scatter(src, b->dst, b->counts, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    } else {
        MPI_Reduce_scatter_block(src, b->dst, b->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    }
}

static void call_allgather(bench_t *b)
{
    MPI_Allgather(b->in_place ? MPI_IN_PLACE : b->src, b->count, MPI_FLOAT, b->dst, b->count,
                  MPI_FLOAT, MPI_COMM_WORLD);
}

static void call_broadcast(bench_t *b)
{
    MPI_Bcast(b->dst, b->count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static void call_reduce(bench_t *b)
{
    MPI_Reduce(b->in_place && b->rank == 0 ? MPI_IN_PLACE : b->src, b->dst, b->count, MPI_FLOAT,
               MPI_SUM, 0, MPI_COMM_WORLD);
}

static void call_gather(bench_t *b)
{
    MPI_Gather(b->in_place && b->rank == 0 ? MPI_IN_PLACE : b->src, b->count, MPI_FLOAT, b->dst,
               b->count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static void call_scatter(bench_t *b)
{
    MPI_Scatter(b->src, b->count, MPI_FLOAT, b->in_place && b->rank == 0 ? MPI_IN_PLACE : b->dst,
                b->count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static void call_alltoall(bench_t *b)
{
    MPI_Alltoall(b->in_place ? MPI_IN_PLACE : b->src, b->count, MPI_FLOAT, b->dst, b->count,
                 MPI_FLOAT, MPI_COMM_WORLD);
}

static void call_barrier(bench_t *b)
{
    (void)b;
    MPI_Barrier(MPI_COMM_WORLD);
}

/* One round trip; its time is halved when reported. */
static void call_sendrecv(bench_t *b)
{
    if (b->peer < 0) {
        return;
    }
    if (b->rank < b->peer) {
        MPI_Send(b->src, b->count, MPI_FLOAT, b->peer, 0, MPI_COMM_WORLD);
        MPI_Recv(b->dst, b->count, MPI_FLOAT, b->peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(b->dst, b->count, MPI_FLOAT, b->peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(b->src, b->count, MPI_FLOAT, b->peer, 0, MPI_COMM_WORLD);
    }
}

static const collective_t collectives[] = {
    {.name = "allreduce", .in_place = true, .call = call_allreduce},
    {.name = "reduce_scatter", .scaled = true, .in_place = true, .call = call_reduce_scatter},
    {.name = "allgather", .scaled = true, .in_place = true, .call = call_allgather},
    {.name = "broadcast", .in_place = true, .call = call_broadcast},
    {.name = "reduce", .in_place = true, .call = call_reduce},
    {.name = "gather", .scaled = true, .in_place = true, .call = call_gather},
    {.name = "scatter", .scaled = true, .in_place = true, .call = call_scatter},
    {.name = "alltoall", .scaled = true, .in_place = true, .call = call_alltoall},
    {.name = "barrier", .call = call_barrier},
    {.name = "sendrecv", .call = call_sendrecv},
};

static bool is(const bench_t *b, void (*call)(bench_t *b))
{
    return b->collective->call == call;
}

/* ---- data whose sums are exact ---------------------------------------------------------- */

/* Mixes the higher bits of the index in, so that a block in the wrong place is noticed. */
static unsigned value_index(size_t i)
{
    return (unsigned)(i + (i >> 6) * 3 + (i >> 12) * 5 + (i >> 18) * 7) % VALUES;
}

/* Integers 1 to VALUES: a float holds the sum of 262144 ranks of them exactly. */
static float value(unsigned index, int rank)
{
    return (float)((index + (unsigned)rank * 11) % VALUES + 1);
}

static void write_block(float *out, size_t len, int rank)
{
    float table[VALUES];

    for (unsigned v = 0; v < VALUES; v++) {
        table[v] = value(v, rank);
    }
    for (size_t i = 0; i < len; i++) {
        out[i] = table[value_index(i)];
    }
}

/* Compares `len` results with elements base.. of what `rank` sent, or of the sum if rank < 0. */
static long wrong_in_block(const bench_t *b, const float *got, size_t len, size_t base, int rank)
{
    float table[VALUES];
    long wrong = 0;

    for (unsigned v = 0; v < VALUES; v++) {
        table[v] = rank < 0 ? 0.0f : value(v, rank);
        for (int r = 0; rank < 0 && r < b->ranks; r++) {
            table[v] += value(v, r);
        }
    }
    for (size_t i = 0; i < len; i++) {
        wrong += got[i] != table[value_index(base + i)];
    }
    return wrong;
}

/* Elements this rank's input has, and where MPI expects it. */
static float *input_of(const bench_t *b, size_t *len_p)
{
    size_t count = (size_t)b->count, all = count * (size_t)b->ranks;
    bool root = b->rank == 0;

    *len_p = count;
    if (is(b, call_reduce_scatter) || is(b, call_scatter) || is(b, call_alltoall)) {
        *len_p = all;
    }
    if (is(b, call_broadcast)) {
        *len_p = root ? count : 0;
        return b->dst;
    }
    if (!b->in_place || is(b, call_scatter)) {
        return b->src;
    }
    if (is(b, call_allgather) || (is(b, call_gather) && root)) {
        return b->dst + (size_t)b->rank * count;
    }
    return (is(b, call_gather) || is(b, call_reduce)) && !root ? b->src : b->dst;
}

static void fill(const bench_t *b)
{
    size_t len, used = (size_t)b->count * (size_t)(b->collective->scaled ? b->ranks : 1);
    float *input = input_of(b, &len);

    /* Never zeros: an untouched page or a shared zero page would make the peer look fast. */
    for (size_t i = 0; i < used; i++) {
        b->src[i] = b->dst[i] = -1.0f;
    }
    write_block(input, len, b->rank);
}

static long wrong_here(const bench_t *b)
{
    size_t count = (size_t)b->count, mine = count * (size_t)b->rank;
    long wrong = 0;

    if (is(b, call_barrier) || (is(b, call_sendrecv) && b->peer < 0)) {
        return 0;
    }
    if ((is(b, call_reduce) || is(b, call_gather)) && b->rank != 0) {
        return 0;
    }
    if (is(b, call_allreduce) || is(b, call_reduce)) {
        return wrong_in_block(b, b->dst, count, 0, -1);
    }
    if (is(b, call_reduce_scatter)) {
        return wrong_in_block(b, b->dst, count, mine, -1);
    }
    if (is(b, call_broadcast)) {
        return wrong_in_block(b, b->dst, count, 0, 0);
    }
    if (is(b, call_scatter)) {
        return wrong_in_block(b, b->in_place && b->rank == 0 ? b->src : b->dst, count, mine, 0);
    }
    if (is(b, call_sendrecv)) {
        return wrong_in_block(b, b->dst, count, 0, b->peer);
    }
    for (int r = 0; r < b->ranks; r++) { /* allgather, gather, alltoall: a block from each rank */
        wrong += wrong_in_block(b, b->dst + (size_t)r * count, count,
                                is(b, call_alltoall) ? mine : 0, r);
    }
    return wrong;
}

static long verify(bench_t *b)
{
    long wrong, total = 0;

    fill(b);
    MPI_Barrier(MPI_COMM_WORLD);
    b->collective->call(b);
    wrong = wrong_here(b);
    MPI_Allreduce(&wrong, &total, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    return total;
}

/* ---- timing ----------------------------------------------------------------------------- */

/* Seconds the slowest rank needed for `iters` calls. An in-place sum grows until it is infinite;
 * adding infinities takes as long as adding anything else, denormals and zeros never appear. */
static double timed_loop(bench_t *b, int iters)
{
    double start, mine, slowest = 0;

    MPI_Barrier(MPI_COMM_WORLD);
    start = now();
    for (int i = 0; i < iters; i++) {
        b->collective->call(b);
    }
    mine = now() - start;
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

/* The same number on all ranks, since all of them see the slowest rank's time. */
static int choose_iters(bench_t *b, double *seconds_per_call_p)
{
    int iters = 1;
    double seconds = timed_loop(b, 1);

    while (seconds < TARGET_SECONDS / 4 && iters < MAX_ITERS / 4) {
        iters *= 4;
        seconds = timed_loop(b, iters);
    }
    *seconds_per_call_p = seconds / iters;
    if (b->opt->iters > 0) {
        return b->opt->iters;
    }
    seconds = TARGET_SECONDS / *seconds_per_call_p;
    if (seconds < MIN_ITERS) {
        return MIN_ITERS;
    }
    return seconds > MAX_ITERS ? MAX_ITERS : (int)seconds;
}

/* Libraries implement the two forms apart, and which one is faster differs: use the better. */
static void choose_reduce_scatter(bench_t *b)
{
    double block, general;

    for (int r = 0; r < b->ranks; r++) {
        b->counts[r] = b->count;
    }
    b->general_scatter = false;
    call_reduce_scatter(b); /* the first call faults temporaries in */
    choose_iters(b, &block);
    b->general_scatter = true;
    call_reduce_scatter(b);
    choose_iters(b, &general);
    b->general_scatter = general < block;
}

static void set_size(bench_t *b, size_t bytes)
{
    size_t blocks = b->collective->scaled ? (size_t)b->ranks : 1;
    size_t count = bytes / sizeof(float) / blocks;

    b->count = is(b, call_barrier) ? 0 : count > 0 ? (int)count : 1;
}

static void measure(bench_t *b, size_t bytes, result_t *result_p)
{
    double seconds, spent = 0;

    set_size(b, bytes);
    result_p->bytes = is(b, call_barrier) ? 0 : bytes;
    result_p->count = b->count;
    if (is(b, call_reduce_scatter)) {
        fill(b);
        choose_reduce_scatter(b);
    }
    result_p->wrong = verify(b);
    result_p->iters = choose_iters(b, &seconds);
    result_p->loops = 0;
    while (result_p->loops < b->opt->repeat && spent < ENOUGH_SECONDS) {
        seconds = timed_loop(b, result_p->iters);
        spent += seconds;
        seconds /= result_p->iters * (is(b, call_sendrecv) ? 2 : 1);
        result_p->us[result_p->loops++] = seconds * 1e6;
        if (b->opt->check_always) {
            result_p->wrong += verify(b);
        }
    }
}

/* ---- results ---------------------------------------------------------------------------- */

/* "Open MPI v4.1.4, package: ..." and "MPICH Version:\t4.0.2\n..." become one short name. */
static void read_library(bench_t *b)
{
    int len = 0;
    char *end;

    MPI_Get_library_version(b->library, &len);
    for (end = b->library; *end != '\0' && *end != '\n' && *end != ','; end++) {
        if (*end == '\t' || *end == '"' || *end == '\\' || (unsigned char)*end < ' ') {
            *end = ' ';
        }
    }
    *end = '\0';
}

static void print_result(const bench_t *b, const result_t *r)
{
    printf("%-14s %12zu B %12d x f32 %6d iters ", b->collective->name, r->bytes, r->count,
           r->iters);
    for (int i = 0; i < r->loops; i++) {
        printf(" %12.3f", r->us[i]);
    }
    printf(" us  wrong %ld\n", r->wrong);
    fflush(stdout);
}

/* Written whole after every size and renamed into place: a run that is stopped for taking too
 * long still leaves what it has measured. */
static void write_json(const bench_t *b, const result_t *results, int nresults)
{
    char path[4096];
    bool failed;
    FILE *file;

    if (snprintf(path, sizeof(path), "%s.part", b->opt->json) >= (int)sizeof(path)) {
        die("the name given to --json is too long");
    }
    file = fopen(path, "w");
    if (file == NULL) {
        die("cannot write %s: %s", path, strerror(errno));
    }
    fprintf(file, "{\"bench\":\"mpi_bench\",\"library\":\"%s\",\"ranks\":%d,\"results\":[",
            b->library, b->ranks);
    for (int n = 0; n < nresults; n++) {
        const result_t *r = &results[n];

        fprintf(file, "%s\n{\"collective\":\"%s\",\"bytes\":%zu,\"count\":%d,\"in_place\":%s,",
                n ? "," : "", b->collective->name, r->bytes, r->count,
                b->in_place ? "true" : "false");
        fputs("\"us\":[", file);
        for (int i = 0; i < r->loops; i++) {
            fprintf(file, "%s%.4f", i ? "," : "", r->us[i]);
        }
        fprintf(file, "],\"iters\":%d,\"wrong\":%ld}", r->iters, r->wrong);
    }
    fputs("\n]}\n", file);
    failed = ferror(file) != 0;
    failed |= fclose(file) != 0;
    if (failed || rename(path, b->opt->json) != 0) {
        die("cannot write %s: %s", b->opt->json, strerror(errno));
    }
}

/* ---- the run ---------------------------------------------------------------------------- */

/* Mapped rather than malloc'ed: page aligned whatever allocator settings the library is given. */
static float *map_buffer(const bench_t *b)
{
    size_t bytes = b->capacity * sizeof(float);
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED) {
        die("rank %d cannot map %zu bytes: %s", b->rank, bytes, strerror(errno));
    }
    return p;
}

static void open_bench(bench_t *b, const options_t *opt)
{
    size_t largest = 0;

    MPI_Comm_rank(MPI_COMM_WORLD, &b->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &b->ranks);
    b->opt = opt;
    b->collective = opt->collective;
    /* MPI_Bcast has one buffer: it is what nccl-tests calls in place. */
    b->in_place = opt->in_place || is(b, call_broadcast);
    b->peer = (b->rank ^ 1) < b->ranks ? b->rank ^ 1 : -1;
    for (int i = 0; i < opt->nsizes; i++) {
        largest = opt->sizes[i] > largest ? opt->sizes[i] : largest;
    }
    b->capacity = largest / sizeof(float);
    if (b->capacity < (size_t)b->ranks) {
        b->capacity = (size_t)b->ranks;
    }
    b->counts = malloc((size_t)b->ranks * sizeof(*b->counts));
    if (b->counts == NULL) {
        die("out of memory");
    }
    b->src = map_buffer(b);
    b->dst = map_buffer(b);
    read_library(b);
}

static void close_bench(bench_t *b)
{
    munmap(b->src, b->capacity * sizeof(float));
    munmap(b->dst, b->capacity * sizeof(float));
    free(b->counts);
}

static long run_bench(const options_t *opt)
{
    static result_t results[MAX_SIZES];
    bench_t bench = {0};
    int nsizes = opt->collective->call == call_barrier ? 1 : opt->nsizes;
    long wrong = 0;

    open_bench(&bench, opt);
    for (int n = 0; n < nsizes; n++) {
        measure(&bench, opt->sizes[n], &results[n]);
        wrong += results[n].wrong;
        if (bench.rank == 0) {
            print_result(&bench, &results[n]);
            if (opt->json != NULL) {
                write_json(&bench, results, n + 1);
            }
        }
    }
    close_bench(&bench);
    return wrong;
}

/* ---- options ----------------------------------------------------------------------------- */

static const char usage[] =
    "usage: mpi_bench COLLECTIVE [-b MIN] [-e MAX] [-f FACTOR] [options]   (under mpirun)\n"
    "COLLECTIVE: allreduce reduce_scatter allgather broadcast reduce gather scatter alltoall\n"
    "            barrier sendrecv\n"
    "  -b, -e, -f     first and last size in bytes (K, M, G), and the factor between them\n"
    "  --sizes LIST   these sizes instead, separated by commas\n"
    "  --iters K      calls in a timed loop (default: as many as take 20 ms, 5 to 20000)\n"
    "  --repeat R     timed loops of each size (3; fewer once they took half a second)\n"
    "  --in-place     the result takes the place of the input\n"
    "  --check        verify after every timed loop, not only once a size\n"
    "  --json FILE    write the results there, after every size\n";

static size_t parse_size(const char *text, char **end_p)
{
    unsigned long long n;
    int shift = 0;

    errno = 0;
    n = strtoull(text, end_p, 10);
    if (*end_p == text || text[0] < '0' || text[0] > '9') {
        die("\"%s\" is not a size", text);
    }
    switch (**end_p) {
    case 'G':
    case 'g':
        shift = 30;
        break;
    case 'M':
    case 'm':
        shift = 20;
        break;
    case 'K':
    case 'k':
        shift = 10;
        break;
    default:
        break;
    }
    *end_p += shift > 0;
    /* MPI counts are ints, and one block may be the whole size. */
    if (errno != 0 || n > ((unsigned long long)INT32_MAX * sizeof(float)) >> shift ||
        n << shift < sizeof(float)) {
        die("\"%s\" is not a size between 4 bytes and 8 GiB", text);
    }
    return (size_t)(n << shift);
}

static size_t parse_one_size(const char *text)
{
    char *end;
    size_t size = parse_size(text, &end);

    if (*end != '\0') {
        die("\"%s\" is not a size", text);
    }
    return size;
}

static int parse_number(const char *name, const char *text, long min, long max)
{
    char *end;
    long n;

    errno = 0;
    n = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || n < min || n > max) {
        die("%s takes a number from %ld to %ld, not \"%s\"", name, min, max, text);
    }
    return (int)n;
}

static void add_size(options_t *opt, size_t size)
{
    if (opt->nsizes == MAX_SIZES) {
        die("more than %d sizes", MAX_SIZES);
    }
    opt->sizes[opt->nsizes++] = size;
}

static void parse_list(options_t *opt, const char *text)
{
    char *end;

    for (;; text = end + 1) {
        add_size(opt, parse_size(text, &end));
        if (*end == '\0') {
            return;
        }
        if (*end != ',') {
            die("\"%s\" is not a list of sizes", text);
        }
    }
}

static void parse_collective(options_t *opt, int argc, char **argv)
{
    if (optind != argc - 1) {
        fputs(usage, stderr);
        exit(2);
    }
    for (size_t i = 0; i < sizeof(collectives) / sizeof(collectives[0]); i++) {
        if (strcmp(argv[optind], collectives[i].name) == 0) {
            opt->collective = &collectives[i];
        }
    }
    if (opt->collective == NULL) {
        die("there is no collective \"%s\"", argv[optind]);
    }
    if (opt->in_place && !opt->collective->in_place) {
        die("%s has no in-place form", opt->collective->name);
    }
}

static void parse(int argc, char **argv, options_t *opt)
{
    static const struct option longs[] = {
        {"sizes", required_argument, NULL, 's'},  {"iters", required_argument, NULL, 'i'},
        {"repeat", required_argument, NULL, 'r'}, {"in-place", no_argument, NULL, 'p'},
        {"check", no_argument, NULL, 'c'},        {"json", required_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0}};
    size_t first = 8, last = 1 << 20;
    int c, factor = 4;
    bool listed = false;

    while ((c = getopt_long(argc, argv, "b:e:f:h", longs, NULL)) != -1) {
        switch (c) {
        case 'b':
            first = parse_one_size(optarg);
            break;
        case 'e':
            last = parse_one_size(optarg);
            break;
        case 'f':
            factor = parse_number("-f", optarg, 2, 1 << 20);
            break;
        case 's':
            parse_list(opt, optarg);
            listed = true;
            break;
        case 'i':
            opt->iters = parse_number("--iters", optarg, 1, 1 << 30);
            break;
        case 'r':
            opt->repeat = parse_number("--repeat", optarg, 1, MAX_REPEAT);
            break;
        case 'p':
            opt->in_place = true;
            break;
        case 'c':
            opt->check_always = true;
            break;
        case 'j':
            opt->json = optarg;
            break;
        case 'h':
            fputs(usage, stdout);
            exit(0);
        default:
            fputs(usage, stderr);
            exit(2);
        }
    }
    parse_collective(opt, argc, argv);
    for (size_t size = first; !listed && size <= last; size *= (size_t)factor) {
        add_size(opt, size);
    }
    if (opt->nsizes == 0) {
        die("the first size is above the last");
    }
}

int main(int argc, char **argv)
{
    options_t opt = {.repeat = 3};
    long wrong;

    parse(argc, argv, &opt);
    /* A launcher that is killed must not leave ranks spinning behind. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (MPI_Init(&argc, &argv) != MPI_SUCCESS) {
        die("MPI_Init failed");
    }
    wrong = run_bench(&opt);
    MPI_Finalize();
    return wrong == 0 ? 0 : 1;
}
