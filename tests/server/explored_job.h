/* SPDX-License-Identifier: Apache-2.0 */
/* A training job in virtual time that learns with Perseus: random physics of each (stage,
 * instruction), random jitter, and the true time and energy of every round. It plays all ranks
 * against the scheduler's functions, without sockets and without sleeping. It needs no test
 * framework, so that benchmarks can use it too. A failure ends the program. */
#ifndef HARPE_TESTS_SERVER_EXPLORED_JOB_H
#define HARPE_TESTS_SERVER_EXPLORED_JOB_H

#include "explored_law.h"
#include "plan/plans.h"
#include "plan/problem.h"
#include "simulated_job.h"

typedef simulated_job explored_job;

/* ---- Chance ---------------------------------------------------------------------------------- */

static inline double explored_uniform(explored_job *s, double from, double to) {
    return explored_draw_uniform(&s->random, from, to);
}

static inline int explored_pick(explored_job *s, int from, int to) {
    return from + (int)explored_uniform(s, 0, to - from + 0.999999);
}

static inline double explored_normal(explored_job *s) { return explored_draw_normal(&s->random); }

/* ---- Physics --------------------------------------------------------------------------------- */

/* How one instruction depends on the clock. x is the clock divided by the highest clock. */
typedef struct explored_physics {
    double time_s;    /* at the highest clock */
    double compute;   /* the share that scales with the clock */
    bool is_roofline; /* the longer of compute and memory time, not their sum */
    double static_w, dynamic_w, knee, knee_voltage;
} explored_physics;

static inline double explored_time_s(const explored_physics *p, double x) {
    if (p->is_roofline) return p->time_s * fmax(1, p->compute / x);
    return p->time_s * (p->compute / x + 1 - p->compute);
}

static inline double explored_power_w(const explored_physics *p, double x) {
    double rise = x <= p->knee ? 0 : (x - p->knee) / (1 - p->knee);
    double voltage = p->knee_voltage + (1 - p->knee_voltage) * rise;
    double activity = explored_time_s(p, 1) / (explored_time_s(p, x) * x); /* less if it waits */
    return p->static_w + p->dynamic_w * x * voltage * voltage * fmin(1, 0.5 + 0.5 * activity * 1);
}

static inline void explored_clocks(explored_job *s) {
    int highest = explored_pick(s, 0, 1) ? 1410 : 1980;
    int count = explored_pick(s, 0, 5) == 0 ? explored_pick(s, 2, 5) : explored_pick(s, 10, 80);
    double lowest = highest * explored_uniform(s, 0.3, 0.7);
    int step = (int)((highest - lowest) / count / 15) * 15;
    if (step < 15) step = 15;
    s->clock_count = 0;
    for (int mhz = highest; mhz >= lowest && s->clock_count < count; mhz -= step)
        s->mhz[s->clock_count++] = mhz;
}

static inline explored_physics explored_draw(explored_job *s, double time_s, double variability) {
    int character = explored_pick(s, 0, 3);
    double gpu = 1 + variability * explored_normal(s);
    explored_physics p = {.time_s = time_s * fmax(0.7, 1 + 0.5 * variability * explored_normal(s)),
                          .compute = character == 0   ? explored_uniform(s, 0.9, 1)
                                     : character == 1 ? explored_uniform(s, 0, 0.4)
                                                      : explored_uniform(s, 0.5, 0.95),
                          .is_roofline = explored_pick(s, 0, 3) == 0,
                          .static_w =
                              s->blocking_power_w * explored_uniform(s, 1.0, 1.4) * fmax(0.8, gpu),
                          .dynamic_w = explored_uniform(s, 150, 400),
                          .knee = explored_uniform(s, 0.5, 0.85),
                          .knee_voltage = explored_uniform(s, 0.65, 0.85)};
    return p;
}

