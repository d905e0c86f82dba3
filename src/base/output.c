/* Files that appear whole or not at all.
 *
 *     open       find out what the path leads to; a file without a name beside it (O_TMPFILE)
 *     write      into that
 *     commit     fsync; link it to a temporary name; rename it over the path; fsync the folder
 *
 * Whoever writes holds a lock on its temporary file. One whose lock can be had is what a process
 * that was killed left: it is removed. That needs no process numbers, which other containers give
 * out too. */
#include "base/output.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"

#define PROC_FILES 0x9fa0 /* statfs of /proc */
#define LINKS_MOST 40     /* as the kernel's */
#define NAME_SHOWN 200    /* bytes of a name that its temporary file repeats */
#define BUFFER_BYTES ((size_t)1 << 18)

typedef enum kind {
    WHOLE,  /* temporary, then renamed */
    INSIDE, /* its own name from the start */
    APPEND,
    DIRECT /* a device, a pipe, an open file of this process */
} kind_t;

/* What a path leads to. */
typedef struct target {
    char name[WEFT_PATH_BYTES];   /* without links at its end */
    char folder[WEFT_PATH_BYTES]; /* of name */
    kind_t kind;                  /* WHOLE or DIRECT */
    int own;                      /* DIRECT: the open file of this process that it is, or -1 */
    bool there;
    struct stat about; /* if it is there */
} target_t;

struct weft_output {
    char path[WEFT_PATH_BYTES]; /* as it was given */
    target_t target;
    kind_t kind;
    char temporary[WEFT_PATH_BYTES]; /* "": it has no name */
    int fd;
    bool asked;    /* the folder, for a temporary file */
    int why;       /* errno of the first write that failed */
    uint64_t size; /* APPEND: what holds whole writes */
    FILE *stream;
};

/* ---- what a path leads to ------------------------------------------------------------------- */

static weft_status_t cannot_write(const char *path, int why, bool there)
{
    weft_status_t status = why == ENOENT   ? WEFT_ERR_NOT_FOUND
                           : why == EISDIR ? WEFT_ERR_INVALID
                                           : WEFT_ERR_SYSTEM;
    if (path[0] == '\0') {
        return weft__fail(status, "cannot write a file: its name is empty");
    }
    return weft__fail(status, "cannot write %s: %s%s", path,
                      why == EISDIR ? "it is a folder, not a file" : strerror(why),
                      there ? "; what stood there before is untouched" : "");
}

/* The file may be written, its folder not: nothing can be put beside it. */
static weft_status_t cannot_create(const char *path, const char *folder, int why)
{
    return weft__fail(why == ENOENT ? WEFT_ERR_NOT_FOUND : WEFT_ERR_SYSTEM,
                      "cannot write %s: no file can be created in the folder %s: %s", path, folder,
                      strerror(why));
}

/* target->folder from target->name. */
static int find_folder(target_t *target)
{
    const char *slash = strrchr(target->name, '/');
    int length = slash == NULL ? 1 : slash == target->name ? 1 : (int)(slash - target->name);
    snprintf(target->folder, sizeof(target->folder), "%.*s", length,
             slash == NULL ? "." : target->name);
    return slash != NULL && slash[1] == '\0' ? EISDIR : 0;
}

/* Is this name one of the kernel's links to open files? *own_p: which of ours, or -1. */
static bool is_open_file(const target_t *target, int *own_p)
{
    struct statfs about;
    if (statfs(target->folder, &about) != 0 || about.f_type != PROC_FILES) {
        return false;
    }
    char *folder = realpath(target->folder, NULL), ours[64];
    int length = snprintf(ours, sizeof(ours), "/proc/%d/", (int)getpid());
    const char *number = strrchr(target->name, '/');
    bool own = folder != NULL && number != NULL && strncmp(folder, ours, (size_t)length) == 0 &&
               isdigit((unsigned char)number[1]);
    *own_p = own ? (int)strtol(number + 1, NULL, 10) : -1;
    free(folder);
    return true;
}

/* Replace target->name, a link, by what it names. Returns errno. */
static int follow_link(target_t *target)
{
    char to[WEFT_PATH_BYTES];
    ssize_t length = readlink(target->name, to, sizeof(to) - 1);
    if (length < 0) {
        return errno;
    }
    to[length] = '\0';
    char folder[WEFT_PATH_BYTES];
    memcpy(folder, target->folder, sizeof(folder));
    bool beside = strcmp(folder, ".") == 0 && to[0] != '/';
    return weft__path_join(target->name, beside ? "" : folder, to) == WEFT_OK ? 0 : ENAMETOOLONG;
}

