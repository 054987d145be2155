/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the requests that change the fleet's settings, and decides whether a client may make them.
 * Each such request becomes a note (see fleet_state.h) whose values were checked. A member that is
 * not known is an error, because otherwise a misspelt member would change nothing. */
#include "server/fleet/fleet_state.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/text.h"
#include "rights/tokens.h"

typedef struct body {
    harpe_fleet_state *state;
    const char *id;
    const json_t *json; /* an object */
    double now_s;
    int http_status;
    harpe_error *error;
} body;

static bool HARPE_PRINTF(3, 4) refuse(body *self, int http_status, const char *format, ...) {
    char message[HARPE_ERROR_MESSAGE_SIZE];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    harpe_clean_in_place(message);
    self->http_status = http_status;
    (void)harpe_fail(self->error, HARPE_INVALID_INPUT, "%s", message);
    return false;
}

/* ---- Values ---------------------------------------------------------------------------------- */

/* Checks that every member of the body is one of `names`. The list `names` ends with NULL. */
static bool knows_all(body *self, const char *const *names) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)self->json, key, value) {
        size_t i = 0;
        while (names[i] && strcmp(names[i], key) != 0)
            i++;
        if (names[i]) continue;
        char list[256] = "";
        for (i = 0; names[i]; i++)
            (void)snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s",
                           i > 0 ? ", " : "", names[i]);
        return refuse(self, 422, "%.80s is not known here: the members are %s", key, list);
    }
    return true;
}

/* Reads the member `name` of `object`, a number from `least` to `most`. If the member is missing or
 * null, `*value` stays as it is. */
static bool read_number(body *self, const json_t *object, const char *name, double least,
                        double most, double *value) {
    const json_t *member = json_object_get(object, name);
    if (!member || json_is_null(member)) return true;
    double number = json_is_number(member) ? json_number_value(member) : NAN;
    if (!(number >= least && number <= most))
        return refuse(self, 422, "%s must be a number from %g to %g", name, least, most);
    *value = number;
    return true;
}

static bool need_number(body *self, const char *name, double least, double most, double *value) {
    const json_t *member = json_object_get(self->json, name);
    if (!member || json_is_null(member)) return refuse(self, 422, "%s is missing", name);
    return read_number(self, self->json, name, least, most, value);
}

static bool check_name(body *self, const char *what, const char *name) {
    size_t length = strlen(name);
    if (length == 0 || length > HARPE_FLEET_TEXT_MAX)
        return refuse(self, 422, "%s must have 1 to %d bytes", what, HARPE_FLEET_TEXT_MAX);
    for (const char *c = name; *c;) {
        size_t step;
        if (!harpe_character_is_safe(harpe_character(c, &step)))
            return refuse(self, 422, "%s must not have control characters", what);
        c += step;
    }
    return true;
}

/* Reads the member `name` of the body, a text. If the member is missing or null, `*text` is "". The
 * text is valid as long as the body. */
static bool read_text(body *self, const char *name, const char **text) {
    const json_t *member = json_object_get(self->json, name);
    *text = "";
    if (!member || json_is_null(member)) return true;
    if (!json_is_string(member)) return refuse(self, 422, "%s must be a text", name);
    *text = json_string_value(member);
    return !**text || check_name(self, name, *text);
}

static bool refuse_out_of_memory(body *self) {
    return refuse(self, 503, "the server is out of memory: try again later");
}

static bool make(body *self, const char *prefix, const char *id, json_t *object,
                 harpe_fleet_note *out) {
    return harpe_notes_make(prefix, id, object, out) || refuse_out_of_memory(self);
}

/* Makes a note whose text is the JSON body of the request, unchanged. harpe_notes_apply reads the
 * members of the body from the note. */
static bool keep(body *self, const char *prefix, harpe_fleet_note *out) {
    return make(self, prefix, self->id, json_incref((json_t *)self->json), out);
}

static bool make_nothing(body *self, const char *prefix, const char *id, harpe_fleet_note *out) {
    return harpe_notes_of_nothing(prefix, id, out) || refuse_out_of_memory(self);
}

/* ---- Budgets and groups ---------------------------------------------------------------------- */

/* Returns true if the group exists, or if one more group can be made. Otherwise refuses the
 * request. */
static bool has_room_for(body *self, const char *group) {
    if (harpe_groups_find(self->state, group) >= 0 || !harpe_groups_are_full(self->state))
        return true;
    return refuse(self, 429,
                  "there are already %zu groups: remove some of them, or use one of them",
                  self->state->group_count);
}

