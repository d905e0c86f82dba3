/* What is said of times: by hand where that is possible, and over thousands of made-up runs whose
 * truth is known. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/rng.h"
#include "bench/samples.h"
#include "bench/statistics.h"

/* ---- noise ------------------------------------------------------------------------------ */

static uint64_t drawn;

static double uniform(void)
{
    return ((double)(weft__rng_at(42, drawn++) >> 11) + 0.5) * 0x1p-53;
}

static double normal(void)
{
    return sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform());
}

/* The logarithm of what a loop takes, by kinds of machines. `load` is state between loops. */
typedef double (*noise_fn)(double *load);

static double quiet(double *load)
{
    (void)load;
    return 0.03 * normal();
}

/* A fifth of all loops is preempted, for up to a few times their length. */
static double preempted(double *load)
{
    (void)load;
    return 0.03 * normal() + (uniform() < 0.2 ? log(1 + -log(uniform())) : 0);
}

/* Tails without a variance. */
static double heavy(double *load)
{
    (void)load;
    return 0.015 * tan(3.1 * (uniform() - 0.5));
}

/* A machine that gets slower and faster by itself, up to twice. */
static double drifting(double *load)
{
    *load = 0.999 * *load + 0.02 * normal();
    return *load + 0.03 * normal();
}

/* A neighbour comes and goes, for some ten loops each time. */
static double bursts(double *load)
{
    *load = uniform() < 0.1 ? (*load > 0 ? 0 : 0.5 * uniform()) : *load;
    return *load + 0.03 * normal();
}

/* Two speeds, by chance, as where a message does or does not find its reader awake. */
static double two_speeds(double *load)
{
    (void)load;
    return 0.02 * normal() + (uniform() < 0.5 ? 0.15 : 0);
}

/* Hopeless: nothing can be told. */
static double storm(double *load)
{
    (void)load;
    return 0.8 * normal();
}

/* ---- made-up runs ----------------------------------------------------------------------- */

#define LEAST 16
#define MOST 200

/* One run as bench/pair.c makes it: blocks in random order until the interval is narrow. */
static weft_ratio_t one_run(noise_fn noise, double slower, uint64_t seed)
{
    double baseline[MOST], way[MOST], load = 0;
    int n = 0;
    while (n < MOST &&
           (n < LEAST || n % 4 != 0 || weft__ratio_half_width(baseline, way, n) > 0.03)) {
        double first = exp(noise(&load)), second = exp(noise(&load));
        int swap = uniform() < 0.5;
        baseline[n] = swap ? second : first;
        way[n] = (swap ? first : second) * slower;
        n++;
    }
    return weft__ratio_of(baseline, way, n, seed);
}

typedef struct counts {
    int of[4]; /* by verdict */
    int covered;
} counts_t;

static counts_t runs(noise_fn noise, double slower, int trials)
{
    counts_t counts = {{0}, 0};
    for (int i = 0; i < trials; i++) {
        weft_ratio_t r = one_run(noise, slower, (uint64_t)i);
        counts.of[r.verdict]++;
        counts.covered += r.low <= 1 / slower && 1 / slower <= r.high;
    }
    return counts;
}

static const struct {
    const char *name;
    noise_fn noise;
} machines[] = {{"quiet", quiet},       {"preempted", preempted}, {"heavy", heavy},
                {"drifting", drifting}, {"bursts", bursts},       {"two speeds", two_speeds}};

#define TRIALS 500

static void a_way_against_itself_is_the_same(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(machines) / sizeof(machines[0]); i++) {
        counts_t c = runs(machines[i].noise, 1, TRIALS);
        int wrong = c.of[WEFT_VERDICT_FASTER] + c.of[WEFT_VERDICT_SLOWER];
        printf("%-11s itself: %d wrong, %d noisy of %d, interval right in %d\n", machines[i].name,
               wrong, c.of[WEFT_VERDICT_NOISY], TRIALS, c.covered);
        assert_true(wrong <= TRIALS / 500);
        assert_true(c.of[WEFT_VERDICT_NOISY] <= TRIALS / 20);
        assert_true(c.covered >= TRIALS * 88 / 100); /* widths were looked at, which costs some */
    }
}

/* ---- how often the sure interval misses ------------------------------------------------- */

static double deviation; /* of the noise below */

static double independent(double *load)
{
    (void)load;
    return deviation * normal();
}

static double drifting_slowly(double *load)
{
    *load = 0.999 * *load + 0.02 * normal();
    return *load + deviation * normal();
}

static double drifting_fast(double *load)
{
    *load = 0.9 * *load + 0.1 * normal();
    return *load + deviation * normal();
}

