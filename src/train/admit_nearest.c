/* The nearest run that fits: every candidate, cheapest first, until one does. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "train/admit.h"
#include "train/run_plan.h"

#define CANDIDATES_MOST 16384
#define TRIES_MOST 4000 /* a forecast takes about a millisecond, and more for long pipelines */

/* Powers of two by which something differs from what was asked for, and what it costs. */
typedef struct candidate {
    int fewer;  /* ranks are divided by 2^fewer */
    int tp, pp; /* are multiplied by 2^tp, 2^pp */
    int halves; /* micro-batches are divided by 2^halves */
    int recompute, zero;
    bool lean;
    int cost;
} candidate_t;

typedef struct search {
    const weft_setup_t *setup;
    candidate_t *list;
    int count;
} search_t;

static int cost_of(const candidate_t *c, const weft_train_config_t *config)
{
    static const int recompute[] = {0, 3, 4};
    int before = weft__recompute_named(config->recompute);
    return 40 * c->fewer + 12 * (c->tp + c->pp) + 2 * c->halves + recompute[c->recompute] -
           recompute[before] + (c->zero > config->zero ? 4 + c->zero - config->zero : 0) +
           (c->lean && !config->lean ? 3 : 0);
}

static void add(search_t *search, candidate_t c)
{
    if (search->count < CANDIDATES_MOST) {
        c.cost = cost_of(&c, search->setup->config);
        search->list[search->count++] = c;
    }
}

/* All ways to save memory with this many ranks. */
static void add_ways(search_t *search, candidate_t c)
{
    const weft_train_config_t *config = search->setup->config;
    for (c.halves = 0; config->micro_batch >> c.halves >= 1 && c.halves < 12; c.halves++) {
        for (c.recompute = weft__recompute_named(config->recompute); c.recompute < 3;
             c.recompute++) {
            for (c.zero = config->zero; c.zero < 4; c.zero++) {
                c.lean = config->lean;
                add(search, c);
                if (c.zero >= 2 && !config->lean) {
                    c.lean = true;
                    add(search, c);
                }
            }
        }
    }
}

static int by_cost(const void *a, const void *b)
{
    return ((const candidate_t *)a)->cost - ((const candidate_t *)b)->cost;
}

static void add_all(search_t *search)
{
    candidate_t c = {0};
    for (c.fewer = 0; search->setup->config->ranks >> c.fewer >= 1; c.fewer++) {
        for (c.tp = 0; c.tp <= 3; c.tp++) {
            for (c.pp = 0; c.pp <= 3; c.pp++) {
                add_ways(search, c);
            }
        }
    }
    qsort(search->list, (size_t)search->count, sizeof(*search->list), by_cost);
}

/* The configuration that a candidate stands for; false if there is none such. The batch stays. */
static bool apply(const candidate_t *c, const weft_setup_t *setup, weft_train_config_t *config)
{
    static const char *const recompute[] = {"none", "selective", "full"};
    int ranks = config->ranks, batch = config->batch;
    if (ranks % (1 << c->fewer) != 0 || config->micro_batch % (1 << c->halves) != 0) {
        return false;
    }
    config->ranks = ranks >> c->fewer;
    config->tp <<= c->tp;
    config->pp <<= c->pp;
    int inner = config->tp * config->pp;
    config->dp = config->ranks / inner;
    config->micro_batch >>= c->halves;
    config->recompute = recompute[c->recompute];
    config->zero = c->zero;
    config->lean = c->lean;
    if (config->dp < 1 || config->dp * inner != config->ranks ||
        batch % (config->dp * config->micro_batch) != 0) {
        return false;
    }
    if (config->dp == 1 && (c->zero > 0 || c->lean)) {
        return false; /* nobody to spread it over */
    }
    config->accumulate = batch / (config->dp * config->micro_batch);
    weft_plan_t plan = weft__run_plan(config);
    bool buckets = strcmp(config->dp_style, "buckets") == 0;
    return (buckets || weft__run_plan_plain(config)) &&
           config->accumulate <= WEFT_TRAIN_ACCUMULATE_MOST &&
           (!plan.lean || plan.micro_batches > 1) &&
           weft__plan_possible(&plan, &setup->model, config->ranks, batch);
}

static bool fits(const weft_forecast_t *forecast, const weft_room_t *room)
{
    return forecast->total <= room->host && forecast->device_most <= room->device;
}

/* The options that differ. Where dp does, the batch is named too: its default depends on it. */
static void describe(const weft_train_config_t *from, const weft_train_config_t *to, char *text,
                     size_t room)
{
    const struct {
        const char *name;
        int from, to;
    } rows[] = {{"-n", from->ranks, to->ranks},
                {"--dp", from->dp, to->dp},
                {"--pp", from->pp, to->pp},
                {"--tp", from->tp, to->tp},
                {"--batch", from->dp, to->dp},
                {"--micro-batch", from->micro_batch, to->micro_batch},
                {"--accumulate", from->accumulate, to->accumulate},
                {"--zero", from->zero, to->zero}};
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]) && used < room; i++) {
        bool batch = strcmp(rows[i].name, "--batch") == 0;
        if (rows[i].from != rows[i].to) {
            used += (size_t)snprintf(text + used, room - used, "%s%s %d", used > 0 ? " " : "",
                                     rows[i].name, batch ? to->batch : rows[i].to);
        }
    }
    if (strcmp(from->recompute, to->recompute) != 0 && used < room) {
        used += (size_t)snprintf(text + used, room - used, "%s--recompute %s", used > 0 ? " " : "",
                                 to->recompute);
    }
    if (from->lean != to->lean && used < room) {
        snprintf(text + used, room - used, "%s--lean", used > 0 ? " " : "");
    }
}

weft_status_t weft__admit_nearest(const weft_setup_t *setup, int ranks, const weft_room_t *room,
                                  char *text, size_t bytes, weft_forecast_t *forecast_p)
{
    search_t search = {.setup = setup, .list = calloc(CANDIDATES_MOST, sizeof(candidate_t))};
    weft_status_t status = WEFT_OK;
    text[0] = '\0';
    if (search.list == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to look for a plan that needs less");
    }
    add_all(&search);
    for (int i = 0, tries = 0; i < search.count && tries < TRIES_MOST && text[0] == '\0'; i++) {
        weft_train_config_t config = *setup->config;
        weft_setup_t other = *setup;
        other.config = &config;
        if (!apply(&search.list[i], setup, &config)) {
            continue;
        }
        int here = config.ranks == setup->config->ranks ? ranks : config.ranks;
        tries++;
        status = weft__forecast(&other, here, forecast_p);
        if (status != WEFT_OK) {
            break;
        }
        if (fits(forecast_p, room)) {
            describe(setup->config, &config, text, bytes);
        }
    }
    free(search.list);
    return status;
}
