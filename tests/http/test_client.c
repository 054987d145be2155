/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP client with a server that records requests and gives scripted answers: the requests, the
 * result of every kind of answer, and that nothing blocks the client. All of it holds with libcurl
 * and with the transport of the simulated world. */
#include "test.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/scratch.h"
#include "http/client/connection.h"
#include "world/transport.h"

enum { REQUEST_MAX = 8192, PEERS_MAX = 8 };

/* ---- A server -------------------------------------------------------------------------------- */

typedef struct server {
    int listener, end, port;
    int given[2]; /* a pipe with the sockets of the transport of the world */
    char url[64];
    pthread_t thread;
    const char *answer; /* the whole answer, as bytes; NULL: no answer */
    size_t length;
    atomic_int accepted, asked;
    atomic_bool waits; /* a request has arrived that is not answered */
    char incoming[REQUEST_MAX];
    pthread_mutex_t lock;
    char request[REQUEST_MAX]; /* the last complete request; protected by the lock */
} server;

/* Returns true after a whole request has arrived. */
static bool is_whole(const char *request) {
    const char *end = strstr(request, "\r\n\r\n");
    if (!end) return false;
    const char *field = strstr(request, "Content-Length: ");
    size_t body = field && field < end ? strtoul(field + strlen("Content-Length: "), NULL, 10) : 0;
    return strlen(end + 4) >= body;
}

static void send_answer(server *self, int peer) {
    for (size_t sent = 0; sent < self->length;) {
        ssize_t more = send(peer, self->answer + sent, self->length - sent, MSG_NOSIGNAL);
        if (more <= 0) return; /* the client has closed the connection */
        sent += (size_t)more;
    }
}

/* Reads the received data of a peer. Returns false at its end. */
static bool serve_peer(server *self, int peer) {
    size_t used = strlen(self->incoming);
    ssize_t more = recv(peer, self->incoming + used, REQUEST_MAX - 1 - used, 0);
    if (more <= 0) return false;
    self->incoming[used + (size_t)more] = '\0';
    if (!is_whole(self->incoming)) return true;
    pthread_mutex_lock(&self->lock);
    memcpy(self->request, self->incoming, REQUEST_MAX);
    pthread_mutex_unlock(&self->lock);
    self->incoming[0] = '\0';
    atomic_fetch_add(&self->asked, 1);
    if (self->answer)
        send_answer(self, peer);
    else
        atomic_store(&self->waits, true);
    return true;
}

/* Returns the socket of a new peer, or -1. */
static int take_peer(const server *self, const struct pollfd *sources) {
    int peer;
    if (sources[0].revents) return accept(self->listener, NULL, NULL);
    bool is_given = sources[1].revents && read(self->given[0], &peer, sizeof peer) == sizeof peer;
    return is_given ? peer : -1;
}

static void *serve(void *user) {
    server *self = user;
    struct pollfd all[3 + PEERS_MAX] = {{.fd = self->end, .events = POLLIN},
                                        {.fd = self->listener, .events = POLLIN},
                                        {.fd = self->given[0], .events = POLLIN}};
    nfds_t count = 3;
    while (poll(all, count, -1) > 0 && !all[0].revents) {
        for (nfds_t i = 3; i < count; i++) {
            if (!all[i].revents || serve_peer(self, all[i].fd)) continue;
            close(all[i].fd);
            all[i].fd = -1;
        }
        int peer = count == 3 + PEERS_MAX ? -1 : take_peer(self, &all[1]);
        if (peer < 0) continue;
        all[count++] = (struct pollfd){.fd = peer, .events = POLLIN};
        atomic_fetch_add(&self->accepted, 1);
    }
    for (nfds_t i = 3; i < count; i++)
        if (all[i].fd >= 0) close(all[i].fd);
    return NULL;
}

static bool uses_transport;

static bool give(void *user, int peer) {
    const server *self = user;
    assert_int_equal(fcntl(peer, F_SETFL, 0), 0);
    return write(self->given[1], &peer, sizeof peer) == sizeof peer;
}

