/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a rank's training. */
#ifndef HARPE_SERVER_ENGINE_ENDS_H
#define HARPE_SERVER_ENGINE_ENDS_H

#include "server/engine/call.h"
#include "server/engine/job_state.h"

void harpe_take_end(harpe_job *job, harpe_call *call);
/* Sets the end of a rank after it was stored, or when it is read from the store. */
void harpe_job_set_ended(harpe_job *job, int rank, bool has_ended);
/* Stores that a rank whose training had ended runs again. Then answers the call of `operation` and
 * ends the operation. */
void harpe_rank_register_again(harpe_operation *operation, int rank);

#endif
