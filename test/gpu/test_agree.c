/* ctest: timeout=180 serial */
/* Reductions of random data give the same bits on GPUs as on virtual GPUs, on all ranks, as threads
 * and as processes, by every algorithm, and in every run. */
#include <setjmp.h>
#include <sys/mman.h>

#include "comm/call.h"
#include "comm/data.h"
#include "comm/memory.h"
#include "device/device.h"
#include "gpu/gpu.h"

#include <cmocka.h>

#define MOST_RANKS 8
#define MOST_COUNT 40009

static const weft_coll_t colls[] = {WEFT_COLL_ALLREDUCE, WEFT_COLL_REDUCE,
                                    WEFT_COLL_REDUCE_SCATTER};
static const char *const algos[] = {"auto", "oneshot", "direct"};
static const size_t counts[] = {1, 777, MOST_COUNT};
#define LENGTH(list) (sizeof(list) / sizeof((list)[0]))
#define CASES (LENGTH(colls) * LENGTH(algos) * LENGTH(counts) * WEFT_DTYPE_COUNT * WEFT_OP_COUNT)

/* A reduction; cases are numbered. */
typedef struct acase {
    weft_coll_t coll;
    size_t algo, count;
    weft_dtype_t type;
    weft_op_t op;
    int root;
} acase_t;

/* What a team found: a hash of each rank's result of each case. In memory that is shared. */
typedef struct results {
    uint64_t hash[CASES][MOST_RANKS];
} results_t;

/* Types change slowly: each has its own source. */
static acase_t case_of(size_t i, int ranks)
{
    acase_t c;
    size_t number = i;
    c.coll = colls[i % LENGTH(colls)];
    i /= LENGTH(colls);
    c.algo = i % LENGTH(algos);
    i /= LENGTH(algos);
    c.count = counts[i % LENGTH(counts)];
    i /= LENGTH(counts);
    c.op = (weft_op_t)(i % WEFT_OP_COUNT);
    c.type = (weft_dtype_t)(i / WEFT_OP_COUNT);
    c.root = (int)(number % (size_t)ranks);
    return c;
}

static void describe(size_t i, int ranks, char *text, size_t room)
{
    acase_t c = case_of(i, ranks);
    snprintf(text, room, "%s by %s of %zu %s, %s, root %d, %d ranks", weft__coll_info[c.coll].name,
             algos[c.algo], c.count, weft_dtype_name(c.type), weft_op_name(c.op), c.root, ranks);
}

/* ---- in a rank --------------------------------------------------------------------------- */

/* Floats of all magnitudes within 2^4, so that every rounding counts and no product overflows; any
 * integers, but small ones where their sum is divided. */
static void fill(const team_t *team, weft_dtype_t type, weft_op_t op, size_t count, char *to)
{
    size_t element = weft_dtype_size(type);
    bool is_float = type <= WEFT_BF16;
    bool is_signed = type == WEFT_I8 || type == WEFT_I32 || type == WEFT_I64;
    for (size_t i = 0; i < count; i++) {
        uint64_t x = data_mix((uint64_t)team->rank << 48 | (uint64_t)type << 40 | i);
        if (is_float) {
            double value = (double)(x >> 12) * 0x1p-52 + 1; /* 1 to 2 */
            value *= (double)(1 << (x & 7)) * 0x1p-4;       /* 2^-4 to 2^3 */
            data_from_double(type, x & 8 ? -value : value, to + i * element);
        } else {
            x = op != WEFT_AVG ? x : is_signed ? x % 15 - 7 : x % 16;
            memcpy(to + i * element, &x, element);
        }
    }
}

static uint64_t hash(const char *bytes, size_t n)
{
    uint64_t h = n;
    for (; n >= 8; n -= 8, bytes += 8) {
        uint64_t word;
        memcpy(&word, bytes, 8);
        h = data_mix(h ^ word);
    }
    for (; n > 0; n--, bytes++) {
        h = data_mix(h ^ (unsigned char)*bytes);
    }
    return h;
}

static weft_status_t reduce(const acase_t *c, const buffer_t *src, const buffer_t *dst,
                            weft_comm_h comm)
{
    switch (c->coll) {
    case WEFT_COLL_ALLREDUCE:
        return weft_allreduce(src->at, dst->at, c->count, c->type, c->op, comm, NULL);
    case WEFT_COLL_REDUCE:
        return weft_reduce(src->at, dst->at, c->count, c->type, c->op, c->root, comm, NULL);
    default:
        return weft_reduce_scatter(src->at, dst->at, c->count, c->type, c->op, comm, NULL);
    }
}

