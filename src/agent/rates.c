/* SPDX-License-Identifier: Apache-2.0 */
/* Counts requests with a credit that grows with time. */
#include "agent/rates.h"

#define BURST 4

static harpe_agent_rate *find(harpe_agent_rates *rates, uid_t user, double per_second,
                              int64_t now_ns) {
    harpe_agent_rate *oldest = &rates->users[0];
    for (int i = 0; i < HARPE_AGENT_RATE_USERS; i++) {
        harpe_agent_rate *rate = &rates->users[i];
        if (rate->now_ns != 0 && rate->user == user) return rate;
        if (rate->now_ns < oldest->now_ns) oldest = rate;
    }
    *oldest = (harpe_agent_rate){
        .user = user, .credit = BURST * per_second + 1, .now_ns = now_ns > 0 ? now_ns : 1};
    return oldest;
}

bool harpe_agent_rates_allow(harpe_agent_rates *rates, uid_t user, double per_second,
                             int64_t now_ns) {
    if (per_second <= 0) return true;
    harpe_agent_rate *rate = find(rates, user, per_second, now_ns);
    double most = BURST * per_second + 1;
    rate->credit += (double)(now_ns - rate->now_ns) * 1e-9 * per_second;
    if (rate->credit > most) rate->credit = most;
    rate->now_ns = now_ns > 0 ? now_ns : 1;
    if (rate->credit < 1) return false;
    rate->credit -= 1;
    return true;
}
