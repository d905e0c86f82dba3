/* Runs against what control groups leave them, from made-up files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include <weft/weft.h>

#include "base/file.h"
#include "base/fixture.h"
#include "device/sysmem.h"
#include "train/admit.h"

#define MIB ((uint64_t)1 << 20)

static weft_train_config_t config;
static weft_setup_t setup;

/* Open a run of a model of four layers. */
static void open_run(int ranks, const char *micro_batch)
{
    static const char model[] =
        "{\"model_type\": \"gpt2\", \"architectures\": [\"GPT2LMHeadModel\"], \"n_layer\": 4, "
        "\"n_embd\": 64, \"n_head\": 4, \"n_positions\": 64, \"vocab_size\": 257, "
        "\"activation_function\": \"gelu_new\"}";
    char count[16];
    bool help;
    snprintf(count, sizeof(count), "%d", ranks);
    write_file(in_scratch("model.json"), model, strlen(model));
    write_file(in_scratch("text"), "some text to train on", 21);
    char *argv[] = {"weft train",
                    "--device",
                    "cpu",
                    "--model",
                    (char *)in_scratch("model.json"),
                    "--data",
                    (char *)in_scratch("text"),
                    "-n",
                    count,
                    "--micro-batch",
                    (char *)micro_batch,
                    NULL};
    assert_int_equal(weft__train_parse(11, argv, &config, &help), WEFT_OK);
    assert_int_equal(weft__setup_open(&config, &setup), WEFT_OK);
}

static void close_run(void)
{
    weft__setup_close(&setup);
    weft__train_free(&config);
}

static void put(const char *root, const char *path, const char *text)
{
    char name[WEFT_PATH_BYTES], *slash;
    assert_int_equal(weft__path_join(name, root, path), WEFT_OK);
    slash = strrchr(name, '/');
    *slash = '\0';
    assert_int_equal(weft__folder_make(name), WEFT_OK);
    *slash = '/';
    write_file(name, text, strlen(text));
}

/* Let this process be in /a/b of a hierarchy with these limits, on a machine with 4 GiB left. */
static void pretend(const char *name, bool v2, const char *limit_a, const char *limit_b)
{
    const char *root = in_scratch(name), *file = v2 ? "memory.max" : "memory.limit_in_bytes";
    const char *used = v2 ? "memory.current" : "memory.usage_in_bytes";
    char path[128];
    put(root, "proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n");
    put(root, "proc/self/cgroup", v2 ? "0::/a/b\n" : "4:memory:/a/b\n0::/\n");
    put(root, "proc/self/mountinfo",
        v2 ? "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
           : "30 20 0:26 / /sys/fs/cgroup rw - cgroup cgroup rw,memory\n");
    snprintf(path, sizeof(path), "sys/fs/cgroup/a/%s", file);
    put(root, path, limit_a);
    snprintf(path, sizeof(path), "sys/fs/cgroup/a/b/%s", file);
    put(root, path, limit_b);
    snprintf(path, sizeof(path), "sys/fs/cgroup/a/%s", used);
    put(root, path, "10485760\n");
    snprintf(path, sizeof(path), "sys/fs/cgroup/a/b/%s", used);
    put(root, path, "5242880\n");
    weft__sysmem_find(root, (weft_sysmem_t *)weft__sysmem());
}

/* What the options of a sentence make of the run, as bytes. */
static void expect_refused(const char *available)
{
    assert_int_equal(weft__admit_memory(&setup, config.ranks, NULL), WEFT_ERR_NO_MEMORY);
    assert_true(error_says("4 ranks need"));
    assert_true(error_says(available));
    assert_true(error_says("The nearest plan that fits is --"));
}

static void groups_above_count_too(void **state)
{
    (void)state;
    open_run(4, "64");
    pretend("none", true, "max\n", "max\n");
    assert_int_equal(weft__admit_memory(&setup, 4, NULL), WEFT_OK);
    pretend("above", true, "209715200\n", "max\n"); /* 200 MiB, 10 of them in use */
    expect_refused("190 MiB are available");
    pretend("own", true, "max\n", "157286400\n"); /* 150 MiB, 5 in use */
    expect_refused("145 MiB are available");
    pretend("older", false, "209715200\n", "9223372036854771712\n");
    expect_refused("190 MiB are available");
    pretend("wide", false, "4294967296\n", "9223372036854771712\n");
    assert_int_equal(weft__admit_memory(&setup, 4, NULL), WEFT_OK);
    config.force = true;
    pretend("forced", true, "max\n", "1048576\n");
    assert_int_equal(weft__admit_memory(&setup, 4, NULL), WEFT_OK);
    close_run();
}

/* Ranks of other hosts do not count. */
static void only_ranks_of_this_host_count(void **state)
{
    (void)state;
    weft_forecast_t all, half;
    open_run(4, "64");
    assert_int_equal(weft__forecast(&setup, 4, &all), WEFT_OK);
    assert_int_equal(weft__forecast(&setup, 2, &half), WEFT_OK);
    assert_int_equal(half.device, all.device / 2);
    assert_int_equal(half.device_most, all.device_most);
    assert_true(half.total <= all.total / 2 + MIB);
    close_run();
}

/* For every limit, the plan that is found fits, and none is found only where memory is very
 * short. */
static void what_is_found_fits(void **state)
{
    (void)state;
    char text[256];
    weft_forecast_t plain, found;
    open_run(8, "16");
    assert_int_equal(weft__forecast(&setup, 8, &plain), WEFT_OK);
    for (uint64_t most = plain.total; most > 24 * MIB; most = most / 4 * 3) {
        weft_room_t room = {.host = most, .device = UINT64_MAX};
        assert_int_equal(weft__admit_nearest(&setup, 8, &room, text, sizeof(text), &found),
                         WEFT_OK);
        if (text[0] == '\0') {
            assert_true(most < 48 * MIB);
            continue;
        }
        assert_true(found.total <= most);
    }
    weft_room_t none = {.host = MIB, .device = UINT64_MAX};
    assert_int_equal(weft__admit_nearest(&setup, 8, &none, text, sizeof(text), &found), WEFT_OK);
    assert_string_equal(text, "");
    weft_room_t gpu = {.host = UINT64_MAX, .device = plain.device_most / 2};
    assert_int_equal(weft__admit_nearest(&setup, 8, &gpu, text, sizeof(text), &found), WEFT_OK);
    assert_true(text[0] != '\0' && found.device_most <= plain.device_most / 2);
    close_run();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_above_count_too),
        cmocka_unit_test(only_ranks_of_this_host_count),
        cmocka_unit_test(what_is_found_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
