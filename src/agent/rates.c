/* SPDX-License-Identifier: Apache-2.0 */
/* Counts requests with a credit that grows with time. */
#include "agent/rates.h"

#define BURST 4

static harpe_agent_rate *find(harpe_agent_rates *rates, uid_t user) {
    harpe_agent_rate *oldest = &rates->users[0];
    for (int i = 0; i < HARPE_AGENT_RATE_USERS; i++) {
        harpe_agent_rate *rate = &rates->users[i];
        if (rate->credit.at_ns != 0 && rate->user == user) return rate;
        if (rate->credit.at_ns < oldest->credit.at_ns) oldest = rate;
    }
    *oldest = (harpe_agent_rate){.user = user};
    return oldest;
}

bool harpe_agent_rates_allow(harpe_agent_rates *rates, uid_t user, double per_second,
                             int64_t now_ns) {
    return per_second <= 0 || harpe_credit_take(&find(rates, user)->credit, BURST * per_second + 1,
                                                per_second, now_ns);
}
