/* SPDX-License-Identifier: Apache-2.0 */
/* The profile file of the power limit optimizer: the measurements of an earlier run of the same
 * job. It is interchangeable with the published tool's file; Harpe also records the GPU model.
 * Private to src/power_limit and its tests. */
#ifndef HARPE_POWER_LIMIT_PROFILE_FILE_H
#define HARPE_POWER_LIMIT_PROFILE_FILE_H

#include <stddef.h>

#include <harpe/power_limit.h>
#include <harpe/status.h>

/* The content of the file. A member other than `measurements` and `count` is NULL or 0 if the file
 * does not have its key. */
typedef struct harpe_power_limit_profile {
    harpe_power_limit_measurement *measurements; /* highest limit first */
    size_t count;
    char *device_model;
    int minimum_w, maximum_w;
} harpe_power_limit_profile;

/* Reads a profile, which the caller clears. Fails with HARPE_NOT_FOUND if there is no such file. */
harpe_status harpe_power_limit_profile_read(const char *path, harpe_power_limit_profile *out,
                                            harpe_error *error);
harpe_status harpe_power_limit_profile_parse(const char *text, size_t length, const char *name,
                                             harpe_power_limit_profile *out, harpe_error *error);
harpe_status harpe_power_limit_profile_write(const char *path,
                                             const harpe_power_limit_profile *profile,
                                             harpe_error *error);
void harpe_power_limit_profile_clear(harpe_power_limit_profile *profile);

/* Fails with HARPE_INVALID_INPUT if the profile belongs to another device. */
harpe_status harpe_power_limit_profile_check(const harpe_power_limit_profile *profile,
                                             const char *path, const char *device_model,
                                             int minimum_w, int maximum_w, harpe_error *error);

#endif
