/* Finding NCCL, and saying what is wrong with what was found. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "comm/nccl/fake_nccl.h"

static char whole[1024], old[1024];

static fake_nccl_t *controls(const char *path)
{
    fake_nccl_fn fn;
    void *library = dlopen(path, RTLD_NOW);
    assert_non_null(library);
    *(void **)&fn = dlsym(library, "fake_nccl");
    assert_non_null(fn);
    return fn();
}

static void finds_all_functions(void **state)
{
    (void)state;
    weft_nccl_api_t api = {0};
    char why[512] = "";
    assert_true(weft__nccl_load(whole, &api, why, sizeof(why)));
    assert_string_equal(why, "");
    assert_int_equal(api.version, 22809);
#define THERE(name, result, arguments) assert_non_null(api.name);
    WEFT_NCCL_TABLE(THERE, THERE)
#undef THERE
}

static void missing_library_says_what_to_do(void **state)
{
    (void)state;
    weft_nccl_api_t api = {0};
    char why[512];
    assert_false(weft__nccl_load("libno-such-nccl.so.2", &api, why, sizeof(why)));
    assert_non_null(strstr(why, "libno-such-nccl.so.2"));
    assert_non_null(strstr(why, "install libnccl2, or set WEFT_NCCL"));
    assert_null(api.GetVersion);
}

static void another_library_is_not_taken_for_nccl(void **state)
{
    (void)state;
    weft_nccl_api_t api = {0};
    char why[512];
    assert_false(weft__nccl_load("libc.so.6", &api, why, sizeof(why)));
    assert_string_equal(why, "libc.so.6 is not NCCL: it does not say its version");
}

static void old_version_is_named(void **state)
{
    (void)state;
    weft_nccl_api_t api = {0};
    char why[512];
    static const struct {
        int version;
        const char *text;
    } cases[] = {{21799, "NCCL 2.17.99 "}, {2804, "NCCL 2.8.4 "}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        controls(whole)->version = cases[i].version;
        assert_false(weft__nccl_load(whole, &api, why, sizeof(why)));
        assert_memory_equal(why, cases[i].text, strlen(cases[i].text));
        assert_non_null(strstr(why, "is too old; Weft needs 2.18.0 or later"));
    }
    controls(whole)->version = 22809;
}

static void missing_function_is_named(void **state)
{
    (void)state;
    weft_nccl_api_t api = {0};
    char why[512];
    assert_false(weft__nccl_load(old, &api, why, sizeof(why)));
    assert_non_null(strstr(why, "has no function ncclCommSplit"));
}

/* The real one, where it is installed: it needs no GPU for this. */
static void real_nccl_has_all_functions(void **state)
{
    (void)state;
    weft_nccl_api_t api;
    char why[512];
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        print_message("there is no libnccl.so.2\n");
        skip();
    }
    if (!weft__nccl_load("libnccl.so.2", &api, why, sizeof(why))) {
        fail_msg("%s", why);
    }
    assert_true(api.version >= WEFT_NCCL_OLDEST);
}

int main(void)
{
    const char *build = getenv("WEFT_BUILD");
    snprintf(whole, sizeof(whole), "%s/test/comm/nccl/fake_nccl.so", build);
    snprintf(old, sizeof(old), "%s/test/comm/nccl/fake_nccl_old.so", build);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_all_functions),
        cmocka_unit_test(missing_library_says_what_to_do),
        cmocka_unit_test(another_library_is_not_taken_for_nccl),
        cmocka_unit_test(old_version_is_named),
        cmocka_unit_test(missing_function_is_named),
        cmocka_unit_test(real_nccl_has_all_functions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
