/* Event files of TensorBoard: see tensorboard.h. */
#include "train/tensorboard.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/log.h"

#define PREFIX "events.out.tfevents."
#define RECORD_BYTES 2048 /* of a step: 15 scalars of some 40 bytes */

/* Fields of the messages, as tensorflow/core/util/event.proto and framework/summary.proto number
 * them, and how a field is encoded. */
enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };
enum {
    EVENT_WALL_TIME = 1,
    EVENT_STEP = 2,
    EVENT_FILE_VERSION = 3,
    EVENT_SUMMARY = 5,
    EVENT_SESSION_LOG = 7,
    SESSION_LOG_STATUS = 1,
    SESSION_START = 1,
    SUMMARY_VALUE = 1,
    VALUE_TAG = 1,
    VALUE_SIMPLE = 2
};

/* ---- protocol buffers --------------------------------------------------------------------- */

typedef struct message {
    uint8_t bytes[RECORD_BYTES];
    size_t size;
    bool full; /* something did not fit */
} message_t;

static void put_bytes(message_t *m, const void *bytes, size_t count)
{
    if (count > sizeof(m->bytes) - m->size) {
        m->full = true;
        return;
    }
    memcpy(m->bytes + m->size, bytes, count);
    m->size += count;
}

static void put_varint(message_t *m, uint64_t value)
{
    do {
        uint8_t byte = (uint8_t)((value & 0x7F) | (value > 0x7F ? 0x80 : 0));
        put_bytes(m, &byte, 1);
        value >>= 7;
    } while (value > 0);
}

static void put_little_endian(message_t *m, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        uint8_t byte = (uint8_t)(value >> 8 * i);
        put_bytes(m, &byte, 1);
    }
}

static void put_key(message_t *m, int field, int type)
{
    put_varint(m, (uint64_t)field << 3 | (uint64_t)type);
}

static void put_text(message_t *m, int field, const void *text, size_t length)
{
    put_key(m, field, BYTES);
    put_varint(m, length);
    put_bytes(m, text, length);
}

static void put_double(message_t *m, int field, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    put_key(m, field, FIXED64);
    put_little_endian(m, bits, 8);
}

static void put_float(message_t *m, int field, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    put_key(m, field, FIXED32);
    put_little_endian(m, bits, 4);
}

/* ---- events ------------------------------------------------------------------------------- */

static void begin_event(message_t *event, uint64_t step)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    event->size = 0;
    event->full = false;
    put_double(event, EVENT_WALL_TIME, (double)now.tv_sec + (double)now.tv_nsec / 1e9);
    put_key(event, EVENT_STEP, VARINT);
    put_varint(event, step);
}

