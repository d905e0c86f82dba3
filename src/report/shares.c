#include "report/shares.h"

#include <math.h>
#include <string.h>

#include "report/values.h"

void weft__shares_first(weft_shares_t *shares, const char *name)
{
    shares->names[shares->part_count++] = name;
}

/* The number of the part with this name. */
static int part_of(weft_shares_t *shares, const char *name)
{
    for (int i = 0; i < shares->part_count; i++) {
        if (strcmp(shares->names[i], name) == 0) {
            return i;
        }
    }
    if (shares->part_count < WEFT_SHARES_PARTS) {
        bool last = shares->part_count == WEFT_SHARES_PARTS - 1;
        shares->names[shares->part_count++] = last ? "other" : name;
    }
    return shares->part_count - 1;
}

/* A part's value; NaN if it is none. */
static double value_of(const weft_json_value_t *key)
{
    double value = NAN;
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
        weft__plot_bars(out, &shown, shares->names, shares->part_count, shares->bars,
                        shares->count);
    }
}
