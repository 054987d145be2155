/* SPDX-License-Identifier: Apache-2.0 */
/* The power of the last day: a point every minute, and every 10 s for the last hour. */
#ifndef HARPE_SERVER_FLEET_HISTORY_H
#define HARPE_SERVER_FLEET_HISTORY_H

#include "base/text.h"

typedef struct harpe_fleet_history harpe_fleet_history;

/* Returns NULL if memory runs out. */
harpe_fleet_history *harpe_fleet_history_new(void);
void harpe_fleet_history_free(harpe_fleet_history *history);
/* Adds a sample. Call it as often as you like; samples of the same 10 s are averaged. `limit_w` is
 * negative if there is no limit. */
void harpe_fleet_history_add(harpe_fleet_history *history, double at_s, double measured_w,
                             double counted_w, double limit_w);
/* Appends at most `points` points from `from_s` to `to_s` as JSON. */
void harpe_fleet_history_show(const harpe_fleet_history *history, double from_s, double to_s,
                              size_t points, harpe_text *text);
/* _save appends all minutes as a JSON object, also the minute that has not ended. _load reads them
 * back. A minute that was read back counts as one sample. */
void harpe_fleet_history_save(const harpe_fleet_history *history, harpe_text *text);
void harpe_fleet_history_load(harpe_fleet_history *history, const char *text, size_t length);

#endif
