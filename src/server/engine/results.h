/* SPDX-License-Identifier: Apache-2.0 */
/* Results of ranks. */
#ifndef HARPE_SERVER_ENGINE_RESULTS_H
#define HARPE_SERVER_ENGINE_RESULTS_H

#include "server/engine/call.h"
#include "server/engine/job_state.h"

void harpe_take_result(harpe_job *job, harpe_call *call);

#endif
