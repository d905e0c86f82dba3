/* What a run shows of itself: where its time went, and what to try next. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/sysmem.h"
#include "doctor/checks.h"
#include "doctor/run.h"

#define NO_STEPS "metrics.jsonl has no steps"
#define NO_CONFIG "the run has no config that can be read"
#define NO_TRACE "there is no trace: weft train --trace RUN/trace.json"
#define FEW_STEPS "there are fewer than 4 steps"

#define COMM_MOST 0.2 /* of a step's time */

static bool on_gpus(const weft_doctor_run_t *run)
{
    return strcmp(run->device, "cuda") == 0;
}

/* ---- its files ------------------------------------------------------------------------------- */

const char *weft__check_run_files(weft_doctor_t *doctor)
{
    const weft_doctor_run_t *run = doctor->run;
    if (!run->has_metrics || run->steps.count == 0) {
        weft__doctor_add(doctor, WEFT_FINDING_WARNING, "the run has no steps to look at",
                         run->has_metrics ? "metrics.jsonl is empty"
                                          : "there is no metrics.jsonl that can be read",
                         "nothing can be said about its speed",
                         "it ended before the first step: its messages say why");
    }
    if (run->steps.damaged > 0) {
        weft__doctor_add(doctor, WEFT_FINDING_WARNING, "metrics.jsonl is damaged",
                         weft__doctor_text(doctor, "%llu of %llu lines are no steps",
                                           (unsigned long long)run->steps.damaged,
                                           (unsigned long long)run->steps.lines),
                         "the rest is used; the disk or another program wrote into it",
                         "look at the disk (dmesg), and at who else writes there");
    } else if (run->steps.torn) {
        weft__doctor_add(doctor, WEFT_FINDING_NOTE, "the run was killed while it wrote",
                         "the last line of metrics.jsonl has no end",
                         "none: the next run in this folder removes it",
                         "weft train --resume RUN goes on from its last checkpoint");
    }
    if (run->config_trouble[0] != '\0') {
        weft__doctor_add(doctor, WEFT_FINDING_WARNING, "the run's config cannot be read",
                         run->config_trouble, "checks of the plan are left out",
                         "it was written by another version, or by hand");
    }
    if (run->trace_trouble[0] != '\0') {
        weft__doctor_add(doctor, WEFT_FINDING_WARNING, "the run's trace cannot be read",
                         run->trace_trouble, "stragglers and waits for data are not looked for",
                         "write it anew: weft train --trace RUN/trace.json");
    }
    return NULL;
}

/* ---- the loss -------------------------------------------------------------------------------- */

static double mean_loss(const weft_run_steps_t *steps, int from, int count)
{
    double sum = 0;
    for (int i = from; i < from + count; i++) {
        sum += steps->list[i].loss;
    }
    return sum / count;
}

const char *weft__check_run_loss(weft_doctor_t *doctor)
{
    const weft_run_steps_t *steps = &doctor->run->steps;
    if (steps->count == 0) {
        return NO_STEPS;
    }
    for (int i = 0; i < steps->count; i++) {
        if (steps->list[i].not_finite && !steps->list[i].skipped) {
            weft__doctor_add(
                doctor, WEFT_FINDING_ERROR, "the loss is not a number",
                weft__doctor_text(doctor, "metrics.jsonl: loss is null in step %llu",
                                  (unsigned long long)steps->list[i].step),
                "everything after it is lost",
                "go on from the checkpoint before it (--resume RUN/step-...) with a smaller --lr, "
                "more --warmup, --clip 1, or --precision bf16 in place of fp16");
            return NULL;
        }
    }
    int part = steps->count / 10;
    if (part < 3) {
        return NULL;
    }
    double before = mean_loss(steps, 0, part), after = mean_loss(steps, steps->count - part, part);
    if (after > 1.05 * before) {
        weft__doctor_add(doctor, WEFT_FINDING_WARNING, "the loss rises",
                         weft__doctor_text(doctor, "mean of the first tenth %.4g, of the last %.4g",
                                           before, after),
                         "the run learns nothing",
                         "a smaller --lr, more --warmup, or look at the data");
    }
    return NULL;
}

