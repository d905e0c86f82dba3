#include "topo/gpu_show.h"

#include <inttypes.h>
#include <string.h>

#define CELL 6 /* columns of a matrix's cell */
#define NUMBER_ROOM 24

static const char *mode_text(weft_gpu_mode_t mode)
{
    switch (mode) {
    case WEFT_GPU_SHARED:
        return "shared";
    case WEFT_GPU_PROHIBITED:
        return "prohibited";
    case WEFT_GPU_EXCLUSIVE:
        return "exclusive";
    case WEFT_GPU_MODE_UNKNOWN:
        break;
    }
    return NULL;
}

static void print_near(const weft_gpu_t *gpu, char text[WEFT_TOPO_CPUS])
{
    unsigned long masks[WEFT_GPU_WORDS];
    const weft_bind_t near = {.ranks = 1, .words = WEFT_GPU_WORDS, .masks = masks};
    memcpy(masks, gpu->near, sizeof(masks));
    weft__bind_print(&near, 0, text);
}

/* ---- tables ------------------------------------------------------------------------------- */

/* "?" for what is unknown. Returns `room`. */
static const char *number(int64_t value, char room[NUMBER_ROOM])
{
    snprintf(room, NUMBER_ROOM, value < 0 ? "?" : "%" PRId64, value);
    return room;
}

static const char *gibibytes(int64_t bytes, char room[NUMBER_ROOM])
{
    snprintf(room, NUMBER_ROOM, bytes < 0 ? "?" : "%.1f", (double)bytes / (1 << 30));
    return room;
}

/* 40 is "4.0" */
static const char *tenths(int value, char room[NUMBER_ROOM])
{
    snprintf(room, NUMBER_ROOM, value < 0 ? "?" : "%d.%d", value / 10, value % 10);
    return room;
}

/* 12080 is "12.8" */
static int cuda_tenths(int version)
{
    return version < 0 ? -1 : version / 1000 * 10 + version % 1000 / 10;
}

static const char *known(const char *text)
{
    return text == NULL || *text == '\0' ? "?" : text;
}

static void print_head(const weft_gpus_t *gpus, FILE *out)
{
    char version[NUMBER_ROOM];
    fprintf(out, "GPUs %d, driver %s, CUDA %s, MPS %s\n", gpus->count, known(gpus->driver),
            tenths(cuda_tenths(gpus->cuda_version), version),
            gpus->mps < 0    ? "unknown"
            : gpus->mps == 0 ? "off"
                             : "on");
    if (gpus->trouble[0] != '\0') {
        fprintf(out, "%s\n", gpus->trouble);
    }
    if (gpus->cuda_note[0] != '\0') {
        fprintf(out, "%s\n", gpus->cuda_note);
    }
}

static void print_gpu(const weft_gpu_t *gpu, int name_width, FILE *out)
{
    char a[NUMBER_ROOM], b[NUMBER_ROOM], text[2 * NUMBER_ROOM + 16], cpus[WEFT_TOPO_CPUS];
    fprintf(out, "%5d %5s  %-*s", gpu->index, gpu->cuda < 0 ? "-" : number(gpu->cuda, a),
            name_width, known(gpu->name));
    fprintf(out, " %7s %7s", gibibytes(gpu->memory, a), gibibytes(gpu->memory_free, b));
    snprintf(text, sizeof(text), "%s.%s", number(gpu->major, a), number(gpu->minor, b));
    fprintf(out, " %5s  %-13s", gpu->major < 0 ? "?" : text, known(gpu->bus_id));
    snprintf(text, sizeof(text), "%sx%s", number(gpu->pcie_generation, a),
             number(gpu->pcie_width, b));
    fprintf(out, " %5s", text);
    snprintf(text, sizeof(text), "%sx%s", number(gpu->pcie_generation_max, a),
             number(gpu->pcie_width_max, b));
    fprintf(out, " %5s", text);
    snprintf(text, sizeof(text), gpu->links > 0 ? "%s v%s" : "%s", number(gpu->links, a),
             tenths(gpu->link_version, b));
    fprintf(out, " %8s %5s", text, number(gpu->numa, a));
    snprintf(text, sizeof(text), gpu->mig == 1 ? "%s, %d MIG" : "%s", known(mode_text(gpu->mode)),
             gpu->parts);
    print_near(gpu, cpus);
    fprintf(out, "  %-10s %s\n", text, known(cpus));
}

static void print_list(const weft_gpus_t *gpus, FILE *out)
{
    int width = (int)strlen("name");
    for (int i = 0; i < gpus->count; i++) {
        int length = (int)strlen(gpus->gpus[i].name);
        width = length > width ? length : width;
    }
    fprintf(out, "\n%5s %5s  %-*s %7s %7s %5s  %-13s %5s %5s %8s %5s  %-10s %s\n", "GPU", "CUDA",
            width, "name", "GiB", "free", "arch", "bus", "PCIe", "most", "NVLink", "NUMA", "mode",
            "CPUs");
    for (int i = 0; i < gpus->count; i++) {
        print_gpu(&gpus->gpus[i], width, out);
    }
}

