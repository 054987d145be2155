/* SPDX-License-Identifier: Apache-2.0 */
/* The thread of a tuning in a world: a program of one fiber works on emulated GPUs in virtual time,
 * and marks its steps, or does not. */
#include "world/in_world.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <harpe/frequency_controller.h>
#include <harpe/tune.h>

#include "tune/tune_internal.h"

enum { HIGHEST_MHZ = 1410 };

static harpe_gpus *gpus;

typedef struct program {
    double run_s, step_s, compute_share;
    double jitter_s;     /* each step takes up to so much more */
    bool marks;          /* its steps */
    const char *file;    /* it writes its steps to this file; NULL: none */
    double idle_s;       /* between two steps */
    int pause_every;     /* after so many steps it pauses for 3 s; 0: never */
    double restart_at_s; /* the count in the file begins again; 0: never */
    double gone_s[2];    /* between these times, no count is written */
    const char *gone;    /* what the file says then; NULL: the last count */
    harpe_tuning_options options;
    pid_t process;
    harpe_tuning_report report;
    bool is_tuning;
    int warnings;
    char line[4096]; /* the first warnings */
} program;

static program now;

static void keep_line(void *user, harpe_log_level level, const char *line) {
    (void)user;
    if (level < HARPE_LOG_WARNING || ++now.warnings > 8) return;
    size_t length = strlen(now.line);
    snprintf(now.line + length, 512, "%.500s\n", line);
}

/* ---- The program ----------------------------------------------------------------------------- */

static void write_count(int steps) {
    char text[32];
    snprintf(text, sizeof text, "%d\n", steps);
    put_file(now.file, text);
}

static void work_steps(double begin_s) {
    int (*work)(unsigned gpu, double full_speed_s, double compute_share, double *elapsed_s);
    bool has_restarted = false;
    *(void **)&work = dlsym(world_test_now->library, "harpe_emulator_work");
    for (int step = 1; harpe_clock_s() < begin_s + now.run_s; step++) {
        double jitter_s = now.jitter_s * (double)harpe_world_draw(1000) / 1000;
        (void)work(0, now.step_s + jitter_s, now.compute_share, NULL);
        if (now.idle_s > 0) pause_s(now.idle_s);
        if (now.pause_every > 0 && step % now.pause_every == 0) pause_s(3);
        if (now.marks) harpe_tune_mark(NULL, 1);
        if (now.restart_at_s > 0 && !has_restarted &&
            harpe_clock_s() > begin_s + now.restart_at_s) {
            has_restarted = true;
            step = 1;
        }
        double passed_s = harpe_clock_s() - begin_s;
        bool is_gone = passed_s >= now.gone_s[0] && passed_s < now.gone_s[1];
        if (now.file && !is_gone) write_count(step);
        if (now.file && is_gone && now.gone) put_file(now.file, now.gone);
    }
}

static int run_program(void *user) {
    (void)user;
    harpe_error error = {.message = ""};
    harpe_gpus *own = NULL;
    harpe_tuning *tuning = NULL;
    double begin_s = harpe_clock_s();
    if (harpe_gpus_open(NULL, &own, &error) != HARPE_OK) return 1;
    now.options.gpus = own;
    now.options.log = (harpe_log){keep_line, NULL};
    now.is_tuning = harpe_tune_start(&now.options, &tuning, &error) == HARPE_OK;
    if (!now.is_tuning) keep_line(NULL, HARPE_LOG_ERROR, error.message);
    work_steps(begin_s);
    harpe_tune_stop(tuning, &now.report);
    harpe_gpus_close(own);
    return 0;
}

static void start(program one) {
    now = one;
    now.process = harpe_world_start("program", run_program, NULL);
}

static void finish(program one) {
    start(one);
    assert_true(harpe_world_await(now.process, INT64_MAX));
}

static uint64_t clock_writes(void) {
    int (*count)(unsigned gpu, uint64_t *limit, uint64_t *clocks, uint64_t *persistence);
    uint64_t clocks = 0, limit = 0;
    *(void **)&count = dlsym(world_test_now->library, "harpe_emulator_write_count");
    assert_int_equal(count(0, &limit, &clocks, NULL), 0);
    return clocks + limit;
}

