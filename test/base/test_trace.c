/* ctest: tsan */
/* Traces: spans of many threads, sums, parts of ranks in one file that starts at 0. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/fixture.h"
#include "base/json_read.h"
#include "base/rng.h"
#include "base/trace.h"

enum { STEP, COMPUTE, COMM, TRACKS };
static const char *const track_names[TRACKS] = {"step", "compute", "communication"};
static const weft_tracks_t tracks = {.count = TRACKS, .names = track_names};

static weft_trace_t *open_trace(int rank, size_t capacity)
{
    weft_trace_t *trace;
    assert_int_equal(weft__trace_open(rank, capacity, &trace), WEFT_OK);
    return trace;
}

static void *record(void *context)
{
    for (uint64_t i = 0; i < 1000; i++) {
        weft__trace_span(context, COMPUTE, "matmul", i * 10, i * 10 + 5, (int64_t)i, -1);
    }
    return NULL;
}

static void threads_record_at_once(void **state)
{
    (void)state;
    weft_trace_t *trace = open_trace(0, 3000);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, record, trace), 0);
    }
    weft_trace_part_t part;
    assert_int_equal(weft__trace_save(trace, &part), WEFT_OK); /* while they do */
    free(part.text);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_int_equal(weft__trace_save(trace, &part), WEFT_OK);
    assert_int_equal(weft__trace_merge(in_scratch("full.json"), &tracks, &part, 1), WEFT_OK);
    free(part.text);
    char *text;
    assert_int_equal(weft__file_read(in_scratch("full.json"), &text, NULL), WEFT_OK);
    assert_non_null(strstr(text, "rank 0 (1000 spans did not fit)"));
    free(text);
    weft__trace_close(trace);
    weft__trace_span(NULL, COMM, "nothing", 0, 1, -1, -1);
}

static void ranks_are_merged(void **state)
{
    (void)state;
    weft_trace_part_t parts[3] = {{NULL, 0}};
    for (int rank = 0; rank < 3; rank += 2) { /* rank 1 has none */
        weft_trace_t *trace = open_trace(rank, 16);
        uint64_t base = 5000000000000000u + (uint64_t)rank * 1000;
        weft__trace_span(trace, STEP, "step", base, base + 3500, 7, -1);
        weft__trace_span(trace, COMM, "allreduce \"bucket 3\"", base + 1000, base + 1500, 7, 4096);
        assert_int_equal(weft__trace_save(trace, &parts[rank]), WEFT_OK);
        weft__trace_close(trace);
    }
    assert_int_equal(weft__trace_merge(in_scratch("trace.json"), &tracks, parts, 3), WEFT_OK);
    weft_json_doc_t doc;
    assert_int_equal(weft__json_load(in_scratch("trace.json"), &doc), WEFT_OK);
    const weft_json_value_t *events = weft__json_get(doc.root, "traceEvents");
    const weft_json_value_t *event = weft__json_first(events);
    int spans = 0, names = 0;
    for (; event != NULL; event = weft__json_next(events, event)) {
        double start = -1, length = -1;
        int64_t pid = -1, tid = -1, bytes = -1;
        assert_true(weft__json_to_int(weft__json_get(event, "pid"), &pid) &&
                    (pid == 0 || pid == 2));
        assert_true(weft__json_to_int(weft__json_get(event, "tid"), &tid) && tid >= 0);
        if (weft__json_is(weft__json_get(event, "ph"), "M")) {
            names++;
            continue;
        }
        spans++;
        weft__json_to_double(weft__json_get(event, "ts"), &start);
        weft__json_to_double(weft__json_get(event, "dur"), &length);
        if (weft__json_is(weft__json_get(event, "name"), "allreduce \"bucket 3\"")) {
            assert_true(start == (double)pid + 1 && length == 0.5);
            assert_true(
                weft__json_to_int(weft__json_get(weft__json_get(event, "args"), "bytes"), &bytes));
            assert_int_equal(bytes, 4096);
        } else {
            assert_true(start == (double)pid && length == 3.5);
        }
    }
    assert_int_equal(spans, 4);
    assert_int_equal(names, 2 * (1 + 2)); /* rank, steps, communication */
    weft__json_free(&doc);
    for (int i = 0; i < 3; i++) {
        free(parts[i].text);
        parts[i] = (weft_trace_part_t){NULL, 0};
    }
    assert_int_equal(weft__trace_merge(in_scratch("none.json"), &tracks, parts, 3),
                     WEFT_ERR_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_record_at_once),
        cmocka_unit_test(ranks_are_merged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
