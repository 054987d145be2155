/* SPDX-License-Identifier: Apache-2.0 */
/* Collects measured rows: checks each number of a row, and stores rows and names compactly. A
 * million rows need 48 MB. profile.c aggregates them. */
#include "plan/profile_rows.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"

#define STRINGIFY(x) #x
#define TO_STRING(x) STRINGIFY(x)

/* Limits for the numbers of a row. No pipeline instruction comes near them. Within them, the
 * planner's times, sums and slopes fit easily into 64 bits. */
#define TIME_MIN_S 1e-9
#define TIME_MAX_S 1e6
#define ENERGY_MIN_J 1e-12
#define ENERGY_MAX_J 1e9
#define BLOCKING_POWER_MAX_W 1e5
#define SWITCH_LATENCY_MAX_S 3600

#define NAME_SLOT_COUNT (2 * HARPE_PROFILE_NAME_MAX) /* a power of two */

/* ---- Checking one row ------------------------------------------------------------------------ */

const char *harpe_profile_field_rule(harpe_profile_field field) {
    static const char *const rules[HARPE_FIELD_COUNT] = {
        [HARPE_FIELD_STAGE] = "stage must be a whole number from 0 to " TO_STRING(HARPE_STAGE_MAX),
        [HARPE_FIELD_INSTRUCTION] = "instruction must be a name of 1 to " TO_STRING(
            HARPE_INSTRUCTION_NAME_MAX) " characters from A-Z, a-z, 0-9, '_', '.', ':' and '-'",
        [HARPE_FIELD_FREQUENCY] = "frequency must be a whole number of MHz from 0 (clock left "
                                  "alone) to " TO_STRING(HARPE_FREQUENCY_MAX_MHZ),
        [HARPE_FIELD_TIME] = "time must be a positive number of seconds, from 1e-9 to 1e6",
        [HARPE_FIELD_ENERGY] = "energy must be a positive number of joules, from 1e-12 to 1e9",
        [HARPE_FIELD_RANK] = "rank must be a whole number from 0 to 2147483646",
        [HARPE_FIELD_GPUS] =
            "gpus must be a whole number from 1 to " TO_STRING(HARPE_PROFILE_GPUS_MAX),
        [HARPE_FIELD_BLOCKING_POWER] =
            "blocking_power must be a positive number of watts, up to 100000",
        [HARPE_FIELD_SWITCH_LATENCY] = "switch_latency must be a number of seconds from 0 to 3600",
    };
    return field < HARPE_FIELD_COUNT ? rules[field] : "";
}

static bool is_name(const char *name, size_t length) {
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                  "_.:-";
    if (!name || length == 0 || length > HARPE_INSTRUCTION_NAME_MAX) return false;
    for (size_t i = 0; i < length; i++)
        if (!memchr(allowed, name[i], sizeof allowed - 1)) return false;
    return true;
}

harpe_profile_field harpe_profile_row_fault(const harpe_measurement *row, size_t name_length) {
    if (row->stage < 0 || row->stage > HARPE_STAGE_MAX) return HARPE_FIELD_STAGE;
    if (!is_name(row->instruction, name_length)) return HARPE_FIELD_INSTRUCTION;
    if (row->frequency_mhz < 0 || row->frequency_mhz > HARPE_FREQUENCY_MAX_MHZ)
        return HARPE_FIELD_FREQUENCY;
    if (!(row->time_s >= TIME_MIN_S && row->time_s <= TIME_MAX_S)) return HARPE_FIELD_TIME;
    if (!(row->energy_j >= ENERGY_MIN_J && row->energy_j <= ENERGY_MAX_J))
        return HARPE_FIELD_ENERGY;
    if (row->rank < -1 || row->rank == INT32_MAX) return HARPE_FIELD_RANK;
    if (row->gpu_count < 0 || row->gpu_count > HARPE_PROFILE_GPUS_MAX) return HARPE_FIELD_GPUS;
    if (!(row->blocking_power_w >= 0 && row->blocking_power_w <= BLOCKING_POWER_MAX_W))
        return HARPE_FIELD_BLOCKING_POWER;
    if (!(row->switch_latency_s >= 0 && row->switch_latency_s <= SWITCH_LATENCY_MAX_S))
        return HARPE_FIELD_SWITCH_LATENCY;
    return HARPE_FIELD_COUNT;
}

