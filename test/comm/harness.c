#include "comm/harness.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOTE_BYTES 240

/* One per team, in memory shared by its processes. */
typedef struct board {
    _Atomic int
        id_ready; /* released by rank 0's process after it wrote id; acquired by the others */
    weft_unique_id_t id;
    _Atomic unsigned arrived;    /* in team_meet: counted up by each rank, read by all */
    _Atomic int told;            /* counted up by team_tell, read by team_await */
    _Atomic int done[TEAM_MOST]; /* set by a rank that has finished, read by the parent */
    char note[TEAM_MOST][NOTE_BYTES];
    _Alignas(4096) char shared[TEAM_SHARED_BYTES];
} board_t;

static board_t *board;          /* of the team being run */
static const team_plan_t *plan; /* likewise */
static team_fn function;        /* likewise */
static weft_comm_h *all_comms;  /* from weft_comm_init_all */
static _Thread_local int my_rank = -1;

static bool short_run;

static __attribute__((constructor)) void read_short_run(void)
{
    const char *value = getenv("WEFT_TEST_SHORT");
    short_run = value && strcmp(value, "1") == 0;
    unsetenv("WEFT_TEST_SHORT"); /* no setting of Weft's, which would say so in every rank */
}

bool team_short(void)
{
    return short_run;
}

/* How many threads want each core, for the last minute; 6 at most, so that a hang still ends. */
static int busy_factor(void)
{
    double load = 0.0;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (getloadavg(&load, 1) != 1 || cores < 1 || load < 2.0 * (double)cores) {
        return 1;
    }
    double each = load / (double)cores;
    return each < 6.0 ? (int)each : 6;
}

int team_slow(void)
{
    return (UNDER_SANITIZER ? 4 : 1) * (short_run ? 15 : 1);
}

int team_patience(void)
{
    return team_slow() * busy_factor();
}

double team_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void team_sleep(double seconds)
{
    struct timespec left = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

void team_note(const char *format, ...)
{
    if (board && my_rank >= 0) {
        va_list args;
        va_start(args, format);
        vsnprintf(board->note[my_rank], NOTE_BYTES, format, args);
        va_end(args);
    }
}

void team_fail(const char *file, int line, const char *format, ...)
{
    char text[2048];
    int n = snprintf(text, sizeof(text), "%s:%d: rank %d", file, line, my_rank);
    if (board && my_rank >= 0 && board->note[my_rank][0]) {
        n += snprintf(text + n, sizeof(text) - (size_t)n, " (%s)", board->note[my_rank]);
    }
    n += snprintf(text + n, sizeof(text) - (size_t)n, ": ");
    va_list args;
    va_start(args, format);
    n += vsnprintf(text + n, sizeof(text) - (size_t)n, format, args);
    va_end(args);
    n = n < (int)sizeof(text) - 1 ? n : (int)sizeof(text) - 2;
    text[n] = '\n';
    /* One write, so that the lines of several ranks do not mix. */
    if (write(STDERR_FILENO, text, (size_t)n + 1) < 0) {
        _exit(2);
    }
    _exit(1);
}

weft_comm_config_t team_config(void)
{
    weft_comm_config_t config = WEFT_COMM_CONFIG_INIT;
    config.timeout_ms = plan->timeout_ms ? plan->timeout_ms : 20000 * (short_run ? 15 : 1);
    config.algo = plan->algo;
    return config;
}

void team_meet(team_t *team)
{
    unsigned target = ++team->meetings * (unsigned)team->size;
    atomic_fetch_add(&board->arrived, 1);
    while (atomic_load(&board->arrived) < target) {
        team_sleep(100e-6);
    }
}

void team_tell(void)
{
    atomic_fetch_add(&board->told, 1);
}

void team_await(int ranks)
{
    while (atomic_load(&board->told) < ranks) {
        team_sleep(1e-3);
    }
}

static int count_entries(const char *folder, const char *with)
{
    DIR *dir = opendir(folder);
    int n = 0;
    if (dir) {
        for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
            n += entry->d_name[0] != '.' && strstr(entry->d_name, with) != NULL;
        }
        closedir(dir);
    }
    return n;
}

