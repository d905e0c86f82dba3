/* Data: shards of llm.c, texts, windows, epochs, ranks, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/fixture.h"
#include "base/rng.h"
#include "text/data.h"
#include "text/shards.h"

static weft_tokenizer_t *bytes;

static int open_bytes(void **state)
{
    (void)state;
    return weft__tokenizer_open("bytes", &bytes) != WEFT_OK;
}

static int close_bytes(void **state)
{
    (void)state;
    weft__tokenizer_close(bytes);
    return 0;
}

/* A shard as llm.c's data_common.py writes it, by hand: token i is (start + i) mod `below`. */
static void write_shard(const char *path, uint32_t magic, uint32_t version, int token_bytes,
                        uint32_t start, uint32_t count, uint32_t below)
{
    size_t size = 1024 + (size_t)count * (size_t)token_bytes;
    uint8_t *out = calloc(1, size);
    uint32_t header[3] = {magic, version, count};
    memcpy(out, header, sizeof(header));
    for (uint32_t i = 0; i < count; i++) {
        uint32_t token = (start + i) % below;
        memcpy(out + 1024 + (size_t)i * (size_t)token_bytes, &token, (size_t)token_bytes);
    }
    write_file(path, out, size);
    free(out);
}

static weft_data_t *open_or_die(const char *path, const weft_data_options_t *options)
{
    weft_data_t *data;
    if (weft__data_open(path, bytes, scratch(), options, &data) != WEFT_OK) {
        fail_msg("%s", weft_last_error());
    }
    return data;
}

static weft_status_t try_open(const char *path, uint32_t length, uint32_t vocab, double validation)
{
    const weft_data_options_t options = {
        .length = length, .vocab = vocab, .validation = validation};
    weft_data_t *data = NULL;
    weft_status_t status = weft__data_open(path, bytes, scratch(), &options, &data);
    weft__data_close(data);
    return status;
}

static void windows_run_across_shards(void **state)
{
    (void)state;
    /* 3 shards of both kinds, one of them empty, that count on from each other */
    weft__folder_make(in_scratch("mixed"));
    write_shard(in_scratch("mixed/a_0.bin"), 20240520, 1, 2, 0, 103, 60000);
    write_shard(in_scratch("mixed/a_1.bin"), 20240520, 1, 2, 0, 0, 60000);
    write_shard(in_scratch("mixed/a_2.bin"), 20240801, 7, 4, 103, 98, 60000);
    write_file(in_scratch("mixed/README"), "text", 4);
    const weft_data_options_t options = {.length = 10, .vocab = 201};
    const char *paths[] = {in_scratch("mixed"), in_scratch("mixed/a_*.bin")};
    for (int p = 0; p < 2; p++) {
        weft_data_t *data = open_or_die(paths[p], &options);
        weft_data_info_t info;
        weft__data_info(data, &info);
        assert_int_equal(info.tokens, 201);
        assert_int_equal(info.windows, 20);
        assert_int_equal(info.validation_windows, 0);
        assert_int_equal(info.shards, 3);
        for (int s = 0; s < 25; s++) {
            int32_t inputs[10], targets[10];
            assert_int_equal(weft__data_sample(data, (uint64_t)s, inputs, targets), WEFT_OK);
            for (int i = 0; i < 10; i++) {
                assert_int_equal(inputs[i], s % 20 * 10 + i);
                assert_int_equal(targets[i], s % 20 * 10 + i + 1);
            }
        }
        weft__data_close(data);
    }
}

static void the_smallest_share_keeps_one_window(void **state)
{
    (void)state;
    write_shard(in_scratch("share.bin"), 20240801, 7, 4, 0, 101, 1000);
    const weft_data_options_t options = {.length = 10, .vocab = 1000, .validation = 1e-6};
    weft_data_t *data = open_or_die(in_scratch("share.bin"), &options);
    weft_data_info_t info;
    weft__data_info(data, &info);
    assert_int_equal(info.windows, 9);
    assert_int_equal(info.validation_windows, 1);
    weft__data_close(data);
}