/* Look at what has the name, without following a link. Returns errno. */
static int look_at_name(target_t *target)
{
    target->there = lstat(target->name, &target->about) == 0;
    if (!target->there && errno != ENOENT) {
        return errno;
    }
    if (target->there && S_ISDIR(target->about.st_mode)) {
        return EISDIR;
    }
    bool plain = !target->there || S_ISREG(target->about.st_mode);
    target->kind = plain ? WHOLE : DIRECT;
    return 0;
}

/* Returns errno. */
static int find_target(const char *path, target_t *target)
{
    *target = (target_t){.own = -1};
    if (strcmp(path, "-") == 0) {
        target->kind = DIRECT;
        target->own = STDOUT_FILENO;
        return 0;
    }
    if (path[0] == '\0') {
        return ENOENT;
    }
    if (weft__path_join(target->name, "", path) != WEFT_OK) {
        return ENAMETOOLONG;
    }
    for (int links = 0; links <= LINKS_MOST; links++) {
        int why = find_folder(target);
        why = why == 0 ? look_at_name(target) : why;
        if (why != 0 || !target->there || !S_ISLNK(target->about.st_mode)) {
            return why;
        }
        if (is_open_file(target, &target->own)) {
            target->kind = DIRECT;
            return 0;
        }
        why = follow_link(target);
        if (why != 0) {
            return why;
        }
    }
    return ELOOP;
}

weft_status_t weft__output_check(const char *path)
{
    target_t target;
    int why = find_target(path, &target);
    if (why == 0 && target.own >= 0) {
        int flags = fcntl(target.own, F_GETFL);
        why = flags < 0 ? errno : (flags & O_ACCMODE) == O_RDONLY ? EBADF : 0;
    } else if (why == 0 && target.there && faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) != 0) {
        why = errno;
    } else if (why == 0 && target.kind == WHOLE &&
               faccessat(AT_FDCWD, target.folder, W_OK | X_OK, AT_EACCESS) != 0) {
        return cannot_create(path, target.folder, errno);
    }
    return why == 0 ? WEFT_OK : cannot_write(path, why, false);
}

/* ---- one file by two names ------------------------------------------------------------------ */

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* What is there, or its folder if nothing is. A link that leads to nothing is where it leads. */
static bool find_place(const char *path, target_t *target, struct stat *place)
{
    if (find_target(path, target) != 0) {
        return false; /* whoever opens it says why */
    }
    if (target->own >= 0) {
        return fstat(target->own, place) == 0;
    }
    return stat(target->there ? target->name : target->folder, place) == 0;
}

static const char *last_part(const char *name)
{
    const char *slash = strrchr(name, '/');
    return slash != NULL ? slash + 1 : name;
}

static bool is_one_file(const char *path_a, const char *path_b)
{
    target_t a, b;
    struct stat at_a, at_b;
    if (!find_place(path_a, &a, &at_a) || !find_place(path_b, &b, &at_b) ||
        !same_file(&at_a, &at_b) || S_ISCHR(at_a.st_mode)) {
        /* a terminal takes both, and so does /dev/null; of stdout there is one */
        return strcmp(path_a, "-") == 0 && strcmp(path_b, "-") == 0;
    }
    if (a.kind != WHOLE || b.kind != WHOLE) {
        return true;
    }
    /* A file of two names (a hard link) is replaced under one of them: the other keeps it. */
    return strcmp(last_part(a.name), last_part(b.name)) == 0 && stat(a.folder, &at_a) == 0 &&
           stat(b.folder, &at_b) == 0 && same_file(&at_a, &at_b);
}

weft_status_t weft__outputs_distinct(const weft_output_name_t *names, int count)
{
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < i; k++) {
            const weft_output_name_t *a = &names[k], *b = &names[i];
            bool both = a->path != NULL && a->path[0] != '\0' && b->path != NULL &&
                        b->path[0] != '\0' && !(a->read && b->read);
            if (both && is_one_file(a->path, b->path)) {
                return weft__fail(WEFT_ERR_INVALID,
                                  "%s and %s name the same file, %s: one would replace the other",
                                  a->option, b->option, b->path);
            }
        }
    }
    return WEFT_OK;
}

/* ---- temporary files ------------------------------------------------------------------------ */

