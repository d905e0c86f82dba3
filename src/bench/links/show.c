/* The matrices and tables in the terminal. Eight ranks fit into 80 columns. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/args.h"
#include "base/median.h"
#include "base/settings.h"
#include "bench/links/judge.h"
#include "bench/links/run.h"
#include "device/device.h"

#define RANKS_SHOWN 32 /* with more, summaries only */

/* Four significant digits at most: "0.532", "12.61", "396.4". */
static void print_number(char text[16], double value)
{
    int digits = value < 10 ? 3 : value < 100 ? 2 : value < 10000 ? 1 : 0;
    snprintf(text, 16, "%.*f", digits, value);
}

static const char *colour_of(const weft_links_t *links, const weft_link_t *link, double median)
{
    if (!links->colour) {
        return "";
    }
    double share = median > 0 ? link->one_way_gbs / median : 1;
    return link->slow || link->wrong ? "\033[31m" : share < 0.9 ? "\033[33m" : "\033[32m";
}

/* ---- one kind of link ------------------------------------------------------------------- */

typedef enum field { ONE_WAY, BOTH_WAYS, LATENCY } field_t;

static double value_of(const weft_link_t *link, field_t field)
{
    return field == ONE_WAY     ? link->one_way_gbs
           : field == BOTH_WAYS ? link->both_ways_gbs
                                : link->latency_us;
}

typedef struct summary {
    int links, least_from, least_to;
    double median, least, most;
} summary_t;

/* Of all links of a kind; `room` has a number a link. */
static summary_t sum_up(const weft_links_results_t *results, int kind, field_t field, double *room)
{
    summary_t sum = {.links = 0};
    for (int from = 0; from < results->size; from++) {
        for (int to = 0; to < results->size; to++) {
            const weft_link_t *link = weft__links_at(results, from, to);
            double value = value_of(link, field);
            if (link->kind != kind) {
                continue;
            }
            if (sum.links == 0 || value < sum.least) {
                sum.least = value;
                sum.least_from = from;
                sum.least_to = to;
            }
            sum.most = value > sum.most ? value : sum.most;
            room[sum.links++] = value;
        }
    }
    sum.median = weft__median(room, (size_t)sum.links);
    return sum;
}

static char letter_of(const weft_links_results_t *results, int kind)
{
    return results->kinds == 1 ? ' ' : kind < 26 ? (char)('a' + kind) : '*';
}

/* ---- matrices --------------------------------------------------------------------------- */

static void print_matrix(const weft_links_t *links, const weft_links_results_t *results,
                         field_t field, const char *title, double *room)
{
    printf("#\n# %s\n#   ", title);
    for (int to = 0; to < results->size; to++) {
        printf(" %7d", to);
    }
    printf("\n");
    for (int from = 0; from < results->size; from++) {
        printf("%4d", from);
        for (int to = 0; to < results->size; to++) {
            const weft_link_t *link = weft__links_at(results, from, to);
            char text[16];
            if (from == to) {
                printf(" %6s ", "-");
                continue;
            }
            print_number(text, value_of(link, field));
            const char *colour = "";
            if (field == ONE_WAY && links->colour) {
                colour = colour_of(links, link, sum_up(results, link->kind, field, room).median);
            }
            printf(" %s%6s%s%c", colour, text, colour[0] ? "\033[0m" : "",
                   field == ONE_WAY && link->slow ? '!' : letter_of(results, link->kind));
        }
        printf("\n");
    }
}

static void print_matrices(const weft_links_t *links, const weft_links_results_t *results,
                           double *room)
{
    char title[160], size[32];
    weft__print_size(size, sizeof(size), results->bytes);
    snprintf(title, sizeof(title), "one way, GB/s: row to column, transfers of %s%s", size,
             results->kinds > 1 ? "; letters: see links below" : "");
    print_matrix(links, results, ONE_WAY, title, room);
    print_matrix(links, results, BOTH_WAYS, "both ways at once, GB/s of both together", room);
    print_matrix(links, results, LATENCY, "latency of 8 bytes with a signal, us, one way", room);
}

static void print_kinds(const weft_links_results_t *results, double *room)
{
    printf("#\n# links\n# %-24s %5s %7s %7s %7s %7s %7s %7s\n", "kind", "pairs", "median", "least",
           "(pair)", "most", "both", "latency");
    for (int kind = 0; kind < results->kinds; kind++) {
        const char *name = "";
        double expected = 0;
        for (int i = 0; i < results->size * results->size; i++) {
            if (results->links[i].kind == kind) {
                name = results->links[i].info.text;
                expected = results->links[i].info.expected_gbs;
            }
        }
        summary_t one = sum_up(results, kind, ONE_WAY, room);
        char median[16], least[16], most[16], both[16], late[16], link[32];
        print_number(median, one.median);
        print_number(least, one.least);
        print_number(most, one.most);
        print_number(both, sum_up(results, kind, BOTH_WAYS, room).median);
        print_number(late, sum_up(results, kind, LATENCY, room).median);
        snprintf(link, sizeof(link), "%d>%d", one.least_from, one.least_to);
        printf("%c %-24s %5d %7s %7s %7s %7s %7s %7s\n", letter_of(results, kind), name, one.links,
               median, least, link, most, both, late);
        if (results->messages && expected > 0) {
            printf("#   copies over such a link reach %.4g GB/s or more\n", expected);
        }
    }
    if (results->messages) {
        printf("# messages, not copies: links are compared with others of their kind\n");
    }
}

/* ---- the rest --------------------------------------------------------------------------- */

