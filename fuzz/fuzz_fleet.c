/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the file of a fleet. The first byte chooses the moment; the rest is the file. A fleet that
 * is accepted is solved, and the solution is checked by separate code, also after a change of the
 * budgets. A refused file must have an error of one line. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <harpe/fleet.h>

#define JOBS_MAX 200 /* larger fleets are only read */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) abort();
}

static void check_solution(harpe_fleet *fleet) {
    harpe_fleet_split split;
    harpe_error error = {.message = ""};
    require(harpe_fleet_solve(fleet, &split, &error) == HARPE_OK);
    require(harpe_fleet_verify(fleet, &error) == HARPE_OK);
    require(split.lower_bound <= split.objective);
    bool is_feasible = true;
    for (int g = 0; g < harpe_fleet_group_count(fleet); g++) {
        harpe_fleet_use use;
        require(harpe_fleet_use_of(fleet, g, &use, &error) == HARPE_OK);
        is_feasible = is_feasible && use.missing_w == 0;
    }
    require(is_feasible == split.is_feasible);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    harpe_fleet *fleet = NULL;
    harpe_error error = {.message = ""};
    double at_s = data[0] == '\n' ? 0 : 100.0 * data[0];
    harpe_status status =
        harpe_fleet_parse_json((const char *)data + 1, size - 1, "fleet", at_s, &fleet, &error);
    if (status != HARPE_OK) {
        require(!fleet && error.status == status && error.message[0]);
        require(!strchr(error.message, '\n'));
        return 0;
    }
    if (!harpe_fleet_job_name(fleet, JOBS_MAX)) {
        check_solution(fleet);
        double watts = 1000;
        require(harpe_fleet_set_watts(fleet, &watts, 1, &error) == HARPE_OK);
        check_solution(fleet);
    }
    harpe_fleet_free(fleet);
    return 0;
}
