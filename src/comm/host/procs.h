/* Is that process still alive? One pidfd per peer process, shared by all communicators. */
#ifndef WEFT_COMM_HOST_PROCS_H
#define WEFT_COMM_HOST_PROCS_H

#include <stdbool.h>

/* A descriptor that becomes readable when process `pid` ends, also while it is a zombie; -1 for
 * this process itself or where the kernel has none (then only timeouts tell). One close per
 * open. */
int weft__proc_open(int pid);
void weft__proc_close(int pid);

/* Has the process of such a descriptor ended? */
bool weft__proc_ended(int pidfd);

/* Is process `pid` on its way out? Its descriptor stays silent until the driver has taken back what
 * the process had on a GPU, which takes seconds; CUDA fails in others before that. Reads files: ask
 * only when something has failed. Also true of a process whose first thread has ended. */
bool weft__proc_dying(int pid);

#endif
