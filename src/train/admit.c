/* Is there room for the run? See admit.h. */
#include "train/admit.h"

#include <inttypes.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "device/sysmem.h"
#include "topo/gpu.h"
#include "train/run_folder.h"

#define UNKNOWN UINT64_MAX

typedef char bytes_text_t[WEFT_BYTES_TEXT];

/* ---- memory ------------------------------------------------------------------------------- */

/* What each rank has of its GPU, where several take turns: the least of all. */
static uint64_t gpu_room(int ranks)
{
    weft_gpus_t gpus;
    uint64_t least = UNKNOWN;
    if (weft__gpus_read(&gpus) != WEFT_OK) {
        return UNKNOWN;
    }
    for (int i = 0; i < gpus.cuda_count && i < ranks; i++) {
        int64_t free = gpus.gpus[gpus.cuda[i]].memory_free;
        int sharing = (ranks - i + gpus.cuda_count - 1) / gpus.cuda_count;
        uint64_t each = free > 0 ? (uint64_t)free / (uint64_t)sharing : UNKNOWN;
        least = each < least ? each : least;
    }
    weft__gpus_cleanup(&gpus);
    return least;
}

static weft_room_t look(const weft_setup_t *setup, int ranks)
{
    return (weft_room_t){.host = weft__sysmem_room(weft__sysmem()),
                         .device = strcmp(setup->device, "cuda") == 0 ? gpu_room(ranks) : UNKNOWN};
}

/* "4 ranks need 5.4 GiB of memory (...)" */
static void describe_need(const weft_forecast_t *f, bool gpus, char *text, size_t room)
{
    bytes_text_t total, device, copy, host;
    char virtual[64] = "";
    if (!gpus) {
        snprintf(virtual, sizeof(virtual), "%s on virtual GPUs, ",
                 weft__bytes_text(f->device, device));
    }
    snprintf(text, room, "%d rank%s %s of memory (%s%s for copies of tensors, %s for processes)",
             f->ranks, f->ranks == 1 ? " needs" : "s need", weft__bytes_text(f->total, total),
             virtual, weft__bytes_text(f->copy, copy), weft__bytes_text(f->host, host));
}

/* Add to the sentence what would fit. */
static weft_status_t advise(const weft_setup_t *setup, int ranks, const weft_room_t *room)
{
    char why[1024], options[256];
    weft_forecast_t needs;
    bytes_text_t total;
    /* Not to the last byte: what is available changes while one types. */
    weft_room_t less = {.host = room->host == UNKNOWN ? UNKNOWN : room->host / 10 * 9,
                        .device = room->device == UNKNOWN ? UNKNOWN : room->device / 10 * 9};
    snprintf(why, sizeof(why), "%s", weft_last_error());
    WEFT_TRY(weft__admit_nearest(setup, ranks, &less, options, sizeof(options), &needs));
    if (options[0] == '\0') {
        return weft__fail(WEFT_ERR_NO_MEMORY,
                          "%s. No other plan for this batch fits either: take a smaller --model, "
                          "--batch or --length, or --force to start all the same",
                          why);
    }
    uint64_t bytes = strcmp(setup->device, "cuda") == 0 ? needs.device_most : needs.total;
    return weft__fail(WEFT_ERR_NO_MEMORY,
                      "%s. The nearest plan that fits is %s, with %s; --force starts all the same",
                      why, options, weft__bytes_text(bytes, total));
}

weft_status_t weft__admit_memory(const weft_setup_t *setup, int ranks, FILE *notes)
{
    char need[256];
    bytes_text_t there, device;
    weft_forecast_t forecast;
    bool gpus = strcmp(setup->device, "cuda") == 0;
    if (setup->config->force) {
        return WEFT_OK;
    }
    WEFT_TRY(weft__forecast(setup, ranks, &forecast));
    weft_room_t room = look(setup, ranks);
    describe_need(&forecast, gpus, need, sizeof(need));
    if (forecast.total > room.host) {
        weft__fail(WEFT_ERR_NO_MEMORY,
                   "%s, but %s are available here (MemAvailable, and the limits of the control "
                   "groups)",
                   need, weft__bytes_text(room.host, there));
        return advise(setup, ranks, &room);
    }
    if (forecast.device_most > room.device) {
        weft__fail(WEFT_ERR_NO_MEMORY, "a rank needs %s of its GPU, but %s are free for each",
                   weft__bytes_text(forecast.device_most, device),
                   weft__bytes_text(room.device, there));
        return advise(setup, ranks, &room);
    }
    if (notes != NULL && room.host != UNKNOWN && forecast.total > room.host / 10 * 9) {
        fprintf(notes, "weft train: warning: %s, more than 90%% of the %s that are available\n",
                need, weft__bytes_text(room.host, there));
    }
    if (notes != NULL && room.device != UNKNOWN && forecast.device_most > room.device / 10 * 9) {
        fprintf(
            notes,
            "weft train: warning: a rank needs %s of its GPU, more than 90%% of the %s that are "
            "free for each\n",
            weft__bytes_text(forecast.device_most, device), weft__bytes_text(room.device, there));
    }
    return WEFT_OK;
}