/* arg: results_t */
static void reduce_all(team_t *team)
{
    results_t *results = (results_t *)(uintptr_t)team->arg;
    size_t room = (size_t)MOST_COUNT * 8 * (size_t)team->size;
    weft_comm_h comms[LENGTH(algos)];
    buffer_t src, dst;
    for (size_t a = 0; a < LENGTH(algos); a++) {
        weft_comm_config_t config = team_config();
        /* GPUs take the ranks in their order. On virtual GPUs that is what one-shot does; direct
         * starts with another rank in every slice. */
        config.algo = weft__device_is_cuda() ? algos[a] : "oneshot";
        CHECK_OK(weft_comm_split(team->comm, 0, team->rank, &comms[a], &config));
    }
    buffer_open(&src, room, false);
    buffer_open(&dst, MOST_COUNT * 8, false);
    team_meet(team);
    for (size_t i = 0; i < CASES; i++) {
        char text[160];
        acase_t c = case_of(i, team->size), before = case_of(i ? i - 1 : 0, team->size);
        size_t bytes = c.count * weft_dtype_size(c.type);
        describe(i, team->size, text, sizeof(text));
        team_note("%s", text);
        if (i == 0 || c.type != before.type || c.op != before.op) {
            fill(team, c.type, c.op, (size_t)MOST_COUNT * (size_t)team->size, src.host);
            buffer_push_all(&src);
        }
        CHECK_OK(reduce(&c, &src, &dst, comms[c.algo]));
        bool mine = c.coll != WEFT_COLL_REDUCE || c.root == team->rank;
        buffer_pull(&dst, dst.host, bytes);
        results->hash[i][team->rank] = mine ? hash(dst.host, bytes) : 0;
    }
    for (size_t a = 0; a < LENGTH(algos); a++) {
        CHECK_OK(weft_comm_destroy(comms[a]));
    }
    buffer_close(&src);
    buffer_close(&dst);
}

/* ---- comparing --------------------------------------------------------------------------- */

static void run(results_t *results, int ranks, int procs, const char *env)
{
    double start = team_now();
    team_plan_t plan = {.ranks = ranks, .procs = procs, .env = env, .limit_s = 60, .arg = results};
    memset(results, 0, sizeof(*results));
    assert_true(team_run(&plan, reduce_all));
    print_message("%d ranks, %s, %s: %.2f s\n", ranks, procs == 1 ? "threads" : "processes", env,
                  team_now() - start);
}

static void check_equal(const results_t *a, const results_t *b, int ranks, const char *who)
{
    char text[160];
    for (size_t i = 0; i < CASES; i++) {
        describe(i, ranks, text, sizeof(text));
        for (int r = 0; r < ranks; r++) {
            if (a->hash[i][r] != b->hash[i][r]) {
                fail_msg("%s, rank %d: %s has other bits", text, r, who);
            }
            if (case_of(i, ranks).coll == WEFT_COLL_ALLREDUCE && a->hash[i][r] != a->hash[i][0]) {
                fail_msg("%s: rank %d has other bits than rank 0", text, r);
            }
        }
    }
}

static void agree(int ranks)
{
    size_t bytes = 2 * sizeof(results_t);
    const char *env = gpu_virtual() ? "WEFT_DEVICE=cpu" : "WEFT_DEVICE=cuda";
    results_t *r = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(r != MAP_FAILED);
    run(&r[0], ranks, 1, "WEFT_DEVICE=cpu");
    run(&r[1], ranks, 1, env);
    check_equal(&r[0], &r[1], ranks, "the GPU");
    run(&r[0], ranks, 1, env);
    check_equal(&r[0], &r[1], ranks, "a second run");
    if (gpu_processes()) {
        run(&r[0], ranks, ranks, env);
        check_equal(&r[0], &r[1], ranks, "a run with processes");
    }
    munmap(r, bytes);
}

static void two_ranks(void **state)
{
    (void)state;
    agree(2);
}

static void three_ranks(void **state)
{
    (void)state;
    agree(3);
}

static void eight_ranks(void **state)
{
    (void)state;
    agree(8);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_ranks),
        cmocka_unit_test(three_ranks),
        cmocka_unit_test(eight_ranks),
    };
    gpu_start(argc, argv, false);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