const char *weft__check_run_loss_scale(weft_doctor_t *doctor)
{
    const weft_run_steps_t *steps = &doctor->run->steps;
    double first = NAN, last = NAN;
    int skipped = 0;
    for (int i = 0; i < steps->count; i++) {
        const weft_run_step_t *step = &steps->list[i];
        if (isfinite(step->loss_scale)) {
            first = isnan(first) ? step->loss_scale : first;
            last = step->loss_scale;
        }
        skipped += step->skipped;
    }
    if (isnan(first)) {
        return "the run does not scale its loss";
    }
    if (last < 1 || last < first / 1000 || (steps->count >= 20 && skipped > steps->count / 20)) {
        weft__doctor_add(
            doctor, WEFT_FINDING_WARNING, "gradients overflow again and again",
            weft__doctor_text(doctor, "loss_scale from %.6g to %.6g, %d of %d steps skipped", first,
                              last, skipped, steps->count),
            "skipped steps are lost time, and small gradients vanish under a small scale",
            "--precision bf16, which needs no scale; or a smaller --lr, and --clip 1");
    }
    return NULL;
}

/* ---- the latest rank ------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

#define LATE_LEAST 1.2 /* times the median of computation that make a rank a late one */

/* The rank of the trace that computes longest. */
typedef struct late {
    int rank;
    double most, median; /* seconds of computation: its own, and of all ranks */
} late_t;

/* False if there is no trace of several ranks, or no memory. */
static bool find_late(weft_doctor_t *doctor, late_t *late_p)
{
    const weft_run_trace_t *trace = &doctor->run->trace;
    int worst = 0;
    if (!doctor->run->has_trace || trace->count < 2) {
        return false;
    }
    double *times = calloc((size_t)trace->count, sizeof(*times));
    if (times == NULL) {
        doctor->no_memory = true;
        return false;
    }
    for (int i = 0; i < trace->count; i++) {
        times[i] = trace->ranks[i].compute;
        worst = trace->ranks[i].compute > trace->ranks[worst].compute ? i : worst;
    }
    qsort(times, (size_t)trace->count, sizeof(*times), compare);
    *late_p = (late_t){.rank = worst,
                       .most = trace->ranks[worst].compute,
                       .median = times[(trace->count - 1) / 2]};
    free(times);
    return late_p->median > 0;
}

/* ---- communication --------------------------------------------------------------------------- */

/* What of the plan could still be changed, best first. */
static const char *remedies(weft_doctor_t *doctor)
{
    const weft_train_config_t *config = &doctor->run->config;
    if (!doctor->run->has_config) {
        return "a larger --batch, more --accumulate, --overlap, larger --bucket, --compress bf16";
    }
    return weft__doctor_text(
        doctor, "in this order: %s--accumulate %d (exchange gradients once for more tokens)%s%s",
        !config->overlap ? "--overlap yes, " : "",
        config->accumulate > 0 ? 2 * config->accumulate : 2,
        config->bucket < ((size_t)8 << 20) ? ", --bucket 25M" : "",
        strcmp(config->compress, "none") == 0 ? ", --compress bf16 where links are slower than "
                                                "memory"
                                              : "");
}

