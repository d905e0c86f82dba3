/* ctest: timeout=60 cores=1 */
/* Run folders with one thing wrong, read by `weft doctor RUN`. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "doctor/patient.h"

#define NOTE WEFT_FINDING_NOTE
#define WARNING WEFT_FINDING_WARNING
#define ERROR WEFT_FINDING_ERROR

typedef struct fault {
    const char *name;
    const char *config;  /* "OLD|NEW" in RUN/config; NULL: as it is */
    const char *steps;   /* a line of metrics.jsonl; NULL: as it is */
    void (*plant)(void); /* what else; NULL: nothing */
    const char *check;
    weft_finding_level_t level;
    const char *seen; /* in the evidence */
} fault_t;

#define STEP(rest) "{\"step\": %d, \"loss\": %.3f, \"seconds\": 0.5, " rest "}"

static void tear(void)
{
    machine_put("/run/metrics.jsonl", "{\"step\": 1, \"loss\": 2}\n{\"step\": 2, \"lo");
}

static void damage(void)
{
    patient_change("/run/metrics.jsonl", "{\"step\": 20,", "???");
}

static void empty(void)
{
    machine_put("/run/metrics.jsonl", "");
}

static void damage_config(void)
{
    machine_put("/run/config", "ranks = 8\nno-such-option = 3\n");
}

static void damage_trace(void)
{
    machine_put("/run/trace.json", "{\"traceEvents\": [");
}

static void explode(void)
{
    patient_change("/run/metrics.jsonl", "\"step\": 30, \"loss\": 6.250",
                   "\"step\": 30, \"loss\": null");
}

static void rise(void)
{
    char line[160], *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    for (int i = 1; i <= 40; i++) {
        snprintf(line, sizeof(line), "{\"step\": %d, \"loss\": %d}\n", i, i);
        fputs(line, out);
    }
    fclose(out);
    machine_put("/run/metrics.jsonl", text);
    free(text);
}

static void stall(void)
{
    for (int i = 15; i < 40; i += 5) {
        char old[96], with[96];
        double loss = 10.0 - 5.0 * i / 40;
        snprintf(old, sizeof(old), "\"step\": %d, \"loss\": %.3f, \"seconds\": 0.5", i, loss);
        snprintf(with, sizeof(with), "\"step\": %d, \"loss\": %.3f, \"seconds\": 3", i, loss);
        patient_change("/run/metrics.jsonl", old, with);
    }
}

static void collapse(void)
{
    patient_change("/run/metrics.jsonl", "\"step\": 1, ", "\"loss_scale\": 65536, \"step\": 1, ");
    patient_change("/run/metrics.jsonl", "\"step\": 40, ",
                   "\"loss_scale\": 0.5, \"skipped\": true, \"step\": 40, ");
}

static void straggle(void)
{
    patient_change("/run/trace.json", "\"dur\":910", "\"dur\":1400");
}

static void lose_trace(void)
{
    patient_remove("/run/trace.json");
}

static void starve(void)
{
    patient_change("/run/trace.json", "\"dur\":10}", "\"dur\":400}");
}

static void on_cpus(void)
{
    patient_change("/run/machine.json", "\"cuda\"", "\"cpu\"");
    patient_change("/run/machine.json", "\"cpus\": 32", "\"cpus\": 4");
}

static const fault_t faults[] = {
    {"killed", NULL, NULL, tear, "run-files", NOTE, "no end"},
    {"damaged", NULL, NULL, damage, "run-files", WARNING, "1 of 40 lines are no steps"},
    {"no step", NULL, NULL, empty, "run-files", WARNING, "metrics.jsonl is empty"},
    {"config of others", NULL, NULL, damage_config, "run-files", WARNING, "no-such-option"},
    {"trace torn", NULL, NULL, damage_trace, "run-files", WARNING, "trace.json"},
    {"not a number", NULL, NULL, explode, "run-loss", ERROR, "null in step 30"},
    {"loss rises", NULL, NULL, rise, "run-loss", WARNING, "first tenth 2.5, of the last 38.5"},
    {"overflows", NULL, NULL, collapse, "run-loss-scale", WARNING, "from 65536 to 0.5"},
    {"communication", NULL, STEP("\"comm_share\": 0.35"), NULL, "run-comm", WARNING, "median 35%"},
    {"communication, traced", NULL, STEP("\"comm_share\": 0.35"), NULL, "run-comm", WARNING,
     "no rank computes more than 1% longer"},
    {"communication, no trace", NULL, STEP("\"comm_share\": 0.35"), lose_trace, "run-comm", WARNING,
     "looks the same: --trace RUN/trace.json"},
    {"late, not communication", NULL, STEP("\"comm_share\": 0.35"), straggle, "run-straggler",
     WARNING, "0.0014 s"},
    {"no overlap", "length|overlap = no\nlength", NULL, NULL, "run-overlap", WARNING,
     "overlap = no"},
    {"small buckets", "length|bucket = 64K\nlength", NULL, NULL, "run-bucket", WARNING,
     "bucket = 65536 for 496 MB"},
    {"each tensor", "length|bucket = 0\nlength", NULL, NULL, "run-bucket", WARNING, "bucket = 0"},
    {"naive", "length|dp-style = naive\nlength", NULL, NULL, "run-style", WARNING, "naive"},
    {"small batch", "micro-batch = 8|micro-batch = 1", NULL, NULL, "run-batch", WARNING,
     "1 x accumulate 1 x length 1024 = 1024"},
    {"few micro-batches", "dp = 8|dp = 2\npp = 4", STEP("\"bubble\": 0.7"), NULL, "run-bubble",
     WARNING, "70% with 4 stages and 1 micro"},
    {"unequal stages", "8\naccumulate = 1|8\naccumulate = 32\ndp = 2\npp = 4",
     STEP("\"bubble\": 0.4"), NULL, "run-bubble", WARNING, "alone make 9%"},
    {"tensor parallel waits", "dp = 8|dp = 1\ntp = 8",
     STEP("\"comm_share\": 0.4, \"tensor_share\": 0.4"), NULL, "run-tensor", WARNING, "40%"},
    {"slow update", NULL, STEP("\"update_share\": 0.6"), NULL, "run-update", WARNING, "60%"},
    {"recomputes", "length|recompute = full\nlength", STEP("\"memory\": 8000000000"), NULL,
     "run-recompute", WARNING, "recompute = full; peak 7.45 GiB of 80 GiB"},
    {"offloads", "length|offload = optimizer\nlength", STEP("\"memory\": 8000000000"), NULL,
     "run-recompute", WARNING, "offload = optimizer"},
    {"stalls", NULL, NULL, stall, "run-steady", WARNING, "5 of 40 steps"},
    {"straggler", NULL, NULL, straggle, "run-straggler", WARNING, "0.0014 s"},
    {"waits for data", NULL, NULL, starve, "run-data", WARNING, "20% of the steps' time"},
    {"fp32", "bf16|fp32", NULL, NULL, "run-precision", WARNING, "precision = fp32"},
    {"8 ranks, 4 CPUs", NULL, NULL, on_cpus, "run-ranks", NOTE, "8 ranks, 4 CPUs"},
};

