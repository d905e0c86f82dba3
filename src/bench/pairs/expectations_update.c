/* Taking a run into the expectations. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include <weft/weft.h>

#include "base/output.h"
#include "base/settings.h"
#include "base/version.h"
#include "bench/pairs/internal.h"

#define HISTORY 20 /* runs that are kept */

/* Was the run before this one of the same build? Then what differs is the machine. */
static bool is_repeated(const weft_expectations_t *expected)
{
    const weft_json_value_t *history = weft__json_get(expected->doc.root, "history");
    const char *commit = NULL;
    for (const weft_json_value_t *at = weft__json_first(history); at;
         at = weft__json_next(history, at)) {
        commit = weft__json_text(weft__json_get(at, "commit"), NULL);
    }
    return commit && commit[0] != '\0' && strcmp(commit, weft__commit) == 0;
}

/* What to expect after this run. */
static void widen(weft_expectation_t *row, bool repeated)
{
    const weft_ratio_t *now = &row->now;
    double low = now->low / (1 + WEFT_EXPECTED_MARGIN),
           high = now->high * (1 + WEFT_EXPECTED_MARGIN);
    bool meets = row->high > 0 && (repeated || (now->low <= row->high && row->low <= now->high));
    row->low = meets && row->low < low ? row->low : low;
    row->high = meets && row->high > high ? row->high : high;
}

static void write_setting(const char *name, const char *value, bool is_default, const char *text,
                          void *ctx)
{
    (void)text;
    if (!is_default && !weft__pairs_is_location(name)) {
        weft__json_string(ctx, name, value);
    }
}

static void write_row(weft_json_t *json, const weft_expectation_t *row)
{
    weft__json_object(json, NULL);
    weft__json_string(json, "name", row->name);
    weft__json_uint(json, "bytes", row->bytes);
    weft__json_string(json, "way", row->way);
}

/* Ratios are kept to four digits, however small: more is noise. */
static double rounded(double value)
{
    char text[32];
    snprintf(text, sizeof(text), "%.4g", value);
    weft__parse_real(text, &value);
    return value;
}

static void write_run(weft_json_t *json, const weft_expectations_t *expected,
                      const weft_pairs_t *pairs, uint64_t seed)
{
    weft__json_object(json, NULL);
    weft__json_string(json, "commit", weft__commit);
    weft__json_string(json, "version", weft_version());
    weft__json_string(json, "started", pairs->machine.started);
    weft__json_string(json, "profile", pairs->profile);
    weft__json_uint(json, "seed", seed);
    weft__json_object(json, "settings");
    weft__settings_each(write_setting, json);
    weft__json_end(json);
    weft__json_array(json, "pairs");
    for (int i = 0; i < expected->count; i++) {
        const weft_expectation_t *row = &expected->rows[i];
        if (row->measured) {
            write_row(json, row);
            weft__json_double(json, "ratio", rounded(row->now.ratio));
            weft__json_double(json, "low", rounded(row->now.low));
            weft__json_double(json, "high", rounded(row->now.high));
            weft__json_end(json);
        }
    }
    weft__json_end(json);
    weft__json_end(json);
}

/* A value that was read, as it was. */
static void copy(weft_json_t *json, const char *key, const weft_json_value_t *value)
{
    int64_t integer;
    uint64_t natural;
    double real;
    if (value->kind == WEFT_JSON_OBJECT || value->kind == WEFT_JSON_ARRAY) {
        bool object = value->kind == WEFT_JSON_OBJECT;
        (object ? weft__json_object : weft__json_array)(json, key);
        for (const weft_json_value_t *at = weft__json_first(value); at;
             at = weft__json_next(value, at)) {
            copy(json, object ? at->as.text : NULL, object ? at + 1 : at);
        }
        weft__json_end(json);
    } else if (value->kind == WEFT_JSON_BOOL) {
        weft__json_bool(json, key, value->as.truth);
    } else if (weft__json_to_int(value, &integer)) {
        weft__json_int(json, key, integer);
    } else if (weft__json_to_uint(value, &natural)) {
        weft__json_uint(json, key, natural);
    } else if (weft__json_to_double(value, &real)) {
        weft__json_double(json, key, real);
    } else {
        weft__json_string(json, key, weft__json_text(value, NULL));
    }
}

