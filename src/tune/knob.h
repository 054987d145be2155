/* SPDX-License-Identifier: Apache-2.0 */
/* What can be set on the GPUs of a program: a table with the graphics clock and the power limit.
 * All GPUs get one setting. Processes that outlive this one restore the GPUs, however it ends. */
#ifndef HARPE_TUNE_KNOB_H
#define HARPE_TUNE_KNOB_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include <harpe/callback.h>
#include <harpe/gpu.h>
#include <harpe/status.h>

#include "tune/chooser.h"

typedef struct harpe_knob harpe_knob;

const char *harpe_knob_name(harpe_tune_knob which); /* "clock", "limit" */

/* Takes control of the GPUs and finds the values that all of them have, highest first; the setting
 * is then the highest one. Open the limit before the clock: the controller then leaves it alone.
 * `gpus` must outlive the knob. */
harpe_status harpe_knob_open(harpe_tune_knob which, harpe_gpus *gpus, const atomic_bool *gives_up,
                             harpe_log log, harpe_knob **out, harpe_error *error);
/* Restores the GPUs. NULL is allowed. */
void harpe_knob_close(harpe_knob *knob);

harpe_tune_range harpe_knob_range(const harpe_knob *knob);

/* Asks for a value of the range; 0: the highest one. */
harpe_status harpe_knob_set(harpe_knob *knob, int value, harpe_error *error);
/* Reads back whether the value is in force on all GPUs. Fails if the driver refuses it. */
harpe_status harpe_knob_check(harpe_knob *knob, bool *is_in_force, harpe_error *error);
/* A slice begins: faults before it do not count. */
void harpe_knob_begin(harpe_knob *knob);
/* Fails if a GPU has not held the value since then, because it ignores it or because another
 * program sets it. A GPU that is slower because of its power limit or its heat has held it. */
harpe_status harpe_knob_was_held(harpe_knob *knob, harpe_error *error);

#endif
