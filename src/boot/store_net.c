#define _GNU_SOURCE 1 /* struct ucred */
#include "boot/store_net.h"

#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

#define SOCKET_FLAGS (SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC)

uint64_t weft__deadline(int timeout_ms)
{
    return timeout_ms < 0 ? WEFT_NEVER : weft__now_ns() + (uint64_t)timeout_ms * 1000000u;
}

int weft__deadline_left(uint64_t deadline)
{
    if (deadline == WEFT_NEVER) {
        return -1;
    }
    uint64_t now = weft__now_ns();
    if (deadline <= now) {
        return 0;
    }
    uint64_t left = (deadline - now + 999999u) / 1000000u;
    return left > INT_MAX ? INT_MAX : (int)left;
}

static weft_status_t resolve(const char *host, int port, bool passive, struct addrinfo **list_p)
{
    char service[16];
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC,
        .ai_socktype = SOCK_STREAM,
        .ai_flags = AI_NUMERICSERV | AI_NUMERICHOST | (passive ? AI_PASSIVE : 0),
    };
    if (port < 0 || port > 65535) {
        return weft__fail(WEFT_ERR_INVALID, "store: %d is not a port; ports are 0 to 65535", port);
    }
    snprintf(service, sizeof(service), "%d", port);
    /* a number first: that needs no name service, whose start costs milliseconds */
    int error = getaddrinfo(host, service, &hints, list_p);
    if (error == EAI_NONAME) {
        hints.ai_flags &= ~AI_NUMERICHOST;
        error = getaddrinfo(host, service, &hints, list_p);
    }
    if (error != 0) {
        return weft__fail(WEFT_ERR_SYSTEM, "store: cannot find host '%s': %s", host,
                          error == EAI_SYSTEM ? strerror(errno) : gai_strerror(error));
    }
    return WEFT_OK;
}

static int port_of(int fd)
{
    struct sockaddr_storage address;
    socklen_t bytes = sizeof(address);
    if (getsockname(fd, (struct sockaddr *)&address, &bytes) != 0) {
        return -1;
    }
    if (address.ss_family == AF_INET6) {
        return ntohs(((struct sockaddr_in6 *)&address)->sin6_port);
    }
    return ntohs(((struct sockaddr_in *)&address)->sin_port);
}

weft_status_t weft__net_listen_tcp(const char *host, int port, int *fd_p, int *port_p)
{
    struct addrinfo *list;
    int error = 0;
    int one = 1;
    WEFT_TRY(resolve(host, port, true, &list));
    for (struct addrinfo *a = list; a != NULL; a = a->ai_next) {
        int fd = socket(a->ai_family, SOCKET_FLAGS, 0);
        if (fd < 0) {
            error = errno;
            continue;
        }
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
        if (a->ai_family == AF_INET6) { /* "::" is every address, also those of IPv4 */
            setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &(int){0}, sizeof(int));
        }
        if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0 &&
            (*port_p = port_of(fd)) >= 0) {
            freeaddrinfo(list);
            *fd_p = fd;
            return WEFT_OK;
        }
        error = errno;
        close(fd);
    }
    freeaddrinfo(list);
    return weft__fail(WEFT_ERR_SYSTEM, "store: cannot listen on %s port %d: %s", host, port,
                      strerror(error));
}

static weft_status_t unix_address(const char *name, struct sockaddr_un *address, socklen_t *bytes_p)
{
    size_t length = strlen(name);
    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    if (length == 0 || length > sizeof(address->sun_path) - 1) {
        return weft__fail(WEFT_ERR_INVALID, "store: '%s' is not a socket name of 1 to %zu bytes",
                          name, sizeof(address->sun_path) - 1);
    }
    memcpy(address->sun_path + 1, name, length);
    *bytes_p = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
    return WEFT_OK;
}

weft_status_t weft__net_listen_unix(const char *name, int *fd_p)
{
    struct sockaddr_un address;
    socklen_t bytes;
    WEFT_TRY(unix_address(name, &address, &bytes));
    int fd = socket(AF_UNIX, SOCKET_FLAGS, 0);
    if (fd < 0) {
        return weft__fail(WEFT_ERR_SYSTEM, "store: cannot make a socket: %s", strerror(errno));
    }
    if (bind(fd, (struct sockaddr *)&address, bytes) != 0 || listen(fd, SOMAXCONN) != 0) {
        int error = errno;
        close(fd);
        return weft__fail(WEFT_ERR_SYSTEM, "store: cannot listen on socket '@%s': %s", name,
                          strerror(error));
    }
    *fd_p = fd;
    return WEFT_OK;
}

/* On loopback a connect to a port that nobody listens on may meet itself, when the kernel picks
 * that very port as its own. */
