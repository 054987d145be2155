/* SPDX-License-Identifier: Apache-2.0 */
/* Trials, also on GPUs whose clocks change late: whatever time each change takes, no instruction
 * takes longer than its bound, and no iteration longer than the limit. Placing them in a large
 * pipeline takes a limited number of steps. */
#include "test.h"

#include <math.h>

#include <harpe/plan.h>

#include "plan/problem.h"
#include "server/explored_gpu.h"
#include "server/scheduler/perseus/explorer_internal.h"

enum { STAGES_MAX = 32, CLOCKS_MAX = 40, SAMPLES = 6 };

typedef struct world {
    uint64_t random;
    int stages;
    size_t clocks, count;
    harpe_problem *problem;
    double latency_s[STAGES_MAX][CLOCKS_MAX], usual_s[STAGES_MAX][CLOCKS_MAX];
    const double *latencies_s[STAGES_MAX], *usuals_s[STAGES_MAX];
    size_t *clock_before;
    harpe_clock_estimate estimates[2 * STAGES_MAX][CLOCKS_MAX];
    bool wanted[2 * STAGES_MAX][3][CLOCKS_MAX];
    harpe_trial_choices choices[2 * STAGES_MAX];
    harpe_trials trials;
    double highest_s, limit_s;
    double *ends_s; /* [node]: of the iteration that runs */
} world;

static double uniform(world *w, double from, double to) {
    return explored_draw_uniform(&w->random, from, to);
}

static void *zeros(size_t count, size_t size) {
    void *memory = calloc(count, size);
    assert_non_null(memory);
    return memory;
}

/* ---- Making it ------------------------------------------------------------------------------- */

static void make_problem(world *w, int microbatches) {
    harpe_measurement rows[2 * STAGES_MAX];
    harpe_schedule_options options = {.ranks = w->stages, .microbatches = microbatches};
    double waiting_w = 50;
    harpe_problem_options how = {.blocking_power_w = &waiting_w, .blocking_power_count = 1};
    harpe_error error;
    harpe_profile *profile;
    harpe_schedule *schedule;
    for (int k = 0; k < 2 * w->stages; k++)
        rows[k] = (harpe_measurement){.stage = k / 2,
                                      .rank = -1,
                                      .instruction = k % 2 == 0 ? "forward" : "backward",
                                      .frequency_mhz = 1000,
                                      .time_s = 1,
                                      .energy_j = 100,
                                      .gpu_count = 1};
    assert_int_equal(harpe_profile_new(rows, 2 * (size_t)w->stages, &profile, &error), HARPE_OK);
    assert_int_equal(harpe_schedule_new(&options, &schedule, &error), HARPE_OK);
    assert_int_equal(harpe_problem_new(profile, schedule, &how, &w->problem, &error), HARPE_OK);
    harpe_schedule_free(schedule);
    harpe_profile_free(profile);
    w->count = harpe_problem_instruction_count(w->problem);
}

/* Clock c has the frequency 1 - c / (2 clocks). */
static void make_estimates(world *w) {
    double time_s = 0.05 * uniform(w, 0.5, 1.5), imbalance = uniform(w, 0, 0.4);
    for (int k = 0; k < 2 * w->stages; k++) {
        double own_s = time_s * (1 + k % 2) * (1 + imbalance * uniform(w, 0, 1));
        double compute = uniform(w, 0, 1);
        for (size_t c = 0; c < w->clocks; c++) {
            double slower = 1 / (1 - 0.5 * (double)c / (double)w->clocks);
            double now_s = own_s * (compute * slower + 1 - compute);
            w->estimates[k][c] = (harpe_clock_estimate){.time_s = now_s,
                                                        .energy_j = 300 * now_s / pow(slower, 2),
                                                        .lower_s = own_s,
                                                        .upper_s = own_s * slower};
            w->wanted[k][0][c] = w->wanted[k][1][c] = c > 0 && uniform(w, 0, 1) < 0.3;
        }
        w->choices[k] = (harpe_trial_choices){.rank = k / 2,
                                              .count = w->clocks,
                                              .estimates = w->estimates[k],
                                              .waiting_w = 50,
                                              .is_wanted = w->wanted[k][0],
                                              .is_wanted_most = w->wanted[k][1],
                                              .is_placed = w->wanted[k][2]};
    }
}

