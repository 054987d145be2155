/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how the optimizer behaves when its own machine fails: steps do not fit their schedule, or a
 * GPU is missing or cannot be controlled. Training goes on and never waits. The log has one line
 * for each cause. After the cause has ended, everything works again. */
#include "client/control.h"
#include "client/training_world.h"

/* ---- Attempts -------------------------------------------------------------------------------- */

harpe_status __real_harpe_frequency_controller_start_unless(
    const harpe_frequency_controller_options *options, const atomic_bool *gives_up,
    harpe_frequency_controller **out, harpe_error *error);
harpe_status __wrap_harpe_frequency_controller_start_unless(
    const harpe_frequency_controller_options *options, const atomic_bool *gives_up,
    harpe_frequency_controller **out, harpe_error *error);

static atomic_int starts; /* of a controller */

harpe_status __wrap_harpe_frequency_controller_start_unless(
    const harpe_frequency_controller_options *options, const atomic_bool *gives_up,
    harpe_frequency_controller **out, harpe_error *error) {
    harpe_status status =
        __real_harpe_frequency_controller_start_unless(options, gives_up, out, error);
    atomic_fetch_add(&starts, 1);
    return status;
}

/* ---- Steps that do not fit ------------------------------------------------------------------- */

WORLD_TEST(evaluation_steps_are_one_line_and_rounds_go_on) {
    server *one = start_server(files, 1);
    training *rank = new_training(one->url, 0, 1);
    rank->evaluate_every = 2;
    begin_training(rank);
    assert_reaches_round(rank, 3);
    WAIT_UNTIL(rank, look(rank).misfits > 3);
    assert_int_equal(count_lines(rank, "instruction 2 is 'forward' where 'backward'"), 1);
    end_with_warnings(rank, 1);
}

typedef struct odd_step {
    const char *names[6];
    size_t count;
    const char *message;
} odd_step;

static const odd_step odd_steps[] = {
    {{"forward", "forward", "backward"}, 3, "it ended after 3 instructions, before 'backward'"},
    {{"forward", "forward", "backward", "backward", "forward"}, 5, "'forward', is one too many"},
    {{"forward", "vorwaerts", "backward", "backward"}, 4, "'vorwaerts' where 'forward'"},
    {{"forward", NULL, "backward", "backward"}, 4, "an instruction has no name"},
};

WORLD_TEST(steps_that_never_fit_hold_up_no_round) {
    for (size_t i = 0; i < sizeof odd_steps / sizeof odd_steps[0]; i++) {
        server *one = start_server(files, 1);
        training *rank = new_training(one->url, 0, 1);
        rank->step = odd_steps[i].names;
        rank->step_length = odd_steps[i].count;
        begin_training(rank);
        WAIT_UNTIL(rank, look(rank).misfits > 5);
        WAIT_UNTIL(rank, count_lines(rank, odd_steps[i].message) == 1);
        assert_reaches_round(rank, 2);
        end_with_warnings(rank, 1);
        kill_server(one);
    }
}

/* The steps have four instructions, but the scheduler expects eight. */
WORLD_TEST(a_wrong_number_of_microbatches_is_told_by_the_server) {
    char arguments[256];
    snprintf(arguments, sizeof arguments,
             "{\"schedule\":\"1f1b\",\"num_microbatches\":4,\"profile_path\":\"%s/profile.csv\"}",
             files->root);
    const char *const more[][2] = {
        {"scheduler", "InstructionProfiler"}, {"scheduler_args", arguments}, {NULL, NULL}};
    server *one = start_server_with(files, more);
    training *rank = start_training(one->url, 0, 1);
    WAIT_UNTIL(rank, count_lines(rank, "the server answered 500") == 1);
    assert_int_equal(count_lines(rank, "ran 'forward' 2 times in an iteration"), 1);
    assert_trains_on(rank);
    end_training(rank);
}

