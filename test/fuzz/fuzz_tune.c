/* Files of what was measured: thresholds of collectives (weft bench --tune) and choices of matrix
 * products.
 *
 *     kind[1]  0: name of a GPU, a new line, the file of thresholds; 1: the file of a choice
 *
 * reads: src/comm/cuda/tune.c src/kernel/cuda/choices.c
 * besides: complain find_path find_folder make_folder_of put_file */
#include "fuzz/fuzz.h"

#include <dirent.h>
#include <sys/stat.h>

#include "base/log.h"
#include "comm/cuda/tune.h"
#include "kernel/cuda/choices.h"

const long fuzz_runs = 4000;

#define KEY "a key of some product"

typedef struct choice {
    uint64_t words[4];
} choice_t;

static char choice_name[300]; /* of the file of KEY, under the folder */

static void start(void)
{
    struct dirent *entry;
    choice_t choice = {{1, 2, 3, 4}};
    weft__log_set_level("error"); /* it warns of lines that make no sense */
    setenv("WEFT_LOG", "error", 1);
    setenv("WEFT_TUNE_FILE", fuzz_path("tune"), 1);
    setenv("WEFT_MATMUL_CHOICES", fuzz_path("products"), 1);
    weft__choice_offer(KEY, sizeof(KEY), &choice, sizeof(choice));
    DIR *dir = opendir(fuzz_path("products"));
    CHECK(dir != NULL);
    while ((entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] != '.') {
            snprintf(choice_name, sizeof(choice_name), "products/%s", entry->d_name);
        }
    }
    closedir(dir);
    CHECK(choice_name[0] != '\0');
}

static void read_tune(const char *gpu, const uint8_t *file, size_t size)
{
    weft_cuda_tune_t tune, again;
    char path[4096];
    fuzz_put("tune", file, size);
    weft__tune_read(gpu, 4, true, &tune);
    for (int c = 0; c < WEFT_COLL_COUNT; c++) {
        CHECK(tune.nccl_min[c] > 0);
    }
    /* a line of our own replaces those of the same key, and leaves the others alone */
    CHECK(weft__tune_write(gpu, 4, true, WEFT_COLL_ALLREDUCE, 77, WEFT_TUNE_NEVER, path,
                           sizeof(path)) == WEFT_OK);
    weft__tune_read(gpu, 4, true, &again);
    CHECK(strlen(gpu) >= 128 || (again.ll_most[WEFT_COLL_ALLREDUCE] == 77 &&
                                 again.nccl_min[WEFT_COLL_ALLREDUCE] == WEFT_TUNE_NEVER));
}

static void read_choice(const uint8_t *file, size_t size)
{
    choice_t choice = {{7, 7, 7, 7}}, offer = {{5, 6, 7, 8}}, stands = {{0}};
    fuzz_put(choice_name, file, size);
    bool found = weft__choice_find(KEY, sizeof(KEY), &choice, sizeof(choice));
    CHECK(found || choice.words[0] == 7);
    CHECK(!found || memcmp(file + sizeof(KEY), &choice, sizeof(choice)) == 0);
    weft__choice_offer(KEY, sizeof(KEY), &offer, sizeof(offer)); /* a damaged one gives way */
    CHECK(!found || memcmp(&offer, &choice, sizeof(choice)) == 0);
    CHECK(weft__choice_find(KEY, sizeof(KEY), &stands, sizeof(stands)));
    CHECK(memcmp(&offer, &stands, sizeof(stands)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_rest_t rest = {data, size};
    uint8_t kind = fuzz_byte(&rest);
    if (choice_name[0] == '\0') {
        start();
    }
    if (kind % 2 == 0) {
        char *gpu = fuzz_text(&rest, '\n');
        read_tune(gpu, rest.at, rest.left);
        free(gpu);
    } else {
        read_choice(rest.at, rest.left);
    }
    return 0;
}

void fuzz_seeds(void)
{
    static const char *const words[] = {"NVIDIA_H200 4 shared ", " ll ", " nccl ", "distinct", "0"};
    char file[128];
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        fuzz_word(words[i]);
    }
    for (int c = 0; c < WEFT_COLL_COUNT; c++) {
        fuzz_word(weft__coll_info[c].name);
    }
    if (choice_name[0] == '\0') {
        start();
    }
    fuzz_seed_kind(0, "NVIDIA H200\nNVIDIA_H200 4 shared allreduce ll 65536 nccl 0\n"
                      "NVIDIA_H200 8 distinct broadcast ll 4096 nccl 1048576\n");
    fuzz_seed_kind(0, "NVIDIA H200\nNVIDIA_H200 4 shared allgather ll x nccl 0\nhello\n");
    FILE *in = fopen(fuzz_path(choice_name), "re");
    CHECK(in != NULL);
    file[0] = 1;
    size_t count = fread(file + 1, 1, sizeof(file) - 1, in);
    fclose(in);
    fuzz_seed(file, 1 + count);
}
