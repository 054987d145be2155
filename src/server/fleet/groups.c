/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of the fleet. A group is made when a request or a job names it. */
#include "server/fleet/groups.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "server/fleet/member.h"

enum { GROUPS_MAX = HARPE_FLEET_GROUPS_MAX / 10 };

bool harpe_groups_are_full(const harpe_fleet_state *state) {
    return state->group_count >= GROUPS_MAX;
}

static int add(harpe_fleet_state *state, const char *name, int parent) {
    if (harpe_groups_are_full(state) ||
        !HARPE_ARRAY_RESERVE(state->groups, state->group_capacity, state->group_count + 1))
        return -1;
    harpe_fleet_group_state group = {
        .name = strdup(name), .parent = parent, .budget = {.watts = -1, .overhead = 1}};
    if (!group.name) return -1;
    state->groups[state->group_count] = group;
    state->needs_solver = true;
    return (int)state->group_count++;
}

bool harpe_groups_begin(harpe_fleet_state *state) { return add(state, "", -1) == 0; }

void harpe_groups_free(harpe_fleet_state *state) {
    for (size_t g = 0; g < state->group_count; g++)
        free(state->groups[g].name);
    free(state->groups);
    state->groups = NULL;
    harpe_group_tree_free(&state->tree);
    state->group_count = state->group_capacity = 0;
}

int harpe_groups_find(const harpe_fleet_state *state, const char *name) {
    for (size_t g = 0; g < state->group_count; g++)
        if (strcmp(state->groups[g].name, name) == 0) return (int)g;
    return -1;
}

int harpe_groups_need(harpe_fleet_state *state, const char *name) {
    int group = harpe_groups_find(state, name);
    return group >= 0 ? group : add(state, name, 0);
}

static int depth_of(const harpe_fleet_state *state, int group) {
    int depth = 0;
    for (; group > 0; group = state->groups[group].parent)
        depth++;
    return depth;
}

/* Returns the number of levels from this group to the deepest group inside of it. */
static int height_of(const harpe_fleet_state *state, int group) {
    int height = 0;
    for (int g = 1; g < (int)state->group_count; g++) {
        int above = g;
        while (above > 0 && above != group)
            above = state->groups[above].parent;
        if (above != group) continue;
        int levels = depth_of(state, g) - depth_of(state, group);
        if (levels > height) height = levels;
    }
    return height;
}

bool harpe_groups_may_contain(const harpe_fleet_state *state, int parent, int group) {
    for (int g = parent; g >= 0; g = state->groups[g].parent)
        if (g == group) return false;
    return depth_of(state, parent) + 1 + height_of(state, group) < HARPE_FLEET_DEPTH_MAX;
}

void harpe_groups_set_parent(harpe_fleet_state *state, int group, int parent) {
    if (state->groups[group].parent == parent) return;
    state->groups[group].parent = parent;
    /* Without memory for the entry, only tokens that name the group reach it. */
    (void)harpe_group_tree_put(&state->tree, state->groups[group].name, state->groups[parent].name);
    state->needs_solver = true;
}

bool harpe_groups_is_used(const harpe_fleet_state *state, int group) {
    for (size_t i = 0; i < state->member_count; i++)
        if (state->members[i]->group == group) return true;
    for (size_t g = 1; g < state->group_count; g++)
        if (state->groups[g].parent == group) return true;
    return state->groups[group].budget.watts >= 0;
}

void harpe_groups_remove(harpe_fleet_state *state, int group) {
    (void)harpe_group_tree_put(&state->tree, state->groups[group].name, NULL);
    free(state->groups[group].name);
    state->group_count--;
    for (size_t g = (size_t)group; g < state->group_count; g++)
        state->groups[g] = state->groups[g + 1];
    for (size_t g = 1; g < state->group_count; g++)
        if (state->groups[g].parent > group) state->groups[g].parent--;
    for (size_t i = 0; i < state->member_count; i++)
        if (state->members[i]->group > group) state->members[i]->group--;
    state->needs_solver = true;
}

void harpe_groups_place(harpe_fleet_state *state, harpe_member *member) {
    int group = harpe_groups_need(state, harpe_member_group_name(member));
    if (group < 0) group = 0;
    if (group != member->group) member->is_dirty = true;
    member->group = group;
}
