/* OpenSHMEM program: teams, and the collectives on them and on active sets. Every result is
 * computed again from what the members are known to have given. */
#include "symm/shmem/pe.h"

#define MOST 3000 /* elements: beyond what is said with a flag */

static uint64_t round_number;
static size_t counts[] = {1, 3, 100, 513, MOST};

/* Collectives follow each other without anything in between: a member that returns may fill its
 * source again, whatever the others still do.
 *
 * The group under test, in numbers of the world. */
typedef struct group {
    shmem_team_t team; /* SHMEM_TEAM_INVALID: an active set */
    int start, stride, size, me, log_stride;
} group_t;

static int member(const group_t *group, int i)
{
    return group->start + i * group->stride;
}

static long *p_sync; /* is ignored, and must stay as it is */

static void meet(const group_t *group)
{
    if (group->team != SHMEM_TEAM_INVALID) {
        CHECK_INT(shmem_team_sync(group->team), 0);
    } else if (round_number % 2) {
        shmem_barrier(group->start, group->log_stride, group->size, p_sync);
    } else {
        shmem_sync(group->start, group->log_stride, group->size, p_sync);
    }
}

/* ---- collectives that move data ----------------------------------------------------------- */

/* Calls `team_call` on teams and `old_call` on active sets, which only know elements of 8 bytes. */
#define EITHER(group, team_call, old_call)                                                         \
    do {                                                                                           \
        if ((group)->team != SHMEM_TEAM_INVALID) {                                                 \
            CHECK_INT(team_call, 0);                                                               \
        } else {                                                                                   \
            old_call;                                                                              \
        }                                                                                          \
    } while (0)
#define SET(group) (group)->start, (group)->log_stride, (group)->size, p_sync

#define FILL(array, type, count)                                                                   \
    for (size_t i = 0; i < (count); i++) {                                                         \
        (array)[i] = PE_VALUE(type, me, round_number, i);                                          \
    }

static void test_moves(const group_t *group, int64_t *dest, int64_t *source, size_t n)
{
    int root = (int)pe_draw(++round_number, 0, (size_t)group->size);
    size_t all = n * (size_t)group->size;
    FILL(source, int64_t, all)
    dest[0] = -1;
    meet(group);
    EITHER(group, shmem_int64_broadcast(group->team, dest, source, n, root),
           shmem_broadcast64(dest, source, n, root, SET(group)));
    for (size_t i = 0; i < n && (group->me != root || group->team != SHMEM_TEAM_INVALID); i++) {
        CHECK_INT(dest[i], PE_VALUE(int64_t, member(group, root), round_number, i));
    }
    if (group->me == root && group->team == SHMEM_TEAM_INVALID) {
        CHECK_INT(dest[0], -1);
    }
    EITHER(group, shmem_int64_fcollect(group->team, dest, source, n),
           shmem_fcollect64(dest, source, n, SET(group)));
    for (size_t i = 0; i < all; i++) {
        CHECK_INT(dest[i], PE_VALUE(int64_t, member(group, (int)(i / n)), round_number, i % n));
    }
    EITHER(group, shmem_int64_alltoall(group->team, dest, source, n),
           shmem_alltoall64(dest, source, n, SET(group)));
    for (size_t i = 0; i < all; i++) {
        CHECK_INT(dest[i], PE_VALUE(int64_t, member(group, (int)(i / n)), round_number,
                                    (size_t)group->me * n + i % n));
    }
}

/* Member i gives n + i elements, and every third none at all. */
static size_t given(size_t n, int i)
{
    return i % 3 == 2 ? 0 : n + (size_t)i;
}

static void test_collect(const group_t *group, int64_t *dest, int64_t *source, size_t n)
{
    size_t at = 0;
    round_number++;
    FILL(source, int64_t, n + (size_t)pes)
    EITHER(group, shmem_int64_collect(group->team, dest, source, given(n, group->me)),
           shmem_collect64(dest, source, given(n, group->me), SET(group)));
    for (int i = 0; i < group->size; i++) {
        for (size_t k = 0; k < given(n, i); k++) {
            CHECK_INT(dest[at++], PE_VALUE(int64_t, member(group, i), round_number, k));
        }
    }
}

