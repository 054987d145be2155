/* SPDX-License-Identifier: Apache-2.0 */
/* Online schedulers between rounds: their arguments, the state that survives a restart, incomplete
 * or nonsensical results, and InstructionProfiler. */
#include "test.h"

#include <sys/stat.h>

#include "server/simulated_pipeline.h"

/* ---- Arguments ------------------------------------------------------------------------------- */

static void assert_told(const simulated_pipeline *s, const char *part) {
    assert_null(strchr(s->error.message, '\n'));
    if (!strstr(s->error.message, part))
        fail_msg("expected: ...%s...\nfound: %s", part, s->error.message);
}

SIMULATED_TEST(arguments_are_checked_at_the_start, 2, 1, 1, 4) {
    static const struct {
        const char *name, *args, *says;
    } bad[] = {
        {"Perseus", "[]", "JSON object"},
        {"Perseus", "{\"microbatches\": 8}", "'microbatches'"},
        {"Perseus", "{\"num_microbatches\": 0}", "num_microbatches"},
        {"Perseus", "{\"num_microbatches\": 8.5}", "num_microbatches"},
        {"Perseus", "{\"schedule\": \"2f2b\"}", "2f2b"},
        {"Perseus", "{\"schedule\": \"\"}", "schedule"},
        {"Perseus", "{\"schedule\": {\"csv\": \"/does/not/exist.csv\"}}", "/does/not/exist.csv"},
        {"Perseus", "{\"schedule\": {\"file\": \"a\"}}", "schedule"},
        {"Perseus", "{\"blocking_power\": -1}", "blocking_power"},
        {"Perseus", "{\"blocking_power\": \"80\"}", "blocking_power"},
        {"Perseus", "{\"blocking_power\": []}", "blocking_power"},
        {"Perseus", "{\"blocking_power\": [80, -1]}", "blocking_power"},
        {"Perseus", "{\"epilogue\": \"optimizer\"}", "must be a list"},
        {"Perseus", "{\"epilogue\": [\"optimizer\", 3]}", "epilogue"},
        {"Perseus", "{\"epilogue\": [\"backward\"]}", "is a pipeline instruction"},
        {"Perseus", "{\"prologue\": [\"a b\"], \"num_microbatches\": 4}",
         "not an instruction name"},
        {"Perseus", "{\"learning\": \"guess\"}", "learning"},
        {"Perseus", "{\"learning\": 1}", "learning"},
        {"Perseus", "{\"exploration_slowdown\": 0}", "exploration_slowdown"},
        {"Perseus", "{\"exploration_slowdown\": 2}", "exploration_slowdown"},
        {"InstructionProfiler", "{\"learning\": \"explore\"}", "learning"},
        {"Perseus", "{\"slowdown\": 0.9}", "slowdown"},
        {"Perseus", "{\"plans\": 1}", "plans"},
        {"Perseus", "{\"drift_tolerance\": 0}", "drift_tolerance"},
        {"Perseus", "{\"profile_path\": 3}", "profile_path"},
        {"InstructionProfiler", "{\"blocking_power\": 80}", "'blocking_power'"},
        {"InstructionProfiler", "{\"slowdown\": 1.1}", "'slowdown'"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_not_equal(simulated_open(s, bad[i].name, bad[i].args), HARPE_OK);
        assert_told(s, bad[i].says);
    }
    must(s, simulated_open(s, "Perseus",
                           "{\"num_microbatches\": 8, \"schedule\": \"gpipe\", \"blocking_power\": "
                           "80.5, \"frequency_stride\": 2, \"rises_to_stop\": 3, \"plans\": 10, "
                           "\"slowdown\": 1, \"drift_tolerance\": 0.1, \"rounds_to_drift\": 4, "
                           "\"profile_path\": \"a.csv\"}"));
}

SIMULATED_TEST(ranks_of_a_stage_without_a_common_frequency_are_refused, 2, 2, 1, 4) {
    static const int other_mhz[] = {7, 9};
    s->ranks[3].available_frequencies_mhz = other_mhz; /* the second rank of stage 1 */
    s->ranks[3].available_frequency_count = 2;
    must(s, simulated_open(s, "Perseus", "{\"num_microbatches\": 4}"));
    assert_int_equal(
        harpe_scheduler_new(s->kind, &s->job, s->ranks, NULL, &s->scheduler, &s->error),
        HARPE_INVALID_INPUT);
    assert_told(s, "the ranks of pipeline rank 1 have no available frequency in common");
}

SIMULATED_TEST(a_schedule_can_come_from_a_file, 2, 1, 1, 2) {
    char path[128], args[256];
    (void)snprintf(path, sizeof path, "%s/schedule.csv", s->directory);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    (void)fputs("0F0,0F1,,0B0,,0B1\n,1F0,1B0,1F1,1B1,\n", file);
    (void)fclose(file);
    (void)snprintf(args, sizeof args, "{\"schedule\": {\"csv\": \"%s\"}}", path);
    start(s, "Perseus", args);
    rounds_until(s, "plan");
    harpe_plan offline = offline_plan(s);
    assert_close(run_next(s)->time_s, offline.time_s, 0.01);
    simulated_close(s);
    s->job.pp_degree = s->job.world_size = 1;
    must(s, simulated_open(s, "Perseus", args));
    assert_int_not_equal(
        harpe_scheduler_new(s->kind, &s->job, s->ranks, NULL, &s->scheduler, &s->error), HARPE_OK);
    assert_told(s, "has 2 ranks");
    (void)unlink(path);
}

/* Interleaved: a rank has two stages, which the order of the runs distinguishes. */
SIMULATED_TEST(stages_that_share_a_rank_are_told_apart, 2, 1, 1, 2) {
    start(s, "Perseus",
          "{\"num_microbatches\": 2, \"schedule\": \"interleaved-1f1b\", \"blocking_power\": 80}");
    next(s);
    size_t runs = s->schedules[0].instruction_count / 2;
    assert_int_equal(runs, 4); /* 2 microbatches, 2 chunks */
    static const char *const names[] = {"forward", "backward"};
    for (int round = 0; !is_in_phase(s, "plan"); round++) {
        assert_true(round < 100);
        next(s);
        double values[2][8], energies[2][8], iteration_s = 100, iteration_j = 5000;
        size_t counts[] = {4}, offsets[] = {0};
        harpe_breakdown times[2], joules[2];
        for (int rank = 0; rank < 2; rank++) {
            for (int n = 0; n < 2; n++) {
                /* Chunk 0 runs twice, then chunk 1, backwards the other way round. */
                for (int k = 0; k < 4; k++) {
                    bool is_second = (k >= 2) != (n == 1);
                    values[n][k] = (is_second ? 3 : 1) + 0.1 * round;
                    energies[n][k] = (is_second ? 900 : 300) - 10 * round;
                }
                times[n] = (harpe_breakdown){names[n], 1, counts, offsets, values[n]};
                joules[n] = (harpe_breakdown){names[n], 1, counts, offsets, energies[n]};
            }
            s->results[rank] = (harpe_profiling_result){
                rank, &iteration_s, 1, &iteration_j, 1, times, 2, joules, 2};
            if (rank == 0)
                must(s, harpe_profiling_result_copy(&s->results[0], &s->results[0], &s->error));
        }
        must(s, observe(s));
        harpe_profiling_result_free(&s->results[0]);
    }
    harpe_profile *written = written_profile(s);
    assert_int_equal(harpe_profile_stage_count(written), 4);
    for (int stage = 0; stage < 4; stage++) {
        assert_close(harpe_profile_find(written, stage, "forward")->points[0].time_s,
                     stage < 2 ? 1 : 3, 1e-9);
        assert_close(harpe_profile_find(written, stage, "backward")->points[0].energy_j,
                     stage < 2 ? 300 : 900, 1e-9);
    }
    harpe_profile_free(written);
}

/* ---- Restarts -------------------------------------------------------------------------------- */

static void assert_same_schedules(const simulated_pipeline *a, const simulated_pipeline *b) {
    for (int r = 0; r < a->job.world_size; r++) {
        const harpe_frequency_schedule *x = &a->schedules[r], *y = &b->schedules[r];
        assert_int_equal(x->instruction_count, y->instruction_count);
        for (size_t i = 0; i < x->instruction_count; i++) {
            assert_string_equal(x->instructions[i].instruction, y->instructions[i].instruction);
            assert_int_equal(x->instructions[i].frequency_mhz, y->instructions[i].frequency_mhz);
        }
    }
}

/* Returns what people see of a job, without the times at which rounds ended. */
static json_t *timeless_frontier(simulated_pipeline *s) {
    json_t *json = frontier(s);
    size_t i;
    json_t *measured;
    json_object_del(json_object_get(json, "baseline"), "measured_at");
    json_array_foreach(json_object_get(json, "measured"), i, measured)
        json_object_del(measured, "ended_at");
    return json;
}

static void assert_looks_the_same(simulated_pipeline *a, simulated_pipeline *b) {
    json_t *x = timeless_frontier(a), *y = timeless_frontier(b);
    if (!json_equal(x, y))
        fail_msg("%s\n%s", json_dumps(x, JSON_SORT_KEYS), json_dumps(y, JSON_SORT_KEYS));
    json_decref(x);
    json_decref(y);
}

/* Counting, learning, plan, job request, drift, learning again: one scheduler is restarted in every
 * round. */
static void assert_restarts_change_nothing(int stages, const char *args, int rounds) {
    simulated_pipeline *pair[] = {simulate(stages, 1, 2, 6, NULL), simulate(stages, 1, 2, 6, NULL)};
    for (int i = 0; i < 2; i++) {
        pair[i]->noise = 0.004;
        start(pair[i], "Perseus", args);
    }
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < 2; i++) {
            pair[i]->time_factor = round < 40 ? 1 : round < 46 ? 1.1 : 1.6;
            next(pair[i]);
            simulated_run(pair[i]);
        }
        assert_same_schedules(pair[0], pair[1]);
        json_t *before = frontier(pair[1]);
        simulated_restart(pair[1]); /* while it runs */
        json_t *after = frontier(pair[1]);
        assert_true(json_equal(before, after)); /* also the times at which rounds ended */
        json_decref(before);
        json_decref(after);
        for (int i = 0; i < 2; i++) {
            if (round == 5 || round == 36) ask_for(pair[i], HARPE_JOB_REQUEST_SLOWDOWN, 1.04);
            must(pair[i], observe(pair[i]));
        }
        assert_looks_the_same(pair[0], pair[1]);
    }
    assert_string_equal(pair[0]->log, pair[1]->log);
    assert_logged(pair[0], "planned again");
    assert_logged(pair[0], "measures again");
    assert_non_null(strstr(strstr(pair[0]->log, "measures again"), "planned: "));
    simulated_free(pair[0]);
    simulated_free(pair[1]);
}

