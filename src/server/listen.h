/* The listening socket. Private to the server. */
#ifndef TAP_SERVER_LISTEN_H
#define TAP_SERVER_LISTEN_H

#include "server.h"

/* Binds and listens on options->host and options->port, or, for -1, on TAP_SERVER_PORT or the next
 * free port after it. where: "http://127.0.0.1:20000", for people.
 * Errors  TAP_ERR_ARGUMENT (the host is no address of this machine), TAP_ERR_IO (taken, or not
 *         allowed). */
tap_status tap_listen(int *socket, char *where, size_t where_size,
                      const tap_server_options *options, tap_error *err);

/* The host is this machine for itself: nobody else can reach it. */
bool tap_listen_is_local(const char *host);

#endif
