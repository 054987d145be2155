/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules that a server only tries, and requests that it holds for too long: a stand-in server
 * that does as it is told, and an optimizer with little patience. */
#include <netinet/in.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "client/optimizer_parts.h"
#include "client/training_world.h"

#define LEFT "only tried its clocks, back to the highest ones"
#define TRIAL_MHZ 900

static const harpe_pipeline_patience all_patience = {1000, 1000, 1000, 1000};

/* ---- A server that does as it is told -------------------------------------------------------- */

typedef struct told_server {
    atomic_int schedule_status; /* what GET /schedule answers; 0: nothing, for ever */
    atomic_int schedules, results, ends;
    atomic_int end_status; /* what POST /end answers; 0: 200; negative: nothing, for ever */
    int listener, port;
    atomic_int peer;
    char result[4096]; /* the last; read it once `results` has grown */
    pthread_t thread;
} told_server;

static void answer(int peer, int status, int round, const char *body) {
    char text[1024];
    int length = snprintf(text, sizeof text,
                          "HTTP/1.1 %d Told\r\nContent-Length: %zu\r\nHarpe-Round: %d\r\n\r\n%s",
                          status, strlen(body), round, body);
    (void)!send(peer, text, (size_t)length, MSG_NOSIGNAL);
}

static void answer_schedule(told_server *one, int peer) {
    static const char trial[] = "{\"rank\":0,\"frequencies\":[[\"forward\",900],[\"forward\",900],"
                                "[\"backward\",900],[\"backward\",900]],\"trial\":true}";
    int status = atomic_load(&one->schedule_status);
    if (status == 200) {
        answer(peer, 200, atomic_fetch_add(&one->schedules, 1), trial);
    } else if (status > 0) {
        answer(peer, status, 0, "{\"detail\":\"as told\"}");
    } else {
        atomic_fetch_add(&one->schedules, 1);
    }
}

static void answer_request(told_server *one, int peer, const char *request, const char *body) {
    if (strncmp(request, "POST /register_job", 18) == 0) {
        answer(peer, 200, 0, "\"job\"");
    } else if (strncmp(request, "GET /schedule", 13) == 0) {
        answer_schedule(one, peer);
    } else {
        if (strncmp(request, "POST /result", 12) == 0) {
            snprintf(one->result, sizeof one->result, "%s", body);
            atomic_fetch_add(&one->results, 1);
        }
        if (strncmp(request, "POST /end/job ", 14) == 0) {
            int status = atomic_load(&one->end_status);
            snprintf(one->result, sizeof one->result, "%s", body);
            atomic_fetch_add(&one->ends, 1);
            if (status > 0) answer(peer, status, 0, "{\"detail\":\"Not Found\"}");
            if (status != 0) return;
        }
        answer(peer, 200, 0, "null");
    }
}

/* One request after the other; each is in memory as a whole. */
static void serve_peer(told_server *one, int peer) {
    char request[16384];
    size_t length = 0;
    for (;;) {
        ssize_t got = recv(peer, request + length, sizeof request - 1 - length, 0);
        if (got <= 0) return;
        length += (size_t)got;
        request[length] = '\0';
        const char *body = strstr(request, "\r\n\r\n");
        const char *size = strcasestr(request, "content-length:");
        if (!body) continue;
        body += 4;
        if (size && size < body && strlen(body) < strtoul(size + 15, NULL, 10)) continue;
        answer_request(one, peer, request, body);
        length = 0;
    }
}

static void *serve(void *user) {
    told_server *one = user;
    for (int peer; (peer = accept(one->listener, NULL, NULL)) >= 0;) {
        atomic_store(&one->peer, peer);
        serve_peer(one, peer);
        atomic_store(&one->peer, -1);
        close(peer);
    }
    return NULL;
}

