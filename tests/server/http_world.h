/* SPDX-License-Identifier: Apache-2.0 */
/* A small HTTP server on a thread of its own, and clients that use raw sockets. The handler echoes
 * bodies, reports the parts of a request, holds requests until /release, and passes some to a
 * worker. */
#ifndef HARPE_TESTS_SERVER_HTTP_WORLD_H
#define HARPE_TESTS_SERVER_HTTP_WORLD_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "http/http.h"
#include "http/loop.h"

enum { TIMEOUT_S = 120 }; /* of every wait: far more than a loaded machine needs */

static const harpe_pool_kind one_pool[] = {{.name = "work", .subject = "request"}, {0}};

typedef struct kept {
    struct kept *next;
    harpe_http_request *request; /* NULL: gone */
    bool is_stream;
    int pieces; /* still to be sent; -1: one piece, and then nothing more */
    harpe_work work;
} kept;

typedef struct world {
    harpe_loop *loop;
    harpe_workers *workers;
    harpe_http *http;
    pthread_t thread;
    kept *held;
    size_t body_limit; /* of every path except /tiny */
    atomic_int kept, gone, delivered, broken, worked;
    atomic_bool is_paused; /* the loop waits in /pause until this is false */
} world;

/* ---- Handler --------------------------------------------------------------------------------- */

static void answer_text(harpe_http_request *request, int status, const char *text) {
    harpe_http_answer(request, status, "text/plain", (char *)(uintptr_t)text, strlen(text), false,
                      NULL);
}

/* "METHOD path | segment | segment | q=..." */
static void tell(harpe_http_request *request) {
    char text[2048];
    size_t length = (size_t)snprintf(text, sizeof text, "%s %s", harpe_http_method(request),
                                     harpe_http_path(request));
    for (int i = 0; i < harpe_http_segment_count(request) && length < 1500; i++) {
        const char *segment = harpe_http_segment(request, i);
        length += (size_t)snprintf(text + length, sizeof text - length, " | %.300s",
                                   segment ? segment : "(none)");
    }
    const char *q = harpe_http_query(request, "q"), *header = harpe_http_header(request, "x-test");
    snprintf(text + length, sizeof text - length, " | q=%s | x-test=%s", q ? q : "(none)",
             header ? header : "(none)");
    answer_text(request, 200, text);
}

static void echo(harpe_http_request *request) {
    static const harpe_http_header_field headers[] = {{"harpe-round", "7"}, {NULL, NULL}};
    size_t length;
    char *body = harpe_http_take_body(request, &length);
    harpe_http_answer(request, 200, "application/octet-stream", body, length, true, headers);
}

static void counts(world *w, harpe_http_request *request) {
    harpe_http_counts c = harpe_http_count(w->http);
    char text[240];
    snprintf(text, sizeof text,
             "connections %d held %d evicted %d refused %d timeouts %d unread %zu MiB bodies %zu "
             "KiB requests %d",
             c.connections, c.held, (int)c.evicted, (int)c.refused, (int)c.timeouts,
             c.unread_memory >> 20, c.body_memory >> 10, (int)c.requests);
    answer_text(request, 200, text);
}

static kept *hold(world *w, harpe_http_request *request) {
    kept *h = calloc(1, sizeof *h);
    h->request = request;
    harpe_http_set_data(request, h);
    h->next = w->held;
    w->held = h;
    atomic_fetch_add(&w->kept, 1);
    return h;
}

static void release(world *w) {
    for (kept *h = w->held; h; h = h->next)
        if (h->request && !h->work.work && !h->is_stream) {
            answer_text(h->request, 200, "released");
            h->request = NULL;
        }
}

static atomic_bool is_work_held; /* the work of /work does not end before this is false */

static void work_slowly(void *user) {
    (void)user;
    usleep(200000);
    while (atomic_load(&is_work_held))
        usleep(1000);
}

static void worked(void *user) {
    kept *h = user;
    if (h->request) answer_text(h->request, 200, "worked");
    h->request = NULL;
}

/* Sends this number of pieces of 100,001 bytes, and then the end. */
static void send_piece(kept *h) {
    size_t length = 100001;
    if (h->pieces == 0) {
        harpe_http_set_data(h->request, NULL);
        harpe_http_stream_end(h->request);
        h->request = NULL;
        return;
    }
    char *piece = malloc(length);
    memset(piece, 'p', length);
    piece[length - 1] = '\n';
    h->pieces--;
    harpe_http_stream(h->request, "text/plain", piece, length, NULL);
}

static void begin_stream(kept *h) {
    const char *count = harpe_http_query(h->request, "q");
    h->is_stream = true;
    h->pieces = count ? atoi(count) : -1; // NOLINT(cert-err34-c)
    send_piece(h);
}

