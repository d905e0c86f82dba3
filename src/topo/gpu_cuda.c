/* CUDA's numbers of the GPUs, worked out from the environment as CUDA does it.
 *
 * Asking CUDA itself would be surer, but it takes a process that has started CUDA on every GPU, and
 * a launcher must not: its ranks are forked from it. So, by the rules of CUDA's manual:
 *
 * - CUDA_DEVICE_ORDER=PCI_BUS_ID orders by bus id. Otherwise the fastest come first, and alike ones
 *   by bus id. CUDA does not say what it takes for fast; we compare cores x clock, and say that the
 *   order is a guess wherever GPUs differ.
 * - CUDA_VISIBLE_DEVICES is a list of places in that order, of UUIDs, or of unique beginnings of
 *   UUIDs. The first entry that names nothing ends the list. One GPU twice makes all disappear.
 * - With MIG, a process sees one MIG device and nothing else. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topo/gpu_read.h"

#define ENTRY_ROOM 128
#define NOTHING (-1)
#define SEVERAL (-2)

/* ---- order -------------------------------------------------------------------------------- */

static int64_t speed_of(const weft_gpu_t *gpu)
{
    return gpu->cores > 0 && gpu->clock_mhz > 0 ? (int64_t)gpu->cores * gpu->clock_mhz : 0;
}

static bool comes_before(const weft_gpu_t *a, const weft_gpu_t *b, bool by_bus)
{
    if (!by_bus && speed_of(a) != speed_of(b)) {
        return speed_of(a) > speed_of(b);
    }
    return a->bus != b->bus ? a->bus < b->bus : a->index < b->index;
}

/* By insertion: they are few, and in order nearly always. */
static void sort(weft_gpus_t *gpus, bool by_bus)
{
    int *order = gpus->order;
    for (int i = 0; i < gpus->count; i++) {
        int at = i;
        while (at > 0 && comes_before(&gpus->gpus[i], &gpus->gpus[order[at - 1]], by_bus)) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = i;
    }
}

static bool all_alike(const weft_gpus_t *gpus)
{
    for (int i = 1; i < gpus->count; i++) {
        if (strcmp(gpus->gpus[i].name, gpus->gpus[0].name) != 0) {
            return false;
        }
    }
    return true;
}

/* ---- CUDA_VISIBLE_DEVICES ----------------------------------------------------------------- */

/* Does the UUID of this GPU, or of a part of it, begin like that? */
static bool has_uuid(const weft_gpu_t *gpu, const char *entry, size_t length)
{
    if (strncmp(gpu->uuid, entry, length) == 0) {
        return true;
    }
    for (int i = 0; i < gpu->parts; i++) {
        if (strncmp(gpu->part_uuids[i], entry, length) == 0) {
            return true;
        }
    }
    return false;
}

static int find_uuid(const weft_gpus_t *gpus, const char *entry, size_t length)
{
    int found = NOTHING;
    for (int i = 0; i < gpus->count; i++) {
        if (has_uuid(&gpus->gpus[i], entry, length)) {
            if (found != NOTHING) {
                return SEVERAL;
            }
            found = i;
        }
    }
    return found;
}

/* The place in gpus that `entry` names. */
static int find_entry(const weft_gpus_t *gpus, const char *entry)
{
    char *end;
    if (strncmp(entry, "MIG-GPU-", 8) == 0) { /* the old way: MIG-GPU-UUID/instance/instance */
        return find_uuid(gpus, entry + 4, strcspn(entry + 4, "/"));
    }
    if (strncmp(entry, "GPU-", 4) == 0 || strncmp(entry, "MIG-", 4) == 0) {
        return find_uuid(gpus, entry, strcspn(entry, " \t"));
    }
    long place = strtol(entry, &end, 10); /* CUDA does not mind what follows the digits either */
    return end == entry || place < 0 || place >= gpus->count ? NOTHING : gpus->order[place];
}

static bool is_shown(const weft_gpus_t *gpus, int gpu)
{
    for (int i = 0; i < gpus->cuda_count; i++) {
        if (gpus->cuda[i] == gpu) {
            return true;
        }
    }
    return false;
}

