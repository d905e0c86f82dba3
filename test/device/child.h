/* Tests that need a process of their own: other settings, limits, forks, or to be left dying.
 * The body runs in a fork of a process that has not used Weft, and fails with CHECK. */
#ifndef WEFT_TEST_DEVICE_CHILD_H
#define WEFT_TEST_DEVICE_CHILD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define UNDER_SANITIZER 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define UNDER_SANITIZER 1
#endif
#ifndef UNDER_SANITIZER
#define UNDER_SANITIZER 0
#endif

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define CHECK_EQ(a, b)                                                                             \
    do {                                                                                           \
        long long a_ = (long long)(a), b_ = (long long)(b);                                        \
        if (a_ != b_) {                                                                            \
            fprintf(stderr, "%s:%d: %s is %lld, %s is %lld\n", __FILE__, __LINE__, #a, a_, #b,     \
                    b_);                                                                           \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* `text` contains `part`. */
#define CHECK_TEXT(text, part)                                                                     \
    do {                                                                                           \
        const char *text_ = (text);                                                                \
        if (strstr(text_, (part)) == NULL) {                                                       \
            fprintf(stderr, "%s:%d: \"%s\" has no \"%s\"\n", __FILE__, __LINE__, text_, (part));   \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* The exit status of a process, 128 + signal if it was killed. */
static inline int wait_child(pid_t pid)
{
    int status;
    while (waitpid(pid, &status, 0) < 0) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static inline int run_child(void (*body)(void))
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(60);
        body();
        exit(0);
    }
    return pid < 0 ? 255 : wait_child(pid);
}

/* A cmocka test whose body runs in a child. */
#define CHILD_TEST(name)                                                                           \
    static void name##_body(void);                                                                 \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        assert_int_equal(run_child(name##_body), 0);                                               \
    }                                                                                              \
    static void name##_body(void)

/* Bytes of memory behind an open file. */
static inline uint64_t file_memory(int fd)
{
    struct stat stat;
    CHECK_EQ(fstat(fd, &stat), 0);
    return (uint64_t)stat.st_blocks * 512;
}

#endif