static void start(server *self, int listener) {
    pthread_mutex_init(&self->lock, NULL);
    assert_int_equal(pipe(self->given), 0);
    if (uses_transport && *self->url) assert_true(harpe_transport_serve(self->url, 0, give, self));
    self->listener = listener;
    self->end = eventfd(0, EFD_CLOEXEC);
    assert_int_equal(listen(listener, 8), 0);
    assert_int_equal(pthread_create(&self->thread, NULL, serve, self), 0);
}

static int bind_loopback(int *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, size), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    *port = ntohs(address.sin_port);
    return listener;
}

static void start_tcp(server *self, const char *answer) {
    *self = (server){.answer = answer, .length = answer ? strlen(answer) : 0};
    int listener = bind_loopback(&self->port);
    (void)snprintf(self->url, sizeof self->url, "http://127.0.0.1:%d", self->port);
    start(self, listener);
}

static void stop(server *self) {
    if (uses_transport) harpe_transport_unserve(self->url);
    (void)eventfd_write(self->end, 1);
    pthread_join(self->thread, NULL);
    close(self->listener);
    close(self->end);
    close(self->given[0]);
    close(self->given[1]);
}

/* ---- Help ------------------------------------------------------------------------------------ */

static harpe_connection *open_to(const server *self, harpe_connection_options options) {
    harpe_connection *connection = NULL;
    harpe_error error;
    if (!options.server_url) options.server_url = self->url;
    assert_int_equal(harpe_connection_new(&options, &connection, &error), HARPE_OK);
    return connection;
}

/* Makes one request on a new connection to a server that gives this answer. */
static harpe_status call_once(const char *answer_text, harpe_connection_options options,
                              harpe_request request, server *seen, harpe_error *error) {
    harpe_answer answer;
    start_tcp(seen, answer_text);
    harpe_connection *connection = open_to(seen, options);
    harpe_status status = harpe_connection_call(connection, &request, &answer, error);
    harpe_connection_free(connection);
    stop(seen);
    return status;
}

