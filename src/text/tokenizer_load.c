/* Reading a Hugging Face tokenizer.json. In it, bytes are written as printable characters: those
 * that are printable in Latin-1 stand for themselves, the others for U+0100, U+0101, ... in turn
 * ("Ġ" is the space). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/json.h"
#include "base/json_read.h"
#include "base/log.h"
#include "base/utf8.h"
#include "text/tokenizer_parts.h"

#define ALPHABET 0x144        /* code points in use lie below */
#define VOCAB_MOST (1u << 22) /* ten times what anybody uses */

typedef struct loader {
    weft_tokenizer_t *tokenizer;
    const char *path;
    const weft_json_value_t *root, *model;
    int16_t byte_of[ALPHABET]; /* -1: stands for no byte */
    uint32_t point_of[256];
} loader_t;

static void make_alphabet(loader_t *l)
{
    uint32_t next = 0x100;
    memset(l->byte_of, 0xFF, sizeof(l->byte_of));
    for (int b = 0; b < 256; b++) {
        bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        l->point_of[b] = printable ? (uint32_t)b : next++;
        l->byte_of[l->point_of[b]] = (int16_t)b;
    }
}

/* The bytes that `text` stands for, written over it; -1 if a character of it stands for none. */
static int64_t to_bytes(const loader_t *l, const char *text, size_t length, char *out)
{
    int64_t count = 0;
    for (size_t at = 0; at < length;) {
        int bytes = weft__utf8_length((const unsigned char *)text + at, length - at);
        uint32_t point = weft__utf8_decode((const unsigned char *)text + at, bytes);
        if (point >= ALPHABET || l->byte_of[point] < 0) {
            return -1;
        }
        out[count++] = (char)l->byte_of[point];
        at += (size_t)bytes;
    }
    return count;
}

static weft_status_t unsupported(const loader_t *l, const char *what, const char *value)
{
    return weft__fail(
        WEFT_ERR_UNSUPPORTED,
        "%s: %s \"%.80s\" is not implemented; what works is byte-level BPE as of GPT-2 "
        "and Llama 3, or --tokenizer bytes",
        l->path, what, value);
}

static weft_status_t malformed(const loader_t *l, const char *what)
{
    return weft__fail(WEFT_ERR_INVALID, "%s is no tokenizer: %s", l->path, what);
}

static bool is_null(const weft_json_value_t *value)
{
    return value == NULL || value->kind == WEFT_JSON_NULL;
}

static bool flag(const weft_json_value_t *object, const char *key, bool otherwise)
{
    bool value = otherwise;
    weft__json_to_bool(weft__json_get(object, key), &value);
    return value;
}

static const char *type_of(const weft_json_value_t *value)
{
    return weft__json_text(weft__json_get(value, "type"), "(without a type)");
}

/* ---- how text is cut ------------------------------------------------------------------------ */

typedef struct cutting {
    weft_word_rule_t split;
    int splits;
    bool byte_level;
} cutting_t;

static weft_status_t read_split(loader_t *l, const weft_json_value_t *value, cutting_t *cutting)
{
    const weft_json_value_t *pattern = weft__json_get(weft__json_get(value, "pattern"), "Regex");
    const weft_json_value_t *behavior = weft__json_get(value, "behavior");
    bool invert = flag(value, "invert", false);
    const char *text = weft__json_text(pattern, "(no regular expression)");
    /* Two spellings of "keep what matches as words"; the expressions leave nothing between. */
    bool keeps = (weft__json_is(behavior, "Isolated") && !invert) ||
                 (weft__json_is(behavior, "Removed") && invert);
    if (!keeps) {
        return unsupported(l, "a split with behavior", weft__json_text(behavior, "(none)"));
    }
    cutting->splits++;
    if (!weft__split_by_pattern(text, &cutting->split)) {
        return unsupported(l, "splitting by", text);
    }
    return WEFT_OK;
}

