#include "listen.h"

#include "core/core.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG = 1024 };

bool tap_listen_is_local(const char *host)
{
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "localhost") == 0 ||
           strcmp(host, "::1") == 0;
}

static void set_port(struct sockaddr *address, uint16_t port)
{
    if (address->sa_family == AF_INET6)
        ((struct sockaddr_in6 *)(void *)address)->sin6_port = htons(port);
    else
        ((struct sockaddr_in *)(void *)address)->sin_port = htons(port);
}

/* Returns a listening socket, or -1 and errno. */
static int try_port(const struct addrinfo *found, uint16_t port)
{
    struct sockaddr_storage address;
    int one = 1, zero = 0;
    memcpy(&address, found->ai_addr, found->ai_addrlen);
    set_port((struct sockaddr *)&address, port);
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    /* A restart need not wait for the kernel to forget old connections. */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (found->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    if (bind(fd, (struct sockaddr *)&address, found->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

/* Which port a socket got. */
static unsigned port_of(int fd)
{
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &size) != 0)
        return 0;
    return address.ss_family == AF_INET6 ? ntohs(((struct sockaddr_in6 *)&address)->sin6_port)
                                         : ntohs(((struct sockaddr_in *)&address)->sin_port);
}

static tap_status fail(const tap_server_options *options, int error, tap_error *err)
{
    if (error == EADDRINUSE && options->port > 0)
        return tap_fail(err, TAP_ERR_IO,
                        "port %d of %s: another program listens there; choose another with --port, "
                        "or leave --port out to get the next free one",
                        options->port, options->host);
    if (error == EADDRINUSE)
        return tap_fail(err, TAP_ERR_IO, "%s: no free port from %d to %d; choose one with --port",
                        options->host, TAP_SERVER_PORT, TAP_SERVER_PORT + TAP_SERVER_PORT_WALK - 1);
    if (error == EADDRNOTAVAIL)
        return tap_fail(err, TAP_ERR_ARGUMENT, "--host %s: no address of this machine",
                        options->host);
    return tap_fail(err, TAP_ERR_IO, "listening on %s, port %d: %s", options->host, options->port,
                    strerror(error));
}

tap_status tap_listen(int *out, char *where, size_t where_size, const tap_server_options *options,
                      tap_error *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
    int failure = getaddrinfo(options->host, NULL, &hints, &found);
    if (failure != 0)
        return tap_fail(err, TAP_ERR_ARGUMENT, "--host %s: %s", options->host,
                        gai_strerror(failure));
    int first = options->port < 0 ? TAP_SERVER_PORT : options->port;
    int n_ports = options->port < 0 ? TAP_SERVER_PORT_WALK : 1;
    int fd = -1, error = 0;
    for (int i = 0; i < n_ports && fd < 0; i++) {
        fd = try_port(found, (uint16_t)(first + i));
        error = errno;
        if (fd < 0 && error != EADDRINUSE)
            break;
    }
    freeaddrinfo(found);
    if (fd < 0)
        return fail(options, error, err);
    bool colons = strchr(options->host, ':') != NULL;
    snprintf(where, where_size, "http://%s%s%s:%u", colons ? "[" : "", options->host,
             colons ? "]" : "", port_of(fd));
    *out = fd;
    return TAP_OK;
}
