/* SPDX-License-Identifier: Apache-2.0 */
/* Requests in virtual time: their latency and their faults, with the real HTTP server and the real
 * client. tests/http/test_client.c compares the answers with those of libcurl. */
#include "test.h"

#include "base/clock.h"
#include "base/wait.h"
#include "http/client/connection.h"
#include "http/http.h"
#include "world/transport.h"
#include "world/world.h"

OWNER(harpe_connection)

#define MS INT64_C(1000000)
#define SECOND INT64_C(1000000000)

static const char url[] = "http://server:1";

enum { LONG_PIECE = 300000, LONG_PIECES = 5 };

/* ---- A server -------------------------------------------------------------------------------- */

/* One world at a time. */
static struct server {
    harpe_loop *loop;
    harpe_http *http;
    pid_t process;
    bool is_ready, answers_held;
    int requests, gone, cut, pieces;
    int64_t last_ns; /* when the last request came */
    harpe_http_request *held;
    harpe_posted adoption;
    int adopted[64];
    int adopted_count;
} server;

/* The fate of the next requests; of all if `all_have_it`. */
static harpe_message_fate fate_of_next;
static bool all_have_it;

static void answer_text(harpe_http_request *request, const char *text) {
    harpe_http_answer(request, 200, "text/plain", (char *)(uintptr_t)text, strlen(text), false,
                      NULL);
}

static void send_piece(harpe_http_request *request) {
    char *piece = malloc(LONG_PIECE);
    assert_non_null(piece);
    memset(piece, 'a' + server.pieces++, LONG_PIECE);
    harpe_http_stream(request, "text/plain", piece, LONG_PIECE, NULL);
}

static void handle(void *user, harpe_http_request *request) {
    (void)user;
    const char *path = harpe_http_path(request);
    server.requests++;
    server.last_ns = harpe_clock_ns();
    if (strcmp(path, "/held") == 0 && !server.answers_held) {
        server.held = request;
    } else if (strcmp(path, "/long") == 0) {
        server.pieces = 0;
        harpe_http_set_data(request, request);
        harpe_http_set_whole(request);
        send_piece(request);
    } else {
        answer_text(request, "answer");
    }
}

static void lose(void *user, harpe_http_request *request) {
    (void)user;
    server.gone++;
    if (server.held == request) server.held = NULL;
}

static void has_sent(void *user, void *data, bool delivered) {
    (void)user;
    if (!delivered)
        server.cut++;
    else if (server.pieces < LONG_PIECES)
        send_piece(data);
    else
        harpe_http_stream_end(data);
}

static void adopt(void *user) {
    (void)user;
    while (server.adopted_count > 0)
        harpe_http_adopt(server.http, server.adopted[--server.adopted_count]);
}

static bool take_socket(void *user, int socket) {
    (void)user;
    server.adopted[server.adopted_count++] = socket;
    server.adoption.call = adopt;
    if (server.adopted_count == 1) harpe_loop_post(server.loop, &server.adoption);
    return true;
}

static int run_server(void *user) {
    (void)user;
    harpe_http_options options = {.is_enclosed = true};
    harpe_http_handler handler = {.request = handle, .gone = lose, .sent = has_sent};
    assert_works(harpe_loop_new(&server.loop, &failure));
    assert_works(harpe_http_new(server.loop, &options, &handler, &server.http, &failure));
    server.is_ready = true;
    assert_works(harpe_loop_run(server.loop, &failure));
    harpe_http_free(server.http);
    harpe_loop_free(server.loop);
    return 0;
}

static void start_server(void) {
    memset(&server, 0, sizeof server);
    server.process = harpe_world_start("server", run_server, NULL);
    while (!server.is_ready)
        harpe_sleep_ns(1);
    assert_true(harpe_transport_serve(url, server.process, take_socket, NULL));
}

static void stop_server(void) {
    harpe_loop_stop(server.loop);
    assert_true(harpe_world_await(server.process, INT64_MAX));
}

/* ---- Clients --------------------------------------------------------------------------------- */

