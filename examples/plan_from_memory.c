/* SPDX-License-Identifier: Apache-2.0 */
/* Harpe from C in one page: computes frequencies for every instruction from measured numbers in
 * memory. It needs no files and no GPU. Compile it against an installed Harpe with
 *
 *     cc plan_from_memory.c $(pkg-config --cflags --libs harpe)
 *
 * The steps are always the same:
 *
 *     measurements -> profile --+
 *                               +--> problem --> frontier and plans
 *                  schedule ----+
 *
 * Every call that can fail returns a harpe_status and fills in a harpe_error of the caller: one
 * line that describes the mistake. Free the result of a _new function with the _free function of
 * the same name. The _free functions accept NULL, so that one clean-up at the end is enough. */
#include <stdio.h>
#include <stdlib.h>

#include <harpe/plan.h>
#include <harpe/profile.h>
#include <harpe/schedule.h>

enum { STAGES = 4, MICROBATCHES = 8, FREQUENCIES = 5, PLANS = 9 };

/* The power of a GPU while it waits for its neighbours, in watts. */
static const double blocking_power_w = 75;

/* In a real program, measure these: run each stage's forward and backward at a few frequencies, and
 * record time and energy. Here the last stage has slightly more work than the others, as in many
 * models. */
static size_t measure(harpe_measurement *rows) {
    static const struct {
        int mhz;
        double forward_s, forward_j, backward_s, backward_j;
    } measured[FREQUENCIES] = {
        {1410, 0.0500, 17.0, 0.1000, 35.0}, {1305, 0.0525, 15.9, 0.1046, 32.9},
        {1200, 0.0556, 15.1, 0.1102, 31.4}, {1095, 0.0595, 14.7, 0.1171, 30.6},
        {990, 0.0646, 14.6, 0.1260, 30.5},
    };
    size_t count = 0;
    for (int stage = 0; stage < STAGES; stage++) {
        double share = stage == STAGES - 1 ? 1.15 : 1;
        for (int f = 0; f < FREQUENCIES; f++) {
            harpe_measurement row = {.stage = stage, .rank = -1, .frequency_mhz = measured[f].mhz};
            row.instruction = "forward";
            row.time_s = measured[f].forward_s * share;
            row.energy_j = measured[f].forward_j * share;
            rows[count++] = row;
            row.instruction = "backward";
            row.time_s = measured[f].backward_s * share;
            row.energy_j = measured[f].backward_j * share;
            rows[count++] = row;
        }
    }
    return count;
}

/* Joins profile and schedule. The problem keeps copies of the necessary data. */
static harpe_status make_problem(harpe_problem **problem, harpe_error *error) {
    harpe_measurement rows[STAGES * 2 * FREQUENCIES];
    size_t row_count = measure(rows);
    harpe_profile *profile = NULL;
    harpe_schedule *schedule = NULL;

    harpe_status status = harpe_profile_new(rows, row_count, &profile, error);
    if (status == HARPE_OK) {
        harpe_schedule_options options = {
            .name = "1f1b", .ranks = STAGES, .microbatches = MICROBATCHES};
        status = harpe_schedule_new(&options, &schedule, error);
    }
    if (status == HARPE_OK) {
        harpe_problem_options options = {.blocking_power_w = &blocking_power_w,
                                         .blocking_power_count = 1};
        status = harpe_problem_new(profile, schedule, &options, problem, error);
    }
    harpe_schedule_free(schedule);
    harpe_profile_free(profile);
    return status;
}

static void print_plan(const char *name, const harpe_plan *plan, const harpe_plan *all_maximum) {
    printf("%-14s %8.3f %9.1f %9.2f %9.1f %8.2f\n", name, plan->time_s, plan->energy_j,
           100 * (plan->time_s / all_maximum->time_s - 1),
           100 * (1 - plan->energy_j / all_maximum->energy_j),
           100 * (plan->energy_j / plan->lower_bound_j - 1));
}

/* A plan's frequencies begin with the list of rank 0, followed by that of rank 1, and so on. */
static void print_rank(const harpe_problem *problem, const harpe_plan *plan, int rank) {
    const int *frequency_mhz = plan->frequency_mhz;
    for (int r = 0; r < rank; r++)
        frequency_mhz += harpe_problem_rank_length(problem, r);
    printf("one rank's list:");
    for (size_t i = 0; i < harpe_problem_rank_length(problem, rank); i++)
        printf(" %s %d", harpe_problem_instruction_name(problem, rank, i), frequency_mhz[i]);
    printf("\n");
}

/* Makes plans from the fastest iteration to the one of least energy, and prints the time and energy
 * of each. */
static harpe_status plan_and_print(const harpe_problem *problem, harpe_error *error) {
    harpe_frontier *frontier = NULL;
    harpe_plan_set *plans = NULL, *one_clock = NULL;
    harpe_plan all_maximum;
    harpe_plan_request request = {.choice = HARPE_PLANS_SPREAD, .count = PLANS};

    harpe_status status = harpe_plan_all_maximum(problem, &all_maximum, error);
    if (status == HARPE_OK) status = harpe_plan_set_one_clock(problem, &one_clock, error);
    if (status == HARPE_OK)
        status = harpe_plan_set_new(problem, &request, NULL, &frontier, &plans, error);
    if (status == HARPE_OK) {
        size_t count = harpe_plan_set_count(plans);
        /* No plan of the same length can need less energy than its lower bound. */
        all_maximum.lower_bound_j = harpe_frontier_bound_at(frontier, all_maximum.time_s);
        printf("%-14s %8s %9s %9s %9s %8s\n", "plan", "time_s", "energy_j", "slower_%", "saved_%",
               "gap_%");
        print_plan("all at maximum", &all_maximum, &all_maximum);
        /* What needs no planner: the best clock for all GPUs that is as fast. */
        harpe_plan best = *harpe_plan_set_within(one_clock, all_maximum.time_s);
        best.lower_bound_j = harpe_frontier_bound_at(frontier, best.time_s);
        print_plan("one clock", &best, &all_maximum);
        for (size_t i = 0; i < count; i++) {
            print_plan(i == 0           ? "fastest"
                       : i == count - 1 ? "least energy"
                                        : "",
                       harpe_plan_set_at(plans, i), &all_maximum);
        }
        print_rank(problem, harpe_plan_set_at(plans, 0), 0);
    }
    harpe_plan_set_free(plans);
    harpe_plan_set_free(one_clock);
    harpe_frontier_free(frontier);
    return status;
}

int main(void) {
    harpe_problem *problem = NULL;
    harpe_error error;

    harpe_status status = make_problem(&problem, &error);
    if (status == HARPE_OK) status = plan_and_print(problem, &error);
    harpe_problem_free(problem);
    if (status != HARPE_OK) {
        fprintf(stderr, "plan_from_memory: %s\n", error.message);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