static inline void explored_truth(explored_job *s) {
    static harpe_measurement rows[2 * EXPLORED_STAGES_MAX * EXPLORED_CLOCKS_MAX];
    static const char *const names[] = {"forward", "backward"};
    size_t count = 0;
    double imbalance = explored_uniform(s, 0, 0.4), variability = explored_pick(s, 0, 1) * 0.05;
    bool is_uniform = explored_pick(s, 0, 2) > 0; /* the stages have the same physics */
    explored_physics same[2];
    for (int i = 0; i < 2; i++)
        same[i] = explored_draw(s, i == 0 ? 0.05 : 0.05 * explored_uniform(s, 1.5, 2.2), 0);
    for (int stage = 0; stage < s->pp; stage++) {
        double load = 1 + imbalance * explored_uniform(s, 0, 1);
        for (int i = 0; i < 2; i++) {
            explored_physics p = same[i];
            if (!is_uniform) p = explored_draw(s, p.time_s, variability);
            p.time_s *= load * (1 + 0.3 * variability * explored_normal(s));
            for (int c = 0; c < s->clock_count; c++) {
                double x = (double)s->mhz[c] / s->mhz[0], t = explored_time_s(&p, x);
                rows[count++] = (harpe_measurement){.stage = stage,
                                                    .rank = -1,
                                                    .instruction = names[i],
                                                    .frequency_mhz = s->mhz[c],
                                                    .time_s = t,
                                                    .energy_j = t * explored_power_w(&p, x),
                                                    .gpu_count = 1};
            }
        }
    }
    must(s, harpe_profile_new(rows, count, &s->profile, &s->error));
}

/* ---- Making a job ---------------------------------------------------------------------------- */

/* Makes the truth break the law. */
static inline void explored_bend_truth(explored_job *s, explored_law law, uint64_t seed) {
    harpe_profile *lawful = s->profile;
    must(s, explored_break_law(lawful, law, seed, &s->profile, &s->error));
    harpe_profile_free(lawful);
}

static inline void explored_prepare(explored_job *s) {
    simulated_make_problem(s, s->profile);
    must(s, harpe_plan_all_maximum(s->problem, &s->highest, &s->error));
    double time_s = s->highest.time_s * (1 + 1e-9);
    harpe_plan_request request = {
        .choice = HARPE_PLANS_AT, .times_s = &time_s, .time_count = 1, .threads = 1};
    harpe_plan_set *set;
    must(s, harpe_plan_set_new(s->problem, &request, NULL, NULL, &set, &s->error));
    s->best_j = harpe_plan_set_at(set, 0)->energy_j;
    harpe_plan_set_free(set);
    size_t count = harpe_problem_instruction_count(s->problem);
    s->points = calloc(count, sizeof *s->points);
    s->noisy = calloc(count, sizeof *s->noisy);
    s->starts_s = calloc(count, sizeof *s->starts_s);
    s->clock_index = calloc(count, sizeof *s->clock_index);
    s->spans_us = calloc(2 * count * (size_t)s->iterations, sizeof *s->spans_us);
    for (int r = 0; r < s->pp; r++)
        explored_gpu_init(&s->gpus[r], s->random + (uint64_t)r);
    simulated_make_ranks(s, s->mhz, (size_t)s->clock_count);
}

/* Makes a random job of at most so many stages and microbatches. The same seed makes the same job.
 */
