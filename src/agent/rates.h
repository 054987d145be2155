/* SPDX-License-Identifier: Apache-2.0 */
/* Limits how often each user may do something, such as ask for a lease. A user begins with a credit
 * of four times the limit per second, and one more. Each request uses one of the credit, and the
 * credit grows by the limit each second. */
#ifndef HARPE_AGENT_RATES_H
#define HARPE_AGENT_RATES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/credit.h"

enum { HARPE_AGENT_RATE_USERS = 64 };

typedef struct harpe_agent_rate {
    uid_t user;
    harpe_credit credit; /* requests that are allowed now; at_ns 0: not in use */
} harpe_agent_rate;

/* The users who asked last. A user who was dropped from this table begins again with a full credit.
 */
typedef struct harpe_agent_rates {
    harpe_agent_rate users[HARPE_AGENT_RATE_USERS];
} harpe_agent_rates;

/* Counts a request of the user. Returns false if the request exceeds the limit. `per_second` 0: no
 * limit. */
bool harpe_agent_rates_allow(harpe_agent_rates *rates, uid_t user, double per_second,
                             int64_t now_ns);

#endif