/* ---- Collecting rows ------------------------------------------------------------------------- */

/* Returns the slot that contains the name, or the free slot for it. The hash function is FNV-1a,
 * with linear probing. The table is never more than half full. */
static size_t name_slot(const harpe_profile_rows *rows, const char *name, size_t length) {
    uint64_t hash = 14695981039346656037U;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)name[i]) * 1099511628211U;
    size_t slot = (size_t)((hash ^ (hash >> 32)) % NAME_SLOT_COUNT);
    while (rows->name_slots[slot] != 0) {
        const char *other = rows->names[rows->name_slots[slot] - 1];
        if (strncmp(other, name, length) == 0 && other[length] == '\0') break;
        slot = (slot + 1) % NAME_SLOT_COUNT;
    }
    return slot;
}

static harpe_status intern_name(harpe_profile_rows *rows, const char *name, size_t length,
                                uint16_t *index, harpe_error *error) {
    if (!rows->name_slots) {
        rows->name_slots = harpe_calloc(NAME_SLOT_COUNT, sizeof *rows->name_slots);
        if (!rows->name_slots) return harpe_fail_memory(error);
    }
    size_t slot = name_slot(rows, name, length);
    if (rows->name_slots[slot] == 0) {
        if (rows->name_count == HARPE_PROFILE_NAME_MAX)
            return harpe_fail(error, HARPE_LIMIT_EXCEEDED,
                              "more than %d different instruction names; is the right column "
                              "called 'instruction'?",
                              HARPE_PROFILE_NAME_MAX);
        char *copy = harpe_arena_strdup(&rows->name_memory, name, length);
        if (!copy || !HARPE_ARRAY_RESERVE(rows->names, rows->name_capacity, rows->name_count + 1))
            return harpe_fail_memory(error);
        rows->names[rows->name_count++] = copy;
        rows->name_slots[slot] = (uint16_t)rows->name_count;
    }
    *index = (uint16_t)(rows->name_slots[slot] - 1);
    return HARPE_OK;
}

harpe_status harpe_profile_rows_add(harpe_profile_rows *rows, const harpe_measurement *row,
                                    size_t name_length, uint32_t source, harpe_error *error) {
    if (rows->count == HARPE_PROFILE_ROW_MAX)
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED,
                          "more than %d rows; average the repeats before planning",
                          HARPE_PROFILE_ROW_MAX);
    uint16_t name = 0;
    harpe_status status = intern_name(rows, row->instruction, name_length, &name, error);
    if (status != HARPE_OK) return status;
    if (!HARPE_ARRAY_RESERVE(rows->items, rows->capacity, rows->count + 1))
        return harpe_fail_memory(error);
    rows->items[rows->count++] = (harpe_profile_row){
        .time_s = row->time_s,
        .energy_j = row->energy_j,
        .blocking_power_w = row->blocking_power_w,
        .frequency_mhz = row->frequency_mhz,
        .rank = row->rank,
        .gpu_count = row->gpu_count > 0 ? row->gpu_count : 1,
        .source = source,
        .stage = (uint16_t)row->stage,
        .name = name,
        .switch_latency_us = (uint32_t)llround(row->switch_latency_s * 1e6),
    };
    return HARPE_OK;
}

harpe_status harpe_profile_rows_take(harpe_profile_rows *rows, const harpe_profile_rows *from,
                                     size_t number, harpe_error *error) {
    harpe_profile_row row = from->items[number];
    const char *name = from->names[row.name];
    harpe_status status = intern_name(rows, name, strlen(name), &row.name, error);
    if (status != HARPE_OK) return status;
    if (!HARPE_ARRAY_RESERVE(rows->items, rows->capacity, rows->count + 1))
        return harpe_fail_memory(error);
    rows->items[rows->count++] = row;
    return HARPE_OK;
}

void harpe_profile_rows_clear(harpe_profile_rows *rows) {
    free(rows->items);
    free(rows->names);
    free(rows->name_slots);
    harpe_arena_free(&rows->name_memory);
    *rows = (harpe_profile_rows){0};
}
