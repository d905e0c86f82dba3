/* Faults below the library: loaded before libc (LD_PRELOAD), it stands between a program of Weft's
 * and the system, and lets the K-th operation of a kind fail. faults.h says how it is told which.
 *
 * Only calls from Weft's own code count, which is in the program or in libweft: what hwloc, BLAS or
 * libc do when memory runs out inside of them is theirs. Where libc works on behalf of a caller
 * (stdio, strdup, opendir) the call itself fails, and so does each allocation inside of stdio.
 * Writes to stderr never fail: nobody could say so. */
#undef _FORTIFY_SOURCE /* its inline forms of what is defined here cannot be replaced */

#include "faults/faults.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <link.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define MOST_RANGES 16
#define SMALL_MESSAGE 16

/* A failed stream says so to ferror ever after; glibc's own flag. */
#define STREAM_ERROR 0x20

typedef enum { HOW_ERROR, HOW_SHORT, HOW_END, HOW_KILL } how_t;

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

static struct {
    uintptr_t from, to, base;
    char name[256];
} ranges[MOST_RANGES]; /* code of Weft's */
static int range_count;
static fault_state_t *state; /* NULL: nothing is counted in this process */
static int armed = -1;       /* the kind that fails, or -1 */
static int armed_at;
static bool every; /* from armed_at on */
static how_t how;
static int error_number;
static _Thread_local const void *on_behalf; /* who called stdio, while in it */

static const char *const op_names[] = {
#define FAULT_NAME(name) #name,
    FAULT_OPS(FAULT_NAME)
#undef FAULT_NAME
};

static const struct {
    const char *name;
    int number;
} error_names[] = {
    {"ENOSPC", ENOSPC},
    {"EIO", EIO},
    {"ENOMEM", ENOMEM},
    {"EAGAIN", EAGAIN},
    {"EMFILE", EMFILE},
    {"EPIPE", EPIPE},
    {"ECONNREFUSED", ECONNREFUSED},
    {"EACCES", EACCES},
    {"EINTR", EINTR},
    {"ECONNRESET", ECONNRESET},
    {"ETIMEDOUT", ETIMEDOUT},
    {"EXDEV", EXDEV},
    {"EINVAL", EINVAL},
    {"ENOSYS", ENOSYS},
    {"EADDRINUSE", EADDRINUSE},
    {"EROFS", EROFS},
    {"ENOENT", ENOENT},
    {"EPERM", EPERM},
};

static int find_code(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)size;
    (void)unused;
    const char *name = strrchr(info->dlpi_name, '/');
    bool program = info->dlpi_name[0] == '\0';
    if (!program && strncmp(name != NULL ? name + 1 : info->dlpi_name, "libweft", 7) != 0) {
        return 0;
    }
    for (int i = 0; i < info->dlpi_phnum && range_count < MOST_RANGES; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type == PT_LOAD && (part->p_flags & PF_X) != 0) {
            ranges[range_count].base = info->dlpi_addr;
            ranges[range_count].from = info->dlpi_addr + part->p_vaddr;
            ranges[range_count].to = ranges[range_count].from + part->p_memsz;
            strncpy(ranges[range_count].name, program ? "/proc/self/exe" : info->dlpi_name, 255);
            if (program) {
                ssize_t got = readlink("/proc/self/exe", ranges[range_count].name, 255);
                ranges[range_count].name[got > 0 ? got : 0] = '\0';
            }
            range_count++;
        }
    }
    return 0;
}

static void stop(const char *why)
{
    fprintf(stderr, "preload_faults: %s\n", why);
    _exit(99);
}

