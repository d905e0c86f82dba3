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

/* This thread's error keeps the rank out of the child, where the others wait for it: they look at
 * the parent meanwhile. A leader that dies takes its segment away, and so does one that found the
 * parent broken, whose error is then kept. */
static weft_status_t give_up(weft_host_t *host, int leader, weft_status_t status)
{
    weft_seen_t seen = {.rank = leader,
                        .state = weft__host_state(host, leader),
                        .owes = WEFT_OWES_ALL,
                        .pid = host->peers[leader].pid};
    const weft_waiting_t waiting = {.rank = host->rank, .doing = "splitting the communicator"};
    weft_fault_t fault = {.status = status, .culprit = host->rank};
    if (seen.state == WEFT_SEEN_JOINED && weft__proc_dying(seen.pid)) {
        seen.state = WEFT_SEEN_ENDED;
    }
    if (!weft__watch(&waiting, &seen, 1, &fault)) {
        snprintf(fault.text, sizeof(fault.text), "rank %d cannot join the new communicator: %s",
                 host->rank, weft_last_error());
    }
    return weft__host_break_with(host, &fault);
}

static weft_status_t split_segment(weft_host_t *host, bool joins, const ballot_t *ballots,
                                   weft_segment_handle_t *handles, weft_segment_t **segment_p,
                                   int *rank_p)
{
    int size, leader;
    weft_segment_handle_t mine = {0};
    weft_status_t made = WEFT_OK;
    *segment_p = NULL;
    find_place(host, ballots, host->rank, rank_p, &size, &leader);
    if (joins && leader == host->rank) {
        made = weft__segment_create(size, host->segment->head->layout, segment_p);
        if (made == WEFT_OK) {
            mine = (*segment_p)->handle;
        }
    }
    weft_status_t status = weft__host_gather(host, false, &mine, handles, sizeof(mine));
    if (status != WEFT_OK || made != WEFT_OK || !joins || leader == host->rank) {
        return status != WEFT_OK ? status : made;
    }
    if (handles[leader].pid == 0) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "rank %d could not make the new communicator",
                          leader);
    }
    status = weft__segment_open(&handles[leader], segment_p);
    return status == WEFT_OK ? WEFT_OK : give_up(host, leader, status);
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
    if (status == WEFT_ERR_RANK_DEAD) { /* the parent has lost that rank as well */
        weft__host_break(host, status, host->rank, "while splitting: %s", weft_last_error());
    }
    return status;
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
