/* weft pairs compare: two files of results, pair by pair. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/args.h"
#include "base/json_read.h"
#include "base/plain.h"
#include "bench/pairs/internal.h"
#include "bench/samples.h"

#define TIME_MOST 1e15 /* microseconds; more is no time */
#define BAND 0.05      /* runs of the same program on one machine differ by as much */

/* ---- reading ---------------------------------------------------------------------------- */

static bool is_object(const weft_json_value_t *value)
{
    return value != NULL && value->kind == WEFT_JSON_OBJECT;
}

/* Is it a file that can be compared: ours, whole, and with right results? */
static weft_status_t load(const char *path, weft_json_doc_t *doc)
{
    int64_t format = 0;
    uint64_t wrong = 0;
    WEFT_TRY(weft__json_load(path, doc));
    weft_status_t status = WEFT_OK;
    if (!weft__json_is(weft__json_get(doc->root, "kind"), "pairs")) {
        status = weft__fail(WEFT_ERR_INVALID, "%s is no result of weft pairs run --json", path);
    } else if (!weft__json_to_int(weft__json_get(doc->root, "format"), &format) ||
               format != WEFT_RESULT_FORMAT) {
        status = weft__fail(WEFT_ERR_INVALID,
                            "%s has format %lld, and this version of weft reads format %d", path,
                            (long long)format, WEFT_RESULT_FORMAT);
    } else if (!is_object(weft__json_get(doc->root, "settings")) ||
               !is_object(weft__json_get(doc->root, "machine"))) {
        status = weft__fail(WEFT_ERR_INVALID, "%s does not say its machine and settings", path);
    } else if (weft__json_to_uint(weft__json_get(doc->root, "wrong"), &wrong) && wrong > 0) {
        status = weft__fail(WEFT_ERR_INVALID,
                            "%s has %llu wrong results: their times are not compared", path,
                            (unsigned long long)wrong);
    }
    if (status != WEFT_OK) {
        weft__json_free(doc);
    }
    return status;
}

/* Times of an array: their number, 0 if one of them is no time. */
static int read_times(const weft_json_value_t *array, double times[WEFT_SAMPLE_MOST])
{
    int count = 0;
    for (const weft_json_value_t *at = weft__json_first(array); at;
         at = weft__json_next(array, at)) {
        if (count == WEFT_SAMPLE_MOST || !weft__json_to_double(at, &times[count]) ||
            !(times[count] > 0 && times[count] < TIME_MOST)) {
            return 0;
        }
        count++;
    }
    return array && array->kind == WEFT_JSON_ARRAY ? count : 0;
}

typedef struct times {
    double baseline[WEFT_SAMPLE_MOST], way[WEFT_SAMPLE_MOST];
    int count;
} times_t;

/* false: it has no times, or not as many of both. */
static bool times_of(const weft_json_value_t *pair, const weft_json_value_t *way, times_t *times)
{
    times->count = read_times(weft__json_get(way, "us"), times->way);
    int baseline = read_times(weft__json_get(pair, "baseline_us"), times->baseline);
    return times->count > 0 && times->count == baseline;
}

/* ---- finding ---------------------------------------------------------------------------- */

/* A way of a file, by the names that both files have for it. */
typedef struct entry {
    const char *name, *way_name;
    uint64_t bytes;
    const weft_json_value_t *pair, *way;
} entry_t;

/* All ways of a file in the order of their names: each is found by halving. */
typedef struct ways_index {
    entry_t *entries;
    size_t count;
} ways_index_t;

static int by_names(const void *a, const void *b)
{
    const entry_t *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    order = order != 0 ? order : (x->bytes > y->bytes) - (x->bytes < y->bytes);
    return order != 0 ? order : strcmp(x->way_name, y->way_name);
}

/* Of what is there twice the first counts. */
static int by_names_and_order(const void *a, const void *b)
{
    const entry_t *x = a, *y = b;
    int order = by_names(a, b);
    return order != 0 ? order : (x->way > y->way) - (x->way < y->way);
}

