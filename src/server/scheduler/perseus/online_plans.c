/* SPDX-License-Identifier: Apache-2.0 */
/* Calls the planner, repairs its plans for late changes, and chooses a plan according to the job
 * requests. */
#include "server/scheduler/perseus/online_plans.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "plan/plans.h"
#include "plan/problem.h"

/* Times that differ by less are taken as equal, because additions and subtractions round them. */
#define ROUNDING 1e-9

static harpe_status check_fit(const harpe_online_pipeline *pipeline, const harpe_problem *problem,
                              harpe_error *error) {
    if (harpe_problem_instruction_count(problem) == pipeline->instruction_count) return HARPE_OK;
    return harpe_fail(error, HARPE_INTERNAL,
                      "the planner sees %zu instructions where the schedule has %zu",
                      harpe_problem_instruction_count(problem), pipeline->instruction_count);
}

/* Late changes may make a plan longer by this share. With a smaller share, even a latency of some
 * ms costs much of what a plan saves. */
#define LATE_SHARE 0.004
/* A repair has at most so many steps. */
enum { REPAIR_STEPS = 500 };
/* A step raises clocks before the instruction that loses most time, and before all others that lose
 * at least this share of that time. */
#define TOGETHER_SHARE 0.9

/* ---- Late changes ---------------------------------------------------------------------------- */

typedef struct repair {
    const harpe_online_plans *plans;
    const harpe_problem *problem;
    size_t count;                    /* of instructions */
    harpe_late_instruction *parts;   /* [instruction]: of the last evaluation */
    double *time_s, *end_s, *tail_s; /* [node] */
    int *mhz, *immediate_mhz;        /* [instruction]: under repair; as planned */
} repair;

/* Evaluates the clocks self->mhz with late changes. Writes all of `*out` but its frequencies. */
static harpe_status evaluate_late(const repair *self, harpe_plan *out, harpe_error *error) {
    const harpe_clock_switch late = {.takes_profile = true};
    const harpe_problem *problem = self->problem;
    harpe_late_plan made;
    harpe_status status =
        harpe_plan_evaluate_late(problem, self->mhz, &late, 0, &made, self->parts, error);
    if (status != HARPE_OK) return status;
    size_t vertices;
    double fastest_s = harpe_frontier_vertices(self->plans->frontier, &vertices)->time_s;
    double compute_j = 0, overhead_j = problem->overhead_power_w * made.time_s;
    for (size_t i = 0; i < self->count; i++)
        compute_j += self->parts[i].energy_j;
    *out = (harpe_plan){
        .time_s = made.time_s,
        .energy_j = made.energy_j,
        .lower_bound_j =
            harpe_frontier_bound_at(self->plans->frontier, fmax(made.time_s, fastest_s)),
        .compute_energy_j = compute_j,
        .blocking_energy_j = made.energy_j - overhead_j - compute_j,
        .average_power_w = (made.energy_j - overhead_j) / (made.time_s * problem->total_gpu_count),
        .overhead_energy_j = overhead_j};
    return HARPE_OK;
}

/* Finds the last instruction before `i` on its rank that has a lower clock; it may be one of the
 * iteration before. Raises its clock to that of `i`, which is then asked for earlier. Returns false
 * if there is no such instruction, or it has no such clock. */
static bool raise_before(const repair *self, size_t i) {
    int *mhz = self->mhz, rank = harpe_problem_choice(self->problem, (int32_t)i)->list.rank;
    size_t first = self->problem->rank_offset[rank], end = self->problem->rank_offset[rank + 1];
    size_t k = i;
    do
        k = k > first ? k - 1 : end - 1;
    while (k != i && (mhz[k] == 0 || mhz[k] >= mhz[i]));
    const harpe_choice *choice = harpe_problem_choice(self->problem, (int32_t)k);
    size_t p = choice->point_count - 1;
    while (p > 0 && choice->points[p].frequency_mhz < mhz[i])
        p--;
    if (k == i || choice->points[p].frequency_mhz <= mhz[k]) return false;
    mhz[k] = choice->points[p].frequency_mhz;
    return true;
}

/* Looks at the instructions on paths that are longer than `most_s`. Raises clocks before those that
 * lose most time because their clocks come late. Returns false if no clock can be raised. */
static bool raise_worst(const repair *self, double most_s) {
    const harpe_dag *dag = &self->problem->dag;
    double worst_s = 0, *lost_s = self->time_s;
    bool has_raised = false;
    for (int32_t i = 0; i < dag->node_count; i++)
        self->time_s[i] = (size_t)i < self->count
                              ? self->parts[i].time_s
                              : harpe_problem_choice(self->problem, i)->points[0].time_s;
    (void)harpe_dag_run(dag, self->time_s, self->end_s, self->tail_s);
    for (size_t i = 0; i < self->count; i++) {
        const harpe_choice *choice = harpe_problem_choice(self->problem, (int32_t)i);
        const harpe_profile_point *own = harpe_choice_point(choice, self->mhz[i]);
        bool is_late =
            self->parts[i].first_mhz < self->mhz[i] && self->end_s[i] + self->tail_s[i] > most_s;
        lost_s[i] = is_late && own ? lost_s[i] - own->time_s : 0;
        worst_s = fmax(worst_s, lost_s[i]);
    }
    for (size_t i = 0; i < self->count; i++)
        if (lost_s[i] > 0 && lost_s[i] >= TOGETHER_SHARE * worst_s)
            has_raised |= raise_before(self, i);
    return has_raised;
}

