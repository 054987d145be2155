/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the longest time of each instruction if changes take any time up to their latency, and the
 * instructions that make the iteration too long because their clock comes late. The worst of them
 * are mended in each step. */
#include "plan/late_repair.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "plan/evaluate.h"
#include "plan/problem.h"
#include "plan/switching.h"

/* More steps are not worth their time. */
enum { MOST_STEPS = 1000 };
/* Instructions that lose at least this share of the most that one loses are mended together. */
#define TOGETHER_SHARE 0.9
#define ROUNDING 1e-9 /* relative: times are sums of doubles */

/* The longest time of an instruction. */
typedef struct longest_run {
    double time_s, end_s, latest_end_s;
    double lost_s; /* the part of the time that a late change can cost */
} longest_run;

typedef struct late_repair {
    const harpe_problem *problem;
    const harpe_clock_switch *cost;
    double time_s;
    int *mhz;
    longest_run *runs; /* [instruction] */
} late_repair;

static const harpe_choice *choice_of(const late_repair *self, int32_t i) {
    return harpe_problem_choice(self->problem, i);
}

/* ---- Durations ------------------------------------------------------------------------------- */

/* Returns the time at a clock. If it was not measured, the clock below counts, or else work that
 * scales with the clock. */
static double time_at(const harpe_choice *choice, int mhz) {
    const harpe_profile_point *lowest = &choice->points[choice->point_count - 1];
    for (size_t p = 0; p < choice->point_count; p++)
        if (choice->points[p].frequency_mhz <= mhz) return choice->points[p].time_s;
    return lowest->time_s * lowest->frequency_mhz / mhz;
}

static bool has_clock(const late_repair *self, size_t i) {
    return self->mhz[i] > 0 && !harpe_problem_is_delay(self->problem, (int32_t)i);
}

/* Returns the instruction before `i` on its rank that has a clock, perhaps in the iteration before.
 */
static size_t before(const late_repair *self, int rank, size_t i) {
    const size_t *offset = self->problem->rank_offset;
    size_t k = i;
    do
        k = k > offset[rank] ? k - 1 : offset[rank + 1] - 1;
    while (!has_clock(self, k));
    return k;
}

static double latency_s(const late_repair *self, int rank, int mhz) {
    return harpe_clock_switch_latency_s(self->problem, self->cost, rank, mhz);
}

/* Returns the lowest clock that the GPU may have when the clock of `node` is asked for. `from` is
 * the instruction before. A clock may hold until a later one has held for its latency. */
static int lowest_before(const late_repair *self, int rank, size_t node, size_t from) {
    int lowest = self->mhz[from], clock = lowest;
    double held_s = 0;
    for (size_t k = from; k != node; k = before(self, rank, k)) {
        if (self->mhz[k] != clock) held_s = 0;
        clock = self->mhz[k];
        if (clock < lowest) lowest = clock;
        held_s += choice_of(self, (int32_t)k)->points[0].time_s;
        if (held_s >= latency_s(self, rank, clock)) break;
    }
    return lowest;
}

/* Returns the time that an instruction loses if its clock comes as late as possible. */
static double most_lost_s(const late_repair *self, int rank, size_t node) {
    const harpe_choice *choice = choice_of(self, (int32_t)node);
    int clock = self->mhz[node];
    double late_s = latency_s(self, rank, clock);
    size_t from = before(self, rank, node);
    while (from != node && self->mhz[from] == clock && late_s > 0) {
        late_s -= choice_of(self, (int32_t)from)->points[0].time_s;
        from = before(self, rank, from);
    }
    if (from == node || late_s <= 0) return 0;
    int lowest = lowest_before(self, rank, node, from);
    if (lowest >= clock) return 0;
    double own_s = time_at(choice, clock), low_s = time_at(choice, lowest);
    return low_s > own_s ? fmin(late_s, low_s) * (1 - own_s / low_s) : 0;
}

