/* SPDX-License-Identifier: Apache-2.0 */
/* What can be set on the GPUs of a program: a table with the graphics clock and the power limit.
 * All GPUs get one setting. Processes that outlive this one restore the GPUs, however it ends. */
#ifndef HARPE_TUNE_KNOB_H
#define HARPE_TUNE_KNOB_H

#include <stdatomic.h>
#include <stdbool.h>

#include <harpe/callback.h>
#include <harpe/gpu.h>
#include <harpe/status.h>

#include "tune/setting.h"

typedef struct harpe_knobs harpe_knobs;

/* Takes control of the GPUs, which must be of one model, and finds the values that all of them
 * have. The highest ones are then set. `gpus` must outlive the knobs. After a failure the GPUs are
 * restored; `*was_open` becomes true if one had been changed. */
harpe_status harpe_knobs_open(harpe_gpus *gpus, const bool wanted[HARPE_TUNE_KNOBS],
                              const atomic_bool *gives_up, harpe_log log, harpe_knobs **out,
                              bool *was_open, harpe_error *error);
/* Restores the GPUs. NULL is allowed. */
void harpe_knobs_close(harpe_knobs *knobs);

/* Returns the values of a knob; none if it is not wanted. */
harpe_tune_range harpe_knobs_range(const harpe_knobs *knobs, harpe_tune_knob which);

/* Asks for a setting; 0: the highest value. */
harpe_status harpe_knobs_set(harpe_knobs *knobs, harpe_tune_setting setting, harpe_error *error);
/* Reads back whether the setting is in force on all GPUs. Fails if the driver refuses it. */
harpe_status harpe_knobs_check(harpe_knobs *knobs, bool *is_in_force, harpe_error *error);
/* A slice begins: faults before it do not count. */
void harpe_knobs_begin(harpe_knobs *knobs);
/* Fails if a GPU has not held the setting since then, because it ignores it or because another
 * program sets it. A GPU that is slower because of its power limit or its heat has held it. */
harpe_status harpe_knobs_were_held(harpe_knobs *knobs, harpe_error *error);

#endif
