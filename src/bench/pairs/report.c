/* What rank 0 prints and writes of rows. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/args.h"
#include "bench/pairs/internal.h"
#include "bench/samples.h"

const char *weft__pairs_build(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return "sanitized";
#elif defined(__OPTIMIZE__)
    return "release";
#else
    return "debug";
#endif
}

void weft__pairs_show_size(size_t bytes, char text[32])
{
    const char units[] = " KMGT";
    int unit = 0;
    while (bytes >= 1024 && bytes % 1024 == 0 && unit < 4) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text, 32, "%zu%.*s", bytes, unit > 0, &units[unit]);
    if (bytes == 0) {
        snprintf(text, 32, "-");
    }
}

/* Fewer digits behind the point of what has more before it: "0.98..1.02", "12.0..5342". */
void weft__pairs_show_interval(const weft_ratio_t *ratio, char text[32])
{
    const double ends[] = {ratio->low, ratio->high};
    int digits[2];
    for (int i = 0; i < 2; i++) {
        digits[i] = ends[i] < 9.995 ? 2 : ends[i] < 99.95 ? 1 : 0;
    }
    snprintf(text, 32, "%.*f..%.*f", digits[0], ends[0], digits[1], ends[1]);
}

#define NAME 19 /* columns of a pair's name: a row has 80 */

/* ---- the beginning ---------------------------------------------------------------------- */

static void print_head(const weft_pairs_report_t *report)
{
    const weft_expectations_t *expected = &report->expected;
    printf("# profile %s, seed %llu; ratio: time of the baseline / time of the way\n",
           report->pairs->profile, (unsigned long long)report->seed);
    if (expected->path[0] != '\0') {
        printf("# expectations: %s\n", expected->path);
    } else {
        char key[sizeof(expected->key) + 2];
        printf("# no expectations for this machine; --update-expectations keeps a run as such\n");
        snprintf(key, sizeof(key), "(%s)", expected->key);
        weft__print_comment(stdout, key);
    }
    printf("#\n# %-*s %5s %-15s %8s %6s %-11s %s\n", NAME, "pair", "bytes", "way", "us", "ratio",
           "95%", "verdict");
}

weft_result_head_t weft__pairs_head(const weft_pairs_t *pairs, const char *kind, int ranks)
{
    weft_result_head_t head = weft__samples_head(ranks, pairs->threads);
    head.kind = kind;
    head.path = pairs->json;
    head.command = pairs->command;
    head.machine = &pairs->machine;
    return head;
}

weft_status_t weft__pairs_report_open(weft_pairs_report_t *report, int ranks)
{
    const weft_pairs_t *pairs = report->pairs;
    weft_result_head_t head = weft__pairs_head(pairs, "pairs", ranks);
    WEFT_TRY(weft__expectations_open(&report->expected, pairs, ranks));
    weft_status_t status = weft__result_open(&report->result, &head);
    if (status != WEFT_OK) {
        weft__expectations_close(&report->expected);
        return status;
    }
    weft__samples_print_head(&head);
    print_head(report);
    if (report->result.file) {
        weft_json_t *json = &report->result.json;
        weft__json_string(json, "profile", pairs->profile);
        weft__json_uint(json, "seed", report->seed);
        weft__json_string(json, "build", weft__pairs_build());
        weft__json_array(json, "pairs");
    }
    return WEFT_OK;
}

/* ---- a row ------------------------------------------------------------------------------ */

/* A way, as it is judged. */
typedef struct judged {
    weft_ratio_t ratio;
    const weft_expectation_t *expected; /* NULL: nothing is */
    double missed;
} judged_t;

static void print_time(const weft_pair_row_t *row, int way)
{
    double us = weft__sample_median(&row->ways[way]);
    printf(" %-15s %8.*f", row->pair->ways[way].name, us < 100 ? 3 : us < 10000 ? 1 : 0, us);
}

/* In `width` columns; "" if it is not known. */
static void print_memory(uint64_t bytes, int width)
{
    char text[32] = "";
    if (bytes > 0) {
        snprintf(text, sizeof(text), "  %.1f MiB", (double)bytes / (1 << 20));
    }
    printf("%*s", width, text);
}

static void print_missed(const judged_t *j)
{
    printf("# %-*s outside: %.0f%% %s the expected %.2f..%.2f\n", NAME + 6, "",
           100 * fabs(j->missed), j->missed < 0 ? "below" : "above", j->expected->low,
           j->expected->high);
}