/* Port 0: any. */
static void start_told(told_server *one, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    one->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    one->peer = -1;
    setsockopt(one->listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    assert_int_equal(bind(one->listener, (struct sockaddr *)&address, length), 0);
    assert_int_equal(listen(one->listener, 8), 0);
    getsockname(one->listener, (struct sockaddr *)&address, &length);
    one->port = ntohs(address.sin_port);
    assert_int_equal(pthread_create(&one->thread, NULL, serve, one), 0);
}

static void stop_told(told_server *one) {
    shutdown(one->listener, SHUT_RDWR);
    int peer = atomic_load(&one->peer);
    if (peer >= 0) shutdown(peer, SHUT_RDWR);
    pthread_join(one->thread, NULL);
    close(one->listener);
}

/* ---- A training that trusts it --------------------------------------------------------------- */

static training *construct_at(const told_server *one, const harpe_pipeline_patience *patience) {
    char url[64];
    harpe_error error;
    snprintf(url, sizeof url, "http://127.0.0.1:%d", one->port);
    training *rank = new_training(url, 0, 1);
    harpe_status status =
        harpe_pipeline_new_with(&rank->options, patience, &rank->optimizer, &error);
    if (status) print_error("%s\n", error.message);
    assert_int_equal(status, HARPE_OK);
    return rank;
}

static training *start_at(const told_server *one, const harpe_pipeline_patience *patience) {
    training *rank = construct_at(one, patience);
    assert_int_equal(pthread_create(&rank->thread, NULL, train, rank), 0);
    return rank;
}

static int clock_mhz(int gpu) {
    harpe_gpus *gpus = NULL;
    harpe_gpus_options all = {.visible_devices = "all"};
    uint32_t graphics_mhz = 0;
    assert_int_equal(harpe_gpus_open(&all, &gpus, NULL), HARPE_OK);
    assert_int_equal(harpe_gpu_current_clocks(gpus, gpu, &graphics_mhz, NULL, NULL), HARPE_OK);
    harpe_gpus_close(gpus);
    return (int)graphics_mhz;
}

/* ---- Trials ---------------------------------------------------------------------------------- */

static void a_trial_ends_without_a_server_and_begins_again_with_one(void **state) {
    (void)state;
    harpe_pipeline_patience patience = all_patience;
    patience.trial_alone_s = 0.5;
    told_server one = {.schedule_status = 200};
    start_told(&one, 0);
    training *rank = start_at(&one, &patience);
    WAIT_UNTIL(rank, clock_mhz(0) == TRIAL_MHZ);
    stop_told(&one);
    WAIT_UNTIL(rank, clock_mhz(0) == HIGHEST_MHZ);
    assert_int_equal(count_lines(rank, LEFT), 1);
    assert_trains_on(rank);
    assert_int_equal(clock_mhz(0), HIGHEST_MHZ);
    start_told(&one, one.port);
    WAIT_UNTIL(rank, clock_mhz(0) == TRIAL_MHZ);
    WAIT_UNTIL(rank, atomic_load(&one.results) > 2);
    assert_int_equal(count_lines(rank, LEFT), 1);
    assert_int_equal(count_warnings(rank), 2); /* that the server is away, that the trial ended */
    end_training(rank);
    stop_told(&one);
}

static void a_trial_ends_when_the_server_fails_or_refuses(void **state) {
    (void)state;
    harpe_pipeline_patience patience = all_patience;
    patience.trial_alone_s = 0.5;
    static const int statuses[] = {500, 422, 401};
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++) {
        told_server one = {.schedule_status = 200};
        start_told(&one, 0);
        training *rank = start_at(&one, &patience);
        WAIT_UNTIL(rank, clock_mhz(0) == TRIAL_MHZ);
        atomic_store(&one.schedule_status, statuses[i]);
        WAIT_UNTIL(rank, count_lines(rank, LEFT) == 1);
        WAIT_UNTIL(rank, clock_mhz(0) == HIGHEST_MHZ);
        end_training(rank);
        stop_told(&one);
    }
}

static void a_trial_ends_when_no_other_round_comes(void **state) {
    (void)state;
    harpe_pipeline_patience patience = all_patience;
    patience.trial_stagnant_s = 0.5;
    told_server one = {.schedule_status = 200};
    start_told(&one, 0);
    training *rank = start_at(&one, &patience);
    WAIT_UNTIL(rank, clock_mhz(0) == TRIAL_MHZ);
    atomic_store(&one.schedule_status, 0);
    WAIT_UNTIL(rank, count_lines(rank, LEFT) == 1);
    WAIT_UNTIL(rank, clock_mhz(0) == HIGHEST_MHZ);
    assert_int_equal(look(rank).state, HARPE_PFO_WAITING);
    end_training(rank);
    stop_told(&one);
}

/* Instructions that are never ended leave nothing to measure; they do fit. */
static void run_unmeasurable_step(training *one) {
    harpe_pipeline_frequency_on_step_begin(one->optimizer);
    for (int i = 0; i < 4; i++) {
        harpe_pipeline_frequency_on_instruction_begin(one->optimizer, step_of_4[i]);
    }
    harpe_pipeline_frequency_on_step_end(one->optimizer);
}

