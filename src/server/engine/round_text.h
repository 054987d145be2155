/* SPDX-License-Identifier: Apache-2.0 */
/* The schedules of one round as text. Only the loop counts references. */
#ifndef HARPE_SERVER_ENGINE_ROUND_TEXT_H
#define HARPE_SERVER_ENGINE_ROUND_TEXT_H

#include <stddef.h>

#include "pfo/models.h"
#include "server/engine/job_state.h"

/* Writes the schedules of `count` ranks. May be called on a worker. */
harpe_status harpe_round_text_format(const harpe_frequency_schedule *schedules, int count,
                                     harpe_round_text **out, harpe_error *error);
/* Makes a round of its stored text, and finds the schedule of each rank in the text. */
harpe_status harpe_round_text_split(const char *text, size_t length, int count,
                                    harpe_round_text **out, harpe_error *error);
harpe_round_text *harpe_round_text_ref(harpe_round_text *text); /* accepts NULL */
void harpe_round_text_unref(harpe_round_text *text);            /* accepts NULL */

#endif
