/* SPDX-License-Identifier: Apache-2.0 */
/* The command line that both servers of bench/http_beside take. Limits are the same in both. */
#ifndef HARPE_BENCH_HTTP_SERVERS_OPTIONS_H
#define HARPE_BENCH_HTTP_SERVERS_OPTIONS_H

#include <stddef.h>

enum {
    LARGE_BYTES = 32 << 20,   /* the answer to GET /large */
    RESERVED_CONNECTIONS = 64 /* more than `connections`, for requests that are not held */
};

typedef struct bench_options {
    int connections;          /* that hold a request at once */
    int request_s, idle_s;    /* deadlines: of a request, between two requests */
    size_t body_bytes;        /* the largest body */
    int pool_bytes;           /* of a connection; libmicrohttpd only */
    int turbo, internal;      /* 1: MHD_USE_TURBO, an internal thread; libmicrohttpd only */
    int watch;                /* 1: the handler watches the sockets of held requests itself */
    char *cert_pem, *key_pem; /* texts; NULL: no TLS */
} bench_options;

/* Reads words like "connections=1000". Prints one line and ends the program if it does not know a
 * word. */
bench_options bench_options_read(int argc, char **argv);
/* Prints "listening on PORT", for the program that started the server. */
void bench_say_port(int port);

#endif