static void read_fault(const char *text)
{
    char copy[64], *save;
    snprintf(copy, sizeof(copy), "%s", text);
    char *op = strtok_r(copy, ":", &save), *at = strtok_r(NULL, ":", &save);
    char *what = strtok_r(NULL, ":", &save);
    for (int i = 0; op != NULL && i < FAULT_OP_COUNT; i++) {
        armed = strcmp(op, op_names[i]) == 0 ? i : armed;
    }
    if (armed < 0 || at == NULL || what == NULL) {
        stop("FAULT is not OPERATION:K:HOW");
    }
    armed_at = (int)strtol(at, NULL, 10);
    every = what[strlen(what) - 1] == '+';
    if (every) {
        what[strlen(what) - 1] = '\0';
    }
    how = strcmp(what, "kill") == 0    ? HOW_KILL
          : strcmp(what, "short") == 0 ? HOW_SHORT
          : strcmp(what, "end") == 0   ? HOW_END
                                       : HOW_ERROR;
    for (size_t i = 0; i < sizeof(error_names) / sizeof(error_names[0]); i++) {
        error_number = strcmp(what, error_names[i].name) == 0 ? error_names[i].number
                                                              : error_number;
    }
    if (how == HOW_ERROR && error_number == 0) {
        stop("FAULT names an error that is not known here");
    }
}

__attribute__((constructor)) static void start(void)
{
    const char *who = getenv("FAULT_WHO"), *path = getenv("FAULT_STATE");
    const char *rank = getenv("WEFT_RANK"), *fault = getenv("FAULT");
    if (who == NULL || path == NULL || strcmp(who, rank != NULL ? rank : "launcher") != 0) {
        return;
    }
    dl_iterate_phdr(find_code, NULL);
    if (fault != NULL) {
        read_fault(fault);
    }
    int fd = open(path, O_RDWR | O_CLOEXEC);
    void *page = fd < 0 ? MAP_FAILED
                        : mmap(NULL, sizeof(*state), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) {
        stop("FAULT_STATE cannot be mapped");
    }
    close(fd);
    state = page;
}

/* Where in Weft's code `caller` is; -1: it is not. */
static int range_of(const void *caller)
{
    for (int i = 0; i < range_count; i++) {
        if ((uintptr_t)caller >= ranges[i].from && (uintptr_t)caller < ranges[i].to) {
            return i;
        }
    }
    return -1;
}

/* Count an operation. true: it is to fail, and errno is set. */
static bool fails(int op, const void *caller)
{
    int range = state != NULL ? range_of(caller) : -1;
    if (range < 0) {
        return false;
    }
    int number = atomic_fetch_add(&state->counts[op], 1) + 1;
    if (op != armed || !(every ? number >= armed_at : number == armed_at)) {
        return false;
    }
    if (atomic_fetch_add(&state->fired, 1) == 0) {
        atomic_store(&state->pid, (int)getpid());
        atomic_store(&state->offset, (uintptr_t)caller - ranges[range].base - 1);
        memcpy(state->object, ranges[range].name, sizeof(state->object));
    }
    if (how == HOW_KILL) {
        kill(getpid(), SIGKILL);
        for (;;) {
            pause();
        }
    }
    errno = error_number;
    return true;
}

