/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the rows of profiles, and prints a profile as CSV. */
#ifndef HARPE_PLAN_PROFILE_CSV_H
#define HARPE_PLAN_PROFILE_CSV_H

#include <stdbool.h>

#include <harpe/profile.h>

#include "base/text.h"
#include "plan/profile_rows.h"

/* The GPU of a row in a profile of replicas, and the number of the row. */
typedef struct harpe_profile_gpu_row {
    int replica, peer;
    size_t row;
} harpe_profile_gpu_row;

/* The GPUs of all rows. Initialise with zeros, and free `rows` with free(), also after a failure.
 */
typedef struct harpe_profile_gpus {
    harpe_profile_gpu_row *rows;
    size_t capacity;
    int replica_count, peer_count; /* the highest numbers plus 1 */
} harpe_profile_gpus;

/* Reads all rows of a text, at least one. With `gpus`, the text is a profile of replicas, and the
 * GPU of each row is read too; NULL: the profile of a pipeline. Errors name file, line and column.
 */
harpe_status harpe_profile_csv_parse(const char *text, size_t length, const char *name,
                                     harpe_profile_gpus *gpus, harpe_profile_rows *rows,
                                     harpe_error *error);

/* Reads a file that is not too large for a profile. Free `*text` with free(). */
harpe_status harpe_profile_csv_load(const char *path, char **text, size_t *length,
                                    harpe_error *error);

/* Returns true if the profile has the blocking power of every stage. The column has no value for a
 * stage that lacks it. */
bool harpe_profile_has_blocking_powers(const harpe_profile *profile);

/* Appends the rows of a profile. Each row begins with `place`. `with_gpus` and `with_power` say
 * whether it has the columns gpus and blocking_power. */
void harpe_profile_print_rows(const harpe_profile *profile, const char *place, bool with_gpus,
                              bool with_power, harpe_text *text);

/* Appends the CSV that harpe_profile_write_csv writes. */
void harpe_profile_print_csv(const harpe_profile *profile, harpe_text *text);

#endif
