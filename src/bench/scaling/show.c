/* Tables and JSON of scaling. */
#include <stdio.h>
#include <string.h>

#include "bench/scaling/points.h"

/* ---- numbers ------------------------------------------------------------------------------ */

/* The slowest and the fastest round. */
static void range_of(const weft_scaling_t *scaling, const weft_point_t *point, double *least_p,
                     double *most_p)
{
    *least_p = *most_p = point->rate[0];
    for (int i = 1; i < scaling->rounds; i++) {
        *least_p = point->rate[i] < *least_p ? point->rate[i] : *least_p;
        *most_p = point->rate[i] > *most_p ? point->rate[i] : *most_p;
    }
}

/* Half of the way from the slowest round to the fastest, as a share of the median. */
static double spread_of(const weft_scaling_t *scaling, const weft_point_t *point)
{
    double least, most;
    range_of(scaling, point, &least, &most);
    return (most - least) / 2 / point->rate[point->median];
}

static const char *rate_text(double rate, char *text, size_t room)
{
    const char *unit = rate < 1e4 ? "" : rate < 1e7 ? "k" : "M";
    double value = rate < 1e4 ? rate : rate < 1e7 ? rate / 1e3 : rate / 1e6;
    snprintf(text, room, value < 100 && unit[0] != '\0' ? "%.1f%s" : "%.0f%s", value, unit);
    return text;
}

/* More ranks than cores, or than GPUs: how many there are of them; 0 if there are enough. */
static int shared_devices(const weft_scaling_t *scaling, const char **what_p)
{
    const weft_machine_t *machine = &scaling->base->machine;
    bool gpus = strcmp(scaling->base->device, "cuda") == 0;
    int there = gpus ? machine->gpus : machine->cpus_job;
    *what_p = gpus ? "GPU" : "core";
    return there > 0 && scaling->base->config->ranks > there ? there : 0;
}

/* Without the sign of what is rounded to 0. */
static double percent(double share)
{
    double value = 100 * share;
    return value > -0.05 && value < 0.0 ? 0.0 : value;
}

/* ---- tables ------------------------------------------------------------------------------- */

static void print_heads(void)
{
    printf("# %5s %-17s %8s %3s %5s", "ranks", "plan", "tokens/s", "+-%", "eff.%");
#define HEAD(field, head) printf(" %5s", head);
    WEFT_LOST_TABLE(HEAD)
#undef HEAD
    printf("\n");
}

/* In 6 columns; of what is far off, as a noisy machine gives, without a fraction. */
static void print_percent(double value)
{
    printf(" %5.*f", value > -99.95 && value < 999.95 ? 1 : 0, value);
}

static void print_point(const weft_scaling_t *scaling, const weft_point_t *point)
{
    char rate[32];
    printf("  %5d %-17s %8s %3.0f %5.1f", point->ranks, point->plan,
           rate_text(point->rate[point->median], rate, sizeof(rate)),
           100 * spread_of(scaling, point), 100 * point->lost.efficiency);
#define PRINT(field, head) print_percent(percent(point->lost.field));
    WEFT_LOST_TABLE(PRINT)
#undef PRINT
    printf("\n");
}

static void print_some(const weft_scaling_t *scaling, const weft_points_t *points, bool strong,
                       bool other_plan)
{
    for (int i = 0; i < points->count; i++) {
        const weft_point_t *point = &points->list[i];
        if (point->strong == strong && point->other_plan == other_plan) {
            print_point(scaling, point);
        }
    }
}

static void print_shared(const weft_scaling_t *scaling)
{
    const char *what;
    int there = shared_devices(scaling, &what), ranks = scaling->base->config->ranks;
    if (there > 0) {
        printf("#\n# Oversubscribed: %d ranks share %d %s%s, so that they reach an efficiency of "
               "%.0f%%\n# at best. What they lose to that is in the rest, and where ranks wait for "
               "others\n# that wait for their turn.\n",
               ranks, there, what, there == 1 ? "" : "s", 100.0 * there / ranks);
    }
}

