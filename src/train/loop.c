/* The training loop: see loop.h. */
#include "train/loop.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <weft/device.h>

#include "base/log.h"
#include "parallel/schedule.h"
#include "train/checkpoint_parts.h"
#include "train/ending.h"
#include "train/peak.h"
#include "train/record.h"
#include "train/run_folder.h"
#include "train/run_plan.h"
#include "train/scale.h"
#include "train/tracing.h"
#include "train/trainer.h"

#define SKIPS_MOST 10 /* steps in a row whose gradients were not finite */

typedef struct run {
    weft_trainer_t t;
    weft_setup_t *setup;
    const weft_train_config_t *config;
    weft_metrics_t *metrics;          /* rank 0 */
    weft_checkpoint_writer_t *writer; /* rank 0, with a run folder */
    uint64_t told_saved;              /* step of the last checkpoint that was announced */
    double peak;                      /* operations per second of all devices; 0: unknown */
    weft_ending_t ending;
    int signal;    /* that asked one of the ranks to end; 0: none did */
    bool finished; /* and this was done */
    int skips;
    bool behind;     /* metrics of a step could not be written at once, which was said */
    double *memory;  /* peak of every rank */
    bool stats_kept; /* of a step: memory and times are known */
    weft_plan_times_t times, all_times; /* of a step; added up over steps but the first */
    double all_seconds;
    int timed;
    weft_train_result_t *result;
} run_t;

/* ---- opening ------------------------------------------------------------------------------ */

static weft_status_t open_feed(run_t *run)
{
    weft_trainer_t *t = &run->t;
    const weft_train_config_t *config = run->config;
    weft_feed_options_t options = {.data = run->setup->data,
                                   .batch = (uint64_t)config->batch,
                                   .length = (uint32_t)config->length,
                                   .first = t->state.samples,
                                   .steps = (uint64_t)config->steps - t->state.step};
    const weft_mesh_t *mesh = weft__worker_mesh(t->worker);
    weft__data_share(options.batch, mesh->index[WEFT_AXIS_DATA], mesh->size[WEFT_AXIS_DATA],
                     &options.begin, &options.end);
    return weft__feed_open(&options, &t->feed);
}

static weft_status_t add_peaks(run_t *run, double flops)
{
    weft_step_stats_t mine = {.loss = flops};
    WEFT_TRY(weft__step_stats_gather(&run->t, &mine));
    for (int i = 0; i < run->t.size; i++) {
        run->peak += run->t.stats[i].loss;
    }
    return WEFT_OK;
}

/* What is trained, where and how. */
static void say_what(run_t *run)
{
    const weft_train_config_t *config = run->config;
    const weft_machine_t *machine = &run->setup->machine;
    bool gpus = strcmp(run->setup->device, "cuda") == 0;
    weft__metrics_say(run->metrics,
                      "%.1f M parameters in %s, %d rank%s on %s; batches of %d x %d tokens",
                      (double)weft__config_params(&run->setup->model) / 1e6, config->precision,
                      run->t.size, run->t.size == 1 ? "" : "s",
                      !gpus                     ? "virtual GPUs"
                      : machine->gpu[0] != '\0' ? machine->gpu
                                                : "GPUs",
                      config->batch, config->length);
}

static weft_status_t open_reports(run_t *run, FILE *out)
{
    const weft_train_config_t *config = run->config;
    char tensorboard[WEFT_PATH_BYTES];
    weft_metrics_options_t metrics = {.folder = config->out,
                                      .tensorboard = tensorboard,
                                      .resumed = run->t.state.step,
                                      .steps = (uint64_t)config->steps,
                                      .log_every = config->log_every,
                                      .out = out};
    if (run->t.rank != 0) {
        return WEFT_OK;
    }
    WEFT_TRY(weft__train_tensorboard(config, tensorboard));
    WEFT_TRY(weft__metrics_open(&metrics, &run->metrics));
    say_what(run);
    if (!weft__run_plan_plain(config)) {
        char picture[4096];
        weft__mesh_picture(weft__worker_mesh(run->t.worker), picture, sizeof(picture));
        weft__metrics_say(run->metrics, "%.*s", (int)strlen(picture) - 1, picture);
    }
    return WEFT_OK;
}

