/* ctest: tsan timeout=60 */
/* Checkpoints: there and back, in the background, pruned, damaged, on a full disk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/file.h"
#include "base/fixture.h"
#include "base/rng.h"
#include "train/checkpoint_cases.h"
#include "train/checkpoint_parts.h"

static small_run_t run;

static int begin(void **state)
{
    (void)state;
    small_run_init(&run, 40000);
    return 0;
}

static int end(void **state)
{
    (void)state;
    small_run_free(&run);
    return 0;
}

static weft_checkpoint_writer_t *open_writer(const char *folder, int keep, bool wait)
{
    const weft_checkpoint_options_t options = {.keep = keep, .wait = wait};
    weft_checkpoint_writer_t *writer;
    if (weft__checkpoint_writer_open(folder, &options, &writer) != WEFT_OK) {
        fail_msg("%s", weft_last_error());
    }
    return writer;
}

static void check_load(const char *path, uint64_t step)
{
    weft_loaded_t loaded;
    if (weft__checkpoint_load(path, WEFT_LOAD_ALL, &loaded) != WEFT_OK) {
        fail_msg("%s", weft_last_error());
    }
    assert_int_equal(loaded.state.step, step);
    assert_true(small_run_same(&run, &loaded));
    weft__checkpoint_unload(&loaded);
}

static bool there(const char *folder, const char *name)
{
    struct stat about;
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return lstat(path, &about) == 0;
}

static void saved_is_what_was_when_save_returned(void **state)
{
    (void)state;
    const char *folder = in_scratch("async");
    weft_checkpoint_writer_t *writer = open_writer(folder, 2, false);
    for (uint64_t step = 10; step <= 50; step += 10) {
        bool begun = false;
        small_run_set(&run, step);
        assert_int_equal(weft__checkpoint_save(writer, &run.checkpoint, &begun), WEFT_OK);
        assert_true(begun);
        small_run_set(&run, step + 1); /* training goes on at once */
    }
    weft_status_t status = weft__checkpoint_poll(writer);
    assert_true(status == WEFT_OK || status == WEFT_PENDING);
    assert_int_equal(weft__checkpoint_wait(writer), WEFT_OK);
    weft_checkpoint_times_t times;
    weft__checkpoint_times(writer, &times);
    assert_int_equal(times.step, 50);
    assert_true(times.bytes > 3 * 160000 && times.written_s > 0);
    assert_int_equal(weft__checkpoint_writer_close(writer), WEFT_OK);
    check_load(folder, 50);
    check_load(in_scratch("async/step-000040"), 40);
    check_load(in_scratch("async/latest"), 50);
    assert_true(!there(folder, "step-000030") && !there(folder, ".step-000030.old"));
    assert_true(there(folder, "step-000050/config.json"));
    assert_true(!there(folder, "step-000050/tokenizer.json"));
}

typedef struct reader {
    const char *data;
    uint64_t expected; /* where the next read must begin */
    int fail_at;       /* which read fails; 0: none */
    int reads;
} reader_t;

static weft_status_t read_source(void *ctx, uint64_t offset, void *out, size_t bytes)
{
    reader_t *reader = ctx;
    assert_int_equal(offset, reader->expected);
    reader->expected = offset + bytes;
    memcpy(out, reader->data + offset, bytes);
    return ++reader->reads == reader->fail_at ? WEFT_ERR_RANK_DEAD : WEFT_OK;
}