#define FAULTS ((int)(sizeof(faults) / sizeof(faults[0])))

static void plant(const fault_t *fault)
{
    if (fault->config != NULL) {
        char old[128];
        const char *bar = strchr(fault->config, '|');
        snprintf(old, sizeof(old), "%.*s", (int)(bar - fault->config), fault->config);
        patient_change("/run/config", old, bar + 1);
    }
    if (fault->steps != NULL) {
        patient_steps(40, fault->steps);
    }
    if (fault->plant != NULL) {
        fault->plant();
    }
}

static bool is_named(const fault_t *fault)
{
    weft_doctor_t doctor;
    int count = 0;
    bool named = false;
    patient_heal();
    patient.machine = false;
    plant(fault);
    patient_see(&doctor);
    for (int i = 0; i < doctor.count; i++) {
        const weft_finding_t *found = &doctor.findings[i];
        if (found->level == WEFT_FINDING_OK) {
            continue;
        }
        count++;
        named = strcmp(found->check, fault->check) == 0 && found->level == fault->level &&
                strstr(found->evidence, fault->seen) != NULL && found->what[0] != '\0' &&
                found->cost[0] != '\0' && found->fix[0] != '\0';
        if (!named || count > 1) {
            print_message("%s: %d %s: %s (%s)\n", fault->name, (int)found->level, found->check,
                          found->what, found->evidence);
        }
    }
    if (count == 0) {
        print_message("%s: nothing was found\n", fault->name);
    }
    weft__doctor_cleanup(&doctor);
    return named && count == 1;
}

static void every_fault_is_named_and_nothing_else(void **state)
{
    int missed = 0;
    (void)state;
    for (int i = 0; i < FAULTS; i++) {
        missed += !is_named(&faults[i]);
    }
    print_message("%d of %d planted faults are named\n", FAULTS - missed, FAULTS);
    assert_int_equal(missed, 0);
}

/* Memory is compared only with that of the machine that the run was on. */
static void another_machines_memory_says_nothing(void **state)
{
    (void)state;
    static const fault_t recomputes = {.config = "length|recompute = full\nlength",
                                       .steps = STEP("\"memory\": 8000000000")};
    weft_doctor_t doctor;
    patient_heal();
    patient.machine = false;
    plant(&recomputes);
    patient_change("/run/machine.json", "H100", "H200");
    patient_see(&doctor);
    assert_int_equal(weft__doctor_count(&doctor, WARNING), 0);
    weft__doctor_cleanup(&doctor);
}

static void what_is_no_run_is_refused(void **state)
{
    (void)state;
    weft_doctor_t doctor;
    char path[256];
    patient_heal();
    snprintf(path, sizeof(path), "%s/proc", machine_source().root);
    patient.run = path;
    assert_int_equal(weft__doctor_init(&doctor, &patient), WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_last_error(), "is no run folder"));
    patient.run = "/no/such/folder";
    assert_int_equal(weft__doctor_init(&doctor, &patient), WEFT_ERR_NOT_FOUND);
}

/* A run of a million steps takes no longer: its middle is not read. */
static void a_long_run_is_read_at_both_ends(void **state)
{
    (void)state;
    weft_doctor_t doctor;
    patient_heal();
    patient.machine = false;
    patient_steps(60000, STEP("\"comm_share\": 0.1"));
    patient_see(&doctor);
    assert_int_equal(weft__doctor_count(&doctor, WARNING) + weft__doctor_count(&doctor, ERROR), 0);
    weft__doctor_cleanup(&doctor);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, patient_open, patient_close)
    const struct CMUnitTest tests[] = {
        TEST(every_fault_is_named_and_nothing_else),
        TEST(another_machines_memory_says_nothing),
        TEST(what_is_no_run_is_refused),
        TEST(a_long_run_is_read_at_both_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