/* The position in the data is a number of samples, whatever they are. */
static void compare_data(run_t *run)
{
    weft_train_state_t *state = &run->t.state;
    uint64_t before = state->data_print;
    state->data_print = weft__data_print(run->setup->data);
    if (before != 0 && before != state->data_print && run->metrics != NULL) {
        weft__metrics_say(
            run->metrics,
            "warning: %s is not the data of the first %llu steps; the run goes on with "
            "it, at the same place",
            run->config->data, (unsigned long long)state->step);
    }
}

/* Residuals of compressed gradients are of a plan (residuals.h). */
static void compare_residuals(run_t *run)
{
    const weft_trainer_t *t = &run->t;
    if (run->setup->resumed && run->setup->loaded.residuals != NULL && !t->took_residuals &&
        run->metrics != NULL) {
        weft__metrics_say(run->metrics,
                          "%s holds residuals of --compress int8 under another plan: this run "
                          "drops them, which costs the rounding of one step",
                          run->setup->loaded.path);
    }
}

/* The writer's lock comes first: a second run in the folder must not change what the first
 * wrote. */
static weft_status_t open_folder(run_t *run)
{
    weft_checkpoint_options_t options = {.keep = run->config->keep};
    WEFT_TRY(weft__checkpoint_writer_open(run->config->out, &options, &run->writer));
    if (run->setup->goes_on) {
        WEFT_TRY(weft__run_set_aside(run->config->out, &run->setup->loaded));
    }
    return weft__record_write(run->setup);
}

/* Tokens are made by rank 0; the others find them there. */
static weft_status_t open_data(weft_setup_t *setup, weft_comm_h comm, FILE *out)
{
    int rank;
    WEFT_TRY(weft_comm_rank(comm, &rank));
    if (rank == 0) {
        WEFT_TRY(weft__setup_prepare(setup, out));
    }
    WEFT_TRY(weft_barrier(comm, NULL));
    return weft__setup_data(setup);
}

/* ---- the checkpoint that is being written ------------------------------------------------- */

/* A full disk is no reason to lose what is being computed: there may be room again. */
static void say_trouble(run_t *run)
{
    char sentence[1024];
    snprintf(sentence, sizeof(sentence), "%s", weft_last_error());
    weft__metrics_say(run->metrics, "%s; training goes on", sentence);
}

static void announce(run_t *run)
{
    weft_checkpoint_times_t times;
    weft__checkpoint_times(run->writer, &times);
    if (times.step > run->told_saved) {
        run->told_saved = run->result->saved = times.step;
        weft__ending_saved(&run->ending, times.blocked_s + times.written_s);
        weft__metrics_say(run->metrics, "saved step %llu in %s: %.1f MiB in %.1f s",
                          (unsigned long long)times.step, run->config->out,
                          (double)times.bytes / (1 << 20), times.written_s);
    }
}

/* Look after the checkpoint that is being written. */
static void watch_writer(run_t *run)
{
    weft_status_t status = run->writer != NULL ? weft__checkpoint_poll(run->writer) : WEFT_PENDING;
    if (status == WEFT_OK) {
        announce(run);
    } else if (status != WEFT_PENDING) {
        say_trouble(run);
        announce(run); /* it may be saved all the same */
    }
}

/* ---- after a step ------------------------------------------------------------------------- */

/* Do the ranks agree on what they computed? Their gradients have the same bits, so this does. */
static weft_status_t check_norms(run_t *run, const weft_inflight_step_t *queued)
{
    const weft_trainer_t *t = &run->t;
    for (int i = 1; i < t->size; i++) {
        double a = t->stats[0].grad_norm, b = t->stats[i].grad_norm;
        if (a != b && !(isnan(a) && isnan(b))) {
            run->result->told = true;
            return weft__fail(WEFT_ERR_MISMATCH,
                              "in step %llu rank %d has a gradient of norm %.9g and rank 0 one of "
                              "%.9g, though they are the sum of the same: the memory or arithmetic "
                              "of one of them is faulty",
                              (unsigned long long)queued->step + 1, i, b, a);
        }
    }
    return WEFT_OK;
}

/* With loss scaling steps may be skipped as long as there is a smaller scale. */
static bool may_skip(run_t *run, double norm)
{
    if (weft__scale_used(run->setup)) {
        return weft__scale_update(&run->t.state, norm);
    }
    run->skips = isfinite(norm) ? 0 : run->skips + 1;
    return run->skips < SKIPS_MOST;
}

