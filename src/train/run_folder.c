/* The run folder, and whose it is: see run_folder.h. */
#include "train/run_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json_read.h"
#include "base/log.h"
#include "train/checkpoint_parts.h"
#include "train/metrics.h"

#define RUN_FILE "run.json"
#define FORMAT "weft run"
#define VERSION 1

/* Whatever it is, and a link that leads nowhere too. */
static weft_status_t has(const char *folder, const char *name, bool *has_p)
{
    char path[WEFT_PATH_BYTES];
    struct stat about;
    WEFT_TRY(weft__path_join(path, folder, name));
    *has_p = lstat(path, &about) == 0;
    return *has_p || errno == ENOENT || errno == ENOTDIR
               ? WEFT_OK
               : weft__fail(WEFT_ERR_SYSTEM, "cannot look at %s: %s", path, strerror(errno));
}

/* ---- the name of a run -------------------------------------------------------------------- */

static bool is_id(const char *text)
{
    return strlen(text) == WEFT_RUN_ID - 1 && strspn(text, "0123456789abcdef") == WEFT_RUN_ID - 1;
}

static weft_status_t parse(const char *path, const char *text, size_t size, char id[WEFT_RUN_ID])
{
    weft_json_doc_t doc;
    int64_t version = 0;
    WEFT_TRY(weft__json_parse(text, size, path, &doc));
    weft__json_to_int(weft__json_get(doc.root, "version"), &version);
    const char *found = weft__json_text(weft__json_get(doc.root, "id"), "");
    bool good = weft__json_is(weft__json_get(doc.root, "format"), FORMAT) && version == VERSION &&
                is_id(found);
    snprintf(id, WEFT_RUN_ID, "%s", good ? found : "");
    weft__json_free(&doc);
    return good ? WEFT_OK
                : weft__fail(WEFT_ERR_INVALID,
                             "%s does not say which run the folder is of, as this version of Weft "
                             "writes it: choose another --out",
                             path);
}

weft_status_t weft__run_read(const char *folder, char id[WEFT_RUN_ID])
{
    char path[WEFT_PATH_BYTES], *text;
    size_t size;
    id[0] = '\0';
    WEFT_TRY(weft__path_join(path, folder, RUN_FILE));
    bool named;
    WEFT_TRY(has(folder, RUN_FILE, &named));
    if (!named) {
        return WEFT_OK;
    }
    WEFT_TRY(weft__file_read(path, &text, &size));
    weft_status_t status = parse(path, text, size, id);
    free(text);
    return status;
}

static uint64_t random_number(void)
{
    uint64_t number = 0;
    if (getrandom(&number, sizeof(number), GRND_NONBLOCK) != (ssize_t)sizeof(number)) {
        number = (weft__now_ns() << 20) ^ (uint64_t)getpid();
    }
    return number;
}

weft_status_t weft__run_claim(const char *folder, char id[WEFT_RUN_ID])
{
    char path[WEFT_PATH_BYTES], text[128];
    WEFT_TRY(weft__run_read(folder, id));
    if (id[0] != '\0') {
        return WEFT_OK;
    }
    WEFT_TRY(weft__path_join(path, folder, RUN_FILE));
    snprintf(id, WEFT_RUN_ID, "%016" PRIx64, random_number());
    int length = snprintf(
        text, sizeof(text),
        "{\n  \"format\": \"" FORMAT "\",\n  \"version\": %d,\n  \"id\": \"%s\"\n}\n", VERSION, id);
    return weft__file_replace(path, text, (size_t)length);
}

weft_status_t weft__run_wrote(const char *folder, const char *id, uint64_t number, bool *wrote_p)
{
    char path[WEFT_PATH_BYTES], state[WEFT_PATH_BYTES], name[WEFT_CHECKPOINT_NAME];
    weft_manifest_t manifest;
    WEFT_TRY(weft__path_join(path, folder, weft__checkpoint_name(number, name)));
    WEFT_TRY(weft__path_join(state, path, WEFT_CHECKPOINT_STATE));
    WEFT_TRY(weft__is_file(state, wrote_p));
    if (!*wrote_p) {
        return WEFT_OK;
    }
    *wrote_p = false;
    weft_status_t status = weft__manifest_read(path, &manifest);
    if (status != WEFT_OK) { /* what says nothing of itself is not ours */
        return status == WEFT_ERR_INVALID || status == WEFT_ERR_NOT_FOUND ? WEFT_OK : status;
    }
    free(manifest.settings);
    *wrote_p = strcmp(manifest.run, id) == 0 && manifest.state.step == number;
    return WEFT_OK;
}