static harpe_message_fate decide(void *user, const harpe_message *message) {
    (void)user;
    assert_string_equal(message->server, url);
    harpe_message_fate fate = fate_of_next;
    if (!all_have_it) fate_of_next = (harpe_message_fate){0};
    return fate;
}

static harpe_connection *open_connection(harpe_connection_options options) {
    harpe_connection *connection = NULL;
    options.server_url = url;
    assert_works(harpe_connection_new(&options, &connection, &failure));
    return connection;
}

static harpe_status get(harpe_connection *connection, const char *path, harpe_answer *answer,
                        harpe_error *error) {
    harpe_request request = {.path = path, .is_held = strcmp(path, "/held") == 0};
    return harpe_connection_call(connection, &request, answer, error);
}

static void get_well(harpe_connection *connection, const char *path) {
    harpe_answer answer;
    assert_works(get(connection, path, &answer, &failure));
    assert_int_equal(answer.http_status, 200);
    assert_string_equal(answer.body, "answer");
}

static void run_with_server(void *user) {
    void (*test)(void) = *(void (**)(void))user;
    const harpe_transport_options options = {.latency_ns = MS, .tick_ns = 100 * MS, .fate = decide};
    fate_of_next = (harpe_message_fate){0};
    all_have_it = false;
    assert_works(harpe_transport_begin(&options, &failure));
    start_server();
    test();
    if (harpe_world_is_alive(server.process)) stop_server();
    harpe_transport_end();
}

static void run(void (*test)(void)) {
    for (uint64_t seed = 0; seed < 4; seed++) {
        harpe_world_options options = {.seed = seed,
                                       .shuffles = seed > 0,
                                       .wall_ns = INT64_C(1700000000) * SECOND,
                                       .longest_ns = 100000 * SECOND,
                                       .most_turns = 1000000};
        assert_works(harpe_world_run(&options, run_with_server, &test, &failure));
    }
}

