/* SPDX-License-Identifier: Apache-2.0 */
/* Finds answers that Zeus's clients cannot run. These clients follow their only schedule exactly.
 * An empty schedule tells other clients to run at their highest clocks and to report their
 * instructions. A Zeus client with an empty schedule fails at its first instruction, which ends its
 * training. In the protocol, only the job's metadata can tell the server how many microbatches such
 * a job has. */
#ifndef HARPE_SERVER_API_PUBLISHED_CLIENT_H
#define HARPE_SERVER_API_PUBLISHED_CLIENT_H

#include "http/http.h"
#include "server/engine/engine.h"

/* Returns true if the client that asks for a schedule cannot run this answer, and writes the reason
 * to `line` (at most `size` bytes). */
bool harpe_published_client_fault(const harpe_http_request *request,
                                  const harpe_call_answer *answer, char *line, size_t size);

#endif