static void tensors_may_be_read_by_a_function(void **state)
{
    (void)state;
    for (int wait = 0; wait < 2; wait++) {
        small_run_t large; /* more than one piece */
        small_run_init(&large, 3 << 19);
        small_run_set(&large, 7);
        reader_t reader = {.data = (const char *)large.weights};
        const char *folder = wait ? in_scratch("read-wait") : in_scratch("read");
        weft_checkpoint_writer_t *writer = open_writer(folder, 0, wait);
        large.model[0].data = NULL;
        large.model[0].read = read_source;
        large.model[0].ctx = &reader;
        assert_int_equal(weft__checkpoint_save(writer, &large.checkpoint, NULL), WEFT_OK);
        assert_int_equal(reader.expected, (uint64_t)(3 << 19) * sizeof(float));
        assert_int_equal(weft__checkpoint_wait(writer), WEFT_OK);
        large.model[0].data = large.weights;
        weft_loaded_t loaded;
        assert_int_equal(weft__checkpoint_load(folder, WEFT_LOAD_ALL, &loaded), WEFT_OK);
        assert_true(small_run_same(&large, &loaded));
        weft__checkpoint_unload(&loaded);

        /* a source that fails leaves no trace */
        reader = (reader_t){.data = (const char *)large.weights, .fail_at = 1};
        large.model[0].data = NULL;
        bool begun = true;
        small_run_set(&large, 8);
        assert_int_equal(weft__checkpoint_save(writer, &large.checkpoint, &begun),
                         WEFT_ERR_RANK_DEAD);
        assert_false(begun);
        assert_int_equal(weft__checkpoint_writer_close(writer), WEFT_OK);
        assert_true(!there(folder, "step-000008") && !there(folder, ".step-000008.tmp"));
        small_run_free(&large);
    }
}

static void a_step_can_be_written_again(void **state)
{
    (void)state;
    const char *folder = in_scratch("again");
    weft_checkpoint_writer_t *writer = open_writer(folder, 2, true);
    for (uint64_t step = 1; step <= 4; step++) {
        small_run_set(&run, step);
        assert_int_equal(weft__checkpoint_save(writer, &run.checkpoint, NULL), WEFT_OK);
    }
    /* continued from step 2: step 3 takes the place of the old one, 4 stays until it is written
     * again */
    small_run_set(&run, 3);
    run.checkpoint.state.samples = 999;
    assert_int_equal(weft__checkpoint_save(writer, &run.checkpoint, NULL), WEFT_OK);
    weft_loaded_t loaded;
    assert_int_equal(weft__checkpoint_load(folder, WEFT_LOAD_ALL, &loaded), WEFT_OK);
    assert_int_equal(loaded.state.step, 3);
    assert_int_equal(loaded.state.samples, 999);
    weft__checkpoint_unload(&loaded);
    assert_true(there(folder, "step-000004") && !there(folder, ".step-000003.tmp"));
    assert_int_equal(weft__checkpoint_writer_close(writer), WEFT_OK);
}

/* What is in the way of removing step 1 goes when the writer closes, and step 1 with the next
 * checkpoint. */
static void a_checkpoint_is_saved_although_an_older_one_stays(void **state)
{
    (void)state;
    const char *folder = in_scratch("stays");
    weft_checkpoint_writer_t *writer = open_writer(folder, 1, false);
    weft_checkpoint_times_t times;
    for (uint64_t step = 1; step <= 3; step++) {
        small_run_set(&run, step);
        assert_int_equal(weft__checkpoint_save(writer, &run.checkpoint, NULL), WEFT_OK);
        weft_status_t status = weft__checkpoint_wait(writer);
        weft__checkpoint_times(writer, &times);
        assert_int_equal(times.step, step);
        assert_int_equal(status, step == 2 ? WEFT_ERR_SYSTEM : WEFT_OK);
        if (step == 1) {
            write_file(in_scratch("stays/.step-000001.old"), "x", 1);
        } else if (step == 2) {
            assert_true(error_says("step-000002 is saved, but an older checkpoint is not removed"));
            assert_true(there(folder, "step-000001"));
            check_load(folder, 2);
            assert_int_equal(weft__checkpoint_writer_close(writer), WEFT_OK);
            assert_true(!there(folder, ".step-000001.old"));
            writer = open_writer(folder, 1, false);
        }
    }
    assert_int_equal(weft__checkpoint_writer_close(writer), WEFT_OK);
    check_load(folder, 3);
    assert_true(!there(folder, "step-000001") && !there(folder, "step-000002"));
}

