/* SPDX-License-Identifier: Apache-2.0 */
/* The checker can fail: correct frontiers and plans pass, and every falsification of a plan's
 * number, a vertex, the solver's flow, an event or its cut is detected and reported. */
#include "test.h"

/* Tests the internal functions that check a walk, because no public call can falsify one. */
#include "plan/verify.c"

#include "instances.h"

static harpe_problem *usual_problem(uint64_t seed, double blocking_w) {
    return problem_of_shape(&(harpe_schedule_options){.ranks = 3, .microbatches = 4},
                            &(test_profile_shape){.character = CHARACTER_MEASURED,
                                                  .fewest_options = 5,
                                                  .most_options = 8},
                            &(test_random){seed}, blocking_w);
}

typedef struct fixture {
    harpe_problem *problem;
    harpe_frontier *frontier;
    harpe_plan_set *plans;
} fixture;

static int set_up(void **state) {
    static fixture f;
    f = (fixture){.problem = usual_problem(1, 70)};
    harpe_plan_request request = {.count = 6};
    *state = &f;
    return harpe_plan_set_new(f.problem, &request, NULL, &f.frontier, &f.plans, NULL) != HARPE_OK;
}

static int tear_down(void **state) {
    fixture *f = *state;
    harpe_plan_set_free(f->plans);
    harpe_frontier_free(f->frontier);
    harpe_problem_free(f->problem);
    return 0;
}

static void assert_told(harpe_status status, const harpe_error *error, const char *expected) {
    if (status != HARPE_INTERNAL)
        fail_msg("'%s' was expected, not %s", expected, harpe_status_name(status));
    assert_int_equal(error->status, HARPE_INTERNAL);
    assert_says(error, expected);
}

/* ---- Honest ones ----------------------------------------------------------------------------- */

#define WITH_FIXTURE(name) TEST_ON(name, fixture *f, set_up, tear_down)

WITH_FIXTURE(honest_frontiers_pass_at_any_number_of_samples) {
    static const size_t samples[] = {0, 1, 2, 3, 10, 100000};
    for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++)
        assert_works(harpe_frontier_verify(f->problem, f->frontier, samples[i], &failure));
}

/* A fitted curve may be above a measured point. Its frontier is then no bound for that plan, and
 * the plan is still correct. */
TEST(plans_below_a_fitted_curve_pass) {
    owned_rows rows = {0};
    for (int i = 0; i < 12; i++) {
        double time_s = 0.050 + 0.002 * i;
        double noise = i == 6 ? 0.9 : 1.0;
        add_row(&rows, 0, "forward", 1400 - 15 * i, time_s, noise * (10 + 5 * exp(-0.2 * i)));
        add_row(&rows, 0, "backward", 1400 - 15 * i, time_s, noise * (10 + 5 * exp(-0.2 * i)));
    }
    owned_schedule schedule = schedule_1f1b(1, 1);
    owned_profile profile = profile_of(&rows);
    owned_problem problem = problem_of(
        profile, schedule, &(harpe_problem_options){.cost_model = HARPE_COST_EXPONENTIAL});
    assert_true(problem->choices[0].is_fitted);
    double time_s = 2 * 0.062;
    harpe_plan_request request = {.choice = HARPE_PLANS_AT, .times_s = &time_s, .time_count = 1};
    owned_frontier frontier = NULL;
    owned_plan_set plans = plan_set_of(problem, &request, &frontier);
    const harpe_plan *plan = harpe_plan_set_at(plans, 0);
    assert_true(plan->energy_j < plan->lower_bound_j);
    assert_works(harpe_plan_verify(problem, frontier, plan, &failure));
    assert_works(harpe_frontier_verify(problem, frontier, 0, &failure));
}

/* ---- False plans ----------------------------------------------------------------------------- */

static void assert_plan_told(const fixture *f, const harpe_plan *plan, const char *expected) {
    assert_told(harpe_plan_verify(f->problem, f->frontier, plan, &failure), &failure, expected);
    assert_int_equal(harpe_plan_verify(f->problem, f->frontier, plan, NULL), HARPE_INTERNAL);
}

