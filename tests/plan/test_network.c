/* SPDX-License-Identifier: Apache-2.0 */
/* The event network: whole numbers that never overstate a cost, the merging of events that are
 * fixed to each other, the search for edges from both ends, and the refusal of profiles whose
 * numbers do not fit. */
#include "test.h"

#include <math.h>

#include "plan/solver.h"

#include "instances.h"

enum { ROWS_MAX = 256 };

/* Forward and backward of a stage at two frequencies. Slowing down saves 100 and 50 W. */
static void add_plain_stage(test_rows *r, int stage) {
    add_row(r, stage, "forward", 1400, 0.05, 10);
    add_row(r, stage, "forward", 700, 0.1, 5);
    add_row(r, stage, "backward", 1400, 0.1, 20);
    add_row(r, stage, "backward", 700, 0.2, 15);
}

static harpe_network make_network(const harpe_problem *problem) {
    harpe_network network;
    assert_works(harpe_network_build(problem, &network, &failure));
    return network;
}

static const harpe_network_curve *curve_of_edge(const harpe_network *network, int32_t edge) {
    return &network->curves[network->curve_of[edge]];
}

/* ---- Curves ---------------------------------------------------------------------------------- */

TEST(times_are_picoseconds_and_rates_microwatts) {
    owned_rows r = {0};
    add_plain_stage(&r, 0);
    owned_problem problem = problem_1f1b(&r, 1, 1, 25);
    AT_END(harpe_network_clear) harpe_network network = make_network(problem);
    const harpe_network_curve *forward = curve_of_edge(&network, 0);
    assert_int_equal(forward->segment_count, 1);
    assert_int_equal(forward->time_ps[0], INT64_C(50000000000));
    assert_int_equal(forward->time_ps[1], INT64_C(100000000000));
    assert_int_equal(forward->rate_uw[0], HARPE_FLOW_INFINITE);
    assert_in_range(forward->rate_uw[1], INT64_C(124999999), INT64_C(125000000));
    assert_int_equal(forward->rate_uw[2], 0);
    assert_int_equal(network.iteration_power_uw, INT64_C(25000000));
    assert_true(fabs(network.slowest_energy_j - (5 - 2.5 + 15 - 5)) < 1e-12);
}

/* Returns the energy of point k of a rounded curve. */
static double rebuilt_energy_j(const harpe_network_curve *curve, int32_t k) {
    double energy_j = curve->slowest_energy_j;
    for (int32_t i = curve->segment_count; i > k; i--) {
        energy_j += (double)curve->rate_uw[i] / HARPE_UW_PER_W *
                    ((double)(curve->time_ps[i] - curve->time_ps[i - 1]) / HARPE_PS_PER_S);
    }
    return energy_j;
}

TEST(rounded_curves_are_convex_and_never_above_the_options) {
    srand(7);
    for (int trial = 0; trial < 200; trial++) {
        owned_rows r = {0};
        int points = 1 + rand() % (ROWS_MAX / 2);
        for (int i = 0; i < points; i++) {
            double slowing = 1 + i * 0.02 + 0.01 * rand() / RAND_MAX;
            add_row(&r, 0, "forward", 2000 - i, 0.04 * slowing,
                    (4 + 0.5 * rand() / RAND_MAX) / slowing);
        }
        add_row(&r, 0, "backward", 1000, 0.1, 1);
        owned_problem problem = problem_1f1b(&r, 1, 1, 20);
        AT_END(harpe_network_clear) harpe_network network = make_network(problem);
        const harpe_network_curve *curve = curve_of_edge(&network, 0);
        const harpe_option_list *list = &harpe_problem_choice(problem, 0)->list;
        for (int32_t k = 0; k < curve->segment_count; k++) {
            assert_true(curve->time_ps[k] < curve->time_ps[k + 1]);
            assert_true(curve->rate_uw[k] > curve->rate_uw[k + 1]);
        }
        double fastest_ps = list->options[0].time_s * HARPE_PS_PER_S;
        assert_true((double)curve->time_ps[0] <= fastest_ps * (1 + 1e-15));
        assert_true((double)curve->time_ps[0] > fastest_ps - 1);
        for (size_t p = 0; p < list->curve_count; p++) {
            double rebuilt_j = rebuilt_energy_j(curve, (int32_t)p);
            assert_true(rebuilt_j <= list->curve_effective_energy_j[p] + 1e-12);
            assert_true(rebuilt_j >= list->curve_effective_energy_j[p] - 1e-6);
        }
    }
}

