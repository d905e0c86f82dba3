/* OpenSHMEM program: put, get and their relatives, of every type and size, in the heap and in
 * global variables, on the default context and on one of a team that counts backwards. */
#include "symm/shmem/pe.h"
#include "symm/shmem/state.h"

#define ROOM 512

static shmem_ctx_t ctx; /* of a team in which PE i is number pes - 1 - i */
static uint64_t signals[4];
static uint64_t round_number;

/* The number of PE `pe` in the team of `ctx`. */
static int backwards(int pe)
{
    return pes - 1 - pe;
}

static void expect_signal(uint64_t *signal, uint64_t value)
{
    CHECK_INT(shmem_signal_wait_until(signal, SHMEM_CMP_EQ, value), value);
    CHECK_INT(shmem_signal_fetch(signal), value);
    *signal = 0;
    shmem_barrier_all();
}

#define FILL(array, type)                                                                          \
    for (size_t i = 0; i < ROOM; i++) {                                                            \
        (array)[i] = PE_VALUE(type, me, round_number, i);                                          \
    }
#define CLEAR(array)                                                                               \
    for (size_t i = 0; i < ROOM; i++) {                                                            \
        (array)[i] = 121;                                                                          \
    }                                                                                              \
    shmem_barrier_all();

/* Elements to + k * to_stride, k < count, are those of `pe` from + k * from_stride; nothing
 * else. */
#define EXPECT(array, type, pe, to, to_stride, from, from_stride, count)                           \
    shmem_barrier_all();                                                                           \
    for (size_t i = 0, k = 0; i < ROOM; i++) {                                                     \
        type wanted = 121;                                                                         \
        if (k < (count) && i == (to) + k * (to_stride)) {                                          \
            wanted = PE_VALUE(type, pe, round_number, (from) + k * (from_stride));                 \
            k++;                                                                                   \
        }                                                                                          \
        CHECK((array)[i] == wanted, "element %zu of %zu: %Lg, not %Lg", i, (size_t)(count),        \
              (long double)(array)[i], (long double)wanted);                                       \
    }                                                                                              \
    shmem_barrier_all();

#define DEFINE_TEST(name, type)                                                                    \
    static type name##_static[ROOM], name##_source[ROOM];                                          \
    static void test_##name(type *dest)                                                            \
    {                                                                                              \
        type *source = name##_source, local[ROOM];                                                 \
        int next = (me + 1) % pes, last = (me + pes - 1) % pes;                                    \
        size_t at = pe_draw(++round_number, 0, 100), from = pe_draw(round_number, 1, 100);         \
        size_t n = pe_draw(round_number, 2, 300);                                                  \
        ptrdiff_t ds = 1 + (ptrdiff_t)pe_draw(round_number, 3, 5);                                 \
        ptrdiff_t ss = 1 + (ptrdiff_t)pe_draw(round_number, 4, 5);                                 \
        size_t ni = pe_draw(round_number, 5, 80);                                                  \
        FILL(source, type)                                                                         \
        CLEAR(dest)                                                                                \
        shmem_##name##_put(dest + at, source + from, n, next);                                     \
        EXPECT(dest, type, last, at, 1, from, 1, n)                                                \
        CLEAR(dest)                                                                                \
        shmem_ctx_##name##_put_nbi(ctx, dest + at, source + from, n, backwards(next));             \
        shmem_ctx_quiet(ctx);                                                                      \
        EXPECT(dest, type, last, at, 1, from, 1, n)                                                \
        CLEAR(dest)                                                                                \
        shmem_##name##_iput(dest + at, source + from, ds, ss, ni, next);                           \
        EXPECT(dest, type, last, at, (size_t)ds, from, (size_t)ss, ni)                             \
        CLEAR(dest)                                                                                \
        shmem_ctx_##name##_iput(ctx, dest, source, 1, 1, ni, backwards(next));                     \
        EXPECT(dest, type, last, 0, 1, 0, 1, ni)                                                   \
        CLEAR(local)                                                                               \
        shmem_##name##_get(local + at, source + from, n, next);                                    \
        EXPECT(local, type, next, at, 1, from, 1, n)                                               \
        CLEAR(local)                                                                               \
        shmem_ctx_##name##_get_nbi(ctx, local + at, source + from, n, backwards(next));            \
        shmem_ctx_quiet(ctx);                                                                      \
        EXPECT(local, type, next, at, 1, from, 1, n)                                               \
        CLEAR(local)                                                                               \
        shmem_ctx_##name##_iget(ctx, local + at, source + from, ds, ss, ni, backwards(last));      \
        EXPECT(local, type, last, at, (size_t)ds, from, (size_t)ss, ni)                            \
        CLEAR(dest)                                                                                \
        shmem_##name##_p(dest + at, source[from], next);                                           \
        EXPECT(dest, type, last, at, 1, from, 1, 1)                                                \
        CLEAR(dest)                                                                                \
        shmem_ctx_##name##_p(ctx, dest + at, source[from], backwards(last));                       \
        EXPECT(dest, type, next, at, 1, from, 1, 1)                                                \
        CHECK(shmem_##name##_g(source + at, next) == PE_VALUE(type, next, round_number, at), "g"); \
        CHECK(shmem_ctx_##name##_g(ctx, source + at, backwards(last)) ==                           \
                  PE_VALUE(type, last, round_number, at),                                          \
              "g on a context");                                                                   \
        CLEAR(dest)                                                                                \
        shmem_##name##_put_signal(dest + at, source + from, n, &signals[0], round_number,          \
                                  SHMEM_SIGNAL_SET, next);                                         \
        expect_signal(&signals[0], round_number);                                                  \
        EXPECT(dest, type, last, at, 1, from, 1, n)                                                \
        CLEAR(dest)                                                                                \
        shmem_ctx_##name##_put_signal_nbi(ctx, dest + at, source + from, n, &signals[1],           \
                                          round_number, SHMEM_SIGNAL_ADD, backwards(next));        \
        expect_signal(&signals[1], round_number);                                                  \
        EXPECT(dest, type, last, at, 1, from, 1, n)                                                \
        shmem_##name##_put(NULL, NULL, 0, next);                                                   \
    }