/* The next name to try; unlike those of other threads and processes. */
static void next_temporary(weft_output_t *out)
{
    static atomic_uint number; /* relaxed: orders nothing */
    const char *slash = strrchr(out->target.name, '/');
    const char *name = slash != NULL ? slash + 1 : out->target.name;
    char temporary[NAME_SHOWN + 64];
    snprintf(temporary, sizeof(temporary), ".%.*s.%d-%u.tmp", NAME_SHOWN, name, (int)getpid(),
             atomic_fetch_add_explicit(&number, 1, memory_order_relaxed));
    if (weft__path_join(out->temporary, out->target.folder, temporary) != WEFT_OK) {
        out->temporary[0] = '\0';
        errno = ENAMETOOLONG;
    }
}

/* Is `entry` what a writer of `name` calls its temporary file? */
static bool is_temporary(const char *entry, const char *name)
{
    size_t length = strnlen(name, NAME_SHOWN);
    if (entry[0] != '.' || strncmp(entry + 1, name, length) != 0 || entry[1 + length] != '.') {
        return false;
    }
    const char *at = entry + 2 + length;
    size_t pid = strspn(at, "0123456789");
    if (pid == 0 || at[pid] != '-') {
        return false;
    }
    at += pid + 1;
    size_t number = strspn(at, "0123456789");
    return number > 0 && strcmp(at + number, ".tmp") == 0;
}

/* Remove a temporary file if nobody holds its lock. */
static void remove_remain(int folder, const char *name)
{
    struct stat about;
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        return;
    }
    if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && flock(fd, LOCK_EX | LOCK_NB) == 0) {
        unlinkat(folder, name, 0);
    }
    close(fd);
}

