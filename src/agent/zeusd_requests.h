/* SPDX-License-Identifier: Apache-2.0 */
/* The handler of the zeusd server's requests. */
#ifndef HARPE_AGENT_ZEUSD_REQUESTS_H
#define HARPE_AGENT_ZEUSD_REQUESTS_H

#include "agent/zeusd_internal.h"

/* Answers a request at once, or after its devices have answered. `user` is the transport. */
void harpe_zeusd_on_request(void *user, harpe_http_request *request);

#endif