static weft_status_t read_pre_tokenizer(loader_t *l, const weft_json_value_t *value,
                                        cutting_t *cutting)
{
    const char *type = type_of(value);
    if (strcmp(type, "Sequence") == 0) {
        const weft_json_value_t *list = weft__json_get(value, "pretokenizers");
        const weft_json_value_t *one = weft__json_first(list);
        weft_status_t status = WEFT_OK;
        for (; one != NULL && status == WEFT_OK; one = weft__json_next(list, one)) {
            bool nested = strcmp(type_of(one), "Sequence") == 0;
            status = nested ? unsupported(l, "pre-tokenizer", "Sequence in a Sequence")
                            : read_pre_tokenizer(l, one, cutting);
        }
        return status;
    }
    if (strcmp(type, "Split") == 0 && !cutting->byte_level) {
        return read_split(l, value, cutting);
    }
    if (strcmp(type, "ByteLevel") != 0 || cutting->byte_level) {
        return unsupported(l, "pre-tokenizer", type);
    }
    cutting->byte_level = true;
    if (flag(value, "add_prefix_space", true)) {
        return unsupported(l, "pre-tokenizer option", "add_prefix_space");
    }
    if (flag(value, "use_regex", true)) {
        cutting->splits++;
        cutting->split = WEFT_WORDS_GPT2;
    }
    return WEFT_OK;
}

static weft_status_t load_cutting(loader_t *l)
{
    const weft_json_value_t *normalizer = weft__json_get(l->root, "normalizer");
    const weft_json_value_t *list = weft__json_get(normalizer, "normalizers");
    if (!is_null(normalizer) && !(list != NULL && list->length == 0)) {
        return unsupported(l, "normalizer", type_of(normalizer));
    }
    cutting_t cutting = {.split = WEFT_WORDS_NONE};
    const weft_json_value_t *value = weft__json_get(l->root, "pre_tokenizer");
    if (is_null(value)) {
        return unsupported(l, "pre-tokenizer", "null");
    }
    WEFT_TRY(read_pre_tokenizer(l, value, &cutting));
    if (!cutting.byte_level || cutting.splits > 1) {
        return unsupported(l, "pre-tokenizer",
                           cutting.byte_level ? "splits twice" : "not byte-level");
    }
    const weft_json_value_t *decoder = weft__json_get(l->root, "decoder");
    if (!is_null(decoder) && strcmp(type_of(decoder), "ByteLevel") != 0) {
        return unsupported(l, "decoder", type_of(decoder));
    }
    l->tokenizer->split = cutting.split;
    return WEFT_OK;
}

/* ---- tokens added to the vocabulary --------------------------------------------------------- */

static weft_status_t read_added(loader_t *l, const weft_json_value_t *value, weft_added_t *out)
{
    static const char *const odd[] = {"single_word", "lstrip", "rstrip"};
    const weft_json_value_t *name = weft__json_get(value, "content");
    uint64_t token;
    if (name == NULL || name->kind != WEFT_JSON_STRING || name->length == 0 ||
        strlen(name->as.text) != name->length ||
        !weft__json_to_uint(weft__json_get(value, "id"), &token) || token >= INT32_MAX) {
        return malformed(l, "an added token without content or id");
    }
    for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
        if (flag(value, odd[i], false)) {
            return unsupported(l, "an added token with", odd[i]);
        }
    }
    bool special = flag(value, "special", false);
    *out = (weft_added_t){.name = malloc(name->length + 1),
                          .length = name->length,
                          .token = (uint32_t)token,
                          .special = special,
                          .pass = flag(value, "normalized", !special) ? 1 : 0};
    if (out->name == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for the tokens of %s", l->path);
    }
    memcpy(out->name, name->as.text, name->length + 1);
    return WEFT_OK;
}

static int by_token(const void *a, const void *b)
{
    uint32_t x = ((const weft_added_t *)a)->token, y = ((const weft_added_t *)b)->token;
    return x < y ? -1 : x > y;
}

