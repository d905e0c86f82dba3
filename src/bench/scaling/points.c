/* Which points there are. */
#include "bench/scaling/points.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/settings.h"
#include "train/benchmark.h"

/* A further point with this configuration, which may be one that cannot work: *point_p is NULL
 * then, and weft_last_error says why. */
static weft_status_t add(const weft_scaling_t *scaling, weft_points_t *points,
                         const weft_train_config_t *config, weft_point_t **point_p)
{
    weft_point_t *point = &points->list[points->count];
    *point_p = NULL;
    if (points->count == WEFT_POINTS_MOST) {
        return weft__fail(WEFT_ERR_UNSUPPORTED, "more than %d points to measure", WEFT_POINTS_MOST);
    }
    *point = (weft_point_t){.ranks = config->ranks, .one = points->count, .config = *config};
    if (weft__setup_vary(scaling->base, &point->config, &point->setup) != WEFT_OK) {
        return WEFT_OK;
    }
    weft__benchmark_plan(&point->config, point->plan, sizeof(point->plan));
    points->count++;
    *point_p = point;
    return WEFT_OK;
}

/* ---- numbers of ranks --------------------------------------------------------------------- */

/* Strong: as many sequences on any number of ranks, in micro-batches of the same size. */
static weft_train_config_t row_config(const weft_scaling_t *scaling, bool strong, int ranks,
                                      int most)
{
    weft_train_config_t config = *scaling->asked;
    config.ranks = config.dp = ranks;
    config.pp = config.tp = 1;
    config.micro_batch = scaling->batch;
    config.accumulate = strong ? most / ranks : 1;
    config.batch = 0;
    config.zero = ranks > 1 ? config.zero : 0;
    return config;
}

static weft_status_t add_row(const weft_scaling_t *scaling, bool strong, int most,
                             weft_points_t *points)
{
    int one = points->count;
    for (int ranks = 1; ranks <= most;
         ranks = ranks < most && 2 * ranks > most ? most : 2 * ranks) {
        weft_point_t *point;
        if (strong && most % ranks != 0) {
            continue;
        }
        weft_train_config_t config = row_config(scaling, strong, ranks, most);
        WEFT_TRY(add(scaling, points, &config, &point));
        if (point == NULL) {
            return WEFT_ERR_INVALID; /* with the sentence */
        }
        point->strong = strong;
        point->one = one;
    }
    return WEFT_OK;
}

/* ---- plans -------------------------------------------------------------------------------- */

/* Plans of `ranks` ranks, as changes of a configuration; how many there are. Sizes that do not
 * divide give plans that cannot work. */
static int other_plans(const weft_train_config_t *from, int ranks, weft_train_config_t *out)
{
    const int shapes[][3] = {
        /* pp, tp, zero */
        {1, 1, 0},
        {1, 1, 1},
        {1, 1, 2},
        {1, 1, 3},
        {1, ranks, 0},
        {ranks, 1, 0},
        {1, ranks >= 4 && ranks % 2 == 0 ? 2 : 0, 0},
        {ranks >= 4 && ranks % 2 == 0 ? 2 : 0, 1, 0},
        {ranks >= 4 && ranks % 2 == 0 ? 2 : 0, ranks / 2, 0},
        {ranks >= 8 && ranks % 4 == 0 ? 2 : 0, 2, 1},
    };
    int count = 0;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        int pp = shapes[i][0], tp = shapes[i][1], zero = shapes[i][2];
        if (ranks == 1 || pp == 0 || tp == 0) {
            continue;
        }
        weft_train_config_t *config = &out[count++];
        *config = *from;
        config->ranks = ranks;
        config->pp = pp;
        config->tp = tp;
        config->zero = zero;
        config->dp = 0;
        config->micro_batch = config->accumulate = 0; /* as training divides a batch */
    }
    return count;
}

enum { PLANS_MOST = 16 };

static bool same_plan(const weft_train_config_t *a, const weft_train_config_t *b)
{
    return a->pp == b->pp && a->tp == b->tp && a->zero == b->zero;
}

/* With the batch that weak scaling has on all ranks. */
static weft_status_t add_plans(const weft_scaling_t *scaling, int most, int one,
                               weft_points_t *points)
{
    weft_train_config_t configs[PLANS_MOST];
    int count = other_plans(scaling->asked, most, configs);
    for (int i = 0; i < count; i++) {
        weft_point_t *point;
        configs[i].batch = scaling->batch * most;
        if (same_plan(&configs[i], scaling->asked)) { /* weak scaling has it */
            continue;
        }
        WEFT_TRY(add(scaling, points, &configs[i], &point));
        if (point != NULL) {
            point->other_plan = true;
            point->one = one;
        }
    }
    return WEFT_OK;
}