static const char nothing[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

static bool is_told_to_end(void *user) { return !atomic_load((atomic_bool *)user); }

/* ---- Requests -------------------------------------------------------------------------------- */

TEST(get_has_no_body_and_no_type) {
    server seen;
    harpe_request request = {.path = "/jobs"};
    assert_int_equal(call_once(nothing, (harpe_connection_options){0}, request, &seen, NULL),
                     HARPE_OK);
    assert_memory_equal(seen.request, "GET /jobs HTTP/1.1\r\n", 20);
    assert_null(strstr(seen.request, "Content-Type"));
    assert_null(strstr(seen.request, "Content-Length"));
    assert_null(strstr(seen.request, "Authorization"));
    assert_null(strstr(seen.request, "Expect"));
}

TEST(post_is_json) {
    server seen;
    harpe_request request = {.path = "/report/", .segment = "a", .body = "{\"x\": 1}"};
    assert_int_equal(call_once(nothing, (harpe_connection_options){0}, request, &seen, NULL),
                     HARPE_OK);
    assert_memory_equal(seen.request, "POST /report/a HTTP/1.1\r\n", 25);
    assert_non_null(strstr(seen.request, "Content-Type: application/json\r\n"));
    assert_non_null(strstr(seen.request, "\r\n\r\n{\"x\": 1}"));
}

TEST(post_of_nothing_has_no_type) {
    server seen;
    harpe_request request = {.path = "/gpu/x?gpu_ids=0", .body = ""};
    assert_int_equal(call_once(nothing, (harpe_connection_options){0}, request, &seen, NULL),
                     HARPE_OK);
    assert_memory_equal(seen.request, "POST /gpu/x?gpu_ids=0 HTTP/1.1\r\n", 32);
    assert_non_null(strstr(seen.request, "Content-Length: 0\r\n"));
    assert_null(strstr(seen.request, "Content-Type"));
}

TEST(segment_is_escaped_and_query_is_not) {
    server seen;
    harpe_request request = {
        .path = "/jobs/", .segment = "a/b?c d\xc3\xa9%#", .query = "?rank=1&x"};
    assert_int_equal(call_once(nothing, (harpe_connection_options){0}, request, &seen, NULL),
                     HARPE_OK);
    static const char expected[] = "GET /jobs/a%2Fb%3Fc%20d%C3%A9%25%23?rank=1&x HTTP/1.1\r\n";
    assert_memory_equal(seen.request, expected, sizeof expected - 1);
}

TEST(slash_at_the_end_of_the_server_is_ignored) {
    server seen;
    char url[80];
    start_tcp(&seen, nothing);
    (void)snprintf(url, sizeof url, "%s//", seen.url);
    harpe_connection *connection = open_to(&seen, (harpe_connection_options){.server_url = url});
    harpe_request request = {.path = "/info"};
    harpe_answer answer;
    assert_int_equal(harpe_connection_call(connection, &request, &answer, NULL), HARPE_OK);
    harpe_connection_free(connection);
    stop(&seen);
    assert_memory_equal(seen.request, "GET /info HTTP/1.1\r\n", 20);
}

TEST(token_is_sent_if_given) {
    server seen;
    harpe_request request = {.path = "/"};
    harpe_connection_options options = {.token = "abc"};
    assert_int_equal(call_once(nothing, options, request, &seen, NULL), HARPE_OK);
    assert_non_null(strstr(seen.request, "Authorization: Bearer abc\r\n"));
}

/* One connection serves all requests. A method or body of one request has no effect on the next. */
TEST(requests_follow_each_other_on_one_connection) {
    server seen;
    start_tcp(&seen, nothing);
    harpe_connection *connection = open_to(&seen, (harpe_connection_options){.token = "t"});
    const struct {
        harpe_request request;
        const char *line;
    } calls[] = {
        {{.path = "/a", .body = "{}"}, "POST /a HTTP/1.1\r\n"},
        {{.path = "/b", .method = "DELETE"}, "DELETE /b HTTP/1.1\r\n"},
        {{.path = "/c"}, "GET /c HTTP/1.1\r\n"},
        {{.path = "/d", .method = "POST"}, "POST /d HTTP/1.1\r\n"},
        {{.path = "/e", .body = ""}, "POST /e HTTP/1.1\r\n"},
        {{.path = "/f"}, "GET /f HTTP/1.1\r\n"},
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        harpe_answer answer;
        assert_int_equal(harpe_connection_call(connection, &calls[i].request, &answer, NULL),
                         HARPE_OK);
        pthread_mutex_lock(&seen.lock);
        assert_memory_equal(seen.request, calls[i].line, strlen(calls[i].line));
        pthread_mutex_unlock(&seen.lock);
        assert_true(answer.was_sent_token);
    }
    harpe_connection_free(connection);
    stop(&seen);
    assert_int_equal(atomic_load(&seen.asked), 6);
    assert_int_equal(atomic_load(&seen.accepted), 1);
}

SCRATCH_TEST(unix_socket_is_reached_without_a_token) {
    server seen = {.answer = nothing, .length = sizeof nothing - 1};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s/socket", s->root);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    start(&seen, listener);
    harpe_connection_options options = {.server_url = "http://somebody",
                                        .unix_socket = address.sun_path};
    harpe_connection *connection = open_to(&seen, options);
    harpe_request request = {.path = "/gpu", .body = ""};
    harpe_answer answer;
    assert_int_equal(harpe_connection_call(connection, &request, &answer, NULL), HARPE_OK);
    assert_false(answer.was_sent_token);
    harpe_connection_free(connection);
    stop(&seen);
    assert_non_null(strstr(seen.request, "Host: somebody\r\n"));
}

/* ---- Answers --------------------------------------------------------------------------------- */

TEST(answer_of_any_status_is_whole) {
    const struct {
        const char *text;
        long status;
        int64_t round;
        const char *body;
    } answers[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnull", 200, -1, "null"},
        {"HTTP/1.1 404 No\r\nHarpe-Round: 7\r\nContent-Length: 2\r\n\r\n{}", 404, 7, "{}"},
        {"HTTP/1.1 200 OK\r\nharpe-round:   12  \r\nContent-Length: 1\r\n\r\nx", 200, 12, "x"},
        {"HTTP/1.1 200 OK\r\nHarpe-Round: 1x\r\nContent-Length: 1\r\n\r\nx", 200, -1, "x"},
        {"HTTP/1.1 302 Go\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n", 302, -1, ""},
        {"HTTP/1.1 500 Oh\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
         500, -1, "abcde"},
    };
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        server seen;
        harpe_request request = {.path = "/"};
        harpe_answer answer;
        start_tcp(&seen, answers[i].text);
        harpe_connection *connection = open_to(&seen, (harpe_connection_options){0});
        assert_int_equal(harpe_connection_call(connection, &request, &answer, NULL), HARPE_OK);
        assert_int_equal(answer.http_status, answers[i].status);
        assert_int_equal(answer.round, answers[i].round);
        assert_int_equal(answer.length, strlen(answers[i].body));
        assert_string_equal(answer.body, answers[i].body);
        assert_false(answer.was_sent_token);
        harpe_connection_free(connection);
        stop(&seen);
        assert_int_equal(atomic_load(&seen.asked), 1); /* the client has followed no redirect */
    }
}

