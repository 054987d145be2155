/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that a browser makes for another site's page. Where a token is wanted none of them
 * passes, for they have none; where none is wanted, what is open to every program of this machine
 * or network must not be open to every page that somebody there looks at. */
#ifndef HARPE_SERVER_ORIGIN_H
#define HARPE_SERVER_ORIGIN_H

#include "server/http.h"

typedef struct harpe_origin_rules {
    bool is_local;  /* the server listens to its own machine only */
    bool changes;   /* the request may change something */
    bool for_ranks; /* it is of a training process, which it makes wait */
} harpe_origin_rules;
/* Why a browser's request is refused (a line), or NULL; whatever else asks is never refused. */
const char *harpe_origin_fault(const harpe_http_request *request, harpe_origin_rules rules);
/* Is this an address that only its own machine reaches? Numeric. */
bool harpe_address_is_local(const char *address);

#endif