int team_leftovers(void)
{
    static const char *const folders[] = {"/dev/shm", "/tmp"};
    int n = 0;
    for (int i = 0; i < 2; i++) { /* what tests beside this one keep there is theirs */
        n += count_entries(folders[i], "weft") - count_entries(folders[i], "weft-test") -
             count_entries(folders[i], "weft-fuzz");
    }
    return n;
}

bool team_left_more(int before)
{
    double start = team_now();
    while (team_leftovers() > before) {
        if (team_now() - start > SOON) {
            return true;
        }
        team_sleep(0.02);
    }
    return false;
}

int team_open_files(void)
{
    return count_entries("/proc/self/fd", "") - 1; /* that of the count itself */
}

/* ---- ranks ------------------------------------------------------------------------------ */

static void run_rank(int rank)
{
    my_rank = rank;
    team_t team = {.rank = rank,
                   .size = plan->ranks,
                   .procs = plan->procs ? plan->procs : plan->ranks,
                   .id = board->id,
                   .shared = board->shared,
                   .arg = plan->arg};
    weft_comm_config_t config = team_config();
    if (team.procs < team.size) {
        CHECK_OK(weft_device_set(rank % 8)); /* threads: a device each */
    }
    team_note("joining");
    if (all_comms) {
        team.comm = all_comms[rank];
    } else if (!plan->bare) {
        team_meet(&team); /* the short timeouts of some plans are not for starting processes */
        CHECK_OK(weft_comm_init_rank(&team.comm, team.size, team.id, rank, &config));
    }
    team_note("started");
    function(&team);
    team_note("leaving");
    CHECK_OK(weft_comm_destroy(team.comm));
    atomic_store(&board->done[rank], 1);
}

static void *rank_thread(void *arg)
{
    run_rank((int)(intptr_t)arg);
    return NULL;
}

/* The id is made where rank 0 lives, because that process must outlive the joining. */
static void share_id(int first)
{
    if (first == 0) {
        CHECK_OK(weft_unique_id_create(&board->id));
        atomic_store(&board->id_ready, 1);
    }
    while (!atomic_load(&board->id_ready)) {
        team_sleep(200e-6);
    }
}

/* The test runner catches crashes and would go on with its tests in the rank: the handlers that
 * were there before it (the system's, or a sanitizer's) say more. */
static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGSYS};
#define CRASHES (sizeof(crashes) / sizeof(crashes[0]))
static struct sigaction handlers[CRASHES];

static __attribute__((constructor)) void save_handlers(void)
{
    for (size_t i = 0; i < CRASHES; i++) {
        sigaction(crashes[i], NULL, &handlers[i]);
    }
}

static void restore_handlers(void)
{
    for (size_t i = 0; i < CRASHES; i++) {
        sigaction(crashes[i], &handlers[i], NULL);
    }
}

static void set_environment(const char *env, int first)
{
    char *list = strdup(env), *rest = NULL;
    CHECK(list);
    for (char *at = strchr(list, '%'); at; at = strchr(at, '%')) {
        *at = (char)('a' + first);
    }
    for (char *item = strtok_r(list, " ", &rest); item; item = strtok_r(NULL, " ", &rest)) {
        CHECK_EQ(putenv(item), 0); /* which keeps it: the list is not freed */
    }
}

/* `threads` ranks from `first` on, in this process. */
static void run_ranks(int first, int threads)
{
    my_rank = first;
    share_id(first);
    if (plan->all) {
        all_comms = calloc((size_t)threads, sizeof(*all_comms));
        CHECK(all_comms);
        CHECK_OK(weft_comm_init_all(all_comms, threads, NULL));
    }
    if (threads == 1) {
        run_rank(first);
    } else {
        pthread_t ids[TEAM_MOST];
        for (int i = 0; i < threads; i++) {
            CHECK_EQ(pthread_create(&ids[i], NULL, rank_thread, (void *)(intptr_t)(first + i)), 0);
        }
        for (int i = 0; i < threads; i++) {
            CHECK_EQ(pthread_join(ids[i], NULL), 0);
        }
    }
    free(all_comms);
    all_comms = NULL;
}

