/* Finding data files. */
#include "text/sources.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mac.h"
#include "text/shards.h"

#define FOLDER_DEPTH 32
#define LOOK_BYTES 8192 /* of a file, to see whether it is text */

static bool is_shard_name(const char *path)
{
    size_t length = strlen(path);
    return length > 4 && strcmp(path + length - 4, ".bin") == 0;
}

static weft_status_t add(weft_sources_t *sources, const char *path, const struct stat *about,
                         bool shard)
{
    if (sources->count == sources->room) {
        int room = sources->room * 2 + 64;
        weft_source_file_t *files = realloc(sources->files, (size_t)room * sizeof(*files));
        if (files == NULL) {
            return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a list of %d files", room);
        }
        sources->files = files;
        sources->room = room;
    }
    char *copy = strdup(path);
    if (copy == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for the name of %s", path);
    }
    sources->files[sources->count++] = (weft_source_file_t){copy, (uint64_t)about->st_size,
                                                            (int64_t)about->st_mtim.tv_sec,
                                                            (int64_t)about->st_mtim.tv_nsec, shard};
    return WEFT_OK;
}

/* What a file is by its start: a NUL is in no text, and shards have a magic number. */
static void look(const char *path, bool *text_p, bool *shard_p)
{
    char bytes[LOOK_BYTES];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, bytes, sizeof(bytes)) : -1;
    if (fd >= 0) {
        close(fd);
    }
    /* What cannot be read passes for text: reading it will say why. */
    *text_p = got <= 0 || memchr(bytes, '\0', (size_t)got) == NULL;
    *shard_p = is_shard_name(path) && got > 0 && weft__shard_magic(bytes, (size_t)got);
}

/* Is it a run folder of ours? What training wrote is nothing to train on. */
static weft_status_t is_run(const char *folder, bool *is_p)
{
    char path[WEFT_PATH_BYTES];
    WEFT_TRY(weft__path_join(path, folder, "metrics.jsonl"));
    return weft__is_file(path, is_p);
}

static weft_status_t walk(const char *folder, int depth, weft_sources_t *sources);

static weft_status_t walk_below(const char *folder, int depth, weft_sources_t *sources)
{
    bool run;
    if (depth > FOLDER_DEPTH) {
        return weft__fail(WEFT_ERR_INVALID, "%s: folders are nested deeper than %d", folder,
                          FOLDER_DEPTH);
    }
    WEFT_TRY(is_run(folder, &run));
    return run ? WEFT_OK : walk(folder, depth, sources);
}

/* Add what is in a folder. Links to folders are not followed, so that there is no way round in
 * circles. */
static weft_status_t walk(const char *folder, int depth, weft_sources_t *sources)
{
    DIR *dir = opendir(folder);
    if (dir == NULL) {
        return weft__fail(WEFT_ERR_SYSTEM, "cannot read the folder %s: %s", folder,
                          strerror(errno));
    }
    weft_status_t status = WEFT_OK;
    struct dirent *entry;
    while (status == WEFT_OK && (errno = 0, entry = readdir(dir)) != NULL) {
        char path[WEFT_PATH_BYTES];
        struct stat about;
        if (entry->d_name[0] == '.') {
            continue;
        }
        status = weft__path_join(path, folder, entry->d_name);
        if (status != WEFT_OK) {
            break;
        }
        if (lstat(path, &about) != 0) {
            if (errno != ENOENT) { /* or it was removed meanwhile */
                status = weft__fail(WEFT_ERR_SYSTEM, "cannot look at %s: %s", path,
                                    strerror(errno));
            }
            continue;
        }
        if (S_ISDIR(about.st_mode)) {
            status = walk_below(path, depth + 1, sources);
        } else if (stat(path, &about) != 0) {
            if (errno != ENOENT && errno != ELOOP && errno != ENOTDIR) { /* or a link to nothing */
                status = weft__fail(WEFT_ERR_SYSTEM, "cannot look at %s: %s", path,
                                    strerror(errno));
            }
        } else if (S_ISREG(about.st_mode) && about.st_size > 0) {
            bool text, shard;
            look(path, &text, &shard);
            status = text || shard ? add(sources, path, &about, shard) : WEFT_OK;
        }
    }
    if (status == WEFT_OK && errno != 0) {
        status = weft__fail(WEFT_ERR_SYSTEM, "cannot read the folder %s to its end: %s", folder,
                            strerror(errno));
    }
    closedir(dir);
    return status;
}

