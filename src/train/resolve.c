/* What a configuration leaves open is filled in here, and what cannot work is refused, with what
 * would. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "train/config.h"

static weft_status_t in_range(const char *name, double value, double low, double high,
                              const char *range)
{
    if (!(value >= low && value <= high)) {
        return weft__fail(WEFT_ERR_INVALID, "--%s %g cannot be: it must be %s", name, value, range);
    }
    return WEFT_OK;
}

static weft_status_t check_ranges(const weft_train_config_t *c)
{
    const double most = INT32_MAX, below_1 = nextafter(1, 0), above_0 = 5e-324;
    const struct {
        const char *name;
        double value, low, high;
        const char *range;
    } rows[] = {
        {"ranks", c->ranks, 1, 1 << 20, "1 or more"},
        {"dp", c->dp, 0, most, "1 or more"},
        {"pp", c->pp, 1, most, "1 or more"},
        {"tp", c->tp, 1, most, "1 or more"},
        {"virtual-stages", c->virtual_stages, 1, most, "1 or more"},
        {"zero", c->zero, 0, 3, "0, 1, 2 or 3"},
        {"steps", c->steps, 1, most, "1 or more"},
        {"length", c->length, 0, most, "1 or more"},
        {"batch", c->batch, 0, most, "1 or more"},
        {"micro-batch", c->micro_batch, 0, most, "1 or more"},
        {"accumulate", c->accumulate, 0, most, "1 or more"},
        {"lr", c->lr, above_0, 1e3, "more than 0 and at most 1000"},
        {"min-lr", c->min_lr, 0, c->lr, "0 or more, and at most --lr"},
        {"warmup", c->warmup, 0, c->steps, "0 or more, and at most --steps"},
        {"lr-decay", c->lr_decay, above_0, 1, "more than 0 and at most 1"},
        {"weight-decay", c->weight_decay, 0, 1e3, "0 or more and at most 1000"},
        {"beta1", c->beta1, 0, below_1, "0 or more and less than 1"},
        {"beta2", c->beta2, 0, below_1, "0 or more and less than 1"},
        {"eps", c->eps, 1e-30, 1, "at least 1e-30 and at most 1"}, /* a float, and not 0 */
        {"clip", c->clip, 0, 1e30, "0 or more"},
        {"loss-scale", c->loss_scale, 2, 0x1p40, "2 or more and at most 2^40"},
        {"dropout", c->dropout, 0, below_1, "0 or more and less than 1"},
        {"eval-share", c->eval_share, 0, below_1, "0 or more and less than 1"},
        {"eval", c->eval_every, 0, most, "0 or more"},
        {"eval-batches", c->eval_batches, 1, most, "1 or more"},
        {"save", c->save_every, -1, most, "-1 or more"},
        {"max-restarts", c->max_restarts, 0, most, "0 or more"},
        {"grace", c->grace, 0, 86400, "0 or more and at most 86400"},
        {"keep", c->keep, 0, most, "0 or more"},
        {"seed", c->seed, 0, most, "0 or more"},
        {"sample", c->sample_every, 0, most, "0 or more"},
        {"sample-tokens", c->sample_tokens, 1, most, "1 or more"},
        {"log", c->log_every, 1, most, "1 or more"},
    };
    weft_status_t status = WEFT_OK;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]) && status == WEFT_OK; i++) {
        status = in_range(rows[i].name, rows[i].value, rows[i].low, rows[i].high, rows[i].range);
    }
    return status;
}

static weft_status_t check_benchmark(const weft_train_config_t *c)
{
    if (c->json != NULL && !c->benchmark) {
        return weft__fail(WEFT_ERR_INVALID,
                          "--json is for --benchmark: a run keeps its figures in metrics.jsonl of "
                          "--out");
    }
    if (c->benchmark && c->resume[0] != '\0') {
        return weft__fail(WEFT_ERR_INVALID,
                          "--benchmark makes its weights up: leave --resume out, and name the "
                          "model with --model");
    }
    return WEFT_OK;
}

