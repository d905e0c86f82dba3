/* The writer of checkpoints: a copy of everything, a thread that writes it, renames that make it
 * appear. */
#include "train/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "train/checkpoint_parts.h"
#include "train/run_folder.h"

struct weft_checkpoint_writer {
    char run[WEFT_PATH_BYTES];
    char id[WEFT_RUN_ID]; /* of the run */
    weft_checkpoint_options_t options;
    int lock; /* the folder, open and locked */

    /* What the thread works on: a copy of the checkpoint, texts and tensors in one piece of
     * memory, which is kept for the next one. */
    weft_checkpoint_t copy;
    char *memory;
    size_t room;

    pthread_t thread;
    bool running; /* the thread has not been joined */
    int done;     /* set by the thread when it has ended, read by weft__checkpoint_poll */
    weft_status_t status;
    char sentence[1024];
    bool saved; /* the last one is whole and `latest`, whether or not older ones could be removed */
    weft_checkpoint_times_t current; /* of the one being written; the thread's until it is joined */
    weft_checkpoint_times_t times;   /* of the last one that ended */
};

/* ---- making it appear ----------------------------------------------------------------------- */

/* Put `fresh` in the place of `place`, which may be taken; what was there is then at `fresh`, if
 * it is not gone. */
static weft_status_t exchange(const char *fresh, const char *place)
{
    if (rename(fresh, place) == 0) {
        return WEFT_OK; /* nothing was there, or an empty folder */
    }
    int why = errno;
    bool taken = why == ENOTEMPTY || why == EEXIST || why == ENOTDIR;
    if (taken && syscall(SYS_renameat2, AT_FDCWD, fresh, AT_FDCWD, place, RENAME_EXCHANGE) == 0) {
        return WEFT_OK;
    }
    /* Where file systems cannot exchange: for an instant there is none. */
    char aside[WEFT_PATH_BYTES + 8];
    snprintf(aside, sizeof(aside), "%s.old", fresh);
    if (taken && rename(place, aside) != 0) {
        why = errno;
    } else if (taken && rename(fresh, place) != 0) {
        why = errno;
        rename(aside, place); /* what was there stays */
    } else if (taken && rename(aside, fresh) == 0) {
        return WEFT_OK;
    } else if (taken) {
        why = errno;
    }
    return weft__fail(WEFT_ERR_SYSTEM, "cannot rename %s to %s: %s", fresh, place, strerror(why));
}

weft_status_t weft__checkpoint_point(const char *run, const char *name)
{
    char temporary[WEFT_PATH_BYTES], latest[WEFT_PATH_BYTES];
    weft_status_t status = weft__path_join(temporary, run, ".latest.tmp");
    status = status == WEFT_OK ? weft__path_join(latest, run, "latest") : status;
    status = status == WEFT_OK ? weft__path_remove(temporary) : status;
    if (status == WEFT_OK && (symlink(name, temporary) != 0 || rename(temporary, latest) != 0)) {
        status = weft__fail(WEFT_ERR_SYSTEM, "cannot point %s to %s: %s", latest, name,
                            strerror(errno));
        unlink(temporary);
    }
    return status == WEFT_OK ? weft__folder_sync(run) : status;
}

/* Remove a checkpoint so that a half-removed one has no name of a checkpoint. */
static weft_status_t remove_checkpoint(const char *run, uint64_t number)
{
    char path[WEFT_PATH_BYTES], hidden[WEFT_PATH_BYTES], name[WEFT_CHECKPOINT_NAME], old[64];
    snprintf(old, sizeof(old), ".%s.old", weft__checkpoint_name(number, name));
    WEFT_TRY(weft__path_join(path, run, name));
    WEFT_TRY(weft__path_join(hidden, run, old));
    if (rename(path, hidden) != 0) {
        return weft__fail(WEFT_ERR_SYSTEM, "cannot rename %s to %s: %s", path, hidden,
                          strerror(errno));
    }
    return weft__path_remove(hidden);
}