static weft_status_t load_added(loader_t *l)
{
    weft_tokenizer_t *t = l->tokenizer;
    const weft_json_value_t *list = weft__json_get(l->root, "added_tokens");
    const weft_json_value_t *one = weft__json_first(list);
    t->added = calloc(one != NULL ? list->length : 1, sizeof(*t->added));
    if (t->added == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for the tokens of %s", l->path);
    }
    for (; one != NULL; one = weft__json_next(list, one)) {
        WEFT_TRY(read_added(l, one, &t->added[t->added_count]));
        uint32_t token = t->added[t->added_count++].token;
        t->vocab = token + 1 > t->vocab ? token + 1 : t->vocab;
    }
    qsort(t->added, (size_t)t->added_count, sizeof(*t->added), by_token);
    for (int i = 1; i < t->added_count; i++) {
        if (t->added[i].token == t->added[i - 1].token) {
            return malformed(l, "two added tokens with one id");
        }
    }
    return WEFT_OK;
}

static weft_status_t load_names(loader_t *l, int number)
{
    weft_tokenizer_t *t = l->tokenizer;
    weft_names_t **pass = &t->passes[number];
    for (int i = 0; i < t->added_count; i++) {
        const weft_added_t *added = &t->added[i];
        if (added->pass != number) {
            continue;
        }
        if (*pass == NULL) {
            WEFT_TRY(weft__names_create(pass));
        }
        weft_status_t status = weft__names_add(*pass, added->name, added->length, (uint32_t)i);
        if (status == WEFT_ERR_INVALID) {
            return malformed(l, "two added tokens with the same content");
        }
        WEFT_TRY(status);
        t->spaced = t->spaced || memchr(added->name, ' ', added->length) != NULL;
    }
    return *pass != NULL ? weft__names_build(*pass) : WEFT_OK;
}

static const weft_added_t *find_added(const weft_tokenizer_t *t, const char *name)
{
    for (int i = 0; i < t->added_count; i++) {
        if (strcmp(t->added[i].name, name) == 0) {
            return &t->added[i];
        }
    }
    return NULL;
}

static void find_end(weft_tokenizer_t *t)
{
    static const char *const names[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>",
                                        "<|eot_id|>",    "<|im_end|>",      "[EOS]"};
    t->end = -1;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && t->end < 0; i++) {
        const weft_added_t *found = find_added(t, names[i]);
        t->end = found != NULL ? (int64_t)found->token : -1;
    }
}

/* ---- vocabulary and merges ------------------------------------------------------------------ */

static weft_status_t check_model(loader_t *l)
{
    const weft_json_value_t *model = l->model;
    if (model == NULL || model->kind != WEFT_JSON_OBJECT) {
        return malformed(l, "it has no model");
    }
    const weft_json_value_t *type = weft__json_get(model, "type");
    if (type != NULL && !weft__json_is(type, "BPE")) {
        return unsupported(l, "a model of type", type_of(model));
    }
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (int i = 0; i < 2; i++) {
        if (weft__json_text(weft__json_get(model, affixes[i]), "")[0] != '\0') {
            return unsupported(l, "model option", affixes[i]);
        }
    }
    double dropout = 0;
    weft__json_to_double(weft__json_get(model, "dropout"), &dropout);
    if (dropout != 0 || flag(model, "byte_fallback", false)) {
        return unsupported(l, "model option", dropout != 0 ? "dropout" : "byte_fallback");
    }
    l->tokenizer->whole = flag(model, "ignore_merges", false);
    return WEFT_OK;
}

/* All numbers must be known before the first token can be added. */
static weft_status_t measure_vocab(loader_t *l, const weft_json_value_t *vocab, size_t *longest_p)
{
    weft_tokenizer_t *t = l->tokenizer;
    const weft_json_value_t *key = weft__json_first(vocab);
    if (vocab == NULL || vocab->kind != WEFT_JSON_OBJECT || key == NULL) {
        return malformed(l, "its model has no vocabulary");
    }
    *longest_p = 1;
    for (; key != NULL; key = weft__json_next(vocab, key)) {
        uint64_t token;
        if (!weft__json_to_uint(key + 1, &token) || token >= VOCAB_MOST) {
            return malformed(l, "a token whose id is no number below 2^22");
        }
        t->vocab = (uint32_t)token + 1 > t->vocab ? (uint32_t)token + 1 : t->vocab;
        *longest_p = key->length > *longest_p ? key->length : *longest_p;
    }
    if (t->vocab > VOCAB_MOST) {
        return malformed(l, "an added token whose id is not below 2^22");
    }
    return WEFT_OK;
}