static void write_history(weft_json_t *json, const weft_expectations_t *expected,
                          const weft_pairs_t *pairs, uint64_t seed)
{
    const weft_json_value_t *history = weft__json_get(expected->doc.root, "history");
    int64_t skip = history ? (int64_t)history->length - (HISTORY - 1) : 0;
    weft__json_array(json, "history");
    for (const weft_json_value_t *at = weft__json_first(history); at;
         at = weft__json_next(history, at)) {
        if (skip-- <= 0) {
            copy(json, NULL, at);
        }
    }
    write_run(json, expected, pairs, seed);
    weft__json_end(json);
}

static void write_all(weft_json_t *json, weft_expectations_t *expected, const weft_pairs_t *pairs,
                      uint64_t seed)
{
    bool repeated = is_repeated(expected);
    weft__json_object(json, NULL);
    weft__json_string(json, "kind", "expectations");
    weft__json_int(json, "format", WEFT_RESULT_FORMAT);
    weft__json_object(json, "key");
    weft__expectations_write_key(json, pairs, expected->ranks);
    weft__json_end(json);
    weft__json_array(json, "pairs");
    for (int i = 0; i < expected->count; i++) {
        weft_expectation_t *row = &expected->rows[i];
        if (row->measured) {
            widen(row, repeated);
        }
        write_row(json, row);
        weft__json_double(json, "low", rounded(row->low));
        weft__json_double(json, "high", rounded(row->high));
        weft__json_end(json);
    }
    weft__json_end(json);
    write_history(json, expected, pairs, seed);
    weft__json_end(json);
}

static void folder_of(const char *path, char folder[WEFT_PATH_BYTES])
{
    snprintf(folder, WEFT_PATH_BYTES, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash) {
        slash[slash == folder] = '\0';
    } else {
        snprintf(folder, WEFT_PATH_BYTES, ".");
    }
}

/* From reading the file to writing it, one process at a time. The folder is locked and not the
 * file, which is replaced; the lock goes with the process, and leaves nothing behind. -1: a file
 * system without locks, of which is warned. */
static int lock(const char *folder)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (fd >= 0 && flock(fd, LOCK_EX) != 0) {
        if (errno != EINTR) {
            close(fd);
            fd = -1;
        }
    }
    if (fd < 0) {
        weft__warn("%s cannot be locked: of two updates of expectations at once one may be lost",
                   folder);
    }
    return fd;
}

static void unlock(int fd)
{
    if (fd >= 0) {
        close(fd);
    }
}

static weft_status_t write_file(weft_expectations_t *expected, const weft_pairs_t *pairs,
                                const char *path, uint64_t seed)
{
    weft_output_t *file;
    weft_json_t json;
    WEFT_TRY(weft__expectations_reload(expected, pairs, path));
    WEFT_TRY(weft__output_open(path, &file));
    weft__json_start(&json, weft__output_stream(file));
    write_all(&json, expected, pairs, seed);
    return weft__output_end(file, weft__json_finish(&json));
}

weft_status_t weft__expectations_update(weft_expectations_t *expected, const weft_pairs_t *pairs,
                                        uint64_t seed)
{
    char path[WEFT_PATH_BYTES], folder[WEFT_PATH_BYTES];
    snprintf(path, sizeof(path), "%s",
             expected->path[0] != '\0' ? expected->path : expected->fallback);
    if (expected->refusal) {
        return weft__fail(WEFT_ERR_INVALID, "this run cannot be kept as what to expect: %s",
                          expected->refusal);
    }
    if (path[0] == '\0') {
        return weft__fail(WEFT_ERR_INVALID,
                          "there is no folder for expectations: name a file by --expectations");
    }
    folder_of(path, folder);
    if (!pairs->expectations) { /* the user's own folder need not be there yet */
        WEFT_TRY(weft__folder_make(folder));
    }
    int locked = lock(folder);
    weft_status_t status = write_file(expected, pairs, path, seed);
    unlock(locked);
    WEFT_TRY(status);
    printf("# kept as what to expect: %s\n", path);
    return WEFT_OK;
}
