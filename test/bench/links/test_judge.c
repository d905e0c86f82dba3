/* ctest: timeout=120 */
/* The statistics of weft links, on numbers whose truth is known. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bench/links/judge.h"

#define RANKS_MOST 8
#define LINKS_MOST (RANKS_MOST * RANKS_MOST)
#define SWEEPS 40

static uint64_t drawn = 4711;

/* Splitmix64: many numbers, and the same ones in every run. */
static double uniform(void)
{
    uint64_t z = drawn += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return ((double)((z ^ z >> 31) >> 11) + 0.5) / 9007199254740992.0;
}

static double normal(void)
{
    return sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform());
}

/* A machine: kinds of links, and how much longer than its kind each link takes. */
typedef struct machine {
    int size, kinds[LINKS_MOST];
    double factor[LINKS_MOST];
    double noise;
} machine_t;

/* Even and odd ranks, as on two cores. */
static void make(machine_t *machine, int size, double noise, double ranks_differ)
{
    double sends[RANKS_MOST], receives[RANKS_MOST];
    machine->size = size;
    machine->noise = noise;
    for (int i = 0; i < size; i++) {
        sends[i] = exp(ranks_differ * normal());
        receives[i] = exp(ranks_differ * normal());
    }
    for (int i = 0; i < size * size; i++) {
        int from = i / size, to = i % size;
        machine->kinds[i] = from == to ? -1 : from % 2 == to % 2;
        machine->factor[i] = sends[from] * receives[to];
    }
}

/* One measurement. Sweeps are slow now and then, and a tenth of all samples is interrupted. */
static void measure(const machine_t *machine, double *samples)
{
    int links = machine->size * machine->size;
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
        double slowdown = uniform() < 0.2 ? 1 + 2 * uniform() : 1;
        for (int i = 0; i < links; i++) {
            double base = machine->kinds[i] == 1 ? 20e3 : 23e3;
            double interrupted = uniform() < 0.1 ? 1 + 5 * uniform() : 1;
            samples[sweep * links + i] = machine->kinds[i] < 0
                                             ? 0
                                             : base * machine->factor[i] * slowdown * interrupted *
                                                   exp(machine->noise * normal());
        }
    }
}

static void judge(const machine_t *machine, double margin, weft_judge_t *judge_p)
{
    static double samples[SWEEPS * LINKS_MOST];
    measure(machine, samples);
    assert_int_equal(weft__judge(machine->size, machine->kinds, SWEEPS, samples, margin, judge_p),
                     WEFT_OK);
}

/* Both measurements, as weft links makes them: slow[link] is what both say. */
static int judge_twice(const machine_t *machine, unsigned char slow[LINKS_MOST])
{
    weft_judge_t first, second;
    int count = 0;
    memset(slow, 0, LINKS_MOST);
    judge(machine, WEFT_JUDGE_SUSPECT, &first);
    if (first.slow_count > 0) {
        judge(machine, WEFT_JUDGE_SLOW, &second);
        for (int i = 0; i < machine->size * machine->size; i++) {
            slow[i] = first.slow[i] & second.slow[i];
            count += slow[i] != 0;
        }
        weft__judge_cleanup(&second);
    }
    weft__judge_cleanup(&first);
    return count;
}

/* ---- rates ------------------------------------------------------------------------------ */

/* As noisy as the medians of 240 sweeps of 2 crowded cores are found to be: 1.5%. */
#define NOISE 0.075
#define RANKS_DIFFER 0.05

static void false_alarms_in_10000_clean_machines(void **state)
{
    machine_t machine;
    unsigned char slow[LINKS_MOST];
    int alarms = 0;
    (void)state;
    for (int i = 0; i < 10000; i++) {
        make(&machine, 8, NOISE, RANKS_DIFFER);
        alarms += judge_twice(&machine, slow) > 0;
    }
    print_message("false alarms in %d of 10000 clean machines\n", alarms);
    assert_in_range(alarms, 0, 20); /* 0.2%; 2% are allowed */
}

