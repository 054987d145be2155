/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP over real sockets: the server's behaviour towards correct clients. Each part of the protocol
 * is tested once. */
#include "test.h"

#include "base/file.h"
#include "server/http_world.h"

#define FIXTURE_TEST(name) WORLD_TEST(name, .max_body_bytes = 1 << 20)

/* ---- Requests and answers -------------------------------------------------------------------- */

FIXTURE_TEST(answers_carry_the_usual_headers) {
    int fd = ask(w, POST("/echo", "5") "hello");
    answer a = hear_answer(fd, false);
    assert_int_equal(a.status, 200);
    assert_string_equal(a.body, "hello");
    assert_non_null(strstr(a.head, "\r\ndate: "));
    assert_non_null(strstr(a.head, " GMT\r\n"));
    assert_non_null(strstr(a.head, "\r\ncontent-type: application/octet-stream\r\n"));
    assert_non_null(strstr(a.head, "\r\nharpe-round: 7\r\n"));
    assert_null(strstr(a.head, "connection:"));
    free(a.body);
}

FIXTURE_TEST(a_connection_serves_many_requests) {
    int fd = dial(w);
    for (int i = 0; i < 100; i++) {
        expect_reply(fd, GET("/a"), 200, "GET /a | a | q=(none) | x-test=(none)");
        say(fd, POST("/echo", "3") "abc");
        expect_answer(fd, 200, "abc");
    }
}

FIXTURE_TEST(pipelined_requests_are_answered_in_order) {
    int fd = ask(w, POST("/echo", "1") "1" GET("/work") POST("/echo", "1") "2" GET("/b"));
    expect_answer(fd, 200, "1");
    expect_answer(fd, 200, "worked");
    expect_answer(fd, 200, "2");
    expect_answer(fd, 200, "GET /b | b | q=(none) | x-test=(none)");
}

FIXTURE_TEST(a_request_may_come_byte_by_byte) {
    static const char request[] = "\r\n" POST("/echo", "4") "drip" GET("/c");
    int fd = dial(w);
    for (size_t i = 0; i < sizeof request - 1; i++) {
        say_bytes(fd, request + i, 1);
        if (i % 16 == 0) usleep(1000);
    }
    expect_answer(fd, 200, "drip");
    expect_answer(fd, 200, "GET /c | c | q=(none) | x-test=(none)");
}

FIXTURE_TEST(head_is_get_without_body) {
    int fd = ask(w, "HEAD /a HTTP/1.1\r\nhost: x\r\n\r\n");
    answer a = hear_answer(fd, true);
    assert_int_equal(a.status, 200);
    assert_non_null(strstr(a.head, "content-length: 37\r\n"));
    free(a.body);
    expect_reply(fd, GET("/b"), 200, NULL);
}