const char *weft__check_run_comm(weft_doctor_t *doctor)
{
    const weft_doctor_run_t *run = doctor->run;
    double share = WEFT_RUN_MEDIAN(&run->steps, comm_share);
    double tensor = WEFT_RUN_MEDIAN(&run->steps, tensor_share);
    if (run->steps.count < 4) {
        return FEW_STEPS;
    }
    if (isnan(share)) {
        return "the run has one rank";
    }
    /* what tensor parallelism and pipelines wait for has checks of its own */
    if (!(share > COMM_MOST) || tensor > share / 2 ||
        (run->has_config && run->config.pp > 1 && run->config.dp <= 1)) {
        return NULL;
    }
    late_t late;
    bool traced = find_late(doctor, &late);
    /* whoever waits for a rank that computes does so in a call of communication */
    if (traced && late.most > LATE_LEAST * late.median && 1 - late.median / late.most > share / 2) {
        return weft__doctor_text(doctor,
                                 "comm_share is %.0f%%, most of it waiting for rank %d, which "
                                 "computes longer: see run-straggler",
                                 100 * share, late.rank);
    }
    const char *seen = traced ? weft__doctor_text(doctor,
                                                  "trace.json: no rank computes more than %.0f%% "
                                                  "longer than the median",
                                                  100 * (late.most / late.median - 1))
                              : "a rank that computes longer than the others looks the same: "
                                "--trace RUN/trace.json tells them apart";
    weft__doctor_add(
        doctor, WEFT_FINDING_WARNING, "ranks wait for communication",
        weft__doctor_text(doctor, "comm_share: median %.0f%% of a step over %d steps; %s",
                          100 * share, run->steps.count, seen),
        weft__doctor_text(doctor, "the run could be %.2g times as fast", 1 / (1 - share)),
        remedies(doctor));
    return NULL;
}

const char *weft__check_run_overlap(weft_doctor_t *doctor)
{
    const weft_doctor_run_t *run = doctor->run;
    if (!run->has_config) {
        return NO_CONFIG;
    }
    if (run->config.dp <= 1) {
        return "no gradients are exchanged";
    }
    if (!run->config.overlap) {
        double share = WEFT_RUN_MEDIAN(&run->steps, exchange_share);
        weft__doctor_add(doctor, WEFT_FINDING_WARNING,
                         "gradients are exchanged after the backward pass, not during it",
                         isnan(share) ? "config: overlap = no"
                                      : weft__doctor_text(doctor,
                                                          "config: overlap = no; exchange_share "
                                                          "%.0f%%",
                                                          100 * share),
                         "the whole exchange is waited for", "--overlap yes (the default)");
    }
    return NULL;
}

const char *weft__check_run_bucket(weft_doctor_t *doctor)
{
    const weft_doctor_run_t *run = doctor->run;
    if (!run->has_config) {
        return NO_CONFIG;
    }
    if (run->config.dp <= 1) {
        return "no gradients are exchanged";
    }
    double gradients = 4.0 * (double)run->parameters;
    bool small = run->config.bucket < ((size_t)1 << 20) &&
                 gradients > 8.0 * (double)run->config.bucket && gradients > 1 << 20;
    if (small) {
        weft__doctor_add(doctor, WEFT_FINDING_WARNING, "gradients travel in small pieces",
                         weft__doctor_text(doctor, "config: bucket = %zu for %.3g MB of gradients",
                                           run->config.bucket, gradients / 1e6),
                         "each call costs its latency, and none reaches the bandwidth of the links",
                         "--bucket 25M (the default)");
    }
    return NULL;
}

const char *weft__check_run_style(weft_doctor_t *doctor)
{
    const weft_doctor_run_t *run = doctor->run;
    if (!run->has_config) {
        return NO_CONFIG;
    }
    if (strcmp(run->config.dp_style, "naive") == 0) {
        weft__doctor_add(doctor, WEFT_FINDING_WARNING, "rank 0 collects all gradients",
                         "config: dp-style = naive",
                         "the exchange takes as many times as long as there are ranks; it is "
                         "there for comparison",
                         "--dp-style buckets (the default)");
    }
    return NULL;
}

#define TOKENS_LEAST 4096 /* of a rank between exchanges, on a GPU */

