/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the power limit profile reader. For any bytes, the result is an error of one printable
 * line, or valid measurements from which each selector can choose. Uses no files. */
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "power_limit/profile_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) abort();
}

static void check_choice(harpe_power_limit_selector selector,
                         const harpe_power_limit_profile *profile) {
    int choice = selector.select(selector.user, profile->measurements, profile->count);
    require(choice < (int)profile->count);
}

static void check_profile(const harpe_power_limit_profile *profile) {
    require(profile->count > 0);
    for (size_t i = 0; i < profile->count; i++) {
        const harpe_power_limit_measurement *one = &profile->measurements[i];
        require(one->power_limit_w > 0 && one->energy_j > 0 && one->time_s > 0);
        require(isfinite(one->energy_j) && isfinite(one->time_s));
        require(i == 0 || one->power_limit_w < profile->measurements[i - 1].power_limit_w);
    }
    require(profile->minimum_w >= 0 && profile->maximum_w >= 0);
    harpe_selector_parameters parameters = {.eta = 0.5, .world_size = 4, .maximum_slowdown = 1.1};
    harpe_power_limit_selector cost;
    harpe_power_limit_selector slowdown;
    require(harpe_selector_zeus_cost(&parameters, &cost, NULL) == HARPE_OK);
    require(harpe_selector_max_slowdown(&parameters, &slowdown, NULL) == HARPE_OK);
    check_choice(cost, profile);
    check_choice(slowdown, profile);
    check_choice(harpe_selector_energy(), profile);
    check_choice(harpe_selector_time(), profile);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    harpe_power_limit_profile profile = {0};
    harpe_error error = {.message = ""};
    harpe_status status =
        harpe_power_limit_profile_parse((const char *)data, size, "fuzz.json", &profile, &error);
    if (status != HARPE_OK) {
        require(!profile.measurements && !profile.device_model);
        require(error.status == status);
        require(strncmp(error.message, "fuzz.json:", strlen("fuzz.json:")) == 0);
        require(!strpbrk(error.message, "\n\r\x1b"));
        return 0;
    }
    check_profile(&profile);
    (void)harpe_power_limit_profile_check(&profile, "fuzz.json", "V100", 100, 250, &error);
    harpe_power_limit_profile_clear(&profile);
    return 0;
}