static void misses_in_1000_planted_machines(void **state)
{
    machine_t machine;
    unsigned char slow[LINKS_MOST];
    int found = 0, others = 0;
    (void)state;
    for (int i = 0; i < 1000; i++) {
        make(&machine, 8, NOISE, RANKS_DIFFER);
        int from = i % 8, to = (from + 1 + i / 8 % 7) % 8, planted = from * 8 + to;
        machine.factor[planted] *= 1.3;
        int count = judge_twice(&machine, slow);
        found += slow[planted] == WEFT_JUDGE_LINK;
        others += count - (slow[planted] != 0);
    }
    print_message("found %d of 1000 planted, and %d others\n", found, others);
    assert_in_range(found, 980, 1000);
    assert_in_range(others, 0, 10);
}

/* Four times the noise must not become alarms: then nothing is found, and nothing named. */
static void noise_is_no_alarm(void **state)
{
    machine_t machine;
    unsigned char slow[LINKS_MOST];
    int alarms = 0;
    (void)state;
    for (int i = 0; i < 300; i++) {
        make(&machine, 8, 4 * NOISE, RANKS_DIFFER);
        alarms += judge_twice(&machine, slow) > 0;
    }
    print_message("false alarms in %d of 300 very noisy machines\n", alarms);
    assert_in_range(alarms, 0, 6); /* 2% */
}

/* One sample of each link: its noise is what is drawn. */
static void judge_noise(int size, double noise, double *found_p)
{
    machine_t machine;
    double samples[LINKS_MOST];
    weft_judge_t found;
    make(&machine, size, noise, RANKS_DIFFER);
    for (int i = 0; i < size * size; i++) {
        samples[i] = machine.kinds[i] < 0 ? 0 : 2e4 * machine.factor[i] * exp(noise * normal());
    }
    assert_int_equal(weft__judge(size, machine.kinds, 1, samples, WEFT_JUDGE_SUSPECT, &found),
                     WEFT_OK);
    *found_p += found.noise;
    weft__judge_cleanup(&found);
}

/* The noise is found as it is, however many ranks there are: medians that go through values hide a
 * part of it, which is half with 5 ranks. */
static void noise_is_what_it_is(void **state)
{
    (void)state;
    for (int size = WEFT_JUDGE_RANKS; size <= RANKS_MOST; size++) {
        double sum = 0;
        for (int i = 0; i < 2000; i++) {
            judge_noise(size, 0.05, &sum);
        }
        print_message("%d ranks: noise of 0.05 is taken for %.4f\n", size, sum / 2000);
        assert_true(sum / 2000 > 0.05 * 0.9 && sum / 2000 < 0.05 * 1.25);
    }
}

/* Few ranks have few links, which are alike by chance: that is no reason to name one. */
static void false_alarms_with_few_ranks(void **state)
{
    (void)state;
    for (int size = 4; size < RANKS_MOST; size++) {
        unsigned char slow[LINKS_MOST];
        machine_t machine;
        int alarms = 0;
        for (int i = 0; i < 1000; i++) {
            make(&machine, size, NOISE, RANKS_DIFFER);
            alarms += judge_twice(&machine, slow) > 0;
        }
        print_message("%d ranks: false alarms in %d of 1000 clean machines\n", size, alarms);
        assert_in_range(alarms, 0, 20); /* 2% */
    }
}

/* ---- what is judged --------------------------------------------------------------------- */

/* Without any noise MAD is 0: the margin alone keeps small differences quiet. */
static void small_differences_of_equal_links(void **state)
{
    machine_t machine;
    weft_judge_t found;
    (void)state;
    make(&machine, 8, 0, 0);
    machine.factor[2 * 8 + 5] = 1.05;
    judge(&machine, WEFT_JUDGE_SUSPECT, &found);
    assert_int_equal(found.slow_count, 0);
    weft__judge_cleanup(&found);
    machine.factor[2 * 8 + 5] = 1.2;
    judge(&machine, WEFT_JUDGE_SLOW, &found);
    assert_int_equal(found.slow_count, 1);
    assert_int_equal(found.slow[2 * 8 + 5], WEFT_JUDGE_LINK);
    assert_true(fabs(found.ns[2 * 8 + 5] / found.likely[2 * 8 + 5] - 1.2) < 0.01);
    assert_true(fabs(found.likely[2 * 8 + 5] / 23e3 - 1) < 0.01);
    weft__judge_cleanup(&found);
}

