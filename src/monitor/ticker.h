/* SPDX-License-Identifier: Apache-2.0 */
/* A background thread that calls a function repeatedly until it is stopped. The power sampler and
 * the check for RAPL wraps use it. */
#ifndef HARPE_MONITOR_TICKER_H
#define HARPE_MONITOR_TICKER_H

#include <stdbool.h>
#include <stdint.h>

#include <harpe/status.h>

typedef struct harpe_ticker harpe_ticker;

/* Calls `tick` at once, and then again after the number of ns that each call returned. The thread
 * takes no signals. */
harpe_status harpe_ticker_start(int64_t (*tick)(void *user), void *user, harpe_ticker **out,
                                harpe_error *error);
/* Waits for a running tick and frees the ticker. In a forked child, which has no thread, only frees
 * the ticker. */
void harpe_ticker_stop(harpe_ticker *ticker);
/* Returns false in a forked child, where the thread does not exist and locks may be held by a
 * thread that is gone. */
bool harpe_ticker_is_ours(const harpe_ticker *ticker);

#endif
