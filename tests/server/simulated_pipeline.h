/* SPDX-License-Identifier: Apache-2.0 */
/* A training job that consists of its profile: answers every schedule of a scheduler with the
 * measurements of its ranks, including noise and faults, and knows the best offline plan. Include
 * after cmocka.h. */
#ifndef HARPE_TESTS_SERVER_SIMULATED_PIPELINE_H
#define HARPE_TESTS_SERVER_SIMULATED_PIPELINE_H

#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <harpe/plan.h>

#include "base/arena.h"
#include "base/array.h"
#include "base/file.h"
#include "server/scheduler/scheduler_host.h"

enum { SIMULATED_RANKS_MAX = 64, SIMULATED_ITERATIONS = 4, LOG_SIZE = 1 << 16 };

/* The true properties of the job, which tests change. */
typedef struct simulated_pipeline {
    harpe_profile *profile; /* of one GPU per stage */
    double blocking_power_w;
    int pp, dp, tp, microbatches;
    harpe_problem *problem; /* of all GPUs of a stage */
    double noise, time_factor, energy_factor;
    double throttle[SIMULATED_RANKS_MAX]; /* of a stage: factor on the time of its instructions */
    double outside_time_s, outside_energy_j; /* of an iteration; energy: of all ranks */
    double straggler_time_s;                 /* lower limit of an iteration's time */
    uint64_t random;

    harpe_job_info job;
    harpe_rank_info ranks[SIMULATED_RANKS_MAX];
    int *available_mhz;
    harpe_arena arena; /* of the results */
    harpe_profiling_result results[SIMULATED_RANKS_MAX];
    harpe_plan ran; /* time and energy of the last schedule, without noise */
    int *frequency_mhz;

    char directory[64];
    char log[LOG_SIZE];
    harpe_scheduler_kind *kind;
    harpe_scheduler *scheduler;
    const harpe_frequency_schedule *schedules;
    harpe_error error;
} simulated_pipeline;

#define must(s, call) \
    do { \
        if ((call) != HARPE_OK) fail_msg("%s", (s)->error.message); \
    } while (0)

/* ---- The truth ------------------------------------------------------------------------------- */

