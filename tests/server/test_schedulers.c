/* SPDX-License-Identifier: Apache-2.0 */
/* Schedulers as the engine meets them: built in, behind the 3D wrapper, from shared objects, and as
 * programs that misbehave in every way that a program can. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/scheduler_host.h"

#define EXAMPLE_SO HARPE_BINARY_DIR "/examples/scheduler_uniform.so"
#define EXAMPLE_PROGRAM "program:python3 " HARPE_SOURCE_DIR "/examples/scheduler_program.py"

enum { RANKS_MAX = 8, TIMEOUT_S = 20 };

typedef struct world {
    char directory[PATH_MAX / 4];
    char path[PATH_MAX / 2];
    int warnings;
    harpe_job_info job;
    harpe_rank_info ranks[RANKS_MAX];
    harpe_scheduler_kind *kind;
    harpe_scheduler *scheduler;
    const harpe_frequency_schedule *schedules;
    harpe_error error;
} world;

static void count_warnings(void *user, harpe_log_level level, const char *line) {
    world *w = user;
    if (level == HARPE_LOG_WARNING && *line) w->warnings++;
}

static const int CLOCKS[] = {1410, 1200, 990};

static void make_job(world *w, int dp, int pp, int tp) {
    w->job = (harpe_job_info){"job", pp, dp, tp, pp * dp * tp, NULL};
    for (int r = 0; r < w->job.world_size; r++) {
        w->ranks[r] = (harpe_rank_info){.rank = r,
                                        .dp_rank = r / (pp * tp),
                                        .pp_rank = r / tp % pp,
                                        .tp_rank = r % tp,
                                        .available_frequencies_mhz = CLOCKS,
                                        .available_frequency_count = 3};
    }
}

static int set_up(void **state) {
    world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    snprintf(w->directory, sizeof w->directory, "/tmp/harpe-schedulers-XXXXXX");
    assert_non_null(mkdtemp(w->directory));
    make_job(w, 1, 2, 1);
    *state = w;
    return 0;
}

static void close_scheduler(world *w) {
    harpe_scheduler_free(w->scheduler);
    harpe_scheduler_kind_close(w->kind);
    w->scheduler = NULL;
    w->kind = NULL;
}

static int tear_down(void **state) {
    world *w = *state;
    close_scheduler(w);
    DIR *directory = opendir(w->directory);
    for (const struct dirent *entry; (entry = readdir(directory));)
        (void)unlinkat(dirfd(directory), entry->d_name, 0);
    closedir(directory);
    rmdir(w->directory);
    free(w);
    /* Neither a zombie nor a child that runs is left. */
    int left = waitpid(-1, NULL, WNOHANG);
    return left == -1 && errno == ECHILD ? 0 : -1;
}

static harpe_status open_kind(world *w, const char *name, const char *args, int timeout_s) {
    harpe_log log = {count_warnings, w};
    return harpe_scheduler_kind_open(name, args, "{}", timeout_s, log, &w->kind, &w->error);
}

static harpe_status new_scheduler(world *w) {
    return harpe_scheduler_new(w->kind, &w->job, w->ranks, NULL, &w->scheduler, &w->error);
}

#define must(w, call) \
    do { \
        if ((call) != HARPE_OK) fail_msg("%s", (w)->error.message); \
    } while (0)

static void start(world *w, const char *name, const char *args) {
    must(w, open_kind(w, name, args, TIMEOUT_S));
    must(w, new_scheduler(w));
}

static void next(world *w) {
    must(w, harpe_scheduler_next(w->scheduler, &w->schedules, &w->error));
}

static void assert_says(const world *w, const char *part) {
    assert_null(strchr(w->error.message, '\n'));
    if (!strstr(w->error.message, part))
        fail_msg("expected: ...%s...\nfound: %s", part, w->error.message);
}