const char *weft__check_run_batch(weft_doctor_t *doctor)
{
    const weft_doctor_run_t *run = doctor->run;
    if (!run->has_config) {
        return NO_CONFIG;
    }
    int64_t tokens = (int64_t)(run->config.micro_batch > 0 ? run->config.micro_batch : 1) *
                     (run->config.accumulate > 0 ? run->config.accumulate : 1) *
                     (run->config.length > 0 ? run->config.length : 1024);
    if (!on_gpus(run)) {
        return "virtual GPUs are busy with a few tokens";
    }
    if (tokens < TOKENS_LEAST) {
        weft__doctor_add(
            doctor, WEFT_FINDING_WARNING, "a rank has too few tokens in a step",
            weft__doctor_text(doctor,
                              "config: micro-batch %d x accumulate %d x length %d = %lld "
                              "tokens a rank",
                              run->config.micro_batch, run->config.accumulate, run->config.length,
                              (long long)tokens),
            "kernels are too small to fill a GPU, and launches, exchange and optimizer are paid "
            "for few tokens",
            weft__doctor_text(doctor, "--batch %lld (and scale --lr with it), or fewer ranks",
                              (long long)run->config.batch * (TOKENS_LEAST / tokens + 1)));
    }
    return NULL;
}

/* ---- plans ----------------------------------------------------------------------------------- */

const char *weft__check_run_bubble(weft_doctor_t *doctor)
{
    const weft_doctor_run_t *run = doctor->run;
    double bubble = WEFT_RUN_MEDIAN(&run->steps, bubble);
    if (!run->has_config) {
        return NO_CONFIG;
    }
    if (run->config.pp <= 1 || isnan(bubble)) {
        return "there is no pipeline";
    }
    int micro = run->config.accumulate > 0 ? run->config.accumulate : 1;
    bool interleaved = strcmp(run->config.schedule, "interleaved") == 0;
    double filling = (run->config.pp - 1.0) / (interleaved && run->config.virtual_stages > 0
                                                   ? run->config.virtual_stages
                                                   : 1);
    double expected = filling / (micro + filling);
    if (bubble > expected + 0.15) {
        weft__doctor_add(
            doctor, WEFT_FINDING_WARNING, "the stages of the pipeline have unequal work",
            weft__doctor_text(doctor,
                              "bubble: median %.0f%%; %d stages and %d micro-batches alone "
                              "make %.0f%%",
                              100 * bubble, run->config.pp, micro, 100 * expected),
            "all stages wait for the slowest",
            "--schedule interleaved, another --pp, or a trace (--trace) that shows the slow stage");
    } else if (bubble > 0.25) {
        weft__doctor_add(
            doctor, WEFT_FINDING_WARNING, "the pipeline has too few micro-batches",
            weft__doctor_text(doctor, "bubble: median %.0f%% with %d stages and %d micro-batches",
                              100 * bubble, run->config.pp, micro),
            "stages are idle while the pipeline fills and drains",
            weft__doctor_text(doctor, "--micro-batches %d, or --schedule interleaved",
                              4 * run->config.pp));
    }
    return NULL;
}

const char *weft__check_run_tensor(weft_doctor_t *doctor)
{
    const weft_doctor_run_t *run = doctor->run;
    double share = WEFT_RUN_MEDIAN(&run->steps, tensor_share);
    if (run->has_config ? run->config.tp <= 1 : isnan(share)) {
        return "there is no tensor parallelism";
    }
    if (share > COMM_MOST) {
        weft__doctor_add(
            doctor, WEFT_FINDING_WARNING, "tensor-parallel ranks wait for each other",
            weft__doctor_text(doctor, "tensor_share: median %.0f%% of a step", 100 * share),
            "four exchanges a layer that nothing hides",
            "a smaller --tp with more --pp or --zero 3; --tp within GPUs that share NVLink only "
            "(weft topo)");
    }
    return NULL;
}

