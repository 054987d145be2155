/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in server whose answers the test controls, and trainings that use it. */
#ifndef HARPE_TESTS_CLIENT_TOLD_SERVER_H
#define HARPE_TESTS_CLIENT_TOLD_SERVER_H

#include <netinet/in.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "client/training_world.h"

static inline harpe_pipeline_timeouts long_timeouts(void) {
    harpe_pipeline_timeouts times = short_pauses();
    times.trial_alone_s = times.trial_stagnant_s = times.held_s = times.report_s = 1000;
    times.end_notice_s = 60;
    return times;
}

/* ---- A server that does as it is told -------------------------------------------------------- */

static const char told_trial[] = "{\"rank\":0,\"frequencies\":[[\"forward\",900],[\"forward\",900],"
                                 "[\"backward\",900],[\"backward\",900]],\"trial\":true}";

typedef struct told_server {
    atomic_int schedule_status; /* the answer of GET /schedule; 0: no answer */
    atomic_int conflicts;       /* number of requests that are first answered 409 */
    atomic_int schedules, results, ends;
    atomic_int end_status; /* the answer of POST /end; 0: 200; negative: no answer */
    int listener, port;
    atomic_int peer;
    const char *_Atomic schedule; /* NULL: told_trial */
    char registration[8192];      /* of the rank; read it after a schedule was asked for */
    char result[4096];            /* the last result; read it after `results` has grown */
    pthread_t thread;
} told_server;

static inline void told_answer(int peer, int status, int round, const char *body) {
    char text[1024];
    int length = snprintf(text, sizeof text,
                          "HTTP/1.1 %d Told\r\nContent-Length: %zu\r\nHarpe-Round: %d\r\n\r\n%s",
                          status, strlen(body), round, body);
    (void)!send(peer, text, (size_t)length, MSG_NOSIGNAL);
}

static inline void told_answer_schedule(told_server *one, int peer) {
    const char *schedule = atomic_load(&one->schedule);
    int status = atomic_load(&one->schedule_status);
    if (atomic_load(&one->conflicts) > 0) {
        told_answer(peer, 409, 0, "{\"detail\":\"rank 0 asked again: this request was replaced\"}");
        atomic_fetch_sub(&one->conflicts, 1);
    } else if (status == 200) {
        told_answer(peer, 200, atomic_fetch_add(&one->schedules, 1),
                    schedule ? schedule : told_trial);
    } else if (status > 0) {
        told_answer(peer, status, 0, "{\"detail\":\"as told\"}");
    } else {
        atomic_fetch_add(&one->schedules, 1);
    }
}

static inline void told_answer_request(told_server *one, int peer, const char *request,
                                       const char *body) {
    if (strncmp(request, "POST /register_job", 18) == 0) {
        told_answer(peer, 200, 0, "\"job\"");
    } else if (strncmp(request, "GET /schedule", 13) == 0) {
        told_answer_schedule(one, peer);
    } else {
        if (strncmp(request, "POST /register_rank", 19) == 0)
            snprintf(one->registration, sizeof one->registration, "%s", body);
        if (strncmp(request, "POST /result", 12) == 0) {
            snprintf(one->result, sizeof one->result, "%s", body);
            atomic_fetch_add(&one->results, 1);
        }
        if (strncmp(request, "POST /end/job ", 14) == 0) {
            int status = atomic_load(&one->end_status);
            snprintf(one->result, sizeof one->result, "%s", body);
            atomic_fetch_add(&one->ends, 1);
            if (status > 0) told_answer(peer, status, 0, "{\"detail\":\"Not Found\"}");
            if (status != 0) return;
        }
        told_answer(peer, 200, 0, "null");
    }
}

/* Answers one request after another; each is in memory as a whole. */
static inline void serve_peer(told_server *one, int peer) {
    char request[16384];
    size_t length = 0;
    for (;;) {
        ssize_t got = recv(peer, request + length, sizeof request - 1 - length, 0);
        if (got <= 0) return;
        length += (size_t)got;
        request[length] = '\0';
        const char *body = strstr(request, "\r\n\r\n");
        const char *size = strcasestr(request, "content-length:");
        if (!body) continue;
        body += 4;
        if (size && size < body && strlen(body) < strtoul(size + 15, NULL, 10)) continue;
        told_answer_request(one, peer, request, body);
        length = 0;
    }
}

static inline void *serve(void *user) {
    told_server *one = user;
    for (int peer; (peer = accept(one->listener, NULL, NULL)) >= 0;) {
        atomic_store(&one->peer, peer);
        serve_peer(one, peer);
        atomic_store(&one->peer, -1);
        close(peer);
    }
    return NULL;
}

/* Port 0: any. */
static inline void start_told(told_server *one, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    one->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    one->peer = -1;
    setsockopt(one->listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    assert_int_equal(bind(one->listener, (struct sockaddr *)&address, length), 0);
    assert_int_equal(listen(one->listener, 8), 0);
    getsockname(one->listener, (struct sockaddr *)&address, &length);
    one->port = ntohs(address.sin_port);
    assert_int_equal(pthread_create(&one->thread, NULL, serve, one), 0);
}

static inline void stop_told(told_server *one) {
    shutdown(one->listener, SHUT_RDWR);
    int peer = atomic_load(&one->peer);
    if (peer >= 0) shutdown(peer, SHUT_RDWR);
    pthread_join(one->thread, NULL);
    close(one->listener);
}

/* ---- A training that trusts it --------------------------------------------------------------- */

/* Starts the server, and constructs the optimizer of its only rank. */
static inline training *construct_at(told_server *one, const harpe_pipeline_timeouts *timeouts) {
    char url[64];
    start_told(one, 0);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", one->port);
    training *rank = new_training(url, 0, 1);
    construct_with(rank, timeouts);
    return rank;
}

/* The same, and the rank trains. */
static inline training *start_at(told_server *one, const harpe_pipeline_timeouts *timeouts) {
    training *rank = construct_at(one, timeouts);
    assert_int_equal(pthread_create(&rank->thread, NULL, train, rank), 0);
    return rank;
}

static inline void end_at(told_server *one, training *rank) {
    end_training(rank);
    stop_told(one);
}

static inline int clock_mhz(int gpu) {
    harpe_gpus *gpus = NULL;
    harpe_gpus_options all = {.visible_devices = "all"};
    uint32_t graphics_mhz = 0;
    assert_int_equal(harpe_gpus_open(&all, &gpus, NULL), HARPE_OK);
    assert_int_equal(harpe_gpu_current_clocks(gpus, gpu, &graphics_mhz, NULL, NULL), HARPE_OK);
    harpe_gpus_close(gpus);
    return (int)graphics_mhz;
}

#endif
