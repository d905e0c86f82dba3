#include "gpu/gpu.h"

#include <setjmp.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/settings.h"
#include "device/cuda.h"

/* What was found, by a process of its own: one that has used CUDA must not fork. */
typedef struct found {
    int gpus, mps;
    weft_cuda_props_t props; /* of the first one */
    char why[400];           /* there is none */
} found_t;

static found_t found;
static bool is_virtual, take_turns;

static void look(int to)
{
    const char *why;
    alarm(60);
    if (!weft__cuda_load(&why)) {
        snprintf(found.why, sizeof(found.why), "%s", why);
    } else {
        found.gpus = weft__cuda_gpus();
        found.props = *weft__cuda_props(0);
        found.mps = found.props.mps;
    }
    _exit(write(to, &found, sizeof(found)) == sizeof(found) ? 0 : 1);
}

static void find(void)
{
    int ends[2], status = 0;
    fflush(NULL);
    pid_t pid = pipe(ends) == 0 ? fork() : -1;
    if (pid < 0) {
        perror("looking for GPUs");
        exit(1);
    }
    if (pid == 0) {
        look(ends[1]);
    }
    close(ends[1]);
    bool answered = read(ends[0], &found, sizeof(found)) == sizeof(found);
    close(ends[0]);
    waitpid(pid, &status, 0);
    if (!answered) {
        fprintf(stderr, "the process that looks for GPUs ended with status %#x\n",
                (unsigned)status);
        exit(1);
    }
}

static void leave(const char *why)
{
    printf("skipped: %s\n", why);
    exit(77);
}

#define NO_MPS                                                                                     \
    "MPS is off, so ranks that are processes cannot share a GPU; tools/test-gpu starts it, as "    \
    "does "                                                                                        \
    "nvidia-cuda-mps-control -d"

void gpu_start(int argc, char **argv, bool processes)
{
    const char *device = getenv("WEFT_TEST_DEVICE");
    is_virtual = device && strcmp(device, "cpu") == 0;
    unsetenv("WEFT_TEST_DEVICE"); /* no setting of Weft's */
    setenv("WEFT_DEVICE", is_virtual ? "cpu" : "cuda", 1);
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    if (is_virtual) {
        return;
    }
    find();
    if (found.gpus == 0) {
        leave(found.why);
    }
    const char *turns = getenv("WEFT_TAKE_TURNS");
    take_turns = turns && weft__parse_bool(turns, &take_turns) && take_turns;
    if (processes && found.mps == 0 && !take_turns) {
        leave(NO_MPS);
    }
    printf("%s, %d multiprocessors, %s\n", found.props.name, found.props.sms,
           found.mps > 0    ? "MPS"
           : found.mps == 0 ? "no MPS"
                            : "the driver does not say whether there is MPS");
}

bool gpu_processes(void)
{
    if (!is_virtual && found.mps == 0 && !take_turns) {
        print_message("not run with processes: " NO_MPS "\n");
        return false;
    }
    return true;
}

bool gpu_virtual(void)
{
    return is_virtual;
}

void gpu_in_a_row(team_t *team)
{
    for (const team_fn *fn = team->arg; *fn; fn++) {
        (*fn)(team);
        team_note("between two functions");
        team_meet(team);
    }
}
