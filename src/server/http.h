/* The HTTP side: libmicrohttpd's threads, connections with their time limits, bodies with their
 * bounds. It never computes: requests wait, suspended, for jobs.h. Private to the server. */
#ifndef TAP_SERVER_HTTP_H
#define TAP_SERVER_HTTP_H

#include "service.h"

typedef struct tap_http tap_http;

/* Serves on a listening socket, which is the caller's to close after tap_http_quiesce. */
tap_status tap_http_start(tap_http **http, tap_service *service, int socket, tap_error *err);

/* Cuts connections that are past a time limit. Returns after how many milliseconds to look again;
 * -1: when woken. */
int tap_http_cut_late(tap_http *http);

/* Accepts no more connections. */
void tap_http_quiesce(tap_http *http);

/* Closes what is open and ends the threads. Only when no job is in flight. */
void tap_http_stop(tap_http *http);

#endif