static const char *write_file(world *w, const char *name, const char *text) {
    snprintf(w->path, sizeof w->path, "%s/%s", w->directory, name);
    FILE *file = fopen(w->path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
    return w->path;
}

/* Every rank reports one iteration of this energy. */
static harpe_status report(world *w, double energy_j) {
    static const double time_s = 1;
    harpe_profiling_result results[RANKS_MAX] = {0};
    for (int r = 0; r < w->job.world_size; r++) {
        results[r].rank = r;
        results[r].iteration_time_s = &time_s;
        results[r].iteration_energy_j = &energy_j;
        results[r].iteration_time_count = results[r].iteration_energy_count = 1;
    }
    return harpe_scheduler_observe(w->scheduler, results, (size_t)w->job.world_size, &w->error);
}

static void assert_all_at(const world *w, int frequency_mhz) {
    for (int r = 0; r < w->job.world_size; r++) {
        assert_int_equal(w->schedules[r].rank, r);
        assert_true(w->schedules[r].instruction_count > 0);
        for (size_t i = 0; i < w->schedules[r].instruction_count; i++)
            assert_int_equal(w->schedules[r].instructions[i].frequency_mhz, frequency_mhz);
    }
}

/* ---- Built in ----------------------------------------------------------------------------- */

static const char PLAN[] = "[[('forward', 1410), ('backward', 990)], [('forward', 1200)]]\n";

static void start_plan(world *w, const char *name) {
    char args[PATH_MAX];
    snprintf(args, sizeof args, "{\"solution_path\": \"%s\"}", write_file(w, "plan.py", PLAN));
    start(w, name, args);
}

static void plan_is_served_list_by_list_for_ever(void **state) {
    world *w = *state;
    start_plan(w, "perseus.server.scheduler.PointSolution");
    assert_string_equal(harpe_scheduler_kind_name(w->kind), "PointSolution");
    for (int round = 0; round < 3; round++) {
        next(w);
        assert_int_equal(w->schedules[0].instruction_count, 2);
        assert_string_equal(w->schedules[0].instructions[1].instruction, "backward");
        assert_int_equal(w->schedules[0].instructions[1].frequency_mhz, 990);
        assert_int_equal(w->schedules[1].instruction_count, 1);
        assert_true(harpe_scheduler_is_finished(w->scheduler));
        must(w, report(w, 1));
    }
    assert_false(harpe_scheduler_needs_history(w->scheduler));
    assert_int_equal(harpe_scheduler_wish_for(w->scheduler, HARPE_WISH_SLOWDOWN, 1.2, &w->error),
                     HARPE_NOT_SUPPORTED);
}

static void plan_for_another_number_of_ranks_is_refused(void **state) {
    world *w = *state;
    make_job(w, 1, 4, 1);
    char args[PATH_MAX];
    snprintf(args, sizeof args, "{\"solution_path\": \"%s\"}", write_file(w, "plan.py", PLAN));
    must(w, open_kind(w, "PointSolution", args, TIMEOUT_S));
    assert_int_equal(new_scheduler(w), HARPE_INVALID_INPUT);
    assert_says(w, "holds 2 lists of instructions, but this job needs 4");
}

static void refused_arguments_are_named(void **state) {
    world *w = *state;
    static const struct {
        const char *name, *args, *message;
    } cases[] = {
        {"PointSolution", "{}", "'solution_path'"},
        {"PointSolution", "[]", "must be a JSON object"},
        {"PointSolution", "{\"solution_path\": 3}", "solution_path of PointSolution"},
        {"PointSolution", "{\"solution_path\": \"x.py\", \"colour\": 1}", "no argument 'colour'"},
        {"PointSolution", "{\"solution_path\": \"/nowhere/x.py\"}", "/nowhere/x.py"},
        {"PointSolution", "{\"solution_path\": \"/nowhere/x.json\"}", "must end in .py"},
        {"AllMaxFrequency", "{}", "'num_microbatches'"},
        {"AllMaxFrequency", "{\"num_microbatches\": \"8\"}", "num_microbatches of AllMax"},
        {"AllMaxFrequency", "{\"num_microbatches\": 0}", "num_microbatches of AllMax"},
        {"AllMaxFrequency", "{\"num_microbatches\": 8, \"schedule\": \"2f2b\"}", "2f2b"},
        {"Perfect", "{}", "no 'Perfect'"},
        {"program:", "{}", "followed by a command"},
        {"program:cat", "7", "must be a JSON object"},
        {HARPE_BINARY_DIR "/nowhere.so", "{}", "nowhere.so"},
        {HARPE_BINARY_DIR "/tests/minimal_nvml.so", "{}", "does not export harpe_scheduler_entry"},
        {HARPE_BINARY_DIR "/tests/wrong_abi_scheduler.so", "{}", "made for version 2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_not_equal(open_kind(w, cases[i].name, cases[i].args, TIMEOUT_S), HARPE_OK);
        assert_null(w->kind);
        assert_says(w, cases[i].message);
    }
}

static void every_rank_runs_at_its_highest_clock(void **state) {
    world *w = *state;
    static const int own[] = {700, 1500};
    make_job(w, 2, 2, 1);
    w->ranks[1].available_frequencies_mhz = own;
    w->ranks[1].available_frequency_count = 2;
    w->ranks[3].available_frequency_count = 0;
    start(w, "AllMaxFrequency", "{\"num_microbatches\": 4}");
    next(w);
    static const int expected[] = {1410, 1500, 1410, 0};
    for (int r = 0; r < 4; r++) {
        assert_int_equal(w->schedules[r].instruction_count, 8);
        assert_int_equal(w->schedules[r].instructions[0].frequency_mhz, expected[r]);
        assert_int_equal(w->schedules[r].instructions[7].frequency_mhz, expected[r]);
    }
    /* 1F1B: the last stage goes backward at once, the first one does not. */
    assert_string_equal(w->schedules[0].instructions[1].instruction, "forward");
    assert_string_equal(w->schedules[1].instructions[1].instruction, "backward");
}

/* ---- The 3D wrapper ----------------------------------------------------------------------- */

static void schedules_of_stages_go_to_all_their_ranks(void **state) {
    world *w = *state;
    make_job(w, 2, 2, 2);
    start_plan(w, "PointSolution3D");
    assert_string_equal(harpe_scheduler_kind_name(w->kind), "PointSolution3D");
    next(w);
    for (int r = 0; r < 8; r++) {
        assert_int_equal(w->schedules[r].rank, r);
        assert_int_equal(w->schedules[r].instruction_count, w->ranks[r].pp_rank == 0 ? 2 : 1);
    }
}

static void stages_offer_what_all_their_ranks_have(void **state) {
    world *w = *state;
    static const int fewer[] = {990, 1200};
    static const int others[] = {700};
    make_job(w, 2, 2, 2);
    w->ranks[5].available_frequencies_mhz = fewer;
    w->ranks[5].available_frequency_count = 2;
    start(w, "3D:AllMaxFrequency", "{\"num_microbatches\": 4}");
    next(w);
    for (int r = 0; r < 8; r++)
        assert_int_equal(w->schedules[r].instructions[0].frequency_mhz,
                         w->ranks[r].pp_rank == w->ranks[5].pp_rank ? 1200 : 1410);
    harpe_scheduler_free(w->scheduler);
    w->scheduler = NULL;
    w->ranks[5].available_frequencies_mhz = others;
    w->ranks[5].available_frequency_count = 1;
    assert_int_equal(new_scheduler(w), HARPE_INVALID_INPUT);
    assert_says(w, "rank 5 shares no available frequency");
    w->ranks[5].available_frequency_count = 0;
    assert_int_equal(new_scheduler(w), HARPE_INVALID_INPUT);
}

/* Writes what it is asked into the file that its first argument names. */
static const char ECHO[] = "import json, sys\n"
                           "for line in sys.stdin:\n"
                           "    open(sys.argv[1], 'w').write(line)\n"
                           "    n = len(json.loads(line).get('observe', [0]))\n"
                           "    print(json.dumps({'schedules': [{'rank': 0, 'frequencies': "
                           "[['forward', n]]}]}), flush=True)\n";

static void start_python(world *w, const char *prefix, const char *source, int timeout_s) {
    char name[PATH_MAX];
    snprintf(name, sizeof name, "%sprogram:python3 %s %s/said", prefix,
             write_file(w, "program.py", source), w->directory);
    must(w, open_kind(w, name, "{}", timeout_s));
}

static void read_said(const world *w, char *text, size_t size) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/said", w->directory);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, size - 1, file)] = '\0';
    fclose(file);
}

static void results_of_a_stage_are_combined_element_by_element(void **state) {
    world *w = *state;
    make_job(w, 2, 2, 2);
    start_python(w, "3D:", ECHO, TIMEOUT_S);
    must(w, new_scheduler(w));
    double values[8][2];
    harpe_profiling_result results[8] = {0};
    harpe_breakdown breakdowns[8];
    size_t counts[] = {1, 1};
    size_t offsets[] = {0, 1};
    for (int r = 0; r < 8; r++) {
        values[r][0] = r;
        values[r][1] = 10 - r;
        breakdowns[r] = (harpe_breakdown){"forward", 2, counts, offsets, values[r]};
        results[r] = (harpe_profiling_result){r, values[r],      2, values[r], 2, &breakdowns[r],
                                              1, &breakdowns[r], 1};
    }
    must(w, harpe_scheduler_observe(w->scheduler, results, 8, &w->error));
    /* Stage 0 is ranks 0, 1, 4, 5: maxima 5 and 10, sums 10 and 30. */
    char said[4096];
    read_said(w, said, sizeof said);
    assert_non_null(strstr(said, "\"iter_time\":[5,10]"));
    assert_non_null(strstr(said, "\"iter_energy\":[10,30]"));
    assert_non_null(strstr(said, "\"iter_time\":[7,8]"));
    assert_non_null(strstr(said, "\"iter_energy\":[18,22]"));
    assert_non_null(strstr(said, "{\"forward\":[[5],[10]]}"));
    assert_non_null(strstr(said, "{\"forward\":[[10],[30]]}"));
    next(w);
    assert_int_equal(w->schedules[5].instructions[0].frequency_mhz, 2);

    results[5].iteration_energy_count = 1;
    assert_int_equal(harpe_scheduler_observe(w->scheduler, results, 8, &w->error),
                     HARPE_INVALID_INPUT);
    assert_says(w, "ranks 0 and 5");
    results[5].iteration_energy_count = 2;
    breakdowns[6].iteration_count = 1;
    assert_int_equal(harpe_scheduler_observe(w->scheduler, results, 8, &w->error),
                     HARPE_INVALID_INPUT);
    assert_says(w, "ranks 2 and 6");
}

/* ---- The examples ------------------------------------------------------------------------- */

static void try_all_clocks(world *w) {
    static const double energies[] = {30, 10, 20};
    for (int round = 0; round < 3; round++) {
        next(w);
        assert_false(harpe_scheduler_is_finished(w->scheduler));
        assert_true(harpe_scheduler_needs_history(w->scheduler));
        assert_int_equal(w->schedules[0].instruction_count, 8);
        assert_all_at(w, CLOCKS[round]);
        must(w, report(w, energies[round]));
    }
    for (int round = 0; round < 3; round++) {
        next(w);
        assert_all_at(w, 1200);
        assert_true(harpe_scheduler_is_finished(w->scheduler));
        must(w, report(w, 1));
    }
}

static void shared_object_runs_its_rounds_and_its_last_schedule_stays(void **state) {
    world *w = *state;
    if (access(EXAMPLE_SO, R_OK) != 0) skip(); /* built without the examples */
    assert_int_equal(open_kind(w, EXAMPLE_SO, "{}", TIMEOUT_S), HARPE_INVALID_ARGUMENT);
    assert_says(w, "num_microbatches");
    start(w, EXAMPLE_SO, "{\"num_microbatches\": 4}");
    assert_string_equal(harpe_scheduler_kind_name(w->kind), "uniform");
    try_all_clocks(w);
}

static void program_runs_its_rounds_and_its_last_schedule_stays(void **state) {
    world *w = *state;
    start(w, EXAMPLE_PROGRAM, "{\"num_microbatches\": 4}");
    try_all_clocks(w);
    assert_int_equal(w->warnings, 0);
}

static void program_says_what_is_wrong(void **state) {
    world *w = *state;
    must(w, open_kind(w, EXAMPLE_PROGRAM, "{}", TIMEOUT_S));
    assert_int_not_equal(new_scheduler(w), HARPE_OK);
    assert_says(w, "num_microbatches must be a whole number");
}

/* ---- Programs that misbehave -------------------------------------------------------------- */

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
    assert_start_fails(w, "program:read l; echo nonsense", TIMEOUT_S, "no JSON object: nonsense");
    assert_start_fails(w, "program:read l; echo '[]'", TIMEOUT_S, "no JSON object");
    assert_start_fails(w, "program:read l; echo '{\"schedules\": 3}'", TIMEOUT_S, "no list");
    assert_start_fails(w, "program:read l; printf '{}\\n{}\\n'", TIMEOUT_S, "more than one line");
    assert_start_fails(w, "program:read l; echo '{\"error\": \"too hot\"}'", TIMEOUT_S, "too hot");
    assert_start_fails(w, "program:exit 0", TIMEOUT_S, "ended without an answer");
    assert_start_fails(w, "program:/nowhere/at-all 2>&-", TIMEOUT_S, "ended without an answer");
}

