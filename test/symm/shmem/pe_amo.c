/* OpenSHMEM program: atomics of every type. What one PE does alone must give exact results; what
 * all do at once must add up. */
#include "symm/shmem/pe.h"

#define ROUNDS 200

static shmem_ctx_t ctx;
static uint64_t round_number;

static int backwards(int pe)
{
    return pes - 1 - pe;
}

/* The word that only PE `me` changes on PE `next`, so that each step has one right answer. */
#define DEFINE_EXTENDED_TEST(name, type)                                                           \
    static type name##_word;                                                                       \
    static void test_extended_##name(void)                                                         \
    {                                                                                              \
        int next = (me + 1) % pes;                                                                 \
        type fetched = 0, a = PE_VALUE(type, me, ++round_number, 0);                               \
        type b = PE_VALUE(type, me, round_number, 1);                                              \
        shmem_##name##_atomic_set(&name##_word, a, next);                                          \
        CHECK(shmem_##name##_atomic_fetch(&name##_word, next) == a, "fetch after set");            \
        CHECK(shmem_##name##_atomic_swap(&name##_word, b, next) == a, "swap");                     \
        shmem_##name##_atomic_fetch_nbi(&fetched, &name##_word, next);                             \
        shmem_quiet();                                                                             \
        CHECK(fetched == b, "fetch_nbi after swap");                                               \
        shmem_##name##_atomic_swap_nbi(&fetched, &name##_word, a, next);                           \
        shmem_quiet();                                                                             \
        CHECK(fetched == b, "swap_nbi");                                                           \
        shmem_ctx_##name##_atomic_set(ctx, &name##_word, b, backwards(next));                      \
        CHECK(shmem_ctx_##name##_atomic_swap(ctx, &name##_word, a, backwards(next)) == b, "ctx");  \
        CHECK(shmem_ctx_##name##_atomic_fetch(ctx, &name##_word, backwards(next)) == a, "ctx");    \
        shmem_ctx_##name##_atomic_fetch_nbi(ctx, &fetched, &name##_word, backwards(next));         \
        shmem_ctx_##name##_atomic_swap_nbi(ctx, &fetched, &name##_word, a, backwards(next));       \
        shmem_ctx_quiet(ctx);                                                                      \
        CHECK(fetched == a, "swap_nbi on a context");                                              \
        shmem_barrier_all();                                                                       \
    }
SHMEM_TYPES_AMO_EXTENDED(DEFINE_EXTENDED_TEST)

/* Alone, then all on PE 0's word: each increment is seen exactly once. */
#define DEFINE_STANDARD_TEST(name, type)                                                           \
    static type name##_sum, name##_count;                                                          \
    static void test_standard_##name(void)                                                         \
    {                                                                                              \
        int next = (me + 1) % pes;                                                                 \
        type a = PE_VALUE(type, me, ++round_number, 0), b = PE_VALUE(type, me, round_number, 1);   \
        type fetched = 0, c = a + 1;                                                               \
        shmem_##name##_atomic_set(&name##_word, a, next);                                          \
        CHECK(shmem_##name##_atomic_compare_swap(&name##_word, c, b, next) == a, "not swapped");   \
        CHECK(shmem_##name##_atomic_compare_swap(&name##_word, a, b, next) == a, "swapped");       \
        CHECK(shmem_##name##_atomic_fetch_add(&name##_word, a, next) == b, "fetch_add");           \
        CHECK(shmem_ctx_##name##_atomic_fetch_inc(ctx, &name##_word, backwards(next)) == b + a,    \
              "fetch_inc");                                                                        \
        shmem_##name##_atomic_inc(&name##_word, next);                                             \
        shmem_ctx_##name##_atomic_add(ctx, &name##_word, c, backwards(next));                      \
        shmem_##name##_atomic_fetch_add_nbi(&fetched, &name##_word, 1, next);                      \
        shmem_quiet();                                                                             \
        CHECK(fetched == (type)(b + a + 2 + c), "fetch_add_nbi");                                  \
        shmem_##name##_atomic_fetch_inc_nbi(&fetched, &name##_word, next);                         \
        shmem_##name##_atomic_compare_swap_nbi(&fetched, &name##_word, b + a + 4 + c, 9, next);    \
        shmem_quiet();                                                                             \
        CHECK(fetched == (type)(b + a + 4 + c), "compare_swap_nbi");                               \
        CHECK(shmem_##name##_g(&name##_word, next) == 9, "after compare_swap_nbi");                \
        for (int i = 0; i < ROUNDS; i++) {                                                         \
            shmem_##name##_atomic_add(&name##_sum, (type)(me + 1), 0);                             \
            type before = shmem_##name##_atomic_fetch_inc(&name##_count, 0);                       \
            CHECK((size_t)before < (size_t)ROUNDS * (size_t)pes, "counted twice");                 \
        }                                                                                          \
        shmem_barrier_all();                                                                       \
        CHECK_INT(shmem_##name##_g(&name##_sum, 0), ROUNDS *pes *(pes + 1) / 2);                   \
        CHECK_INT(shmem_##name##_g(&name##_count, 0), ROUNDS *pes);                                \
        shmem_barrier_all();                                                                       \
    }
SHMEM_TYPES_AMO(DEFINE_STANDARD_TEST)

#define DEFINE_BITWISE_TEST(name, type)                                                            \
    static type name##_bits;                                                                       \
    static void test_bitwise_##name(void)                                                          \
    {                                                                                              \
        int next = (me + 1) % pes;                                                                 \
        type a = (type)pe_value(me, ++round_number, 0), b = (type)pe_value(me, round_number, 1);   \
        type now = a, fetched;                                                                     \
        shmem_##name##_atomic_set(&name##_word, a, next);                                          \
        CHECK(shmem_##name##_atomic_fetch_and(&name##_word, b, next) == now, "fetch_and");         \
        now &= b;                                                                                  \
        CHECK(shmem_ctx_##name##_atomic_fetch_or(ctx, &name##_word, a, backwards(next)) == now,    \
              "fetch_or");                                                                         \
        now |= a;                                                                                  \
        CHECK(shmem_##name##_atomic_fetch_xor(&name##_word, b, next) == now, "fetch_xor");         \
        now ^= b;                                                                                  \
        shmem_##name##_atomic_or(&name##_word, 12, next);                                          \
        shmem_ctx_##name##_atomic_xor(ctx, &name##_word, 5, backwards(next));                      \
        shmem_##name##_atomic_and(&name##_word, ~(type)2, next);                                   \
        now = ((now | 12) ^ 5) & ~(type)2;                                                         \
        shmem_##name##_atomic_fetch_and_nbi(&fetched, &name##_word, ~(type)0, next);               \
        shmem_quiet();                                                                             \
        CHECK(fetched == now, "fetch_and_nbi");                                                    \
        shmem_##name##_atomic_fetch_or_nbi(&fetched, &name##_word, 2, next);                       \
        shmem_##name##_atomic_fetch_xor_nbi(&fetched, &name##_word, 3, next);                      \
        shmem_quiet();                                                                             \
        CHECK(fetched == (type)(now | 2), "fetch_xor_nbi");                                        \
        shmem_barrier_all();                                                                       \
        if (me < 31) { /* each its own bit, on and off */                                          \
            for (int i = 0; i < ROUNDS; i++) {                                                     \
                shmem_##name##_atomic_or(&name##_bits, (type)1 << me, 0);                          \
                shmem_##name##_atomic_xor(&name##_bits, (type)1 << me, 0);                         \
            }                                                                                      \
            shmem_##name##_atomic_or(&name##_bits, (type)1 << me, 0);                              \
        }                                                                                          \
        shmem_barrier_all();                                                                       \
        CHECK_INT(shmem_##name##_g(&name##_bits, 0), (1ll << (pes < 31 ? pes : 31)) - 1);          \
        shmem_barrier_all();                                                                       \
    }
SHMEM_TYPES_AMO_BITWISE(DEFINE_BITWISE_TEST)

#define DEFINE_OLD_TEST(name, type)                                                                \
    static void test_old_##name(void)                                                              \
    {                                                                                              \
        int next = (me + 1) % pes;                                                                 \
        shmem_##name##_set(&name##_word, 40, next);                                                \
        CHECK(shmem_##name##_fetch(&name##_word, next) == 40, "set, fetch");                       \
        CHECK(shmem_##name##_swap(&name##_word, 50, next) == 40, "swap");                          \
        CHECK(shmem_##name##_cswap(&name##_word, 50, 60, next) == 50, "cswap");                    \
        CHECK(shmem_##name##_finc(&name##_word, next) == 60, "finc");                              \
        CHECK(shmem_##name##_fadd(&name##_word, 9, next) == 61, "fadd");                           \
        shmem_##name##_inc(&name##_word, next);                                                    \
        shmem_##name##_add(&name##_word, 100, next);                                               \
        CHECK(shmem_##name##_fetch(&name##_word, next) == 171, "inc, add");                        \
        shmem_barrier_all();                                                                       \
    }
SHMEM_TYPES_OLD_AMO(DEFINE_OLD_TEST)

/* The names without types, where they are. */
static void test_generic(void)
{
    static unsigned long word;
    static double real;
    int next = (me + 1) % pes;
    shmem_atomic_set(&word, 5ul, next);
    shmem_atomic_set(ctx, &real, 2.5, backwards(next));
    CHECK_INT(shmem_atomic_fetch_add(ctx, &word, 2ul, backwards(next)), 5);
    shmem_atomic_or(&word, 8ul, next);
    CHECK_INT(shmem_atomic_fetch(&word, next), 15);
    CHECK(shmem_atomic_swap(&real, 3.5, next) == 2.5, "swap");
    CHECK_INT(shmem_fadd(&word, 1ul, next), 15);
    shmem_barrier_all();
}

int main(int argc, char **argv)
{
    shmem_team_t team;
    pe_start(argc, argv);
    CHECK_INT(shmem_team_split_strided(SHMEM_TEAM_WORLD, pes - 1, -1, pes, NULL, 0, &team), 0);
    CHECK_INT(shmem_team_create_ctx(team, 0, &ctx), 0);
#define RUN_EXTENDED(name, type) test_extended_##name();
#define RUN_STANDARD(name, type) test_standard_##name();
#define RUN_BITWISE(name, type) test_bitwise_##name();
#define RUN_OLD(name, type) test_old_##name();
    SHMEM_TYPES_AMO_EXTENDED(RUN_EXTENDED)
    SHMEM_TYPES_AMO(RUN_STANDARD)
    SHMEM_TYPES_AMO_BITWISE(RUN_BITWISE)
    SHMEM_TYPES_OLD_AMO(RUN_OLD)
    test_generic();
    shmem_finalize(); /* also destroys the team, and the context with it */
    return 0;
}
