/* Runs a fuzz target without libFuzzer, with any compiler: the cases of earlier bugs, the seeds,
 * and a fixed number of mutations of both, the same in every run. A child does that, and its parent
 * shows the input that ended it.
 *
 *     fuzz_<reader> [FILE or FOLDER]...     only these, once each
 *     WEFT_FUZZ_RUNS=N                      so many mutations */
#include <dirent.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/rng.h"
#include "fuzz/fuzz.h"
#include "fuzz/seeds.h"

enum { ROOM = 1 << 16 };

/* The input that is being read, where the parent sees it. */
typedef struct shown {
    size_t size;
    uint8_t bytes[ROOM];
} shown_t;

static shown_t *shown;
static uint64_t draws;

static uint32_t draw(size_t below)
{
    return (uint32_t)(weft__rng_at(20, draws++) % below);
}

static void run_one(const uint8_t *bytes, size_t size)
{
    shown->size = size < ROOM ? size : ROOM;
    memcpy(shown->bytes, bytes, shown->size);
    /* a copy of exactly that size, so that a sanitizer sees one byte too many */
    uint8_t *copy = malloc(size > 0 ? size : 1);
    CHECK(copy != NULL);
    memcpy(copy, bytes, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

/* ---- mutations ------------------------------------------------------------------------------ */

static size_t insert(uint8_t *bytes, size_t size, size_t at, const uint8_t *what, size_t count)
{
    if (count > ROOM - size) {
        return size;
    }
    memmove(bytes + at + count, bytes + at, size - at);
    memcpy(bytes + at, what, count);
    return size + count;
}

/* Flip, replace, insert, remove, repeat or cut. */
static size_t mutate(uint8_t *bytes, size_t size)
{
    static const uint8_t telling[] = {0, 1, 0x7f, 0x80, 0xff, '=', '-', '0', '9', '.'};
    size_t at = size > 0 ? draw(size) : 0;
    uint8_t random = (uint8_t)draw(256);
    const fuzz_inputs_t *words = &fuzz_corpus.words;
    switch (size > 0 ? draw(7) : 2) {
    case 0:
        bytes[at] ^= (uint8_t)(1u << draw(8));
        return size;
    case 1:
        bytes[at] = telling[draw(sizeof(telling))];
        return size;
    case 2:
        return insert(bytes, size, at, &random, 1);
    case 3: {
        size_t count = 1 + draw(size - at < 16 ? size - at : 16);
        memmove(bytes + at, bytes + at + count, size - at - count);
        return size - count;
    }
    case 4: {
        static uint8_t piece[ROOM / 4]; /* what it is inserted into moves */
        size_t count = 1 + draw(size - at);
        count = count < sizeof(piece) ? count : 1;
        memcpy(piece, bytes + at, count);
        return insert(bytes, size, draw(size), piece, count);
    }
    case 5:
        if (words->count > 0) {
            const fuzz_input_t *word = &words->at[draw(words->count)];
            return insert(bytes, size, at, word->bytes, word->size);
        }
        return size;
    default:
        return draw(4) == 0 ? at : size;
    }
}

static void run_mutations(long runs)
{
    static uint8_t bytes[ROOM];
    for (long run = 0; run < runs; run++) {
        const fuzz_input_t *seed = &fuzz_corpus.seeds.at[draw(fuzz_corpus.seeds.count)];
        size_t size = seed->size < ROOM ? seed->size : ROOM;
        memcpy(bytes, seed->bytes, size);
        for (uint32_t i = 1 + draw(6); i > 0; i--) {
            size = mutate(bytes, size);
        }
        run_one(bytes, size);
    }
}

/* ---- files ---------------------------------------------------------------------------------- */

typedef void take_t(const uint8_t *bytes, size_t size);

static void keep(const uint8_t *bytes, size_t size)
{
    fuzz_seed(bytes, size);
}

/* Files of a folder in any order; how many there were. */
static long each_file(const char *path, take_t *take)
{
    char inner[WEFT_PATH_BYTES], *text;
    size_t size;
    long count = 0;
    bool file;
    DIR *dir = opendir(path);
    if (dir == NULL && weft__is_file(path, &file) == WEFT_OK && file) {
        CHECK(weft__file_read(path, &text, &size) == WEFT_OK);
        take((uint8_t *)text, size);
        free(text);
        return 1;
    }
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] != '.' && weft__path_join(inner, path, entry->d_name) == WEFT_OK) {
            count += each_file(inner, take);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return count;
}

/* The inputs that once found something: test/fuzz/cases/<reader>. */
static long add_cases(const char *program)
{
    char path[WEFT_PATH_BYTES];
    const char *source = getenv("WEFT_SOURCE"), *slash = strrchr(program, '/');
    const char *name = strstr(slash != NULL ? slash : program, "fuzz_");
    if (source == NULL || name == NULL) {
        return 0;
    }
    snprintf(path, sizeof(path), "%s/test/fuzz/cases/%s", source, name + strlen("fuzz_"));
    return each_file(path, keep);
}

static void run_all(int argc, char **argv)
{
    long count = 0;
    for (int i = 1; i < argc; i++) {
        count += each_file(argv[i], run_one);
    }
    if (argc > 1) {
        printf("%ld inputs\n", count);
        return;
    }
    const char *asked = getenv("WEFT_FUZZ_RUNS");
    long runs = asked != NULL ? strtol(asked, NULL, 10) : fuzz_runs;
    fuzz_seeds();
    long cases = add_cases(argv[0]);
    for (size_t i = 0; i < fuzz_corpus.seeds.count; i++) {
        run_one(fuzz_corpus.seeds.at[i].bytes, fuzz_corpus.seeds.at[i].size);
    }
    run_mutations(runs);
    printf("%zu seeds, %ld of them cases of earlier bugs, and %ld mutations\n",
           fuzz_corpus.seeds.count, cases, runs);
    fuzz_forget();
}

static void show(void)
{
    fprintf(stderr, "input of %zu bytes:", shown->size);
    for (size_t i = 0; i < shown->size; i++) {
        fprintf(stderr, "%s%02x", i % 32 == 0 ? "\n" : " ", shown->bytes[i]);
    }
    fprintf(stderr, "\n");
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--seeds") == 0) {
        fuzz_write_seeds(argv[2]);
        return 0;
    }
    shown = mmap(NULL, sizeof(*shown), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shown != MAP_FAILED);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        run_all(argc, argv);
        exit(0); /* with what is to be done at the end: folders are removed, leaks are found */
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    if (status != 0) {
        show();
        return 1;
    }
    return 0;
}