static void print_row(weft_pairs_report_t *report, const weft_pair_row_t *row,
                      const judged_t *judged)
{
    const weft_pair_t *pair = row->pair;
    char label[WEFT_PAIR_LABEL], size[32];
    if (!report->group || strcmp(report->group, pair->group) != 0) {
        printf("# %s\n", pair->group);
        report->group = pair->group;
    }
    weft__pair_label(pair, label);
    weft__pairs_show_size(row->bytes, size);
    printf("  %-*s %5s", NAME, label, size);
    print_time(row, 0);
    printf("  %s", row->wrong ? "WRONG RESULTS" : "baseline");
    print_memory(row->held[0], 0);
    printf("\n");
    for (int i = 1; i < weft__pair_ways(pair); i++) {
        const weft_ratio_t *r = &judged[i].ratio;
        print_memory(row->held[i], 2 + NAME + 6); /* where the baseline has name and bytes */
        if (row->absent[i]) {
            char why[256];
            int column = 2 + NAME + 6 + printf(" %-15s ", pair->ways[i].name);
            snprintf(why, sizeof(why), "left out: %s", row->absent[i]);
            weft__print_wrapped(stdout, why, column, column);
            continue;
        }
        char interval[32];
        weft__pairs_show_interval(r, interval);
        print_time(row, i);
        printf(" %6.2f %-11s %s", r->ratio, interval, weft__verdict_name(r->verdict));
        printf("\n");
        if (judged[i].missed != 0) {
            print_missed(&judged[i]);
        }
    }
    fflush(stdout);
}

static void json_way(weft_json_t *json, const weft_pair_row_t *row, int i, const judged_t *judged)
{
    const weft_ratio_t *r = &judged->ratio;
    weft__json_object(json, NULL);
    weft__json_string(json, "name", row->pair->ways[i].name);
    if (row->absent[i]) {
        weft__json_string(json, "left_out", row->absent[i]);
        weft__json_end(json);
        return;
    }
    weft__sample_write(json, "us", &row->ways[i]);
    weft__json_double(json, "median_us", weft__sample_median(&row->ways[i]));
    weft__json_double(json, "ratio", r->ratio);
    weft__json_double(json, "low", r->low);
    weft__json_double(json, "high", r->high);
    weft__json_string(json, "verdict", weft__verdict_name(r->verdict));
    weft__json_int(json, "iters", row->ways[i].iters);
    if (row->held[i] > 0) {
        weft__json_uint(json, "memory_bytes", row->held[i]);
    }
    if (judged->expected) {
        weft__json_double(json, "expected_low", judged->expected->low);
        weft__json_double(json, "expected_high", judged->expected->high);
        weft__json_bool(json, "outside", judged->missed != 0);
    }
    weft__json_end(json);
}

static void json_row(weft_json_t *json, const weft_pair_row_t *row, const judged_t *judged)
{
    char label[WEFT_PAIR_LABEL];
    weft__pair_label(row->pair, label);
    weft__json_object(json, NULL);
    weft__json_string(json, "name", label);
    weft__json_string(json, "group", row->pair->group);
    weft__json_uint(json, "bytes", row->bytes);
    weft__json_string(json, "baseline", row->pair->ways[0].name);
    weft__json_array(json, "ways");
    for (int i = 1; i < weft__pair_ways(row->pair); i++) {
        json_way(json, row, i, &judged[i]);
    }
    weft__json_end(json);
    weft__sample_write(json, "baseline_us", &row->ways[0]);
    weft__json_double(json, "baseline_median_us", weft__sample_median(&row->ways[0]));
    if (row->held[0] > 0) {
        weft__json_uint(json, "baseline_memory_bytes", row->held[0]);
    }
    weft__sample_write(json, "copy_us", &row->copy);
    weft__json_uint(json, "wrong", row->wrong);
    weft__json_end(json);
}

static weft_status_t judge(weft_pairs_report_t *report, const weft_pair_row_t *row, int i,
                           judged_t *j)
{
    const weft_sample_t *way = &row->ways[i];
    const char *name = row->pair->ways[i].name;
    char label[WEFT_PAIR_LABEL];
    weft__pair_label(row->pair, label);
    j->ratio = weft__ratio_of(row->ways[0].us, way->us, way->repeats, report->seed);
    j->expected = weft__expectations_of(&report->expected, label, name, row->bytes);
    j->missed = j->expected ? weft__expectation_missed(j->expected, &j->ratio) : 0;
    report->judged++;
    report->outcome.outside += j->missed != 0;
    if (j->ratio.verdict == WEFT_VERDICT_NOISY) {
        char size[32];
        weft__pairs_show_size(row->bytes, size);
        if (report->noisy++ == 0) {
            snprintf(report->first_noisy, sizeof(report->first_noisy), "%s, %s%s%s", label, name,
                     row->bytes > 0 ? ", " : "", row->bytes > 0 ? size : "");
        }
        return WEFT_OK; /* nothing is learned from it */
    }
    return weft__expectations_add(&report->expected, label, name, row->bytes, &j->ratio);
}