TEST(a_restart_in_any_round_changes_nothing) {
    assert_restarts_change_nothing(
        4, all_trials() ? "{\"plans\": 30}" : "{\"plans\": 4, \"frequency_stride\": 6}",
        all_trials() ? 90 : 65);
}

TEST(a_restart_of_an_exploration_changes_nothing) {
    assert_restarts_change_nothing(
        2, "{\"plans\": 4, \"frequency_stride\": 6, \"learning\": \"explore\"}", 60);
}

SIMULATED_TEST(a_rank_may_report_the_clocks_of_its_schedule, 4, 1, 2, 6) {
    start(s, "Perseus", "{\"plans\": 30}");
    for (size_t r = 0; r < (size_t)s->job.world_size; r++)
        assert_int_equal(harpe_scheduler_clocks_max(s->scheduler, r), 0); /* not counted yet */
    for (int round = 0; round < 4; round++) {
        one_round(s);
        if (round == 2) simulated_restart(s);
    }
    next(s);
    for (size_t r = 0; r < (size_t)s->job.world_size; r++) {
        assert_true(s->schedules[r].instruction_count > 0);
        assert_int_equal(harpe_scheduler_clocks_max(s->scheduler, r),
                         s->schedules[r].instruction_count);
    }
}

static const char LEARNING[] = "{\"num_microbatches\": 4, \"frequency_stride\": 6}";