/* Keep the newest that this run wrote, up to the one just written. What others put there is neither
 * counted nor removed. */
static weft_status_t prune(const weft_checkpoint_writer_t *writer, uint64_t written)
{
    int64_t number = (int64_t)written + 1;
    int kept = 0;
    weft_status_t status = WEFT_OK;
    while (writer->options.keep > 0 && status == WEFT_OK &&
           (number = weft__checkpoint_newest(writer->run, number)) >= 0) {
        bool ours = false;
        status = weft__run_wrote(writer->run, writer->id, (uint64_t)number, &ours);
        if (ours && kept == writer->options.keep) {
            status = remove_checkpoint(writer->run, (uint64_t)number);
        }
        kept += ours && kept < writer->options.keep;
    }
    return status == WEFT_OK && number == WEFT_CHECKPOINT_UNKNOWN ? WEFT_ERR_SYSTEM : status;
}

/* Another run's checkpoint of the same step, or something else of that name, is in the way: it is
 * not ours to write over. */
static weft_status_t make_way(const weft_checkpoint_writer_t *writer, uint64_t step,
                              const char *name, const char *place)
{
    bool ours;
    WEFT_TRY(weft__run_wrote(writer->run, writer->id, step, &ours));
    if (ours || rmdir(place) == 0 || errno == ENOENT) { /* what is empty is no loss */
        return WEFT_OK;
    }
    if (errno != ENOTEMPTY && errno != EEXIST && errno != ENOTDIR) {
        return weft__fail(WEFT_ERR_SYSTEM, "cannot make room for %s: %s", place, strerror(errno));
    }
    return weft__run_set_aside_one(writer->run, name);
}

static size_t text_bytes(const char *text)
{
    return text != NULL ? strlen(text) + 1 : 0;
}

static uint64_t tensors_bytes(const weft_tensor_source_t *sources, int count)
{
    uint64_t bytes = 0;
    for (int i = 0; i < count; i++) {
        bytes += weft__tensor_bytes(&sources[i].form);
    }
    return bytes;
}

static weft_status_t check_room(const char *run, const weft_checkpoint_t *checkpoint)
{
    uint64_t needed = ((uint64_t)1 << 16) + text_bytes(checkpoint->config_json) +
                      text_bytes(checkpoint->tokenizer_json) + text_bytes(checkpoint->settings) +
                      tensors_bytes(checkpoint->model, checkpoint->model_count) +
                      tensors_bytes(checkpoint->optimizer, checkpoint->optimizer_count) +
                      tensors_bytes(checkpoint->residuals, checkpoint->residual_count);
    uint64_t there = weft__disk_free(run);
    if (needed > there) {
        return weft__fail(WEFT_ERR_SYSTEM,
                          "no room in %s: a checkpoint takes %" PRIu64 " MiB, %" PRIu64
                          " MiB are free",
                          run, (needed >> 20) + 1, there >> 20);
    }
    return WEFT_OK;
}

static weft_status_t write_and_rename(weft_checkpoint_writer_t *writer,
                                      const weft_checkpoint_t *checkpoint)
{
    char name[WEFT_CHECKPOINT_NAME], hidden[64], temporary[WEFT_PATH_BYTES], place[WEFT_PATH_BYTES];
    uint64_t step = checkpoint->state.step;
    snprintf(hidden, sizeof(hidden), ".%s.tmp", weft__checkpoint_name(step, name));
    writer->saved = false;
    WEFT_TRY(weft__path_join(temporary, writer->run, hidden));
    WEFT_TRY(weft__path_join(place, writer->run, name));
    WEFT_TRY(weft__path_remove(temporary));
    WEFT_TRY(check_room(writer->run, checkpoint));
    WEFT_TRY(weft__folder_make(temporary));
    weft_status_t status = weft__checkpoint_write(temporary, writer->id, checkpoint,
                                                  &writer->current.bytes);
    status = status == WEFT_OK ? make_way(writer, step, name, place) : status;
    status = status == WEFT_OK ? exchange(temporary, place) : status;
    status = status == WEFT_OK ? weft__folder_sync(writer->run) : status;
    status = status == WEFT_OK ? weft__checkpoint_point(writer->run, name) : status;
    writer->saved = status == WEFT_OK;
    char why[1024];
    snprintf(why, sizeof(why), "%s", weft_last_error());
    weft_status_t removed = weft__path_remove(
        temporary); /* gone, unless it failed or was replaced */
    if (status != WEFT_OK) {
        weft__error_restore(why);
        return status;
    }
    return removed == WEFT_OK ? prune(writer, step) : removed;
}

