/* See fuzz.h. */
#include "fuzz/fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "fuzz/seeds.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);

_Noreturn void fuzz_abort(const char *condition, const char *file, int line)
{
    fprintf(stderr, "%s:%d: not so: %s\n", file, line, condition);
    abort();
}

/* ---- seeds ---------------------------------------------------------------------------------- */

fuzz_corpus_t fuzz_corpus;

static void add(fuzz_inputs_t *inputs, const void *bytes, size_t size)
{
    inputs->at = realloc(inputs->at, (inputs->count + 1) * sizeof(*inputs->at));
    fuzz_input_t input = {.bytes = malloc(size > 0 ? size : 1), .size = size};
    CHECK(inputs->at != NULL && input.bytes != NULL);
    memcpy(input.bytes, bytes, size);
    inputs->at[inputs->count++] = input;
}

void fuzz_seed(const void *bytes, size_t size)
{
    add(&fuzz_corpus.seeds, bytes, size);
}

void fuzz_seed_text(const char *text)
{
    fuzz_seed(text, strlen(text));
}

void fuzz_seed_kind(uint8_t kind, const char *text)
{
    size_t length = strlen(text);
    uint8_t *bytes = malloc(length + 1);
    CHECK(bytes != NULL);
    bytes[0] = kind;
    memcpy(bytes + 1, text, length);
    fuzz_seed(bytes, length + 1);
    free(bytes);
}

void fuzz_word(const char *word)
{
    add(&fuzz_corpus.words, word, strlen(word));
}

static void free_inputs(fuzz_inputs_t *inputs)
{
    for (size_t i = 0; i < inputs->count; i++) {
        free(inputs->at[i].bytes);
    }
    free(inputs->at);
    *inputs = (fuzz_inputs_t){0};
}

void fuzz_forget(void)
{
    free_inputs(&fuzz_corpus.seeds);
    free_inputs(&fuzz_corpus.words);
}

static void write_words(const char *path)
{
    FILE *out = fopen(path, "we");
    CHECK(out != NULL);
    for (size_t i = 0; i < fuzz_corpus.words.count; i++) {
        fputc('"', out);
        for (size_t b = 0; b < fuzz_corpus.words.at[i].size; b++) {
            fprintf(out, "\\x%02x", fuzz_corpus.words.at[i].bytes[b]);
        }
        fputs("\"\n", out);
    }
    CHECK(fclose(out) == 0);
}

void fuzz_write_seeds(const char *folder)
{
    char path[WEFT_PATH_BYTES];
    fuzz_seeds();
    snprintf(path, sizeof(path), "%s/seeds", folder);
    CHECK(weft__folder_make(path) == WEFT_OK);
    for (size_t i = 0; i < fuzz_corpus.seeds.count; i++) {
        snprintf(path, sizeof(path), "%s/seeds/%03zu", folder, i);
        FILE *out = fopen(path, "we");
        CHECK(out != NULL);
        fwrite(fuzz_corpus.seeds.at[i].bytes, 1, fuzz_corpus.seeds.at[i].size, out);
        CHECK(fclose(out) == 0);
    }
    snprintf(path, sizeof(path), "%s/words.dict", folder);
    write_words(path);
    fuzz_forget();
}

/* libFuzzer calls it before anything else. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    if (*argc == 3 && strcmp((*argv)[1], "--seeds") == 0) {
        fuzz_write_seeds((*argv)[2]);
        exit(0);
    }
    return 0;
}

/* ---- for targets ---------------------------------------------------------------------------- */

uint8_t fuzz_byte(fuzz_rest_t *rest)
{
    if (rest->left == 0) {
        return 0;
    }
    rest->left--;
    return *rest->at++;
}

char *fuzz_text(fuzz_rest_t *rest, int end)
{
    const uint8_t *stop = rest->left > 0 && end >= 0 ? memchr(rest->at, end, rest->left) : NULL;
    size_t length = stop != NULL ? (size_t)(stop - rest->at) : rest->left;
    char *text = malloc(length + 1);
    CHECK(text != NULL);
    if (length > 0) {
        memcpy(text, rest->at, length);
    }
    text[length] = '\0';
    rest->at += length + (stop != NULL);
    rest->left -= length + (stop != NULL);
    return text;
}

int fuzz_lines(char *text, char **lines, int room)
{
    int count = 0;
    while (text != NULL && count < room - 1) {
        lines[count++] = strsep(&text, "\n");
    }
    lines[count] = NULL;
    return count;
}

const char *fuzz_file(const void *bytes, size_t size)
{
    static char path[64];
    static int fd = -1;
    if (fd < 0) {
        fd = memfd_create("fuzz", MFD_CLOEXEC);
        CHECK(fd >= 0);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    }
    CHECK(ftruncate(fd, (off_t)size) == 0 && pwrite(fd, bytes, size, 0) == (ssize_t)size);
    return path;
}

static char folder[256];
static pid_t folder_owner;

static void remove_folder(void)
{
    if (getpid() == folder_owner) {
        weft__path_remove(folder);
    }
}

const char *fuzz_folder(void)
{
    if (folder[0] == '\0') {
        const char *tmp = getenv("TMPDIR");
        tmp = tmp != NULL ? tmp : access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
        snprintf(folder, sizeof(folder), "%.200s/weft-fuzz-XXXXXX", tmp);
        CHECK(mkdtemp(folder) != NULL);
        folder_owner = getpid();
        atexit(remove_folder);
    }
    return folder;
}

const char *fuzz_path(const char *name)
{
    static char paths[16][WEFT_PATH_BYTES];
    static int turn;
    char *path = paths[turn++ % 16];
    snprintf(path, WEFT_PATH_BYTES, "%s/%s", fuzz_folder(), name);
    return path;
}

const char *fuzz_put(const char *name, const void *bytes, size_t size)
{
    const char *path = fuzz_path(name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    CHECK(fd >= 0 && write(fd, bytes, size) == (ssize_t)size && close(fd) == 0);
    return path;
}

FILE *fuzz_nowhere(void)
{
    static FILE *out;
    if (out == NULL) {
        out = fopen("/dev/null", "we");
        CHECK(out != NULL);
    }
    return out;
}
