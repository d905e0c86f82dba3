/* The profiling interface of OpenSHMEM: every shmem_X of <shmem.h> is also there as pshmem_X. A
 * tool defines shmem_X itself, notes what it wants to know, and calls pshmem_X. */
#ifndef PSHMEM_H
#define PSHMEM_H

#include <shmem.h>

#endif
