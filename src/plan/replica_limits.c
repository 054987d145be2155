/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps limits on the power of a job; see replica_internal.h. All replicas together are one
 * problem, in which a delay of each replica is before its first instructions. power_limits.c
 * changes clocks and delays. Its starts are the plans of the replicas for the time of the job and
 * for shorter times, in which delays have room, without delays and with delays that are evenly
 * spread. */
#include "plan/replica_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "plan/solver.h"

static const double shares[] = {0, 0.01, 0.02, 0.04, 0.08};
#define DELAYS 33 /* lengths of a delay */

typedef struct joint {
    harpe_replica_plans *plans;
    double time_s;
    harpe_replica_problem *replicas; /* [count] */
    size_t count;
    harpe_arena arena;
    harpe_problem problem;
    harpe_power_shift *shifts; /* [count] */
    harpe_power_repair repair;
    int *numbers, *best;  /* [instruction] */
    double *best_delay_s; /* [count] */
    double best_j;
} joint;

/* ---- The joint problem ----------------------------------------------------------------------- */

/* The numbers of one replica's nodes and choices in the joint problem begin here. */
typedef struct place {
    int32_t own, delay; /* instructions; delays between ranks */
    int32_t own_count;
    int32_t choice;
} place;

static int32_t joint_node(const place *at, int32_t node) {
    return node < at->own_count ? at->own + node : at->delay + node - at->own_count;
}

static harpe_status count_all(joint *j, place **places, harpe_error *error) {
    harpe_problem *all = &j->problem;
    place *at = *places = harpe_arena_alloc(&j->arena, j->count, sizeof *at);
    if (!at) return harpe_fail_memory(error);
    int32_t own = 0, delays = 0;
    for (size_t r = 0; r < j->count; r++) {
        const harpe_problem *one = j->replicas[r].problem;
        at[r] = (place){own, delays, one->instruction_count - one->delay_count,
                        (int32_t)all->choice_count};
        own += at[r].own_count;
        delays += one->delay_count;
        all->choice_count += one->choice_count;
        all->rank_count += one->rank_count;
        all->dag.arc_count += one->dag.arc_count;
        all->total_gpu_count += one->total_gpu_count;
        all->total_blocking_power_w += one->total_blocking_power_w;
        all->overhead_power_w += one->overhead_power_w;
    }
    for (size_t r = 0; r < j->count; r++)
        at[r].delay += own;
    all->delay_count = delays + (int32_t)j->count;
    all->instruction_count = all->dag.node_count = own + all->delay_count;
    all->choice_count += j->count;
    all->dag.arc_count += own; /* at most, from the delays of replicas */
    return HARPE_OK;
}

static harpe_status allocate(joint *j, harpe_error *error) {
    harpe_problem *all = &j->problem;
    harpe_arena *arena = &j->arena;
    size_t nodes = (size_t)all->instruction_count, arcs = (size_t)all->dag.arc_count;
    size_t ranks = (size_t)all->rank_count;
    all->rank_offset = harpe_arena_alloc(arena, ranks + 1, sizeof *all->rank_offset);
    all->blocking_power_w = harpe_arena_alloc(arena, ranks, sizeof *all->blocking_power_w);
    all->choice_of = harpe_arena_alloc(arena, nodes, sizeof *all->choice_of);
    all->choices = harpe_arena_alloc(arena, all->choice_count, sizeof *all->choices);
    all->dag.arc_from = harpe_arena_alloc(arena, arcs, sizeof(int32_t));
    all->dag.first_arc_into = harpe_arena_alloc(arena, nodes + 1, sizeof(int32_t));
    all->dag.topological_order = harpe_arena_alloc(arena, nodes, sizeof(int32_t));
    j->shifts = harpe_arena_alloc(arena, j->count, sizeof *j->shifts);
    j->numbers = harpe_arena_alloc(arena, nodes, sizeof *j->numbers);
    j->best = harpe_arena_alloc(arena, nodes, sizeof *j->best);
    j->best_delay_s = harpe_arena_alloc(arena, j->count, sizeof *j->best_delay_s);
    return arena->has_failed ? harpe_fail_memory(error) : HARPE_OK;
}

