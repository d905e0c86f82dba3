/* ctest: timeout=30 cores=1 */
/* Whether another process lives, is being killed, or has ended. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "comm/host/procs.h"

static pid_t start(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        for (;;) {
            pause();
        }
    }
    assert_true(pid > 0);
    return pid;
}

static void a_process_that_lives_is_not_dying(void **state)
{
    (void)state;
    pid_t pid = start();
    int fd = weft__proc_open(pid);
    assert_false(weft__proc_ended(fd));
    assert_false(weft__proc_dying(pid));
    kill(pid, SIGSTOP);
    waitpid(pid, NULL, WUNTRACED);
    assert_false(weft__proc_ended(fd));
    assert_false(weft__proc_dying(pid)); /* it may go on */
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    weft__proc_close(pid);
}

/* From the moment of the kill on, whether it has seen the signal, is on its way out or is a
 * zombie. */
static void a_process_that_was_killed_is_dying(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        pid_t pid = start();
        int fd = weft__proc_open(pid);
        kill(pid, SIGKILL);
        while (!weft__proc_dying(pid)) { /* between signal and exit there is a moment of neither */
            usleep(10);
        }
        siginfo_t info;
        waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT);
        assert_true(weft__proc_dying(pid));
        assert_true(weft__proc_ended(fd));
        waitpid(pid, NULL, 0);
        assert_true(weft__proc_ended(fd));
        weft__proc_close(pid);
    }
}

static void a_process_that_ends_by_itself_is_dying(void **state)
{
    siginfo_t info;
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        _exit(0);
    }
    waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT);
    assert_true(weft__proc_dying(pid));
    waitpid(pid, NULL, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_that_ends_by_itself_is_dying),
        cmocka_unit_test(a_process_that_lives_is_not_dying),
        cmocka_unit_test(a_process_that_was_killed_is_dying),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
