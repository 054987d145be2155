/* SPDX-License-Identifier: Apache-2.0 */
/* A background thread that calls a function again and again until it is stopped: what the power
 * sampler and the RAPL wrap watch have in common. What is done at each tick is the caller's. */
#ifndef HARPE_MONITOR_TICKER_H
#define HARPE_MONITOR_TICKER_H

#include <stdbool.h>
#include <stdint.h>

#include <harpe/status.h>

typedef struct harpe_ticker harpe_ticker;

/* Calls `tick` at once and then after as many ns as it returned each time. The thread takes no
 * signals. */
harpe_status harpe_ticker_start(int64_t (*tick)(void *user), void *user, harpe_ticker **out,
                                harpe_error *error);
/* Waits for a tick that is running. In a forked child, which has no thread, it only frees. */
void harpe_ticker_stop(harpe_ticker *ticker);
/* False in a forked child: nothing ticks there, and locks may be held by a thread that is gone. */
bool harpe_ticker_is_ours(const harpe_ticker *ticker);

#endif