/* ---- disk --------------------------------------------------------------------------------- */

/* Free bytes where the run folder is, or will be. */
static uint64_t disk_room(const char *folder)
{
    char path[WEFT_PATH_BYTES];
    if (weft__path_join(path, "", folder) != WEFT_OK) {
        return UNKNOWN;
    }
    bool there = false;
    while (weft__is_folder(path, &there) == WEFT_OK && !there) {
        char *slash = strrchr(path, '/');
        if (slash == NULL || slash == path) {
            return weft__disk_free(slash == NULL ? "." : "/");
        }
        *slash = '\0';
    }
    return there ? weft__disk_free(path) : UNKNOWN;
}

weft_status_t weft__admit_disk(const weft_setup_t *setup, FILE *notes)
{
    weft_forecast_t forecast;
    bytes_text_t one, there, all;
    const weft_train_config_t *config = setup->config;
    if (config->out[0] == '\0' || config->force) {
        return WEFT_OK;
    }
    WEFT_TRY(weft__forecast_disk(setup, &forecast));
    uint64_t free = disk_room(config->out);
    weft__bytes_text(forecast.checkpoint, one);
    weft__bytes_text(free, there);
    if (forecast.checkpoint > free) {
        return weft__fail(
            WEFT_ERR_SYSTEM,
            "no room in %s: a checkpoint takes %s, and %s are free; make room, choose "
            "another --out, or train without checkpoints with --save -1",
            config->out, one, there);
    }
    if (notes != NULL && forecast.at_once > 0 && forecast.checkpoint > free / forecast.at_once) {
        uint64_t needed = forecast.checkpoint * forecast.at_once;
        fprintf(notes,
                "weft train: warning: %" PRIu64 " checkpoints of %s each need %s in %s, and %s are "
                "free: a lower --keep needs less\n",
                forecast.at_once, one, weft__bytes_text(needed, all), config->out, there);
    }
    return WEFT_OK;
}

weft_status_t weft__admit_going_back(const weft_setup_t *setup, FILE *notes)
{
    const char *out = setup->config->out;
    char later[256], aside[WEFT_PATH_BYTES];
    if (!setup->goes_on) {
        return WEFT_OK;
    }
    WEFT_TRY(weft__run_later(out, &setup->loaded, later, sizeof(later)));
    if (later[0] != '\0') {
        WEFT_TRY(weft__run_aside(out, aside));
        fprintf(notes,
                "weft train: going back to step %llu: %s and the metrics after it move to %s\n",
                (unsigned long long)setup->loaded.state.step, later, aside);
    }
    return WEFT_OK;
}

/* ---- the dry run -------------------------------------------------------------------------- */

static const char *known(uint64_t bytes, char text[WEFT_BYTES_TEXT])
{
    return bytes == UNKNOWN ? "an unknown amount" : weft__bytes_text(bytes, text);
}

weft_status_t weft__admit_print(const weft_setup_t *setup, int ranks, FILE *out)
{
    const weft_train_config_t *config = setup->config;
    bool gpus = strcmp(setup->device, "cuda") == 0;
    weft_forecast_t forecast;
    char need[256];
    bytes_text_t a, b, c;
    WEFT_TRY(weft__forecast(setup, ranks, &forecast));
    weft_room_t room = look(setup, ranks);
    describe_need(&forecast, gpus, need, sizeof(need));
    fprintf(out, "memory    %s; %s available\n", need, known(room.host, a));
    if (gpus) {
        fprintf(out, "GPU       at most %s of a rank; %s free for each\n",
                weft__bytes_text(forecast.device_most, a), known(room.device, b));
    }
    if (forecast.saves > 0) {
        fprintf(out, "disk      %s a checkpoint, %s for %" PRIu64 " more; %s free in %s\n",
                weft__bytes_text(forecast.checkpoint, a),
                weft__bytes_text(forecast.checkpoint * forecast.at_once, c), forecast.at_once,
                known(disk_room(config->out), b), config->out);
    }
    return WEFT_OK;
}
