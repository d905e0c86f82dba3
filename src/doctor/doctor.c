/* The table of checks at work. */
#include "doctor/doctor.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/args.h"
#include "base/log.h"
#include "doctor/checks.h"
#include "doctor/look.h"
#include "doctor/run.h"
#include "doctor/trial.h"

typedef struct row {
    const char *name, *subject;
    weft_doctor_level_t level;
    weft_check_fn_t *look;
    const char *text;
} row_t;

static const row_t table[] = {
#define ROW(name, subject, level, function, text)                                                  \
    {name, subject, WEFT_DOCTOR_##level, weft__check_##function, text},
    WEFT_DOCTOR_TABLE(ROW)
#undef ROW
};

#define ROWS ((int)(sizeof(table) / sizeof(table[0])))
#define RANKS_FIT 8 /* most ranks where none are asked for and there are no GPUs */

static const char *const level_words[] = {"quick", "standard", "thorough"};

/* ---- memory ---------------------------------------------------------------------------------- */

/* Room for one more; false without memory, which is noted. */
static bool make_room(weft_doctor_t *doctor, void **list_p, int *room_p, int count, size_t size)
{
    if (count < *room_p) {
        return true;
    }
    int room = *room_p > 0 ? 2 * *room_p : 64;
    void *list = realloc(*list_p, (size_t)room * size);
    if (list == NULL) {
        doctor->no_memory = true;
        return false;
    }
    *list_p = list;
    *room_p = room;
    return true;
}

void *weft__doctor_keep(weft_doctor_t *doctor, void *memory)
{
    void *list = doctor->texts;
    if (memory == NULL) {
        doctor->no_memory = true;
        return NULL;
    }
    if (!make_room(doctor, &list, &doctor->text_room, doctor->text_count, sizeof(char *))) {
        free(memory);
        return NULL;
    }
    doctor->texts = list;
    doctor->texts[doctor->text_count++] = memory;
    return memory;
}

const char *weft__doctor_text(weft_doctor_t *doctor, const char *format, ...)
{
    char *text = NULL;
    size_t size;
    va_list args;
    FILE *out = open_memstream(&text, &size);
    if (out != NULL) {
        va_start(args, format);
        vfprintf(out, format, args);
        va_end(args);
        fclose(out);
    }
    const char *kept = weft__doctor_keep(doctor, text);
    return kept != NULL ? kept : "";
}

/* ---- for checks ------------------------------------------------------------------------------ */

void weft__doctor_add(weft_doctor_t *doctor, weft_finding_level_t level, const char *what,
                      const char *evidence, const char *cost, const char *fix)
{
    void *list = doctor->findings;
    if (make_room(doctor, &list, &doctor->room, doctor->count, sizeof(weft_finding_t))) {
        doctor->findings = list;
        doctor->findings[doctor->count++] = (weft_finding_t){.check = doctor->check,
                                                             .subject = doctor->subject,
                                                             .level = level,
                                                             .what = what,
                                                             .evidence = evidence,
                                                             .cost = cost,
                                                             .fix = fix};
    }
}

const char *weft__doctor_env(const weft_doctor_t *doctor, const char *name)
{
    size_t length = strlen(name);
    for (char *const *entry = doctor->asked.environment; entry != NULL && *entry != NULL; entry++) {
        if (strncmp(*entry, name, length) == 0 && (*entry)[length] == '=') {
            return (*entry)[length + 1] != '\0' ? *entry + length + 1 : NULL;
        }
    }
    return NULL;
}

void weft__doctor_export(weft_doctor_t *doctor, const char *name, const char *value,
                         const char *why)
{
    void *list = doctor->exports;
    if (make_room(doctor, &list, &doctor->export_room, doctor->export_count,
                  sizeof(weft_doctor_export_t))) {
        doctor->exports = list;
        doctor->exports[doctor->export_count++] = (weft_doctor_export_t){name, value, why};
    }
}

/* ---- all of it ------------------------------------------------------------------------------- */

weft_status_t weft__doctor_init(weft_doctor_t *doctor, const weft_doctor_asked_t *asked)
{
    *doctor = (weft_doctor_t){.asked = *asked};
    const char *device = weft__doctor_env(doctor, "WEFT_DEVICE");
    doctor->on_gpus = asked->gpus != NULL && asked->gpus->cuda_count > 0 &&
                      (device == NULL || strcmp(device, "cpu") != 0);
    weft__look_cpus(doctor);
    int cores = doctor->cpus.allowed_cores;
    doctor->ranks = asked->ranks > 0    ? asked->ranks
                    : doctor->on_gpus   ? asked->gpus->cuda_count
                    : cores > RANKS_FIT ? RANKS_FIT
                    : cores > 0         ? cores
                                        : 1;
    weft_status_t status = asked->run != NULL ? weft__doctor_run_read(doctor, asked->run) : WEFT_OK;
    if (status != WEFT_OK) {
        weft__doctor_cleanup(doctor);
    }
    return status;
}

static void look_once(weft_doctor_t *doctor, const row_t *row)
{
    int before = doctor->count;
    doctor->check = row->name;
    doctor->subject = row->subject;
    const char *why = row->look(doctor);
    if (doctor->count > before) {
        return;
    }
    weft__doctor_add(doctor, WEFT_FINDING_OK, row->text, why != NULL ? why : "", "", "");
    if (doctor->count > before) {
        doctor->findings[doctor->count - 1].skipped = why != NULL;
    }
}

weft_status_t weft__doctor_look(weft_doctor_t *doctor)
{
    for (int i = 0; i < ROWS; i++) {
        bool of_run = strcmp(table[i].subject, "run") == 0;
        bool wanted = of_run ? doctor->run != NULL : doctor->asked.machine;
        if (wanted && table[i].level <= doctor->asked.level) {
            look_once(doctor, &table[i]);
        }
    }
    if (doctor->asked.machine) {
        weft__doctor_recommend(doctor);
    }
    return doctor->no_memory ? weft__fail(WEFT_ERR_NO_MEMORY, "no memory for what was found")
                             : WEFT_OK;
}

void weft__doctor_cleanup(weft_doctor_t *doctor)
{
    weft__doctor_run_free(doctor->run);
    for (int i = 0; i < doctor->trial_count; i++) {
        weft__trial_free(&doctor->trials[i]);
    }
    for (int i = 0; i < doctor->text_count; i++) {
        free(doctor->texts[i]);
    }
    free(doctor->trials);
    free(doctor->texts);
    free(doctor->findings);
    free(doctor->exports);
    memset(doctor, 0, sizeof(*doctor));
}

int weft__doctor_count(const weft_doctor_t *doctor, weft_finding_level_t level)
{
    int count = 0;
    for (int i = 0; i < doctor->count; i++) {
        count += doctor->findings[i].level == level && !doctor->findings[i].skipped;
    }
    return count;
}

const char *weft__doctor_level_word(int i)
{
    return i <= WEFT_DOCTOR_THOROUGH ? level_words[i] : NULL;
}

bool weft__doctor_level(const char *word, weft_doctor_level_t *level_p)
{
    for (int i = 0; i <= WEFT_DOCTOR_THOROUGH; i++) {
        if (strcmp(word, level_words[i]) == 0) {
            *level_p = (weft_doctor_level_t)i;
            return true;
        }
    }
    return false;
}

void weft__doctor_list(FILE *out)
{
    fprintf(out, "%-16s %-9s %s\n", "check", "level", "is fine if");
    for (int i = 0; i < ROWS; i++) {
        fprintf(out, "%-16s %-9s ", table[i].name, level_words[table[i].level]);
        weft__print_wrapped(out, table[i].text, 27, 27);
    }
}