static weft_status_t load_vocab(loader_t *l, const weft_json_value_t *vocab, char *room)
{
    weft_tokenizer_t *t = l->tokenizer;
    const weft_json_value_t *key = weft__json_first(vocab);
    for (; key != NULL; key = weft__json_next(vocab, key)) {
        uint64_t token = 0;
        weft__json_to_uint(key + 1, &token);
        int64_t length = to_bytes(l, key->as.text, key->length, room);
        /* What no bytes make can only be an added token, which load_added has seen. */
        if (length <= 0) {
            continue;
        }
        weft_status_t status = weft__bpe_add(t->bpe, (uint32_t)token, room, (size_t)length);
        if (status != WEFT_OK) {
            char why[256];
            snprintf(why, sizeof(why), "%s", weft_last_error());
            return status == WEFT_ERR_INVALID ? malformed(l, why) : status;
        }
    }
    for (int b = 0; b < 256; b++) {
        char byte = (char)b;
        if (weft__bpe_find(t->bpe, &byte, 1) < 0) {
            return weft__fail(
                WEFT_ERR_UNSUPPORTED,
                "%s: byte 0x%02x is no token, so not every text can be encoded; train "
                "the tokenizer with the whole byte-level alphabet",
                l->path, b);
        }
    }
    return WEFT_OK;
}

static int64_t find_written(const loader_t *l, const char *text, size_t length, char *room)
{
    int64_t bytes = to_bytes(l, text, length, room);
    return bytes > 0 ? weft__bpe_find(l->tokenizer->bpe, room, (size_t)bytes) : -1;
}

/* One merge, "a b" or ["a", "b"]. */
static weft_status_t load_merge(loader_t *l, const weft_json_value_t *merge, uint32_t rank,
                                char *room, size_t longest)
{
    const char *text[2] = {"", ""};
    size_t length[2] = {0, 0};
    if (merge->kind == WEFT_JSON_STRING) {
        const char *space = memchr(merge->as.text, ' ', merge->length);
        text[0] = merge->as.text;
        length[0] = space != NULL ? (size_t)(space - merge->as.text) : 0;
        text[1] = space != NULL ? space + 1 : "";
        length[1] = space != NULL ? merge->length - length[0] - 1 : 0;
    } else if (merge->kind == WEFT_JSON_ARRAY && merge->length == 2) {
        for (int i = 0; i < 2; i++) {
            text[i] = weft__json_text(merge + 1 + i, "");
            length[i] = merge[1 + i].kind == WEFT_JSON_STRING ? merge[1 + i].length : 0;
        }
    }
    if (length[0] == 0 || length[1] == 0 || length[0] > longest || length[1] > longest) {
        return malformed(l, "a merge that is no pair of tokens");
    }
    int64_t left = find_written(l, text[0], length[0], room);
    int64_t right = find_written(l, text[1], length[1], room);
    if (left < 0 || right < 0) {
        return malformed(l, "a merge of what is no token");
    }
    return weft__bpe_merge(l->tokenizer->bpe, (uint32_t)left, (uint32_t)right, rank);
}

static weft_status_t load_model(loader_t *l)
{
    const weft_json_value_t *vocab = weft__json_get(l->model, "vocab");
    const weft_json_value_t *merges = weft__json_get(l->model, "merges");
    size_t longest = 0;
    WEFT_TRY(measure_vocab(l, vocab, &longest));
    if (merges == NULL || merges->kind != WEFT_JSON_ARRAY) {
        return malformed(l, "its model has no list of merges");
    }
    char *room = malloc(longest + 1);
    if (room == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for the tokens of %s", l->path);
    }
    weft_status_t status = weft__bpe_create(l->tokenizer->vocab, &l->tokenizer->bpe);
    if (status == WEFT_OK) {
        status = load_vocab(l, vocab, room);
    }
    uint32_t rank = 0;
    const weft_json_value_t *merge = weft__json_first(merges);
    for (; merge != NULL && status == WEFT_OK; merge = weft__json_next(merges, merge)) {
        status = load_merge(l, merge, rank++, room, longest);
    }
    free(room);
    return status;
}