WORLD_TEST(strict_mode_tells_the_caller) {
    server *one = start_server(files, 1);
    training *rank = new_training(one->url, 0, 1);
    rank->options.is_strict = true;
    construct(rank);
    assert_reaches_round(rank, 0);
    for (size_t i = 0; i < sizeof odd_steps / sizeof odd_steps[0]; i++) {
        run_step(rank, step_of_4, 4);
        assert_works(harpe_pipeline_frequency_check(rank->optimizer, &failure));
        run_step(rank, odd_steps[i].names, odd_steps[i].count);
        assert_refuses(harpe_pipeline_frequency_check(rank->optimizer, &failure),
                       HARPE_INVALID_INPUT, odd_steps[i].message);
        assert_works(harpe_pipeline_frequency_check(rank->optimizer, &failure));
    }
    end_training(rank);
}

/* ---- GPUs ------------------------------------------------------------------------------------ */

WORLD_TEST(permission_that_comes_late_is_used) {
    server *one = start_server(files, 1);
    use_faults("no_permission");
    training *rank = start_training(one->url, 0, 1);
    assert_int_equal(count_lines(rank, "clocks are not controlled"), 1);
    assert_reaches_round(rank, 2);
    int before = atomic_load(&starts);
    WAIT_UNTIL(rank, atomic_load(&starts) >= before + 2); /* they are not logged */
    use_faults("");
    WAIT_UNTIL(rank, count_lines(rank, "clocks are controlled again") == 1);
    WAIT_UNTIL(rank, look(rank).controller.clock_requests > 0);
    end_with_warnings(rank, 1);
}

WORLD_TEST(without_a_gpu_times_are_measured) {
    server *one = start_server(files, 1);
    training *rank = new_training(one->url, 0, 1);
    rank->options.device_id = 7;
    begin_training(rank);
    assert_reaches_round(rank, 2);
    assert_int_equal(count_lines(rank, "there is no GPU 7"), 1);
    rank->options.device_id = 0; /* its settings have not changed */
    end_with_warnings(rank, 1);
}

WORLD_TEST(without_an_energy_counter_rounds_go_on) {
    server *one = start_server(files, 1);
    use_faults("no_energy_counter");
    training *rank = start_training(one->url, 0, 1);
    assert_reaches_round(rank, 2);
    end_training(rank);
}

WORLD_TEST(strict_mode_wants_its_gpu) {
    training *rank = new_training(NOBODY, 0, 1);
    rank->options.is_strict = true;
    rank->options.device_id = 7;
    assert_refuses(harpe_pipeline_frequency_new(&rank->options, &rank->optimizer, &failure),
                   HARPE_NOT_FOUND, "there is no GPU 7");
    free(rank);
}

WORLD_TEST(a_killed_controller_is_replaced) {
    server *one = start_server(files, 1);
    training *rank = start_training(one->url, 0, 1);
    assert_reaches_round(rank, 1);
    pid_t controller = find_controller();
    assert_true(controller > 0);
    harpe_world_kill(controller);
    WAIT_UNTIL(rank, count_lines(rank, "clocks are not controlled") == 1);
    WAIT_UNTIL(rank, count_lines(rank, "clocks are controlled again") == 1);
    uint64_t written = look(rank).controller.written;
    WAIT_UNTIL(rank, look(rank).controller.written > written);
    assert_reaches_round(rank, look(rank).round + 2);
    end_with_warnings(rank, 1);
}

/* The process stands still, like a controller whose driver hangs. */
WORLD_TEST(a_controller_that_does_not_answer_does_not_hold_up_the_end) {
    use_faults("no_permission");
    training *rank = start_training(NOBODY, 0, 1);
    assert_int_equal(count_lines(rank, "clocks are not controlled"), 1);
    int64_t until_ns = harpe_clock_ns() + INT64_C(1000000000000);
    use_faults("slow_set=1000000");
    WAIT_UNTIL(rank, find_controller() >= 0);
    harpe_world_stall(find_controller(), until_ns);
    stop_steps(rank);
    harpe_pipeline_frequency_free(rank->optimizer);
    assert_true(harpe_clock_ns() < until_ns / 2);
    assert_false(rank->has_waited);
    free(rank);
}