/* Blocks the loop until `is_paused` is false. */
static void pause_loop(world *w, harpe_http_request *request) {
    atomic_store(&w->is_paused, true);
    while (atomic_load(&w->is_paused))
        usleep(1000);
    answer_text(request, 200, "goes on");
}

static void on_request(void *user, harpe_http_request *request) {
    world *w = user;
    const char *path = harpe_http_path(request);
    if (strcmp(path, "/echo") == 0) {
        echo(request);
    } else if (strcmp(path, "/counts") == 0) {
        counts(w, request);
    } else if (strcmp(path, "/pause") == 0) {
        pause_loop(w, request);
    } else if (strcmp(path, "/hold") == 0) {
        hold(w, request);
    } else if (strcmp(path, "/stranger") == 0) {
        hold(w, request);
        harpe_http_set_gives_way(request, true);
    } else if (strcmp(path, "/meet") == 0) {
        for (kept *h = w->held; h; h = h->next)
            if (h->request && !h->is_stream) harpe_http_set_gives_way(h->request, false);
        answer_text(request, 200, "met");
    } else if (strcmp(path, "/stream") == 0) {
        begin_stream(hold(w, request));
    } else if (strcmp(path, "/release") == 0) {
        release(w);
        answer_text(request, 200, "done");
    } else if (strcmp(path, "/work") == 0) {
        kept *h = hold(w, request);
        h->work = (harpe_work){.work = work_slowly, .done = worked, .user = h};
        harpe_workers_submit(w->workers, &h->work);
        atomic_fetch_add(&w->worked, 1);
    } else if (strcmp(path, "/large") == 0) {
        size_t length = (size_t)32 << 20;
        char *body = malloc(length);
        memset(body, 'L', length);
        harpe_http_answer(request, 200, "text/plain", body, length, true, NULL);
    } else {
        tell(request);
    }
}

static void on_gone(void *user, harpe_http_request *request) {
    world *w = user;
    kept *h = harpe_http_data(request);
    h->request = NULL;
    atomic_fetch_add(&w->gone, 1);
}

static void on_sent(void *user, void *data, bool is_delivered) {
    world *w = user;
    kept *h = data;
    if (h->is_stream && h->pieces >= 0) send_piece(h);
    atomic_fetch_add(is_delivered ? &w->delivered : &w->broken, 1);
}

static size_t limit_of(void *user, harpe_http_request *request) {
    world *w = user;
    return strcmp(harpe_http_path(request), "/tiny") == 0 ? 10 : w->body_limit;
}

static bool only_looks(void *user, const char *method, const char *path) {
    (void)user;
    (void)method;
    return strcmp(path, "/hold") != 0 && strcmp(path, "/stranger") != 0;
}

static bool needs_token(void *user, const char *method, const char *path) {
    (void)user;
    (void)method;
    return strcmp(path, "/open") != 0;
}

/* ---- Server ---------------------------------------------------------------------------------- */

static void *run_loop(void *user) {
    world *w = user;
    harpe_loop_run(w->loop, NULL);
    return NULL;
}

static world *open_world(harpe_http_options options) {
    world *w = calloc(1, sizeof *w);
    harpe_error error = {0};
    w->body_limit = options.max_body_bytes > 0 ? options.max_body_bytes : (size_t)1 << 20;
    harpe_http_handler handler = {.request = on_request,
                                  .gone = on_gone,
                                  .body_limit = limit_of,
                                  .only_looks = only_looks,
                                  .needs_token = needs_token,
                                  .sent = on_sent,
                                  .user = w};
    if (harpe_loop_new(&w->loop, &error) != HARPE_OK ||
        harpe_workers_new(w->loop, one_pool, 2, &w->workers, &error) != HARPE_OK ||
        harpe_http_new(w->loop, &options, &handler, &w->http, &error) != HARPE_OK)
        fail_msg("%s", error.message);
    assert_int_equal(pthread_create(&w->thread, NULL, run_loop, w), 0);
    return w;
}

static void close_world(world *w) {
    harpe_loop_stop(w->loop);
    pthread_join(w->thread, NULL);
    harpe_workers_free(w->workers);
    harpe_http_free(w->http);
    harpe_loop_free(w->loop);
    while (w->held) {
        kept *h = w->held;
        w->held = h->next;
        free(h);
    }
    free(w);
}

/* ---- Clients --------------------------------------------------------------------------------- */

#define GET(path) "GET " path " HTTP/1.1\r\nhost: x\r\n\r\n"
#define POST(path, length) "POST " path " HTTP/1.1\r\nhost: x\r\ncontent-length: " length "\r\n\r\n"
#define CHUNKED(path) "POST " path " HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"

