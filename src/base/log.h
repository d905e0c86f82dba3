/* Log lines and error sentences.
 *
 * Two different things: a *log line* goes to stderr when its level is on (WEFT_LOG); an *error
 * sentence* is what weft_last_error() returns to the caller. Whoever first knows the cause of a
 * failure calls weft__fail, which records the sentence and logs it at level `info`; callers only
 * pass the status up. */
#ifndef WEFT_BASE_LOG_H
#define WEFT_BASE_LOG_H

#include <stdbool.h>

#include <weft/status.h>

typedef enum weft_log_level {
    WEFT_LOG_ERROR,
    WEFT_LOG_WARN,
    WEFT_LOG_INFO,
    WEFT_LOG_DEBUG,
    WEFT_LOG_TRACE
} weft_log_level_t;

/* The current level; read it through weft__log_on so that a disabled line costs one load. It starts
 * above every level: the first line of the process asks the settings, then decides for itself.
 * Relaxed: it pairs with the store in weft__log_set_level and orders nothing else. */
extern int weft__log_level;

#define weft__log_on(level) ((int)(level) <= __atomic_load_n(&weft__log_level, __ATOMIC_RELAXED))

#define weft__log(level, ...)                                                                      \
    do {                                                                                           \
        if (weft__log_on(level)) {                                                                 \
            weft__log_write(level, __VA_ARGS__);                                                   \
        }                                                                                          \
    } while (0)

#define weft__warn(...) weft__log(WEFT_LOG_WARN, __VA_ARGS__)
#define weft__info(...) weft__log(WEFT_LOG_INFO, __VA_ARGS__)
#define weft__debug(...) weft__log(WEFT_LOG_DEBUG, __VA_ARGS__)

/* Writes one whole line "[weft <rank>] text\n" with a single write(2). */
void weft__log_write(weft_log_level_t level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Set the level by its name ("error" to "trace"). False, and `warn` holds, if there is no such
 * level. */
bool weft__log_set_level(const char *name);

/* The rank shown in log lines; -1 (the start value) shows none. Per process. */
void weft__log_set_rank(int rank);

/* Record the sentence for weft_last_error() of this thread and return `status`:
 *     return weft__fail(WEFT_ERR_INVALID, "weft_allreduce: count ..."); */
weft_status_t weft__fail(weft_status_t status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Pass a failure up, where there is nothing to undo: return the status of `call` from the calling
 * function unless it is WEFT_OK. */
#define WEFT_TRY(call)                                                                             \
    do {                                                                                           \
        weft_status_t try_status_ = (call);                                                        \
        if (try_status_ != WEFT_OK) {                                                              \
            return try_status_;                                                                    \
        }                                                                                          \
    } while (0)

/* Make `sentence` what weft_last_error() returns, as before a clean-up that had failures of its
 * own. */
void weft__error_restore(const char *sentence);

#endif
