/* Files: whole, mapped, replaced at once. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/log.h"
#include "base/output.h"

static weft_status_t system_error(const char *what, const char *path)
{
    return weft__fail(errno == ENOENT ? WEFT_ERR_NOT_FOUND : WEFT_ERR_SYSTEM, "cannot %s %s: %s",
                      what, path, strerror(errno));
}

weft_status_t weft__path_join(char *out, const char *folder, const char *name)
{
    bool alone = name[0] == '/' || folder[0] == '\0';
    int length = snprintf(out, WEFT_PATH_BYTES, "%s%s%s", alone ? "" : folder, alone ? "" : "/",
                          name);
    if (length < 0 || length >= WEFT_PATH_BYTES) {
        return weft__fail(WEFT_ERR_INVALID, "the path %.40s.../%.40s is longer than %d bytes",
                          folder, name, WEFT_PATH_BYTES - 1);
    }
    return WEFT_OK;
}

/* Open a regular file for reading and tell its size. */
static weft_status_t open_regular(const char *path, int *fd_p, size_t *size_p)
{
    int fd = open(path,
                  O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe nobody writes into is no file */
    if (fd < 0) {
        return system_error("open", path);
    }
    struct stat about;
    weft_status_t status = WEFT_OK;
    if (fstat(fd, &about) != 0) {
        status = system_error("look at", path);
    } else if (!S_ISREG(about.st_mode)) {
        status = weft__fail(WEFT_ERR_INVALID, "%s is %s, not a file", path,
                            S_ISDIR(about.st_mode) ? "a folder" : "a device or pipe");
    }
    if (status != WEFT_OK) {
        close(fd);
        return status;
    }
    *fd_p = fd;
    *size_p = (size_t)about.st_size;
    return WEFT_OK;
}

weft_status_t weft__file_map(const char *path, weft_mapped_t *out_p)
{
    int fd;
    size_t size;
    weft_status_t status = open_regular(path, &fd, &size);
    if (status != WEFT_OK) {
        return status;
    }
    void *data = (void *)"";
    if (size > 0) {
        data = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    }
    if (data == MAP_FAILED) {
        status = system_error("map", path);
    } else {
        out_p->data = data;
        out_p->size = size;
    }
    close(fd);
    return status;
}

void weft__file_unmap(weft_mapped_t *mapped)
{
    if (mapped->size > 0) {
        munmap((void *)mapped->data, mapped->size);
    }
    mapped->data = NULL;
    mapped->size = 0;
}

/* Read until the end, whatever the size was said to be. */
static weft_status_t read_all(int fd, const char *path, size_t expected, char **text_p,
                              size_t *size_p)
{
    size_t room = expected + 1, size = 0;
    char *text = malloc(room);
    while (text != NULL) {
        ssize_t got = read(fd, text + size, room - size);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            weft_status_t status = system_error("read", path);
            free(text);
            return status;
        }
        size += (size_t)got;
        if (got == 0) {
            text[size] = '\0'; /* there is room: read was asked for a byte at least */
            *text_p = text;
            *size_p = size;
            return WEFT_OK;
        }
        if (size == room) {
            room *= 2;
            char *larger = realloc(text, room);
            if (larger == NULL) {
                free(text);
            }
            text = larger;
        }
    }
    return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for the %zu bytes of %s", room, path);
}

weft_status_t weft__file_read(const char *path, char **text_p, size_t *size_p)
{
    int fd;
    size_t size = 0, expected;
    WEFT_TRY(open_regular(path, &fd, &expected));
    weft_status_t status = read_all(fd, path, expected, text_p, &size);
    close(fd);
    if (status == WEFT_OK && size_p != NULL) {
        *size_p = size;
    }
    return status;
}

weft_status_t weft__folder_sync(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return system_error("open", path);
    }
    weft_status_t status = WEFT_OK;
    /* Some file systems cannot sync folders and say so; they have nothing to be made durable. */
    if (fsync(fd) != 0 && errno != EINVAL && errno != EROFS) {
        status = system_error("sync", path);
    }
    close(fd);
    return status;
}

weft_status_t weft__file_replace(const char *path, const void *bytes, size_t size)
{
    weft_output_t *out;
    WEFT_TRY(weft__output_open(path, &out));
    return weft__output_end(out, weft__output_write(out, bytes, size));
}

weft_status_t weft__folder_make(const char *path)
{
    char part[WEFT_PATH_BYTES];
    WEFT_TRY(weft__path_join(part, "", path));
    for (char *slash = part; slash != NULL;) {
        slash = strchr(slash + 1, '/');
        if (slash != NULL) {
            *slash = '\0';
        }
        if (mkdir(part, 0777) != 0) {
            bool there = false;
            if (errno == EEXIST) {
                WEFT_TRY(weft__is_folder(part, &there));
                errno = ENOTDIR;
            }
            if (!there) {
                return system_error("create the folder", part);
            }
        }
        if (slash != NULL) {
            *slash = '/';
        }
    }
    return WEFT_OK;
}

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *walk)
{
    (void)about, (void)kind, (void)walk;
    return remove(path) != 0 && errno != ENOENT ? -1 : 0;
}

weft_status_t weft__path_remove(const char *path)
{
    if (nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT) {
        return system_error("remove", path);
    }
    return WEFT_OK;
}

static weft_status_t is_kind(const char *path, mode_t kind, bool *is_p)
{
    struct stat about;
    int error = stat(path, &about) == 0 ? 0 : errno;
    *is_p = error == 0 && (about.st_mode & S_IFMT) == kind;
    return error == 0 || error == ENOENT || error == ENOTDIR ? WEFT_OK
                                                             : system_error("look at", path);
}

weft_status_t weft__is_folder(const char *path, bool *is_p)
{
    return is_kind(path, S_IFDIR, is_p);
}

weft_status_t weft__is_file(const char *path, bool *is_p)
{
    return is_kind(path, S_IFREG, is_p);
}

uint64_t weft__disk_free(const char *path)
{
    struct statvfs about;
    if (statvfs(path, &about) != 0 || about.f_blocks == 0) {
        return UINT64_MAX; /* some file systems count nothing */
    }
    return (uint64_t)about.f_bavail * about.f_frsize;
}