static inline explored_job *explored_under(explored_law law, uint64_t seed, int stages,
                                           int microbatches) {
    static const double jitters[] = {0, 0.002, 0.005, 0.01, 0.02};
    explored_job *s = simulated_new();
    s->random = seed * 7919 + 17;
    s->pp = explored_pick(s, 1, 3) == 1 ? explored_pick(s, 2, EXPLORED_STAGES_MAX)
                                        : explored_pick(s, 2, 8);
    s->microbatches = explored_pick(s, 3, 24);
    if (s->pp > stages) s->pp = stages;
    if (s->microbatches > microbatches) s->microbatches = microbatches;
    s->iterations = explored_pick(s, 3, 10);
    s->jitter = jitters[explored_pick(s, 0, 4)];
    s->outside_time_s = explored_pick(s, 0, 1) * explored_uniform(s, 0, 0.3);
    s->blocking_power_w = explored_uniform(s, 50, 110);
    explored_clocks(s);
    explored_truth(s);
    if (law.kind != EXPLORED_LAWFUL) explored_bend_truth(s, law, seed);
    explored_prepare(s);
    int used = snprintf(s->words, sizeof s->words,
                        "%2d stages %2d microbatches %2d clocks %2d iterations jitter %.1f %%",
                        s->pp, s->microbatches, s->clock_count, s->iterations, 100 * s->jitter);
    if (law.kind != EXPLORED_LAWFUL)
        (void)snprintf(s->words + used, sizeof s->words - (size_t)used, " %s %.1f %%%s",
                       explored_law_names[law.kind], 100 * law.amount,
                       law.is_shared ? " shared" : "");
    return s;
}

static inline explored_job *explored_sized(uint64_t seed, int stages, int microbatches) {
    return explored_under((explored_law){0}, seed, stages, microbatches);
}

static inline explored_job *explored_random(uint64_t seed) {
    return explored_sized(seed, EXPLORED_STAGES_MAX, 24);
}

/* Makes a job from a profile that was measured. */
static inline explored_job *explored_measured(const char *path, explored_law law, int microbatches,
                                              double blocking_w, double jitter, uint64_t seed) {
    explored_job *s = simulated_new();
    s->random = seed;
    s->microbatches = microbatches;
    s->iterations = 5;
    s->jitter = jitter;
    s->blocking_power_w = blocking_w;
    must(s, harpe_profile_read_csv(path, &s->profile, &s->error));
    if (law.kind != EXPLORED_LAWFUL) explored_bend_truth(s, law, seed);
    s->pp = harpe_profile_stage_count(s->profile);
    const harpe_profile_entry *entry = harpe_profile_entry_at(s->profile, 0);
    for (size_t i = 0; i < entry->point_count; i++)
        s->mhz[s->clock_count++] = entry->points[i].frequency_mhz;
    explored_prepare(s);
    (void)snprintf(s->words, sizeof s->words, "%d stages %d microbatches jitter %.1f %% %s %.1f %%",
                   s->pp, microbatches, 100 * jitter, explored_law_names[law.kind],
                   100 * law.amount);
    return s;
}

/* `more`: further arguments of Perseus, each after a comma. */
static inline void explored_start(explored_job *s, int plans, const char *more) {
    char args[256];
    (void)snprintf(args, sizeof args, "{\"num_microbatches\": %d, \"plans\": %d%s}",
                   s->microbatches, plans, more);
    must(s, simulated_open_kind(s, "Perseus", args));
    simulated_new_scheduler(s);
}

static inline void explored_free(explored_job *s) {
    free(s->points);
    free(s->noisy);
    free(s->starts_s);
    free(s->clock_index);
    free(s->spans_us);
    for (int r = 0; r < s->pp; r++) {
        harpe_rank_clocks_free(&s->clocks[r]);
        free(s->gpus[r].asks);
    }
    simulated_forget(s);
}

/* ---- Rounds ---------------------------------------------------------------------------------- */

/* Makes the GPUs change their clocks late. Each clock gets a latency of 0.4 to 1 times `latency_s`.
 */
static inline void explored_make_late(explored_job *s, double latency_s) {
    size_t used = strlen(s->words);
    for (int r = 0; r < s->pp; r++) {
        explored_lateness late = {
            .is_told = true, .spread = 0.1, .tail_share = 0.02, .tail_factor = 3};
        for (int c = 0; c < s->clock_count; c++)
            late.latency_s[c] = latency_s * explored_uniform(s, 0.4, 1);
        s->gpus[r].late = late;
    }
    (void)snprintf(s->words + used, sizeof s->words - used, " late %.0f ms", 1e3 * latency_s);
}