/* Raises clocks of the plan `from_mhz` until the iteration takes at most `most_s`, although clocks
 * change late and controllers do not ask for them early. If that succeeds and saves energy, writes
 * the plan into `*best`, whose frequencies the set of plans owns. */
static harpe_status try_late(const repair *self, double most_s, const int *from_mhz,
                             harpe_plan *best, harpe_error *error) {
    harpe_plan found;
    memcpy(self->mhz, from_mhz, self->count * sizeof *self->mhz);
    for (int step = 0; step < REPAIR_STEPS; step++) {
        harpe_status status = evaluate_late(self, &found, error);
        if (status != HARPE_OK) return status;
        if (found.time_s <= most_s) {
            if (found.energy_j >= best->energy_j) return HARPE_OK;
            found.frequency_mhz =
                memcpy((int *)best->frequency_mhz, self->mhz, self->count * sizeof *self->mhz);
            *best = found;
            return HARPE_OK;
        }
        if (!raise_worst(self, most_s)) break;
    }
    return HARPE_OK;
}

/* Replaces each plan with the one of least energy that keeps the plan's time with late changes. The
 * candidates are the replacement of the plan before it, at first the highest clocks, and two plans
 * after a repair: the plan itself, and the plan of `few`, which has few changes. The set then has
 * times and energies with late changes. */
static harpe_status repair_all(const repair *self, const harpe_plan_set *few, harpe_error *error) {
    const harpe_plan_set *set = self->plans->set;
    size_t bytes = self->count * sizeof *self->mhz;
    harpe_plan best;
    memcpy(self->mhz, self->plans->all_maximum.frequency_mhz, bytes);
    harpe_status status = evaluate_late(self, &best, error);
    best.frequency_mhz = self->plans->all_maximum.frequency_mhz;
    for (size_t k = 0; k < set->count && status == HARPE_OK; k++) {
        harpe_plan *plan = &set->plans[k];
        double most_s = plan->time_s * (1 + LATE_SHARE);
        const harpe_plan *other = harpe_plan_set_within(few, plan->time_s);
        int *own_mhz = (int *)plan->frequency_mhz; /* the set owns them */
        memcpy(self->immediate_mhz, own_mhz, bytes);
        memcpy(own_mhz, best.frequency_mhz, bytes);
        *plan = best;
        plan->frequency_mhz = own_mhz;
        status = try_late(self, most_s, self->immediate_mhz, plan, error);
        if (status == HARPE_OK && other)
            status = try_late(self, most_s, other->frequency_mhz, plan, error);
        best = *plan;
    }
    return status;
}

/* Makes the plans of the set again, for late changes. */
static harpe_status plan_late(const harpe_online_plans *plans, harpe_error *error) {
    size_t count = harpe_problem_instruction_count(plans->problem), times = plans->set->count;
    size_t nodes = (size_t)plans->problem->dag.node_count;
    repair self = {.plans = plans,
                   .problem = plans->problem,
                   .count = count,
                   .parts = harpe_calloc(count, sizeof *self.parts),
                   .time_s = harpe_calloc(3 * nodes + times, sizeof *self.time_s),
                   .mhz = harpe_calloc(2 * count, sizeof *self.mhz)};
    harpe_status status =
        self.parts && self.time_s && self.mhz ? HARPE_OK : harpe_fail_memory(error);
    if (status == HARPE_OK) {
        self.end_s = self.time_s + nodes;
        self.tail_s = self.end_s + nodes;
        self.immediate_mhz = self.mhz + count;
        double *times_s = self.tail_s + nodes;
        for (size_t k = 0; k < times; k++)
            times_s[k] = plans->set->plans[k].time_s;
        harpe_plan_request request = {.choice = HARPE_PLANS_AT,
                                      .times_s = times_s,
                                      .time_count = times,
                                      .clock_switch = {.takes_profile = true},
                                      .threads = 1};
        harpe_plan_set *few = NULL;
        status = harpe_plan_set_new(plans->problem, &request, NULL, NULL, &few, error);
        if (status == HARPE_OK) status = repair_all(&self, few, error);
        harpe_plan_set_free(few);
    }
    free(self.parts);
    free(self.time_s);
    free(self.mhz);
    return status;
}

/* ---- Making ---------------------------------------------------------------------------------- */

harpe_status harpe_online_plans_evaluate(const harpe_online_plans *plans, const int *frequency_mhz,
                                         harpe_plan *out, harpe_error *error) {
    bool is_late = harpe_problem_has_switch_latency(plans->problem);
    const harpe_clock_switch change = {.takes_profile = is_late};
    harpe_late_plan made;
    harpe_status status =
        harpe_plan_evaluate_late(plans->problem, frequency_mhz, &change, 0, &made, NULL, error);
    if (status == HARPE_OK) *out = (harpe_plan){.time_s = made.time_s, .energy_j = made.energy_j};
    return status;
}

