/* SPDX-License-Identifier: Apache-2.0 */
/* A server of a fleet with scripted answers. It records the requests of one member. Waits end after
 * LIMIT_S. */
#ifndef HARPE_TESTS_POWERLIMIT_FLEET_SERVER_H
#define HARPE_TESTS_POWERLIMIT_FLEET_SERVER_H

#include <arpa/inet.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

enum { LIMIT_S = 120, BODY_MAX = 16384 };

typedef enum fleet_mode {
    FLEET_SERVES,  /* as harpe serve does */
    FLEET_FORGETS, /* 404 to reports, until the next declaration */
    FLEET_REFUSES, /* 403 */
    FLEET_BABBLES, /* 200 with another answer */
    FLEET_HANGS,   /* no answer */
} fleet_mode;

typedef struct fleet_server {
    int listener;
    char url[64];
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Protected by the lock. */
    fleet_mode mode;
    const char *babble; /* the answer of FLEET_BABBLES */
    int plan;           /* the answer to reports of a member that has more than one plan */
    int peer;           /* the open connection, or -1 */
    int declared, reported, removed;
    int unanswered;             /* requests that FLEET_HANGS has received */
    char declaration[BODY_MAX]; /* the last body of each kind */
    char report[BODY_MAX];
    char target[512], token[128]; /* of the last request */
    const char *watched;          /* NULL: nothing */
    int seen;                     /* bodies that contain `watched` */
} fleet_server;

/* ---- Answers --------------------------------------------------------------------------------- */

/* Notes a request, and chooses its answer. Returns false if there is none. Call with the lock. */
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

/* Answers one whole request, which ends in NUL. */
static inline void answer_request(fleet_server *self, int peer, const char *request) {
    char method[16], answer[512], bytes[1024];
    int status = 0;
    sscanf(request, "%15s", method);
    pthread_mutex_lock(&self->lock);
    sscanf(request, "%*s %511s", self->target);
    note_field(request, "Authorization: Bearer ", self->token, sizeof self->token);
    bool has_answer = choose_answer(self, method, strstr(request, "\r\n\r\n") + 4, &status, answer,
                                    sizeof answer);
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->lock);
    if (!has_answer) return;
    int length = snprintf(bytes, sizeof bytes, "HTTP/1.1 %d X\r\nContent-Length: %zu\r\n\r\n%s",
                          status, strlen(answer), answer);
    ssize_t ignored = send(peer, bytes, (size_t)length, MSG_NOSIGNAL);
    (void)ignored;
}

/* ---- Connections ----------------------------------------------------------------------------- */

static inline bool is_whole(const char *request) {
    char length[32];
    const char *end = strstr(request, "\r\n\r\n");
    if (!end) return false;
    note_field(request, "Content-Length: ", length, sizeof length);
    return strlen(end + 4) >= strtoul(length, NULL, 10);
}

static inline void serve_peer(fleet_server *self, int peer) {
    static char request[BODY_MAX];
    size_t used = 0;
    for (;;) {
        ssize_t more = recv(peer, request + used, sizeof request - 1 - used, 0);
        if (more <= 0) return;
        used += (size_t)more;
        request[used] = '\0';
        if (!is_whole(request)) continue;
        answer_request(self, peer, request);
        used = 0;
    }
}

static inline void *serve(void *user) {
    fleet_server *self = user;
    for (;;) {
        int peer = accept(self->listener, NULL, NULL);
        if (peer < 0) return NULL;
        pthread_mutex_lock(&self->lock);
        self->peer = peer;
        pthread_mutex_unlock(&self->lock);
        serve_peer(self, peer);
        pthread_mutex_lock(&self->lock);
        self->peer = -1;
        close(peer);
        pthread_mutex_unlock(&self->lock);
    }
}

/* ---- Life ------------------------------------------------------------------------------------ */