/* The true clock of a GPU that works. */
static uint32_t working_mhz(unsigned gpu) {
    uint32_t mhz = 0;
    let_gpu_work(gpu, true);
    assert_int_equal(harpe_gpu_current_clocks(gpus, (int)gpu, &mhz, NULL, NULL), HARPE_OK);
    let_gpu_work(gpu, false);
    return mhz;
}

static uint32_t limit_mw(int gpu) {
    uint32_t found_mw = 0;
    assert_int_equal(harpe_gpu_power_limit(gpus, gpu, &found_mw, NULL), HARPE_OK);
    return found_mw;
}

static void assert_restored(void) {
    WAIT_FOR(find_controller() < 0 && harpe_world_pick("power-limit") < 0);
    for (int i = 0; i < harpe_gpus_count(gpus); i++) {
        uint32_t default_mw = 0;
        assert_int_equal(working_mhz((unsigned)i), HIGHEST_MHZ);
        assert_int_equal(harpe_gpu_default_power_limit(gpus, i, &default_mw, NULL), HARPE_OK);
        assert_int_equal(limit_mw(i), default_mw);
    }
}

static void begin_gpus(void) {
    use_faults("");
    assert_int_equal(harpe_gpus_open(NULL, &gpus, NULL), HARPE_OK);
}

static void end_gpus(void) { harpe_gpus_close(gpus); }

/* ---- Tests ----------------------------------------------------------------------------------- */

static void a_program_that_marks_is_tuned_and_restored(void **state) {
    (void)state;
    finish((program){
        .run_s = 600, .step_s = 0.2, .compute_share = 0.1, .jitter_s = 0.002, .marks = true});
    assert_string_equal(now.line, "");
    assert_int_equal(now.report.phase, HARPE_TUNING_SETTLED);
    assert_string_equal(now.report.meter, "the program's marks");
    assert_true(now.report.clock_mhz < HIGHEST_MHZ);
    assert_true(now.report.saved > 0.1 && now.report.saved_error < 0.05);
    assert_true(now.report.slowdown < 0.02);
    assert_false(now.report.is_noise);
    assert_true(now.report.work > 2000 && now.report.energy_j > 0);
    assert_true(now.report.highest_j > now.report.used_j);
    assert_true(now.report.is_restored);
    assert_restored();
}

static void a_program_that_computes_keeps_its_clock(void **state) {
    (void)state;
    finish((program){
        .run_s = 300, .step_s = 0.2, .compute_share = 1, .jitter_s = 0.002, .marks = true});
    assert_string_equal(now.line, "");
    assert_true(now.report.clock_mhz >= HIGHEST_MHZ * 0.975);
    assert_restored();
}

/* Evaluations and checkpoints do not look like a clock that is too low. */
static void pauses_are_left_out(void **state) {
    (void)state;
    finish((program){.run_s = 600,
                     .step_s = 0.2,
                     .compute_share = 0.1,
                     .jitter_s = 0.002,
                     .marks = true,
                     .pause_every = 200});
    assert_string_equal(now.line, "");
    assert_true(now.report.clock_mhz < HIGHEST_MHZ);
    assert_true(now.report.saved > 0.1 && now.report.slowdown < 0.02);
    assert_restored();
}

/* A program that never works long enough for three slices is tuned, too. */
static void frequent_pauses_are_left_out(void **state) {
    (void)state;
    finish((program){.run_s = 1200,
                     .step_s = 0.2,
                     .compute_share = 0.1,
                     .jitter_s = 0.002,
                     .marks = true,
                     .pause_every = 60});
    assert_string_equal(now.line, "");
    assert_int_equal(now.report.phase, HARPE_TUNING_SETTLED);
    assert_true(now.report.saved > 0.1 && now.report.slowdown < 0.02);
    assert_restored();
}

