/* SPDX-License-Identifier: Apache-2.0 */
/* Sends the only request that an optimizer makes during its construction. If the ranks meet by a
 * broadcast, rank 0 registers the job first, so that the broadcast can contain the job's id. If the
 * server does not answer soon, the optimizer's own thread asks it again later. */
#include <string.h>

#include "base/clock.h"
#include "client/optimizer_answers.h"
#include "client/optimizer_internal.h"

static bool is_soon(void *user) {
    const double *end_s = user;
    return harpe_clock_s() < *end_s;
}

void harpe_pipeline_ask_for_job(const harpe_pipeline *optimizer, char *job_id, size_t size) {
    double within_s = optimizer->timeouts.meeting_s;
    double end_s = harpe_clock_s() + within_s;
    harpe_connection_options how = {.server_url = optimizer->options.server_url,
                                    .token = optimizer->options.token,
                                    .ca_file = optimizer->options.ca_file,
                                    .held_s = within_s,
                                    .go_on = is_soon,
                                    .user = &end_s};
    harpe_connection *connection = NULL;
    harpe_reply reply;
    job_id[0] = '\0';
    if (harpe_connection_new(&how, &connection, NULL) != HARPE_OK) return;
    harpe_reply_to_registration(connection, optimizer->job_body, job_id, size, &reply);
    if (reply.outcome != HARPE_REPLY_ANSWERED) job_id[0] = '\0';
    harpe_connection_free(connection);
}