TEST(times_are_rounded_down_but_for_what_doubles_blur) {
    static const double whole_s[] = {0.1, 0.050162, 0.3, 1e-9, 1e6, 123.456789012};
    for (size_t i = 0; i < sizeof whole_s / sizeof whole_s[0]; i++) {
        assert_int_equal(harpe_round_down(whole_s[i] * HARPE_PS_PER_S),
                         llround(whole_s[i] * HARPE_PS_PER_S));
    }
    assert_int_equal(harpe_round_down(0), 0);
    assert_int_equal(harpe_round_down(0.999999), 0);
    assert_int_equal(harpe_round_down(1000.7), 1000);
    assert_int_equal(harpe_round_down(1e12 - 0.125), 999999999999);
}

TEST(options_of_the_same_picosecond_are_the_cheaper_one) {
    owned_rows r = {0};
    add_row(&r, 0, "forward", 1400, 0.05, 10);
    add_row(&r, 0, "forward", 1395, 0.05 + 1e-13, 9);
    add_row(&r, 0, "forward", 700, 0.1, 5);
    add_row(&r, 0, "backward", 1400, 0.1, 20);
    add_row(&r, 0, "backward", 1395, 0.1 + 1e-13, 19);
    owned_problem problem = problem_1f1b(&r, 1, 1, 0);
    assert_int_equal(harpe_problem_choice(problem, 0)->list.option_count, 3);
    AT_END(harpe_network_clear) harpe_network network = make_network(problem);
    const harpe_network_curve *forward = curve_of_edge(&network, 0);
    assert_int_equal(forward->segment_count, 1);
    assert_int_equal(forward->time_ps[0], INT64_C(50000000000));
    assert_int_equal(forward->rate_uw[1], INT64_C(80000000));
    const harpe_network_curve *backward = curve_of_edge(&network, 1);
    assert_int_equal(backward->segment_count, 0);
    assert_true(backward->slowest_energy_j == 19);
}

/* ---- Events ---------------------------------------------------------------------------------- */

TEST(a_chain_has_one_event_between_neighbours) {
    owned_rows r = {0};
    add_plain_stage(&r, 0);
    owned_problem problem = problem_1f1b(&r, 1, 5, 0);
    AT_END(harpe_network_clear) harpe_network network = make_network(problem);
    assert_int_equal(network.instruction_count, 10);
    assert_int_equal(network.edge_count, 10); /* no dependency is left */
    assert_int_equal(network.node_count, 11);
    assert_int_equal(network.tail[0], network.source);
    assert_int_equal(network.head[9], network.sink);
    for (int32_t e = 1; e < 10; e++)
        assert_int_equal(network.tail[e], network.head[e - 1]);
}

/* Returns the longest path from the source, with every instruction at the given end of its curve.
 */
static int64_t longest_path_ps(const harpe_network *network, bool slowest) {
    owned_array int64_t *arrival = calloc((size_t)network->node_count, sizeof *arrival);
    assert_non_null(arrival);
    for (int32_t i = 0; i < network->node_count; i++) {
        int32_t v = network->topological_order[i];
        for (int32_t e = 0; e < network->edge_count; e++) {
            const harpe_network_curve *curve = curve_of_edge(network, e);
            int64_t end = arrival[v] + curve->time_ps[slowest ? curve->segment_count : 0];
            if (network->tail[e] == v && end > arrival[network->head[e]])
                arrival[network->head[e]] = end;
        }
    }
    int64_t length_ps = arrival[network->sink];
    return length_ps;
}

/* Merging must neither lose nor invent a dependency: the longest path stays that of the
 * instructions, which harpe_plan_evaluate computes from the dependency graph. */
TEST(merging_keeps_the_length_of_the_iteration) {
    for (int ranks = 1; ranks <= 5; ranks++) {
        for (int microbatches = 1; microbatches <= 9; microbatches += 2) {
            owned_rows r = {0};
            for (int s = 0; s < ranks; s++) {
                double work = 1 + 0.1 * (s % 3);
                add_row(&r, s, "forward", 1400, 0.05 * work, 10);
                add_row(&r, s, "forward", 700, 0.1, 5);
                add_row(&r, s, "backward", 1400, 0.1 / work, 20);
                add_row(&r, s, "backward", 700, 0.2, 15);
            }
            owned_problem problem = problem_1f1b(&r, ranks, microbatches, 30);
            AT_END(harpe_network_clear) harpe_network network = make_network(problem);
            harpe_plan plan = maximum_of(problem);
            assert_true(fabs((double)longest_path_ps(&network, false) / HARPE_PS_PER_S -
                             plan.time_s) < 1e-9);
            assert_true(network.node_count <= 2 * network.instruction_count);
            assert_true(longest_path_ps(&network, true) > longest_path_ps(&network, false));
        }
    }
}

