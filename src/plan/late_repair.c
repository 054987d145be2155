/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the longest time of each instruction if changes take any time up to their latency, and the
 * instructions that make the iteration too long because their clock comes late. The worst of them
 * are repaired in each step. */
#include "plan/late_repair.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "plan/evaluate.h"
#include "plan/problem.h"
#include "plan/switching.h"

/* The first steps raise one instruction before each that loses time, which costs the least energy.
 * They visit so many instructions in all. If that is not enough, some steps raise as many as they
 * must, and the last ones as many as can help. */
enum { ONE_BY_ONE_WORK = 1 << 19, ONE_BY_ONE_STEPS = 1000, NEEDED_STEPS = 48, ALL_STEPS = 16 };
/* In a step, so many instructions are visited to find those to raise, and a few times all. */
enum { RAISE_WORK = 1 << 20 };
typedef enum amount { ONE, NEEDED, ALL } amount;
/* Instructions that lose at least this share of the most that one loses are repaired together. */
#define TOGETHER_SHARE 0.9
#define ROUNDING 1e-9 /* relative: times are sums of doubles */

/* The longest time of an instruction. */
typedef struct longest_run {
    double time_s, end_s, latest_end_s;
    double late_s; /* the time until its clock is there */
    double lost_s; /* the part of the time that a late change can cost */
} longest_run;

/* What a GPU may be doing when an instruction begins. */
typedef struct late_state {
    int mhz, lowest_mhz; /* its last clock, and the lowest from before that may be in effect */
    double held_s;       /* the last clock was asked for at least so long ago */
} late_state;

typedef struct late_repair {
    const harpe_problem *problem;
    const harpe_clock_switch *cost;
    double time_s;
    int *mhz;
    longest_run *runs; /* [instruction] */
    int64_t work_left; /* of this step, to find the instructions to raise */
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

/* Takes the request of the next instruction into a state. An earlier clock may be in effect until a
 * later one has held for its latency. */
static void ask(const late_repair *self, int rank, int mhz, late_state *state) {
    if (mhz == state->mhz) return;
    bool is_there = state->held_s >= latency_s(self, rank, state->mhz);
    bool is_lowest = is_there || state->mhz < state->lowest_mhz;
    *state = (late_state){mhz, is_lowest ? state->mhz : state->lowest_mhz, 0};
}

/* Finds the time that an instruction loses if its clock comes as late as possible. */
static void find_lost(const late_repair *self, int rank, size_t i, const late_state *state) {
    const harpe_choice *choice = choice_of(self, (int32_t)i);
    longest_run *run = &self->runs[i];
    double own_s = time_at(choice, state->mhz), low_s = own_s;
    run->late_s = fmax(0, latency_s(self, rank, state->mhz) - state->held_s);
    if (run->late_s > 0 && state->lowest_mhz < state->mhz)
        low_s = time_at(choice, state->lowest_mhz);
    run->lost_s = low_s > own_s ? fmin(run->late_s, low_s) * (1 - own_s / low_s) : 0;
    run->time_s = own_s + run->lost_s;
}

/* Goes through a rank twice: the second iteration begins as all later ones do. */
static void find_longest_of(const late_repair *self, int rank) {
    const size_t *offset = self->problem->rank_offset;
    late_state state = {0, 0, INFINITY};
    for (size_t i = offset[rank]; i < offset[rank + 1]; i++)
        if (has_clock(self, i)) state.mhz = state.lowest_mhz = self->mhz[i];
    for (int iteration = 0; iteration < 2; iteration++) {
        for (size_t i = offset[rank]; i < offset[rank + 1]; i++) {
            if (!has_clock(self, i)) continue;
            ask(self, rank, self->mhz[i], &state);
            if (iteration == 1) find_lost(self, rank, i, &state);
            state.held_s += choice_of(self, (int32_t)i)->points[0].time_s;
        }
    }
}

static void find_longest(const late_repair *self) {
    for (int32_t i = 0; i < self->problem->dag.node_count; i++)
        self->runs[i] = (longest_run){.time_s = choice_of(self, i)->points[0].time_s};
    for (int rank = 0; rank < harpe_problem_rank_count(self->problem); rank++)
        find_longest_of(self, rank);
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

/* ---- Repairing ------------------------------------------------------------------------------- */

/* Returns the lowest measured clock of an instruction that is at least `mhz`, or its highest. */
static int clock_from(const harpe_choice *choice, int mhz) {
    size_t p = choice->point_count - 1;
    while (p > 0 && choice->points[p].frequency_mhz < mhz)
        p--;
    return choice->points[p].frequency_mhz;
}

/* Gives instructions before `i` the clock of `i`, until it is asked for by `earlier_s` earlier.
 * Returns false if none becomes faster. */
static bool raise_before(late_repair *self, int32_t i, double earlier_s) {
    int rank = choice_of(self, i)->list.rank;
    bool has_raised = false;
    for (size_t k = before(self, rank, (size_t)i); k != (size_t)i; k = before(self, rank, k)) {
        const harpe_choice *choice = choice_of(self, (int32_t)k);
        if ((has_raised && earlier_s <= 0) || self->work_left-- <= 0) break;
        if (self->mhz[k] >= self->mhz[i]) continue;
        int mhz = clock_from(choice, self->mhz[i]);
        if (mhz <= self->mhz[k]) break;
        self->mhz[k] = mhz;
        earlier_s -= choice->points[0].time_s;
        has_raised = true;
    }
    return has_raised;
}

static bool raise_for(late_repair *self, int32_t i, amount raised) {
    const longest_run *run = &self->runs[i];
    if (raised == ONE) return raise_before(self, i, 0);
    if (raised == ALL) return raise_before(self, i, run->late_s);
    double must_s = fmin(run->end_s - run->latest_end_s, run->lost_s);
    /* A clock that comes earlier by some time saves a share of it. */
    return raise_before(self, i, run->late_s * must_s / run->lost_s);
}

/* Repairs the instructions that lose most, or all that lose. Returns false if nothing can be
 * repaired. */
static bool repair(late_repair *self, amount raised) {
    int32_t count = (int32_t)harpe_problem_instruction_count(self->problem);
    double most_s = 0;
    bool has_raised = false;
    self->work_left = RAISE_WORK + 8 * (int64_t)count;
    find_latest_ends(self);
    for (int32_t i = 0; i < count; i++)
        most_s = fmax(most_s, lost_s(self, i));
    double least_s = raised == ALL ? 0 : TOGETHER_SHARE * most_s;
    for (int32_t i = 0; i < count && most_s > 0; i++)
        if (lost_s(self, i) > 0 && lost_s(self, i) >= least_s)
            has_raised |= raise_for(self, i, raised);
    return has_raised;
}

/* Repairs the plan, and returns its longest time, which is too long if that failed. */
static double repair_all(late_repair *self) {
    int one = ONE_BY_ONE_WORK / self->problem->dag.node_count;
    if (one > ONE_BY_ONE_STEPS) one = ONE_BY_ONE_STEPS;
    double longest_s = length_s(self);
    for (int step = 0; longest_s > self->time_s * (1 + ROUNDING); step++) {
        if (step >= one + NEEDED_STEPS + ALL_STEPS) break;
        if (!repair(self, step < one ? ONE : step < one + NEEDED_STEPS ? NEEDED : ALL)) break;
        longest_s = length_s(self);
    }
    return longest_s;
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
    double longest_s = repair_all(&self);
    harpe_status status = settle(&self, longest_s, out, error);
    free(self.runs);
    return status;
}
