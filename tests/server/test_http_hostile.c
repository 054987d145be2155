/* SPDX-License-Identifier: Apache-2.0 */
/* Hostile and broken clients: their limits, and the service for other clients meanwhile. */
#include "test.h"

#include "server/http_world.h"

enum { CONNECTIONS = 40, TIMEOUT_MS = 700 };

#define LIMITED_TEST(name, timeout_ms) \
    WORLD_TEST(name, .max_header_bytes = 4096, .max_connections = CONNECTIONS, \
               .request_timeout_ms = timeout_ms, .keep_alive_timeout_ms = TIMEOUT_S * 1000)

/* The deadlines are for the tests that wait for them. Other tests use long ones, because they may
 * get no processor time. */
#define HASTY(name) LIMITED_TEST(name, TIMEOUT_MS)
#define FIXTURE_TEST(name) LIMITED_TEST(name, TIMEOUT_S * 1000)

/* Sends `bit` repeatedly until the server ends the connection. */
static void drip(int fd, const char *bit, int64_t pause_us) {
    int64_t limit_ns = harpe_clock_ns() + TIMEOUT_S * 1000000000LL;
    struct pollfd waiting = {.fd = fd, .events = POLLIN};
    while (poll(&waiting, 1, 0) == 0) {
        assert_true(harpe_clock_ns() < limit_ns);
        if (!say(fd, bit)) return;
        usleep((useconds_t)pause_us);
    }
}

static void break_off(int fd) {
    struct linger now = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    hang_up(fd); /* a reset */
}

/* ---- Time ------------------------------------------------------------------------------------ */

HASTY(slow_headers_have_a_deadline) {
    int fd = ask(w, "GET /a HTTP/1.1\r\nhost: x\r\n");
    drip(fd, "a: b\r\n", 50000);
    expect_answer(fd, 408, NULL);
    hang_up(fd);
    expect_counts(w, "timeouts 1");
}

HASTY(slow_bodies_have_a_deadline) {
    int fd = ask(w, POST("/echo", "100000"));
    drip(fd, "x", 50000);
    expect_answer(fd, 408, NULL);
}

HASTY(chunked_bodies_without_end_have_a_deadline) {
    int fd = ask(w, CHUNKED("/echo"));
    drip(fd, "1\r\nx\r\n", 50000);
    expect_answer(fd, 408, NULL);
}

HASTY(the_deadline_begins_anew_with_each_request) {
    int fd = dial(w);
    for (int i = 0; i < 4; i++) {
        usleep(TIMEOUT_MS * 500);
        expect_reply(fd, GET("/a"), 200, NULL);
    }
}

WORLD_TEST(idle_connections_are_closed_in_time, .keep_alive_timeout_ms = 500) {
    int silent = dial(w);
    answer a = {0};
    for (int i = 0; i < 20 && a.status == 0; i++) { /* it may be idle before it sends anything */
        int fd = ask(w, GET("/a"));
        free(a.body);
        a = hear_answer(fd, false);
        if (a.status == 200)
            expect_end(fd);
        else
            hang_up(fd);
    }
    assert_int_equal(a.status, 200);
    free(a.body);
    expect_end(silent);
}

HASTY(a_held_request_has_no_deadline) {
    int fd = ask(w, GET("/hold"));
    expect_counts(w, "held 1");
    usleep(TIMEOUT_MS * 2000);
    expect_once(w, GET("/release"), 200, "done");
    expect_answer(fd, 200, "released");
}

HASTY(an_answer_that_nobody_reads_is_given_up) {
    (void)ask(w, GET("/large"));
    expect_counts(w, "connections 1 held 0 evicted 0 refused 0 timeouts 1");
}

/* ---- Large and small ------------------------------------------------------------------------- */

