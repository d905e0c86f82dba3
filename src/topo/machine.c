#include "topo/machine.h"

#include <sched.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "topo/gpu.h"
#include "topo/topo.h"

static int cpus_of(pid_t process)
{
    cpu_set_t set;
    return sched_getaffinity(process, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 0;
}

static void read_processor(weft_machine_t *machine)
{
    int own = cpus_of(0), parents = cpus_of(getppid());
    weft_topo_t topo;
    machine->cpus = (int)sysconf(_SC_NPROCESSORS_ONLN);
    machine->cpus_job = own > parents ? own : parents;
    if (weft__topo_read(&topo) == WEFT_OK) {
        snprintf(machine->processor, sizeof(machine->processor), "%s", topo.model);
        machine->cpus_here = topo.thread_count;
        weft__topo_cleanup(&topo);
    }
}

static void read_gpus(weft_machine_t *machine)
{
    weft_gpus_t gpus;
    if (weft__gpus_read(&gpus) != WEFT_OK) {
        return;
    }
    machine->gpus = gpus.cuda_count;
    for (int i = 0; i < gpus.count; i++) {
        if (gpus.gpus[i].cuda == 0) {
            snprintf(machine->gpu, sizeof(machine->gpu), "%s", gpus.gpus[i].name);
        }
    }
    weft__gpus_cleanup(&gpus);
}

void weft__machine_read(bool with_gpus, weft_machine_t *machine_p)
{
    time_t now = time(NULL);
    struct tm utc;
    *machine_p = (weft_machine_t){0};
    gethostname(machine_p->host, sizeof(machine_p->host) - 1);
    strftime(machine_p->started, sizeof(machine_p->started), "%Y-%m-%dT%H:%M:%SZ",
             gmtime_r(&now, &utc));
    read_processor(machine_p);
    if (with_gpus) {
        read_gpus(machine_p);
    }
}

void weft__machine_write(const weft_machine_t *machine, weft_json_t *json)
{
    const struct {
        const char *key, *value;
    } texts[] = {{"started", machine->started},
                 {"host", machine->host},
                 {"processor", machine->processor},
                 {"gpu", machine->gpu}};
    const struct {
        const char *key;
        int value;
    } numbers[] = {
        {"cpus", machine->cpus}, {"cpus_of_rank_0", machine->cpus_here}, {"gpus", machine->gpus}};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        weft__json_string(json, texts[i].key, texts[i].value);
    }
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        weft__json_int(json, numbers[i].key, numbers[i].value);
    }
}
