/* ctest: timeout=60 */
/* A writer of checkpoints that is killed at any instant leaves the last one that it reported, or
 * a newer one, whole. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/fixture.h"
#include "base/rng.h"
#include "train/checkpoint_cases.h"

#define KILLS 200
#define SECONDS_MOST 4

static void complain(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, weft_last_error());
    exit(1);
}

/* Go on from what is there, write every step until the end comes, report those that are done. */
static void write_for_ever(const char *folder, int report)
{
    const weft_checkpoint_options_t options = {.keep = 2};
    weft_checkpoint_writer_t *writer;
    weft_loaded_t loaded;
    small_run_t run;
    uint64_t step = 0;
    small_run_init(&run, 4000);
    if (weft__checkpoint_load(folder, WEFT_LOAD_ALL, &loaded) == WEFT_OK) {
        step = loaded.state.step;
        weft__checkpoint_unload(&loaded);
    }
    if (weft__checkpoint_writer_open(folder, &options, &writer) != WEFT_OK) {
        complain("open");
    }
    for (uint64_t next = step + 1;; next++) {
        small_run_set(&run, next);
        /* every third one twice, which puts it in the place of itself */
        for (int again = 0; again < (next % 3 == 0 ? 2 : 1); again++) {
            if (weft__checkpoint_save(writer, &run.checkpoint, NULL) != WEFT_OK ||
                weft__checkpoint_wait(writer) != WEFT_OK) {
                complain("save");
            }
        }
        if (write(report, &next, sizeof(next)) != sizeof(next)) {
            complain("report");
        }
    }
}

/* Start a writer, kill it after `us` microseconds; the last step that it reported. */
static uint64_t kill_after(const char *folder, useconds_t us, uint64_t reported)
{
    int ends[2];
    if (pipe(ends) != 0) {
        complain("pipe");
    }
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        write_for_ever(folder, ends[1]);
    }
    close(ends[1]);
    usleep(us);
    kill(child, SIGKILL);
    int status;
    waitpid(child, &status, 0);
    if (!WIFSIGNALED(status)) {
        complain("the writer ended by itself");
    }
    for (uint64_t step; read(ends[0], &step, sizeof(step)) == (ssize_t)sizeof(step);) {
        reported = step;
    }
    close(ends[0]);
    return reported;
}

int main(void)
{
    const char *folder = in_scratch("killed");
    uint64_t reported = 0, start = weft__now_ns(), seed;
    small_run_t run;
    small_run_init(&run, 4000);
    weft__random_bytes(&seed, sizeof(seed));
    printf("seed %llu\n", (unsigned long long)seed);
    weft__folder_make(folder);
    int kills = 0;
    for (; kills < KILLS && weft__now_ns() - start < (uint64_t)SECONDS_MOST * 1000000000u;
         kills++) {
        useconds_t us = (useconds_t)(weft__rng_at(seed, (uint64_t)kills) % 25000);
        reported = kill_after(folder, us, reported);
        weft_loaded_t loaded;
        weft_status_t status = weft__checkpoint_load(folder, WEFT_LOAD_ALL, &loaded);
        if (status != WEFT_OK && (reported > 0 || status != WEFT_ERR_NOT_FOUND)) {
            complain("load");
        }
        if (status == WEFT_OK) {
            if (loaded.state.step < reported || !small_run_same(&run, &loaded)) {
                fprintf(stderr, "step %llu is there, %llu was reported\n",
                        (unsigned long long)loaded.state.step, (unsigned long long)reported);
                return 1;
            }
            weft__checkpoint_unload(&loaded);
        }
    }
    printf("%d kills, %llu steps\n", kills, (unsigned long long)reported);
    small_run_free(&run);
    return reported > 0 ? 0 : 1;
}