/* Loads a state into a new scheduler, which refuses it. */
static void assert_refused(simulated_pipeline *s, const json_t *json, const char *why) {
    char *text = json_dumps(json, JSON_COMPACT);
    simulated_close(s);
    start(s, "Perseus", LEARNING);
    if (harpe_scheduler_load(s->scheduler, text, strlen(text), &s->error) != HARPE_INVALID_INPUT)
        fail_msg("this state is not refused: %s", text);
    assert_told(s, why);
    free(text);
}

/* Replaces a number of a state, and returns false if it has fewer numbers. */
static bool replace_number(json_t *in, int *skipped, double by) {
    const char *key;
    json_t *value;
    size_t i;
    json_object_foreach(in, key, value) {
        bool is_number = json_is_number(value) && (*skipped)-- == 0;
        if (is_number) json_object_set_new(in, key, json_real(by));
        if (is_number || replace_number(value, skipped, by)) return true;
    }
    json_array_foreach(in, i, value) {
        bool is_number = json_is_number(value) && (*skipped)-- == 0;
        if (is_number) json_array_set_new(in, i, json_real(by));
        if (is_number || replace_number(value, skipped, by)) return true;
    }
    return false;
}

/* The scheduler's own numbers; those of the conduct are the host's. */
SIMULATED_TEST(a_number_out_of_its_bounds_is_refused, 2, 1, 1, 4) {
    static const char *const any[] = {"conduct", "running", "undisturbed_time", "microbatches"};
    static const double bad[] = {-1e301, 1e301};
    int numbers = 0;
    start(s, "Perseus", LEARNING);
    some_rounds(s, 3);
    char *text = simulated_save(s);
    for (bool has_more = true; has_more; numbers++)
        for (int i = 0; i < 2; i++) {
            json_t *json = json_loads(text, 0, NULL);
            json_t *kept[4];
            int skipped = numbers;
            for (int k = 0; k < 4; k++) {
                kept[k] = json_incref(json_object_get(json, any[k]));
                json_object_del(json, any[k]);
            }
            has_more = replace_number(json, &skipped, bad[i]);
            for (int k = 0; k < 4; k++)
                json_object_set_new(json, any[k], kept[k]);
            if (has_more) assert_refused(s, json, "the stored state of ");
            json_decref(json);
        }
    assert_true(numbers > 150);
    free(text);
}

