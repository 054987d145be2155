/* SPDX-License-Identifier: Apache-2.0 */
/* Writes and reads structures by their tables. What is read is checked as a whole before anything
 * changes, even though an earlier server wrote it. */
#include "server/scheduler/builtin.h"

enum { CLOCK_MAX_MHZ = 1000000 };

/* ---- Saving ---------------------------------------------------------------------------------- */

/* jansson frees the value also if it cannot add it. */
void harpe_stored_append(json_t **list, json_t *value) {
    if (json_array_append_new(*list, value) == 0) return;
    json_decref(*list);
    *list = NULL;
}

void harpe_stored_add(json_t **object, const char *name, json_t *value) {
    if (json_object_set_new(*object, name, value) == 0) return;
    json_decref(*object);
    *object = NULL;
}

static size_t size_of(const harpe_stored_member *member) {
    switch (member->kind) {
    case HARPE_STORED_BOOL: return sizeof(bool);
    case HARPE_STORED_INT: return sizeof(int);
    default: return sizeof(double); /* all of 64 bits */
    }
}

static json_t *save_number(harpe_stored_kind kind, const void *at) {
    switch (kind) {
    case HARPE_STORED_BOOL: return json_boolean(*(const bool *)at);
    case HARPE_STORED_INT: return json_integer(*(const int *)at);
    case HARPE_STORED_INT64: return json_integer(*(const int64_t *)at);
    case HARPE_STORED_SIZE: return json_integer((json_int_t) * (const size_t *)at);
    default: return json_real(*(const double *)at);
    }
}

static json_t *save_member(const harpe_stored_member *member, const void *from) {
    const char *at = (const char *)from + member->offset;
    if (member->count == 1) return save_number(member->kind, at);
    json_t *list = json_array();
    for (size_t i = 0; i < member->count; i++)
        harpe_stored_append(&list, save_number(member->kind, at + i * size_of(member)));
    return list;
}

json_t *harpe_stored_save(const harpe_stored *table, const void *from) {
    json_t *object = json_object();
    for (size_t m = 0; m < table->count; m++)
        harpe_stored_add(&object, table->members[m].name, save_member(&table->members[m], from));
    return object;
}

json_t *harpe_stored_save_row(const harpe_stored *table, const void *from) {
    json_t *row = json_array();
    for (size_t m = 0; m < table->count; m++)
        harpe_stored_append(&row, save_member(&table->members[m], from));
    return row;
}

json_t *harpe_stored_save_rows(const harpe_stored *table, const void *first, size_t count) {
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        harpe_stored_append(&list,
                            harpe_stored_save_row(table, (const char *)first + i * table->size));
    return list;
}

json_t *harpe_stored_save_clocks(const int *mhz, size_t count) {
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        harpe_stored_append(&list, json_integer(mhz[i]));
    return list;
}

/* ---- Loading --------------------------------------------------------------------------------- */

/* load_number and load_member only check the JSON if there is no place for the number. */

static bool load_number(const harpe_stored_member *member, void *at, const json_t *saved) {
    bool is_double = member->kind == HARPE_STORED_DOUBLE;
    if (member->kind == HARPE_STORED_BOOL) {
        if (at) *(bool *)at = json_is_true(saved);
        return json_is_boolean(saved);
    }
    double value = json_number_value(saved);
    if (!(is_double ? json_is_number(saved) : json_is_integer(saved)) ||
        !(value >= member->bounds[0] && value <= member->bounds[1]))
        return false;
    if (!at) return true;
    json_int_t whole = json_integer_value(saved);
    switch (member->kind) {
    case HARPE_STORED_INT: *(int *)at = (int)whole; break;
    case HARPE_STORED_INT64: *(int64_t *)at = whole; break;
    case HARPE_STORED_SIZE: *(size_t *)at = (size_t)whole; break;
    default: *(double *)at = value; break;
    }
    return true;
}

static bool load_member(const harpe_stored_member *member, void *to, const json_t *saved) {
    char *at = to ? (char *)to + member->offset : NULL;
    if (member->count == 1) return load_number(member, at, saved);
    if (json_array_size(saved) != member->count) return false;
    for (size_t i = 0; i < member->count; i++)
        if (!load_number(member, at ? at + i * size_of(member) : NULL, json_array_get(saved, i)))
            return false;
    return true;
}

bool harpe_stored_load_row(const harpe_stored *table, void *to, const json_t *saved) {
    if (json_array_size(saved) != table->count) return false;
    for (size_t m = 0; m < table->count; m++)
        if (!load_member(&table->members[m], to, json_array_get(saved, m))) return false;
    return true;
}

bool harpe_stored_load_rows(const harpe_stored *table, void *first, size_t count,
                            const json_t *saved) {
    if (!json_is_array(saved) || json_array_size(saved) != count) return false;
    for (size_t i = 0; i < count; i++)
        if (!harpe_stored_load_row(table, (char *)first + i * table->size,
                                   json_array_get(saved, i)))
            return false;
    return true;
}

bool harpe_stored_load(const harpe_stored *table, void *to, const json_t *saved) {
    for (int reads = 0; reads < 2; reads++)
        for (size_t m = 0; m < table->count; m++)
            if (!load_member(&table->members[m], reads ? to : NULL,
                             json_object_get(saved, table->members[m].name)))
                return false;
    return true;
}

bool harpe_stored_load_clocks(int *mhz, size_t count, const json_t *saved) {
    static const harpe_stored_member member = {
        .kind = HARPE_STORED_INT, .count = 1, .bounds = {1, CLOCK_MAX_MHZ}};
    if (!json_is_array(saved) || json_array_size(saved) != count) return false;
    for (size_t i = 0; i < count; i++)
        if (!load_number(&member, &mhz[i], json_array_get(saved, i))) return false;
    return true;
}
