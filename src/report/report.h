/* A report: one HTML page made from results of measuring commands, runs of training, metrics and
 * traces.
 *
 *     weft_report_t report = {0};
 *     WEFT_TRY(weft__report_add(&report, "RUN"));        any number of files and run folders
 *     weft__report_write(&report, "title", out);
 *     weft__report_cleanup(&report);
 *
 *     files -> inputs (input.c)      what they are, parsed and checked as far as all have in common
 *       -> sections (section_*.c)    read what they need from inputs of their kind; what is missing
 *                                    or malformed there leaves out a plot or a row, and a note says
 *                                    so
 *         -> plots (plot.h), tables (html.h), the page (page.h) */
#ifndef WEFT_REPORT_REPORT_H
#define WEFT_REPORT_REPORT_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

#include <weft/status.h>

typedef struct weft_input weft_input_t;

typedef struct weft_file_id {
    dev_t device;
    ino_t inode;
} weft_file_id_t;

typedef struct weft_report {
    weft_input_t *inputs;
    int count;
    int named;             /* files and run folders that were added; a folder has several inputs */
    weft_file_id_t *files; /* all that were read */
    int file_count;
} weft_report_t;

/* Read a file or a run folder. WEFT_ERR_INVALID with a sentence that names the file if it is
 * nothing that a report shows, WEFT_ERR_NOT_FOUND if it is not there. */
weft_status_t weft__report_add(weft_report_t *report, const char *path);

/* Is `path` one of the files that were read? */
bool weft__report_reads(const weft_report_t *report, const char *path);

/* Write the page. `title` may be NULL: one is made of what there is. Failures to write are left to
 * whoever owns `out`; the status is WEFT_OK, or WEFT_ERR_NO_MEMORY. */
weft_status_t weft__report_write(const weft_report_t *report, const char *title, FILE *out);

void weft__report_cleanup(weft_report_t *report);

#endif