static void each_window_comes_once_per_epoch_for_any_ranks_and_batch(void **state)
{
    (void)state;
    enum { LENGTH = 4, WINDOWS = 137, VALIDATION = 13 };
    write_shard(in_scratch("e.bin"), 20240801, 7, 4, 0, LENGTH * (WINDOWS + VALIDATION) + 1,
                1u << 30);
    const weft_data_options_t options = {
        .length = LENGTH, .vocab = 1u << 30, .validation = 0.0867, .seed = 3, .shuffle = true};
    weft_data_t *data = open_or_die(in_scratch("e.bin"), &options);
    weft_data_info_t info;
    weft__data_info(data, &info);
    assert_int_equal(info.windows, WINDOWS);
    assert_int_equal(info.validation_windows, VALIDATION);
    int32_t reference[3 * WINDOWS];
    for (int ranks = 1; ranks <= 9; ranks++) {
        for (uint64_t batch = 1; batch <= 12; batch++) {
            int seen[3][WINDOWS] = {{0}};
            for (uint64_t b = 0; b * batch < 3 * WINDOWS; b++) {
                uint64_t expected = 0;
                for (int rank = 0; rank < ranks; rank++) {
                    uint64_t begin, end;
                    weft__data_share(batch, rank, ranks, &begin, &end);
                    assert_int_equal(begin, expected);
                    assert_true(end - begin <= batch / (uint64_t)ranks + 1);
                    expected = end;
                    for (uint64_t i = begin; i < end; i++) {
                        uint64_t sample = b * batch + i, epoch, index;
                        int32_t inputs[LENGTH], targets[LENGTH];
                        assert_int_equal(weft__data_sample(data, sample, inputs, targets), WEFT_OK);
                        weft__data_position(data, sample, &epoch, &index);
                        if (epoch < 3) {
                            seen[epoch][inputs[0] / LENGTH]++;
                            if (ranks == 1 && batch == 1) {
                                reference[sample] = inputs[0];
                            }
                            assert_int_equal(inputs[0], reference[sample]);
                        }
                    }
                }
                assert_int_equal(expected, batch);
            }
            for (int e = 0; e < 3; e++) {
                for (int w = 0; w < WINDOWS; w++) {
                    assert_int_equal(seen[e][w], 1);
                }
            }
        }
    }
    assert_memory_not_equal(reference, reference + WINDOWS, WINDOWS * sizeof(int32_t));
    for (uint64_t s = 0; s < 2 * VALIDATION; s++) { /* validation has what training has not */
        int32_t inputs[LENGTH], targets[LENGTH];
        assert_int_equal(weft__data_validation(data, s, inputs, targets), WEFT_OK);
        assert_int_equal(inputs[0], LENGTH * (WINDOWS + (int32_t)(s % VALIDATION)));
    }
    weft__data_close(data);
}