WITH_FIXTURE(false_numbers_of_a_plan_are_found) {
    static const double factors[] = {1 + 1e-6, 1 - 1e-6, 0, -1, 2, INFINITY, NAN};
    for (size_t i = 0; i < harpe_plan_set_count(f->plans); i++) {
        const harpe_plan *honest = harpe_plan_set_at(f->plans, i);
        for (size_t k = 0; k < sizeof factors / sizeof factors[0]; k++) {
            for (int number = 0; number < 6; number++) {
                harpe_plan plan = *honest;
                double *const numbers[] = {&plan.time_s,           &plan.energy_j,
                                           &plan.compute_energy_j, &plan.blocking_energy_j,
                                           &plan.lower_bound_j,    &plan.average_power_w};
                *numbers[number] *= factors[k];
                assert_plan_told(f, &plan, "recomputed");
            }
        }
    }
}

WITH_FIXTURE(false_frequencies_of_a_plan_are_found) {
    harpe_plan plan = *harpe_plan_set_at(f->plans, 1);
    size_t count = harpe_problem_instruction_count(f->problem);
    owned_array int *frequency_mhz = calloc(count, sizeof *frequency_mhz);
    memcpy(frequency_mhz, plan.frequency_mhz, count * sizeof *frequency_mhz);
    plan.frequency_mhz = frequency_mhz;
    frequency_mhz[5] = 7;
    assert_plan_told(f, &plan, "instruction 5 runs at 7 MHz, which was never measured");
    const harpe_choice *choice = harpe_problem_choice(f->problem, 5);
    bool is_first =
        choice->points[0].frequency_mhz == harpe_plan_set_at(f->plans, 1)->frequency_mhz[5];
    frequency_mhz[5] = choice->points[is_first ? 1 : 0].frequency_mhz;
    assert_plan_told(f, &plan, "recomputed");
}

/* A plan with true numbers that a falsified frontier calls impossible. */
WITH_FIXTURE(plans_below_their_bound_are_found) {
    harpe_frontier raised = *f->frontier;
    raised.vertices = calloc(raised.count, sizeof *raised.vertices);
    for (size_t i = 0; i < raised.count; i++) {
        raised.vertices[i] = f->frontier->vertices[i];
        raised.vertices[i].lower_bound_j *= 1.1;
    }
    harpe_plan plan = *harpe_plan_set_at(f->plans, 2);
    plan.lower_bound_j = harpe_frontier_bound_at(&raised, plan.time_s);
    assert_told(harpe_plan_verify(f->problem, &raised, &plan, &failure), &failure,
                "less than its lower bound");
    /* And a plan that is faster than the frontier permits. */
    for (size_t i = 0; i < raised.count; i++)
        raised.vertices[i].time_s *= 2;
    plan.lower_bound_j = harpe_frontier_bound_at(&raised, plan.time_s);
    assert_true(isinf(plan.lower_bound_j));
    assert_told(harpe_plan_verify(f->problem, &raised, &plan, &failure), &failure, "bound");
    free(raised.vertices);
}

/* ---- False frontiers ------------------------------------------------------------------------- */

/* Passes `falsify` a copy of the frontier with room for one more vertex. */
static void assert_frontier_told(const fixture *f, void (*falsify)(harpe_frontier *),
                                 const char *expected) {
    harpe_frontier copy = *f->frontier;
    copy.vertices = calloc(copy.count + 1, sizeof *copy.vertices);
    memcpy(copy.vertices, f->frontier->vertices, copy.count * sizeof *copy.vertices);
    falsify(&copy);
    assert_told(harpe_frontier_verify(f->problem, &copy, 0, &failure), &failure, expected);
    free(copy.vertices);
}

