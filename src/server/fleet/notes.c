/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes the fleet's notes. */
#include "server/fleet/fleet_state.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"

void harpe_fleet_note_clear(harpe_fleet_note *note) {
    free(note->key);
    free(note->text);
    *note = (harpe_fleet_note){0};
}

/* ---- Reading values -------------------------------------------------------------------------- */

static double number_of(const json_t *object, const char *name, double otherwise) {
    const json_t *value = json_object_get(object, name);
    return json_is_number(value) ? json_number_value(value) : otherwise;
}

static void copy_text(const json_t *object, const char *name, char *into, size_t size) {
    const char *text = json_string_value(json_object_get(object, name));
    (void)snprintf(into, size, "%s", text ? text : "");
}

/* A number of a note, which is a member of a struct. */
typedef struct number_field {
    const char *name;
    size_t offset;
    double absent;
} number_field;

static void read_numbers(const json_t *object, const number_field *fields, size_t count,
                         void *into) {
    for (size_t i = 0; i < count; i++) {
        double value = number_of(object, fields[i].name, fields[i].absent);
        memcpy((char *)into + fields[i].offset, &value, sizeof value);
    }
}

/* Returns a JSON number, or null if `value` is not finite. */
static json_t *number_json(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

/* Returns an object with the numbers. */
static json_t *numbers_json(const number_field *fields, size_t count, const void *from) {
    json_t *object = json_object();
    for (size_t i = 0; i < count; i++) {
        double value;
        memcpy(&value, (const char *)from + fields[i].offset, sizeof value);
        json_object_set_new(object, fields[i].name, number_json(value));
    }
    return object;
}

#define COUNT(fields) (sizeof(fields) / sizeof *(fields))

#define EVENT(member) offsetof(harpe_fleet_event, member)
static const number_field event_fields[] = {
    {"posted", EVENT(posted_s), 0},       {"from", EVENT(from_s), 0},
    {"duration_s", EVENT(duration_s), 0}, {"notice_s", EVENT(notice_s), 0},
    {"ramp_s", EVENT(ramp_s), 0},         {"watts", EVENT(watts), NAN},
    {"share", EVENT(share), NAN},         {"base_w", EVENT(base_w), 0},
    {"promised_w", EVENT(promised_w), 0}, {"missing_w", EVENT(missing_w), 0},
    {"cancelled", EVENT(cancelled_s), 0}, {"reached", EVENT(reached_s), 0},
    {"highest_w", EVENT(highest_w), -1},
};

#define ENERGY(member) offsetof(harpe_fleet_energy, member)
static const number_field energy_fields[] = {
    {"since", ENERGY(since_s), 0},
    {"used_j", ENERGY(used_j), 0},
    {"saved_j", ENERGY(saved_j), 0},
    {"cost", ENERGY(cost), 0},
    {"cost_saved", ENERGY(cost_saved), 0},
    {"carbon_kg", ENERGY(carbon_kg), 0},
    {"carbon_kg_saved", ENERGY(carbon_kg_saved), 0},
    {"gone_variance", ENERGY(gone_variance), 0},
};

#define MEMBER(name) offsetof(harpe_member, name)
static const number_field cap_fields[] = {{"cap_w", MEMBER(cap_w), INFINITY},
                                          {"most_w", MEMBER(most_w), INFINITY},
                                          {"scale", MEMBER(scale), 1},
                                          {"unplanned_w", MEMBER(unplanned_w), 0}};

static harpe_member_terms terms_of(const json_t *object) {
    harpe_member_terms terms = {.has_group = json_is_string(json_object_get(object, "group"))};
    for (size_t i = 0; i < HARPE_TERM_COUNT; i++)
        *harpe_term_in(&terms, &harpe_terms[i]) = number_of(object, harpe_terms[i].name, NAN);
    copy_text(object, "group", terms.group, sizeof terms.group);
    return terms;
}

/* Returns plans of a list of objects with time and power. NULL: there is none, or no memory. */
static harpe_fleet_plan *plans_of(const json_t *list, size_t *count) {
    size_t size = json_array_size(list);
    harpe_fleet_plan *plans = size > 0 ? harpe_calloc(size, sizeof *plans) : NULL;
    *count = plans ? size : 0;
    for (size_t i = 0; i < *count; i++) {
        const json_t *plan = json_array_get(list, i);
        plans[i] = (harpe_fleet_plan){number_of(plan, "time", 0), number_of(plan, "power", 0)};
    }
    return plans;
}

/* ---- One function per kind ------------------------------------------------------------------- */

/* `object` NULL: the note is removed. */
typedef harpe_status apply_note(harpe_fleet_state *state, const char *id, const json_t *object,
                                harpe_error *error);

static harpe_status cannot_add_group(const harpe_fleet_state *state, const char *id,
                                     harpe_error *error) {
    if (!harpe_groups_are_full(state)) return harpe_fail_memory(error);
    return harpe_fail(error, HARPE_LIMIT_EXCEEDED, "there are too many groups for %.200s", id);
}

static harpe_status apply_budget(harpe_fleet_state *state, const char *id, const json_t *object,
                                 harpe_error *error) {
    int group = harpe_groups_need(state, id);
    if (group < 0) return cannot_add_group(state, id, error);
    state->groups[group].budget =
        (harpe_fleet_budget){.watts = number_of(object, "watts", -1),
                             .margin = number_of(object, "margin", 0),
                             .overhead = number_of(object, "overhead", 1)};
    return HARPE_OK;
}

static harpe_status apply_group(harpe_fleet_state *state, const char *id, const json_t *object,
                                harpe_error *error) {
    if (!object) {
        int gone = harpe_groups_find(state, id);
        if (gone > 0 && !harpe_groups_is_used(state, gone)) harpe_groups_remove(state, gone);
        return HARPE_OK;
    }
    const char *name = json_string_value(json_object_get(object, "parent"));
    int group = harpe_groups_need(state, id);
    int parent = group < 0 ? -1 : harpe_groups_need(state, name ? name : "");
    if (parent < 0) return cannot_add_group(state, id, error);
    if (harpe_groups_may_contain(state, parent, group))
        harpe_groups_set_parent(state, group, parent);
    return HARPE_OK;
}

static harpe_status apply_override(harpe_fleet_state *state, const char *id, const json_t *object,
                                   harpe_error *error) {
    harpe_member_terms terms = terms_of(object);
    size_t i = 0;
    while (i < state->override_count && strcmp(state->overrides[i].id, id) != 0)
        i++;
    if (!object && i < state->override_count) {
        free(state->overrides[i].id);
        state->overrides[i] = state->overrides[--state->override_count];
    } else if (object && i < state->override_count) {
        state->overrides[i].terms = terms;
    } else if (object) {
        char *copy = strdup(id);
        if (!copy || !HARPE_ARRAY_RESERVE(state->overrides, state->override_capacity, i + 1)) {
            free(copy);
            return harpe_fail_memory(error);
        }
        state->overrides[state->override_count++] = (harpe_fleet_override){copy, terms};
    }
    harpe_member *member = harpe_member_find(state, HARPE_MEMBER_JOB, id);
    if (!member) return HARPE_OK;
    member->told = terms;
    member->is_dirty = true;
    harpe_groups_place(state, member);
    return HARPE_OK;
}

static harpe_status remove_member(harpe_fleet_state *state, harpe_member_kind kind,
                                  const char *id) {
    for (size_t i = 0; i < state->member_count; i++) {
        if (state->members[i]->kind != kind || strcmp(state->members[i]->id, id) != 0) continue;
        harpe_member_remove(state, i);
        break;
    }
    return HARPE_OK;
}

static harpe_member *need_member(harpe_fleet_state *state, harpe_member_kind kind, const char *id) {
    harpe_member *member = harpe_member_find(state, kind, id);
    return member ? member : harpe_member_add(state, kind, id);
}

static harpe_status apply_load(harpe_fleet_state *state, const char *id, const json_t *object,
                               harpe_error *error) {
    if (!object) return remove_member(state, HARPE_MEMBER_LOAD, id);
    harpe_member *member = need_member(state, HARPE_MEMBER_LOAD, id);
    if (!member) return harpe_fail_memory(error);
    member->measured_w = number_of(object, "watts", 0);
    member->told = terms_of(object);
    member->is_dirty = true;
    harpe_groups_place(state, member);
    return HARPE_OK;
}

static harpe_status apply_declared(harpe_fleet_state *state, const char *id, const json_t *object,
                                   harpe_error *error) {
    if (!object) return remove_member(state, HARPE_MEMBER_DECLARED, id);
    size_t count;
    harpe_fleet_plan *plans = plans_of(json_object_get(object, "plans"), &count);
    harpe_member *member = plans ? need_member(state, HARPE_MEMBER_DECLARED, id) : NULL;
    const char *name = json_string_value(json_object_get(object, "name"));
    char *copy = strdup(name && *name ? name : id);
    if (!member || !copy) {
        free(plans);
        free(copy);
        return harpe_fail_memory(error);
    }
    free(member->name);
    member->name = copy;
    member->said = terms_of(object);
    harpe_member_set_plans(member, plans, count);
    harpe_groups_place(state, member);
    return HARPE_OK;
}

static int compare_events(const void *a, const void *b) {
    const harpe_fleet_event *x = a;
    const harpe_fleet_event *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

static harpe_status apply_event(harpe_fleet_state *state, const char *id, const json_t *object,
                                harpe_error *error) {
    harpe_fleet_event event = {
        .id = strtoll(id, NULL, 10),
        .may_exceed = json_is_true(json_object_get(object, "may_exceed")),
        .breaches = (int64_t)number_of(object, "breaches", 0),
    };
    read_numbers(object, event_fields, COUNT(event_fields), &event);
    copy_text(object, "group", event.group, sizeof event.group);
    copy_text(object, "note", event.note, sizeof event.note);
    copy_text(object, "key", event.key, sizeof event.key);
    harpe_fleet_event *known = harpe_fleet_event_find(state, event.id);
    if (!object) {
        if (known) {
            size_t index = (size_t)(known - state->events);
            memmove(known, known + 1, (--state->event_count - index) * sizeof *known);
        }
        return HARPE_OK;
    }
    event.kept_highest_w = event.highest_w;
    if (known) event.is_breached = known->is_breached;
    if (known) event.over_since_s = known->over_since_s;
    if (!known) {
        if (!HARPE_ARRAY_RESERVE(state->events, state->event_capacity, state->event_count + 1))
            return harpe_fail_memory(error);
        known = &state->events[state->event_count++];
    }
    *known = event;
    qsort(state->events, state->event_count, sizeof *state->events, compare_events);
    if (event.id > state->last_event) state->last_event = event.id;
    return HARPE_OK;
}

static harpe_status apply_prices(harpe_fleet_state *state, const char *id, const json_t *object,
                                 harpe_error *error) {
    (void)id;
    const json_t *list = json_object_get(object, "series");
    size_t count = json_array_size(list);
    harpe_fleet_file_price *points = count > 0 ? harpe_calloc(count, sizeof *points) : NULL;
    if (count > 0 && !points) return harpe_fail_memory(error);
    for (size_t i = 0; i < count; i++) {
        const json_t *row = json_array_get(list, i);
        points[i] =
            (harpe_fleet_file_price){number_of(row, "at", 0), number_of(row, "energy_per_kwh", 0),
                                     number_of(row, "carbon_g_per_kwh", 0)};
    }
    free(state->prices.points);
    state->prices = (harpe_fleet_prices){.carbon_per_kg = number_of(object, "carbon_per_kg", 0),
                                         .value_per_s = number_of(object, "value_per_s", 0),
                                         .points = points,
                                         .count = count,
                                         .set_s = number_of(object, "set", 0)};
    copy_text(object, "currency", state->prices.currency, sizeof state->prices.currency);
    return HARPE_OK;
}

/* An account is [used, saved or null, counted, uncertainty]. */
static harpe_status load_accounts(harpe_fleet_state *state, const json_t *jobs,
                                  harpe_error *error) {
    bool is_counting = state->energy.is_counting;
    const char *id;
    json_t *list;
    json_object_foreach((json_t *)jobs, id, list) {
        harpe_fleet_account *account = harpe_fleet_account_need(state, id, is_counting);
        if (!account) return harpe_fail_memory(error);
        account->used_j = account->kept_j = json_number_value(json_array_get(list, 0));
        account->saved_j = json_number_value(json_array_get(list, 1));
        account->has_saved = is_counting && json_is_number(json_array_get(list, 1));
        account->counted_j = json_number_value(json_array_get(list, 2));
        account->uncertainty_j = json_number_value(json_array_get(list, 3));
    }
    return HARPE_OK;
}

static harpe_status apply_energy(harpe_fleet_state *state, const char *id, const json_t *object,
                                 harpe_error *error) {
    (void)id;
    harpe_fleet_accounts_free(state);
    state->energy = (harpe_fleet_energy){
        .is_counting = json_is_true(json_object_get(object, "is_counting")),
        .has_price = json_is_true(json_object_get(object, "has_price")),
    };
    read_numbers(object, energy_fields, COUNT(energy_fields), &state->energy);
    copy_text(object, "currency", state->energy.currency, sizeof state->energy.currency);
    return load_accounts(state, json_object_get(object, "jobs"), error);
}

static harpe_status load_cap(harpe_fleet_state *state, harpe_member_kind kind, const char *id,
                             const json_t *object, harpe_error *error) {
    harpe_member *member = object ? need_member(state, kind, id) : NULL;
    if (!member) return object ? harpe_fail_memory(error) : HARPE_OK;
    read_numbers(object, cap_fields, COUNT(cap_fields), member);
    member->stored_w = member->cap_w;
    member->most_w = fmax(member->cap_w, member->most_w);
    member->scale = fmax(1, member->scale);
    member->unplanned_w = fmax(0, member->unplanned_w);
    member->was_steered = member->is_stored = true;
    /* It is not known whether the member was given the cap, so it gets it again. */
    member->is_waiting = member->has_command = member->most_w > member->cap_w;
    return HARPE_OK;
}

static harpe_status apply_cap(harpe_fleet_state *state, const char *id, const json_t *object,
                              harpe_error *error) {
    return load_cap(state, HARPE_MEMBER_JOB, id, object, error);
}

static harpe_status apply_declared_cap(harpe_fleet_state *state, const char *id,
                                       const json_t *object, harpe_error *error) {
    return load_cap(state, HARPE_MEMBER_DECLARED, id, object, error);
}

static harpe_status apply_plans(harpe_fleet_state *state, const char *id, const json_t *object,
                                harpe_error *error) {
    size_t count;
    harpe_fleet_plan *plans = plans_of(json_object_get(object, "plans"), &count);
    harpe_member *member = plans ? need_member(state, HARPE_MEMBER_JOB, id) : NULL;
    if (!member) {
        free(plans);
        return plans ? harpe_fail_memory(error) : HARPE_OK;
    }
    harpe_member_set_plans(member, plans, count);
    return HARPE_OK;
}

/* ---- Applying -------------------------------------------------------------------------------- */

static const struct {
    const char *prefix;
    apply_note *apply;
} KINDS[] = {
    {"budget/", apply_budget},       {"group/", apply_group},     {"job/", apply_override},
    {"load/", apply_load},           {"member/", apply_declared}, {"event/", apply_event},
    {"prices", apply_prices},        {"energy", apply_energy},    {"cap/", apply_cap},
    {"cap-of/", apply_declared_cap}, {"plans/", apply_plans},
};

/* Returns true if the list, which may be missing, has objects. */
static bool has_rows(const json_t *object, const char *list) {
    const json_t *first = json_array_get(json_object_get(object, list), 0);
    return !first || json_is_object(first);
}

harpe_status harpe_notes_apply(harpe_fleet_state *state, const char *key, const char *text,
                               size_t length, bool is_loading, harpe_error *error) {
    json_t *object = length > 0 ? json_loadb(text, length, 0, NULL) : NULL;
    harpe_status status = HARPE_OK;
    if (length > 0 &&
        !(json_is_object(object) && has_rows(object, "plans") && has_rows(object, "series")))
        status = harpe_fail(error, HARPE_INVALID_INPUT,
                            "the store's note %.300s cannot be read; replace the store by a backup "
                            "with harpe store restore",
                            key);
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS && status == HARPE_OK; i++) {
        size_t prefix = strlen(KINDS[i].prefix);
        if (strncmp(key, KINDS[i].prefix, prefix) != 0) continue;
        status = KINDS[i].apply(state, key + prefix, object, error);
        break;
    }
    /* Too many groups must not prevent the server from starting. */
    if (is_loading && status == HARPE_LIMIT_EXCEEDED) status = HARPE_OK;
    if (status == HARPE_OK && !is_loading) {
        state->revision++;
        state->must_solve = true;
    }
    json_decref(object);
    return status;
}

/* ---- Writing --------------------------------------------------------------------------------- */

bool harpe_notes_of_text(const char *prefix, const char *id, char *text, harpe_fleet_note *out) {
    *out = (harpe_fleet_note){.text = text};
    if (asprintf(&out->key, "%s%s", prefix, id) < 0) out->key = NULL;
    if (out->key && out->text) return true;
    harpe_fleet_note_clear(out);
    return false;
}

bool harpe_notes_make(const char *prefix, const char *id, json_t *object, harpe_fleet_note *out) {
    char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    return harpe_notes_of_text(prefix, id, text, out);
}

bool harpe_notes_of_nothing(const char *prefix, const char *id, harpe_fleet_note *out) {
    return harpe_notes_of_text(prefix, id, strdup(""), out);
}

bool harpe_notes_of_cap(const harpe_member *member, harpe_fleet_note *out) {
    json_t *object = numbers_json(cap_fields, COUNT(cap_fields), member);
    bool is_job = member->kind == HARPE_MEMBER_JOB;
    return harpe_notes_make(is_job ? "cap/" : "cap-of/", member->id, object, out);
}

bool harpe_notes_of_plans(const harpe_member *member, harpe_fleet_note *out) {
    json_t *list = json_array();
    for (size_t i = 0; i < member->plan_count; i++)
        json_array_append_new(list, json_pack("{s:f,s:f}", "time", member->plans[i].time_s, "power",
                                              member->plans[i].power_w));
    return harpe_notes_make("plans/", member->id, json_pack("{s:o}", "plans", list), out);
}

bool harpe_notes_of_event(const harpe_fleet_event *event, harpe_fleet_note *out) {
    char id[24];
    (void)snprintf(id, sizeof id, "%" PRId64, event->id);
    json_t *object = numbers_json(event_fields, COUNT(event_fields), event);
    json_object_set_new(object, "may_exceed", json_boolean(event->may_exceed));
    json_object_set_new(object, "breaches", json_integer(event->breaches));
    json_object_set_new(object, "group", json_string(event->group));
    json_object_set_new(object, "note", json_string(event->note));
    json_object_set_new(object, "key", json_string(event->key));
    return harpe_notes_make("event/", id, object, out);
}

static json_t *accounts_of(const harpe_fleet_energy *energy) {
    json_t *jobs = json_object();
    for (size_t i = 0; i < energy->account_count; i++) {
        const harpe_fleet_account *account = energy->accounts[i];
        json_object_set_new(
            jobs, account->id,
            json_pack("[f,o,f,f]", account->used_j,
                      account->has_saved ? json_real(account->saved_j) : json_null(),
                      account->counted_j, account->uncertainty_j));
    }
    return jobs;
}

bool harpe_notes_of_energy(const harpe_fleet_state *state, harpe_fleet_note *out) {
    const harpe_fleet_energy *energy = &state->energy;
    json_t *object = numbers_json(energy_fields, COUNT(energy_fields), energy);
    json_object_set_new(object, "is_counting", json_boolean(energy->is_counting));
    json_object_set_new(object, "has_price", json_boolean(energy->has_price));
    json_object_set_new(object, "jobs", accounts_of(energy));
    json_object_set_new(object, "currency", json_string(energy->currency));
    return harpe_notes_make("energy", "", object, out);
}

bool harpe_notes_of_terms(const char *id, const harpe_member_terms *terms, harpe_fleet_note *out) {
    harpe_member_terms copy = *terms;
    json_t *object = json_object();
    for (size_t i = 0; i < HARPE_TERM_COUNT; i++)
        json_object_set_new(object, harpe_terms[i].name,
                            number_json(*harpe_term_in(&copy, &harpe_terms[i])));
    if (terms->has_group) json_object_set_new(object, "group", json_string(terms->group));
    return harpe_notes_make("job/", id, object, out);
}
