/* SPDX-License-Identifier: Apache-2.0 */
/* Selectors on small synthetic measurements: the chosen limit, the choice between equal limits, and
 * refused input. */
#include "test.h"

#include <math.h>

#include <harpe/power_limit.h>

static const harpe_power_limit_measurement measured[] = {
    {300, 3000, 10}, {200, 2000, 11}, {100, 1900, 20}};
static const harpe_power_limit_measurement tied[] = {{300, 50, 10}, {200, 50, 10}, {100, 50, 10}};

static int ask(harpe_power_limit_selector selector, const harpe_power_limit_measurement *some) {
    int choice = selector.select(selector.user, some, 3);
    assert_in_range(choice, 0, 2);
    return some[choice].power_limit_w;
}

static harpe_power_limit_selector cost(harpe_selector_parameters *parameters, double eta,
                                       int world_size) {
    harpe_power_limit_selector selector = {0};
    parameters->eta = eta;
    parameters->world_size = world_size;
    assert_works(harpe_selector_zeus_cost(parameters, &selector, &failure));
    return selector;
}

static harpe_power_limit_selector slowdown(harpe_selector_parameters *parameters, double factor) {
    harpe_power_limit_selector selector = {0};
    parameters->maximum_slowdown = factor;
    assert_works(harpe_selector_max_slowdown(parameters, &selector, &failure));
    return selector;
}

TEST(energy_and_time_choose_their_least) {
    assert_int_equal(ask(harpe_selector_energy(), measured), 100);
    assert_int_equal(ask(harpe_selector_time(), measured), 300);
}

TEST(eta_moves_the_cost_from_time_to_energy) {
    harpe_selector_parameters parameters = {0};
    assert_int_equal(ask(cost(&parameters, 0, 1), measured), 300);
    assert_int_equal(ask(cost(&parameters, 0.5, 1), measured), 200);
    assert_int_equal(ask(cost(&parameters, 1, 1), measured), 100);
    /* With ten GPUs, a second costs ten times as much. */
    assert_int_equal(ask(cost(&parameters, 0.5, 10), measured), 300);
}

TEST(the_cost_is_energy_and_the_highest_power_for_the_time) {
    harpe_selector_parameters parameters = {.eta = 0.25, .world_size = 2};
    harpe_power_limit_measurement one = {.power_limit_w = 200, .energy_j = 1000, .time_s = 10};
    assert_true(harpe_zeus_cost_j(&parameters, 300, &one) == 0.25 * 1000 + 0.75 * 600 * 10);
}

TEST(slowdown_is_measured_against_the_highest_limit) {
    harpe_selector_parameters parameters = {0};
    assert_int_equal(ask(slowdown(&parameters, 1.0), measured), 300);
    assert_int_equal(ask(slowdown(&parameters, 1.1), measured), 200);
    assert_int_equal(ask(slowdown(&parameters, 1.99), measured), 200);
    assert_int_equal(ask(slowdown(&parameters, 2.0), measured), 100);
}

TEST(ties_go_to_the_higher_limit) {
    harpe_selector_parameters parameters = {0};
    assert_int_equal(ask(harpe_selector_energy(), tied), 300);
    assert_int_equal(ask(harpe_selector_time(), tied), 300);
    assert_int_equal(ask(cost(&parameters, 0.5, 1), tied), 300);
}

TEST(nothing_measured_has_no_answer) {
    harpe_selector_parameters parameters = {0};
    harpe_power_limit_selector all[] = {harpe_selector_energy(), harpe_selector_time(),
                                        cost(&parameters, 0.5, 1), slowdown(&parameters, 1)};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        assert_true(all[i].select(all[i].user, NULL, 0) < 0);
}

TEST(bad_parameters_are_refused) {
    const double bad_eta[] = {-0.01, 1.01, (double)NAN, (double)INFINITY};
    const double bad_factor[] = {0.99, 0, -1, (double)NAN, (double)INFINITY};
    harpe_power_limit_selector selector = {0};
    for (size_t i = 0; i < sizeof bad_eta / sizeof bad_eta[0]; i++) {
        harpe_selector_parameters parameters = {.eta = bad_eta[i], .world_size = 1};
        assert_int_equal(harpe_selector_zeus_cost(&parameters, &selector, &failure),
                         HARPE_INVALID_ARGUMENT);
    }
    for (size_t i = 0; i < sizeof bad_factor / sizeof bad_factor[0]; i++) {
        harpe_selector_parameters parameters = {.maximum_slowdown = bad_factor[i]};
        assert_int_equal(harpe_selector_max_slowdown(&parameters, &selector, &failure),
                         HARPE_INVALID_ARGUMENT);
    }
    harpe_selector_parameters no_gpu = {.eta = 0.5};
    assert_int_equal(harpe_selector_zeus_cost(&no_gpu, &selector, &failure),
                     HARPE_INVALID_ARGUMENT);
    assert_int_equal(harpe_selector_zeus_cost(NULL, &selector, NULL), HARPE_INVALID_ARGUMENT);
    assert_int_equal(harpe_selector_max_slowdown(NULL, &selector, NULL), HARPE_INVALID_ARGUMENT);
    assert_null(selector.select);
}
