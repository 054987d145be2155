/* SPDX-License-Identifier: Apache-2.0 */
/* The relaxation as a linear program for a third-party solver (COIN-OR Clp): variables for times of
 * events, and a convex combination of curve points for every instruction. It shares only the public
 * option lists with the planner. The caller states the dependencies. */
#ifndef HARPE_TESTS_PLAN_RELAXATION_LP_H
#define HARPE_TESTS_PLAN_RELAXATION_LP_H

#include "test.h"

#ifdef HARPE_HAVE_CLP

#include <float.h>
#include <math.h>
#include <stdlib.h>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <coin/Clp_C_Interface.h>
#pragma GCC diagnostic pop

#include "instances.h"

/* A wait that saves energy if it is long. */
typedef struct relaxation_wait {
    int before, after; /* instructions; -1: the begin and the end of the iteration */
    double saving_w, longest_s;
} relaxation_wait;

typedef struct relaxation {
    int instruction_count;
    const harpe_option_list **list_of; /* [instruction_count] */
    int arc_count;
    int *arc_from, *arc_to;  /* arc_from[a] must end before arc_to[a] starts */
    double blocking_power_w; /* of all ranks together */
    /* All may be NULL. */
    const double *lag_s;                  /* [arc_count] */
    const double *release_s, *deadline_s; /* [instruction_count]; a deadline of 0 is none */
    const relaxation_wait *waits;         /* [wait_count] */
    int wait_count;
    bool starts_at_once; /* an instruction with at most one arc into it starts as early as the arc
                          * allows */
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
    int *start_column; /* [instruction] */
    double time_unit_s, energy_unit_j;
    double slowest_energy_j;
} relaxation_lp;

/* The rows of the program during its construction. */
typedef struct lp_rows {
    int count, *column;
    CoinBigIndex *start;
    double *value, *low, *high;
} lp_rows;

static inline void lp_row(lp_rows *r, double low, double high) {
    r->low[r->count] = low;
    r->high[r->count] = high;
    r->start[r->count + 1] = r->start[r->count];
    r->count++;
}

