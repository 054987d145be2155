/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a profile from collected rows. */
#ifndef HARPE_PLAN_PROFILE_H
#define HARPE_PLAN_PROFILE_H

#include <harpe/profile.h>

#include "plan/profile_rows.h"

/* Sorts, checks and aggregates the rows. There must be at least one row. Errors begin with
 * "<file_name>:<source>:1", or with "row <source>" if file_name is NULL. Changes the order of the
 * rows. O(n log n), or O(n) if they are already in order. */
harpe_status harpe_profile_rows_finish(harpe_profile_rows *rows, const char *file_name,
                                       harpe_profile **out, harpe_error *error);

/* Writes the measurements of a profile, without rank and number of GPUs, and returns their number.
 * If `rows` is NULL, only counts them. The profile owns the names. */
size_t harpe_profile_measurements(const harpe_profile *profile, harpe_measurement *rows);

#endif
