/* The page as a whole: contents, sections in their order. */
#include "report/report.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/version.h"
#include "report/html.h"
#include "report/input.h"
#include "report/page.h"
#include "report/section.h"
#include "report/values.h"

typedef struct section {
    const char *id, *title;
    weft_status_t (*write)(const weft_report_t *report, FILE *out);
} section_t;

static const section_t sections[] = {
    {"findings", "Findings", weft__section_doctor},
    {"training", "Training", weft__section_metrics},
    {"timeline", "Timeline of a step", weft__section_trace},
    {"benchmark", "Training benchmark", weft__section_train},
    {"scaling", "Scaling", weft__section_scaling},
    {"links", "Links", weft__section_links},
    {"bandwidth", "Bandwidth and time by size", weft__section_bench},
    {"pairs", "Pairs", weft__section_pairs},
    {"machine", "Machine and settings", weft__section_machine},
};
#define SECTIONS ((int)(sizeof(sections) / sizeof(sections[0])))

typedef struct text {
    char *bytes;
    size_t size;
} text_t;

/* A section in memory: one that has nothing to say is not in the contents. */
static weft_status_t render(const weft_report_t *report, const section_t *section, text_t *text)
{
    FILE *out = open_memstream(&text->bytes, &text->size);
    if (out == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a report");
    }
    weft_status_t status = section->write(report, out);
    bool failed = ferror(out) != 0;
    failed = fclose(out) != 0 || failed;
    return status == WEFT_OK && failed ? weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a report")
                                       : status;
}

static void write_contents(const text_t *texts, FILE *out)
{
    fputs("<nav aria-label=\"contents\">", out);
    for (int i = 0; i < SECTIONS; i++) {
        if (texts[i].size > 0) {
            fprintf(out, "<a href=\"#%s\">%s</a> ", sections[i].id, sections[i].title);
        }
    }
    fputs("</nav>\n", out);
}

/* "RUN", or "RUN and 2 more" */
static void make_title(const weft_report_t *report, char *title, size_t size)
{
    const char *label = report->count > 0 ? report->inputs[0].label : "";
    if (report->named > 1) {
        snprintf(title, size, "Weft report: %.200s and %d more", label, report->named - 1);
    } else {
        snprintf(title, size, "Weft report: %.200s", label);
    }
}

/* When each input was measured, and with which commit: "RUN: 2026-01-31T12:00:00Z, commit 0123".
 * Metrics and traces do not say; of a run its record does. */
static void write_origins(const weft_report_t *report, FILE *out)
{
    bool any = false;
    for (int i = 0; i < report->count; i++) {
        const weft_json_value_t *root = report->inputs[i].doc.root;
        const weft_json_value_t *machine = weft__value_object(root, "machine");
        const char *started = weft__value_text(machine != NULL ? machine : root, "started");
        const char *commit = weft__value_text(root, "commit");
        if (started[0] == '\0' && commit[0] == '\0') {
            continue;
        }
        fputs(any ? "; " : "<p class=\"note\">Measured: ", out);
        weft__html_cut(out, report->inputs[i].label, 60);
        fputs(": ", out);
        weft__html_cut(out, started, 30);
        fputs(commit[0] == '\0' ? "" : started[0] == '\0' ? "commit " : ", commit ", out);
        weft__html_cut(out, commit, 20);
        any = true;
    }
    fputs(any ? "</p>\n" : "", out);
}

static void write_page(const weft_report_t *report, const char *title, const text_t *texts,
                       FILE *out)
{
    char made[120], own_title[300];
    bool known = weft__commit[0] != '\0';
    make_title(report, own_title, sizeof(own_title));
    snprintf(made, sizeof(made), "Made by weft report %s%s%.20s%s", weft_version(),
             known ? " (" : "", weft__commit, known ? ")" : "");
    weft__page_open(out, title != NULL ? title : own_title, made);
    write_origins(report, out);
    write_contents(texts, out);
    for (int i = 0; i < SECTIONS; i++) {
        if (texts[i].size > 0) {
            weft__section_open(out, sections[i].id, sections[i].title);
            fwrite(texts[i].bytes, 1, texts[i].size, out);
            weft__section_close(out);
        }
    }
    weft__page_close(out);
}

weft_status_t weft__report_write(const weft_report_t *report, const char *title, FILE *out)
{
    text_t texts[SECTIONS] = {{NULL, 0}};
    weft_status_t status = WEFT_OK;
    for (int i = 0; i < SECTIONS && status == WEFT_OK; i++) {
        status = render(report, &sections[i], &texts[i]);
    }
    if (status == WEFT_OK) {
        write_page(report, title, texts, out);
    }
    for (int i = 0; i < SECTIONS; i++) {
        free(texts[i].bytes);
    }
    return status;
}
