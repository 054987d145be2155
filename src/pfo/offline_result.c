/* SPDX-License-Identifier: Apache-2.0 */
/* OfflineProfilingResult: the time and energy of a rank's forward and backward at each frequency,
 * and the profile CSV that the planner reads. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/file.h"
#include "pfo/fields.h"
#include "pfo/json_look.h"
#include "pfo/model_reads.h"
#include "pfo/models.h"
#include "pfo/writing.h"

enum { TABLE_COUNT = 4 };

/* The names of the tables, in the order of the model's fields. */
static const char *const table_names[TABLE_COUNT] = {"forward_time", "forward_energy",
                                                     "backward_time", "backward_energy"};

typedef struct table {
    const harpe_frequency_value *values;
    size_t count;
} table;

static void tables_of(const harpe_offline_profiling_result *result, table tables[TABLE_COUNT]) {
    tables[0] = (table){result->forward_time_s, result->forward_time_count};
    tables[1] = (table){result->forward_energy_j, result->forward_energy_count};
    tables[2] = (table){result->backward_time_s, result->backward_time_count};
    tables[3] = (table){result->backward_energy_j, result->backward_energy_count};
}

static void set_tables(harpe_offline_profiling_result *result, const table tables[TABLE_COUNT]) {
    result->forward_time_s = tables[0].values;
    result->forward_time_count = tables[0].count;
    result->forward_energy_j = tables[1].values;
    result->forward_energy_count = tables[1].count;
    result->backward_time_s = tables[2].values;
    result->backward_time_count = tables[2].count;
    result->backward_energy_j = tables[3].values;
    result->backward_energy_count = tables[3].count;
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* Reads a pair. The key is a frequency as text. */
static void read_pair(harpe_fields *fields, const harpe_json_pair *pair, const harpe_place *place,
                      harpe_frequency_value *out) {
    size_t length;
    const char *key = harpe_json_bytes(fields->json, pair->key, &length);
    harpe_place key_place = harpe_place_member(place, "__key__", strlen("__key__"));
    harpe_place value_place = harpe_place_member(place, key, length);
    (void)harpe_value_int(fields, pair->key, &key_place, 0, &out->frequency_mhz);
    (void)harpe_value_double(fields, pair->value, &value_place, &out->value);
}

static bool find_pairs(const harpe_json *json, size_t object, const char *name,
                       harpe_json_pair **pairs, size_t *count) {
    size_t node = harpe_json_member(json, object, name);
    return node == 0 || harpe_json_kind_of(json, node) != HARPE_JSON_OBJECT ||
           harpe_json_pairs(json, node, pairs, count);
}

static void read_table(harpe_fields *fields, size_t object, const harpe_place *place,
                       const char *name, const harpe_json_pair *pairs, table *out,
                       harpe_frequency_value **room) {
    harpe_place here = harpe_place_member(place, name, strlen(name));
    out->values = *room;
    if (harpe_member_container(fields, object, place, name, HARPE_JSON_OBJECT, true) == 0) return;
    for (size_t i = 0; i < out->count; i++)
        read_pair(fields, &pairs[i], &here, (*room)++);
}

void harpe_offline_profiling_result_read(harpe_fields *fields, size_t object,
                                         const harpe_place *place, void *out) {
    harpe_offline_profiling_result result = {0};
    harpe_json_pair *pairs[TABLE_COUNT] = {0};
    table tables[TABLE_COUNT] = {0};
    size_t total = 0;
    bool has_memory = true;
    for (int i = 0; i < TABLE_COUNT && has_memory; i++) {
        has_memory = find_pairs(fields->json, object, table_names[i], &pairs[i], &tables[i].count);
        total += tables[i].count;
    }
    harpe_frequency_value *room = has_memory ? harpe_calloc(total, sizeof *room) : NULL;
    if (room) { /* the first table, forward_time_s, begins the block and frees it */
        (void)harpe_member_int(fields, object, place, "rank", 0, &result.rank);
        (void)harpe_member_int(fields, object, place, "dp_rank", 0, &result.dp_rank);
        (void)harpe_member_int(fields, object, place, "pp_rank", 0, &result.pp_rank);
        (void)harpe_member_int(fields, object, place, "tp_rank", 0, &result.tp_rank);
        for (int i = 0; i < TABLE_COUNT; i++)
            read_table(fields, object, place, table_names[i], pairs[i], &tables[i], &room);
        set_tables(&result, tables);
    } else {
        fields->problems->out_of_memory = true;
    }
    for (int i = 0; i < TABLE_COUNT; i++)
        free(pairs[i]);
    if (fields->has_failed || fields->problems->out_of_memory) {
        harpe_offline_profiling_result_free(&result);
        return;
    }
    *(harpe_offline_profiling_result *)out = result;
}

void harpe_offline_profiling_result_free(harpe_offline_profiling_result *result) {
    free((void *)result->forward_time_s);
    *result = (harpe_offline_profiling_result){0};
}

/* ---- Writing --------------------------------------------------------------------------------- */

void harpe_offline_profiling_result_write(harpe_text *text, const void *model) {
    const harpe_offline_profiling_result *result = model;
    table tables[TABLE_COUNT];
    tables_of(result, tables);
    harpe_write_int_member(text, "{\"rank\":", result->rank);
    harpe_write_int_member(text, ",\"dp_rank\":", result->dp_rank);
    harpe_write_int_member(text, ",\"pp_rank\":", result->pp_rank);
    harpe_write_int_member(text, ",\"tp_rank\":", result->tp_rank);
    for (int i = 0; i < TABLE_COUNT; i++) {
        harpe_write_text_member(text, ",", table_names[i]);
        harpe_write_raw(text, ":{");
        for (size_t k = 0; k < tables[i].count; k++) {
            harpe_write_int_member(text, k > 0 ? ",\"" : "\"", tables[i].values[k].frequency_mhz);
            harpe_write_raw(text, "\":");
            harpe_text_number(text, tables[i].values[k].value);
        }
        harpe_write_raw(text, "}");
    }
    harpe_write_raw(text, "}");
}

/* ---- The profile CSV ------------------------------------------------------------------------- */

static int highest_first(const void *a, const void *b) {
    const harpe_frequency_value *first = a;
    const harpe_frequency_value *second = b;
    return (second->frequency_mhz > first->frequency_mhz) -
           (second->frequency_mhz < first->frequency_mhz);
}

/* Returns a copy of the table with the highest frequency first, or NULL when out of memory. */
static harpe_frequency_value *sorted(const table *from) {
    harpe_frequency_value *copy = harpe_calloc(from->count, sizeof *copy);
    if (copy && from->count > 0) {
        memcpy(copy, from->values, from->count * sizeof *copy);
        qsort(copy, from->count, sizeof *copy, highest_first);
    }
    return copy;
}

static bool is_alone(const harpe_frequency_value *values, size_t count, size_t i) {
    return i >= count || i + 1 == count || values[i].frequency_mhz != values[i + 1].frequency_mhz;
}

static harpe_status print_rows(harpe_text *text, const harpe_offline_profiling_result *result,
                               const char *instruction, const harpe_frequency_value *times,
                               size_t time_count, const harpe_frequency_value *energies,
                               size_t energy_count, harpe_error *error) {
    for (size_t i = 0; i < time_count || i < energy_count; i++) {
        if (i >= time_count || i >= energy_count ||
            times[i].frequency_mhz != energies[i].frequency_mhz ||
            !is_alone(times, time_count, i)) {
            int frequency_mhz = i < time_count ? times[i].frequency_mhz : energies[i].frequency_mhz;
            return harpe_fail(error, HARPE_INVALID_INPUT,
                              "rank %d: %s at or below %d MHz: each frequency must have one time "
                              "and one energy",
                              result->rank, instruction, frequency_mhz);
        }
        harpe_text_printf(text, "%d,%d,%d,%d,%d,%s,%d,", result->rank, result->dp_rank,
                          result->pp_rank, result->tp_rank, result->pp_rank, instruction,
                          times[i].frequency_mhz);
        harpe_text_number(text, times[i].value);
        harpe_text_append(text, ",", 1);
        harpe_text_number(text, energies[i].value);
        harpe_text_append(text, "\n", 1);
    }
    return HARPE_OK;
}

static harpe_status print_instruction(harpe_text *text,
                                      const harpe_offline_profiling_result *result,
                                      const char *instruction, const table *time,
                                      const table *energy, harpe_error *error) {
    harpe_frequency_value *times = sorted(time);
    harpe_frequency_value *energies = sorted(energy);
    harpe_status status = times && energies
                              ? print_rows(text, result, instruction, times, time->count, energies,
                                           energy->count, error)
                              : harpe_fail_memory(error);
    free(times);
    free(energies);
    return status;
}

harpe_status
harpe_offline_profiling_results_write_csv(const char *path,
                                          const harpe_offline_profiling_result *results,
                                          size_t count, harpe_error *error) {
    size_t path_length = strlen(path);
    if (path_length < 4 || strcmp(path + path_length - 4, ".csv") != 0)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "%s: the name must end in .csv", path);
    harpe_text text = {0};
    harpe_status status = HARPE_OK;
    harpe_write_raw(&text,
                    "rank,dp_rank,pp_rank,tp_rank,stage,instruction,frequency,time,energy\n");
    for (size_t i = 0; i < count && status == HARPE_OK; i++) {
        table tables[TABLE_COUNT];
        tables_of(&results[i], tables);
        status = print_instruction(&text, &results[i], "forward", &tables[0], &tables[1], error);
        if (status != HARPE_OK) break;
        status = print_instruction(&text, &results[i], "backward", &tables[2], &tables[3], error);
    }
    if (status == HARPE_OK) {
        status = text.failed ? harpe_fail_memory(error)
                             : harpe_file_write(path, text.data, text.length, error);
    }
    harpe_text_free(&text);
    return status;
}