/* ---- which folder a checkpoint lies in ---------------------------------------------------- */

/* The path from the root on, to be freed; NULL: it is not there. */
static weft_status_t resolve(const char *path, char **real_p)
{
    *real_p = realpath(path, NULL);
    return *real_p != NULL || errno == ENOENT || errno == ENOTDIR
               ? WEFT_OK
               : weft__fail(WEFT_ERR_SYSTEM, "cannot find out where %s is: %s", path,
                            strerror(errno));
}

/* The same for a checkpoint, cut into the folder and its name. */
static weft_status_t split(const char *path, const char **name_p, char **real_p)
{
    WEFT_TRY(resolve(path, real_p));
    char *slash = *real_p != NULL ? strrchr(*real_p, '/') : NULL;
    if (slash == NULL || slash == *real_p) {
        free(*real_p);
        *real_p = NULL;
        return WEFT_OK;
    }
    *slash = '\0';
    *name_p = slash + 1;
    return WEFT_OK;
}

/* Is `folder` the folder of the run that wrote the checkpoint, which lies in it as `name`? */
static weft_status_t is_run_of(const char *folder, const char *name, const weft_loaded_t *loaded,
                               bool *holds_p)
{
    char id[WEFT_RUN_ID];
    bool numbered = !loaded->foreign &&
                    weft__checkpoint_number(name) == (int64_t)loaded->state.step;
    *holds_p = false;
    if (!numbered) {
        return WEFT_OK;
    }
    WEFT_TRY(weft__run_read(folder, id));
    if (loaded->run[0] != '\0' || id[0] != '\0') {
        *holds_p = loaded->run[0] == '\0' || strcmp(loaded->run, id) == 0;
        return WEFT_OK;
    }
    static const char *const names[] = {"config", "metrics.jsonl", "latest"};
    *holds_p = true; /* of a version before runs had names */
    for (int i = 0; i < 3 && *holds_p; i++) {
        WEFT_TRY(has(folder, names[i], holds_p));
    }
    return WEFT_OK;
}

static weft_status_t same_folder(const char *path, const char *real, bool *same_p)
{
    char *named;
    WEFT_TRY(resolve(path, &named));
    *same_p = named != NULL && strcmp(named, real) == 0;
    free(named);
    return WEFT_OK;
}

weft_status_t weft__run_holds(const char *folder, const weft_loaded_t *loaded, bool *holds_p)
{
    const char *name;
    char *real;
    bool same = false;
    *holds_p = false;
    WEFT_TRY(split(loaded->path, &name, &real));
    weft_status_t status = real != NULL ? same_folder(folder, real, &same) : WEFT_OK;
    if (status == WEFT_OK && same) {
        status = is_run_of(real, name, loaded, holds_p);
    }
    free(real);
    return status;
}

/* The folder as `path` names it, or as the checkpoint's path does, or from the root on. */
static weft_status_t name_folder(const weft_loaded_t *loaded, const char *path, const char *real,
                                 char *out)
{
    const char *slash = strrchr(loaded->path, '/');
    char above[WEFT_PATH_BYTES] = ".";
    bool same;
    if (slash != NULL) {
        snprintf(above, sizeof(above), "%.*s",
                 slash > loaded->path ? (int)(slash - loaded->path) : 1, loaded->path);
    }
    const char *const names[] = {path, above};
    for (int i = 0; i < 2; i++) {
        WEFT_TRY(same_folder(names[i], real, &same));
        if (same) {
            return weft__path_join(out, "", names[i]);
        }
    }
    return weft__path_join(out, "", real);
}

