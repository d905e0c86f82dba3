#include "bench/result.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/settings.h"
#include "base/version.h"
#include "device/cuda.h"
#include "device/device.h"
#include "kernel/kernel.h"

static void json_setting(const char *name, const char *value, bool is_default, const char *text,
                         void *ctx)
{
    weft_json_t *json = ctx;
    (void)is_default;
    (void)text;
    weft__json_string(json, name, value);
}

/* "-" is stdout, for JSON alone; what others print there goes to stderr from now on. */
static weft_status_t open_file(const char *path, weft_output_t **file_p)
{
    fflush(stdout);
    WEFT_TRY(weft__output_open(path, file_p));
    if (strcmp(path, "-") == 0 && dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
        weft__output_discard(*file_p);
        *file_p = NULL;
        return weft__fail(WEFT_ERR_SYSTEM, "cannot write to stdout: %s", strerror(errno));
    }
    return WEFT_OK;
}

static void print_head(const weft_bench_t *bench, int ranks)
{
    const weft_machine_t *machine = &bench->machine;
    bool cuda = weft__device_is_cuda();
    printf("# weft %s%s%s: %d %s on %s%s\n# %s, %d CPUs", weft_version(),
           weft__commit[0] != '\0' ? ", commit " : "", weft__commit, ranks,
           ranks == 1       ? "rank"
           : bench->threads ? "ranks (threads)"
                            : "ranks (processes)",
           cuda ? "cuda: " : "virtual GPUs, kernels ",
           cuda ? weft__cuda_props(0)->name : weft__kernels()->name, machine->processor,
           machine->cpus);
    if (machine->gpus > 0) {
        printf(", %d x %s", machine->gpus, machine->gpu);
    }
    printf("; %s\n", machine->started);
}

weft_status_t weft__result_open(weft_result_t *result, const weft_bench_t *bench, int ranks)
{
    weft_json_t *json = &result->json;
    *result = (weft_result_t){.file = NULL};
    if (!bench->json) {
        print_head(bench, ranks);
        return WEFT_OK;
    }
    WEFT_TRY(open_file(bench->json, &result->file));
    print_head(bench, ranks);
    weft__json_start(json, weft__output_stream(result->file));
    weft__json_object(json, NULL);
    weft__json_string(json, "bench", "weft");
    weft__json_string(json, "version", weft_version());
    weft__json_string(json, "commit", weft__commit);
    weft__json_array(json, "command");
    for (char *const *word = bench->command; word && *word; word++) {
        weft__json_string(json, NULL, *word);
    }
    weft__json_end(json);
    weft__json_object(json, "machine");
    weft__machine_write(&bench->machine, json);
    weft__json_end(json);
    weft__json_int(json, "ranks", ranks);
    weft__json_string(json, "ranks_are", bench->threads ? "threads" : "processes");
    weft__json_string(json, "device", weft__device_is_cuda() ? "cuda" : "cpu");
    weft__json_string(json, "device_name",
                      weft__device_is_cuda() ? weft__cuda_props(0)->name : "virtual GPU");
    weft__json_string(json, "kernels", weft__kernels()->name);
    weft__json_object(json, "settings");
    weft__settings_each(json_setting, json);
    weft__json_end(json);
    weft__json_array(json, "results");
    return WEFT_OK;
}

void weft__result_times(weft_json_t *json, const char *key, const weft_sample_t *sample)
{
    if (sample->repeats == 0) {
        return;
    }
    weft__json_array(json, key);
    for (int i = 0; i < sample->repeats; i++) {
        weft__json_double(json, NULL, sample->us[i]);
    }
    weft__json_end(json);
}

weft_status_t weft__result_close(weft_result_t *result, weft_status_t status, size_t wrong)
{
    if (!result->file) {
        return status;
    }
    if (status != WEFT_OK) {
        weft__output_discard(result->file);
        return status;
    }
    weft__json_end(&result->json);
    weft__json_uint(&result->json, "wrong", wrong);
    weft__json_end(&result->json);
    return weft__output_end(result->file, weft__json_finish(&result->json));
}
