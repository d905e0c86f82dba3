/* What was found, as JSON; docs/links.md describes it. */
#include "bench/links/run.h"

static void write_links(weft_json_t *json, const weft_links_results_t *results)
{
    weft__json_array(json, "pairs");
    for (int from = 0; from < results->size; from++) {
        for (int to = 0; to < results->size; to++) {
            const weft_link_t *link = weft__links_at(results, from, to);
            if (from == to) {
                continue;
            }
            weft__json_object(json, NULL);
            weft__json_int(json, "from", from);
            weft__json_int(json, "to", to);
            weft__json_string(json, "link", link->info.text);
            weft__json_double(json, "one_way_gbs", link->one_way_gbs);
            weft__json_double(json, "both_ways_gbs", link->both_ways_gbs);
            weft__json_double(json, "latency_us", link->latency_us);
            weft__json_bool(json, "slow", link->slow);
            if (link->info.expected_gbs > 0) {
                weft__json_double(json, "expected_gbs", link->info.expected_gbs);
            }
            weft__json_uint(json, "wrong_bytes", link->wrong);
            weft__json_end(json);
        }
    }
    weft__json_end(json);
}

static void write_together(weft_json_t *json, const weft_links_results_t *results)
{
    weft__json_array(json, "permutations");
    for (int shift = 1; shift < results->size; shift++) {
        weft__json_object(json, NULL);
        weft__json_int(json, "shift", shift);
        weft__json_double(json, "gbs", results->permutations[shift - 1]);
        weft__json_end(json);
    }
    weft__json_end(json);
    weft__json_object(json, "alltoall");
    weft__json_array(json, "gbs");
    for (int rank = 0; rank < results->size && results->size > 1; rank++) {
        weft__json_double(json, NULL, results->alltoall[rank]);
    }
    weft__json_end(json);
    weft__json_double(json, "sum_gbs", results->alltoall_sum);
    weft__json_end(json);
    weft__json_array(json, "allreduce");
    for (int i = 0; i < results->reduces; i++) {
        weft__json_object(json, NULL);
        weft__json_string(json, "algorithm", results->reduce[i].algo);
        weft__json_uint(json, "bytes", results->reduce[i].bytes);
        weft__json_double(json, "us", results->reduce[i].us);
        weft__json_end(json);
    }
    weft__json_end(json);
}

static void write_memory(weft_json_t *json, const weft_links_results_t *results)
{
    weft__json_array(json, "memory");
    for (int i = 0; i < results->memories; i++) {
        const weft_links_memory_t *row = &results->memory[i];
        weft__json_object(json, NULL);
        weft__json_string(json, "where", row->where);
        weft__json_string(json, "what", row->what);
        weft__json_double(json, "gbs", row->gbs);
        weft__json_double(json, "least_gbs", row->least_gbs);
        weft__json_int(json, "least_rank", row->least_rank);
        weft__json_end(json);
    }
    weft__json_end(json);
}

void weft__links_write(weft_json_t *json, const weft_links_results_t *results)
{
    weft__json_uint(json, "bytes", results->bytes);
    weft__json_uint(json, "verified_bytes", results->verified);
    weft__json_string(json, "transfers", results->messages ? "messages" : "copies");
    write_links(json, results);
    write_together(json, results);
    write_memory(json, results);
    weft__json_array(json, "findings");
    for (const weft_links_finding_t *at = results->findings; at; at = at->next) {
        weft__json_object(json, NULL);
        weft__json_string(json, "text", at->text);
        weft__json_end(json);
    }
    weft__json_end(json);
}
