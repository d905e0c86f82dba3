/* What a benchmark of training has found, for people and as JSON. */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/median.h"
#include "train/benchmark.h"
#include "train/run_plan.h"

/* ---- the plan ----------------------------------------------------------------------------- */

typedef struct words {
    char *text;
    size_t room, used;
} words_t;

__attribute__((format(printf, 2, 3))) static void say(words_t *words, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(words->text + words->used, words->room - words->used, format, args);
    va_end(args);
    size_t left = words->room - words->used - 1;
    words->used += length > 0 ? ((size_t)length < left ? (size_t)length : left) : 0;
}

static void say_axes(words_t *words, const weft_plan_t *plan)
{
    bool some = false;
    for (int axis = 0; axis < WEFT_AXES; axis++) {
        if (plan->size[axis] > 1) {
            say(words, "%s%s %d", some ? " x " : "", weft__axes[axis].option, plan->size[axis]);
            some = true;
        }
    }
    if (!some) {
        say(words, "%s 1", weft__axes[WEFT_AXIS_DATA].option);
    }
}

const char *weft__benchmark_plan(const weft_train_config_t *config, char *text, size_t room)
{
    weft_plan_t plan = weft__run_plan(config);
    words_t words = {.text = text, .room = room};
    say_axes(&words, &plan);
    if (plan.zero > 0) {
        say(&words, ", zero %d%s", plan.zero, plan.lean ? " lean" : "");
    }
    if (plan.pp > 1 && plan.schedule != WEFT_1F1B) {
        say(&words, ", %s", weft__schedule_name(plan.schedule));
    }
    if (plan.recompute != WEFT_RECOMPUTE_NONE) {
        say(&words, ", recompute %s", weft__recompute_name(plan.recompute));
    }
    say(&words, "%s%s", plan.sequence_parallel && plan.tp > 1 ? ", sequence parallel" : "",
        plan.offload ? ", offload" : "");
    if (strcmp(config->compress, "none") != 0) {
        say(&words, ", %s", config->compress);
    }
    say(&words, "%s%s", strcmp(config->dp_style, "naive") == 0 ? ", naive" : "",
        config->overlap ? "" : ", no overlap");
    return text;
}

/* ---- for people --------------------------------------------------------------------------- */

/* The fastest step, the median and the slowest, in seconds. */
static void find_spread(const weft_benchmark_result_t *r, double spread[3])
{
    double *sorted = malloc((size_t)r->steps * sizeof(double));
    if (sorted == NULL) {
        spread[0] = spread[1] = spread[2] = r->time.step;
        return;
    }
    memcpy(sorted, r->step_s, (size_t)r->steps * sizeof(double));
    spread[1] = weft__median(sorted, (size_t)r->steps);
    spread[0] = sorted[0];
    spread[2] = sorted[r->steps - 1];
    free(sorted);
}

static void print_part(FILE *out, const char *text, double seconds, double step)
{
    fprintf(out, "  %-24s %10.3f %8.1f%%\n", text, seconds * 1e3, 100.0 * seconds / step);
}

static void print_memory(const weft_benchmark_result_t *r, FILE *out)
{
    static const char *const names[] = {
#define NAME(name, text, help) text,
        WEFT_MEMORY_TABLE(NAME)
#undef NAME
    };
    uint64_t total = 0;
    fprintf(out, "\nmemory of the rank that has most      MiB\n");
    for (int k = 0; k < WEFT_MEMORY_KINDS; k++) {
        bool on_device = k != WEFT_MEMORY_HOST;
        total += on_device ? r->memory[k] : 0;
        fprintf(out, "  %-24s %12.2f%s\n", names[k], (double)r->memory[k] / (1 << 20),
                on_device ? "" : "   beside the device");
    }
    fprintf(out, "  %-24s %12.2f   measured peak %.2f\n", "device", (double)total / (1 << 20),
            (double)r->memory_peak / (1 << 20));
}

