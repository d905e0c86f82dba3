#include "comm/fault_cases.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "comm/memory.h"

/* What ranks tell each other beside Weft. */
typedef struct news {
    double died; /* when */
    pid_t pids[TEAM_MOST];
    _Atomic int id_ready; /* released by the first survivor, acquired by the others */
    weft_unique_id_t id;
} news_t;

static news_t *news_of(team_t *team)
{
    return (news_t *)team->shared;
}

/* The error names a rank. */
static void check_names(int rank)
{
    char name[32];
    snprintf(name, sizeof(name), "rank %d", rank);
    CHECK_TEXT(weft_last_error(), name);
}

/* Nothing goes on a broken communicator, and nothing waits. */
static void check_broken(team_t *team, weft_comm_h comm)
{
    any_buffers_t b;
    any_open(&b, team, 1000, true); /* refused unseen; CUDA may have failed for good */
    for (int coll = 0; coll < WEFT_COLL_COUNT; coll++) {
        if (coll == WEFT_COLL_RECV && team->size % 2 && team->rank == team->size - 1) {
            continue; /* has no partner */
        }
        team_note("%s on a broken communicator", weft__coll_info[coll].name);
        double took = 1;
        for (int i = 0; i < 5 && took > 0.1; i++) { /* the machine may be busy */
            double start = team_now();
            CHECK_STATUS(any_call((weft_coll_t)coll, &b, team, 1000, 0, comm), WEFT_ERR_BROKEN);
            took = team_now() - start;
        }
        CHECK_WITHIN(took, 0.1);
    }
    weft_comm_h child = NULL;
    CHECK_STATUS(weft_comm_split(comm, 0, 0, &child, NULL), WEFT_ERR_BROKEN);
    CHECK(child == NULL);
    any_close(&b);
}

/* Those who are left make a new communicator, and it works: nothing is stuck, here or on the
 * device. */
static void go_on_without(team_t *team, int dead)
{
    news_t *news = news_of(team);
    weft_comm_config_t config = team_config();
    weft_comm_h comm;
    buffer_t x;
    int rank = team->rank - (team->rank > dead), left = team->size - 1;
    team_note("going on without rank %d", dead);
    if (rank == 0) {
        CHECK_OK(weft_unique_id_create(&news->id));
        atomic_store(&news->id_ready, 1);
    }
    while (!atomic_load(&news->id_ready)) {
        team_sleep(1e-3);
    }
    CHECK_OK(weft_comm_init_rank(&comm, left, news->id, rank, &config));
    buffer_open(&x, 100000 * sizeof(int32_t), false);
    int32_t *value = (int32_t *)(void *)x.host;
    for (int i = 0; i < 100000; i++) {
        value[i] = rank + i;
    }
    buffer_push_all(&x);
    CHECK_OK(weft_allreduce(x.at, x.at, 100000, WEFT_I32, WEFT_SUM, comm, NULL));
    buffer_pull_all(&x);
    for (int i = 0; i < 100000; i++) {
        CHECK_EQ(value[i], left * i + left * (left - 1) / 2);
    }
    buffer_close(&x);
    CHECK_OK(weft_comm_destroy(comm));
}

/* ---- killed --------------------------------------------------------------------------------- */

static void *kill_soon(void *arg)
{
    team_t *team = arg;
    team_sleep(0.1);
    news_of(team)->died = team_now();
    kill(getpid(), SIGKILL);
    return NULL;
}

static void start_to_die(team_t *team)
{
    pthread_t killer;
    CHECK_EQ(pthread_create(&killer, NULL, kill_soon, team), 0);
    pthread_detach(killer);
}

static void check_death(team_t *team, weft_status_t status, int victim)
{
    const char *text;
    char name[32];
    double took = team_now() - news_of(team)->died;
    CHECK_STATUS(status, WEFT_ERR_RANK_DEAD);
    snprintf(name, sizeof(name), "rank %d (process ", victim);
    CHECK_TEXT(weft_last_error(), name);
    CHECK_WITHIN(took, SOON);
    CHECK_STATUS(weft_comm_error(team->comm, &text), WEFT_ERR_RANK_DEAD);
    CHECK_TEXT(text, ") died; rank "); /* the same on every backend: test/comm/watch/test_write.c */
    CHECK_TEXT(text, " noticed ");
    check_broken(team, team->comm);
}