TEST(every_edge_stands_in_the_lists_of_both_its_ends) {
    owned_rows r = {0};
    for (int s = 0; s < 3; s++)
        add_plain_stage(&r, s);
    owned_problem problem = problem_1f1b(&r, 3, 4, 0);
    AT_END(harpe_network_clear) harpe_network network = make_network(problem);
    owned_array int *seen = calloc((size_t)network.edge_count, sizeof *seen);
    owned_array int32_t *place = calloc((size_t)network.node_count, sizeof *place);
    assert_non_null(seen);
    assert_non_null(place);
    assert_int_equal(network.first_incidence[0], 0);
    assert_int_equal(network.first_incidence[network.node_count], 2 * network.edge_count);
    for (int32_t v = 0; v < network.node_count; v++) {
        place[network.topological_order[v]] = v;
        for (int32_t a = network.first_incidence[v]; a < network.first_incidence[v + 1]; a++) {
            int32_t e = network.incidences[a].edge;
            bool is_tail = network.tail[e] == v;
            assert_true(is_tail || network.head[e] == v);
            assert_int_equal(network.incidences[a].node,
                             is_tail ? network.head[e] : network.tail[e]);
            seen[e] += is_tail ? 1 : 16;
        }
    }
    for (int32_t e = 0; e < network.edge_count; e++) {
        assert_int_equal(seen[e], 17);
        assert_true(place[network.tail[e]] < place[network.head[e]]);
        assert_int_not_equal(network.head[e], network.source);
        assert_int_not_equal(network.tail[e], network.sink);
    }
}

/* ---- Limits ---------------------------------------------------------------------------------- */

static void assert_refused_on(const test_rows *r, int ranks, int microbatches,
                              harpe_status expected, const char *const *parts) {
    owned_problem problem = problem_1f1b(r, ranks, microbatches, 0);
    harpe_network network;
    memset(&network, 0x5a, sizeof network);
    harpe_network before = network;
    for (; *parts; parts++)
        assert_refuses(harpe_network_build(problem, &network, &failure), expected, *parts);
    assert_memory_equal(&network, &before, sizeof network);
}

static void assert_refused(const test_rows *r, int microbatches, harpe_status expected,
                           const char *const *parts) {
    assert_refused_on(r, 1, microbatches, expected, parts);
}

TEST(an_impossible_slope_is_refused_with_its_points) {
    owned_rows r = {0};
    add_row(&r, 0, "forward", 1400, 0.05, 10);
    add_row(&r, 0, "backward", 1400, 1e-9, 1e9);
    add_row(&r, 0, "backward", 700, 3e-9, 5);
    assert_refused(&r, 1, HARPE_INVALID_INPUT,
                   (const char *[]){"stage 0, 'backward'", "0.000000001000 s", "0.000000003000 s",
                                    "1000000000 J", "5 J", "1e+09 W is the limit", NULL});
}

TEST(slopes_that_would_overflow_together_are_refused) {
    owned_rows r = {0};
    add_row(&r, 0, "forward", 1400, 1e-7, 100);
    add_row(&r, 0, "forward", 700, 2e-7, 1);
    add_row(&r, 0, "backward", 1400, 1e-7, 1);
    assert_refused(&r, 1000, HARPE_LIMIT_EXCEEDED,
                   (const char *[]){"W", "seconds", "joules", NULL});
}

TEST(an_endless_iteration_is_refused) {
    owned_rows r = {0};
    add_row(&r, 0, "forward", 1400, 1e5, 100);
    add_row(&r, 0, "backward", 1400, 1e5, 100);
    assert_refused(&r, 6, HARPE_LIMIT_EXCEEDED, (const char *[]){"1200000 s", "seconds", NULL});
}

/* The limit is one of the iteration, not of all instructions together, which may run at the same
 * time: 64 stages with 512 microbatches of 20 s are refused only if one rank runs them all. */
TEST(instructions_together_may_take_longer_than_the_limit) {
    owned_rows r = {0};
    for (int stage = 0; stage < 64; stage++) {
        add_row(&r, stage, "forward", 1400, 10, 200);
        add_row(&r, stage, "forward", 700, 20, 100);
        add_row(&r, stage, "backward", 1400, 20, 100);
    }
    owned_problem problem = problem_1f1b(&r, 64, 512, 60);
    AT_END(harpe_network_clear) harpe_network network = make_network(problem);
    assert_int_equal(network.instruction_count, 2 * 64 * 512);
    harpe_network_clear(&network);
    harpe_problem_free(problem);
    r.count = 3;
    assert_refused(&r, 30000, HARPE_LIMIT_EXCEEDED, (const char *[]){"1200000 s", "seconds", NULL});
    problem = problem_1f1b(&r, 1, 25000, 60);
    network = make_network(problem);
}

