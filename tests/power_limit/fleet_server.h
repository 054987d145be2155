/* SPDX-License-Identifier: Apache-2.0 */
/* A server of a fleet in a world, with scripted answers. It records the requests of one member. */
#ifndef HARPE_TESTS_POWERLIMIT_FLEET_SERVER_H
#define HARPE_TESTS_POWERLIMIT_FLEET_SERVER_H

#include "world/scripted_server.h"

enum { LIMIT_S = 120, BODY_MAX = 16384 };

static const world_machine machine = {.gpus = "1xA100"};

typedef enum fleet_mode {
    FLEET_SERVES,  /* as harpe serve does */
    FLEET_FORGETS, /* 404 to reports, until the next declaration */
    FLEET_REFUSES, /* 403 */
    FLEET_BABBLES, /* 200 with another answer */
    FLEET_HANGS,   /* no answer */
} fleet_mode;

typedef struct fleet_server {
    scripted_server server;
    const char *url;
    fleet_mode mode;
    const char *babble; /* the answer of FLEET_BABBLES */
    int plan;           /* the answer to reports of a member that has more than one plan */
    int declared, reported, removed;
    int unanswered;             /* requests that FLEET_HANGS has received */
    char declaration[BODY_MAX]; /* the last body of each kind */
    char report[BODY_MAX];
    char target[512], token[128]; /* of the last request */
    const char *watched;          /* NULL: nothing */
    int seen;                     /* bodies that contain `watched` */
} fleet_server;

/* ---- Answers --------------------------------------------------------------------------------- */

/* Notes a request, and chooses its answer. Returns false if there is none. */
static inline bool choose_answer(fleet_server *self, const char *method, const char *body,
                                 int *status, char *answer, size_t size) {
    bool declares = strcmp(method, "PUT") == 0;
    bool reports = strcmp(method, "POST") == 0;
    if (declares) snprintf(self->declaration, BODY_MAX, "%s", body);
    if (reports) snprintf(self->report, BODY_MAX, "%s", body);
    self->seen += self->watched && strstr(body, self->watched);
    if (self->mode == FLEET_HANGS) {
        self->unanswered++;
        return false;
    }
    *status = 200;
    snprintf(answer, size, "null");
    if (self->mode == FLEET_REFUSES) {
        *status = 403;
        snprintf(answer, size, "{\"detail\":\"this needs another role\"}");
    } else if (self->mode == FLEET_FORGETS && reports) {
        *status = 404;
        snprintf(answer, size, "{\"detail\":\"there is no such member\"}");
    } else if (self->mode == FLEET_BABBLES) {
        snprintf(answer, size, "%s", self->babble);
    } else if (reports) {
        bool has_plans = strstr(self->declaration, "most_w") != NULL;
        snprintf(answer, size, "{\"plan\":%d,\"watts\":1,\"time_s\":1}",
                 has_plans ? self->plan : 0);
    }
    if (declares && self->mode == FLEET_FORGETS) self->mode = FLEET_SERVES;
    self->declared += declares;
    self->reported += reports;
    self->removed += strcmp(method, "DELETE") == 0;
    return true;
}

static inline void note_field(const char *head, const char *name, char *value, size_t size) {
    const char *field = strcasestr(head, name);
    value[0] = '\0';
    if (!field) return;
    field += strlen(name);
    snprintf(value, size, "%.*s", (int)strcspn(field, "\r\n"), field);
}

static inline bool answer_member(void *user, int peer, const char *request, const char *body) {
    fleet_server *self = user;
    char method[16], line[16], answer[512];
    int status = 0;
    sscanf(request, "%15s %511s", method, self->target);
    note_field(request, "Authorization: Bearer ", self->token, sizeof self->token);
    if (!choose_answer(self, method, body, &status, answer, sizeof answer)) return true;
    snprintf(line, sizeof line, "%d X", status);
    return send_answer(peer, line, "", answer);
}

/* ---- What a test does ------------------------------------------------------------------------ */

static inline void restart_fleet_server(fleet_server *self) {
    self->mode = FLEET_SERVES;
    self->server = (scripted_server){.name = self->url, .answer = answer_member, .user = self};
    start_scripted(&self->server);
}

static inline void start_fleet_server(fleet_server *self) {
    *self = (fleet_server){.url = "http://127.0.0.1:7787", .babble = "{}"};
    restart_fleet_server(self);
}

static inline void stop_fleet_server(fleet_server *self) { stop_scripted(&self->server); }

static inline void set_fleet_mode(fleet_server *self, fleet_mode mode, const char *babble) {
    self->mode = mode;
    self->babble = babble;
}

/* Counts in `seen` the bodies that come from now on and contain the text. */
static inline void watch_fleet(fleet_server *self, const char *text) {
    self->watched = text;
    self->seen = 0;
}

static inline void nap(void) { harpe_sleep_ns(2000000); }

/* Repeats `step` until `holds` is true. */
#define REPEAT_UNTIL(holds, step) \
    do { \
        for (double end_s = harpe_clock_s() + LIMIT_S; !(holds);) { \
            if (harpe_clock_s() > end_s) fail_msg("waited in vain until " #holds); \
            step; \
        } \
    } while (0)

/* A test with a job whose server runs. The test's file has the struct `job`, with the member
 * `server`, and its functions begin() and end(). */
#define JOB_TEST(name) \
    static void name##_on(job *self, fleet_server *server); \
    WORLD_TEST(name) { \
        job self; \
        begin(&self); \
        name##_on(&self, &self.server); \
        end(&self); \
    } \
    static void name##_on(job *self, fleet_server *server __attribute__((unused)))

#endif
