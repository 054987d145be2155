/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the requests that change the fleet's settings. */
#ifndef HARPE_SERVER_FLEET_BODIES_H
#define HARPE_SERVER_FLEET_BODIES_H

#include "server/engine/engine.h"
#include "server/fleet/notes.h"

/* Checks a request that changes a setting, and makes the note that carries it out. `id` is the
 * call's name of what it changes, or NULL. On failure `*http_status` is 404, 409, 422 or 503, and
 * `error` has one line. Changes nothing, except that a new event gets the next number. */
harpe_status harpe_bodies_read(harpe_fleet_state *state, harpe_call_kind kind, const char *id,
                               const char *text, size_t length, double now_s, harpe_fleet_note *out,
                               int *http_status, harpe_error *error);

/* Reads what a declared member reports: the plan that it follows (-1: not said) and its measured
 * power (negative: not said). */
harpe_status harpe_bodies_read_report(const char *text, size_t length, int64_t *plan,
                                      double *power_w, harpe_error *error);

/* Reads the body of a power cap. Returns false if it is not valid. */
bool harpe_bodies_read_watts(const char *body, size_t length, double *watts);

#endif