FIXTURE_TEST(http_1_0_closes_unless_asked_not_to) {
    int fd = ask(w, "GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    answer a = hear_answer(fd, false);
    assert_non_null(strstr(a.head, "connection: keep-alive"));
    free(a.body);
    expect_reply(fd, "GET /a HTTP/1.0\r\n\r\n", 200, NULL);
    expect_end(fd);
    fd = ask(w, "GET /a HTTP/1.1\r\nhost: x\r\nconnection: x, Close\r\n\r\n");
    expect_answer(fd, 200, NULL);
    expect_end(fd);
}

FIXTURE_TEST(a_client_that_ends_its_side_still_gets_its_answer) {
    int fd = ask(w, POST("/echo", "2") "ab" POST("/echo", "2") "cd");
    shutdown(fd, SHUT_WR);
    expect_answer(fd, 200, "ab");
    expect_answer(fd, 200, "cd");
    expect_end(fd);
}

FIXTURE_TEST(a_large_answer_arrives_whole) {
    int fd = ask(w, GET("/large"));
    usleep(100000); /* until the socket is full */
    answer a = hear_answer(fd, false);
    assert_int_equal(a.status, 200);
    assert_int_equal(a.length, (size_t)32 << 20);
    assert_int_equal(strspn(a.body, "L"), a.length);
    free(a.body);
}

/* ---- Paths, queries, headers ----------------------------------------------------------------- */

FIXTURE_TEST(paths_are_decoded_by_segment) {
    expect_once(w, GET("/"), 200, "GET / | q=(none) | x-test=(none)");
    expect_once(w, GET("/a+b%2Bc/%2e%2e/../x%2Fy/"), 200,
                "GET /a+b%2Bc/%2e%2e/../x%2Fy/ | a+b+c | .. | .. | x/y |  | q=(none) | "
                "x-test=(none)");
    expect_once(w, GET("/a%00b/%/%4/%zz/%C3%A4"), 200,
                "GET /a%00b/%/%4/%zz/%C3%A4 | (none) | (none) | (none) | (none) | \xC3\xA4 | "
                "q=(none) | x-test=(none)");
    expect_once(w, "GET http://host:1/abs/olute HTTP/1.1\r\nhost: x\r\n\r\n", 200,
                "GET /abs/olute | abs | olute | q=(none) | x-test=(none)");
}

FIXTURE_TEST(the_first_value_of_a_query_parameter_is_taken) {
    expect_once(w, GET("/a?p&qq=1&q=x%20y+z&q=2"), 200, "GET /a | a | q=x y z | x-test=(none)");
    expect_once(w, GET("/a?q"), 200, "GET /a | a | q= | x-test=(none)");
    expect_once(w, GET("/a?%71=%31"), 200, "GET /a | a | q=1 | x-test=(none)");
    expect_once(w, GET("/a?q=%zz&q=3"), 200, "GET /a | a | q=3 | x-test=(none)");
    expect_once(w, GET("/a?"), 200, "GET /a | a | q=(none) | x-test=(none)");
}

FIXTURE_TEST(header_names_have_no_case) {
    expect_once(w, "GET /a HTTP/1.1\r\nHost: x\r\nX-TeSt:\t va lue \t\r\n\r\n", 200,
                "GET /a | a | q=(none) | x-test=va lue");
}

/* ---- Bodies ---------------------------------------------------------------------------------- */

FIXTURE_TEST(chunked_bodies_are_put_together) {
    int fd =
        ask(w, "POST /echo HTTP/1.1\r\nhost: x\r\nTransfer-Encoding: Chunked\r\n\r\n"
               "3\r\nabc\r\n00A;name=value\r\n0123456789\r\n0\r\ntrailer: x\r\n\r\n" GET("/a"));
    expect_answer(fd, 200, "abc0123456789");
    expect_answer(fd, 200, NULL);
}

FIXTURE_TEST(expect_100_continue_is_answered_before_the_body) {
    int fd = ask(
        w, "POST /echo HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\n");
    char text[26] = "";
    assert_true(read_exactly(fd, text, 25));
    assert_string_equal(text, "HTTP/1.1 100 Continue\r\n\r\n");
    expect_reply(fd, "abc", 200, "abc");
    hang_up(fd);
    expect_once(w,
                "POST /tiny HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n"
                "content-length: 11\r\n\r\n",
                413, "{\"detail\":\"the body is too large\"}");
    expect_once(w, "POST /a HTTP/1.1\r\nhost: x\r\nexpect: tea\r\n\r\n", 417, NULL);
}

FIXTURE_TEST(a_body_up_to_the_limit_is_taken) {
    size_t length = 1 << 20;
    char *body = malloc(length);
    for (size_t i = 0; i < length; i++)
        body[i] = (char)('a' + i % 26);
    int fd = dial(w);
    for (int i = 0; i < 3; i++) {
        say(fd, POST("/echo", "1048576"));
        say_bytes(fd, body, length);
        answer a = hear_answer(fd, false);
        assert_int_equal(a.length, length);
        assert_memory_equal(a.body, body, length);
        free(a.body);
    }
    free(body);
}

/* ---- Holding --------------------------------------------------------------------------------- */

FIXTURE_TEST(held_requests_are_answered_when_released) {
    enum { COUNT = 200 };
    int fds[COUNT];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < COUNT; i++) {
            if (round == 0) fds[i] = dial(w);
            say(fds[i], GET("/hold"));
        }
        expect_counts(w, "held 200");
        expect_once(w, GET("/release"), 200, "done");
        for (int i = 0; i < COUNT; i++)
            expect_answer(fds[i], 200, "released");
    }
    for (int i = 0; i < COUNT; i++)
        hang_up(fds[i]);
    expect_soon("delivered", &w->delivered, 2 * COUNT);
    expect_counts(w, "held 0");
    assert_int_equal(atomic_load(&w->gone), 0);
}