static void print_together(const weft_links_results_t *results)
{
    char text[16];
    printf("#\n# all ranks at once, GB/s of all together: rank r to r + shift\n# shift");
    for (int i = 1; i < results->size; i++) {
        printf(" %7d%s", i, i % 8 == 0 && i + 1 < results->size ? "\n#      " : "");
    }
    printf("\n       ");
    for (int i = 1; i < results->size; i++) {
        print_number(text, results->permutations[i - 1]);
        printf(" %7s%s", text, i % 8 == 0 && i + 1 < results->size ? "\n       " : "");
    }
    printf("\n# all-to-all, GB/s that each rank sends to others\n# rank ");
    for (int i = 0; i < results->size; i++) {
        printf(" %7d%s", i, i % 8 == 7 && i + 1 < results->size ? "\n#      " : "");
    }
    printf("\n       ");
    for (int i = 0; i < results->size; i++) {
        print_number(text, results->alltoall[i]);
        printf(" %7s%s", text, i % 8 == 7 && i + 1 < results->size ? "\n       " : "");
    }
    print_number(text, results->alltoall_sum);
    printf("\n  in sum %s GB/s\n", text);
}

/* A row for each size, a column for each algorithm. */
static void print_reduces(const weft_links_results_t *results)
{
    const char *algos[WEFT_LINKS_ALGOS];
    char text[32];
    int count = 0;
    printf("#\n# all-reduce, us\n# %10s", "bytes");
    for (int i = 0; i < results->reduces; i++) {
        int at = 0;
        while (at < count && strcmp(algos[at], results->reduce[i].algo) != 0) {
            at++;
        }
        if (at == count && count < WEFT_LINKS_ALGOS) {
            algos[count++] = results->reduce[i].algo;
            printf(" %10s", results->reduce[i].algo);
        }
    }
    printf("\n");
    for (int i = 0; i < results->reduces;) {
        size_t bytes = results->reduce[i].bytes;
        weft__print_size(text, sizeof(text), bytes);
        printf("  %10s", text);
        for (int at = 0; at < count; at++) {
            bool is = i < results->reduces && results->reduce[i].bytes == bytes &&
                      strcmp(results->reduce[i].algo, algos[at]) == 0;
            snprintf(text, sizeof(text), "%.1f", is ? results->reduce[i].us : 0);
            printf(" %10s", is ? text : "-");
            i += is;
        }
        printf("\n");
    }
}

static void print_memory(const weft_links_results_t *results)
{
    static const char *const wheres[] = {"local", "peer", "host"}, *const whats[] = {"copy", "read",
                                                                                     "write"};
    printf("#\n# memory, GB/s by one rank at a time: median over ranks (least)\n# %-8s", "of");
    for (int what = 0; what < 3; what++) {
        printf(" %20s", whats[what]);
    }
    printf("\n");
    for (int where = 0; where < 3; where++) {
        printf("  %-8s", wheres[where]);
        for (int what = 0; what < 3; what++) {
            char cell[48] = "-", median[16], least[16];
            for (int i = 0; i < results->memories; i++) {
                const weft_links_memory_t *row = &results->memory[i];
                if (strcmp(row->where, wheres[where]) == 0 && strcmp(row->what, whats[what]) == 0) {
                    print_number(median, row->gbs);
                    print_number(least, row->least_gbs);
                    snprintf(cell, sizeof(cell), "%s (%s)", median, least);
                }
            }
            printf(" %20s", cell);
        }
        printf("\n");
    }
}

/* Is there anything to hold a link of some kind against: a table, or enough others? */
static bool is_judged(const weft_links_results_t *results, double *room)
{
    bool judged = false;
    for (int kind = 0; kind < results->kinds; kind++) {
        judged = judged || sum_up(results, kind, ONE_WAY, room).links >= WEFT_JUDGE_LINKS;
    }
    for (int i = 0; i < results->size * results->size; i++) {
        judged = judged || weft__links_expects(results, &results->links[i]);
    }
    return judged;
}

/* Figures of ranks that take turns say little about links. */
static void print_shared(const weft_links_t *links)
{
    int cores = links->machine.cpus_job;
    if (!weft__device_is_cuda() && cores > 0 && links->ranks_here > cores) {
        printf("#\n# more ranks than cores (oversubscribed): %d ranks take turns on %d core%s, so\n"
               "# that figures of all ranks at once, and latencies, say little about links\n",
               links->ranks_here, cores, cores == 1 ? "" : "s");
    }
}

static void print_findings(const weft_links_results_t *results, double *room)
{
    printf("#\n");
    for (const weft_links_finding_t *at = results->findings; at; at = at->next) {
        weft__print_wrapped(stdout, at->text, 0, 2);
    }
    if (results->size < 2) {
        printf("# links need 2 ranks or more: give -n 2\n");
    } else if (results->finding_count == 0 && is_judged(results, room)) {
        printf("# no slow link, no wrong byte\n");
    } else if (results->finding_count == 0) {
        printf("# no wrong byte; too few links of a kind to call one slow: give -n 4, or --min\n");
    }
}

void weft__links_show(const weft_links_t *links, const weft_links_results_t *results)
{
    double *room = calloc((size_t)results->size * (size_t)results->size, sizeof(*room));
    if (!room) {
        printf("# no memory for tables\n");
        return;
    }
    if (results->size > 1) {
        if (results->size <= RANKS_SHOWN) {
            print_matrices(links, results, room);
        } else {
            printf("#\n# matrices of more than %d ranks are in the file of --json only\n",
                   RANKS_SHOWN);
        }
        print_kinds(results, room);
        print_together(results);
        print_reduces(results);
    }
    print_memory(results);
    print_shared(links);
    print_findings(results, room);
    fflush(stdout);
    free(room);
}