/* Waits until nobody has this id; a killed process may take a moment to go. */
static void assert_gone(pid_t process) {
    for (int i = 0; i < 1000 && kill(process, 0) == 0; i++)
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

/* Counts its starts in "said"; start N dies instead of answering its second question if N <=
 * DEATHS.
 */
#define MORTAL(deaths) \
    "import sys\n" \
    "starts = open(sys.argv[1], 'a+'); starts.write('x'); starts.flush(); starts.seek(0)\n" \
    "mine = len(starts.read())\n" \
    "for k, line in enumerate(sys.stdin):\n" \
    "    if k == 1 and mine <= " deaths ": sys.exit(1)\n" \
    "    print('{\"schedules\":[{\"rank\":0,\"frequencies\":[[\"f\",%d]]}]}' % (900 + k), " \
    "flush=True)\n"

static void dead_program_is_started_once_more(void **state) {
    world *w = *state;
    start_python(w, "", MORTAL("1"), TIMEOUT_S);
    must(w, new_scheduler(w));
    next(w);
    assert_int_equal(w->schedules[0].instructions[0].frequency_mhz, 900);
    must(w, report(w, 1));
    assert_int_equal(w->warnings, 1);
    next(w);
    assert_int_equal(w->schedules[0].instructions[0].frequency_mhz, 901);
    assert_int_equal(w->schedules[1].instruction_count, 0);
}

static void program_that_dies_again_is_an_error(void **state) {
    world *w = *state;
    start_python(w, "", MORTAL("2"), TIMEOUT_S);
    must(w, new_scheduler(w));
    next(w);
    assert_int_equal(report(w, 1), HARPE_IO_ERROR);
    assert_says(w, "ended without an answer");
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* reaped at once */
    must(w, report(w, 1));                            /* its third start lives */
}

static void late_second_line_is_not_taken_for_the_next_answer(void **state) {
    world *w = *state;
    start(w, "program:while read l; do echo \"" ANSWER "\"; sleep 0.2; echo '{}'; done", "{}");
    next(w);
    usleep(600000);
    (void)report(w, 1); /* whether its second start is as slow is a matter of luck */
    assert_int_equal(w->warnings, 1);
}

/* Its input is closed while it lives: writing meets EPIPE, and SIGPIPE has its default effect. */
static void closed_pipe_does_not_kill_us(void **state) {
    world *w = *state;
    signal(SIGPIPE, SIG_DFL);
    must(w, open_kind(w, "program:read l; echo \"" ANSWER "\"; exec <&-; sleep 100", "{}", 1));
    must(w, new_scheduler(w));
    next(w);
    usleep(200000);
    assert_int_equal(report(w, 1), HARPE_IO_ERROR);
    assert_int_equal(w->warnings, 1);
    sigset_t pending;
    sigpending(&pending);
    assert_false(sigismember(&pending, SIGPIPE));
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(plan_is_served_list_by_list_for_ever),
        TEST(plan_for_another_number_of_ranks_is_refused),
        TEST(refused_arguments_are_named),
        TEST(every_rank_runs_at_its_highest_clock),
        TEST(schedules_of_stages_go_to_all_their_ranks),
        TEST(stages_offer_what_all_their_ranks_have),
        TEST(results_of_a_stage_are_combined_element_by_element),
        TEST(shared_object_runs_its_rounds_and_its_last_schedule_stays),
        TEST(program_runs_its_rounds_and_its_last_schedule_stays),
        TEST(program_says_what_is_wrong),
        TEST(bad_first_answers_are_errors),
        TEST(silent_program_is_killed_with_its_children),
        TEST(dead_program_is_started_once_more),
        TEST(program_that_dies_again_is_an_error),
        TEST(late_second_line_is_not_taken_for_the_next_answer),
        TEST(closed_pipe_does_not_kill_us),
    };
    return cmocka_run_group_tests_name("schedulers", tests, NULL, NULL);
}
