/* Files of weft pairs: results that are compared, and expectations that are read, met and updated.
 *
 *     kind[1]  0: a file of results, compared with a good one both ways round; 1: expectations
 *
 * reads: src/bench/pairs/compare.c src/bench/pairs/expectations.c
 *        src/bench/pairs/expectations_update.c
 * besides: folders find_in is_json file_name make_folder */
#include "fuzz/fuzz.h"

#include "base/log.h"
#include "bench/pairs/internal.h"

const long fuzz_runs = 6000;

static const char good[] =
    "{\"kind\": \"pairs\", \"format\": 1, \"machine\": {\"host\": \"h\", \"cpus\": 2},"
    "\"ranks\": 2, \"settings\": {\"WEFT_CHUNK\": \"1M\"}, \"profile\": \"quick\","
    "\"pairs\": [{\"name\": \"halo\", \"bytes\": 64, \"baseline\": \"a\", \"ways\": [{\"name\":"
    "\"b\", \"us\": [1, 2, 1.5, 1, 1, 1, 1, 1, 1, 1, 1, 1]}, {\"name\": \"c\", \"left_out\": "
    "\"no\"}],"
    "\"baseline_us\": [2, 2, 2, 2, 3, 2, 2, 2, 2, 2, 2, 2e0], \"wrong\": 0}]}";

static const char expected[] =
    "{\"kind\": \"expectations\", \"format\": 1, \"key\": {\"device\": \"virtual GPU\","
    "\"devices\": 2, \"processor\": \"X\", \"cpus\": 2, \"ranks\": 2, \"ranks_are\": \"processes\","
    "\"build\": \"release\"}, \"pairs\": [{\"name\": \"halo\", \"bytes\": 64, \"way\": \"b\","
    "\"low\": 1.5, \"high\": 2.5}], \"history\": [{\"commit\": \"c\", \"seed\": 4294967295,"
    "\"settings\": {}, \"pairs\": [{\"ratio\": 1.8, \"flag\": true, \"none\": null}]}]}";

static const weft_ratio_t ratio = {2, 1.9, 2.1, 1.8, 2.2, WEFT_VERDICT_FASTER};

static void start(void)
{
    static bool started;
    if (!started) {
        weft__log_set_level("error");
        CHECK(freopen("/dev/null", "w", stdout) != NULL);
        started = true;
    }
}

static void compare(const uint8_t *file, size_t size)
{
    int slower = 0;
    const char *path = fuzz_put("a.json", file, size);
    const char *other = fuzz_put("b.json", good, sizeof(good) - 1);
    weft__pairs_compare(path, other, &slower);
    weft__pairs_compare(other, path, &slower);
    CHECK(slower >= 0);
}

static void expect(const uint8_t *file, size_t size)
{
    weft_pairs_t pairs = {.profile = "quick",
                          .update = true,
                          .expectations = fuzz_put("e.json", file, size),
                          .machine = {.processor = "X", .cpus = 2, .started = "now"}};
    weft_expectations_t e;
    if (weft__expectations_open(&e, &pairs, 2) != WEFT_OK) {
        return;
    }
    CHECK(weft__expectations_add(&e, "halo", "b", 64, &ratio) == WEFT_OK);
    CHECK(weft__expectations_update(&e, &pairs, 7) == WEFT_OK);
    int count = e.count;
    weft__expectations_close(&e);
    /* what was written is read, and met by the run that it was made of */
    CHECK(weft__expectations_open(&e, &pairs, 2) == WEFT_OK);
    CHECK(e.count == count);
    const weft_expectation_t *row = weft__expectations_of(&e, "halo", "b", 64);
    CHECK(row != NULL && weft__expectation_missed(row, &ratio) == 0);
    weft__expectations_close(&e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    start();
    if (size > 0 && data[0] % 2 == 0) {
        compare(data + 1, size - 1);
    } else if (size > 0) {
        expect(data + 1, size - 1);
    }
    return 0;
}

void fuzz_seeds(void)
{
    fuzz_seed_kind(0, good);
    fuzz_seed_kind(1, expected);
    fuzz_word("\"us\": [");
    fuzz_word("\"baseline_us\": [1]");
    fuzz_word("1e308");
    fuzz_word("-1");
}