SIMULATED_TEST(a_state_of_something_else_is_refused, 2, 1, 1, 4) {
    start(s, "Perseus", LEARNING);
    some_rounds(s, 3);
    char *text;
    size_t length;
    must(s, harpe_scheduler_save(s->scheduler, &text, &length, &s->error));
    static const char *const bad[] = {
        "", "{}", "[]", "null", "{\"version\": 5}", "{\"version\": 6}"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        simulated_close(s);
        start(s, "Perseus", "{\"num_microbatches\": 4}");
        assert_int_equal(harpe_scheduler_load(s->scheduler, bad[i], strlen(bad[i]), &s->error),
                         HARPE_INVALID_INPUT);
    }
    json_t *json = json_loads(text, 0, NULL), *learnt = json_object_get(json, "learnt");
    json_t *row = json_array_get(json_object_get(json, "measured"), 0);
    json_int_t position = json_integer_value(json_object_get(learnt, "position"));
    for (json_int_t other = position + 1; other < 1000; other += 900) {
        json_object_set_new(learnt, "position", json_integer(other));
        assert_refused(s, json, "the explorer does not fit this job's schedule");
    }
    json_object_set_new(learnt, "position", json_integer(position));
    json_array_set_new(row, 0, json_integer(1)); /* the first of three rounds has the number 0 */
    assert_refused(s, json, "cannot be read");
    json_array_set_new(row, 0, json_integer(0));
    json_object_set_new(json, "version", json_integer(5));
    assert_refused(s, json, "cannot be read");
    json_decref(json);
    simulated_close(s);
    start(s, "Perseus", "{\"num_microbatches\": 4, \"schedule\": \"early-recomputation-1f1b\"}");
    assert_int_equal(harpe_scheduler_load(s->scheduler, text, length, &s->error),
                     HARPE_INVALID_INPUT);
    assert_told(s, "does not fit this job's schedule");
    free(text);
}

