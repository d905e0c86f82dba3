/* weft topo: what this machine is. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/output.h"
#include "base/settings.h"
#include "boot/launch.h"
#include "cli/commands.h"
#include "topo/gpu.h"
#include "topo/gpu_show.h"
#include "topo/result.h"
#include "topo/topo.h"

typedef struct machine {
    weft_topo_t topo;
    weft_gpus_t gpus;
    weft_bind_t bind; /* of as many ranks as were asked for */
    bool on_gpus;     /* ranks use them */
    weft_machine_t about;
} machine_t;

/* "48 KiB", "1.25 MiB", "64 GiB" */
static void print_bytes(uint64_t bytes, char text[32])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int unit = 0;
    while (value >= 1024 && unit < 4) {
        value /= 1024;
        unit++;
    }
    snprintf(text, 32, "%.*f %s", value < 10 && value != (double)(int)value ? 2 : 0, value,
             units[unit]);
}

static const char *cache_kind(char kind)
{
    return kind == 'd' ? "d" : kind == 'i' ? "i" : "";
}

static void print_cpus(const weft_topo_t *topo)
{
    char text[32];
    if (topo->model[0] != '\0') {
        printf("%s\n", topo->model);
    }
    printf(
        "packages %d, NUMA nodes %d, cores %d, hardware threads %d (that this process may use)\n",
        topo->package_count, topo->numa_count, topo->core_count, topo->thread_count);
    for (int i = 0; i < topo->cache_count; i++) {
        const weft_topo_cache_t *cache = &topo->caches[i];
        print_bytes(cache->bytes, text);
        printf("%sL%d%s %s per %d core%s", i == 0 ? "caches " : ", ", cache->level,
               cache_kind(cache->kind), text, cache->cores, cache->cores == 1 ? "" : "s");
    }
    printf("%s\n%5s %12s  %s\n", topo->cache_count > 0 ? "\n" : "", "NUMA", "memory", "CPUs");
    for (int i = 0; i < topo->numa_count; i++) {
        print_bytes(topo->numas[i].memory, text);
        printf("%5d %12s  %s\n", topo->numas[i].node, text, topo->numas[i].cpus);
    }
    printf("\n%5s %8s %5s  %s\n", "core", "package", "NUMA", "CPUs");
    for (int i = 0; i < topo->core_count; i++) {
        printf("%5d %8d %5d  %s\n", i, topo->cores[i].package, topo->cores[i].numa,
               topo->cores[i].cpus);
    }
}

/* CUDA's number of the GPU that `rank` uses; -1: none. */
static int gpu_of(const machine_t *machine, int rank)
{
    int gpu = machine->on_gpus ? weft__gpu_of_rank(&machine->gpus, rank) : -1;
    return gpu < 0 ? -1 : machine->gpus.gpus[gpu].cuda;
}

static void print_ranks(const machine_t *machine)
{
    char cpus[WEFT_TOPO_CPUS];
    printf("\n%5s%s  %s\n", "rank", machine->on_gpus ? "  CUDA" : "", "CPUs");
    for (int i = 0; i < machine->bind.ranks; i++) {
        weft__bind_print(&machine->bind, i, cpus);
        if (machine->on_gpus) {
            printf("%5d %5d  %s\n", i, gpu_of(machine, i), cpus);
        } else {
            printf("%5d  %s\n", i, cpus);
        }
    }
}

static void put_machine(weft_json_t *json, const weft_topo_t *topo)
{
    weft__json_string(json, "model", topo->model);
    weft__json_int(json, "packages", topo->package_count);
    weft__json_int(json, "hardware_threads", topo->thread_count);
    weft__json_array(json, "caches");
    for (int i = 0; i < topo->cache_count; i++) {
        const weft_topo_cache_t *cache = &topo->caches[i];
        const char kind[2] = {cache->kind, '\0'};
        weft__json_object(json, NULL);
        weft__json_int(json, "level", cache->level);
        weft__json_string(json, "kind", kind);
        weft__json_int(json, "bytes", (int64_t)cache->bytes);
        weft__json_int(json, "count", cache->count);
        weft__json_int(json, "cores", cache->cores);
        weft__json_end(json);
    }
    weft__json_end(json);
    weft__json_array(json, "numa_nodes");
    for (int i = 0; i < topo->numa_count; i++) {
        weft__json_object(json, NULL);
        weft__json_int(json, "node", topo->numas[i].node);
        weft__json_int(json, "bytes", (int64_t)topo->numas[i].memory);
        weft__json_string(json, "cpus", topo->numas[i].cpus);
        weft__json_end(json);
    }
    weft__json_end(json);
    weft__json_array(json, "cores");
    for (int i = 0; i < topo->core_count; i++) {
        weft__json_object(json, NULL);
        weft__json_int(json, "package", topo->cores[i].package);
        weft__json_int(json, "numa", topo->cores[i].numa);
        weft__json_string(json, "cpus", topo->cores[i].cpus);
        weft__json_end(json);
    }
    weft__json_end(json);
}

