/* Files that weft report is given: whatever is in them, a page comes out whose tags are balanced
 * and that has no script but ours, or a sentence that names the file.
 *
 *     text
 *
 * reads: src/report/input.c src/report/input_metrics.c src/report/values.c
 * reads: src/report/trace_spans.c src/report/section_bench.c src/report/section_pairs.c
 * reads: src/report/section_links.c src/report/section_links_more.c src/report/section_scaling.c
 * reads: src/report/section_train.c src/report/section_doctor.c src/report/section_trace.c
 * besides: add_metrics_of_run add_record add_traces add_run begins_like_trace is_json_name */
#define _GNU_SOURCE 1
#include "fuzz/fuzz.h"

#include <math.h>

#include "report/report.h"

#include <weft/status.h>

const long fuzz_runs = 3000;

/* What drawings and tables are made of is numbers, in coordinates that a page has. Names may say
 * anything: quotes in them are escaped, so they never look like an attribute. */
static void check_numbers(const char *page)
{
    static const struct {
        const char *attribute;
        bool alone; /* one coordinate, and nothing else */
    } numbers[] = {{" x=\"", true},      {" y=\"", true},       {" width=\"", true},
                   {" height=\"", true}, {" d=\"", false},      {" viewBox=\"", false},
                   {" style=\"", false}, {" data-v=\"", false}, {" data-x=\"", false}};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        const char *at = page;
        while ((at = strstr(at, numbers[i].attribute)) != NULL) {
            at += strlen(numbers[i].attribute);
            size_t length = strcspn(at, "\"");
            CHECK(length > 0 || !numbers[i].alone);
            CHECK(memmem(at, length, "nan", 3) == NULL && memmem(at, length, "inf", 3) == NULL);
            if (numbers[i].alone) {
                char *end;
                CHECK(fabs(strtod(at, &end)) < 1e6 && end == at + length);
            }
            at += length;
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weft_report_t report = {0};
    const char *path = fuzz_put("input.json", data, size);
    if (weft__report_add(&report, path) != WEFT_OK) {
        CHECK(strlen(weft_last_error()) > 10);
        CHECK(strstr(weft_last_error(), "input.json") != NULL);
        CHECK(report.count == 0);
        weft__report_cleanup(&report);
        return 0;
    }
    char *page = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&page, &length);
    CHECK(out != NULL);
    CHECK(weft__report_write(&report, NULL, out) == WEFT_OK);
    fclose(out);
    static const char *const tags[][2] = {{"<svg", "</svg>"},          {"<figure>", "</figure>"},
                                          {"<section ", "</section>"}, {"<table>", "</table>"},
                                          {"<title>", "</title>"},     {"<td", "</td>"}};
    CHECK(strlen(page) == length); /* no NUL in it */
    for (size_t i = 0; i < sizeof(tags) / sizeof(tags[0]); i++) {
        const char *at[2] = {page, page};
        long counts[2] = {0, 0};
        for (int side = 0; side < 2; side++) {
            while ((at[side] = strstr(at[side], tags[i][side])) != NULL) {
                at[side]++;
                counts[side]++;
            }
        }
        CHECK(counts[0] == counts[1]);
    }
    CHECK(strstr(strstr(page, "<script>") + 1, "<script") == NULL);
    check_numbers(page);
    free(page);
    weft__report_cleanup(&report);
    return 0;
}

#define HEAD(kind) "{\"kind\":\"" kind "\",\"format\":1,\"ranks\":2,\"machine\":{\"host\":\"h\"},"