static weft_status_t find_pattern(const char *pattern, weft_sources_t *sources)
{
    glob_t found;
    int result = glob(pattern, 0, NULL, &found);
    if (result == GLOB_NOMATCH) {
        return weft__fail(WEFT_ERR_NOT_FOUND, "there is no file %s", pattern);
    }
    if (result != 0) {
        return weft__fail(WEFT_ERR_SYSTEM, "cannot look for files %s", pattern);
    }
    weft_status_t status = WEFT_OK;
    for (size_t i = 0; i < found.gl_pathc && status == WEFT_OK; i++) {
        struct stat about;
        if (stat(found.gl_pathv[i], &about) == 0 && S_ISREG(about.st_mode)) {
            status = add(sources, found.gl_pathv[i], &about, is_shard_name(found.gl_pathv[i]));
        }
    }
    globfree(&found);
    return status;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const weft_source_file_t *)a)->path, ((const weft_source_file_t *)b)->path);
}

/* A folder with shards beside text (a README) means its shards. */
static void decide_kind(weft_sources_t *sources)
{
    int shards = 0, kept = 0;
    for (int i = 0; i < sources->count; i++) {
        shards += sources->files[i].shard ? 1 : 0;
    }
    sources->shards = shards > 0;
    for (int i = 0; i < sources->count && shards > 0; i++) {
        if (sources->files[i].shard) {
            sources->files[kept++] = sources->files[i];
        } else {
            free(sources->files[i].path);
        }
    }
    sources->count = shards > 0 ? kept : sources->count;
}

weft_status_t weft__sources_find(const char *path, weft_sources_t *out)
{
    weft_sources_t sources = {0};
    struct stat about;
    weft_status_t status;
    if (path[0] == '\0') {
        return weft__fail(WEFT_ERR_INVALID,
                          "no data is given; --data takes a text file, a folder, or "
                          "token shards of llm.c");
    }
    int error = stat(path, &about) == 0 ? 0 : errno;
    if (error == 0 && S_ISDIR(about.st_mode)) {
        status = walk(path, 0, &sources);
    } else if (error == EIO || error == ENOMEM) {
        status = weft__fail(WEFT_ERR_SYSTEM, "cannot look at %s: %s", path, strerror(error));
    } else if (error == 0) {
        status = S_ISREG(about.st_mode)
                     ? add(&sources, path, &about, is_shard_name(path))
                     : weft__fail(WEFT_ERR_INVALID, "%s is no file or folder", path);
    } else {
        status = find_pattern(path, &sources);
    }
    if (status == WEFT_OK && sources.count == 0) {
        status = weft__fail(WEFT_ERR_INVALID,
                            "%s holds no text and no token shards (hidden, empty and "
                            "binary files do not count)",
                            path);
    }
    if (status == WEFT_OK && sources.count == 1 && sources.files[0].size == 0) {
        status = weft__fail(WEFT_ERR_INVALID, "%s is empty", path);
    }
    if (status != WEFT_OK) {
        weft__sources_free(&sources);
        return status;
    }
    qsort(sources.files, (size_t)sources.count, sizeof(*sources.files), by_path);
    decide_kind(&sources);
    *out = sources;
    return WEFT_OK;
}

void weft__sources_free(weft_sources_t *sources)
{
    for (int i = 0; i < sources->count; i++) {
        free(sources->files[i].path);
    }
    free(sources->files);
    *sources = (weft_sources_t){0};
}

weft_status_t weft__sources_cache(const weft_sources_t *sources, const weft_tokenizer_t *tokenizer,
                                  const char *cache, char *out)
{
    static const uint8_t key[WEFT_MAC_KEY_BYTES] = "weft token cache";
    uint8_t mac[WEFT_MAC_BYTES];
    char *text = NULL, name[64];
    size_t size = 0;
    FILE *list = open_memstream(&text, &size);
    if (list == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a list of %d files", sources->count);
    }
    fprintf(list, "%" PRIx32 "\n", weft__tokenizer_identity(tokenizer));
    for (int i = 0; i < sources->count; i++) {
        const weft_source_file_t *file = &sources->files[i];
        fprintf(list, "%s %" PRIu64 " %" PRId64 ".%09" PRId64 "\n", file->path, file->size,
                file->seconds, file->nanoseconds);
    }
    if (fclose(list) != 0) {
        free(text);
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a list of %d files", sources->count);
    }
    weft__mac(key, text, size, mac);
    free(text);
    int at = snprintf(name, sizeof(name), ".tokens-"); /* hidden: it may lie in the data */
    for (int i = 0; i < 8; i++) {
        at += snprintf(name + at, sizeof(name) - (size_t)at, "%02x", mac[i]);
    }
    return weft__path_join(out, cache, name);
}
