/* Outputs: whole or not at all, whatever the path leads to and whatever fails. Each case runs as on
 * file systems with files without names, without them, and where such a file cannot be linked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/fixture.h"
#include "base/output.h"

enum { NAMELESS, NAMED, UNLINKABLE };
static int files_are;     /* one of these */
static const char *hasty; /* removed by somebody right after it is created */

/* In the place of libc's. */
int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = va_arg(args, mode_t);
    va_end(args);
    if ((flags & O_TMPFILE) == O_TMPFILE && files_are == NAMED) {
        errno = EOPNOTSUPP;
        return -1;
    }
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
    if (fd >= 0 && hasty != NULL && strstr(path, hasty) != NULL) {
        hasty = NULL;
        unlink(path);
    }
    return fd;
}

int linkat(int from, const char *path, int to, const char *name, int flags)
{
    if (files_are == UNLINKABLE) {
        errno = EXDEV;
        return -1;
    }
    return (int)syscall(SYS_linkat, from, path, to, name, flags);
}

/* Entries of the scratch folder that look temporary. */
static int left_behind(void)
{
    int count = 0;
    DIR *dir = opendir(scratch());
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        count += strstr(entry->d_name, ".tmp") != NULL;
    }
    closedir(dir);
    return count;
}

#define assert_holds(name, expected)                                                               \
    do {                                                                                           \
        char *text_;                                                                               \
        assert_int_equal(weft__file_read(in_scratch(name), &text_, NULL), WEFT_OK);                \
        assert_string_equal(text_, expected);                                                      \
        free(text_);                                                                               \
    } while (0)

static void put(const char *name, const char *text)
{
    write_file(in_scratch(name), text, strlen(text));
}

static weft_output_t *open_output(const char *path)
{
    weft_output_t *out = NULL;
    assert_int_equal(weft__output_open(path, &out), WEFT_OK);
    return out;
}

static mode_t mode_of(const char *name)
{
    struct stat about;
    assert_int_equal(stat(in_scratch(name), &about), 0);
    return about.st_mode & 07777;
}

static void appears_when_it_is_whole(void **state)
{
    (void)state;
    remove(in_scratch("f"));
    weft_output_t *out = open_output(in_scratch("f"));
    fprintf(weft__output_stream(out), "first");
    assert_int_equal(access(in_scratch("f"), F_OK), -1);
    assert_int_equal(weft__output_commit(out), WEFT_OK);
    assert_holds("f", "first");
    out = open_output(in_scratch("f"));
    fprintf(weft__output_stream(out), "sec");
    assert_int_equal(weft__output_write(out, "ond", 3), WEFT_OK);
    assert_int_equal(weft__output_patch(out, 0, "S", 1), WEFT_OK);
    assert_holds("f", "first");
    assert_int_equal(weft__output_commit(out), WEFT_OK);
    assert_holds("f", "Second");
    out = open_output(in_scratch("f"));
    fprintf(weft__output_stream(out), "third");
    weft__output_discard(out);
    weft__output_discard(NULL);
    out = open_output(in_scratch("f"));
    assert_int_equal(weft__output_end(out, WEFT_ERR_INVALID), WEFT_ERR_INVALID);
    assert_holds("f", "Second");
    assert_int_equal(left_behind(), 0);
}

static void mode_and_umask_count(void **state)
{
    (void)state;
    mode_t old = umask(027);
    remove(in_scratch("f"));
    assert_int_equal(weft__file_replace(in_scratch("f"), "x", 1), WEFT_OK);
    assert_int_equal(mode_of("f"), 0640);
    assert_int_equal(chmod(in_scratch("f"), 0604), 0);
    assert_int_equal(weft__file_replace(in_scratch("f"), "y", 1), WEFT_OK);
    assert_int_equal(mode_of("f"), 0604);
    assert_holds("f", "y");
    umask(old);
}

