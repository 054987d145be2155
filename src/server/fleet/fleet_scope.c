/* SPDX-License-Identifier: Apache-2.0 */
/* Decides whether a client whose token names groups may change what a call changes, and whether a
 * client that is no operator may claim so much power. The scope of the token is these groups and
 * the groups inside of them.
 *
 * Prices and the history belong to the whole fleet, so such a client cannot change them. The client
 * may move a group only if both the old and the new parent are in the scope. It cannot make a
 * group, because a job or a token of somebody else may already use the name, and that job would
 * then be inside of the client's group. It cannot remove a group, because the jobs of that group
 * would leave the client's budgets. */
#include "server/fleet/fleet_scope.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rights/tokens.h"
#include "server/fleet/fleet_events.h"
#include "server/fleet/groups.h"
#include "server/fleet/member.h"

/* The most members that clients of one scope declare, unless they are operators. */
enum { MEMBERS_MAX = 1000 };

/* Returns whether the scope covers the group. If not, writes the reason to `line`. */
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

/* Checks the group that the member `member` of the JSON body names. If `is_optional`, a body
 * without this member changes no group and is allowed. */
static bool covers_body(const harpe_fleet_state *state, const harpe_call *call, const char *member,
                        bool is_optional, char *line, size_t size) {
    json_t *body = json_loadb(call->body ? call->body : "", call->body ? call->length : 0, 0, NULL);
    const json_t *group = json_object_get(body, member);
    bool may = (!group && is_optional) || covers(state, call, json_string_value(group), line, size);
    json_decref(body);
    return may;
}

/* Checks the group of a member of the fleet. If no such load or declared job exists, the call is
 * allowed. If no such job is a member yet, its group is not known here, and the call is refused. */
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

/* Returns the highest power that the member claims with this call. A report that shows more power
 * than its plan predicts raises all plans. */
static double claim_of(const harpe_fleet_state *state, const harpe_call *call) {
    json_t *body = json_loadb(call->body ? call->body : "", call->body ? call->length : 0, 0, NULL);
    double claim_w = json_number_value(json_object_get(body, "power"));
    const harpe_member *known = harpe_member_find(state, HARPE_MEMBER_DECLARED, call->job_id);
    const json_t *number = json_object_get(body, "plan"), *plan;
    size_t i, running = (size_t)json_integer_value(number);
    if (call->kind == HARPE_CALL_FLEET_REPORT && known) {
        bool has_plan = json_is_integer(number) && running < known->plan_count &&
                        known->plans[running].power_w > 0;
        double part = has_plan ? fmax(1, claim_w / known->plans[running].power_w) : 1;
        for (i = 0; i < known->plan_count; i++)
            claim_w = fmax(claim_w, part * known->plans[i].power_w);
    }
    json_array_foreach(json_object_get(body, "plans"), i, plan) {
        claim_w = fmax(claim_w, json_number_value(json_object_get(plan, "power")));
    }
    json_decref(body);
    return claim_w;
}

/* A client that is no operator can only claim so much power for members that it declares, because
 * others have less for each watt that a member says it draws. */
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

/* The scope must cover the group, its parent and its new parent. The reason is the same for a group
 * that does not exist and for a group outside of the scope, so it tells nothing about groups of
 * others. */
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
