/* SPDX-License-Identifier: Apache-2.0 */
/* Scheduler programs with every possible fault. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "scheduler_world.h"

/* ---- Programs that misbehave ----------------------------------------------------------------- */

#define ANSWER "{\\\"schedules\\\":[{\\\"rank\\\":0,\\\"frequencies\\\":[[\\\"f\\\",900]]}]}"

static void assert_start_fails(world *w, const char *command, int timeout_s, const char *message) {
    must(w, open_kind(w, command, "{}", timeout_s));
    assert_int_not_equal(new_scheduler(w), HARPE_OK);
    assert_null(w->scheduler);
    assert_says(w, message);
    close_scheduler(w);
}

static void bad_first_answers_are_errors(void **state) {
    world *w = *state;
    assert_start_fails(w, "program:read l; echo nonsense", TIMEOUT_S,
                       "not a JSON object: nonsense");
    assert_start_fails(w, "program:read l; echo '[]'", TIMEOUT_S, "not a JSON object");
    assert_start_fails(w, "program:read l; echo '{\"schedules\": 3}'", TIMEOUT_S, "not a list");
    assert_start_fails(w, "program:read l; printf '{}\\n{}\\n'", TIMEOUT_S, "more than one line");
    assert_start_fails(w, "program:read l; echo '{\"error\": \"too hot\"}'", TIMEOUT_S, "too hot");
    assert_start_fails(w, "program:read l; echo '{\"error\": \"Traceback\\\\n  File x\\\\n\"}'",
                       TIMEOUT_S, "Traceback File x");
    assert_start_fails(w, "program:exit 0", TIMEOUT_S, "ended without an answer");
    assert_start_fails(w, "program:/nowhere/at-all 2>&-", TIMEOUT_S, "ended without an answer");
}

/* Waits until no process has this id. A killed process may need a moment to end. */
static void assert_gone(pid_t process) {
    for (int i = 0; i < 12000 && kill(process, 0) == 0; i++)
        usleep(10000);
    char path[64];
    char status[64] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)process);
    FILE *file = fopen(path, "r"); /* init may leave it a zombie in a container */
    if (!file) return;
    assert_int_equal(fscanf(file, "%*d %*s %63s", status), 1);
    fclose(file);
    assert_string_equal(status, "Z");
}

static void silent_program_is_killed_with_its_children(void **state) {
    world *w = *state;
    char command[PATH_MAX];
    snprintf(command, sizeof command, "program:sleep 100 & echo $! > %s/said; sleep 100",
             w->directory);
    assert_start_fails(w, command, 1, "did not answer within 1 s");
    char said[64];
    read_said(w, said, sizeof said);
    int process = (int)strtol(said, NULL, 10);
    assert_true(process > 1);
    assert_gone(process);
}

static void late_second_line_is_not_taken_for_the_next_answer(void **state) {
    world *w = *state;
    start(w, "program:while read l; do echo \"" ANSWER "\"; sleep 0.2; echo '{}'; done", "{}");
    next(w);
    usleep(600000);
    assert_int_equal(report(w, 1), HARPE_INVALID_INPUT);
    assert_says(w, "more than one line");
    assert_true(harpe_scheduler_is_lost(w->scheduler));
}

/* Its input is closed while it runs: writing fails with EPIPE, and SIGPIPE has its default effect.
 */
static void closed_pipe_does_not_kill_us(void **state) {
    world *w = *state;
    signal(SIGPIPE, SIG_DFL);
    must(w, open_kind(w, "program:read l; echo \"" ANSWER "\"; exec <&-; sleep 100", "{}", 1));
    must(w, new_scheduler(w));
    next(w);
    usleep(200000);
    assert_int_equal(report(w, 1), HARPE_IO_ERROR);
    assert_true(harpe_scheduler_is_lost(w->scheduler));
    sigset_t pending;
    sigpending(&pending);
    assert_false(sigismember(&pending, SIGPIPE));
}

/* If the program marks one rank's schedule as a trial, the round is a trial for all ranks. */
static void program_can_say_that_a_round_is_a_trial(void **state) {
    world *w = *state;
    make_job(w, 2, 2, 1);
    start(w,
          "3D:program:read l; echo '{\"schedules\":[{\"rank\":0,\"frequencies\":[[\"f\",900]],"
          "\"trial\":true},{\"rank\":1,\"frequencies\":[[\"f\",900]]}]}'; read l; echo \"" ANSWER
          "\"; read l",
          "{}");
    next(w);
    for (int r = 0; r < 4; r++)
        assert_true(w->schedules[r].is_trial);
    must(w, report(w, 1));
    next(w);
    for (int r = 0; r < 4; r++)
        assert_false(w->schedules[r].is_trial);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        SCHEDULER_TEST(bad_first_answers_are_errors),
        SCHEDULER_TEST(silent_program_is_killed_with_its_children),
        SCHEDULER_TEST(late_second_line_is_not_taken_for_the_next_answer),
        SCHEDULER_TEST(closed_pipe_does_not_kill_us),
        SCHEDULER_TEST(program_can_say_that_a_round_is_a_trial),
    };
    return cmocka_run_group_tests_name("scheduler programs", tests, NULL, NULL);
}