/* Where communication takes more than it should. */
static void print_rule(const weft_scaling_t *scaling, const weft_points_t *points)
{
    int above = 0;
    for (int i = 0; i < points->count; i++) {
        const weft_point_t *point = &points->list[i];
        double share = weft__point_communication(point);
        if (share > scaling->limit) {
            printf("%s# %s on %d ranks%s: communication takes %.0f%% of a step, above %.0f%%.\n",
                   above++ == 0 ? "#\n" : "", point->plan, point->ranks,
                   point->strong ? " (strong)" : "", 100 * share, 100 * scaling->limit);
        }
    }
    if (above > 0 && !scaling->remedies) {
        printf("# Four things help: a larger batch or accumulation; overlap and other buckets;\n"
               "# gradient compression; another plan, with fewer ranks in a group. weft scaling\n"
               "# --remedies tries each.\n");
    } else if (above == 0) {
        printf("#\n# Communication takes at most %.0f%% of a step everywhere: no remedy is due.\n",
               100 * scaling->limit);
    }
}

void weft__scaling_print(const weft_scaling_t *scaling, const weft_points_t *points)
{
    int length = scaling->base->config->length;
    printf("# efficiency: (throughput / throughput of 1 rank) / ranks; the columns after it\n"
           "# divide what is lost, 100%% - efficiency (docs/scaling.md)\n");
    if (scaling->weak) {
        printf("#\n# weak scaling: %d x %d tokens on each rank\n", scaling->batch, length);
        print_heads();
        print_some(scaling, points, false, false);
    }
    if (scaling->strong) {
        printf("#\n# strong scaling: %d x %d tokens in all\n",
               scaling->batch * scaling->base->config->ranks, length);
        print_heads();
        print_some(scaling, points, true, false);
    }
    if (scaling->plans && scaling->weak && scaling->base->config->ranks > 1) {
        printf("#\n# other plans: %d x %d tokens, as weak scaling on %d ranks\n",
               scaling->batch * scaling->base->config->ranks, length, scaling->base->config->ranks);
        print_heads();
        print_some(scaling, points, false, true);
    }
    print_shared(scaling);
    print_rule(scaling, points);
    fflush(stdout);
}

static double gain_of(const weft_points_t *tried, const weft_point_t *point)
{
    const weft_point_t *self = &tried->list[0];
    return point->rate[point->median] / self->rate[self->median] - 1.0;
}

/* Do some rounds of it lie among those without the remedy? One round does not tell. */
static bool is_noise(const weft_scaling_t *scaling, const weft_points_t *tried,
                     const weft_point_t *point)
{
    double least, most, self_least, self_most;
    range_of(scaling, point, &least, &most);
    range_of(scaling, &tried->list[0], &self_least, &self_most);
    return scaling->rounds < 2 || (least <= self_most && most >= self_least);
}

/* Which remedy gains most beyond the noise, if one does. */
static void print_best(const weft_scaling_t *scaling, const weft_points_t *tried)
{
    const weft_point_t *best = NULL;
    for (int i = 1; i < tried->count; i++) {
        const weft_point_t *point = &tried->list[i];
        double least = best != NULL ? gain_of(tried, best) : 0.0;
        if (!is_noise(scaling, tried, point) && gain_of(tried, point) > least) {
            best = point;
        }
    }
    if (best != NULL) {
        printf("# What helps most, with %+.1f%% tokens/s: %s\n#   %s\n", 100 * gain_of(tried, best),
               best->remedy, best->options);
    } else if (scaling->rounds < 2) {
        printf("# One round does not tell a gain from noise: give --rounds 3 or more.\n");
    } else {
        printf("# No remedy helps beyond the noise.\n");
    }
}

