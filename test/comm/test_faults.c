/* ctest: timeout=120 serial */
/* Ranks that die, stop or come late: every other rank is told who, where, and in time. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "comm/any_call.h"
#include "comm/tuner.h"

#include <cmocka.h>

/* What ranks tell each other beside Weft. */
typedef struct news {
    double died; /* when */
    pid_t pids[TEAM_MOST];
} news_t;

typedef struct fault {
    weft_coll_t coll;
    size_t count;
    int victim;
    bool plain; /* memory */
} fault_t;

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
    any_open(&b, team, 1000, false);
    for (int coll = 0; coll < WEFT_COLL_COUNT; coll++) {
        if (coll == WEFT_COLL_RECV && team->size % 2 && team->rank == team->size - 1) {
            continue; /* has no partner */
        }
        team_note("%s on a broken communicator", weft__coll_info[coll].name);
        double took = 1;
        for (int i = 0; i < 5 && took > 0.01; i++) { /* the machine may be busy */
            double start = team_now();
            CHECK_STATUS(any_call((weft_coll_t)coll, &b, team, 1000, 0, comm), WEFT_ERR_BROKEN);
            took = team_now() - start;
        }
        CHECK_WITHIN(took, 0.01);
    }
    weft_comm_h child = NULL;
    CHECK_STATUS(weft_comm_split(comm, 0, 0, &child, NULL), WEFT_ERR_BROKEN);
    CHECK(child == NULL);
    any_close(&b);
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
    double took = team_now() - news_of(team)->died;
    CHECK_STATUS(status, WEFT_ERR_RANK_DEAD);
    check_names(victim);
    CHECK_WITHIN(took, 2.0);
    CHECK_STATUS(weft_comm_error(team->comm, &text), WEFT_ERR_RANK_DEAD);
    CHECK_TEXT(text, "died");
    check_broken(team, team->comm);
}

static void killed_inside(team_t *team)
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
    any_close(&b);
}

static void kill_in(weft_coll_t coll, size_t count, bool plain, const char *algo)
{
    fault_t fault = {coll, count, (int)coll % 4, plain};
    team_plan_t plan = {
        .ranks = 4, .algo = algo, .may_die = 1u << fault.victim, .limit_s = 10, .arg = &fault};
    if (!team_run(&plan, killed_inside)) {
        fail_msg("kill -9 of rank %d in %s of %zu, %s memory, %s", fault.victim,
                 weft__coll_info[coll].name, count, plain ? "plain" : "device", algo);
    }
}

static void kill_in_small_calls(void **state)
{
    (void)state;
    for (int coll = 0; coll < WEFT_COLL_COUNT; coll++) {
        kill_in((weft_coll_t)coll, 5, coll % 2, "auto");
    }
}

static void kill_in_large_calls(void **state)
{
    (void)state;
    for (int coll = 0; coll < WEFT_COLL_COUNT; coll++) {
        kill_in((weft_coll_t)coll, 300000, false, "auto");
        kill_in((weft_coll_t)coll, 300000, true, "auto");
    }
}

static void kill_in_every_algorithm(void **state)
{
    (void)state;
    for (int coll = 0; coll < WEFT_COLL_COUNT; coll++) {
        for (int a = WEFT_ALGO_RING; a < WEFT_ALGO_COUNT; a++) {
            if (weft__tuner_has((weft_coll_t)coll, (weft_algo_t)a)) {
                kill_in((weft_coll_t)coll, 100000, false, weft__algo_name((weft_algo_t)a));
            }
        }
    }
}

/* It dies between two calls, of its own free will and without a word. */
static void gone_between_calls(team_t *team)
{
    float x = 0;
    CHECK_OK(weft_barrier(team->comm, NULL));
    if (team->rank == 1) {
        news_of(team)->died = team_now();
        kill(getpid(), SIGKILL);
    }
    team_sleep(0.05 * team->rank);
    check_death(team, weft_allreduce(&x, &x, 1, WEFT_F32, WEFT_SUM, team->comm, NULL), 1);
}

/* Rank 1 is busy elsewhere, rank 2 is dead: nobody waits for the busy one to learn of the dead. */
static void gone_and_late(team_t *team)
{
    float x = 0;
    CHECK_OK(weft_barrier(team->comm, NULL));
    team_meet(team);
    if (team->rank == 2) {
        news_of(team)->died = team_now();
        kill(getpid(), SIGKILL);
    }
    if (team->rank == 1) {
        team_sleep(3);
        CHECK_STATUS(weft_allreduce(&x, &x, 1, WEFT_F32, WEFT_SUM, team->comm, NULL),
                     WEFT_ERR_RANK_DEAD);
        return;
    }
    weft_status_t status = weft_allreduce(&x, &x, 1, WEFT_F32, WEFT_SUM, team->comm, NULL);
    check_death(team, status, 2);
}