weft_status_t weft__run_folder(const weft_loaded_t *loaded, const char *path, char *out)
{
    const char *name;
    char *real;
    bool holds = false;
    out[0] = '\0';
    WEFT_TRY(split(loaded->path, &name, &real));
    weft_status_t status = real != NULL ? is_run_of(real, name, loaded, &holds) : WEFT_OK;
    if (status == WEFT_OK && holds) {
        status = name_folder(loaded, path, real, out);
    }
    free(real);
    return status;
}

/* A file that is there, and not as we begin ours. */
static weft_status_t is_others(const char *folder, const char *name, const char *start, bool *is_p)
{
    char path[WEFT_PATH_BYTES], begins[16] = "";
    struct stat about = {0};
    WEFT_TRY(weft__path_join(path, folder, name));
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe may have no writer */
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) {
        return has(folder, name, is_p);
    }
    bool plain = fd >= 0 && fstat(fd, &about) == 0 && S_ISREG(about.st_mode);
    ssize_t count = plain ? read(fd, begins, strlen(start)) : 0;
    int error = fd < 0 || count < 0 ? errno : 0;
    if (fd >= 0) {
        close(fd);
    }
    *is_p = count > 0 && strcmp(begins, start) != 0;
    if (error != 0) {
        return weft__fail(WEFT_ERR_SYSTEM, "cannot read %s: %s", path, strerror(error));
    }
    return plain ? WEFT_OK
                 : weft__fail(WEFT_ERR_INVALID,
                              "%s is %s, and not a file that a run may write: choose another --out",
                              path,
                              S_ISFIFO(about.st_mode)  ? "a pipe"
                              : S_ISDIR(about.st_mode) ? "a folder"
                                                       : "a device");
}

weft_status_t weft__run_vacant(const char *folder)
{
    char id[WEFT_RUN_ID], name[WEFT_CHECKPOINT_NAME];
    WEFT_TRY(weft__run_read(folder, id));
    static const char *const files[][2] = {{"config", "# weft "}, {"metrics.jsonl", "{\"step\""}};
    for (int i = 0; i < 2 && id[0] == '\0'; i++) {
        bool taken;
        WEFT_TRY(is_others(folder, files[i][0], files[i][1], &taken));
        if (taken) {
            return weft__fail(WEFT_ERR_INVALID,
                              "%s is no run folder, and its %s would be written over: choose "
                              "another --out",
                              folder, files[i][0]);
        }
    }
    int64_t number = INT64_MAX;
    while ((number = weft__checkpoint_newest(folder, number)) >= 0) {
        bool wrote;
        WEFT_TRY(weft__run_wrote(folder, id, (uint64_t)number, &wrote));
        if (!wrote) {
            return weft__fail(
                WEFT_ERR_INVALID,
                "%s holds checkpoints that this run did not write, such as %s: choose "
                "another --out, or go on from one of them with --resume",
                folder, weft__checkpoint_name((uint64_t)number, name));
        }
    }
    return number == WEFT_CHECKPOINT_UNKNOWN ? WEFT_ERR_SYSTEM : WEFT_OK;
}

/* ---- going back --------------------------------------------------------------------------- */

/* Is it the one that `latest` leads to? */
static weft_status_t is_latest(const char *folder, const weft_loaded_t *loaded, bool *is_p)
{
    char latest[WEFT_PATH_BYTES], *real;
    *is_p = false;
    WEFT_TRY(weft__path_join(latest, folder, "latest"));
    WEFT_TRY(resolve(loaded->path, &real));
    weft_status_t status = real != NULL ? same_folder(latest, real, is_p) : WEFT_OK;
    free(real);
    return status;
}

/* The newest checkpoint before `below` that is later than the one to go on from, as of
 * weft__checkpoint_newest. */
static int64_t next_later(const char *folder, const weft_loaded_t *loaded, int64_t below)
{
    int64_t number = weft__checkpoint_newest(folder, below);
    return number < 0 || number > (int64_t)loaded->state.step ? number : WEFT_CHECKPOINT_NONE;
}

