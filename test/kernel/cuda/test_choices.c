/* Choices that are measured once: the first offer stands for everybody, damaged files give way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/fixture.h"
#include "kernel/cuda/choices.h"

typedef struct choice {
    uint64_t words[8];
} choice_t;

static choice_t choice_of(uint64_t seed)
{
    choice_t choice;
    for (int i = 0; i < 8; i++) {
        choice.words[i] = seed * 1000 + (uint64_t)i;
    }
    return choice;
}

/* The only file in the folder, and how many there are. */
static int files(char path[WEFT_PATH_BYTES])
{
    DIR *folder = opendir(in_scratch("choices"));
    int count = 0;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            snprintf(path, WEFT_PATH_BYTES, "%s/%s", in_scratch("choices"), entry->d_name);
            count++;
        }
    }
    closedir(folder);
    return count;
}

static void the_first_offer_stands(void **state)
{
    (void)state;
    char path[WEFT_PATH_BYTES];
    choice_t one = choice_of(1), two = choice_of(2), found;
    assert_int_equal(weft__path_remove(in_scratch("choices")), WEFT_OK);
    assert_false(weft__choice_find("key", 3, &found, sizeof(found)));
    weft__choice_offer("key", 3, &one, sizeof(one));
    weft__choice_offer("key", 3, &two, sizeof(two));
    assert_memory_equal(&two, &one, sizeof(one));
    assert_true(weft__choice_find("key", 3, &found, sizeof(found)));
    assert_memory_equal(&found, &one, sizeof(one));
    assert_false(weft__choice_find("kez", 3, &found, sizeof(found)));
    assert_false(weft__choice_find("key", 3, &found, sizeof(found) - 8));
    assert_int_equal(files(path), 1);
}

static void damaged_files_give_way(void **state)
{
    (void)state;
    char path[WEFT_PATH_BYTES], *text;
    size_t size;
    choice_t one = choice_of(3), found, expected = choice_of(4);
    assert_int_equal(weft__path_remove(in_scratch("choices")), WEFT_OK);
    weft__choice_offer("key", 3, &one, sizeof(one));
    assert_int_equal(files(path), 1);
    assert_int_equal(weft__file_read(path, &text, &size), WEFT_OK);
    for (size_t cut = 0; cut <= size; cut++) { /* cut short, or with a bit turned */
        if (cut == size) {
            text[size / 2] ^= 4;
        }
        assert_int_equal(weft__file_replace(path, text, cut), WEFT_OK);
        assert_false(weft__choice_find("key", 3, &found, sizeof(found)));
    }
    choice_t two = expected;
    weft__choice_offer("key", 3, &two, sizeof(two));
    assert_memory_equal(&two, &expected, sizeof(two));
    assert_true(weft__choice_find("key", 3, &found, sizeof(found)));
    assert_memory_equal(&found, &expected, sizeof(two));
    assert_int_equal(files(path), 1);
    free(text);
}

static void processes_that_offer_at_once_agree(void **state)
{
    (void)state;
    enum { PROCESSES = 8, KEYS = 50 };
    char path[WEFT_PATH_BYTES];
    pid_t pids[PROCESSES];
    choice_t found;
    assert_int_equal(weft__path_remove(in_scratch("choices")), WEFT_OK);
    for (int i = 0; i < PROCESSES; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            int wrong = 0;
            for (int key = 0; key < KEYS; key++) {
                choice_t mine = choice_of((uint64_t)(100 + i));
                weft__choice_offer(&key, sizeof(key), &mine, sizeof(mine));
                wrong += !weft__choice_find(&key, sizeof(key), &found, sizeof(found)) ||
                         memcmp(&found, &mine, sizeof(mine)) != 0;
            }
            _exit(wrong != 0);
        }
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(files(path), KEYS);
}

static void without_a_place_an_offer_is_kept_by_who_made_it(void **state)
{
    (void)state;
    choice_t one = choice_of(5), expected = one, found;
    assert_int_equal(weft__path_remove(in_scratch("choices")), WEFT_OK);
    assert_int_equal(weft__file_replace(in_scratch("choices"), "x", 1), WEFT_OK);
    weft__choice_offer("key", 3, &one, sizeof(one));
    assert_memory_equal(&one, &expected, sizeof(one));
    assert_false(weft__choice_find("key", 3, &found, sizeof(found)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_offer_stands),
        cmocka_unit_test(damaged_files_give_way),
        cmocka_unit_test(processes_that_offer_at_once_agree),
        cmocka_unit_test(without_a_place_an_offer_is_kept_by_who_made_it),
    };
    setenv("WEFT_MATMUL_CHOICES", in_scratch("choices"), 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
