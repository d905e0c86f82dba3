/* The sections of a report. Each writes what inputs of its kinds have, and a note about what it had
 * to leave out. */
#ifndef WEFT_REPORT_SECTION_H
#define WEFT_REPORT_SECTION_H

#include <stdio.h>

#include "report/report.h"

weft_status_t weft__section_doctor(const weft_report_t *report, FILE *out);
weft_status_t weft__section_metrics(const weft_report_t *report, FILE *out);
weft_status_t weft__section_trace(const weft_report_t *report, FILE *out);
weft_status_t weft__section_train(const weft_report_t *report, FILE *out);
weft_status_t weft__section_scaling(const weft_report_t *report, FILE *out);
weft_status_t weft__section_links(const weft_report_t *report, FILE *out);
weft_status_t weft__section_bench(const weft_report_t *report, FILE *out);
weft_status_t weft__section_pairs(const weft_report_t *report, FILE *out);
weft_status_t weft__section_machine(const weft_report_t *report, FILE *out);

#endif