static void texts_are_encoded_once(void **state)
{
    (void)state;
    weft__folder_make(in_scratch("texts/deep/run"));
    write_file(in_scratch("texts/b.txt"), "second", 6);
    write_file(in_scratch("texts/a.txt"), "first<|endoftext|>x", 19);
    write_file(in_scratch("texts/deep/c.c"), "third", 5);
    write_file(in_scratch("texts/.hidden"), "no", 2);
    write_file(in_scratch("texts/empty"), "", 0);
    write_file(in_scratch("texts/program"),
               "\x7f"
               "ELF\0\0",
               6);
    write_file(in_scratch("texts/firmware.bin"), "\1\2\0\3", 4);
    write_file(in_scratch("texts/deep/run/metrics.jsonl"), "{}\n", 3);
    const uint32_t wanted[] = {'f', 'i', 'r', 's', 't', 256, 'x', 256, 's', 'e', 'c',
                               'o', 'n', 'd', 256, 't', 'h', 'i', 'r', 'd', 256};
    const char *cache = in_scratch("texts"); /* the cache may lie in the data itself */
    const weft_data_options_t options = {.length = 20, .vocab = 257};
    for (int again = 0; again < 2; again++) {
        weft_data_t *data;
        assert_int_equal(weft__data_prepare(in_scratch("texts"), bytes, cache, NULL), WEFT_OK);
        assert_int_equal(weft__data_open(in_scratch("texts"), bytes, cache, &options, &data),
                         WEFT_OK);
        int32_t inputs[20], targets[20];
        assert_int_equal(weft__data_sample(data, 0, inputs, targets), WEFT_OK);
        for (int i = 0; i < 20; i++) {
            assert_int_equal(inputs[i], wanted[i]);
            assert_int_equal(targets[i], wanted[i + 1]);
        }
        weft__data_close(data);
    }
    /* a file that changed is noticed, and encoded again */
    weft_data_t *data;
    write_file(in_scratch("texts/b.txt"), "changed!", 8);
    assert_int_equal(weft__data_open(in_scratch("texts"), bytes, cache, &options, &data),
                     WEFT_ERR_NOT_FOUND);
    assert_true(error_says("changed"));
    assert_int_equal(weft__data_prepare(in_scratch("texts"), bytes, cache, NULL), WEFT_OK);
    assert_int_equal(weft__data_open(in_scratch("texts"), bytes, cache, &options, &data), WEFT_OK);
    weft_data_info_t info;
    weft__data_info(data, &info);
    assert_int_equal(info.tokens, 23);
    weft__data_close(data);
}

typedef struct told {
    int times;
    uint64_t done, total;
} told_t;

static void note_encoded(void *ctx, uint64_t done, uint64_t total)
{
    told_t *told = ctx;
    assert_true(told->times > 0 ? done > told->done : done == 0);
    *told = (told_t){told->times + 1, done, total};
}

/* More than one chunk of text, with spaces only here and there: cut or whole, the tokens are the
 * same. */
static void long_texts_are_cut_without_a_trace(void **state)
{
    (void)state;
    enum { SIZE = 3 << 20 };
    weft_tokenizer_t *gpt2;
    weft_tokens_t whole = {0};
    char *text = malloc(SIZE);
    assert_int_equal(weft__tokenizer_open(fixture("text", "tokenizer-gpt2.json"), &gpt2), WEFT_OK);
    for (size_t i = 0; i < SIZE; i++) {
        uint64_t r = weft__rng_at(1, i / 8) >> i % 8 * 8 & 0xFF;
        text[i] = r < 200 ? (char)('a' + r % 26) : " \n'.<"[r % 5];
    }
    memset(text + (1 << 20) - 100000, '\n',
           200000); /* no place to cut near the first chunk's end */
    write_file(in_scratch("long.txt"), text, SIZE);
    assert_int_equal(weft__tokenizer_encode(gpt2, text, SIZE, true, &whole), WEFT_OK);
    told_t told = {0};
    const weft_data_watch_t watch = {note_encoded, &told};
    assert_int_equal(weft__data_prepare(in_scratch("long.txt"), gpt2, scratch(), &watch), WEFT_OK);
    assert_true(told.times >= 3 && told.done == SIZE && told.total == SIZE);
    const weft_data_options_t options = {.length = 1000, .vocab = weft__tokenizer_vocab(gpt2)};
    weft_data_t *data;
    weft_data_info_t info;
    assert_int_equal(weft__data_open(in_scratch("long.txt"), gpt2, scratch(), &options, &data),
                     WEFT_OK);
    weft__data_info(data, &info);
    assert_int_equal(info.tokens, whole.count + 1);
    for (uint64_t s = 0; s < info.windows; s++) {
        int32_t inputs[1000], targets[1000];
        assert_int_equal(weft__data_sample(data, s, inputs, targets), WEFT_OK);
        assert_memory_equal(inputs, whole.at + s * 1000, sizeof(inputs));
    }
    weft__data_close(data);
    weft__tokenizer_close(gpt2);
    free(whole.at);
    free(text);
}

