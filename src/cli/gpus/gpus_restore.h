/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe gpus --restore`: restores the settings of GPUs that killed jobs have left changed, and
 * prints the result. */
#ifndef HARPE_CLI_GPUS_GPUS_RESTORE_H
#define HARPE_CLI_GPUS_GPUS_RESTORE_H

#include <jansson.h>
#include <stdbool.h>

#include <harpe/gpu.h>

/* Restores the saved settings, and prints one line for each record, or one JSON object. If `is_dry`
 * is true, changes nothing. */
harpe_status harpe_gpus_restore_left(harpe_gpus *gpus, bool is_dry, bool is_json,
                                     harpe_error *error);

/* Adds a line to `harpe gpus` for each GPU that a killed job has left changed. */
void harpe_gpus_add_left(const harpe_gpus *gpus, json_t *problems);

#endif
