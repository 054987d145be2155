/* SPDX-License-Identifier: Apache-2.0 */
/* Groups a run's steps by the plan that ran in them, and sums up each group. It does not
 * harpe_compare_doubles the groups with predictions, and prints nothing. */
#include "sim/summary.h"

#include <math.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"
#include "server/scheduler/perseus/savings.h"
#include "sim/steps.h"

static const char *const kind_names[] = {
    "highest clocks", "no schedule yet",     "learning",
    "plan",           "straggler, old plan", "straggler, new plan"};

static bool is_planned(const harpe_sim_story *story, int64_t round) {
    bool is_learned = false;
    for (int i = 0; i < story->change_count && story->changes[i].round <= round; i++)
        is_learned = story->changes[i].is_learned;
    return is_learned;
}

static harpe_sim_kind kind_of(const harpe_sim_story *story, int step, int64_t round) {
    if (story->straggler_step >= 0 && step >= story->straggler_step)
        return story->answered_step >= 0 && round >= story->straggler_round ? HARPE_SIM_ANSWERED
                                                                            : HARPE_SIM_UNANSWERED;
    if (round < 0) return HARPE_SIM_NO_SCHEDULE;
    return is_planned(story, round) ? HARPE_SIM_PLANNED : HARPE_SIM_LEARNING;
}

/* Returns true if the baseline was not measured yet while this step ran the plan. */
static bool is_warm_up(const harpe_sim_board *board, int step, harpe_sim_kind kind) {
    int64_t turns_step = atomic_load(&board->turns_step);
    return kind == HARPE_SIM_PLANNED && step < turns_step;
}

static void add_step(harpe_sim_stretch *to, const harpe_sim_step_sum *step) {
    to->clock_writes += (double)step->clock_writes;
    to->times_s[to->steps] = step->time_s;
    to->energies_j[to->steps] = step->energy_j;
    to->total_s += step->time_s;
    to->total_j += step->energy_j;
    if (to->steps++ == 0 || step->round < to->first_round) to->first_round = step->round;
    if (step->round > to->last_round) to->last_round = step->round;
}

static double median(double *values, int count) {
    if (count == 0) return 0;
    qsort(values, (size_t)count, sizeof *values, harpe_compare_doubles);
    return (values[count / 2] + values[(count - 1) / 2]) / 2;
}

static harpe_status prepare(const harpe_sim_run *run, harpe_sim_summary *sums, harpe_error *error) {
    size_t steps = (size_t)run->story.step_count;
    bool is_done = true;
    for (int k = 0; k < HARPE_SIM_KINDS; k++) {
        harpe_sim_stretch *kind = &sums->kinds[k];
        *kind = (harpe_sim_stretch){.name = kind_names[k], .first_round = -1, .last_round = -1};
        kind->times_s = harpe_calloc(steps, sizeof *kind->times_s);
        kind->energies_j = harpe_calloc(steps, sizeof *kind->energies_j);
        is_done = is_done && kind->times_s && kind->energies_j;
    }
    return is_done ? HARPE_OK : harpe_fail_memory(error);
}

static void find_slow(const harpe_sim_run *run, harpe_sim_summary *sums) {
    harpe_sim_slow *slow = &sums->slow;
    double usual_s = sums->kinds[HARPE_SIM_HIGHEST_CLOCKS].time_s;
    int end = run->story.straggler_step >= 0 ? run->story.straggler_step : run->story.step_count;
    slow->slowest = -1;
    for (int step = HARPE_SIM_WARM_UP_STEPS; step < end && usual_s > 0; step++) {
        harpe_sim_step_sum sum =
            harpe_sim_sum_step(run->board, harpe_sim_step_at(run->board, step));
        if (!sum.is_whole) continue;
        slow->steps++;
        if (sum.time_s > usual_s * (1 + HARPE_SIM_SLOW_SHARE)) {
            slow->slow_steps++;
            slow->late_steps += sum.host_late_s > HARPE_SIM_SLOW_SHARE * usual_s;
        }
        if (sum.time_s <= slow->slowest_s) continue;
        slow->slowest = step;
        slow->slowest_s = sum.time_s;
        slow->late_s = sum.host_late_s;
    }
}

static void sum_up(const harpe_sim_run *run, harpe_sim_summary *sums) {
    const harpe_sim_board *board = run->board;
    for (int i = 0; i < atomic_load(&board->baseline_count); i++) {
        harpe_sim_step_sum sum = harpe_sim_sum_step(board, harpe_sim_baseline_at(board, i));
        if (sum.is_whole) add_step(&sums->kinds[HARPE_SIM_HIGHEST_CLOCKS], &sum);
    }
    for (int step = HARPE_SIM_WARM_UP_STEPS; step < run->story.step_count; step++) {
        harpe_sim_step_sum sum = harpe_sim_sum_step(board, harpe_sim_step_at(board, step));
        harpe_sim_kind kind = kind_of(&run->story, step, sum.round);
        if (sum.is_whole && !is_warm_up(board, step, kind)) add_step(&sums->kinds[kind], &sum);
    }
    for (int k = 0; k < HARPE_SIM_KINDS; k++) {
        harpe_sim_stretch *kind = &sums->kinds[k];
        kind->time_s = median(kind->times_s, kind->steps);
        kind->energy_j = median(kind->energies_j, kind->steps);
        kind->deviation_j = harpe_robust_spread(kind->energies_j, (size_t)kind->steps);
    }
    find_slow(run, sums);
}

double harpe_sim_summary_uncertainty(const harpe_sim_summary *summary, harpe_sim_kind kind) {
    const harpe_sim_stretch *highest = &summary->kinds[HARPE_SIM_HIGHEST_CLOCKS];
    const harpe_sim_stretch *of = &summary->kinds[kind];
    if (highest->steps < 2 || of->steps < 2) return INFINITY;
    double variance =
        HARPE_MEDIAN_VARIANCE *
        (pow(of->deviation_j, 2) / of->steps +
         pow(highest->deviation_j * of->energy_j / highest->energy_j, 2) / highest->steps);
    double freedom = HARPE_ROBUST_EFFICIENCY * (of->steps + highest->steps - 2);
    return 100 * harpe_student_quantile(freedom) * sqrt(variance) / highest->energy_j;
}

void harpe_sim_summary_free(harpe_sim_summary *summary) {
    for (int k = 0; k < HARPE_SIM_KINDS; k++) {
        free(summary->kinds[k].times_s);
        free(summary->kinds[k].energies_j);
    }
}

harpe_status harpe_sim_summary_make(const harpe_sim_run *run, harpe_sim_summary *out,
                                    harpe_error *error) {
    harpe_sim_summary sums = {0};
    harpe_status status = prepare(run, &sums, error);
    if (status != HARPE_OK) {
        harpe_sim_summary_free(&sums);
        return status;
    }
    sum_up(run, &sums);
    *out = sums;
    return HARPE_OK;
}