/* The same for messages: the first of a group waits for the busy rank, the second for the dead. */
static void gone_and_late_messages(team_t *team)
{
    float x[2] = {0};
    CHECK_OK(weft_barrier(team->comm, NULL));
    team_meet(team);
    if (team->rank == 2) {
        news_of(team)->died = team_now();
        kill(getpid(), SIGKILL);
    }
    if (team->rank == 1) {
        team_sleep(3);
        return;
    }
    CHECK_OK(weft_group_start());
    CHECK_OK(weft_recv(&x[0], 1, WEFT_F32, 1, team->comm, NULL));
    CHECK_OK(weft_recv(&x[1], 1, WEFT_F32, 2, team->comm, NULL));
    check_death(team, weft_group_end(), 2);
}

/* What it did before it died still counts. */
static void last_words(team_t *team)
{
    float x = (float)team->rank, sum = 0;
    CHECK_OK(weft_barrier(team->comm, NULL));
    if (team->rank == 1) {
        CHECK_OK(weft_send(&x, 1, WEFT_F32, 0, team->comm, NULL));
        news_of(team)->died = team_now();
        kill(getpid(), SIGKILL);
    }
    team_sleep(0.2);
    if (team->rank == 0) {
        CHECK_OK(weft_recv(&sum, 1, WEFT_F32, 1, team->comm, NULL));
        CHECK_EQ(sum, 1);
    }
    check_death(team, weft_allreduce(&x, &sum, 1, WEFT_F32, WEFT_SUM, team->comm, NULL), 1);
}

/* In making new communicators. */
static void killed_in_split(team_t *team)
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
    CHECK_WITHIN(team_now() - news_of(team)->died, 2.0);
}

/* Calls that were queued on streams fail as well, and the stream says so. */
static void killed_with_streams(team_t *team)
{
    weft_stream_h s;
    float x[100] = {0};
    CHECK_OK(weft_stream_create(&s));
    CHECK_OK(weft_barrier(team->comm, NULL));
    if (team->rank == 0) {
        news_of(team)->died = team_now();
        kill(getpid(), SIGKILL);
    }
    for (int i = 0; i < 50; i++) {
        CHECK_OK(weft_allreduce(x, x, 100, WEFT_F32, WEFT_SUM, team->comm, s));
    }
    CHECK_STATUS(weft_stream_synchronize(s), WEFT_ERR_RANK_DEAD);
    check_names(0);
    CHECK_WITHIN(team_now() - news_of(team)->died, 2.0);
    CHECK_OK(weft_stream_destroy(s));
}

static void all_die(team_t *team)
{
    any_buffers_t b;
    any_open(&b, team, 100000, team->rank % 2);
    CHECK_OK(any_call(WEFT_COLL_ALLREDUCE, &b, team, 100000, 0, team->comm));
    team_meet(team);
    kill(getpid(), SIGKILL);
}

/* ---- stopped and late ------------------------------------------------------------------------ */

/* Three calls by all, the fourth without rank 2. `f->plain`: calls that take several steps inside. */
static void four_calls(team_t *team, any_buffers_t *b, const fault_t *f)
{
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
    CHECK(team_now() - start > 0.9);
    CHECK_WITHIN(team_now() - start, 2.0);
    check_names(2);
    CHECK_TEXT(text, "call 4");
    snprintf(call, sizeof(call), "%s of %zu f32", weft__coll_info[f->coll].name, f->count);
    CHECK_TEXT(text, call);
    CHECK_TEXT(text, "last seen in call 3");
    CHECK_TEXT(text, "arrived: 0 1 3");
    check_broken(team, team->comm);
}

static void late(team_t *team)
{
    const fault_t *f = team->arg;
    any_buffers_t b;
    any_open(&b, team, f->count, f->plain);
    four_calls(team, &b, f);
    double start = team_now();
    if (team->rank == 2) {
        team_sleep(2.5); /* a busy machine may notice the timeout of 1 s late */
        CHECK_STATUS(any_call(f->coll, &b, team, f->count, 0, team->comm), WEFT_ERR_TIMEOUT);
        check_names(2);
        check_broken(team, team->comm);
    } else {
        weft_status_t status = any_call(f->coll, &b, team, f->count, 0, team->comm);
        check_late(team, status, start, f);
    }
    any_close(&b);
}

static void stopped(team_t *team)
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
static void stopped_inside(team_t *team)
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
        CHECK_WITHIN(team_now() - start, 3.0); /* a stopped rank may hold our buffers */
    }
    if (team->rank == 0) {
        kill(news->pids[2], SIGCONT);
    }
    check_broken(team, team->comm);
    any_close(&b);
}

