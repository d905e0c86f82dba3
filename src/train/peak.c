/* How fast a device could be: see peak.h. */
#include "train/peak.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include <weft/device.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/settings.h"

/* Data sheets: dense bf16 with f32 sums, and f32 by way of tf32. The first name that occurs in the
 * device's counts. */
static const struct {
    const char *name;
    double bf16, f32;
} sheets[] = {
    {"GB200", 2.5e15, 1.25e15},      {"B200", 2.25e15, 1.125e15},   {"GH200", 989.5e12, 494.7e12},
    {"H200", 989.5e12, 494.7e12},    {"H100 PCIe", 756e12, 378e12}, {"H100", 989.5e12, 494.7e12},
    {"A100", 312e12, 156e12},        {"L40S", 362e12, 183e12},      {"L4", 121e12, 60e12},
    {"RTX 4090", 165.2e12, 82.6e12}, {"A10", 125e12, 62.5e12},
};

double weft__peak_of(const char *name, weft_dtype_t type)
{
    for (size_t i = 0; i < sizeof(sheets) / sizeof(sheets[0]); i++) {
        if (strstr(name, sheets[i].name) != NULL) {
            return type == WEFT_F32 ? sheets[i].f32 : sheets[i].bf16;
        }
    }
    return 0.0;
}

static weft_status_t time_once(const weft_compute_t *compute, const weft_matmul_t *product,
                               weft_stream_h stream, double *seconds_p)
{
    uint64_t start = weft__now_ns();
    WEFT_TRY(compute->matmul(product, stream));
    WEFT_TRY(weft_stream_synchronize(stream));
    *seconds_p = (double)(weft__now_ns() - start) / 1e9;
    return WEFT_OK;
}

/* The best of a few, after one that warms up. */
static weft_status_t best_rate(const weft_compute_t *compute, const weft_matmul_t *product,
                               weft_stream_h stream, double *flops_p)
{
    double best = INFINITY;
    for (int i = 0; i < 4; i++) {
        double seconds = INFINITY;
        WEFT_TRY(time_once(compute, product, stream, &seconds));
        best = i >= 1 && seconds < best ? seconds : best;
    }
    *flops_p = 2.0 * (double)product->m * (double)product->n * (double)product->k / best;
    return WEFT_OK;
}

/* Rows until more of them are no faster: many threads want many. */
static weft_status_t measure_rows(const weft_compute_t *compute, weft_matmul_t *product,
                                  int64_t most, weft_stream_h stream, double *flops_p)
{
    double best = 0.0, rate;
    for (; product->m <= most; product->m *= 2) {
        WEFT_TRY(best_rate(compute, product, stream, &rate));
        bool faster = rate > 1.05 * best;
        best = rate > best ? rate : best;
        if (!faster) {
            break;
        }
    }
    *flops_p = best;
    return WEFT_OK;
}

weft_status_t weft__peak_measure(const weft_compute_t *compute, weft_dtype_t type,
                                 weft_stream_h stream, double *flops_p)
{
    /* Not on the device where that can be helped: it would count in the peak of a small model. */
    bool on_host = strcmp(compute->kind, "cuda") != 0;
    int64_t n = on_host ? 512 : 8192, most = on_host ? 8 * n : n;
    size_t row = (size_t)n * weft_dtype_size(type), bytes = (size_t)(2 * most + n) * row;
    void *memory;
    WEFT_TRY(on_host ? weft_host_malloc(&memory, bytes) : weft_malloc(&memory, bytes));
    weft_status_t status = weft_memset(memory, 0x3c, bytes, stream); /* 0.0115; zeros are easy */
    weft_matmul_t product = {.type = type,
                             .c_type = type,
                             .m = n,
                             .n = n,
                             .k = n,
                             .a = memory,
                             .b = (char *)memory + 2 * (size_t)most * row,
                             .c = (char *)memory + (size_t)most * row};
    if (status == WEFT_OK) {
        status = measure_rows(compute, &product, most, stream, flops_p);
    }
    if (on_host) {
        weft_host_free(memory);
    } else {
        weft_free(memory);
    }
    return status;
}

/* Ranks that share cores take turns, and each is as fast in its own as if it were alone. */
static double share_of_cores(const weft_machine_t *machine, int ranks)
{
    int threads = weft__settings()->threads > 0 ? weft__settings()->threads : machine->cpus_here;
    bool oversubscribed = machine->gpus == 0 && machine->cpus_job > 0 &&
                          ranks * threads > machine->cpus_job;
    return oversubscribed ? (double)machine->cpus_job / (ranks * threads) : 1.0;
}

weft_status_t weft__peak_find(const weft_setup_t *setup, weft_comm_h comm, double *flops_p)
{
    const weft_compute_t *compute;
    int here; /* ranks that share the GPUs of this host */
    int gpus = setup->machine.gpus;
    double sheet = weft__peak_of(setup->machine.gpu, setup->type);
    WEFT_TRY(weft_job_info(NULL, NULL, NULL, &here));
    if (sheet > 0.0) {
        *flops_p = sheet * (here < gpus ? here : gpus) / here;
        return WEFT_OK;
    }
    WEFT_TRY(weft__compute(&compute));
    WEFT_TRY(weft_barrier(comm, NULL)); /* all at once, as they will compute */
    WEFT_TRY(weft__peak_measure(compute, setup->type, NULL, flops_p));
    *flops_p *= share_of_cores(&setup->machine, here);
    return WEFT_OK;
}
