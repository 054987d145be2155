/* SPDX-License-Identifier: Apache-2.0 */
/* The profile file of the power limit optimizer: what an earlier run of the same job measured.
 * Interchangeable with the published tool's; Harpe also records which GPU it was. Private to
 * src/powerlimit and its tests. */
#ifndef HARPE_POWERLIMIT_PROFILE_FILE_H
#define HARPE_POWERLIMIT_PROFILE_FILE_H

#include <stddef.h>

#include <harpe/power_limit.h>
#include <harpe/status.h>

/* Keys beside "measurements", as found; NULL and 0 where the file does not say. */
typedef struct harpe_power_limit_profile {
    harpe_power_limit_measurement *measurements; /* highest limit first */
    size_t count;
    char *device_model;
    int minimum_w, maximum_w;
} harpe_power_limit_profile;

/* HARPE_NOT_FOUND when there is no such file; clear the result. */
harpe_status harpe_power_limit_profile_read(const char *path, harpe_power_limit_profile *out,
                                            harpe_error *error);
harpe_status harpe_power_limit_profile_parse(const char *text, size_t length, const char *name,
                                             harpe_power_limit_profile *out, harpe_error *error);
harpe_status harpe_power_limit_profile_write(const char *path,
                                             const harpe_power_limit_profile *profile,
                                             harpe_error *error);
void harpe_power_limit_profile_clear(harpe_power_limit_profile *profile);

/* Fails with HARPE_INVALID_INPUT when the profile is not of this device. */
harpe_status harpe_power_limit_profile_check(const harpe_power_limit_profile *profile,
                                             const char *path, const char *device_model,
                                             int minimum_w, int maximum_w, harpe_error *error);

#endif
