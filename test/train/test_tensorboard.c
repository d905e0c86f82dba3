/* Event files: read back by a decoder of their own, which shares nothing with the writer, checksums
 * included; across resumes, kills and full disks. test_tensorboard.sh asks TensorBoard itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/fixture.h"
#include "train/metrics.h"
#include "train/tensorboard.h"

/* ---- a reader ------------------------------------------------------------------------------ */

/* CRC-32C bit by bit, as its definition has it. */
static uint32_t slow_crc(const uint8_t *bytes, size_t count)
{
    uint32_t crc = 0xFFFFFFFFu;
    for (size_t i = 0; i < count; i++) {
        for (int bit = 0; bit < 8; bit++) {
            uint32_t out = (crc ^ (uint32_t)bytes[i] >> bit) & 1;
            crc = crc >> 1 ^ (out ? 0x82F63B78u : 0);
        }
    }
    return ~crc;
}

static uint64_t little_endian(const uint8_t *at, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) {
        value |= (uint64_t)at[i] << 8 * i;
    }
    return value;
}

/* Is this the mask of the checksum of these bytes? Undone here, not made again. */
static bool is_masked_crc(uint32_t masked, const uint8_t *bytes, size_t count)
{
    uint32_t rotated = masked - 0xA282EAD8u;
    return (rotated >> 17 | rotated << 15) == slow_crc(bytes, count);
}

/* One field of a message. */
typedef struct field {
    int number, type;
    uint64_t value; /* varint, or the bits of a number */
    const uint8_t *at;
    size_t size; /* of what has a length */
} field_t;

static uint64_t read_varint(const uint8_t **at, const uint8_t *end)
{
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        assert_true(*at < end && shift < 64);
        value |= (uint64_t)(**at & 0x7F) << shift;
        if (*(*at)++ < 0x80) {
            return value;
        }
    }
}

static bool read_field(const uint8_t **at, const uint8_t *end, field_t *field)
{
    if (*at == end) {
        return false;
    }
    uint64_t key = read_varint(at, end);
    *field = (field_t){.number = (int)(key >> 3), .type = (int)(key & 7)};
    int fixed = field->type == 1 ? 8 : field->type == 5 ? 4 : 0;
    if (field->type == 0) {
        field->value = read_varint(at, end);
    } else {
        field->size = field->type == 2 ? (size_t)read_varint(at, end) : (size_t)fixed;
        assert_true(field->type == 2 || fixed > 0);
        assert_true(field->size <= (size_t)(end - *at));
        field->at = *at;
        field->value = fixed > 0 ? little_endian(*at, fixed) : 0;
        *at += field->size;
    }
    return true;
}

typedef struct scalar {
    uint64_t step;
    char tag[32];
    float value;
} scalar_t;

/* A run as a reader of its event files sees it. */
typedef struct seen {
    scalar_t scalars[4096];
    int count;
    int files, records, starts;
    size_t torn; /* bytes after the last whole record of a file */
} seen_t;

static void read_value(const field_t *value, uint64_t step, seen_t *seen)
{
    const uint8_t *at = value->at, *end = value->at + value->size;
    scalar_t scalar = {.step = step};
    int tags = 0, values = 0;
    for (field_t field; read_field(&at, end, &field);) {
        if (field.number == 1 && field.type == 2) {
            snprintf(scalar.tag, sizeof(scalar.tag), "%.*s", (int)field.size, field.at);
            tags++;
        } else if (field.number == 2 && field.type == 5) {
            uint32_t bits = (uint32_t)field.value;
            memcpy(&scalar.value, &bits, 4);
            values++;
        } else {
            fail_msg("a value has field %d of type %d", field.number, field.type);
        }
    }
    assert_true(tags == 1 && values == 1 && seen->count < 4096);
    seen->scalars[seen->count++] = scalar;
}

/* What TensorBoard does at the start of a session: forget this step and later ones. */
static void purge(seen_t *seen, uint64_t step)
{
    int kept = 0;
    for (int i = 0; i < seen->count; i++) {
        if (seen->scalars[i].step < step) {
            seen->scalars[kept++] = seen->scalars[i];
        }
    }
    seen->count = kept;
    seen->starts++;
}

