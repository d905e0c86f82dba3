/* Machines with GPUs for tests, made of the fake driver (fake_nvml.c) and a folder in place of
 * /. */
#ifndef WEFT_TEST_TOPO_MADE_UP_H
#define WEFT_TEST_TOPO_MADE_UP_H

#include "topo/gpu.h"

#define MACHINE_H200                                                                               \
    "driver 580.95.05\ncuda 13000\n"                                                               \
    "gpu 0000:1b:00.0 name=NVIDIA_H200 uuid=GPU-1a2b3c4d-0000-0000-0000-000000000000 "             \
    "memory=150754820096 free=150000000000 cc=9.0 cores=16896 clock=1980 pcie=1x16 pcie_max=5x16 " \
    "numa=1 cpus=8-15\n"

/* Set up and tear down (cmocka's kind). The folder is empty then, the driver sees nothing. */
int machine_open(void **state);
int machine_close(void **state);

/* Add facts for the driver, printf style; fake_nvml.c says which there are. */
void machine_add(const char *format, ...) __attribute__((format(printf, 1, 2)));
void machine_reset(void); /* forget them */

/* Eight H100 on NVSwitch: GPUs 0-3 at node 0 and CPUs 0-15, 4-7 at node 1 and 16-31. */
void machine_add_dgx(void);
/* Four A40 in two sockets, 0-1 and 2-3; NVLinks between 0 and 1 and between 2 and 3 only. */
void machine_add_pcie(void);

/* A file of the machine, by its absolute path there. */
void machine_put(const char *path, const char *text);

/* Where to look for its GPUs; to be changed as needed. */
weft_gpu_source_t machine_source(void);
/* Path of a fake library: "fake_nvml.so" */
const char *machine_library(const char *name);

/* weft__gpus_read_from(machine_source()), which must succeed. */
void machine_read(weft_gpus_t *gpus_p);

#endif
