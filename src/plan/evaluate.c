/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluates an assignment of real frequencies: the longest path over measured times, and the
 * measured energies plus blocking and overhead energy. The numbers of every plan come from here; no
 * relaxed number is used. */
#include "plan/plans.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"

/* Returns the index of the point that was measured at a frequency, or -1. Points are sorted by
 * frequency, highest first. */
static ptrdiff_t find_point(const harpe_choice *choice, int frequency_mhz) {
    size_t low = 0, high = choice->point_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int found = choice->points[middle].frequency_mhz;
        if (found == frequency_mhz) return (ptrdiff_t)middle;
        if (found > frequency_mhz)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

const harpe_profile_point *harpe_choice_point(const harpe_choice *choice, int clock_mhz) {
    ptrdiff_t found = harpe_choice_has_clocks(choice) ? find_point(choice, clock_mhz) : 0;
    return found < 0 ? NULL : &choice->points[found];
}

const harpe_profile_point *harpe_choice_reached(const harpe_choice *choice, int clock_mhz) {
    const harpe_profile_point *found = harpe_choice_point(choice, clock_mhz);
    return found && found < choice->points + choice->throttled_count ? NULL : found;
}

int harpe_evaluate_last_clock_mhz(const harpe_problem *problem, int rank,
                                  const int *frequency_mhz) {
    for (size_t i = problem->rank_offset[rank + 1]; i-- > problem->rank_offset[rank];)
        if (frequency_mhz[i] != 0) return frequency_mhz[i];
    return 0;
}

size_t harpe_evaluate_changes(const harpe_problem *problem, const int *frequency_mhz) {
    size_t changes = 0;
    for (int r = 0; r < problem->rank_count; r++) {
        int now_mhz = harpe_evaluate_last_clock_mhz(problem, r, frequency_mhz);
        for (size_t i = problem->rank_offset[r]; i < problem->rank_offset[r + 1]; i++) {
            if (frequency_mhz[i] == 0 || frequency_mhz[i] == now_mhz) continue;
            now_mhz = frequency_mhz[i];
            changes++;
        }
    }
    return changes;
}

static harpe_status fail_unknown_frequency(const harpe_problem *problem, int32_t instruction,
                                           int frequency_mhz, harpe_error *error) {
    const harpe_choice *choice = harpe_problem_choice(problem, instruction);
    int rank = choice->list.rank;
    return harpe_fail(error, HARPE_INVALID_INPUT,
                      "rank %d, instruction %zu: the profile has no %d MHz for '%s' of stage %d "
                      "(its highest is %d, its lowest %d MHz)",
                      rank, (size_t)instruction - problem->rank_offset[rank], frequency_mhz,
                      choice->list.instruction, choice->list.stage, choice->points[0].frequency_mhz,
                      choice->points[choice->point_count - 1].frequency_mhz);
}

/* Computes the earliest starts, and returns the length of the iteration. */
static double run_earliest(const harpe_problem *problem, const harpe_profile_point *const *points,
                           double *start_s) {
    const harpe_dag *dag = &problem->dag;
    double length_s = 0;
    for (int32_t k = 0; k < problem->instruction_count; k++) {
        int32_t i = dag->topological_order[k];
        double start = 0;
        for (int32_t a = dag->first_arc_into[i]; a < dag->first_arc_into[i + 1]; a++) {
            double end = start_s[dag->arc_from[a]] + points[dag->arc_from[a]]->time_s;
            if (end > start) start = end;
        }
        start_s[i] = start;
        double end = start + points[i]->time_s;
        if (end > length_s) length_s = end;
    }
    return length_s;
}

void harpe_evaluate_latest_starts(const harpe_problem *problem,
                                  const harpe_profile_point *const *points, double *latest_s) {
    const harpe_dag *dag = &problem->dag;
    for (int32_t p = problem->instruction_count; p-- > 0;) {
        int32_t i = dag->topological_order[p];
        latest_s[i] -= points[i]->time_s;
        for (int32_t a = dag->first_arc_into[i]; a < dag->first_arc_into[i + 1]; a++)
            latest_s[dag->arc_from[a]] = fmin(latest_s[dag->arc_from[a]], latest_s[i]);
    }
}

/* Returns the energy of a rank's waits, each with the power of its kind. */
static double wait_energy_j(const harpe_problem *problem, int rank,
                            const harpe_profile_point *const *points, const double *start_s,
                            double time_s) {
    double highest_w = problem->blocking_power_w[rank], energy_j = 0, end_s = 0;
    for (size_t i = problem->rank_offset[rank]; i < problem->rank_offset[rank + 1]; i++) {
        energy_j += (highest_w - problem->wait_saving_w[i]) * (start_s[i] - end_s);
        end_s = start_s[i] + points[i]->time_s;
    }
    return energy_j + (highest_w - problem->end_saving_w[rank]) * (time_s - end_s);
}

static void add_energies(const harpe_problem *problem, const harpe_profile_point *const *points,
                         const double *start_s, harpe_plan *plan) {
    for (int r = 0; r < problem->rank_count; r++) {
        double busy_s = 0, energy_j = 0;
        for (size_t i = problem->rank_offset[r]; i < problem->rank_offset[r + 1]; i++) {
            busy_s += points[i]->time_s;
            energy_j += points[i]->energy_j;
        }
        plan->compute_energy_j += energy_j;
        if (harpe_problem_has_wait_kinds(problem, r))
            plan->blocking_energy_j += wait_energy_j(problem, r, points, start_s, plan->time_s);
        else
            plan->blocking_energy_j += problem->blocking_power_w[r] * (plan->time_s - busy_s);
    }
    double gpu_energy_j = plan->compute_energy_j + plan->blocking_energy_j;
    plan->overhead_energy_j = problem->overhead_power_w * plan->time_s;
    plan->energy_j = gpu_energy_j + plan->overhead_energy_j;
    plan->average_power_w = gpu_energy_j / (plan->time_s * problem->total_gpu_count);
}

harpe_status harpe_evaluate_find_points(const harpe_problem *problem, const int *frequency_mhz,
                                        const harpe_profile_point **points, harpe_error *error) {
    int32_t own = (int32_t)harpe_problem_instruction_count(problem);
    for (int rank = 0; rank < problem->rank_count; rank++) {
        /* In a graph a frequency stands for an option, so no clock goes on. */
        int clock_mhz =
            problem->graph ? 0 : harpe_evaluate_last_clock_mhz(problem, rank, frequency_mhz);
        for (size_t i = problem->rank_offset[rank]; i < problem->rank_offset[rank + 1]; i++) {
            const harpe_choice *choice = harpe_problem_choice(problem, (int32_t)i);
            int mhz = frequency_mhz[i];
            if (mhz != 0 && !problem->graph) clock_mhz = mhz;
            ptrdiff_t found = find_point(choice, mhz);
            if (found < 0 && mhz == 0) {
                mhz = clock_mhz;
                found = mhz == 0 ? 0 : find_point(choice, mhz);
            }
            if (found < 0) return fail_unknown_frequency(problem, (int32_t)i, mhz, error);
            points[i] = &choice->points[found];
        }
    }
    for (int32_t i = own; i < problem->instruction_count; i++)
        points[i] = &harpe_problem_choice(problem, i)->points[0];
    return HARPE_OK;
}

harpe_plan harpe_evaluate_points(const harpe_problem *problem,
                                 const harpe_profile_point *const *points, double *start_s) {
    harpe_plan plan = {.time_s = run_earliest(problem, points, start_s)};
    add_energies(problem, points, start_s, &plan);
    return plan;
}

harpe_status harpe_iteration_run(harpe_iteration *out, const harpe_problem *problem,
                                 const int *frequency_mhz, harpe_error *error) {
    size_t count = (size_t)problem->instruction_count;
    *out = (harpe_iteration){.points = harpe_calloc(count, sizeof *out->points),
                             .start_s = harpe_calloc(count, sizeof *out->start_s)};
    if (!out->points || !out->start_s) return harpe_fail_memory(error);
    harpe_status status = harpe_evaluate_find_points(problem, frequency_mhz, out->points, error);
    if (status == HARPE_OK) out->plan = harpe_evaluate_points(problem, out->points, out->start_s);
    return status;
}

void harpe_iteration_clear(harpe_iteration *iteration) {
    free((void *)iteration->points);
    free(iteration->start_s);
}

harpe_status harpe_plan_evaluate(const harpe_problem *problem, const int *frequency_mhz,
                                 harpe_plan *out, double *start_s, harpe_error *error) {
    harpe_iteration run;
    harpe_status status = harpe_iteration_run(&run, problem, frequency_mhz, error);
    if (status == HARPE_OK) {
        *out = run.plan;
        out->frequency_mhz = frequency_mhz;
        size_t count = harpe_problem_instruction_count(problem);
        if (start_s) memcpy(start_s, run.start_s, count * sizeof *start_s);
    }
    harpe_iteration_clear(&run);
    return status;
}

harpe_status harpe_plan_all_maximum(const harpe_problem *problem, harpe_plan *out,
                                    harpe_error *error) {
    return harpe_plan_evaluate(problem, problem->maximum_frequency_mhz, out, NULL, error);
}
