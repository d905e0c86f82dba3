/* Files: whole, mapped, replaced at once, removed with all that is in them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/fixture.h"

static void read_and_mapped_are_the_same(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 4095, 4096, 100000};
    for (size_t i = 0; i < 5; i++) {
        char *bytes = malloc(sizes[i] + 1), *text;
        size_t size = 99;
        weft_mapped_t mapped;
        memset(bytes, 'a' + (int)i, sizes[i] + 1);
        assert_int_equal(weft__file_replace(in_scratch("f"), bytes, sizes[i]), WEFT_OK);
        assert_int_equal(weft__file_read(in_scratch("f"), &text, &size), WEFT_OK);
        assert_int_equal(size, sizes[i]);
        assert_memory_equal(text, bytes, size);
        assert_int_equal(text[size], 0);
        assert_int_equal(weft__file_map(in_scratch("f"), &mapped), WEFT_OK);
        assert_int_equal(mapped.size, size);
        assert_non_null(mapped.data);
        assert_memory_equal(mapped.data, bytes, size);
        weft__file_unmap(&mapped);
        free(text);
        free(bytes);
    }
    char *text;
    assert_int_equal(weft__file_read("/proc/self/stat", &text, NULL), WEFT_OK); /* says size 0 */
    assert_true(strlen(text) > 10);
    free(text);
}

static void failures_name_path_and_reason(void **state)
{
    (void)state;
    char *text, name[WEFT_PATH_BYTES + 10];
    char out[WEFT_PATH_BYTES];
    weft_mapped_t mapped;
    assert_int_equal(weft__file_read(in_scratch("none"), &text, NULL), WEFT_ERR_NOT_FOUND);
    assert_true(error_says("none: No such file"));
    assert_int_equal(weft__file_map(scratch(), &mapped), WEFT_ERR_INVALID);
    assert_true(error_says("is a folder"));
    assert_int_equal(weft__file_replace(in_scratch("no/f"), "x", 1), WEFT_ERR_NOT_FOUND);
    assert_int_equal(weft__file_replace("/proc/weft-test", "x", 1), WEFT_ERR_NOT_FOUND);
    memset(name, 'x', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    assert_int_equal(weft__path_join(out, "a", name), WEFT_ERR_INVALID);
    assert_int_equal(weft__path_join(out, "a", "b"), WEFT_OK);
    assert_string_equal(out, "a/b");
    assert_int_equal(weft__path_join(out, "a", "/b"), WEFT_OK);
    assert_string_equal(out, "/b");
    write_file(in_scratch("plain"), "x", 1);
    assert_int_equal(weft__folder_make(in_scratch("plain/inner")), WEFT_ERR_SYSTEM);
}

static void a_file_is_replaced_at_once(void **state)
{
    (void)state;
    char *text;
    assert_int_equal(weft__file_replace("/dev/full/x", "x", 1), WEFT_ERR_SYSTEM);
    assert_int_equal(weft__file_replace(in_scratch("keep"), "old", 3), WEFT_OK);
    assert_int_equal(weft__file_replace(in_scratch("keep"), "newer", 5), WEFT_OK);
    assert_int_equal(weft__file_read(in_scratch("keep"), &text, NULL), WEFT_OK);
    assert_string_equal(text, "newer");
    free(text);
}

/* What is at `name`: "file", "folder", "nothing", or "unknown". */
static const char *kind(const char *name)
{
    bool file, folder;
    weft_status_t status = weft__is_file(in_scratch(name), &file);
    assert_int_equal(weft__is_folder(in_scratch(name), &folder), status);
    assert_false(file && folder);
    return status != WEFT_OK ? "unknown" : file ? "file" : folder ? "folder" : "nothing";
}

static void what_cannot_be_looked_at_is_not_taken_for_nothing(void **state)
{
    (void)state;
    write_file(in_scratch("f"), "x", 1);
    assert_int_equal(symlink("f", in_scratch("to-f")), 0);
    assert_int_equal(symlink("nowhere", in_scratch("to-nothing")), 0);
    assert_int_equal(symlink("circle", in_scratch("circle")), 0);
    assert_string_equal(kind("f"), "file");
    assert_string_equal(kind("to-f"), "file");
    assert_string_equal(kind("."), "folder");
    assert_string_equal(kind("to-nothing"), "nothing");
    assert_string_equal(kind("f/below"), "nothing");
    assert_string_equal(kind("circle"), "unknown");
    assert_non_null(strstr(weft_last_error(), "circle"));
    assert_non_null(strstr(weft_last_error(), strerror(ELOOP)));
    assert_int_equal(weft__folder_make(in_scratch("circle")), WEFT_ERR_SYSTEM);
    assert_non_null(strstr(weft_last_error(), strerror(ELOOP)));
}

static void folders_are_made_and_removed_whole(void **state)
{
    (void)state;
    assert_int_equal(weft__folder_make(in_scratch("a/b//c")), WEFT_OK);
    assert_int_equal(weft__folder_make(in_scratch("a/b//c")), WEFT_OK);
    assert_string_equal(kind("a/b/c"), "folder");
    write_file(in_scratch("a/b/f"), "x", 1);
    write_file(in_scratch("outside"), "x", 1);
    assert_int_equal(symlink(scratch(), in_scratch("a/link")), 0);
    assert_int_equal(weft__path_remove(in_scratch("a")), WEFT_OK);
    assert_string_equal(kind("a"), "nothing");
    assert_string_equal(kind("outside"), "file"); /* the link was not followed */
    assert_int_equal(weft__path_remove(in_scratch("a")), WEFT_OK);
    assert_int_equal(weft__folder_sync(scratch()), WEFT_OK);
    assert_true(weft__disk_free(scratch()) > 0);
    assert_true(weft__disk_free("/no/such/place") == UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(read_and_mapped_are_the_same),
        cmocka_unit_test(failures_name_path_and_reason),
        cmocka_unit_test(a_file_is_replaced_at_once),
        cmocka_unit_test(what_cannot_be_looked_at_is_not_taken_for_nothing),
        cmocka_unit_test(folders_are_made_and_removed_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