/* Remove what writers of the same path left when they were killed. */
static void remove_remains(const target_t *target)
{
    const char *slash = strrchr(target->name, '/');
    const char *name = slash != NULL ? slash + 1 : target->name;
    DIR *dir = opendir(target->folder);
    struct dirent *entry;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (is_temporary(entry->d_name, name)) {
            remove_remain(dirfd(dir), entry->d_name);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
}

/* The new file is as the old one was: for the same people, with the same rights. */
static void keep_mode(const weft_output_t *out)
{
    const struct stat *old = &out->target.about;
    if (!out->target.there) {
        return;
    }
    /* Only root may give it to its owner: otherwise it is ours, as a new file would be. */
    bool kept = fchown(out->fd, old->st_uid, old->st_gid) == 0 ||
                fchown(out->fd, (uid_t)-1, old->st_gid) == 0;
    /* Rights of a group are not for another one. */
    kept = fchmod(out->fd, old->st_mode & (kept ? 0777 : 0707)) == 0 && kept;
    (void)kept;
}

/* A temporary file that has a name. Returns errno. */
static int create_named(weft_output_t *out)
{
    for (;;) {
        next_temporary(out);
        if (out->temporary[0] == '\0') {
            return ENAMETOOLONG;
        }
        out->fd = open(out->temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (out->fd < 0 && errno != EEXIST) {
            int why = errno;
            out->temporary[0] = '\0';
            return why;
        }
        struct stat about;
        if (out->fd >= 0) {
            flock(out->fd, LOCK_EX | LOCK_NB); /* a file system without locks is never tidied */
            if (fstat(out->fd, &about) == 0 && about.st_nlink > 0) {
                return 0;
            }
            close(out->fd); /* another writer took it for what somebody left, before the lock */
        }
    }
}

/* Returns errno. */
static int create_temporary(weft_output_t *out)
{
    char way[32];
    remove_remains(&out->target);
    out->fd = open(out->target.folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
    snprintf(way, sizeof(way), "/proc/self/fd/%d", out->fd);
    if (out->fd >= 0 && access(way, F_OK) != 0) { /* no way to name it later on */
        close(out->fd);
        out->fd = -1;
    }
    if (out->fd >= 0) {
        flock(out->fd, LOCK_EX | LOCK_NB);
        return 0;
    }
    return create_named(out);
}

/* The bytes of a file without a name, where it cannot be given one, under a temporary name. */
static int copy_to_named(weft_output_t *out)
{
    int from = out->fd;
    int why = create_named(out);
    if (why == 0) {
        keep_mode(out);
    }
    off_t at = 0;
    ssize_t sent = 1;
    while (why == 0 && sent > 0) {
        sent = sendfile(out->fd, from, &at, (size_t)1 << 30);
        why = sent < 0 && errno != EINTR ? errno : 0;
        sent = sent < 0 ? 1 : sent;
    }
    if (why == 0 && fsync(out->fd) != 0) {
        why = errno;
    }
    close(from);
    return why;
}

/* Link what has no name to `name`. Returns errno. */
static int link_to(const weft_output_t *out, const char *name)
{
    char way[32];
    snprintf(way, sizeof(way), "/proc/self/fd/%d", out->fd);
    return linkat(AT_FDCWD, way, AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0 ? 0 : errno;
}

static int give_temporary_name(weft_output_t *out)
{
    for (;;) {
        next_temporary(out);
        int why = out->temporary[0] != '\0' ? link_to(out, out->temporary) : ENAMETOOLONG;
        if (why == 0) {
            return 0;
        }
        if (why != EEXIST) {
            out->temporary[0] = '\0';
            return why == ENOSPC || why == EDQUOT || why == EROFS ? why : copy_to_named(out);
        }
    }
}

/* ---- opening -------------------------------------------------------------------------------- */

static ssize_t take(void *context, const char *bytes, size_t count)
{
    weft_output_t *out = context;
    size_t done = 0;
    while (done < count && out->why == 0) {
        ssize_t wrote = write(out->fd, bytes + done, count - done);
        if (wrote > 0) {
            done += (size_t)wrote;
        } else if (wrote == 0 || errno != EINTR) {
            out->why = wrote == 0 ? EIO : errno;
        }
    }
    return out->why == 0 ? (ssize_t)count
                         : 0; /* what was taken of a failed write counts for nobody */
}

static int open_whole(weft_output_t *out)
{
    /* A rename asks the folder only; one who protects a file means the file. */
    if (out->target.there && faccessat(AT_FDCWD, out->target.name, W_OK, AT_EACCESS) != 0) {
        return errno;
    }
    out->asked = true;
    int why = create_temporary(out);
    if (why == 0) {
        keep_mode(out);
    }
    return why;
}

static int open_fd(weft_output_t *out, uint64_t keep)
{
    switch (out->kind) {
    case WHOLE:
        return open_whole(out);
    case INSIDE:
        out->fd = open(out->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        break;
    case APPEND:
        out->fd = open(out->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        if (out->fd >= 0 && ftruncate(out->fd, (off_t)keep) != 0) {
            return errno;
        }
        break;
    case DIRECT:
        out->fd = out->target.own >= 0
                      ? fcntl(out->target.own, F_DUPFD_CLOEXEC, 0)
                      : open(out->path, O_WRONLY | O_NOCTTY | O_CLOEXEC | O_APPEND);
        break;
    }
    return out->fd >= 0 ? 0 : errno;
}

static weft_status_t open_as(const char *path, kind_t kind, uint64_t keep, weft_output_t **out_p)
{
    weft_output_t *out = calloc(1, sizeof(*out));
    if (out == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to write %s", path);
    }
    weft_status_t status;
    out->fd = -1;
    int why = weft__path_join(out->path, "", path) == WEFT_OK ? 0 : ENAMETOOLONG;
    why = why == 0 ? find_target(path, &out->target) : why;
    out->kind = out->target.kind == DIRECT ? DIRECT : kind;
    why = why == 0 ? open_fd(out, keep) : why;
    if (why == 0 && kind != APPEND) {
        out->stream = fopencookie(out, "w", (cookie_io_functions_t){.write = take});
        why = out->stream != NULL && setvbuf(out->stream, NULL, _IOFBF, BUFFER_BYTES) == 0 ? 0
                                                                                           : ENOMEM;
    }
    if (why != 0) {
        status = out->fd < 0 && out->asked ? cannot_create(path, out->target.folder, why)
                                           : cannot_write(path, why, false);
        weft__output_discard(out);
        return status;
    }
    out->size = keep;
    *out_p = out;
    return WEFT_OK;
}

weft_status_t weft__output_open(const char *path, weft_output_t **out_p)
{
    return open_as(path, WHOLE, 0, out_p);
}

weft_status_t weft__output_open_inside(const char *path, weft_output_t **out_p)
{
    return open_as(path, INSIDE, 0, out_p);
}

weft_status_t weft__output_append(const char *path, uint64_t keep, weft_output_t **out_p)
{
    return open_as(path, APPEND, keep, out_p);
}

/* ---- writing -------------------------------------------------------------------------------- */

FILE *weft__output_stream(weft_output_t *out)
{
    return out->stream;
}

static weft_status_t write_failed(const weft_output_t *out)
{
    return cannot_write(out->path, out->why, out->kind == WHOLE && out->target.there);
}

weft_status_t weft__output_write(weft_output_t *out, const void *bytes, size_t count)
{
    if (out->stream != NULL) {
        fwrite(bytes, 1, count, out->stream);
        return out->why == 0 ? WEFT_OK : write_failed(out);
    }
    take(out, bytes, count);
    if (out->why == 0) {
        out->size += count;
        return WEFT_OK;
    }
    weft_status_t status = write_failed(out);
    /* What may be there of it would spoil the next. */
    if (out->kind == DIRECT || ftruncate(out->fd, (off_t)out->size) == 0) {
        out->why = 0;
    }
    return status;
}

weft_status_t weft__output_patch(weft_output_t *out, uint64_t offset, const void *bytes,
                                 size_t count)
{
    const char *at = bytes;
    fflush(out->stream);
    while (count > 0 && out->why == 0) {
        ssize_t wrote = pwrite(out->fd, at, count, (off_t)offset);
        if (wrote > 0) {
            at += wrote;
            offset += (uint64_t)wrote;
            count -= (size_t)wrote;
        } else if (wrote == 0 || errno != EINTR) {
            out->why = wrote == 0 ? EIO : errno;
        }
    }
    return out->why == 0 ? WEFT_OK : write_failed(out);
}

/* ---- the end -------------------------------------------------------------------------------- */

/* Everything that was written is in the file, and durable where that means anything. */
static void flush(weft_output_t *out)
{
    if (out->stream != NULL) {
        int failed = fclose(out->stream);
        out->stream = NULL;
        out->why = out->why == 0 && failed != 0 ? EIO : out->why;
    }
    if (out->why == 0 && out->kind != DIRECT && fsync(out->fd) != 0) {
        out->why = errno;
    }
}

/* Give it the name. `fresh`: only if nobody has it. */
static void take_name(weft_output_t *out, bool fresh)
{
    const char *name = out->target.name;
    bool nameless = out->temporary[0] == '\0';
    if (nameless && (fresh || !out->target.there)) {
        int why = link_to(out, name);
        if (why == 0 || (fresh && why == EEXIST)) {
            return;
        }
    }
    out->why = nameless ? give_temporary_name(out) : 0;
    if (out->why != 0) {
        return;
    }
    if (fresh) {
        out->why = link(out->temporary, name) == 0 || errno == EEXIST ? 0 : errno;
        unlink(out->temporary);
    } else {
        out->why = rename(out->temporary, name) == 0 ? 0 : errno;
    }
    if (out->why == 0) {
        out->temporary[0] = '\0';
    }
}

static weft_status_t finish(weft_output_t *out, bool fresh)
{
    weft_status_t status = WEFT_OK;
    flush(out);
    if (out->why == 0 && out->kind == WHOLE) {
        take_name(out, fresh);
    }
    if (out->why != 0) {
        status = write_failed(out);
    } else if (out->kind == WHOLE) {
        status = weft__folder_sync(out->target.folder);
    }
    int fd = out->fd;
    out->fd = -1;
    if (close(fd) != 0 && status == WEFT_OK && out->kind != WHOLE) {
        out->why = errno; /* as of files on other hosts; a whole one has been synced */
        status = write_failed(out);
    }
    int why = out->why;
    weft__output_discard(out);
    errno = why;
    return status;
}

weft_status_t weft__output_commit(weft_output_t *out)
{
    return finish(out, false);
}

weft_status_t weft__output_offer(weft_output_t *out)
{
    return finish(out, true);
}

weft_status_t weft__output_end(weft_output_t *out, weft_status_t status)
{
    if (status != WEFT_OK && out->why == 0) {
        weft__output_discard(out);
        return status;
    }
    int why = out->why;
    status = weft__output_commit(out);
    if (status != WEFT_OK && why != 0) {
        errno = why;
    }
    return status;
}

void weft__output_discard(weft_output_t *out)
{
    if (out == NULL) {
        return;
    }
    if (out->stream != NULL) {
        out->why = out->why == 0 ? ECANCELED : out->why; /* what is in the buffer goes nowhere */
        fclose(out->stream);
    }
    if (out->temporary[0] != '\0') {
        unlink(out->temporary);
    }
    if (out->fd >= 0) {
        close(out->fd);
    }
    free(out);
}
