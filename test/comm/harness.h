/* Tests with several ranks.
 *
 * A team runs one function on N ranks: processes, threads of one process, or some of each. The
 * processes are forked from a test that never uses Weft itself, so every team starts fresh. A rank
 * fails by a CHECK, which prints where, which rank, what it was doing (team_note) and both values,
 * and ends its process at once. The others are then ended too, as they are when the time limit
 * passes: a test that hangs names the ranks that did, and in what. */
#ifndef WEFT_TEST_COMM_HARNESS_H
#define WEFT_TEST_COMM_HARNESS_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <weft/weft.h>

#define TEAM_MOST 32
#define TEAM_SHARED_BYTES 65536

#if defined(__SANITIZE_THREAD__)
#define UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNDER_TSAN 1
#elif __has_feature(address_sanitizer)
#define UNDER_SANITIZER 1
#endif
#endif
#ifndef UNDER_TSAN
#define UNDER_TSAN 0
#endif
#if UNDER_TSAN || defined(__SANITIZE_ADDRESS__)
#define UNDER_SANITIZER 1
#endif
#ifndef UNDER_SANITIZER
#define UNDER_SANITIZER 0
#endif

/* What a rank's function gets. */
typedef struct team {
    int rank, size;
    int procs;           /* processes that the ranks are spread over */
    weft_comm_h comm;    /* NULL in a bare team; destroyed after the function if still set */
    weft_unique_id_t id; /* made by rank 0; unused in a bare team, for the function's own use */
    char *shared;        /* TEAM_SHARED_BYTES, zero at first, seen by all ranks */
    const void *arg;
    unsigned meetings;
} team_t;

typedef void (*team_fn)(team_t *team);

typedef struct team_plan {
    int ranks;
    int procs;   /* 0: one a rank; 1: all ranks are threads of one; else a divisor of ranks */
    bool all;    /* threads: communicators from weft_comm_init_all, not from weft_comm_init_rank */
    bool bare;   /* no communicator */
    int limit_s; /* 30 unless given, on an idle machine: 3 x team_patience() x that ends a hang */
    int timeout_ms; /* of the communicator; 0: 20 s */
    const char *algo;
    const char
        *env; /* "NAME=VALUE NAME=VALUE ..." for every rank's process, or NULL; % is a letter of
                       * its own for each process */
    uint32_t may_die; /* bit r: rank r's process ends by SIGKILL */
    const void *arg;
} team_plan_t;

/* Run `fn` on every rank; true if all succeeded. Failures are on stderr. */
bool team_run(const team_plan_t *plan, team_fn fn);

/* Remember what the calling rank is about to do, for messages. */
void team_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Wait until all ranks of the team are here; not by way of Weft. */
void team_meet(team_t *team);

/* Say that the calling rank is done with something, and wait until `ranks` have said so. For ranks
 * that cannot meet: some are dead, or must not come before the others know of it. Once in a
 * team. */
void team_tell(void);
void team_await(int ranks);

/* A configuration as the plan's. */
weft_comm_config_t team_config(void);

/* Are few cases wanted, because a tool makes each of them slow (WEFT_TEST_SHORT=1)? */
bool team_short(void);

/* How much longer than usual things may take here: sanitizers and the tools above. */
int team_slow(void);

/* The same for limits of time, which also grow with the load of the machine. Not for sizes: ranks
 * that ask at different moments get different answers. */
int team_patience(void);

double team_now(void); /* seconds */
void team_sleep(double seconds);

/* Entries of /dev/shm and /tmp that look like Weft's. */
int team_leftovers(void);

/* Are there more than `before`, and do they stay? What others make beside us goes away again. */
bool team_left_more(int before);

/* Open files of this process. */
int team_open_files(void);

/* ---- checks ----------------------------------------------------------------------------- */

/* Print a failure of the calling rank and end its process. */
void team_fail(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4), noreturn));

#define FAIL(...) team_fail(__FILE__, __LINE__, __VA_ARGS__)

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            FAIL("%s", #condition);                                                                \
        }                                                                                          \
    } while (0)

#define CHECK_EQ(a, b)                                                                             \
    do {                                                                                           \
        long long a_ = (long long)(a), b_ = (long long)(b);                                        \
        if (a_ != b_) {                                                                            \
            FAIL("%s is %lld, %s is %lld", #a, a_, #b, b_);                                        \
        }                                                                                          \
    } while (0)

/* A call returns this status. */
#define CHECK_STATUS(call, expected)                                                               \
    do {                                                                                           \
        weft_status_t got_ = (call), want_ = (expected);                                           \
        if (got_ != want_) {                                                                       \
            FAIL("%s gives %s, not %s: %s", #call, weft_status_name(got_),                         \
                 weft_status_name(want_), weft_last_error());                                      \
        }                                                                                          \
    } while (0)

#define CHECK_OK(call) CHECK_STATUS(call, WEFT_OK)

/* `text` contains `part`. */
#define CHECK_TEXT(text, part)                                                                     \
    do {                                                                                           \
        const char *text_ = (text), *part_ = (part);                                               \
        if (strstr(text_, part_) == NULL) {                                                        \
            FAIL("\"%s\" has no \"%s\"", text_, part_);                                            \
        }                                                                                          \
    } while (0)

/* At once, on a machine that has much else to do: far less than a communicator's timeout unless the
 * plan sets one. What is tested is that nobody waits for a timeout, not how fast the machine is. */
#define SOON 10.0

/* Took no longer than `most` seconds, or than team_patience() makes of them. */
#define CHECK_WITHIN(seconds, most)                                                                \
    do {                                                                                           \
        double took_ = (seconds), most_ = (most)*team_patience();                                  \
        if (took_ > most_) {                                                                       \
            FAIL("%s is %.3f s, more than %.3f s", #seconds, took_, most_);                        \
        }                                                                                          \
    } while (0)

#endif
