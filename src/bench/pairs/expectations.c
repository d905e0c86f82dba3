#include "bench/pairs/expectations.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/settings.h"
#include "bench/pairs/internal.h"
#include "bench/samples.h"

/* ---- the key ---------------------------------------------------------------------------- */

/* The fields of a key: a text or a number each. */
typedef struct field {
    const char *name, *text;
    int number;
} field_t;
#define FIELDS 7

static void key_of(const weft_pairs_t *pairs, int ranks, field_t fields[FIELDS])
{
    weft_result_head_t head = weft__samples_head(ranks, pairs->threads);
    bool cuda = strcmp(head.device, "cuda") == 0;
    const field_t all[FIELDS] = {
        {"device", head.device_name, 0},
        {"devices", NULL, cuda ? pairs->machine.gpus : ranks},
        {"processor", pairs->machine.processor, 0},
        {"cpus", NULL, pairs->machine.cpus},
        {"ranks", NULL, ranks},
        {"ranks_are", pairs->threads ? "threads" : "processes", 0},
        {"build", weft__pairs_build(), 0},
    };
    memcpy(fields, all, sizeof(all));
}

void weft__expectations_write_key(weft_json_t *json, const weft_pairs_t *pairs, int ranks)
{
    field_t fields[FIELDS];
    key_of(pairs, ranks, fields);
    for (int i = 0; i < FIELDS; i++) {
        if (fields[i].text) {
            weft__json_string(json, fields[i].name, fields[i].text);
        } else {
            weft__json_int(json, fields[i].name, fields[i].number);
        }
    }
}

static void key_text(const field_t f[FIELDS], char *text, size_t room)
{
    snprintf(text, room, "%d x %s, %s, %d CPUs, %d rank%s (%s), %s build", f[1].number, f[0].text,
             f[2].text, f[3].number, f[4].number, f[4].number == 1 ? "" : "s", f[5].text,
             f[6].text);
}

static bool key_matches(const weft_json_value_t *key, const field_t fields[FIELDS])
{
    for (int i = 0; i < FIELDS; i++) {
        const weft_json_value_t *value = weft__json_get(key, fields[i].name);
        int64_t number;
        if (fields[i].text ? !weft__json_is(value, fields[i].text)
                           : !weft__json_to_int(value, &number) || number != fields[i].number) {
            return false;
        }
    }
    return true;
}