static void test_strided(const group_t *group, int32_t *dest, int32_t *source, size_t n)
{
    ptrdiff_t dst = 1 + (ptrdiff_t)pe_draw(++round_number, 0, 3);
    ptrdiff_t sst = 1 + (ptrdiff_t)pe_draw(round_number, 1, 3);
    FILL(source, int32_t, n * (size_t)sst * (size_t)group->size)
    memset(dest, 0, n * (size_t)dst * (size_t)group->size * sizeof(*dest));
    EITHER(group, shmem_int32_alltoalls(group->team, dest, source, dst, sst, n),
           shmem_alltoalls32(dest, source, dst, sst, n, SET(group)));
    for (int i = 0; i < group->size; i++) {
        for (size_t k = 0; k < n; k++) {
            CHECK_INT(dest[((size_t)i * n + k) * (size_t)dst],
                      PE_VALUE(int32_t, member(group, i), round_number,
                               ((size_t)group->me * n + k) * (size_t)sst));
        }
    }
}

/* ---- reductions --------------------------------------------------------------------------- */

#define MAX(a, b) ((a) < (b) ? (b) : (a))
#define MIN(a, b) ((b) < (a) ? (b) : (a))
#define SUM(a, b) ((a) + (b))
#define PROD(a, b) ((a) * (b))
#define AND(a, b) ((a) & (b))
#define OR(a, b) ((a) | (b))
#define XOR(a, b) ((a) ^ (b))

/* Products stay small: most factors are 1. */
#define FACTOR(type, pe, i) (pe_value(pe, round_number, i) % 5 == 0 ? (type)2 : (type)1)
#define VALUE(type, pe, i) PE_VALUE(type, pe, round_number, i)

#define REDUCE(name, type, op, OP, of, call)                                                       \
    do {                                                                                           \
        type *to = dest, *from = source;                                                           \
        round_number++;                                                                            \
        for (size_t i = 0; i < n; i++) {                                                           \
            from[i] = of(type, me, i);                                                             \
        }                                                                                          \
        if (in_place) {                                                                            \
            to = from;                                                                             \
        }                                                                                          \
        call;                                                                                      \
        for (size_t i = 0; i < n; i++) {                                                           \
            type wanted = of(type, member(group, 0), i);                                           \
            for (int k = 1; k < group->size; k++) {                                                \
                type other = of(type, member(group, k), i);                                        \
                wanted = (type)OP(wanted, other);                                                  \
            }                                                                                      \
            CHECK(to[i] == wanted, #name " " #op " of %zu, element %zu", n, i);                    \
        }                                                                                          \
    } while (0)
#define TEAM(name, type, op, OP, of)                                                               \
    REDUCE(name, type, op, OP, of,                                                                 \
           CHECK_INT(shmem_##name##_##op##_reduce(group->team, to, from, n), 0))
#define OLD(name, type, op, OP, of)                                                                \
    REDUCE(name, type, op, OP, of,                                                                 \
           shmem_##name##_##op##_to_all(to, from, (int)n, group->start, group->log_stride,         \
                                        group->size, NULL, p_sync))

#define ARITHMETIC(form, name, type)                                                               \
    form(name, type, sum, SUM, VALUE);                                                             \
    form(name, type, prod, PROD, FACTOR);
#define ORDERED(form, name, type)                                                                  \
    form(name, type, max, MAX, VALUE);                                                             \
    form(name, type, min, MIN, VALUE);
#define BITWISE(form, name, type)                                                                  \
    form(name, type, and, AND, VALUE);                                                             \
    form(name, type, or, OR, VALUE);                                                               \
    form(name, type, xor, XOR, VALUE);

#define DEFINE_NUMBER(name, type)                                                                  \
    static void reduce_##name(const group_t *group, void *dest, void *source, size_t n,            \
                              bool in_place)                                                       \
    {                                                                                              \
        ARITHMETIC(TEAM, name, type)                                                               \
        ORDERED(TEAM, name, type)                                                                  \
    }
#define DEFINE_BITS(name, type)                                                                    \
    static void reduce_bits_##name(const group_t *group, void *dest, void *source, size_t n,       \
                                   bool in_place)                                                  \
    {                                                                                              \
        BITWISE(TEAM, name, type)                                                                  \
    }