/* If the body lacks the margin or the overhead, a known group keeps the value that it has. A value
 * of null sets the default: margin 0, overhead 1. */
static bool put_budget(body *self, harpe_fleet_note *out) {
    static const char *const names[] = {"group", "watts", "margin", "overhead", NULL};
    const char *group;
    double watts = 0, margin = 0, overhead = 1;
    if (!knows_all(self, names) || !read_text(self, "group", &group)) return false;
    int known = harpe_groups_find(self->state, group);
    if (known >= 0 && !json_object_get(self->json, "margin"))
        margin = self->state->groups[known].budget.margin;
    if (known >= 0 && !json_object_get(self->json, "overhead"))
        overhead = self->state->groups[known].budget.overhead;
    if (!need_number(self, "watts", 0, 1e12, &watts) ||
        !read_number(self, self->json, "margin", 0, 0.99, &margin) ||
        !read_number(self, self->json, "overhead", 1, 10, &overhead) || !has_room_for(self, group))
        return false;
    return make(self, "budget/", group,
                json_pack("{s:f,s:f,s:f}", "watts", watts, "margin", margin, "overhead", overhead),
                out);
}

static int need_group(body *self, const char *name) {
    int group = harpe_groups_find(self->state, name);
    if (group < 0)
        (void)refuse(self, 404,
                     "there is no group %.200s: a job of it must register, or PUT /fleet/groups/ "
                     "must make it",
                     name);
    return group;
}

static bool delete_budget(body *self, harpe_fleet_note *out) {
    int group = need_group(self, self->id ? self->id : "");
    if (group < 0) return false;
    if (self->state->groups[group].budget.watts < 0)
        return refuse(self, 404, "%s%.200s has no budget", group ? "the group " : "the whole fleet",
                      self->state->groups[group].name);
    return make_nothing(self, "budget/", self->state->groups[group].name, out);
}

static bool put_group(body *self, harpe_fleet_note *out) {
    static const char *const names[] = {"parent", NULL};
    const char *name;
    if (!check_name(self, "the name of a group", self->id) || !knows_all(self, names) ||
        !read_text(self, "parent", &name) || !has_room_for(self, self->id))
        return false;
    int parent = need_group(self, name);
    if (parent < 0) return false;
    int group = harpe_groups_find(self->state, self->id);
    if (group >= 0 && !harpe_groups_may_contain(self->state, parent, group))
        return refuse(self, 409,
                      "the group %.100s cannot be inside of %.100s: it would contain "
                      "itself, or be more than %d levels deep",
                      self->id, name, HARPE_FLEET_DEPTH_MAX - 1);
    return keep(self, "group/", out);
}

static bool delete_group(body *self, harpe_fleet_note *out) {
    int group = need_group(self, self->id);
    if (group <= 0) return false;
    if (harpe_groups_is_used(self->state, group))
        return refuse(self, 409,
                      "the group %.200s has a budget, or jobs, loads or groups are in it: remove "
                      "these first",
                      self->id);
    return make_nothing(self, "group/", self->id, out);
}

/* ---- Members --------------------------------------------------------------------------------- */

/* Reads the terms that the body has into `*terms`. A term that is null in the body becomes unset. A
 * term that is missing stays as it is. */
static bool read_terms(body *self, harpe_member_terms *terms) {
    for (size_t i = 0; i < HARPE_TERM_COUNT; i++) {
        const harpe_term *term = &harpe_terms[i];
        double *value = harpe_term_in(terms, term);
        if (json_is_null(json_object_get(self->json, term->name))) *value = NAN;
        if (!read_number(self, self->json, term->name, term->least, term->most, value))
            return false;
    }
    const json_t *group = json_object_get(self->json, "group");
    const char *name;
    if (!read_text(self, "group", &name)) return false;
    if (!group) return true;
    terms->has_group = json_is_string(group);
    (void)snprintf(terms->group, sizeof terms->group, "%s", name);
    return true;
}

static bool put_job(body *self, harpe_fleet_note *out) {
    static const char *const names[] = {"group",     "weight", "max_slowdown", "priority", "most_w",
                                        "highest_w", NULL};
    harpe_member_terms terms = harpe_member_told(self->state, self->id);
    if (!knows_all(self, names) || !read_terms(self, &terms)) return false;
    return harpe_notes_of_terms(self->id, &terms, out) || refuse_out_of_memory(self);
}