static void a_trial_that_cannot_be_measured_ends_with_an_empty_result(void **state) {
    (void)state;
    harpe_pipeline_patience patience = all_patience;
    patience.trial_stagnant_s = 0.5;
    told_server one = {.schedule_status = 200};
    start_told(&one, 0);
    training *rank = construct_at(&one, &patience);
    assert_reaches_round(rank, 0);
    atomic_store(&one.schedule_status, 0);
    WAIT_UNTIL(rank, (run_unmeasurable_step(rank), atomic_load(&one.results) == 1));
    assert_int_equal(count_lines(rank, LEFT), 1);
    harpe_profiling_result result = {0};
    assert_int_equal(harpe_profiling_result_parse(one.result, strlen(one.result), &result, NULL),
                     HARPE_OK);
    assert_int_equal(result.iteration_time_count, 0);
    assert_int_equal(result.time_breakdown_count, 0);
    harpe_profiling_result_free(&result);
    end_training(rank);
    stop_told(&one);
}

static void steps_that_are_measured_slowly_keep_a_trial(void **state) {
    (void)state;
    harpe_pipeline_patience patience = all_patience;
    patience.trial_stagnant_s = 6;
    told_server one = {.schedule_status = 200};
    start_told(&one, 0);
    training *rank = construct_at(&one, &patience);
    assert_reaches_round(rank, 0);
    run_step(rank, step_of_4, 4);
    pause_s(3.3);
    run_step(rank, step_of_4, 4);
    pause_s(3.3); /* each pause is nearly 3 s too short */
    assert_int_equal(count_lines(rank, LEFT), 0);
    end_training(rank);
    stop_told(&one);
}

/* ---- Held ------------------------------------------------------------------------------------ */

static void a_request_that_is_held_for_too_long_is_asked_again(void **state) {
    (void)state;
    harpe_pipeline_patience patience = all_patience;
    patience.held_s = 0.3;
    told_server one = {.schedule_status = 0};
    start_told(&one, 0);
    training *rank = start_at(&one, &patience);
    WAIT_UNTIL(rank, atomic_load(&one.schedules) >= 3);
    assert_int_equal(look(rank).state, HARPE_PFO_WAITING);
    atomic_store(&one.schedule_status, 200);
    assert_reaches_round(rank, 3);
    assert_int_equal(look(rank).reconnects, 0);
    assert_int_equal(count_warnings(rank), 0);
    end_training(rank);
    stop_told(&one);
}

/* ---- The end --------------------------------------------------------------------------------- */

static double end_with(told_server *one, int end_status) {
    *one = (told_server){.schedule_status = 200, .end_status = end_status};
    start_told(one, 0);
    training *rank = start_at(one, &all_patience);
    assert_reaches_round(rank, 1);
    atomic_store(&one->schedule_status, 0); /* and the next request is held */
    WAIT_UNTIL(rank, look(rank).state == HARPE_PFO_WAITING);
    stop_steps(rank);
    assert_int_equal(count_warnings(rank), 0);
    double begin_s = harpe_clock_s();
    harpe_pipeline_frequency_free(rank->optimizer);
    double took_s = harpe_clock_s() - begin_s;
    pthread_mutex_destroy(&rank->lock);
    free(rank);
    stop_told(one);
    return took_s;
}

static void the_server_is_told_of_the_end(void **state) {
    (void)state;
    told_server one;
    static const int statuses[] = {0, 404, 405, 500};
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++) {
        (void)end_with(&one, statuses[i]);
        assert_int_equal(atomic_load(&one.ends), 1);
        assert_string_equal(one.result, "{\"rank\":0}");
    }
}

static void a_server_that_does_not_answer_the_end_delays_nobody(void **state) {
    (void)state;
    told_server one;
    double took_s = end_with(&one, -1);
    assert_int_equal(atomic_load(&one.ends), 1);
    assert_true(took_s < 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trial_ends_without_a_server_and_begins_again_with_one),
        cmocka_unit_test(a_trial_ends_when_the_server_fails_or_refuses),
        cmocka_unit_test(a_trial_ends_when_no_other_round_comes),
        cmocka_unit_test(a_trial_that_cannot_be_measured_ends_with_an_empty_result),
        cmocka_unit_test(steps_that_are_measured_slowly_keep_a_trial),
        cmocka_unit_test(the_server_is_told_of_the_end),
        cmocka_unit_test(a_server_that_does_not_answer_the_end_delays_nobody),
        cmocka_unit_test(a_request_that_is_held_for_too_long_is_asked_again),
    };
    return cmocka_run_group_tests(tests, start_machine, stop_machine);
}
