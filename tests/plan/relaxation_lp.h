/* SPDX-License-Identifier: Apache-2.0 */
/* The relaxation as a linear program for a third-party solver (COIN-OR Clp): variables for times of
 * events, and a convex combination of curve points for every instruction. It shares only the public
 * option lists with the planner. The caller states the dependencies. */
#ifndef HARPE_TESTS_PLAN_RELAXATION_LP_H
#define HARPE_TESTS_PLAN_RELAXATION_LP_H

#ifdef HARPE_HAVE_CLP

#include <float.h>
#include <math.h>
#include <stdlib.h>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <coin/Clp_C_Interface.h>
#pragma GCC diagnostic pop

#include "base/array.h"
#include "plan/problem.h"
#include <harpe/plan.h>

typedef struct relaxation {
    int instruction_count;
    const harpe_option_list **list_of; /* [instruction_count] */
    int arc_count;
    int *arc_from, *arc_to;  /* arc_from[a] must end before arc_to[a] starts */
    double blocking_power_w; /* of all ranks together */
} relaxation;

static inline relaxation relaxation_new(int instructions, int most_arcs, double blocking_power_w) {
    return (relaxation){
        .instruction_count = instructions,
        .list_of = calloc((size_t)instructions, sizeof(const harpe_option_list *)),
        .arc_from = calloc((size_t)most_arcs, sizeof(int)),
        .arc_to = calloc((size_t)most_arcs, sizeof(int)),
        .blocking_power_w = blocking_power_w,
    };
}

static inline void relaxation_clear(relaxation *r) {
    free(r->list_of);
    free(r->arc_from);
    free(r->arc_to);
}
#define owned_relaxation AT_END(relaxation_clear) relaxation

static inline void relaxation_arc(relaxation *r, int from, int to) {
    r->arc_from[r->arc_count] = from;
    r->arc_to[r->arc_count++] = to;
}

/* The relaxation of a problem with the planner's own dependencies, which test_dag.c tests. */
static inline relaxation relaxation_of(const harpe_problem *problem) {
    const harpe_dag *dag = &problem->dag;
    double every_second_w = problem->total_blocking_power_w + problem->overhead_power_w;
    relaxation r = relaxation_new(dag->node_count, dag->arc_count, every_second_w);
    for (int i = 0; i < dag->node_count; i++)
        r.list_of[i] = &harpe_problem_choice(problem, i)->list;
    for (int a = 0; a < dag->arc_count; a++)
        relaxation_arc(&r, dag->arc_from[a], dag->arc_to[a]);
    return r;
}

/* Times and energies are scaled to about 1 for the solver. Energies count from each instruction's
 * slowest point. */
typedef struct relaxation_lp {
    Clp_Simplex *model;
    int time_column;
    double time_unit_s, energy_unit_j;
    double slowest_energy_j;
} relaxation_lp;

/* A column of the program during its construction. */
typedef struct lp_writer {
    CoinBigIndex *start;
    int *row;
    double *value, *cost;
    int columns;
    CoinBigIndex entries;
} lp_writer;

static inline void lp_entry(lp_writer *w, int row, double value) {
    w->row[w->entries] = row;
    w->value[w->entries++] = value;
}

static inline void lp_end_column(lp_writer *w, double cost) {
    w->cost[w->columns++] = cost;
    w->start[w->columns] = w->entries;
}

/* Rows: the weights of instruction i sum to 1 (row i), arc a is respected (row n + a), instruction
 * i ends within the iteration (row n + arcs + i). A duration enters each row that contains the end
 * of its instruction, with the same sign as its start. */
static inline void lp_instruction(lp_writer *w, const relaxation *r, const relaxation_lp *lp,
                                  int i) {
    int n = r->instruction_count;
    const harpe_option_list *list = r->list_of[i];
    double slowest_j = list->curve_effective_energy_j[list->curve_count - 1];
    for (int a = 0; a < r->arc_count; a++) {
        if (r->arc_from[a] == i) lp_entry(w, n + a, -1);
        if (r->arc_to[a] == i) lp_entry(w, n + a, 1);
    }
    lp_entry(w, n + r->arc_count + i, -1);
    lp_end_column(w, 0); /* the column of its start */
    for (size_t k = 0; k < list->curve_count; k++) {
        double time = list->curve_time_s[k] / lp->time_unit_s;
        lp_entry(w, i, 1);
        for (int a = 0; a < r->arc_count; a++)
            if (r->arc_from[a] == i) lp_entry(w, n + a, -time);
        lp_entry(w, n + r->arc_count + i, -time);
        lp_end_column(w, (list->curve_effective_energy_j[k] - slowest_j) / lp->energy_unit_j);
    }
}

