/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how the optimizer behaves when its own machine fails: steps do not fit their schedule, or a
 * GPU is missing or cannot be controlled. Training goes on and never waits. The log has one line
 * for each cause. After the cause has ended, everything works again. */
#include <dirent.h>
#include <sys/stat.h>

#include "client/controller.h"
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

static void evaluation_steps_are_one_line_and_rounds_go_on(void **state) {
    scratch *files = *state;
    write_plan(files->root, 1);
    server one = start_server(files->root, "jobs.db", 0, NULL);
    training *rank = new_training(one.url, 0, 1);
    rank->evaluate_every = 2;
    construct(rank);
    assert_int_equal(pthread_create(&rank->thread, NULL, train, rank), 0);
    assert_reaches_round(rank, 3);
    WAIT_UNTIL(rank, look(rank).misfits > 3);
    assert_int_equal(count_lines(rank, "instruction 2 is 'forward' where 'backward'"), 1);
    end_with_warnings(rank, 1);
    kill_server(&one);
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

static void steps_that_never_fit_hold_up_no_round(void **state) {
    scratch *files = *state;
    write_plan(files->root, 1);
    for (size_t i = 0; i < sizeof odd_steps / sizeof odd_steps[0]; i++) {
        char store[32];
        snprintf(store, sizeof store, "jobs-%zu.db", i);
        server one = start_server(files->root, store, 0, NULL);
        training *rank = new_training(one.url, 0, 1);
        rank->step = odd_steps[i].names;
        rank->step_length = odd_steps[i].count;
        construct(rank);
        assert_int_equal(pthread_create(&rank->thread, NULL, train, rank), 0);
        WAIT_UNTIL(rank, look(rank).misfits > 5);
        WAIT_UNTIL(rank, count_lines(rank, odd_steps[i].message) == 1);
        assert_reaches_round(rank, 2);
        end_with_warnings(rank, 1);
        kill_server(&one);
    }
}

/* The steps have four instructions, but the scheduler expects eight. */
static void a_wrong_number_of_microbatches_is_told_by_the_server(void **state) {
    scratch *files = *state;
    static const char *const more[] = {
        "--scheduler=InstructionProfiler",
        "--scheduler-args={\"schedule\":\"1f1b\",\"num_microbatches\":4}", NULL};
    write_plan(files->root, 1);
    server one = start_server(files->root, "jobs.db", 0, more);
    training *rank = start_training(one.url, 0, 1);
    WAIT_UNTIL(rank, count_lines(rank, "the server answered 500") == 1);
    assert_int_equal(count_lines(rank, "ran 'forward' 2 times in an iteration"), 1);
    assert_trains_on(rank);
    end_training(rank);
    kill_server(&one);
}

static void strict_mode_tells_the_caller(void **state) {
    scratch *files = *state;
    write_plan(files->root, 1);
    server one = start_server(files->root, "jobs.db", 0, NULL);
    training *rank = new_training(one.url, 0, 1);
    rank->options.is_strict = true;
    construct(rank);
    assert_reaches_round(rank, 0);
    for (size_t i = 0; i < sizeof odd_steps / sizeof odd_steps[0]; i++) {
        harpe_error error = {.message = ""};
        run_step(rank, step_of_4, 4);
        assert_int_equal(harpe_pipeline_frequency_check(rank->optimizer, &error), HARPE_OK);
        run_step(rank, odd_steps[i].names, odd_steps[i].count);
        assert_int_equal(harpe_pipeline_frequency_check(rank->optimizer, &error),
                         HARPE_INVALID_INPUT);
        assert_non_null(strstr(error.message, odd_steps[i].message));
        assert_int_equal(harpe_pipeline_frequency_check(rank->optimizer, &error), HARPE_OK);
    }
    end_training(rank);
    kill_server(&one);
}

/* ---- GPUs ------------------------------------------------------------------------------------ */

static void permission_that_comes_late_is_used(void **state) {
    scratch *files = *state;
    write_plan(files->root, 1);
    server one = start_server(files->root, "jobs.db", 0, NULL);
    setenv("HARPE_EMULATOR_FAULTS_FILE", scratch_path(files, "faults"), 1);
    put_file(files->path, "no_permission\n");
    training *rank = start_training(one.url, 0, 1);
    assert_int_equal(count_lines(rank, "clocks are not controlled"), 1);
    assert_reaches_round(rank, 2);
    int before = atomic_load(&starts);
    WAIT_UNTIL(rank, atomic_load(&starts) >= before + 2); /* they are not logged */
    put_file(files->path, "\n");
    WAIT_UNTIL(rank, count_lines(rank, "clocks are controlled again") == 1);
    WAIT_UNTIL(rank, look(rank).controller.clock_requests > 0);
    end_with_warnings(rank, 1);
    unsetenv("HARPE_EMULATOR_FAULTS_FILE");
    kill_server(&one);
}

static void without_a_gpu_times_are_measured(void **state) {
    scratch *files = *state;
    write_plan(files->root, 1);
    server one = start_server(files->root, "jobs.db", 0, NULL);
    training *rank = new_training(one.url, 0, 1);
    rank->options.device_id = 7;
    construct(rank);
    assert_int_equal(pthread_create(&rank->thread, NULL, train, rank), 0);
    assert_reaches_round(rank, 2);
    assert_int_equal(count_lines(rank, "there is no GPU 7"), 1);
    rank->options.device_id = 0; /* its settings have not changed */
    end_with_warnings(rank, 1);
    kill_server(&one);
}

static void without_an_energy_counter_rounds_go_on(void **state) {
    scratch *files = *state;
    write_plan(files->root, 1);
    server one = start_server(files->root, "jobs.db", 0, NULL);
    setenv("HARPE_EMULATOR_FAULTS", "no_energy_counter", 1);
    training *rank = start_training(one.url, 0, 1);
    assert_reaches_round(rank, 2);
    end_training(rank);
    unsetenv("HARPE_EMULATOR_FAULTS");
    kill_server(&one);
}

static void strict_mode_wants_its_gpu(void **state) {
    (void)state;
    training *rank = new_training("http://127.0.0.1:9", 0, 1);
    harpe_error error = {.message = ""};
    rank->options.is_strict = true;
    rank->options.device_id = 7;
    assert_int_equal(harpe_pipeline_frequency_new(&rank->options, &rank->optimizer, &error),
                     HARPE_NOT_FOUND);
    assert_non_null(strstr(error.message, "there is no GPU 7"));
    free(rank);
}

/* Returns the process of this test's only controller: a detached `harpe` that is neither a child
 * nor a server. */
static pid_t find_controller(void) {
    DIR *folder = opendir("/proc");
    char mine[64];
    pid_t found = 0;
    assert_non_null(folder);
    snprintf(mine, sizeof mine, "HARPE_EMULATOR_CLUSTER=test-training-%d", (int)getpid());
    for (const struct dirent *entry; !found && (entry = readdir(folder));) {
        char path[300], text[256];
        snprintf(path, sizeof path, "/proc/%s/cmdline", entry->d_name);
        FILE *file = fopen(path, "r");
        size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0;
        if (file) fclose(file);
        text[length] = '\0';
        /* a server has processes of the program harpe, too */
        static const char command[] = "harpe\0--controller-process";
        if (length < sizeof command || memcmp(text, command, sizeof command) != 0) continue;
        snprintf(path, sizeof path, "/proc/%s/environ", entry->d_name);
        char *environment = read_text(path);
        if (memmem(environment, 1 << 16, mine, strlen(mine))) found = atoi(entry->d_name);
        free(environment);
    }
    closedir(folder);
    return found;
}

static void a_killed_controller_is_replaced(void **state) {
    scratch *files = *state;
    write_plan(files->root, 1);
    server one = start_server(files->root, "jobs.db", 0, NULL);
    training *rank = start_training(one.url, 0, 1);
    assert_reaches_round(rank, 1);
    pid_t controller = find_controller();
    assert_true(controller > 0);
    kill(controller, SIGKILL);
    WAIT_UNTIL(rank, count_lines(rank, "clocks are not controlled") == 1);
    WAIT_UNTIL(rank, count_lines(rank, "clocks are controlled again") == 1);
    uint64_t written = look(rank).controller.written;
    WAIT_UNTIL(rank, look(rank).controller.written > written);
    assert_reaches_round(rank, look(rank).round + 2);
    end_with_warnings(rank, 1);
    kill_server(&one);
}

/* The process accepts data and sends nothing, like a controller whose driver hangs. */
static void a_controller_that_does_not_answer_does_not_hold_up_the_end(void **state) {
    scratch *files = *state;
    char program[600], started[600], script[1400];
    snprintf(started, sizeof started, "%s", scratch_path(files, "started"));
    snprintf(program, sizeof program, "%s", scratch_path(files, "program"));
    setenv("HARPE_PROGRAM", program, 1);
    training *rank = start_training("http://127.0.0.1:9", 0, 1);
    assert_int_equal(count_lines(rank, "clocks are not controlled"), 1);
    snprintf(script, sizeof script, "#!/bin/sh\n: > '%s'\nexec cat <&3 >/dev/null\n", started);
    put_file(program, script);
    assert_int_equal(chmod(program, 0700), 0);
    WAIT_UNTIL(rank, access(started, F_OK) == 0);
    stop_steps(rank);
    rank->thread = 0;
    double begin_s = harpe_clock_s();
    end_training(rank);
    assert_true(harpe_clock_s() - begin_s < LIMIT_S); /* it never answers */
    setenv("HARPE_PROGRAM", PROGRAM, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_world, remove_world)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(evaluation_steps_are_one_line_and_rounds_go_on),
        TEST(steps_that_never_fit_hold_up_no_round),
        TEST(a_wrong_number_of_microbatches_is_told_by_the_server),
        TEST(strict_mode_tells_the_caller),
        TEST(permission_that_comes_late_is_used),
        TEST(without_a_gpu_times_are_measured),
        TEST(without_an_energy_counter_rounds_go_on),
        TEST(strict_mode_wants_its_gpu),
        TEST(a_killed_controller_is_replaced),
        TEST(a_controller_that_does_not_answer_does_not_hold_up_the_end),
    };
    return cmocka_run_group_tests(tests, start_machine, stop_machine);
}