void fault_killed(team_t *team)
{
    const fault_t *f = team->arg;
    any_buffers_t b;
    any_open(&b, team, f->count, f->plain);
    if (team->rank == f->victim) {
        start_to_die(team);
    }
    weft_status_t status = WEFT_OK;
    for (int i = 0; status == WEFT_OK; i++) {
        team_note("%s %d", weft__coll_info[f->coll].name, i);
        status = any_call(f->coll, &b, team, f->count, i / 40 % team->size, team->comm);
        if (f->coll == WEFT_COLL_RECV && status == WEFT_OK && i % 50 == 49) {
            status = weft_barrier(team->comm, NULL); /* pairs do not meet the others otherwise */
        }
    }
    check_death(team, status, f->victim);
    go_on_without(team, f->victim);
    any_close(&b);
}

/* It dies between two calls, of its own free will and without a word. */
void fault_between(team_t *team)
{
    float x = 0;
    CHECK_OK(weft_barrier(team->comm, NULL));
    team_meet(team); /* nobody is inside any more */
    if (team->rank == 1) {
        news_of(team)->died = team_now();
        kill(getpid(), SIGKILL);
    }
    team_sleep(0.05 * team->rank);
    check_death(team, weft_allreduce(&x, &x, 1, WEFT_F32, WEFT_SUM, team->comm, NULL), 1);
    go_on_without(team, 1);
}

/* Rank 1 is busy elsewhere until rank 0 knows, rank 2 is dead: nobody waits for the busy one to
 * learn of the dead. */
void fault_gone_and_late(team_t *team)
{
    float x = 0;
    CHECK_OK(weft_barrier(team->comm, NULL));
    team_meet(team);
    if (team->rank == 2) {
        news_of(team)->died = team_now();
        kill(getpid(), SIGKILL);
    }
    if (team->rank == 1) {
        team_await(1);
        CHECK_STATUS(weft_allreduce(&x, &x, 1, WEFT_F32, WEFT_SUM, team->comm, NULL),
                     WEFT_ERR_RANK_DEAD);
        return;
    }
    weft_status_t status = weft_allreduce(&x, &x, 1, WEFT_F32, WEFT_SUM, team->comm, NULL);
    team_tell();
    check_death(team, status, 2);
}

/* It dies inside the call, which all but one have reached. */
void fault_gone_inside_and_late(team_t *team)
{
    float x = 0;
    CHECK_OK(weft_barrier(team->comm, NULL));
    team_meet(team);
    if (team->rank == 1) {
        team_await(1);
        CHECK_STATUS(weft_allreduce(&x, &x, 1, WEFT_F32, WEFT_SUM, team->comm, NULL),
                     WEFT_ERR_RANK_DEAD);
        return;
    }
    if (team->rank == 2) {
        start_to_die(team);
    }
    weft_status_t status = weft_allreduce(&x, &x, 1, WEFT_F32, WEFT_SUM, team->comm, NULL);
    team_tell();
    check_death(team, status, 2);
}

/* The same for messages: the first of a group waits for the busy rank, the second for the dead. */
void fault_gone_and_late_messages(team_t *team)
{
    float x[2] = {0};
    CHECK_OK(weft_barrier(team->comm, NULL));
    team_meet(team);
    if (team->rank == 2) {
        news_of(team)->died = team_now();
        kill(getpid(), SIGKILL);
    }
    if (team->rank == 1) {
        team_await(1);
        return;
    }
    CHECK_OK(weft_group_start());
    CHECK_OK(weft_recv(&x[0], 1, WEFT_F32, 1, team->comm, NULL));
    CHECK_OK(weft_recv(&x[1], 1, WEFT_F32, 2, team->comm, NULL));
    weft_status_t status = weft_group_end();
    team_tell();
    check_death(team, status, 2);
}