TEST(closing_the_server_lets_held_requests_go) {
    world *w = open_world((harpe_http_options){0});
    int fd = ask(w, GET("/hold"));
    expect_counts(w, "held 1");
    close_world(w);
    expect_end(fd);
}

/* ---- Streams --------------------------------------------------------------------------------- */

FIXTURE_TEST(a_stream_goes_on_until_the_server_ends_it) {
    enum { PIECES = 30, PIECE = 100001 };
    int fd = ask(w, GET("/stream?q=30") GET("/a"));
    answer a = hear_answer(fd, false);
    assert_int_equal(a.status, 200);
    assert_null(strstr(a.head, "content-length"));
    assert_non_null(strstr(a.head, "\r\nconnection: close\r\n"));
    free(a.body);
    char *piece = malloc(PIECE);
    for (int i = 0; i < PIECES; i++) {
        if (i == 3) usleep(100000); /* until the socket is full */
        assert_true(read_exactly(fd, piece, PIECE));
        assert_ptr_equal(memchr(piece, '\n', PIECE), piece + PIECE - 1);
    }
    free(piece);
    expect_end(fd);
    expect_soon("pieces", &w->delivered, PIECES);
    assert_int_equal(atomic_load(&w->gone), 0);
}

FIXTURE_TEST(a_client_that_leaves_its_stream_is_noticed) {
    int idle = dial(w), busy = dial(w);
    say(idle, GET("/stream"));
    free(hear_answer(idle, false).body);
    say(busy, GET("/stream?q=1000000"));
    free(hear_answer(busy, false).body);
    hang_up(idle);
    hang_up(busy);
    expect_soon("gone", &w->gone, 2);
    expect_counts(w, "connections 1 held 0");
}

WORLD_TEST(streams_give_way_to_others, .max_connections = 3) {
    int held = dial(w), idle = dial(w);
    say(held, GET("/hold"));
    expect_soon("held", &w->kept, 1);
    expect_reply(idle, GET("/a"), 200, NULL);
    int stream = ask(w, GET("/stream"));
    free(hear_answer(stream, false).body);
    expect_once(w, GET("/a"), 200, NULL);
    expect_soon("gone", &w->gone, 1);
    say(idle, GET("/release")); /* it has been idle for longer, and still exists */
    expect_answer(idle, 200, "done");
    expect_answer(held, 200, "released");
}

/* ---- The door -------------------------------------------------------------------------------- */

WORLD_TEST(without_the_token_only_open_paths_are_served, .token = "secret") {
    expect_once(w, GET("/open"), 200, NULL);
    static const char *const wrong[] = {
        "", "authorization: Bearer secre\r\n", "authorization: Bearer secret1\r\n",
        "authorization: Bearer \r\n", "authorization: Basic secret\r\n"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char request[200];
        snprintf(request, sizeof request, "GET /a HTTP/1.1\r\nhost: x\r\n%s\r\n", wrong[i]);
        int fd = ask(w, request);
        answer a = hear_answer(fd, false);
        assert_int_equal(a.status, 401);
        assert_non_null(strstr(a.head, "\r\nwww-authenticate: Bearer\r\n"));
        assert_string_equal(a.body, "{\"detail\":\"a valid bearer token is needed\"}");
        free(a.body);
    }
    expect_once(w, "GET /a HTTP/1.1\r\nhost: x\r\nAuthorization: bearer secret\r\n\r\n", 200, NULL);
}

