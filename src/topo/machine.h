/* The machine in a few words, to be kept with every result. */
#ifndef WEFT_TOPO_MACHINE_H
#define WEFT_TOPO_MACHINE_H

#include <stdbool.h>

#include "base/json.h"

typedef struct weft_machine {
    char host[256];
    char started[32];    /* when it was read: 2026-01-31T12:00:00Z */
    char processor[96];  /* "" if unknown */
    int cpus, cpus_here; /* of the machine, of this process */
    int cpus_job;        /* of this process and its parent, which may have bound it to fewer */
    char gpu[96];        /* the first one's name; "" if there is none, or none was looked for */
    int gpus;
} weft_machine_t;

/* Read it, GPUs only if asked for. What cannot be found out stays empty: no result is worth less
 * for it. To be called while there is no other thread (topo/topo.h). */
void weft__machine_read(bool with_gpus, weft_machine_t *machine_p);

/* Write it as keys and values of the object that is open. */
void weft__machine_write(const weft_machine_t *machine, weft_json_t *json);

#endif