weft_status_t weft__pairs_report_row(weft_pairs_report_t *report, const weft_pair_row_t *row)
{
    judged_t judged[WEFT_PAIR_WAYS] = {{.missed = 0}};
    for (int i = 1; i < weft__pair_ways(row->pair); i++) {
        if (!row->absent[i]) {
            WEFT_TRY(judge(report, row, i, &judged[i]));
        }
    }
    report->outcome.wrong += row->wrong;
    print_row(report, row, judged);
    if (report->result.file) {
        json_row(&report->result.json, row, judged);
    }
    return WEFT_OK;
}

weft_status_t weft__pairs_report_left_out(weft_pairs_report_t *report, const weft_pair_t *pair,
                                          const char *why)
{
    int i = report->left_out_count;
    void *more = realloc(report->left_out, (size_t)(i + 1) * sizeof(*report->left_out));
    if (!more) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to list what is left out");
    }
    report->left_out = more;
    report->left_out_count++;
    weft__pair_label(pair, report->left_out[i].name);
    snprintf(report->left_out[i].why, sizeof(report->left_out[i].why), "%s", why);
    printf("  %-21s left out: %s\n", report->left_out[i].name, why);
    return WEFT_OK;
}

/* ---- the end ---------------------------------------------------------------------------- */

static void print_end(const weft_pairs_report_t *report)
{
    const weft_pairs_outcome_t *o = &report->outcome;
    printf("#\n# wrong results: %llu %s\n", (unsigned long long)o->wrong,
           o->wrong ? "FAILED" : "(all verified)");
    printf("# %d comparison%s", report->judged, report->judged == 1 ? "" : "s");
    if (report->noisy > 0) {
        printf(", %d too noisy to tell: measure longer, or on a quieter machine", report->noisy);
    }
    printf("\n");
    if (o->outside > 0) {
        printf("# outside what is expected of this machine: %llu\n",
               (unsigned long long)o->outside);
    }
    fflush(stdout);
}

static void json_end(weft_pairs_report_t *report)
{
    weft_json_t *json = &report->result.json;
    weft__json_end(json);
    weft__json_array(json, "left_out");
    for (int i = 0; i < report->left_out_count; i++) {
        weft__json_object(json, NULL);
        weft__json_string(json, "name", report->left_out[i].name);
        weft__json_string(json, "why", report->left_out[i].why);
        weft__json_end(json);
    }
    weft__json_end(json);
}

/* Why what was measured must not become what is expected; NULL: it may. */
static const char *refusal(weft_pairs_report_t *report)
{
    char more[64] = "";
    if (report->outcome.wrong > 0) {
        return "results were wrong";
    }
    if (report->noisy == 0) {
        return NULL;
    }
    if (report->noisy > 1) {
        snprintf(more, sizeof(more), ", and so %s %d more", report->noisy == 2 ? "was" : "were",
                 report->noisy - 1);
    }
    snprintf(report->refusal, sizeof(report->refusal),
             "%s was too noisy to tell, measured %d times%s; repeat it on a quieter machine, or "
             "with --profile thorough",
             report->first_noisy, 1 + WEFT_PAIRS_AGAIN, more);
    return report->refusal;
}

weft_status_t weft__pairs_report_close(weft_pairs_report_t *report, weft_status_t status)
{
    if (status == WEFT_OK) {
        print_end(report);
    }
    if (report->result.file && status == WEFT_OK) {
        json_end(report);
        weft__json_uint(&report->result.json, "wrong", report->outcome.wrong);
        weft__json_uint(&report->result.json, "outside", report->outcome.outside);
    }
    status = weft__result_close(&report->result, status);
    if (status == WEFT_OK && report->pairs->update) {
        if (!report->expected.refusal) {
            report->expected.refusal = refusal(report);
        }
        status = weft__expectations_update(&report->expected, report->pairs, report->seed);
        report->outcome.outside = 0; /* it is what is expected from now on */
    }
    free(report->left_out);
    weft__expectations_close(&report->expected);
    return status;
}