SHMEM_TYPES_RMA(DEFINE_TEST)

/* Sizes: bytes are bytes, so one test of the contiguous and the strided form is enough for each. */
#define DEFINE_SIZE_TEST(bits, bytes)                                                              \
    static void test_bits_##bits(unsigned char *dest)                                              \
    {                                                                                              \
        unsigned char *source = uchar_source, wanted[ROOM * 16];                                   \
        int next = (me + 1) % pes, last = (me + pes - 1) % pes;                                    \
        size_t n = 1 + pe_draw(++round_number, 0, ROOM / bytes / 4);                               \
        FILL(source, unsigned char)                                                                \
        memset(dest, 0, ROOM);                                                                     \
        memset(wanted, 0, sizeof(wanted));                                                         \
        shmem_barrier_all();                                                                       \
        if (round_number % 2) {                                                                    \
            shmem_put##bits(dest, source, n, next);                                                \
        } else {                                                                                   \
            shmem_ctx_put##bits##_signal(ctx, dest, source, n, &signals[2], 3, SHMEM_SIGNAL_SET,   \
                                         backwards(next));                                         \
            expect_signal(&signals[2], 3);                                                         \
        }                                                                                          \
        for (size_t i = 0; i < n * bytes; i++) {                                                   \
            wanted[i] = PE_VALUE(unsigned char, last, round_number, i);                            \
        }                                                                                          \
        shmem_barrier_all();                                                                       \
        CHECK(memcmp(dest, wanted, ROOM) == 0, "put" #bits " of %zu", n);                          \
        memset(dest, 0, ROOM);                                                                     \
        memset(wanted, 0, sizeof(wanted));                                                         \
        shmem_barrier_all();                                                                       \
        shmem_iput##bits(dest, source, 3, 2, n / 2, next);                                         \
        for (size_t i = 0; i < n / 2 * bytes; i++) {                                               \
            size_t element = i / bytes, byte = i % bytes;                                          \
            wanted[element * 3 * bytes + byte] = PE_VALUE(unsigned char, last, round_number,       \
                                                          element * 2 * bytes + byte);             \
        }                                                                                          \
        shmem_barrier_all();                                                                       \
        CHECK(memcmp(dest, wanted, ROOM) == 0, "iput" #bits " of %zu", n / 2);                     \
        shmem_get##bits##_nbi(wanted, source, n, last);                                            \
        shmem_iget##bits(wanted + ROOM, source, 1, 2, n / 2, last);                                \
        shmem_quiet();                                                                             \
        for (size_t i = 0; i < n * bytes; i++) {                                                   \
            CHECK_INT(wanted[i], PE_VALUE(unsigned char, last, round_number, i));                  \
        }                                                                                          \
        for (size_t i = 0; i < n / 2 * bytes; i++) {                                               \
            CHECK_INT(wanted[ROOM + i], PE_VALUE(unsigned char, last, round_number,                \
                                                 i / bytes * 2 * bytes + i % bytes));              \
        }                                                                                          \
        shmem_barrier_all();                                                                       \
    }
SHMEM_SIZES(DEFINE_SIZE_TEST)

/* Within one's own memory, forwards and backwards. */
static void test_overlap(unsigned char *block)
{
    static const struct {
        size_t to, from, bytes;
    } moves[] = {{5, 0, 40000}, {64, 0, 8192}, {0, 64, 8192}, {4096, 0, 30000}, {0, 7, 5000}};
    for (size_t m = 0; m < sizeof(moves) / sizeof(moves[0]); m++) {
        size_t to = moves[m].to, from = moves[m].from, bytes = moves[m].bytes;
        for (size_t i = 0; i < bytes; i++) {
            block[from + i] = (unsigned char)pe_value(me, round_number, i);
        }
        shmem_putmem(block + to, block + from, bytes, me);
        for (size_t i = 0; i < bytes; i++) {
            CHECK_INT(block[to + i], (unsigned char)pe_value(me, round_number, i));
        }
    }
}

/* Copies of all sizes around those where the way of copying changes, also to oneself. */
static void test_large(void)
{
    static const size_t sizes[] = {1,     4095,  4096,   4097,          32767,
                                   32768, 32769, 100000, (8 << 20) - 1, (8 << 20) + 77};
    size_t most = (8 << 20) + 4096;
    unsigned char *dest = shmem_malloc(most), *source = shmem_malloc(most);
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        size_t n = sizes[s], shift = pe_draw(++round_number, s, 70);
        shift = pe_draw(round_number, 100 + s, 2) ? shift : shift / 35 * 64; /* whole cache lines */
        int next = (me + (int)s) % pes, last = (me + pes * 10 - (int)s) % pes;
        for (size_t i = 0; i < n; i += i % 64 == 0 && n > 100000 ? 61 : 1) {
            source[i] = (unsigned char)pe_value(me, round_number, i);
        }
        memset(dest, 1, shift + 1);
        dest[shift + n] = 77;
        shmem_barrier_all();
        shmem_putmem(dest + shift, source, n, next);
        shmem_fence();
        shmem_barrier_all();
        for (size_t i = 0; i < n; i += i % 64 == 0 && n > 100000 ? 61 : 1) {
            CHECK_INT(dest[shift + i], (unsigned char)pe_value(last, round_number, i));
        }
        CHECK_INT(dest[shift + n], 77);
        memset(dest, 0, n);
        shmem_getmem(dest, source, n, next);
        CHECK_INT(dest[n - 1], shmem_uchar_g(source + n - 1, next));
        shmem_barrier_all();
    }
    test_overlap(source);
    shmem_free(source);
    shmem_free(dest);
}