harpe_status harpe_online_plans_new(const harpe_online_pipeline *pipeline,
                                    const harpe_profile *profile, const double *blocking_power_w,
                                    int plan_count, double undisturbed_s, harpe_online_plans **out,
                                    harpe_error *error) {
    harpe_online_plans *plans = harpe_calloc(1, sizeof *plans);
    if (!plans) return harpe_fail_memory(error);
    harpe_problem_options options = {.blocking_power_w = blocking_power_w,
                                     .blocking_power_count = (size_t)pipeline->rank_count};
    /* One thread: other jobs need theirs. */
    harpe_plan_request request = {.choice = HARPE_PLANS_SPREAD, .count = plan_count, .threads = 1};
    harpe_status status =
        harpe_problem_new(profile, pipeline->schedule, &options, &plans->problem, error);
    if (status == HARPE_OK) status = check_fit(pipeline, plans->problem, error);
    if (status == HARPE_OK)
        status = harpe_plan_all_maximum(plans->problem, &plans->all_maximum, error);
    if (status == HARPE_OK)
        status = harpe_plan_set_one_clock(plans->problem, &plans->one_clock, error);
    if (status == HARPE_OK)
        status = harpe_plan_set_new(plans->problem, &request, NULL, &plans->frontier, &plans->set,
                                    error);
    if (status == HARPE_OK && harpe_problem_has_switch_latency(plans->problem))
        status = plan_late(plans, error);
    if (status != HARPE_OK) {
        harpe_online_plans_free(plans);
        return status;
    }
    plans->undisturbed_s =
        undisturbed_s > 0 ? undisturbed_s : harpe_plan_set_at(plans->set, 0)->time_s;
    *out = plans;
    return HARPE_OK;
}

void harpe_online_plans_free(harpe_online_plans *plans) {
    if (!plans) return;
    harpe_plan_set_free(plans->set);
    harpe_plan_set_free(plans->one_clock);
    harpe_frontier_free(plans->frontier);
    harpe_problem_free(plans->problem);
    free(plans);
}

const harpe_plan *harpe_online_plans_one_clock(const harpe_online_plans *plans,
                                               const harpe_plan *plan) {
    return harpe_plan_set_within(plans->one_clock, fmax(plan->time_s, plans->all_maximum.time_s));
}

/* ---- Choosing -------------------------------------------------------------------------------- */

/* Returns the time of an iteration that is `slowdown` times longer. The slowdown also applies to
 * the time outside of the pipeline, which plans do not include. For this, the outside time is added
 * first, and subtracted from the result. */
static double stretched_s(double fastest_s, double slowdown, harpe_online_outside outside) {
    return slowdown * (fastest_s + outside.time_s) - outside.time_s;
}

static double straggler_s(double undisturbed_s, const harpe_online_requests *requests,
                          harpe_online_outside outside) {
    if (requests->slowdown > 0) return stretched_s(undisturbed_s, requests->slowdown, outside);
    return requests->iteration_time_s > 0 ? requests->iteration_time_s - outside.time_s : 0;
}

double harpe_online_straggler_time_s(const harpe_online_plans *plans,
                                     const harpe_online_requests *requests,
                                     harpe_online_outside outside) {
    return straggler_s(plans->undisturbed_s, requests, outside);
}

double harpe_online_allowed_s(double fastest_s, double undisturbed_s, double slowdown,
                              const harpe_online_requests *requests, harpe_online_outside outside) {
    double allowed_s = requests->plan_time_s > 0 ? requests->plan_time_s - outside.time_s
                                                 : stretched_s(fastest_s, slowdown, outside);
    double until_s = straggler_s(undisturbed_s, requests, outside);
    return until_s > allowed_s ? until_s : allowed_s;
}

bool harpe_online_plan_is_within(const harpe_plan *plan, double power_cap_w,
                                 harpe_online_outside outside) {
    return plan->energy_j + outside.energy_j <= power_cap_w * (plan->time_s + outside.time_s);
}

size_t harpe_online_plans_choose(const harpe_online_plans *plans, double slowdown,
                                 const harpe_online_requests *requests,
                                 harpe_online_outside outside) {
    size_t count = harpe_plan_set_count(plans->set), chosen = 0;
    double fastest_s = fmax(harpe_plan_set_at(plans->set, 0)->time_s, plans->all_maximum.time_s);
    double allowed_s =
        harpe_online_allowed_s(fastest_s, plans->undisturbed_s, slowdown, requests, outside);
    while (chosen + 1 < count &&
           harpe_plan_set_at(plans->set, chosen + 1)->time_s <= allowed_s * (1 + ROUNDING))
        chosen++;
    if (!(requests->power_cap_w > 0)) return chosen;
    while (chosen + 1 < count && !harpe_online_plan_is_within(harpe_plan_set_at(plans->set, chosen),
                                                              requests->power_cap_w, outside))
        chosen++;
    return chosen;
}