static void one_writer_per_folder(void **state)
{
    (void)state;
    const char *folder = in_scratch("locked");
    const weft_checkpoint_options_t options = {.keep = 1};
    weft_checkpoint_writer_t *writer = open_writer(folder, 1, false), *second;
    assert_int_equal(weft__checkpoint_writer_open(folder, &options, &second), WEFT_ERR_REFUSED);
    assert_true(error_says("another process"));
    weft__checkpoint_writer_close(writer);
    /* what a killed one left is removed */
    weft__folder_make(in_scratch("locked/.step-000009.tmp/deep"));
    writer = open_writer(folder, 1, false);
    assert_false(there(folder, ".step-000009.tmp"));
    weft__checkpoint_writer_close(writer);
}

/* Change byte `at` of a file, or with at < 0 cut off -at bytes. */
static void damage(const char *path, long at)
{
    char *text;
    size_t size;
    assert_int_equal(weft__file_read(path, &text, &size), WEFT_OK);
    if (at >= 0) {
        text[(size_t)at % size] ^= 0x10;
    }
    write_file(path, text, at >= 0 ? size : size - (size_t)-at);
    free(text);
}

static void damage_is_refused_with_file_and_reason(void **state)
{
    (void)state;
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors", "config.json",
                                        "trainer.json", "residuals.safetensors"};
    const char *folder = in_scratch("damaged");
    for (uint64_t i = 0; i < 20; i++) {
        const char *file = files[i % 5];
        long at = i < 5 ? -(long)(1 + i) : (long)(weft__rng_at(1, i) >> 20);
        weft_loaded_t loaded;
        char path[4096];
        weft__path_remove(folder);
        weft_checkpoint_writer_t *writer = open_writer(folder, 0, true);
        for (uint64_t step = 100; step <= 200; step += 100) {
            small_run_set(&run, step);
            assert_int_equal(weft__checkpoint_save(writer, &run.checkpoint, NULL), WEFT_OK);
        }
        weft__checkpoint_writer_close(writer);
        snprintf(path, sizeof(path), "%s/step-000200/%s", folder, file);
        damage(path, at);
        assert_int_equal(weft__checkpoint_load(folder, WEFT_LOAD_ALL, &loaded), WEFT_ERR_INVALID);
        assert_true(error_says(file));
        assert_true(
            error_says(at < 0 && strcmp(file, "trainer.json") != 0 ? "truncated" : "damaged"));
        assert_true(error_says("step-000100 is an older one"));
        check_load(in_scratch("damaged/step-000100"), 100);
    }
    weft_loaded_t loaded;
    unlink(in_scratch("damaged/step-000200/trainer.json"));
    assert_int_equal(weft__checkpoint_load(folder, WEFT_LOAD_ALL, &loaded), WEFT_ERR_NOT_FOUND);
    assert_true(error_says("step-000100 is an older one"));
    assert_int_equal(weft__checkpoint_load(in_scratch("nowhere"), WEFT_LOAD_ALL, &loaded),
                     WEFT_ERR_NOT_FOUND);
    weft__folder_make(in_scratch("bare"));
    assert_int_equal(weft__checkpoint_load(in_scratch("bare"), WEFT_LOAD_ALL, &loaded),
                     WEFT_ERR_NOT_FOUND);
}

static void folders_of_others_have_weights_only(void **state)
{
    (void)state;
    weft_loaded_t loaded;
    char *text;
    size_t size;
    weft__folder_make(in_scratch("foreign"));
    assert_int_equal(weft__file_read(fixture("train", "package.safetensors"), &text, &size),
                     WEFT_OK);
    write_file(in_scratch("foreign/model.safetensors"), text, size);
    free(text);
    assert_int_equal(weft__checkpoint_load(in_scratch("foreign"), WEFT_LOAD_ALL, &loaded), WEFT_OK);
    assert_true(loaded.foreign && loaded.optimizer == NULL && loaded.state.step == 0);
    assert_non_null(weft__tensors_find(loaded.model, "wte.weight"));
    weft__checkpoint_unload(&loaded);
}

