/* What was found, for people and for machines. */
#include <string.h>

#include "base/args.h"
#include "base/plain.h"
#include "doctor/doctor.h"

static const char *const words[] = {"ok", "note", "warning", "error"};

#define TEXT_COLUMN 11 /* where the text of a finding begins */
#define OK_COLUMN 27

/* Evidence has names of others in it: of hosts, files, variables. */
static void print_text(FILE *out, const char *text, int column)
{
    char plain[4096];
    weft__print_wrapped(out, weft__plain(plain, sizeof(plain), text, true), column, column);
}

static void print_part(FILE *out, const char *name, const char *text)
{
    if (text[0] != '\0') {
        fprintf(out, "  %-9s", name);
        print_text(out, text, TEXT_COLUMN);
    }
}

static void print_finding(const weft_finding_t *finding, FILE *out)
{
    fprintf(out, "%s: %s\n", words[finding->level], finding->check);
    print_part(out, "what", finding->what);
    print_part(out, "seen", finding->evidence);
    print_part(out, "costs", finding->cost);
    print_part(out, "fix", finding->fix);
    fprintf(out, "\n");
}

static void print_ok(const weft_finding_t *finding, FILE *out)
{
    fprintf(out, "  %-7s %-16s ", finding->skipped ? "-" : "ok", finding->check);
    print_text(out, finding->skipped ? finding->evidence : finding->what, OK_COLUMN);
}

/* A row for each subject: how many checks were fine, and so on. */
static void print_subjects(const weft_doctor_t *doctor, bool verbose, FILE *out)
{
    fprintf(out, "%-14s %5s %8s %6s %9s %8s\n", "about", "ok", "skipped", "notes", "warnings",
            "errors");
    for (int i = 0; i < doctor->count;) {
        const char *subject = doctor->findings[i].subject;
        int counts[4] = {0}, skipped = 0, first = i;
        for (; i < doctor->count && strcmp(doctor->findings[i].subject, subject) == 0; i++) {
            skipped += doctor->findings[i].skipped;
            counts[doctor->findings[i].level] += !doctor->findings[i].skipped;
        }
        fprintf(out, "%-14s %5d %8d %6d %9d %8d\n", subject, counts[0], skipped, counts[1],
                counts[2], counts[3]);
        for (int k = first; verbose && k < i; k++) {
            if (doctor->findings[k].level == WEFT_FINDING_OK) {
                print_ok(&doctor->findings[k], out);
            }
        }
    }
    fprintf(out, "\n");
}

/* What to begin with: the first of the worst. */
static const weft_finding_t *worst(const weft_doctor_t *doctor)
{
    const weft_finding_t *found = NULL;
    for (int i = 0; i < doctor->count; i++) {
        const weft_finding_t *finding = &doctor->findings[i];
        if (finding->level > WEFT_FINDING_NOTE && (!found || finding->level > found->level)) {
            found = finding;
        }
    }
    return found;
}

static const char *plural(int count)
{
    return count == 1 ? "" : "s";
}

void weft__doctor_print_exports(const weft_doctor_t *doctor, FILE *out)
{
    for (int i = 0; i < doctor->export_count; i++) {
        const weft_doctor_export_t *line = &doctor->exports[i];
        char why[1024];
        weft__print_comment(out, weft__plain(why, sizeof(why), line->why, false));
        fprintf(out, "export %s=%s\n", line->name, line->value);
    }
}

void weft__doctor_print(const weft_doctor_t *doctor, bool verbose, FILE *out)
{
    int notes = weft__doctor_count(doctor, WEFT_FINDING_NOTE);
    int warnings = weft__doctor_count(doctor, WEFT_FINDING_WARNING);
    int errors = weft__doctor_count(doctor, WEFT_FINDING_ERROR);
    print_subjects(doctor, verbose, out);
    for (int level = WEFT_FINDING_ERROR; level >= WEFT_FINDING_NOTE; level--) {
        for (int i = 0; i < doctor->count; i++) {
            if ((int)doctor->findings[i].level == level) {
                print_finding(&doctor->findings[i], out);
            }
        }
    }
    if (doctor->export_count > 0) {
        fprintf(out, "for this machine:\n");
        weft__doctor_print_exports(doctor, out);
        fprintf(out, "\n");
    }
    const weft_finding_t *first = worst(doctor);
    if (errors + warnings == 0) {
        fprintf(out, notes > 0 ? "no warnings" : "nothing to fix");
    } else {
        fprintf(out, "%d error%s, %d warning%s", errors, plural(errors), warnings,
                plural(warnings));
    }
    if (notes > 0) {
        fprintf(out, "%s %d note%s", first == NULL ? ";" : ",", notes, plural(notes));
    }
    fprintf(out, "%s%s\n", first ? "; begin with " : "", first ? first->check : "");
}

void weft__doctor_json(const weft_doctor_t *doctor, weft_json_t *json)
{
    weft__json_array(json, "findings");
    for (int i = 0; i < doctor->count; i++) {
        const weft_finding_t *finding = &doctor->findings[i];
        weft__json_object(json, NULL);
        weft__json_string(json, "check", finding->check);
        weft__json_string(json, "about", finding->subject);
        weft__json_string(json, "level", words[finding->level]);
        weft__json_bool(json, "looked", !finding->skipped);
        weft__json_string(json, "what", finding->what);
        weft__json_string(json, "evidence", finding->evidence);
        weft__json_string(json, "cost", finding->cost);
        weft__json_string(json, "fix", finding->fix);
        weft__json_end(json);
    }
    weft__json_end(json);
    weft__json_array(json, "exports");
    for (int i = 0; i < doctor->export_count; i++) {
        char line[2048];
        const weft_doctor_export_t *one = &doctor->exports[i];
        snprintf(line, sizeof(line), "export %s=%s  # %s", one->name, one->value, one->why);
        weft__json_string(json, NULL, line);
    }
    weft__json_end(json);
}