/* Makes the GPUs change their clocks late, with random latencies. A job has a longest latency of
 * 0.3 to 150 ms. Each clock has a latency between 0 and this. In half of the jobs all GPUs have the
 * same latencies. */
static inline void explored_make_wild(explored_job *s) {
    size_t used = strlen(s->words);
    double longest_s = pow(10, explored_uniform(s, -3.5, log10(0.15)));
    bool is_same = explored_pick(s, 0, 1) == 1;
    for (int r = 0; r < s->pp; r++) {
        explored_lateness *late = &s->gpus[r].late;
        if (r > 0 && is_same) {
            *late = s->gpus[0].late;
            continue;
        }
        *late = (explored_lateness){.is_told = true,
                                    .spread = explored_uniform(s, 0, 0.2),
                                    .tail_share = explored_uniform(s, 0, 0.02),
                                    .tail_factor = explored_uniform(s, 1, 3)};
        for (int c = 0; c < s->clock_count; c++)
            late->latency_s[c] = explored_uniform(s, 0, longest_s);
    }
    (void)snprintf(s->words + used, sizeof s->words - used, " late 0 to %.1f ms", 1e3 * longest_s);
}

/* Draws the jitter of an iteration's instructions: factors of the time and of the energy of each.
 */
static inline double *explored_draw_factors(explored_job *s) {
    size_t count = harpe_problem_instruction_count(s->problem);
    double *factors = simulated_alloc(s, 2 * count, sizeof *factors);
    for (size_t i = 0; i < count; i++) {
        factors[2 * i] = fmax(0.5, 1 + s->jitter * explored_normal(s));
        factors[2 * i + 1] = factors[2 * i] * (1 + 0.2 * s->jitter * explored_normal(s));
    }
    return factors;
}

/* Runs one iteration, without jitter if `factors` is NULL. Writes the time and energy of each
 * instruction into s->noisy, and returns those of the iteration. */
static inline harpe_plan explored_run_iteration(explored_job *s, const double *factors,
                                                uint64_t *spans_us) {
    const harpe_dag *dag = &s->problem->dag;
    for (int32_t k = 0; k < dag->node_count; k++) {
        int32_t i = dag->topological_order[k];
        const harpe_choice *choice = harpe_problem_choice(s->problem, i);
        explored_gpu *gpu = &s->gpus[choice->list.rank];
        explored_run at[EXPLORED_CLOCKS_MAX];
        double start_s = 0, factor = 1, energy_factor = 1;
        for (int32_t a = dag->first_arc_into[i]; a < dag->first_arc_into[i + 1]; a++) {
            int32_t from = dag->arc_from[a];
            start_s = fmax(start_s, s->starts_s[from] + s->noisy[from].time_s);
        }
        if (factors) {
            factor = factors[2 * i];
            energy_factor = factors[2 * i + 1];
        }
        factor *= s->throttle[choice->list.rank];
        for (int c = 0; c < s->clock_count; c++)
            at[c] = (explored_run){choice->points[c].time_s * factor,
                                   choice->points[c].energy_j * energy_factor};
        explored_run run = explored_gpu_run(gpu, s->clock_index[i], start_s, at, s->mhz);
        s->starts_s[i] = start_s;
        s->noisy[i] = (harpe_profile_point){s->frequency_mhz[i], run.time_s, run.energy_j};
        s->points[i] = &s->noisy[i];
        if (!spans_us) continue;
        spans_us[2 * i] = explored_us(gpu, start_s);
        spans_us[2 * i + 1] = explored_us(gpu, start_s + run.time_s);
    }
    harpe_plan plan = harpe_evaluate_points(s->problem, s->points, s->starts_s);
    for (int r = 0; r < s->pp; r++)
        explored_gpu_end(&s->gpus[r], plan.time_s + s->outside_time_s, s->mhz);
    return plan;
}

