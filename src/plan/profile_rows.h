/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of a profile while they are collected. Every harpe_profile is made from such rows. The
 * CSV reader and harpe_profile_new add rows; profile.c sorts, checks and aggregates them. */
#ifndef HARPE_PLAN_PROFILE_ROWS_H
#define HARPE_PLAN_PROFILE_ROWS_H

#include <stddef.h>
#include <stdint.h>

#include <harpe/profile.h>

#include "base/array.h"

#define HARPE_PROFILE_ROW_MAX 10000000 /* rows of one profile */
#define HARPE_PROFILE_NAME_MAX 4096    /* different instruction names in one profile */
#define HARPE_PROFILE_GPUS_MAX 65536   /* GPUs whose energy one row sums up */

/* The numbers of a row, in the order in which they are checked. */
typedef enum harpe_profile_field {
    HARPE_FIELD_STAGE = 0,
    HARPE_FIELD_INSTRUCTION,
    HARPE_FIELD_FREQUENCY,
    HARPE_FIELD_TIME,
    HARPE_FIELD_ENERGY,
    HARPE_FIELD_RANK,
    HARPE_FIELD_GPUS,
    HARPE_FIELD_BLOCKING_POWER,
    HARPE_FIELD_SWITCH_LATENCY,
    HARPE_FIELD_COUNT,
} harpe_profile_field;

/* Returns the rule for a field, as a sentence that begins with its name. Static storage. */
const char *harpe_profile_field_rule(harpe_profile_field field);

/* Returns the first field of a row that is outside its range, or HARPE_FIELD_COUNT if there is
 * none. `name_length` is the length of row->instruction, which need not end in NUL. */
harpe_profile_field harpe_profile_row_fault(const harpe_measurement *row, size_t name_length);

/* One collected row, 48 bytes. */
typedef struct harpe_profile_row {
    double time_s;
    double energy_j;
    double blocking_power_w; /* 0: not known */
    int32_t frequency_mhz;
    int32_t rank; /* -1: rank not known */
    int32_t gpu_count;
    uint32_t source; /* line in the file, or index in the caller's array; for errors and order */
    uint16_t stage;
    uint16_t name; /* index into the names seen so far */
    uint32_t switch_latency_us;
} harpe_profile_row;

/* Initialise with zeros, add rows, then call harpe_profile_rows_finish. In the end, also after a
 * failure, call harpe_profile_rows_clear. */
typedef struct harpe_profile_rows {
    harpe_profile_row *items;
    size_t count, capacity;
    const char **names; /* point into name_memory */
    size_t name_count, name_capacity;
    uint16_t *name_slots; /* open-addressed hash of names: index + 1, 0 = free */
    harpe_arena name_memory;
} harpe_profile_rows;

/* Adds a row, which must be valid. `source` must not be lower than in the call before. */
harpe_status harpe_profile_rows_add(harpe_profile_rows *rows, const harpe_measurement *row,
                                    size_t name_length, uint32_t source, harpe_error *error);

/* Adds a copy of the row `number` of `from`. */
harpe_status harpe_profile_rows_take(harpe_profile_rows *rows, const harpe_profile_rows *from,
                                     size_t number, harpe_error *error);

void harpe_profile_rows_clear(harpe_profile_rows *rows);

#endif