weft_status_t weft__run_later(const char *folder, const weft_loaded_t *loaded, char *text,
                              size_t room)
{
    size_t used = 0;
    int count = 0;
    bool latest;
    text[0] = '\0';
    WEFT_TRY(is_latest(folder, loaded, &latest));
    if (latest) {
        return WEFT_OK;
    }
    int64_t number = INT64_MAX;
    for (; (number = next_later(folder, loaded, number)) >= 0; count++) {
        char name[WEFT_CHECKPOINT_NAME];
        if (count < 3 && used < room) {
            used += (size_t)snprintf(text + used, room - used, "%s%s", count > 0 ? ", " : "",
                                     weft__checkpoint_name((uint64_t)number, name));
        }
    }
    if (count > 3 && used < room) {
        snprintf(text + used, room - used, " and %d more", count - 3);
    }
    return number == WEFT_CHECKPOINT_UNKNOWN ? WEFT_ERR_SYSTEM : WEFT_OK;
}

weft_status_t weft__run_aside(const char *folder, char *out)
{
    char name[32];
    for (int i = 1;; i++) {
        bool taken;
        snprintf(name, sizeof(name), "set-aside-%d", i);
        WEFT_TRY(has(folder, name, &taken));
        if (!taken) {
            return weft__path_join(out, folder, name);
        }
    }
}

/* The lines of metrics.jsonl after `step`, as a file of the same name. */
static weft_status_t save_metrics(const char *folder, const char *aside, uint64_t step)
{
    char from[WEFT_PATH_BYTES], to[WEFT_PATH_BYTES], *text;
    size_t size;
    WEFT_TRY(weft__path_join(from, folder, "metrics.jsonl"));
    WEFT_TRY(weft__path_join(to, aside, "metrics.jsonl"));
    bool there;
    WEFT_TRY(weft__is_file(from, &there));
    if (!there) {
        return WEFT_OK;
    }
    WEFT_TRY(weft__file_read(from, &text, &size));
    size_t keep = weft__metrics_until(text, size, step);
    weft_status_t status = keep < size ? weft__file_replace(to, text + keep, size - keep) : WEFT_OK;
    free(text);
    return status;
}

static weft_status_t move(const char *folder, const char *aside, const char *name)
{
    char from[WEFT_PATH_BYTES], to[WEFT_PATH_BYTES];
    WEFT_TRY(weft__path_join(from, folder, name));
    WEFT_TRY(weft__path_join(to, aside, name));
    if (rename(from, to) != 0) {
        return weft__fail(WEFT_ERR_SYSTEM, "cannot rename %s to %s: %s", from, to, strerror(errno));
    }
    return WEFT_OK;
}

weft_status_t weft__run_set_aside(const char *folder, const weft_loaded_t *loaded)
{
    char aside[WEFT_PATH_BYTES], name[WEFT_CHECKPOINT_NAME], later[256];
    int64_t number = INT64_MAX;
    WEFT_TRY(weft__run_later(folder, loaded, later, sizeof(later)));
    if (later[0] == '\0') {
        return WEFT_OK;
    }
    WEFT_TRY(weft__run_aside(folder, aside));
    WEFT_TRY(weft__folder_make(aside));
    WEFT_TRY(save_metrics(folder, aside, loaded->state.step));
    while ((number = next_later(folder, loaded, number)) >= 0) {
        WEFT_TRY(move(folder, aside, weft__checkpoint_name((uint64_t)number, name)));
    }
    if (number == WEFT_CHECKPOINT_UNKNOWN) {
        return WEFT_ERR_SYSTEM;
    }
    WEFT_TRY(weft__folder_sync(aside));
    return weft__checkpoint_point(folder, weft__checkpoint_name(loaded->state.step, name));
}

weft_status_t weft__run_set_aside_one(const char *folder, const char *name)
{
    char aside[WEFT_PATH_BYTES];
    WEFT_TRY(weft__run_aside(folder, aside));
    WEFT_TRY(weft__folder_make(aside));
    WEFT_TRY(move(folder, aside, name));
    WEFT_TRY(weft__folder_sync(aside));
    return weft__folder_sync(folder);
}
