/* OpenSHMEM program: the symmetric heap, global variables, pointers to others' memory, contexts. */
#include <sys/wait.h>
#include <unistd.h>

#include "symm/shmem/pe.h"

static int counter = 5;          /* .data */
static long large[1 << 18];      /* .bss, of several pages */
static const char text[] = "ro"; /* not symmetric */
static uint64_t round_number;

static void test_variables(void)
{
    int next = (me + 1) % pes, last = (me + pes - 1) % pes;
    CHECK_INT(counter, 5); /* as the program says, also after it was moved */
    shmem_barrier_all();
    shmem_int_atomic_add(&counter, me, next);
    shmem_long_p(&large[(1 << 18) - 1], me + 1, next);
    shmem_barrier_all();
    CHECK_INT(counter, 5 + last);
    CHECK_INT(large[(1 << 18) - 1], last + 1);
    *(long *)shmem_ptr(&large[9], next) = me + 77;
    shmem_barrier_all();
    CHECK_INT(large[9], last + 77);
}

/* A child has its own copy of the variables. */
static void test_fork(void)
{
    int status;
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (child == 0) {
        counter = 999;
        large[5] = 1;
        _exit(counter == 999 ? 0 : 1);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0, "status %d", status);
    CHECK(counter != 999 && large[5] == 0, "the child wrote to its parent's variables");
    shmem_barrier_all();
}

static void test_accessible(void)
{
    int on_stack;
    long *heap = shmem_malloc(sizeof(long));
    CHECK_INT(shmem_pe_accessible(pes - 1), 1);
    CHECK_INT(shmem_pe_accessible(pes), 0);
    CHECK_INT(shmem_pe_accessible(-1), 0);
    CHECK_INT(shmem_addr_accessible(heap, pes - 1), 1);
    CHECK_INT(shmem_addr_accessible(&counter, 0), 1);
    CHECK_INT(shmem_addr_accessible(&on_stack, 0), 0);
    CHECK_INT(shmem_addr_accessible(text, 0), 0);
    CHECK_INT(shmem_addr_accessible(heap, pes), 0);
    CHECK(shmem_ptr(heap, me) == heap && shmem_ptr(&counter, me) == &counter, "own memory moved");
    CHECK(shmem_ptr(&on_stack, 0) == NULL && shmem_ptr(heap, -1) == NULL, "not NULL");
    *heap = me + 3;
    shmem_barrier_all();
    for (int pe = 0; pe < pes; pe++) {
        CHECK_INT(*(long *)shmem_ptr(heap, pe), pe + 3);
        CHECK(shmem_team_ptr(SHMEM_TEAM_WORLD, heap, pe) == shmem_ptr(heap, pe), "team_ptr");
    }
    shmem_barrier_all();
    shmem_free(heap);
}

/* All PEs have it at the same distance from the heap's first block. */
static void check_same_offset(const char *first, const char *block)
{
    static long offset;
    offset = block - first;
    shmem_barrier_all();
    CHECK_INT(shmem_long_g(&offset, 0), offset);
    shmem_barrier_all();
}

static void fill(unsigned char *block, size_t bytes, uint64_t round)
{
    for (size_t i = 0; i < bytes; i++) {
        block[i] = (unsigned char)pe_value(me, round, i);
    }
}

static void check_filled(const unsigned char *block, size_t bytes, uint64_t round)
{
    for (size_t i = 0; i < bytes; i++) {
        CHECK_INT(block[i], (unsigned char)pe_value(me, round, i));
    }
}