/* As somebody who is not root. */
static void what_is_protected_stays(void **state)
{
    (void)state;
    put("mine", "mine");
    chmod(in_scratch("mine"), 0444);
    chmod(scratch(), 0777);
    bool root = geteuid() == 0;
    assert_true(!root || seteuid(65534) == 0);
    weft_status_t checked = weft__output_check(in_scratch("mine"));
    weft_status_t replaced = weft__file_replace(in_scratch("mine"), "other", 5);
    bool said = error_says("mine: Permission denied");
    assert_true(!root || seteuid(0) == 0);
    assert_int_equal(checked, WEFT_ERR_SYSTEM);
    assert_int_equal(replaced, WEFT_ERR_SYSTEM);
    assert_true(said);
    assert_holds("mine", "mine");
    /* The file may be written, but nothing beside it. */
    chmod(in_scratch("mine"), 0666);
    chmod(scratch(), 0755);
    if (root) {
        assert_int_equal(seteuid(65534), 0);
        checked = weft__output_check(in_scratch("mine"));
        replaced = weft__file_replace(in_scratch("mine"), "other", 5);
        said = error_says("no file can be created in the folder");
        assert_int_equal(seteuid(0), 0);
        assert_int_equal(checked, WEFT_ERR_SYSTEM);
        assert_int_equal(replaced, WEFT_ERR_SYSTEM);
        assert_true(said);
        assert_holds("mine", "mine");
    }
}

static void links_are_followed_and_stay(void **state)
{
    (void)state;
    weft__path_remove(in_scratch("deep"));
    assert_int_equal(weft__folder_make(in_scratch("deep/er")), WEFT_OK);
    assert_int_equal(symlink("er/target", in_scratch("deep/link")), 0);
    char absolute[WEFT_PATH_BYTES];
    snprintf(absolute, sizeof(absolute), "%s", in_scratch("deep/link"));
    assert_int_equal(symlink(absolute, in_scratch("deep/first")), 0);
    struct stat about;
    for (int i = 0; i < 2; i++) { /* first it names nothing, then a file */
        char text[2] = {(char)('0' + i), '\0'};
        assert_int_equal(weft__output_check(in_scratch("deep/first")), WEFT_OK);
        assert_int_equal(weft__file_replace(in_scratch("deep/first"), text, 1), WEFT_OK);
        assert_holds("deep/er/target", text);
        assert_int_equal(lstat(in_scratch("deep/first"), &about), 0);
        assert_true(S_ISLNK(about.st_mode));
        assert_int_equal(lstat(in_scratch("deep/link"), &about), 0);
        assert_true(S_ISLNK(about.st_mode));
    }
    assert_int_equal(symlink("round", in_scratch("deep/round")), 0);
    assert_int_equal(weft__file_replace(in_scratch("deep/round"), "x", 1), WEFT_ERR_SYSTEM);
    assert_true(error_says("Too many levels"));
    assert_int_equal(weft__file_replace(in_scratch("deep"), "x", 1), WEFT_ERR_INVALID);
    assert_true(error_says("is a folder"));
    assert_int_equal(weft__file_replace(in_scratch("deep/new/"), "x", 1), WEFT_ERR_INVALID);
    assert_int_equal(weft__output_check(in_scratch("none/x")), WEFT_ERR_NOT_FOUND);
    /* beside the file, not beside us */
    char here[WEFT_PATH_BYTES];
    assert_non_null(getcwd(here, sizeof(here)));
    assert_int_equal(chdir(in_scratch("deep")), 0);
    assert_int_equal(weft__file_replace("link", "here", 4), WEFT_OK);
    assert_int_equal(weft__file_replace("bare", "bare", 4), WEFT_OK);
    assert_int_equal(chdir(here), 0);
    assert_holds("deep/er/target", "here");
    assert_holds("deep/bare", "bare");
}

static char of_threads[WEFT_PATH_BYTES]; /* a path for them; in_scratch is for one thread */

