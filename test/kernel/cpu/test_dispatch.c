/* Which table is in force. The setting is read once a process, so each value has its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernel/cpu/cpu.h"
#include "kernel/kernel.h"
#include "kernel/reference.h"

/* Name of the table and what was logged, in a process where WEFT_SIMD is `simd`. */
static void choose(const char *simd, char *name, size_t name_size, char *log, size_t log_size)
{
    int names[2], logs[2];
    assert_int_equal(pipe(names), 0);
    assert_int_equal(pipe(logs), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(logs[1], STDERR_FILENO);
        setenv("WEFT_SIMD", simd, 1);
        setenv("WEFT_LOG", "warn", 1);
        const char *chosen = weft__kernels()->name;
        ssize_t written = write(names[1], chosen, strlen(chosen));
        _exit(written == (ssize_t)strlen(chosen) ? 0 : 1);
    }
    close(names[1]);
    close(logs[1]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    ssize_t got = read(names[0], name, name_size - 1);
    assert_true(got > 0);
    name[got] = '\0';
    got = read(logs[0], log, log_size - 1);
    assert_true(got >= 0);
    log[got] = '\0';
    close(names[0]);
    close(logs[0]);
}

static const char *best_name(void)
{
    const weft_kernels_t *const *table = reference_tables();
    while (table[1] != NULL) {
        table++;
    }
    return (*table)->name;
}

static void the_best_table_is_in_force_unless_told(void **state)
{
    char name[64], log[1024];
    (void)state;
    choose("auto", name, sizeof(name), log, sizeof(log));
    assert_string_equal(name, best_name());
    assert_string_equal(log, "");
}

static void every_available_table_can_be_asked_for(void **state)
{
    char name[64], log[1024];
    (void)state;
    for (const weft_kernels_t *const *table = reference_tables(); *table != NULL; table++) {
        choose((*table)->name, name, sizeof(name), log, sizeof(log));
        assert_string_equal(name, (*table)->name);
        assert_string_equal(log, "");
    }
}

static void an_unknown_name_warns_and_falls_back(void **state)
{
    char name[64], log[1024];
    (void)state;
    choose("sse9", name, sizeof(name), log, sizeof(log));
    assert_string_equal(name, best_name());
    assert_non_null(strstr(log, "WEFT_SIMD=sse9"));
    assert_non_null(strstr(log, best_name()));
}

static void a_table_this_cpu_lacks_warns_and_falls_back(void **state)
{
    static const char *const names[] = {"amx", "avx512", "avx2"};
    char name[64], log[1024];
    int lacking = 0;
    (void)state;
    for (int i = 0; i < 3; i++) {
        bool amx = strcmp(names[i], "amx") == 0;
        if (amx ? !weft__cpu_has_amx() : weft__kernels_named(names[i]) == NULL) {
            choose(names[i], name, sizeof(name), log, sizeof(log));
            assert_string_equal(name, best_name());
            assert_non_null(strstr(log, names[i]));
            lacking++;
        }
    }
    if (lacking == 0) {
        print_message("this CPU has all tables\n");
        skip();
    }
}

static void only_existing_names_have_a_table(void **state)
{
    (void)state;
    assert_non_null(weft__kernels_named("none"));
    assert_null(weft__kernels_named("auto"));
    assert_null(weft__kernels_named(""));
    assert_null(weft__kernels_named("avx"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_table_is_in_force_unless_told),
        cmocka_unit_test(every_available_table_can_be_asked_for),
        cmocka_unit_test(an_unknown_name_warns_and_falls_back),
        cmocka_unit_test(a_table_this_cpu_lacks_warns_and_falls_back),
        cmocka_unit_test(only_existing_names_have_a_table),
    };
    return cmocka_run_group_tests_name("kernel/dispatch", tests, NULL, NULL);
}
