/* A healthy machine for the doctor, with one thing wrong if a test wants it: eight H100 on
 * NVSwitch, two sockets, two InfiniBand cards (topo/made_up.h has GPUs and root folder), a run
 * folder, and a program in place of `weft` that says what its ranks found. */
#ifndef WEFT_TEST_DOCTOR_PATIENT_H
#define WEFT_TEST_DOCTOR_PATIENT_H

#include "doctor/doctor.h"
#include "topo/made_up.h"

/* Where the doctor is going to look; tests change it. gpus is filled in by patient_see. */
extern weft_doctor_asked_t patient;

/* cmocka's kind. */
int patient_open(void **state);
int patient_close(void **state);

/* Everything healthy, in an empty folder; level quick, machine and run. */
void patient_heal(void);

/* A file of the machine, by its absolute path there: a part of its text replaced, or all of it. */
void patient_change(const char *path, const char *old, const char *with);
void patient_remove(const char *path);
void patient_link(const char *path, const char *target);
void patient_bytes(const char *path, const void *bytes, size_t size);

/* Take the RDMA cards out. */
void patient_no_rdma(void);

/* A variable of the environment: "NCCL_ALGO=Ring". */
void patient_export(const char *entry);

/* What the program in place of weft does: a shell script's text; patient_ranks writes what ranks
 * say, with one part of it replaced (NULL: nothing). */
void patient_program(const char *script);
void patient_ranks(const char *old, const char *with);

/* One line of metrics.jsonl for each of `count` steps: `line` is printf's, given the step and a
 * loss that falls. */
void patient_steps(int count, const char *line);

/* Look; the caller cleans up. */
void patient_see(weft_doctor_t *doctor);

#endif