/* Adds to the last row. */
static inline void lp_put(lp_rows *r, int column, double value) {
    CoinBigIndex at = r->start[r->count]++;
    r->column[at] = column;
    r->value[at] = value;
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

/* The columns of an instruction: its start, its end, and the weights of its points, which sum to 1.
 * It lasts at least as long as they say, and ends within the iteration. */
static inline void lp_instruction(const relaxation *r, relaxation_lp *lp, int i, lp_rows *rows) {
    const harpe_option_list *list = r->list_of[i];
    int start = lp->start_column[i];
    double *cost = Clp_objective(lp->model) + start + 2;
    double slowest_j = list->curve_effective_energy_j[list->curve_count - 1];
    for (size_t k = 0; k < list->curve_count; k++)
        cost[k] = (list->curve_effective_energy_j[k] - slowest_j) / lp->energy_unit_j;
    lp_row(rows, 1, 1);
    for (int k = 0; k < (int)list->curve_count; k++)
        lp_put(rows, start + 2 + k, 1);
    lp_row(rows, 0, DBL_MAX);
    lp_put(rows, start + 1, 1);
    lp_put(rows, start, -1);
    for (int k = 0; k < (int)list->curve_count; k++)
        lp_put(rows, start + 2 + k, -list->curve_time_s[k] / lp->time_unit_s);
    lp_row(rows, 0, DBL_MAX);
    lp_put(rows, 0, 1);
    lp_put(rows, start + 1, -1);
    if (r->release_s) Clp_columnLower(lp->model)[start] = r->release_s[i] / lp->time_unit_s;
    if (r->deadline_s && r->deadline_s[i] > 0)
        Clp_columnUpper(lp->model)[start + 1] = r->deadline_s[i] / lp->time_unit_s;
}

static inline void lp_arcs(const relaxation *r, relaxation_lp *lp, lp_rows *rows) {
    owned_array int *before = harpe_calloc((size_t)r->instruction_count, sizeof *before);
    for (int a = 0; a < r->arc_count; a++)
        before[r->arc_to[a]]++;
    for (int i = 0; i < r->instruction_count && r->starts_at_once; i++)
        if (before[i] == 0) Clp_columnUpper(lp->model)[lp->start_column[i]] = 0;
    for (int a = 0; a < r->arc_count; a++) {
        double lag = r->lag_s ? r->lag_s[a] / lp->time_unit_s : 0;
        lp_row(rows, lag, r->starts_at_once && before[r->arc_to[a]] == 1 ? lag : DBL_MAX);
        lp_put(rows, lp->start_column[r->arc_to[a]], 1);
        lp_put(rows, lp->start_column[r->arc_from[a]] + 1, -1);
    }
}

/* The column of a wait is its length. */
static inline void lp_wait(const relaxation_wait *wait, relaxation_lp *lp, int column,
                           lp_rows *rows) {
    Clp_objective(lp->model)[column] = -wait->saving_w * lp->time_unit_s / lp->energy_unit_j;
    Clp_columnUpper(lp->model)[column] = wait->longest_s / lp->time_unit_s;
    lp_row(rows, 0, DBL_MAX);
    lp_put(rows, wait->after < 0 ? 0 : lp->start_column[wait->after], 1);
    if (wait->before >= 0) lp_put(rows, lp->start_column[wait->before] + 1, -1);
    lp_put(rows, column, -1);
}

/* The first column is the length of the iteration. */
static inline relaxation_lp relaxation_lp_new(const relaxation *r) {
    size_t n = (size_t)r->instruction_count, waits = (size_t)r->wait_count;
    size_t most_rows = 3 * n + (size_t)r->arc_count + waits + 1;
    relaxation_lp lp = {.model = Clp_newModel(),
                        .start_column = harpe_calloc(n, sizeof *lp.start_column)};
    int columns = 1;
    lp_choose_units(r, &lp);
    for (size_t i = 0; i < n; i++) {
        lp.start_column[i] = columns;
        columns += 2 + (int)r->list_of[i]->curve_count;
    }
    int first_wait = columns;
    columns += r->wait_count;
    size_t most_entries = 2 * (size_t)columns + 3 * most_rows;
    owned_array double *bounds = harpe_calloc(2 * most_rows, sizeof *bounds);
    owned_array double *values = harpe_calloc(most_entries, sizeof *values);
    owned_array int *indices = harpe_calloc(most_entries, sizeof *indices);
    owned_array CoinBigIndex *starts = harpe_calloc(most_rows + 1, sizeof *starts);
    owned_array CoinBigIndex *none = harpe_calloc((size_t)columns + 1, sizeof *none);
    lp_rows rows = {.column = indices,
                    .start = starts,
                    .value = values,
                    .low = bounds,
                    .high = bounds + most_rows};
    Clp_setLogLevel(lp.model, 0);
    Clp_scaling(lp.model, 0);
    Clp_setPerturbation(lp.model, 100); /* switched off */
    Clp_loadProblem(lp.model, columns, 0, none, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
    Clp_objective(lp.model)[0] = r->blocking_power_w * lp.time_unit_s / lp.energy_unit_j;
    for (size_t i = 0; i < n; i++)
        lp_instruction(r, &lp, (int)i, &rows);
    lp_arcs(r, &lp, &rows);
    for (int w = 0; w < r->wait_count; w++)
        lp_wait(&r->waits[w], &lp, first_wait + w, &rows);
    Clp_addRows(lp.model, rows.count, rows.low, rows.high, rows.start, rows.column, rows.value);
    Clp_setPrimalTolerance(lp.model, 1e-9);
    Clp_setDualTolerance(lp.model, 1e-9);
    return lp;
}

static inline void relaxation_lp_free(relaxation_lp *lp) {
    Clp_deleteModel(lp->model);
    free(lp->start_column);
}
#define owned_relaxation_lp AT_END(relaxation_lp_free) relaxation_lp

/* Returns the least energy of an iteration that takes at most time_s (or any time if that is
 * INFINITY), or NAN if the solver finds none. */
static inline double relaxation_lp_energy_j(relaxation_lp *lp, double time_s) {
    Clp_columnUpper(lp->model)[0] = isinf(time_s) ? DBL_MAX : time_s / lp->time_unit_s;
    Clp_dual(lp->model, 0);
    if (Clp_status(lp->model) != 0) return NAN;
    return lp->slowest_energy_j + Clp_objectiveValue(lp->model) * lp->energy_unit_j;
}

/* Checks that a frontier equals the LP's optimum at T_min, at T*, and at `samples` times between,
 * and that the LP has the energy of T* if its time is free. */
static inline void assert_bound_is_optimum(const harpe_frontier *frontier, relaxation_lp *lp,
                                           int samples, test_random *random, double tolerance_j) {
    size_t count = 0;
    const harpe_frontier_vertex *v = harpe_frontier_vertices(frontier, &count);
    double low_s = v[0].time_s, high_s = v[count - 1].time_s;
    for (int k = 0; k < samples + 3; k++) {
        /* Clp's tolerance is 1e-9 of the longest duration; T_min has no room for it. */
        double time_s = k == 0   ? low_s
                        : k == 1 ? high_s
                                 : random_between(random, low_s, 1.1 * high_s);
        time_s = k == 2 ? INFINITY : fmax(time_s, low_s * (1 + 1e-7));
        double bound_j =
            k == 2 ? v[count - 1].lower_bound_j : harpe_frontier_bound_at(frontier, time_s);
        double optimum_j = relaxation_lp_energy_j(lp, time_s);
        if (!(fabs(bound_j - optimum_j) <= 1e-6 * fabs(optimum_j) + tolerance_j))
            fail_msg("at %.12g s the frontier says %.12g J, the LP %.12g J", time_s, bound_j,
                     optimum_j);
    }
}

#else

TEST(bounds_are_compared_with_optima_of_a_linear_program) {
    skip_because("missing: the LP solver Clp (coinor-libclp-dev)");
}

#endif
#endif