static bool has_place(body *self, harpe_member_kind kind) {
    size_t count = 0;
    for (size_t i = 0; i < self->state->member_count; i++)
        count += self->state->members[i]->kind == kind;
    if (count < HARPE_FLEET_MEMBERS_MAX || harpe_member_find(self->state, kind, self->id))
        return true;
    return refuse(self, 429, "there are already %d of these: remove those that are not needed",
                  HARPE_FLEET_MEMBERS_MAX);
}

static bool put_load(body *self, harpe_fleet_note *out) {
    static const char *const names[] = {"watts", "group", NULL};
    const char *group;
    double watts = 0;
    if (!check_name(self, "the name of a load", self->id) || !knows_all(self, names) ||
        !need_number(self, "watts", 0, 1e9, &watts) || !read_text(self, "group", &group) ||
        !has_place(self, HARPE_MEMBER_LOAD))
        return false;
    return keep(self, "load/", out);
}

static bool delete_member(body *self, harpe_member_kind kind, harpe_fleet_note *out) {
    bool is_load = kind == HARPE_MEMBER_LOAD;
    if (!harpe_member_find(self->state, kind, self->id))
        return refuse(self, 404, "there is no %s %.200s", is_load ? "load" : "member", self->id);
    return make_nothing(self, is_load ? "load/" : "member/", self->id, out);
}

static bool check_plans(body *self) {
    const json_t *list = json_object_get(self->json, "plans"), *plan;
    size_t count = json_array_size(list), i;
    if (count < 1 || count > HARPE_FLEET_PLANS_MAX / 10)
        return refuse(self, 422, "plans must be a list of 1 to %d objects with time and power",
                      HARPE_FLEET_PLANS_MAX / 10);
    json_array_foreach(list, i, plan) {
        double time_s = NAN, power_w = NAN;
        if (!read_number(self, plan, "time", 1e-9, 1e9, &time_s) ||
            !read_number(self, plan, "power", 0, 1e8, &power_w))
            return false;
        if (isnan(time_s) || isnan(power_w))
            return refuse(self, 422, "plan %zu must have time and power", i);
    }
    return true;
}

static bool put_declared(body *self, harpe_fleet_note *out) {
    static const char *const names[] = {"plans",    "group",  "weight", "max_slowdown",
                                        "priority", "most_w", "name",   NULL};
    harpe_member_terms terms = harpe_member_no_terms();
    const char *name;
    if (!check_name(self, "the name of a member", self->id) || !knows_all(self, names) ||
        !read_terms(self, &terms) || !read_text(self, "name", &name) ||
        !has_place(self, HARPE_MEMBER_DECLARED) || !check_plans(self))
        return false;
    return keep(self, "member/", out);
}

/* ---- Events ---------------------------------------------------------------------------------- */

static bool read_event(body *self, harpe_fleet_event *event) {
    static const char *const names[] = {
        "from", "duration_s",          "watts", "share", "group", "notice_s", "ramp_s", "note",
        "key",  "may_exceed_slowdown", NULL};
    const char *group, *note, *key;
    double notice_s = NAN;
    if (!knows_all(self, names) || !read_text(self, "group", &group) ||
        !read_text(self, "note", &note) || !read_text(self, "key", &key) ||
        !read_number(self, self->json, "from", 0, 1e11, &event->from_s) ||
        !need_number(self, "duration_s", 1, 1e9, &event->duration_s) ||
        !read_number(self, self->json, "watts", 0, 1e12, &event->watts) ||
        !read_number(self, self->json, "share", 0, 1, &event->share) ||
        !read_number(self, self->json, "notice_s", 0, 1e9, &notice_s) ||
        !read_number(self, self->json, "ramp_s", 0, 1e7, &event->ramp_s))
        return false;
    if (isnan(event->watts) == isnan(event->share))
        return refuse(self, 422, "an event needs watts or share, and not both");
    if (event->from_s + event->duration_s < self->now_s)
        return refuse(self, 422, "the event is over already: from is a Unix time in seconds");
    int number_of_group = need_group(self, group);
    if (number_of_group < 0) return false;
    const harpe_fleet_group_state *own = &self->state->groups[number_of_group];
    event->notice_s = !isnan(notice_s) ? notice_s : fmax(0, event->from_s - self->now_s);
    event->base_w = own->counted_w;
    event->may_exceed = json_is_true(json_object_get(self->json, "may_exceed_slowdown"));
    (void)snprintf(event->group, sizeof event->group, "%s", group);
    (void)snprintf(event->note, sizeof event->note, "%s", note);
    (void)snprintf(event->key, sizeof event->key, "%s", key);
    return true;
}

