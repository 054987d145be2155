/* SPDX-License-Identifier: Apache-2.0 */
/* The schedules of one round as text. The text is made once for all ranks. It is stored and dumped
 * as one list, and each rank gets a slice of it. If several ranks have the same instructions, these
 * are written once and then copied. */
#include "server/engine/round_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/text.h"

static harpe_round_text *new_round_text(int count) {
    harpe_round_text *round = harpe_calloc(1, sizeof *round);
    if (!round) return NULL;
    round->references = 1;
    round->offsets = harpe_calloc((size_t)count + 1, sizeof *round->offsets);
    if (round->offsets) return round;
    free(round);
    return NULL;
}

harpe_round_text *harpe_round_text_ref(harpe_round_text *text) {
    if (text) text->references++;
    return text;
}

void harpe_round_text_unref(harpe_round_text *text) {
    if (!text || --text->references > 0) return;
    free(text->text);
    free(text->offsets);
    free(text);
}

/* ---- Writing --------------------------------------------------------------------------------- */

/* The number of latest schedules that are remembered while the text is written. An entry is the
 * slice of the text that follows the rank's number. The address of the instructions identifies an
 * entry. Stages have few different schedules, and these alternate. */
enum { REMEMBERED = 64 };
typedef struct written_schedule {
    const harpe_scheduled_instruction *instructions;
    size_t count, start, length;
} written_schedule;

/* Writes all of a schedule and remembers it. `prefix` is the part that differs between ranks. */
static harpe_status append_new(harpe_text *text, const harpe_frequency_schedule *schedule,
                               const char *prefix, written_schedule *written, harpe_error *error) {
    char *json = NULL;
    harpe_status status = harpe_frequency_schedule_format(schedule, &json, error);
    if (status != HARPE_OK) return status;
    size_t length = strlen(json);
    size_t prefix_length = strlen(prefix);
    if (strncmp(json, prefix, prefix_length) == 0) {
        *written = (written_schedule){schedule->instructions, schedule->instruction_count,
                                      text->length + prefix_length, length - prefix_length};
    }
    harpe_text_append(text, json, length);
    free(json);
    return HARPE_OK;
}

static harpe_status append_schedule(harpe_text *text, const harpe_frequency_schedule *schedule,
                                    written_schedule written[REMEMBERED], harpe_error *error) {
    char prefix[32];
    size_t length = (size_t)snprintf(prefix, sizeof prefix, "{\"rank\":%d", schedule->rank);
    /* The lowest four bits are often the same, because memory is aligned. The next bits differ
     * between stages, because the blocks of memory of the stages lie side by side. */
    size_t place = ((uintptr_t)schedule->instructions >> 4) % REMEMBERED;
    written_schedule *same = &written[place];
    if (schedule->instruction_count == 0 || same->instructions != schedule->instructions ||
        same->count != schedule->instruction_count)
        return append_new(text, schedule, prefix, same, error);
    if (!HARPE_ARRAY_RESERVE(text->data, text->capacity, text->length + length + same->length + 1))
        return harpe_fail_memory(error);
    harpe_text_append(text, prefix, length);
    harpe_text_append(text, text->data + same->start, same->length);
    return HARPE_OK;
}

harpe_status harpe_round_text_format(const harpe_frequency_schedule *schedules, int count,
                                     harpe_round_text **out, harpe_error *error) {
    harpe_round_text *round = new_round_text(count);
    if (!round) return harpe_fail_memory(error);
    written_schedule written[REMEMBERED] = {0};
    harpe_text text = {0};
    harpe_status status = HARPE_OK;
    for (int r = 0; r < count && status == HARPE_OK; r++) {
        harpe_text_append(&text, r == 0 ? "[" : ",", 1);
        round->offsets[r] = text.length;
        status = append_schedule(&text, &schedules[r], written, error);
    }
    harpe_text_append(&text, "]", 1);
    if (status == HARPE_OK && text.failed) status = harpe_fail_memory(error);
    round->text = text.data;
    round->length = round->offsets[count] = text.length;
    if (status != HARPE_OK) {
        harpe_round_text_unref(round);
        return status;
    }
    *out = round;
    return HARPE_OK;
}

/* ---- Reading back ---------------------------------------------------------------------------- */

/* Returns the position of the ',' or ']' that follows the JSON value at `at`. Returns `length` if
 * none follows. */
static size_t end_of_value(const char *text, size_t length, size_t at) {
    int depth = 0;
    bool is_in_string = false;
    for (; at < length; at++) {
        char c = text[at];
        if (is_in_string) {
            if (c == '\\')
                at++;
            else if (c == '"')
                is_in_string = false;
        } else if (c == '"') {
            is_in_string = true;
        } else if (depth == 0 && (c == ',' || c == ']')) {
            return at;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if (c == '}' || c == ']') {
            depth--;
        }
    }
    return length;
}

harpe_status harpe_round_text_split(const char *text, size_t length, int count,
                                    harpe_round_text **out, harpe_error *error) {
    harpe_round_text *round = new_round_text(count);
    char *copy = harpe_calloc(length + 1, 1);
    if (!round || !copy) {
        free(copy);
        harpe_round_text_unref(round);
        return harpe_fail_memory(error);
    }
    memcpy(copy, text, length);
    round->text = copy;
    round->length = length;
    size_t at = length > 0 && text[0] == '[' ? 1 : length;
    int found = 0;
    while (found < count && at < length) {
        round->offsets[found++] = at;
        at = end_of_value(text, length, at) + 1;
    }
    round->offsets[count] = at;
    if (found < count || at != length) {
        harpe_round_text_unref(round);
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "the stored round is not a list of the schedules of %d ranks", count);
    }
    *out = round;
    return HARPE_OK;
}
