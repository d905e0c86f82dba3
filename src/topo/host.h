/* Which host this is. */
#ifndef WEFT_TOPO_HOST_H
#define WEFT_TOPO_HOST_H

#include <stdint.h>

#include <weft/status.h>

/* A hash of what must be equal for two processes to share memory through /proc: the boot id and the
 * pid name space. */
weft_status_t weft__host_id(uint64_t *id_p);

#endif