static bool post_event(body *self, harpe_fleet_note *out) {
    harpe_fleet_state *state = self->state;
    harpe_fleet_event event = {.posted_s = self->now_s,
                               .from_s = self->now_s,
                               .watts = NAN,
                               .share = NAN,
                               .highest_w = -1};
    if (!read_event(self, &event)) return false;
    const harpe_fleet_event *known = NULL;
    size_t current = 0;
    for (size_t i = 0; i < state->event_count; i++) {
        if (*event.key && strcmp(state->events[i].key, event.key) == 0 &&
            strcmp(state->events[i].group, event.group) == 0)
            known = &state->events[i];
        current += harpe_fleet_event_counts(&state->events[i], self->now_s, INFINITY);
    }
    if (!known && current >= HARPE_FLEET_EVENTS_MAX)
        return refuse(self, 429, "there are already %d events that are not over",
                      HARPE_FLEET_EVENTS_MAX);
    event.id = ++state->last_event;
    event.promised_w = harpe_fleet_event_limit_w(state, &event);
    event.missing_w = harpe_limits_missing_w(state, harpe_groups_find(state, event.group),
                                             event.promised_w, event.may_exceed);
    return harpe_notes_of_event(known ? known : &event, out) || refuse_out_of_memory(self);
}

static bool delete_event(body *self, harpe_fleet_note *out) {
    char *end;
    int64_t id = strtoll(self->id, &end, 10);
    const harpe_fleet_event *event =
        *end || !*self->id ? NULL : harpe_fleet_event_find(self->state, id);
    if (!event) return refuse(self, 404, "there is no event %.100s", self->id);
    harpe_fleet_event changed = *event;
    if (!(changed.cancelled_s > 0) && self->now_s < harpe_fleet_event_end_s(event))
        changed.cancelled_s = self->now_s;
    return harpe_notes_of_event(&changed, out) || refuse_out_of_memory(self);
}

/* ---- Prices ---------------------------------------------------------------------------------- */

static bool check_series(body *self) {
    const json_t *list = json_object_get(self->json, "series"), *row;
    size_t count = json_array_size(list), i;
    double before_s = -1;
    if (count < 1 || count > HARPE_FLEET_SERIES_MAX)
        return refuse(self, 422,
                      "series must be a list of 1 to %d objects with at and energy_per_kwh",
                      HARPE_FLEET_SERIES_MAX);
    json_array_foreach(list, i, row) {
        double at_s = NAN, energy = NAN, carbon = 0;
        if (!read_number(self, row, "at", 0, 1e11, &at_s) ||
            !read_number(self, row, "energy_per_kwh", -1e6, 1e6, &energy) ||
            !read_number(self, row, "carbon_g_per_kwh", 0, 1e6, &carbon))
            return false;
        if (isnan(energy) || !(at_s > before_s))
            return refuse(self, 422,
                          "entry %zu of series must have at and energy_per_kwh, and at must grow "
                          "from entry to entry",
                          i);
        before_s = at_s;
    }
    return true;
}

static bool put_prices(body *self, harpe_fleet_note *out) {
    static const char *const names[] = {"currency", "carbon_per_kg", "value_per_s", "series", NULL};
    const char *currency;
    double carbon_per_kg = 0, value_per_s = 0;
    if (!knows_all(self, names) || !read_text(self, "currency", &currency) ||
        !read_number(self, self->json, "carbon_per_kg", 0, 1e6, &carbon_per_kg) ||
        !read_number(self, self->json, "value_per_s", 1e-9, 1e6, &value_per_s))
        return false;
    if (strlen(currency) > 15) return refuse(self, 422, "currency must have at most 15 bytes");
    if (!check_series(self)) return false;
    json_t *object = json_copy((json_t *)self->json);
    json_object_set_new(object, "set", json_real(self->now_s));
    return make(self, "prices", "", object, out);
}

static bool delete_prices(body *self, harpe_fleet_note *out) {
    if (self->state->prices.count == 0) return refuse(self, 404, "no prices are set");
    return make_nothing(self, "prices", "", out);
}

