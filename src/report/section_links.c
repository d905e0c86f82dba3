/* Links between ranks: heat maps, and what else weft links measures. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "report/html.h"
#include "report/input.h"
#include "report/page.h"
#include "report/plot.h"
#include "report/section.h"
#include "report/section_links.h"
#include "report/values.h"

#define RANKS_MOST 32  /* of a heat map; more are told of */
#define KINDS_MOST 32  /* of links, in the table */
#define RANK_LIMIT 1e6 /* larger numbers are no ranks */

typedef struct measure {
    const char *key, *title, *unit;
} measure_t;

static const measure_t measures[] = {
    {"one_way_gbs", "One way", "GB/s"},
    {"both_ways_gbs", "Both ways at once", "GB/s"},
    {"latency_us", "Latency", "us"},
};
#define MEASURES ((int)(sizeof(measures) / sizeof(measures[0])))

/* ---- heat maps ------------------------------------------------------------------------------ */

typedef struct map {
    int size;
    double *values;
    bool *slow;
    const char **links;
} map_t;

/* The two ranks of a pair; false: it does not say. */
static bool ranks_of(const weft_json_value_t *pair, int *from, int *to)
{
    double a = weft__value_number(pair, "from"), b = weft__value_number(pair, "to");
    if (!(a >= 0 && a < RANK_LIMIT && b >= 0 && b < RANK_LIMIT) || a != floor(a) || b != floor(b)) {
        return false;
    }
    *from = (int)a;
    *to = (int)b;
    return true;
}

static int count_ranks(const weft_json_value_t *pairs, size_t *unreadable)
{
    int size = 0, from, to;
    for (const weft_json_value_t *pair = weft__json_first(pairs); pair != NULL;
         pair = weft__json_next(pairs, pair)) {
        if (!ranks_of(pair, &from, &to)) {
            ++*unreadable;
            continue;
        }
        size = from >= size ? from + 1 : size;
        size = to >= size ? to + 1 : size;
    }
    return size;
}

/* Returns whether there is a value at all. */
static bool fill(map_t *map, const weft_json_value_t *pairs, const char *key)
{
    bool any = false;
    for (int i = 0; i < map->size * map->size; i++) {
        map->values[i] = NAN;
    }
    for (const weft_json_value_t *pair = weft__json_first(pairs); pair != NULL;
         pair = weft__json_next(pairs, pair)) {
        int from, to;
        if (ranks_of(pair, &from, &to)) {
            int at = from * map->size + to;
            map->values[at] = weft__value_number(pair, key);
            weft__json_to_bool(weft__json_get(pair, "slow"), &map->slow[at]);
            map->links[at] = weft__json_text(weft__json_get(pair, "link"), NULL);
            any = any || !isnan(map->values[at]);
        }
    }
    return any;
}

static weft_status_t draw_maps(const weft_json_value_t *pairs, int size, FILE *out)
{
    map_t map = {.size = size};
    size_t cells = (size_t)size * (size_t)size;
    weft_status_t status = weft__values_alloc(&map.values, cells, sizeof(*map.values));
    status = status == WEFT_OK ? weft__values_alloc(&map.slow, cells, sizeof(*map.slow)) : status;
    status = status == WEFT_OK ? weft__values_alloc(&map.links, cells, sizeof(*map.links)) : status;
    if (status == WEFT_OK) {
        fputs("<div class=\"grid three\">\n", out);
        for (int i = 0; i < MEASURES; i++) {
            if (fill(&map, pairs, measures[i].key)) {
                const weft_heat_t heat = {.title = measures[i].title,
                                          .unit = measures[i].unit,
                                          .size = size,
                                          .values = map.values,
                                          .marked = map.slow,
                                          .texts = map.links};
                weft__plot_heat(out, &heat);
            }
        }
        weft__grid_close(out);
    }
    free(map.values);
    free(map.slow);
    free(map.links);
    return status;
}

/* ---- tables --------------------------------------------------------------------------------- */

static void write_slow(const weft_json_value_t *pairs, FILE *out)
{
    static const char *const columns[] = {
        "slow pair", "link", "#one way GB/s", "#expected GB/s", "#both ways GB/s", "#latency us"};
    static const char *const keys[] = {"one_way_gbs", "expected_gbs", "both_ways_gbs",
                                       "latency_us"};
    bool any = false;
    for (const weft_json_value_t *pair = weft__json_first(pairs); pair != NULL;
         pair = weft__json_next(pairs, pair)) {
        char text[64];
        bool slow = false;
        int from, to;
        weft__json_to_bool(weft__json_get(pair, "slow"), &slow);
        if (!slow || !ranks_of(pair, &from, &to)) {
            continue;
        }
        if (!any) {
            weft__html_table(out, columns, 6);
            any = true;
        }
        weft__html_row(out);
        snprintf(text, sizeof(text), "%d \xE2\x86\x92 %d", from, to);
        weft__html_cell(out, text);
        weft__html_cell(out, weft__value_text(pair, "link"));
        for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
            double value = weft__value_number(pair, keys[i]);
            weft__html_number(out, value, weft__number_text(text, value, WEFT_NUMBER_PLAIN));
        }
        weft__html_row_end(out);
    }
    if (any) {
        weft__html_table_end(out);
    }
}

