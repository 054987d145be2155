/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluates the plan with late changes, and finds the instructions that are late and make the
 * iteration too long. The worst of them are mended in each step. */
#include "plan/late_repair.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "plan/evaluate.h"
#include "plan/problem.h"

/* More steps are not worth their time. */
enum { MOST_STEPS = 1000 };
/* Instructions that lose at least this share of the most that one loses are mended together. */
#define TOGETHER_SHARE 0.9
#define ROUNDING 1e-9 /* relative: times are sums of doubles */

typedef struct late_repair {
    const harpe_problem *problem;
    const harpe_clock_switch *cost;
    double lead_s, time_s;
    int *mhz;
    harpe_late_instruction *parts; /* [instruction] */
    double *latest_s;              /* [instruction]: latest end */
} late_repair;

static const harpe_choice *choice_of(const late_repair *self, int32_t i) {
    return harpe_problem_choice(self->problem, i);
}

static double duration_s(const late_repair *self, int32_t i) {
    return harpe_problem_is_delay(self->problem, i) ? choice_of(self, i)->points[0].time_s
                                                    : self->parts[i].time_s;
}

static void find_latest_ends(const late_repair *self) {
    const harpe_dag *dag = &self->problem->dag;
    for (int32_t i = 0; i < dag->node_count; i++)
        self->latest_s[i] = self->time_s * (1 + ROUNDING);
    for (int32_t k = dag->node_count; k-- > 0;) {
        int32_t i = dag->topological_order[k];
        double start_s = self->latest_s[i] - duration_s(self, i);
        for (int32_t a = dag->first_arc_into[i]; a < dag->first_arc_into[i + 1]; a++) {
            double *before_s = &self->latest_s[dag->arc_from[a]];
            *before_s = fmin(*before_s, start_s);
        }
    }
}

/* Returns the time that an instruction loses because its clock comes late, if this makes the
 * iteration too long; otherwise 0. */
static double lost_s(const late_repair *self, int32_t i) {
    const harpe_late_instruction *part = &self->parts[i];
    if (harpe_problem_is_delay(self->problem, i) || self->mhz[i] == 0 ||
        part->first_mhz >= self->mhz[i] || part->start_s + part->time_s <= self->latest_s[i])
        return 0;
    const harpe_profile_point *wanted = harpe_choice_point(choice_of(self, i), self->mhz[i]);
    return wanted ? fmax(0, part->time_s - wanted->time_s) : 0;
}

/* Returns the lowest measured clock of an instruction that is at least `mhz`, or its highest. */
static int clock_from(const harpe_choice *choice, int mhz) {
    size_t p = choice->point_count - 1;
    while (p > 0 && choice->points[p].frequency_mhz < mhz)
        p--;
    return choice->points[p].frequency_mhz;
}

/* Gives the last instruction before `i` that has a lower clock the clock of `i`. Returns false if
 * there is none. */
static bool raise_before(const late_repair *self, int32_t i) {
    const size_t *offset = self->problem->rank_offset;
    int rank = choice_of(self, i)->list.rank;
    size_t first = offset[rank], length = offset[rank + 1] - first;
    for (size_t back = 1; back < length; back++) {
        size_t k = first + ((size_t)i - first + length - back) % length;
        if (self->mhz[k] == 0 || self->mhz[k] >= self->mhz[i]) continue;
        int mhz = clock_from(choice_of(self, (int32_t)k), self->mhz[i]);
        bool rises = mhz > self->mhz[k];
        self->mhz[k] = mhz;
        return rises;
    }
    return false;
}

/* Mends the instructions that lose most. Returns false if nothing can be mended. */
static bool mend(const late_repair *self) {
    int32_t count = (int32_t)harpe_problem_instruction_count(self->problem);
    double most_s = 0;
    bool has_mended = false;
    find_latest_ends(self);
    for (int32_t i = 0; i < count; i++)
        most_s = fmax(most_s, lost_s(self, i));
    for (int32_t i = 0; i < count && most_s > 0; i++)
        if (lost_s(self, i) >= TOGETHER_SHARE * most_s) has_mended |= raise_before(self, i);
    return has_mended;
}

static harpe_status evaluate(const late_repair *self, harpe_late_plan *out, harpe_error *error) {
    return harpe_plan_evaluate_late(self->problem, self->mhz, self->cost, self->lead_s, out,
                                    self->parts, error);
}

/* Uses the highest clocks if the plan is too slow or needs more energy. */
static harpe_status settle(const late_repair *self, harpe_late_plan *out, harpe_error *error) {
    harpe_plan highest;
    harpe_status status = harpe_plan_all_maximum(self->problem, &highest, error);
    if (status != HARPE_OK) return status;
    bool is_fast = out->time_s <= self->time_s * (1 + ROUNDING);
    if (is_fast && out->energy_j <= highest.energy_j) return HARPE_OK;
    memcpy(self->mhz, highest.frequency_mhz,
           harpe_problem_instruction_count(self->problem) * sizeof *self->mhz);
    return evaluate(self, out, error);
}

harpe_status harpe_late_repair(const harpe_problem *problem, const harpe_clock_switch *cost,
                               double lead_s, double time_s, int *frequency_mhz,
                               harpe_late_plan *out, harpe_error *error) {
    size_t count = (size_t)problem->instruction_count;
    late_repair self = {.problem = problem,
                        .cost = cost,
                        .lead_s = lead_s,
                        .time_s = time_s,
                        .mhz = frequency_mhz,
                        .parts = harpe_calloc(count, sizeof *self.parts),
                        .latest_s = harpe_calloc(count, sizeof *self.latest_s)};
    bool has_memory = self.parts && self.latest_s;
    harpe_status status = has_memory ? evaluate(&self, out, error) : harpe_fail_memory(error);
    for (int step = 0; status == HARPE_OK && step < MOST_STEPS; step++) {
        if (out->time_s <= time_s * (1 + ROUNDING) || !mend(&self)) break;
        status = evaluate(&self, out, error);
    }
    if (status == HARPE_OK) status = settle(&self, out, error);
    free(self.parts);
    free(self.latest_s);
    return status;
}
