/* SPDX-License-Identifier: Apache-2.0 */
/* Trial schedules of a server, and requests that it holds for too long: a stand-in server that the
 * test controls, and an optimizer with short time limits. */
#include <netinet/in.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "client/training_world.h"

#define LEFT "only tried its clocks, back to the highest ones"
#define TRIAL_MHZ 900

static harpe_pipeline_timeouts long_timeouts(void) {
    harpe_pipeline_timeouts times = short_pauses();
    times.trial_alone_s = times.trial_stagnant_s = times.held_s = times.report_s = 1000;
    times.end_notice_s = 60;
    return times;
}

/* ---- A server that does as it is told -------------------------------------------------------- */

typedef struct told_server {
    atomic_int schedule_status; /* the answer of GET /schedule; 0: no answer */
    atomic_int conflicts;       /* number of requests that are first answered 409 */
    atomic_int schedules, results, ends;
    atomic_int end_status; /* the answer of POST /end; 0: 200; negative: no answer */
    int listener, port;
    atomic_int peer;
    char result[4096]; /* the last result; read it after `results` has grown */
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
    if (atomic_load(&one->conflicts) > 0) {
        answer(peer, 409, 0, "{\"detail\":\"rank 0 asked again: this request was replaced\"}");
        atomic_fetch_sub(&one->conflicts, 1);
    } else if (status == 200) {
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

/* Answers one request after another; each is in memory as a whole. */
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

/* Starts the server, and constructs the optimizer of its only rank. */
static training *construct_at(told_server *one, const harpe_pipeline_timeouts *timeouts) {
    char url[64];
    start_told(one, 0);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", one->port);
    training *rank = new_training(url, 0, 1);
    construct_with(rank, timeouts);
    return rank;
}

/* The same, and the rank trains. */
static training *start_at(told_server *one, const harpe_pipeline_timeouts *timeouts) {
    training *rank = construct_at(one, timeouts);
    assert_int_equal(pthread_create(&rank->thread, NULL, train, rank), 0);
    return rank;
}

static void end_at(told_server *one, training *rank) {
    end_training(rank);
    stop_told(one);
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

/* Returns a rank that runs a trial. */
static training *start_in_trial(told_server *one, const harpe_pipeline_timeouts *timeouts) {
    *one = (told_server){.schedule_status = 200};
    training *rank = start_at(one, timeouts);
    WAIT_UNTIL(rank, clock_mhz(0) == TRIAL_MHZ);
    return rank;
}

static void a_trial_ends_without_a_server_and_begins_again_with_one(void **state) {
    (void)state;
    harpe_pipeline_timeouts timeouts = long_timeouts();
    timeouts.trial_alone_s = 0.1;
    told_server one;
    training *rank = start_in_trial(&one, &timeouts);
    stop_told(&one);
    WAIT_UNTIL(rank, clock_mhz(0) == HIGHEST_MHZ);
    assert_int_equal(count_lines(rank, LEFT), 1);
    assert_trains_on(rank);
    assert_int_equal(clock_mhz(0), HIGHEST_MHZ);
    start_told(&one, one.port);
    WAIT_UNTIL(rank, clock_mhz(0) == TRIAL_MHZ);
    WAIT_UNTIL(rank, atomic_load(&one.results) > 2);
    assert_int_equal(count_lines(rank, LEFT), 1);
    /* log lines: the server is away, the trial has ended */
    assert_int_equal(count_warnings(rank), 2);
    end_at(&one, rank);
}

static void a_trial_ends_when_the_server_fails_or_refuses(void **state) {
    (void)state;
    harpe_pipeline_timeouts timeouts = long_timeouts();
    timeouts.trial_alone_s = 0.1;
    static const int statuses[] = {500, 422, 401};
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++) {
        told_server one;
        training *rank = start_in_trial(&one, &timeouts);
        atomic_store(&one.schedule_status, statuses[i]);
        WAIT_UNTIL(rank, count_lines(rank, LEFT) == 1);
        WAIT_UNTIL(rank, clock_mhz(0) == HIGHEST_MHZ);
        end_at(&one, rank);
    }
}

static void a_trial_ends_when_no_other_round_comes(void **state) {
    (void)state;
    harpe_pipeline_timeouts timeouts = long_timeouts();
    timeouts.trial_stagnant_s = 0.5;
    told_server one;
    training *rank = start_in_trial(&one, &timeouts);
    atomic_store(&one.schedule_status, 0);
    WAIT_UNTIL(rank, count_lines(rank, LEFT) == 1);
    WAIT_UNTIL(rank, clock_mhz(0) == HIGHEST_MHZ);
    assert_int_equal(look(rank).state, HARPE_PFO_WAITING);
    end_at(&one, rank);
}

/* Instructions that never end give no measurements, but they fit the schedule. */
static void run_unmeasurable_step(training *one) {
    harpe_pipeline_frequency_on_step_begin(one->optimizer);
    for (int i = 0; i < 4; i++)
        harpe_pipeline_frequency_on_instruction_begin(one->optimizer, step_of_4[i]);
    harpe_pipeline_frequency_on_step_end(one->optimizer);
}

static void a_trial_that_cannot_be_measured_ends_with_an_empty_result(void **state) {
    (void)state;
    harpe_pipeline_timeouts timeouts = long_timeouts();
    timeouts.trial_stagnant_s = 0.5;
    told_server one = {.schedule_status = 200};
    training *rank = construct_at(&one, &timeouts);
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
    end_at(&one, rank);
}

/* Runs a trial with two slow steps. Returns false if the machine was so slow that the steps may
 * have been too far apart. */
static bool keeps_a_trial(double stagnant_s) {
    harpe_pipeline_timeouts timeouts = long_timeouts();
    timeouts.trial_stagnant_s = stagnant_s;
    double most_s = 0.75 * stagnant_s;
    told_server one = {.schedule_status = 200};
    double begin_s = harpe_clock_s();
    training *rank = construct_at(&one, &timeouts);
    assert_reaches_round(rank, 0);
    bool is_in_time = true;
    for (int i = 0; i < 2; i++) {
        run_step(rank, step_of_4, 4);
        is_in_time = is_in_time && harpe_clock_s() - begin_s < most_s;
        begin_s = harpe_clock_s();
        pause_s(0.55 * stagnant_s); /* too short once, and too long twice */
    }
    is_in_time = is_in_time && harpe_clock_s() - begin_s < most_s;
    int left = count_lines(rank, LEFT);
    is_in_time = is_in_time && harpe_clock_s() - begin_s < most_s;
    if (is_in_time) assert_int_equal(left, 0);
    end_at(&one, rank);
    return is_in_time;
}

static void steps_that_are_measured_slowly_keep_a_trial(void **state) {
    (void)state;
    double stagnant_s = 0.8;
    while (!keeps_a_trial(stagnant_s)) {
        stagnant_s *= 2;
        assert_true(stagnant_s < LIMIT_S);
    }
}

/* ---- Held ------------------------------------------------------------------------------------ */

static void a_request_that_is_held_for_too_long_is_asked_again(void **state) {
    (void)state;
    harpe_pipeline_timeouts timeouts = long_timeouts();
    timeouts.held_s = 0.3;
    told_server one = {.schedule_status = 0};
    training *rank = start_at(&one, &timeouts);
    WAIT_UNTIL(rank, atomic_load(&one.schedules) >= 3);
    assert_int_equal(look(rank).state, HARPE_PFO_WAITING);
    atomic_store(&one.schedule_status, 200);
    assert_reaches_round(rank, 3);
    assert_int_equal(look(rank).reconnects, 0);
    assert_int_equal(count_warnings(rank), 0);
    end_at(&one, rank);
}

/* ---- Requests that contradict what the server knows ------------------------------------------ */

#define REPLACED "the server does not accept the request for a schedule"

/* Two processes that are the same rank of the same job replace each other's requests without end.
 * After a lost connection, a request may also be replaced by the next request of the same process.
 */
static void requests_that_are_refused_again_and_again_are_told_once(void **state) {
    (void)state;
    harpe_pipeline_timeouts timeouts = long_timeouts();
    for (int conflicts = 1; conflicts <= 7; conflicts++) {
        told_server one = {.schedule_status = 200, .conflicts = conflicts};
        training *rank = start_at(&one, &timeouts);
        assert_reaches_round(rank, 0);
        int told = conflicts >= 3;
        assert_int_equal(count_lines(rank, REPLACED), told);
        assert_int_equal(count_lines(rank, "rank 0 asked again"), told);
        assert_int_equal(count_warnings(rank), told);
        assert_trains_on(rank);
        atomic_store(&one.conflicts, 2); /* not repeatedly: a schedule arrived in between */
        int64_t round = look(rank).round;
        WAIT_UNTIL(rank, atomic_load(&one.conflicts) == 0);
        assert_reaches_round(rank, round + 2);
        assert_int_equal(count_warnings(rank), told);
        end_at(&one, rank);
    }
}

/* ---- No memory ------------------------------------------------------------------------------- */

harpe_followed_schedule *__real_harpe_followed_schedule_new(harpe_frequency_schedule *frequencies);
harpe_followed_schedule *__wrap_harpe_followed_schedule_new(harpe_frequency_schedule *frequencies);

static atomic_bool has_no_memory;
static atomic_int tries;

harpe_followed_schedule *__wrap_harpe_followed_schedule_new(harpe_frequency_schedule *frequencies) {
    if (!atomic_load(&has_no_memory)) return __real_harpe_followed_schedule_new(frequencies);
    atomic_fetch_add(&tries, 1);
    return NULL;
}

static void a_trial_that_cannot_be_left_for_want_of_memory_is_told_once(void **state) {
    (void)state;
    harpe_pipeline_timeouts timeouts = long_timeouts();
    timeouts.trial_alone_s = 0.1;
    told_server one;
    training *rank = start_in_trial(&one, &timeouts);
    atomic_store(&has_no_memory, true);
    atomic_store(&one.schedule_status, 422);
    WAIT_UNTIL(rank, atomic_load(&tries) >= 5);
    assert_int_equal(count_lines(rank, "no memory to leave"), 1);
    assert_int_equal(count_lines(rank, LEFT), 0);
    assert_trains_on(rank);
    atomic_store(&has_no_memory, false);
    WAIT_UNTIL(rank, clock_mhz(0) == HIGHEST_MHZ);
    WAIT_UNTIL(rank, count_lines(rank, LEFT) == 1);
    assert_int_equal(count_lines(rank, "no memory to leave"), 1);
    end_at(&one, rank);
}

/* ---- The end --------------------------------------------------------------------------------- */

static double end_with(told_server *one, int end_status, double end_notice_s) {
    *one = (told_server){.schedule_status = 200, .end_status = end_status};
    harpe_pipeline_timeouts timeouts = long_timeouts();
    timeouts.end_notice_s = end_notice_s;
    training *rank = start_at(one, &timeouts);
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
        (void)end_with(&one, statuses[i], 60);
        assert_int_equal(atomic_load(&one.ends), 1);
        assert_string_equal(one.result, "{\"rank\":0}");
    }
}

static void a_server_that_does_not_answer_the_end_delays_nobody(void **state) {
    (void)state;
    told_server one = {.ends = 0};
    double took_s = 0;
    /* A busy machine may need a second to send the notice. The request itself ends after
     * 30 s. */
    for (double limit_s = 0.25; limit_s <= 16 && (atomic_load(&one.ends) == 0 || took_s >= 25);
         limit_s *= 4)
        took_s = end_with(&one, -1, limit_s);
    assert_int_equal(atomic_load(&one.ends), 1);
    assert_true(took_s < 25);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trial_ends_without_a_server_and_begins_again_with_one),
        cmocka_unit_test(a_trial_ends_when_the_server_fails_or_refuses),
        cmocka_unit_test(a_trial_ends_when_no_other_round_comes),
        cmocka_unit_test(a_trial_that_cannot_be_measured_ends_with_an_empty_result),
        cmocka_unit_test(steps_that_are_measured_slowly_keep_a_trial),
        cmocka_unit_test(requests_that_are_refused_again_and_again_are_told_once),
        cmocka_unit_test(a_trial_that_cannot_be_left_for_want_of_memory_is_told_once),
        cmocka_unit_test(the_server_is_told_of_the_end),
        cmocka_unit_test(a_server_that_does_not_answer_the_end_delays_nobody),
        cmocka_unit_test(a_request_that_is_held_for_too_long_is_asked_again),
    };
    return cmocka_run_group_tests(tests, start_machine, stop_machine);
}