static weft_status_t check_together(const weft_train_config_t *c)
{
    WEFT_TRY(check_benchmark(c));
    if (c->data[0] == '\0' && !c->benchmark) {
        return weft__fail(WEFT_ERR_INVALID,
                          "nothing to train on: --data takes a text file, a folder, or token "
                          "shards of llm.c");
    }
    if (c->out[0] == '\0' && c->save_every > 0) {
        return weft__fail(WEFT_ERR_INVALID, "--save %d has no place to save to: add --out DIR",
                          c->save_every);
    }
    if (c->out[0] == '\0' && strcmp(c->resume, "auto") == 0) {
        return weft__fail(WEFT_ERR_INVALID,
                          "--resume auto looks into the run folder: add --out DIR");
    }
    if (c->out[0] == '\0' && c->max_restarts > 0) {
        return weft__fail(WEFT_ERR_INVALID,
                          "--max-restarts %d has no checkpoint to go on from: add --out DIR, and "
                          "--save N to have one every N steps",
                          c->max_restarts);
    }
    if (c->out[0] == '\0' && strcmp(c->tensorboard, "auto") == 0) {
        return weft__fail(WEFT_ERR_INVALID,
                          "--tensorboard writes into the run folder: add --out DIR, or say where "
                          "with --tensorboard DIR");
    }
    if (strcmp(c->grad_precision, "bf16") == 0 && strncmp(c->precision, "fp", 2) == 0) {
        return weft__fail(WEFT_ERR_INVALID,
                          "--grad-precision bf16 goes with --precision bf16: gradients are of the "
                          "type of the weights, or fp32");
    }
    if (strcmp(c->dp_style, "naive") == 0 && strcmp(c->compress, "none") != 0) {
        return weft__fail(
            WEFT_ERR_INVALID,
            "--dp-style naive collects gradients as they are: leave --compress %s out",
            c->compress);
    }
    bool validates = c->eval_share > 0 || c->eval_data[0] != '\0';
    if (c->eval_every > 0 && !validates) {
        return weft__fail(WEFT_ERR_INVALID,
                          "--eval %d has no data to validate with: add --eval-data PATH, or an "
                          "--eval-share above 0",
                          c->eval_every);
    }
    return WEFT_OK;
}

weft_status_t weft__train_tensorboard(const weft_train_config_t *config, char *out)
{
    const char *folder = config->tensorboard;
    if (folder[0] == '\0' || strcmp(folder, "none") == 0) {
        out[0] = '\0';
        return WEFT_OK;
    }
    return strcmp(folder, "auto") == 0 ? weft__path_join(out, config->out, "tensorboard")
                                       : weft__path_join(out, "", folder);
}

/* ---- the mesh ------------------------------------------------------------------------------- */

/* The number of groups nearest to `groups` in steps of `by` that divides the batch; 0: none. */
static int64_t groups_near(int batch, int64_t groups, int by)
{
    while (groups > 0 && batch > 0 && groups <= batch && batch % groups != 0) {
        groups += by;
    }
    return batch > 0 && groups > batch ? 0 : groups;
}

static weft_status_t resolve_mesh(weft_train_config_t *c)
{
    int64_t inner = (int64_t)c->pp * c->tp;
    if (c->dp == 0 && c->ranks % inner != 0) {
        int64_t lower = groups_near(c->batch, c->ranks / inner, -1) * inner;
        int64_t upper = groups_near(c->batch, c->ranks / inner + 1, 1) * inner;
        char numbers[64] = "";
        snprintf(numbers, sizeof(numbers), lower > 0 && upper > 0 ? "%lld or %lld" : "%lld",
                 (long long)(lower > 0 ? lower : upper), (long long)upper);
        return weft__fail(WEFT_ERR_INVALID,
                          "%d ranks cannot be divided into groups of pp %d x tp %d = %lld: take "
                          "-n %s",
                          c->ranks, c->pp, c->tp, (long long)inner, numbers);
    }
    c->dp = c->dp == 0 ? (int)(c->ranks / inner) : c->dp;
    if (c->dp * inner != c->ranks) {
        return weft__fail(WEFT_ERR_INVALID,
                          "dp %d x pp %d x tp %d is %lld ranks, not %d: take -n %lld, or leave "
                          "--dp out",
                          c->dp, c->pp, c->tp, (long long)(c->dp * inner), c->ranks,
                          (long long)(c->dp * inner));
    }
    return WEFT_OK;
}