/* The kinds of links that occur, in the order in which they do. */
static int find_kinds(const weft_json_value_t *pairs, const char **kinds)
{
    int count = 0;
    for (const weft_json_value_t *pair = weft__json_first(pairs); pair != NULL;
         pair = weft__json_next(pairs, pair)) {
        const char *link = weft__value_text(pair, "link");
        int i = 0;
        while (i < count && strcmp(kinds[i], link) != 0) {
            i++;
        }
        if (i == count && count < KINDS_MOST) {
            kinds[count++] = link;
        }
    }
    return count;
}

static double median_of_kind(const weft_json_value_t *pairs, const char *kind, const char *key,
                             double *room, size_t *count_p)
{
    size_t count = 0;
    *count_p = 0;
    for (const weft_json_value_t *pair = weft__json_first(pairs); pair != NULL;
         pair = weft__json_next(pairs, pair)) {
        if (strcmp(weft__value_text(pair, "link"), kind) == 0) {
            double value = weft__value_number(pair, key);
            ++*count_p;
            if (!isnan(value)) {
                room[count++] = value;
            }
        }
    }
    return weft__values_median(room, count);
}

static weft_status_t write_kinds(const weft_json_value_t *pairs, FILE *out)
{
    static const char *const columns[] = {"kind of link", "#pairs", "#one way GB/s, median",
                                          "#both ways GB/s, median", "#latency us, median"};
    const char *kinds[KINDS_MOST];
    double *room;
    char text[WEFT_NUMBER_TEXT];
    int count = find_kinds(pairs, kinds);
    WEFT_TRY(weft__values_alloc(&room, pairs->length, sizeof(*room)));
    weft__html_table(out, columns, 5);
    for (int i = 0; i < count; i++) {
        weft__html_row(out);
        weft__html_cell(out, kinds[i][0] != '\0' ? kinds[i] : "not known");
        for (int m = 0; m < MEASURES; m++) {
            size_t members;
            double median = median_of_kind(pairs, kinds[i], measures[m].key, room, &members);
            if (m == 0) {
                weft__html_number(out, (double)members,
                                  weft__number_text(text, (double)members, WEFT_NUMBER_PLAIN));
            }
            weft__html_number(out, median, weft__number_text(text, median, WEFT_NUMBER_PLAIN));
        }
        weft__html_row_end(out);
    }
    weft__html_table_end(out);
    free(room);
    return WEFT_OK;
}

/* ---- all of it ------------------------------------------------------------------------------ */

static void write_findings(const weft_json_value_t *root, FILE *out)
{
    const weft_json_value_t *findings = weft__value_array(root, "findings");
    for (const weft_json_value_t *at = findings != NULL ? weft__json_first(findings) : NULL;
         at != NULL; at = weft__json_next(findings, at)) {
        weft__note(out, weft__value_text(at, "text"));
    }
}

static weft_status_t write_pairs(const weft_json_value_t *pairs, FILE *out)
{
    size_t unreadable = 0;
    int size = count_ranks(pairs, &unreadable);
    char text[200];
    if (unreadable > 0) {
        snprintf(text, sizeof(text),
                 "Pairs that do not say between which ranks, which are left out: %zu.", unreadable);
        weft__note(out, text);
    }
    if (size > RANKS_MOST) {
        snprintf(text, sizeof(text),
                 "Ranks go up to %d; heat maps are drawn for up to %d ranks. The tables have all "
                 "pairs.",
                 size - 1, RANKS_MOST);
        weft__note(out, text);
    } else if (size > 0) {
        WEFT_TRY(draw_maps(pairs, size, out));
    }
    write_slow(pairs, out);
    return write_kinds(pairs, out);
}

weft_status_t weft__section_links(const weft_report_t *report, FILE *out)
{
    int files = weft__input_count(report, WEFT_INPUT_LINKS);
    for (const weft_input_t *input = NULL;
         (input = weft__input_next(report, WEFT_INPUT_LINKS, input)) != NULL;) {
        const weft_json_value_t *root = input->doc.root;
        const weft_json_value_t *pairs = weft__value_array(root, "pairs");
        if (files > 1) {
            fputs("<h3>", out);
            weft__html_text(out, input->label);
            fputs("</h3>\n", out);
        }
        write_findings(root, out);
        if (pairs != NULL) {
            WEFT_TRY(write_pairs(pairs, out));
        } else {
            weft__note(out, "There are no pairs of ranks in this file.");
        }
        WEFT_TRY(weft__links_more(root, out));
    }
    return WEFT_OK;
}