static void run_process(int first, int threads)
{
    my_rank = first;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    restore_handlers();
    if (plan->env) {
        set_environment(plan->env, first);
    }
    if (plan->ranks >
        threads) { /* processes on a GPU have to share its queues: CUDA's own number */
        setenv("CUDA_DEVICE_MAX_CONNECTIONS", "8", 0);
    }
    run_ranks(first, threads);
    exit(0);
}

/* ---- the parent -------------------------------------------------------------------------- */

typedef struct child {
    pid_t pid; /* 0 once it has ended */
    int first; /* rank */
} child_t;

/* false if it failed */
static bool judge(const child_t *child, int status)
{
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        return true;
    }
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && (plan->may_die >> child->first & 1)) {
        return true;
    }
    fprintf(stderr, "rank %d failed: %s %d; it was at: %s\n", child->first,
            WIFEXITED(status) ? "exit status" : "signal",
            WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status), board->note[child->first]);
    return false;
}

/* Take what has ended; the number of those still running. */
static int reap(child_t *children, int n, bool *good_p)
{
    int running = 0;
    for (int i = 0; i < n; i++) {
        int status;
        if (children[i].pid == 0) {
            continue;
        }
        if (waitpid(children[i].pid, &status, WNOHANG) == children[i].pid) {
            children[i].pid = 0;
            *good_p = judge(&children[i], status) && *good_p;
        } else {
            running++;
        }
    }
    return running;
}

static void end_all(child_t *children, int n, int threads)
{
    for (int i = 0; i < n; i++) {
        if (children[i].pid == 0) {
            continue;
        }
        for (int r = children[i].first; r < children[i].first + threads; r++) {
            if (!atomic_load(&board->done[r])) {
                fprintf(stderr, "rank %d was ended; it was at: %s\n", r, board->note[r]);
            }
        }
        kill(children[i].pid, SIGKILL);
        waitpid(children[i].pid, NULL, 0);
        children[i].pid = 0;
    }
}

static bool wait_all(child_t *children, int n, int threads)
{
    int limit = 3 * (plan->limit_s ? plan->limit_s : 30) * team_patience();
    double end = team_now() + limit, pause = 200e-6;
    bool good = true;
    while (reap(children, n, &good) > 0) {
        double now = team_now();
        if (!good) {
            team_sleep(0.3); /* others that fail by themselves may say more */
            reap(children, n, &good);
            end_all(children, n, threads);
            return false;
        }
        if (now > end) {
            fprintf(stderr, "not finished after %d s\n", limit);
            end_all(children, n, threads);
            return false;
        }
        team_sleep(pause);
        pause = pause < 0.01 ? pause * 1.5 : pause;
    }
    return good;
}

bool team_run(const team_plan_t *the_plan, team_fn fn)
{
    child_t children[TEAM_MOST];
    int procs = the_plan->procs ? the_plan->procs : the_plan->ranks;
    int threads = the_plan->ranks / procs;
    plan = the_plan;
    function = fn;
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED || plan->ranks > TEAM_MOST || threads * procs != plan->ranks) {
        fprintf(stderr, "a team of %d ranks in %d processes cannot be run\n", plan->ranks, procs);
        return false;
    }
    fflush(NULL);
    int n = 0;
    bool good = true;
    if (short_run && procs == 1 && !plan->env) { /* tools look at the process that they start */
        run_ranks(0, threads);
        procs = 0;
    }
    for (; n < procs && good; n++) {
        children[n] = (child_t){fork(), n * threads};
        if (children[n].pid == 0) {
            run_process(n * threads, threads);
        }
        good = children[n].pid > 0;
    }
    if (!good) {
        perror("fork");
        end_all(children, n - 1, threads);
    } else {
        good = wait_all(children, n, threads);
    }
    munmap(board, sizeof(*board));
    board = NULL;
    return good;
}