/* A test that runs in a world with the server. */
#define SERVED_TEST(name) \
    static void name##_inside(void); \
    TEST(name) { run(name##_inside); } \
    static void name##_inside(void)

/* ---- Time ------------------------------------------------------------------------------------ */

SERVED_TEST(answers_take_the_latency) {
    OWNED(harpe_connection) connection = open_connection((harpe_connection_options){0});
    for (int i = 0; i < 3; i++) {
        int64_t begin_ns = harpe_clock_ns();
        get_well(connection, "/");
        assert_int_equal(harpe_clock_ns() - begin_ns, 2 * MS);
        assert_int_equal(server.last_ns - begin_ns, MS);
    }
    fate_of_next = (harpe_message_fate){.request_late_ns = 3 * SECOND, .answer_late_ns = SECOND};
    int64_t begin_ns = harpe_clock_ns();
    get_well(connection, "/");
    assert_int_equal(harpe_clock_ns() - begin_ns, 4 * SECOND + 2 * MS);
    assert_int_equal(server.last_ns - begin_ns, 3 * SECOND + MS);
    assert_int_equal(harpe_http_count(server.http).accepted, 1);
}

SERVED_TEST(chunks_longer_than_a_socket_arrive) {
    harpe_answer answer;
    OWNED(harpe_connection) connection = open_connection((harpe_connection_options){0});
    for (int i = 0; i < 2; i++) {
        fate_of_next.answer_late_ns = i * SECOND;
        assert_int_equal(get(connection, "/long", &answer, NULL), HARPE_OK);
        assert_int_equal(answer.length, LONG_PIECE * LONG_PIECES);
        for (size_t k = 0; k < answer.length; k += LONG_PIECE)
            assert_int_equal(answer.body[k], 'a' + (int)(k / LONG_PIECE));
    }
}

/* ---- Held requests --------------------------------------------------------------------------- */

static int looks;
static bool is_over;

static bool look(void *user) {
    (void)user;
    looks++;
    return !is_over;
}

static int end_after_an_hour(void *user) {
    harpe_sleep_ns(3600 * SECOND);
    is_over = true;
    harpe_connection_wake(user);
    return 0;
}

SERVED_TEST(held_request_ends_when_woken) {
    harpe_answer answer;
    harpe_connection *connection =
        open_connection((harpe_connection_options){.held_s = 1e6, .go_on = look});
    looks = 0;
    is_over = false;
    int64_t begin_ns = harpe_clock_ns();
    (void)harpe_world_start("waker", end_after_an_hour, connection);
    assert_int_equal(get(connection, "/held", &answer, NULL), HARPE_INTERRUPTED);
    assert_int_equal(harpe_clock_ns() - begin_ns, 3600 * SECOND);
    assert_in_range(looks, 36000, 36010);
    harpe_connection_free(connection);
    harpe_sleep_ns(SECOND);
    assert_int_equal(server.gone, 1);
}

SERVED_TEST(held_request_is_given_up) {
    harpe_answer answer;
    OWNED(harpe_connection) connection = open_connection((harpe_connection_options){.held_s = 50});
    int64_t begin_ns = harpe_clock_ns();
    assert_int_equal(get(connection, "/held", &answer, NULL), HARPE_INTERRUPTED);
    assert_in_range(harpe_clock_ns() - begin_ns, 50 * SECOND, 50 * SECOND + MS);
    server.answers_held = true;
    get_well(connection, "/held");
}

/* ---- Faults ---------------------------------------------------------------------------------- */

/* A request fails after the time, the next does not. */
static void fail_once(const char *path, double after_s, const char *reason, int requests) {
    harpe_answer answer;
    harpe_message_fate fate = fate_of_next;
    for (int is_kept = 0; is_kept < 2; is_kept++) {
        OWNED(harpe_connection)
        connection = open_connection((harpe_connection_options){.answer_limit_s = 5});
        fate_of_next = (harpe_message_fate){0};
        if (is_kept) get_well(connection, "/");
        fate_of_next = fate;
        int before = server.requests;
        int64_t begin_ns = harpe_clock_ns();
        assert_int_equal(get(connection, path, &answer, &failure), HARPE_UNAVAILABLE);
        assert_in_range(harpe_clock_ns() - begin_ns, (int64_t)(after_s * 1e9),
                        (int64_t)(after_s * 1e9) + 5 * MS);
        if (!strstr(failure.message, reason)) fail_msg("%s", failure.message);
        get_well(connection, "/");
        assert_int_equal(server.requests - before, requests + 1);
    }
}

SERVED_TEST(lost_messages_end_the_patience) {
    fate_of_next = (harpe_message_fate){.loses_request = true};
    fail_once("/", 5, "timed out after 5000 milliseconds with 0 bytes received; is harpe", 0);
    fate_of_next = (harpe_message_fate){.loses_answer = true};
    fail_once("/", 5, "timed out after 5000 milliseconds with 0 bytes received; is harpe", 1);
}

SERVED_TEST(cut_messages_are_failures) {
    fate_of_next = (harpe_message_fate){.cuts_request = true, .request_bytes = 20};
    fail_once("/", 0.001, "Send failure: Connection reset by peer; is harpe", 0);
    fate_of_next = (harpe_message_fate){.cuts_answer = true, .answer_bytes = 20};
    fail_once("/", 0.002, "Empty reply from server; is harpe", 1);
    fate_of_next = (harpe_message_fate){.cuts_answer = true};
    fail_once("/", 0.002, "Empty reply from server; is harpe", 1);
    fate_of_next = (harpe_message_fate){.cuts_answer = true, .answer_bytes = 500000};
    fail_once("/long", 0.002, "transfer closed with outstanding read data remaining", 1);
}

SERVED_TEST(doubled_request_arrives_twice) {
    OWNED(harpe_connection) connection = open_connection((harpe_connection_options){0});
    fate_of_next = (harpe_message_fate){.is_doubled = true, .double_late_ns = SECOND};
    int64_t begin_ns = harpe_clock_ns();
    get_well(connection, "/");
    assert_int_equal(server.requests, 1);
    harpe_sleep_ns(2 * SECOND);
    assert_int_equal(server.requests, 2);
    assert_int_equal(server.last_ns - begin_ns, SECOND + MS);
    assert_int_equal(harpe_http_count(server.http).connections, 1);
}

/* The second request overtakes the first, whose client no longer waits. */
SERVED_TEST(late_request_arrives_after_its_client_gave_up) {
    harpe_answer answer;
    OWNED(harpe_connection)
    connection = open_connection((harpe_connection_options){.answer_limit_s = 2});
    for (int is_kept = 0; is_kept < 2; is_kept++) {
        int before = server.requests;
        int64_t begin_ns = harpe_clock_ns();
        fate_of_next = (harpe_message_fate){.request_late_ns = 7 * SECOND};
        assert_int_equal(get(connection, "/", &answer, NULL), HARPE_UNAVAILABLE);
        get_well(connection, "/");
        assert_int_equal(server.requests - before, 1);
        harpe_sleep_ns(10 * SECOND);
        assert_int_equal(server.requests - before, 2);
        assert_int_equal(server.last_ns - begin_ns, 7 * SECOND + MS);
    }
}

/* ---- Ends of the server ---------------------------------------------------------------------- */

static int kill_later(void *user) {
    (void)user;
    harpe_sleep_ns(10 * SECOND);
    harpe_world_kill(server.process);
    return 0;
}

SERVED_TEST(killed_server_ends_its_connections) {
    harpe_answer answer;
    OWNED(harpe_connection) kept = open_connection((harpe_connection_options){0});
    OWNED(harpe_connection) held = open_connection((harpe_connection_options){.held_s = 1000});
    get_well(kept, "/");
    int64_t begin_ns = harpe_clock_ns();
    (void)harpe_world_start("killer", kill_later, NULL);
    assert_int_equal(get(held, "/held", &answer, &failure), HARPE_UNAVAILABLE);
    assert_in_range(harpe_clock_ns() - begin_ns, 10 * SECOND, 10 * SECOND + 2 * MS);
    assert_non_null(
        strstr(failure.message, "; is harpe serve running at http://server:1, and not"));
    assert_int_equal(get(kept, "/", &answer, &failure), HARPE_UNAVAILABLE);
    assert_string_equal(failure.message,
                        "no server answers at http://server:1; is harpe serve running there?");
    start_server();
    get_well(kept, "/");
    get_well(held, "/");
}

/* The server is killed before it has taken a new connection. That connection ends, too. */
static bool keep_socket(void *user, int socket) {
    (void)user;
    (void)socket;
    return true;
}

SERVED_TEST(killed_server_ends_connections_that_wait) {
    harpe_answer answer;
    OWNED(harpe_connection) held = open_connection((harpe_connection_options){.held_s = 1000});
    assert_true(harpe_transport_serve(url, server.process, keep_socket, NULL));
    (void)harpe_world_start("killer", kill_later, NULL);
    assert_int_equal(get(held, "/held", &answer, NULL), HARPE_UNAVAILABLE);
}

SERVED_TEST(closed_connection_is_made_again) {
    OWNED(harpe_connection) connection = open_connection((harpe_connection_options){0});
    get_well(connection, "/");
    harpe_sleep_ns(3600 * SECOND); /* longer than the server keeps an idle connection */
    assert_int_equal(harpe_http_count(server.http).connections, 0);
    get_well(connection, "/");
    assert_int_equal(harpe_http_count(server.http).accepted, 2);
}

SERVED_TEST(server_that_stops_takes_no_connection) {
    harpe_answer answer;
    OWNED(harpe_connection) before = open_connection((harpe_connection_options){0});
    OWNED(harpe_connection) after = open_connection((harpe_connection_options){0});
    get_well(before, "/");
    harpe_http_stop_accepting(server.http);
    get_well(before, "/");
    assert_int_equal(get(after, "/", &answer, NULL), HARPE_UNAVAILABLE);
}