static void shards_are_cut_at_their_limit(void **state)
{
    (void)state;
    for (int token_bytes = 2; token_bytes <= 4; token_bytes += 2) {
        weft_shard_writer_t *writer;
        uint64_t total;
        const char *folder = token_bytes == 2 ? in_scratch("cut2") : in_scratch("cut4");
        weft__folder_make(folder);
        assert_int_equal(weft__shards_create(folder, token_bytes, 100, &writer), WEFT_OK);
        for (uint32_t i = 0; i < 250; i++) {
            uint32_t token = i * 250;
            assert_int_equal(weft__shards_write(writer, &token, 1), WEFT_OK);
        }
        assert_int_equal(weft__shards_finish(writer, &total), WEFT_OK);
        assert_int_equal(total, 250);
        const weft_data_options_t options = {.length = 249, .vocab = 65536};
        weft_data_t *data = open_or_die(folder, &options);
        weft_data_info_t info;
        int32_t inputs[249], targets[249];
        weft__data_info(data, &info);
        assert_int_equal(info.shards, 3);
        assert_int_equal(info.token_bytes, token_bytes);
        assert_int_equal(weft__data_sample(data, 0, inputs, targets), WEFT_OK);
        for (int i = 0; i < 249; i++) {
            assert_int_equal(targets[i], (i + 1) * 250);
        }
        weft__data_close(data);
    }
}

static void what_cannot_be_used_is_named(void **state)
{
    (void)state;
    assert_int_equal(try_open(in_scratch("nothing"), 8, 10, 0), WEFT_ERR_NOT_FOUND);
    assert_true(error_says("nothing"));
    assert_int_equal(try_open("", 8, 10, 0), WEFT_ERR_INVALID);
    assert_true(error_says("--data"));
    write_file(in_scratch("empty.txt"), "", 0);
    assert_int_equal(weft__data_prepare(in_scratch("empty.txt"), bytes, scratch(), NULL),
                     WEFT_ERR_INVALID);
    assert_true(error_says("is empty"));
    weft__folder_make(in_scratch("bare"));
    assert_int_equal(weft__data_prepare(in_scratch("bare"), bytes, scratch(), NULL),
                     WEFT_ERR_INVALID);
    assert_true(error_says("no text"));

    write_shard(in_scratch("s.bin"), 20240520, 1, 2, 0, 100, 50);
    assert_int_equal(try_open(in_scratch("s.bin"), 99, 50, 0), WEFT_OK);
    assert_int_equal(try_open(in_scratch("s.bin"), 100, 50, 0), WEFT_ERR_INVALID);
    assert_true(error_says("needs 101"));
    assert_int_equal(try_open(in_scratch("s.bin"), 50, 50, 0.1), WEFT_ERR_INVALID);
    assert_true(error_says("needs 101"));
    assert_int_equal(try_open(in_scratch("s.bin"), 10, 49, 0), WEFT_ERR_INVALID);
    assert_true(error_says("token 49 at place 49"));
    assert_int_equal(truncate(in_scratch("s.bin"), 1024 + 199), 0);
    assert_int_equal(try_open(in_scratch("s.bin"), 10, 50, 0), WEFT_ERR_INVALID);
    assert_true(error_says("truncated"));
    assert_int_equal(truncate(in_scratch("s.bin"), 1000), 0);
    assert_int_equal(try_open(in_scratch("s.bin"), 10, 50, 0), WEFT_ERR_INVALID);
    write_shard(in_scratch("s.bin"), 20240522, 1, 2, 0, 100, 50);
    assert_int_equal(try_open(in_scratch("s.bin"), 10, 50, 0), WEFT_ERR_INVALID);
    assert_true(error_says("multiple-choice"));
    write_shard(in_scratch("s.bin"), 20240520, 2, 2, 0, 100, 50);
    assert_int_equal(try_open(in_scratch("s.bin"), 10, 50, 0), WEFT_ERR_INVALID);
    assert_true(error_says("version 2"));

    /* a bad token beyond what is looked at first is found when it is met */
    write_shard(in_scratch("late.bin"), 20240520, 1, 2, 0, 6000, 6000);
    const weft_data_options_t options = {.length = 1000, .vocab = 5500};
    weft_data_t *data = open_or_die(in_scratch("late.bin"), &options);
    int32_t inputs[1000], targets[1000];
    assert_int_equal(weft__data_sample(data, 4, inputs, targets), WEFT_OK);
    assert_int_equal(weft__data_sample(data, 5 + 4, inputs, targets), WEFT_OK);
    assert_int_equal(weft__data_validation(data, 0, inputs, targets), WEFT_ERR_INVALID);
    weft__data_close(data);
    const weft_data_options_t shorter = {.length = 100, .vocab = 5500};
    data = open_or_die(in_scratch("late.bin"), &shorter);
    assert_int_equal(weft__data_sample(data, 55, inputs, targets), WEFT_ERR_INVALID);
    assert_true(error_says("token 5500 at place 5500"));
    weft__data_close(data);
}

