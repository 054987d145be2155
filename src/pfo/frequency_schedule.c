/* SPDX-License-Identifier: Apache-2.0 */
/* FrequencySchedule: the instructions of one rank's iteration, each with its requested clock, as
 * [name, MHz] pairs. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "pfo/documents.h"
#include "pfo/fields.h"
#include "pfo/json_look.h"
#include "pfo/model_reads.h"
#include "pfo/models.h"
#include "pfo/writing.h"

/* Allocates the instructions and, after them, `name_bytes` for their names. */
static harpe_scheduled_instruction *make_block(size_t count, size_t name_bytes, char **names) {
    size_t bytes;
    if (__builtin_mul_overflow(count, sizeof(harpe_scheduled_instruction), &bytes) ||
        __builtin_add_overflow(bytes, name_bytes, &bytes))
        return NULL;
    char *block = malloc(bytes > 0 ? bytes : 1);
    if (!block) return NULL;
    *names = block + count * sizeof(harpe_scheduled_instruction);
    return (harpe_scheduled_instruction *)(void *)block;
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* Returns an upper limit for the length of all names. */
static size_t name_bytes_at_most(const harpe_json *json, size_t list) {
    size_t bytes = 0;
    for (size_t node = list + 1; node < json->nodes[list].held.end; node++) {
        size_t length = strlen("False");
        if (harpe_json_kind_of(json, node) < HARPE_JSON_LIST) {
            size_t written;
            (void)harpe_json_bytes(json, node, &written);
            length = written > length ? written : length;
        }
        bytes += length + 1;
    }
    return bytes;
}

static bool is_pair(harpe_fields *fields, size_t node, const harpe_place *place) {
    const harpe_json *json = fields->json;
    if (harpe_json_kind_of(json, node) == HARPE_JSON_NULL)
        return harpe_value_is(fields, node, place, HARPE_JSON_LIST);
    if (harpe_json_kind_of(json, node) != HARPE_JSON_LIST) {
        harpe_fields_problem(fields, place, "type_error.tuple", "value is not a valid tuple");
        return false;
    }
    unsigned count = json->nodes[node].held.count;
    if (count == 2) return true;
    char message[64];
    (void)snprintf(message, sizeof message, "wrong tuple length %u, expected 2", count);
    harpe_fields_problem_context(
        fields, place, "value_error.tuple.length", message,
        json_pack("{s:I, s:i}", "actual_length", (json_int_t)count, "expected_length", 2));
    return false;
}

static void read_instruction(harpe_fields *fields, size_t pair, const harpe_place *place,
                             char **names, harpe_scheduled_instruction *out) {
    harpe_slice name = {"", 0};
    if (!is_pair(fields, pair, place)) return;
    harpe_place name_place = harpe_place_item(place, 0);
    harpe_place frequency_place = harpe_place_item(place, 1);
    (void)harpe_value_text(fields, pair + 1, &name_place, &name);
    (void)harpe_value_int(fields, harpe_json_next(fields->json, pair + 1), &frequency_place,
                          INT_MIN, &out->frequency_mhz);
    out->instruction = harpe_slice_put(name, names);
}

static void read_instructions(harpe_fields *fields, size_t list, const harpe_place *place,
                              harpe_frequency_schedule *schedule) {
    const harpe_json *json = fields->json;
    harpe_place here = harpe_place_member(place, "frequencies", strlen("frequencies"));
    size_t count = json->nodes[list].held.count;
    char *names = NULL;
    harpe_scheduled_instruction *instructions =
        make_block(count, name_bytes_at_most(json, list), &names);
    if (!instructions) {
        fields->problems->out_of_memory = true;
        return;
    }
    size_t node = list + 1;
    for (size_t i = 0; i < count; i++) {
        harpe_place item = harpe_place_item(&here, i);
        instructions[i] = (harpe_scheduled_instruction){0};
        read_instruction(fields, node, &item, &names, &instructions[i]);
        node = harpe_json_next(json, node);
    }
    schedule->instructions = instructions;
    schedule->instruction_count = count;
}

static bool read_trial(harpe_fields *fields, size_t object, const harpe_place *place) {
    size_t node = harpe_json_member(fields->json, object, "trial");
    if (node == 0 || harpe_json_kind_of(fields->json, node) == HARPE_JSON_FALSE) return false;
    if (harpe_json_kind_of(fields->json, node) == HARPE_JSON_TRUE) return true;
    harpe_place here = harpe_place_member(place, "trial", strlen("trial"));
    harpe_fields_problem(fields, &here, "type_error.bool",
                         "value could not be parsed to a boolean");
    return false;
}

void harpe_frequency_schedule_read(harpe_fields *fields, size_t object, const harpe_place *place,
                                   void *out) {
    harpe_frequency_schedule schedule = {0};
    (void)harpe_member_int(fields, object, place, "rank", 0, &schedule.rank);
    size_t list =
        harpe_member_container(fields, object, place, "frequencies", HARPE_JSON_LIST, true);
    if (list != 0) read_instructions(fields, list, place, &schedule);
    schedule.is_trial = read_trial(fields, object, place);
    if (fields->has_failed || fields->problems->out_of_memory) {
        harpe_frequency_schedule_free(&schedule);
        return;
    }
    *(harpe_frequency_schedule *)out = schedule;
}

harpe_status harpe_frequency_schedule_parse(const char *json, size_t length,
                                            harpe_frequency_schedule *out, harpe_error *error) {
    return harpe_text_decode(json, length, harpe_frequency_schedule_read, out, error);
}

/* ---- The rest -------------------------------------------------------------------------------- */

void harpe_frequency_schedule_write(harpe_text *text, const void *model) {
    const harpe_frequency_schedule *schedule = model;
    harpe_write_int_member(text, "{\"rank\":", schedule->rank);
    harpe_write_raw(text, ",\"frequencies\":[");
    for (size_t i = 0; i < schedule->instruction_count; i++) {
        const harpe_scheduled_instruction *one = &schedule->instructions[i];
        harpe_write_text_member(text, i > 0 ? ",[" : "[", one->instruction ? one->instruction : "");
        harpe_write_int_member(text, ",", one->frequency_mhz);
        harpe_write_raw(text, "]");
    }
    harpe_write_raw(text, schedule->is_trial ? "],\"trial\":true}" : "]}");
}

harpe_status harpe_frequency_schedule_format(const harpe_frequency_schedule *schedule, char **json,
                                             harpe_error *error) {
    harpe_text text = {0};
    harpe_frequency_schedule_write(&text, schedule);
    return harpe_write_end(&text, json, error);
}

harpe_status harpe_frequency_schedule_copy(const harpe_frequency_schedule *from,
                                           harpe_frequency_schedule *to, harpe_error *error) {
    size_t name_bytes = 0;
    char *names = NULL;
    for (size_t i = 0; i < from->instruction_count; i++)
        name_bytes += strlen(from->instructions[i].instruction) + 1;
    harpe_scheduled_instruction *instructions =
        make_block(from->instruction_count, name_bytes, &names);
    if (!instructions) return harpe_fail_memory(error);
    for (size_t i = 0; i < from->instruction_count; i++) {
        const char *name = from->instructions[i].instruction;
        instructions[i] = from->instructions[i];
        instructions[i].instruction = harpe_slice_put((harpe_slice){name, strlen(name)}, &names);
    }
    *to = (harpe_frequency_schedule){from->rank, instructions, from->instruction_count,
                                     from->is_trial};
    return HARPE_OK;
}

void harpe_frequency_schedule_free(harpe_frequency_schedule *schedule) {
    free((void *)schedule->instructions);
    *schedule = (harpe_frequency_schedule){0};
}
