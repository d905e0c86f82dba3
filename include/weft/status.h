/* Weft: what every call returns, and the sentence that explains a failure. */
#ifndef WEFT_STATUS_H
#define WEFT_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

/* One row per status: name, value, text. 0 is success, > 0 "not yet", < 0 an error. */
#define WEFT_STATUS_TABLE(X)                                                                       \
    X(WEFT_OK, 0, "success")                                                                       \
    X(WEFT_PENDING, 1, "not finished yet")                                                         \
    X(WEFT_ERR_INVALID, -1, "invalid argument")                                                    \
    X(WEFT_ERR_SYSTEM, -2, "system call failed")                                                   \
    X(WEFT_ERR_NO_MEMORY, -3, "out of memory")                                                     \
    X(WEFT_ERR_TIMEOUT, -4, "timed out waiting for another rank")                                  \
    X(WEFT_ERR_RANK_DEAD, -5, "a rank died")                                                       \
    X(WEFT_ERR_RANK_LEFT, -6, "a rank left the communicator")                                      \
    X(WEFT_ERR_MISMATCH, -7, "ranks made different calls")                                         \
    X(WEFT_ERR_ABORTED, -8, "the communicator was aborted")                                        \
    X(WEFT_ERR_BROKEN, -9, "the communicator is broken by an earlier error")                       \
    X(WEFT_ERR_UNSUPPORTED, -10, "not supported")                                                  \
    X(WEFT_ERR_REFUSED, -11, "connection refused by the store")                                    \
    X(WEFT_ERR_NOT_FOUND, -12, "not found")

typedef enum weft_status {
#define WEFT_STATUS_ENUM(name, value, text) name = value,
    WEFT_STATUS_TABLE(WEFT_STATUS_ENUM)
#undef WEFT_STATUS_ENUM
} weft_status_t;

/* The text of a status ("timed out waiting for another rank"); never NULL, never freed. */
const char *weft_status_text(weft_status_t status);

/* The name of a status ("WEFT_ERR_TIMEOUT"); never NULL, never freed. */
const char *weft_status_name(weft_status_t status);

/* The sentence that describes the last error returned in the calling thread: what happened, to
 * whom, and what to do. "" if there was none. Valid until the next failing call of this thread. */
const char *weft_last_error(void);

/* The version of the library that is running, as "1.2.3". */
const char *weft_version(void);

#ifdef __cplusplus
}
#endif
#endif