static void *read_fifo(void *arg)
{
    char *text = arg;
    int fd = open(of_threads, O_RDONLY, 0);
    size_t got = 0;
    for (ssize_t n; (n = read(fd, text + got, 64 - got)) > 0;) {
        got += (size_t)n;
    }
    close(fd);
    return NULL;
}

static void pipes_are_written_to(void **state)
{
    (void)state;
    char text[65] = "";
    struct stat about;
    remove(in_scratch("fifo"));
    assert_int_equal(mkfifo(in_scratch("fifo"), 0666), 0);
    assert_int_equal(weft__output_check(in_scratch("fifo")),
                     WEFT_OK); /* does not wait for a reader */
    pthread_t reader;
    snprintf(of_threads, sizeof(of_threads), "%s", in_scratch("fifo"));
    assert_int_equal(pthread_create(&reader, NULL, read_fifo, text), 0);
    assert_int_equal(weft__file_replace(in_scratch("fifo"), "through", 7), WEFT_OK);
    pthread_join(reader, NULL);
    assert_string_equal(text, "through");
    assert_int_equal(lstat(in_scratch("fifo"), &about), 0);
    assert_true(S_ISFIFO(about.st_mode));
}

/* A device of our own, as one of the machine's might be lost. False, with the reason, if we may
 * have none. */
static bool make_device(const char *name, unsigned minor_number)
{
    remove(in_scratch(name));
    if (mknod(in_scratch(name), S_IFCHR | 0666, makedev(1, minor_number)) != 0) {
        print_message("no device of our own (%s), so this is not tried\n", strerror(errno));
        return false;
    }
    int fd = open(in_scratch(name), O_WRONLY, 0);
    if (fd < 0) {
        print_message("devices cannot be opened in %s (%s), so this is not tried\n", scratch(),
                      strerror(errno));
        return false;
    }
    close(fd);
    return true;
}

static void devices_are_never_removed(void **state)
{
    (void)state;
    struct stat about;
    if (!make_device("full", 7) || !make_device("null", 3)) {
        return;
    }
    static char much[1 << 20];
    for (size_t size = 1; size <= sizeof(much); size += sizeof(much) - 1) {
        assert_int_equal(weft__output_check(in_scratch("full")), WEFT_OK);
        assert_int_equal(weft__file_replace(in_scratch("full"), much, size), WEFT_ERR_SYSTEM);
        assert_true(error_says("full: No space left on device"));
        assert_int_equal(weft__file_replace(in_scratch("null"), much, size), WEFT_OK);
    }
    remove(in_scratch("to-full"));
    assert_int_equal(symlink("full", in_scratch("to-full")), 0);
    assert_int_equal(weft__file_replace(in_scratch("to-full"), "x", 1), WEFT_ERR_SYSTEM);
    weft_output_t *out = open_output(in_scratch("null"));
    weft__output_discard(out);
    assert_int_equal(lstat(in_scratch("to-full"), &about), 0);
    assert_true(S_ISLNK(about.st_mode));
    assert_int_equal(lstat(in_scratch("full"), &about), 0);
    assert_true(S_ISCHR(about.st_mode) && about.st_rdev == makedev(1, 7));
    assert_int_equal(lstat(in_scratch("null"), &about), 0);
    assert_true(S_ISCHR(about.st_mode) && about.st_rdev == makedev(1, 3));
    assert_int_equal(left_behind(), 0);
}

