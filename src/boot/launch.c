/* The launcher: one thread, one poll loop over signals, the ranks' pipes and our own output.
 *
 *     RUN  --a rank fails, or a signal asks us to end--> GRACE --grace passes--> TERM --2 s--> KILL
 *
 * After a signal the ranks have as long as the user said, or as they asked for themselves: a rank
 * that has something to save says through the store how long that may take (weft__job_ask_grace).
 *
 * The job is over when no child is left, whatever the phase. As a "child subreaper" the launcher
 * inherits what a rank leaves behind when it ends, so that "no child" means nothing at all. */
#define _GNU_SOURCE 1 /* pipe2 */
#include "boot/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/settings.h"
#include "boot/job.h"
#include "boot/launch_job.h"
#include "boot/store_net.h"
#include "topo/gpu.h"

#define KILL_AFTER_MS 2000
#define ASK_MS 1000     /* the store, which is a thread of ours */
#define DRAIN_PIECES 64 /* of what a rank that has ended left in its pipes, at a time */
#define LOOK_MS                                                                                    \
    200 /* at children without having heard: a thread of another library may have taken SIGCHLD */

/* ---- signals to ranks -------------------------------------------------------------------- */

static bool in_our_group(const weft_launcher_t *launcher, const weft_child_t *child)
{
    return launcher->spawn.share_terminal && child == &launcher->children[0];
}

/* `seen`: whoever is in our own process group has it already. */
static void signal_ranks(weft_launcher_t *launcher, int signal, bool seen)
{
    for (int i = 0; i < launcher->started; i++) {
        const weft_child_t *child = &launcher->children[i];
        if (!child->running || (seen && in_our_group(launcher, child))) {
            continue;
        }
        kill(in_our_group(launcher, child) ? child->pid : -child->pid, signal);
    }
}

/* NULL: a kernel without it; then ranks are all we know. */
static FILE *open_children(void)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    return fopen(path, "re");
}

/* Before anything is started. */
static weft_status_t note_strangers(weft_launcher_t *launcher)
{
    FILE *file = open_children();
    int pid;
    while (file != NULL && fscanf(file, "%d", &pid) == 1) {
        size_t bytes = ((size_t)launcher->stranger_count + 1) * sizeof(pid_t);
        pid_t *more = realloc(launcher->strangers, bytes);
        if (more == NULL) {
            fclose(file);
            return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to remember processes");
        }
        launcher->strangers = more;
        launcher->strangers[launcher->stranger_count++] = pid;
    }
    if (file != NULL) {
        fclose(file);
    }
    return WEFT_OK;
}

static int find_stranger(const weft_launcher_t *launcher, pid_t pid)
{
    for (int i = 0; i < launcher->stranger_count; i++) {
        if (launcher->strangers[i] == pid) {
            return i;
        }
    }
    return -1;
}

/* Children that are no ranks: what ranks left behind. Signals them unless `signal` is 0; returns
 * how many there are. Their ids cannot have been used again, as only we can reap them. */
static int signal_leftovers(const weft_launcher_t *launcher, int signal)
{
    int pid, count = 0;
    FILE *file = open_children();
    if (file == NULL) {
        return 0;
    }
    while (fscanf(file, "%d", &pid) == 1) {
        bool known = pid == launcher->guard.pid || find_stranger(launcher, pid) >= 0;
        for (int i = 0; i < launcher->started && !known; i++) {
            known = launcher->children[i].running && launcher->children[i].pid == pid;
        }
        if (!known) {
            count++;
            if (signal != 0) {
                kill(pid, signal);
            }
        }
    }
    fclose(file);
    return count;
}

/* ---- stages ------------------------------------------------------------------------------ */

/* How long ranks may take to end after a signal. They may have changed their mind since we last
 * asked. */
static uint64_t ask_grace(const weft_launcher_t *launcher)
{
    int least = launcher->launch->grace_ms;
    weft_store_conn_t *store;
    int64_t asked = 0;
    size_t bytes = sizeof(asked);
    bool found = false;
    if (launcher->launch->grace_fixed ||
        weft__store_connect(launcher->spawn.master_addr, launcher->spawn.master_port,
                            launcher->secret, ASK_MS, &store) != WEFT_OK) {
        return (uint64_t)least;
    }
    weft_status_t status = weft__store_look(store, WEFT_JOB_GRACE_KEY, &asked, &bytes, &found);
    weft__store_close(store);
    bool good = status == WEFT_OK && found && bytes == sizeof(asked) && asked > least &&
                asked <= WEFT_JOB_GRACE_MOST_MS;
    return good ? (uint64_t)asked : (uint64_t)least;
}

