/* What was found, as JSON; docs/links.md describes it. */
#include "bench/links/run.h"

static void write_pairs(weft_json_t *json, const weft_links_found_t *found)
{
    weft__json_array(json, "pairs");
    for (int from = 0; from < found->size; from++) {
        for (int to = 0; to < found->size; to++) {
            const weft_links_pair_t *pair = weft__links_pair(found, from, to);
            if (from == to) {
                continue;
            }
            weft__json_object(json, NULL);
            weft__json_int(json, "from", from);
            weft__json_int(json, "to", to);
            weft__json_string(json, "link", pair->link.text);
            weft__json_double(json, "one_way_gbs", pair->one_way_gbs);
            weft__json_double(json, "both_ways_gbs", pair->both_ways_gbs);
            weft__json_double(json, "latency_us", pair->latency_us);
            weft__json_bool(json, "slow", pair->slow);
            if (pair->link.expected_gbs > 0) {
                weft__json_double(json, "expected_gbs", pair->link.expected_gbs);
            }
            weft__json_uint(json, "wrong_bytes", pair->wrong);
            weft__json_end(json);
        }
    }
    weft__json_end(json);
}

static void write_together(weft_json_t *json, const weft_links_found_t *found)
{
    weft__json_array(json, "permutations");
    for (int shift = 1; shift < found->size; shift++) {
        weft__json_object(json, NULL);
        weft__json_int(json, "shift", shift);
        weft__json_double(json, "gbs", found->permutations[shift - 1]);
        weft__json_end(json);
    }
    weft__json_end(json);
    weft__json_object(json, "alltoall");
    weft__json_array(json, "gbs");
    for (int rank = 0; rank < found->size && found->size > 1; rank++) {
        weft__json_double(json, NULL, found->alltoall[rank]);
    }
    weft__json_end(json);
    weft__json_double(json, "sum_gbs", found->alltoall_sum);
    weft__json_end(json);
    weft__json_array(json, "allreduce");
    for (int i = 0; i < found->reduces; i++) {
        weft__json_object(json, NULL);
        weft__json_string(json, "algorithm", found->reduce[i].algo);
        weft__json_uint(json, "bytes", found->reduce[i].bytes);
        weft__json_double(json, "us", found->reduce[i].us);
        weft__json_end(json);
    }
    weft__json_end(json);
}

static void write_memory(weft_json_t *json, const weft_links_found_t *found)
{
    weft__json_array(json, "memory");
    for (int i = 0; i < found->memories; i++) {
        const weft_links_memory_t *row = &found->memory[i];
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

void weft__links_write(weft_json_t *json, const weft_links_found_t *found)
{
    weft__json_uint(json, "bytes", found->bytes);
    weft__json_uint(json, "verified_bytes", found->verified);
    weft__json_string(json, "transfers", found->messages ? "messages" : "copies");
    write_pairs(json, found);
    write_together(json, found);
    write_memory(json, found);
    weft__json_array(json, "findings");
    for (const weft_links_finding_t *at = found->findings; at; at = at->next) {
        weft__json_object(json, NULL);
        weft__json_string(json, "text", at->text);
        weft__json_end(json);
    }
    weft__json_end(json);
}