static weft_status_t check_numbers(run_t *run, const weft_inflight_step_t *queued, double loss)
{
    if (isfinite(loss) && may_skip(run, run->t.stats[0].grad_norm)) {
        return WEFT_OK;
    }
    run->result->told = run->result->diverged = true;
    if (run->writer != NULL && weft__checkpoint_poll(run->writer) == WEFT_OK) {
        announce(run);
    }
    return weft__fail(
        WEFT_ERR_INVALID,
        "the %s is not a number in step %llu: training has diverged%s%s; a lower --lr "
        "(now %g), a longer --warmup or --clip may help",
        isfinite(loss) ? "gradient" : "loss", (unsigned long long)queued->step + 1,
        run->told_saved > 0 ? "; the last checkpoint is in " : "",
        run->told_saved > 0 ? run->config->out : "", queued->lr);
}

/* Here tensor_share and exchange_share are waiting that nothing hid, for tensor-parallel ranks
 * and for gradients; update_share is all that comes after backward, the latter included. */
static void describe_plan(run_t *run, weft_metrics_step_t *step)
{
    const weft_plan_times_t *times = &run->times;
    step->bubble = times->bubble;
    step->tensor_share = run->config->tp > 1 ? times->tensor / step->seconds : NAN;
    step->exchange_share = times->exchange / step->seconds;
    step->update_share = times->update / step->seconds;
    if (!run->t.paused && isfinite(step->seconds)) { /* the first one is still warming up */
        run->all_times.bubble += times->bubble;
        run->all_times.uneven += times->uneven;
        run->all_times.tensor += times->tensor;
        run->all_times.exchange += times->exchange;
        run->all_times.update += times->update;
        run->all_seconds += step->seconds;
        run->timed++;
    }
}

/* What rank 0 writes down about a step. */
static weft_metrics_step_t describe(run_t *run, const weft_inflight_step_t *queued, double loss)
{
    const weft_trainer_t *t = &run->t;
    uint64_t epoch, index;
    weft_data_info_t info;
    weft_metrics_step_t step = WEFT_METRICS_STEP_INIT;
    double tokens = (double)run->config->batch * run->config->length, exposed = 0.0, memory = 0.0;
    weft__data_info(run->setup->data, &info);
    weft__data_position(run->setup->data, t->state.samples, &epoch, &index);
    for (int i = 0; i < t->size; i++) {
        exposed += t->stats[i].exposed / t->size;
        memory = fmax(memory, t->stats[i].memory);
    }
    step.step = queued->step + 1;
    step.loss = loss;
    step.lr = queued->lr;
    step.grad_norm = t->stats[0].grad_norm;
    step.skipped = !isfinite(step.grad_norm);
    step.loss_scale = weft__scale_used(run->setup) ? queued->loss_scale : NAN;
    step.seconds = t->stats[0].step;
    step.tokens_per_s = tokens / step.seconds;
    step.comm_share = t->size > 1 ? exposed : NAN;
    step.epoch = (double)epoch + (double)index / (double)info.windows;
    step.tokens = t->state.tokens;
    step.memory = (uint64_t)memory;
    if (run->peak > 0.0) {
        double rate = weft__config_flops(&run->setup->model, run->config->length) *
                      step.tokens_per_s;
        run->peak = fmax(run->peak, rate); /* it was measured, and may have had neighbours then */
        step.mfu = rate / run->peak;
    }
    return step;
}

static void advance(run_t *run, const weft_inflight_step_t *queued, double loss)
{
    weft_train_state_t *state = &run->t.state;
    state->step = queued->step + 1;
    state->samples += (uint64_t)run->config->batch;
    state->tokens += (uint64_t)run->config->batch * (uint64_t)run->config->length;
    state->loss = run->result->loss = loss;
    run->result->step = state->step;
}

/* For the end of the run; the next statistics may be about something else. */
static void keep_stats(run_t *run)
{
    const weft_trainer_t *t = &run->t;
    for (int i = 0; i < t->size; i++) {
        run->memory[i] = t->stats[i].memory;
    }
    weft__step_stats_times(t, &run->times);
    run->stats_kept = true;
}

/* The statistics of all ranks are there: does one of them want to end? */
static void note_signals(run_t *run)
{
    for (int i = 0; i < run->t.size; i++) {
        int signal = (int)run->t.stats[i].stop;
        run->signal = signal > run->signal ? signal : run->signal;
    }
    weft__ending_looked(&run->ending);
}

