/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the groups that a call changes with the groups of its client. Prices and the history are
 * of the whole fleet. A client may move a group only between groups that it steers. A client cannot
 * make a group: a job or token of someone else may already use the name, and would then be inside
 * of the client's group. It cannot remove a group: the jobs of that group would leave the client's
 * budgets. */
#include "server/fleet/fleet_scope.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "rights/scope.h"
#include "server/fleet/fleet_events.h"
#include "server/fleet/groups.h"
#include "server/fleet/member.h"

/* Writes the line and returns false if the scope does not cover the group. */
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

/* Compares the group that a member of the body names. `is_optional`: a body without a group changes
 * no group. */
static bool covers_body(const harpe_fleet_state *state, const harpe_call *call, const char *member,
                        bool is_optional, char *line, size_t size) {
    json_t *body = json_loadb(call->body ? call->body : "", call->body ? call->length : 0, 0, NULL);
    const json_t *group = json_object_get(body, member);
    bool may = (!group && is_optional) || covers(state, call, json_string_value(group), line, size);
    json_decref(body);
    return may;
}

/* Compares the group of a member. A load or declared job that does not exist has no group; a job
 * that is no member yet has one that is not known here. */
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

/* The client must reach the group, the group around it and the new group around it. The line is the
 * same for a group that does not exist and for one that it does not reach, so that it tells nothing
 * of other groups. */
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
    if (!call->scope) return true;
    switch (call->kind) {
    case HARPE_CALL_FLEET_SHOW: return true; /* it shows only groups of the scope */
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