/* ---- the copy ------------------------------------------------------------------------------- */

static size_t rounded(uint64_t bytes)
{
    return (size_t)(bytes + 63) / 64 * 64;
}

static size_t sources_bytes(const weft_tensor_source_t *sources, int count)
{
    size_t bytes = rounded((uint64_t)count * sizeof(*sources));
    for (int i = 0; i < count; i++) {
        bytes += rounded(weft__tensor_bytes(&sources[i].form)) +
                 rounded(text_bytes(sources[i].form.name));
    }
    return bytes;
}

/* The next `bytes` of the copy's memory. */
static void *take(char **at_p, uint64_t bytes)
{
    void *taken = *at_p;
    *at_p += rounded(bytes);
    return taken;
}

static const char *copy_text(char **at_p, const char *text)
{
    size_t bytes = text_bytes(text);
    return bytes > 0 ? memcpy(take(at_p, bytes), text, bytes) : NULL;
}

static weft_status_t copy_sources(char **at_p, const weft_tensor_source_t *from, int count,
                                  const weft_tensor_source_t **to_p)
{
    weft_tensor_source_t *to = take(at_p, (uint64_t)count * sizeof(*to));
    for (int i = 0; i < count; i++) {
        uint64_t bytes = weft__tensor_bytes(&from[i].form);
        char *data = take(at_p, bytes);
        if (from[i].data != NULL) {
            memcpy(data, from[i].data, bytes);
        } else {
            WEFT_TRY(bytes > 0 ? from[i].read(from[i].ctx, 0, data, bytes) : WEFT_OK);
        }
        to[i] = (weft_tensor_source_t){.form = from[i].form, .data = data};
        to[i].form.name = copy_text(at_p, from[i].form.name);
    }
    *to_p = to;
    return WEFT_OK;
}

static weft_status_t copy_checkpoint(weft_checkpoint_writer_t *writer,
                                     const weft_checkpoint_t *from)
{
    size_t bytes = sources_bytes(from->model, from->model_count) +
                   sources_bytes(from->optimizer, from->optimizer_count) +
                   sources_bytes(from->residuals, from->residual_count) +
                   rounded(text_bytes(from->config_json)) +
                   rounded(text_bytes(from->tokenizer_json)) + rounded(text_bytes(from->settings));
    if (bytes > writer->room) {
        free(writer->memory);
        writer->room = 0;
        writer->memory = aligned_alloc(64, bytes);
        if (writer->memory == NULL) {
            return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a copy of the checkpoint, %zu MiB",
                              bytes >> 20);
        }
        writer->room = bytes;
    }
    char *at = writer->memory;
    weft_checkpoint_t *to = &writer->copy;
    *to = *from;
    weft_status_t status = copy_sources(&at, from->model, from->model_count, &to->model);
    if (status == WEFT_OK) {
        status = copy_sources(&at, from->optimizer, from->optimizer_count, &to->optimizer);
    }
    if (status == WEFT_OK) {
        status = copy_sources(&at, from->residuals, from->residual_count, &to->residuals);
    }
    to->config_json = copy_text(&at, from->config_json);
    to->tokenizer_json = copy_text(&at, from->tokenizer_json);
    to->settings = copy_text(&at, from->settings);
    return status;
}