#define DEFINE_OLD_INTEGER(name, type)                                                             \
    static void reduce_old_##name(const group_t *group, void *dest, void *source, size_t n,        \
                                  bool in_place)                                                   \
    {                                                                                              \
        ARITHMETIC(OLD, name, type)                                                                \
        ORDERED(OLD, name, type)                                                                   \
        BITWISE(OLD, name, type)                                                                   \
    }
#define DEFINE_OLD_REAL(name, type)                                                                \
    static void reduce_old_##name(const group_t *group, void *dest, void *source, size_t n,        \
                                  bool in_place)                                                   \
    {                                                                                              \
        ARITHMETIC(OLD, name, type)                                                                \
        ORDERED(OLD, name, type)                                                                   \
    }
SHMEM_TYPES_RMA(DEFINE_NUMBER)
SHMEM_TYPES_INTEGER(DEFINE_BITS)
SHMEM_TYPES_TO_ALL_INTEGER(DEFINE_OLD_INTEGER)
SHMEM_TYPES_REAL(DEFINE_OLD_REAL)

static void reduce_complex(const group_t *group, void *dest, void *source, size_t n, bool in_place)
{
    if (group->team != SHMEM_TEAM_INVALID) {
        ARITHMETIC(TEAM, complexd, double _Complex)
        ARITHMETIC(TEAM, complexf, float _Complex)
    } else {
        ARITHMETIC(OLD, complexd, double _Complex)
        ARITHMETIC(OLD, complexf, float _Complex)
    }
}

/* ---- one group ---------------------------------------------------------------------------- */

static void test_group(const group_t *group, bool all_types)
{
    size_t room = (size_t)MOST * (size_t)pes * 8 + 4096;
    static void *dest, *source;
    if (dest == NULL) { /* all PEs come here first with the world */
        dest = shmem_malloc(room * 3);
        source = shmem_malloc(room * 3);
    }
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        size_t n = counts[c];
        bool in_place = c % 2 == 1;
        test_moves(group, dest, source, n);
        test_collect(group, dest, source, n);
        test_strided(group, dest, source, n);
        reduce_complex(group, dest, source, n, in_place);
        if (group->team == SHMEM_TEAM_INVALID) {
#define RUN_OLD(name, type) reduce_old_##name(group, dest, source, n, in_place);
            SHMEM_TYPES_TO_ALL_INTEGER(RUN_OLD)
            SHMEM_TYPES_REAL(RUN_OLD)
        } else if (all_types && (n == 1 || n == MOST)) {
#define RUN(name, type) reduce_##name(group, dest, source, n, in_place);
#define RUN_BITS(name, type) reduce_bits_##name(group, dest, source, n, in_place);
            SHMEM_TYPES_RMA(RUN)
            SHMEM_TYPES_INTEGER(RUN_BITS)
        } else {
            reduce_double(group, dest, source, n, in_place);
        }
    }
}

/* ---- teams -------------------------------------------------------------------------------- */

static void check_team(shmem_team_t team, int start, int stride, int size)
{
    int place = stride == 0 ? 0 : (me - start) / stride;
    CHECK_INT(shmem_team_n_pes(team), size);
    CHECK_INT(shmem_team_my_pe(team), place);
    for (int i = 0; i < size; i++) {
        int pe = start + i * stride;
        CHECK_INT(shmem_team_translate_pe(team, i, SHMEM_TEAM_WORLD), pe);
        CHECK_INT(shmem_team_translate_pe(SHMEM_TEAM_WORLD, pe, team), i);
    }
    CHECK_INT(shmem_team_translate_pe(team, size, SHMEM_TEAM_WORLD), -1);
}

static void test_split(int start, int stride, int size)
{
    shmem_team_t team = SHMEM_TEAM_WORLD;
    shmem_team_config_t config = {.num_contexts = 3}, got = {0};
    int i = (me - start) / stride;
    bool inside = (me - start) % stride == 0 && i >= 0 && i < size;
    CHECK_INT(shmem_team_split_strided(SHMEM_TEAM_WORLD, start, stride, size, &config,
                                       SHMEM_TEAM_NUM_CONTEXTS, &team),
              0);
    CHECK_INT(team != SHMEM_TEAM_INVALID, inside);
    if (inside) {
        const group_t group = {team, start, stride, size, i, 0};
        check_team(team, start, stride, size);
        CHECK_INT(shmem_team_get_config(team, SHMEM_TEAM_NUM_CONTEXTS, &got), 0);
        CHECK_INT(got.num_contexts, 3);
        test_group(&group, false);
    }
    shmem_team_destroy(team);
}

