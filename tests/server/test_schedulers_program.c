/* SPDX-License-Identifier: Apache-2.0 */
/* Scheduler programs with every possible fault. */
#include "test.h"

#include "scheduler_world.h"

/* ---- Programs that misbehave ----------------------------------------------------------------- */

#define ANSWER "{\\\"schedules\\\":[{\\\"rank\\\":0,\\\"frequencies\\\":[[\\\"f\\\",900]]}]}"

static void assert_start_fails(world *w, const char *command, int timeout_s, const char *message) {
    must(w, open_kind(w, command, "{}", timeout_s));
    assert_int_not_equal(new_scheduler(w), HARPE_OK);
    assert_null(w->scheduler);
    assert_told(w, message);
    close_scheduler(w);
}

SCHEDULER_TEST(bad_first_answers_are_errors) {
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

/* Returns the process that the program has written down, or 0 if it has not come so far. */
static int said_process(const world *w) {
    char said[64] = "";
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/said", w->directory);
    if (access(path, F_OK) == 0) read_said(w, said, sizeof said);
    return (int)strtol(said, NULL, 10);
}

/* A busy machine may need more than a second until the shell has started the child. */
SCHEDULER_TEST(silent_program_is_killed_with_its_children) {
    char command[PATH_MAX];
    char message[64];
    snprintf(command, sizeof command, "program:sleep 100 & echo $! > %s/said; sleep 100",
             w->directory);
    for (int timeout_s = 1; timeout_s <= 64 && said_process(w) == 0; timeout_s *= 4) {
        snprintf(message, sizeof message, "did not answer within %d s", timeout_s);
        assert_start_fails(w, command, timeout_s, message);
    }
    assert_true(said_process(w) > 1);
    assert_gone(said_process(w));
}

/* Waits until the program has made this file. */
static void wait_for_file(const world *w, const char *name) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", w->directory, name);
    for (int i = 0; i < 12000 && access(path, F_OK) != 0; i++)
        usleep(10000);
    assert_int_equal(access(path, F_OK), 0);
}

SCHEDULER_TEST(late_second_line_is_not_taken_for_the_next_answer) {
    char command[2 * PATH_MAX];
    snprintf(command, sizeof command,
             "program:cd %s; while read l; do echo \"" ANSWER "\"; "
             "until [ -e go ]; do sleep 0.01; done; echo '{}'; : > late; done",
             w->directory);
    start(w, command, "{}");
    next(w);
    (void)write_file(w, "go", "");
    wait_for_file(w, "late");
    assert_int_equal(report(w, 1), HARPE_INVALID_INPUT);
    assert_told(w, "more than one line");
    assert_true(harpe_scheduler_is_lost(w->scheduler));
}

/* Its input is closed while it runs: writing fails with EPIPE, and SIGPIPE has its default effect.
 */
SCHEDULER_TEST(closed_pipe_does_not_kill_us) {
    char command[2 * PATH_MAX];
    signal(SIGPIPE, SIG_DFL);
    snprintf(command, sizeof command,
             "program:read l; echo \"" ANSWER "\"; exec <&-; : > %s/closed; sleep 100",
             w->directory);
    start(w, command, "{}");
    next(w);
    wait_for_file(w, "closed");
    assert_int_equal(report(w, 1), HARPE_IO_ERROR);
    assert_told(w, "ended without an answer");
    assert_true(harpe_scheduler_is_lost(w->scheduler));
    sigset_t pending;
    sigpending(&pending);
    assert_false(sigismember(&pending, SIGPIPE));
}

/* If the program marks one rank's schedule as a trial, the round is a trial for all ranks. */
SCHEDULER_TEST(program_can_say_that_a_round_is_a_trial) {
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

int main(void) { return run_listed_tests(); }