static void connection_cell(const weft_gpu_pair_t *pair, char cell[CELL + 1])
{
    if (pair->links > 0) {
        snprintf(cell, CELL + 1, "NV%d", pair->links > 999 ? 999 : pair->links);
    } else {
        snprintf(cell, CELL + 1, "%s", weft__gpu_path_letters(pair->path));
    }
}

/* Of the paths that occur. */
static void print_legend(const weft_gpus_t *gpus, FILE *out)
{
    bool occurs[WEFT_PATH_SYSTEM + 1] = {false};
    const char *before = "";
    for (int i = 0; i < gpus->count * gpus->count; i++) {
        const weft_gpu_pair_t *pair = &gpus->pairs[i];
        if (i / gpus->count != i % gpus->count && pair->links <= 0 && pair->path >= 0) {
            occurs[pair->path] = true;
        }
    }
    for (int path = 0; path <= WEFT_PATH_SYSTEM; path++) {
        if (occurs[path]) {
            fprintf(out, "%s%s: %s", before, weft__gpu_path_letters((weft_gpu_path_t)path),
                    weft__gpu_path_text((weft_gpu_path_t)path));
            before = ", ";
        }
    }
    fprintf(out, "%s", *before != '\0' ? "\n" : "");
}

/* A letter for each kind of access; '-' for none, '?' for unknown. */
static void access_cell(const weft_gpu_pair_t *pair, char cell[CELL + 1])
{
    static const char letters[] = "rwna";
    for (int i = 0; i < WEFT_ACCESS_COUNT; i++) {
        cell[i] = pair->access[i] < 0 ? '?' : pair->access[i] == 0 ? '-' : letters[i];
    }
    cell[WEFT_ACCESS_COUNT] = '\0';
}

static void print_matrix(const weft_gpus_t *gpus,
                         void (*fill)(const weft_gpu_pair_t *pair, char cell[CELL + 1]), FILE *out)
{
    char cell[CELL + 1], name[NUMBER_ROOM];
    fprintf(out, "  %-*s", CELL, "");
    for (int i = 0; i < gpus->count; i++) {
        snprintf(name, sizeof(name), "GPU%d", gpus->gpus[i].index);
        fprintf(out, " %*s", CELL, name);
    }
    fprintf(out, "\n");
    for (int from = 0; from < gpus->count; from++) {
        snprintf(name, sizeof(name), "GPU%d", gpus->gpus[from].index);
        fprintf(out, "  %-*s", CELL, name);
        for (int to = 0; to < gpus->count; to++) {
            fill(weft__gpu_pair(gpus, from, to), cell);
            fprintf(out, " %*s", CELL, from == to ? "X" : cell);
        }
        fprintf(out, "\n");
    }
}

/* What the driver says of the pairs that may not reach each other, once. */
static void print_refusal(const weft_gpus_t *gpus, FILE *out)
{
    for (int i = 0; i < gpus->count * gpus->count; i++) {
        if (gpus->pairs[i].refusal != NULL) {
            fprintf(out, "no peer access from GPU %d to GPU %d: %s\n",
                    gpus->gpus[i / gpus->count].index, gpus->gpus[i % gpus->count].index,
                    gpus->pairs[i].refusal);
            return;
        }
    }
}

void weft__gpus_print(const weft_gpus_t *gpus, FILE *out)
{
    if (gpus->count == 0) {
        fprintf(out, "no GPUs: %s\n", gpus->reason);
        return;
    }
    print_head(gpus, out);
    print_list(gpus, out);
    if (gpus->count == 1) {
        return;
    }
    fprintf(out, "\nconnections (NVn: n NVLinks; without, the nearest thing in common)\n");
    print_matrix(gpus, connection_cell, out);
    print_legend(gpus, out);
    fprintf(out, "\npeer access: r read, w write, n by NVLink, a atomics\n");
    print_matrix(gpus, access_cell, out);
    print_refusal(gpus, out);
}

/* ---- JSON --------------------------------------------------------------------------------- */

static void put_number(weft_json_t *json, const char *key, int64_t value)
{
    if (value < 0) {
        weft__json_string(json, key, NULL);
    } else {
        weft__json_int(json, key, value);
    }
}

static void put_text(weft_json_t *json, const char *key, const char *text)
{
    weft__json_string(json, key, text != NULL && *text != '\0' ? text : NULL);
}