static void put_ranks(weft_json_t *json, const machine_t *machine)
{
    weft__json_array(json, "ranks");
    for (int i = 0; i < machine->bind.ranks; i++) {
        char cpus[WEFT_TOPO_CPUS];
        weft__bind_print(&machine->bind, i, cpus);
        weft__json_object(json, NULL);
        weft__json_string(json, "cpus", cpus);
        if (machine->on_gpus) {
            weft__json_int(json, "cuda", gpu_of(machine, i));
        }
        weft__json_end(json);
    }
    weft__json_end(json);
}

static int write_json(const machine_t *machine, const char *path)
{
    weft_json_t json;
    weft_output_t *file;
    fflush(stdout);
    if (weft__output_open(path, &file) != WEFT_OK) {
        fprintf(stderr, "weft topo: %s\n", weft_last_error());
        return 1;
    }
    weft__json_start(&json, weft__output_stream(file));
    weft__json_object(&json, NULL);
    const weft_result_head_t head = {.kind = "topo", .machine = &machine->about};
    weft__result_head(&json, &head);
    put_machine(&json, &machine->topo);
    weft__gpus_json(&machine->gpus, "gpus", &json);
    if (machine->bind.ranks > 0) {
        put_ranks(&json, machine);
    }
    weft__json_end(&json);
    errno = 0;
    if (weft__output_end(file, weft__json_finish(&json)) != WEFT_OK) {
        if (errno == EPIPE) {
            return 128 + SIGPIPE; /* as main does for stdout */
        }
        fprintf(stderr, "weft topo: %s\n", weft_last_error());
        return 1;
    }
    return 0;
}

static void cleanup_machine(machine_t *machine)
{
    weft__topo_cleanup(&machine->topo);
    weft__gpus_cleanup(&machine->gpus);
    weft__bind_cleanup(&machine->bind);
}

static weft_status_t read_machine(int ranks, machine_t *machine)
{
    weft__machine_read(true, &machine->about);
    weft_status_t status = weft__topo_read(&machine->topo);
    if (status == WEFT_OK) {
        status = weft__gpus_read(&machine->gpus);
    }
    machine->on_gpus = machine->gpus.cuda_count > 0 && strcmp(weft__settings()->device, "cpu") != 0;
    if (status == WEFT_OK && ranks > 0) {
        status = machine->on_gpus ? weft__gpus_bind(&machine->gpus, ranks, &machine->bind)
                                  : weft__bind_plan(ranks, NULL, &machine->bind);
    }
    return status;
}

int weft__cmd_topo(int argc, char **argv)
{
    const char *path = NULL;
    int ranks = 0;
    signal(SIGXFSZ, SIG_IGN); /* told like a full disk */
    const weft_arg_t options[] = {
        {"ranks", 'n', WEFT_ARG_INT, "N", &ranks, "show which CPUs weft run -n N gives each rank"},
        {"json", 0, WEFT_ARG_FILE, "FILE", &path,
         "write it to FILE as JSON as well; -: to stdout, instead of the text"},
    };
    static const weft_arg_range_t ranges[] = {{"ranks", 1, WEFT_MAX_RANKS}};
    const weft_args_t args = {
        .command = "weft topo",
        .synopsis = "[OPTION]...",
        .text = "Show the packages, NUMA nodes, cores and caches that this process may use, and "
                "the GPUs with their links.",
        .options = options,
        .count = sizeof(options) / sizeof(options[0]),
        .ranges = ranges,
        .range_count = sizeof(ranges) / sizeof(ranges[0]),
    };
    weft_args_found_t found;
    int ends = weft__command_args(&args, argc, argv, &found);
    if (ends >= 0) {
        return ends;
    }
    if (weft__args_none(&found) != WEFT_OK) {
        fprintf(stderr, "%s\n", weft_last_error());
        return WEFT_EXIT_USAGE;
    }
    machine_t machine = {0};
    int exit_status = 1;
    if (read_machine(ranks, &machine) != WEFT_OK) {
        fprintf(stderr, "weft topo: %s\n", weft_last_error());
    } else {
        if (path == NULL || strcmp(path, "-") != 0) {
            print_cpus(&machine.topo);
            printf("\n");
            weft__gpus_print(&machine.gpus, stdout);
            if (ranks > 0) {
                print_ranks(&machine);
            }
        }
        exit_status = path == NULL ? 0 : write_json(&machine, path);
    }
    cleanup_machine(&machine);
    return exit_status;
}
