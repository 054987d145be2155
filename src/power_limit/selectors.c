/* SPDX-License-Identifier: Apache-2.0 */
/* The built-in selectors, which choose the measured power limit that suits the user best. They only
 * compare numbers and use no device. */
#include <math.h>

#include <harpe/power_limit.h>

#include "base/error.h"

/* Returns the index of the least value. If several values are least, returns the first, which has
 * the highest limit. */
static int least(const harpe_power_limit_measurement *measurements, size_t count,
                 double (*value)(const void *user, const harpe_power_limit_measurement *one),
                 const void *user) {
    int best = -1;
    double best_value = INFINITY;
    for (size_t i = 0; i < count; i++) {
        double candidate = value(user, &measurements[i]);
        if (candidate < best_value) {
            best = (int)i;
            best_value = candidate;
        }
    }
    return best;
}

static size_t highest_limit(const harpe_power_limit_measurement *measurements, size_t count) {
    size_t highest = 0;
    for (size_t i = 1; i < count; i++)
        if (measurements[i].power_limit_w > measurements[highest].power_limit_w) highest = i;
    return highest;
}

/* ---- Energy, time ---------------------------------------------------------------------------- */

static double energy_of(const void *user, const harpe_power_limit_measurement *one) {
    (void)user;
    return one->energy_j;
}

static double time_of(const void *user, const harpe_power_limit_measurement *one) {
    (void)user;
    return one->time_s;
}

static int select_energy(void *user, const harpe_power_limit_measurement *measurements,
                         size_t count) {
    return least(measurements, count, energy_of, user);
}

static int select_time(void *user, const harpe_power_limit_measurement *measurements,
                       size_t count) {
    return least(measurements, count, time_of, user);
}

harpe_power_limit_selector harpe_selector_energy(void) {
    return (harpe_power_limit_selector){.select = select_energy};
}

harpe_power_limit_selector harpe_selector_time(void) {
    return (harpe_power_limit_selector){.select = select_time};
}

/* ---- The cost of energy and time (Zeus, NSDI 2023, equation 2) ------------------------------- */

/* Returns the cost. The job's highest power makes seconds comparable with joules. */
double harpe_zeus_cost_j(const harpe_selector_parameters *parameters, int highest_w,
                         const harpe_power_limit_measurement *one) {
    double eta = parameters->eta;
    double maximum_power_w = (double)highest_w * parameters->world_size;
    return eta * one->energy_j + (1 - eta) * maximum_power_w * one->time_s;
}

typedef struct cost_terms {
    const harpe_selector_parameters *parameters;
    int highest_w;
} cost_terms;

static double cost_of(const void *user, const harpe_power_limit_measurement *one) {
    const cost_terms *terms = user;
    return harpe_zeus_cost_j(terms->parameters, terms->highest_w, one);
}

static int select_cost(void *user, const harpe_power_limit_measurement *measurements,
                       size_t count) {
    const harpe_selector_parameters *parameters = user;
    if (count == 0) return -1;
    int highest_w = measurements[highest_limit(measurements, count)].power_limit_w;
    cost_terms terms = {parameters, highest_w};
    return least(measurements, count, cost_of, &terms);
}

harpe_status harpe_selector_zeus_cost(harpe_selector_parameters *parameters,
                                      harpe_power_limit_selector *out, harpe_error *error) {
    if (!parameters || !out)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "zeus-cost: parameters are missing");
    if (!(parameters->eta >= 0 && parameters->eta <= 1)) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "zeus-cost: eta must be from 0 (time) to 1 (energy), not %g",
                          parameters->eta);
    }
    if (parameters->world_size < 1) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "zeus-cost: world_size is the number of GPUs in the job, at least 1, not "
                          "%d",
                          parameters->world_size);
    }
    *out = (harpe_power_limit_selector){.select = select_cost, .user = parameters};
    return HARPE_OK;
}

/* ---- The lowest limit that is not too slow --------------------------------------------------- */

static int select_slowdown(void *user, const harpe_power_limit_measurement *measurements,
                           size_t count) {
    const harpe_selector_parameters *parameters = user;
    if (count == 0) return -1;
    size_t best = highest_limit(measurements, count);
    double allowed_s = parameters->maximum_slowdown * measurements[best].time_s;
    for (size_t i = 0; i < count; i++)
        if (measurements[i].time_s <= allowed_s &&
            measurements[i].power_limit_w < measurements[best].power_limit_w)
            best = i;
    return (int)best;
}

harpe_status harpe_selector_max_slowdown(harpe_selector_parameters *parameters,
                                         harpe_power_limit_selector *out, harpe_error *error) {
    if (!parameters || !out)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "max-slowdown: parameters are missing");
    if (!(parameters->maximum_slowdown >= 1) || isinf(parameters->maximum_slowdown)) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "max-slowdown: the factor must be a number of at least 1, not %g",
                          parameters->maximum_slowdown);
    }
    *out = (harpe_power_limit_selector){.select = select_slowdown, .user = parameters};
    return HARPE_OK;
}