/* Read what came of a step, on all ranks; write it down on rank 0. */
static weft_status_t settle(run_t *run, weft_inflight_step_t *queued, bool validate)
{
    weft_trainer_t *t = &run->t;
    double loss = 0.0;
    if (!queued->there) {
        return WEFT_OK;
    }
    WEFT_TRY(weft__step_settle(t, queued, weft__ending_signal()));
    for (int i = 0; i < t->size; i++) {
        loss += t->stats[i].loss;
    }
    note_signals(run);
    loss /= (double)run->config->batch * run->config->length;
    keep_stats(run);
    WEFT_TRY(check_norms(run, queued));
    WEFT_TRY(check_numbers(run, queued, loss));
    advance(run, queued, loss);
    weft_metrics_step_t step = describe(run, queued, loss);
    describe_plan(run, &step);
    run->t.paused = false;
    if (validate && run->signal == 0) {
        WEFT_TRY(weft__step_validate(t, &step.eval_loss));
        run->result->eval_loss = step.eval_loss;
    }
    if (t->rank == 0 && weft__metrics_step(run->metrics, &step) != WEFT_OK && !run->behind) {
        run->behind = true;
        say_trouble(run);
    }
    return WEFT_OK;
}

/* ---- between steps ------------------------------------------------------------------------ */

static bool due(uint64_t steps_done, int every)
{
    return every > 0 && steps_done % (uint64_t)every == 0;
}

static bool is_last(const run_t *run, uint64_t steps_done)
{
    return steps_done == (uint64_t)run->config->steps;
}

/* The last one could not be written: say what there is instead. */
static weft_status_t name_last_checkpoint(const run_t *run, weft_status_t status)
{
    char why[1024], name[WEFT_CHECKPOINT_NAME];
    snprintf(why, sizeof(why), "%s", weft_last_error());
    if (run->told_saved > 0) {
        return weft__fail(status, "%s; the last checkpoint is %s/%s", why, run->config->out,
                          weft__checkpoint_name(run->told_saved, name));
    }
    if (run->setup->resumed) {
        return weft__fail(status, "%s; the last checkpoint is %s", why, run->setup->loaded.path);
    }
    return weft__fail(status, "%s; there is no earlier checkpoint", why);
}

/* Begin a checkpoint; one that cannot be written ends the run only where it is the last. */
static weft_status_t save(run_t *run, bool last)
{
    weft_trainer_t *t = &run->t;
    int span = weft__timeline_begin(t->timeline, WEFT_TRACK_SAVE, "checkpoint", -1, t->stream);
    weft_status_t status = weft__save(t, run->writer);
    weft__timeline_end(t->timeline, span, t->stream);
    if (status != WEFT_OK && !last && t->rank == 0) {
        say_trouble(run);
        announce(run);
        return WEFT_OK;
    }
    if (run->writer != NULL) {
        char why[1024];
        snprintf(why, sizeof(why), "%s", weft_last_error());
        announce(run); /* the one before, which had to be finished first */
        weft__error_restore(why);
    }
    return status == WEFT_OK || t->rank != 0 ? status : name_last_checkpoint(run, status);
}

static weft_status_t finish_writing(run_t *run)
{
    if (run->writer != NULL) {
        char why[1024];
        weft_status_t status = weft__checkpoint_wait(run->writer);
        snprintf(why, sizeof(why), "%s", weft_last_error());
        announce(run); /* also where an older one could not be removed */
        if (status != WEFT_OK) {
            weft__error_restore(why);
            return name_last_checkpoint(run, status);
        }
    }
    if (run->metrics == NULL || weft__metrics_catch_up(run->metrics) == WEFT_OK) {
        return WEFT_OK;
    }
    char why[512];
    snprintf(why, sizeof(why), "%s", weft_last_error());
    return weft__fail(WEFT_ERR_SYSTEM, "the metrics of the run are not complete: %s", why);
}

static weft_status_t sample(run_t *run)
{
    weft_trainer_t *t = &run->t;
    char *text = NULL;
    WEFT_TRY(weft__sample(t, &text));
    if (t->rank == 0 && text == NULL) {
        say_trouble(run);
    } else if (t->rank == 0) {
        weft__metrics_say(run->metrics, "--- step %llu\n%s%s\n---",
                          (unsigned long long)run->t.state.step, run->config->prompt, text);
    }
    free(text);
    return WEFT_OK;
}