static weft_status_t check_forms(const weft_tensor_source_t *sources, int count)
{
    for (int i = 0; i < count; i++) {
        if (weft__tensor_bytes(&sources[i].form) >= UINT64_MAX / 4 ||
            (sources[i].data == NULL && sources[i].read == NULL)) {
            return weft__fail(WEFT_ERR_INVALID, "tensor %s has no size, or nothing to read it from",
                              sources[i].form.name);
        }
    }
    return WEFT_OK;
}

/* ---- the thread ----------------------------------------------------------------------------- */

static void *write_thread(void *context)
{
    weft_checkpoint_writer_t *writer = context;
    uint64_t start = weft__now_ns();
    writer->status = write_and_rename(writer, &writer->copy);
    snprintf(writer->sentence, sizeof(writer->sentence), "%s",
             writer->status != WEFT_OK ? weft_last_error() : "");
    writer->current.written_s = (double)(weft__now_ns() - start) * 1e-9;
    /* Pairs with the load in weft__checkpoint_poll. */
    __atomic_store_n(&writer->done, 1, __ATOMIC_RELEASE);
    return NULL;
}

static weft_status_t start_thread(weft_checkpoint_writer_t *writer)
{
    sigset_t all, before;
    sigfillset(&all);
    __atomic_store_n(&writer->done, 0, __ATOMIC_RELAXED); /* no thread reads it yet */
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the other threads' business */
    int error = pthread_create(&writer->thread, NULL, write_thread, writer);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        return weft__fail(WEFT_ERR_SYSTEM, "cannot start a thread to write the checkpoint: %s",
                          strerror(error));
    }
    writer->running = true;
    return WEFT_OK;
}

/* The result of the last checkpoint; an error is told once. */
static weft_status_t told(weft_checkpoint_writer_t *writer)
{
    weft_status_t status = writer->status;
    writer->status = WEFT_OK;
    return status != WEFT_OK
               ? weft__fail(status,
                            writer->saved ? "step-%06" PRIu64 " is saved, but an older checkpoint "
                                            "is not removed: %s"
                                          : "step-%06" PRIu64 " was not saved: %s",
                            writer->current.step, writer->sentence)
               : WEFT_OK;
}

weft_status_t weft__checkpoint_wait(weft_checkpoint_writer_t *writer)
{
    if (writer->running) {
        pthread_join(writer->thread, NULL);
        writer->running = false;
        if (writer->saved) { /* one that failed is no checkpoint to announce */
            writer->times = writer->current;
        }
    }
    return told(writer);
}

weft_status_t weft__checkpoint_poll(weft_checkpoint_writer_t *writer)
{
    /* Pairs with the store at the end of write_thread. */
    if (writer->running && !__atomic_load_n(&writer->done, __ATOMIC_ACQUIRE)) {
        return WEFT_PENDING;
    }
    return weft__checkpoint_wait(writer);
}

static double seconds_since(uint64_t start)
{
    return (double)(weft__now_ns() - start) * 1e-9;
}

/* Begin to write, or with `wait` write. `start` is when the caller began to wait for us. */
static weft_status_t begin(weft_checkpoint_writer_t *writer, const weft_checkpoint_t *checkpoint,
                           uint64_t start)
{
    weft_status_t status = check_forms(checkpoint->model, checkpoint->model_count);
    if (status == WEFT_OK) {
        status = check_forms(checkpoint->optimizer, checkpoint->optimizer_count);
    }
    if (status == WEFT_OK) {
        status = check_forms(checkpoint->residuals, checkpoint->residual_count);
    }
    if (status != WEFT_OK) {
        return status;
    }
    writer->current = (weft_checkpoint_times_t){.step = checkpoint->state.step};
    if (writer->options.wait) {
        status = write_and_rename(writer, checkpoint);
        writer->current.blocked_s = writer->current.written_s = seconds_since(start);
        if (writer->saved) {
            writer->times = writer->current;
        }
        return status;
    }
    status = copy_checkpoint(writer, checkpoint);
    writer->current.blocked_s = seconds_since(start);
    return status == WEFT_OK ? start_thread(writer) : status;
}

