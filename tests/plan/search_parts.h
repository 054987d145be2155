/* SPDX-License-Identifier: Apache-2.0 */
/* Common parts of the tests of the search: problems of all kinds with their networks, longest paths
 * by iterated relaxation, and the enumeration of all plans of a small problem. Nothing here uses
 * the code under test. */
#ifndef HARPE_TESTS_PLAN_SEARCH_PARTS_H
#define HARPE_TESTS_PLAN_SEARCH_PARTS_H

#include <harpe/graph.h>

#include "instances.h"
#include "plan/search_internal.h"
#include "plan/solver.h"

/* ---- Problems -------------------------------------------------------------------------------- */

/* Writes the waits of activity i: for the one before it on its resource, and for some others. */
static inline size_t add_waits(harpe_graph_wait *waits, char (*names)[16], int i, int before,
                               test_random *random) {
    size_t count = 0;
    for (int k = 0; k < i; k++) {
        if (k != before && random_int(random, 0, i) > 1) continue;
        double lag_s = random_int(random, 0, 3) == 0 ? random_between(random, 0, 0.2) : 0;
        waits[count++] = (harpe_graph_wait){names[k], lag_s};
    }
    return count;
}

/* Creates the problem of a random graph of at most 16 activities: fixed times, lags, releases,
 * resources and activities without a resource. */
static inline harpe_problem *random_graph_problem(test_random *random, int activities,
                                                  int most_options) {
    enum { MOST = 16, OPTIONS = 8 };
    static const char *const resource_names[] = {"a", "b"};
    harpe_graph_resource resources[2];
    harpe_graph_activity all[MOST];
    harpe_graph_option options[MOST][OPTIONS];
    harpe_graph_wait waits[MOST][MOST];
    char names[MOST][16];
    int last[2] = {-1, -1};
    for (int r = 0; r < 2; r++)
        resources[r] = (harpe_graph_resource){resource_names[r], 75.0 * random_int(random, 0, 2)};
    for (int i = 0; i < activities; i++) {
        (void)snprintf(names[i], sizeof names[i], "n%d", i);
        int r = random_int(random, -1, 1);
        harpe_graph_activity *a = &all[i];
        *a = (harpe_graph_activity){.name = names[i], .waits = waits[i]};
        a->wait_count = add_waits(waits[i], names, i, r >= 0 ? last[r] : -1, random);
        if (random_int(random, 0, 5) == 0) a->release_s = random_between(random, 0, 1);
        if (r >= 0) {
            a->resource = resource_names[r];
            last[r] = i;
        }
        if (i > 0 && random_int(random, 0, 5) == 0) {
            a->time_s = random_between(random, 0, 0.3);
            continue;
        }
        double base_s = random_between(random, 0.05, 1), base_w = random_between(random, 50, 300);
        a->options = options[i];
        a->option_count = (size_t)random_int(random, 1, most_options);
        for (size_t k = 0; k < a->option_count; k++) {
            double stretch = random_between(random, 1, 2);
            options[i][k] = (harpe_graph_option){
                .time_s = base_s * stretch,
                .energy_j = base_w * base_s * random_between(random, 0.7, 1.3) / stretch};
        }
    }
    owned_graph graph = NULL;
    harpe_problem *problem = NULL;
    assert_works(harpe_graph_new(resources, 2, all, (size_t)activities, &graph, &failure));
    assert_works(harpe_problem_of_graph(graph, NULL, &problem, &failure));
    return problem;
}

/* Creates a pipeline under the k-th schedule, or a graph, in turn. */
static inline harpe_problem *any_problem(test_random *random, int trial, int most_ranks,
                                         int most_microbatches) {
    int schedules = 0;
    while (harpe_schedule_name_at(schedules))
        schedules++;
    if (trial % (schedules + 2) >= schedules)
        return random_graph_problem(random, random_int(random, 1, 16), 6);
    harpe_schedule_options options =
        shape_for(harpe_schedule_name_at(trial % (schedules + 2)),
                  random_int(random, 1, most_ranks), random_int(random, 1, most_microbatches));
    return random_problem(&options, random);
}

/* ---- Parts ----------------------------------------------------------------------------------- */

/* A problem with what the search needs: a walk, which has the network, and the curves. */
typedef struct parts {
    harpe_problem *problem;
    harpe_frontier *frontier;
    harpe_walk walk;
    harpe_relaxation_curves curves;
} parts;

