/* The file of thresholds: written whole, read back, and never trusted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/settings.h"
#include "comm/cuda/tune.h"

static char folder[64], file[128];

static int open_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/weft-test-tune-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof(file), "%s/a/b/tune", folder);
    weft__settings_set("WEFT_TUNE_FILE", file);
    return 0;
}

static int close_folder(void **state)
{
    char command[256];
    (void)state;
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    return system(command);
}

static void write_line(const char *gpu, int ranks, bool shared, uint64_t lines, uint64_t nccl)
{
    char path[4096];
    assert_int_equal(
        weft__tune_write(gpu, ranks, shared, WEFT_COLL_ALLREDUCE, lines, nccl, path, sizeof(path)),
        WEFT_OK);
    assert_string_equal(path, file);
}

static void what_is_written_is_read(void **state)
{
    weft_cuda_tune_t tune;
    (void)state;
    write_line("A GPU", 8, true, 4096, WEFT_TUNE_NEVER);
    write_line("A GPU", 8, false, 1234, 5678);
    weft__tune_read("A GPU", 8, true, &tune);
    assert_int_equal(tune.ll_most[WEFT_COLL_ALLREDUCE], 4096);
    assert_true(tune.nccl_min[WEFT_COLL_ALLREDUCE] == WEFT_TUNE_NEVER);
    assert_int_equal(tune.ll_most[WEFT_COLL_BROADCAST], 0);
    weft__tune_read("A GPU", 8, false, &tune);
    assert_int_equal(tune.ll_most[WEFT_COLL_ALLREDUCE], 1234);
    assert_int_equal(tune.nccl_min[WEFT_COLL_ALLREDUCE], 5678);
    weft__tune_read("A GPU", 4, true, &tune);
    assert_int_equal(tune.ll_most[WEFT_COLL_ALLREDUCE], 0);
    weft__tune_read("A", 8, true, &tune);
    assert_int_equal(tune.ll_most[WEFT_COLL_ALLREDUCE], 0);
}

static void later_values_replace_earlier_ones(void **state)
{
    weft_cuda_tune_t tune;
    char line[256];
    int lines = 0;
    (void)state;
    write_line("A GPU", 2, true, 1, 2);
    write_line("B", 2, true, 3, 4);
    write_line("A GPU", 2, true, 5, 6);
    weft__tune_read("A GPU", 2, true, &tune);
    assert_int_equal(tune.ll_most[WEFT_COLL_ALLREDUCE], 5);
    weft__tune_read("B", 2, true, &tune);
    assert_int_equal(tune.ll_most[WEFT_COLL_ALLREDUCE], 3);
    FILE *f = fopen(file, "r");
    assert_non_null(f);
    while (fgets(line, sizeof(line), f)) {
        lines++;
    }
    fclose(f);
    assert_int_equal(lines, 2);
}

static void nonsense_is_skipped(void **state)
{
    weft_cuda_tune_t tune;
    (void)state;
    write_line("C", 2, true, 7, 8);
    FILE *f = fopen(file, "a");
    assert_non_null(f);
    fprintf(f, "C 2 shared allreduce ll many\nC 2 shared allreduce ll 1 nccl 2 3\n\nnoise\n");
    fclose(f);
    weft__tune_read("C", 2, true, &tune);
    assert_int_equal(tune.ll_most[WEFT_COLL_ALLREDUCE], 7);
    assert_int_equal(tune.nccl_min[WEFT_COLL_ALLREDUCE], 8);
}

static void what_cannot_be_written_is_told(void **state)
{
    char path[4096];
    (void)state;
    weft__settings_set("WEFT_TUNE_FILE", "/proc/weft/tune");
    assert_int_equal(weft__tune_write("D", 2, true, WEFT_COLL_ALLREDUCE, 1, 2, path, sizeof(path)),
                     WEFT_ERR_NOT_FOUND);
    assert_non_null(strstr(weft_last_error(), "/proc/weft"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_written_is_read, open_folder, close_folder),
        cmocka_unit_test_setup_teardown(later_values_replace_earlier_ones, open_folder,
                                        close_folder),
        cmocka_unit_test_setup_teardown(nonsense_is_skipped, open_folder, close_folder),
        cmocka_unit_test_setup_teardown(what_cannot_be_written_is_told, open_folder, close_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