weft_status_t weft__points_make(const weft_scaling_t *scaling, int ranks, weft_points_t *points)
{
    points->count = 0;
    if (scaling->weak) {
        WEFT_TRY(add_row(scaling, false, ranks, points));
    }
    if (scaling->strong) {
        WEFT_TRY(add_row(scaling, true, ranks, points));
    }
    return scaling->plans && scaling->weak ? add_plans(scaling, ranks, 0, points) : WEFT_OK;
}

/* ---- remedies ----------------------------------------------------------------------------- */

static weft_status_t try_remedy(const weft_scaling_t *scaling, const weft_train_config_t *config,
                                const char *name, const char *options, weft_points_t *points)
{
    weft_point_t *point;
    WEFT_TRY(add(scaling, points, config, &point));
    if (point != NULL) {
        point->remedy = name;
        point->one = 0;
        snprintf(point->options, sizeof(point->options), "%s", options);
    }
    return WEFT_OK;
}

/* More tokens for each exchange. */
static weft_status_t larger_batch(const weft_scaling_t *scaling, const weft_point_t *point,
                                  weft_points_t *points)
{
    weft_train_config_t config = point->config;
    char options[96];
    config.accumulate *= 4;
    config.batch = 0;
    snprintf(options, sizeof(options), "--accumulate %d", config.accumulate);
    return try_remedy(scaling, &config, "larger batch", options, points);
}

/* Smaller buckets start earlier, larger ones cost fewer calls. */
static weft_status_t other_buckets(const weft_scaling_t *scaling, const weft_point_t *point,
                                   weft_points_t *points)
{
    size_t now = point->config.bucket > 0 ? point->config.bucket : (size_t)25 << 20;
    size_t sizes[] = {now / 16, now / 4, now * 4};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && point->config.dp > 1; i++) {
        weft_train_config_t config = point->config;
        char options[96], size[32];
        config.overlap = true;
        config.bucket = sizes[i];
        weft__print_size(size, sizeof(size), sizes[i]);
        snprintf(options, sizeof(options), "--overlap yes --bucket %s", size);
        WEFT_TRY(try_remedy(scaling, &config, "overlap, buckets", options, points));
    }
    return WEFT_OK;
}

static weft_status_t fewer_bits(const weft_scaling_t *scaling, const weft_point_t *point,
                                weft_points_t *points)
{
    static const char *const types[] = {"bf16", "int8"};
    for (int i = 0; i < 2 && point->config.dp > 1; i++) {
        weft_train_config_t config = point->config;
        char options[96];
        if (strcmp(config.compress, types[i]) == 0) {
            continue;
        }
        config.compress = types[i];
        snprintf(options, sizeof(options), "--compress %s", types[i]);
        WEFT_TRY(try_remedy(scaling, &config, "compression", options, points));
    }
    return WEFT_OK;
}

static weft_status_t another_plan(const weft_scaling_t *scaling, const weft_point_t *point,
                                  weft_points_t *points)
{
    weft_train_config_t configs[PLANS_MOST];
    int count = other_plans(&point->config, point->ranks, configs);
    for (int i = 0; i < count; i++) {
        char options[96], zero[24] = "";
        if (same_plan(&configs[i], &point->config)) {
            continue;
        }
        configs[i].batch = point->config.batch;
        if (configs[i].zero > 0) {
            snprintf(zero, sizeof(zero), " --zero %d", configs[i].zero);
        }
        snprintf(options, sizeof(options), "--pp %d --tp %d%s", configs[i].pp, configs[i].tp, zero);
        WEFT_TRY(try_remedy(scaling, &configs[i], "another plan", options, points));
    }
    return WEFT_OK;
}

weft_status_t weft__points_remedies(const weft_scaling_t *scaling, const weft_point_t *point,
                                    weft_points_t *points)
{
    weft_point_t *self;
    points->count = 0;
    WEFT_TRY(add(scaling, points, &point->config, &self));
    if (self == NULL) {
        return WEFT_ERR_INVALID; /* with the sentence */
    }
    WEFT_TRY(larger_batch(scaling, point, points));
    WEFT_TRY(other_buckets(scaling, point, points));
    WEFT_TRY(fewer_bits(scaling, point, points));
    return another_plan(scaling, point, points);
}

double weft__point_communication(const weft_point_t *point)
{
    const weft_breakdown_t *time = &point->time[point->median];
    return time->communication / time->step;
}