static entry_t entry_of(const weft_json_value_t *pair, const weft_json_value_t *way)
{
    entry_t entry = {.pair = pair, .way = way};
    entry.name = weft__json_text(weft__json_get(pair, "name"), "?");
    entry.way_name = weft__json_text(weft__json_get(way, "name"), "?");
    weft__json_to_uint(weft__json_get(pair, "bytes"), &entry.bytes);
    return entry;
}

/* Calls `visit` for every way of a file, in order. */
static void each_way(const weft_json_doc_t *doc, void (*visit)(const entry_t *entry, void *ctx),
                     void *ctx)
{
    const weft_json_value_t *pairs = weft__json_get(doc->root, "pairs");
    for (const weft_json_value_t *pair = weft__json_first(pairs); pair;
         pair = weft__json_next(pairs, pair)) {
        const weft_json_value_t *ways = weft__json_get(pair, "ways");
        for (const weft_json_value_t *way = weft__json_first(ways); way;
             way = weft__json_next(ways, way)) {
            const entry_t entry = entry_of(pair, way);
            visit(&entry, ctx);
        }
    }
}

static void count_way(const entry_t *entry, void *ctx)
{
    (void)entry;
    ++*(size_t *)ctx;
}

static void add_way(const entry_t *entry, void *ctx)
{
    ways_index_t *index = ctx;
    index->entries[index->count++] = *entry;
}

static weft_status_t make_index(const weft_json_doc_t *doc, ways_index_t *index)
{
    size_t count = 0, kept = 0;
    each_way(doc, count_way, &count);
    *index = (ways_index_t){.entries = calloc(count + 1, sizeof(entry_t))};
    if (!index->entries) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to compare %zu ways", count);
    }
    each_way(doc, add_way, index);
    qsort(index->entries, count, sizeof(entry_t), by_names_and_order);
    for (size_t i = 0; i < count; i++) {
        if (kept == 0 || by_names(&index->entries[kept - 1], &index->entries[i]) != 0) {
            index->entries[kept++] = index->entries[i];
        }
    }
    index->count = kept;
    return WEFT_OK;
}

/* ---- what differs beside times ---------------------------------------------------------- */

static void value_text(const weft_json_value_t *value, char *text, size_t room)
{
    int64_t number;
    if (weft__json_to_int(value, &number)) {
        snprintf(text, room, "%lld", (long long)number);
    } else {
        weft__plain(text, room, weft__json_text(value, "not said"), false);
    }
}

static void tell_difference(const char *what, const weft_json_value_t *a,
                            const weft_json_value_t *b)
{
    char text_a[64], text_b[64];
    value_text(a, text_a, sizeof(text_a));
    value_text(b, text_b, sizeof(text_b));
    if (strcmp(text_a, text_b) != 0) {
        char name[80];
        printf("# %s: %s, then %s\n", weft__plain(name, sizeof(name), what, false),
               text_a[0] ? text_a : "\"\"", text_b[0] ? text_b : "\"\"");
    }
}

/* Settings of one file that the other has otherwise, or not at all. */
static void tell_settings(const weft_json_doc_t *a, const weft_json_doc_t *b)
{
    const weft_json_value_t *from = weft__json_get(a->root, "settings");
    const weft_json_value_t *to = weft__json_get(b->root, "settings");
    for (const weft_json_value_t *key = weft__json_first(from); key;
         key = weft__json_next(from, key)) {
        if (!weft__pairs_is_location(key->as.text)) {
            tell_difference(key->as.text, key + 1, weft__json_get(to, key->as.text));
        }
    }
    for (const weft_json_value_t *key = weft__json_first(to); key; key = weft__json_next(to, key)) {
        if (!weft__json_get(from, key->as.text) && !weft__pairs_is_location(key->as.text)) {
            tell_difference(key->as.text, NULL, key + 1);
        }
    }
}

