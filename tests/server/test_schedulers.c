/* SPDX-License-Identifier: Apache-2.0 */
/* Schedulers as the engine uses them: built-in, behind the 3D wrapper, from shared objects, and as
 * correct programs. */
#include "test.h"

#include "scheduler_world.h"

#define EXAMPLE_SO HARPE_BINARY_DIR "/examples/scheduler_uniform.so"
#define EXAMPLE_PROGRAM "program:python3 " HARPE_SOURCE_DIR "/examples/scheduler_program.py"
#define JOB_REQUEST_SO HARPE_BINARY_DIR "/tests/job_request_scheduler.so"

/* ---- Built in -------------------------------------------------------------------------------- */

static const char PLAN[] = "[[('forward', 1410), ('backward', 990)], [('forward', 1200)]]\n";

static void start_plan(world *w, const char *name) {
    char args[PATH_MAX];
    snprintf(args, sizeof args, "{\"solution_path\": \"%s\"}", write_file(w, "plan.py", PLAN));
    start(w, name, args);
}

SCHEDULER_TEST(plan_is_served_list_by_list_for_ever) {
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
    assert_int_equal(
        harpe_scheduler_handle_request(w->scheduler, HARPE_JOB_REQUEST_SLOWDOWN, 1.2, &w->error),
        HARPE_NOT_SUPPORTED);
}

SCHEDULER_TEST(plan_for_another_number_of_ranks_is_refused) {
    make_job(w, 1, 4, 1);
    char args[PATH_MAX];
    snprintf(args, sizeof args, "{\"solution_path\": \"%s\"}", write_file(w, "plan.py", PLAN));
    must(w, open_kind(w, "PointSolution", args, TIMEOUT_S));
    assert_int_equal(new_scheduler(w), HARPE_INVALID_INPUT);
    assert_told(w, "holds 2 lists of instructions, but this job needs 4");
}

SCHEDULER_TEST(refused_arguments_are_named) {
    static const struct {
        const char *name, *args, *message;
    } cases[] = {
        {"PointSolution", "{}", "'solution_path'"},
        {"PointSolution", "{}", "--scheduler Perseus needs none"},
        {"PointSolution", "[]", "must be a JSON object"},
        {"PointSolution", "{\"solution_path\": 3}", "solution_path of PointSolution"},
        {"PointSolution", "{\"solution_path\": \"x.py\", \"colour\": 1}", "no argument 'colour'"},
        {"PointSolution", "{\"solution_path\": \"/nowhere/x.py\"}", "/nowhere/x.py"},
        {"PointSolution", "{\"solution_path\": \"/nowhere/x.json\"}", "must end in .py"},
        {"AllMaxFrequency", "{\"schedule\": \"2f2b\"}", "2f2b"},
        {"HighestFrequency", "{\"microbatches\": 8}", "no argument 'microbatches'"},
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
        assert_told(w, cases[i].message);
    }
}

SCHEDULER_TEST(every_rank_runs_at_its_highest_clock) {
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
    /* 1F1B: the last stage begins its backward at once, the first stage does not. */
    assert_string_equal(w->schedules[0].instructions[1].instruction, "forward");
    assert_string_equal(w->schedules[1].instructions[1].instruction, "backward");
}

SCHEDULER_TEST(all_max_frequency_needs_no_arguments) {
    make_job(w, 2, 2, 1);
    start(w, "AllMaxFrequency", "{}");
    next(w);
    for (int r = 0; r < 4; r++)
        assert_int_equal(w->schedules[r].instruction_count, 0);
    assert_true(harpe_scheduler_is_finished(w->scheduler));
}

SCHEDULER_TEST(all_max_frequency_lists_the_microbatches_that_it_is_told) {
    make_job(w, 2, 2, 1);
    w->job.job_metadata = "llama num_microbatches=3";
    start(w, "HighestFrequency", "{}");
    next(w);
    for (int r = 0; r < 4; r++) {
        assert_int_equal(w->schedules[r].instruction_count, 6);
        assert_int_equal(w->schedules[r].instructions[5].frequency_mhz, 1410);
    }
}

/* ---- The 3D wrapper -------------------------------------------------------------------------- */

SCHEDULER_TEST(schedules_of_stages_go_to_all_their_ranks) {
    make_job(w, 2, 2, 2);
    start_plan(w, "PointSolution3D");
    assert_string_equal(harpe_scheduler_kind_name(w->kind), "PointSolution3D");
    next(w);
    for (int r = 0; r < 8; r++) {
        assert_int_equal(w->schedules[r].rank, r);
        assert_int_equal(w->schedules[r].instruction_count, w->ranks[r].pp_rank == 0 ? 2 : 1);
    }
}

/* Lists are ordered by dp_rank, pp_rank and tp_rank, whatever the numbers of the ranks are. */
SCHEDULER_TEST(each_gpu_gets_the_list_of_its_place) {
    make_job(w, 2, 2, 2);
    for (int r = 0; r < 8; r++) { /* as Megatron numbers its ranks */
        w->ranks[r].dp_rank = r / 2 % 2;
        w->ranks[r].pp_rank = r / 4;
    }
    char plan[1024] = "[", args[PATH_MAX];
    for (int list = 0; list < 8; list++)
        (void)snprintf(plan + strlen(plan), sizeof plan - strlen(plan), "[('forward', %d)], ",
                       1000 + list);
    strcat(plan, "]");
    snprintf(args, sizeof args, "{\"solution_path\": \"%s\"}", write_file(w, "job.py", plan));
    must(w, open_kind(w, "PointSolution3D", args, TIMEOUT_S));
    must(w, new_scheduler(w));
    next(w);
    for (int r = 0; r < 8; r++) {
        const harpe_rank_info *rank = &w->ranks[r];
        int place = 4 * rank->dp_rank + 2 * rank->pp_rank + rank->tp_rank;
        assert_int_equal(w->schedules[r].rank, r);
        assert_int_equal(w->schedules[r].instruction_count, 1);
        assert_int_equal(w->schedules[r].instructions[0].frequency_mhz, 1000 + place);
    }
}

