/* The file of results that --json asks for, the same for every command that measures:
 *
 *     {"kind": "links", "format": 1, "version": ..., "commit": ..., "command": [...],
 *      "machine": {...}, "ranks": 8, ..., "settings": {...},
 *      what the command found}
 *
 * so that a result tells how to get it again, and `weft report` can tell what it is. */
#ifndef WEFT_TOPO_RESULT_H
#define WEFT_TOPO_RESULT_H

#include <stdbool.h>

#include "base/json.h"
#include "base/output.h"
#include "topo/machine.h"

#define WEFT_RESULT_FORMAT 1 /* a reader refuses others, with a sentence */

typedef struct weft_result_head {
    const char *kind;     /* "bench", "links", "pairs", "scaling", "train", "doctor" */
    const char *path;     /* of the file, "-" for stdout; NULL: none is asked for */
    char *const *command; /* as it was typed, ended by NULL; may be NULL */
    const weft_machine_t *machine;
    int ranks;               /* 0: no ranks were at work, and nothing is said of them */
    bool threads;            /* ranks are threads of one process */
    const char *device;      /* "cpu", "cuda" */
    const char *device_name; /* "NVIDIA H200", "virtual GPU" */
    const char *kernels;     /* instructions of the CPU that arithmetic uses; NULL: left out */
} weft_result_head_t;

typedef struct weft_result {
    weft_output_t *file; /* NULL: none was asked for */
    weft_json_t json;    /* inside the outer object */
} weft_result_t;

/* The head alone, into the object that is open. */
void weft__result_head(weft_json_t *json, const weft_result_head_t *head);

/* Create the file, if there is to be one, and write the head; the object stays open. With "-" what
 * others print to stdout goes to stderr from now on. */
weft_status_t weft__result_open(weft_result_t *result, const weft_result_head_t *head);

/* End the object and let the file appear. If `status` is a failure, what stood there stays.
 * Returns the first failure. */
weft_status_t weft__result_close(weft_result_t *result, weft_status_t status);

#endif
