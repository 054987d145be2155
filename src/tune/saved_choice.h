/* SPDX-License-Identifier: Apache-2.0 */
/* The file of a finished choice (`harpe tune --save`), which a later run of the same program checks
 * in place of a search. */
#ifndef HARPE_TUNE_SAVED_CHOICE_H
#define HARPE_TUNE_SAVED_CHOICE_H

#include <harpe/gpu.h>
#include <harpe/status.h>

#include "tune/chooser.h"

/* Reads the file; zeros if there is none. Fails with HARPE_INVALID_INPUT if it is no such file, or
 * if it is for other GPUs. */
harpe_status harpe_saved_choice_read(const char *path, const harpe_gpus *gpus,
                                     harpe_tune_saved *out, harpe_error *error);
harpe_status harpe_saved_choice_write(const char *path, const harpe_gpus *gpus,
                                      const harpe_tune_saved *saved, harpe_error *error);

#endif
