/* SPDX-License-Identifier: Apache-2.0 */
/* A training job that consists of its profile: answers every schedule of a scheduler with the
 * measurements of its ranks, including noise and faults, and knows the best offline plan. */
#ifndef HARPE_TESTS_SERVER_SIMULATED_PIPELINE_H
#define HARPE_TESTS_SERVER_SIMULATED_PIPELINE_H

#include <unistd.h>

#include "base/array.h"
#include "base/file.h"
#include "server/simulated_job.h"

enum { SIMULATED_ITERATIONS = 4 };

typedef simulated_job simulated_pipeline;

/* ---- The truth ------------------------------------------------------------------------------- */

static inline void simulated_problem(simulated_pipeline *s) {
    const harpe_profile *profile = s->profile;
    int gpus = s->dp * s->tp;
    harpe_measurement *rows = NULL;
    size_t count = 0, capacity = 0;
    for (size_t e = 0; e < harpe_profile_entry_count(profile); e++) {
        const harpe_profile_entry *entry = harpe_profile_entry_at(profile, e);
        for (size_t i = 0; i < entry->point_count; i++) {
            assert_true(HARPE_ARRAY_RESERVE(rows, capacity, count + 1));
            rows[count++] = (harpe_measurement){
                entry->stage,
                -1,
                entry->instruction,
                entry->points[i].frequency_mhz,
                entry->points[i].time_s * s->throttle[entry->stage],
                entry->points[i].energy_j * gpus,
                gpus,
                0,
                0,
            };
        }
    }
    harpe_profile *scaled;
    must(s, harpe_profile_new(rows, count, &scaled, &s->error));
    simulated_make_problem(s, scaled);
    harpe_profile_free(scaled);
    free(rows);
}

/* The profile of a real model if there is one, otherwise a synthesised profile. */
static inline harpe_profile *simulated_profile(simulated_pipeline *s) {
    char path[512];
    harpe_profile *profile;
    const char *data = getenv("HARPE_DATA");
    (void)snprintf(path, sizeof path, "%s/pipeline/gpt3-175b_a100.csv",
                   data ? data : HARPE_SOURCE_DIR "/../shared/data");
    s->blocking_power_w = 83.64;
    if (s->pp == 8 && harpe_profile_read_csv(path, &profile, NULL) == HARPE_OK) return profile;
    harpe_synth_options options = {.stages = s->pp, .imbalance = s->pp > 1 ? 1.15 : 1, .seed = 7};
    must(s, harpe_profile_synthesize(&options, &profile, &s->blocking_power_w, &s->error));
    return profile;
}

/* Takes ownership of `profile`; NULL: simulated_profile. */
static inline simulated_pipeline *simulate(int pp, int dp, int tp, int microbatches,
                                           harpe_profile *profile) {
    simulated_pipeline *s = simulated_new();
    s->pp = pp;
    s->dp = dp;
    s->tp = tp;
    s->microbatches = microbatches;
    s->time_factor = s->energy_factor = 1;
    s->random = 88172645463325252U;
    s->blocking_power_w = 80;
    s->profile = profile ? profile : simulated_profile(s);
    simulated_problem(s);
    const harpe_profile_entry *entry = harpe_profile_entry_at(s->profile, 0);
    s->available_mhz = calloc(entry->point_count, sizeof *s->available_mhz);
    for (size_t i = 0; i < entry->point_count; i++) /* in any order */
        s->available_mhz[i] = entry->points[entry->point_count - 1 - i].frequency_mhz;
    simulated_make_ranks(s, s->available_mhz, entry->point_count);
    (void)snprintf(s->directory, sizeof s->directory, "/tmp/harpe-online-XXXXXX");
    assert_non_null(mkdtemp(s->directory));
    return s;
}

static inline void simulated_throttle(simulated_pipeline *s, int stage, double factor) {
    s->throttle[stage] = factor;
    simulated_problem(s);
}

/* Changes the size of steps from now on. */
static inline void simulated_microbatches(simulated_pipeline *s, int microbatches) {
    s->microbatches = microbatches;
    simulated_problem(s);
}

