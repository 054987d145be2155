/* SPDX-License-Identifier: Apache-2.0 */
/* Notes: the fleet's durable state, as pairs of a key and a JSON text. A change of a setting is
 * made by applying the note that was stored, and a restart applies all stored notes, so both lead
 * to the same state.
 *
 * budget/GROUP, group/NAME, job/ID (what an operator said), load/NAME, member/NAME (declared),
 * event/NUMBER, prices, energy, cap/ID and cap-of/NAME (what was decided for a job or a declared
 * member), plans/ID (of a job). history belongs to history.c. */
#ifndef HARPE_SERVER_FLEET_NOTES_H
#define HARPE_SERVER_FLEET_NOTES_H

#include <jansson.h>

#include "server/fleet/fleet_state.h"

typedef struct harpe_fleet_note {
    char *key, *text; /* malloc'ed; an empty text removes the note */
} harpe_fleet_note;

void harpe_fleet_note_clear(harpe_fleet_note *note);

/* Applies a note. Fails with HARPE_INVALID_INPUT if it cannot be read; then the state is as
 * before. `is_loading`: the note comes from the store at the start. */
harpe_status harpe_notes_apply(harpe_fleet_state *state, const char *key, const char *text,
                               size_t length, bool is_loading, harpe_error *error);

/* Makes the note KEY, where KEY is `prefix` and `id`. Takes over `object` (NULL: memory ran out).
 * Returns false if memory runs out. */
bool harpe_notes_make(const char *prefix, const char *id, json_t *object, harpe_fleet_note *out);
/* Returns a JSON number, or null if `value` is not finite. */
json_t *harpe_notes_number(double value);

/* Make notes of the present state. They return false if memory runs out. */
bool harpe_notes_of_cap(const harpe_member *member, harpe_fleet_note *out);
bool harpe_notes_of_plans(const harpe_member *member, harpe_fleet_note *out);
bool harpe_notes_of_event(const harpe_fleet_event *event, harpe_fleet_note *out);
bool harpe_notes_of_energy(const harpe_fleet_state *state, harpe_fleet_note *out);
bool harpe_notes_of_terms(const char *id, const harpe_member_terms *terms, harpe_fleet_note *out);
/* Makes a note without text, which removes KEY. */
bool harpe_notes_of_nothing(const char *prefix, const char *id, harpe_fleet_note *out);

#endif