static void raise_one(harpe_frontier *f) { f->vertices[f->count / 2].lower_bound_j *= 1 + 1e-6; }
static void lower_one(harpe_frontier *f) { f->vertices[f->count / 2].lower_bound_j *= 1 - 1e-6; }
static void swap_two(harpe_frontier *f) {
    harpe_frontier_vertex first = f->vertices[3];
    f->vertices[3] = f->vertices[4];
    f->vertices[4] = first;
}
static void repeat_one(harpe_frontier *f) { f->vertices[4] = f->vertices[3]; }
static void raise_all(harpe_frontier *f) {
    for (size_t i = 0; i < f->count; i++)
        f->vertices[i].lower_bound_j += 0.01;
}
static void shift_all(harpe_frontier *f) {
    for (size_t i = 0; i < f->count; i++)
        f->vertices[i].time_s += 1e-4;
}
static void forget_fastest(harpe_frontier *f) {
    f->count--;
    memmove(f->vertices, f->vertices + 1, f->count * sizeof *f->vertices);
}
static void forget_slowest(harpe_frontier *f) { f->count--; }
static void forget_one(harpe_frontier *f) {
    f->count--;
    memmove(f->vertices + 5, f->vertices + 6, (f->count - 5) * sizeof *f->vertices);
}
static void add_faster(harpe_frontier *f) {
    memmove(f->vertices + 1, f->vertices, f->count * sizeof *f->vertices);
    f->count++;
    f->vertices[0].time_s -= 1e-3;
    f->vertices[0].lower_bound_j += 100;
}
static void add_slower(harpe_frontier *f) {
    f->vertices[f->count] = f->vertices[f->count - 1];
    f->vertices[f->count].time_s += 1e-3;
    f->vertices[f->count].lower_bound_j -= 1e-6;
    f->count++;
}
static void change_price(harpe_frontier *f) {
    f->vertices[5].marginal_w = (f->vertices[4].marginal_w + f->vertices[5].marginal_w) / 2;
}
static void negate_prices(harpe_frontier *f) {
    for (size_t i = 0; i < f->count; i++)
        f->vertices[i].marginal_w *= -1;
}
static void lose_a_number(harpe_frontier *f) { f->vertices[4].lower_bound_j = NAN; }
static void lose_a_time(harpe_frontier *f) { f->vertices[4].time_s = NAN; }
static void lose_a_price(harpe_frontier *f) { f->vertices[4].marginal_w = NAN; }

WITH_FIXTURE(false_frontiers_are_found) {
    assert_true(f->frontier->count > 10);
    assert_frontier_told(f, raise_one, "the frontier");
    assert_frontier_told(f, lower_one, "the frontier");
    assert_frontier_told(f, swap_two, "the frontier");
    assert_frontier_told(f, repeat_one, "not decreasing and convex at vertex 4");
    assert_frontier_told(f, raise_all, "the frontier says");
    assert_frontier_told(f, shift_all, "the frontier");
    assert_frontier_told(f, forget_fastest, "the frontier");
    assert_frontier_told(f, forget_slowest, "the frontier");
    assert_frontier_told(f, forget_one, "the frontier");
    assert_frontier_told(f, add_faster, "the frontier");
    assert_frontier_told(f, add_slower, "the frontier");
    assert_frontier_told(f, change_price, "the frontier");
    assert_frontier_told(f, negate_prices, "the frontier");
    assert_frontier_told(f, lose_a_number, "the frontier");
    assert_frontier_told(f, lose_a_time, "the frontier");
    assert_frontier_told(f, lose_a_price, "the frontier");
}

WITH_FIXTURE(frontiers_of_other_problems_are_found) {
    harpe_problem *others[] = {usual_problem(1, 70.01), usual_problem(1, 0), usual_problem(2, 70)};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        assert_told(harpe_frontier_verify(others[i], f->frontier, 4, &failure), &failure,
                    "the frontier");
        harpe_problem_free(others[i]);
    }
}

WITH_FIXTURE(empty_frontiers_are_found) {
    harpe_frontier empty = {0};
    assert_told(harpe_frontier_verify(f->problem, &empty, 0, &failure), &failure, "the frontier");
}

/* ---- False walks: the solver's own claims ---------------------------------------------------- */

typedef struct falsified {
    harpe_walk walk;
    claim claim;
} falsified;

/* Returns a walk that is in the middle, inside a segment. */
static void start_walk(falsified *w, const fixture *f) {
    assert_works(harpe_walk_begin(&w->walk, f->problem, NULL, &failure));
    int64_t middle_ps = (w->walk.minimum_energy_ps + w->walk.fastest_ps) / 2;
    assert_works(harpe_walk_to(&w->walk, middle_ps, &failure));
    assert_true(w->walk.in_segment);
    size_t nodes = (size_t)w->walk.network.node_count;
    w->claim = (claim){.walk = &w->walk,
                       .network = &w->walk.network,
                       .event_ps = calloc(nodes, sizeof(int64_t)),
                       .balance = calloc(nodes, sizeof(int64_t)),
                       .rounding_j = total_rounding_j(f->problem)};
    assert_works(check_point(&w->claim, f->frontier, &failure));
}