static void enter(weft_launcher_t *launcher, weft_phase_t phase, int ms)
{
    uint64_t deadline = weft__deadline(ms);
    if (phase < launcher->phase) {
        return;
    }
    if (phase != WEFT_PHASE_GRACE || launcher->phase != phase ||
        deadline < launcher->phase_deadline) {
        launcher->phase_deadline = deadline; /* a second reason to end gives no more time */
    }
    launcher->phase = phase;
    if (phase >= WEFT_PHASE_TERM) {
        int signal = phase == WEFT_PHASE_TERM ? SIGTERM : SIGKILL;
        signal_ranks(launcher, signal, false);
        signal_ranks(launcher, SIGCONT, false); /* a stopped one would not notice */
        signal_leftovers(launcher, signal);
    }
}

/* A signal asks the job to end, and has been passed on. */
static void begin_ending(weft_launcher_t *launcher)
{
    if (launcher->ending_ns != 0) {
        return;
    }
    launcher->ending_ns = weft__now_ns();
    launcher->grace_ms = ask_grace(launcher);
    enter(launcher, WEFT_PHASE_GRACE, (int)launcher->grace_ms);
}

/* Have ranks asked for more time since? Not if one of them has failed: then there is nothing to
 * wait for. */
static bool may_go_on(weft_launcher_t *launcher)
{
    if (launcher->phase != WEFT_PHASE_GRACE || launcher->ending_ns == 0 || launcher->failed >= 0) {
        return false;
    }
    uint64_t passed = (weft__now_ns() - launcher->ending_ns) / 1000000, grace = ask_grace(launcher);
    if (grace <= passed || grace <= launcher->grace_ms) {
        return false;
    }
    launcher->grace_ms = grace;
    launcher->phase_deadline = weft__deadline((int)(grace - passed));
    return true;
}

/* ---- ends of ranks ----------------------------------------------------------------------- */

/* A rank could not be started. All have the same reason, so one is enough. */
static void read_spawn_errors(weft_launcher_t *launcher)
{
    weft_spawn_error_t message;
    while (read(launcher->error_fd, &message, sizeof(message)) == (ssize_t)sizeof(message)) {
        if (launcher->exit >= 0) {
            continue;
        }
        weft__say(launcher, "cannot run '%s': %s", launcher->launch->argv[0],
                  strerror(message.error));
        launcher->exit = message.error == ENOENT ? WEFT_EXIT_NOT_FOUND : WEFT_EXIT_NOT_STARTED;
        enter(launcher, WEFT_PHASE_KILL, KILL_AFTER_MS);
    }
}

static void rank_ended(weft_launcher_t *launcher, weft_child_t *child, int status)
{
    child->running = false;
    child->status = status;
    child->ended = status != 0 && launcher->phase >= WEFT_PHASE_TERM;
    if (child->left == 0) { /* since we noted the order, or nobody could tell us */
        weft__order_note(launcher);
        child->left = child->left > 0 ? child->left : ++launcher->events;
    }
    launcher->running--;
    if (child->pid_fd >= 0) {
        close(child->pid_fd);
    }
    if (!in_our_group(launcher, child)) {
        weft__guard_forget(&launcher->guard, child->pid);
    }
    /* its last words come before ours; a process it left may hold the pipes open */
    weft__pipe_read(&child->out, DRAIN_PIECES);
    weft__pipe_read(&child->err, DRAIN_PIECES);
}

/* Has a rank failed? Then the others get a moment to notice it. */
static void judge(weft_launcher_t *launcher)
{
    if (launcher->failed >= 0 || launcher->exit >= 0) {
        launcher->judge_deadline = WEFT_NEVER;
        return;
    }
    launcher->failed = weft__find_failed(launcher);
    if (launcher->failed >= 0) {
        launcher->judge_deadline = WEFT_NEVER;
        weft__report_failure(launcher);
        weft__store_abandon(launcher->store);
        enter(launcher, WEFT_PHASE_GRACE, launcher->launch->grace_ms);
    }
}

