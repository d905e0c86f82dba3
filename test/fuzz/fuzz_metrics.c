/* metrics.jsonl of a run that goes on: what is kept of it are whole lines that count up, as they
 * were.
 *
 *     steps[1]  text
 *
 * reads: src/train/metrics.c
 * besides: weft__metrics_say weft__metrics_summary weft__metrics_open weft__metrics_step
 * weft__metrics_close besides: append_line write_step put is_wanted */
#include "fuzz/fuzz.h"

#include "base/file.h"
#include "train/metrics.h"

const long fuzz_runs = 10000;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_rest_t rest = {data, size};
    uint64_t resumed = fuzz_byte(&rest);
    const weft_metrics_options_t options = {
        .folder = fuzz_folder(), .resumed = resumed, .steps = 1000, .log_every = 1};
    weft_metrics_step_t step = WEFT_METRICS_STEP_INIT;
    weft_metrics_t *metrics;
    char *text;
    size_t length;
    step.step = resumed + 1;
    step.loss = 2.5;
    const char *path = fuzz_put("metrics.jsonl", rest.at, rest.left);
    CHECK(weft__metrics_open(&options, &metrics) == WEFT_OK);
    CHECK(weft__metrics_step(metrics, &step) == WEFT_OK);
    CHECK(weft__metrics_close(metrics) == WEFT_OK);
    CHECK(weft__file_read(path, &text, &length) == WEFT_OK);
    size_t kept = length - 1; /* up to the last line, which is the new one */
    CHECK(length > 10 && text[kept] == '\n');
    while (kept > 0 && text[kept - 1] != '\n') {
        kept--;
    }
    CHECK(kept <= rest.left && memcmp(text, rest.at, kept) == 0 && (resumed > 0 || kept == 0));
    char expected[64];
    int start = snprintf(expected, sizeof(expected), "{\"step\": %llu, \"loss\": 2.5,",
                         (unsigned long long)(resumed + 1));
    CHECK(strncmp(text + kept, expected, (size_t)start) == 0);
    free(text);
    return 0;
}

void fuzz_seeds(void)
{
    fuzz_word("\"step\":");
    fuzz_word("{\"step\":4,\"loss\":null}\n");
    fuzz_word("18446744073709551615");
    fuzz_seed_kind(
        3, "{\"step\":1,\"loss\":2.5}\n{\"step\":2,\"loss\":2.25}\n{\"step\":3}\n{\"step\":4}\n");
    fuzz_seed_kind(9, "{\"step\":1,\"loss\":2.5}\n{\"step\":2,\"lo");
    fuzz_seed_kind(0, "{\"step\":1}\n");
    fuzz_seed_kind(9, "\n\n");
}