static void make_gpus(world *w, double latency_s) {
    for (int r = 0; r < w->stages; r++) {
        for (size_t c = 0; c < w->clocks; c++) {
            w->latency_s[r][c] = latency_s * uniform(w, 0, 1);
            w->usual_s[r][c] = w->latency_s[r][c] * uniform(w, 0.2, 1);
        }
        w->latencies_s[r] = w->latency_s[r];
        w->usuals_s[r] = w->usual_s[r];
    }
    /* The round before changes its clocks, and may end with a short change. */
    w->clock_before = zeros(w->count, sizeof *w->clock_before);
    for (size_t i = 0; i < w->count; i++)
        w->clock_before[i] = i > 0 && uniform(w, 0, 1) < 0.7
                                 ? w->clock_before[i - 1]
                                 : (size_t)uniform(w, 0, (double)w->clocks - 0.01);
    for (int r = 0; r < w->stages; r++)
        if (uniform(w, 0, 1) < 0.5) w->clock_before[w->problem->rank_offset[r + 1] - 1] = 0;
}

/* Returns the length of an iteration at the highest clocks. */
static double highest_s(const world *w) {
    double *seconds = zeros(2 * w->count, sizeof *seconds);
    for (size_t i = 0; i < w->count; i++)
        seconds[i] = w->estimates[w->trials.entry_of[i]][0].time_s;
    double length_s = harpe_dag_run(&w->problem->dag, seconds, w->ends_s, seconds + w->count);
    free(seconds);
    return length_s;
}

static world *make(uint64_t seed, int stages, int microbatches, size_t clocks, double latency_s) {
    world *w = zeros(1, sizeof *w);
    w->random = seed;
    w->stages = stages;
    w->clocks = clocks;
    make_problem(w, microbatches);
    make_estimates(w);
    make_gpus(w, latency_s);
    int *entry_of = zeros(w->count, sizeof *entry_of);
    size_t *planned = zeros(w->count, sizeof *planned);
    for (size_t i = 0; i < w->count; i++) {
        const harpe_option_list *list = &harpe_problem_choice(w->problem, (int32_t)i)->list;
        entry_of[i] = 2 * list->stage + (strcmp(list->instruction, "backward") == 0);
        planned[i] = (size_t)uniform(w, 0, (double)clocks - 0.01);
    }
    w->trials = (harpe_trials){.dag = &w->problem->dag,
                               .entry_of = entry_of,
                               .entries = w->choices,
                               .entry_count = 2 * (size_t)stages,
                               .planned = planned,
                               .rank_count = stages,
                               .is_late = latency_s > 0,
                               .rank_offset = w->problem->rank_offset,
                               .latency_s = w->latencies_s,
                               .usual_s = w->usuals_s,
                               .clock_before = w->clock_before,
                               .clock = zeros(w->count, sizeof(size_t))};
    w->ends_s = zeros(w->count, sizeof *w->ends_s);
    w->highest_s = highest_s(w);
    w->limit_s = w->highest_s * 1.01;
    return w;
}

static void unmake(world *w) {
    harpe_problem_free(w->problem);
    free((int *)w->trials.entry_of);
    free(w->clock_before);
    free(w->trials.clock);
    free((size_t *)w->trials.planned);
    free(w->ends_s);
    free(w);
}

/* ---- Running it ------------------------------------------------------------------------------ */

/* Returns the time of an instruction that begins at `start_s`. All times are as long as they may
 * be, and each change takes `share` of its latency at most. */
static double run(world *w, explored_gpu *gpu, int rank, size_t node, size_t clock, double start_s,
                  double share) {
    static const int mhz[CLOCKS_MAX];
    const harpe_clock_estimate *at = w->estimates[w->trials.entry_of[node]];
    explored_run runs[CLOCKS_MAX];
    for (size_t c = 0; c < w->clocks; c++)
        runs[c] = (explored_run){.time_s = at[c].upper_s};
    if (uniform(w, 0, 1) < 0.5) share = uniform(w, 0, share);
    gpu->late.latency_s[clock] = share * w->latency_s[rank][clock];
    return explored_gpu_run(gpu, clock, start_s, runs, mhz).time_s;
}