/* What it did before it died still counts. */
void fault_last_words(team_t *team)
{
    float x = (float)team->rank, sum = 0;
    CHECK_OK(weft_barrier(team->comm, NULL));
    team_meet(team);
    if (team->rank == 1) {
        CHECK_OK(weft_send(&x, 1, WEFT_F32, 0, team->comm, NULL));
        news_of(team)->died = team_now();
        kill(getpid(), SIGKILL);
    }
    if (team->rank == 0) {
        team_sleep(0.2); /* rank 1 is dead by now */
        CHECK_OK(weft_recv(&sum, 1, WEFT_F32, 1, team->comm, NULL));
        CHECK_EQ(sum, 1);
        team_tell();
    }
    team_await(1); /* it is taken before anybody tells of the death */
    check_death(team, weft_allreduce(&x, &sum, 1, WEFT_F32, WEFT_SUM, team->comm, NULL), 1);
}

/* In making new communicators. */
void fault_split(team_t *team)
{
    weft_comm_h child;
    if (team->rank == 2) {
        start_to_die(team);
    }
    weft_status_t status;
    while ((status = weft_comm_split(team->comm, team->rank % 2, 0, &child, NULL)) == WEFT_OK) {
        CHECK_OK(weft_comm_destroy(child));
    }
    CHECK_STATUS(status, WEFT_ERR_RANK_DEAD);
    CHECK_TEXT(weft_last_error(), "died");
    CHECK_WITHIN(team_now() - news_of(team)->died, SOON);
}

/* Calls that were queued on streams fail as well, and the stream says so. */
void fault_streams(team_t *team)
{
    weft_stream_h s;
    float x[100] = {0};
    CHECK_OK(weft_stream_create(&s));
    CHECK_OK(weft_barrier(team->comm, NULL));
    team_meet(team); /* nobody is inside any more */
    if (team->rank == 0) {
        news_of(team)->died = team_now();
        kill(getpid(), SIGKILL);
    }
    weft_status_t status = WEFT_OK; /* of a call once it is known, else of the stream */
    for (int i = 0; i < 50 && status == WEFT_OK; i++) {
        status = weft_allreduce(x, x, 100, WEFT_F32, WEFT_SUM, team->comm, s);
    }
    CHECK_STATUS(status != WEFT_OK ? status : weft_stream_synchronize(s), WEFT_ERR_RANK_DEAD);
    check_names(0);
    CHECK_WITHIN(team_now() - news_of(team)->died, SOON);
    status = weft_stream_destroy(s);
    CHECK(status == WEFT_OK || status == WEFT_ERR_RANK_DEAD); /* of calls before the refused one */
    go_on_without(team, 0);
}

void fault_all(team_t *team)
{
    any_buffers_t b;
    any_open(&b, team, 100000, team->rank % 2);
    CHECK_OK(any_call(WEFT_COLL_ALLREDUCE, &b, team, 100000, 0, team->comm));
    team_meet(team);
    kill(getpid(), SIGKILL);
}

/* ---- stopped and late ------------------------------------------------------------------------ */

/* Three calls by all, the fourth without rank 2. `f->plain`: calls that take several steps
 * inside. */
static void four_calls(team_t *team, any_buffers_t *b, const fault_t *f)
{
    team_meet(team); /* time starts with the first that calls */
    for (int i = 0; i < 3; i++) {
        CHECK_OK(any_call(f->coll, b, team, f->count, 0, team->comm));
    }
    team_meet(team);
}

static void check_late(team_t *team, weft_status_t status, double start, const fault_t *f)
{
    char call[64];
    const char *text = weft_last_error();
    CHECK_STATUS(status, WEFT_ERR_TIMEOUT);
    CHECK(team_now() - start > 1.0); /* the first that came counts, for 2 s */
    CHECK_WITHIN(team_now() - start, SOON);
    check_names(2);
    CHECK_TEXT(text, "call 4");
    snprintf(call, sizeof(call), "%s of %zu f32", weft__coll_info[f->coll].name, f->count);
    CHECK_TEXT(text, call);
    CHECK_TEXT(text, "last seen in call 3");
    CHECK_TEXT(text, "arrived: 0 1 3");
    check_broken(team, team->comm);
}