static void reap(weft_launcher_t *launcher)
{
    weft__order_note(launcher);
    for (;;) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid <= 0) {
            break;
        }
        if (pid == launcher->guard.pid) {
            launcher->guard.pid = 0;
        }
        int stranger = find_stranger(launcher, pid);
        if (stranger >= 0) { /* its id may be used again */
            launcher->strangers[stranger] = launcher->strangers[--launcher->stranger_count];
        }
        for (int i = 0; i < launcher->started; i++) {
            if (launcher->children[i].running && launcher->children[i].pid == pid) {
                rank_ended(launcher, &launcher->children[i], status);
                break;
            }
        }
    }
    read_spawn_errors(launcher);
    judge(launcher);
}

static void check_deadlines(weft_launcher_t *launcher)
{
    if (weft__deadline_left(launcher->job_deadline) == 0) {
        launcher->job_deadline = WEFT_NEVER;
        weft__say(launcher, "the job has run for %.10g s, as long as it may; ending it",
                  launcher->launch->timeout_ms / 1000.0);
        launcher->exit = WEFT_EXIT_TIMEOUT;
        enter(launcher, WEFT_PHASE_TERM, KILL_AFTER_MS);
    }
    if (weft__deadline_left(launcher->judge_deadline) == 0) {
        judge(launcher);
    }
    if (launcher->phase != WEFT_PHASE_RUN && weft__deadline_left(launcher->phase_deadline) == 0 &&
        !may_go_on(launcher)) {
        enter(launcher, launcher->phase == WEFT_PHASE_GRACE ? WEFT_PHASE_TERM : WEFT_PHASE_KILL,
              KILL_AFTER_MS);
    }
}

/* ---- events ------------------------------------------------------------------------------ */

/* ^Z: the ranks are in groups of their own, and would run on. */
static void stop_and_go_on(weft_launcher_t *launcher, bool from_terminal)
{
    signal_ranks(launcher, SIGTSTP, from_terminal);
    raise(SIGSTOP);
    signal_ranks(launcher, SIGCONT, from_terminal);
}

/* Is it one that we have heard, on another way? */
static bool is_echo(weft_launcher_t *launcher, int signal, bool from_terminal)
{
    uint64_t now = weft__now_ns(), *heard = &launcher->heard_ns[signal];
    if (*heard == 0) {
        *heard = now;
        return false;
    }
    return !from_terminal && now - *heard < WEFT_SIGNAL_ECHO_NS;
}

/* INT, QUIT, TERM or HUP: pass it on. The last two end jobs, and so does INT where the launch says
 * so; what others do about INT and QUIT is up to the ranks. */
static void interrupt(weft_launcher_t *launcher, int signal, bool from_terminal)
{
    bool ends = signal == SIGTERM || signal == SIGHUP ||
                (signal == SIGINT && launcher->launch->int_ends);
    if (is_echo(launcher, signal, from_terminal)) {
        return;
    }
    if (launcher->ending_ns == 0) {
        launcher->interrupted = signal;
    }
    if (signal == SIGINT && ++launcher->interrupts > 1) {
        launcher->interrupted = SIGINT;
        launcher->exit = 128 + SIGINT;
        enter(launcher, WEFT_PHASE_KILL, KILL_AFTER_MS);
        return;
    }
    signal_ranks(launcher, signal, from_terminal);
    signal_ranks(launcher, SIGCONT, false); /* a stopped one would not notice */
    if (ends) {
        begin_ending(launcher); /* ranks that ignore it are ended all the same */
    }
}

