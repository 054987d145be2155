/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a profile as CSV. */
#ifndef HARPE_PLAN_PROFILE_CSV_H
#define HARPE_PLAN_PROFILE_CSV_H

#include <harpe/profile.h>

#include "base/text.h"

/* Appends the CSV that harpe_profile_write_csv writes. */
void harpe_profile_print_csv(const harpe_profile *profile, harpe_text *text);

#endif