static inline void simulated_free(simulated_pipeline *s) {
    char path[128];
    (void)snprintf(path, sizeof path, "%s/profile.csv", s->directory);
    (void)unlink(path);
    assert_int_equal(rmdir(s->directory), 0);
    free(s->available_mhz);
    simulated_forget(s);
}

/* ---- Results --------------------------------------------------------------------------------- */

/* Returns a factor around 1, with the pipeline's noise. */
static inline double simulated_noise(simulated_pipeline *s) {
    return 1 + s->noise * explored_draw_normal(&s->random);
}

static inline const harpe_profile_point *simulated_point(const simulated_pipeline *s, int stage,
                                                         const char *instruction, int mhz) {
    const harpe_profile_entry *entry = harpe_profile_find(s->profile, stage, instruction);
    assert_non_null(entry);
    for (size_t i = 0; i < entry->point_count; i++)
        if (mhz == 0 || entry->points[i].frequency_mhz == mhz) return &entry->points[i];
    fail_msg("stage %d '%s' has no %d MHz", stage, instruction, mhz);
    return NULL;
}

/* Writes what a rank measures of its list: the true values with noise. */
static inline void simulated_result(simulated_pipeline *s, const harpe_frequency_schedule *list,
                                    double iteration_s) {
    int rank = list->rank, stage = s->ranks[rank].pp_rank;
    size_t runs[2] = {0, 0};
    double time_s = 0, energy_j = 0;
    for (size_t i = 0; i < list->instruction_count; i++)
        runs[list->instructions[i].instruction[0] == 'b']++;
    simulated_make_result(s, rank, SIMULATED_ITERATIONS, runs);
    for (size_t k = 0; k < SIMULATED_ITERATIONS; k++) {
        size_t at[2] = {0, 0};
        for (size_t i = 0; i < list->instruction_count; i++) {
            const harpe_scheduled_instruction *one = &list->instructions[i];
            const harpe_profile_point *point =
                simulated_point(s, stage, one->instruction, one->frequency_mhz);
            int n = one->instruction[0] == 'b';
            double run_s = point->time_s * s->time_factor * s->throttle[stage];
            double run_j = point->energy_j * s->energy_factor;
            simulated_write_run(s, rank, n, k, at[n]++, run_s * simulated_noise(s),
                                run_j * simulated_noise(s));
            time_s += run_s / SIMULATED_ITERATIONS;
            energy_j += run_j / SIMULATED_ITERATIONS;
        }
    }
    energy_j +=
        s->blocking_power_w * (iteration_s - time_s) + s->outside_energy_j / s->job.world_size;
    for (size_t k = 0; k < SIMULATED_ITERATIONS; k++)
        simulated_write_iteration(s, rank, k,
                                  (iteration_s + s->outside_time_s) * simulated_noise(s),
                                  energy_j * simulated_noise(s));
}

/* An empty schedule stands for 1F1B at the highest clocks, which is what a client then runs. */
static inline harpe_frequency_schedule simulated_default(simulated_pipeline *s, int rank) {
    size_t count = 2 * (size_t)s->microbatches;
    harpe_scheduled_instruction *list = harpe_arena_alloc(&s->arena, count, sizeof *list);
    for (size_t i = 0; i < count; i++)
        list[i].instruction = i % 2 ? "backward" : "forward";
    return (harpe_frequency_schedule){
        .rank = rank, .instructions = list, .instruction_count = count};
}

/* The pipeline's own order: the list of rank 0, then that of rank 1, and so on. */
static inline void simulated_run(simulated_pipeline *s) {
    harpe_arena_free(&s->arena);
    size_t at = 0;
    /* Without a schedule, or with one for steps of another size, the job runs at the highest
     * clocks. */
    bool is_empty = s->schedules[0].instruction_count != 2 * (size_t)s->microbatches;
    for (int p = 0; p < s->pp; p++) {
        size_t length = harpe_problem_rank_length(s->problem, p);
        for (size_t i = 0; i < length; i++)
            s->frequency_mhz[at + i] =
                is_empty ? 0 : s->schedules[p * s->tp].instructions[i].frequency_mhz;
        at += length;
    }
    must(s, harpe_plan_evaluate(s->problem, s->frequency_mhz, &s->ran, NULL, &s->error));
    double iteration_s = fmax(s->ran.time_s * s->time_factor, s->straggler_time_s);
    for (int r = 0; r < s->job.world_size; r++) {
        harpe_frequency_schedule list = s->schedules[r];
        if (is_empty) list = simulated_default(s, r);
        simulated_result(s, &list, iteration_s);
    }
}