void weft__benchmark_print(const weft_setup_t *setup, const weft_benchmark_result_t *r, FILE *out)
{
    const weft_train_config_t *config = setup->config;
    char plan[256];
    double spread[3];
    find_spread(r, spread);
    fprintf(out, "model        %s, %.1f M parameters in %s\n", config->model,
            (double)weft__config_params(&setup->model) / 1e6, config->precision);
    fprintf(out, "plan         %s\n", weft__benchmark_plan(config, plan, sizeof(plan)));
    fprintf(out, "batch        %d x %d made-up tokens = dp %d x %d micro-batch%s of %d\n",
            config->batch, config->length, config->dp, config->accumulate,
            config->accumulate == 1 ? "" : "es", config->micro_batch);
    fprintf(out, "steps        %d, after %d to warm up\n", r->steps, WEFT_BENCHMARK_WARM_UP);
    fprintf(out, "step         %.2f ms (median %.2f, from %.2f to %.2f)\n", r->time.step * 1e3,
            spread[1] * 1e3, spread[0] * 1e3, spread[2] * 1e3);
    fprintf(out, "throughput   %.0f tokens/s\n", r->tokens_per_s);
    if (isfinite(r->mfu)) {
        fprintf(out, "MFU          %.1f%%%s\n", 100.0 * r->mfu,
                r->mfu > 1.0 ? "  (above 100%: the peak that it is a share of is set too low)"
                             : "");
    }
    fprintf(out, "loss         %.4f to %.4f\n", r->loss[0], r->loss[r->steps - 1]);
    fprintf(out, "\nwhere the time of a step goes        ms     share\n");
#define PRINT(field, name, text) print_part(out, text, r->time.field, r->time.step);
    WEFT_BREAKDOWN_TABLE(PRINT)
#undef PRINT
    print_memory(r, out);
}

/* ---- as JSON ------------------------------------------------------------------------------ */

void weft__benchmark_write(const weft_setup_t *setup, const weft_benchmark_result_t *r,
                           weft_json_t *json)
{
    static const char *const kinds[WEFT_MEMORY_KINDS] = {
        [WEFT_MEMORY_WEIGHTS] = "weights",     [WEFT_MEMORY_GRADIENTS] = "gradients",
        [WEFT_MEMORY_OPTIMIZER] = "optimizer", [WEFT_MEMORY_ACTIVATIONS] = "activations",
        [WEFT_MEMORY_BUFFERS] = "buffers",     [WEFT_MEMORY_HOST] = "host"};
    const weft_train_config_t *config = setup->config;
    char plan[256];
    weft__json_string(json, "model", config->model);
    weft__json_uint(json, "parameters", (uint64_t)weft__config_params(&setup->model));
    weft__json_string(json, "precision", config->precision);
    weft__json_string(json, "plan", weft__benchmark_plan(config, plan, sizeof(plan)));
    weft__json_int(json, "batch", config->batch);
    weft__json_int(json, "length", config->length);
    weft__json_int(json, "micro_batch", config->micro_batch);
    weft__json_int(json, "steps", r->steps);
    weft__json_double(json, "tokens_per_s", r->tokens_per_s);
    weft__json_double(json, "mfu", r->mfu);
    weft__json_array(json, "step_ms");
    for (int i = 0; i < r->steps; i++) {
        weft__json_double(json, NULL, r->step_s[i] * 1e3);
    }
    weft__json_end(json);
    weft__breakdown_write(&r->time, "time", json);
    weft__json_object(json, "memory");
    for (int k = 0; k < WEFT_MEMORY_KINDS; k++) {
        weft__json_uint(json, kinds[k], r->memory[k]);
    }
    weft__json_uint(json, "peak", r->memory_peak);
    weft__json_end(json);
    weft__json_array(json, "loss");
    for (int i = 0; i < r->steps; i++) {
        weft__json_double(json, NULL, r->loss[i]);
    }
    weft__json_end(json);
}
