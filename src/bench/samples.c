#include "bench/samples.h"

#include <stdio.h>
#include <string.h>

#include "base/args.h"
#include "base/log.h"
#include "base/median.h"
#include "base/plain.h"
#include "base/version.h"
#include "device/cuda.h"
#include "device/device.h"
#include "kernel/kernel.h"

weft_result_head_t weft__samples_head(int ranks, bool threads)
{
    bool cuda = weft__device_is_cuda();
    return (weft_result_head_t){.kind = "bench",
                                .ranks = ranks,
                                .threads = threads,
                                .device = cuda ? "cuda" : "cpu",
                                .device_name = cuda ? weft__cuda_props(0)->name : "virtual GPU",
                                .kernels = weft__kernels()->name};
}

void weft__samples_print_head(const weft_result_head_t *head)
{
    const weft_machine_t *machine = head->machine;
    bool cuda = weft__device_is_cuda();
    char text[512], plain[1024], gpus[160] = "";
    snprintf(text, sizeof(text), "weft %s%s%s: %d %s on %s%s", weft_version(),
             weft__commit[0] != '\0' ? ", commit " : "", weft__commit, head->ranks,
             head->ranks == 1 ? "rank"
             : head->threads  ? "ranks (threads)"
                              : "ranks (processes)",
             cuda ? "cuda: " : "virtual GPUs, kernels ", cuda ? head->device_name : head->kernels);
    weft__print_comment(stdout, weft__plain(plain, sizeof(plain), text, false));
    if (machine->gpus > 0) {
        snprintf(gpus, sizeof(gpus), ", %d x %s", machine->gpus, machine->gpu);
    }
    snprintf(text, sizeof(text), "%s, %d CPUs%s; %s", machine->processor, machine->cpus, gpus,
             machine->started);
    weft__print_comment(stdout, weft__plain(plain, sizeof(plain), text, false));
}

weft_status_t weft__samples_open(weft_result_t *result, const weft_bench_t *bench, int ranks)
{
    weft_result_head_t head = weft__samples_head(ranks, bench->threads);
    head.path = bench->json;
    head.command = bench->command;
    head.machine = &bench->machine;
    WEFT_TRY(weft__result_open(result, &head));
    weft__samples_print_head(&head);
    if (result->file) {
        weft__json_array(&result->json, "results");
    }
    return WEFT_OK;
}

double weft__sample_median(const weft_sample_t *sample)
{
    double sorted[WEFT_SAMPLE_MOST];
    memcpy(sorted, sample->us, (size_t)sample->repeats * sizeof(*sorted));
    return weft__median(sorted, (size_t)sample->repeats);
}

void weft__sample_write(weft_json_t *json, const char *key, const weft_sample_t *sample)
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

weft_status_t weft__samples_close(weft_result_t *result, weft_status_t status, size_t wrong)
{
    if (result->file && status == WEFT_OK) {
        weft__json_end(&result->json);
        weft__json_uint(&result->json, "wrong", wrong);
    }
    return weft__result_close(result, status);
}