static void test_grid(int width)
{
    shmem_team_t x_team, y_team, again;
    int real = width < pes ? width : pes, x = me % real, y = me / real;
    int in_row = pes - y * real < real ? pes - y * real : real;
    CHECK_INT(shmem_team_split_2d(SHMEM_TEAM_WORLD, width, NULL, 0, &x_team, NULL, 0, &y_team), 0);
    check_team(x_team, y * real, 1, in_row);
    check_team(y_team, x, real, (pes - x + real - 1) / real);
    /* a part of a part: the row, backwards */
    CHECK_INT(shmem_team_split_strided(x_team, in_row - 1, -1, in_row, NULL, 0, &again), 0);
    check_team(again, y * real + in_row - 1, -1, in_row);
    const group_t group = {again, y * real + in_row - 1, -1, in_row, in_row - 1 - x, 0};
    test_group(&group, false);
    shmem_team_destroy(again);
    shmem_team_destroy(y_team);
    shmem_team_destroy(x_team);
}

/* As many as there can be; then one more fails for all, and after a destroy it works again. */
static void test_many_teams(void)
{
    shmem_team_t teams[100], one;
    int made = 0;
    while (made < 100 && shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, 1 + made % pes, NULL, 0,
                                                  &teams[made]) == 0) {
        made++;
    }
    CHECK(made >= 32 && made < 100, "%d teams", made);
    CHECK(teams[made] == SHMEM_TEAM_INVALID, "a team that could not be made");
    shmem_team_destroy(teams[made - 1]);
    CHECK_INT(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, pes, NULL, 0, &one), 0);
    shmem_team_destroy(one);
    while (--made > 0) {
        shmem_team_destroy(teams[made - 1]);
    }
    CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, pes + 1, NULL, 0, &one) != 0 &&
              one == SHMEM_TEAM_INVALID,
          "more members than there are PEs");
    CHECK_INT(shmem_team_my_pe(SHMEM_TEAM_INVALID), -1);
    CHECK_INT(shmem_team_n_pes(SHMEM_TEAM_SHARED), pes);
}

/* Rooted calls one after the other run ahead of each other; the data must not. */
static void test_flood(void)
{
    static long value, got;
    for (long k = 0; k < 500; k++) {
        if (me == 0) {
            value = k;
        }
        shmem_long_broadcast(SHMEM_TEAM_WORLD, &got, &value, 1, 0);
        CHECK_INT(got, k);
    }
    shmem_barrier_all();
}

/* PEs that were not in a group missed its rounds: begin again at the same number. */
static void next_stage(void)
{
    static uint64_t stage;
    shmem_barrier_all();
    round_number = ++stage * 100000;
}

int main(int argc, char **argv)
{
    pe_start(argc, argv);
    p_sync = shmem_calloc(SHMEM_SYNC_SIZE, sizeof(long));
    const group_t world = {SHMEM_TEAM_WORLD, 0, 1, pes, me, 0};
    const group_t shared = {SHMEM_TEAM_SHARED, 0, 1, pes, me, 0};
    const group_t all = {SHMEM_TEAM_INVALID, 0, 1, pes, me, 0};
    test_group(&world, true);
    next_stage();
    test_group(&shared, false);
    next_stage();
    test_group(&all, false);
    next_stage();
    if (me % 2 == 0 && pes > 2) {
        const group_t even = {SHMEM_TEAM_INVALID, 0, 2, (pes + 1) / 2, me / 2, 1};
        test_group(&even, false);
    }
    next_stage();
    if (me % 4 == 1 && pes > 1) { /* 1, 5, ...: every fourth */
        const group_t fourth = {SHMEM_TEAM_INVALID, 1, 4, (pes + 2) / 4, me / 4, 2};
        test_group(&fourth, false);
    }
    next_stage();
    test_split(0, 1, pes);
    next_stage();
    test_split(pes - 1, -1, pes);
    if (pes > 2) {
        next_stage();
        test_split(1, 2, pes / 2);
    }
    next_stage();
    test_grid(2);
    next_stage();
    test_grid(100);
    test_many_teams();
    test_flood();
    CHECK_INT(p_sync[0], SHMEM_SYNC_VALUE);
    shmem_finalize();
    return 0;
}