/* ---- full disks ----------------------------------------------------------------------------- */

/* Save step 1, let the disk be full, save 2 (fails), make room, save 3. Exits with the line that
 * failed. */
static void fill_and_save(const char *folder, void (*fill)(bool full))
{
#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "line %d: not so: %s (%s)\n", __LINE__, #condition,                    \
                    weft_last_error());                                                            \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)
    weft_checkpoint_writer_t *writer = open_writer(folder, 1, false);
    weft_loaded_t loaded;
    bool begun = false;
    small_run_set(&run, 1);
    MUST(weft__checkpoint_save(writer, &run.checkpoint, NULL) == WEFT_OK);
    MUST(weft__checkpoint_wait(writer) == WEFT_OK);
    fill(true);
    small_run_set(&run, 2);
    MUST(weft__checkpoint_save(writer, &run.checkpoint, NULL) == WEFT_OK);
    while (weft__checkpoint_poll(writer) == WEFT_PENDING) {
        usleep(1000);
    }
    MUST(strstr(weft_last_error(), "step-000002 was not saved: ") != NULL);
    MUST(weft__checkpoint_poll(writer) == WEFT_OK); /* told once */
    MUST(weft__checkpoint_load(folder, WEFT_LOAD_ALL, &loaded) == WEFT_OK &&
         loaded.state.step == 1);
    MUST(small_run_same(&run, &loaded));
    weft__checkpoint_unload(&loaded);
    MUST(!there(folder, ".step-000002.tmp"));

    small_run_set(&run, 3); /* the next one is told of the failure of the one before, and goes on */
    MUST(weft__checkpoint_save(writer, &run.checkpoint, NULL) == WEFT_OK);
    fill(false);
    small_run_set(&run, 4);
    weft_status_t status = weft__checkpoint_save(writer, &run.checkpoint, &begun);
    MUST(status == WEFT_OK || strstr(weft_last_error(), "step-000003 was not saved: ") != NULL);
    MUST(begun && weft__checkpoint_writer_close(writer) == WEFT_OK);
    MUST(weft__checkpoint_load(folder, WEFT_LOAD_ALL, &loaded) == WEFT_OK &&
         loaded.state.step == 4);
    MUST(small_run_same(&run, &loaded));
    weft__checkpoint_unload(&loaded);
}

static void limit_file_size(bool full)
{
    struct rlimit limit = {full ? 100000 : RLIM_INFINITY, RLIM_INFINITY};
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
}

static char tmpfs[4096];

static void fill_tmpfs(bool full)
{
    char path[5000];
    snprintf(path, sizeof(path), "%s/ballast", tmpfs);
    if (full) {
        int fd = open(path, O_WRONLY | O_CREAT, 0600);
        static char zeros[65536];
        while (write(fd, zeros, sizeof(zeros)) > 0) {
        }
        close(fd);
        /* leave some: enough by the look of it for the first file, not for all */
        truncate(path, 0);
        fd = open(path, O_WRONLY);
        if (posix_fallocate(fd, 0, (2 << 20) - 900000) != 0) {
            perror(path);
        }
        close(fd);
    } else {
        unlink(path);
    }
}

static void in_a_child(void (*body)(void))
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        body();
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void limited_body(void)
{
    fill_and_save(in_scratch("limited"), limit_file_size);
}

static void tmpfs_body(void)
{
    snprintf(tmpfs, sizeof(tmpfs), "%s", in_scratch("tmpfs"));
    weft__folder_make(tmpfs);
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", tmpfs, "tmpfs", 0, "size=2m") != 0) {
        fprintf(stderr, "left out: no file system may be mounted here to be filled\n");
        return;
    }
    char folder[5000];
    snprintf(folder, sizeof(folder), "%s/run", tmpfs);
    fill_and_save(folder, fill_tmpfs);
}