/* Random calls; what lives keeps its contents. */
static void test_heap(void)
{
    enum { BLOCKS = 12, STEPS = 120 };
    unsigned char *blocks[BLOCKS] = {0}, *first = shmem_malloc(1);
    size_t bytes[BLOCKS] = {0};
    uint64_t rounds[BLOCKS] = {0};
    for (int step = 0; step < STEPS; step++) {
        round_number++;
        size_t b = pe_draw(round_number, 0, BLOCKS), size = 1 + pe_draw(round_number, 1, 9000);
        size_t what = pe_draw(round_number, 2, 4),
               align = (size_t)8 << pe_draw(round_number, 3, 14);
        if (blocks[b] != NULL && what == 0) {
            check_filled(blocks[b], bytes[b], rounds[b]);
            shmem_free(blocks[b]);
            blocks[b] = NULL;
            continue;
        }
        if (blocks[b] != NULL) {
            size_t kept = size < bytes[b] ? size : bytes[b];
            blocks[b] = shmem_realloc(blocks[b], size);
            CHECK(blocks[b] != NULL, "realloc of %zu", size);
            check_filled(blocks[b], kept, rounds[b]);
        } else if (what == 1) {
            blocks[b] = shmem_align(align, size);
            CHECK((uintptr_t)blocks[b] % align == 0, "%p is no multiple of %zu", (void *)blocks[b],
                  align);
        } else if (what == 2) {
            blocks[b] = shmem_calloc(1, size);
            for (size_t i = 0; i < size; i++) {
                CHECK_INT(blocks[b][i], 0);
            }
        } else {
            blocks[b] = shmem_malloc_with_hints(size, SHMEM_MALLOC_ATOMICS_REMOTE);
        }
        CHECK(blocks[b] != NULL, "no memory");
        check_same_offset((char *)first, (char *)blocks[b]);
        bytes[b] = size;
        rounds[b] = round_number;
        fill(blocks[b], size, round_number);
    }
    for (int b = 0; b < BLOCKS; b++) {
        if (blocks[b] != NULL) {
            check_filled(blocks[b], bytes[b], rounds[b]);
            shmem_free(blocks[b]);
        }
    }
    CHECK(shmem_malloc(0) == NULL && shmem_realloc(NULL, 0) == NULL, "nothing is something");
    shmem_free(NULL);
    CHECK(shmem_realloc(first, 0) == NULL, "not freed");
    unsigned char *old = shmalloc(10);
    old = shrealloc(old, 20);
    shfree(old);
    old = shmemalign(128, 10);
    CHECK((uintptr_t)old % 128 == 0, "shmemalign");
    shfree(old);
}

static void test_contexts(void)
{
    enum { MANY = 300 };
    shmem_ctx_t contexts[MANY], invalid = SHMEM_CTX_INVALID;
    shmem_team_t team;
    static int word;
    for (int i = 0; i < MANY; i++) {
        CHECK_INT(shmem_ctx_create(i % 8, &contexts[i]), 0);
        shmem_ctx_int_atomic_inc(contexts[i], &word, (me + i) % pes);
        shmem_ctx_fence(contexts[i]);
    }
    for (int i = 0; i < MANY; i++) {
        CHECK_INT(shmem_ctx_get_team(contexts[i], &team), 0);
        CHECK(team == SHMEM_TEAM_WORLD, "another team");
        shmem_ctx_destroy(contexts[i]);
    }
    shmem_ctx_destroy(invalid);
    shmem_ctx_quiet(invalid);
    CHECK(shmem_ctx_get_team(invalid, &team) != 0 && team == SHMEM_TEAM_INVALID,
          "a team of nothing");
    CHECK_INT(shmem_ctx_get_team(SHMEM_CTX_DEFAULT, &team), 0);
    CHECK(team == SHMEM_TEAM_WORLD, "another team");
    shmem_barrier_all();
    static int sum;
    shmem_int_sum_reduce(SHMEM_TEAM_WORLD, &sum, &word, 1);
    CHECK_INT(sum, MANY * pes);
}

static void test_info(void)
{
    int major, minor;
    char name[SHMEM_MAX_NAME_LEN];
    shmem_info_get_version(&major, &minor);
    CHECK(major == SHMEM_MAJOR_VERSION && minor == SHMEM_MINOR_VERSION, "%d.%d", major, minor);
    shmem_info_get_name(name);
    CHECK(strcmp(name, SHMEM_VENDOR_STRING) == 0, "%s", name);
    shmem_pcontrol(1);
    CHECK(_my_pe() == me && _num_pes() == pes, "old names");
}

int main(int argc, char **argv)
{
    pe_start(argc, argv);
    test_variables();
    test_fork();
    test_accessible();
    test_heap();
    test_contexts();
    test_info();
    return 0; /* exit finalizes, as it always did */
}