static bool met_itself(int fd)
{
    struct sockaddr_storage self = {0};
    struct sockaddr_storage peer = {0};
    socklen_t self_bytes = sizeof(self);
    socklen_t peer_bytes = sizeof(peer);
    if (getsockname(fd, (struct sockaddr *)&self, &self_bytes) != 0 ||
        getpeername(fd, (struct sockaddr *)&peer, &peer_bytes) != 0) {
        return false;
    }
    return self.ss_family != AF_UNIX && self_bytes == peer_bytes &&
           memcmp(&self, &peer, self_bytes) == 0;
}

/* One attempt. 0, or an errno. */
static int try_connect(const struct sockaddr *address, socklen_t bytes, uint64_t deadline,
                       int *fd_p)
{
    int error = 0;
    socklen_t error_bytes = sizeof(error);
    int fd = socket(address->sa_family, SOCKET_FLAGS, 0);
    if (fd < 0) {
        return errno;
    }
    if (connect(fd, address, bytes) != 0) {
        error = errno;
    }
    /* a connect that a signal interrupted goes on in the background, like one in progress */
    while (error == EINPROGRESS || error == EINTR) {
        struct pollfd poller = {.fd = fd, .events = POLLOUT};
        int ready = poll(&poller, 1, weft__deadline_left(deadline));
        if (ready > 0) {
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_bytes);
        } else {
            error = ready == 0 ? ETIMEDOUT : errno;
        }
    }
    if (error == 0 && met_itself(fd)) {
        error = ECONNREFUSED;
    }
    if (error != 0) {
        close(fd);
        return error;
    }
    *fd_p = fd;
    return 0;
}

static bool worth_another_try(int error)
{
    switch (error) {
    case ECONNREFUSED:
    case ECONNRESET:
    case ECONNABORTED:
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EAGAIN: /* unix: the listener's queue is full */
        return true;
    default:
        return false;
    }
}

static void pause_ms(int ms)
{
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    nanosleep(&time, NULL);
}

/* Try the addresses of `list` in turn until one answers. */
static weft_status_t connect_any(const struct addrinfo *list, const char *where, uint64_t deadline,
                                 int *fd_p)
{
    for (int wait_ms = 1;; wait_ms = wait_ms < 50 ? 2 * wait_ms : 50) {
        int error = 0;
        bool again = false;
        for (const struct addrinfo *a = list; a != NULL; a = a->ai_next) {
            error = try_connect(a->ai_addr, a->ai_addrlen, deadline, fd_p);
            if (error == 0) {
                return WEFT_OK;
            }
            again = again || worth_another_try(error);
        }
        if (!again) {
            return weft__fail(WEFT_ERR_SYSTEM, "store: cannot connect to %s: %s", where,
                              strerror(error));
        }
        int left = weft__deadline_left(deadline);
        if (left == 0) {
            return weft__fail(WEFT_ERR_TIMEOUT, "store: nobody answers at %s: %s", where,
                              strerror(error));
        }
        pause_ms(left > 0 && left < wait_ms ? left : wait_ms);
    }
}

weft_status_t weft__net_connect_tcp(const char *host, int port, uint64_t deadline, int *fd_p)
{
    struct addrinfo *list;
    char where[300];
    WEFT_TRY(resolve(host, port, false, &list));
    snprintf(where, sizeof(where), "%s port %d", host, port);
    weft_status_t status = connect_any(list, where, deadline, fd_p);
    freeaddrinfo(list);
    return status;
}

weft_status_t weft__net_connect_unix(const char *name, uint64_t deadline, int *fd_p)
{
    struct sockaddr_un address;
    socklen_t bytes;
    char where[128];
    WEFT_TRY(unix_address(name, &address, &bytes));
    struct addrinfo entry = {.ai_addr = (struct sockaddr *)&address, .ai_addrlen = bytes};
    snprintf(where, sizeof(where), "socket '@%s'", name);
    int fd;
    WEFT_TRY(connect_any(&entry, where, deadline, &fd));
    if (!weft__net_peer_is_us(fd)) {
        close(fd);
        return weft__fail(WEFT_ERR_REFUSED, "store: %s belongs to another user", where);
    }
    *fd_p = fd;
    return WEFT_OK;
}

void weft__net_tune(int fd)
{
    const int one = 1, idle_s = 15, interval_s = 5, probes = 3, unacked_ms = 120000;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacked_ms, sizeof(unacked_ms));
}

bool weft__net_peer_is_us(int fd)
{
    struct ucred peer;
    socklen_t bytes = sizeof(peer);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == geteuid();
}

pid_t weft__net_peer_pid(int fd)
{
    struct ucred peer = {0};
    socklen_t bytes = sizeof(peer);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 ? peer.pid : 0;
}