static void put_truth(weft_json_t *json, const char *key, int value)
{
    if (value < 0) {
        weft__json_string(json, key, NULL);
    } else {
        weft__json_bool(json, key, value != 0);
    }
}

static void put_version(weft_json_t *json, const char *key, int value)
{
    char room[NUMBER_ROOM];
    put_text(json, key, value < 0 ? NULL : tenths(value, room));
}

static void put_health(weft_json_t *json, const weft_gpu_health_t *health)
{
    weft__json_object(json, "health");
    put_number(json, "busy_percent", health->busy);
    put_number(json, "throttle_reasons", health->throttle);
    put_truth(json, "ecc", health->ecc);
    put_number(json, "ecc_uncorrected", health->ecc_uncorrected);
    put_truth(json, "retire_pending", health->retire_pending);
    put_truth(json, "rows_pending", health->rows_pending);
    put_truth(json, "rows_failed", health->rows_failed);
    put_truth(json, "persistence", health->persistence);
    put_number(json, "pcie_generation_own", health->pcie_generation_own);
    weft__json_end(json);
}

static void put_gpu(weft_json_t *json, const weft_gpu_t *gpu)
{
    char text[WEFT_TOPO_CPUS];
    weft__json_object(json, NULL);
    put_number(json, "index", gpu->index);
    put_number(json, "cuda", gpu->cuda);
    put_text(json, "name", gpu->name);
    put_text(json, "uuid", gpu->uuid);
    put_text(json, "bus_id", gpu->bus_id);
    put_number(json, "memory_bytes", gpu->memory);
    put_number(json, "memory_free_bytes", gpu->memory_free);
    put_version(json, "compute_capability", gpu->major < 0 ? -1 : 10 * gpu->major + gpu->minor);
    put_number(json, "cores", gpu->cores);
    put_number(json, "clock_mhz", gpu->clock_mhz);
    put_number(json, "pcie_generation", gpu->pcie_generation);
    put_number(json, "pcie_width", gpu->pcie_width);
    put_number(json, "pcie_generation_max", gpu->pcie_generation_max);
    put_number(json, "pcie_width_max", gpu->pcie_width_max);
    put_number(json, "nvlinks", gpu->links);
    put_number(json, "nvlinks_to_switches", gpu->switch_links);
    put_version(json, "nvlink_version", gpu->link_version);
    put_number(json, "numa", gpu->numa);
    print_near(gpu, text);
    put_text(json, "cpus", text);
    put_text(json, "compute_mode", mode_text(gpu->mode));
    put_truth(json, "mig", gpu->mig);
    weft__json_array(json, "mig_uuids");
    for (int i = 0; i < gpu->parts; i++) {
        weft__json_string(json, NULL, gpu->part_uuids[i]);
    }
    weft__json_end(json);
    if (gpu->health.asked) {
        put_health(json, &gpu->health);
    }
    weft__json_end(json);
}

static void put_pair(weft_json_t *json, const weft_gpus_t *gpus, int from, int to)
{
    static const char *const names[WEFT_ACCESS_COUNT] = {"read", "write", "nvlink", "atomics"};
    const weft_gpu_pair_t *pair = weft__gpu_pair(gpus, from, to);
    weft__json_object(json, NULL);
    put_number(json, "from", gpus->gpus[from].index);
    put_number(json, "to", gpus->gpus[to].index);
    put_number(json, "nvlinks", pair->links);
    put_version(json, "nvlink_version", pair->link_version);
    put_truth(json, "switched", pair->switched);
    put_text(json, "pcie_path", pair->path < 0 ? NULL : weft__gpu_path_letters(pair->path));
    weft__json_object(json, "access");
    for (int i = 0; i < WEFT_ACCESS_COUNT; i++) {
        put_truth(json, names[i], pair->access[i]);
    }
    weft__json_end(json);
    put_text(json, "refusal", pair->refusal);
    weft__json_end(json);
}

void weft__gpus_json(const weft_gpus_t *gpus, const char *key, weft_json_t *json)
{
    weft__json_object(json, key);
    put_text(json, "none_because", gpus->reason);
    put_text(json, "driver", gpus->driver);
    put_version(json, "cuda_version", cuda_tenths(gpus->cuda_version));
    put_truth(json, "mps", gpus->mps);
    put_text(json, "trouble", gpus->trouble);
    put_text(json, "cuda_note", gpus->cuda_note);
    weft__json_array(json, "devices");
    for (int i = 0; i < gpus->count; i++) {
        put_gpu(json, &gpus->gpus[i]);
    }
    weft__json_end(json);
    weft__json_array(json, "pairs");
    for (int i = 0; i < gpus->count * gpus->count; i++) {
        if (i / gpus->count != i % gpus->count) {
            put_pair(json, gpus, i / gpus->count, i % gpus->count);
        }
    }
    weft__json_end(json);
    weft__json_end(json);
}