static void limits_are_tuned_too(void **state) {
    (void)state;
    finish((program){.run_s = 500,
                     .step_s = 0.2,
                     .compute_share = 0.1,
                     .jitter_s = 0.002,
                     .marks = true,
                     .options = {.tunes_limit = true}});
    assert_string_equal(now.line, "");
    assert_int_equal(now.report.clock_mhz, 0);
    assert_true(now.report.limit_w > 0 && now.report.limit_w < 400);
    assert_true(now.report.slowdown < 0.02);
    assert_restored();
    finish((program){.run_s = 500,
                     .step_s = 0.2,
                     .compute_share = 0.1,
                     .jitter_s = 0.002,
                     .marks = true,
                     .options = {.tunes_limit = true, .tunes_clock = true}});
    assert_string_equal(now.line, "");
    assert_true(now.report.saved > 0.1 && now.report.slowdown < 0.02);
    assert_restored();
}

static void a_killed_tuning_is_restored(void **state) {
    (void)state;
    start((program){.run_s = 200,
                    .step_s = 0.2,
                    .compute_share = 0.1,
                    .marks = true,
                    .options = {.tunes_limit = true, .tunes_clock = true}});
    WAIT_FOR(find_controller() >= 0);
    pause_s(60);
    harpe_world_kill(now.process);
    assert_restored();
}

/* Nothing is changed if nothing can be measured, not even for a moment. */
static void a_program_that_cannot_be_measured_is_unchanged(void **state) {
    (void)state;
    uint64_t before = clock_writes();
    finish((program){.run_s = 400, .step_s = 0.01, .compute_share = 0.5, .jitter_s = 2});
    assert_int_equal(now.report.phase, HARPE_TUNING_UNMEASURABLE);
    assert_non_null(strstr(now.line, "cannot measure this program"));
    assert_false(now.report.is_restored);
    assert_null(now.report.meter);
    assert_int_equal(clock_writes(), before);
}

static void the_period_of_the_power_is_used_without_marks(void **state) {
    (void)state;
    finish((program){.run_s = 1000, .step_s = 0.5, .compute_share = 0.1, .idle_s = 0.3});
    assert_string_equal(now.line, "");
    assert_string_equal(now.report.meter, "the period of the GPU's power");
    assert_true(now.report.clock_mhz < HIGHEST_MHZ);
    assert_true(now.report.slowdown < 0.02 && now.report.saved > 0.05);
    assert_true(now.report.time_s < 970); /* marks were waited for, and no work was counted */
    assert_restored();
}

static void a_counter_in_a_file_may_run_back(void **state) {
    char path[512];
    snprintf(path, sizeof path, "%s", scratch_path(*state, "steps"));
    finish((program){.run_s = 800,
                     .step_s = 0.2,
                     .compute_share = 0.1,
                     .jitter_s = 0.002,
                     .file = path,
                     .restart_at_s = 200,
                     .options = {.rate_file = path}});
    assert_string_equal(now.line, "");
    assert_string_equal(now.report.meter, "the number in the file");
    assert_true(now.report.clock_mhz < HIGHEST_MHZ && now.report.slowdown < 0.025);
    assert_true(now.report.work > 2000 && now.report.work < 5000);
    assert_restored();
}

/* Returns how much energy a unit of work took by the report, against what was measured at the
 * highest setting. The setting that is held saves a part of it. */
static double energy_share(void) {
    return now.report.energy_j / now.report.work / now.report.highest_j_per_work;
}

/* Time and energy without a count belong to no work, and both faults are told. */
static void a_counter_that_stops_is_told_and_left_out(void **state) {
    char path[512];
    snprintf(path, sizeof path, "%s", scratch_path(*state, "steps"));
    program counting = {.run_s = 400,
                        .step_s = 0.2,
                        .compute_share = 0.1,
                        .jitter_s = 0.002,
                        .file = path,
                        .gone_s = {100, INFINITY},
                        .options = {.rate_file = path}};
    const char *const gone[] = {NULL, "nan\n", "1e300\n"};
    for (int i = 0; i < 3; i++) {
        counting.gone = gone[i];
        finish(counting);
        assert_int_equal(now.warnings, 1);
        assert_non_null(strstr(now.line, gone[i] ? "cannot be read" : "stands still"));
        assert_true(energy_share() > 0.6 && energy_share() < 1.05);
        assert_true(now.report.time_s > 90 && now.report.time_s < 110);
    }
    counting.gone_s[1] = 200; /* the count then goes on */
    finish(counting);
    assert_non_null(strstr(now.line, "work is counted again"));
    assert_true(energy_share() > 0.6 && energy_share() < 1.05);
    assert_true(now.report.time_s > 390);
    counting.restart_at_s = 150; /* the count goes on as that of another program */
    finish(counting);
    assert_true(energy_share() > 0.6 && energy_share() < 1.05);
    assert_true(now.report.time_s > 290 && now.report.time_s < 310);
    assert_restored();
}

