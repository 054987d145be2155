/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the rows of profiles, and prints a profile as CSV. */
#ifndef HARPE_PLAN_PROFILE_CSV_H
#define HARPE_PLAN_PROFILE_CSV_H

#include <harpe/profile.h>

#include "base/csv.h"
#include "base/text.h"
#include "plan/profile_rows.h"

/* The columns of a profile, in the order of harpe_profile_field. Columns from `rank` on are
 * optional. The columns of a profile of replicas follow, each with another name. */
enum {
    HARPE_COLUMN_REPLICA = HARPE_FIELD_COUNT,
    HARPE_COLUMN_PEER,
    HARPE_COLUMN_OTHER_REPLICA,
    HARPE_COLUMN_OTHER_PEER,
    HARPE_COLUMN_COUNT,
};
extern const char *const harpe_profile_column_names[HARPE_COLUMN_COUNT];

/* Reads the current record. `index` has the place of each column; SIZE_MAX: the file does not have
 * it. The name of the instruction points into the text; `*name_length` is its length. Fails with
 * HARPE_INVALID_INPUT if a field is not valid. */
harpe_status harpe_profile_csv_row(const harpe_csv *csv, const size_t *index,
                                   harpe_measurement *row, size_t *name_length, harpe_error *error);

/* Appends the CSV that harpe_profile_write_csv writes. */
void harpe_profile_print_csv(const harpe_profile *profile, harpe_text *text);

#endif