/* "1, 2, 3 or 6": the numbers up to `most` that divide all three (0: any does). */
static void list_divisors(int most, int a, int b, int c, char *out, size_t room)
{
    size_t at = 0;
    int last = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int d = 1; d <= most; d++) {
            bool divides = a % d == 0 && b % d == 0 && c % d == 0;
            if (divides && pass == 0) {
                last = d;
            } else if (divides && at < room) {
                at += (size_t)snprintf(out + at, room - at, "%s%d",
                                       d == 1      ? ""
                                       : d == last ? " or "
                                                   : ", ",
                                       d);
            }
        }
    }
}

static weft_status_t check_model(const weft_train_config_t *c, const weft_train_limits_t *m)
{
    char divisors[128] = "";
    /* What is recommended has to suit the ranks as well, unless these are wrong in any case. */
    int over_pp = c->ranks % c->pp == 0 ? c->ranks / c->pp : 0;
    int over_tp = c->ranks % c->tp == 0 ? c->ranks / c->tp : 0;
    bool splits_heads = (m->heads == 0 || m->heads % c->tp == 0) &&
                        (m->kv_heads == 0 || m->kv_heads % c->tp == 0);
    if (!splits_heads) {
        list_divisors(m->heads > 0 ? m->heads : m->kv_heads, m->heads, m->kv_heads, over_pp,
                      divisors, sizeof(divisors));
        return weft__fail(WEFT_ERR_INVALID,
                          "--tp %d does not divide the model's %d heads and %d key-value heads: "
                          "take %s",
                          c->tp, m->heads, m->kv_heads, divisors);
    }
    if (m->layers > 0 && c->pp > m->layers) {
        list_divisors(m->layers, over_tp, 0, 0, divisors, sizeof(divisors));
        return weft__fail(WEFT_ERR_INVALID,
                          "--pp %d is more stages than the model has layers, %d: take %s", c->pp,
                          m->layers, divisors);
    }
    return WEFT_OK;
}

/* ---- the batch ------------------------------------------------------------------------------ */

/* `batch` must be a multiple of `unit`, which `what` explains. */
static weft_status_t check_multiple(int batch, int64_t unit, const char *what)
{
    if (unit > 0 && batch % unit == 0 && batch > 0) {
        return WEFT_OK;
    }
    int64_t lower = batch / unit * unit;
    char less[32] = "";
    if (lower > 0) {
        snprintf(less, sizeof(less), "%lld or ", (long long)lower);
    }
    char product[32] = ""; /* where it is not plain to see */
    if (strchr(what, 'x') != NULL) {
        snprintf(product, sizeof(product), " = %lld", (long long)unit);
    }
    return weft__fail(WEFT_ERR_INVALID, "--batch %d cannot be divided by %s%s: take --batch %s%lld",
                      batch, what, product, less, (long long)(lower + unit));
}