/* Runs an iteration. Returns its length. */
static double iterate(world *w, explored_gpu *gpus, const size_t *clock, double share) {
    const harpe_dag *dag = &w->problem->dag;
    double *ends_s = w->ends_s, length_s = 0;
    for (int32_t k = 0; k < dag->node_count; k++) {
        int32_t i = dag->topological_order[k];
        int rank = harpe_problem_choice(w->problem, i)->list.rank;
        double start_s = 0;
        for (int32_t a = dag->first_arc_into[i]; a < dag->first_arc_into[i + 1]; a++)
            start_s = fmax(start_s, ends_s[dag->arc_from[a]]);
        ends_s[i] = start_s + run(w, &gpus[rank], rank, (size_t)i, clock[i], start_s, share);
        length_s = fmax(length_s, ends_s[i]);
    }
    for (int r = 0; r < w->stages; r++)
        explored_gpu_end(&gpus[r], length_s, NULL);
    return length_s;
}

static void check_round(world *w, double share) {
    static explored_gpu gpus[STAGES_MAX];
    for (int r = 0; r < w->stages; r++) {
        explored_gpu_init(&gpus[r], (uint64_t)r);
        gpus[r].clock = gpus[r].wanted = 0;
    }
    for (int k = 0; k < 2; k++)
        (void)iterate(w, gpus, w->clock_before, share);
    for (int k = 0; k < 3; k++)
        assert_true(iterate(w, gpus, w->trials.clock, share) <= w->trials.length_s * (1 + 1e-9));
    for (int r = 0; r < w->stages; r++)
        free(gpus[r].asks);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static size_t lowered(const world *w) {
    size_t found = 0;
    for (size_t i = 0; i < w->count; i++)
        found += w->trials.clock[i] > 0;
    return found;
}

static size_t place(world *w, bool probes) {
    harpe_error error;
    harpe_status status = probes ? harpe_trials_probe(&w->trials, w->limit_s, &error)
                                 : harpe_trials_place(&w->trials, w->limit_s, &error);
    assert_int_equal(status, HARPE_OK);
    return w->trials.placed;
}

TEST(no_latency_makes_an_iteration_too_long) {
    static const double latencies_s[] = {0, 0.01, 0.05, 0.3, 3};
    size_t trials_placed = 0;
    for (int i = 0; i < test_trials(60); i++) {
        uint64_t random = (uint64_t)i;
        int stages = 1 + (int)explored_draw_uniform(&random, 0, 5);
        int microbatches = 1 + (int)explored_draw_uniform(&random, 0, 11);
        size_t clocks = 2 + (size_t)explored_draw_uniform(&random, 0, 20);
        world *w = make(random, stages, microbatches, clocks, latencies_s[i % 5]);
        size_t placed = place(w, i % 4 == 3);
        trials_placed += placed;
        /* A clock of the round before can make the highest clocks too slow. */
        if (placed > 0) assert_true(w->trials.length_s <= w->limit_s * (1 + 1e-6));
        for (int k = 0; k < SAMPLES; k++)
            check_round(w, k < 3 ? 1 : uniform(w, 0, 1));
        unmake(w);
    }
    assert_true(trials_placed >= (size_t)test_trials(60));
}

/* A larger pipeline must not take more steps, whatever the latency. */
TEST(placing_takes_few_steps) {
    static const double latencies_s[] = {0, 0.03, 3, 1000};
    for (int i = 0; i < 4; i++) {
        world *w = make((uint64_t)i, 32, 256, 30, latencies_s[i]);
        memset(w->clock_before, 0, w->count * sizeof *w->clock_before);
        size_t placed = place(w, false);
        size_t all = w->count + (size_t)w->problem->dag.arc_count;
        print_message("%.3f s: %zu placed, %zu of %zu lowered, %zu steps\n", latencies_s[i], placed,
                      lowered(w), w->count, w->trials.work);
        assert_true(w->trials.work <= HARPE_TRIALS_WORK + 100 * all);
        assert_true(placed > 0 && lowered(w) > 0);
        assert_true(w->trials.length_s <= w->limit_s * (1 + 1e-6));
        check_round(w, 1);
        unmake(w);
    }
}

int main(void) { return run_listed_tests(); }
