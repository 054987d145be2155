/* SPDX-License-Identifier: Apache-2.0 */
/* The models: JobInfo, RankInfo, FrequencySchedule, ProfilingResult and OfflineProfilingResult. A
 * table of fields describes each of them. Reading, the problems of a wrong document, writing,
 * copying, freeing, and the lists in files follow the tables. Thousands of results arrive each
 * second, so the size of a model is computed first, and then one allocation is filled. */
#include "pfo/models.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"

#define FILE_LIMIT_BYTES ((size_t)1 << 30)

/* ---- The tables ------------------------------------------------------------------------------ */

/* What a field is in JSON, and in C. A list in C is a pointer and a count. */
typedef enum kind {
    INTEGER,    /* of at least `least`; int */
    FLAG,       /* written only if it is true; bool */
    TEXT,       /* const char * */
    INTEGERS,   /* list of integers; int */
    NUMBERS,    /* list of numbers; double */
    PAIRS,      /* list of [name, MHz]; harpe_scheduled_instruction */
    BREAKDOWNS, /* object of lists of lists of numbers, which may be missing; harpe_breakdown */
    CURVE,      /* object of MHz and number; harpe_frequency_value */
    ITERATIONS, /* inside of BREAKDOWNS: a list of lists of numbers; a count and an offset each */
} kind;

typedef struct field {
    const char *name;
    kind kind;
    size_t at, count_at; /* in the struct; `count_at` only for lists */
    int least;           /* of an INTEGER, or of a text's bytes */
    int most;            /* of a text's bytes */
    const char *refusal; /* the problem of a text with another number of bytes; NULL: any number */
    const char *initial; /* a text that is missing; NULL: it may also be null */
    bool is_left_out;    /* a text that is NULL is not written */
    bool is_for_bodies;  /* the refusal is only for the bodies of requests */
    void (*check)(harpe_fields *fields, const harpe_place *here, const void *made); /* or NULL */
} field;

typedef struct model {
    size_t size;         /* of the struct */
    const field *fields; /* in the order of problems and of the text; the last one has no name */
} model;

#define AT(type, member) .at = offsetof(type, member)
#define LIST(type, items, count) AT(type, items), .count_at = offsetof(type, count)
#define COORDINATES(type) \
    {"rank", INTEGER, AT(type, rank)}, {"dp_rank", INTEGER, AT(type, dp_rank)}, \
        {"pp_rank", INTEGER, AT(type, pp_rank)}, { \
        "tp_rank", INTEGER, AT(type, tp_rank) \
    }

static void check_product(harpe_fields *fields, const harpe_place *here, const void *made) {
    const harpe_job_info *job = made;
    int64_t product;
    bool has_degrees =
        job->pp_degree > 0 && job->dp_degree > 0 && job->tp_degree > 0 && job->world_size > 0;
    if (!has_degrees || (!__builtin_mul_overflow((int64_t)job->pp_degree * job->dp_degree,
                                                 job->tp_degree, &product) &&
                         product == job->world_size))
        return;
    harpe_fields_problem(fields, here, "assertion_error",
                         "world_size must be pp_degree * dp_degree * tp_degree");
}

static const field JOB_FIELDS[] = {
    {"job_id", TEXT, AT(harpe_job_info, job_id), .initial = "",
     .refusal = "job_id must be empty: the server chooses it", .is_for_bodies = true},
    {"pp_degree", INTEGER, AT(harpe_job_info, pp_degree), .least = 1},
    {"dp_degree", INTEGER, AT(harpe_job_info, dp_degree), .least = 1},
    {"tp_degree", INTEGER, AT(harpe_job_info, tp_degree), .least = 1},
    {"world_size", INTEGER, AT(harpe_job_info, world_size), .least = 1, .check = check_product},
    {"job_metadata", TEXT, AT(harpe_job_info, job_metadata)},
    {"job_key", TEXT, AT(harpe_job_info, job_key), .is_left_out = true, .least = 1, .most = 256,
     .refusal = "job_key must have 1 to 256 bytes"},
    {0},
};

static const field RANK_FIELDS[] = {
    COORDINATES(harpe_rank_info),
    {"available_frequencies", INTEGERS,
     LIST(harpe_rank_info, available_frequencies_mhz, available_frequency_count)},
    {0},
};

static const field SCHEDULE_FIELDS[] = {
    {"rank", INTEGER, AT(harpe_frequency_schedule, rank)},
    {"frequencies", PAIRS, LIST(harpe_frequency_schedule, instructions, instruction_count)},
    {"trial", FLAG, AT(harpe_frequency_schedule, is_trial)},
    {0},
};