static void end_walk(falsified *w) {
    free(w->claim.event_ps);
    free(w->claim.balance);
    harpe_walk_clear(&w->walk);
}

static void assert_walk_told(falsified *w, const fixture *f, const char *expected) {
    assert_told(check_point(&w->claim, f->frontier, &failure), &failure, expected);
}

WITH_FIXTURE(false_flow_is_found) {
    AT_END(end_walk) falsified w;
    start_walk(&w, f);
    for (int32_t e = 0; e < w.walk.network.edge_count; e++) {
        int64_t *flow = &w.walk.solver.edges[e].flow, honest = *flow;
        *flow = honest + 1;
        assert_walk_told(&w, f, "flow is not conserved at event");
        *flow = -1;
        assert_walk_told(&w, f, "carries negative flow");
        *flow = honest;
    }
    w.walk.solver.flow_uw++;
    assert_walk_told(&w, f, "flow is not conserved at event");
}

WITH_FIXTURE(false_events_are_found) {
    AT_END(end_walk) falsified w;
    start_walk(&w, f);
    int found = 0;
    for (int32_t v = 0; v < w.walk.network.node_count; v++) {
        int64_t *position = &w.walk.solver.position[v], honest = *position;
        for (int64_t shift_s = -1; shift_s <= 1; shift_s += 2) {
            /* An event with no flow through it may have room, but not for 10 s. */
            *position = honest + shift_s * (int64_t)(10 * HARPE_PS_PER_S);
            bool is_end = v == w.walk.network.source || v == w.walk.network.sink;
            assert_refuses(check_point(&w.claim, f->frontier, &failure), HARPE_INTERNAL,
                           is_end ? "source and sink lie" : "it must last");
            found++;
        }
        *position = honest;
    }
    assert_int_equal(found, 2 * w.walk.network.node_count);
}

/* By as little as a picosecond, if flow fixes the event. */
WITH_FIXTURE(smallest_shifts_of_critical_events_are_found) {
    AT_END(end_walk) falsified w;
    start_walk(&w, f);
    int found = 0;
    for (int32_t v = 0; v < w.walk.network.node_count; v++) {
        w.walk.solver.position[v]++;
        found += check_point(&w.claim, f->frontier, NULL) == HARPE_INTERNAL;
        w.walk.solver.position[v]--;
    }
    assert_true(found > w.walk.network.node_count / 4);
}

WITH_FIXTURE(false_time_is_found) {
    AT_END(end_walk) falsified w;
    start_walk(&w, f);
    w.walk.solver.time_ps++;
    assert_walk_told(&w, f, "source and sink lie");
}

WITH_FIXTURE(false_cuts_are_found) {
    AT_END(end_walk) falsified w;
    start_walk(&w, f);
    harpe_frontier_solver *solver = &w.walk.solver;
    int32_t source = w.walk.network.source, sink = w.walk.network.sink;
    /* Tests check_cut alone. Moving sides would also move the events, which check_durations would
     * detect. */
    uint8_t early = solver->group[source], late = solver->group[sink];
    solver->group[source] = late;
    assert_told(check_cut(&w.claim, &failure), &failure, "does not part source and sink");
    solver->group[source] = solver->group[sink] = early;
    assert_told(check_cut(&w.claim, &failure), &failure, "does not part source and sink");
    solver->group[sink] = late;
    solver->flow_uw++;
    assert_told(check_cut(&w.claim, &failure), &failure, "cross the cut");
}

/* The flow is conserved and in the right places, but does not match the costs of the durations: one
 * instruction's curve is not the one that was solved. */
WITH_FIXTURE(false_costs_are_found) {
    AT_END(end_walk) falsified w;
    start_walk(&w, f);
    harpe_choice *choice = &f->problem->choices[0];
    double *energies = (double *)(uintptr_t)choice->list.curve_effective_energy_j;
    for (size_t k = 0; k < choice->list.curve_count; k++)
        energies[k] += 0.01;
    assert_walk_told(&w, f, "the frontier says");
    for (size_t k = 0; k < choice->list.curve_count; k++)
        energies[k] -= 0.01;
}
