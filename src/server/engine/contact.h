/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the processes of a job still have a connection to the server. */
#ifndef HARPE_SERVER_ENGINE_CONTACT_H
#define HARPE_SERVER_ENGINE_CONTACT_H

#include "server/engine/job_state.h"

/* Returns true if the connections of all ranks that have not ended have ended. */
bool harpe_job_is_out_of_contact(const harpe_job *job);
/* The rank has sent a request. */
void harpe_rank_is_heard(harpe_job *job, int rank);
/* Handles a call of the kind HARPE_CALL_LOST. */
void harpe_take_loss(harpe_job *job, harpe_call *call);

#endif
