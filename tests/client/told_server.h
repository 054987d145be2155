/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in server whose answers the test controls, and trainings that use it. */
#ifndef HARPE_TESTS_CLIENT_TOLD_SERVER_H
#define HARPE_TESTS_CLIENT_TOLD_SERVER_H

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
    atomic_int end_status;        /* the answer of POST /end; 0: 200; negative: no answer */
    bool is_gone;                 /* nobody listens, and no connection stays */
    const char *_Atomic schedule; /* NULL: told_trial */
    char registration[8192];      /* of the rank; read it after a schedule was asked for */
    char result[4096];            /* the last result; read it after `results` has grown */
    int peers;                    /* open connections */
} told_server;

typedef struct told_peer {
    told_server *server;
    int socket;
} told_peer;

#define TOLD_URL "http://127.0.0.1:7788"

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
static inline void told_serve(told_server *one, int peer) {
    char request[16384];
    size_t length = 0;
    while (!one->is_gone) {
        struct pollfd wait = {.fd = peer, .events = POLLIN};
        if (harpe_poll(&wait, 1, 10000000) == 0) continue;
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

static inline void *told_serve_peer(void *user) {
    told_peer peer = *(told_peer *)user;
    free(user);
    told_serve(peer.server, peer.socket);
    close(peer.socket);
    peer.server->peers--;
    return NULL;
}

static inline bool told_accept(void *user, int socket) {
    told_peer *peer = malloc(sizeof *peer);
    assert_non_null(peer);
    *peer = (told_peer){user, socket};
    peer->server->peers++;
    (void)start_thread(told_serve_peer, peer);
    return true;
}

static inline void start_told(told_server *one) {
    one->is_gone = false;
    assert_true(harpe_transport_serve(TOLD_URL, harpe_process_self(), told_accept, one));
}

static inline void stop_told(told_server *one) {
    harpe_transport_unserve(TOLD_URL);
    one->is_gone = true;
    WAIT_FOR(one->peers == 0);
}

/* ---- A training that trusts it --------------------------------------------------------------- */

/* Starts the server, and constructs the optimizer of its only rank. */
static inline training *construct_at(told_server *one, const harpe_pipeline_timeouts *timeouts) {
    start_told(one);
    training *rank = new_training(TOLD_URL, 0, 1);
    construct_with(rank, timeouts);
    return rank;
}

/* The same, and the rank trains. */
static inline training *start_at(told_server *one, const harpe_pipeline_timeouts *timeouts) {
    training *rank = construct_at(one, timeouts);
    rank->thread = start_thread(train, rank);
    return rank;
}

static inline void end_at(told_server *one, training *rank) {
    end_training(rank);
    stop_told(one);
}

#endif
