/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the plans from a job's frontier. A plan of the frontier has the time and energy of the
 * pipeline. The time and energy outside of it ("wish_outside") are added, as the scheduler adds
 * them when it compares a plan with a cap. */
#include "server/fleet/frontier_read.h"

#include <jansson.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"

static double number_at(const json_t *object, const char *name, size_t index) {
    return json_number_value(json_array_get(json_object_get(object, name), index));
}

static harpe_status read_plans(const json_t *frontier, harpe_frontier_plans *out,
                               harpe_error *error) {
    const json_t *list = json_object_get(frontier, "plans");
    size_t count = json_array_size(list);
    double outside_s = number_at(frontier, "wish_outside", 0);
    double outside_j = number_at(frontier, "wish_outside", 1);
    if (count == 0) return HARPE_OK;
    if (count > HARPE_FLEET_PLANS_MAX)
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED, "its frontier has more than %d plans",
                          HARPE_FLEET_PLANS_MAX);
    out->plans = harpe_calloc(count, sizeof *out->plans);
    if (!out->plans) return harpe_fail_memory(error);
    for (size_t i = 0; i < count; i++) {
        const json_t *plan = json_array_get(list, i);
        double time_s = json_number_value(json_object_get(plan, "time")) + outside_s;
        double energy_j = json_number_value(json_object_get(plan, "energy")) + outside_j;
        out->plans[i] = (harpe_fleet_plan){time_s, time_s > 0 ? energy_j / time_s : -1};
    }
    out->count = count;
    out->shift_time_s = number_at(frontier, "outside", 0) - outside_s;
    out->shift_energy_j = number_at(frontier, "outside", 1) - outside_j;
    return HARPE_OK;
}

harpe_status harpe_frontier_plans_read(const char *text, size_t length, harpe_frontier_plans *out,
                                       harpe_error *error) {
    *out = (harpe_frontier_plans){0};
    json_t *frontier = json_loadb(text, length, 0, NULL);
    harpe_status status =
        json_is_object(frontier)
            ? read_plans(frontier, out, error)
            : harpe_fail(error, HARPE_INVALID_INPUT, "its frontier is not a JSON object");
    const json_t *wishes = json_object_get(frontier, "wishes");
    out->power_cap_w = json_number_value(json_object_get(wishes, "power_cap"));
    json_decref(frontier);
    return status;
}
