#define _GNU_SOURCE 1 /* nftw */
#include "topo/made_up.h"

#include <ftw.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char root[64], facts[128];

int machine_open(void **state)
{
    (void)state;
    snprintf(root, sizeof(root), "/tmp/weft-test-gpu-XXXXXX");
    if (mkdtemp(root) == NULL) {
        return -1;
    }
    snprintf(facts, sizeof(facts), "%s/facts", root);
    machine_reset();
    return setenv("FAKE_NVML", facts, 1);
}

static int remove_one(const char *path, const struct stat *stat, int kind, struct FTW *ftw)
{
    (void)stat, (void)kind, (void)ftw;
    return remove(path);
}

int machine_close(void **state)
{
    (void)state;
    unsetenv("FAKE_NVML");
    return nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

void machine_add(const char *format, ...)
{
    va_list args;
    FILE *file = fopen(facts, "a");
    assert_non_null(file);
    va_start(args, format);
    assert_true(vfprintf(file, format, args) >= 0);
    va_end(args);
    assert_int_equal(fclose(file), 0);
}

void machine_reset(void)
{
    machine_put("/facts", "");
}

void machine_add_dgx(void)
{
    machine_add("driver 570.10\ncuda 12080\n");
    for (int i = 0; i < 8; i++) {
        machine_add("gpu 0000:%02x:00.0 name=NVIDIA_H100_80GB_HBM3 uuid=GPU-%d%d000000 cc=9.0 "
                    "memory=85899345920 free=85899345920 cores=16896 clock=1980 pcie=5x16 "
                    "pcie_max=5x16 own=5 numa=%d cpus=%s\n",
                    0x10 + 8 * i, i, i, i / 4, i < 4 ? "0-15" : "16-31");
        machine_add("link %d switch 18 6\n", i);
        for (int k = 0; k < 8; k++) {
            machine_add("peer %d %d 0 0 0 0\n", i, k);
            machine_add("path %d %d %d\n", i, k, i / 4 == k / 4 ? 40 : 50);
        }
    }
}

void machine_add_pcie(void)
{
    machine_add("driver 550.54\ncuda 12040\n");
    for (int i = 0; i < 4; i++) {
        machine_add("gpu 0000:%02x:00.0 name=NVIDIA_A40 uuid=GPU-a%d000000 cc=8.6 "
                    "memory=48318382080 free=48000000000 cores=10752 clock=1740 pcie=4x8 "
                    "pcie_max=4x16 numa=%d cpus=%s\n",
                    0x21 + 0x20 * i, i, i / 2, i < 2 ? "0-15" : "16-31");
        machine_add("link %d %d 4 4\n", i, i ^ 1);
        machine_add("peer %d %d 0 0 0 0\n", i, i ^ 1);
        machine_add("path %d %d 10\n", i, i ^ 1);
    }
    machine_add("peer 0 2 0 0 5 5\npeer 2 0 0 0 5 5\npeer 1 3 3 3 3 3\n");
}

void machine_put(const char *path, const char *text)
{
    char name[512];
    snprintf(name, sizeof(name), "%s%s", root, path);
    for (char *at = name + strlen(root) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        mkdir(name, 0700);
        *at = '/';
    }
    FILE *file = fopen(name, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* In a folder beside one that the test program is in, whoever starts it, and however deep it
 * lies. */
const char *machine_library(const char *name)
{
    static char path[PATH_MAX + 64];
    ssize_t length = readlink("/proc/self/exe", path, PATH_MAX);
    assert_true(length > 0 && length < PATH_MAX);
    path[length] = '\0';
    for (char *slash; (slash = strrchr(path, '/')) != NULL; *slash = '\0') {
        snprintf(slash, sizeof(path) - (size_t)(slash - path), "/topo/%s", name);
        if (access(path, R_OK) == 0) {
            return path;
        }
    }
    fail_msg("there is no topo/%s above the test program", name);
    return NULL;
}

weft_gpu_source_t machine_source(void)
{
    return (weft_gpu_source_t){
        .library = machine_library("fake_nvml.so"), .root = root, .health = true};
}

void machine_read(weft_gpus_t *gpus_p)
{
    weft_gpu_source_t source = machine_source();
    assert_int_equal(weft__gpus_read_from(&source, gpus_p), WEFT_OK);
}