/* ---- All of them ----------------------------------------------------------------------------- */

static bool read_any(body *self, harpe_call_kind kind, harpe_fleet_note *out) {
    switch (kind) {
    case HARPE_CALL_FLEET_PUT_BUDGET: return put_budget(self, out);
    case HARPE_CALL_FLEET_DELETE_BUDGET: return delete_budget(self, out);
    case HARPE_CALL_FLEET_PUT_GROUP: return put_group(self, out);
    case HARPE_CALL_FLEET_DELETE_GROUP: return delete_group(self, out);
    case HARPE_CALL_FLEET_PUT_JOB: return put_job(self, out);
    case HARPE_CALL_FLEET_PUT_LOAD: return put_load(self, out);
    case HARPE_CALL_FLEET_DELETE_LOAD: return delete_member(self, HARPE_MEMBER_LOAD, out);
    case HARPE_CALL_FLEET_PUT_MEMBER: return put_declared(self, out);
    case HARPE_CALL_FLEET_DELETE_MEMBER: return delete_member(self, HARPE_MEMBER_DECLARED, out);
    case HARPE_CALL_FLEET_POST_EVENT: return post_event(self, out);
    case HARPE_CALL_FLEET_DELETE_EVENT: return delete_event(self, out);
    case HARPE_CALL_FLEET_PUT_PRICES: return put_prices(self, out);
    case HARPE_CALL_FLEET_DELETE_PRICES: return delete_prices(self, out);
    default: return refuse(self, 404, "the fleet does not know this request");
    }
}

static bool has_body(harpe_call_kind kind) {
    return kind == HARPE_CALL_FLEET_PUT_BUDGET || kind == HARPE_CALL_FLEET_PUT_GROUP ||
           kind == HARPE_CALL_FLEET_PUT_JOB || kind == HARPE_CALL_FLEET_PUT_LOAD ||
           kind == HARPE_CALL_FLEET_PUT_MEMBER || kind == HARPE_CALL_FLEET_POST_EVENT ||
           kind == HARPE_CALL_FLEET_PUT_PRICES;
}

harpe_status harpe_bodies_read(harpe_fleet_state *state, harpe_call_kind kind, const char *id,
                               const char *text, size_t length, double now_s, harpe_fleet_note *out,
                               int *http_status, harpe_error *error) {
    json_error_t reason;
    json_t *json = has_body(kind) ? json_loadb(text ? text : "", text ? length : 0,
                                               JSON_REJECT_DUPLICATES, &reason)
                                  : json_object();
    body self = {state, id ? id : "", json, now_s, 422, error};
    *out = (harpe_fleet_note){0};
    bool is_read = json_is_object(json) ? read_any(&self, kind, out)
                                        : refuse(&self, 422, "the body must be a JSON object");
    json_decref(json);
    if (!is_read) harpe_fleet_note_clear(out);
    *http_status = is_read ? 200 : self.http_status;
    return is_read ? HARPE_OK : HARPE_INVALID_INPUT;
}

harpe_status harpe_bodies_read_report(const char *text, size_t length, int64_t *plan,
                                      double *power_w, harpe_error *error) {
    static const char *const names[] = {"plan", "power", NULL};
    json_t *json = json_loadb(text ? text : "", text ? length : 0, JSON_REJECT_DUPLICATES, NULL);
    body self = {.json = json, .error = error};
    double number_of_plan = -1;
    *power_w = -1;
    bool is_read = json_is_object(json) ? knows_all(&self, names) &&
                                              read_number(&self, json, "plan", 0,
                                                          HARPE_FLEET_PLANS_MAX, &number_of_plan) &&
                                              read_number(&self, json, "power", 0, 1e9, power_w)
                                        : refuse(&self, 422, "the body must be a JSON object");
    *plan = (int64_t)number_of_plan;
    json_decref(json);
    return is_read ? HARPE_OK : HARPE_INVALID_INPUT;
}

bool harpe_bodies_read_watts(const char *text, size_t length, double *watts) {
    json_t *json = json_loadb(text ? text : "", text ? length : 0, 0, NULL);
    const json_t *member = json_object_get(json, "watts");
    *watts = json_is_number(member) ? json_number_value(member) : -1;
    json_decref(json);
    return *watts >= 0 && *watts <= 1e9;
}

/* ---- Rights ---------------------------------------------------------------------------------- */

