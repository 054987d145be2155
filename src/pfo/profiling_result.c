/* SPDX-License-Identifier: Apache-2.0 */
/* ProfilingResult: the measurements of one rank in one round. Thousands arrive each second, so the
 * size of a result is computed first, and then one allocation is filled. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "pfo/documents.h"
#include "pfo/fields.h"
#include "pfo/json_look.h"
#include "pfo/model_reads.h"
#include "pfo/models.h"
#include "pfo/writing.h"

/* ---- One allocation -------------------------------------------------------------------------- */

/* The number of elements of each kind in a result. No count is greater than the number of JSON
 * nodes or bytes that are already in memory, so sums do not overflow. */
typedef struct extent {
    size_t doubles, breakdowns, iterations, name_bytes;
} extent;

/* The first free element of each kind in the allocation. The allocation begins with the doubles of
 * iteration_time_s, so freeing these frees the whole result. */
typedef struct block {
    double *doubles;
    harpe_breakdown *breakdowns;
    size_t *sizes; /* counts and offsets */
    char *names;
} block;

static bool make_block(const extent *needed, block *out) {
    size_t bytes = needed->doubles * sizeof(double) + needed->breakdowns * sizeof(harpe_breakdown) +
                   needed->iterations * 2 * sizeof(size_t) + needed->name_bytes;
    out->doubles = malloc(bytes > 0 ? bytes : 1);
    if (!out->doubles) return false;
    out->breakdowns = (harpe_breakdown *)(void *)(out->doubles + needed->doubles);
    out->sizes = (size_t *)(void *)(out->breakdowns + needed->breakdowns);
    out->names = (char *)(out->sizes + 2 * needed->iterations);
    return true;
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* The instructions of a breakdown, without repeated names. */
typedef struct instructions {
    harpe_json_pair *pairs;
    size_t count;
} instructions;

static size_t count_items(const harpe_json *json, size_t node) {
    bool is_list = harpe_json_kind_of(json, node) == HARPE_JSON_LIST;
    return node != 0 && is_list ? json->nodes[node].held.count : 0;
}

/* Finds a breakdown's instructions, and adds the memory that they need to the extent. Adds no
 * problems, because problems must come in the order of the fields. */
static bool measure_breakdown(const harpe_json *json, size_t object, const char *name,
                              instructions *out, extent *needed) {
    size_t node = harpe_json_member(json, object, name);
    if (node == 0 || harpe_json_kind_of(json, node) != HARPE_JSON_OBJECT) return true;
    if (!harpe_json_pairs(json, node, &out->pairs, &out->count)) return false;
    const harpe_json_pair *pairs = out->pairs;
    needed->breakdowns += out->count;
    for (size_t i = 0; i < out->count; i++) {
        size_t name_length;
        (void)harpe_json_bytes(json, pairs[i].key, &name_length);
        needed->name_bytes += name_length + 1;
        size_t iterations = count_items(json, pairs[i].value);
        needed->iterations += iterations;
        size_t list = pairs[i].value + 1;
        for (size_t k = 0; k < iterations; k++) {
            needed->doubles += count_items(json, list);
            list = harpe_json_next(json, list);
        }
    }
    return true;
}

/* Reads the items of a list of numbers. */
static void read_doubles(harpe_fields *fields, size_t list, const harpe_place *place,
                         double **doubles) {
    size_t count = fields->json->nodes[list].held.count;
    size_t node = list + 1;
    for (size_t i = 0; i < count; i++) {
        harpe_place item = harpe_place_item(place, i);
        (*doubles)[i] = 0;
        (void)harpe_value_double(fields, node, &item, &(*doubles)[i]);
        node = harpe_json_next(fields->json, node);
    }
    *doubles += count;
}

static void read_iterations(harpe_fields *fields, size_t list, const harpe_place *place,
                            block *room, harpe_breakdown *out) {
    size_t count = fields->json->nodes[list].held.count;
    size_t *counts = room->sizes;
    size_t *offsets = counts + count;
    room->sizes += 2 * count;
    *out = (harpe_breakdown){out->instruction, count, counts, offsets, room->doubles};
    size_t node = list + 1;
    for (size_t i = 0; i < count; i++) {
        harpe_place item = harpe_place_item(place, i);
        offsets[i] = (size_t)(room->doubles - out->values);
        counts[i] = 0;
        if (harpe_value_is(fields, node, &item, HARPE_JSON_LIST)) {
            counts[i] = fields->json->nodes[node].held.count;
            read_doubles(fields, node, &item, &room->doubles);
        }
        node = harpe_json_next(fields->json, node);
    }
}

static void read_breakdowns(harpe_fields *fields, size_t object, const harpe_place *place,
                            const char *name, const instructions *found, block *room) {
    harpe_place here = harpe_place_member(place, name, strlen(name));
    if (harpe_member_container(fields, object, place, name, HARPE_JSON_OBJECT, false) == 0) return;
    for (size_t i = 0; i < found->count; i++) {
        harpe_slice key;
        key.bytes = harpe_json_bytes(fields->json, found->pairs[i].key, &key.length);
        harpe_place item = harpe_place_member(&here, key.bytes, key.length);
        harpe_breakdown *out = room->breakdowns++;
        *out = (harpe_breakdown){.instruction = harpe_slice_put(key, &room->names)};
        if (harpe_value_is(fields, found->pairs[i].value, &item, HARPE_JSON_LIST))
            read_iterations(fields, found->pairs[i].value, &item, room, out);
    }
}

static size_t read_list(harpe_fields *fields, size_t object, const harpe_place *place,
                        const char *name, block *room) {
    harpe_place here = harpe_place_member(place, name, strlen(name));
    size_t list = harpe_member_container(fields, object, place, name, HARPE_JSON_LIST, true);
    if (list == 0) return 0;
    read_doubles(fields, list, &here, &room->doubles);
    return fields->json->nodes[list].held.count;
}

/* Reads the members in the order of the model, which is also the order of problems. */
static void read_members(harpe_fields *fields, size_t object, const harpe_place *place,
                         const instructions *times, const instructions *energies, block *room,
                         harpe_profiling_result *out) {
    (void)harpe_member_int(fields, object, place, "rank", 0, &out->rank);
    out->iteration_time_s = room->doubles;
    out->iteration_time_count = read_list(fields, object, place, "iter_time", room);
    out->iteration_energy_j = room->doubles;
    out->iteration_energy_count = read_list(fields, object, place, "iter_energy", room);
    out->time_breakdown = room->breakdowns;
    out->time_breakdown_count = times->count;
    read_breakdowns(fields, object, place, "time_breakdown", times, room);
    out->energy_breakdown = room->breakdowns;
    out->energy_breakdown_count = energies->count;
    read_breakdowns(fields, object, place, "energy_breakdown", energies, room);
}

void harpe_profiling_result_read(harpe_fields *fields, size_t object, const harpe_place *place,
                                 void *out) {
    const harpe_json *json = fields->json;
    harpe_profiling_result result = {0};
    instructions times = {0};
    instructions energies = {0};
    extent needed = {0};
    block room;
    needed.doubles = count_items(json, harpe_json_member(json, object, "iter_time")) +
                     count_items(json, harpe_json_member(json, object, "iter_energy"));
    if (measure_breakdown(json, object, "time_breakdown", &times, &needed) &&
        measure_breakdown(json, object, "energy_breakdown", &energies, &needed) &&
        make_block(&needed, &room))
        read_members(fields, object, place, &times, &energies, &room, &result);
    else
        fields->problems->out_of_memory = true;
    free(times.pairs);
    free(energies.pairs);
    if (fields->has_failed || fields->problems->out_of_memory) {
        harpe_profiling_result_free(&result);
        return;
    }
    *(harpe_profiling_result *)out = result;
}

bool harpe_profiling_result_decode(const char *body, size_t length, harpe_profiling_result *out,
                                   harpe_problems *problems) {
    return harpe_body_decode(body, length, harpe_profiling_result_read, out, problems);
}

harpe_status harpe_profiling_result_parse(const char *json, size_t length,
                                          harpe_profiling_result *out, harpe_error *error) {
    return harpe_text_decode(json, length, harpe_profiling_result_read, out, error);
}

/* ---- Copying --------------------------------------------------------------------------------- */

static size_t value_count(const harpe_breakdown *breakdown) {
    size_t count = 0;
    for (size_t i = 0; i < breakdown->iteration_count; i++)
        count += breakdown->counts[i];
    return count;
}

static void measure_breakdowns(const harpe_breakdown *from, size_t count, extent *needed) {
    needed->breakdowns += count;
    for (size_t i = 0; i < count; i++) {
        needed->doubles += value_count(&from[i]);
        needed->iterations += from[i].iteration_count;
        needed->name_bytes += strlen(from[i].instruction) + 1;
    }
}

static const double *copy_doubles(const double *from, size_t count, block *room) {
    double *copy = room->doubles;
    if (count > 0) memcpy(copy, from, count * sizeof *copy);
    room->doubles += count;
    return copy;
}

static const harpe_breakdown *copy_breakdowns(const harpe_breakdown *from, size_t count,
                                              block *room) {
    const harpe_breakdown *copies = room->breakdowns;
    for (size_t i = 0; i < count; i++) {
        size_t iterations = from[i].iteration_count;
        size_t *counts = room->sizes;
        size_t *offsets = counts + iterations;
        harpe_slice name = {from[i].instruction, strlen(from[i].instruction)};
        room->sizes += 2 * iterations;
        *room->breakdowns++ = (harpe_breakdown){harpe_slice_put(name, &room->names), iterations,
                                                counts, offsets, room->doubles};
        const double *start = room->doubles;
        for (size_t k = 0; k < iterations; k++) {
            counts[k] = from[i].counts[k];
            offsets[k] = (size_t)(room->doubles - start);
            (void)copy_doubles(from[i].values + from[i].offsets[k], counts[k], room);
        }
    }
    return copies;
}

harpe_status harpe_profiling_result_copy(const harpe_profiling_result *from,
                                         harpe_profiling_result *to, harpe_error *error) {
    extent needed = {.doubles = from->iteration_time_count + from->iteration_energy_count};
    harpe_profiling_result result = *from;
    block room;
    measure_breakdowns(from->time_breakdown, from->time_breakdown_count, &needed);
    measure_breakdowns(from->energy_breakdown, from->energy_breakdown_count, &needed);
    if (!make_block(&needed, &room)) return harpe_fail_memory(error);
    result.iteration_time_s =
        copy_doubles(from->iteration_time_s, from->iteration_time_count, &room);
    result.iteration_energy_j =
        copy_doubles(from->iteration_energy_j, from->iteration_energy_count, &room);
    result.time_breakdown =
        copy_breakdowns(from->time_breakdown, from->time_breakdown_count, &room);
    result.energy_breakdown =
        copy_breakdowns(from->energy_breakdown, from->energy_breakdown_count, &room);
    *to = result;
    return HARPE_OK;
}

void harpe_profiling_result_free(harpe_profiling_result *result) {
    free((void *)result->iteration_time_s);
    *result = (harpe_profiling_result){0};
}

/* ---- Writing --------------------------------------------------------------------------------- */

static void write_doubles(harpe_text *text, const char *literal, const double *values,
                          size_t count) {
    harpe_write_raw(text, literal);
    harpe_write_raw(text, "[");
    for (size_t i = 0; i < count; i++) {
        harpe_write_raw(text, i > 0 ? "," : "");
        harpe_text_number(text, values[i]);
    }
    harpe_write_raw(text, "]");
}

static void write_breakdowns(harpe_text *text, const char *literal,
                             const harpe_breakdown *breakdowns, size_t count) {
    harpe_write_raw(text, literal);
    harpe_write_raw(text, "{");
    for (size_t i = 0; i < count; i++) {
        const harpe_breakdown *one = &breakdowns[i];
        harpe_write_text_member(text, i > 0 ? "," : "", one->instruction);
        harpe_write_raw(text, ":[");
        for (size_t k = 0; k < one->iteration_count; k++)
            write_doubles(text, k > 0 ? "," : "", one->values + one->offsets[k], one->counts[k]);
        harpe_write_raw(text, "]");
    }
    harpe_write_raw(text, "}");
}

void harpe_profiling_result_write(harpe_text *text, const void *model) {
    const harpe_profiling_result *result = model;
    harpe_write_int_member(text, "{\"rank\":", result->rank);
    write_doubles(text, ",\"iter_time\":", result->iteration_time_s, result->iteration_time_count);
    write_doubles(text, ",\"iter_energy\":", result->iteration_energy_j,
                  result->iteration_energy_count);
    write_breakdowns(text, ",\"time_breakdown\":", result->time_breakdown,
                     result->time_breakdown_count);
    write_breakdowns(text, ",\"energy_breakdown\":", result->energy_breakdown,
                     result->energy_breakdown_count);
    harpe_write_raw(text, "}");
}

harpe_status harpe_profiling_result_format(const harpe_profiling_result *result, char **json,
                                           harpe_error *error) {
    harpe_text text = {0};
    harpe_profiling_result_write(&text, result);
    return harpe_write_end(&text, json, error);
}
