/* Times of calls by events on their streams. A call costs two events while reporting, and nothing
 * otherwise. Events are read when they have passed, so that nothing waits for them before the
 * end. */
#include "nccl/report.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { NAMES = 16, SIZES = 48, TRACED_MOST = 200000 };

struct weft_nccl_record {
    const char *name; /* without "nccl" */
    size_t bytes;
    int64_t queued_ns; /* by the clock of the host */
    weft_event_h start, end;
    weft_stream_h stream;
    weft_nccl_record_t *next;
};

/* All calls of one name whose bytes have the same highest bit. */
typedef struct cell {
    uint64_t calls, bytes;
    double ms, most_ms;
} cell_t;

/* What the trace tells of a call. */
typedef struct traced {
    const char *name;
    size_t bytes;
    int64_t queued_ns;
    double ms;
} traced_t;

bool weft__nccl_reporting;

static const char *folder;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of everything below */
static weft_nccl_record_t *first, **last = &first;       /* under way, in order */
static const char *names[NAMES];
static cell_t cells[NAMES][SIZES];
static traced_t *traced;
static size_t traced_count, traced_room, not_traced;
static int rank_told = -1, open_comms;
static int64_t begin_ns;

static __thread weft_nccl_record_t *of_group;

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static __attribute__((constructor)) void look(void)
{
    folder = getenv("WEFT_NCCL_REPORT");
    weft__nccl_reporting = folder && folder[0];
    begin_ns = now_ns();
}

/* ---- counting --------------------------------------------------------------------------- */

static int bit_of(size_t bytes)
{
    int bit = 0;
    while (bytes > 1 && bit < SIZES - 1) {
        bytes >>= 1;
        bit++;
    }
    return bit;
}

static void count_call(const weft_nccl_record_t *record, double ms)
{
    int i = 0;
    while (i < NAMES - 1 && names[i] && strcmp(names[i], record->name) != 0) {
        i++;
    }
    names[i] = record->name;
    cell_t *cell = &cells[i][bit_of(record->bytes)];
    cell->calls++;
    cell->bytes += record->bytes;
    cell->ms += ms;
    cell->most_ms = ms > cell->most_ms ? ms : cell->most_ms;
    if (traced_count == traced_room && traced_room < TRACED_MOST) {
        size_t room = traced_room ? 2 * traced_room : 1024;
        traced_t *longer = realloc(traced, room * sizeof(*traced));
        traced = longer ? longer : traced;
        traced_room = longer ? room : traced_room;
    }
    if (traced_count < traced_room) {
        traced[traced_count++] = (traced_t){record->name, record->bytes, record->queued_ns, ms};
    } else {
        not_traced++;
    }
}

static void drop(weft_nccl_record_t *record)
{
    weft_event_destroy(record->start);
    weft_event_destroy(record->end);
    free(record);
}

/* Count what has passed; with `wait`, all. Under the lock. */
static void harvest(bool wait)
{
    double ms;
    while (first) {
        weft_nccl_record_t *record = first;
        if (wait) {
            weft_event_synchronize(record->end);
        } else if (weft_event_query(record->end) == WEFT_PENDING) {
            return;
        }
        if (weft_event_elapsed(record->start, record->end, &ms) == WEFT_OK) {
            count_call(record, ms);
        }
        first = record->next;
        last = first ? last : &first;
        drop(record);
    }
}

weft_nccl_record_t *weft__nccl_report_begin(ncclComm_t comm, const char *name, size_t count,
                                            weft_dtype_t type, weft_stream_h stream)
{
    weft_nccl_record_t *record = weft__nccl_reporting ? calloc(1, sizeof(*record)) : NULL;
    if (!record) {
        return NULL;
    }
    int before = 0;
    weft_device_get(&before);
    weft_device_set(comm->device);
    record->name = name;
    record->bytes = count * weft_dtype_size(type);
    record->queued_ns = now_ns();
    record->stream = stream;
    bool whole = weft_event_create(&record->start) == WEFT_OK &&
                 weft_event_create(&record->end) == WEFT_OK &&
                 weft_event_record(record->start, stream) == WEFT_OK;
    weft_device_set(before);
    if (!whole) {
        drop(record);
        return NULL;
    }
    return record;
}

static void finish(weft_nccl_record_t *record)
{
    if (weft_event_record(record->end, record->stream) != WEFT_OK) {
        drop(record);
        return;
    }
    record->next = NULL;
    pthread_mutex_lock(&lock);
    *last = record;
    last = &record->next;
    harvest(false);
    pthread_mutex_unlock(&lock);
}

void weft__nccl_report_end(weft_nccl_record_t *record)
{
    if (record && weft__nccl_group_depth() > 0) {
        record->next = of_group;
        of_group = record;
    } else if (record) {
        finish(record);
    }
}