static void read_signals(weft_launcher_t *launcher)
{
    struct signalfd_siginfo info;
    while (read(launcher->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        int signal = (int)info.ssi_signo;
        bool from_terminal = info.ssi_code == SI_KERNEL;
        switch (signal) {
        case SIGCHLD:
            reap(launcher);
            break;
        case SIGTSTP:
            stop_and_go_on(launcher, from_terminal);
            break;
        case SIGUSR1:
        case SIGUSR2:
            signal_ranks(launcher, signal, from_terminal);
            break;
        default:
            interrupt(launcher, signal, from_terminal);
        }
    }
}

/* Nobody can see the output any more, or not all of it: no reason to go on. */
static void check_sink(weft_launcher_t *launcher, weft_sink_t *sink, const char *name)
{
    weft__sink_flush(sink);
    if ((sink->error == 0 && sink->unread == 0) || launcher->exit >= 0) {
        return;
    }
    if (sink->error == 0) {
        weft__say(launcher, "cannot read what a rank writes to %s: %s; ending the job", name,
                  strerror(sink->unread));
        launcher->exit = 1;
    } else if (sink->error == EPIPE) {
        launcher->exit = 128 + SIGPIPE;          /* as if it had killed us, and as silently */
        if (launcher->launch->program != NULL) { /* our own ranks, who would say how we end them */
            weft__sink_flush(&launcher->err);
            weft__sink_shut(&launcher->out, EPIPE);
            weft__sink_shut(&launcher->err, EPIPE);
        }
    } else {
        weft__say(launcher, "cannot write to %s: %s; ending the job", name, strerror(sink->error));
        launcher->exit = 1;
    }
    enter(launcher, WEFT_PHASE_TERM, KILL_AFTER_MS);
}

static int wait_ms(const weft_launcher_t *launcher)
{
    uint64_t deadline = launcher->job_deadline;
    if (launcher->phase != WEFT_PHASE_RUN && launcher->phase_deadline < deadline) {
        deadline = launcher->phase_deadline;
    }
    if (launcher->judge_deadline < deadline) {
        deadline = launcher->judge_deadline;
    }
    int left = weft__deadline_left(deadline);
    return left < 0 || left > LOOK_MS ? LOOK_MS : left;
}

static void watch_sink(struct pollfd *poller, const weft_sink_t *sink)
{
    bool waits = !weft__sink_is_empty(sink) && sink->error == 0;
    *poller = (struct pollfd){.fd = waits ? sink->fd : -1, .events = POLLOUT};
}

static void watch_pipe(struct pollfd *poller, const weft_pipe_t *pipe)
{
    bool wanted = pipe->fd >= 0 && !weft__sink_is_full(pipe->sink);
    *poller = (struct pollfd){.fd = wanted ? pipe->fd : -1, .events = POLLIN};
}

/* Wait for something and deal with it. */
static void step(weft_launcher_t *launcher)
{
    struct pollfd *polls = launcher->polls;
    nfds_t count = 0;
    polls[count++] = (struct pollfd){.fd = launcher->signal_fd, .events = POLLIN};
    polls[count++] = (struct pollfd){.fd = launcher->error_fd, .events = POLLIN};
    watch_sink(&polls[count++], &launcher->out);
    watch_sink(&polls[count++], &launcher->err);
    for (int i = 0; i < launcher->started; i++) {
        watch_pipe(&polls[count++], &launcher->children[i].out);
        watch_pipe(&polls[count++], &launcher->children[i].err);
    }
    int ready = poll(polls, count, wait_ms(launcher));
    for (nfds_t i = 0; ready < 0 && i < count; i++) {
        polls[i].revents = 0; /* EINTR, or no memory for a moment */
    }
    weft__order_note(launcher);
    if (ready == 0) {
        reap(launcher);
    }
    if (polls[1].revents != 0) {
        read_spawn_errors(launcher);
        if (polls[1].revents & POLLHUP) { /* all have started */
            close(launcher->error_fd);
            launcher->error_fd = -1;
        }
    }
    for (int i = 0; i < launcher->started; i++) {
        if (polls[4 + 2 * i].revents != 0) {
            weft__pipe_read(&launcher->children[i].out, 1);
        }
        if (polls[5 + 2 * i].revents != 0) {
            weft__pipe_read(&launcher->children[i].err, 1);
        }
    }
    if (polls[0].revents != 0) {
        read_signals(launcher);
    }
    check_sink(launcher, &launcher->out, "stdout");
    check_sink(launcher, &launcher->err, "stderr");
    check_deadlines(launcher);
}

/* ---- one attempt ------------------------------------------------------------------------- */

static void init_pipe(weft_launcher_t *launcher, int rank, int fd, weft_sink_t *sink,
                      weft_pipe_t *pipe)
{
    pipe->fd = fd;
    pipe->sink = sink;
    pipe->rank = rank;
    pipe->repeats = sink == &launcher->err ? launcher->repeats : NULL;
    pipe->tail = &launcher->children[rank].tail;
    if (launcher->launch->prefix) {
        snprintf(pipe->prefix, sizeof(pipe->prefix), "[%d] ", rank);
    }
}

static weft_status_t start_ranks(weft_launcher_t *launcher)
{
    int fds[2];
    weft_status_t status = WEFT_OK;
    if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0) {
        return weft__fail(WEFT_ERR_SYSTEM, "%s: cannot make a pipe: %s", launcher->launch->name,
                          strerror(errno));
    }
    launcher->error_fd = fds[0];
    launcher->spawn.error_fd = fds[1];
    for (int i = 0; i < launcher->launch->ranks && status == WEFT_OK; i++) {
        weft_child_t *child = &launcher->children[i];
        int out, err;
        status = weft__spawn(&launcher->spawn, i, &child->pid, &out, &err);
        if (status == WEFT_OK) {
            child->running = true;
            init_pipe(launcher, i, out, &launcher->out, &child->out);
            init_pipe(launcher, i, err, &launcher->err, &child->err);
            weft__order_add(launcher, i);
            launcher->started++;
            launcher->running++;
            if (!in_our_group(launcher, child)) {
                weft__guard_watch(&launcher->guard, child->pid);
            }
        }
    }
    close(fds[1]);
    return status;
}

