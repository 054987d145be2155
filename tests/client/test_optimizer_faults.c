/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how the optimizer behaves when the server fails. Training goes on and never waits. The log
 * has one line for each cause. After the cause has ended, everything works again, and the GPU's
 * settings are restored. test_optimizer_local_faults.c tests failures of steps and GPUs. */
#include <netinet/in.h>
#include <sys/socket.h>

#include "client/optimizer_answers.h"
#include "client/training_world.h"

#define NO_SCHEDULES "no schedules for now"
#define BACK "the server is back"

/* ---- Attempts -------------------------------------------------------------------------------- */

void __real_harpe_reply_to_registration(harpe_connection *connection, const char *job_body,
                                        char *job_id, size_t size, harpe_reply *reply);
void __wrap_harpe_reply_to_registration(harpe_connection *connection, const char *job_body,
                                        char *job_id, size_t size, harpe_reply *reply);

static atomic_int attempts; /* to register a job */

void __wrap_harpe_reply_to_registration(harpe_connection *connection, const char *job_body,
                                        char *job_id, size_t size, harpe_reply *reply) {
    __real_harpe_reply_to_registration(connection, job_body, job_id, size, reply);
    atomic_fetch_add(&attempts, 1);
}

/* ---- No server ------------------------------------------------------------------------------- */

static void a_server_that_never_comes_is_one_line(void **state) {
    (void)state;
    training *one = start_training("http://127.0.0.1:9", 0, 1);
    WAIT_UNTIL(one, count_lines(one, NO_SCHEDULES) == 1);
    int before = atomic_load(&attempts);
    WAIT_UNTIL(one, atomic_load(&attempts) >= before + 4);
    assert_trains_on(one);
    assert_int_equal(look(one).state, HARPE_PFO_REGISTERING);
    assert_int_equal(look(one).round, -1);
    end_with_warnings(one, 1);
}

static void a_server_that_comes_late_is_found(void **state) {
    scratch *files = *state;
    write_plan(files->root, 1);
    server one = start_server(files->root, "jobs.db", 0, NULL);
    kill_server(&one);
    training *early = start_training(one.url, 0, 1);
    WAIT_UNTIL(early, count_lines(early, NO_SCHEDULES) == 1);
    one = start_server(files->root, "jobs.db", one.port, NULL);
    assert_reaches_round(early, 2);
    assert_int_equal(count_lines(early, BACK), 1);
    assert_int_equal(look(early).reconnects, 1);
    end_with_warnings(early, 1);
    kill_server(&one);
}

static void a_server_that_comes_back_goes_on_with_the_job(void **state) {
    scratch *files = *state;
    write_plan(files->root, 2);
    server one = start_server(files->root, "jobs.db", 0, NULL);
    training *ranks[] = {start_training(one.url, 0, 2), start_training(one.url, 1, 2)};
    assert_reaches_round(ranks[0], 1);
    harpe_pipeline_frequency_status before = look(ranks[0]);
    kill_server(&one);
    for (int r = 0; r < 2; r++) {
        WAIT_UNTIL(ranks[r], count_lines(ranks[r], NO_SCHEDULES) == 1);
        assert_trains_on(ranks[r]);
    }
    one = start_server(files->root, "jobs.db", one.port, NULL);
    for (int r = 0; r < 2; r++) {
        assert_reaches_round(ranks[r], before.round + 3);
        assert_string_equal(look(ranks[r]).job_id, before.job_id);
        assert_int_equal(count_lines(ranks[r], BACK), 1);
        end_with_warnings(ranks[r], 1);
    }
    kill_server(&one);
}

static void a_server_that_forgot_the_job_gets_it_anew(void **state) {
    scratch *files = *state;
    write_plan(files->root, 2);
    server one = start_server(files->root, "jobs.db", 0, NULL);
    training *ranks[] = {start_training(one.url, 0, 2), start_training(one.url, 1, 2)};
    assert_reaches_round(ranks[0], 1);
    time_t registered_s = time(NULL);
    kill_server(&one);
    for (int r = 0; r < 2; r++)
        WAIT_UNTIL(ranks[r], count_lines(ranks[r], NO_SCHEDULES) == 1);
    WAIT_UNTIL(ranks[0], time(NULL) > registered_s); /* a job of another second has another id */
    char before[256];
    snprintf(before, sizeof before, "%s", look(ranks[0]).job_id);
    one = start_server(files->root, "empty.db", one.port, NULL);
    for (int r = 0; r < 2; r++) {
        WAIT_UNTIL(ranks[r], count_lines(ranks[r], "registering again") == 1);
        WAIT_UNTIL(ranks[r], strcmp(look(ranks[r]).job_id, before) != 0 &&
                                 look(ranks[r]).job_id[0] && look(ranks[r]).round >= 1);
    }
    assert_string_equal(look(ranks[0]).job_id, look(ranks[1]).job_id);
    end_with_warnings(ranks[0], 2);
    end_with_warnings(ranks[1], 2);
    kill_server(&one);
}