static void an_energy_counter_that_restarts_stops_no_total(void **state) {
    (void)state;
    use_faults("counter_restart_after=60");
    finish((program){
        .run_s = 300, .step_s = 0.2, .compute_share = 0.1, .jitter_s = 0.002, .marks = true});
    assert_true(now.report.time_s > 200);
    assert_true(energy_share() > 0.6 && energy_share() < 1.05);
}

static void energy_that_cannot_be_is_called_so(void **state) {
    (void)state;
    use_faults("counter_factor=100");
    finish((program){.run_s = 100, .step_s = 0.2, .compute_share = 0.1, .marks = true});
    assert_int_equal(now.report.phase, HARPE_TUNING_UNMEASURABLE);
    assert_non_null(strstr(now.report.reason, "energy"));
    assert_true(now.report.work > 300);
    assert_true(now.report.energy_j == 0 && now.report.time_s == 0);
    start((program){.run_s = 100, .step_s = 0.2, .compute_share = 0.1, .marks = true});
    pause_s(50);
    use_faults("");
    assert_true(harpe_world_await(now.process, INT64_MAX));
    assert_true(now.report.time_s > 40 && now.report.time_s < 55);
    assert_true(fabs(now.report.work * 0.2 - now.report.time_s) < 2);
}

/* The controller cannot restore the GPUs, or it is dead, and its successor cannot. */
static void gpus_that_are_not_restored_are_told(void **state) {
    (void)state;
    uint32_t found_mw = limit_mw(1);
    for (int i = 0; i < 3; i++) {
        use_faults("");
        start((program){.run_s = 200,
                        .step_s = 0.2,
                        .compute_share = 0.1,
                        .marks = true,
                        .options = {.tunes_limit = i == 2}});
        pause_s(60);
        while (i == 2 && limit_mw(1) >= found_mw)
            pause_s(0.1);
        use_faults("no_permission");
        if (i == 1) harpe_world_kill(find_controller());
        assert_true(harpe_world_await(now.process, INT64_MAX));
        assert_int_equal(now.report.phase, HARPE_TUNING_STOPPED);
        assert_false(now.report.is_restored);
        assert_true(now.report.is_unrestored);
        assert_non_null(strstr(now.line, i < 2 ? "GPU 1: its clock could not be restored"
                                               : "GPU 1: its power limit could not be restored"));
        assert_non_null(strstr(now.line, "harpe gpus --restore"));
        assert_null(strstr(now.line, "as they were found"));
    }
}

static void a_lock_that_is_ignored_ends_the_tuning(void **state) {
    (void)state;
    finish((program){.run_s = 300, .step_s = 0.2, .compute_share = 0.1, .marks = true});
    assert_int_equal(now.report.phase, HARPE_TUNING_STOPPED);
    assert_non_null(strstr(now.line, "ignore"));
    assert_true(now.report.is_restored);
    assert_true(now.report.work > 1000);
}

static void another_program_that_sets_clocks_ends_the_tuning(void **state) {
    (void)state;
    start((program){.run_s = 600, .step_s = 0.2, .compute_share = 0.1, .marks = true});
    WAIT_FOR(find_controller() >= 0);
    pause_s(60);
    for (int i = 0; i < 300 && harpe_world_is_alive(now.process); i++) {
        (void)harpe_gpu_lock_graphics_clocks(gpus, 0, 600 + (uint32_t)(i % 2) * 15,
                                             600 + (uint32_t)(i % 2) * 15, NULL);
        pause_s(0.5);
    }
    assert_true(harpe_world_await(now.process, INT64_MAX));
    assert_int_equal(now.report.phase, HARPE_TUNING_STOPPED);
    assert_non_null(strstr(now.line, "sets"));
    assert_true(now.report.is_restored);
}

