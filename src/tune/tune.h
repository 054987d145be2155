/* SPDX-License-Identifier: Apache-2.0 */
/* What `harpe tune` needs of a tuning beyond the public header: the sources of work that belong to
 * a command. */
#ifndef HARPE_TUNE_TUNE_H
#define HARPE_TUNE_TUNE_H

#include <harpe/tune.h>

#include "tune/chooser.h"
#include "tune/meter.h"

typedef struct harpe_tune_sources {
    harpe_step_memory *marks;         /* NULL: this process's own */
    const harpe_output_count *output; /* NULL: none */
    bool has_marks_only;              /* true: the period of the power is not used */
} harpe_tune_sources;

/* Works like harpe_tune_start with the sources of a command, which outlive the tuning. */
harpe_status harpe_tune_start_with(const harpe_tuning_options *options,
                                   const harpe_tune_sources *sources, harpe_tuning **out,
                                   harpe_error *error);

#endif