/* Runs one iteration with jitter, and writes its measurements. */
static inline void explored_iterate(explored_job *s, size_t iteration) {
    size_t at = 0, count = harpe_problem_instruction_count(s->problem);
    harpe_plan plan =
        explored_run_iteration(s, explored_draw_factors(s), s->spans_us + 2 * count * iteration);
    for (int r = 0; r < s->pp; r++) {
        size_t length = harpe_problem_rank_length(s->problem, r), run[2] = {0, 0};
        double busy_s = 0, busy_j = 0;
        for (size_t i = 0; i < length; i++, at++) {
            int n = strcmp(harpe_problem_instruction_name(s->problem, r, i), "forward") != 0;
            simulated_write_run(s, r, n, iteration, run[n]++, s->noisy[at].time_s,
                                s->noisy[at].energy_j);
            busy_s += s->noisy[at].time_s;
            busy_j += s->noisy[at].energy_j;
        }
        double time_s = fmax(plan.time_s + s->outside_time_s, s->other_s);
        simulated_write_iteration(s, r, iteration, time_s,
                                  busy_j + s->blocking_power_w * (time_s - busy_s));
    }
}

/* Runs the iterations of the round without jitter. Writes the mean of their times and energies to
 * s->ran, and the time of the slowest one to s->worst_iteration_s. Afterwards the GPUs are as they
 * were before the call. */
static inline void explored_find_truth(explored_job *s) {
    explored_gpu before[EXPLORED_STAGES_MAX];
    memcpy(before, s->gpus, sizeof before);
    s->ran = (harpe_plan){0};
    s->worst_iteration_s = 0;
    int iterations = explored_is_late(&s->gpus[0]) ? s->iterations : 1;
    for (int i = 0; i < iterations; i++) {
        harpe_plan plan = explored_run_iteration(s, NULL, NULL);
        s->ran.time_s += plan.time_s / iterations;
        s->ran.energy_j += plan.energy_j / iterations;
        s->worst_iteration_s = fmax(s->worst_iteration_s, plan.time_s);
    }
    memcpy(s->gpus, before, sizeof before);
}

static inline void explored_next(explored_job *s) {
    must(s, harpe_scheduler_next(s->scheduler, &s->schedules, &s->error));
    size_t at = 0;
    for (int r = 0; r < s->pp; r++) {
        for (size_t i = 0; i < s->schedules[r].instruction_count; i++, at++) {
            s->frequency_mhz[at] = s->schedules[r].instructions[i].frequency_mhz;
            s->clock_index[at] = 0;
            while (s->mhz[s->clock_index[at]] != s->frequency_mhz[at])
                s->clock_index[at]++;
        }
    }
    explored_find_truth(s);
}

/* Makes a rank's report of its clocks, in the same way as the client. */
static inline void explored_tell_clocks(explored_job *s, int rank, size_t first) {
    explored_gpu *gpu = &s->gpus[rank];
    size_t length = harpe_problem_rank_length(s->problem, rank);
    size_t count = harpe_problem_instruction_count(s->problem);
    harpe_rank_clocks *told = &s->clocks[rank];
    harpe_rank_clocks_free(told);
    *told = (harpe_rank_clocks){.is_known = true, .run_count = length};
    told->latencies = calloc(HARPE_CLOCK_LATENCIES, sizeof *told->latencies);
    told->runs = calloc(length, sizeof *told->runs);
    harpe_clock_timeline timeline;
    if (!told->latencies || !told->runs ||
        !harpe_clock_timeline_make(&timeline, gpu->asks, gpu->ask_count, &gpu->table))
        abort();
    told->latency_count = s->is_blind ? 0 : explored_latencies(gpu, told->latencies);
    for (size_t i = 0; i < length; i++) {
        for (size_t k = 0; k < (size_t)s->iterations; k++) {
            const uint64_t *span = s->spans_us + 2 * (count * k + first + i);
            harpe_run_clocks run = harpe_clock_shares_of(&timeline, span[0], span[1]);
            harpe_clock_shares_add(&told->runs[i], k, &run);
        }
        if (s->is_blind) told->runs[i] = (harpe_run_clocks){.count = -1};
    }
    harpe_clock_timeline_free(&timeline);
}