/* A body as long as the limit is allowed, with and without a Content-Length. */
TEST(body_has_a_limit) {
    for (size_t length = 99; length <= 102; length++) {
        char text[300];
        server seen;
        harpe_error error;
        harpe_connection_options options = {.answer_limit_bytes = 100};
        harpe_request request = {.path = "/"};
        (void)snprintf(text, sizeof text,
                       "HTTP/1.1 200 OK\r\nConnection: close\r\n"
                       "Content-Length: %zu\r\n\r\n%0*d",
                       length, (int)length, 0);
        harpe_status status = call_once(text, options, request, &seen, &error);
        assert_int_equal(status, length <= 100 ? HARPE_OK : HARPE_LIMIT_EXCEEDED);
    }
}

TEST(body_is_cut_where_that_is_asked_for) {
    server seen;
    char text[3000];
    harpe_answer answer;
    (void)snprintf(text, sizeof text, "HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\nab%01998d",
                   0);
    start_tcp(&seen, text);
    harpe_connection_options options = {.answer_limit_bytes = 3, .cuts_answers = true};
    harpe_connection *connection = open_to(&seen, options);
    harpe_request request = {.path = "/"};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(harpe_connection_call(connection, &request, &answer, NULL), HARPE_OK);
        assert_int_equal(answer.length, 3);
        assert_string_equal(answer.body, "ab0");
    }
    harpe_connection_free(connection);
    stop(&seen);
    assert_int_equal(atomic_load(&seen.accepted), 1);
}

/* ---- Failures -------------------------------------------------------------------------------- */

TEST(address_is_checked) {
    const char *const wrong[] = {NULL,         "",          "127.0.0.1:80", "ftp://a",
                                 "http://",    "http:///x", "http://a b",   "https://a?b",
                                 "http://a#b", "http://a\n"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        harpe_error error;
        harpe_connection *connection = NULL;
        harpe_connection_options options = {.server_url = wrong[i], .url_name = "--server"};
        assert_int_equal(harpe_connection_new(&options, &connection, &error),
                         HARPE_INVALID_ARGUMENT);
        assert_null(connection);
        assert_memory_equal(error.message, "--server: expected http://HOST:PORT", 35);
    }
    assert_int_equal(harpe_server_url_check("x", "HTTPS://host:1/", NULL), HARPE_OK);
}

TEST(nobody_answers) {
    int port;
    char url[64], expected[160];
    harpe_error error;
    harpe_answer answer;
    int unused = bind_loopback(&port); /* bound, but not listening */
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%d", port);
    (void)snprintf(expected, sizeof expected,
                   "no server answers at %s; is harpe serve running there?", url);
    harpe_connection *connection = open_to(NULL, (harpe_connection_options){.server_url = url});
    harpe_request request = {.path = "/"};
    assert_int_equal(harpe_connection_call(connection, &request, &answer, &error),
                     HARPE_UNAVAILABLE);
    assert_string_equal(error.message, expected);
    assert_true(strlen(harpe_connection_reason(connection)) > 0);
    harpe_connection_free(connection);
    close(unused);
}

TEST(broken_answers_are_failures) {
    const char *const broken[] = {
        "not HTTP at all\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\nConnection: close\r\n\r\nabc",
    };
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        server seen;
        harpe_error error;
        harpe_request request = {.path = "/"};
        harpe_connection_options options = {.answer_limit_s = 1};
        assert_int_equal(call_once(broken[i], options, request, &seen, &error), HARPE_UNAVAILABLE);
        assert_non_null(strstr(error.message, "; is harpe serve running at http://127.0.0.1:"));
    }
}