/* Until no child is left. */
static void watch_ranks(weft_launcher_t *launcher)
{
    for (;;) {
        step(launcher);
        if (launcher->running > 0) {
            continue;
        }
        int left = signal_leftovers(launcher, 0);
        if (left == 0) {
            break;
        }
        if (launcher->phase == WEFT_PHASE_RUN) {
            weft__info("launch: the ranks have ended and left %d processes behind", left);
            enter(launcher, WEFT_PHASE_GRACE, launcher->launch->grace_ms);
        }
    }
    judge(launcher); /* nobody is left to be waited for */
    for (int i = 0; i < launcher->started; i++) {
        weft__pipe_read(&launcher->children[i].out, DRAIN_PIECES);
        weft__pipe_read(&launcher->children[i].err, DRAIN_PIECES);
        weft__pipe_finish(&launcher->children[i].out);
        weft__pipe_finish(&launcher->children[i].err);
    }
}

/* Run all ranks once, with a store of their own. */
static weft_status_t run_once(weft_launcher_t *launcher)
{
    const char *host = weft__settings()->store_host;
    bool any = strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
    launcher->started = launcher->running = 0;
    launcher->phase = WEFT_PHASE_RUN;
    launcher->judge_deadline = WEFT_NEVER;
    launcher->failed = launcher->exit = launcher->error_fd = -1;
    memset(launcher->children, 0, (size_t)launcher->launch->ranks * sizeof(weft_child_t));
    weft__repeats_reset(launcher->repeats);
    WEFT_TRY(weft__secret_create(launcher->secret));
    WEFT_TRY(weft__store_serve(host, 0, launcher->secret, &launcher->store,
                               &launcher->spawn.master_port));
    weft__secret_print(launcher->secret, launcher->spawn.secret);
    launcher->spawn.master_addr = any ? "127.0.0.1" : host;
    weft_status_t status = weft__spawn_free_port(launcher->spawn.master_addr,
                                                 &launcher->spawn.torch_port);
    if (status == WEFT_OK) {
        status = start_ranks(launcher);
    }
    if (status != WEFT_OK) {
        launcher->exit = 1;
        enter(launcher, WEFT_PHASE_KILL, KILL_AFTER_MS);
    }
    watch_ranks(launcher);
    if (launcher->error_fd >= 0) {
        close(launcher->error_fd);
        launcher->error_fd = -1;
    }
    weft__store_stop(launcher->store);
    weft__report_end(launcher);
    return status;
}

