/* Words of a command line against a table with options of every kind; the help with any text in it.
 *
 *     kind[1]  a word a line
 *
 * reads: src/base/args.c src/base/parse.c
 * besides: weft__print_size weft__print_real weft__nearest */
#include "fuzz/fuzz.h"

#include "base/args.h"
#include "base/settings.h"

const long fuzz_runs = 30000;

enum { WORDS = 32, UNSET = 12345 };

typedef struct values {
    int number, time;
    size_t size;
    double real;
    bool truth, flag;
    const char *text, *old;
} values_t;

static int make_table(values_t *v, weft_arg_t table[16])
{
    const weft_arg_t rows[] = {
        {"ranks", 'n', WEFT_ARG_INT, "N", &v->number, "number of ranks"},
        {"bytes", 'b', WEFT_ARG_SIZE, "SIZE", &v->size, "how much"},
        {"rate", 'r', WEFT_ARG_REAL, NULL, &v->real, "a rate"},
        {"timeout", 't', WEFT_ARG_MS, "TIME", &v->time, "how long to wait for something to happen"},
        {"overlap", 'o', WEFT_ARG_BOOL, "no", &v->truth, "whether"},
        {"verbose", 'v', WEFT_ARG_FLAG, NULL, &v->flag, "say more"},
        {"file-with-a-name-too-long-for-its-column", 0, WEFT_ARG_STR, "FILE", &v->text, "a file"},
        {"old", 0, WEFT_ARG_STR, "FILE", &v->old, NULL},
    };
    memcpy(table, rows, sizeof(rows));
    return (int)(sizeof(rows) / sizeof(rows[0]));
}

static void check_found(const weft_args_found_t *found, char **words, char **before, int argc)
{
    CHECK(found->count >= 0 && found->count < argc);
    CHECK(found->positionals == words + 1);
    int at = 1;
    for (int i = 0; i < found->count; i++) { /* some of the words, in their order */
        while (at < argc && before[at] != found->positionals[i]) {
            at++;
        }
        CHECK(at++ < argc);
    }
    CHECK(words[1 + found->count] == NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_rest_t rest = {data, size};
    uint8_t kind = fuzz_byte(&rest);
    char *text = fuzz_text(&rest, FUZZ_ALL), *copy = strdup(text);
    char *words[WORDS + 1] = {"weft"}, *before[WORDS + 1];
    values_t values = {.number = UNSET, .size = 12345, .real = 0.5, .time = 12345};
    weft_arg_t table[16];
    weft_args_found_t found;
    const weft_arg_range_t ranks = {"ranks", 1, 4096};
    CHECK(copy != NULL);
    weft_args_t args = {.command = "weft fuzz",
                        .synopsis = "[OPTION]...",
                        .text = copy,
                        .footer = (kind & 2) != 0 ? copy : NULL,
                        .options = table,
                        .count = make_table(&values, table),
                        .ranges = &ranks,
                        .range_count = 1,
                        .stop = (kind & 1) != 0};
    int argc = 1 + fuzz_lines(text, words + 1, WORDS);
    memcpy(before, words, sizeof(before));
    if (weft__args_parse(&args, argc, words, &found) == WEFT_OK) {
        check_found(&found, words, before, argc);
    } else {
        CHECK(strncmp(weft_last_error(), "weft fuzz: ", 11) == 0);
    }
    CHECK(values.time >= 0);
    CHECK(values.number == UNSET || (values.number >= 1 && values.number <= 4096));
    CHECK(values.text == NULL || strlen(values.text) <= size);
    if ((kind & 4) != 0) {
        weft__args_help(&args, fuzz_nowhere());
    }
    free(text);
    free(copy);
    return 0;
}

void fuzz_seeds(void)
{
    static const char *const words[] = {
        "--ranks", "--bytes=64K", "--rate", "--timeout", "--overlap", "--verbose", "-n4",
        "-vo",     "--old=x",     "--help", "--",        "20ms",      "1.5M",      "3e-4",
        "no",      "yes",         "-h",     "TiB",       "0.0000001", "2147483648"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        fuzz_word(words[i]);
    }
    fuzz_seed_kind(0, "--ranks=4\n-b\n64K\nallreduce\n--rate\n0.5\n-t1.5s\n--overlap\n-v");
    fuzz_seed_kind(1, "-n\n2\nprogram\n--its-own\n-n");
    fuzz_seed_kind(4, "--help");
    fuzz_seed_kind(6, "-h some words that are longer than a line of the help can be, and\nanother");
    fuzz_seed_kind(0, "--overlap=off\n--timeout\n5m\n--\n--verbose\n-");
    fuzz_seed_kind(0, "--rnaks\n1");
    fuzz_seed_kind(0, "-vvx\n--verbose=1\n--bytes\n1.5GiB\n--timeout=1h\n--rate=-2.5e-3");
    fuzz_seed_kind(0, "--bytes");
}
