/* What is said about links, from a verdict made up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bench/links/findings.h"

#define N 6

static weft_links_results_t results;
static weft_links_verdict_t verdict;

static int set_up(void **state)
{
    (void)state;
    results = (weft_links_results_t){.size = N, .bytes = 64 << 20, .kinds = 1};
    results.verified = 1 << 20;
    results.findings_end = &results.findings;
    results.links = calloc(N * N, sizeof(*results.links));
    results.permutations = calloc(N, sizeof(double));
    results.alltoall = calloc(N, sizeof(double));
    verdict = (weft_links_verdict_t){.slow = calloc(N * N, 1),
                                     .likely_ns = calloc(N * N, sizeof(double)),
                                     .sends = calloc(N, 1),
                                     .receives = calloc(N, 1)};
    for (int i = 0; i < N * N; i++) {
        results.links[i].kind = i % N == i / N ? -1 : 0;
        results.links[i].one_way_gbs = 20;
        verdict.likely_ns[i] = (64 << 20) / 19.0;
        snprintf(results.links[i].info.text, sizeof(results.links[i].info.text), "same L3");
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    weft__links_forget(&results);
    free(verdict.slow);
    free(verdict.likely_ns);
    free(verdict.sends);
    free(verdict.receives);
    return 0;
}

/* The one finding there is has all of these words. */
static void expect_one(int count, ...)
{
    va_list words;
    assert_int_equal(weft__links_judged(&results, &verdict), WEFT_OK);
    assert_int_equal(results.finding_count, 1);
    assert_null(results.findings->next);
    va_start(words, count);
    for (int i = 0; i < count; i++) {
        const char *word = va_arg(words, const char *);
        if (strstr(results.findings->text, word) == NULL) {
            fail_msg("\"%s\" is not in: %s", word, results.findings->text);
        }
    }
    va_end(words);
}

static void nothing(void **state)
{
    (void)state;
    assert_int_equal(weft__links_judged(&results, &verdict), WEFT_OK);
    assert_int_equal(results.finding_count, 0);
    assert_int_equal(weft__links_judged(&results, NULL), WEFT_OK);
    assert_int_equal(results.finding_count, 0);
}

static void slow_among_its_kind(void **state)
{
    (void)state;
    verdict.slow[2 * N + 5] = WEFT_SLOW_LINK;
    results.links[2 * N + 5].one_way_gbs = 14.5;
    expect_one(6, "from rank 2 to rank 5", "same L3", "14.5 GB/s", "suggest 19", "30 links", "top");
}

static void below_the_table(void **state)
{
    weft_link_t *link = &results.links[1 * N + 0];
    (void)state;
    verdict.slow[1 * N + 0] = WEFT_SLOW_BELOW;
    snprintf(link->info.text, sizeof(link->info.text), "NV18 (NVLink 4)");
    snprintf(link->info.source, sizeof(link->info.source), "H100");
    link->info.expected_gbs = 335;
    link->one_way_gbs = 210;
    expect_one(5, "from rank 1 to rank 0", "NV18 (NVLink 4)", "210 GB/s", "335", "nvidia-smi");
}

static void below_min(void **state)
{
    (void)state;
    verdict.slow[1] = WEFT_SLOW_BELOW;
    snprintf(results.links[1].info.source, sizeof(results.links[1].info.source), "--min");
    results.links[1].info.expected_gbs = 25;
    expect_one(2, "from rank 0 to rank 1", "below the 25 of --min");
}

/* Tables are of copies: what NCCL's messages reach is not held against them, but against --min. */
static void messages_and_the_table(void **state)
{
    weft_link_t *link = &results.links[1];
    (void)state;
    assert_false(weft__links_expects(&results, link)); /* nothing is known of the link */
    link->info.expected_gbs = 335;
    snprintf(link->info.source, sizeof(link->info.source), "H100");
    assert_true(weft__links_expects(&results, link));
    results.messages = true;
    assert_false(weft__links_expects(&results, link));
    snprintf(link->info.source, sizeof(link->info.source), "--min");
    assert_true(weft__links_expects(&results, link));
}

static void a_rank(void **state)
{
    (void)state;
    verdict.receives[4] = 1;
    for (int from = 0; from < N; from++) {
        verdict.slow[from * N + 4] = WEFT_SLOW_RANK;
    }
    expect_one(1, "Every link to rank 4 is slow");
}

static void rank_0_itself(void **state)
{
    (void)state;
    verdict.sends[0] = 1;
    results.links[0 * N + 1].one_way_gbs = 3.25;
    expect_one(2, "Every link from rank 0 is slow", "3.25 GB/s to rank 1");
}

/* Each link is named, up to a limit; the rest is counted, never dropped. */
static void many(void **state)
{
    int named = 0;
    bool counted = false;
    (void)state;
    for (int i = 0; i < N * N; i++) {
        verdict.slow[i] = i % N == i / N ? WEFT_SLOW_NOT : WEFT_SLOW_LINK;
    }
    assert_int_equal(weft__links_judged(&results, &verdict), WEFT_OK);
    for (const weft_links_finding_t *at = results.findings; at; at = at->next) {
        named += strstr(at->text, "The link from") != NULL;
        counted = counted || strstr(at->text, "14 more links") != NULL;
    }
    assert_int_equal(named, 16);
    assert_true(counted);
    assert_int_equal(results.finding_count, 17);
}

static void wrong_bytes(void **state)
{
    (void)state;
    results.links[3 * N + 1].wrong = 12;
    expect_one(2, "from rank 3 to rank 1 (same L3) corrupts data", "12 of 1048576 bytes");
}

static void wrong_sums(void **state)
{
    (void)state;
    results.reduce[0] = (weft_links_reduce_t){.algo = "ring", .bytes = 4096, .wrong = 3};
    results.reduces = 1;
    expect_one(2, "all-reduce of 4096 bytes (ring) left 3 wrong sums", "--algo ring");
}

static void wrong_blocks(void **state)
{
    (void)state;
    results.alltoall_wrong = 1;
    expect_one(1, "all-to-all left 1 wrong");
}

static void slow_host_copies(void **state)
{
    (void)state;
    results.memory[0] = (weft_links_memory_t){"host", "read", 55, 12, 3, 52};
    results.memory[1] = (weft_links_memory_t){"host", "write", 55, 53, 3, 52};
    results.memories = 2;
    expect_one(3, "Rank 3 reads memory of the host at 12 GB/s", "below the 52", "PCIe");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(nothing),
        TEST(slow_among_its_kind),
        TEST(below_the_table),
        TEST(below_min),
        TEST(messages_and_the_table),
        TEST(a_rank),
        TEST(rank_0_itself),
        TEST(many),
        TEST(wrong_bytes),
        TEST(wrong_sums),
        TEST(wrong_blocks),
        TEST(slow_host_copies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
