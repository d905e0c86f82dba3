/* Splitting: ranks tell each other color and key; the first of each color makes a segment for
 * them. */
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "comm/host/host.h"
#include "comm/host/procs.h"

typedef struct ballot {
    int32_t color, key;
} ballot_t;

/* The place of rank `who` among those of its color, their number, and who is first. */
static void find_place(const weft_host_t *host, const ballot_t *ballots, int who, int *rank_p,
                       int *size_p, int *leader_p)
{
    const ballot_t *mine = &ballots[who];
    int before = 0, size = 0, leader = -1;
    for (int p = 0; p < host->size; p++) {
        const ballot_t *b = &ballots[p];
        if (b->color != mine->color) {
            continue;
        }
        size++;
        before += b->key < mine->key || (b->key == mine->key && p < who);
        if (leader < 0 || b->key < ballots[leader].key) {
            leader = p;
        }
    }
    *rank_p = before;
    *size_p = size;
    *leader_p = leader;
}

/* What a rank says of the segment that it made or opened. */
typedef struct opening {
    int32_t status;
    char text[240]; /* why not */
} opening_t;

_Static_assert(sizeof(opening_t) <= WEFT_SLOT_BYTES, "goes with the flag");

/* All have opened their segments, or none of a color joins: the others would wait for it there. Nor
 * can one that fails later take its segment away before the others have it. */
static weft_status_t compare_openings(weft_host_t *host, const ballot_t *ballots,
                                      weft_status_t status)
{
    opening_t mine = {.status = status}, *all = calloc((size_t)host->size, sizeof(*all));
    if (!all) {
        return weft__host_break(host, WEFT_ERR_NO_MEMORY, host->rank,
                                "rank %d has no memory to split the communicator", host->rank);
    }
    if (status != WEFT_OK) {
        snprintf(mine.text, sizeof(mine.text), "%s", weft_last_error());
    }
    status = weft__host_gather(host, false, &mine, all, sizeof(mine));
    for (int p = 0; p < host->size && status == WEFT_OK; p++) {
        if (ballots[p].color == ballots[host->rank].color && all[p].status != WEFT_OK) {
            status = weft__fail((weft_status_t)all[p].status,
                                "rank %d cannot join the new communicator: %s", p, all[p].text);
        }
    }
    free(all);
    return status;
}

static weft_status_t split_segment(weft_host_t *host, bool joins, const ballot_t *ballots,
                                   weft_segment_handle_t *handles, weft_segment_t **segment_p,
                                   int *rank_p)
{
    int size, leader;
    weft_segment_handle_t mine = {0};
    weft_status_t status = WEFT_OK;
    *segment_p = NULL;
    find_place(host, ballots, host->rank, rank_p, &size, &leader);
    bool leads = joins && leader == host->rank;
    if (leads) {
        status = weft__segment_create(size, host->segment->head->layout, segment_p);
        if (status == WEFT_OK) {
            mine = (*segment_p)->handle;
        }
    }
    weft_status_t told = weft__host_gather(host, false, &mine, handles, sizeof(mine));
    if (told != WEFT_OK) {
        return told;
    }
    if (joins && !leads && handles[leader].pid != 0) {
        status = weft__segment_open(&handles[leader], segment_p);
    }
    return compare_openings(host, ballots, status);
}

/* Those who join the child are known from the parent: one that dies before it has joined is missed
 * at once. */
static void watch_family(const weft_host_t *host, const ballot_t *ballots, weft_host_t *child)
{
    for (int p = 0; p < host->size; p++) {
        int rank, size, leader;
        if (p != host->rank && ballots[p].color == ballots[host->rank].color) {
            find_place(host, ballots, p, &rank, &size, &leader);
            weft__host_watch(&child->peers[rank], host->peers[p].pid);
        }
    }
}

/* A rank died while it joined the child: the parent has lost it as well, and names it by its own
 * numbers. */
static weft_status_t break_parent(weft_host_t *host, const ballot_t *ballots)
{
    const weft_waiting_t waiting = {.rank = host->rank, .doing = "splitting the communicator"};
    weft_fault_t fault = {.status = WEFT_ERR_RANK_DEAD, .culprit = host->rank};
    snprintf(fault.text, sizeof(fault.text), "while splitting: %s", weft_last_error());
    for (int p = 0; p < host->size; p++) {
        const weft_seen_t seen = {.rank = p,
                                  .state = weft__host_state(host, p),
                                  .owes = WEFT_OWES_ALL,
                                  .pid = host->peers[p].pid};
        if (p != host->rank && ballots[p].color == ballots[host->rank].color &&
            seen.state == WEFT_SEEN_ENDED && weft__watch(&waiting, &seen, 1, &fault)) {
            break;
        }
    }
    return weft__host_break_with(host, &fault);
}

/* The steps of joining, in which an error of the parent ends the child as well. */
static weft_status_t join_child(weft_host_t *host, const ballot_t *ballots, weft_segment_t *segment,
                                int rank, weft_comm_h child)
{
    weft_rendezvous_t at = {
        .local = true, .shared = &segment, .oversubscribed = host->oversubscribed};
    child->backend = host->comm->backend;
    weft_status_t status = child->backend->enter(child, &at, rank, (int)segment->head->size);
    if (status == WEFT_OK) {
        child->host->parent = host;
        watch_family(host, ballots, child->host);
        status = child->backend->meet(child);
        status = status == WEFT_OK ? child->backend->settle(child, &at) : status;
        child->host->parent = NULL;
    } else { /* unless it told them */
        weft__segment_break(segment, status, rank, weft_last_error());
    }
    return status == WEFT_ERR_RANK_DEAD ? break_parent(host, ballots) : status;
}

weft_status_t weft__host_split(weft_host_t *host, int color, int key, weft_comm_h child)
{
    ballot_t mine = {color < 0 ? -1 : color, key};
    ballot_t *ballots = calloc((size_t)host->size, sizeof(*ballots));
    weft_segment_handle_t *handles = calloc((size_t)host->size, sizeof(*handles));
    weft_segment_t *segment = NULL;
    weft_status_t status;
    int rank = 0;
    if (!ballots || !handles) {
        status = weft__host_break(host, WEFT_ERR_NO_MEMORY, host->rank,
                                  "rank %d has no memory to split the communicator", host->rank);
        goto out;
    }
    status = weft__host_gather(host, true, &mine, ballots, sizeof(mine));
    if (status == WEFT_OK) {
        status = split_segment(host, color >= 0, ballots, handles, &segment, &rank);
    }
    if (status == WEFT_OK && color >= 0) {
        status = join_child(host, ballots, segment, rank, child);
    }
out:
    if (segment) {
        weft__segment_close(segment);
    }
    free(ballots);
    free(handles);
    return status;
}