/* Takes over the problem. The parts must stay in their place. */
static inline void parts_init(parts *p, harpe_problem *problem) {
    *p = (parts){.problem = problem};
    assert_works(harpe_frontier_new(problem, NULL, &p->frontier, &failure));
    assert_works(harpe_walk_begin(&p->walk, problem, NULL, &failure));
    assert_works(harpe_relaxation_curves_init(&p->curves, problem, &p->walk.network, &failure));
}

static inline void parts_clear(parts *p) {
    harpe_relaxation_curves_clear(&p->curves);
    harpe_walk_clear(&p->walk);
    harpe_frontier_free(p->frontier);
    harpe_problem_free(p->problem);
}
#define owned_parts AT_END(parts_clear) parts

static inline void parts_walk_to(parts *p, int64_t time_ps) {
    assert_works(harpe_walk_to(&p->walk, time_ps, &failure));
}

/* Returns a time between T_min and T*; share 0 is T_min. */
static inline int64_t time_at(const parts *p, double share) {
    size_t count = 0;
    const harpe_frontier_vertex *v = harpe_frontier_vertices(p->frontier, &count);
    int64_t fastest = harpe_round_down(v[0].time_s * HARPE_PS_PER_S);
    return fastest + (int64_t)(share * (double)(p->walk.minimum_energy_ps - fastest));
}

/* ---- Plans ----------------------------------------------------------------------------------- */

static inline const harpe_option_list *list_at(const harpe_problem *problem, int32_t i) {
    return &harpe_problem_choice(problem, i)->list;
}

/* Returns the longest path if instruction i takes time_ps[i]. */
static inline int64_t longest_ps(const harpe_problem *problem, const int64_t *time_ps) {
    const harpe_dag *dag = &problem->dag;
    int64_t end_ps[4096], longest = 0;
    for (int32_t i = 0; i < dag->node_count; i++)
        end_ps[i] = time_ps[i];
    for (bool changed = true; changed;) {
        changed = false;
        for (int32_t i = 0; i < dag->node_count; i++) {
            for (int32_t a = dag->first_arc_into[i]; a < dag->first_arc_into[i + 1]; a++) {
                int64_t end = end_ps[dag->arc_from[a]] + time_ps[i];
                if (end <= end_ps[i]) continue;
                end_ps[i] = end;
                changed = true;
            }
        }
    }
    for (int32_t i = 0; i < dag->node_count; i++)
        longest = end_ps[i] > longest ? end_ps[i] : longest;
    return longest;
}

static inline int64_t plan_ps(const parts *p, const int32_t *option) {
    int64_t time_ps[4096];
    for (int32_t i = 0; i < p->problem->instruction_count; i++)
        time_ps[i] =
            harpe_round_down(list_at(p->problem, i)->options[option[i]].time_s * HARPE_PS_PER_S);
    return longest_ps(p->problem, time_ps);
}

static inline double plan_j(const parts *p, const int32_t *option) {
    double sum_j = 0;
    for (int32_t i = 0; i < p->problem->instruction_count; i++)
        sum_j += list_at(p->problem, i)->options[option[i]].effective_energy_j;
    return sum_j;
}

/* Returns a measure of the energies of a problem, for tolerances. */
static inline double scale_j(const parts *p) {
    double sum_j = 1e-12;
    for (int32_t i = 0; i < p->problem->instruction_count; i++)
        sum_j += fabs(list_at(p->problem, i)->options[0].effective_energy_j);
    return sum_j;
}

/* Returns the number of all plans, at most `most` + 1. */
static inline double plan_count(const harpe_problem *problem, double most) {
    double count = 1;
    for (int32_t i = 0; i < problem->instruction_count && count <= most; i++)
        count *= (double)list_at(problem, i)->option_count;
    return fmin(count, most + 1);
}

/* Returns the least effective energy of all plans that take at most `deadline_ps`. */
static inline double least_energy_j(const parts *p, int64_t deadline_ps) {
    int32_t option[64] = {0}, count = p->problem->instruction_count, i = 0;
    double least_j = INFINITY;
    while (i < count) {
        double energy_j = plan_j(p, option);
        if (energy_j < least_j && plan_ps(p, option) <= deadline_ps) least_j = energy_j;
        for (i = 0; i < count; i++) { /* the next plan */
            if (++option[i] < (int32_t)list_at(p->problem, i)->option_count) break;
            option[i] = 0;
        }
    }
    return least_j;
}

#endif
