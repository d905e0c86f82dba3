#include "bench/statistics.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/median.h"
#include "bench/samples.h"

#define RESAMPLES 2000
#define SHOWN 0.95
#define SURE 0.998

const char *weft__verdict_name(weft_verdict_t verdict)
{
    static const char *const names[] = {"the same", "faster", "slower", "noisy"};
    return names[verdict];
}

/* Logarithms of the ratios, sorted: there, twice as fast and twice as slow are equally far. */
static void sorted_logs(const double *baseline, const double *way, int count, double *logs)
{
    for (int i = 0; i < count; i++) {
        logs[i] = log(baseline[i] / way[i]);
    }
    weft__sort(logs, (size_t)count);
}

/* How many of `count` values may be left out on either side of an interval for their median that
 * holds with `confidence`; -1 if not even all values reach that. */
static int outside(int count, double confidence)
{
    double chance = pow(0.5, count), sum = 0; /* that `k` of them lie below the median */
    int k = 0;
    for (; k < count; k++) {
        sum += chance;
        if (sum > (1 - confidence) / 2) {
            break;
        }
        chance *= (double)(count - k) / (k + 1);
    }
    return k - 1;
}

/* ---- bootstrap -------------------------------------------------------------------------- */

/* SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): a million draws for every interval. */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

/* The median of as many values, drawn with replacement. Draws are counted by position, so nothing
 * has to be sorted again. */
static double resample(const double *sorted, int count, uint64_t *state)
{
    uint16_t drawn[WEFT_SAMPLE_MOST] = {0};
    for (int i = 0; i < count; i += 4) {
        uint64_t bits = next_random(state);
        for (int k = 0; k < 4 && i + k < count; k++) {
            drawn[(bits >> 16 * k & 0xFFFF) * (uint64_t)count >> 16]++;
        }
    }
    int seen = 0, upper = count / 2, lower = count % 2 ? upper : upper - 1;
    double low = 0;
    bool has_low = false;
    for (int i = 0; i < count; i++) {
        seen += drawn[i];
        if (!has_low && seen > lower) {
            low = sorted[i];
            has_low = true;
        }
        if (seen > upper) {
            return (low + sorted[i]) / 2;
        }
    }
    return low;
}

typedef struct logs {
    double sorted[WEFT_SAMPLE_MOST];
    int count;
} logs_t;

/* The interval of the median of `b`, less that of `a` (may be NULL). */
static void bootstrap(const logs_t *a, const logs_t *b, uint64_t seed, double *low_p,
                      double *high_p)
{
    double medians[RESAMPLES];
    const int cut = (int)(RESAMPLES * (1 - SHOWN) / 2);
    for (int i = 0; i < RESAMPLES; i++) {
        medians[i] = resample(b->sorted, b->count, &seed);
        medians[i] -= a ? resample(a->sorted, a->count, &seed) : 0;
    }
    weft__sort(medians, RESAMPLES);
    *low_p = medians[cut];
    *high_p = medians[RESAMPLES - 1 - cut];
}

/* ---- verdicts --------------------------------------------------------------------------- */

/* The sure interval; false if there are too few values for one. */
static bool sure(const logs_t *logs, double *low_p, double *high_p)
{
    int out = outside(logs->count, SURE);
    *low_p = logs->sorted[out < 0 ? 0 : out];
    *high_p = logs->sorted[logs->count - 1 - (out < 0 ? 0 : out)];
    return out >= 0;
}

static weft_verdict_t judge(const weft_ratio_t *r, bool tested, double band)
{
    if (tested && r->sure_low > 1 + band) {
        return WEFT_VERDICT_FASTER;
    }
    if (tested && r->sure_high < 1 / (1 + band)) {
        return WEFT_VERDICT_SLOWER;
    }
    bool same = r->low > 1 / (1 + WEFT_NOISE_LIMIT) && r->high < 1 + WEFT_NOISE_LIMIT;
    return tested && same ? WEFT_VERDICT_SAME : WEFT_VERDICT_NOISY;
}

weft_ratio_t weft__ratio_of(const double *baseline, const double *way, int count, uint64_t seed)
{
    logs_t logs = {.count = count};
    weft_ratio_t r = {.verdict = WEFT_VERDICT_NOISY};
    double low, high;
    if (count == 0) {
        return r;
    }
    sorted_logs(baseline, way, count, logs.sorted);
    bool tested = sure(&logs, &low, &high);
    r.ratio = exp(weft__middle(logs.sorted, (size_t)count));
    r.sure_low = exp(low);
    r.sure_high = exp(high);
    bootstrap(NULL, &logs, seed, &low, &high);
    r.low = exp(low);
    r.high = exp(high);
    r.verdict = judge(&r, tested, WEFT_NOISE_BAND);
    return r;
}

double weft__ratio_half_width(const double *baseline, const double *way, int count)
{
    double logs[WEFT_SAMPLE_MOST];
    int out = outside(count, SURE);
    if (out < 0) {
        return HUGE_VAL;
    }
    sorted_logs(baseline, way, count, logs);
    return exp((logs[count - 1 - out] - logs[out]) / 2) - 1;
}

weft_ratio_t weft__ratio_change(const weft_times_t *a, const weft_times_t *b, double band,
                                uint64_t seed)
{
    logs_t from = {.count = a->count}, to = {.count = b->count};
    weft_ratio_t r = {.verdict = WEFT_VERDICT_NOISY};
    double low, high, from_low, from_high, to_low, to_high;
    if (a->count == 0 || b->count == 0) {
        return r;
    }
    sorted_logs(a->baseline, a->way, a->count, from.sorted);
    sorted_logs(b->baseline, b->way, b->count, to.sorted);
    bool tested = sure(&from, &from_low, &from_high);
    tested = sure(&to, &to_low, &to_high) && tested; /* both set their interval */
    double mid_from = weft__middle(from.sorted, (size_t)from.count),
           mid_to = weft__middle(to.sorted, (size_t)to.count);
    r.ratio = exp(mid_to - mid_from);
    /* Distances of independent medians add up as squares. */
    r.sure_low = exp(mid_to - mid_from - hypot(mid_to - to_low, from_high - mid_from));
    r.sure_high = exp(mid_to - mid_from + hypot(to_high - mid_to, mid_from - from_low));
    bootstrap(&from, &to, seed, &low, &high);
    r.low = exp(low);
    r.high = exp(high);
    r.verdict = judge(&r, tested, band);
    return r;
}