/* ---- all of it ------------------------------------------------------------------------------ */

static weft_status_t keep_json(weft_tokenizer_t *t, const char *json, size_t length)
{
    t->json = malloc(length + 1);
    if (t->json == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for the %zu bytes of a tokenizer", length);
    }
    memcpy(t->json, json, length);
    t->json[length] = '\0';
    t->json_length = length;
    t->identity = weft__crc32c(0, json, length);
    return WEFT_OK;
}

weft_status_t weft__tokenizer_load(const char *json, size_t length, const char *path,
                                   weft_tokenizer_t **tokenizer_p)
{
    weft_json_doc_t doc;
    WEFT_TRY(weft__json_parse(json, length, path, &doc));
    loader_t l = {.tokenizer = calloc(1, sizeof(weft_tokenizer_t)), .path = path, .root = doc.root};
    l.model = weft__json_get(doc.root, "model");
    make_alphabet(&l);
    weft_status_t status = l.tokenizer != NULL
                               ? keep_json(l.tokenizer, json, length)
                               : weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a tokenizer");
    weft_status_t (*const steps[])(loader_t *) = {check_model, load_cutting, load_added,
                                                  load_model};
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]) && status == WEFT_OK; i++) {
        status = steps[i](&l);
    }
    for (int pass = 0; pass < 2 && status == WEFT_OK; pass++) {
        status = load_names(&l, pass);
    }
    weft__json_free(&doc);
    if (status != WEFT_OK) {
        weft__tokenizer_close(l.tokenizer);
        return status;
    }
    find_end(l.tokenizer);
    *tokenizer_p = l.tokenizer;
    return WEFT_OK;
}

static void write_byte_level(weft_json_t *json, const char *key)
{
    weft__json_object(json, key);
    weft__json_string(json, "type", "ByteLevel");
    static const char *const flags[] = {"add_prefix_space", "trim_offsets", "use_regex"};
    for (int i = 0; i < 3; i++) {
        weft__json_bool(json, flags[i], false);
    }
    weft__json_end(json);
}

static void write_end_token(weft_json_t *json)
{
    static const char *const flags[] = {"single_word", "lstrip", "rstrip", "normalized"};
    weft__json_array(json, "added_tokens");
    weft__json_object(json, NULL);
    weft__json_int(json, "id", 256);
    weft__json_string(json, "content", "<|endoftext|>");
    for (int i = 0; i < 4; i++) {
        weft__json_bool(json, flags[i], false);
    }
    weft__json_bool(json, "special", true);
    weft__json_end(json);
    weft__json_end(json);
}

weft_status_t weft__tokenizer_of_bytes(char **json_p, size_t *length_p)
{
    FILE *out = open_memstream(json_p, length_p);
    if (out == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a tokenizer");
    }
    loader_t l = {0};
    make_alphabet(&l);
    weft_json_t json;
    weft__json_start(&json, out);
    weft__json_object(&json, NULL);
    weft__json_string(&json, "version", "1.0");
    write_end_token(&json);
    write_byte_level(&json, "pre_tokenizer");
    write_byte_level(&json, "decoder");
    weft__json_object(&json, "model");
    weft__json_string(&json, "type", "BPE");
    weft__json_object(&json, "vocab");
    for (int b = 0; b < 256; b++) {
        char name[8] = "";
        weft__utf8_encode(l.point_of[b], name);
        weft__json_int(&json, name, b);
    }
    weft__json_end(&json);
    weft__json_array(&json, "merges");
    weft__json_end(&json);
    weft__json_end(&json);
    weft__json_end(&json);
    weft_status_t status = weft__json_finish(&json);
    if (fclose(out) != 0 && status == WEFT_OK) {
        status = weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a tokenizer");
    }
    if (status != WEFT_OK) {
        free(*json_p);
        *json_p = NULL;
    }
    return status;
}