static weft_status_t run_with_restarts(weft_launcher_t *launcher, int *exit_p)
{
    const weft_launch_t *launch = launcher->launch;
    for (;;) {
        weft_status_t status = run_once(launcher);
        if (status == WEFT_OK || launcher->exit >= 0) {
            *exit_p = weft__exit_status(launcher);
        }
        if (status != WEFT_OK || launcher->exit >= 0 || launcher->failed < 0 ||
            launcher->interrupted != 0 || launcher->spawn.restart >= launch->max_restarts ||
            (launch->hopeless != 0 && *exit_p == launch->hopeless)) {
            return status;
        }
        launcher->spawn.restart++;
        const char *from = launch->again != NULL ? launch->again(launch->again_arg) : NULL;
        weft__say(launcher, "restarting the job, %d of %d times%s%s", launcher->spawn.restart,
                  launch->max_restarts, from != NULL ? ", from " : "", from != NULL ? from : "");
    }
}

/* ---- before and after -------------------------------------------------------------------- */

/* Signals come through a descriptor. One that the caller ignores (nohup) stays ignored. */
static weft_status_t open_signals(weft_launcher_t *launcher)
{
    static const int signals[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT,
                                  SIGUSR1, SIGUSR2, SIGTSTP, SIGCHLD};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        struct sigaction old;
        sigaction(signals[i], NULL, &old);
        if (old.sa_handler != SIG_IGN || signals[i] == SIGCHLD) {
            sigaddset(&set, signals[i]);
        }
    }
    launcher->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (launcher->signal_fd < 0) {
        return weft__fail(WEFT_ERR_SYSTEM, "%s: cannot open signals: %s", launcher->launch->name,
                          strerror(errno));
    }
    sigprocmask(SIG_BLOCK, &set, &launcher->spawn.mask);
    return WEFT_OK;
}

/* Two pipes a rank and the store's connections; ranks get back the limit that we had. */
static void raise_file_limit(weft_launcher_t *launcher)
{
    struct rlimit limit;
    rlim_t need = 8 * (rlim_t)launcher->launch->ranks + 256;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return;
    }
    launcher->spawn.files = limit;
    if (limit.rlim_cur < need) {
        limit.rlim_cur = need < limit.rlim_max ? need : limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static size_t unsent(const weft_launcher_t *launcher)
{
    return launcher->out.count - launcher->out.sent + launcher->err.count - launcher->err.sent;
}

/* Say what is left to be said, for as long as somebody may listen: until a signal comes, or the
 * time of the job is over; after a signal until nobody has read anything for a while. Then the
 * reason is *exit_p, unless there is one. */
static void flush_all(weft_launcher_t *launcher, int *exit_p)
{
    struct pollfd polls[3] = {{.fd = launcher->signal_fd, .events = POLLIN}};
    int reason = launcher->interrupted;
    uint64_t deadline = reason != 0 ? weft__deadline(KILL_AFTER_MS) : WEFT_NEVER;
    launcher->interrupted = 0;
    launcher->ending_ns = 0;
    for (size_t left = unsent(launcher); left > 0;) {
        weft__sink_flush(&launcher->out);
        weft__sink_flush(&launcher->err);
        watch_sink(&polls[1], &launcher->out);
        watch_sink(&polls[2], &launcher->err);
        if (unsent(launcher) < left && reason != 0) {
            deadline = weft__deadline(KILL_AFTER_MS);
        }
        left = unsent(launcher);
        reason = launcher->interrupted != 0 ? launcher->interrupted : reason;
        int job_ms = weft__deadline_left(launcher->job_deadline),
            ms = weft__deadline_left(deadline);
        if (left == 0 || launcher->interrupted != 0 || job_ms == 0 || ms == 0) {
            break;
        }
        poll(polls, 3, ms < 0 || (job_ms >= 0 && job_ms < ms) ? job_ms : ms);
        read_signals(launcher);
    }
    if (unsent(launcher) > 0 && *exit_p == 0) {
        *exit_p = reason != 0 ? 128 + reason : WEFT_EXIT_TIMEOUT;
        weft__say(launcher, "nobody reads what the ranks wrote: %zu bytes are lost",
                  unsent(launcher));
        weft__sink_flush(&launcher->err);
    }
}

/* A job is no success if what it printed last is lost. */
static void check_last_output(weft_launcher_t *launcher, int *exit_p)
{
    if (*exit_p == 0) {
        check_sink(launcher, &launcher->out, "stdout");
        check_sink(launcher, &launcher->err, "stderr");
        *exit_p = launcher->exit >= 0 ? launcher->exit : 0;
        weft__sink_flush(&launcher->err);
    }
}

static weft_status_t plan_binding(const weft_launch_t *launch, weft_bind_t *bind_p)
{
    weft_gpus_t gpus;
    if (launch->device == NULL || strcmp(launch->device, "cpu") == 0) {
        return weft__bind_plan(launch->ranks, NULL, bind_p);
    }
    WEFT_TRY(weft__gpus_read(&gpus));
    if (gpus.cuda_count == 0) {
        weft__info("%s: ranks are not bound near GPUs, as there are none: %s", launch->name,
                   gpus.count == 0 ? gpus.reason : gpus.cuda_note);
    }
    weft_status_t status = weft__gpus_bind(&gpus, launch->ranks, bind_p);
    weft__gpus_cleanup(&gpus);
    return status;
}

static weft_status_t run(weft_launcher_t *launcher, int *exit_p)
{
    const weft_launch_t *launch = launcher->launch;
    launcher->children = calloc((size_t)launch->ranks, sizeof(weft_child_t));
    launcher->polls = calloc(4 + 2 * (size_t)launch->ranks, sizeof(struct pollfd));
    if (launcher->children == NULL || launcher->polls == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "%s: no memory for %d ranks", launch->name,
                          launch->ranks);
    }
    launcher->repeats = launch->own ? weft__repeats_create() : NULL;
    WEFT_TRY(weft__guard_start(launch->ranks, &launcher->guard));
    if (launch->bind) {
        if (plan_binding(launch, &launcher->bind) == WEFT_OK) {
            launcher->spawn.bind = &launcher->bind;
        } else {
            weft__say(launcher, "ranks are not bound to cores: %s", weft_last_error());
        }
    }
    launcher->order_fd = epoll_create1(EPOLL_CLOEXEC);
    weft_status_t status = run_with_restarts(launcher, exit_p);
    flush_all(launcher, exit_p);
    check_last_output(launcher, exit_p);
    if (launcher->order_fd >= 0) {
        close(launcher->order_fd);
    }
    weft__guard_stop(&launcher->guard);
    return status;
}