void weft__scaling_print_remedies(const weft_scaling_t *scaling, const weft_points_t *tried)
{
    char rate[32];
    const weft_point_t *self = &tried->list[0];
    printf("#\n# remedies for %s on %d ranks: %s tokens/s +-%.0f%%,\n# communication %.0f%% of a "
           "step\n",
           self->plan, self->ranks, rate_text(self->rate[self->median], rate, sizeof(rate)),
           100 * spread_of(scaling, self), 100 * weft__point_communication(self));
    if (self->config.dp <= 1) {
        printf("# overlap, buckets and compression are left out: with dp 1 no gradients are "
               "exchanged\n");
    }
    printf("# %-16s %-28s %8s %4s %7s %4s\n", "remedy", "options", "tokens/s", "+-%", "gain",
           "comm");
    for (int i = 1; i < tried->count; i++) {
        const weft_point_t *point = &tried->list[i];
        double gain = 100 * gain_of(tried, point);
        printf("  %-16s %-28s %8s %4.0f %+6.*f%% %3.0f%%%s\n", point->remedy, point->options,
               rate_text(point->rate[point->median], rate, sizeof(rate)),
               100 * spread_of(scaling, point), gain < 1000 ? 1 : 0, gain,
               100 * weft__point_communication(point),
               is_noise(scaling, tried, point) ? " noise" : "");
    }
    print_best(scaling, tried);
}

/* ---- JSON --------------------------------------------------------------------------------- */

static void write_rates(const weft_scaling_t *scaling, const weft_point_t *point, weft_json_t *json)
{
    weft__json_double(json, "tokens_per_s", point->rate[point->median]);
    weft__json_array(json, "rounds");
    for (int i = 0; i < scaling->rounds; i++) {
        weft__json_double(json, NULL, point->rate[i]);
    }
    weft__json_end(json);
}

static void write_point(const weft_scaling_t *scaling, const weft_point_t *point, weft_json_t *json)
{
    weft__json_object(json, NULL);
    weft__json_string(json, "mode", point->strong ? "strong" : "weak");
    weft__json_int(json, "ranks", point->ranks);
    weft__json_string(json, "plan", point->plan);
    weft__json_bool(json, "other_plan", point->other_plan);
    weft__json_int(json, "batch", point->config.batch);
    write_rates(scaling, point, json);
    weft__json_double(json, "efficiency", point->lost.efficiency);
    weft__json_object(json, "lost");
#define WRITE(field, head) weft__json_double(json, #field, point->lost.field);
    WEFT_LOST_TABLE(WRITE)
#undef WRITE
    weft__json_end(json);
    weft__json_double(json, "lost_compute", point->lost.compute);
    weft__breakdown_write(&point->time[point->median], "time", json);
    weft__json_end(json);
}

static void write_remedies(const weft_scaling_t *scaling, const weft_points_t *tried,
                           weft_json_t *json)
{
    for (int i = 1; i < tried->count; i++) {
        const weft_point_t *point = &tried->list[i];
        weft__json_object(json, NULL);
        weft__json_string(json, "name", point->remedy);
        weft__json_string(json, "options", point->options);
        weft__json_string(json, "plan", point->plan);
        write_rates(scaling, point, json);
        weft__json_double(json, "gain", gain_of(tried, point));
        weft__json_bool(json, "noise", is_noise(scaling, tried, point));
        weft__json_double(json, "communication", weft__point_communication(point));
        weft__json_end(json);
    }
}

void weft__scaling_write(const weft_scaling_t *scaling, const weft_points_t *points,
                         const weft_points_t *tried, weft_json_t *json)
{
    const char *what;
    weft__json_string(json, "model", scaling->base->config->model);
    weft__json_string(json, "precision", scaling->base->config->precision);
    weft__json_int(json, "batch_per_rank", scaling->batch);
    weft__json_int(json, "length", scaling->base->config->length);
    weft__json_int(json, "steps", scaling->steps);
    weft__json_bool(json, "oversubscribed", shared_devices(scaling, &what) > 0);
    weft__json_double(json, "limit", scaling->limit);
    weft__json_array(json, "points");
    for (int i = 0; i < points->count; i++) {
        write_point(scaling, &points->list[i], json);
    }
    weft__json_end(json);
    if (tried->count > 0) { /* what they are tried on */
        weft__json_object(json, "remedies_for");
        weft__json_string(json, "plan", tried->list[0].plan);
        weft__json_int(json, "ranks", tried->list[0].ranks);
        write_rates(scaling, &tried->list[0], json);
        weft__json_double(json, "communication", weft__point_communication(&tried->list[0]));
        weft__json_end(json);
    }
    weft__json_array(json, "remedies");
    write_remedies(scaling, tried, json);
    weft__json_end(json);
}
