/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the mean power of several GPUs between two readings of their energy counters. */
#ifndef HARPE_POWERLIMIT_POWER_METER_H
#define HARPE_POWERLIMIT_POWER_METER_H

#include <harpe/gpu.h>

typedef struct harpe_power_meter harpe_power_meter;

/* `gpus` must outlive the meter. */
harpe_status harpe_power_meter_new(harpe_gpus *gpus, harpe_power_meter **out, harpe_error *error);
void harpe_power_meter_free(harpe_power_meter *meter); /* NULL is allowed */

/* Writes the sum of the mean powers of all GPUs since the last reading, in W. Writes 0 at the first
 * reading, if the last reading was less than a second ago, and if a counter is missing or has run
 * backwards. One thread at a time. */
harpe_status harpe_power_meter_read(harpe_power_meter *meter, double *power_w, harpe_error *error);

#endif