static double heavy_tailed(double *load)
{
    (void)load;
    return deviation / 2 * tan(3.1 * (uniform() - 0.5));
}

/* `fixed`: so many blocks, whatever their times; 0: until the interval is narrow. */
static void count_misses(noise_fn noise, int fixed, int trials, int *missed_p, int *wrong_p)
{
    *missed_p = *wrong_p = 0;
    for (int i = 0; i < trials; i++) {
        double baseline[MOST], way[MOST], load = 0;
        int n = 0;
        while (fixed > 0 ? n < fixed
                         : n < MOST && (n < 12 || n % 4 != 0 ||
                                        weft__ratio_half_width(baseline, way, n) > 0.03)) {
            double first = exp(noise(&load)), second = exp(noise(&load));
            int swap = uniform() < 0.5;
            baseline[n] = swap ? second : first;
            way[n++] = swap ? first : second;
        }
        weft_ratio_t r = weft__ratio_of(baseline, way, n, (uint64_t)i);
        *missed_p += r.sure_low > 1 || r.sure_high < 1;
        *wrong_p += r.verdict == WEFT_VERDICT_FASTER || r.verdict == WEFT_VERDICT_SLOWER;
    }
}

/* What statistics.h says of it. Of 2000 runs 4 are 1 in 500, and 1 in 280 are 7; chance may double
 * either. */
static void what_the_header_claims(void **state)
{
    static const struct {
        const char *name;
        noise_fn noise;
    } kinds[] = {{"independent", independent},
                 {"drifting slowly", drifting_slowly},
                 {"drifting fast", drifting_fast},
                 {"heavy-tailed", heavy_tailed}};
    int all = 0, trials = 2000;
    (void)state;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        int missed, missed_fixed, wrong, wrong_fixed;
        deviation = 0.09;
        count_misses(kinds[i].noise, 40, trials, &missed_fixed, &wrong_fixed);
        deviation = 0.03;
        count_misses(kinds[i].noise, 0, trials, &missed, &wrong);
        printf("%-15s of %d: 40 blocks %d missed, %d wrong; until narrow %d missed, %d wrong\n",
               kinds[i].name, trials, missed_fixed, wrong_fixed, missed, wrong);
        assert_in_range(missed_fixed, 0, 12); /* 4 are expected; 13 are once in 4000 */
        assert_in_range(missed, 0, 17);       /* 7 are expected */
        assert_in_range(wrong, 0, 2);
        all += missed_fixed + missed;
    }
    assert_in_range(all, 4, 80); /* an interval that never misses is not what it says it is */
}

static void ten_percent_are_found(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(machines) / sizeof(machines[0]); i++) {
        counts_t c = runs(machines[i].noise, 1.1, TRIALS);
        printf("%-11s 10%% slower: %d found, %d noisy of %d\n", machines[i].name,
               c.of[WEFT_VERDICT_SLOWER], c.of[WEFT_VERDICT_NOISY], TRIALS);
        assert_int_equal(c.of[WEFT_VERDICT_FASTER], 0);
        assert_true(c.of[WEFT_VERDICT_SLOWER] >= TRIALS * 95 / 100);
    }
}

static void two_percent_are_noise(void **state)
{
    (void)state;
    counts_t c = runs(quiet, 1.02, TRIALS);
    assert_true(c.of[WEFT_VERDICT_SAME] >= TRIALS * 99 / 100);
}

static void a_storm_is_noisy(void **state)
{
    (void)state;
    counts_t c = runs(storm, 1, TRIALS);
    printf("storm: %d noisy of %d\n", c.of[WEFT_VERDICT_NOISY], TRIALS);
    assert_true(c.of[WEFT_VERDICT_NOISY] >= TRIALS * 99 / 100);
    c = runs(storm, 3, TRIALS); /* so large a difference shows even there */
    assert_true(c.of[WEFT_VERDICT_SLOWER] >= TRIALS * 95 / 100);
}

/* ---- by hand ---------------------------------------------------------------------------- */

static void times_that_never_vary(void **state)
{
    (void)state;
    double baseline[20], way[20];
    for (int i = 0; i < 20; i++) {
        baseline[i] = 3;
        way[i] = 2;
    }
    weft_ratio_t r = weft__ratio_of(baseline, way, 20, 1);
    assert_true(fabs(r.ratio - 1.5) < 1e-12 && fabs(r.low - 1.5) < 1e-12);
    assert_true(fabs(r.high - 1.5) < 1e-12);
    assert_int_equal(r.verdict, WEFT_VERDICT_FASTER);
    r = weft__ratio_of(way, baseline, 20, 1);
    assert_int_equal(r.verdict, WEFT_VERDICT_SLOWER);
    r = weft__ratio_of(way, way, 20, 1);
    assert_int_equal(r.verdict, WEFT_VERDICT_SAME);
}