enum { DIALLED_MAX = 4096 };
static bool is_dialled[DIALLED_MAX]; /* connections that no test has closed */

static int dial(const world *w) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)harpe_http_port(w->http)),
                                  .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct timeval timeout = {TIMEOUT_S, 0};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_true(fd < DIALLED_MAX);
    is_dialled[fd] = true;
    return fd;
}

static void hang_up(int fd) {
    is_dialled[fd] = false;
    close(fd);
}

/* Returns false if the server has closed the connection. */
static bool say_bytes(int fd, const void *bytes, size_t length) {
    const char *next = bytes;
    while (length > 0) {
        ssize_t sent = send(fd, next, length, MSG_NOSIGNAL);
        if (sent <= 0) return false;
        next += sent;
        length -= (size_t)sent;
    }
    return true;
}

static bool say(int fd, const char *text) { return say_bytes(fd, text, strlen(text)); }

/* Opens a connection and sends this. Returns the connection. */
static int ask(const world *w, const char *text) {
    int fd = dial(w);
    say(fd, text);
    return fd;
}

typedef struct answer {
    int status; /* 0: no answer arrived */
    char head[2048];
    char *body;
    size_t length;
} answer;

static bool read_exactly(int fd, char *into, size_t length) {
    while (length > 0) {
        ssize_t got = recv(fd, into, length, 0);
        if (got <= 0) return false;
        into += got;
        length -= (size_t)got;
    }
    return true;
}

/* Reads one answer. The caller frees it with free(a.body). */
static answer hear_answer(int fd, bool is_head_only) {
    answer a = {0};
    size_t length = 0;
    a.body = calloc(1, 1);
    while (!strstr(a.head, "\r\n\r\n")) {
        if (length + 1 >= sizeof a.head || !read_exactly(fd, a.head + length, 1)) return a;
        length++;
    }
    const char *field = strcasestr(a.head, "\r\ncontent-length: ");
    a.length = field && !is_head_only ? strtoul(field + 18, NULL, 10) : 0;
    free(a.body);
    a.body = calloc(1, a.length + 1);
    if (!read_exactly(fd, a.body, a.length)) return a;
    a.status = atoi(a.head + 9); // NOLINT(cert-err34-c)
    return a;
}

static void expect_answer(int fd, int status, const char *body) {
    answer a = hear_answer(fd, false);
    if (a.status != status || (body && strcmp(a.body, body) != 0))
        fail_msg("expected %d '%s', got %d '%.300s'", status, body, a.status, a.body);
    free(a.body);
}

static void expect_reply(int fd, const char *request, int status, const char *body) {
    say(fd, request);
    expect_answer(fd, status, body);
}

/* Checks that the server closes the connection and sends nothing before that. */
static void expect_end(int fd) {
    char c;
    ssize_t got = recv(fd, &c, 1, 0);
    if (got > 0) fail_msg("expected the end, got '%c'", c);
    assert_true(got == 0 || errno == ECONNRESET);
    hang_up(fd);
}

/* Returns the answer to one request on a connection of its own. */
static void expect_once(const world *w, const char *request, int status, const char *body) {
    int fd = ask(w, request);
    expect_answer(fd, status, body);
    hang_up(fd);
}

static void expect_soon(const char *what, atomic_int *counter, int value) {
    for (int i = 0; i < TIMEOUT_S * 100 && atomic_load(counter) < value; i++)
        usleep(10000);
    if (atomic_load(counter) != value)
        fail_msg("%s: expected %d, found %d", what, value, atomic_load(counter));
}

/* Requests /counts until it contains `text`. */
static void expect_counts(const world *w, const char *text) {
    char last[256] = "";
    for (int i = 0; i < TIMEOUT_S * 20; i++) {
        int fd = ask(w, GET("/counts"));
        answer a = hear_answer(fd, false);
        snprintf(last, sizeof last, "%s", a.body);
        free(a.body);
        hang_up(fd);
        if (strstr(last, text)) return;
        usleep(50000);
    }
    fail_msg("expected '%s' in '%s'", text, last);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

/* Also closes the connections that the test has left open. */
static int end_world(void **state) {
    close_world(*state);
    for (int fd = 0; fd < DIALLED_MAX; fd++)
        if (is_dialled[fd]) hang_up(fd);
    return 0;
}

/* A test of a server with these options. */
#define WORLD_TEST(name, ...) \
    static int open_##name(void **state) { \
        *state = open_world((harpe_http_options){__VA_ARGS__}); \
        return 0; \
    } \
    TEST_ON(name, world *w, open_##name, end_world)

#endif