/* Starts at `port`; 0: any, and with no member. */
static inline int start_fleet_server_at(fleet_server *self, int port) {
    int one = 1;
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .sin_port = htons((uint16_t)port)};
    socklen_t size = sizeof address;
    if (port == 0) memset(self, 0, sizeof *self);
    self->mode = FLEET_SERVES;
    self->babble = "{}";
    self->peer = -1;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&self->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&self->lock, NULL);
    self->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(self->listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    assert_int_equal(bind(self->listener, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(self->listener, 8), 0);
    assert_int_equal(getsockname(self->listener, (struct sockaddr *)&address, &size), 0);
    snprintf(self->url, sizeof self->url, "http://127.0.0.1:%d", ntohs(address.sin_port));
    assert_int_equal(pthread_create(&self->thread, NULL, serve, self), 0);
    return ntohs(address.sin_port);
}

static inline int start_fleet_server(fleet_server *self) { return start_fleet_server_at(self, 0); }

static inline void stop_fleet_server(fleet_server *self) {
    shutdown(self->listener, SHUT_RDWR);
    pthread_mutex_lock(&self->lock);
    if (self->peer >= 0) shutdown(self->peer, SHUT_RDWR);
    pthread_mutex_unlock(&self->lock);
    pthread_join(self->thread, NULL);
    close(self->listener);
    pthread_mutex_destroy(&self->lock);
    pthread_cond_destroy(&self->changed);
}

/* ---- What a test does ------------------------------------------------------------------------ */

static inline void set_fleet_mode(fleet_server *self, fleet_mode mode, const char *babble) {
    pthread_mutex_lock(&self->lock);
    self->mode = mode;
    self->babble = babble;
    pthread_mutex_unlock(&self->lock);
}

static inline void set_fleet_plan(fleet_server *self, int plan) {
    pthread_mutex_lock(&self->lock);
    self->plan = plan;
    pthread_mutex_unlock(&self->lock);
}

static inline int fleet_count(fleet_server *self, const int *count) {
    pthread_mutex_lock(&self->lock);
    int value = *count;
    pthread_mutex_unlock(&self->lock);
    return value;
}

/* Counts in `seen` the bodies that come from now on and contain the text. */
static inline void watch_fleet(fleet_server *self, const char *text) {
    pthread_mutex_lock(&self->lock);
    self->watched = text;
    self->seen = 0;
    pthread_mutex_unlock(&self->lock);
}

/* Returns true if `text`, which is a text of the server, contains `part`. */
static inline bool fleet_text_has(fleet_server *self, const char *text, const char *part) {
    pthread_mutex_lock(&self->lock);
    bool has = strstr(text, part) != NULL;
    pthread_mutex_unlock(&self->lock);
    return has;
}

static inline void nap(void) { (void)nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL); }

/* Repeats `step` until `holds` is true. */
#define REPEAT_UNTIL(holds, step) \
    do { \
        for (double end_s = harpe_clock_s() + LIMIT_S; !(holds);) { \
            if (harpe_clock_s() > end_s) fail_msg("waited in vain until " #holds); \
            step; \
        } \
    } while (0)

/* Waits until `holds` is true. */
#define WAIT_UNTIL(holds) REPEAT_UNTIL(holds, nap())

/* Waits until the count is at least `least`. */
static inline void wait_for_fleet(fleet_server *self, const int *count, int least) {
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += LIMIT_S;
    pthread_mutex_lock(&self->lock);
    int failure = 0;
    while (*count < least && failure == 0)
        failure = pthread_cond_timedwait(&self->changed, &self->lock, &end);
    bool has_come = *count >= least;
    pthread_mutex_unlock(&self->lock);
    assert_true(has_come);
}

/* Waits until the last body contains the text. `count` is the count of these bodies. */
static inline void wait_for_body(fleet_server *self, const char *body, const int *count,
                                 const char *text) {
    for (;;) {
        pthread_mutex_lock(&self->lock);
        bool has_come = strstr(body, text) != NULL;
        int now = *count;
        pthread_mutex_unlock(&self->lock);
        if (has_come) return;
        wait_for_fleet(self, count, now + 1);
    }
}

#endif