/* Makes the choice of a replica's delay: lengths up to what is left of the iteration. */
static harpe_status add_delay(joint *j, size_t r, harpe_error *error) {
    harpe_problem *all = &j->problem;
    size_t number = all->choice_count - j->count + r;
    harpe_profile_point *points = harpe_arena_alloc(&j->arena, DELAYS, sizeof *points);
    if (!points) return harpe_fail_memory(error);
    double most_s = j->time_s - j->plans->groups[r].fastest_s;
    for (int k = 0; k < DELAYS; k++) {
        points[k] = (harpe_profile_point){.frequency_mhz = DELAYS - k};
        points[k].time_s = fmax(0, most_s) * k / (DELAYS - 1);
    }
    all->choices[number] = (harpe_choice){.points = points, .point_count = DELAYS};
    all->choice_of[j->shifts[r].node] = (int32_t)number;
    return HARPE_OK;
}

/* Appends the arcs into the nodes of one replica from `from` to `until`. */
static void add_arcs(joint *j, const place *at, size_t r, int32_t from, int32_t until,
                     int32_t *arcs) {
    const harpe_dag *one = &j->replicas[r].problem->dag;
    harpe_dag *all = &j->problem.dag;
    for (int32_t v = from; v < until; v++) {
        all->first_arc_into[joint_node(&at[r], v)] = *arcs;
        if (one->first_arc_into[v] == one->first_arc_into[v + 1])
            all->arc_from[(*arcs)++] = j->shifts[r].node;
        for (int32_t a = one->first_arc_into[v]; a < one->first_arc_into[v + 1]; a++)
            all->arc_from[(*arcs)++] = joint_node(&at[r], one->arc_from[a]);
    }
}

static void join(joint *j, const place *at) {
    harpe_problem *all = &j->problem;
    int32_t arcs = 0, ordered = 0, nodes = all->instruction_count, rank = 0;
    for (size_t r = 0; r < j->count; r++) {
        j->shifts[r] = (harpe_power_shift){nodes - (int32_t)(j->count - r), at[r].own,
                                           at[r].own + at[r].own_count};
        all->dag.topological_order[ordered++] = j->shifts[r].node;
    }
    for (size_t r = 0; r < j->count; r++) {
        const harpe_problem *one = j->replicas[r].problem;
        add_arcs(j, at, r, 0, at[r].own_count, &arcs);
        memcpy(all->choices + at[r].choice, one->choices, one->choice_count * sizeof *one->choices);
        for (int32_t k = 0; k < one->instruction_count; k++) {
            all->choice_of[joint_node(&at[r], k)] = at[r].choice + one->choice_of[k];
            all->dag.topological_order[ordered++] =
                joint_node(&at[r], one->dag.topological_order[k]);
        }
        for (int k = 0; k < one->rank_count; k++, rank++) {
            all->rank_offset[rank] = (size_t)at[r].own + one->rank_offset[k];
            all->blocking_power_w[rank] = one->blocking_power_w[k];
        }
    }
    all->rank_offset[rank] = (size_t)(nodes - all->delay_count);
    for (size_t r = 0; r < j->count; r++)
        add_arcs(j, at, r, at[r].own_count, j->replicas[r].problem->instruction_count, &arcs);
    for (int32_t v = nodes - (int32_t)j->count; v <= nodes; v++)
        all->dag.first_arc_into[v] = arcs;
}

static harpe_status make_joint(joint *j, harpe_error *error) {
    place *places = NULL;
    harpe_status status = count_all(j, &places, error);
    if (status == HARPE_OK) status = allocate(j, error);
    if (status == HARPE_OK) join(j, places);
    for (size_t r = 0; r < j->count && status == HARPE_OK; r++)
        status = add_delay(j, r, error);
    return status;
}

/* ---- Search ---------------------------------------------------------------------------------- */

/* Makes plans of all replicas for a time. */
static harpe_status plan_all(joint *j, double time_s, harpe_error *error) {
    harpe_status status = HARPE_OK;
    for (size_t r = 0; r < j->count && status == HARPE_OK; r++) {
        double fastest_s = j->plans->groups[r].fastest_s;
        status = harpe_replica_search(j->replicas[r].problem, fmax(time_s, fastest_s), time_s, 1,
                                      j->numbers + j->shifts[r].first, NULL, error);
    }
    return status;
}

