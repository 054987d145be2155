/* SPDX-License-Identifier: Apache-2.0 */
/* Zeus makes its requests with httpx, which names itself in User-Agent. Harpe's client does not use
 * httpx. */
#include "server/api/published_client.h"

#include <stdio.h>
#include <string.h>

#include <harpe/pfo.h>

static const char AGENT[] = "python-httpx/";
enum { EMPTY_SCHEDULE_MAX = 256 }; /* bytes; a longer schedule cannot be empty */

static bool is_empty(const harpe_call_answer *answer) {
    harpe_frequency_schedule schedule = {0};
    if (answer->length > EMPTY_SCHEDULE_MAX ||
        harpe_frequency_schedule_parse(answer->body, answer->length, &schedule, NULL) != HARPE_OK)
        return false;
    bool is_empty = schedule.instruction_count == 0;
    harpe_frequency_schedule_free(&schedule);
    return is_empty;
}

bool harpe_published_client_fault(const harpe_http_request *request,
                                  const harpe_call_answer *answer, char *line, size_t size) {
    const char *agent = harpe_http_header(request, "user-agent");
    if (!agent || strncmp(agent, AGENT, sizeof AGENT - 1) != 0 || !is_empty(answer)) return false;
    (void)snprintf(line, size,
                   "this job's schedule is empty, because the server does not know how many "
                   "microbatches an iteration has, and a client of Zeus cannot run an empty "
                   "schedule: give the client job_metadata=\"num_microbatches=N\", or start harpe "
                   "serve with --scheduler-args '{\"num_microbatches\": N}'");
    return true;
}
