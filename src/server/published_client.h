/* SPDX-License-Identifier: Apache-2.0 */
/* What the clients of Zeus cannot do. They follow their one schedule to the letter: an empty one,
 * which tells other clients to run at their highest clocks and to report what ran, ends their
 * training at its first instruction. Nothing in the protocol tells the server the microbatches of
 * such a job but its metadata. */
#ifndef HARPE_SERVER_PUBLISHED_CLIENT_H
#define HARPE_SERVER_PUBLISHED_CLIENT_H

#include "server/http.h"
#include "server/jobs.h"

/* Why the asker of a schedule cannot run this answer (a line of at most `size` bytes, in `line`);
 * false: it can. */
bool harpe_published_client_fault(const harpe_http_request *request,
                                  const harpe_call_answer *answer, char *line, size_t size);

#endif
