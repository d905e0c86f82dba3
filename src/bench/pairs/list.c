/* weft pairs list. */
#include <stdio.h>
#include <string.h>

#include "base/args.h"
#include "bench/pairs/internal.h"
#include "bench/samples.h"

static void print_pair(const weft_pair_t *pair)
{
    char label[WEFT_PAIR_LABEL], first[32], last[32];
    weft__pair_label(pair, label);
    int column = printf("  %-24s ", label);
    for (int i = 0; i < weft__pair_ways(pair); i++) {
        column += printf("%s%s", i > 0 ? " -> " : "", pair->ways[i].name);
    }
    weft__pairs_show_size(pair->min, first);
    weft__pairs_show_size(pair->max, last);
    if (pair->max > 0) {
        printf("%s(%s..%s)", column > 66 ? "\n                           " : "  ", first, last);
    }
    printf("\n                           ");
    weft__print_wrapped(stdout, pair->text, 27, 27);
    if (pair->bound) {
        printf("                           ");
        char text[256];
        snprintf(text, sizeof(text), "results within %s", pair->bound);
        weft__print_wrapped(stdout, text, 27, 27);
    }
}

static void json_pair(weft_json_t *json, const weft_pair_t *pair)
{
    char label[WEFT_PAIR_LABEL];
    weft__pair_label(pair, label);
    weft__json_object(json, NULL);
    weft__json_string(json, "name", label);
    weft__json_string(json, "group", pair->group);
    weft__json_string(json, "text", pair->text);
    weft__json_string(json, "baseline", pair->ways[0].name);
    weft__json_array(json, "ways");
    for (int i = 1; i < weft__pair_ways(pair); i++) {
        weft__json_string(json, NULL, pair->ways[i].name);
    }
    weft__json_end(json);
    weft__json_string(json, "bound", pair->bound);
    weft__json_uint(json, "min_bytes", pair->min);
    weft__json_uint(json, "max_bytes", pair->max);
    weft__json_int(json, "ranks", pair->ranks > 1 ? pair->ranks : 1);
    weft__json_bool(json, "gpu", pair->gpu);
    weft__json_end(json);
}

weft_status_t weft__pairs_list(const weft_pairs_t *pairs)
{
    weft_result_t result;
    weft_result_head_t head = weft__pairs_head(pairs, "pairs-list", 1);
    WEFT_TRY(weft__result_open(&result, &head));
    if (result.file) {
        weft__json_array(&result.json, "pairs");
    }
    const char *group = NULL;
    for (const weft_pair_t *const *at = weft__pairs; *at; at++) {
        if (!weft__pairs_asked(pairs, *at)) {
            continue;
        }
        if (!group || strcmp(group, (*at)->group) != 0) {
            printf("%s# %s\n", group ? "\n" : "", (*at)->group);
            group = (*at)->group;
        }
        print_pair(*at);
        if (result.file) {
            json_pair(&result.json, *at);
        }
    }
    if (result.file) {
        weft__json_end(&result.json);
    }
    return weft__result_close(&result, WEFT_OK);
}
