/* OpenSHMEM program: waiting and testing, of one variable and of arrays; locks; threads. */
#include <pthread.h>

#include "symm/shmem/pe.h"

#define MANY 64

static uint64_t round_number;

/* Every PE sets the elements of the next one, one after the other in an order of its own. */
static size_t place(int pe, size_t k)
{
    return (pe_draw(round_number, (uint64_t)pe, MANY) + k * 5) %
           MANY; /* 5 and 64 have no factor in common */
}

#define DEFINE_TEST(name, type)                                                                    \
    static type name##_flags[MANY], name##_one;                                                    \
    static void test_##name(void)                                                                  \
    {                                                                                              \
        int next = (me + 1) % pes;                                                                 \
        int status[MANY] = {0};                                                                    \
        size_t found[MANY], left = MANY;                                                           \
        type values[MANY];                                                                         \
        round_number++;                                                                            \
        /* one variable, all comparisons */                                                        \
        CHECK_INT(shmem_##name##_test(&name##_one, SHMEM_CMP_NE, 0), 0);                           \
        CHECK_INT(shmem_##name##_test(&name##_one, SHMEM_CMP_LT, 1), 1);                           \
        shmem_barrier_all();                                                                       \
        shmem_##name##_p(&name##_one, 7, next);                                                    \
        shmem_##name##_wait_until(&name##_one, SHMEM_CMP_NE, 0);                                   \
        shmem_##name##_wait_until(&name##_one, SHMEM_CMP_EQ, 7);                                   \
        shmem_##name##_wait_until(&name##_one, SHMEM_CMP_GT, 6);                                   \
        shmem_##name##_wait_until(&name##_one, SHMEM_CMP_GE, 7);                                   \
        shmem_##name##_wait_until(&name##_one, SHMEM_CMP_LT, 8);                                   \
        shmem_##name##_wait_until(&name##_one, SHMEM_CMP_LE, 7);                                   \
        shmem_##name##_wait(&name##_one, 3);                                                       \
        CHECK_INT(shmem_##name##_test(&name##_one, SHMEM_CMP_GT, 7), 0);                           \
        CHECK_INT(shmem_##name##_test(&name##_one, SHMEM_CMP_LE, 6), 0);                           \
        /* the largest value is above all others, or below, as the sign has it */                  \
        name##_one = (type)-1;                                                                     \
        CHECK_INT(shmem_##name##_test(&name##_one, SHMEM_CMP_GT, 0), (type)-1 > (type)1);          \
        CHECK_INT(shmem_##name##_test_all(&name##_one, 1, NULL, SHMEM_CMP_GT, 0),                  \
                  (type)-1 > (type)1);                                                             \
        /* an array, by any and by some, until each element has come once */                       \
        memset(name##_flags, 0, sizeof(name##_flags));                                             \
        for (size_t i = 0; i < MANY; i++) {                                                        \
            values[i] = (type)(i + 1);                                                             \
        }                                                                                          \
        CHECK(shmem_##name##_test_any(name##_flags, MANY, NULL, SHMEM_CMP_NE, 0) == SIZE_MAX,      \
              "any of none");                                                                      \
        CHECK_INT(shmem_##name##_test_some(name##_flags, MANY, found, NULL, SHMEM_CMP_NE, 0), 0);  \
        shmem_barrier_all();                                                                       \
        for (size_t k = 0; k < MANY; k++) {                                                        \
            shmem_##name##_p(&name##_flags[place(me, k)], (type)(place(me, k) + 1), next);         \
        }                                                                                          \
        while (left > MANY / 2) {                                                                  \
            size_t i = left % 2 ? shmem_##name##_wait_until_any(name##_flags, MANY, status,        \
                                                                SHMEM_CMP_NE, 0)                   \
                                : shmem_##name##_wait_until_any_vector(name##_flags, MANY, status, \
                                                                       SHMEM_CMP_EQ, values);      \
            CHECK(i < MANY && status[i] == 0 && name##_flags[i] == (type)(i + 1), "any: %zu", i);  \
            status[i] = 1;                                                                         \
            left--;                                                                                \
        }                                                                                          \
        while (left > 0) {                                                                         \
            size_t n = round_number % 2                                                            \
                           ? shmem_##name##_wait_until_some(name##_flags, MANY, found, status,     \
                                                            SHMEM_CMP_GT, 0)                       \
                           : shmem_##name##_wait_until_some_vector(name##_flags, MANY, found,      \
                                                                   status, SHMEM_CMP_GE, values);  \
            CHECK(n > 0 && n <= left, "some: %zu of %zu", n, left);                                \
            for (size_t k = 0; k < n; k++) {                                                       \
                CHECK(status[found[k]] == 0, "element %zu came twice", found[k]);                  \
                status[found[k]] = 1;                                                              \
            }                                                                                      \
            left -= n;                                                                             \
        }                                                                                          \
        shmem_##name##_wait_until_all(name##_flags, MANY, NULL, SHMEM_CMP_GE, 1);                  \
        shmem_##name##_wait_until_all_vector(name##_flags, MANY, NULL, SHMEM_CMP_EQ, values);      \
        CHECK_INT(shmem_##name##_test_all_vector(name##_flags, MANY, NULL, SHMEM_CMP_LE, values),  \
                  1);                                                                              \
        CHECK_INT(shmem_##name##_test_some_vector(name##_flags, MANY, found, NULL, SHMEM_CMP_EQ,   \
                                                  values),                                         \
                  MANY);                                                                           \
        values[3] = 0;                                                                             \
        CHECK_INT(shmem_##name##_test_all_vector(name##_flags, MANY, NULL, SHMEM_CMP_EQ, values),  \
                  0);                                                                              \
        CHECK_INT(shmem_##name##_test_any_vector(name##_flags, MANY, NULL, SHMEM_CMP_NE, values),  \
                  3);                                                                              \
        /* of nothing */                                                                           \
        CHECK(shmem_##name##_wait_until_any(name##_flags, MANY, status, SHMEM_CMP_EQ, 0) ==        \
                  SIZE_MAX,                                                                        \
              "any of an empty set");                                                              \
        CHECK_INT(shmem_##name##_wait_until_some(name##_flags, 0, found, NULL, SHMEM_CMP_EQ, 0),   \
                  0);                                                                              \
        CHECK_INT(shmem_##name##_test_all(name##_flags, 0, NULL, SHMEM_CMP_EQ, 0), 1);             \
        shmem_##name##_wait_until_all(name##_flags, 0, NULL, SHMEM_CMP_EQ, 0);                     \
        shmem_barrier_all();                                                                       \
    }
SHMEM_TYPES_WAIT(DEFINE_TEST)

/* Each element gets its turn, although all hold all the time. */
static void test_any_is_fair(void)
{
    static int flags[7];
    int seen[7] = {0};
    for (int k = 0; k < 7; k++) {
        size_t i = shmem_int_test_any(flags, 7, NULL, SHMEM_CMP_EQ, 0);
        CHECK(i < 7, "%zu", i);
        seen[i]++;
    }
    for (int i = 0; i < 7; i++) {
        CHECK_INT(seen[i], 1);
    }
}

/* ---- locks -------------------------------------------------------------------------------- */

static long lock, *heap_lock;
static long guarded[2]; /* of PE 0: changed by parts, so that two at once would show */

static void test_locks(void)
{
    enum { TIMES = 60 };
    heap_lock = shmem_calloc(1, sizeof(long));
    for (int i = 0; i < TIMES; i++) {
        long *which = &lock;
        if (i % 3 == 2) {
            while (shmem_test_lock(which) != 0) {
            }
        } else {
            shmem_set_lock(which);
        }
        long a = shmem_long_g(&guarded[0], 0), b = shmem_long_g(&guarded[1], 0);
        CHECK(a == b, "%ld and %ld", a, b);
        shmem_long_p(&guarded[0], a + 1, 0);
        shmem_quiet();
        shmem_long_p(&guarded[1], b + 1, 0);
        shmem_clear_lock(which);
    }
    shmem_barrier_all();
    CHECK_INT(shmem_long_g(&guarded[0], 0), (long)TIMES * pes);
    CHECK_INT(lock, 0);
    if (me == pes - 1) {
        shmem_set_lock(heap_lock);
    }
    shmem_barrier_all();
    if (me != pes - 1) {
        CHECK_INT(shmem_test_lock(heap_lock), 1);
    }
    shmem_barrier_all();
    if (me == pes - 1) {
        shmem_clear_lock(heap_lock);
    }
    shmem_free(heap_lock);
}

/* ---- threads ------------------------------------------------------------------------------ */

static long handed[4], total;

/* Thread t passes a word around all PEs with the same thread of the others. */
static void *pass_around(void *number)
{
    int t = (int)(intptr_t)number, next = (me + 1) % pes;
    shmem_ctx_t ctx;
    CHECK_INT(shmem_ctx_create(SHMEM_CTX_PRIVATE, &ctx), 0);
    for (long k = 1; k <= 50; k++) {
        if (me == 0) {
            shmem_ctx_long_p(ctx, &handed[t], k, next);
            shmem_long_wait_until(&handed[t], SHMEM_CMP_GE, k);
        } else {
            shmem_long_wait_until(&handed[t], SHMEM_CMP_GE, k);
            shmem_ctx_long_p(ctx, &handed[t], k, next);
        }
        shmem_ctx_long_atomic_add(ctx, &total, 1, 0);
        shmem_ctx_quiet(ctx);
    }
    shmem_ctx_destroy(ctx);
    return NULL;
}

static void test_threads(void)
{
    pthread_t threads[4];
    for (intptr_t t = 0; t < 4; t++) {
        CHECK_INT(pthread_create(&threads[t], NULL, pass_around, (void *)t), 0);
    }
    for (int t = 0; t < 4; t++) {
        pthread_join(threads[t], NULL);
    }
    shmem_barrier_all();
    CHECK_INT(shmem_long_g(&total, 0), 200L * pes);
}

int main(int argc, char **argv)
{
    int provided = -1, again = -1;
    CHECK_INT(shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided), 0);
    CHECK_INT(provided, SHMEM_THREAD_MULTIPLE);
    pe_start(argc, argv); /* a second init is counted */
    shmem_query_thread(&again);
    CHECK_INT(again, provided);
#define RUN(name, type) test_##name();
    SHMEM_TYPES_WAIT(RUN)
    test_any_is_fair();
    test_locks();
    test_threads();
    shmem_finalize();
    CHECK_INT(shmem_n_pes(), pes);
    shmem_finalize();
    CHECK_INT(shmem_n_pes(), -1);
    return 0;
}