void weft__nccl_report_group_end(void)
{
    weft_nccl_record_t *record = of_group, *forward = NULL;
    of_group = NULL;
    while (record) { /* in the order of the calls */
        weft_nccl_record_t *next = record->next;
        record->next = forward;
        forward = record;
        record = next;
    }
    while (forward) {
        record = forward;
        forward = record->next;
        finish(record);
    }
}

/* ---- writing ---------------------------------------------------------------------------- */

static FILE *open_file(const char *kind, const char *suffix, char *path, size_t room)
{
    int length = snprintf(path, room, "%s/%s-%d.%s.part", folder, kind, rank_told, suffix);
    errno = ENAMETOOLONG;
    FILE *file = length > 0 && (size_t)length < room ? fopen(path, "w") : NULL;
    if (!file) {
        fprintf(stderr, "[weft] WEFT_NCCL_REPORT: cannot write %s: %s\n", path, strerror(errno));
    }
    return file;
}

/* Under its name only when it is whole. */
static void close_file(FILE *file, const char *part)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%.*s", (int)(strlen(part) - strlen(".part")), part);
    bool written = !ferror(file);
    if (fclose(file) != 0 || !written || rename(part, path) != 0) {
        fprintf(stderr, "[weft] WEFT_NCCL_REPORT: cannot write %s: %s\n", path, strerror(errno));
        remove(part);
    }
}

static void write_summary(void)
{
    char path[PATH_MAX];
    FILE *out = open_file("summary", "txt", path, sizeof(path));
    if (!out) {
        return;
    }
    fprintf(out,
            "# rank %d: calls of NCCL's, by bytes of one rank's part; ms on their streams\n"
            "# %-14s %10s %10s %12s %12s %10s\n",
            rank_told, "call", "to bytes", "calls", "ms in all", "ms each", "ms most");
    for (int i = 0; i < NAMES && names[i]; i++) {
        for (int bit = 0; bit < SIZES; bit++) {
            const cell_t *cell = &cells[i][bit];
            if (cell->calls > 0) {
                fprintf(out, "  %-14s %10zu %10llu %12.3f %12.4f %10.4f\n", names[i],
                        ((size_t)1 << (bit + 1)) - 1, (unsigned long long)cell->calls, cell->ms,
                        cell->ms / (double)cell->calls, cell->most_ms);
            }
        }
    }
    close_file(out, path);
}

static void write_trace(void)
{
    char path[PATH_MAX];
    FILE *out = open_file("trace", "json", path, sizeof(path));
    if (!out) {
        return;
    }
    double free_us = 0; /* a call begins when it is queued, and the one before is done */
    fprintf(out, "{\"traceEvents\":[\n");
    for (size_t i = 0; i < traced_count; i++) {
        const traced_t *t = &traced[i];
        double queued_us = (double)(t->queued_ns - begin_ns) * 1e-3;
        double start_us = queued_us > free_us ? queued_us : free_us;
        free_us = start_us + t->ms * 1e3;
        fprintf(out,
                "{\"name\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":0,\"ts\":%.3f,\"dur\":%.3f,"
                "\"args\":{\"bytes\":%zu}},\n",
                t->name, rank_told, start_us, t->ms * 1e3, t->bytes);
    }
    fprintf(out,
            "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"rank %d\"}}\n"
            "],\"not_traced\":%zu}\n",
            rank_told, rank_told, not_traced);
    close_file(out, path);
}

static void write_all(void)
{
    if (mkdir(folder, 0777) != 0 && errno != EEXIST) {
        fprintf(stderr, "[weft] WEFT_NCCL_REPORT: cannot make %s: %s\n", folder, strerror(errno));
        return;
    }
    write_summary();
    write_trace();
}

void weft__nccl_report_opened(ncclComm_t comm)
{
    if (weft__nccl_reporting) {
        pthread_mutex_lock(&lock);
        rank_told = rank_told < 0 ? comm->rank : rank_told; /* that of the first communicator */
        open_comms++;
        comm->reported = true;
        pthread_mutex_unlock(&lock);
    }
}

void weft__nccl_report_closed(ncclComm_t comm)
{
    if (weft__nccl_reporting) {
        pthread_mutex_lock(&lock);
        bool counted = comm->reported;
        comm->reported = false;
        if (counted && --open_comms == 0) {
            harvest(true);
            write_all();
        }
        pthread_mutex_unlock(&lock);
    }
}

/* Programs that leave their communicators to the end of the process. */
static __attribute__((destructor)) void leave(void)
{
    if (weft__nccl_reporting && rank_told >= 0 && open_comms > 0) {
        if (pthread_mutex_trylock(&lock) == 0) {
            harvest(false); /* what has passed: nothing can be waited for here */
            pthread_mutex_unlock(&lock);
        }
        write_all();
    }
}