static const field RESULT_FIELDS[] = {
    {"rank", INTEGER, AT(harpe_profiling_result, rank)},
    {"iter_time", NUMBERS, LIST(harpe_profiling_result, iteration_time_s, iteration_time_count)},
    {"iter_energy", NUMBERS,
     LIST(harpe_profiling_result, iteration_energy_j, iteration_energy_count)},
    {"time_breakdown", BREAKDOWNS,
     LIST(harpe_profiling_result, time_breakdown, time_breakdown_count)},
    {"energy_breakdown", BREAKDOWNS,
     LIST(harpe_profiling_result, energy_breakdown, energy_breakdown_count)},
    {0},
};

static const field OFFLINE_RESULT_FIELDS[] = {
    COORDINATES(harpe_offline_profiling_result),
    {"forward_time", CURVE,
     LIST(harpe_offline_profiling_result, forward_time_s, forward_time_count)},
    {"forward_energy", CURVE,
     LIST(harpe_offline_profiling_result, forward_energy_j, forward_energy_count)},
    {"backward_time", CURVE,
     LIST(harpe_offline_profiling_result, backward_time_s, backward_time_count)},
    {"backward_energy", CURVE,
     LIST(harpe_offline_profiling_result, backward_energy_j, backward_energy_count)},
    {0},
};

static const model JOB = {sizeof(harpe_job_info), JOB_FIELDS};
static const model RANK = {sizeof(harpe_rank_info), RANK_FIELDS};
static const model SCHEDULE = {sizeof(harpe_frequency_schedule), SCHEDULE_FIELDS};
static const model RESULT = {sizeof(harpe_profiling_result), RESULT_FIELDS};
static const model OFFLINE_RESULT = {sizeof(harpe_offline_profiling_result), OFFLINE_RESULT_FIELDS};

/* ---- One allocation -------------------------------------------------------------------------- */

/* The memory of a model's lists and texts. The first list or text of its table begins it, so
 * freeing this one frees all. Without `bytes`, only the size is computed. */
typedef struct room {
    char *bytes;
    size_t used;
} room;

static size_t rounded(size_t bytes) { return (bytes + 7) & ~(size_t)7; }

static void *take(room *r, size_t bytes) {
    void *taken = r->bytes ? r->bytes + r->used : NULL;
    r->used += rounded(bytes);
    return taken;
}

static void *put(room *r, const void *from, size_t bytes) {
    void *taken = take(r, bytes);
    if (taken && bytes > 0) memcpy(taken, from, bytes);
    return taken;
}

static const char *put_text(room *r, const char *text, size_t length) {
    char *copy = take(r, length + 1);
    if (copy) {
        memcpy(copy, text, length);
        copy[length] = '\0';
    }
    return copy;
}

/* Allocates the computed size. */
static bool make_room(room *r) {
    r->bytes = malloc(r->used > 0 ? r->used : 1);
    r->used = 0;
    return r->bytes;
}

static const size_t ELEMENT_BYTES[] = {
    [TEXT] = 1,
    [INTEGERS] = sizeof(int),
    [NUMBERS] = sizeof(double),
    [PAIRS] = sizeof(harpe_scheduled_instruction),
    [BREAKDOWNS] = sizeof(harpe_breakdown),
    [CURVE] = sizeof(harpe_frequency_value),
    [ITERATIONS] = 2 * sizeof(size_t),
};

static bool is_list(const field *it) { return it->kind >= INTEGERS; }

static bool is_required(const field *it) {
    return it->kind != FLAG && it->kind != TEXT && it->kind != BREAKDOWNS;
}

/* Returns where the list or text of a field is. */
static const void **pointer_at(void *made, const field *it) {
    return (const void **)(void *)((char *)made + it->at);
}

static const void *pointer_of(const void *from, const field *it) {
    return *pointer_at((void *)from, it);
}

static size_t count_of(const void *from, const field *it) {
    return is_list(it) ? *(const size_t *)(const void *)((const char *)from + it->count_at) : 0;
}

static void set_pointer(void *made, const field *it, const void *pointer, size_t count) {
    *pointer_at(made, it) = pointer;
    if (is_list(it)) *(size_t *)(void *)((char *)made + it->count_at) = count;
}

/* Returns where the first list or text is, which begins the allocation. */
static const void **block_of(const model *which, void *made) {
    const field *first = which->fields;
    while (first->kind < TEXT)
        first++;
    return pointer_at(made, first);
}

