/* SPDX-License-Identifier: Apache-2.0 */
/* Compares Harpe with a general solver for linear programs (Clp, with its own choice of method),
 * which solves one point of the relaxation. Compares the time of that with the time of Harpe's
 * whole frontier, and compares the two optima. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <Clp_C_Interface.h>

#include "base/clock.h"
#include "bench_case.h"
#include "plan/problem.h"

/* Variables: the start of each instruction, and for each segment of its curve the amount by which
 * the instruction is shortened on that segment. Rows: an instruction ends before the next one
 * starts, or before the iteration ends. */
typedef struct linear_program {
    int column_count;
    double *column_upper, *objective; /* [column_count] */
    int *first_segment;               /* [instruction]: column of its first segment */
    int row_count;
    int *row_start; /* [row_count + 1] */
    double *row_lower;
    int *column; /* row index and value of each element */
    double *element;
    double constant_j; /* energy with every instruction at its slowest, and blocking energy */
} linear_program;

static void *allocate(size_t count, size_t size) {
    void *memory = calloc(count + 1, size);
    if (!memory) abort();
    return memory;
}

static const harpe_option_list *list_of(const harpe_problem *problem, int instruction) {
    return &harpe_problem_choice(problem, instruction)->list;
}

static double slowest_s(const harpe_option_list *list) {
    return list->curve_time_s[list->curve_count - 1];
}

static void build_columns(const harpe_problem *problem, double time_s, linear_program *lp) {
    int count = problem->instruction_count;
    size_t most = (size_t)count;
    for (int i = 0; i < count; i++)
        most += list_of(problem, i)->curve_count - 1;
    lp->column_upper = allocate(most, sizeof *lp->column_upper);
    lp->objective = allocate(most, sizeof *lp->objective);
    lp->first_segment = allocate((size_t)count, sizeof *lp->first_segment);
    lp->constant_j = problem->total_blocking_power_w * time_s;
    int column = count;
    for (int i = 0; i < count; i++) {
        const harpe_option_list *list = list_of(problem, i);
        const double *energy_j = list->curve_effective_energy_j;
        lp->column_upper[i] = time_s;
        lp->first_segment[i] = column;
        lp->constant_j += energy_j[list->curve_count - 1];
        for (size_t k = 1; k < list->curve_count; k++, column++) {
            double width_s = list->curve_time_s[k] - list->curve_time_s[k - 1];
            lp->column_upper[column] = width_s;
            lp->objective[column] = (energy_j[k - 1] - energy_j[k]) / width_s;
        }
    }
    lp->column_count = column;
}

static void add_element(linear_program *lp, int column, double value) {
    int at = lp->row_start[lp->row_count + 1]++;
    lp->column[at] = column;
    lp->element[at] = value;
}

/* start of `next` (-1: end of the iteration) - start of `instruction` >= its duration */
static void add_row(const harpe_problem *problem, linear_program *lp, int instruction, int next,
                    double time_s) {
    const harpe_option_list *list = list_of(problem, instruction);
    lp->row_start[lp->row_count + 1] = lp->row_start[lp->row_count];
    lp->row_lower[lp->row_count] = slowest_s(list) - (next < 0 ? time_s : 0);
    add_element(lp, instruction, -1);
    if (next >= 0) add_element(lp, next, 1);
    for (size_t k = 1; k < list->curve_count; k++)
        add_element(lp, lp->first_segment[instruction] + (int)k - 1, 1);
    lp->row_count++;
}

static void build_rows(const harpe_problem *problem, double time_s, linear_program *lp) {
    const harpe_dag *dag = &problem->dag;
    size_t rows = (size_t)dag->arc_count + (size_t)problem->instruction_count, elements = 0;
    for (int a = 0; a < dag->arc_count; a++)
        elements += list_of(problem, dag->arc_from[a])->curve_count + 1;
    for (int i = 0; i < problem->instruction_count; i++)
        elements += list_of(problem, i)->curve_count;
    lp->row_start = allocate(rows + 1, sizeof *lp->row_start);
    lp->row_lower = allocate(rows, sizeof *lp->row_lower);
    lp->column = allocate(elements, sizeof *lp->column);
    lp->element = allocate(elements, sizeof *lp->element);
    bool *has_successor = allocate((size_t)problem->instruction_count, sizeof *has_successor);
    for (int a = 0; a < dag->arc_count; a++) {
        has_successor[dag->arc_from[a]] = true;
        add_row(problem, lp, dag->arc_from[a], dag->arc_to[a], time_s);
    }
    for (int i = 0; i < problem->instruction_count; i++)
        if (!has_successor[i]) add_row(problem, lp, i, -1, time_s);
    free(has_successor);
}

static void clear(linear_program *lp) {
    free(lp->column_upper);
    free(lp->objective);
    free(lp->first_segment);
    free(lp->row_start);
    free(lp->row_lower);
    free(lp->column);
    free(lp->element);
}

/* Returns the least energy of an iteration of `time_s` according to Clp. Exits if Clp finds no
 * solution. */
static double solve(const linear_program *lp) {
    Clp_Simplex *model = Clp_newModel();
    Clp_setLogLevel(model, 0);
    Clp_resize(model, 0, lp->column_count);
    Clp_chgColumnUpper(model, lp->column_upper);
    Clp_chgObjCoefficients(model, lp->objective);
    Clp_addRows(model, lp->row_count, lp->row_lower, NULL, lp->row_start, lp->column, lp->element);
    Clp_initialSolve(model);
    if (Clp_status(model) != 0) {
        fprintf(stderr, "bench: Clp ended with status %d\n", Clp_status(model));
        exit(1);
    }
    double energy_j = lp->constant_j + Clp_objectiveValue(model);
    Clp_deleteModel(model);
    return energy_j;
}

int main(int argc, char **argv) {
    bench_case which = bench_case_from_flags(argc, argv);
    harpe_problem *problem = bench_case_problem(&which);
    harpe_error error;
    harpe_frontier *frontier = NULL;
    double began_s = harpe_clock_s();
    bench_require(harpe_frontier_new(problem, NULL, &frontier, &error), &error);
    double frontier_s = harpe_clock_s() - began_s;
    size_t count = 0;
    const harpe_frontier_vertex *vertices = harpe_frontier_vertices(frontier, &count);
    double time_s = (vertices[0].time_s + vertices[count - 1].time_s) / 2;

    began_s = harpe_clock_s();
    linear_program lp = {0};
    build_columns(problem, time_s, &lp);
    build_rows(problem, time_s, &lp);
    double energy_j = solve(&lp);
    double lp_s = harpe_clock_s() - began_s;

    double bound_j = harpe_frontier_bound_at(frontier, time_s);
    json_t *result = bench_case_json(&which, problem);
    json_object_set_new(result, "vertices", json_integer((json_int_t)count));
    json_object_set_new(result, "frontier_s", json_real(frontier_s));
    json_object_set_new(result, "lp_s", json_real(lp_s));
    json_object_set_new(result, "lp_rows", json_integer(lp.row_count));
    json_object_set_new(result, "lp_columns", json_integer(lp.column_count));
    json_object_set_new(result, "time_s", json_real(time_s));
    json_object_set_new(result, "relative_difference",
                        json_real(fabs(energy_j - bound_j) / fabs(bound_j)));
    bench_print(result);
    clear(&lp);
    harpe_frontier_free(frontier);
    harpe_problem_free(problem);
    return 0;
}