void fuzz_seeds(void)
{
    static const char *const words[] = {"\"pairs\":", "\"results\":", "\"points\":",  "\"lost\":",
                                        "\"us\":",    "\"slow\":",    "\"from\":",    "1e308",
                                        "-1e308",     "1e-308",       "5e-324",       "1e299",
                                        "1e-299",     "nan",          "inf",          "null",
                                        "</script>",  "\\u0000",      "\"ph\":\"X\"", "\"step\":"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        fuzz_word(words[i]);
    }
    fuzz_seed_text(HEAD("bench") "\"results\":[{\"collective\":\"allreduce\",\"bytes\":8,"
                                 "\"in_place\":false,\"us\":[1.5,2],\"bus_factor\":1,\"wrong\":0},"
                                 "{\"collective\":\"allreduce\",\"bytes\":64,\"us\":[3]},"
                                 "{\"target\":\"halo\",\"name\":null,\"bytes\":8,\"other\":\"x\","
                                 "\"us\":[1],\"other_us\":[2],\"wrong\":0}]}");
    fuzz_seed_text(HEAD("links") "\"pairs\":[{\"from\":0,\"to\":1,\"link\":\"L3\","
                                 "\"one_way_gbs\":3,\"both_ways_gbs\":5,\"latency_us\":1,"
                                 "\"slow\":true},{\"from\":1,\"to\":0}],\"permutations\":[{"
                                 "\"shift\":1,\"gbs\":2}],\"alltoall\":{\"gbs\":[1,2],\"sum_gbs\":3"
                                 "},\"allreduce\":[{\"algorithm\":\"ring\",\"bytes\":8,\"us\":1}],"
                                 "\"memory\":[{\"where\":\"host\",\"what\":\"copy\",\"gbs\":1}],"
                                 "\"findings\":[{\"text\":\"t\"}]}");
    fuzz_seed_text(HEAD("pairs") "\"pairs\":[{\"name\":\"halo\",\"group\":\"g\",\"bytes\":8,"
                                 "\"baseline\":\"b\",\"baseline_us\":[2,3],\"wrong\":0,\"ways\":[{"
                                 "\"name\":\"w\",\"us\":[1],\"median_us\":1,\"ratio\":2,\"low\":1,"
                                 "\"high\":3,\"verdict\":\"faster\"}]}]}");
    fuzz_seed_text(HEAD("scaling") "\"points\":[{\"mode\":\"weak\",\"ranks\":1,\"plan\":\"dp 1\","
                                   "\"tokens_per_s\":5,\"efficiency\":1,\"lost\":{\"rest\":0}},{"
                                   "\"mode\":\"weak\",\"ranks\":2,\"tokens_per_s\":9,"
                                   "\"efficiency\":0.9,\"lost\":{\"rest\":0.1}}],\"remedies\":[{"
                                   "\"name\":\"r\",\"tokens_per_s\":6,\"gain\":0.2}]}");
    fuzz_seed_text(HEAD("train") "\"model\":\"m\",\"plan\":{\"dp\":2},\"tokens_per_s\":5,\"mfu\":1,"
                                 "\"step_ms\":[1,2],\"time\":{\"forward\":1,\"data\":2},\"memory\":"
                                 "{\"weights\":5},\"loss\":[3,2]}");
    fuzz_seed_text(HEAD("doctor") "\"findings\":[{\"check\":\"c\",\"level\":\"error\",\"what\":\"w"
                                  "\",\"evidence\":\"e\",\"cost\":\"c\",\"fix\":\"f\"}],"
                                  "\"settings\":{\"A\":\"b\"},\"command\":[\"doctor\"]}");
    fuzz_seed_text("{\"step\":1,\"loss\":2.5,\"lr\":1e-3,\"tokens_per_s\":5}\n"
                   "{\"step\":2,\"loss\":null,\"grad_norm\":1}\n{\"step\":3,\"lo");
    fuzz_seed_text("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[{\"ph\":\"M\",\"name\":"
                   "\"process_name\",\"pid\":0,\"tid\":0,\"args\":{\"name\":\"rank 0\"}},{\"ph\":"
                   "\"X\",\"name\":\"step\",\"pid\":0,\"tid\":0,\"ts\":1,\"dur\":9,\"args\":{"
                   "\"step\":1}},{\"ph\":\"X\",\"name\":\"forward\",\"pid\":0,\"tid\":1,\"ts\":2,"
                   "\"dur\":3,\"args\":{\"step\":1}}]}");
}