/* A fast link is no problem. */
static void fast_links_are_not_named(void **state)
{
    machine_t machine;
    weft_judge_t found;
    (void)state;
    make(&machine, 8, 0.01, 0);
    machine.factor[3] = 0.5;
    judge(&machine, WEFT_JUDGE_SUSPECT, &found);
    assert_int_equal(found.slow_count, 0);
    weft__judge_cleanup(&found);
}

/* All links from a rank, or to it: the rank is named, not seven links. */
static void a_whole_rank(void **state)
{
    machine_t machine;
    weft_judge_t found;
    (void)state;
    for (int sends = 0; sends < 2; sends++) {
        make(&machine, 8, 0.01, 0);
        for (int i = 0; i < 8; i++) {
            machine.factor[sends ? 3 * 8 + i : i * 8 + 3] = 2;
        }
        judge(&machine, WEFT_JUDGE_SLOW, &found);
        assert_int_equal(found.slow_count, 7);
        for (int i = 0; i < 8; i++) {
            int link = sends ? 3 * 8 + i : i * 8 + 3;
            assert_int_equal(found.slow[link],
                             i == 3 ? 0 : (sends ? WEFT_JUDGE_SENDS : WEFT_JUDGE_RECEIVES));
        }
        weft__judge_cleanup(&found);
        /* a little slower is how memory lies */
        make(&machine, 8, 0.01, 0);
        for (int i = 0; i < 8; i++) {
            machine.factor[sends ? 3 * 8 + i : i * 8 + 3] = 1.25;
        }
        judge(&machine, WEFT_JUDGE_SLOW, &found);
        assert_int_equal(found.slow_count, 0);
        weft__judge_cleanup(&found);
    }
}

/* Few ranks: 3 ranks have 4 links of one kind and 2 of the other, of which nothing can be said. */
static void few_ranks(void **state)
{
    machine_t machine;
    weft_judge_t found;
    (void)state;
    for (int size = 2; size <= 5; size++) {
        make(&machine, size, 0.01, 0);
        machine.factor[0 * size + 1] = 1.5;
        judge(&machine, WEFT_JUDGE_SLOW, &found);
        assert_int_equal(found.slow_count, size == 2 ? 0 : 1);
        assert_int_equal(found.slow[1] != 0, size > 2);
        assert_true(found.ns[1] > 0);
        weft__judge_cleanup(&found);
    }
    make(&machine, 3, 0.01, 0);
    machine.factor[0 * 3 + 2] = 10; /* one of two */
    judge(&machine, WEFT_JUDGE_SLOW, &found);
    assert_int_equal(found.slow_count, 0);
    assert_true(found.likely[2] == 0);
    weft__judge_cleanup(&found);
}

/* A machine that is slow for a third of the time, in the sweeps of some links only by chance. */
static void slow_sweeps_are_nobodys_fault(void **state)
{
    machine_t machine;
    weft_judge_t found;
    double samples[SWEEPS * LINKS_MOST];
    (void)state;
    make(&machine, 8, 0.01, 0);
    measure(&machine, samples);
    for (int i = 0; i < SWEEPS * 64; i++) {
        samples[i] *= i / 64 % 3 == 0 ? 4 : 1;
    }
    assert_int_equal(weft__judge(8, machine.kinds, SWEEPS, samples, WEFT_JUDGE_SUSPECT, &found),
                     WEFT_OK);
    assert_int_equal(found.slow_count, 0);
    assert_true(found.ns[1] > 22e3 && found.ns[1] < 40e3);
    weft__judge_cleanup(&found);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_differences_of_equal_links),
        cmocka_unit_test(fast_links_are_not_named),
        cmocka_unit_test(a_whole_rank),
        cmocka_unit_test(few_ranks),
        cmocka_unit_test(slow_sweeps_are_nobodys_fault),
        cmocka_unit_test(misses_in_1000_planted_machines),
        cmocka_unit_test(noise_is_no_alarm),
        cmocka_unit_test(noise_is_what_it_is),
        cmocka_unit_test(false_alarms_with_few_ranks),
        cmocka_unit_test(false_alarms_in_10000_clean_machines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