/* Decides two things. A token can name groups: may the client of such a token make this call? And a
 * client that is no operator can declare members: may these members have as much power as the call
 * claims for them? The scope of a token is the groups that it names and the groups inside of these.
 *
 * A client whose token names groups cannot change the prices or read the history, because these
 * belong to the whole fleet. The client may move a group only if the group, its old parent and its
 * new parent are in the scope. The client cannot make a group, because a job or a token of somebody
 * else may already use the name of the group, and this job would then be inside of a group of the
 * client. The client cannot remove a group, because the jobs of the group would leave the client's
 * budgets. */

/* The most members that all clients of one scope can declare. Operators may declare more. */
enum { MEMBERS_MAX = 1000 };

/* Returns true if the scope of the call covers the group (NULL or "": the whole fleet). Otherwise
 * writes the reason to `line`. */
static bool covers(const harpe_fleet_state *state, const harpe_call *call, const char *group,
                   char *line, size_t size) {
    char words[256];
    if (harpe_scope_covers(&state->tree, call->scope, group)) return true;
    bool is_whole = !group || !*group;
    (void)snprintf(line, size, "this is about %s%.200s, and the token is only for %s",
                   is_whole ? "the whole fleet" : "the group ", is_whole ? "" : group,
                   harpe_scope_words(call->scope, words, sizeof words));
    return false;
}

/* Checks that the scope covers the group that the JSON body names in its member `member`. If
 * `is_optional` is true, a body without this member is allowed, because it changes no group. */
static bool covers_body(const harpe_fleet_state *state, const harpe_call *call, const char *member,
                        bool is_optional, char *line, size_t size) {
    json_t *json = json_loadb(call->body ? call->body : "", call->body ? call->length : 0, 0, NULL);
    const json_t *group = json_object_get(json, member);
    bool may = (!group && is_optional) || covers(state, call, json_string_value(group), line, size);
    json_decref(json);
    return may;
}

/* Checks that the scope covers the group of the load, declared member or job that the call names.
 * If the call names a load or a declared member that does not exist, the call is allowed. If the
 * call names a job of the engine that is not a member yet, the call is refused, because the group
 * of the job is not known here. */
static bool covers_member(const harpe_fleet_state *state, const harpe_call *call,
                          harpe_member_kind kind, char *line, size_t size) {
    const harpe_member *member = harpe_member_find(state, kind, call->job_id ? call->job_id : "");
    if (member) return covers(state, call, state->groups[member->group].name, line, size);
    if (kind != HARPE_MEMBER_JOB) return true;
    (void)snprintf(line, size,
                   "job %.200s has not registered all its ranks, so its group cannot be compared "
                   "with %s: wait, or use a token for the whole fleet",
                   call->job_id ? call->job_id : "", call->scope);
    return false;
}

static bool covers_event(const harpe_fleet_state *state, const harpe_call *call, char *line,
                         size_t size) {
    int64_t id = strtoll(call->job_id ? call->job_id : "", NULL, 10);
    const harpe_fleet_event *event = harpe_fleet_event_find(state, id);
    return !event || covers(state, call, event->group, line, size);
}

/* Returns the highest power, in W, that the call claims for its member. If a report shows more
 * power than its plan predicts, the powers of all plans of the member count more by the same
 * factor. */
static double claim_of(const harpe_fleet_state *state, const harpe_call *call) {
    json_t *json = json_loadb(call->body ? call->body : "", call->body ? call->length : 0, 0, NULL);
    double claim_w = json_number_value(json_object_get(json, "power"));
    const harpe_member *known = harpe_member_find(state, HARPE_MEMBER_DECLARED, call->job_id);
    const json_t *number = json_object_get(json, "plan"), *plan;
    size_t i, running = (size_t)json_integer_value(number);
    if (call->kind == HARPE_CALL_FLEET_REPORT && known) {
        bool has_plan = json_is_integer(number) && running < known->plan_count &&
                        known->plans[running].power_w > 0;
        double part = has_plan ? fmax(1, claim_w / known->plans[running].power_w) : 1;
        for (i = 0; i < known->plan_count; i++)
            claim_w = fmax(claim_w, part * known->plans[i].power_w);
    }
    json_array_foreach(json_object_get(json, "plans"), i, plan) {
        claim_w = fmax(claim_w, json_number_value(json_object_get(plan, "power")));
    }
    json_decref(json);
    return claim_w;
}

