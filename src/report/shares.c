#include "report/shares.h"

#include <math.h>
#include <string.h>

#include "report/values.h"

/* What occurs in several plots has one color in all of them, the timeline's included. */
static const weft_bar_part_t known[] = {
    {"useful", 0},   {"compute", 0},   {"forward", 0},       {"communication", 1},
    {"backward", 2}, {"bubble", 3},    {"recomputation", 4}, {"imbalance", 2},
    {"data", 5},     {"optimizer", 6}, {"rest", 7},          {"other", 7},
};

static bool is_used(const weft_shares_t *shares, int color)
{
    for (int i = 0; i < shares->part_count; i++) {
        if (shares->parts[i].color == color) {
            return true;
        }
    }
    return false;
}

static void add_part(weft_shares_t *shares, const char *name)
{
    int color = 0;
    size_t i = 0, count = sizeof(known) / sizeof(known[0]);
    while (i < count && strcmp(known[i].name, name) != 0) {
        i++;
    }
    if (i < count && !is_used(shares, known[i].color)) {
        color = known[i].color;
    } else {
        while (color < WEFT_PLOT_COLORS - 1 && is_used(shares, color)) {
            color++;
        }
    }
    shares->parts[shares->part_count++] = (weft_bar_part_t){name, color};
}

void weft__shares_first(weft_shares_t *shares, const char *name)
{
    add_part(shares, name);
}

/* The number of the part with this name. */
static int part_of(weft_shares_t *shares, const char *name)
{
    for (int i = 0; i < shares->part_count; i++) {
        if (strcmp(shares->parts[i].name, name) == 0) {
            return i;
        }
    }
    if (shares->part_count < WEFT_SHARES_PARTS) {
        add_part(shares, shares->part_count == WEFT_SHARES_PARTS - 1 ? "other" : name);
    }
    return shares->part_count - 1;
}

/* A part's value; NaN if it is none, or the sum of others. */
static double value_of(const weft_json_value_t *key)
{
    double value = NAN;
    if (strcmp(key->as.text, "peak") == 0 || strcmp(key->as.text, "total") == 0) {
        return NAN;
    }
    weft__json_to_double(key + 1, &value);
    return isfinite(value) && value > 0 ? value : NAN;
}

static double total_of(const weft_json_value_t *object)
{
    double total = 0;
    for (const weft_json_value_t *key = weft__json_first(object); key != NULL;
         key = weft__json_next(object, key)) {
        double value = value_of(key);
        total += isnan(value) ? 0 : value;
    }
    return total;
}

bool weft__shares_add(weft_shares_t *shares, const char *label, const weft_json_value_t *object,
                      double first, double sum)
{
    bool is_object = object != NULL && object->kind == WEFT_JSON_OBJECT;
    double total = is_object ? total_of(object) : 0;
    if (!(total > 0)) {
        return false;
    }
    if (shares->count == WEFT_SHARES_BARS) {
        shares->more++;
        return true;
    }
    int bar = shares->count++;
    double *values = shares->values[bar];
    snprintf(shares->labels[bar], WEFT_SHARES_LABEL, "%s", label);
    shares->bars[bar] = (weft_bar_t){.label = shares->labels[bar], .parts = values};
    if (!isnan(first)) {
        values[0] = first;
        shares->bars[bar].text = weft__number_text(shares->texts[bar], first, WEFT_NUMBER_PERCENT);
    } else if (!isnan(sum)) {
        shares->bars[bar].text = ""; /* all bars have the same sum */
    }
    for (const weft_json_value_t *key = weft__json_first(object); key != NULL;
         key = weft__json_next(object, key)) {
        double value = value_of(key);
        if (!isnan(value)) {
            values[part_of(shares, key->as.text)] += isnan(sum) ? value : value / total * sum;
        }
    }
    return true;
}

void weft__shares_draw(weft_shares_t *shares, const weft_plot_t *plot, FILE *out)
{
    weft_plot_t shown = *plot;
    char note[400];
    if (shares->more > 0) {
        snprintf(note, sizeof(note), "%.300s %d more are not shown.",
                 plot->note != NULL ? plot->note : "", shares->more);
        shown.note = note;
    }
    if (shares->count > 0) {
        weft__plot_bars(out, &shown, shares->parts, shares->part_count, shares->bars,
                        shares->count);
    }
}
