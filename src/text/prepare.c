/* Turning texts into token shards, once per set of files and tokenizer. The folder that holds
 * them appears by a rename when all is written, so that one that is there is complete. */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "text/data.h"
#include "text/shards.h"
#include "text/sources.h"

#define CHUNK_BYTES ((size_t)1 << 20) /* of text, encoded at once */

/* Texts on their way into shards. */
typedef struct encoder {
    weft_tokenizer_t *tokenizer;
    weft_shard_writer_t *writer;
    weft_tokens_t tokens; /* room */
    const weft_data_watch_t *watch;
    uint64_t done, total; /* bytes */
} encoder_t;

static void tell(const encoder_t *e)
{
    if (e->watch != NULL) {
        e->watch->encoded(e->watch->ctx, e->done, e->total);
    }
}

static weft_status_t encode_part(encoder_t *e, const char *text, size_t length)
{
    tell(e);
    e->tokens.count = 0;
    WEFT_TRY(weft__tokenizer_encode(e->tokenizer, text, length, true, &e->tokens));
    e->done += length;
    return weft__shards_write(e->writer, e->tokens.at, e->tokens.count);
}

static weft_status_t encode_file(encoder_t *e, const char *path)
{
    weft_mapped_t file;
    weft_status_t status = weft__file_map(path, &file);
    if (status != WEFT_OK) {
        return status;
    }
    const char *text = (const char *)file.data;
    size_t left = file.size, take = CHUNK_BYTES;
    while (left > 0 && status == WEFT_OK) {
        size_t part = left;
        if (take < left) {
            part = weft__tokenizer_cut(e->tokenizer, text, take);
            if (part == 0) { /* no good place yet: look further on */
                take *= 2;
                continue;
            }
        }
        status = encode_part(e, text, part);
        text += part;
        left -= part;
        take = CHUNK_BYTES;
    }
    weft__file_unmap(&file);
    int64_t end = weft__tokenizer_end(e->tokenizer);
    if (status == WEFT_OK && end >= 0) {
        uint32_t token = (uint32_t)end;
        status = weft__shards_write(e->writer, &token, 1);
    }
    return status;
}

static weft_status_t encode_all(const weft_sources_t *texts, weft_tokenizer_t *tokenizer,
                                const char *folder, const weft_data_watch_t *watch)
{
    encoder_t e = {.tokenizer = tokenizer, .watch = watch};
    int token_bytes = weft__tokenizer_vocab(tokenizer) <= 65536 ? 2 : 4;
    weft_status_t status = weft__shards_create(folder, token_bytes, 0, &e.writer);
    if (status != WEFT_OK) {
        return status;
    }
    for (int i = 0; i < texts->count; i++) {
        e.total += texts->files[i].size;
    }
    for (int i = 0; i < texts->count && status == WEFT_OK; i++) {
        status = encode_file(&e, texts->files[i].path);
    }
    free(e.tokens.at);
    if (status != WEFT_OK) {
        weft__shards_abandon(e.writer);
        return status;
    }
    tell(&e);
    return weft__shards_finish(e.writer, NULL);
}

static weft_status_t make_cache(const char *cache)
{
    char why[512] = "HOME is not set";
    weft_status_t status = WEFT_ERR_INVALID;
    if (cache[0] != '\0') {
        status = weft__folder_make(cache);
        snprintf(why, sizeof(why), "%s", weft_last_error());
    }
    return status == WEFT_OK ? WEFT_OK
                             : weft__fail(status,
                                          "there is no place for the tokens of the text: %s; give "
                                          "--out a folder that can be written",
                                          why);
}

/* Remove what a process of this host that was killed left half made. */
static void remove_remains(const char *cache, const char *prefix)
{
    DIR *dir = opendir(cache);
    struct dirent *entry;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        char path[WEFT_PATH_BYTES], *end;
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0) {
            continue;
        }
        long pid = strtol(entry->d_name + strlen(prefix), &end, 10);
        if (pid > 0 && strcmp(end, ".tmp") == 0 && kill((pid_t)pid, 0) != 0 && errno == ESRCH &&
            weft__path_join(path, cache, entry->d_name) == WEFT_OK) {
            weft__path_remove(path);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
}

/* Encode into a temporary folder and rename it. */
static weft_status_t fill_cache(const weft_sources_t *texts, weft_tokenizer_t *tokenizer,
                                const char *cache, const char *folder,
                                const weft_data_watch_t *watch)
{
    char temporary[WEFT_PATH_BYTES], name[128], prefix[96], host[64] = "";
    gethostname(host, sizeof(host) - 1);
    snprintf(prefix, sizeof(prefix), ".tokens-%s-", host);
    snprintf(name, sizeof(name), "%s%d.tmp", prefix, (int)getpid());
    WEFT_TRY(make_cache(cache));
    WEFT_TRY(weft__path_join(temporary, cache, name));
    remove_remains(cache, prefix);
    weft_status_t status = weft__path_remove(temporary);
    status = status == WEFT_OK ? weft__folder_make(temporary) : status;
    status = status == WEFT_OK ? encode_all(texts, tokenizer, temporary, watch) : status;
    if (status == WEFT_OK && rename(temporary, folder) != 0) {
        int error = errno;
        bool there;
        status = weft__is_folder(folder, &there);
        if (status == WEFT_OK && !there) { /* or another process was faster */
            status = weft__fail(WEFT_ERR_SYSTEM, "cannot rename %s to %s: %s", temporary, folder,
                                strerror(error));
        }
    }
    if (status == WEFT_OK) {
        status = weft__folder_sync(cache);
    }
    char why[512];
    snprintf(why, sizeof(why), "%s", weft_last_error());
    weft__path_remove(temporary); /* gone, unless something failed or another was faster */
    weft__error_restore(why);
    return status;
}

weft_status_t weft__data_prepare(const char *path, weft_tokenizer_t *tokenizer, const char *cache,
                                 const weft_data_watch_t *watch)
{
    weft_sources_t sources;
    weft_status_t status = weft__sources_find(path, &sources);
    if (status != WEFT_OK) {
        return status;
    }
    char folder[WEFT_PATH_BYTES];
    if (!sources.shards && tokenizer == NULL) {
        status = weft__fail(WEFT_ERR_INVALID,
                            "%s is text, but the data to train on is tokens: give the --tokenizer "
                            "that they were made with",
                            path);
    } else if (!sources.shards) {
        bool there = false;
        status = weft__sources_cache(&sources, tokenizer, cache, folder);
        status = status == WEFT_OK ? weft__is_folder(folder, &there) : status;
        if (status == WEFT_OK && !there) {
            status = fill_cache(&sources, tokenizer, cache, folder, watch);
        }
    }
    weft__sources_free(&sources);
    return status;
}
