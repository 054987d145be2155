/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in server whose answers the test controls, and trainings that use it. */
#ifndef HARPE_TESTS_CLIENT_TOLD_SERVER_H
#define HARPE_TESTS_CLIENT_TOLD_SERVER_H

#include "client/training_world.h"
#include "world/scripted_server.h"

static inline harpe_pipeline_timeouts long_timeouts(void) {
    harpe_pipeline_timeouts times = short_pauses();
    times.trial_alone_s = times.trial_stagnant_s = times.held_s = times.report_s = 1000;
    times.end_notice_s = 60;
    return times;
}

/* ---- A server that does as it is told -------------------------------------------------------- */

static const char told_trial[] = "{\"rank\":0,\"frequencies\":[[\"forward\",900],[\"forward\",900],"
                                 "[\"backward\",900],[\"backward\",900]],\"trial\":true}";

#define TOLD_URL "http://127.0.0.1:7788"

typedef struct told_server {
    scripted_server server;
    int schedule_status; /* the answer of GET /schedule; 0: no answer */
    int conflicts;       /* number of requests that are first answered 409 */
    int schedules, results, ends;
    int end_status;          /* the answer of POST /end; 0: 200; negative: no answer */
    const char *schedule;    /* NULL: told_trial */
    char registration[8192]; /* of the rank */
    char result[4096];       /* the last result, or notice of an end */
} told_server;

static inline bool told_say(int peer, int status, int round, const char *body) {
    char line[32], header[32];
    snprintf(line, sizeof line, "%d Told", status);
    snprintf(header, sizeof header, "Harpe-Round: %d\r\n", round);
    return send_answer(peer, line, header, body);
}

static inline bool told_give_schedule(told_server *one, int peer) {
    if (one->conflicts > 0) {
        one->conflicts--;
        return told_say(peer, 409, 0,
                        "{\"detail\":\"rank 0 asked again: this request was replaced\"}");
    }
    if (one->schedule_status != 0 && one->schedule_status != 200)
        return told_say(peer, one->schedule_status, 0, "{\"detail\":\"as told\"}");
    int round = one->schedules++;
    if (one->schedule_status == 0) return true;
    return told_say(peer, 200, round, one->schedule ? one->schedule : told_trial);
}

static inline bool told_answer(void *user, int peer, const char *request, const char *body) {
    told_server *one = user;
    if (strncmp(request, "POST /register_job", 18) == 0) return told_say(peer, 200, 0, "\"job\"");
    if (strncmp(request, "GET /schedule", 13) == 0) return told_give_schedule(one, peer);
    if (strncmp(request, "POST /register_rank", 19) == 0)
        snprintf(one->registration, sizeof one->registration, "%s", body);
    bool is_end = strncmp(request, "POST /end/job ", 14) == 0;
    bool is_result = strncmp(request, "POST /result", 12) == 0;
    if (is_end || is_result) snprintf(one->result, sizeof one->result, "%s", body);
    one->results += is_result;
    one->ends += is_end;
    if (is_end && one->end_status < 0) return true;
    if (is_end && one->end_status > 0)
        return told_say(peer, one->end_status, 0, "{\"detail\":\"Not Found\"}");
    return told_say(peer, 200, 0, "null");
}

static inline void start_told(told_server *one) {
    one->server = (scripted_server){.name = TOLD_URL, .answer = told_answer, .user = one};
    start_scripted(&one->server);
}

static inline void stop_told(told_server *one) { stop_scripted(&one->server); }

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