static void tell_differences(const weft_json_doc_t *a, const weft_json_doc_t *b)
{
    const char *const machine[] = {"host", "processor", "cpus", "gpu", "gpus"};
    const char *const head[] = {"version", "commit",      "ranks",   "ranks_are", "device",
                                "build",   "device_name", "kernels", "profile"};
    const weft_json_value_t *from = weft__json_get(a->root, "machine");
    const weft_json_value_t *to = weft__json_get(b->root, "machine");
    for (size_t i = 0; i < sizeof(machine) / sizeof(machine[0]); i++) {
        tell_difference(machine[i], weft__json_get(from, machine[i]),
                        weft__json_get(to, machine[i]));
    }
    for (size_t i = 0; i < sizeof(head) / sizeof(head[0]); i++) {
        tell_difference(head[i], weft__json_get(a->root, head[i]),
                        weft__json_get(b->root, head[i]));
    }
    tell_settings(a, b);
}

/* ---- comparing -------------------------------------------------------------------------- */

typedef struct tally {
    int compared, slower, faster, alone; /* alone: in one file only */
} tally_t;

static void print_change(const char *name, uint64_t bytes, const char *way, const times_t *a,
                         const times_t *b, const weft_ratio_t *change)
{
    const weft_ratio_t from = weft__ratio_of(a->baseline, a->way, a->count, 1);
    const weft_ratio_t to = weft__ratio_of(b->baseline, b->way, b->count, 1);
    char size[32], interval[32], name_shown[64], way_shown[64];
    weft__pairs_show_size(bytes, size);
    weft__pairs_show_interval(change, interval);
    printf("  %-17s %5s %-15s %5.2f %5.2f %5.2f %-11s %s\n",
           weft__plain(name_shown, sizeof(name_shown), name, false), size,
           weft__plain(way_shown, sizeof(way_shown), way, false), from.ratio, to.ratio,
           change->ratio, interval, weft__verdict_name(change->verdict));
}

typedef struct comparing {
    const ways_index_t *other;
    tally_t tally;
} comparing_t;

static void compare_way(const entry_t *mine, void *ctx)
{
    comparing_t *c = ctx;
    times_t a, b;
    const entry_t *there = bsearch(mine, c->other->entries, c->other->count, sizeof(entry_t),
                                   by_names);
    if (!times_of(mine->pair, mine->way, &a) || !there || !times_of(there->pair, there->way, &b)) {
        c->tally.alone++;
        return;
    }
    const weft_times_t from = {a.baseline, a.way, a.count}, to = {b.baseline, b.way, b.count};
    weft_ratio_t change = weft__ratio_change(&from, &to, BAND, 1);
    print_change(mine->name, mine->bytes, mine->way_name, &a, &b, &change);
    c->tally.compared++;
    c->tally.slower += change.verdict == WEFT_VERDICT_SLOWER;
    c->tally.faster += change.verdict == WEFT_VERDICT_FASTER;
}

weft_status_t weft__pairs_compare(const char *path_a, const char *path_b, int *slower_p)
{
    weft_json_doc_t a, b;
    ways_index_t index = {.entries = NULL};
    comparing_t comparing = {.other = &index};
    const tally_t *tally = &comparing.tally;
    WEFT_TRY(load(path_a, &a));
    weft_status_t status = load(path_b, &b);
    if (status != WEFT_OK) {
        goto err_a;
    }
    status = make_index(&b, &index);
    if (status != WEFT_OK) {
        goto err_b;
    }
    printf("# A: %s\n# B: %s\n", path_a, path_b);
    tell_differences(&a, &b);
    printf("#\n# %-17s %5s %-15s %5s %5s %5s %-11s %s\n", "pair", "bytes", "way", "A", "B", "B/A",
           "95%", "verdict");
    each_way(&a, compare_way, &comparing);
    char alone[80] = "", text[240];
    if (tally->alone > 0) {
        snprintf(alone, sizeof(alone), "; %d of A have no times, or none in B", tally->alone);
    }
    snprintf(text, sizeof(text), "%d compared, %d slower, %d faster against their baselines%s",
             tally->compared, tally->slower, tally->faster, alone);
    printf("#\n");
    weft__print_comment(stdout, text);
    if (tally->compared == 0) {
        status = weft__fail(WEFT_ERR_INVALID, "%s and %s have no pair of one size in common",
                            path_a, path_b);
    }
    *slower_p = tally->slower;
    free(index.entries);
err_b:
    weft__json_free(&b);
err_a:
    weft__json_free(&a);
    return status;
}
