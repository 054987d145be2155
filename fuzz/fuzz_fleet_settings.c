/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the requests that change the fleet's settings. The first byte chooses the request; the
 * rest is the body. A request that is accepted is applied, and the fleet is shown and decided. A
 * refused request must have an error of one line. Also reads the input as a frontier and as the
 * words of a job's metadata. */
#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "server/fleet/fleet_state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) abort();
}

static void decide_and_show(harpe_fleet_state *state) {
    harpe_fleet_now now = {2000, 2000};
    harpe_error error = {.message = ""};
    harpe_text text = {0};
    harpe_limits_update(state, now);
    if (harpe_decide_prepare(state, now)) {
        harpe_decide_solve(state);
        require(harpe_decide_take(state, &error) == HARPE_OK);
    }
    require(state->solve_status == HARPE_OK);
    harpe_decide_caps(state, now);
    harpe_fleet_show(state, NULL, now, &text);
    json_t *shown = text.failed ? NULL : json_loadb(text.data, text.length, 0, NULL);
    require(json_is_object(shown));
    json_decref(shown);
    harpe_text_free(&text);
}

static void change_settings(harpe_call_kind kind, const char *body, size_t length) {
    harpe_fleet_state state = {0};
    harpe_fleet_note note;
    harpe_error error = {.message = ""};
    int http_status;
    require(harpe_fleet_begin(&state));
    harpe_status status =
        harpe_bodies_read(&state, kind, "name", body, length, 1000, &note, &http_status, &error);
    if (status == HARPE_OK) {
        require(harpe_notes_apply(&state, note.key, note.text, strlen(note.text), false, &error) ==
                HARPE_OK);
        decide_and_show(&state);
        harpe_fleet_note_clear(&note);
    } else {
        require(http_status >= 400 && error.message[0] && !strchr(error.message, '\n'));
        require(!note.key && !note.text);
    }
    harpe_fleet_end(&state);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char name[HARPE_FLEET_TEXT_MAX + 1];
    if (size == 0 || size > 1 << 16) return 0;
    enum { KINDS = HARPE_CALL_FLEET_DELETE_PRICES - HARPE_CALL_FLEET_PUT_BUDGET + 1 };
    const char *body = (const char *)data + 1;
    change_settings((harpe_call_kind)(HARPE_CALL_FLEET_PUT_BUDGET + data[0] % KINDS), body,
                    size - 1);
    harpe_frontier_plans plans;
    if (harpe_frontier_plans_read(body, size - 1, &plans, NULL) == HARPE_OK) free(plans.plans);
    char *words = strndup(body, size - 1);
    require(words != NULL);
    harpe_member_terms terms = harpe_member_read_words(words, name);
    require(isnan(terms.weight) || (terms.weight >= 0 && terms.weight <= 1e12));
    free(words);
    return 0;
}