void fault_late(team_t *team)
{
    const fault_t *f = team->arg;
    any_buffers_t b;
    any_open(&b, team, f->count, f->plain);
    four_calls(team, &b, f);
    double start = team_now();
    if (team->rank == 2) {
        team_await(team->size - 1);
        CHECK_STATUS(any_call(f->coll, &b, team, f->count, 0, team->comm), WEFT_ERR_TIMEOUT);
        check_names(2);
        check_broken(team, team->comm);
    } else {
        weft_status_t status = any_call(f->coll, &b, team, f->count, 0, team->comm);
        team_tell();
        check_late(team, status, start, f);
    }
    any_close(&b);
}

void fault_stopped(team_t *team)
{
    const fault_t *f = team->arg;
    news_t *news = news_of(team);
    any_buffers_t b;
    any_open(&b, team, f->count, f->plain);
    news->pids[team->rank] = getpid();
    four_calls(team, &b, f);
    double start = team_now();
    if (team->rank == 2) {
        kill(getpid(), SIGSTOP); /* until rank 0 wakes it */
        CHECK_STATUS(any_call(f->coll, &b, team, f->count, 0, team->comm), WEFT_ERR_TIMEOUT);
    } else {
        weft_status_t status = any_call(f->coll, &b, team, f->count, 0, team->comm);
        check_late(team, status, start, f);
    }
    if (team->rank == 0) {
        kill(news->pids[2], SIGCONT);
    }
    any_close(&b);
}

/* Stopped in the middle of a call, after it had announced it. */
void fault_stopped_inside(team_t *team)
{
    const fault_t *f = team->arg;
    news_t *news = news_of(team);
    any_buffers_t b;
    weft_status_t status = WEFT_OK;
    any_open(&b, team, f->count, f->plain);
    news->pids[team->rank] = getpid();
    team_meet(team);
    double start = team_now();
    for (bool sent = false; status == WEFT_OK;) {
        start = team_now();
        status = any_call(f->coll, &b, team, f->count, 0, team->comm);
        if (team->rank == 0 && !sent && status == WEFT_OK) {
            kill(news->pids[2], SIGSTOP);
            sent = true;
        }
    }
    CHECK_STATUS(status, WEFT_ERR_TIMEOUT);
    check_names(2);
    CHECK_TEXT(weft_last_error(), weft__coll_info[f->coll].name);
    if (team->rank != 2) {
        CHECK_WITHIN(team_now() - start, SOON); /* a stopped rank may hold our buffers */
    }
    if (team->rank == 0) {
        kill(news->pids[2], SIGCONT);
    }
    check_broken(team, team->comm);
    any_close(&b);
}

/* A message that nobody sends, and one that nobody takes. */
void fault_late_messages(team_t *team)
{
    static float x[100000];
    double start = team_now();
    if (team->rank == 0) {
        team_tell();
        CHECK_STATUS(weft_recv(x, 7, WEFT_F32, 1, team->comm, NULL), WEFT_ERR_TIMEOUT);
        CHECK_TEXT(weft_last_error(), "recv of 7 f32 from 1");
        CHECK_TEXT(weft_last_error(), "rank 1 has not");
        team_tell();
    } else if (team->rank == 2) {
        team_await(1);
        team_sleep(0.3); /* whoever is first tells all */
        start = team_now();
        CHECK_STATUS(weft_send(x, 100000, WEFT_F32, 1, team->comm, NULL), WEFT_ERR_TIMEOUT);
        CHECK_TEXT(weft_last_error(), "rank 1 has not");
        team_tell();
    } else {
        team_await(3);
        return;
    }
    CHECK_WITHIN(team_now() - start, SOON);
}