/* Where the time went. */
static void tell_times(run_t *run)
{
    weft_plan_t plan = weft__run_plan(run->config);
    const weft_plan_times_t *all = &run->all_times;
    if (run->timed == 0) {
        return;
    }
    if (run->config->pp > 1) {
        weft__metrics_say(run->metrics,
                          "waiting for other stages %.1f%% of forward and backward; %.1f%% by the "
                          "formula, %.1f%% with stages as unlike as these",
                          100 * all->bubble / run->timed, 100 * weft__schedule_bubble(&plan),
                          100 * all->uneven / run->timed);
    }
    if (run->config->tp > 1) {
        weft__metrics_say(run->metrics, "waiting for tensor-parallel ranks %.1f%% of the time",
                          100 * all->tensor / run->all_seconds);
    }
    weft__metrics_say(run->metrics,
                      "waiting for gradients %.1f%%, after backward %.1f%% of the time",
                      100 * all->exchange / run->all_seconds, 100 * all->update / run->all_seconds);
}

/* What became of the plan: times, and memory predicted and measured. */
static weft_status_t tell_plan(run_t *run)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    weft_status_t status = WEFT_OK;
    if (out != NULL) {
        status = weft__run_plan_print_memory(run->setup, weft__worker_mesh(run->t.worker), out,
                                             run->memory);
        fclose(out);
    }
    if (text != NULL && status == WEFT_OK) {
        weft__metrics_say(run->metrics, "%s", text);
    }
    tell_times(run);
    free(text);
    return status;
}

/* What needs the step to be over before the next begins. */
typedef struct duties {
    bool validate, sample, save;
} duties_t;

static duties_t duties_after(const run_t *run, uint64_t steps_done)
{
    const weft_train_config_t *config = run->config;
    bool last = is_last(run, steps_done) || run->signal != 0;
    return (duties_t){.validate = config->eval_batches > 0 &&
                                  (due(steps_done, config->eval_every) || is_last(run, steps_done)),
                      .sample = due(steps_done, config->sample_every),
                      .save = run->ending.saves && (due(steps_done, config->save_every) || last)};
}

/* ---- the loop ----------------------------------------------------------------------------- */

/* All begin the next step together, as waiting for one that wrote or saved is not communication;
 * and they look whether a signal came meanwhile. */
static weft_status_t meet(run_t *run)
{
    weft_step_stats_t mine = {.stop = weft__ending_signal()};
    run->t.paused = true;
    WEFT_TRY(weft__step_stats_gather(&run->t, &mine));
    note_signals(run);
    return WEFT_OK;
}

/* A signal came: end with this state. */
static weft_status_t end_early(run_t *run, bool saved)
{
    run->finished = true;
    return run->ending.saves && !saved ? save(run, true) : WEFT_OK;
}

static weft_status_t one_step(run_t *run, uint64_t step)
{
    weft_trainer_t *t = &run->t;
    weft_inflight_step_t *now = &t->inflight[step % WEFT_INFLIGHT_STEPS];
    weft_inflight_step_t *before =
        &t->inflight[(step + WEFT_INFLIGHT_STEPS - 1) % WEFT_INFLIGHT_STEPS];
    duties_t duties = duties_after(run, step + 1);
    bool ahead = t->stream != NULL; /* on virtual GPUs a step that was queued is over */
    bool pauses = duties.validate || duties.sample || duties.save;
    weft__ending_step(&run->ending, step + 1);
    if (weft__scale_used(run->setup)) { /* this step's scale depends on it */
        WEFT_TRY(settle(run, before, false));
    }
    WEFT_TRY(weft__step_queue(t, step, now));
    WEFT_TRY(settle(run, before, false));
    watch_writer(run);
    if (!ahead || pauses || run->signal != 0) {
        WEFT_TRY(settle(run, now, duties.validate));
    }
    if (duties.save) {
        WEFT_TRY(save(run, is_last(run, step + 1) || run->signal != 0));
    }
    if (duties.sample && run->signal == 0) {
        WEFT_TRY(sample(run));
    }
    if (pauses) {
        WEFT_TRY(meet(run));
    }
    /* what `meet` has heard of on a GPU is about a step that is over */
    return run->signal != 0 && !now->there ? end_early(run, duties.save) : WEFT_OK;
}

