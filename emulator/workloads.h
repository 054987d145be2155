/* SPDX-License-Identifier: Apache-2.0 */
/* Workloads whose time and power were measured at several clocks: a table of constants, and the
 * laws that use the constants. docs/emulator.md explains the laws and their errors. */
#ifndef HARPE_EMULATOR_WORKLOADS_H
#define HARPE_EMULATOR_WORKLOADS_H

#include "models.h"

/* One iteration on an A100-PCIE-40GB. */
typedef struct emulator_workload {
    const char *name;
    double floor_ms;            /* host time for the launch of the kernels; 0: never the limit */
    double compute_ms;          /* GPU time at the highest clock, the part that scales with it */
    double rest_ms;             /* GPU time, the part that does not depend on the clock */
    double static_w, dynamic_w; /* power while the GPU computes */
} emulator_workload;

/* An iteration at one clock. */
typedef struct emulator_iteration {
    double time_s, power_w;
    double activity; /* share of the time in which the GPU computes */
} emulator_iteration;

/* Returns the workload with this index, or NULL after the end of the table. */
const emulator_workload *emulator_workload_at(unsigned int index);
/* Returns the index of the workload called `name`, or -1. A comma ends the name. */
int emulator_workload_find(const char *name);
/* Returns an iteration of a workload on a GPU of the model, at a graphics clock. `memory` is the
 * memory clock divided by the highest memory clock. */
emulator_iteration emulator_workload_iterate(const emulator_workload *workload,
                                             const emulator_model *model, double clock_mhz,
                                             double memory);

#endif