static void read_event(const uint8_t *at, size_t size, bool first, seen_t *seen)
{
    const uint8_t *end = at + size;
    uint64_t step = 0;
    double wall = 0;
    for (field_t field, inner; read_field(&at, end, &field);) {
        const uint8_t *in = field.at, *out = field.at + field.size;
        if (field.number == 1 && field.type == 1) {
            memcpy(&wall, &field.value, 8);
        } else if (field.number == 2 && field.type == 0) {
            step = field.value;
        } else if (field.number == 3 && field.type == 2) {
            assert_true(first && field.size == 13 && memcmp(field.at, "brain.Event:2", 13) == 0);
        } else if (field.number == 7 && field.type == 2) {
            assert_true(read_field(&in, out, &inner) && inner.number == 1 && inner.value == 1);
            purge(seen, step);
        } else {
            assert_true(field.number == 5 && field.type == 2);
            while (read_field(&in, out, &inner)) {
                assert_true(inner.number == 1 && inner.type == 2);
                read_value(&inner, step, seen);
            }
        }
    }
    assert_true(fabs(wall - (double)time(NULL)) < 600);
}

static void read_events(const char *path, seen_t *seen)
{
    char *text;
    size_t size, at = 0;
    assert_int_equal(weft__file_read(path, &text, &size), WEFT_OK);
    const uint8_t *bytes = (const uint8_t *)text;
    bool first = true;
    while (size - at >= 16) {
        uint64_t length = little_endian(bytes + at, 8);
        assert_true(is_masked_crc((uint32_t)little_endian(bytes + at + 8, 4), bytes + at, 8));
        if (length + 16 > size - at) {
            break;
        }
        assert_true(is_masked_crc((uint32_t)little_endian(bytes + at + 12 + length, 4),
                                  bytes + at + 12, length));
        read_event(bytes + at + 12, length, first, seen);
        at += 16 + length;
        first = false;
        seen->records++;
    }
    seen->torn += size - at;
    seen->files++;
    free(text);
}

