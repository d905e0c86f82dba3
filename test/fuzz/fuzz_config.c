/* Configurations of training: a file, RUN/config, the settings of a run that is resumed, and the
 * command line. What is accepted is written and read again, and resolved.
 *
 *     kind[1]  text of the file; after a NUL, a word of the command line a line
 *
 * reads: src/train/config.c src/train/resolve.c
 * besides: weft__train_help list_words */
#include "fuzz/fuzz.h"

#include "train/config.h"

const long fuzz_runs = 3000;

enum { WORDS = 16 };

static void write_and_read(const weft_train_config_t *config)
{
    weft_train_config_t again;
    char *words[] = {"train", NULL}, *text, *text_again;
    bool help;
    CHECK(weft__train_write_text(config, "two lines\nof comment", &text) == WEFT_OK);
    CHECK(weft__train_parse(1, words, &again, &help) == WEFT_OK);
    CHECK(weft__train_read_text(text, "again", &again) == WEFT_OK);
    CHECK(weft__train_write_text(&again, "two lines\nof comment", &text_again) == WEFT_OK);
    CHECK(strcmp(text, text_again) == 0);
    free(text);
    free(text_again);
    weft__train_free(&again);
}

static void resolve(weft_train_config_t *config, uint8_t kind)
{
    const weft_train_limits_t limits[] = {
        {.context = 64, .layers = 3, .heads = 6, .kv_heads = 2, .vocab = 256},
        {.context = 1024, .layers = 12, .heads = 12, .kv_heads = 12, .vocab = 50257},
        {0},
    };
    if (weft__train_resolve(config, &limits[kind % 3]) != WEFT_OK) {
        CHECK(strlen(weft_last_error()) > 10);
        return;
    }
    CHECK((int64_t)config->dp * config->micro_batch * config->accumulate == config->batch);
    CHECK((int64_t)config->dp * config->pp * config->tp == config->ranks);
    for (int i = 0; i < 4; i++) {
        double rate = weft__train_lr(config, (uint64_t)config->steps * (uint64_t)i / 4);
        CHECK(rate >= 0);
    }
}

static void read_text(const char *text, uint8_t kind)
{
    weft_train_config_t config;
    char *words[] = {"train", NULL};
    bool help;
    CHECK(weft__train_parse(1, words, &config, &help) == WEFT_OK);
    if (weft__train_read_text(text, "fuzz", &config) == WEFT_OK) {
        write_and_read(&config);
        resolve(&config, kind);
    } else {
        CHECK(strncmp(weft_last_error(), "fuzz, line ", 11) == 0);
    }
    weft__train_free(&config);
}

/* As `weft train --config FILE WORD...`, and as if a run with this text as its settings were
 * resumed. */
static void read_command(const char *text, size_t length, char **words, int count, uint8_t kind)
{
    weft_train_config_t config;
    bool help = false;
    char *all[WORDS + 4] = {"train", "--config", (char *)fuzz_file(text, length)};
    const weft_train_earlier_t earlier = {.settings = text, .out = "run"};
    memcpy(all + 3, words, (size_t)count * sizeof(*all));
    if (weft__train_parse(3 + count, all, &config, &help) == WEFT_OK && !help) {
        write_and_read(&config);
        resolve(&config, kind);
    }
    weft__train_free(&config);
    all[2] = "train";
    if (weft__train_parse_resumed(&earlier, 1 + count, all + 2, &config) == WEFT_OK) {
        write_and_read(&config);
        resolve(&config, kind);
    }
    weft__train_free(&config);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_rest_t rest = {data, size};
    uint8_t kind = fuzz_byte(&rest);
    char *text = fuzz_text(&rest, 0), *command = fuzz_text(&rest, FUZZ_ALL), *words[WORDS];
    read_text(text, kind);
    if (command[0] != '\0') {
        int count = fuzz_lines(command, words, WORDS);
        read_command(text, strlen(text) + (kind & 4 ? 1 : 0), words, count, kind);
    }
    free(text);
    free(command);
    return 0;
}

static void words(void)
{
#define NAME(kind, field, name, letter, metavar, value, words, help)                               \
    fuzz_word(name " = ");                                                                         \
    fuzz_word("--" name "=");
    WEFT_TRAIN_TABLE(NAME)
#undef NAME
    static const char *const values[] = {
        "wsd",   "linear",    "constant",  "bf16",  "fp16", "int8", "interleaved",
        "gpipe", "selective", "optimizer", "\\xff", "\\n",  "yes",  "25M"};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        fuzz_word(values[i]);
    }
}

void fuzz_seeds(void)
{
    weft_train_config_t config;
    char *text, *start[] = {"train", "--data", "x", NULL};
    bool help;
    words();
    CHECK(weft__train_parse(3, start, &config, &help) == WEFT_OK);
    CHECK(weft__train_write_text(&config, "all of it", &text) == WEFT_OK);
    fuzz_seed_kind(0, text);
    free(text);
    weft__train_free(&config);
    static const char *const seeds[] = {
        "data = x\nranks = 8\ntp = 2\npp = 2\nbatch = 16\n",
        "data = x\nranks = 4\npp = 4\nschedule = interleaved\nvirtual-stages = 2\nmicro-batches = "
        "8\n",
        "data = x\nranks = 4\nzero = 3\nlean = yes\nprecision = bf16\ngrad-precision = bf16\n",
        "data = x\nlr-schedule = wsd\nwarmup = 10\nsteps = 100\nlr-decay = 0.3\nmin-lr = 1e-5\n",
        "data = x\nmicro-batch = 2\naccumulate = 3\nlr-schedule = linear\nwarmup = 2\nlength = "
        "99999\n",
        "data = x\nmicro-batch = 2\naccumulate = 3\nlr-schedule = constant\nranks = 2\n",
        "data = x\nsave = 5\n",
        "data = x\nresume = auto\n",
        "data = x\nmax-restarts = 1\nout = run\n",
        "data = x\ngrad-precision = bf16\n",
        "data = x\neval = 3\neval-share = 0\n",
        "data = x\nranks = 16\npp = 16\n",
        "# comment\nprompt = \" a\\n\\xff\\\"b\\\\\"\n\nbucket = 1.5M\noverlap = no\nT = 32\n",
        "data = x\nranks = 6\nsequence-parallel = yes\ntp = 2\ncompress = int8\ndp-style = naive\n",
    };
    for (size_t i = 0; i < sizeof(seeds) / sizeof(seeds[0]); i++) {
        fuzz_seed_kind((uint8_t)(i % 2), seeds[i]);
    }
    fuzz_seed("\1batch = 8\n\0--ranks\n4\n--steps=7\n--overlap\n-o\nrun", 45);
    fuzz_seed("\0ranks = 4\ndp = 4\nbatch = 8\nmicro-batch = 1\n\0--data\nx", 54);
    fuzz_seed("\4ranks = 4\n\0--data\nx\n--dry-run\n--help", 35);
}