static void find_longest(const late_repair *self) {
    const size_t *offset = self->problem->rank_offset;
    for (int32_t i = 0; i < self->problem->dag.node_count; i++)
        self->runs[i] = (longest_run){.time_s = choice_of(self, i)->points[0].time_s};
    for (int rank = 0; rank < harpe_problem_rank_count(self->problem); rank++) {
        for (size_t i = offset[rank]; i < offset[rank + 1]; i++) {
            if (!has_clock(self, i)) continue;
            longest_run *run = &self->runs[i];
            run->lost_s = most_lost_s(self, rank, i);
            run->time_s = time_at(choice_of(self, (int32_t)i), self->mhz[i]) + run->lost_s;
        }
    }
}

/* Returns the longest time of an iteration. */
static double length_s(const late_repair *self) {
    const harpe_dag *dag = &self->problem->dag;
    double all_s = 0;
    find_longest(self);
    for (int32_t k = 0; k < dag->node_count; k++) {
        int32_t i = dag->topological_order[k];
        double start_s = 0;
        for (int32_t a = dag->first_arc_into[i]; a < dag->first_arc_into[i + 1]; a++)
            start_s = fmax(start_s, self->runs[dag->arc_from[a]].end_s);
        self->runs[i].end_s = start_s + self->runs[i].time_s;
        all_s = fmax(all_s, self->runs[i].end_s);
    }
    return all_s;
}

static void find_latest_ends(const late_repair *self) {
    const harpe_dag *dag = &self->problem->dag;
    for (int32_t i = 0; i < dag->node_count; i++)
        self->runs[i].latest_end_s = self->time_s * (1 + ROUNDING);
    for (int32_t k = dag->node_count; k-- > 0;) {
        int32_t i = dag->topological_order[k];
        double start_s = self->runs[i].latest_end_s - self->runs[i].time_s;
        for (int32_t a = dag->first_arc_into[i]; a < dag->first_arc_into[i + 1]; a++) {
            double *before_s = &self->runs[dag->arc_from[a]].latest_end_s;
            *before_s = fmin(*before_s, start_s);
        }
    }
}

/* Returns the time that an instruction loses, if it makes the iteration too long; otherwise 0. */
static double lost_s(const late_repair *self, int32_t i) {
    return self->runs[i].end_s > self->runs[i].latest_end_s ? self->runs[i].lost_s : 0;
}

/* ---- Mending --------------------------------------------------------------------------------- */

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
    int rank = choice_of(self, i)->list.rank;
    for (size_t k = before(self, rank, (size_t)i); k != (size_t)i; k = before(self, rank, k)) {
        if (self->mhz[k] >= self->mhz[i]) continue;
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

/* Evaluates the result. It is the highest clocks if the plan is too slow or needs more energy. */
static harpe_status settle(const late_repair *self, double longest_s, harpe_late_plan *out,
                           harpe_error *error) {
    harpe_plan highest;
    size_t count = (size_t)self->problem->instruction_count;
    harpe_status status = harpe_plan_all_maximum(self->problem, &highest, error);
    if (status == HARPE_OK)
        status =
            harpe_plan_evaluate_late(self->problem, self->mhz, self->cost, 0, out, NULL, error);
    if (status != HARPE_OK) return status;
    bool is_fast = longest_s <= self->time_s * (1 + ROUNDING);
    if (is_fast && out->energy_j <= highest.energy_j) return HARPE_OK;
    memcpy(self->mhz, highest.frequency_mhz, count * sizeof *self->mhz);
    return harpe_plan_evaluate_late(self->problem, self->mhz, self->cost, 0, out, NULL, error);
}

harpe_status harpe_late_repair(const harpe_problem *problem, const harpe_clock_switch *cost,
                               double time_s, int *frequency_mhz, harpe_late_plan *out,
                               harpe_error *error) {
    late_repair self = {.problem = problem,
                        .cost = cost,
                        .time_s = time_s,
                        .mhz = frequency_mhz,
                        .runs = harpe_calloc((size_t)problem->dag.node_count, sizeof *self.runs)};
    if (!self.runs) return harpe_fail_memory(error);
    double longest_s = length_s(&self);
    for (int step = 0; step < MOST_STEPS && longest_s > time_s * (1 + ROUNDING); step++) {
        if (!mend(&self)) break;
        longest_s = length_s(&self);
    }
    harpe_status status = settle(&self, longest_s, out, error);
    free(self.runs);
    return status;
}
