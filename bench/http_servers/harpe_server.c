/* SPDX-License-Identifier: Apache-2.0 */
/* The handler of bench/http_beside on Harpe's own HTTP server:
 *   /hold     held until /release       /echo, /length  the body, its length
 *   /release  answers all that is held  /large          32 MiB
 *   /counts   "held H gone G"           anything else   "hello" */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/http.h"
#include "options.h"

typedef struct held {
    struct held *previous, *next;
    harpe_http_request *request;
} held;

typedef struct server {
    harpe_loop *loop;
    harpe_http *http;
    held list; /* a ring */
    int count, gone;
} server;

static void answer_text(harpe_http_request *request, const char *text) {
    char copy[64];
    size_t length = (size_t)snprintf(copy, sizeof copy, "%s", text);
    harpe_http_answer(request, 200, "text/plain", copy, length, false, NULL);
}

static void hold(server *s, harpe_http_request *request) {
    held *h = malloc(sizeof *h);
    *h = (held){s->list.previous, &s->list, request};
    h->previous->next = h->next->previous = h;
    harpe_http_set_data(request, h);
    s->count++;
}

static void forget(server *s, held *h) {
    h->previous->next = h->next;
    h->next->previous = h->previous;
    harpe_http_set_data(h->request, NULL);
    free(h);
    s->count--;
}

static void release(server *s) {
    for (held *h = s->list.next, *next; h != &s->list; h = next) {
        harpe_http_request *request = h->request;
        next = h->next;
        forget(s, h);
        answer_text(request, "released");
    }
}

static void large(harpe_http_request *request) {
    char *body = malloc(LARGE_BYTES);
    memset(body, 'L', LARGE_BYTES);
    harpe_http_answer(request, 200, "text/plain", body, LARGE_BYTES, true, NULL);
}

static void on_request(void *user, harpe_http_request *request) {
    server *s = user;
    const char *path = harpe_http_path(request);
    char text[64];
    size_t length;
    if (strcmp(path, "/hold") == 0) {
        hold(s, request);
    } else if (strcmp(path, "/release") == 0) {
        release(s);
        answer_text(request, "done");
    } else if (strcmp(path, "/echo") == 0) {
        char *body = harpe_http_take_body(request, &length);
        harpe_http_answer(request, 200, "text/plain", body, length, true, NULL);
    } else if (strcmp(path, "/length") == 0) {
        harpe_http_body(request, &length);
        snprintf(text, sizeof text, "%zu", length);
        answer_text(request, text);
    } else if (strcmp(path, "/large") == 0) {
        large(request);
    } else if (strcmp(path, "/counts") == 0) {
        snprintf(text, sizeof text, "held %d gone %d", s->count, s->gone);
        answer_text(request, text);
    } else {
        answer_text(request, "hello");
    }
}

static void on_gone(void *user, harpe_http_request *request) {
    server *s = user;
    forget(s, harpe_http_data(request));
    s->gone++;
}

static bool only_looks(void *user, const char *method, const char *path) {
    (void)user;
    (void)method;
    return strcmp(path, "/hold") != 0;
}

int main(int argc, char **argv) {
    bench_options options = bench_options_read(argc, argv);
    server s = {.list = {&s.list, &s.list, NULL}};
    harpe_error error;
    harpe_http_handler handler = {
        .request = on_request, .gone = on_gone, .only_looks = only_looks, .user = &s};
    harpe_http_options http = {.max_connections = options.connections,
                               .reserved_connections = RESERVED_CONNECTIONS,
                               .max_body_bytes = options.body_bytes,
                               .request_timeout_ms = options.request_s * INT64_C(1000),
                               .keep_alive_timeout_ms = options.idle_s * INT64_C(1000),
                               .tls_cert_pem = options.cert_pem,
                               .tls_key_pem = options.key_pem};
    if (harpe_loop_new(&s.loop, &error) != HARPE_OK ||
        harpe_http_new(s.loop, &http, &handler, &s.http, &error) != HARPE_OK) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    signal(SIGPIPE, SIG_IGN);
    bench_say_port(harpe_http_port(s.http));
    return harpe_loop_run(s.loop, &error) == HARPE_OK ? 0 : 1;
}
