/* SPDX-License-Identifier: Apache-2.0 */
/* Turns that make a scheduler, or show results to it. */
#ifndef HARPE_SERVER_ENGINE_SCHEDULER_TURNS_H
#define HARPE_SERVER_ENGINE_SCHEDULER_TURNS_H

#include "server/engine/job_state.h"

void harpe_begin_prepare(harpe_job *job);
void harpe_begin_observe(harpe_job *job);

#endif