SCHEDULER_TEST(plan_for_another_number_of_gpus_is_refused) {
    make_job(w, 2, 4, 1);
    char args[PATH_MAX];
    snprintf(args, sizeof args, "{\"solution_path\": \"%s\"}", write_file(w, "plan.py", PLAN));
    must(w, open_kind(w, "3D:PointSolution3D", args, TIMEOUT_S));
    assert_string_equal(harpe_scheduler_kind_name(w->kind), "PointSolution3D");
    assert_int_equal(new_scheduler(w), HARPE_INVALID_INPUT);
    assert_told(w, "holds 2 lists of instructions, but this job needs 4 (one per stage) or 8");
}

SCHEDULER_TEST(stages_offer_what_all_their_ranks_have) {
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
    assert_told(w, "rank 5 shares no available frequency");
    w->ranks[5].available_frequency_count = 0;
    assert_int_equal(new_scheduler(w), HARPE_INVALID_INPUT);
}

/* Writes its requests to the file that its first argument names. */
static const char ECHO[] = "import json, sys\n"
                           "for line in sys.stdin:\n"
                           "    open(sys.argv[1], 'w').write(line)\n"
                           "    n = len(json.loads(line).get('observe', [0]))\n"
                           "    print(json.dumps({'schedules': [{'rank': 0, 'frequencies': "
                           "[['forward', n]]}]}), flush=True)\n";

SCHEDULER_TEST(results_of_a_stage_are_combined_element_by_element) {
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
    assert_told(w, "ranks 0 and 5");
    results[5].iteration_energy_count = 2;
    breakdowns[6].iteration_count = 1;
    assert_int_equal(harpe_scheduler_observe(w->scheduler, results, 8, &w->error),
                     HARPE_INVALID_INPUT);
    assert_told(w, "ranks 2 and 6");
}

/* ---- The examples ---------------------------------------------------------------------------- */

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

SCHEDULER_TEST(shared_object_runs_its_rounds_and_its_last_schedule_stays) {
    if (access(EXAMPLE_SO, R_OK) != 0) skip_because("missing: this build has no examples");
    assert_int_equal(open_kind(w, EXAMPLE_SO, "{}", TIMEOUT_S), HARPE_INVALID_ARGUMENT);
    assert_told(w, "num_microbatches");
    start(w, EXAMPLE_SO, "{\"num_microbatches\": 4}");
    assert_string_equal(harpe_scheduler_kind_name(w->kind), "uniform");
    try_all_clocks(w);
}

SCHEDULER_TEST(program_runs_its_rounds_and_its_last_schedule_stays) {
    start(w, EXAMPLE_PROGRAM, "{\"num_microbatches\": 4}");
    try_all_clocks(w);
    assert_int_equal(w->warnings, 0);
}

SCHEDULER_TEST(program_says_what_is_wrong) {
    must(w, open_kind(w, EXAMPLE_PROGRAM, "{}", TIMEOUT_S));
    assert_int_not_equal(new_scheduler(w), HARPE_OK);
    assert_told(w, "num_microbatches must be a whole number");
}

/* ---- A shared object that can all ------------------------------------------------------------ */

static int clock_now(world *w) {
    next(w);
    assert_int_equal(w->schedules[1].instruction_count, 1);
    return w->schedules[1].instructions[0].frequency_mhz;
}

SCHEDULER_TEST(shared_object_takes_job_requests_and_shows_its_frontier) {
    char *json;
    start(w, JOB_REQUEST_SO, "{}");
    assert_false(harpe_scheduler_needs_history(w->scheduler));
    assert_int_equal(clock_now(w), 1000);
    must(w,
         harpe_scheduler_handle_request(w->scheduler, HARPE_JOB_REQUEST_POWER_CAP, 300, &w->error));
    assert_int_equal(clock_now(w), 1302);
    assert_int_equal(
        harpe_scheduler_handle_request(w->scheduler, HARPE_JOB_REQUEST_SLOWDOWN, 9000, &w->error),
        HARPE_INFEASIBLE);
    assert_told(w, "too much");
    assert_int_equal(clock_now(w), 1302);
    must(w, report(w, 1));
    must(w, harpe_scheduler_frontier(w->scheduler, &json, &w->error));
    assert_string_equal(json, "{\"observed\":1}");
    free(json);
}

SCHEDULER_TEST(shared_object_is_brought_back_by_its_state) {
    char *text;
    size_t length;
    start(w, JOB_REQUEST_SO, "{}");
    must(w,
         harpe_scheduler_handle_request(w->scheduler, HARPE_JOB_REQUEST_PLAN_TIME, 40, &w->error));
    must(w, report(w, 1));
    int before = clock_now(w);
    must(w, harpe_scheduler_save(w->scheduler, &text, &length, &w->error));
    harpe_scheduler_free(w->scheduler);
    w->scheduler = NULL;
    must(w, new_scheduler(w));
    assert_int_equal(harpe_scheduler_load(w->scheduler, "nonsense", 8, &w->error),
                     HARPE_INVALID_INPUT);
    must(w, harpe_scheduler_load(w->scheduler, text, length, &w->error));
    assert_int_equal(clock_now(w), before);
    free(text);
}

int main(void) { return run_listed_tests(); }