static void made_up_tokens_are_uniform_and_a_function_of_the_seed(void **state)
{
    (void)state;
    enum { LENGTH = 64, VOCAB = 11, SAMPLES = 1000 };
    const weft_data_options_t options = {
        .length = LENGTH, .vocab = VOCAB, .seed = 3, .validation = 0.1, .shuffle = true};
    weft_data_options_t other_seed = options;
    weft_data_t *data, *again, *other;
    int32_t inputs[LENGTH], targets[LENGTH], inputs2[LENGTH], targets2[LENGTH];
    int counts[VOCAB] = {0}, same = 0;
    other_seed.seed = 4;
    assert_int_equal(weft__data_make_up(&options, &data), WEFT_OK);
    assert_int_equal(weft__data_make_up(&options, &again), WEFT_OK);
    assert_int_equal(weft__data_make_up(&other_seed, &other), WEFT_OK);
    for (uint64_t sample = 0; sample < SAMPLES; sample++) {
        assert_int_equal(weft__data_sample(data, sample, inputs, targets), WEFT_OK);
        assert_int_equal(weft__data_sample(again, sample, inputs2, targets2), WEFT_OK);
        assert_memory_equal(inputs, inputs2, sizeof(inputs));
        assert_memory_equal(targets, targets2, sizeof(targets));
        assert_memory_equal(inputs + 1, targets, (LENGTH - 1) * sizeof(int32_t));
        assert_int_equal(weft__data_sample(other, sample, inputs2, targets2), WEFT_OK);
        for (int i = 0; i < LENGTH; i++) {
            assert_in_range(inputs[i], 0, VOCAB - 1);
            counts[inputs[i]]++;
            same += inputs[i] == inputs2[i];
        }
    }
    /* 64000 tokens: 5818 of each, with a deviation of 73; as many as another seed has. */
    for (int i = 0; i < VOCAB; i++) {
        assert_in_range(counts[i], 5818 - 6 * 73, 5818 + 6 * 73);
    }
    assert_in_range(same, 5818 - 6 * 73, 5818 + 6 * 73);
    /* Validation has other tokens than training. */
    assert_int_equal(weft__data_sample(data, 0, inputs, targets), WEFT_OK);
    assert_int_equal(weft__data_validation(data, 0, inputs2, targets2), WEFT_OK);
    assert_memory_not_equal(inputs, inputs2, sizeof(inputs));
    weft__data_close(data);
    weft__data_close(again);
    weft__data_close(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_run_across_shards),
        cmocka_unit_test(the_smallest_share_keeps_one_window),
        cmocka_unit_test(each_window_comes_once_per_epoch_for_any_ranks_and_batch),
        cmocka_unit_test(texts_are_encoded_once),
        cmocka_unit_test(long_texts_are_cut_without_a_trace),
        cmocka_unit_test(shards_are_cut_at_their_limit),
        cmocka_unit_test(what_cannot_be_used_is_named),
        cmocka_unit_test(made_up_tokens_are_uniform_and_a_function_of_the_seed),
    };
    return cmocka_run_group_tests(tests, open_bytes, close_bytes);
}