TEST(answer_that_does_not_come_has_a_limit) {
    server seen;
    harpe_error error;
    harpe_request request = {.path = "/"};
    harpe_connection_options options = {.answer_limit_s = 0.2};
    double begin_s = harpe_clock_s();
    assert_int_equal(call_once(NULL, options, request, &seen, &error), HARPE_UNAVAILABLE);
    assert_true(harpe_clock_s() - begin_s >= 0.19);
}

/* The client gives up after `held_s`, not after answer_limit_s, so that it can ask again. */
TEST(held_request_is_given_up) {
    server seen;
    harpe_error error;
    harpe_request request = {.path = "/", .is_held = true};
    harpe_connection_options options = {.answer_limit_s = 0.05, .held_s = 0.5};
    double begin_s = harpe_clock_s();
    assert_int_equal(call_once(NULL, options, request, &seen, &error), HARPE_INTERRUPTED);
    assert_true(harpe_clock_s() - begin_s >= 0.49);
}

/* From its first byte on, a held request counts as one whose answer has begun. */
TEST(held_answer_that_stops_has_a_limit) {
    static const char *const begun[] = {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
                                        "HTTP/1.1 200 OK\r\nContent-Le", "HTTP/1.1 2"};
    for (size_t i = 0; i < sizeof begun / sizeof *begun; i++) {
        server seen;
        harpe_error error;
        harpe_request request = {.path = "/", .is_held = true};
        harpe_connection_options options = {.answer_limit_s = 0.3, .held_s = 60};
        double begin_s = harpe_clock_s();
        assert_int_equal(call_once(begun[i], options, request, &seen, &error), HARPE_UNAVAILABLE);
        assert_true(harpe_clock_s() - begin_s >= 0.29);
        assert_non_null(strstr(error.message, "the answer is not complete after 0.3 s; is harpe"));
    }
}

typedef struct waker {
    server *server;
    harpe_connection *connection;
    atomic_bool is_over;
} waker;

static void *wake_when_held(void *user) {
    waker *self = user;
    while (!atomic_load(&self->server->waits))
        (void)usleep(1000);
    atomic_store(&self->is_over, true);
    harpe_connection_wake(self->connection);
    return NULL;
}

TEST(held_request_ends_when_told) {
    server seen;
    pthread_t thread;
    harpe_error error;
    harpe_answer answer;
    waker self = {.server = &seen};
    start_tcp(&seen, NULL);
    self.connection = open_to(
        &seen,
        (harpe_connection_options){.held_s = 3600, .go_on = is_told_to_end, .user = &self.is_over});
    harpe_request request = {.path = "/", .is_held = true};
    assert_int_equal(pthread_create(&thread, NULL, wake_when_held, &self), 0);
    assert_int_equal(harpe_connection_call(self.connection, &request, &answer, &error),
                     HARPE_INTERRUPTED);
    assert_non_null(strstr(error.message, "interrupted while waiting for http://127.0.0.1:"));
    pthread_join(thread, NULL);
    harpe_connection_free(self.connection);
    stop(&seen);
}

/* A failure of one call does not spoil the next. */
TEST(connection_works_after_a_failure) {
    server seen;
    harpe_answer answer;
    int port;
    char url[64];
    int listener = bind_loopback(&port);
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%d", port);
    harpe_connection *connection = open_to(NULL, (harpe_connection_options){.server_url = url});
    harpe_request request = {.path = "/"};
    assert_int_equal(harpe_connection_call(connection, &request, &answer, NULL), HARPE_UNAVAILABLE);
    seen = (server){.answer = nothing, .length = sizeof nothing - 1};
    (void)strcpy(seen.url, url);
    start(&seen, listener);
    assert_int_equal(harpe_connection_call(connection, &request, &answer, NULL), HARPE_OK);
    assert_int_equal(answer.http_status, 200);
    harpe_connection_free(connection);
    stop(&seen);
}

int main(void) {
    int failed = run_listed_tests();
    uses_transport = true;
    if (harpe_transport_begin(&(harpe_transport_options){0}, NULL) != HARPE_OK) return 1;
    failed += run_listed_tests();
    harpe_transport_end();
    return failed;
}
