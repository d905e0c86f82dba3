/* Writing the files of one checkpoint. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/log.h"
#include "train/checkpoint_parts.h"

#define PIECE_BYTES ((size_t)4 << 20) /* read and written at once */

static weft_status_t write_source(weft_tensor_writer_t *writer, const weft_tensor_source_t *source,
                                  char *piece)
{
    uint64_t bytes = weft__tensor_bytes(&source->form);
    weft_status_t status = WEFT_OK;
    for (uint64_t at = 0; at < bytes && status == WEFT_OK; at += PIECE_BYTES) {
        size_t count = bytes - at < PIECE_BYTES ? (size_t)(bytes - at) : PIECE_BYTES;
        const char *from = piece;
        if (source->data != NULL) {
            from = (const char *)source->data + at;
        } else {
            status = source->read(source->ctx, at, piece, count);
        }
        status = status == WEFT_OK ? weft__tensors_write(writer, from, count) : status;
    }
    return status;
}

static weft_status_t write_sources(const char *path, const weft_tensor_source_t *sources, int count,
                                   weft_listed_file_t *listed)
{
    static const char *const metadata[] = {"format", "pt", NULL}; /* transformers asks for it */
    weft_tensor_form_t *forms = calloc((size_t)count + 1, sizeof(*forms));
    char *piece = malloc(PIECE_BYTES);
    weft_tensor_writer_t *writer = NULL;
    weft_status_t status = WEFT_OK;
    if (forms == NULL || piece == NULL) {
        status = weft__fail(WEFT_ERR_NO_MEMORY, "no memory to write %s", path);
        goto out;
    }
    for (int i = 0; i < count; i++) {
        forms[i] = sources[i].form;
    }
    status = weft__tensors_create(path, forms, count, metadata, &writer);
    for (int i = 0; i < count && status == WEFT_OK; i++) {
        status = write_source(writer, &sources[i], piece);
    }
    if (status == WEFT_OK) {
        status = weft__tensors_finish(writer, &listed->bytes, &listed->crc);
    } else {
        weft__tensors_abandon(writer);
    }
out:
    free(forms);
    free(piece);
    return status;
}

/* A new entry of the list, and the path of its file. */
static weft_status_t list(const char *folder, const char *name, weft_manifest_t *manifest,
                          weft_listed_file_t **listed_p, char *path)
{
    *listed_p = &manifest->files[manifest->count++]; /* 5 of 8 */
    memcpy((*listed_p)->name, name, strlen(name) + 1);
    return weft__path_join(path, folder, name);
}

static weft_status_t write_tensors(const char *folder, const char *name,
                                   const weft_tensor_source_t *sources, int count,
                                   weft_manifest_t *manifest)
{
    char path[WEFT_PATH_BYTES];
    weft_listed_file_t *listed;
    WEFT_TRY(list(folder, name, manifest, &listed, path));
    return write_sources(path, sources, count, listed);
}

static weft_status_t write_text(const char *folder, const char *name, const char *text,
                                weft_manifest_t *manifest)
{
    char path[WEFT_PATH_BYTES];
    weft_listed_file_t *listed;
    if (text == NULL) {
        return WEFT_OK;
    }
    weft_status_t status = list(folder, name, manifest, &listed, path);
    listed->bytes = strlen(text);
    listed->crc = weft__crc32c(0, text, listed->bytes);
    return status == WEFT_OK ? weft__file_replace(path, text, listed->bytes) : status;
}

/* Let the files be read from the disk when they are compared, and not from memory. */
static void forget_pages(const char *folder, const weft_manifest_t *manifest)
{
    for (int i = 0; i < manifest->count; i++) {
        char path[WEFT_PATH_BYTES];
        int fd = weft__path_join(path, folder, manifest->files[i].name) == WEFT_OK
                     ? open(path, O_RDONLY | O_CLOEXEC)
                     : -1;
        if (fd >= 0) {
            posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
            close(fd);
        }
    }
}

weft_status_t weft__checkpoint_write(const char *folder, const char *id,
                                     const weft_checkpoint_t *checkpoint, uint64_t *bytes_p)
{
    weft_manifest_t manifest = {.state = checkpoint->state,
                                .settings = (char *)checkpoint->settings};
    memcpy(manifest.run, id, sizeof(manifest.run));
    weft_status_t status = write_tensors(folder, WEFT_CHECKPOINT_MODEL, checkpoint->model,
                                         checkpoint->model_count, &manifest);
    if (status == WEFT_OK && checkpoint->optimizer_count > 0) {
        status = write_tensors(folder, WEFT_CHECKPOINT_OPTIMIZER, checkpoint->optimizer,
                               checkpoint->optimizer_count, &manifest);
    }
    if (status == WEFT_OK && checkpoint->residual_count > 0) {
        status = write_tensors(folder, WEFT_CHECKPOINT_RESIDUALS, checkpoint->residuals,
                               checkpoint->residual_count, &manifest);
    }
    status = status == WEFT_OK
                 ? write_text(folder, "config.json", checkpoint->config_json, &manifest)
                 : status;
    status = status == WEFT_OK
                 ? write_text(folder, "tokenizer.json", checkpoint->tokenizer_json, &manifest)
                 : status;
    status = status == WEFT_OK ? weft__manifest_write(folder, &manifest) : status;
    status = status == WEFT_OK ? weft__folder_sync(folder) : status;
    if (status == WEFT_OK) {
        forget_pages(folder, &manifest);
        status = weft__manifest_verify(folder, &manifest, WEFT_LOAD_ALL);
    }
    *bytes_p = 0;
    for (int i = 0; i < manifest.count; i++) {
        *bytes_p += manifest.files[i].bytes;
    }
    return status;
}

/* ---- names ---------------------------------------------------------------------------------- */

const char *weft__checkpoint_name(uint64_t number, char name[WEFT_CHECKPOINT_NAME])
{
    snprintf(name, WEFT_CHECKPOINT_NAME, "step-%06" PRIu64, number);
    return name;
}

int64_t weft__checkpoint_number(const char *name)
{
    char *end;
    if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9') {
        return -1;
    }
    errno = 0;
    long long number = strtoll(name + 5, &end, 10);
    return *end == '\0' && errno == 0 ? number : -1;
}

int64_t weft__checkpoint_newest(const char *run, int64_t below)
{
    DIR *dir = opendir(run);
    int64_t newest = WEFT_CHECKPOINT_NONE;
    struct dirent *entry;
    if (dir == NULL && (errno == ENOENT || errno == ENOTDIR)) {
        return WEFT_CHECKPOINT_NONE;
    }
    while (dir != NULL && (errno = 0, entry = readdir(dir)) != NULL) {
        int64_t number = weft__checkpoint_number(entry->d_name);
        newest = number > newest && number < below ? number : newest;
    }
    if (errno != 0) {
        weft__fail(WEFT_ERR_SYSTEM, "cannot list what is in %s: %s", run, strerror(errno));
        newest = WEFT_CHECKPOINT_UNKNOWN;
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return newest;
}
