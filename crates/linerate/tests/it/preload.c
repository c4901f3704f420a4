/* A library for LD_PRELOAD that takes over TCP sockets over IPv4, for tests of `--preload`.
 *
 * With FOLDER it carries them over AF_UNIX sockets named by their port in that folder: a bypass that no counter of an
 * interface or an RDMA device shows. Without, it passes every call on to the kernel; with HIDES it also denies that
 * its sockets are the kernel's TCP. With CRASHES it aborts once it is loaded. With AHEAD_S its time of day is that many
 * seconds ahead. */

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#ifdef CRASHES
__attribute__((constructor)) static void crash(void) { abort(); }
#endif

#ifdef AHEAD_S
int clock_gettime(clockid_t clock, struct timespec *time) {
    int failed = (int)syscall(SYS_clock_gettime, clock, time);
    if (!failed && clock == CLOCK_REALTIME)
        time->tv_sec += AHEAD_S;
    return failed;
}
#endif

#ifdef HIDES
int getsockopt(int fd, int level, int name, void *value, socklen_t *length) {
    if (level == IPPROTO_TCP && name == TCP_INFO) {
        errno = ENOPROTOOPT;
        return -1;
    }
    return (int)syscall(SYS_getsockopt, fd, level, name, value, length);
}
#endif

#ifndef FOLDER
int socket(int domain, int type, int protocol) {
    return (int)syscall(SYS_socket, domain, type, protocol);
}
#else
#define FILES 4096
static unsigned short ports[FILES];
static char taken[FILES];

static int is_ours(int fd) { return fd >= 0 && fd < FILES && taken[fd]; }

static struct sockaddr_un place(unsigned port) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof at.sun_path, "%s/%u", FOLDER, port);
    return at;
}

int socket(int domain, int type, int protocol) {
    int ours = domain == AF_INET && type == SOCK_STREAM;
    int fd = (int)syscall(SYS_socket, ours ? AF_UNIX : domain, type, ours ? 0 : protocol);
    if (fd >= 0 && fd < FILES)
        taken[fd] = ours;
    return fd;
}

int bind(int fd, const struct sockaddr *address, socklen_t length) {
    if (!is_ours(fd))
        return (int)syscall(SYS_bind, fd, address, length);
    unsigned wanted = ntohs(((const struct sockaddr_in *)address)->sin_port);
    for (unsigned port = wanted ? wanted : 1024; port < 65536; port++) {
        struct sockaddr_un at = place(port);
        if (syscall(SYS_bind, fd, &at, sizeof at) == 0) {
            ports[fd] = (unsigned short)port;
            return 0;
        }
        if (wanted || errno != EADDRINUSE)
            return -1;
    }
    return -1;
}

int getsockname(int fd, struct sockaddr *address, socklen_t *length) {
    if (!is_ours(fd))
        return (int)syscall(SYS_getsockname, fd, address, length);
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(ports[fd])};
    memcpy(address, &own, *length < sizeof own ? *length : sizeof own);
    *length = sizeof own;
    return 0;
}

int connect(int fd, const struct sockaddr *address, socklen_t length) {
    if (!is_ours(fd))
        return (int)syscall(SYS_connect, fd, address, length);
    struct sockaddr_un at = place(ntohs(((const struct sockaddr_in *)address)->sin_port));
    return (int)syscall(SYS_connect, fd, &at, sizeof at);
}
#endif