static inline void explored_observe(explored_job *s) {
    size_t runs[2] = {(size_t)s->microbatches, (size_t)s->microbatches};
    harpe_arena_free(&s->arena);
    for (int r = 0; r < s->pp; r++)
        simulated_make_result(s, r, s->iterations, runs);
    for (int i = 0; i < s->iterations; i++)
        explored_iterate(s, (size_t)i);
    bool tells = explored_is_late(&s->gpus[0]) && !s->is_silent;
    for (int r = 0; r < s->pp && tells; r++)
        explored_tell_clocks(s, r, s->problem->rank_offset[r]);
    if (tells) harpe_scheduler_tell_clocks(s->scheduler, s->clocks);
    must(s, harpe_scheduler_observe(s->scheduler, s->results, (size_t)s->pp, &s->error));
}

/* ---- A whole way ----------------------------------------------------------------------------- */

/* What a way from an empty start to a plan costs, relative to the highest clocks. All numbers are
 * of the true times and energies, without noise. */
typedef struct explored_way {
    int rounds;
    double worst_time, mean_time; /* of the rounds before the plan; 0.01: 1 % longer */
    double worst_iteration;       /* the same of one iteration, without jitter */
    double worst_energy;          /* of a round, from the second planned round on */
    double mean_energy;
    double plan_time;   /* of the plan, relative to T_min */
    double plan_energy; /* of the plan, relative to that of the truth; 0.005: 0.5 % more */
    double best_energy; /* of the plan of the truth, relative to the highest clocks */
} explored_way;

static inline bool explored_is_highest(const explored_job *s) {
    for (size_t i = 0; i < harpe_problem_instruction_count(s->problem); i++)
        if (s->frequency_mhz[i] != s->mhz[0]) return false;
    return true;
}

/* Runs a job that has started until it has a plan. */
static inline explored_way explored_go(explored_job *s, int most_rounds) {
    explored_way way = {.worst_time = -1, .worst_energy = -1};
    double highest_s = s->highest.time_s + s->outside_time_s, time_s = 0, energy_j = 0;
    double outside_j = s->blocking_power_w * s->outside_time_s * s->pp;
    double highest_j = s->highest.energy_j + outside_j;
    int planned = 0;
    while (!is_in_phase(s, "plan") && way.rounds < most_rounds) {
        explored_next(s);
        double time = (s->ran.time_s + s->outside_time_s) / highest_s - 1;
        double energy = (s->ran.energy_j + outside_j) / highest_j - 1;
        planned += planned > 0 || !explored_is_highest(s);
        way.worst_time = fmax(way.worst_time, time);
        way.worst_iteration =
            fmax(way.worst_iteration, (s->worst_iteration_s + s->outside_time_s) / highest_s - 1);
        if (planned >= 2) way.worst_energy = fmax(way.worst_energy, energy);
        time_s += time;
        energy_j += energy;
        way.rounds++;
        if (s->logs)
            (void)fprintf(stderr, "round %d: time %+.3f %%, energy %+.3f %%\n", way.rounds,
                          100 * time, 100 * energy);
        explored_observe(s);
    }
    explored_next(s);
    way.mean_time = time_s / way.rounds;
    way.mean_energy = energy_j / way.rounds;
    way.plan_time = s->ran.time_s / s->highest.time_s - 1;
    way.plan_energy = s->ran.energy_j / s->best_j - 1;
    way.best_energy = s->best_j / s->highest.energy_j - 1;
    return way;
}

#endif