static void note_entry(weft_gpus_t *gpus, const char *entry, int found)
{
    /* -1, or nothing at all, is how a list is ended on purpose */
    if (entry[0] == '-' || entry[0] == '\0') {
        return;
    }
    snprintf(gpus->cuda_note, sizeof(gpus->cuda_note),
             "CUDA_VISIBLE_DEVICES: '%.64s' names %s; CUDA shows only the GPUs before it", entry,
             found == SEVERAL ? "several GPUs" : "no GPU of this machine");
}

static void show_listed(const char *visible, weft_gpus_t *gpus)
{
    bool more = true;
    while (more) {
        char entry[ENTRY_ROOM];
        visible += strspn(visible, " \t");
        size_t length = strcspn(visible, ",");
        snprintf(entry, sizeof(entry), "%.*s", length < ENTRY_ROOM ? (int)length : ENTRY_ROOM,
                 visible);
        more = visible[length] == ',';
        visible += length + more;
        int gpu = find_entry(gpus, entry);
        if (gpu < 0) {
            note_entry(gpus, entry, gpu);
            return;
        }
        if (is_shown(gpus, gpu)) {
            if (gpus->gpus[gpu].mig == 1) {
                continue; /* another part of it */
            }
            snprintf(gpus->cuda_note, sizeof(gpus->cuda_note),
                     "CUDA_VISIBLE_DEVICES names GPU %d twice; CUDA then shows none",
                     gpus->gpus[gpu].index);
            gpus->cuda_count = 0;
            return;
        }
        gpus->cuda[gpus->cuda_count++] = gpu;
    }
}

/* ---- MIG ---------------------------------------------------------------------------------- */

/* Of GPUs that are cut, CUDA shows the first part of the first, and then no whole GPU. */
static void apply_mig(weft_gpus_t *gpus)
{
    int whole = 0;
    for (int i = 0; i < gpus->cuda_count; i++) {
        const weft_gpu_t *gpu = &gpus->gpus[gpus->cuda[i]];
        if (gpu->mig == 1 && gpu->parts > 0) {
            gpus->cuda[0] = gpus->cuda[i];
            gpus->cuda_count = 1;
            snprintf(gpus->cuda_note, sizeof(gpus->cuda_note),
                     "GPU %d is cut into MIG devices; a process sees one of them and no other GPU",
                     gpu->index);
            return;
        }
        if (gpu->mig != 1) {
            gpus->cuda[whole++] = gpus->cuda[i];
        }
    }
    gpus->cuda_count = whole; /* one that is to be cut, but is not yet, cannot be used */
}

/* ---- all of it ---------------------------------------------------------------------------- */

void weft__gpus_number(const char *visible, const char *order, weft_gpus_t *gpus)
{
    bool by_bus = order != NULL && strcmp(order, "PCI_BUS_ID") == 0;
    bool by_uuid = visible != NULL && strncmp(visible, "GPU-", 4) == 0;
    gpus->cuda_count = 0;
    gpus->cuda_note[0] = '\0';
    sort(gpus, by_bus);
    if (visible == NULL) {
        memcpy(gpus->cuda, gpus->order, (size_t)gpus->count * sizeof(int));
        gpus->cuda_count = gpus->count;
    } else {
        show_listed(visible, gpus);
    }
    apply_mig(gpus);
    for (int i = 0; i < gpus->count; i++) {
        gpus->gpus[i].cuda = -1;
    }
    for (int i = 0; i < gpus->cuda_count; i++) {
        gpus->gpus[gpus->cuda[i]].cuda = i;
    }
    if (gpus->cuda_note[0] != '\0') {
        return;
    }
    if (gpus->cuda_count == 0 && visible != NULL) {
        snprintf(gpus->cuda_note, sizeof(gpus->cuda_note), "CUDA_VISIBLE_DEVICES hides all GPUs");
    } else if (!by_bus && !by_uuid && !all_alike(gpus)) {
        snprintf(gpus->cuda_note, sizeof(gpus->cuda_note),
                 "the GPUs differ and CUDA's order of them is a guess; "
                 "CUDA_DEVICE_ORDER=PCI_BUS_ID makes it certain");
    }
}
