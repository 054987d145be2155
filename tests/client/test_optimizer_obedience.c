/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU that has another clock than the optimizer has set: its steps are not measured, the log says
 * so once, the server's report says how many steps it were, and the rounds go on all the same. */
#include <jansson.h>

#include "client/control.h"
#include "client/training_world.h"
#include "http/client/connection.h"

OWNER(harpe_connection)

#define DISOBEYS "GPU 0 runs at 600 MHz although 1200 MHz are set"

/* Locks the clock of the GPU, as another program could. */
static void lock_clock(uint32_t mhz) {
    harpe_gpus *gpus = NULL;
    assert_works(harpe_gpus_open(NULL, &gpus, &failure));
    assert_works(harpe_gpu_lock_graphics_clocks(gpus, 0, mhz, mhz, &failure));
    harpe_gpus_close(gpus);
}

/* Runs a step that takes long enough for the controller to look at the clock. */
static void run_long_step(training *one) {
    harpe_pipeline_frequency_on_step_begin(one->optimizer);
    for (int i = 0; i < 4; i++) {
        harpe_pipeline_frequency_on_instruction_begin(one->optimizer, step_of_4[i]);
        pause_s(0.006); /* more than the time between two looks */
        harpe_pipeline_frequency_on_instruction_end(one->optimizer, step_of_4[i]);
    }
    harpe_pipeline_frequency_on_step_end(one->optimizer);
}

static uint64_t spoiled(training *one) {
    return harpe_pipeline_frequency_spoiled_steps(one->optimizer);
}

/* Runs steps until the optimizer has a schedule of this round. Returns their number. */
static int run_until_round(training *one, int64_t round) {
    int steps = 0;
    double end_s = harpe_clock_s() + LIMIT_S;
    while (harpe_pipeline_frequency_get_status(one->optimizer).round < round) {
        assert_true(harpe_clock_s() < end_s);
        run_long_step(one);
        steps++;
    }
    return steps;
}

/* Returns a part of the server's report of the job. */
static json_t *read_report(training *one, const char *url, const char *part) {
    OWNED(harpe_connection) connection = NULL;
    harpe_connection_options how = {.server_url = url};
    assert_works(harpe_connection_new(&how, &connection, &failure));
    char job_id[256];
    snprintf(job_id, sizeof job_id, "%s",
             harpe_pipeline_frequency_get_status(one->optimizer).job_id);
    harpe_request request = {.path = "/jobs/", .segment = job_id};
    harpe_answer answer;
    assert_works(harpe_connection_call(connection, &request, &answer, &failure));
    assert_int_equal(answer.http_status, 200);
    json_t *job = json_loadb(answer.body, answer.length, 0, NULL);
    json_t *found = json_object_get(json_object_get(job, "report"), part);
    assert_non_null(found);
    json_incref(found);
    json_decref(job);
    return found;
}