static void open_files_are_written_to(void **state)
{
    (void)state;
    int ends[2];
    char path[64], text[16] = "";
    assert_int_equal(pipe(ends), 0);
    snprintf(path, sizeof(path), "/dev/fd/%d", ends[1]);
    assert_int_equal(weft__output_check(path), WEFT_OK);
    assert_int_equal(weft__file_replace(path, "pipe", 4), WEFT_OK);
    assert_int_equal(read(ends[0], text, sizeof(text)), 4);
    assert_string_equal(text, "pipe");
    snprintf(path, sizeof(path), "/dev/fd/%d", ends[0]);
    assert_int_equal(weft__output_check(path), WEFT_ERR_SYSTEM); /* for reading only */
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", ends[1]);
    assert_int_equal(weft__file_replace(path, "sock", 4), WEFT_OK);
    assert_int_equal(read(ends[0], text, sizeof(text)), 4);
    assert_string_equal(text, "sock");
    close(ends[0]);
    close(ends[1]);
    /* A file that the shell opened: behind what stands there, and still the same file. */
    put("shell", "");
    struct stat before, after;
    int fd = open(in_scratch("shell"), O_WRONLY, 0);
    assert_int_equal(fstat(fd, &before), 0);
    assert_int_equal(write(fd, "head ", 5), 5);
    snprintf(path, sizeof(path), "/dev/fd/%d", fd);
    assert_int_equal(weft__file_replace(path, "body", 4), WEFT_OK);
    assert_int_equal(write(fd, " tail", 5), 5);
    close(fd);
    assert_holds("shell", "head body tail");
    assert_int_equal(stat(in_scratch("shell"), &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    assert_int_equal(weft__output_check("-"), WEFT_OK);
    assert_int_equal(weft__output_check(""), WEFT_ERR_NOT_FOUND);
}

static void may_have(size_t bytes)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes != 0 ? bytes : limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void a_failing_write_leaves_what_stood_there(void **state)
{
    (void)state;
    static const char much[1 << 20];
    put("f", "old");
    weft_output_t *out = open_output(in_scratch("f"));
    may_have(100000);
    weft_status_t wrote = weft__output_write(out, much, sizeof(much));
    weft_status_t again = weft__output_write(out, much, 1);
    weft_status_t ended = weft__output_end(out, wrote);
    int why = errno;
    bool said = error_says("f: File too large; what stood there before is untouched");
    may_have(0);
    assert_int_equal(wrote, WEFT_ERR_SYSTEM);
    assert_int_equal(again, WEFT_ERR_SYSTEM);
    assert_int_equal(ended, WEFT_ERR_SYSTEM);
    assert_int_equal(why, EFBIG);
    assert_true(said);
    assert_holds("f", "old");
    /* One that is noticed at the end only, as it fits the buffer. */
    out = open_output(in_scratch("f"));
    fprintf(weft__output_stream(out), "%5000s", "new");
    may_have(4096);
    ended = weft__output_commit(out);
    said = error_says("File too large; what stood there");
    may_have(0);
    assert_int_equal(ended, WEFT_ERR_SYSTEM);
    assert_true(said);
    assert_holds("f", "old");
    assert_int_equal(left_behind(), 0);
}

static void what_the_killed_left_is_removed(void **state)
{
    (void)state;
    put(".x.99-0.tmp", "left");
    put(".x.99-1.tmp", "in use");
    put(".x.y.99-0.tmp", "another's");
    put(".x.99-a.tmp", "the user's");
    int fd = open(in_scratch(".x.99-1.tmp"), O_RDONLY, 0);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(weft__file_replace(in_scratch("x"), "x", 1), WEFT_OK);
    assert_int_equal(access(in_scratch(".x.99-0.tmp"), F_OK), -1);
    assert_int_equal(access(in_scratch(".x.99-1.tmp"), F_OK), 0);
    assert_int_equal(access(in_scratch(".x.y.99-0.tmp"), F_OK), 0);
    assert_int_equal(access(in_scratch(".x.99-a.tmp"), F_OK), 0);
    close(fd);
    assert_int_equal(weft__file_replace(in_scratch("x"), "x", 1), WEFT_OK);
    remove(in_scratch(".x.y.99-0.tmp"));
    remove(in_scratch(".x.99-a.tmp"));
    assert_int_equal(left_behind(), 0);
    /* A writer killed half way. */
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        weft_output_t *out;
        if (weft__output_open(in_scratch("x"), &out) == WEFT_OK) {
            fprintf(weft__output_stream(out), "half");
            fflush(weft__output_stream(out));
        }
        write(ready[1], "r", 1);
        for (;;) {
            pause();
        }
    }
    char byte;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    assert_int_equal(weft__file_replace(in_scratch("x"), "y", 1), WEFT_OK);
    assert_int_equal(left_behind(), files_are == NAMED); /* it lives */
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_int_equal(left_behind(), files_are == NAMED);
    assert_holds("x", "y");
    assert_int_equal(weft__file_replace(in_scratch("x"), "z", 1), WEFT_OK);
    assert_int_equal(left_behind(), 0);
    /* One whose file was taken for what somebody left before it had the lock begins again. */
    hasty = ".x.";
    assert_int_equal(weft__file_replace(in_scratch("x"), "again", 5), WEFT_OK);
    hasty = NULL;
    assert_holds("x", "again");
    assert_int_equal(left_behind(), 0);
}

enum { RACES = 60, RACE_BYTES = 300000 };

static void *race(void *arg)
{
    char *bytes = malloc(RACE_BYTES);
    memset(bytes, *(const char *)arg, RACE_BYTES);
    intptr_t failed = 0;
    for (int i = 0; i < RACES; i++) {
        failed += weft__file_replace(of_threads, bytes, RACE_BYTES) != WEFT_OK;
    }
    free(bytes);
    return (void *)failed;
}

static void writers_at_once_do_not_mix(void **state)
{
    (void)state;
    pthread_t threads[2];
    void *failed;
    remove(in_scratch("raced"));
    snprintf(of_threads, sizeof(of_threads), "%s", in_scratch("raced"));
    assert_int_equal(pthread_create(&threads[0], NULL, race, "a"), 0);
    assert_int_equal(pthread_create(&threads[1], NULL, race, "b"), 0);
    for (int i = 0; i < 200; i++) {
        char *text;
        size_t size;
        if (weft__file_read(of_threads, &text, &size) == WEFT_OK) {
            assert_int_equal(size, RACE_BYTES);
            assert_true(memcmp(text, text + 1, size - 1) == 0); /* all the same letter */
            free(text);
        }
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    assert_int_equal(left_behind(), 0);
}

static void a_log_grows_by_whole_writes(void **state)
{
    (void)state;
    put("log", "1\n2\n3\n");
    weft_output_t *out;
    assert_int_equal(weft__output_append(in_scratch("log"), 4, &out), WEFT_OK);
    assert_int_equal(weft__output_write(out, "III\n", 4), WEFT_OK);
    assert_holds("log", "1\n2\nIII\n");
    may_have(10);
    weft_status_t status = weft__output_write(out, "IIII\n", 5);
    bool said = error_says("log: File too large");
    may_have(0);
    assert_int_equal(status, WEFT_ERR_SYSTEM);
    assert_true(said);
    assert_holds("log", "1\n2\nIII\n");
    assert_int_equal(weft__output_write(out, "IV\n", 3), WEFT_OK);
    assert_int_equal(weft__output_commit(out), WEFT_OK);
    assert_holds("log", "1\n2\nIII\nIV\n");
}

static void the_first_offer_stays(void **state)
{
    (void)state;
    remove(in_scratch("offer"));
    weft_output_t *first = open_output(in_scratch("offer"));
    weft_output_t *second = open_output(in_scratch("offer"));
    fprintf(weft__output_stream(first), "first");
    fprintf(weft__output_stream(second), "second");
    assert_int_equal(weft__output_offer(second), WEFT_OK);
    assert_int_equal(weft__output_offer(first), WEFT_OK);
    assert_holds("offer", "second");
    assert_int_equal(left_behind(), 0);
}

static void long_names_have_temporary_files(void **state)
{
    (void)state;
    char name[256];
    memset(name, 'n', sizeof(name) - 1);
    name[255] = '\0';
    assert_int_equal(weft__file_replace(in_scratch(name), "1", 1), WEFT_OK);
    assert_int_equal(weft__file_replace(in_scratch(name), "2", 1), WEFT_OK);
    assert_holds(name, "2");
    remove(in_scratch(name));
    weft_output_t *out;
    assert_int_equal(weft__output_open_inside(in_scratch("inside"), &out), WEFT_OK);
    fprintf(weft__output_stream(out), "inside");
    assert_int_equal(weft__output_commit(out), WEFT_OK);
    assert_holds("inside", "inside");
}

/* Are they refused as one file? */
static bool clash(const char *a, const char *b, bool b_read)
{
    char first[WEFT_PATH_BYTES];
    snprintf(first, sizeof(first), "%s", a); /* in_scratch has one name at a time */
    const weft_output_name_t names[] = {
        {"--none", NULL, false}, {"--a", first, false}, {"--b", b, b_read}};
    weft_status_t status = weft__outputs_distinct(names, 3);
    assert_true(status == WEFT_OK || status == WEFT_ERR_INVALID);
    assert_true(status == WEFT_OK || error_says("--a and --b name the same file"));
    return status != WEFT_OK;
}

static void one_file_by_two_names_is_refused(void **state)
{
    (void)state;
    char file[WEFT_PATH_BYTES], other[WEFT_PATH_BYTES], link_to[WEFT_PATH_BYTES];
    snprintf(file, sizeof(file), "%s", in_scratch("one"));
    snprintf(link_to, sizeof(link_to), "%s", in_scratch("link-to-one"));
    unlink(file);
    unlink(link_to);
    assert_int_equal(symlink("one", link_to), 0);
    for (int there = 0; there < 2; there++) { /* not yet, and then */
        assert_true(clash(file, file, false));
        assert_true(clash(file, in_scratch("./one"), false));
        assert_true(clash(file, link_to, false));
        assert_true(clash(file, link_to, true));
        assert_false(clash(file, in_scratch("two"), false));
        write_file(file, "1", 1);
    }
    snprintf(other, sizeof(other), "%s", in_scratch("hard"));
    unlink(other);
    assert_int_equal(link(file, other), 0);
    assert_false(clash(file, other, false)); /* one of the names is replaced, the other stays */
    assert_false(clash("/dev/null", "/dev/null", false));
    assert_false(clash("", "", false));
    assert_true(clash("-", "-", false));
    int fd = open(file, O_RDWR | O_CLOEXEC, 0);
    snprintf(other, sizeof(other), "/dev/fd/%d", fd);
    assert_true(clash(file, other, false));
    close(fd);
    const weft_output_name_t read[] = {{"--a", file, true}, {"--b", file, true}};
    assert_int_equal(weft__outputs_distinct(read, 2), WEFT_OK);
    unlink(link_to);
}

static int as_named(void **state)
{
    (void)state;
    files_are = NAMED;
    return 0;
}

static int as_unlinkable(void **state)
{
    (void)state;
    files_are = UNLINKABLE;
    return 0;
}

int main(void)
{
    signal(SIGXFSZ, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(appears_when_it_is_whole),
        cmocka_unit_test(mode_and_umask_count),
        cmocka_unit_test(what_is_protected_stays),
        cmocka_unit_test(links_are_followed_and_stay),
        cmocka_unit_test(pipes_are_written_to),
        cmocka_unit_test(devices_are_never_removed),
        cmocka_unit_test(open_files_are_written_to),
        cmocka_unit_test(a_failing_write_leaves_what_stood_there),
        cmocka_unit_test(what_the_killed_left_is_removed),
        cmocka_unit_test(writers_at_once_do_not_mix),
        cmocka_unit_test(a_log_grows_by_whole_writes),
        cmocka_unit_test(the_first_offer_stays),
        cmocka_unit_test(long_names_have_temporary_files),
        cmocka_unit_test(one_file_by_two_names_is_refused),
    };
    int failed = cmocka_run_group_tests_name("nameless", tests, NULL, NULL);
    failed += cmocka_run_group_tests_name("named", tests, as_named, NULL);
    failed += cmocka_run_group_tests_name("unlinkable", tests, as_unlinkable, NULL);
    return failed;
}