const char *weft__check_run_update(weft_doctor_t *doctor)
{
    const weft_doctor_run_t *run = doctor->run;
    double share = WEFT_RUN_MEDIAN(&run->steps, update_share);
    if (isnan(share) || run->steps.count < 4) {
        return "steps do not tell";
    }
    if (share > 0.35) {
        bool offloads = run->has_config && strcmp(run->config.offload, "none") != 0;
        weft__doctor_add(
            doctor, WEFT_FINDING_WARNING, "the update takes a large part of a step",
            weft__doctor_text(doctor, "update_share: median %.0f%% of a step%s", 100 * share,
                              offloads ? "; config: offload = optimizer" : ""),
            "it costs the same for every batch: a larger batch pays for it",
            offloads ? "--offload none if it fits (--zero 1 shares the state), or a larger --batch"
                     : "more --accumulate, or --zero 1, which shares the update among ranks");
    }
    return NULL;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Memory that a rank of the run could have had; 0: this is another machine. */
static double memory_of_rank(weft_doctor_t *doctor)
{
    const weft_doctor_run_t *run = doctor->run;
    const weft_gpus_t *gpus = doctor->asked.gpus;
    if (on_gpus(run)) {
        for (int i = 0; i < gpus->count; i++) {
            if (strcmp(gpus->gpus[i].name, run->gpu) == 0 && gpus->gpus[i].memory > 0) {
                return (double)gpus->gpus[i].memory;
            }
        }
        return 0;
    }
    weft_sysmem_t sysmem;
    const char *host = doctor->asked.facts.host;
    if (run->ranks < 1 || host == NULL || strcmp(host, run->host) != 0) {
        return 0;
    }
    weft__sysmem_find(doctor->asked.root, &sysmem);
    return (double)weft__sysmem_total(&sysmem) / (double)run->ranks;
}

const char *weft__check_run_recompute(weft_doctor_t *doctor)
{
    const weft_doctor_run_t *run = doctor->run;
    uint64_t peak = 0;
    char a[WEFT_BYTES_TEXT], b[WEFT_BYTES_TEXT];
    if (!run->has_config) {
        return NO_CONFIG;
    }
    bool recomputes = strcmp(run->config.recompute, "none") != 0;
    bool full = strcmp(run->config.recompute, "full") == 0;
    bool offloads = strcmp(run->config.offload, "none") != 0;
    if (!recomputes && !offloads) {
        return "it recomputes and offloads nothing";
    }
    for (int i = 0; i < run->steps.count; i++) {
        peak = run->steps.list[i].memory > peak ? run->steps.list[i].memory : peak;
    }
    double memory = memory_of_rank(doctor);
    if (peak == 0 || memory == 0) {
        return "the run was on another machine, or does not tell its memory";
    }
    if ((double)peak < (full ? 0.4 : 0.6) * memory) {
        weft__doctor_add(
            doctor, WEFT_FINDING_WARNING,
            recomputes ? "activations are recomputed although memory is free"
                       : "the optimizer is offloaded although memory is free",
            weft__doctor_text(doctor, "config: %s; peak %s of %s that a rank has",
                              full         ? "recompute = full"
                              : recomputes ? "recompute = selective"
                                           : "offload = optimizer",
                              weft__bytes_text(peak, a), weft__bytes_text((uint64_t)memory, b)),
            full         ? "a third more arithmetic in every step"
            : recomputes ? "attention is computed twice"
                         : "gradients and weights travel to the host and back in every step",
            weft__doctor_text(doctor, "--%s; --dry-run shows whether it fits",
                              full         ? "recompute selective, then none"
                              : recomputes ? "recompute none"
                                           : "offload none"));
    }
    return NULL;
}

/* ---- time ------------------------------------------------------------------------------------ */

const char *weft__check_run_steady(weft_doctor_t *doctor)
{
    const weft_run_steps_t *steps = &doctor->run->steps;
    double median = WEFT_RUN_MEDIAN(steps, seconds), lost = 0, all = 0;
    int slow = 0;
    if (steps->count < 20 || isnan(median)) {
        return "there are fewer than 20 steps";
    }
    for (int i = 10; i < steps->count; i++) {
        double seconds = steps->list[i].seconds;
        all += isfinite(seconds) ? seconds : 0;
        if (seconds > 2 * median) {
            slow++;
            lost += seconds - median;
        }
    }
    if (all > 0 && lost > 0.1 * all) {
        weft__doctor_add(
            doctor, WEFT_FINDING_WARNING, "some steps take much longer than others",
            weft__doctor_text(doctor, "%d of %d steps took more than twice the median of %.3g s",
                              slow, steps->count, median),
            weft__doctor_text(doctor, "%.0f%% of the time", 100 * lost / all),
            "a trace shows what they wait for (--trace); usual: other users of the cores, "
            "checkpoints on a slow disk, data that is not in memory");
    }
    return NULL;
}

const char *weft__check_run_straggler(weft_doctor_t *doctor)
{
    late_t late;
    if (!doctor->run->has_trace) {
        return NO_TRACE;
    }
    if (doctor->run->trace.count < 2) {
        return "the trace has one rank";
    }
    bool stages = doctor->run->has_config && doctor->run->config.pp > 1;
    if (find_late(doctor, &late) && late.most > LATE_LEAST * late.median) {
        weft__doctor_add(
            doctor, WEFT_FINDING_WARNING,
            weft__doctor_text(doctor, "rank %d computes longer than the others", late.rank),
            weft__doctor_text(doctor, "trace.json: %.3g s of computation, median of ranks %.3g s",
                              late.most, late.median),
            weft__doctor_text(doctor, "all others wait for it: %.0f%% of their time",
                              100 * (1 - late.median / late.most)),
            stages ? "its stage has more work: another --pp, or --schedule interleaved"
                   : "look at its core or GPU (weft doctor there: throttling, governor, other "
                     "processes); move it or leave that device out");
    }
    return NULL;
}

const char *weft__check_run_data(weft_doctor_t *doctor)
{
    const weft_run_trace_t *trace = &doctor->run->trace;
    double step = 0, data = 0;
    if (!doctor->run->has_trace) {
        return NO_TRACE;
    }
    for (int i = 0; i < trace->count; i++) {
        step += trace->ranks[i].step;
        data += trace->ranks[i].data;
    }
    if (step > 0 && data > 0.05 * step) {
        weft__doctor_add(
            doctor, WEFT_FINDING_WARNING, "ranks wait for data",
            weft__doctor_text(doctor, "trace.json: %.0f%% of the steps' time takes tokens",
                              100 * data / step),
            "devices are idle meanwhile",
            "put the token shards on a local disk or into memory (/dev/shm); encode texts "
            "beforehand");
    }
    return NULL;
}

/* ---- the next thing to try ------------------------------------------------------------------- */

const char *weft__check_run_precision(weft_doctor_t *doctor)
{
    const weft_doctor_run_t *run = doctor->run;
    if (!run->has_config) {
        return NO_CONFIG;
    }
    if (!on_gpus(run)) {
        return "the run was on virtual GPUs";
    }
    if (strcmp(run->config.precision, "fp32") == 0) {
        weft__doctor_add(doctor, WEFT_FINDING_WARNING, "the run computes in 32 bits on a GPU",
                         "config: precision = fp32",
                         "tensor cores are idle or run at a fraction of their speed; activations "
                         "take twice the memory",
                         "--precision bf16");
    }
    return NULL;
}

const char *weft__check_run_ranks(weft_doctor_t *doctor)
{
    const weft_doctor_run_t *run = doctor->run;
    if (!run->has_machine || run->cpus < 1) {
        return "machine.json does not tell";
    }
    if (on_gpus(run)) {
        return "the run was on GPUs";
    }
    if (run->ranks > run->cpus) {
        weft__doctor_add(doctor, WEFT_FINDING_NOTE, "the run had more ranks than CPUs",
                         weft__doctor_text(doctor, "machine.json: %lld ranks, %lld CPUs",
                                           (long long)run->ranks, (long long)run->cpus),
                         "ranks took turns: its times say little about a machine that has the "
                         "cores",
                         weft__doctor_text(doctor, "-n %lld", (long long)run->cpus));
    }
    return NULL;
}
