/* SPDX-License-Identifier: Apache-2.0 */
/* A training job that is simulated round by round: it plays all ranks against the functions of a
 * scheduler, without processes, and knows the true time and energy of each round. It has two kinds,
 * which say how a round is measured: simulated_pipeline.h and explored_job.h. It needs no test
 * framework, so that benchmarks can use it too. A failure ends the program. */
#ifndef HARPE_TESTS_SERVER_SIMULATED_JOB_H
#define HARPE_TESTS_SERVER_SIMULATED_JOB_H

#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <harpe/plan.h>

#include "base/array.h"
#include "explored_gpu.h"
#include "server/scheduler/scheduler_host.h"

enum { SIMULATED_RANKS_MAX = 64, EXPLORED_STAGES_MAX = 16, LOG_SIZE = 1 << 16 };

typedef struct simulated_job {
    uint64_t random;
    int pp, dp, tp, microbatches;
    double blocking_power_w;
    double throttle[SIMULATED_RANKS_MAX]; /* of a stage: factor on the time of its instructions */
    double outside_time_s;                /* of an iteration */
    harpe_profile *profile;               /* the truth, of one GPU per stage */
    harpe_problem *problem;
    harpe_plan ran; /* the true time and energy of the last round */
    int *frequency_mhz;
    harpe_job_info job;
    harpe_rank_info ranks[SIMULATED_RANKS_MAX];
    harpe_scheduler_kind *kind;
    harpe_scheduler *scheduler;
    const harpe_frequency_schedule *schedules;
    harpe_arena arena; /* of the results */
    harpe_profiling_result results[SIMULATED_RANKS_MAX];
    char log[LOG_SIZE];
    bool logs; /* also to standard error */
    harpe_error error;

    /* simulated_pipeline.h: the measurements of a round have noise. */
    double noise, time_factor, energy_factor;
    double outside_energy_j; /* of an iteration of all ranks */
    double straggler_time_s; /* lower limit of an iteration's time */
    int *available_mhz;
    char directory[64];

    /* explored_job.h: each run of an instruction has jitter, and clocks may change late. */
    int clock_count, iterations;
    int mhz[EXPLORED_CLOCKS_MAX]; /* the highest first */
    double jitter;                /* relative standard deviation of a run's time */
    double other_s;               /* other pipelines need so long for an iteration */
    char words[128];              /* that describe the job */
    harpe_plan highest;           /* all instructions at the highest clock */
    double best_j; /* the energy of the plan that is made from the truth, at this time */
    const harpe_profile_point **points;
    harpe_profile_point *noisy;
    double *starts_s;
    explored_gpu gpus[EXPLORED_STAGES_MAX];
    size_t *clock_index;      /* [instruction]: of the round */
    uint64_t *spans_us;       /* [iteration][instruction][2] */
    bool is_silent;           /* the ranks report no clocks */
    bool is_blind;            /* the ranks report that they do not know their clocks */
    double worst_iteration_s; /* of the last round: one iteration without jitter */
    harpe_rank_clocks clocks[EXPLORED_STAGES_MAX];
} simulated_job;

#define must(s, call) \
    do { \
        if ((call) != HARPE_OK) { \
            (void)fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, (s)->error.message); \
            abort(); \
        } \
    } while (0)

static inline simulated_job *simulated_new(void) {
    simulated_job *s = calloc(1, sizeof *s);
    if (!s) abort();
    s->dp = s->tp = 1;
    for (int i = 0; i < SIMULATED_RANKS_MAX; i++)
        s->throttle[i] = 1;
    return s;
}

/* Makes the problem of the job's pipeline with this profile. */
static inline harpe_problem *simulated_problem_of(simulated_job *s, const harpe_profile *profile) {
    harpe_schedule *schedule;
    harpe_problem *problem;
    harpe_schedule_options options = {.ranks = s->pp, .microbatches = s->microbatches};
    harpe_problem_options how = {.blocking_power_w = &s->blocking_power_w,
                                 .blocking_power_count = 1};
    must(s, harpe_schedule_new(&options, &schedule, &s->error));
    must(s, harpe_problem_new(profile, schedule, &how, &problem, &s->error));
    harpe_schedule_free(schedule);
    return problem;
}

/* Returns the plan at the highest clocks, without its frequencies. */
static inline harpe_plan simulated_highest(simulated_job *s, const harpe_problem *problem) {
    harpe_plan plan;
    must(s, harpe_plan_all_maximum(problem, &plan, &s->error));
    return plan;
}

static inline void simulated_make_problem(simulated_job *s, const harpe_profile *profile) {
    harpe_problem_free(s->problem);
    s->problem = simulated_problem_of(s, profile);
    free(s->frequency_mhz);
    s->frequency_mhz =
        calloc(harpe_problem_instruction_count(s->problem), sizeof *s->frequency_mhz);
}

static inline void simulated_make_ranks(simulated_job *s, const int *mhz, size_t count) {
    s->job = (harpe_job_info){.job_id = "job",
                              .pp_degree = s->pp,
                              .dp_degree = s->dp,
                              .tp_degree = s->tp,
                              .world_size = s->pp * s->dp * s->tp};
    if (s->job.world_size > SIMULATED_RANKS_MAX) abort();
    for (int r = 0; r < s->job.world_size; r++)
        s->ranks[r] = (harpe_rank_info){.rank = r,
                                        .dp_rank = r / (s->pp * s->tp),
                                        .pp_rank = r / s->tp % s->pp,
                                        .tp_rank = r % s->tp,
                                        .available_frequencies_mhz = mhz,
                                        .available_frequency_count = count};
}