/* "2-core-amd-epyc-2-ranks.json", or "1-nvidia-h200-16-core-....json". */
static void file_name(const field_t f[FIELDS], char *name, size_t room)
{
    char text[512];
    size_t at = 0;
    bool virtual = strcmp(f[0].text, "virtual GPU") == 0,
         release = strcmp(f[6].text, "release") == 0;
    snprintf(text, sizeof(text), "%d core %s %d ranks%s%s%s", f[3].number, f[2].text, f[4].number,
             strcmp(f[5].text, "threads") == 0 ? " threads" : "", release ? "" : " ",
             release ? "" : f[6].text);
    if (!virtual) {
        snprintf(text, sizeof(text), "%d %s %d ranks%s%s", f[1].number, f[0].text, f[4].number,
                 release ? "" : " ", release ? "" : f[6].text);
    }
    for (const char *c = text; *c != '\0' && at + 6 < room; c++) {
        bool plain = (*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9');
        bool upper = *c >= 'A' && *c <= 'Z';
        if (plain || upper) {
            name[at++] = upper ? (char)(*c - 'A' + 'a') : *c;
        } else if (at > 0 && name[at - 1] != '-') {
            name[at++] = '-';
        }
    }
    while (at > 0 && name[at - 1] == '-') {
        at--;
    }
    snprintf(name + at, room - at, ".json");
}

/* ---- reading ---------------------------------------------------------------------------- */

static weft_status_t add_row(weft_expectations_t *expected, const char *name, const char *way,
                             uint64_t bytes, weft_expectation_t **row_p)
{
    if (expected->count == expected->room) {
        int room = expected->room ? 2 * expected->room : 64;
        weft_expectation_t *rows = realloc(expected->rows, (size_t)room * sizeof(*rows));
        if (!rows) {
            return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for %d expectations", room);
        }
        expected->rows = rows;
        expected->room = room;
    }
    weft_expectation_t *row = &expected->rows[expected->count++];
    *row = (weft_expectation_t){.bytes = bytes};
    snprintf(row->name, sizeof(row->name), "%s", name);
    snprintf(row->way, sizeof(row->way), "%s", way);
    *row_p = row;
    return WEFT_OK;
}

/* Is it a file of expectations that this version reads? */
static weft_status_t check_file(const weft_json_doc_t *doc, const char *path)
{
    int64_t format = 0;
    if (!weft__json_is(weft__json_get(doc->root, "kind"), "expectations")) {
        return weft__fail(WEFT_ERR_INVALID, "%s is no file of expectations", path);
    }
    if (!weft__json_to_int(weft__json_get(doc->root, "format"), &format) ||
        format != WEFT_RESULT_FORMAT) {
        return weft__fail(WEFT_ERR_INVALID,
                          "%s has format %lld, and this version of weft reads format %d", path,
                          (long long)format, WEFT_RESULT_FORMAT);
    }
    return WEFT_OK;
}

static weft_status_t read_rows(weft_expectations_t *expected)
{
    const weft_json_value_t *pairs = weft__json_get(expected->doc.root, "pairs");
    for (const weft_json_value_t *at = weft__json_first(pairs); at;
         at = weft__json_next(pairs, at)) {
        weft_expectation_t *row;
        uint64_t bytes = 0;
        double low, high;
        const char *name = weft__json_text(weft__json_get(at, "name"), NULL);
        const char *way = weft__json_text(weft__json_get(at, "way"), NULL);
        if (!name || !way || !weft__json_to_uint(weft__json_get(at, "bytes"), &bytes) ||
            !weft__json_to_double(weft__json_get(at, "low"), &low) ||
            !weft__json_to_double(weft__json_get(at, "high"), &high) || !(low > 0 && low <= high)) {
            return weft__fail(WEFT_ERR_INVALID,
                              "%s has an expectation without name, way, bytes, low and high",
                              expected->path);
        }
        WEFT_TRY(add_row(expected, name, way, bytes, &row));
        row->low = low;
        row->high = high;
    }
    return WEFT_OK;
}

static weft_status_t read_file(weft_expectations_t *expected, const char *path,
                               const field_t fields[FIELDS])
{
    WEFT_TRY(weft__json_load(path, &expected->doc));
    snprintf(expected->path, sizeof(expected->path), "%s", path);
    WEFT_TRY(check_file(&expected->doc, path));
    if (!key_matches(weft__json_get(expected->doc.root, "key"), fields)) {
        return weft__fail(WEFT_ERR_INVALID,
                          "%s is for another machine; this one is %s: name another file to make "
                          "one for it",
                          path, expected->key);
    }
    return read_rows(expected);
}

/* ---- finding ---------------------------------------------------------------------------- */

#define FOLDERS 4

/* Where files may be, the user's own first; returns their number. */
static int folders(char found[FOLDERS][WEFT_PATH_BYTES])
{
    const char *asked = weft__settings()->expectations, *config = getenv("XDG_CONFIG_HOME");
    const char *home = getenv("HOME");
    const char *const beside[] = {"../expectations", "../../expectations",
                                  "../share/weft/expectations"};
    char self[WEFT_PATH_BYTES - 64];
    int count = 0;
    if (asked[0] != '\0') {
        snprintf(found[0], WEFT_PATH_BYTES, "%s", asked);
        return 1;
    }
    if (config && config[0] != '\0') {
        snprintf(found[count++], WEFT_PATH_BYTES, "%s/weft/expectations", config);
    } else if (home && home[0] != '\0') {
        snprintf(found[count++], WEFT_PATH_BYTES, "%s/.config/weft/expectations", home);
    }
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (length > 0) {
        self[length] = '\0';
        *strrchr(self, '/') = '\0';
        for (int i = 0; i < 3; i++) {
            snprintf(found[count++], WEFT_PATH_BYTES, "%s/%s", self, beside[i]);
        }
    }
    return count;
}

static int is_json(const struct dirent *file)
{
    size_t length = strlen(file->d_name);
    return length > 5 && strcmp(file->d_name + length - 5, ".json") == 0;
}

/* The file of a folder that has our key; a file that cannot be read is warned of. */
static bool find_in(const char *folder, const field_t fields[FIELDS], char path[WEFT_PATH_BYTES])
{
    struct dirent **files = NULL;
    bool found = false;
    int count = scandir(folder, &files, is_json, alphasort);
    for (int i = 0; i < count && !found; i++) {
        weft_json_doc_t doc;
        if (weft__path_join(path, folder, files[i]->d_name) != WEFT_OK) {
            continue;
        }
        if (weft__json_load(path, &doc) != WEFT_OK) {
            weft__warn("expectations are not read: %s", weft_last_error());
            continue;
        }
        found = weft__json_is(weft__json_get(doc.root, "kind"), "expectations") &&
                key_matches(weft__json_get(doc.root, "key"), fields);
        weft__json_free(&doc);
    }
    for (int i = 0; i < count; i++) {
        free(files[i]);
    }
    free(files);
    return found;
}

static weft_status_t find_file(weft_expectations_t *expected, const weft_pairs_t *pairs,
                               const field_t fields[FIELDS])
{
    char found[FOLDERS][WEFT_PATH_BYTES], path[WEFT_PATH_BYTES], name[256];
    bool there = false;
    if (pairs->expectations) {
        snprintf(expected->fallback, sizeof(expected->fallback), "%s", pairs->expectations);
        WEFT_TRY(weft__is_file(pairs->expectations, &there));
        if (!there && pairs->update && access(pairs->expectations, F_OK) == 0) {
            return weft__fail(WEFT_ERR_INVALID, "%s is no file that expectations can be kept in",
                              pairs->expectations);
        }
        if (!there && pairs->update) {
            return WEFT_OK;
        }
        return read_file(expected, pairs->expectations, fields);
    }
    int count = folders(found);
    file_name(fields, name, sizeof(name));
    if (count > 0) {
        WEFT_TRY(weft__path_join(expected->fallback, found[0], name));
    }
    for (int i = 0; i < count; i++) {
        if (find_in(found[i], fields, path)) {
            return read_file(expected, path, fields);
        }
    }
    return WEFT_OK;
}

weft_status_t weft__expectations_open(weft_expectations_t *expected, const weft_pairs_t *pairs,
                                      int ranks)
{
    field_t fields[FIELDS];
    *expected = (weft_expectations_t){.ranks = ranks};
    key_of(pairs, ranks, fields);
    key_text(fields, expected->key, sizeof(expected->key));
    if (weft__settings()->pairs_test[0] != '\0') {
        expected->refusal = "WEFT_PAIRS_TEST is set";
    } else if (pairs->iters > 0) {
        expected->refusal = "--iterations was given";
    }
    if (pairs->update && expected->refusal) {
        return weft__fail(WEFT_ERR_INVALID, "this run cannot be kept as what to expect: %s",
                          expected->refusal);
    }
    weft_status_t status = find_file(expected, pairs, fields);
    if (status != WEFT_OK) {
        weft__expectations_close(expected);
    }
    return status;
}

void weft__expectations_close(weft_expectations_t *expected)
{
    weft__json_free(&expected->doc);
    free(expected->rows);
    expected->doc = (weft_json_doc_t){.root = NULL};
    expected->rows = NULL;
    expected->count = expected->room = 0;
}

/* ---- asking ----------------------------------------------------------------------------- */

static weft_expectation_t *find_row(const weft_expectations_t *expected, const char *name,
                                    const char *way, size_t bytes)
{
    for (int i = 0; i < expected->count; i++) {
        weft_expectation_t *row = &expected->rows[i];
        if (row->bytes == bytes && strcmp(row->name, name) == 0 && strcmp(row->way, way) == 0) {
            return row;
        }
    }
    return NULL;
}

const weft_expectation_t *weft__expectations_of(const weft_expectations_t *expected,
                                                const char *name, const char *way, size_t bytes)
{
    const weft_expectation_t *row = find_row(expected, name, way, bytes);
    return row && row->high > 0 ? row : NULL;
}

double weft__expectation_missed(const weft_expectation_t *expected, const weft_ratio_t *ratio)
{
    if (ratio->verdict == WEFT_VERDICT_NOISY) {
        return 0;
    }
    if (ratio->sure_high < expected->low) {
        return ratio->ratio / expected->low - 1;
    }
    if (ratio->sure_low > expected->high) {
        return ratio->ratio / expected->high - 1;
    }
    return 0;
}

weft_status_t weft__expectations_add(weft_expectations_t *expected, const char *name,
                                     const char *way, size_t bytes, const weft_ratio_t *ratio)
{
    weft_expectation_t *row = find_row(expected, name, way, bytes);
    if (!row) {
        WEFT_TRY(add_row(expected, name, way, bytes, &row));
    }
    row->measured = true;
    row->now = *ratio;
    return WEFT_OK;
}

weft_status_t weft__expectations_reload(weft_expectations_t *expected, const weft_pairs_t *pairs,
                                        const char *path)
{
    weft_expectations_t before = *expected;
    field_t fields[FIELDS];
    bool there;
    WEFT_TRY(weft__is_file(path, &there));
    expected->doc = (weft_json_doc_t){.root = NULL};
    expected->rows = NULL;
    expected->count = expected->room = 0;
    key_of(pairs, expected->ranks, fields);
    weft_status_t status = there ? read_file(expected, path, fields) : WEFT_OK;
    for (int i = 0; i < before.count && status == WEFT_OK; i++) {
        const weft_expectation_t *row = &before.rows[i];
        if (row->measured) {
            status = weft__expectations_add(expected, row->name, row->way, row->bytes, &row->now);
        }
    }
    weft__expectations_close(&before);
    return status;
}