/* Where the processor says that it copies short pieces fast, it is let. */
static void test_choice(void)
{
    char line[4096];
    bool intel = false, fast = false;
    FILE *file = fopen("/proc/cpuinfo", "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        intel |= strncmp(line, "vendor_id", 9) == 0 && strstr(line, "GenuineIntel") != NULL;
        fast |= strncmp(line, "flags", 5) == 0 && strstr(line, " fsrm") != NULL;
    }
    if (file != NULL) {
        fclose(file);
    }
    CHECK_INT(weft__shmem.copy_range > 0, intel && fast);
}

int main(int argc, char **argv)
{
    shmem_team_t team;
    pe_start(argc, argv);
    test_choice();
    CHECK_INT(shmem_team_split_strided(SHMEM_TEAM_WORLD, pes - 1, -1, pes, NULL, 0, &team), 0);
    CHECK_INT(shmem_team_create_ctx(team, SHMEM_CTX_SERIALIZED, &ctx), 0);
    void *heap = shmem_malloc(ROOM * 16);
    size_t turn = pe_draw(0, 0, 2); /* by turns, and another turn in another run */
#define RUN(name, type) test_##name(turn++ % 2 ? name##_static : heap);
    SHMEM_TYPES_RMA(RUN)
#define RUN_SIZE(bits, bytes) test_bits_##bits(turn++ % 2 ? uchar_static : heap);
    SHMEM_SIZES(RUN_SIZE)
    test_large();
    shmem_free(heap);
    shmem_ctx_destroy(ctx);
    shmem_team_destroy(team);
    shmem_finalize();
    return 0;
}
