/* Findings of weft doctor, the gravest first. */
#include <string.h>

#include "base/log.h"
#include "report/html.h"
#include "report/input.h"
#include "report/page.h"
#include "report/section.h"
#include "report/values.h"

typedef struct level {
    const char *word;
    int color;
} level_t;

/* From bad to good; other words come last. A check that did not apply, and did not look, is
 * "skipped": the file calls its level "ok". */
static const level_t levels[] = {{"error", 1}, {"warning", 5}, {"note", 4},
                                 {"ok", 2},    {"skipped", 7}, {NULL, 7}};
#define OK 3 /* of them: looked, and found it ok */
#define SKIPPED 4
#define LEVELS ((int)(sizeof(levels) / sizeof(levels[0])))

static int level_of(const weft_json_value_t *finding)
{
    const char *word = weft__value_text(finding, "level");
    bool looked = true;
    int i = 0;
    while (i < LEVELS - 1 && strcmp(levels[i].word, word) != 0) {
        i++;
    }
    weft__json_to_bool(weft__json_get(finding, "looked"), &looked);
    return i == OK && !looked ? SKIPPED : i;
}

static void write_finding(const weft_json_value_t *finding, FILE *out)
{
    static const char *const keys[] = {"check", "what", "evidence", "cost"};
    int level = level_of(finding);
    const char *word = level == SKIPPED ? levels[level].word : weft__value_text(finding, "level");
    weft__html_row(out);
    fprintf(out, "<td data-v=\"%d\"><span class=\"tag c%d\">", level, levels[level].color);
    weft__html_text(out, word[0] != '\0' ? word : "?");
    fputs("</span></td>", out);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        weft__html_cell(out, weft__value_text(finding, keys[i]));
    }
    fputs("<td><code>", out);
    weft__html_text(out, weft__value_text(finding, "fix"));
    fputs("</code></td>", out);
    weft__html_row_end(out);
}

/* Is it something to look at? */
static bool is_told(int level)
{
    return level != OK && level != SKIPPED;
}

static int count_findings(const weft_json_value_t *findings, int level)
{
    int count = 0;
    for (const weft_json_value_t *at = weft__json_first(findings); at != NULL;
         at = weft__json_next(findings, at)) {
        count += at->kind == WEFT_JSON_OBJECT && level_of(at) == level;
    }
    return count;
}

static void write_table(const weft_json_value_t *findings, bool told, FILE *out)
{
    static const char *const columns[] = {"level", "check", "what", "evidence", "cost", "fix"};
    weft__html_table(out, columns, 6);
    for (int level = 0; level < LEVELS; level++) {
        for (const weft_json_value_t *at = weft__json_first(findings); at != NULL;
             at = weft__json_next(findings, at)) {
            if (at->kind == WEFT_JSON_OBJECT && is_told(level) == told && level_of(at) == level) {
                write_finding(at, out);
            }
        }
    }
    weft__html_table_end(out);
}

/* What is ok, and what was not looked at, is folded. */
static void write_findings(const weft_json_value_t *findings, FILE *out)
{
    int passed = count_findings(findings, OK), skipped = count_findings(findings, SKIPPED);
    int told = 0;
    for (int level = 0; level < LEVELS; level++) {
        told += is_told(level) ? count_findings(findings, level) : 0;
    }
    if (told > 0) {
        write_table(findings, true, out);
    } else {
        weft__note(out, "Nothing was found.");
    }
    if (passed + skipped > 0) {
        char text[60];
        snprintf(text, sizeof(text), "%d passed, %d skipped", passed, skipped);
        weft__details_open(out, text);
        write_table(findings, false, out);
        weft__details_close(out);
    }
}

weft_status_t weft__section_doctor(const weft_report_t *report, FILE *out)
{
    for (const weft_input_t *input = NULL;
         (input = weft__input_next(report, WEFT_INPUT_DOCTOR, input)) != NULL;) {
        const weft_json_value_t *findings = weft__value_array(input->doc.root, "findings");
        if (weft__input_count(report, WEFT_INPUT_DOCTOR) > 1) {
            fputs("<h3>", out);
            weft__html_text(out, input->label);
            fputs("</h3>\n", out);
        }
        if (findings == NULL) {
            weft__note(out, "Nothing was found.");
        } else {
            write_findings(findings, out);
        }
    }
    return WEFT_OK;
}