/* ---- Driving a scheduler --------------------------------------------------------------------- */

/* Perseus learns with a sweep unless the arguments say how: the tests of this pipeline need plans
 * for all clocks. tests/server/explored_job.h tests the exploration. */
static inline harpe_status simulated_open(simulated_pipeline *s, const char *name,
                                          const char *args) {
    json_t *with = json_loads(args, 0, NULL);
    if (json_is_object(with) && strcmp(name, "Perseus") == 0 && !json_object_get(with, "learning"))
        json_object_set_new(with, "learning", json_string("sweep"));
    char *text = with ? json_dumps(with, JSON_COMPACT) : NULL;
    harpe_status status = simulated_open_kind(s, name, text ? text : args);
    free(text);
    json_decref(with);
    return status;
}

static inline void start(simulated_pipeline *s, const char *name, const char *args) {
    must(s, simulated_open(s, name, args));
    simulated_new_scheduler(s);
}

static inline void next(simulated_pipeline *s) {
    must(s, harpe_scheduler_next(s->scheduler, &s->schedules, &s->error));
}

/* Writes the file that the scheduler hands over, as the engine does. */
static inline void write_file(simulated_pipeline *s) {
    harpe_scheduler_file file = {0};
    harpe_scheduler_take_file(s->scheduler, &file);
    if (file.path) must(s, harpe_file_write(file.path, file.text, file.length, &s->error));
    harpe_scheduler_file_free(&file);
}

static inline harpe_status observe(simulated_pipeline *s) {
    harpe_status status =
        harpe_scheduler_observe(s->scheduler, s->results, (size_t)s->job.world_size, &s->error);
    write_file(s);
    return status;
}

/* Runs one round: schedule, iterations, results. */
static inline void one_round(simulated_pipeline *s) {
    next(s);
    simulated_run(s);
    must(s, observe(s));
}

static inline void some_rounds(simulated_pipeline *s, int count) {
    for (int i = 0; i < count; i++)
        one_round(s);
}

/* Runs rounds until the scheduler is in that phase. Returns their number. */
static inline int rounds_until(simulated_pipeline *s, const char *phase) {
    int rounds = 0;
    for (; !is_in_phase(s, phase); rounds++) {
        assert_true(rounds < 200);
        one_round(s);
    }
    return rounds;
}

/* Reads the profile that the scheduler has written into the job's directory. */
static inline harpe_profile *written_profile(simulated_pipeline *s) {
    harpe_profile *written;
    char path[128];
    (void)snprintf(path, sizeof path, "%s/profile.csv", s->directory);
    must(s, harpe_profile_read_csv(path, &written, &s->error));
    return written;
}

static inline void assert_request(simulated_pipeline *s, harpe_scheduler_job_request kind,
                                  double value, harpe_status status) {
    assert_int_equal(harpe_scheduler_handle_request(s->scheduler, kind, value, &s->error), status);
}

/* Computes the true time and energy of the next schedule. */
static inline const harpe_plan *run_next(simulated_pipeline *s) {
    next(s);
    simulated_run(s);
    return &s->ran;
}

/* Returns the fastest plan by the true profile, without its frequencies. */
static inline harpe_plan offline_plan(simulated_pipeline *s) {
    harpe_plan_request request = {.choice = HARPE_PLANS_SPREAD, .count = 20};
    harpe_plan_set *set;
    must(s, harpe_plan_set_new(s->problem, &request, NULL, NULL, &set, &s->error));
    harpe_plan plan = *harpe_plan_set_at(set, 0);
    plan.frequency_mhz = NULL;
    harpe_plan_set_free(set);
    return plan;
}

