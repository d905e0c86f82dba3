/* Which pairs, at which sizes, how long. */
#include <stdio.h>
#include <string.h>

#include "base/settings.h"
#include "bench/pairs/internal.h"

static const weft_pairs_profile_t profiles[] = {
    {"quick",
     {.loop_ns = 0.5e6,
      .trials = 5,
      .least = 12,
      .most = 400,
      .budget_ns = 0.5e9,
      .half_width = 0.03},
     1},
    {"standard",
     {.loop_ns = 1e6,
      .trials = 8,
      .least = 32,
      .most = WEFT_SAMPLE_MOST,
      .budget_ns = 2e9,
      .half_width = 0.02},
     3},
    {"thorough",
     {.loop_ns = 4e6,
      .trials = 8,
      .least = 64,
      .most = WEFT_SAMPLE_MOST,
      .budget_ns = 6e9,
      .half_width = 0.01},
     0},
};

#define PROFILES ((int)(sizeof(profiles) / sizeof(profiles[0])))

const weft_pairs_profile_t *weft__pairs_profile(const char *name)
{
    for (int i = 0; i < PROFILES; i++) {
        if (strcmp(profiles[i].name, name) == 0) {
            return &profiles[i];
        }
    }
    return NULL;
}

const char *weft__pairs_profile_name(int i)
{
    return i < PROFILES ? profiles[i].name : NULL;
}

int weft__pairs_sizes(const weft_pair_t *pair, int sizes, size_t bytes[WEFT_PAIRS_SIZES])
{
    int count = 0;
    if (pair->max == 0) {
        bytes[0] = 0;
        return 1;
    }
    for (size_t at = pair->min; at <= pair->max && count < WEFT_PAIRS_SIZES; at *= 4) {
        bytes[count++] = at;
    }
    size_t middle = bytes[count / 2], last = bytes[count - 1];
    if (sizes == 1) {
        bytes[0] = middle;
        return 1;
    }
    if (sizes == 3 && count > 3) {
        bytes[1] = middle;
        bytes[2] = last;
        return 3;
    }
    return count;
}

/* A group's blanks may be typed as dashes. */
static bool is_group(const char *group, const char *typed)
{
    for (; *group != '\0' && *typed != '\0'; group++, typed++) {
        if (*group != *typed && !(*group == ' ' && *typed == '-')) {
            return false;
        }
    }
    return *group == *typed;
}

bool weft__pairs_asked(const weft_pairs_t *pairs, const weft_pair_t *pair)
{
    char label[WEFT_PAIR_LABEL];
    bool asked = pairs->name_count == 0;
    weft__pair_label(pair, label);
    for (int i = 0; i < pairs->name_count && !asked; i++) {
        const char *name = pairs->names[i];
        asked = strcmp(name, label) == 0 || strcmp(name, pair->target) == 0 ||
                is_group(pair->group, name);
    }
    return asked && weft__pair_ways(pair) > 1;
}

bool weft__pairs_is_location(const char *setting)
{
    static const char *const places[] = {
        "WEFT_RANK",        "WEFT_SIZE",         "WEFT_LOCAL_RANK", "WEFT_LOCAL_SIZE",
        "WEFT_MASTER_ADDR", "WEFT_MASTER_PORT",  "WEFT_SECRET",     "WEFT_RESTART",
        "WEFT_TERMINAL",    "WEFT_EXPECTATIONS", "WEFT_PREFIXED",   "WEFT_TOLD"};
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        if (strcmp(places[i], setting) == 0) {
            return true;
        }
    }
    return false;
}

/* ---- names that are not there ----------------------------------------------------------- */

#define NAMES_MOST 512

/* Names of all pairs and groups; labels are kept in `labels`. */
static int all_names(const char *names[NAMES_MOST], char labels[NAMES_MOST][WEFT_PAIR_LABEL])
{
    int count = 0;
    for (const weft_pair_t *const *at = weft__pairs; *at && count < NAMES_MOST - 3; at++) {
        if (weft__pair_ways(*at) < 2) {
            continue;
        }
        weft__pair_label(*at, labels[count]);
        names[count] = labels[count];
        count++;
        names[count++] = (*at)->target;
        names[count++] = (*at)->group;
    }
    return count;
}

const char *weft__pairs_word(int i)
{
    static char word[WEFT_PAIR_LABEL];
    const char *names[NAMES_MOST];
    char labels[NAMES_MOST][WEFT_PAIR_LABEL];
    int count = all_names(names, labels), words = 0;
    for (int at = 0; at < count; at++) {
        int before = 0;
        while (strcmp(names[before], names[at]) != 0) {
            before++;
        }
        if (before < at || words++ != i) {
            continue;
        }
        snprintf(word, sizeof(word), "%s", names[at]);
        for (char *c = word; *c != '\0'; c++) {
            *c = *c == ' ' ? '-' : *c; /* of a group */
        }
        return word;
    }
    return NULL;
}

static weft_status_t refuse(const char *name)
{
    const char *names[NAMES_MOST];
    char labels[NAMES_MOST][WEFT_PAIR_LABEL];
    int count = all_names(names, labels);
    const char *near = weft__nearest(name, names, count);
    return weft__fail(WEFT_ERR_INVALID,
                      "there is no pair or group \"%.100s\"%s%s%s: weft pairs list shows all", name,
                      near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

static bool knows(const char *name)
{
    const weft_pairs_t one = {.names = (char *const[]){(char *)name}, .name_count = 1};
    for (const weft_pair_t *const *at = weft__pairs; *at; at++) {
        if (weft__pairs_asked(&one, *at)) {
            return true;
        }
    }
    return false;
}

weft_status_t weft__pairs_check(const weft_pairs_t *pairs)
{
    if (!weft__pairs_profile(pairs->profile)) {
        const char *names[PROFILES];
        for (int i = 0; i < PROFILES; i++) {
            names[i] = profiles[i].name;
        }
        const char *near = weft__nearest(pairs->profile, names, PROFILES);
        return weft__fail(
            WEFT_ERR_INVALID, "there is no profile \"%.100s\"%s%s%s: quick, standard or thorough",
            pairs->profile, near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
    }
    for (int i = 0; i < pairs->name_count; i++) {
        if (!knows(pairs->names[i])) {
            return refuse(pairs->names[i]);
        }
    }
    return WEFT_OK;
}