/* Iterations of up to the limit on two ranks, so that the instructions together take almost twice
 * the limit, are solved and verified. */
TEST(iterations_as_long_as_the_limit_are_solved) {
    owned_rows r = {0};
    for (int stage = 0; stage < 2; stage++) {
        add_row(&r, stage, "forward", 1400, 1e4, 3e6);
        add_row(&r, stage, "forward", 700, 2e4, 1e6);
        add_row(&r, stage, "backward", 1400, 1e4 * (1 + stage), 4e6);
        add_row(&r, stage, "backward", 1000, 2e4, 2e6);
        add_row(&r, stage, "backward", 700, 2.9e4, 1e6);
    }
    owned_problem problem = problem_1f1b(&r, 2, 19, 60);
    owned_frontier frontier = frontier_of(problem);
    assert_works(harpe_frontier_verify(problem, frontier, 0, &failure));
    assert_refused_on(&r, 2, 20, HARPE_LIMIT_EXCEEDED, (const char *[]){"1029000 s", NULL});
}

/* Numbers just inside the limits are solved and verified like all others. */
TEST(the_largest_numbers_that_are_accepted_are_solved) {
    const double times_s[] = {1e-9, 1e-6, 1.0, 1e4};
    for (size_t i = 0; i < sizeof times_s / sizeof times_s[0]; i++) {
        for (int s = 0; s < 2; s++) {
            double t = times_s[i], drop_j = fmin(9e8 * t, 5e8);
            owned_rows r = {0};
            for (int stage = 0; stage < 2; stage++) {
                add_row(&r, stage, "forward", 1400, t * (1 + stage), drop_j + 1);
                add_row(&r, stage, "forward", 700, t * (2 + stage), 1);
                add_row(&r, stage, "backward", 1400, t * 2, drop_j + 1);
                add_row(&r, stage, "backward", 1000, t * 3, drop_j / 3 + 1);
                add_row(&r, stage, "backward", 700, t * 5, 1);
            }
            owned_problem problem = problem_1f1b(&r, 2, 6, s * 1e5);
            owned_frontier frontier = frontier_of(problem);
            assert_works(harpe_frontier_verify(problem, frontier, 0, &failure));
        }
    }
}

TEST(too_many_instructions_are_refused_with_an_estimate) {
    assert_works(harpe_problem_check_size(1000, 0, &failure));
    assert_refuses(harpe_problem_check_size(20000000, 0, &failure), HARPE_LIMIT_EXCEEDED, "MiB");
    assert_int_equal(harpe_problem_check_size(UINT64_MAX / 700, UINT64_MAX, &failure),
                     HARPE_LIMIT_EXCEEDED);
    assert_int_equal(harpe_problem_check_size(10, 100, &failure), HARPE_LIMIT_EXCEEDED);
}

/* The size of fitted curves depends on the profile and the unit time, not on the schedule. */
TEST(fitted_curves_count_against_the_memory_limit) {
    owned_rows r = {0};
    for (int i = 0; i < 8; i++) {
        add_row(&r, 0, "forward", 1400 - 100 * i, 0.05 + 0.02 * i, 5 + 5.0 / (1 + i));
        add_row(&r, 0, "backward", 1400 - 100 * i, 0.05 + 0.02 * i, 5 + 5.0 / (1 + i));
    }
    owned_profile profile = NULL;
    owned_schedule schedule = NULL;
    owned_problem problem = NULL;
    harpe_schedule_options shape = {.ranks = 1, .microbatches = 1};
    assert_works(harpe_profile_new(r.rows, r.count, &profile, &failure));
    assert_works(harpe_schedule_new(&shape, &schedule, &failure));
    harpe_problem_options options = {
        .cost_model = HARPE_COST_EXPONENTIAL, .unit_time_s = 1e-5, .memory_limit_bytes = 100000};
    assert_refuses(harpe_problem_new(profile, schedule, &options, &problem, &failure),
                   HARPE_LIMIT_EXCEEDED, "longer unit time");
    assert_null(problem);
    options.unit_time_s = 1e-3;
    assert_works(harpe_problem_new(profile, schedule, &options, &problem, &failure));
}