/* Delays the replicas by even parts of their time to spare. */
static void spread(joint *j) {
    for (size_t r = 0; r < j->count; r++) {
        const harpe_choice *choice = harpe_problem_choice(&j->problem, j->shifts[r].node);
        double end_s = 0, part = (double)r / (double)(j->count > 1 ? j->count - 1 : 1);
        for (int32_t i = j->shifts[r].first; i < j->shifts[r].end; i++)
            end_s = fmax(end_s, j->repair.start_s[i] + j->repair.points[i]->time_s);
        size_t k = 0;
        while (k + 1 < DELAYS && choice->points[k + 1].time_s <= part * (j->time_s - end_s))
            k++;
        j->repair.points[j->shifts[r].node] = &choice->points[k];
    }
    harpe_power_repair_evaluate(&j->repair);
}

static harpe_status try_start(joint *j, bool is_spread, harpe_error *error) {
    bool obeys = false;
    harpe_status status = harpe_power_repair_begin(&j->repair, j->numbers, j->time_s, error);
    if (status != HARPE_OK || j->repair.plan.time_s > j->time_s) return status;
    if (is_spread) spread(j);
    status = harpe_power_repair_run(&j->repair, &obeys, error);
    if (status != HARPE_OK || !obeys || j->repair.plan.energy_j >= j->best_j) return status;
    j->best_j = j->repair.plan.energy_j;
    harpe_power_repair_frequencies(&j->repair, j->best);
    for (size_t r = 0; r < j->count; r++)
        j->best_delay_s[r] = j->repair.points[j->shifts[r].node]->time_s;
    return HARPE_OK;
}

/* Takes the best result into the plans. */
static harpe_status take_best(joint *j, harpe_error *error) {
    harpe_status status = HARPE_OK;
    for (size_t r = 0; r < j->count && status == HARPE_OK; r++) {
        harpe_replica_problem_decode(&j->replicas[r], j->best + j->shifts[r].first,
                                     j->plans->groups[r].frequency_mhz);
        j->plans->plans[r].start_s = j->best_delay_s[r];
        status = harpe_replica_run_plan(
            j->plans, HARPE_REPLICA_OWN_PLANS, &j->replicas[r], (int)r,
            &harpe_replica_runs_of(j->plans, HARPE_REPLICA_OWN_PLANS)[r], error);
    }
    return status;
}

static harpe_status search(joint *j, harpe_error *error) {
    harpe_status status = HARPE_OK;
    for (size_t r = 0; r < j->count; r++)
        memcpy(j->numbers + j->shifts[r].first, j->plans->groups[r].numbers,
               (size_t)(j->shifts[r].end - j->shifts[r].first) * sizeof(int));
    status = harpe_power_repair_begin(&j->repair, j->numbers, j->time_s, error);
    if (status != HARPE_OK || harpe_power_repair_obeys(&j->repair)) return status;
    for (size_t k = 0; k < sizeof shares / sizeof shares[0] && status == HARPE_OK; k++) {
        if (k > 0) status = plan_all(j, (1 - shares[k]) * j->time_s, error);
        if (status == HARPE_OK) status = try_start(j, false, error);
        if (status == HARPE_OK) status = try_start(j, true, error);
    }
    if (status == HARPE_OK && !isfinite(j->best_j))
        status = harpe_power_limits_fail(&j->repair, j->time_s, error);
    return status == HARPE_OK ? take_best(j, error) : status;
}

harpe_status harpe_replica_limits_keep(harpe_replica_plans *plans,
                                       const harpe_replica_source *source,
                                       const harpe_power_limits *limits, double time_s,
                                       harpe_error *error) {
    static const harpe_clock_switch no_cost = {0};
    joint j = {.plans = plans,
               .time_s = time_s,
               .best_j = INFINITY,
               .count = (size_t)plans->classes.count};
    harpe_status status = HARPE_OK;
    j.time_s += harpe_time_slack_s(time_s);
    j.replicas = harpe_calloc(j.count, sizeof *j.replicas);
    if (!j.replicas) return harpe_fail_memory(error);
    for (size_t r = 0; r < j.count && status == HARPE_OK; r++)
        status = harpe_replica_problem_new(source, (int)r, &j.replicas[r], error);
    if (status == HARPE_OK) status = make_joint(&j, error);
    if (status == HARPE_OK)
        status = harpe_power_repair_init(&j.repair, &j.problem, &no_cost, limits, error);
    j.repair.shifts = j.shifts;
    j.repair.shift_count = j.count;
    if (status == HARPE_OK) status = search(&j, error);
    harpe_power_repair_clear(&j.repair);
    for (size_t r = 0; r < j.count; r++)
        harpe_replica_problem_clear(&j.replicas[r]);
    free(j.replicas);
    harpe_arena_free(&j.arena);
    return status;
}