/* ---- Servers that answer garbage ------------------------------------------------------------- */

typedef struct garbage {
    const char *name, *answer;
    size_t more; /* zero bytes follow */
} garbage;

typedef struct garbage_server {
    garbage kind;
    int listener, port;
    atomic_int answers;
    pthread_t thread;
} garbage_server;

static void answer_with_garbage(garbage_server *one, int peer) {
    static const char zeros[1 << 16];
    char request[4096];
    (void)!recv(peer, request, sizeof request, 0);
    atomic_fetch_add(&one->answers, 1);
    size_t left = one->kind.more;
    ssize_t sent = send(peer, one->kind.answer, strlen(one->kind.answer), MSG_NOSIGNAL);
    while (sent >= 0 && left > 0) {
        sent = send(peer, zeros, left < sizeof zeros ? left : sizeof zeros, MSG_NOSIGNAL);
        left -= sent > 0 ? (size_t)sent : 0;
    }
    close(peer);
}

static void *serve_garbage(void *user) {
    garbage_server *one = user;
    for (int peer; (peer = accept(one->listener, NULL, NULL)) >= 0;)
        answer_with_garbage(one, peer);
    return NULL;
}

static int listen_on_loopback(int *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    /* A real server takes over the port while old connections are still closing. */
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    assert_int_equal(bind(listener, (struct sockaddr *)&address, length), 0);
    assert_int_equal(listen(listener, 8), 0);
    getsockname(listener, (struct sockaddr *)&address, &length);
    *port = ntohs(address.sin_port);
    return listener;
}

static void start_garbage(garbage_server *one) {
    one->listener = listen_on_loopback(&one->port);
    assert_int_equal(pthread_create(&one->thread, NULL, serve_garbage, one), 0);
}

static void stop_garbage(garbage_server *one) {
    shutdown(one->listener, SHUT_RDWR);
    pthread_join(one->thread, NULL);
    close(one->listener);
}

static void garbage_is_one_line_and_a_real_server_is_welcome(void **state) {
    scratch *files = *state;
    static const garbage kinds[] = {
        {"wrong JSON", "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n{\"a\":[[}", 0},
        {"other JSON", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n42", 0},
        {"HTML", "HTTP/1.1 500 Oops\r\nContent-Length: 13\r\n\r\n<html></html>", 0},
        {"not found", "HTTP/1.1 404 No\r\nContent-Length: 13\r\n\r\n<html></html>", 0},
        {"half", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n\"2026", 0},
        {"nothing", "", 0},
        {"no HTTP", "SSH-2.0-OpenSSH_9.2\r\n", 0},
        {"huge", "HTTP/1.1 200 OK\r\n\r\n\"", 65 << 20},
    };
    write_plan(files->root, 1);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        garbage_server bad = {.kind = kinds[i]};
        char url[64], store[32];
        start_garbage(&bad);
        snprintf(url, sizeof url, "http://127.0.0.1:%d", bad.port);
        training *one = start_training(url, 0, 1);
        WAIT_UNTIL(one, atomic_load(&bad.answers) >= 3);
        assert_trains_on(one);
        stop_garbage(&bad);
        snprintf(store, sizeof store, "jobs-%zu.db", i);
        server good = start_server(files->root, store, bad.port, NULL);
        assert_reaches_round(one, 1);
        if (count_lines(one, NO_SCHEDULES) != 1) print_message("%s\n", kinds[i].name);
        assert_int_equal(count_lines(one, NO_SCHEDULES), 1);
        assert_int_equal(count_lines(one, BACK), 1);
        end_with_warnings(one, 1);
        kill_server(&good);
    }
}

/* ---- Servers that drip ----------------------------------------------------------------------- */

enum { DRIP_US = 10000 };

typedef struct dripping_server {
    const char *answer; /* one byte after the other, the last one again and again */
    int listener, port;
    atomic_int requests;
    pthread_t thread;
} dripping_server;

static void *drip(void *user) {
    dripping_server *one = user;
    char request[4096];
    for (int peer; (peer = accept(one->listener, NULL, NULL)) >= 0; close(peer)) {
        (void)!recv(peer, request, sizeof request, 0);
        atomic_fetch_add(&one->requests, 1);
        const char *next = one->answer;
        while (send(peer, next, 1, MSG_NOSIGNAL) == 1) {
            if (next[1]) next++;
            (void)usleep(DRIP_US);
        }
    }
    return NULL;
}

