/* The GPUs as tables and as JSON. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "topo/gpu_show.h"
#include "topo/made_up.h"

static void print(const weft_gpus_t *gpus, FILE *out)
{
    weft__gpus_print(gpus, out);
}

static void write_json(const weft_gpus_t *gpus, FILE *out)
{
    weft_json_t json;
    weft__json_start(&json, out);
    weft__gpus_json(gpus, NULL, &json);
    assert_int_equal(weft__json_finish(&json), WEFT_OK);
}

/* What the machine looks like; freed by the caller. */
static char *show(void (*how)(const weft_gpus_t *gpus, FILE *out))
{
    weft_gpus_t gpus;
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    machine_read(&gpus);
    how(&gpus, out);
    assert_int_equal(fclose(out), 0);
    weft__gpus_cleanup(&gpus);
    return text;
}

/* JSON without its layout. */
static char *show_json(void)
{
    char *text = show(write_json);
    char *to = text;
    bool quoted = false;
    for (const char *from = text; *from != '\0'; from++) {
        quoted ^= *from == '"';
        if (quoted || (*from != ' ' && *from != '\n')) {
            *to++ = *from;
        }
    }
    *to = '\0';
    return text;
}

static void expect_in(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) {
        fail_msg("there is no\n%s\nin\n%s", part, text);
    }
}

static void no_gpus_are_one_line(void **state)
{
    (void)state;
    char *text = show(print);
    assert_string_equal(text, "no GPUs: the NVIDIA driver sees none\n");
    free(text);
}

static void one_gpu_has_no_matrix(void **state)
{
    (void)state;
    machine_add(MACHINE_H200);
    char *text = show(print);
    assert_string_equal(
        text, "GPUs 1, driver 580.95.05, CUDA 13.0, MPS off\n"
              "\n"
              "  GPU  CUDA  name            GiB    free  arch  bus            PCIe  most   NVLink"
              "  NUMA  mode       CPUs\n"
              "    0     0  NVIDIA H200   140.4   139.7   9.0  0000:1b:00.0   1x16  5x16        0"
              "     1  shared     8-15\n");
    free(text);
}

static void pairs_are_matrices(void **state)
{
    (void)state;
    machine_add_pcie();
    char *text = show(print);
    expect_in(text, "GPUs 4, driver 550.54, CUDA 12.4, MPS off\n");
    expect_in(text, "           GPU0   GPU1   GPU2   GPU3\n"
                    "  GPU0        X    NV4    SYS    SYS\n"
                    "  GPU1      NV4      X    SYS    SYS\n"
                    "  GPU2      SYS    SYS      X    NV4\n"
                    "  GPU3      SYS    SYS    NV4      X\n"
                    "SYS: link between NUMA nodes\n");
    expect_in(text, "  GPU0        X   rwna   rw--   ----\n"
                    "  GPU1     rwna      X   ----   ----\n"
                    "  GPU2     rw--   ----      X   rwna\n");
    expect_in(text, "no peer access from GPU 0 to GPU 3: it is not supported\n");
    expect_in(text, " 4 v3.0 ");
    free(text);
}

static void what_is_unknown_is_a_question_mark(void **state)
{
    (void)state;
    machine_add("gpu 0000:10:00.0 cc=8.0\ngpu 0000:20:00.0 cc=8.0\n");
    machine_add("error nvmlDeviceGetP2PStatus 999\nerror nvmlDeviceGetMemoryInfo 999\n"
                "error nvmlDeviceGetTopologyCommonAncestor 3\nerror nvmlDeviceGetName 3\n"
                "error nvmlDeviceGetCudaComputeCapability 3\nerror nvmlSystemGetDriverVersion 3\n"
                "error nvmlSystemGetCudaDriverVersion 3\nerror nvmlDeviceGetComputeMode 3\n"
                "error nvmlDeviceGetNvLinkState 999\nerror nvmlDeviceGetCpuAffinity 3\n");
    char *text = show(print);
    expect_in(text, "driver ?, CUDA ?, MPS off\n");
    expect_in(text, "    0     0  ?          ?       ?     ?  0000:10:00.0 ");
    expect_in(text, "   ?     ?  ?          ?\n");
    expect_in(text, "  GPU0        X      ?\n");
    expect_in(text, "  GPU0        X   ????\n");
    free(text);
    text = show_json();
    expect_in(text, "\"memory_bytes\":null");
    expect_in(text, "\"driver\":null");
    expect_in(text, "\"access\":{\"read\":null,");
    free(text);
}

static void json_has_everything(void **state)
{
    (void)state;
    machine_add_pcie();
    machine_add("gpu 0000:f0:00.0 name=NVIDIA_A40 mig=1 mode=3 part=MIG-5\n");
    char *text = show_json();
    expect_in(text, "\"none_because\":null");
    expect_in(text, "\"cuda_version\":\"12.4\",\"mps\":false");
    expect_in(text, "\"index\":1,\"cuda\":null,\"name\":\"NVIDIA A40\",\"uuid\":\"GPU-a1000000\","
                    "\"bus_id\":\"0000:41:00.0\",\"memory_bytes\":48318382080,"
                    "\"memory_free_bytes\":48000000000,\"compute_capability\":\"8.6\","
                    "\"cores\":10752,\"clock_mhz\":1740,\"pcie_generation\":4,\"pcie_width\":8,"
                    "\"pcie_generation_max\":4,\"pcie_width_max\":16,\"nvlinks\":4,"
                    "\"nvlinks_to_switches\":0,\"nvlink_version\":\"3.0\",\"numa\":0,"
                    "\"cpus\":\"0-15\",\"compute_mode\":\"shared\",\"mig\":false,\"mig_uuids\":[]");
    expect_in(text, "\"compute_mode\":\"exclusive\",\"mig\":true,\"mig_uuids\":[\"MIG-5\"]");
    expect_in(text,
              "{\"from\":0,\"to\":1,\"nvlinks\":4,\"nvlink_version\":\"3.0\",\"switched\":false,"
              "\"pcie_path\":\"PIX\",\"access\":{\"read\":true,\"write\":true,"
              "\"nvlink\":true,\"atomics\":true},\"refusal\":null}");
    expect_in(text, "\"cuda_note\":\"GPU 4 is cut into MIG devices;");
    free(text);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, machine_open, machine_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(no_gpus_are_one_line), TEST(one_gpu_has_no_matrix),
        TEST(pairs_are_matrices),   TEST(what_is_unknown_is_a_question_mark),
        TEST(json_has_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