#define CALLER __builtin_return_address(0)
#define REAL(name)                                                                                 \
    static __typeof__(&name) real;                                                                 \
    if (real == NULL) {                                                                            \
        real = (__typeof__(&name))dlsym(RTLD_NEXT, #name);                                         \
    }
/* A call that returns `bad` when it fails, and nothing else. */
#define PLAIN(op, bad, type, name, parameters, arguments)                                          \
    EXPORT type name parameters                                                                    \
    {                                                                                              \
        REAL(name)                                                                                 \
        return fails(FAULT_##op, CALLER) ? bad : real arguments;                                   \
    }

/* ---- memory ------------------------------------------------------------------------------- */

static const void *owner(const void *caller)
{
    return on_behalf != NULL ? on_behalf : caller;
}

EXPORT void *malloc(size_t size)
{
    return fails(FAULT_malloc, owner(CALLER)) ? NULL : __libc_malloc(size);
}

EXPORT void *calloc(size_t count, size_t size)
{
    return fails(FAULT_malloc, owner(CALLER)) ? NULL : __libc_calloc(count, size);
}

EXPORT void *realloc(void *old, size_t size)
{
    return fails(FAULT_malloc, owner(CALLER)) ? NULL : __libc_realloc(old, size);
}

EXPORT void *aligned_alloc(size_t align, size_t size)
{
    return fails(FAULT_malloc, owner(CALLER)) ? NULL : __libc_memalign(align, size);
}

PLAIN(malloc, NULL, char *, strdup, (const char *text), (text))
PLAIN(malloc, NULL, char *, strndup, (const char *text, size_t most), (text, most))
PLAIN(malloc, NULL, char *, realpath, (const char *path, char *out), (path, out))
PLAIN(malloc, NULL, FILE *, open_memstream, (char **text_p, size_t *size_p), (text_p, size_p))
PLAIN(malloc, NULL, FILE *, fmemopen, (void *bytes, size_t size, const char *mode),
      (bytes, size, mode))
PLAIN(malloc, -1, int, setenv, (const char *name, const char *value, int replace),
      (name, value, replace))
PLAIN(malloc, -1, int, pthread_key_create, (pthread_key_t * key_p, void (*end)(void *)),
      (key_p, end))
PLAIN(advice, -1, int, madvise, (void *at, size_t size, int advice), (at, size, advice))

EXPORT void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    REAL(mmap)
    return fails(FAULT_mmap, CALLER) ? MAP_FAILED : real(at, size, protection, flags, fd, offset);
}

PLAIN(memfd, -1, int, memfd_create, (const char *name, unsigned flags), (name, flags))

/* ---- files -------------------------------------------------------------------------------- */

/* What a read or write of `size` bytes becomes: `size` bytes, fewer, or *result. */
static bool cut(int op, const void *caller, size_t *size_p, ssize_t *result)
{
    if (!fails(op, caller)) {
        return false;
    }
    if (how == HOW_SHORT) {
        *size_p = *size_p > 1 ? *size_p / 2 : *size_p;
        return false;
    }
    *result = how == HOW_END ? 0 : -1;
    return true;
}

/* Files, pipes and devices can fail; an eventfd, which is none of them, cannot, nor does a pipe
 * split a message of a few bytes. But who uses them can die there. */
static bool can_fail(int fd, size_t size)
{
    struct stat about;
    return fd != STDERR_FILENO && state != NULL && fstat(fd, &about) == 0 &&
           (how == HOW_KILL ||
            !((about.st_mode & S_IFMT) == 0 || (S_ISFIFO(about.st_mode) && size <= SMALL_MESSAGE)));
}

EXPORT ssize_t write(int fd, const void *bytes, size_t size)
{
    REAL(write)
    ssize_t result;
    return can_fail(fd, size) && cut(FAULT_write, CALLER, &size, &result) ? result
                                                                          : real(fd, bytes, size);
}

EXPORT ssize_t pwrite(int fd, const void *bytes, size_t size, off_t at)
{
    REAL(pwrite)
    ssize_t result;
    return cut(FAULT_write, CALLER, &size, &result) ? result : real(fd, bytes, size, at);
}

EXPORT ssize_t read(int fd, void *bytes, size_t size)
{
    REAL(read)
    ssize_t result;
    return can_fail(fd, size) && cut(FAULT_read, CALLER, &size, &result) ? result
                                                                         : real(fd, bytes, size);
}

EXPORT ssize_t pread(int fd, void *bytes, size_t size, off_t at)
{
    REAL(pread)
    ssize_t result;
    return cut(FAULT_read, CALLER, &size, &result) ? result : real(fd, bytes, size, at);
}

EXPORT int open(const char *path, int flags, ...)
{
    REAL(open)
    mode_t mode = 0;
    if ((flags & (O_CREAT | O_TMPFILE)) != 0) {
        va_list list;
        va_start(list, flags);
        mode = va_arg(list, mode_t);
        va_end(list);
    }
    return fails(FAULT_open, CALLER) ? -1 : real(path, flags, mode);
}

EXPORT int openat(int at, const char *path, int flags, ...)
{
    REAL(openat)
    mode_t mode = 0;
    if ((flags & (O_CREAT | O_TMPFILE)) != 0) {
        va_list list;
        va_start(list, flags);
        mode = va_arg(list, mode_t);
        va_end(list);
    }
    return fails(FAULT_open, CALLER) ? -1 : real(at, path, flags, mode);
}

/* What was open is closed all the same, as on Linux. */
EXPORT int close(int fd)
{
    REAL(close)
    bool bad = fails(FAULT_close, CALLER);
    int result = real(fd);
    if (bad) {
        errno = error_number;
    }
    return bad ? -1 : result;
}

PLAIN(fsync, -1, int, fsync, (int fd), (fd))
PLAIN(fsync, -1, int, fdatasync, (int fd), (fd))
PLAIN(rename, -1, int, rename, (const char *from, const char *to), (from, to))
PLAIN(truncate, -1, int, ftruncate, (int fd, off_t size), (fd, size))
PLAIN(truncate, -1, int, fallocate, (int fd, int mode, off_t at, off_t size), (fd, mode, at, size))
PLAIN(unlink, -1, int, unlink, (const char *path), (path))
PLAIN(unlink, -1, int, remove, (const char *path), (path))
PLAIN(unlink, -1, int, rmdir, (const char *path), (path))
PLAIN(mkdir, -1, int, mkdir, (const char *path, mode_t mode), (path, mode))
PLAIN(open, -1, int, mkostemp, (char *path, int flags), (path, flags))
PLAIN(link, -1, int, link, (const char *from, const char *to), (from, to))
PLAIN(link, -1, int, symlink, (const char *from, const char *to), (from, to))
PLAIN(link, -1, ssize_t, readlink, (const char *path, char *out, size_t size), (path, out, size))
PLAIN(link, -1, int, linkat, (int at, const char *from, int to_at, const char *to, int flags),
      (at, from, to_at, to, flags))
PLAIN(unlink, -1, int, unlinkat, (int at, const char *path, int flags), (at, path, flags))
PLAIN(statvfs, -1, int, statfs, (const char *path, struct statfs *out), (path, out))
PLAIN(stat, -1, int, faccessat, (int at, const char *path, int mode, int flags),
      (at, path, mode, flags))
PLAIN(stat, -1, int, fchmod, (int fd, mode_t mode), (fd, mode))
PLAIN(stat, -1, int, fchown, (int fd, uid_t user, gid_t group), (fd, user, group))
PLAIN(write, -1, ssize_t, sendfile, (int to, int from, off_t *offset, size_t size),
      (to, from, offset, size))
PLAIN(malloc, NULL, FILE *, fopencookie,
      (void *context, const char *mode, cookie_io_functions_t calls), (context, mode, calls))
PLAIN(statvfs, -1, int, statvfs, (const char *path, struct statvfs *out), (path, out))
PLAIN(statvfs, -1, int, fstatvfs, (int fd, struct statvfs *out), (fd, out))
PLAIN(stat, -1, int, stat, (const char *path, struct stat *out), (path, out))
PLAIN(stat, -1, int, fstat, (int fd, struct stat *out), (fd, out))
PLAIN(stat, -1, int, lstat, (const char *path, struct stat *out), (path, out))
PLAIN(stat, -1, int, access, (const char *path, int mode), (path, mode))
PLAIN(opendir, NULL, DIR *, opendir, (const char *path), (path))
PLAIN(opendir, -1, int, nftw, (const char *path, __nftw_func_t visit, int fds, int flags),
      (path, visit, fds, flags))
PLAIN(readdir, NULL, struct dirent *, readdir, (DIR * folder), (folder))
PLAIN(lock, -1, int, flock, (int fd, int operation), (fd, operation))
PLAIN(dup, -1, int, dup, (int fd), (fd))
PLAIN(dup, -1, int, dup2, (int fd, int to), (fd, to))

/* ---- stdio -------------------------------------------------------------------------------- */

/* Memory streams fail by their allocations, stderr never. */
static bool on_disk(FILE *file)
{
    return file != stderr && fileno(file) >= 0;
}

static bool stream_fails(FILE *file, const void *caller)
{
    if (!on_disk(file) || !fails(FAULT_stdio, caller)) {
        return false;
    }
    file->_flags |= STREAM_ERROR;
    return true;
}

/* RUN with the allocations inside counted as `caller`'s. */
#define BEHALF(type, run)                                                                          \
    const void *before = on_behalf;                                                                \
    on_behalf = before != NULL ? before : CALLER;                                                  \
    type result = run;                                                                             \
    on_behalf = before;                                                                            \
    return result

EXPORT int vfprintf(FILE *file, const char *format, va_list list)
{
    REAL(vfprintf)
    if (stream_fails(file, CALLER)) {
        return -1;
    }
    BEHALF(int, real(file, format, list));
}

EXPORT int fprintf(FILE *file, const char *format, ...)
{
    REAL(vfprintf)
    if (stream_fails(file, CALLER)) {
        return -1;
    }
    va_list list;
    va_start(list, format);
    BEHALF(int, real(file, format, list));
}

EXPORT int printf(const char *format, ...)
{
    REAL(vfprintf)
    if (stream_fails(stdout, CALLER)) {
        return -1;
    }
    va_list list;
    va_start(list, format);
    BEHALF(int, real(stdout, format, list));
}

EXPORT int fputs(const char *text, FILE *file)
{
    REAL(fputs)
    if (stream_fails(file, CALLER)) {
        return EOF;
    }
    BEHALF(int, real(text, file));
}

EXPORT int puts(const char *text)
{
    REAL(puts)
    if (stream_fails(stdout, CALLER)) {
        return EOF;
    }
    BEHALF(int, real(text));
}

EXPORT int fputc(int byte, FILE *file)
{
    REAL(fputc)
    if (stream_fails(file, CALLER)) {
        return EOF;
    }
    BEHALF(int, real(byte, file));
}

EXPORT size_t fwrite(const void *bytes, size_t size, size_t count, FILE *file)
{
    REAL(fwrite)
    if (stream_fails(file, CALLER)) {
        return 0;
    }
    BEHALF(size_t, real(bytes, size, count, file));
}

EXPORT int fflush(FILE *file)
{
    REAL(fflush)
    if (file != NULL && stream_fails(file, CALLER)) {
        return EOF;
    }
    BEHALF(int, real(file));
}

EXPORT int fclose(FILE *file)
{
    REAL(fclose)
    bool bad = stream_fails(file, CALLER);
    int result = real(file);
    if (bad) {
        errno = error_number;
    }
    return bad ? EOF : result;
}

/* A stream that cannot be read says so to ferror, too. */
static bool reading_fails(FILE *file, const void *caller)
{
    if (!on_disk(file) || !fails(FAULT_fread, caller)) {
        return false;
    }
    file->_flags |= STREAM_ERROR;
    return true;
}

EXPORT size_t fread(void *bytes, size_t size, size_t count, FILE *file)
{
    REAL(fread)
    return reading_fails(file, CALLER) ? 0 : real(bytes, size, count, file);
}

EXPORT char *fgets(char *line, int size, FILE *file)
{
    REAL(fgets)
    return reading_fails(file, CALLER) ? NULL : real(line, size, file);
}

EXPORT ssize_t __getdelim(char **line_p, size_t *size_p, int end, FILE *file)
{
    REAL(__getdelim)
    if (reading_fails(file, CALLER)) {
        return -1;
    }
    BEHALF(ssize_t, real(line_p, size_p, end, file));
}

PLAIN(open, NULL, FILE *, fopen, (const char *path, const char *mode), (path, mode))
PLAIN(open, NULL, FILE *, fdopen, (int fd, const char *mode), (fd, mode))

/* ---- processes and threads ---------------------------------------------------------------- */

PLAIN(fork, -1, pid_t, fork, (void), ())
PLAIN(exec, -1, int, execvpe, (const char *path, char *const args[], char *const environment[]),
      (path, args, environment))

EXPORT int pthread_create(pthread_t *thread_p, const pthread_attr_t *attributes,
                          void *(*run)(void *), void *argument)
{
    REAL(pthread_create)
    return fails(FAULT_thread, CALLER) ? error_number : real(thread_p, attributes, run, argument);
}

PLAIN(signal, -1, int, signalfd, (int fd, const sigset_t *set, int flags), (fd, set, flags))

/* ---- sockets and waiting ------------------------------------------------------------------ */

PLAIN(socket, -1, int, socket, (int domain, int type, int protocol), (domain, type, protocol))
PLAIN(socket, -1, int, setsockopt, (int fd, int level, int name, const void *value, socklen_t size),
      (fd, level, name, value, size))
PLAIN(bind, -1, int, bind, (int fd, const struct sockaddr *address, socklen_t size),
      (fd, address, size))
PLAIN(bind, -1, int, listen, (int fd, int backlog), (fd, backlog))
PLAIN(bind, -1, int, getsockname, (int fd, struct sockaddr *address, socklen_t *size_p),
      (fd, address, size_p))
PLAIN(accept, -1, int, accept4, (int fd, struct sockaddr *address, socklen_t *size_p, int flags),
      (fd, address, size_p, flags))
PLAIN(connect, -1, int, connect, (int fd, const struct sockaddr *address, socklen_t size),
      (fd, address, size))
PLAIN(pipe, -1, int, pipe2, (int fds[2], int flags), (fds, flags))
PLAIN(epoll, -1, int, epoll_create1, (int flags), (flags))
PLAIN(epoll, -1, int, epoll_ctl, (int epoll, int operation, int fd, struct epoll_event *event),
      (epoll, operation, fd, event))
PLAIN(epoll, -1, int, eventfd, (unsigned value, int flags), (value, flags))
PLAIN(poll, -1, int, poll, (struct pollfd * fds, nfds_t count, int ms), (fds, count, ms))
PLAIN(poll, -1, int, epoll_wait, (int epoll, struct epoll_event *events, int most, int ms),
      (epoll, events, most, ms))
PLAIN(random, -1, ssize_t, getrandom, (void *bytes, size_t size, unsigned flags),
      (bytes, size, flags))
PLAIN(resolve, EAI_MEMORY, int, getaddrinfo,
      (const char *node, const char *service, const struct addrinfo *hints,
       struct addrinfo **out_p),
      (node, service, hints, out_p))

EXPORT ssize_t send(int fd, const void *bytes, size_t size, int flags)
{
    REAL(send)
    ssize_t result;
    return cut(FAULT_send, CALLER, &size, &result) ? result : real(fd, bytes, size, flags);
}

/* A short one sends the half of its first part. */
EXPORT ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    REAL(sendmsg)
    if (!fails(FAULT_send, CALLER)) {
        return real(fd, message, flags);
    }
    if (how != HOW_SHORT || message->msg_iovlen == 0 || message->msg_iov[0].iov_len < 2) {
        return how == HOW_SHORT ? real(fd, message, flags) : -1;
    }
    struct iovec half = {message->msg_iov[0].iov_base, message->msg_iov[0].iov_len / 2};
    struct msghdr less = {.msg_iov = &half, .msg_iovlen = 1};
    return real(fd, &less, flags);
}

EXPORT ssize_t recv(int fd, void *bytes, size_t size, int flags)
{
    REAL(recv)
    ssize_t result;
    return cut(FAULT_recv, CALLER, &size, &result) ? result : real(fd, bytes, size, flags);
}

/* ---- calls without a name in libc --------------------------------------------------------- */

EXPORT long syscall(long number, ...)
{
    REAL(syscall)
    long a[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++) {
        a[i] = va_arg(list, long);
    }
    va_end(list);
    int op = number == SYS_renameat2    ? FAULT_rename
             : number == SYS_pwrite64   ? FAULT_write
             : number == SYS_pidfd_open ? FAULT_pidfd
                                        : -1;
    if (op >= 0 && fails(op, CALLER)) {
        if (how != HOW_SHORT) {
            return -1;
        }
        a[2] /= 2; /* of a write: its size */
    }
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