/* A difference that single outliers keep from being sure is not the same all the same. */
static void what_is_not_sure_is_not_the_same(void **state)
{
    (void)state;
    double baseline[16], way[16];
    for (int i = 0; i < 16; i++) {
        baseline[i] = 1 + 0.001 * i;
        way[i] = i == 7 || i == 9 ? 0.5 : 2;
    }
    weft_ratio_t r = weft__ratio_of(baseline, way, 16, 1);
    assert_true(r.high < 0.6 && r.sure_high > 1);
    assert_int_equal(r.verdict, WEFT_VERDICT_NOISY);
}

static void few_blocks_prove_nothing(void **state)
{
    (void)state;
    double baseline[WEFT_BLOCKS_FOR_A_TEST], way[WEFT_BLOCKS_FOR_A_TEST];
    for (int i = 0; i < WEFT_BLOCKS_FOR_A_TEST; i++) {
        baseline[i] = 2;
        way[i] = 1;
    }
    assert_int_equal(weft__ratio_of(baseline, way, 0, 1).verdict, WEFT_VERDICT_NOISY);
    assert_int_equal(weft__ratio_of(baseline, way, WEFT_BLOCKS_FOR_A_TEST - 1, 1).verdict,
                     WEFT_VERDICT_NOISY);
    assert_int_equal(weft__ratio_of(baseline, way, WEFT_BLOCKS_FOR_A_TEST, 1).verdict,
                     WEFT_VERDICT_FASTER);
    assert_true(isinf(weft__ratio_half_width(baseline, way, WEFT_BLOCKS_FOR_A_TEST - 1)));
    assert_true(weft__ratio_half_width(baseline, way, WEFT_BLOCKS_FOR_A_TEST) == 0);
}

static void the_seed_decides_and_nothing_else(void **state)
{
    (void)state;
    double baseline[31], way[31];
    for (int i = 0; i < 31; i++) {
        baseline[i] = exp(0.1 * normal());
        way[i] = exp(0.1 * normal());
    }
    weft_ratio_t a = weft__ratio_of(baseline, way, 31, 7), b = weft__ratio_of(baseline, way, 31, 7);
    assert_true(a.low == b.low && a.high == b.high && a.ratio == b.ratio);
    assert_true(a.low < a.ratio && a.ratio < a.high);
    assert_true(a.sure_low <= a.low && a.high <= a.sure_high);
}

/* ---- two runs --------------------------------------------------------------------------- */

static void changes_between_runs(void **state)
{
    (void)state;
    double baseline[2][60], way[2][60];
    int found = 0, wrong = 0;
    const int trials = 400;
    for (int t = 0; t < trials; t++) {
        for (int run = 0; run < 2; run++) {
            for (int i = 0; i < 60; i++) {
                baseline[run][i] = exp(0.05 * normal());
                way[run][i] = exp(0.05 * normal()) / 2;
            }
        }
        const weft_times_t a = {baseline[0], way[0], 60}, b = {baseline[1], way[1], 60};
        weft_ratio_t r = weft__ratio_change(&a, &b, 0.05, (uint64_t)t);
        wrong += r.verdict == WEFT_VERDICT_FASTER || r.verdict == WEFT_VERDICT_SLOWER;
        for (int i = 0; i < 60; i++) {
            way[1][i] *= 1.2;
        }
        r = weft__ratio_change(&a, &b, 0.05, (uint64_t)t);
        found += r.verdict == WEFT_VERDICT_SLOWER;
        assert_true(r.low < r.ratio && r.ratio < r.high && fabs(r.ratio - 1 / 1.2) < 0.1);
    }
    printf("between runs: %d wrong, %d of 20%% found, of %d\n", wrong, found, trials);
    assert_true(wrong <= trials / 100);
    assert_true(found >= trials * 95 / 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_that_never_vary),
        cmocka_unit_test(few_blocks_prove_nothing),
        cmocka_unit_test(what_is_not_sure_is_not_the_same),
        cmocka_unit_test(the_seed_decides_and_nothing_else),
        cmocka_unit_test(a_way_against_itself_is_the_same),
        cmocka_unit_test(what_the_header_claims),
        cmocka_unit_test(ten_percent_are_found),
        cmocka_unit_test(two_percent_are_noise),
        cmocka_unit_test(a_storm_is_noisy),
        cmocka_unit_test(changes_between_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
