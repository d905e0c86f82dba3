/* Log lines to stderr, and the sentence behind weft_last_error. */
#include "base/log.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/plain.h"
#include "base/settings.h"

#define SENTENCE_BYTES 2048

int weft__log_level = INT_MAX;

static int log_rank = -1;

/* The sentences of threads that have failed. They are not thread-local themselves: a library that
 * is loaded late, such as into Python, finds little room for that. There are enough of them for the
 * threads of a rank, so that running out of memory is told too; more come from malloc. */
enum { PLACES = 64 };

typedef struct place {
    _Atomic bool taken; /* by the thread that has it (exchange); let go as it ends (release) */
    char text[SENTENCE_BYTES];
} place_t;

static place_t places[PLACES];
static _Thread_local place_t *own_place; /* NULL until this thread fails */
static pthread_key_t place_key;
static pthread_once_t place_once = PTHREAD_ONCE_INIT;

static const char *const level_names[] = {"error", "warn", "info", "debug", "trace"};

bool weft__log_set_level(const char *name)
{
    int level = WEFT_LOG_WARN;
    bool known = false;
    for (int i = 0; i <= WEFT_LOG_TRACE && !known; i++) {
        known = strcmp(name, level_names[i]) == 0;
        level = known ? i : level;
    }
    /* Pairs with the load in weft__log_on. */
    __atomic_store_n(&weft__log_level, level, __ATOMIC_RELAXED);
    return known;
}

void weft__log_set_rank(int rank)
{
    /* Pairs with the load in write_line. */
    __atomic_store_n(&log_rank, rank, __ATOMIC_RELAXED);
}

/* Format at most SENTENCE_BYTES with the final NUL; a sentence that was cut ends in "...". What it
 * quotes, as names in files that others wrote, must not reach a terminal as it is. */
static void format_cut(char out[SENTENCE_BYTES], const char *format, va_list args)
{
    int length = vsnprintf(out, SENTENCE_BYTES, format, args);
    if (length < 0) {
        snprintf(out, SENTENCE_BYTES, "(a message that cannot be formatted)");
    } else if (length >= SENTENCE_BYTES) {
        memcpy(out + SENTENCE_BYTES - 4, "...", 4);
    }
    if (!weft__is_plain(out, true)) {
        char plain[SENTENCE_BYTES];
        weft__plain(plain, sizeof(plain), out, true);
        memcpy(out, plain, strlen(plain) + 1);
    }
}

/* Whoever runs out of descriptors says so in the system's words, which do not tell what to do. */
static void advise_on_files(char *text, size_t room)
{
    size_t length = strlen(text);
    struct rlimit limit = {0};
    if (strstr(text, strerror(EMFILE)) == NULL || strstr(text, "ulimit -") != NULL) {
        return;
    }
    if (strstr(text, strerror(ENFILE)) != NULL) {
        snprintf(text + length, room - length, "; fs.file-max limits all processes together");
    } else if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        snprintf(text + length, room - length,
                 "; a process may have %llu here: raise that with ulimit -n, to at most %llu",
                 (unsigned long long)limit.rlim_cur, (unsigned long long)limit.rlim_max);
    } else {
        snprintf(text + length, room - length,
                 "; a process may have %llu here, the most that ulimit -n allows (ulimit -Hn)",
                 (unsigned long long)limit.rlim_cur);
    }
}

static void write_line(const char *text)
{
    char line[SENTENCE_BYTES + 32];
    /* Pairs with the store in weft__log_set_rank. */
    int rank = __atomic_load_n(&log_rank, __ATOMIC_RELAXED);
    int length = rank < 0 ? snprintf(line, sizeof(line), "[weft] %s\n", text)
                          : snprintf(line, sizeof(line), "[weft %d] %s\n", rank, text);
    const char *at = line;
    while (length > 0) {
        ssize_t written = write(STDERR_FILENO, at, (size_t)length);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            return; /* nowhere left to say so */
        }
        at += written;
        length -= (int)written;
    }
}

static bool level_on(weft_log_level_t level)
{
    if (__atomic_load_n(&weft__log_level, __ATOMIC_RELAXED) == INT_MAX) {
        weft__settings(); /* sets the level */
    }
    return weft__log_on(level);
}

void weft__log_write(weft_log_level_t level, const char *format, ...)
{
    int saved = errno;
    if (level_on(level)) {
        char text[SENTENCE_BYTES];
        va_list args;
        errno = saved; /* for %m */
        va_start(args, format);
        format_cut(text, format, args);
        va_end(args);
        advise_on_files(text, sizeof(text));
        write_line(text);
    }
    errno = saved;
}

static void let_go(void *place)
{
    place_t *mine = place;
    own_place = NULL;
    if (mine >= places && mine < places + PLACES) {
        atomic_store_explicit(&mine->taken, false, memory_order_release);
    } else {
        free(mine);
    }
}

static void make_key(void)
{
    if (pthread_key_create(&place_key, let_go) != 0) {
        place_key = (pthread_key_t)-1; /* then places stay taken when threads end */
    }
}

/* The place of this thread's sentence. NULL: no memory. */
static place_t *find_place(void)
{
    if (own_place) {
        return own_place;
    }
    pthread_once(&place_once, make_key);
    for (int i = 0; i < PLACES && !own_place; i++) {
        /* Acquire: pairs with let_go, whose thread wrote the text before. */
        if (!atomic_exchange_explicit(&places[i].taken, true, memory_order_acquire)) {
            own_place = &places[i];
            own_place->text[0] = '\0';
        }
    }
    if (!own_place) {
        own_place = calloc(1, sizeof(*own_place));
    }
    if (own_place && place_key != (pthread_key_t)-1) {
        pthread_setspecific(place_key, own_place);
    }
    return own_place;
}

weft_status_t weft__fail(weft_status_t status, const char *format, ...)
{
    int saved = errno;
    char text[SENTENCE_BYTES]; /* the arguments may point to the last sentence */
    va_list args;
    va_start(args, format);
    format_cut(text, format, args);
    va_end(args);
    advise_on_files(text, sizeof(text));
    weft__error_restore(text);
    weft__info("%s: %s", weft_status_name(status), text);
    errno = saved;
    return status;
}

void weft__error_restore(const char *sentence)
{
    place_t *place = find_place();
    if (place && sentence != place->text) {
        snprintf(place->text, sizeof(place->text), "%s", sentence);
    }
}

const char *weft_last_error(void)
{
    return own_place ? own_place->text : "";
}