weft_status_t weft__launch(const weft_launch_t *launch, int *exit_p)
{
    weft_launcher_t launcher = {.launch = launch, .job_deadline = WEFT_NEVER, .failed = -1};
    struct sigaction ignore = {.sa_handler = SIG_IGN}, old_pipe;
    char path[PATH_MAX];
    int was_reaper = 0;
    *exit_p = 1;
    if (launch->ranks < 1 || launch->ranks > WEFT_MAX_RANKS) {
        return weft__fail(WEFT_ERR_INVALID, "%s: %d ranks; it takes 1 to %d", launch->name,
                          launch->ranks, WEFT_MAX_RANKS);
    }
    WEFT_TRY(weft__spawn_find(launch, path, exit_p));
    launcher.spawn.launch = launch;
    launcher.spawn.path = path;
    launcher.spawn.share_terminal = isatty(0) && tcgetpgrp(0) == getpgrp();
    if (launch->timeout_ms > 0) {
        launcher.job_deadline = weft__deadline(launch->timeout_ms);
    }
    WEFT_TRY(open_signals(&launcher));
    sigaction(SIGPIPE, &ignore, &old_pipe);
    prctl(PR_GET_CHILD_SUBREAPER, &was_reaper);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    raise_file_limit(&launcher);
    weft__sink_init(&launcher.out, STDOUT_FILENO);
    weft__sink_init(&launcher.err, STDERR_FILENO);

    weft_status_t status = note_strangers(&launcher);
    status = status == WEFT_OK ? run(&launcher, exit_p) : status;

    weft__sink_cleanup(&launcher.out);
    weft__sink_cleanup(&launcher.err);
    weft__bind_cleanup(&launcher.bind);
    weft__repeats_destroy(launcher.repeats);
    free(launcher.children);
    free(launcher.polls);
    free(launcher.strangers);
    setrlimit(RLIMIT_NOFILE, &launcher.spawn.files);
    prctl(PR_SET_CHILD_SUBREAPER, was_reaper);
    sigaction(SIGPIPE, &old_pipe, NULL);
    close(launcher.signal_fd);
    sigprocmask(SIG_SETMASK, &launcher.spawn.mask, NULL);
    return status;
}