/* A checksum of data that holds checksums is masked, lest the two cancel each other. */
static uint32_t masked_crc(const void *bytes, size_t count)
{
    uint32_t crc = weft__crc32c(0, bytes, count);
    return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

static weft_status_t write_event(weft_append_t *file, const message_t *event)
{
    message_t record = {.size = 0};
    put_little_endian(&record, event->size, 8);
    put_little_endian(&record, masked_crc(record.bytes, 8), 4);
    put_bytes(&record, event->bytes, event->size);
    put_little_endian(&record, masked_crc(event->bytes, event->size), 4);
    if (event->full || record.full) {
        return weft__fail(WEFT_ERR_INVALID, "an event is too large for %s", file->path);
    }
    return weft__append_write(file, record.bytes, record.size);
}

/* NaN is what is not known. */
static void put_scalar(message_t *summary, const char *tag, double value)
{
    message_t scalar = {.size = 0};
    if (!isnan(value)) {
        put_text(&scalar, VALUE_TAG, tag, strlen(tag));
        put_float(&scalar, VALUE_SIMPLE, (float)value);
        put_text(summary, SUMMARY_VALUE, scalar.bytes, scalar.size);
        summary->full = summary->full || scalar.full;
    }
}

weft_status_t weft__tensorboard_step(weft_append_t *file, const weft_metrics_step_t *step)
{
    message_t event, summary = {.size = 0};
    const struct {
        const char *tag;
        double value;
    } scalars[] = {
        {"train/loss", step->loss},
        {"train/learning_rate", step->lr},
        {"train/grad_norm", step->grad_norm},
        {"train/loss_scale", step->loss_scale},
        {"train/epoch", step->epoch},
        {"eval/loss", step->eval_loss},
        {"speed/step_seconds", step->seconds},
        {"speed/tokens_per_s", step->tokens_per_s},
        {"speed/mfu", step->mfu},
        {"share/communication", step->comm_share},
        {"share/bubble", step->bubble},
        {"share/tensor", step->tensor_share},
        {"share/exchange", step->exchange_share},
        {"share/update", step->update_share},
        {"memory/peak_bytes", step->memory > 0 ? (double)step->memory : NAN},
    };
    for (size_t i = 0; i < sizeof(scalars) / sizeof(scalars[0]); i++) {
        put_scalar(&summary, scalars[i].tag, scalars[i].value);
    }
    begin_event(&event, step->step);
    put_text(&event, EVENT_SUMMARY, summary.bytes, summary.size);
    event.full = event.full || summary.full;
    return write_event(file, &event);
}

static weft_status_t write_start(weft_append_t *file, uint64_t next)
{
    static const char version[] = "brain.Event:2";
    message_t event, session = {.size = 0};
    begin_event(&event, 0);
    put_text(&event, EVENT_FILE_VERSION, version, sizeof(version) - 1);
    weft_status_t first = write_event(file, &event);
    put_key(&session, SESSION_LOG_STATUS, VARINT);
    put_varint(&session, SESSION_START);
    begin_event(&event, next);
    put_text(&event, EVENT_SESSION_LOG, session.bytes, session.size);
    weft_status_t second = write_event(file, &event);
    return first != WEFT_OK ? first : second;
}

/* ---- the file ----------------------------------------------------------------------------- */

/* The SECONDS of the newest event file in `folder`; 0: there is none. */
static weft_status_t find_newest(const char *folder, uint64_t *newest_p)
{
    DIR *dir = opendir(folder);
    *newest_p = 0;
    if (dir == NULL) {
        return weft__fail(WEFT_ERR_SYSTEM, "cannot read the folder %s: %s", folder,
                          strerror(errno));
    }
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (strncmp(entry->d_name, PREFIX, sizeof(PREFIX) - 1) == 0) {
            uint64_t seconds = strtoull(entry->d_name + sizeof(PREFIX) - 1, NULL, 10);
            *newest_p = seconds > *newest_p ? seconds : *newest_p;
        }
    }
    closedir(dir);
    return WEFT_OK;
}

/* Names are compared as text: SECONDS always has ten digits or, from the year 2286 on, more. */
static weft_status_t make_path(const char *folder, char *path)
{
    char host[128] = "", name[256];
    uint64_t newest, now = (uint64_t)time(NULL);
    WEFT_TRY(find_newest(folder, &newest));
    gethostname(host, sizeof(host) - 1);
    for (char *c = host; *c != '\0'; c++) {
        *c = *c == '/' ? '-' : *c;
    }
    snprintf(name, sizeof(name), PREFIX "%010" PRIu64 ".%s.%d.0", now > newest ? now : newest + 1,
             host[0] != '\0' ? host : "host", (int)getpid());
    return weft__path_join(path, folder, name);
}

weft_status_t weft__tensorboard_open(const char *folder, uint64_t resumed, weft_append_t *file)
{
    char path[WEFT_PATH_BYTES];
    WEFT_TRY(weft__folder_make(folder));
    WEFT_TRY(make_path(folder, path));
    WEFT_TRY(weft__append_open(file, path, 0));
    weft_status_t status = write_start(file, resumed + 1);
    if (status == WEFT_ERR_SYSTEM) { /* a full disk: it is kept, and the first step says so */
        return WEFT_OK;
    }
    if (status != WEFT_OK) {
        weft__append_close(file);
    }
    return status;
}