/* Every single byte is changed, and every length is tried, if all trials are made: the state is
 * refused or accepted, without a crash, and the scheduler goes on. */
SIMULATED_TEST(a_damaged_state_never_crashes, 2, 1, 1, 2) {
    start(s, "Perseus", "{\"num_microbatches\": 2, \"plans\": 4, \"frequency_stride\": 6}");
    some_rounds(s, 3);
    char *text;
    size_t length;
    must(s, harpe_scheduler_save(s->scheduler, &text, &length, &s->error));
    for (size_t i = 0; i < length; i += all_trials() ? 1 : 7) {
        static const char bytes[] = {'0', '9', '-', 'e', ',', ']', '"', ' '};
        char *damaged = malloc(length);
        assert_non_null(damaged);
        memcpy(damaged, text, length);
        damaged[i] = bytes[i % sizeof bytes];
        simulated_close(s);
        start(s, "Perseus", "{\"num_microbatches\": 2, \"plans\": 4, \"frequency_stride\": 6}");
        harpe_status status =
            harpe_scheduler_load(s->scheduler, damaged, i % 3 ? length : i, &s->error);
        if (status == HARPE_OK && !harpe_scheduler_next(s->scheduler, &s->schedules, &s->error))
            (void)observe(s);
        free(damaged);
    }
    free(text);
}

/* ---- Results --------------------------------------------------------------------------------- */

static void leave_energies_out(simulated_pipeline *s) {
    for (int r = 0; r < s->job.world_size; r++)
        s->results[r].energy_breakdown_count = 0;
}

static void zero_energies(simulated_pipeline *s) {
    for (size_t k = 0; k < (size_t)SIMULATED_ITERATIONS * 4; k++)
        ((double *)s->results[0].energy_breakdown[0].values)[k] = 0;
}

static void run_three_of_four(simulated_pipeline *s) {
    for (int b = 0; b < 2; b++)
        for (int k = 0; k < SIMULATED_ITERATIONS; k++)
            ((size_t *)s->results[0].time_breakdown[b].counts)[k] = 3;
}

SIMULATED_TEST(results_of_no_use_fail_the_job_in_the_third_round, 2, 1, 1, 4) {
    static const struct {
        void (*damage)(simulated_pipeline *s);
        const char *says;
    } cases[] = {
        {leave_energies_out, "rank 0 reported no energy of 'forward'"},
        {leave_energies_out, "turn on the instruction profiler"},
        {zero_energies, "energy of 'forward' is zero"},
        {run_three_of_four, "ran 'forward' 3 times in an iteration, but the schedule has it 4"},
    };
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        simulated_close(s);
        start(s, "Perseus",
              i % 2 ? "{\"num_microbatches\": 4, \"learning\": \"explore\"}"
                    : "{\"num_microbatches\": 4}");
        for (int round = 0; round < 3; round++) {
            next(s);
            simulated_run(s);
            cases[i / 2].damage(s);
            assert_int_equal(observe(s), round < 2 ? HARPE_OK : HARPE_INVALID_INPUT);
        }
        assert_told(s, cases[i / 2].says);
    }
}