/* The first GPU is open when the second one turns out to be taken. */
static void a_gpu_in_use_ends_the_tuning(void **state) {
    (void)state;
    harpe_frequency_controller *other = NULL;
    const harpe_frequency_controller_options options = {.gpus = gpus, .gpu = 1};
    assert_int_equal(harpe_frequency_controller_start(&options, &other, NULL), HARPE_OK);
    finish((program){.run_s = 2, .step_s = 0.2, .compute_share = 0.1, .marks = true});
    assert_int_equal(now.report.phase, HARPE_TUNING_STOPPED);
    assert_string_equal(now.report.reason, "another job holds a GPU, or has left it changed");
    assert_non_null(strstr(now.line, "GPU 1 is held by another process"));
    assert_true(now.report.is_restored);
    finish((program){.run_s = 120, .step_s = 0.2, .compute_share = 0.1, .marks = true});
    assert_int_equal(now.report.phase, HARPE_TUNING_STOPPED);
    assert_non_null(strstr(now.line, "GPU 1 has another frequency controller"));
    assert_true(now.report.is_restored);
    harpe_frequency_controller_stop(other);
    assert_restored();
}

static void without_rights_the_program_runs_untuned(void **state) {
    (void)state;
    use_faults("no_permission");
    finish((program){.run_s = 60, .step_s = 0.2, .compute_share = 0.1, .marks = true});
    assert_int_equal(now.report.phase, HARPE_TUNING_STOPPED);
    assert_int_equal(now.warnings, 1);
    assert_non_null(strstr(now.line, "the program runs on untuned"));
    assert_false(now.report.is_restored);
    assert_true(now.report.work > 200);
}

static void a_saved_choice_is_checked_first(void **state) {
    char path[512];
    snprintf(path, sizeof path, "%s", scratch_path(*state, "saved"));
    program marking = {.run_s = 900,
                       .step_s = 0.2,
                       .compute_share = 0.15, /* no clock is near the limit */
                       .jitter_s = 0.002,
                       .marks = true,
                       .options = {.save_path = path}};
    finish(marking);
    int chosen_mhz = now.report.clock_mhz;
    assert_int_equal(access(path, R_OK), 0);
    marking.run_s = 400;
    finish(marking);
    assert_string_equal(now.line, "");
    assert_int_equal(now.report.clock_mhz, chosen_mhz);
    assert_int_equal(now.report.phase, HARPE_TUNING_SETTLED);
    put_file(path, "{\"device_model\": \"another\"}");
    marking.run_s = 10;
    finish(marking);
    assert_false(now.is_tuning);
    assert_non_null(strstr(now.line, "is no result of harpe tune"));
}

static const world_machine machine = {.gpus = "2xA100", .begin = begin_gpus, .end = end_gpus};

static const world_machine deaf = {
    .gpus = "1xA100", .physics = "{\"lock_ignored\": 1}", .begin = begin_gpus, .end = end_gpus};

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_WORLD(a_program_that_marks_is_tuned_and_restored),
        IN_WORLD(a_program_that_computes_keeps_its_clock),
        IN_WORLD(pauses_are_left_out),
        IN_WORLD(frequent_pauses_are_left_out),
        IN_WORLD(limits_are_tuned_too),
        IN_WORLD(a_killed_tuning_is_restored),
        IN_WORLD(a_program_that_cannot_be_measured_is_unchanged),
        IN_WORLD(the_period_of_the_power_is_used_without_marks),
        IN_WORLD(a_counter_in_a_file_may_run_back),
        IN_WORLD(a_counter_that_stops_is_told_and_left_out),
        IN_WORLD(an_energy_counter_that_restarts_stops_no_total),
        IN_WORLD(energy_that_cannot_be_is_called_so),
        IN_WORLD(gpus_that_are_not_restored_are_told),
        IN_WORLD_OF(a_lock_that_is_ignored_ends_the_tuning, deaf),
        IN_WORLD(another_program_that_sets_clocks_ends_the_tuning),
        IN_WORLD(a_gpu_in_use_ends_the_tuning),
        IN_WORLD(without_rights_the_program_runs_untuned),
        IN_WORLD(a_saved_choice_is_checked_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