static json_int_t count_of(const json_t *object, const char *name) {
    const json_t *value = json_object_get(object, name);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

/* Everything ran as planned. */
static void check_obedient(training *one, const char *url) {
    json_t *steps = read_report(one, url, "steps");
    assert_true(count_of(steps, "run") > 0);
    assert_int_equal(count_of(steps, "as_planned"), count_of(steps, "run"));
    assert_int_equal(count_of(steps, "disobeyed"), 0);
    assert_int_equal(count_of(steps, "left_out"), 0);
    assert_true(json_is_null(json_object_get(steps, "disobedience")));
    json_decref(steps);
    json_t *rounds = read_report(one, url, "rounds");
    assert_int_equal(count_of(rounds, "disobeyed"), 0);
    json_decref(rounds);
}

/* The reports of at least three rounds have the steps of the disobedient GPU. */
static void check_disobedient(training *one, const char *url) {
    json_t *steps = read_report(one, url, "steps");
    assert_in_range(count_of(steps, "disobeyed"), 3, count_of(steps, "run"));
    assert_int_equal(count_of(steps, "as_planned"),
                     count_of(steps, "run") - count_of(steps, "disobeyed"));
    assert_in_range(count_of(steps, "left_out"), 3, count_of(steps, "disobeyed"));
    json_t *clocks = json_object_get(steps, "disobedience");
    assert_int_equal(count_of(clocks, "rank"), 0);
    assert_int_equal(count_of(clocks, "wanted_mhz"), 1200);
    assert_int_equal(count_of(clocks, "held_mhz"), 600);
    json_decref(steps);
    json_t *rounds = read_report(one, url, "rounds");
    assert_in_range(count_of(rounds, "disobeyed"), 2, count_of(rounds, "observed"));
    assert_true(count_of(rounds, "spoiled") >= count_of(rounds, "disobeyed"));
    json_decref(rounds);
}

/* Runs steps until the server's report has enough of them for check_disobedient. A busy machine
 * looks less often. */
static void run_until_reported(training *one, const char *url) {
    double end_s = harpe_clock_s() + LIMIT_S;
    for (bool is_enough = false; !is_enough;) {
        assert_true(harpe_clock_s() < end_s);
        run_long_step(one);
        json_t *steps = read_report(one, url, "steps");
        json_t *rounds = read_report(one, url, "rounds");
        is_enough = count_of(steps, "disobeyed") >= 3 && count_of(steps, "left_out") >= 3 &&
                    count_of(rounds, "disobeyed") >= 2;
        json_decref(steps);
        json_decref(rounds);
    }
}

/* Runs steps until a look at the clock has shown that the GPU obeys, and one more, because earlier
 * looks count for the present step. */
static void run_until_obedient(training *one) {
    const harpe_frequency_controller *controller = atomic_load(&one->optimizer->controller);
    uint64_t looks = harpe_frequency_controller_obeys(controller).looks;
    harpe_frequency_controller_obedience seen;
    double end_s = harpe_clock_s() + LIMIT_S;
    do {
        assert_true(harpe_clock_s() < end_s);
        run_long_step(one);
        seen = harpe_frequency_controller_obeys(controller);
    } while (seen.disobeys || seen.looks < looks + 2);
    run_long_step(one);
}

/* The server knows the energy per token after the next result. */
static void check_tokens(training *one, const char *url) {
    assert_int_equal(harpe_pipeline_frequency_set_tokens_per_step(one->optimizer, -1, &failure),
                     HARPE_INVALID_ARGUMENT);
    assert_int_equal(
        harpe_pipeline_frequency_set_tokens_per_step(one->optimizer, 1000000001, &failure),
        HARPE_INVALID_ARGUMENT);
    json_t *tokens = read_report(one, url, "per_token");
    assert_true(json_is_null(tokens));
    json_decref(tokens);
    assert_works(harpe_pipeline_frequency_set_tokens_per_step(one->optimizer, 512, &failure));
    int64_t round = harpe_pipeline_frequency_get_status(one->optimizer).round;
    (void)run_until_round(one, round + 2);
    tokens = read_report(one, url, "per_token");
    assert_int_equal(count_of(tokens, "tokens_per_step"), 512);
    assert_true(json_number_value(json_object_get(tokens, "energy")) > 0);
    json_decref(tokens);
}

WORLD_TEST(rounds_go_on_on_a_gpu_that_does_not_obey) {
    /* The controller sets the only clock of this plan only once. */
    put_file(scratch_path(files, "plan.py"),
             "[[('forward', 1200), ('forward', 0), ('backward', 0), ('backward', 0)]]\n");
    server *host = start_server_with(files, NULL);
    training *one = new_training(host->url, 0, 1);
    construct(one);
    let_gpu_work(0, true); /* a GPU without work shows nothing */
    (void)run_until_round(one, 2);
    assert_int_equal(spoiled(one), 0);
    assert_int_equal(count_warnings(one), 0);
    check_obedient(one, host->url);

    lock_clock(600);
    double begin_s = harpe_clock_s();
    int64_t round = harpe_pipeline_frequency_get_status(one->optimizer).round;
    (void)run_until_round(one, round + 3);
    run_until_reported(one, host->url);
    /* At most ten steps of each round are left out. A busy machine looks less often. */
    int64_t rounds = harpe_pipeline_frequency_get_status(one->optimizer).round - round + 1;
    assert_in_range(spoiled(one), 3, 10 * rounds);
    WAIT_UNTIL(one, count_lines(one, DISOBEYS) >= 1);
    int told = count_warnings(one);
    assert_int_equal(count_lines(one, DISOBEYS), told);
    assert_in_range(told, 1, 1 + (int)((harpe_clock_s() - begin_s) / 60)); /* once a minute */
    check_disobedient(one, host->url);
    check_tokens(one, host->url);

    lock_clock(1200);
    run_until_obedient(one);
    uint64_t before = spoiled(one);
    round = harpe_pipeline_frequency_get_status(one->optimizer).round;
    (void)run_until_round(one, round + 2);
    assert_int_equal(spoiled(one), before);
    check_disobedient(one, host->url); /* the clocks of the time when it did not obey */
    let_gpu_work(0, false);
    harpe_pipeline_frequency_free(one->optimizer);
    free(one);
}

WORLD_TEST(a_clock_within_the_range_holds) {
    assert_true(harpe_obedience_holds(1200, 1200, 1200));
    assert_true(harpe_obedience_holds(1185, 1200, 1200)); /* clocks have steps of 15 MHz */
    assert_true(harpe_obedience_holds(1215, 1200, 1200));
    assert_true(harpe_obedience_holds(1000, 900, 1200)); /* during a change */
    assert_false(harpe_obedience_holds(1170, 1200, 1200));
    assert_false(harpe_obedience_holds(1230, 1200, 1200));
    assert_false(harpe_obedience_holds(870, 900, 1200));
    assert_false(harpe_obedience_holds(0, 900, 1200));
}