static void free_model(const model *which, void *made) {
    free((void *)*block_of(which, made));
    memset(made, 0, which->size);
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* A text has room for at least 8 bytes, so "False" also fits in place of false. */
static size_t text_bytes(const harpe_json *json, size_t node) {
    size_t length = 0;
    if (harpe_json_kind_of(json, node) < HARPE_JSON_LIST)
        (void)harpe_json_bytes(json, node, &length);
    return rounded(length + 1);
}

static harpe_json_kind container_of(kind which) {
    return which == BREAKDOWNS || which == CURVE ? HARPE_JSON_OBJECT : HARPE_JSON_LIST;
}

/* Returns an upper limit for the memory of a value. Adds no problems, because they must come in the
 * order of the fields. */
static size_t bytes_at_most(const harpe_json *json, size_t node, kind which) {
    if (which == TEXT) return text_bytes(json, node);
    if (node == 0 || which < TEXT || harpe_json_kind_of(json, node) != container_of(which))
        return 0;
    size_t bytes = rounded(json->nodes[node].held.count * ELEMENT_BYTES[which]);
    if (which != PAIRS && which != BREAKDOWNS && which != ITERATIONS) return bytes;
    for (size_t item = node + 1; item < json->nodes[node].held.end;
         item = harpe_json_next(json, item)) {
        if (which == PAIRS) {
            bytes += bytes_at_most(json, item, ITERATIONS) > 0 ? text_bytes(json, item + 1) : 0;
        } else if (which == BREAKDOWNS) {
            bytes += text_bytes(json, item++);
            bytes += bytes_at_most(json, item, ITERATIONS);
        } else {
            bytes += bytes_at_most(json, item, NUMBERS);
        }
    }
    return bytes;
}

static bool is_pair(harpe_fields *fields, size_t node, const harpe_place *place) {
    const harpe_json *json = fields->json;
    if (harpe_json_kind_of(json, node) == HARPE_JSON_NULL)
        return harpe_value_is(fields, node, place, HARPE_JSON_LIST);
    if (harpe_json_kind_of(json, node) != HARPE_JSON_LIST)
        return harpe_fields_problem(fields, place, "type_error.tuple",
                                    "value is not a valid tuple");
    unsigned count = json->nodes[node].held.count;
    if (count == 2) return true;
    char message[64];
    (void)snprintf(message, sizeof message, "wrong tuple length %u, expected 2", count);
    return harpe_fields_problem_context(
        fields, place, "value_error.tuple.length", message,
        json_pack("{s:I, s:i}", "actual_length", (json_int_t)count, "expected_length", 2));
}

static void read_pair(harpe_fields *fields, size_t pair, const harpe_place *place, room *r,
                      harpe_scheduled_instruction *out) {
    harpe_slice name = {"", 0};
    *out = (harpe_scheduled_instruction){0};
    if (!is_pair(fields, pair, place)) return;
    harpe_place name_place = harpe_place_item(place, 0);
    harpe_place frequency_place = harpe_place_item(place, 1);
    (void)harpe_value_text(fields, pair + 1, &name_place, &name);
    (void)harpe_value_int(fields, harpe_json_next(fields->json, pair + 1), &frequency_place,
                          INT_MIN, &out->frequency_mhz);
    out->instruction = put_text(r, name.bytes, name.length);
}

/* Reads the elements of a list. */
static void *read_list(harpe_fields *fields, size_t list, const harpe_place *place, kind which,
                       room *r) {
    size_t count = fields->json->nodes[list].held.count, node = list + 1;
    char *items = take(r, count * ELEMENT_BYTES[which]);
    memset(items, 0, count * ELEMENT_BYTES[which]);
    for (size_t i = 0; i < count; i++) {
        harpe_place here = harpe_place_item(place, i);
        void *out = items + i * ELEMENT_BYTES[which];
        if (which == NUMBERS)
            (void)harpe_value_double(fields, node, &here, out);
        else if (which == INTEGERS)
            (void)harpe_value_int(fields, node, &here, INT_MIN, out);
        else
            read_pair(fields, node, &here, r, out);
        node = harpe_json_next(fields->json, node);
    }
    return items;
}

static void read_breakdown(harpe_fields *fields, size_t list, const harpe_place *place, room *r,
                           harpe_breakdown *out) {
    if (!harpe_value_is(fields, list, place, HARPE_JSON_LIST)) return;
    size_t count = fields->json->nodes[list].held.count, node = list + 1;
    size_t *counts = take(r, count * sizeof *counts);
    size_t *offsets = take(r, count * sizeof *offsets);
    const double *values = take(r, 0);
    for (size_t i = 0; i < count; i++) {
        harpe_place here = harpe_place_item(place, i);
        counts[i] = 0;
        offsets[i] = (size_t)((const double *)take(r, 0) - values);
        if (harpe_value_is(fields, node, &here, HARPE_JSON_LIST)) {
            counts[i] = fields->json->nodes[node].held.count;
            (void)read_list(fields, node, &here, NUMBERS, r);
        }
        node = harpe_json_next(fields->json, node);
    }
    *out = (harpe_breakdown){out->instruction, count, counts, offsets, values};
}

/* Reads the members of an object. A name that occurs again replaces the earlier value. */
static void *read_object(harpe_fields *fields, size_t object, const harpe_place *place, kind which,
                         room *r, size_t *count) {
    harpe_json_pair *pairs;
    if (!harpe_json_pairs(fields->json, object, &pairs, count)) {
        fields->problems->out_of_memory = true;
        return NULL;
    }
    char *items = take(r, *count * ELEMENT_BYTES[which]);
    memset(items, 0, *count * ELEMENT_BYTES[which]);
    for (size_t i = 0; i < *count; i++) {
        size_t length;
        const char *key = harpe_json_bytes(fields->json, pairs[i].key, &length);
        harpe_place here = harpe_place_member(place, key, length);
        if (which == BREAKDOWNS) {
            harpe_breakdown *out = (harpe_breakdown *)(void *)items + i;
            out->instruction = put_text(r, key, length);
            read_breakdown(fields, pairs[i].value, &here, r, out);
            continue;
        }
        harpe_frequency_value *out = (harpe_frequency_value *)(void *)items + i;
        harpe_place key_place = harpe_place_member(place, "__key__", strlen("__key__"));
        (void)harpe_value_int(fields, pairs[i].key, &key_place, 0, &out->frequency_mhz);
        (void)harpe_value_double(fields, pairs[i].value, &here, &out->value);
    }
    free(pairs);
    return items;
}

static bool read_flag(harpe_fields *fields, size_t node, const harpe_place *place) {
    harpe_json_kind held = harpe_json_kind_of(fields->json, node);
    if (node == 0 || held == HARPE_JSON_FALSE || held == HARPE_JSON_TRUE)
        return node != 0 && held == HARPE_JSON_TRUE;
    return harpe_fields_problem(fields, place, "type_error.bool",
                                "value could not be parsed to a boolean");
}

static const char *read_text(harpe_fields *fields, size_t node, const harpe_place *place,
                             const field *it, bool is_body, room *r) {
    harpe_slice text = {it->initial, 0};
    bool is_null =
        node != 0 && !it->initial && harpe_json_kind_of(fields->json, node) == HARPE_JSON_NULL;
    if (node != 0 && !is_null && !harpe_value_text(fields, node, place, &text)) return NULL;
    if (text.bytes && it->refusal && (is_body || !it->is_for_bodies) &&
        (text.length < (size_t)it->least || text.length > (size_t)it->most))
        harpe_fields_problem(fields, place, "assertion_error", it->refusal);
    return text.bytes ? put_text(r, text.bytes, text.length) : NULL;
}

static void read_field(harpe_fields *fields, size_t object, const harpe_place *place,
                       const field *it, bool is_body, room *r, void *made) {
    harpe_place here = harpe_place_member(place, it->name, strlen(it->name));
    size_t node = harpe_fields_find(fields, object, &here, is_required(it)), count = 0;
    const void *items = take(r, 0);
    switch (it->kind) {
    case INTEGER:
        if (node != 0)
            (void)harpe_value_int(fields, node, &here, it->least,
                                  (int *)(void *)((char *)made + it->at));
        if (it->check) it->check(fields, &here, made);
        return;
    case FLAG: *((bool *)made + it->at) = read_flag(fields, node, &here); return;
    case TEXT: items = read_text(fields, node, &here, it, is_body, r); break;
    default:
        if (node == 0 || !harpe_value_is(fields, node, &here, container_of(it->kind))) break;
        count = fields->json->nodes[node].held.count;
        items = container_of(it->kind) == HARPE_JSON_LIST
                    ? read_list(fields, node, &here, it->kind, r)
                    : read_object(fields, node, &here, it->kind, r, &count);
    }
    set_pointer(made, it, items, count);
}

/* What read_model reads, and where. */
typedef struct target {
    const model *which;
    void *out;
    bool is_body;
} target;

static void read_model(harpe_fields *fields, size_t object, const harpe_place *place, void *user) {
    const target *self = user;
    union {
        harpe_job_info job;
        harpe_rank_info rank;
        harpe_frequency_schedule schedule;
        harpe_profiling_result result;
        harpe_offline_profiling_result offline_result;
    } made = {0};
    room r = {0};
    if (!harpe_value_is(fields, object, place, HARPE_JSON_OBJECT)) return;
    for (const field *it = self->which->fields; it->name; it++)
        r.used += bytes_at_most(fields->json, harpe_json_member(fields->json, object, it->name),
                                it->kind);
    if (!make_room(&r)) {
        fields->problems->out_of_memory = true;
        return;
    }
    for (const field *it = self->which->fields; it->name; it++)
        read_field(fields, object, place, it, self->is_body, &r, &made);
    if (fields->has_failed || fields->problems->out_of_memory) {
        free(r.bytes);
        return;
    }
    memcpy(self->out, &made, self->which->size);
    *block_of(self->which, self->out) = r.bytes;
}

static bool decode_body(const model *which, const char *body, size_t length, void *out,
                        harpe_problems *problems) {
    target self = {which, out, true};
    return harpe_body_decode(body, length, read_model, &self, problems);
}

static harpe_status parse(const model *which, const char *json, size_t length, void *out,
                          harpe_error *error) {
    target self = {which, out, false};
    return harpe_text_decode(json, length, read_model, &self, error);
}

/* ---- Copying --------------------------------------------------------------------------------- */

static const harpe_breakdown *copy_breakdowns(const harpe_breakdown *from, size_t count, room *r) {
    harpe_breakdown *copies = put(r, from, count * sizeof *copies);
    for (size_t i = 0; i < count; i++) {
        size_t iterations = from[i].iteration_count;
        harpe_breakdown copy = {put_text(r, from[i].instruction, strlen(from[i].instruction)),
                                iterations, put(r, from[i].counts, iterations * sizeof(size_t)),
                                NULL, NULL};
        size_t *offsets = take(r, iterations * sizeof *offsets);
        copy.offsets = offsets;
        copy.values = take(r, 0);
        for (size_t k = 0; k < iterations; k++) {
            const double *values =
                put(r, from[i].values + from[i].offsets[k], from[i].counts[k] * sizeof *values);
            if (offsets) offsets[k] = (size_t)(values - copy.values);
        }
        if (copies) copies[i] = copy;
    }
    return copies;
}

/* Copies the lists and texts, or computes their size if the room has no memory yet. */
static void copy_fields(const model *which, const void *from, room *r, void *made) {
    for (const field *it = which->fields; it->name; it++) {
        const void *pointer = it->kind >= TEXT ? pointer_of(from, it) : NULL;
        size_t count = count_of(from, it);
        if (it->kind == TEXT) {
            const char *text = pointer ? pointer : it->initial;
            pointer = text ? put_text(r, text, strlen(text)) : NULL;
        } else if (it->kind == PAIRS) {
            const harpe_scheduled_instruction *pairs = pointer;
            harpe_scheduled_instruction *copies = put(r, pairs, count * sizeof *copies);
            for (size_t i = 0; i < count; i++) {
                const char *name = put_text(r, pairs[i].instruction, strlen(pairs[i].instruction));
                if (copies) copies[i].instruction = name;
            }
            pointer = copies;
        } else if (it->kind == BREAKDOWNS) {
            pointer = copy_breakdowns(pointer, count, r);
        } else if (is_list(it)) {
            pointer = put(r, pointer, count * ELEMENT_BYTES[it->kind]);
        }
        if (made && it->kind >= TEXT) set_pointer(made, it, pointer, count);
    }
}

static harpe_status copy_model(const model *which, const void *from, void *to, harpe_error *error) {
    room r = {0};
    copy_fields(which, from, &r, NULL);
    if (!make_room(&r)) return harpe_fail_memory(error);
    memmove(to, from, which->size);
    copy_fields(which, from, &r, to);
    *block_of(which, to) = r.bytes;
    return HARPE_OK;
}

/* ---- Writing --------------------------------------------------------------------------------- */

static void write_numbers(harpe_text *text, const double *values, size_t count) {
    harpe_json_raw(text, "[");
    for (size_t i = 0; i < count; i++) {
        harpe_json_raw(text, i > 0 ? "," : "");
        harpe_text_number(text, values[i]);
    }
    harpe_json_raw(text, "]");
}

static void write_breakdown(harpe_text *text, const harpe_breakdown *one) {
    harpe_json_text(text, "", one->instruction);
    harpe_json_raw(text, ":[");
    for (size_t k = 0; k < one->iteration_count; k++) {
        harpe_json_raw(text, k > 0 ? "," : "");
        write_numbers(text, one->values + one->offsets[k], one->counts[k]);
    }
    harpe_json_raw(text, "]");
}

/* Writes an element of a list. */
static void write_item(harpe_text *text, const field *it, const void *items, size_t i) {
    const void *item = (const char *)items + i * ELEMENT_BYTES[it->kind];
    const harpe_scheduled_instruction *pair = item;
    const harpe_frequency_value *point = item;
    harpe_json_raw(text, i > 0 ? "," : "");
    switch (it->kind) {
    case INTEGERS: harpe_json_int(text, "", *(const int *)item); return;
    case BREAKDOWNS: write_breakdown(text, item); return;
    case PAIRS:
        harpe_json_text(text, "[", pair->instruction ? pair->instruction : "");
        harpe_json_int(text, ",", pair->frequency_mhz);
        harpe_json_raw(text, "]");
        return;
    default:
        harpe_json_int(text, "\"", point->frequency_mhz);
        harpe_json_raw(text, "\":");
        harpe_text_number(text, point->value);
    }
}

static void write_field(harpe_text *text, const field *it, const void *from) {
    const void *member = (const char *)from + it->at;
    const void *pointer = it->kind >= TEXT ? pointer_of(from, it) : NULL;
    if ((it->kind == FLAG && !*(const bool *)member) || (it->is_left_out && !pointer)) return;
    harpe_text_printf(text, "%s\"%s\":", text->data[text->length - 1] == '{' ? "" : ",", it->name);
    switch (it->kind) {
    case INTEGER: harpe_json_int(text, "", *(const int *)member); return;
    case FLAG: harpe_json_raw(text, "true"); return;
    case TEXT: harpe_json_text(text, "", pointer ? pointer : it->initial); return;
    case NUMBERS: write_numbers(text, pointer, count_of(from, it)); return;
    default: break;
    }
    bool is_object = container_of(it->kind) == HARPE_JSON_OBJECT;
    harpe_json_raw(text, is_object ? "{" : "[");
    for (size_t i = 0; i < count_of(from, it); i++)
        write_item(text, it, pointer, i);
    harpe_json_raw(text, is_object ? "}" : "]");
}

static void write_model(const model *which, harpe_text *text, const void *from) {
    harpe_json_raw(text, "{");
    for (const field *it = which->fields; it->name && !text->failed; it++)
        write_field(text, it, from);
    harpe_json_raw(text, "}");
}

static harpe_status format(const model *which, const void *from, char **json, harpe_error *error) {
    harpe_text text = {0};
    write_model(which, &text, from);
    *json = harpe_text_take(&text);
    return *json ? HARPE_OK : harpe_fail_memory(error);
}

/* ---- OpenAPI --------------------------------------------------------------------------------- */

static json_t *schema_of_text(const field *it) {
    json_t *made = it->initial ? json_pack("{s:s, s:s}", "type", "string", "default", it->initial)
                               : json_pack("{s:[s, s]}", "type", "string", "null");
    if (it->refusal && it->least > 0)
        json_object_set_new(made, "minLength", json_integer(it->least));
    if (it->refusal) json_object_set_new(made, "maxLength", json_integer(it->most));
    return made;
}

static json_t *schema_of_field(const field *it) {
    switch (it->kind) {
    case INTEGER: return json_pack("{s:s, s:i}", "type", "integer", "minimum", it->least);
    case TEXT: return schema_of_text(it);
    case INTEGERS: return json_pack("{s:s, s:{s:s}}", "type", "array", "items", "type", "integer");
    case NUMBERS: return json_pack("{s:s, s:{s:s}}", "type", "array", "items", "type", "number");
    case BREAKDOWNS: return json_pack("{s:s}", "$ref", "#/components/schemas/Breakdown");
    case PAIRS:
        return json_pack("{s:s, s:{s:s, s:i, s:i, s:[{s:s}, {s:s}]}}", "type", "array", "items",
                         "type", "array", "minItems", 2, "maxItems", 2, "prefixItems", "type",
                         "string", "type", "integer");
    default: return NULL; /* clients neither send nor read it */
    }
}

static json_t *schema_of(const model *which) {
    json_t *required = json_array(), *properties = json_object();
    for (const field *it = which->fields; it->name; it++) {
        if (is_required(it)) json_array_append_new(required, json_string(it->name));
        json_object_set_new(properties, it->name, schema_of_field(it));
    }
    return json_pack("{s:s, s:o, s:o}", "type", "object", "required", required, "properties",
                     properties);
}

json_t *harpe_model_schemas(void) {
    return json_pack("{s:o, s:o, s:o, s:o}", "JobInfo", schema_of(&JOB), "RankInfo",
                     schema_of(&RANK), "FrequencySchedule", schema_of(&SCHEDULE), "ProfilingResult",
                     schema_of(&RESULT));
}

/* ---- Lists in files: written completely or not at all ---------------------------------------- */

static void format_list(const model *which, const void *items, size_t count, harpe_text *text) {
    harpe_json_raw(text, "[");
    for (size_t i = 0; i < count; i++) {
        harpe_json_raw(text, i > 0 ? ",\n" : "");
        write_model(which, text, (const char *)items + i * which->size);
    }
    harpe_json_raw(text, "]\n");
}

static harpe_status save(const model *which, const char *path, const void *items, size_t count,
                         harpe_error *error) {
    harpe_text text = {0};
    format_list(which, items, count, &text);
    harpe_status status = text.failed ? harpe_fail_memory(error)
                                      : harpe_file_write(path, text.data, text.length, error);
    harpe_text_free(&text);
    return status;
}

static void free_list(const model *which, void *items, size_t count) {
    for (size_t i = 0; i < count && items; i++)
        free_model(which, (char *)items + i * which->size);
    free(items);
}

typedef struct list {
    const model *which;
    char *items;
    size_t count;
} list;

/* Reads the list: the root, or the value of "__root__" in an object. */
static void read_models(harpe_fields *fields, size_t root, const harpe_place *place, void *user) {
    list *self = user;
    if (harpe_json_kind_of(fields->json, root) == HARPE_JSON_OBJECT)
        root = harpe_json_member(fields->json, root, "__root__");
    if (!harpe_value_is(fields, root, place, HARPE_JSON_LIST)) return;
    self->count = fields->json->nodes[root].held.count;
    self->items = harpe_calloc(self->count, self->which->size);
    fields->problems->out_of_memory = !self->items;
    size_t node = root + 1;
    for (size_t i = 0; i < self->count && self->items; i++) {
        harpe_place here = harpe_place_item(place, i);
        target item = {self->which, self->items + i * self->which->size, false};
        read_model(fields, node, &here, &item);
        node = harpe_json_next(fields->json, node);
    }
}

/* Loads a list. `items` is the address of a pointer to models. */
static harpe_status load(const model *which, const char *path, void *items, size_t *count,
                         harpe_error *error) {
    list made = {.which = which};
    harpe_error reason;
    char *text;
    size_t length;
    harpe_status status = harpe_file_read(path, FILE_LIMIT_BYTES, &text, &length, error);
    if (status != HARPE_OK) return status;
    status = harpe_text_decode(text, length, read_models, &made, &reason);
    free(text);
    if (status != HARPE_OK) {
        free_list(which, made.items, made.count);
        return harpe_fail(error, status, "%s: %s", path, reason.message);
    }
    *(void **)items = made.items;
    *count = made.count;
    return HARPE_OK;
}

/* ---- JobInfo --------------------------------------------------------------------------------- */

bool harpe_job_info_decode(const char *body, size_t length, harpe_job_info *out,
                           harpe_problems *problems) {
    return decode_body(&JOB, body, length, out, problems);
}

harpe_status harpe_job_info_parse(const char *json, size_t length, harpe_job_info *out,
                                  harpe_error *error) {
    return parse(&JOB, json, length, out, error);
}

harpe_status harpe_job_info_format(const harpe_job_info *job, char **json, harpe_error *error) {
    return format(&JOB, job, json, error);
}

harpe_status harpe_job_info_copy(const harpe_job_info *from, harpe_job_info *to,
                                 harpe_error *error) {
    return copy_model(&JOB, from, to, error);
}

void harpe_job_info_free(harpe_job_info *job) { free_model(&JOB, job); }

/* ---- RankInfo -------------------------------------------------------------------------------- */

bool harpe_rank_info_decode(const char *body, size_t length, harpe_rank_info *out,
                            harpe_problems *problems) {
    return decode_body(&RANK, body, length, out, problems);
}

harpe_status harpe_rank_info_parse(const char *json, size_t length, harpe_rank_info *out,
                                   harpe_error *error) {
    return parse(&RANK, json, length, out, error);
}

harpe_status harpe_rank_info_format(const harpe_rank_info *rank, char **json, harpe_error *error) {
    return format(&RANK, rank, json, error);
}

harpe_status harpe_rank_info_copy(const harpe_rank_info *from, harpe_rank_info *to,
                                  harpe_error *error) {
    return copy_model(&RANK, from, to, error);
}

void harpe_rank_info_free(harpe_rank_info *rank) { free_model(&RANK, rank); }

void harpe_ranks_format(const harpe_rank_info *ranks, size_t count, harpe_text *text) {
    format_list(&RANK, ranks, count, text);
}

harpe_status harpe_ranks_save(const char *path, const harpe_rank_info *ranks, size_t count,
                              harpe_error *error) {
    return save(&RANK, path, ranks, count, error);
}

harpe_status harpe_ranks_load(const char *path, harpe_rank_info **ranks, size_t *count,
                              harpe_error *error) {
    return load(&RANK, path, ranks, count, error);
}

void harpe_ranks_free(harpe_rank_info *ranks, size_t count) { free_list(&RANK, ranks, count); }

bool harpe_rank_info_fits(const harpe_rank_info *rank, const harpe_job_info *job,
                          harpe_problems *problems) {
    const struct {
        const char *name;
        int value, limit;
        const char *message;
    } coordinates[] = {
        {"rank", rank->rank, job->world_size, "rank must be below the job's world_size"},
        {"dp_rank", rank->dp_rank, job->dp_degree, "dp_rank must be below the job's dp_degree"},
        {"pp_rank", rank->pp_rank, job->pp_degree, "pp_rank must be below the job's pp_degree"},
        {"tp_rank", rank->tp_rank, job->tp_degree, "tp_rank must be below the job's tp_degree"},
    };
    bool fits = true;
    for (size_t i = 0; i < sizeof coordinates / sizeof *coordinates; i++) {
        if (coordinates[i].value < 0 || coordinates[i].value >= coordinates[i].limit) {
            harpe_problems_add(problems, json_pack("[s, s]", "body", coordinates[i].name),
                               "assertion_error", coordinates[i].message);
            fits = false;
        }
    }
    return fits;
}

bool harpe_rank_info_equal(const harpe_rank_info *a, const harpe_rank_info *b) {
    return a->rank == b->rank && a->dp_rank == b->dp_rank && a->pp_rank == b->pp_rank &&
           a->tp_rank == b->tp_rank &&
           a->available_frequency_count == b->available_frequency_count &&
           (a->available_frequency_count == 0 ||
            memcmp(a->available_frequencies_mhz, b->available_frequencies_mhz,
                   a->available_frequency_count * sizeof(int)) == 0);
}

/* ---- FrequencySchedule ----------------------------------------------------------------------- */

harpe_status harpe_frequency_schedule_parse(const char *json, size_t length,
                                            harpe_frequency_schedule *out, harpe_error *error) {
    return parse(&SCHEDULE, json, length, out, error);
}

harpe_status harpe_frequency_schedule_format(const harpe_frequency_schedule *schedule, char **json,
                                             harpe_error *error) {
    return format(&SCHEDULE, schedule, json, error);
}

harpe_status harpe_frequency_schedule_copy(const harpe_frequency_schedule *from,
                                           harpe_frequency_schedule *to, harpe_error *error) {
    return copy_model(&SCHEDULE, from, to, error);
}

void harpe_frequency_schedule_free(harpe_frequency_schedule *schedule) {
    free_model(&SCHEDULE, schedule);
}

harpe_status harpe_schedules_save(const char *path, const harpe_frequency_schedule *schedules,
                                  size_t count, harpe_error *error) {
    return save(&SCHEDULE, path, schedules, count, error);
}

harpe_status harpe_schedules_load(const char *path, harpe_frequency_schedule **schedules,
                                  size_t *count, harpe_error *error) {
    return load(&SCHEDULE, path, schedules, count, error);
}

void harpe_schedules_free(harpe_frequency_schedule *schedules, size_t count) {
    free_list(&SCHEDULE, schedules, count);
}

/* ---- ProfilingResult ------------------------------------------------------------------------- */

bool harpe_profiling_result_decode(const char *body, size_t length, harpe_profiling_result *out,
                                   harpe_problems *problems) {
    return decode_body(&RESULT, body, length, out, problems);
}

harpe_status harpe_profiling_result_parse(const char *json, size_t length,
                                          harpe_profiling_result *out, harpe_error *error) {
    return parse(&RESULT, json, length, out, error);
}

harpe_status harpe_profiling_result_format(const harpe_profiling_result *result, char **json,
                                           harpe_error *error) {
    return format(&RESULT, result, json, error);
}

harpe_status harpe_profiling_result_copy(const harpe_profiling_result *from,
                                         harpe_profiling_result *to, harpe_error *error) {
    return copy_model(&RESULT, from, to, error);
}

void harpe_profiling_result_free(harpe_profiling_result *result) { free_model(&RESULT, result); }

harpe_status harpe_profiling_results_save(const char *path, const harpe_profiling_result *results,
                                          size_t count, harpe_error *error) {
    return save(&RESULT, path, results, count, error);
}

harpe_status harpe_profiling_results_load(const char *path, harpe_profiling_result **results,
                                          size_t *count, harpe_error *error) {
    return load(&RESULT, path, results, count, error);
}

void harpe_profiling_results_free(harpe_profiling_result *results, size_t count) {
    free_list(&RESULT, results, count);
}

/* ---- OfflineProfilingResult ------------------------------------------------------------------ */

void harpe_offline_profiling_result_free(harpe_offline_profiling_result *result) {
    free_model(&OFFLINE_RESULT, result);
}

harpe_status harpe_offline_profiling_results_save(const char *path,
                                                  const harpe_offline_profiling_result *results,
                                                  size_t count, harpe_error *error) {
    return save(&OFFLINE_RESULT, path, results, count, error);
}

harpe_status harpe_offline_profiling_results_load(const char *path,
                                                  harpe_offline_profiling_result **results,
                                                  size_t *count, harpe_error *error) {
    return load(&OFFLINE_RESULT, path, results, count, error);
}

void harpe_offline_profiling_results_free(harpe_offline_profiling_result *results, size_t count) {
    free_list(&OFFLINE_RESULT, results, count);
}