static int is_events(const struct dirent *entry)
{
    return strncmp(entry->d_name, "events.out.tfevents.", 20) == 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* All event files of the folder, in the order in which readers take them. */
static seen_t *read_folder(const char *folder)
{
    static seen_t seen;
    struct dirent **names;
    char path[WEFT_PATH_BYTES];
    memset(&seen, 0, sizeof(seen));
    int count = scandir(folder, &names, is_events, by_name);
    for (int i = 0; i < count; i++) {
        assert_int_equal(weft__path_join(path, folder, names[i]->d_name), WEFT_OK);
        read_events(path, &seen);
        free(names[i]);
    }
    assert_true(count >= 0);
    free(names);
    return &seen;
}

/* Its value at `step`; NaN if there is none. There must not be two. */
static float value_of(const seen_t *seen, const char *tag, uint64_t step)
{
    float value = NAN;
    for (int i = 0; i < seen->count; i++) {
        if (seen->scalars[i].step == step && strcmp(seen->scalars[i].tag, tag) == 0) {
            assert_true(isnan(value));
            value = seen->scalars[i].value;
        }
    }
    return value;
}

/* ---- what is written ----------------------------------------------------------------------- */

static weft_metrics_step_t step_at(uint64_t step)
{
    weft_metrics_step_t made = WEFT_METRICS_STEP_INIT;
    made.step = step;
    made.loss = 4 - 0.01 * (double)step;
    made.lr = 3e-4;
    made.grad_norm = 1.5;
    made.tokens_per_s = 1e6 + (double)step;
    made.comm_share = 0.25;
    made.eval_loss = step % 5 == 0 ? 5.0 : NAN;
    made.memory = (uint64_t)3 << 30;
    return made;
}

static weft_metrics_t *open_at(const char *folder, uint64_t resumed)
{
    const weft_metrics_options_t options = {
        .tensorboard = folder, .resumed = resumed, .steps = 1000, .log_every = 1};
    weft_metrics_t *metrics;
    if (weft__metrics_open(&options, &metrics) != WEFT_OK) {
        fail_msg("%s", weft_last_error());
    }
    return metrics;
}

static void write_steps(weft_metrics_t *metrics, uint64_t from, uint64_t to)
{
    for (uint64_t s = from; s <= to; s++) {
        weft_metrics_step_t step = step_at(s);
        assert_int_equal(weft__metrics_step(metrics, &step), WEFT_OK);
    }
}

static void check_losses(const seen_t *seen, uint64_t last)
{
    for (uint64_t s = 1; s <= last; s++) {
        assert_true(value_of(seen, "train/loss", s) == (float)(4 - 0.01 * (double)s));
    }
    assert_true(isnan(value_of(seen, "train/loss", last + 1)));
}

static void every_scalar_is_read_back(void **state)
{
    (void)state;
    const char *folder = in_scratch("deep/er/board");
    weft_metrics_t *metrics = open_at(folder, 0);
    write_steps(metrics, 1, 200); /* steps of one and two bytes */
    weft_metrics_step_t wild = step_at(201);
    wild.loss = HUGE_VAL;
    wild.lr = wild.grad_norm = wild.seconds = wild.mfu = wild.bubble = wild.tensor_share = 0.5;
    wild.exchange_share = wild.update_share = wild.epoch = wild.loss_scale = 0.5;
    wild.eval_loss = 0.5;
    assert_int_equal(weft__metrics_step(metrics, &wild), WEFT_OK);
    assert_int_equal(weft__metrics_close(metrics), WEFT_OK);
    const seen_t *seen = read_folder(folder);
    assert_int_equal(seen->records, 203);
    assert_int_equal(seen->torn, 0);
    for (uint64_t s = 1; s <= 200; s++) {
        assert_true(value_of(seen, "train/loss", s) == (float)(4 - 0.01 * (double)s));
        assert_true(value_of(seen, "train/learning_rate", s) == 3e-4f);
        assert_true(value_of(seen, "train/grad_norm", s) == 1.5f);
        assert_true(value_of(seen, "speed/tokens_per_s", s) == (float)(1e6 + (double)s));
        assert_true(value_of(seen, "share/communication", s) == 0.25f);
        assert_true(value_of(seen, "memory/peak_bytes", s) == 0x1.8p31f);
        assert_true(isnan(value_of(seen, "speed/mfu", s)));
        assert_true(s % 5 == 0 ? value_of(seen, "eval/loss", s) == 5.0f
                               : isnan(value_of(seen, "eval/loss", s)));
    }
    assert_true(isinf(value_of(seen, "train/loss", 201)));
    static const char *const tags[] = {"speed/mfu",      "speed/step_seconds", "share/bubble",
                                       "share/tensor",   "share/exchange",     "share/update",
                                       "train/epoch",    "train/loss_scale",   "eval/loss",
                                       "train/grad_norm"};
    for (size_t i = 0; i < sizeof(tags) / sizeof(tags[0]); i++) {
        assert_true(value_of(seen, tags[i], 201) == 0.5f);
    }
}

/* Within one second, too, and when the clock was set back since. */
static void a_resume_supersedes_what_came_after(void **state)
{
    (void)state;
    const char *folder = in_scratch("resumed");
    static const struct {
        uint64_t from, to;
    } runs[] = {{0, 10}, {6, 8}, {8, 20}, {5, 7}};
    for (int i = 0; i < 4; i++) {
        weft_metrics_t *metrics = open_at(folder, runs[i].from);
        write_steps(metrics, runs[i].from + 1, runs[i].to);
        assert_int_equal(weft__metrics_close(metrics), WEFT_OK);
        const seen_t *seen = read_folder(folder);
        assert_int_equal(seen->files, i + 1);
        assert_int_equal(seen->starts, i + 1);
        check_losses(seen, runs[i].to);
    }
    write_file(in_scratch("resumed/events.out.tfevents.9999999990.later.1.0"), "", 0);
    weft_metrics_t *metrics = open_at(folder, 0); /* from the beginning: nothing of before counts */
    write_steps(metrics, 1, 3);
    assert_int_equal(weft__metrics_close(metrics), WEFT_OK);
    const seen_t *seen = read_folder(folder);
    assert_int_equal(seen->files, 6);
    check_losses(seen, 3);
}

static void a_killed_run_leaves_whole_records(void **state)
{
    (void)state;
    const char *folder = in_scratch("killed");
    int lines[2];
    char byte;
    assert_int_equal(pipe(lines), 0);
    pid_t child = fork();
    if (child == 0) {
        weft_metrics_t *metrics = open_at(folder, 0);
        for (uint64_t s = 1; s <= 200; s++) {
            weft_metrics_step_t step = step_at(s);
            weft__metrics_step(metrics, &step);
            if (s == 50 && write(lines[1], "x", 1) != 1) {
                _exit(1);
            }
        }
        pause();
    }
    assert_int_equal(read(lines[0], &byte, 1), 1);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    const seen_t *seen = read_folder(folder);
    assert_int_equal(seen->torn, 0);
    assert_true(seen->records >= 52);
    for (uint64_t s = 1; s <= 50; s++) {
        assert_false(isnan(value_of(seen, "train/loss", s)));
    }
}

static void a_full_disk_leaves_whole_records_and_loses_none(void **state)
{
    (void)state;
    const char *folder = in_scratch("full");
    struct rlimit before, limit;
    getrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, SIG_IGN);
    limit = (struct rlimit){20, before.rlim_max}; /* not even the start has room */
    setrlimit(RLIMIT_FSIZE, &limit);
    weft_metrics_t *metrics = open_at(folder, 0);
    weft_metrics_step_t step = step_at(1);
    assert_int_equal(weft__metrics_step(metrics, &step), WEFT_ERR_SYSTEM);
    assert_true(error_says("events.out.tfevents."));
    assert_int_equal(read_folder(folder)->records, 0);
    limit.rlim_cur = 1000;
    setrlimit(RLIMIT_FSIZE, &limit);
    weft_status_t status = WEFT_OK;
    uint64_t s = 1;
    while (status == WEFT_OK && s < 100) {
        step = step_at(++s);
        status = weft__metrics_step(metrics, &step);
    }
    assert_int_equal(status, WEFT_ERR_SYSTEM);
    assert_true(s > 2 && s < 20);
    assert_int_equal(weft__metrics_catch_up(metrics), WEFT_ERR_SYSTEM);
    const seen_t *seen = read_folder(folder);
    assert_int_equal(seen->torn, 0);
    check_losses(seen, s - 1);
    setrlimit(RLIMIT_FSIZE, &before); /* there is room again */
    assert_int_equal(weft__metrics_catch_up(metrics), WEFT_OK);
    write_steps(metrics, s + 1, s + 5);
    assert_int_equal(weft__metrics_close(metrics), WEFT_OK);
    check_losses(read_folder(folder), s + 5);
}

static void what_cannot_be_written_is_refused(void **state)
{
    (void)state;
    weft_append_t file;
    write_file(in_scratch("plain"), "x", 1);
    assert_int_not_equal(weft__tensorboard_open(in_scratch("plain/board"), 0, &file), WEFT_OK);
    assert_true(error_says("plain"));
    assert_int_equal(mkfifo(in_scratch("pipe"), 0600), 0);
    assert_int_equal(weft__append_open(&file, in_scratch("pipe"), 0), WEFT_ERR_INVALID);
    assert_true(error_says("it is a pipe, not a file"));
    assert_int_equal(weft__append_open(&file, "/dev/full", 0), WEFT_ERR_INVALID);
    assert_true(error_says("it is a device, not a file"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_scalar_is_read_back),
        cmocka_unit_test(a_resume_supersedes_what_came_after),
        cmocka_unit_test(a_killed_run_leaves_whole_records),
        cmocka_unit_test(a_full_disk_leaves_whole_records_and_loses_none),
        cmocka_unit_test(what_cannot_be_written_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