/* The weights would fit, what the optimizer knows would not: nothing of it is written. */
static void short_body(void)
{
    snprintf(tmpfs, sizeof(tmpfs), "%s", in_scratch("short"));
    weft__folder_make(tmpfs);
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", tmpfs, "tmpfs", 0, "size=320k") != 0) {
        fprintf(stderr, "left out: no file system may be mounted here to be filled\n");
        return;
    }
    weft_checkpoint_writer_t *writer = open_writer(tmpfs, 1, true);
    weft_status_t status = weft__checkpoint_save(writer, &run.checkpoint, NULL);
    status = status == WEFT_OK ? weft__checkpoint_wait(writer) : status;
    MUST(status != WEFT_OK && strstr(weft_last_error(), "no room in") != NULL);
    MUST(!there(tmpfs, "latest"));
    weft__checkpoint_writer_close(writer);
}

static void a_full_disk_leaves_the_one_before(void **state)
{
    (void)state;
    in_a_child(limited_body);
    in_a_child(tmpfs_body);
    in_a_child(short_body);
}

/* Write `crc` for the checksum fedcba99 of the only file in the list, and seal the list again. */
static weft_status_t read_with_crc(const char *folder, const char *crc)
{
    static const char self[] = "\"self_crc32c\": \"";
    weft_manifest_t manifest = {.state = {.loss_scale = 1}, .count = 1};
    manifest.files[0] = (weft_listed_file_t){.name = "a", .bytes = 3, .crc = 0xfedcba99};
    char *path = strdup(in_scratch("crc/" WEFT_CHECKPOINT_STATE)), *text, sealed[16];
    size_t size;
    assert_int_equal(weft__manifest_write(folder, &manifest), WEFT_OK);
    assert_int_equal(weft__file_read(path, &text, &size), WEFT_OK);
    char *at = strstr(text, "fedcba99"), *seal = strstr(text, self);
    assert_true(at != NULL && seal != NULL);
    memcpy(at, crc, 8);
    memcpy(seal + sizeof(self) - 1, "00000000", 8);
    snprintf(sealed, sizeof(sealed), "%08x", weft__crc32c(0, text, size));
    memcpy(seal + sizeof(self) - 1, sealed, 8);
    assert_int_equal(weft__file_replace(path, text, size), WEFT_OK);
    free(text);
    free(path);
    weft_status_t status = weft__manifest_read(folder, &manifest);
    if (status == WEFT_OK) {
        assert_int_equal(manifest.files[0].crc, 0xfedcba99);
    }
    free(manifest.settings);
    return status;
}

static void checksums_are_eight_digits(void **state)
{
    (void)state;
    static const char *const bad[] = {"-1234567", "+edcba99", " edcba99", "0xdcba99", "fedcba9g"};
    char *folder = strdup(in_scratch("crc"));
    assert_int_equal(mkdir(folder, 0755), 0);
    assert_int_equal(read_with_crc(folder, "fedcba99"), WEFT_OK);
    assert_int_equal(read_with_crc(folder, "FEDCBA99"), WEFT_OK);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(read_with_crc(folder, bad[i]), WEFT_ERR_INVALID);
        assert_non_null(strstr(weft_last_error(), "is damaged"));
    }
    free(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saved_is_what_was_when_save_returned),
        cmocka_unit_test(tensors_may_be_read_by_a_function),
        cmocka_unit_test(a_step_can_be_written_again),
        cmocka_unit_test(a_checkpoint_is_saved_although_an_older_one_stays),
        cmocka_unit_test(one_writer_per_folder),
        cmocka_unit_test(damage_is_refused_with_file_and_reason),
        cmocka_unit_test(checksums_are_eight_digits),
        cmocka_unit_test(folders_of_others_have_weights_only),
        cmocka_unit_test(a_full_disk_leaves_the_one_before),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