static weft_status_t resolve_batch(weft_train_config_t *c)
{
    char what[128];
    int64_t micro = c->micro_batch, accumulate = c->accumulate;
    if (micro > 0 && accumulate > 0) {
        int64_t whole = c->dp * micro * accumulate;
        if (whole > INT32_MAX || (c->batch != 0 && c->batch != whole)) {
            return weft__fail(WEFT_ERR_INVALID,
                              "dp %d x --micro-batch %d x --accumulate %d is a batch of %lld, not "
                              "%d: leave one of them out",
                              c->dp, c->micro_batch, c->accumulate, (long long)whole, c->batch);
        }
        c->batch = (int)whole;
        return WEFT_OK;
    }
    if (c->batch == 0) {
        int64_t each = micro > 0 ? micro : accumulate > 0 ? accumulate : 8;
        if (c->dp * each > INT32_MAX) {
            return weft__fail(WEFT_ERR_INVALID, "a batch of dp %d x %lld is too large", c->dp,
                              (long long)each);
        }
        c->batch = (int)(c->dp * each);
    }
    /* With a pipeline, many small micro-batches keep its stages busy; otherwise few large ones
     * are faster. */
    micro = micro == 0 && accumulate == 0 && c->pp > 1 ? 1 : micro;
    int64_t unit = c->dp * (micro > 0 ? micro : accumulate > 0 ? accumulate : 1);
    int used = snprintf(what, sizeof(what), "dp %d", c->dp);
    if (micro > 0 || accumulate > 0) {
        snprintf(what + used, sizeof(what) - (size_t)used, " x --%s %lld",
                 micro > 0 ? "micro-batch" : "accumulate",
                 (long long)(micro > 0 ? micro : accumulate));
    }
    WEFT_TRY(check_multiple(c->batch, unit, what));
    int64_t each = c->batch / c->dp;
    c->micro_batch = (int)(micro > 0 ? micro : accumulate > 0 ? each / accumulate : each);
    c->accumulate = (int)(each / c->micro_batch);
    return WEFT_OK;
}

static weft_status_t check_count(const weft_train_config_t *c)
{
    if (c->accumulate > WEFT_TRAIN_ACCUMULATE_MOST) {
        return weft__fail(WEFT_ERR_INVALID,
                          "a step of %d micro-batches is too long, %d is the most: take a larger "
                          "--micro-batch than %d",
                          c->accumulate, WEFT_TRAIN_ACCUMULATE_MOST, c->micro_batch);
    }
    return WEFT_OK;
}

weft_status_t weft__train_check(const weft_train_config_t *config)
{
    WEFT_TRY(check_ranges(config));
    return check_together(config);
}

weft_status_t weft__train_mesh(weft_train_config_t *config, const weft_train_limits_t *limits)
{
    WEFT_TRY(check_model(config, limits));
    return resolve_mesh(config);
}

weft_status_t weft__train_resolve(weft_train_config_t *config, const weft_train_limits_t *limits)
{
    WEFT_TRY(weft__train_check(config));
    config->length = config->length == 0 ? limits->context : config->length;
    if (config->length == 0) {
        return weft__fail(WEFT_ERR_INVALID,
                          "the model does not say how long sequences are: add --length T");
    }
    if (limits->context > 0 && config->length > limits->context) {
        return weft__fail(WEFT_ERR_INVALID, "--length %d is more than the model takes: at most %d",
                          config->length, limits->context);
    }
    WEFT_TRY(weft__train_mesh(config, limits));
    WEFT_TRY(resolve_batch(config));
    return check_count(config);
}

/* ---- the learning rate ---------------------------------------------------------------------- */

/* From `high` at 0 down to `low` at 1. */
static double between(double high, double low, double t)
{
    t = t < 0 ? 0 : t > 1 ? 1 : t;
    return high - (high - low) * t;
}

double weft__train_lr(const weft_train_config_t *config, uint64_t step)
{
    const double pi = 3.14159265358979323846;
    double at = (double)step, steps = config->steps, warmup = config->warmup;
    if (at < warmup) {
        return config->lr * (at + 1) / warmup;
    }
    double rest = steps - warmup, t = rest > 0 ? (at - warmup) / rest : 1;
    t = t > 1 ? 1 : t;
    if (strcmp(config->lr_schedule, "linear") == 0) {
        return between(config->lr, config->min_lr, t);
    }
    if (strcmp(config->lr_schedule, "cosine") == 0) {
        return between(config->lr, config->min_lr, (1 - cos(pi * t)) / 2);
    }
    if (strcmp(config->lr_schedule, "wsd") == 0) {
        double fall = ceil(config->lr_decay * steps);
        return between(config->lr, config->min_lr, (at - (steps - fall)) / fall);
    }
    return config->lr;
}