static inline void assert_close(double value, double expected, double tolerance) {
    if (!(fabs(value - expected) <= tolerance * fabs(expected)))
        fail_msg("%.9g is not within %g %% of %.9g", value, 100 * tolerance, expected);
}

/* The next round needs the energy of the fastest plan by the true profile. */
static inline void assert_runs_offline_plan(simulated_pipeline *s, double tolerance) {
    assert_close(run_next(s)->energy_j, offline_plan(s).energy_j, tolerance);
}

static inline void assert_logged(const simulated_pipeline *s, const char *part) {
    if (!strstr(s->log, part)) fail_msg("expected ...%s... in the log:\n%s", part, s->log);
}

/* ---- Pipelines with finished plans ----------------------------------------------------------- */

/* Energies per frequency of forward and backward, from 1500 MHz down in steps of 100. */
static inline harpe_profile *profile_of(const double *forward_j, const double *backward_j,
                                        int count) {
    harpe_measurement rows[64];
    harpe_error error = {0};
    harpe_profile *profile;
    int n = 0;
    for (int stage = 0; stage < 2; stage++) {
        for (int i = 0; i < count; i++) {
            rows[n++] = (harpe_measurement){
                stage, -1, "forward", 1500 - 100 * i, 1 + i, forward_j[i], 1, 0, 0};
            rows[n++] = (harpe_measurement){
                stage, -1, "backward", 1500 - 100 * i, 2 + 2 * i, backward_j[i], 1, 0, 0};
        }
    }
    if (harpe_profile_new(rows, (size_t)n, &profile, &error)) fail_msg("%s", error.message);
    return profile;
}

static inline simulated_pipeline *planned(const char *args) {
    simulated_pipeline *s = simulate(4, 1, 1, 8, NULL);
    start(s, "Perseus", args);
    rounds_until(s, "plan");
    next(s);
    return s;
}

/* Returns a plan, fastest first. A negative `index` counts from the end. */
static inline double plan_number(simulated_pipeline *s, int index, const char *name) {
    json_t *json = frontier(s);
    const json_t *plans = json_object_get(json, "plans");
    size_t i = index >= 0 ? (size_t)index : json_array_size(plans) - (size_t)-index;
    double value = json_number_value(json_object_get(json_array_get(plans, i), name));
    json_decref(json);
    return value;
}

/* Returns the time of the slowest plan that takes at most `limit_s`. */
static inline double slowest_within(simulated_pipeline *s, double limit_s) {
    json_t *json = frontier(s);
    const json_t *plans = json_object_get(json, "plans");
    double found_s = 0;
    for (size_t i = 0; i < json_array_size(plans); i++) {
        double time_s = json_number_value(json_object_get(json_array_get(plans, i), "time"));
        if (time_s <= limit_s * (1 + 1e-9)) found_s = time_s;
    }
    json_decref(json);
    return found_s;
}

/* ---- Tests of one pipeline ------------------------------------------------------------------- */

/* The shape of the pipeline that a test gets as its state, and the arguments with which Perseus has
 * planned it; NULL: it was not started. */
typedef struct simulated_shape {
    int pp, dp, tp, microbatches;
    const char *planned;
} simulated_shape;

static inline int simulated_set_up(void **state) {
    const simulated_shape *shape = *state;
    *state = shape->planned ? planned(shape->planned)
                            : simulate(shape->pp, shape->dp, shape->tp, shape->microbatches, NULL);
    return 0;
}

static inline int simulated_tear_down(void **state) {
    simulated_free(*state);
    return 0;
}

/* A test of a pipeline that is made before it and freed after it. */
#define SHAPED_TEST(name, ...) \
    static simulated_shape name##_shape = {__VA_ARGS__}; \
    static void name##_on(simulated_pipeline *s); \
    LISTED_TEST(name, name, simulated_set_up, simulated_tear_down, &name##_shape) { \
        name##_on(*state); \
    } \
    static void name##_on(simulated_pipeline *s)
#define SIMULATED_TEST(name, pp, dp, tp, microbatches) \
    SHAPED_TEST(name, pp, dp, tp, microbatches, NULL)
#define PLANNED_TEST(name, args) SHAPED_TEST(name, 0, 0, 0, 0, args)

#endif
