/* Parts of traces that ranks left, of which one is merged: always JSON, whatever is in the parts.
 *
 *     part NUL part
 *
 * reads: src/base/trace.c
 * besides: weft__trace_open weft__trace_close weft__trace_lose weft__trace_span weft__trace_busy
 * besides: weft__trace_exposed weft__trace_save earliest next_span by_start intervals_of total */
#include "fuzz/fuzz.h"

#include "base/json_read.h"
#include "base/trace.h"

const long fuzz_runs = 10000;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_rest_t rest = {data, size};
    char *first = fuzz_text(&rest, 0);
    size_t length = rest.left;
    char *second = fuzz_text(&rest, FUZZ_ALL);
    const weft_trace_part_t parts[] = {{first, strlen(first)}, {second, length}, {NULL, 0}};
    const char *out = fuzz_path("trace.json");
    weft_json_doc_t doc;
    static const char *const names[] = {"step", "compute", "communication"};
    static const weft_tracks_t tracks = {.count = 3, .names = names};
    if (weft__trace_merge(out, &tracks, parts, 3) == WEFT_OK) {
        CHECK(weft__json_load(out, &doc) == WEFT_OK);
        CHECK(weft__json_get(doc.root, "traceEvents") != NULL);
        weft__json_free(&doc);
    } else {
        CHECK(strlen(weft_last_error()) > 10);
    }
    free(first);
    free(second);
    return 0;
}

void fuzz_seeds(void)
{
    static const char two[] =
        "0 1000 0\n1 1000 50 3 4096 forward\n2 1100 20 3 -1 all-reduce\n\0001 990 7\n"
        "1 995 50 -1 -1 backward pass\n99 1 2 3";
    fuzz_word("18446744073709551615");
    fuzz_word("-1");
    fuzz_word("\xc3\xa9");
    fuzz_word("\"\\");
    fuzz_seed(two, sizeof(two) - 1);
    fuzz_seed_text("0 1000 0\n");
    fuzz_seed_text("0 1000 0\n0 5 6 7 8\n-3 5 6 7 8 \n");
}