/* Returns false, and writes the reason to `line`, if the members that clients of the call's scope
 * declare would have more power than call->rank, in W, or would be too many. Each watt that a
 * member claims is a watt less for others. call->rank is negative if the client's power is not
 * limited. */
static bool claim_is_within(const harpe_fleet_state *state, const harpe_call *call, char *line,
                            size_t size) {
    bool declares = call->kind == HARPE_CALL_FLEET_PUT_MEMBER;
    if ((!declares && call->kind != HARPE_CALL_FLEET_REPORT) || call->rank < 0) return true;
    double sum_w = claim_of(state, call);
    size_t count = 0;
    for (size_t i = 0; i < state->member_count; i++) {
        const harpe_member *member = state->members[i];
        if (member->kind != HARPE_MEMBER_DECLARED || strcmp(member->id, call->job_id) == 0 ||
            !harpe_scope_covers(&state->tree, call->scope, state->groups[member->group].name))
            continue;
        sum_w += fmax(harpe_member_highest_w(member), member->measured_w);
        count++;
    }
    char words[256];
    (void)harpe_scope_words(call->scope, words, sizeof words);
    if (declares && count >= MEMBERS_MAX)
        (void)snprintf(line, size, "%s has already %d declared members: remove some", words,
                       MEMBERS_MAX);
    else if (sum_w > (double)call->rank)
        (void)snprintf(line, size,
                       "the declared members of %s would have %.0f W together, and the token is "
                       "for %lld W (harpe fleet token add --watts)",
                       words, sum_w, (long long)call->rank);
    else
        return true;
    return false;
}

/* Checks a call that moves a group: the scope must cover the group, its parent and its new parent.
 * The reason is the same for a group that does not exist and for a group outside of the scope, so
 * the reason tells nothing about the groups of others. */
static bool covers_move(const harpe_fleet_state *state, const harpe_call *call, char *line,
                        size_t size) {
    char words[256];
    int group = harpe_groups_find(state, call->job_id ? call->job_id : "");
    if (group > 0 && harpe_scope_covers(&state->tree, call->scope, call->job_id))
        return covers(state, call, state->groups[state->groups[group].parent].name, line, size) &&
               covers_body(state, call, "parent", false, line, size);
    (void)snprintf(line, size,
                   "group %.200s is not there or not of this token, which is for %s; only a token "
                   "for the whole fleet can make groups",
                   call->job_id ? call->job_id : "",
                   harpe_scope_words(call->scope, words, sizeof words));
    return false;
}

bool harpe_fleet_is_in_scope(const harpe_fleet_state *state, const harpe_call *call, char *line,
                             size_t size) {
    harpe_member_kind kind = HARPE_MEMBER_DECLARED;
    if (!claim_is_within(state, call, line, size)) return false;
    if (!call->scope) return true;
    switch (call->kind) {
    case HARPE_CALL_FLEET_SHOW: return true; /* the answer has only groups of the scope */
    case HARPE_CALL_FLEET_PUT_BUDGET:
    case HARPE_CALL_FLEET_POST_EVENT: return covers_body(state, call, "group", false, line, size);
    case HARPE_CALL_FLEET_DELETE_BUDGET: return covers(state, call, call->job_id, line, size);
    case HARPE_CALL_FLEET_DELETE_EVENT: return covers_event(state, call, line, size);
    case HARPE_CALL_POWER_CAP: return covers_member(state, call, HARPE_MEMBER_JOB, line, size);
    case HARPE_CALL_FLEET_PUT_GROUP: return covers_move(state, call, line, size);
    case HARPE_CALL_FLEET_PUT_JOB:
        return covers_member(state, call, HARPE_MEMBER_JOB, line, size) &&
               covers_body(state, call, "group", true, line, size);
    case HARPE_CALL_FLEET_PUT_LOAD: kind = HARPE_MEMBER_LOAD; /* fall through */
    case HARPE_CALL_FLEET_PUT_MEMBER:
        return covers_member(state, call, kind, line, size) &&
               covers_body(state, call, "group", false, line, size);
    case HARPE_CALL_FLEET_DELETE_LOAD: kind = HARPE_MEMBER_LOAD; /* fall through */
    case HARPE_CALL_FLEET_DELETE_MEMBER:
    case HARPE_CALL_FLEET_REPORT: return covers_member(state, call, kind, line, size);
    default: return covers(state, call, NULL, line, size);
    }
}