static void fill_socket(int fd) {
    static const char bytes[1 << 16];
    while (send(fd, bytes, sizeof bytes, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
        continue;
}

/* Reads the answer to /counts. Returns the number after `word`. */
static size_t hear_count(int fd, const char *word) {
    answer a = hear_answer(fd, false);
    const char *found = strstr(a.body, word);
    assert_non_null(found);
    size_t count = strtoul(found + strlen(word), NULL, 10);
    free(a.body);
    return count;
}

static size_t ask_count(int fd, const char *word) {
    say(fd, GET("/counts"));
    return hear_count(fd, word);
}

/* Stops the loop until go_on. Returns a connection. */
static int pause_world(world *w) {
    int paused = ask(w, GET("/pause"));
    for (int i = 0; i < TIMEOUT_S * 100 && !atomic_load(&w->is_paused); i++)
        usleep(10000);
    return paused;
}

static void go_on(world *w, int paused) {
    atomic_store(&w->is_paused, false);
    expect_answer(paused, 200, "goes on");
    hang_up(paused);
}

/* All sockets are full, and a small request comes last. It waits for a small part of all bytes. */
static void check_small_beside_large(const char *head) {
    enum { LARGE = 60 };
    world *w = open_world((harpe_http_options){.max_body_bytes = (size_t)64 << 20});
    int large[LARGE];
    for (int i = 0; i < LARGE; i++)
        large[i] = ask(w, head);
    int small = ask(w, GET("/a"));
    expect_answer(small, 200, NULL); /* the server has accepted all of them */
    int paused = pause_world(w);
    for (int i = 0; i < LARGE; i++)
        fill_socket(large[i]);
    say(small, GET("/counts"));
    go_on(w, paused);
    size_t kib = hear_count(small, "bodies ");
    if (kib > 1024) fail_msg("%zu KiB of bodies were read before a small request", kib);
    close_world(w);
}

FIXTURE_TEST(a_small_request_does_not_wait_for_large_bodies) {
    check_small_beside_large(POST("/echo", "60000000"));
    check_small_beside_large(CHUNKED("/echo") "3000000\r\n");
}

/* Returns the processor time of the server's thread in seconds. */
static double time_of_loop(const world *w) {
    clockid_t clock;
    struct timespec now;
    assert_int_equal(pthread_getcpuclockid(w->thread, &clock), 0);
    assert_int_equal(clock_gettime(clock, &now), 0);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

typedef struct sender {
    world *w;
    atomic_bool *is_over;
    pthread_t thread;
} sender;

static void *send_bodies(void *user) {
    enum { LENGTH = 1 << 20 };
    sender *s = user;
    int fd = dial(s->w);
    char *body = calloc(1, LENGTH);
    while (!atomic_load(s->is_over)) {
        say(fd, POST("/a", "1048576"));
        say_bytes(fd, body, LENGTH);
        expect_answer(fd, 200, NULL);
    }
    free(body);
    hang_up(fd);
    return NULL;
}

FIXTURE_TEST(large_bodies_leave_time_to_other_programs) {
    enum { SENDERS = 4 };
    sender senders[SENDERS];
    atomic_bool is_over = false;
    int small = ask(w, GET("/a"));
    expect_answer(small, 200, NULL);
    for (int i = 0; i < SENDERS; i++) {
        senders[i] = (sender){.w = w, .is_over = &is_over};
        assert_int_equal(pthread_create(&senders[i].thread, NULL, send_bodies, &senders[i]), 0);
    }
    double begin_s = time_of_loop(w);
    int64_t begin_ns = harpe_clock_ns();
    while (harpe_clock_ns() - begin_ns < 1000000000) {
        expect_reply(small, GET("/a"), 200, NULL);
        usleep(2000);
    }
    double share = (time_of_loop(w) - begin_s) / ((double)(harpe_clock_ns() - begin_ns) * 1e-9);
    atomic_store(&is_over, true);
    for (int i = 0; i < SENDERS; i++)
        pthread_join(senders[i].thread, NULL);
    if (share > 0.5) fail_msg("the loop used %.0f %% of the time", 100 * share);
}

FIXTURE_TEST(a_slow_body_gets_little_memory) {
    int slow = dial(w), other = dial(w);
    say(slow, POST("/echo", "1000000") "12345");
    for (int i = 0; i < 100; i++) {
        say(slow, "67890");
        assert_true(ask_count(other, "bodies ") <= 16);
    }
    char more[100000] = {0};
    say_bytes(slow, more, sizeof more);
    while (ask_count(other, "bodies ") < sizeof more / 1024)
        usleep(1000);
}

/* ---- New and old connections ----------------------------------------------------------------- */

enum { NEW = 200, ASKED = 48 };

/* NEW clients send their first requests, and an established client sends ASKED requests at once.
 * Each of these is answered with the number of requests so far. Sets *early and *late to the number
 * of first requests that are served before the first and the last of them. */
static void race(int max_connections, size_t *early, size_t *late) {
    world *w = open_world((harpe_http_options){.max_connections = max_connections});
    int new_ones[NEW], old = dial(w);
    char requests[ASKED * sizeof GET("/counts")] = "";
    for (int i = 0; i < ASKED; i++)
        strcat(requests, GET("/counts"));
    expect_reply(old, GET("/a"), 200, NULL);
    for (int i = 0; i < NEW; i++)
        new_ones[i] = dial(w);
    while (ask_count(old, "connections ") <= NEW)
        usleep(1000);
    size_t before = ask_count(old, "requests ") + 1; /* with the request that stops the loop */
    int paused = pause_world(w);
    for (int i = 0; i < NEW; i++)
        say(new_ones[i], GET("/a"));
    say(old, requests);
    go_on(w, paused);
    for (size_t i = 1; i <= ASKED; i++) {
        *late = hear_count(old, "requests ") - before - i;
        if (i == 1) *early = *late;
    }
    for (int i = 0; i < NEW; i++) {
        expect_answer(new_ones[i], 200, NULL);
        hang_up(new_ones[i]);
    }
    hang_up(old);
    close_world(w);
}

FIXTURE_TEST(established_clients_do_not_wait_for_first_requests) {
    enum { SERVED = 64 };
    size_t early, late;
    /* A busy machine may stop the server's thread until it forgets the established client. */
    for (int i = 0; i < 50; i++) {
        race(2 * NEW, &early, &late);
        if (early <= SERVED && late <= SERVED) break;
    }
    if (early > SERVED || late > SERVED)
        fail_msg("%zu and %zu first requests were served before those of an established client",
                 early, late);
}

FIXTURE_TEST(all_first_requests_are_served_at_once_unless_there_is_a_crowd) {
    size_t early, late;
    race(8 * NEW, &early, &late);
    assert_int_equal(late, NEW);
}

WORLD_TEST(all_of_many_idle_connections_are_closed, .keep_alive_timeout_ms = 100) {
    enum { IDLE = 300 };
    int idle[IDLE];
    for (int i = 0; i < IDLE; i++)
        idle[i] = dial(w);
    for (int i = 0; i < IDLE; i++)
        expect_end(idle[i]);
}

/* ---- Going away ------------------------------------------------------------------------------ */

FIXTURE_TEST(a_client_that_closes_while_held_is_noticed) {
    int closed = dial(w), reset = dial(w), half = dial(w);
    say(closed, GET("/hold"));
    say(reset, GET("/hold"));
    say(half, GET("/hold"));
    expect_counts(w, "held 3");
    hang_up(closed);
    expect_soon("gone", &w->gone, 1);
    break_off(reset);
    expect_soon("gone", &w->gone, 2);
    shutdown(half, SHUT_WR);
    expect_soon("gone", &w->gone, 3);
    expect_end(half);
    expect_counts(w, "connections 1 held 0");
}

FIXTURE_TEST(a_client_that_was_gone_before_it_was_held_is_noticed) {
    int fd = ask(w, GET("/hold"));
    hang_up(fd);
    expect_soon("gone", &w->gone, 1);
}

FIXTURE_TEST(a_client_may_go_while_a_worker_works_for_it) {
    atomic_store(&is_work_held, true);
    for (int i = 0; i < 10; i++) {
        int fd = ask(w, GET("/work"));
        expect_soon("worked", &w->worked, i + 1);
        if (i % 2 == 0)
            hang_up(fd);
        else
            break_off(fd);
    }
    expect_soon("gone", &w->gone, 10);
    atomic_store(&is_work_held, false);
    expect_once(w, GET("/work"), 200, "worked");
}

FIXTURE_TEST(an_answer_that_breaks_is_told_apart_from_one_that_arrived) {
    int fd = ask(w, GET("/work"));
    expect_answer(fd, 200, "worked");
    hang_up(fd);
    expect_soon("delivered", &w->delivered, 1);
    assert_int_equal(atomic_load(&w->broken), 0);
}

/* ---- Nonsense -------------------------------------------------------------------------------- */

FIXTURE_TEST(too_much_header_is_refused) {
    int fd = ask(w, "GET /a HTTP/1.1\r\nhost: x\r\n");
    drip(fd, "x-flood: 0123456789012345678901234567890123456789\r\n", 0);
    expect_answer(fd, 431, NULL);
    char request[6000] = "GET /";
    memset(request + 5, 'a', 5000);
    snprintf(request + 5005, 100, " HTTP/1.1\r\nhost: x\r\n\r\n");
    expect_once(w, request, 431, NULL);
    memset(request + 5, 'a', 4000);
    snprintf(request + 4005, 100, " HTTP/1.1\r\nhost: x\r\n\r\n");
    expect_once(w, request, 200, NULL);
}

/* ---- Grammar --------------------------------------------------------------------------------- */

FIXTURE_TEST(what_is_not_http_is_refused) {
    static const struct {
        const char *request;
        int status;
    } cases[] = {
        {"\x16\x03\x01\x02", 400},
        {"{\"a\": 1}\r\n\r\n", 400},
        {" GET /a HTTP/1.1\r\nhost: x\r\n\r\n", 400},
        {"GET\r\n\r\n", 400},
        {"GET /a\r\n\r\n", 400},
        {"GET  /a HTTP/1.1\r\nhost: x\r\n\r\n", 400},
        {"GET /a b HTTP/1.1\r\nhost: x\r\n\r\n", 400},
        {"GET /a HTTP/1.1 \r\nhost: x\r\n\r\n", 400},
        {"GET\t/a\tHTTP/1.1\r\nhost: x\r\n\r\n", 400},
        {"G@T /a HTTP/1.1\r\nhost: x\r\n\r\n", 400},
        {"GET a HTTP/1.1\r\nhost: x\r\n\r\n", 400},
        {"GET http://x HTTP/1.1\r\nhost: x\r\n\r\n", 400},
        {"GET /a HTTP/2.0\r\nhost: x\r\n\r\n", 505},
        {"GET /a HTPT/1.1\r\nhost: x\r\n\r\n", 400},
        {"GET /a HTTP/1.1\r\n\r\n", 400},
        {"GET /a HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n", 400},
        {"GET /a HTTP/1.1\r\nhost: x\r\nno colon\r\n\r\n", 400},
        {"GET /a HTTP/1.1\r\nhost: x\r\n: empty\r\n\r\n", 400},
        {"GET /a HTTP/1.1\r\nhost: x\r\nspace : x\r\n\r\n", 400},
        {"GET /a HTTP/1.1\r\nhost: x\r\n folded\r\n\r\n", 400},
        {"GET /a HTTP/1.1\r\nhost: x\nx: y\r\n\r\n", 400},
        {"GET /a HTTP/1.1\r\nhost: x\r\nx: a\rb\r\n\r\n", 400},
        {"GET /a HTTP/1.1\r\nhost: x\r\nx: \x01\r\n\r\n", 400},
        {"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n", 400},
        {"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 1x\r\n\r\n", 400},
        {"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length:\r\n\r\n", 400},
        {"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\n", 400},
        {"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n",
         400},
        {"POST /a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip, chunked\r\n\r\n", 501},
        {"POST /a HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n", 400},
        {CHUNKED("/a") "x\r\n", 400},
        {CHUNKED("/a") "\r\n", 400},
        {CHUNKED("/a") "1\r\nab\r\n", 400},
        {CHUNKED("/a") "1\nab", 400},
        {CHUNKED("/a") "-1\r\n", 400},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        print_message("%.60s\n", cases[i].request);
        expect_once(w, cases[i].request, cases[i].status, NULL);
    }
    static const char with_nul[] = "GET /a\0b HTTP/1.1\r\nhost: x\r\n\r\n";
    int fd = dial(w);
    say_bytes(fd, with_nul, sizeof with_nul - 1);
    expect_answer(fd, 400, NULL);
}

FIXTURE_TEST(random_bytes_do_no_harm) {
    static const char *const words[] = {"GET ",
                                        "/a",
                                        " HTTP/1.1",
                                        "\r\n",
                                        "\r\n\r\n",
                                        "host: x",
                                        "POST /",
                                        "\n",
                                        "chunked",
                                        "\r",
                                        ": ",
                                        "5\r\n",
                                        "%",
                                        "\xff",
                                        "0\r\n\r\n",
                                        "hello",
                                        "?q=",
                                        "//",
                                        "content-length: 5\r\n",
                                        "transfer-encoding: chunked\r\n"};
    unsigned random = 12345;
    for (int round = 0; round < 300; round++) {
        int fd = dial(w);
        for (int i = 0; i < 30; i++) {
            random = random * 1103515245 + 12345;
            if (!say(fd, words[(random >> 16) % (sizeof words / sizeof *words)])) break;
        }
        break_off(fd);
    }
    expect_once(w, GET("/b"), 200, "GET /b | b | q=(none) | x-test=(none)");
}

int main(void) { return run_listed_tests(); }