/* A message that nobody sends, and one that nobody takes. */
static void late_messages(team_t *team)
{
    static float x[100000];
    double start = team_now();
    if (team->rank == 0) {
        CHECK_STATUS(weft_recv(x, 7, WEFT_F32, 1, team->comm, NULL), WEFT_ERR_TIMEOUT);
        CHECK_TEXT(weft_last_error(), "recv of 7 f32 from 1");
        CHECK_TEXT(weft_last_error(), "rank 1 has not");
    } else if (team->rank == 2) {
        team_sleep(0.3); /* whoever is first tells all */
        CHECK_STATUS(weft_send(x, 100000, WEFT_F32, 1, team->comm, NULL), WEFT_ERR_TIMEOUT);
        CHECK_TEXT(weft_last_error(), "rank 1 has not");
    } else {
        team_sleep(1.5);
    }
    CHECK_WITHIN(team_now() - start, 2.0);
}

/* ---- the tests --------------------------------------------------------------------------------- */

static int leftovers;

static int count_leftovers(void **state)
{
    (void)state;
    leftovers = team_leftovers();
    return 0;
}

static int check_leftovers(void **state)
{
    (void)state;
    return team_leftovers() == leftovers ? 0 : -1;
}

#define PLAN_TEST(name, fn, ...)                                                                   \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        assert_true(team_run(&(team_plan_t){.limit_s = 10, __VA_ARGS__}, fn));                     \
    }

PLAN_TEST(dead_between_calls, gone_between_calls, .ranks = 4, .may_die = 2)
PLAN_TEST(dead_rank_is_told_although_another_is_late, gone_and_late, .ranks = 3, .may_die = 4)
PLAN_TEST(dead_sender_is_told_although_another_is_late, gone_and_late_messages, .ranks = 3,
          .may_die = 4)
PLAN_TEST(what_a_dead_rank_sent_arrives, last_words, .ranks = 3, .may_die = 2)
PLAN_TEST(kill_in_split, killed_in_split, .ranks = 4, .may_die = 4)
PLAN_TEST(kill_with_calls_on_streams, killed_with_streams, .ranks = 3, .may_die = 1)
PLAN_TEST(kill_of_all_leaves_nothing, all_die, .ranks = 4, .may_die = 15)
PLAN_TEST(late_messages_are_named, late_messages, .ranks = 3, .timeout_ms = 1000)

static void run_faults(team_fn fn, const fault_t *faults, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!team_run(
                &(team_plan_t){.ranks = 4, .timeout_ms = 1000, .limit_s = 10, .arg = &faults[i]},
                fn)) {
            fail_msg("%s of %zu, %s memory", weft__coll_info[faults[i].coll].name, faults[i].count,
                     faults[i].plain ? "plain" : "device");
        }
    }
}

static const fault_t slow_faults[] = {
    {WEFT_COLL_ALLREDUCE, 10, 2, false},     {WEFT_COLL_ALLREDUCE, 600000, 2, false},
    {WEFT_COLL_ALLREDUCE, 600000, 2, true},  {WEFT_COLL_REDUCE_SCATTER, 3000, 2, true},
    {WEFT_COLL_BROADCAST, 1000000, 2, true}, {WEFT_COLL_ALLTOALL, 100000, 2, true},
};
#define SLOW_FAULTS (sizeof(slow_faults) / sizeof(slow_faults[0]))

/* Small calls in which some ranks need not wait for all others in each. */
static const fault_t loose_faults[] = {
    {WEFT_COLL_BROADCAST, 10, 2, false},
    {WEFT_COLL_GATHER, 10, 2, true},
    {WEFT_COLL_SCATTER, 100, 2, false},
};
#define LOOSE_FAULTS (sizeof(loose_faults) / sizeof(loose_faults[0]))

static void late_rank_is_named(void **state)
{
    (void)state;
    run_faults(late, slow_faults, SLOW_FAULTS);
}

static void stopped_rank_is_named(void **state)
{
    (void)state;
    run_faults(stopped, slow_faults, SLOW_FAULTS);
}

static void rank_stopped_inside_a_call_is_named(void **state)
{
    (void)state;
    run_faults(stopped_inside, slow_faults, SLOW_FAULTS);
    run_faults(stopped_inside, loose_faults, LOOSE_FAULTS);
}

int main(int argc, char **argv)
{
#define FAULT_TEST(name) cmocka_unit_test_setup_teardown(name, count_leftovers, check_leftovers)
    const struct CMUnitTest tests[] = {
        FAULT_TEST(kill_in_small_calls),
        FAULT_TEST(kill_in_large_calls),
        FAULT_TEST(kill_in_every_algorithm),
        FAULT_TEST(kill_in_split),
        FAULT_TEST(kill_with_calls_on_streams),
        FAULT_TEST(kill_of_all_leaves_nothing),
        FAULT_TEST(dead_between_calls),
        FAULT_TEST(dead_rank_is_told_although_another_is_late),
        FAULT_TEST(dead_sender_is_told_although_another_is_late),
        FAULT_TEST(what_a_dead_rank_sent_arrives),
        FAULT_TEST(late_rank_is_named),
        FAULT_TEST(stopped_rank_is_named),
        FAULT_TEST(rank_stopped_inside_a_call_is_named),
        FAULT_TEST(late_messages_are_named),
    };
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