SIMULATED_TEST(iterations_that_are_missing_in_part_are_left_out, 4, 1, 1, 6) {
    start(s, "Perseus", "{\"num_microbatches\": 6, \"plans\": 8}");
    for (int round = 0; !is_in_phase(s, "plan"); round++) {
        next(s);
        simulated_run(s);
        harpe_profiling_result *odd = &s->results[round % 4];
        size_t *counts = (size_t *)odd->time_breakdown[0].counts; /* also those of energies */
        counts[round % SIMULATED_ITERATIONS] = (size_t)(round % 6);
        odd->iteration_time_count = odd->iteration_energy_count = 2;
        must(s, observe(s));
    }
    assert_runs_offline_plan(s, 0.01);
    assert_null(strstr(s->log, "run again"));
}

SIMULATED_TEST(one_outlier_of_an_iteration_does_not_count, 4, 1, 1, 6) {
    start(s, "Perseus", "{\"num_microbatches\": 6, \"plans\": 8}");
    while (!is_in_phase(s, "plan")) {
        next(s);
        simulated_run(s);
        for (int r = 0; r < 4; r++) {
            ((double *)s->results[r].iteration_time_s)[1] *= 10;
            for (int b = 0; b < 2; b++) {
                ((double *)s->results[r].time_breakdown[b].values)[3] *= 50;
                ((double *)s->results[r].energy_breakdown[b].values)[6] *= 20;
            }
        }
        must(s, observe(s));
    }
    harpe_plan offline = offline_plan(s);
    assert_close(run_next(s)->energy_j, offline.energy_j, 0.01);
    assert_close(s->ran.time_s, offline.time_s, 0.01);
}

SIMULATED_TEST(a_round_that_lacks_a_rank_is_run_again, 2, 2, 1, 4) {
    start(s, "Perseus", "{\"num_microbatches\": 4}");
    some_rounds(s, 2);
    next(s);
    int mhz = s->schedules[0].instructions[0].frequency_mhz;
    simulated_run(s);
    s->results[3] = (harpe_profiling_result){.rank = 3};
    must(s, observe(s));
    assert_logged(s, "a round of the sweep is run again: rank 3 reported no time of 'forward'");
    next(s);
    assert_int_equal(s->schedules[0].instructions[0].frequency_mhz, mhz);
    simulated_run(s);
    must(s, observe(s));
    next(s);
    assert_true(s->schedules[0].instructions[0].frequency_mhz < mhz);
    /* If it does not return, there is a plan from the known measurements. */
    for (int i = 0; i < 3; i++) {
        next(s);
        simulated_run(s);
        s->results[3] = (harpe_profiling_result){.rank = 3};
        must(s, observe(s));
    }
    one_round(s);
    assert_true(is_in_phase(s, "plan"));
}

/* Numbers and lengths that no correct program sends. */
SIMULATED_TEST(nonsense_never_crashes, 2, 1, 1, 3) {
    static const double nonsense[] = {NAN, INFINITY, -INFINITY, -1, 0, 1e308, 1e-308, 1e12};
    uint64_t random = 1;
    for (int trial = 0; trial < few_trials(60); trial++) {
        simulated_close(s);
        start(s, trial % 2 ? "Perseus" : "InstructionProfiler",
              trial % 3 ? "{\"num_microbatches\": 3, \"frequency_stride\": 7}"
                        : "{\"frequency_stride\": 9}");
        harpe_status status = HARPE_OK;
        for (int round = 0; round < 12 && status == HARPE_OK; round++) {
            next(s);
            simulated_run(s);
            for (int change = 0; change < trial % 7; change++) {
                random = random * 6364136223846793005U + 1442695040888963407U;
                unsigned pick = (unsigned)(random >> 33);
                harpe_profiling_result *result = &s->results[pick % 2];
                double value = nonsense[pick / 2 % 8];
                harpe_breakdown *breakdown =
                    (harpe_breakdown *)(pick / 16 % 2 ? result->time_breakdown
                                                      : result->energy_breakdown) +
                    pick / 32 % 2;
                switch (pick / 64 % 8) {
                case 0: ((double *)result->iteration_time_s)[pick % 4] = value; break;
                case 1: ((double *)result->iteration_energy_j)[pick % 4] = value; break;
                case 2: result->iteration_time_count = pick % 3; break;
                case 3: breakdown->iteration_count = pick % 3; break;
                case 4: ((size_t *)breakdown->counts)[pick % 4] = pick / 8 % 4; break;
                case 5: breakdown->instruction = "backward_weight"; break;
                case 6: result->energy_breakdown_count = pick % 3; break;
                default: ((double *)breakdown->values)[pick % 12] = value; break;
                }
            }
            status = observe(s);
            json_decref(frontier(s));
        }
    }
}

