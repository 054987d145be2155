/* SPDX-License-Identifier: Apache-2.0 */
/* The limits of Zeus's clients. They follow their only schedule exactly. An empty schedule tells
 * other clients to run at their highest clocks and to report their instructions, but it ends the
 * training of a Zeus client at its first instruction. In the protocol, only the job's metadata can
 * tell the server the number of microbatches of such a job. */
#ifndef HARPE_SERVER_PUBLISHED_CLIENT_H
#define HARPE_SERVER_PUBLISHED_CLIENT_H

#include "server/http.h"
#include "server/jobs.h"

/* True if the client that asks for a schedule cannot run this answer; `line` (at most `size` bytes)
 * then has the reason. */
bool harpe_published_client_fault(const harpe_http_request *request,
                                  const harpe_call_answer *answer, char *line, size_t size);

#endif