static inline void simulated_log(void *user, harpe_log_level level, const char *line) {
    simulated_job *s = user;
    (void)level;
    size_t length = strlen(s->log);
    (void)snprintf(s->log + length, sizeof s->log - length, "%s\n", line);
    if (s->logs) (void)fprintf(stderr, "%s\n", line);
}

static inline harpe_status simulated_open_kind(simulated_job *s, const char *name,
                                               const char *args) {
    harpe_log log = {simulated_log, s};
    return harpe_scheduler_kind_open(name, args, "{}", 10, log, &s->kind, &s->error);
}

static inline void simulated_new_scheduler(simulated_job *s) {
    must(s, harpe_scheduler_new(s->kind, &s->job, s->ranks, *s->directory ? s->directory : NULL,
                                &s->scheduler, &s->error));
}

/* Returns the state of the scheduler. The caller frees it. */
static inline char *simulated_save(simulated_job *s) {
    char *text;
    size_t length;
    must(s, harpe_scheduler_save(s->scheduler, &text, &length, &s->error));
    return text;
}

/* Replaces the scheduler by one with this state. */
static inline void simulated_load(simulated_job *s, const char *text) {
    harpe_scheduler_free(s->scheduler);
    s->scheduler = NULL;
    simulated_new_scheduler(s);
    must(s, harpe_scheduler_load(s->scheduler, text, strlen(text), &s->error));
}

/* Replaces the scheduler by one that has loaded its state, as a server does that was killed. */
static inline void simulated_restart(simulated_job *s) {
    char *text = simulated_save(s);
    simulated_load(s, text);
    char *again = simulated_save(s);
    if (strcmp(text, again) != 0) abort();
    free(text);
    free(again);
}

static inline void simulated_close(simulated_job *s) {
    harpe_scheduler_free(s->scheduler);
    harpe_scheduler_kind_close(s->kind);
    s->scheduler = NULL;
    s->kind = NULL;
}

static inline void simulated_forget(simulated_job *s) {
    simulated_close(s);
    harpe_problem_free(s->problem);
    harpe_profile_free(s->profile);
    harpe_arena_free(&s->arena);
    free(s->frequency_mhz);
    free(s);
}

/* ---- Results --------------------------------------------------------------------------------- */

static inline void *simulated_alloc(simulated_job *s, size_t count, size_t size) {
    void *memory = harpe_arena_alloc(&s->arena, count, size);
    if (!memory) abort();
    return memory;
}

/* Makes the result of a rank that has run forward runs[0] and backward runs[1] times in each
 * iteration. Its values are still to be written. */
static inline void simulated_make_result(simulated_job *s, int rank, int iterations,
                                         const size_t runs[2]) {
    static const char *const names[] = {"forward", "backward"};
    size_t k = (size_t)iterations;
    double *values = simulated_alloc(s, 2 * k, sizeof *values);
    harpe_breakdown *list = simulated_alloc(s, 4, sizeof *list);
    for (int n = 0; n < 4; n++) {
        size_t *shape = simulated_alloc(s, 2 * k, sizeof *shape);
        for (size_t i = 0; i < k; i++) {
            shape[i] = runs[n % 2];
            shape[k + i] = i * runs[n % 2];
        }
        list[n] = (harpe_breakdown){names[n % 2], k, shape, shape + k,
                                    simulated_alloc(s, k * runs[n % 2] + 1, sizeof(double))};
    }
    s->results[rank] =
        (harpe_profiling_result){rank, values, k, values + k, k, list, 2, list + 2, 2};
}

/* Writes what run `run` of forward (n = 0) or backward (n = 1) took in an iteration. */
static inline void simulated_write_run(simulated_job *s, int rank, int n, size_t iteration,
                                       size_t run, double time_s, double energy_j) {
    const harpe_profiling_result *result = &s->results[rank];
    size_t at = result->time_breakdown[n].offsets[iteration] + run;
    ((double *)result->time_breakdown[n].values)[at] = time_s;
    ((double *)result->energy_breakdown[n].values)[at] = energy_j;
}

static inline void simulated_write_iteration(simulated_job *s, int rank, size_t iteration,
                                             double time_s, double energy_j) {
    ((double *)s->results[rank].iteration_time_s)[iteration] = time_s;
    ((double *)s->results[rank].iteration_energy_j)[iteration] = energy_j;
}

/* ---- What the scheduler tells ---------------------------------------------------------------- */

static inline json_t *frontier(simulated_job *s) {
    char *text;
    must(s, harpe_scheduler_frontier(s->scheduler, &text, &s->error));
    json_t *json = json_loads(text, 0, NULL);
    if (!json) abort();
    free(text);
    return json;
}

/* Returns a number of a part of the frontier; NAN: it has none. */
static inline double number_of(simulated_job *s, const char *part, const char *name) {
    json_t *json = frontier(s);
    const json_t *value = json_object_get(json_object_get(json, part), name);
    double number = json_is_number(value) ? json_number_value(value) : NAN;
    json_decref(json);
    return number;
}

static inline bool is_in_phase(simulated_job *s, const char *phase) {
    json_t *json = frontier(s);
    bool is_in = strcmp(json_string_value(json_object_get(json, "phase")), phase) == 0;
    json_decref(json);
    return is_in;
}

static inline void ask_for(simulated_job *s, harpe_scheduler_job_request kind, double value) {
    must(s, harpe_scheduler_handle_request(s->scheduler, kind, value, &s->error));
}

#endif
