/* SPDX-License-Identifier: Apache-2.0 */
/* Drafts, and the dives for them; see draft.h. */
#include "plan/draft.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"

/* Positions that local search may recompute after a dive. */
#define DIVE_VISITS UINT64_C(200000)

/* ---- Drafts ---------------------------------------------------------------------------------- */

void harpe_draft_take(harpe_draft *draft, const harpe_assignment *assignment) {
    const harpe_assignment *a = assignment;
    memcpy(draft->option, a->option, (size_t)a->count * sizeof *draft->option);
    draft->time_s = (double)harpe_assignment_time_ps(a) / HARPE_PS_PER_S;
    draft->energy_j = a->energy_j + harpe_problem_iteration_power_w(a->problem) * draft->time_s -
                      harpe_assignment_wait_saving_j(a);
}

double harpe_draft_gap(const harpe_frontier *frontier, const harpe_draft *draft) {
    double bound_j =
        harpe_frontier_relaxed_at(frontier, (double)draft->deadline_ps / HARPE_PS_PER_S);
    return (draft->energy_j - bound_j) / fabs(bound_j);
}

void harpe_draft_keep_better(const harpe_search *search, harpe_draft *draft,
                             const harpe_assignment *assignment) {
    harpe_draft found = {.deadline_ps = draft->deadline_ps,
                         .time_s = (double)harpe_assignment_time_ps(assignment) / HARPE_PS_PER_S};
    found.energy_j = assignment->energy_j +
                     harpe_problem_iteration_power_w(search->problem) * found.time_s -
                     harpe_assignment_wait_saving_j(assignment);
    if (harpe_draft_gap(search->frontier, &found) < harpe_draft_gap(search->frontier, draft))
        harpe_draft_take(draft, assignment);
}

/* ---- Dives ----------------------------------------------------------------------------------- */

static bool goes_on(void *user, const char *phase, double fraction) {
    (void)phase;
    (void)fraction;
    return !harpe_crew_is_over(user);
}

/* Brings the thread's own walk to a time, with a new walk if it has passed this time. A run that
 * takes the drafts in the order of harpe_draft_order needs one walk for each thread. Fails with
 * HARPE_INTERRUPTED if the run must end. */
static harpe_status walk_to(const harpe_search *search, harpe_tools *tools, int64_t time_ps,
                            harpe_error *error) {
    harpe_status status = HARPE_OK;
    if (tools->is_walking && tools->walk.solver.time_ps < time_ps) {
        harpe_walk_clear(&tools->walk);
        tools->is_walking = false;
    }
    tools->walk_progress = (harpe_progress){.report = goes_on, .user = tools};
    if (!tools->is_walking) {
        status = harpe_walk_begin(&tools->walk, search->problem, &tools->walk_progress, error);
        if (status != HARPE_OK) return status;
        tools->is_walking = true;
    }
    status = harpe_walk_to(&tools->walk, time_ps, error);
    if (status != HARPE_OK) {
        harpe_walk_clear(&tools->walk);
        tools->is_walking = false;
    }
    return status;
}

static bool is_over(void *tools) { return harpe_crew_is_over(tools); }

harpe_status harpe_draft_dive(const harpe_search *search, harpe_tools *tools, harpe_draft *draft,
                              int width, harpe_error *error) {
    harpe_assignment *a = &tools->assignment;
    bool found;
    tools->diver.is_over = is_over;
    tools->diver.user = tools;
    harpe_status status = HARPE_OK;
    const harpe_frontier_solver *solver = search->fastest;
    if (draft->deadline_ps != solver->time_ps) {
        status = walk_to(search, tools, draft->deadline_ps, error);
        solver = &tools->walk.solver;
    }
    if (status == HARPE_OK) status = harpe_diver_dive(&tools->diver, solver, width, &found, error);
    if (status != HARPE_OK || !found) return status;
    for (int32_t i = 0; i < a->count; i++)
        tools->ordered[i] = tools->diver.option[a->instruction_at[i]];
    harpe_assignment_restore(a, tools->ordered, solver->time_ps);
    status = harpe_assignment_settle(a, a->deadline_ps, error);
    if (status == HARPE_OK) status = harpe_assignment_improve(a, DIVE_VISITS, error);
    if (status == HARPE_OK) harpe_draft_keep_better(search, draft, a);
    return status;
}

/* ---- Order ----------------------------------------------------------------------------------- */

static int compare_deadlines(const void *a, const void *b, void *drafts) {
    int64_t x = ((const harpe_draft *)drafts)[*(const size_t *)a].deadline_ps;
    int64_t y = ((const harpe_draft *)drafts)[*(const size_t *)b].deadline_ps;
    if (x != y) return x > y ? -1 : 1;
    return *(const size_t *)a < *(const size_t *)b ? -1 : 1;
}

harpe_status harpe_draft_order(const harpe_search *search, size_t **order, harpe_error *error) {
    size_t *numbers = harpe_calloc(search->draft_count + 1, sizeof *numbers);
    if (!numbers) return harpe_fail_memory(error);
    for (size_t i = 0; i < search->draft_count; i++)
        numbers[i] = i;
    qsort_r(numbers, search->draft_count, sizeof *numbers, compare_deadlines, search->drafts);
    *order = numbers;
    return HARPE_OK;
}
