/* Sockets of the store: non-blocking, closed on exec, TCP or abstract unix. */
#ifndef WEFT_BOOT_STORE_NET_H
#define WEFT_BOOT_STORE_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sys/types.h>

#include <weft/status.h>

/* An instant of weft__now_ns, or one of these. */
#define WEFT_NEVER UINT64_MAX

/* now + timeout_ms; WEFT_NEVER if timeout_ms is negative. */
uint64_t weft__deadline(int timeout_ms);
/* What is left until `deadline`, rounded up, for poll(2): -1 if it never comes. */
int weft__deadline_left(uint64_t deadline);

weft_status_t weft__net_listen_tcp(const char *host, int port, int *fd_p, int *port_p);

/* `name` without the leading zero byte; WEFT_ERR_INVALID if it is too long. */
weft_status_t weft__net_listen_unix(const char *name, int *fd_p);

/* Connect, again and again while nobody listens, until the deadline: WEFT_ERR_TIMEOUT. */
weft_status_t weft__net_connect_tcp(const char *host, int port, uint64_t deadline, int *fd_p);
/* Also WEFT_ERR_REFUSED if the listener belongs to another user: names of abstract sockets are
 * anybody's to take. */
weft_status_t weft__net_connect_unix(const char *name, uint64_t deadline, int *fd_p);

/* Small messages at once; notice a peer whose host is gone. No effect on unix sockets. */
void weft__net_tune(int fd);

/* Is the process at the other end of this unix socket ours, by its user id? */
bool weft__net_peer_is_us(int fd);
/* The process at the other end of a unix socket; 0 of others. */
pid_t weft__net_peer_pid(int fd);

#endif