FIXTURE_TEST(a_taken_port_is_an_error_that_names_it) {
    harpe_loop *loop;
    harpe_http *http = NULL;
    harpe_error error;
    char port[16];
    harpe_http_handler handler = {.request = on_request, .gone = on_gone};
    harpe_http_options options = {.port = harpe_http_port(w->http)};
    snprintf(port, sizeof port, "%d", options.port);
    assert_int_equal(harpe_loop_new(&loop, NULL), HARPE_OK);
    assert_int_not_equal(harpe_http_new(loop, &options, &handler, &http, &error), HARPE_OK);
    assert_null(http);
    assert_non_null(strstr(error.message, port));
    assert_non_null(strstr(error.message, "127.0.0.1"));
    options.address = "localhost";
    assert_int_equal(harpe_http_new(loop, &options, &handler, &http, &error),
                     HARPE_INVALID_ARGUMENT);
    options = (harpe_http_options){.tls_cert_pem = "x", .tls_key_pem = "y"};
    assert_int_not_equal(harpe_http_new(loop, &options, &handler, &http, &error), HARPE_OK);
    assert_non_null(strstr(error.message, "certificate"));
    harpe_loop_free(loop);
}

TEST(ipv6_is_listened_on) {
    int probe = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    if (probe < 0 || bind(probe, (struct sockaddr *)&address, sizeof address) != 0) {
        if (probe >= 0) close(probe);
        skip_because("hardware: IPv6");
    }
    close(probe);
    world *w = open_world((harpe_http_options){.address = "::1"});
    address.sin6_port = htons((uint16_t)harpe_http_port(w->http));
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    expect_reply(fd, GET("/a"), 200, NULL);
    close(fd);
    close_world(w);
}

/* ---- TLS ------------------------------------------------------------------------------------- */

static char *read_file(const char *folder, const char *name) {
    char path[200], *text = NULL;
    size_t length;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (harpe_file_read(path, 1 << 20, &text, &length, NULL) != HARPE_OK) return NULL;
    return text;
}

/* Runs a shell command with $D, the folder, and $U, the server. */
static void run_in(const char *folder, int port, const char *commands) {
    char line[1200];
    snprintf(line, sizeof line, "D=%s; U=https://127.0.0.1:%d; cd $D && %s", folder, port,
             commands);
    if (system(line) != 0) fail_msg("failed: %s", line); // NOLINT(cert-env33-c)
}

TEST(tls_is_spoken_with_a_certificate) {
    if (system("command -v openssl >/dev/null && command -v curl >/dev/null") != 0) // NOLINT
        skip_because("missing: openssl or curl");
    char folder[] = "/tmp/harpe-tls-XXXXXX";
    assert_non_null(mkdtemp(folder));
    run_in(folder, 0,
           "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 "
           "-subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 -keyout key -out cert "
           "2>/dev/null && head -c 300000 /dev/urandom >body");
    char *cert = read_file(folder, "cert"), *key = read_file(folder, "key");
    assert_true(cert && key);
    harpe_http_options options = {
        .tls_cert_pem = cert, .tls_key_pem = key, .max_body_bytes = 1 << 20};
    world *w = open_world(options); /* a slow machine makes curl slow */
    run_in(folder, harpe_http_port(w->http),
           "curl -sS --max-time 300 --cacert cert --data-binary @body $U/echo -o echoed "
           "--next -sS --max-time 300 --cacert cert $U/large -o large "
           "--next -sS --max-time 300 --cacert cert $U/stream?q=30 -o streamed "
           "--next -sS --max-time 300 --cacert cert $U/work -o worked && cmp body echoed && "
           "test $(stat -c %s streamed) = 3000030 && "
           "test $(stat -c %s large) = 33554432 && test $(cat worked) = worked");
    close_world(w);
    options.request_timeout_ms = 1000;
    w = open_world(options);
    int silent = dial(w), plain = dial(w);
    say(plain, GET("/a"));
    expect_end(plain);
    expect_end(silent); /* it has never begun the handshake */
    close_world(w);
    free(cert);
    free(key);
    run_in(folder, 0, "rm -f cert key body echoed large streamed worked && rmdir $D");
}

int main(void) { return run_listed_tests(); }