static inline harpe_problem *simulated_problem(simulated_pipeline *s, const harpe_profile *profile,
                                               int gpus) {
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
    harpe_schedule *schedule;
    harpe_problem *problem;
    harpe_schedule_options options = {.ranks = s->pp, .microbatches = s->microbatches};
    harpe_problem_options how = {.blocking_power_w = &s->blocking_power_w,
                                 .blocking_power_count = 1};
    must(s, harpe_profile_new(rows, count, &scaled, &s->error));
    must(s, harpe_schedule_new(&options, &schedule, &s->error));
    must(s, harpe_problem_new(scaled, schedule, &how, &problem, &s->error));
    harpe_schedule_free(schedule);
    harpe_profile_free(scaled);
    free(rows);
    return problem;
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

static inline void simulated_ranks(simulated_pipeline *s) {
    const harpe_profile_entry *entry = harpe_profile_entry_at(s->profile, 0);
    s->available_mhz = calloc(entry->point_count, sizeof *s->available_mhz);
    for (size_t i = 0; i < entry->point_count; i++) /* in any order */
        s->available_mhz[i] = entry->points[entry->point_count - 1 - i].frequency_mhz;
    s->job = (harpe_job_info){.job_id = "job",
                              .pp_degree = s->pp,
                              .dp_degree = s->dp,
                              .tp_degree = s->tp,
                              .world_size = s->pp * s->dp * s->tp};
    assert_true(s->job.world_size <= SIMULATED_RANKS_MAX);
    for (int r = 0; r < s->job.world_size; r++)
        s->ranks[r] = (harpe_rank_info){.rank = r,
                                        .dp_rank = r / (s->pp * s->tp),
                                        .pp_rank = r / s->tp % s->pp,
                                        .tp_rank = r % s->tp,
                                        .available_frequencies_mhz = s->available_mhz,
                                        .available_frequency_count = entry->point_count};
}

/* Takes ownership of `profile`; NULL: simulated_profile. */
static inline simulated_pipeline *simulate(int pp, int dp, int tp, int microbatches,
                                           harpe_profile *profile) {
    simulated_pipeline *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->pp = pp;
    s->dp = dp;
    s->tp = tp;
    s->microbatches = microbatches;
    s->time_factor = s->energy_factor = 1;
    for (int i = 0; i < SIMULATED_RANKS_MAX; i++)
        s->throttle[i] = 1;
    s->random = 88172645463325252U;
    s->blocking_power_w = 80;
    s->profile = profile ? profile : simulated_profile(s);
    s->problem = simulated_problem(s, s->profile, dp * tp);
    s->frequency_mhz =
        calloc(harpe_problem_instruction_count(s->problem), sizeof *s->frequency_mhz);
    simulated_ranks(s);
    (void)snprintf(s->directory, sizeof s->directory, "/tmp/harpe-online-XXXXXX");
    assert_non_null(mkdtemp(s->directory));
    return s;
}

static inline void simulated_throttle(simulated_pipeline *s, int stage, double factor) {
    s->throttle[stage] = factor;
    harpe_problem_free(s->problem);
    s->problem = simulated_problem(s, s->profile, s->dp * s->tp);
}

/* Changes the size of steps from now on. */
static inline void simulated_microbatches(simulated_pipeline *s, int microbatches) {
    s->microbatches = microbatches;
    harpe_problem_free(s->problem);
    s->problem = simulated_problem(s, s->profile, s->dp * s->tp);
    free(s->frequency_mhz);
    s->frequency_mhz =
        calloc(harpe_problem_instruction_count(s->problem), sizeof *s->frequency_mhz);
}

static inline void simulated_close(simulated_pipeline *s) {
    harpe_scheduler_free(s->scheduler);
    harpe_scheduler_kind_close(s->kind);
    s->scheduler = NULL;
    s->kind = NULL;
}

static inline void simulated_free(simulated_pipeline *s) {
    char path[128];
    simulated_close(s);
    harpe_problem_free(s->problem);
    harpe_profile_free(s->profile);
    harpe_arena_free(&s->arena);
    free(s->available_mhz);
    free(s->frequency_mhz);
    (void)snprintf(path, sizeof path, "%s/profile.csv", s->directory);
    (void)unlink(path);
    assert_int_equal(rmdir(s->directory), 0);
    free(s);
}

/* ---- Results --------------------------------------------------------------------------------- */

/* Returns a factor around 1, with the pipeline's noise. */
static inline double simulated_noise(simulated_pipeline *s) {
    double sum = 0;
    for (int i = 0; i < 12; i++) {
        s->random ^= s->random << 13;
        s->random ^= s->random >> 7;
        s->random ^= s->random << 17;
        sum += (double)(s->random >> 11) / 9007199254740992.0;
    }
    return 1 + s->noise * (sum - 6);
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

/* Computes the values of one instruction on one rank, for all iterations, and adds to the sums of
 * the iterations. */
static inline void simulated_breakdown(simulated_pipeline *s, const harpe_frequency_schedule *list,
                                       const char *instruction, harpe_breakdown *times,
                                       harpe_breakdown *energies, double *time_s,
                                       double *energy_j) {
    int stage = s->ranks[list->rank].pp_rank;
    size_t runs = 0, at = 0;
    for (size_t i = 0; i < list->instruction_count; i++)
        runs += strcmp(list->instructions[i].instruction, instruction) == 0;
    size_t *shape = harpe_arena_alloc(&s->arena, 2 * SIMULATED_ITERATIONS, sizeof *shape);
    double *values = harpe_arena_alloc(&s->arena, 2 * SIMULATED_ITERATIONS * runs, sizeof *values);
    for (int k = 0; k < SIMULATED_ITERATIONS; k++) {
        shape[k] = runs;
        shape[SIMULATED_ITERATIONS + k] = at;
        for (size_t i = 0; i < list->instruction_count; i++) {
            if (strcmp(list->instructions[i].instruction, instruction) != 0) continue;
            const harpe_profile_point *point =
                simulated_point(s, stage, instruction, list->instructions[i].frequency_mhz);
            double run_s = point->time_s * s->time_factor * s->throttle[stage];
            double run_j = point->energy_j * s->energy_factor;
            values[at] = run_s * simulated_noise(s);
            values[SIMULATED_ITERATIONS * runs + at] = run_j * simulated_noise(s);
            *time_s += run_s / SIMULATED_ITERATIONS;
            *energy_j += run_j / SIMULATED_ITERATIONS;
            at++;
        }
    }
    *times = (harpe_breakdown){instruction, SIMULATED_ITERATIONS, shape,
                               shape + SIMULATED_ITERATIONS, values};
    *energies = *times;
    energies->values = values + SIMULATED_ITERATIONS * runs;
}

static inline void simulated_result(simulated_pipeline *s, const harpe_frequency_schedule *list,
                                    double iteration_s) {
    harpe_breakdown *breakdowns = harpe_arena_alloc(&s->arena, 4, sizeof *breakdowns);
    double *iterations = harpe_arena_alloc(&s->arena, 2 * SIMULATED_ITERATIONS, sizeof *iterations);
    double time_s = 0, energy_j = 0;
    simulated_breakdown(s, list, "forward", &breakdowns[0], &breakdowns[2], &time_s, &energy_j);
    simulated_breakdown(s, list, "backward", &breakdowns[1], &breakdowns[3], &time_s, &energy_j);
    for (int k = 0; k < SIMULATED_ITERATIONS; k++) {
        iterations[k] = (iteration_s + s->outside_time_s) * simulated_noise(s);
        iterations[SIMULATED_ITERATIONS + k] =
            (energy_j + s->blocking_power_w * (iteration_s - time_s) +
             s->outside_energy_j / s->job.world_size) *
            simulated_noise(s);
    }
    s->results[list->rank] = (harpe_profiling_result){list->rank,
                                                      iterations,
                                                      SIMULATED_ITERATIONS,
                                                      iterations + SIMULATED_ITERATIONS,
                                                      SIMULATED_ITERATIONS,
                                                      breakdowns,
                                                      2,
                                                      breakdowns + 2,
                                                      2};
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

static inline void simulated_log(void *user, harpe_log_level level, const char *line) {
    simulated_pipeline *s = user;
    (void)level;
    size_t length = strlen(s->log);
    (void)snprintf(s->log + length, sizeof s->log - length, "%s\n", line);
}

/* Perseus learns with a sweep unless the arguments say how: the tests of this pipeline need plans
 * for all clocks. tests/server/explored_job.h tests the exploration. */
static inline harpe_status simulated_open(simulated_pipeline *s, const char *name,
                                          const char *args) {
    harpe_log log = {simulated_log, s};
    json_t *with = json_loads(args, 0, NULL);
    if (json_is_object(with) && strcmp(name, "Perseus") == 0 && !json_object_get(with, "learning"))
        json_object_set_new(with, "learning", json_string("sweep"));
    char *text = with ? json_dumps(with, JSON_COMPACT) : NULL;
    harpe_status status =
        harpe_scheduler_kind_open(name, text ? text : args, "{}", 10, log, &s->kind, &s->error);
    free(text);
    json_decref(with);
    return status;
}

static inline void simulated_new_scheduler(simulated_pipeline *s) {
    must(s,
         harpe_scheduler_new(s->kind, &s->job, s->ranks, s->directory, &s->scheduler, &s->error));
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

static inline json_t *frontier(simulated_pipeline *s) {
    char *text;
    must(s, harpe_scheduler_frontier(s->scheduler, &text, &s->error));
    json_t *json = json_loads(text, 0, NULL);
    assert_non_null(json);
    free(text);
    return json;
}

static inline bool is_in_phase(simulated_pipeline *s, const char *phase) {
    json_t *json = frontier(s);
    bool is_in = strcmp(json_string_value(json_object_get(json, "phase")), phase) == 0;
    json_decref(json);
    return is_in;
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

static inline void wish(simulated_pipeline *s, harpe_scheduler_job_request kind, double value) {
    must(s, harpe_scheduler_handle_request(s->scheduler, kind, value, &s->error));
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

static inline void assert_logged(const simulated_pipeline *s, const char *part) {
    if (!strstr(s->log, part)) fail_msg("expected ...%s... in the log:\n%s", part, s->log);
}

#endif