/* ---- InstructionProfiler --------------------------------------------------------------------- */

SIMULATED_TEST(the_profiler_writes_the_profile_and_is_finished, 4, 2, 1, 6) {
    start(s, "InstructionProfiler", "{}");
    for (int round = 0; !harpe_scheduler_is_finished(s->scheduler); round++) {
        assert_true(round < 100);
        one_round(s);
    }
    next(s);
    int highest = 0;
    for (size_t i = 0; i < s->ranks[0].available_frequency_count; i++)
        if (s->available_mhz[i] > highest) highest = s->available_mhz[i];
    for (int r = 0; r < 8; r++)
        for (size_t i = 0; i < s->schedules[r].instruction_count; i++)
            assert_int_equal(s->schedules[r].instructions[i].frequency_mhz, highest);
    harpe_profile *written = written_profile(s);
    for (size_t e = 0; e < harpe_profile_entry_count(written); e++) {
        const harpe_profile_entry *entry = harpe_profile_entry_at(written, e);
        const harpe_profile_entry *real =
            harpe_profile_find(s->profile, entry->stage, entry->instruction);
        for (size_t i = 0; i < entry->point_count; i++) {
            assert_close(entry->points[i].time_s, real->points[i].time_s, 1e-9);
            assert_close(entry->points[i].energy_j, 2 * real->points[i].energy_j, 1e-9);
        }
    }
    harpe_profile_free(written);
    assert_request(s, HARPE_JOB_REQUEST_SLOWDOWN, 1.1, HARPE_NOT_SUPPORTED);
    simulated_restart(s);
    assert_true(harpe_scheduler_is_finished(s->scheduler));
}

SIMULATED_TEST(a_profile_that_was_not_taken_is_handed_over_again, 2, 1, 1, 4) {
    char args[256], path[128];
    (void)snprintf(path, sizeof path, "%s/p.csv", s->directory);
    (void)snprintf(args, sizeof args, "{\"num_microbatches\": 4, \"profile_path\": \"%s\"}", path);
    start(s, "InstructionProfiler", args);
    rounds_until(s, "hold");
    assert_true(harpe_scheduler_is_finished(s->scheduler));
    harpe_scheduler_file file = {0}, again = {0};
    harpe_scheduler_take_file(s->scheduler, &file);
    assert_null(file.path); /* it was accepted */
    char *text;
    size_t length;
    must(s, harpe_file_read(path, 1 << 20, &text, &length, &s->error));
    for (int i = 0; i < 2; i++) {
        simulated_restart(s);
        harpe_scheduler_take_file(s->scheduler, &again);
        assert_string_equal(again.path, path);
        assert_true(again.is_repeated);
        assert_null(again.directory);
        assert_int_equal(again.length, length);
        assert_string_equal(again.text, text);
    }
    harpe_scheduler_file_free(&again);
    free(text);
    assert_int_equal(unlink(path), 0);
}

int main(void) { return run_listed_tests(); }
