/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe gpus --restore`: puts back GPUs that killed jobs have left changed, and prints what it
 * did. */
#ifndef HARPE_CLI_GPUS_RESTORE_H
#define HARPE_CLI_GPUS_RESTORE_H

#include <jansson.h>
#include <stdbool.h>

#include <harpe/gpu.h>

/* Prints a line for each record, or one JSON object. `is_dry` changes nothing. */
harpe_status harpe_gpus_restore_left(harpe_gpus *gpus, bool is_dry, bool is_json,
                                     harpe_error *error);

/* A line for each GPU that a killed job has left changed, for `harpe gpus`. */
void harpe_gpus_add_left(const harpe_gpus *gpus, json_t *problems);

#endif