static void a_server_that_drips_is_one_line(void **state) {
    (void)state;
    static const char *const answers[] = {"HTTP/1.1 200 OOOO",
                                          "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n\" ",
                                          "HTTP/1.1 200 OK\r\n\r\n\" "};
    harpe_pipeline_timeouts times = short_pauses();
    times.answer_s = times.end_notice_s = 0.2;
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        dripping_server slow = {.answer = answers[i]};
        char url[64];
        slow.listener = listen_on_loopback(&slow.port);
        assert_int_equal(pthread_create(&slow.thread, NULL, drip, &slow), 0);
        snprintf(url, sizeof url, "http://127.0.0.1:%d", slow.port);
        training *one = new_training(url, 0, 1);
        construct_with(one, &times);
        assert_int_equal(pthread_create(&one->thread, NULL, train, one), 0);
        WAIT_UNTIL(one, atomic_load(&slow.requests) >= 3); /* two requests have ended */
        assert_int_equal(count_lines(one, NO_SCHEDULES), 1);
        assert_int_equal(count_lines(one, "timed out after"), 1);
        assert_trains_on(one);
        end_with_warnings(one, 1);
        shutdown(slow.listener, SHUT_RDWR);
        pthread_join(slow.thread, NULL);
        close(slow.listener);
    }
}

/* ---- Servers that say no --------------------------------------------------------------------- */

static void a_job_that_fails_on_the_server_keeps_training(void **state) {
    scratch *files = *state;
    write_plan(files->root, 2); /* two lists for a single rank */
    server one = start_server(files->root, "jobs.db", 0, NULL);
    training *rank = start_training(one.url, 0, 1);
    WAIT_UNTIL(rank, count_lines(rank, "the server answered 500") == 1);
    assert_trains_on(rank);
    end_with_warnings(rank, 1);
    kill_server(&one);
}

static void a_job_that_is_refused_turns_the_optimizer_off(void **state) {
    scratch *files = *state;
    write_plan(files->root, 2);
    setenv("HARPE_PFO_MAX_RANKS_PER_JOB", "1", 1);
    server one = start_server(files->root, "jobs.db", 0, NULL);
    unsetenv("HARPE_PFO_MAX_RANKS_PER_JOB");
    training *rank = start_training(one.url, 0, 2);
    WAIT_UNTIL(rank, look(rank).state == HARPE_PFO_OFF);
    assert_int_equal(harpe_pipeline_frequency_wait_for_round(rank->optimizer, 0, LIMIT_S, NULL),
                     HARPE_UNAVAILABLE);
    assert_trains_on(rank);
    assert_int_equal(count_lines(rank, "max_ranks_per_job"), 1);
    end_with_warnings(rank, 1);
    kill_server(&one);
}

static void a_server_that_wants_a_token_gets_it(void **state) {
    scratch *files = *state;
    char flag[600];
    const char *more[] = {flag, NULL};
    snprintf(flag, sizeof flag, "--token-file=%s", scratch_path(files, "token"));
    put_file(files->path, "open-sesame \r\n");
    write_plan(files->root, 1);
    server one = start_server(files->root, "jobs.db", 0, more);
    training *stranger = start_training(one.url, 0, 1);
    WAIT_UNTIL(stranger, count_lines(stranger, "HARPE_TOKEN") == 1);
    end_with_warnings(stranger, 1);
    training *friend = new_training(one.url, 0, 1);
    friend->options.token = " open-sesame\n";
    construct(friend);
    assert_int_equal(pthread_create(&friend->thread, NULL, train, friend), 0);
    assert_reaches_round(friend, 1);
    end_with_warnings(friend, 0);
    kill_server(&one);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_world, remove_world)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_server_that_never_comes_is_one_line),
        TEST(a_server_that_comes_late_is_found),
        TEST(a_server_that_comes_back_goes_on_with_the_job),
        TEST(a_server_that_forgot_the_job_gets_it_anew),
        TEST(garbage_is_one_line_and_a_real_server_is_welcome),
        TEST(a_server_that_drips_is_one_line),
        TEST(a_job_that_fails_on_the_server_keeps_training),
        TEST(a_job_that_is_refused_turns_the_optimizer_off),
        TEST(a_server_that_wants_a_token_gets_it),
    };
    return cmocka_run_group_tests(tests, start_machine, stop_machine);
}