static inline void lp_choose_units(const relaxation *r, relaxation_lp *lp) {
    lp->time_unit_s = 0;
    lp->energy_unit_j = 0;
    for (int i = 0; i < r->instruction_count; i++) {
        const harpe_option_list *list = r->list_of[i];
        size_t last = list->curve_count - 1;
        double range_j = list->curve_effective_energy_j[0] - list->curve_effective_energy_j[last];
        lp->time_unit_s = fmax(lp->time_unit_s, list->curve_time_s[last]);
        lp->energy_unit_j = fmax(lp->energy_unit_j, range_j);
        lp->slowest_energy_j += list->curve_effective_energy_j[last];
    }
    lp->energy_unit_j = fmax(lp->energy_unit_j, r->blocking_power_w * lp->time_unit_s);
    if (lp->energy_unit_j == 0) lp->energy_unit_j = 1;
}

static inline void lp_load(relaxation_lp *lp, const lp_writer *w, int rows, int n) {
    double *row_low = malloc((size_t)rows * sizeof *row_low);
    double *row_high = malloc((size_t)rows * sizeof *row_high);
    for (int i = 0; i < rows; i++) {
        row_low[i] = i < n ? 1 : 0;
        row_high[i] = i < n ? 1 : DBL_MAX;
    }
    lp->model = Clp_newModel();
    Clp_setLogLevel(lp->model, 0);
    Clp_scaling(lp->model, 0);
    Clp_setPerturbation(lp->model, 100); /* switched off */
    Clp_loadProblem(lp->model, w->columns, rows, w->start, w->row, w->value, NULL, NULL, w->cost,
                    row_low, row_high);
    Clp_setPrimalTolerance(lp->model, 1e-9);
    Clp_setDualTolerance(lp->model, 1e-9);
    free(row_low);
    free(row_high);
}

static inline relaxation_lp relaxation_lp_new(const relaxation *r) {
    relaxation_lp lp = {.model = NULL};
    lp_choose_units(r, &lp);
    size_t columns = 1, entries = (size_t)r->instruction_count;
    for (int i = 0; i < r->instruction_count; i++) {
        int degree = 2;
        for (int a = 0; a < r->arc_count; a++)
            degree += (r->arc_from[a] == i) + (r->arc_to[a] == i);
        columns += 1 + r->list_of[i]->curve_count;
        entries += (size_t)degree * (1 + r->list_of[i]->curve_count);
    }
    lp_writer w = {.start = harpe_calloc(columns + 1, sizeof *w.start),
                   .row = harpe_calloc(entries, sizeof *w.row),
                   .value = harpe_calloc(entries, sizeof *w.value),
                   .cost = harpe_calloc(columns, sizeof *w.cost)};
    for (int i = 0; i < r->instruction_count; i++)
        lp_instruction(&w, r, &lp, i);
    lp.time_column = w.columns;
    for (int i = 0; i < r->instruction_count; i++)
        lp_entry(&w, r->instruction_count + r->arc_count + i, 1);
    lp_end_column(&w, r->blocking_power_w * lp.time_unit_s / lp.energy_unit_j);
    lp_load(&lp, &w, 2 * r->instruction_count + r->arc_count, r->instruction_count);
    free(w.start);
    free(w.row);
    free(w.value);
    free(w.cost);
    return lp;
}

static inline void relaxation_lp_free(relaxation_lp *lp) { Clp_deleteModel(lp->model); }
#define owned_relaxation_lp AT_END(relaxation_lp_free) relaxation_lp

/* Returns the least energy of an iteration that takes at most time_s (or any time if that is
 * INFINITY), or NAN if the solver finds none. */
static inline double relaxation_lp_energy_j(relaxation_lp *lp, double time_s) {
    Clp_columnUpper(lp->model)[lp->time_column] =
        isinf(time_s) ? DBL_MAX : time_s / lp->time_unit_s;
    Clp_dual(lp->model, 0);
    if (Clp_status(lp->model) != 0) return NAN;
    return lp->slowest_energy_j + Clp_objectiveValue(lp->model) * lp->energy_unit_j;
}

#endif
#endif