static weft_status_t train(run_t *run)
{
    uint64_t step = run->t.state.step, end = (uint64_t)run->config->steps;
    run->t.paused = true;
    if (step >= end && run->t.rank == 0) {
        weft__metrics_say(run->metrics,
                          "%s is at step %llu already, and --steps %d counts those: nothing to do",
                          run->setup->loaded.path, (unsigned long long)step, run->config->steps);
    }
    if (step < end) {
        weft__ending_begin(&run->ending, step + 1, weft__config_params(&run->setup->model));
    }
    while (step < end && !run->finished) {
        WEFT_TRY(one_step(run, step++));
    }
    if (step > run->t.state.step) {
        WEFT_TRY(settle(run, &run->t.inflight[(step - 1) % WEFT_INFLIGHT_STEPS], false));
    }
    weft__ending_finish(&run->ending);
    if (run->stats_kept && run->t.rank == 0 && !weft__run_plan_plain(run->config)) {
        WEFT_TRY(tell_plan(run));
    }
    run->result->signal = step < end ? run->signal : 0;
    return WEFT_OK;
}

static weft_status_t open_memory(run_t *run)
{
    size_t ranks = (size_t)run->t.size;
    run->memory = calloc(ranks, sizeof(double));
    if (run->memory == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for the figures of %zu ranks", ranks);
    }
    return WEFT_OK;
}

static weft_status_t open_run(run_t *run, weft_comm_h comm, weft_trace_t *trace, FILE *out)
{
    int rank;
    double flops;
    WEFT_TRY(weft_comm_rank(comm, &rank));
    if (rank == 0 && run->config->out[0] != '\0') {
        WEFT_TRY(open_folder(run));
    }
    WEFT_TRY(open_data(run->setup, comm, out));
    WEFT_TRY(weft__peak_find(run->setup, comm, &flops));
    WEFT_TRY(weft__trainer_open(run->setup, comm, trace, &run->t));
    WEFT_TRY(add_peaks(run, flops));
    WEFT_TRY(open_memory(run));
    WEFT_TRY(open_reports(run, out));
    compare_data(run);
    compare_residuals(run);
    run->ending = (weft_ending_t){.config = run->config,
                                  .reports = rank == 0,
                                  .saves = run->config->out[0] != '\0' &&
                                           run->config->save_every >= 0,
                                  .steps = 1 + (run->t.stream != NULL)};
    return run->t.state.step < (uint64_t)run->config->steps ? open_feed(run) : WEFT_OK;
}

static void keep_first(weft_status_t next, weft_status_t *status, char *sentence, size_t size)
{
    if (*status == WEFT_OK && next != WEFT_OK) {
        *status = next;
        snprintf(sentence, size, "%s", weft_last_error());
    }
}

/* Keeps the first failure, and its sentence. */
static weft_status_t close_run(run_t *run, weft_status_t status)
{
    char sentence[1024];
    if (status == WEFT_OK) {
        status = finish_writing(run);
    }
    if (status == WEFT_OK && run->t.timeline != NULL) { /* what came after the last step */
        status = weft_stream_synchronize(run->t.stream);
        weft__timeline_collect(run->t.timeline);
    }
    if (status == WEFT_OK && run->metrics != NULL) {
        weft__metrics_summary(run->metrics);
    }
    snprintf(sentence, sizeof(sentence), "%s", weft_last_error());
    run->result->signal = run->signal > 0 && status != WEFT_OK ? run->signal : run->result->signal;
    if (run->writer != NULL && weft__checkpoint_wait(run->writer) == WEFT_OK) {
        announce(run); /* one that was being written when something else failed */
    }
    if (run->writer != NULL) {
        keep_first(weft__checkpoint_writer_close(run->writer), &status, sentence, sizeof(sentence));
    }
    if (run->metrics != NULL) {
        keep_first(weft__metrics_close(run->metrics), &status, sentence, sizeof(sentence));
    }
    weft__trainer_close(&run->t);
    free(run->memory);
    if (status != WEFT_OK) {
        weft__error_restore(sentence);
    }
    return status;
}

weft_status_t weft__train_run(weft_setup_t *setup, weft_comm_h comm, FILE *out,
                              weft_train_result_t *result_p)
{
    run_t run = {.setup = setup, .config = setup->config, .result = result_p};
    weft_trace_t *trace = NULL;
    *result_p = (weft_train_result_t){.loss = NAN, .eval_loss = NAN};
    weft_status_t status = weft__tracing_open(setup->config->trace, comm, &trace);
    if (status == WEFT_OK) {
        status = open_run(&run, comm, trace, out);
    }
    if (status == WEFT_OK) {
        status = train(&run);
    }
    status = close_run(&run, status);
    weft_tracks_t tracks = weft__tracks;
    tracks.about = weft__record_describe;
    tracks.ctx = setup;
    return weft__tracing_close(setup->config->trace, &tracks, comm, trace, status);
}