weft_status_t weft__checkpoint_save(weft_checkpoint_writer_t *writer,
                                    const weft_checkpoint_t *checkpoint, bool *begun_p)
{
    uint64_t start = weft__now_ns();
    weft_status_t before = weft__checkpoint_wait(writer);
    char why[1024];
    snprintf(why, sizeof(why), "%s", weft_last_error());
    weft_status_t status = begin(writer, checkpoint, start);
    if (begun_p != NULL) {
        *begun_p = status == WEFT_OK;
    }
    if (before != WEFT_OK) {
        weft__error_restore(why);
        return before;
    }
    return status;
}

void weft__checkpoint_times(weft_checkpoint_writer_t *writer, weft_checkpoint_times_t *out)
{
    *out = writer->times;
}

/* ---- opening -------------------------------------------------------------------------------- */

/* What a killed writer leaves: folders and links whose names start with a dot and "step-" or
 * "latest". Files of the record look after themselves (base/output.h). */
static bool is_remains(const char *name)
{
    return strncmp(name, ".step-", 6) == 0 || strcmp(name, ".latest.tmp") == 0;
}

static weft_status_t remove_remains(const char *run)
{
    DIR *dir = opendir(run);
    weft_status_t status = WEFT_OK;
    struct dirent *entry;
    while (dir != NULL && status == WEFT_OK && (errno = 0, entry = readdir(dir)) != NULL) {
        char path[WEFT_PATH_BYTES];
        if (is_remains(entry->d_name)) {
            status = weft__path_join(path, run, entry->d_name);
            status = status == WEFT_OK ? weft__path_remove(path) : status;
        }
    }
    if (status == WEFT_OK && errno != 0) {
        status = weft__fail(WEFT_ERR_SYSTEM, "cannot list what is in %s: %s", run, strerror(errno));
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return status;
}

static weft_status_t lock_run(weft_checkpoint_writer_t *writer)
{
    writer->lock = open(writer->run, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (writer->lock < 0) {
        return weft__fail(WEFT_ERR_SYSTEM, "cannot open %s: %s", writer->run, strerror(errno));
    }
    if (flock(writer->lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        return weft__fail(WEFT_ERR_REFUSED,
                          "another process is writing checkpoints in %s; choose another --out",
                          writer->run);
    }
    return WEFT_OK; /* some network file systems cannot lock folders; then it goes without */
}

weft_status_t weft__checkpoint_writer_open(const char *run,
                                           const weft_checkpoint_options_t *options,
                                           weft_checkpoint_writer_t **writer_p)
{
    weft_checkpoint_writer_t *writer = calloc(1, sizeof(*writer));
    if (writer == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to write checkpoints");
    }
    writer->lock = -1;
    writer->options = *options;
    weft_status_t status = weft__path_join(writer->run, "", run);
    status = status == WEFT_OK ? weft__folder_make(run) : status;
    status = status == WEFT_OK ? lock_run(writer) : status;
    status = status == WEFT_OK ? remove_remains(run) : status;
    status = status == WEFT_OK ? weft__run_claim(run, writer->id) : status;
    if (status != WEFT_OK) {
        if (writer->lock >= 0) {
            close(writer->lock);
        }
        free(writer);
        return status;
    }
    *writer_p = writer;
    return WEFT_OK;
}

weft_status_t weft__checkpoint_writer_close(weft_checkpoint_writer_t *writer)
{
    if (writer == NULL) {
        return WEFT_OK;
    }
    weft_status_t status = weft__checkpoint_wait(writer);
    char why[1024];
    snprintf(why, sizeof(why), "%s", weft_last_error());
    weft_status_t removed = remove_remains(writer->run); /* of what could not be removed before */
    if (status != WEFT_OK) {
        weft__error_restore(why);
    }
    status = status == WEFT_OK ? removed : status;
    close(writer->lock);
    free(writer->memory);
    free(writer);
    return status;
}
