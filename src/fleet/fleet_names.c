/* SPDX-License-Identifier: Apache-2.0 */
/* The names in the file of a fleet: puts the groups in order, parents first, finds the groups that
 * jobs and events name, and refuses names that occur twice. */
#include "fleet/fleet_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/format.h"

typedef struct linker {
    const char *name;
    harpe_fleet_file *file;
    harpe_error *error;
} linker;

/* A name with its index, sorted to find names and to see which occur twice. */
typedef struct named {
    const char *name;
    size_t index;
} named;

static int compare_names(const void *left, const void *right) {
    const named *a = left, *b = right;
    int order = strcmp(a->name, b->name);
    return order ? order : (a->index > b->index) - (a->index < b->index);
}

static const named *find_name(const named *names, size_t count, const char *name) {
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(names[middle].name, name);
        if (order == 0) return &names[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static harpe_status check_once(const linker *l, const char *kind, named *names, size_t count) {
    qsort(names, count, sizeof *names, compare_names);
    for (size_t i = 1; i < count; i++) {
        if (strcmp(names[i].name, names[i - 1].name) != 0) continue;
        char clean[HARPE_FLEET_NAME_MAX];
        return harpe_fail(l->error, HARPE_INVALID_INPUT, "%s: %s '%s' occurs twice", l->name, kind,
                          harpe_clean_text(clean, sizeof clean, names[i].name));
    }
    return HARPE_OK;
}

/* Moves the groups from `read` to the file, parents first. A round adds the groups of one depth, or
 * of several, so a fleet that is not too deep needs at most HARPE_FLEET_DEPTH_MAX rounds. */
static harpe_status order_groups(const linker *l, const harpe_fleet_file_group *read, size_t count,
                                 int *number) {
    size_t wanted = 0;
    for (size_t i = 0; i < count; i++)
        wanted += read[i].name ? 1 : 0;
    for (int round = 0; round < HARPE_FLEET_DEPTH_MAX && l->file->group_count <= wanted; round++) {
        for (size_t i = 0; i < count; i++) {
            int parent = read[i].parent < 0 ? 0 : number[read[i].parent];
            if (!read[i].name || number[i] >= 0 || parent < 0) continue;
            number[i] = (int)l->file->group_count;
            l->file->groups[l->file->group_count] = read[i];
            l->file->groups[l->file->group_count++].parent = parent;
        }
    }
    if (l->file->group_count == wanted + 1) return HARPE_OK;
    for (size_t i = 0; i < count; i++) {
        if (!read[i].name || number[i] >= 0) continue;
        char clean[HARPE_FLEET_NAME_MAX];
        return harpe_fail(l->error, HARPE_INVALID_INPUT,
                          "%s: budget of group '%s': the group is inside of itself, or of more "
                          "than %d groups",
                          l->name, harpe_clean_text(clean, sizeof clean, read[i].name),
                          HARPE_FLEET_DEPTH_MAX - 1);
    }
    return harpe_fail(l->error, HARPE_INTERNAL, "%s: groups are out of order", l->name);
}

static harpe_status fail_group(const linker *l, const char *kind, const char *of,
                               const char *group) {
    char clean[HARPE_FLEET_NAME_MAX], clean_of[HARPE_FLEET_NAME_MAX];
    return harpe_fail(l->error, HARPE_INVALID_INPUT,
                      "%s: %s '%.200s': no entry of \"budgets\" names the group '%.200s'", l->name,
                      kind, harpe_clean_text(clean_of, sizeof clean_of, of),
                      harpe_clean_text(clean, sizeof clean, group));
}

/* Sets the numbers of the groups of jobs and events. */
static harpe_status find_groups(const linker *l, const named *names, size_t count,
                                const int *number) {
    for (size_t j = 0; j < l->file->job_count; j++) {
        harpe_fleet_file_job *job = &l->file->jobs[j];
        if (!job->group_name) continue;
        const named *found = find_name(names, count, job->group_name);
        if (!found) return fail_group(l, "job", job->name, job->group_name);
        job->group = number[found->index];
    }
    for (size_t e = 0; e < l->file->event_count; e++) {
        harpe_fleet_file_event *event = &l->file->events[e];
        char text[24];
        (void)snprintf(text, sizeof text, "%zu", e);
        const named *found = event->group_name ? find_name(names, count, event->group_name) : NULL;
        if (event->group_name && !found) return fail_group(l, "event", text, event->group_name);
        event->group = found ? number[found->index] : 0;
        if (l->file->groups[event->group].budget.watts >= 0) continue;
        return harpe_fail(
            l->error, HARPE_INVALID_INPUT,
            "%s: event %zu (the first is 0): its group has no \"watts\" that it could "
            "lower",
            l->name, e);
    }
    return HARPE_OK;
}

static harpe_status link_groups(const linker *l, harpe_fleet_file_group *read, size_t count) {
    named *names = harpe_arena_alloc(&l->file->arena, count + 1, sizeof *names);
    int *number = harpe_arena_alloc(&l->file->arena, count + 1, sizeof *number);
    if (!names || !number) return harpe_fail_memory(l->error);
    size_t named_count = 0;
    for (size_t i = 0; i < count; i++) {
        number[i] = -1;
        if (read[i].name) names[named_count++] = (named){read[i].name, i};
    }
    harpe_status status = check_once(l, "budget of group", names, named_count);
    for (size_t i = 0; i < count && status == HARPE_OK; i++) {
        const char *parent = read[i].parent_name;
        const named *found = parent ? find_name(names, named_count, parent) : NULL;
        if (parent && !found) return fail_group(l, "budget of group", read[i].name, parent);
        read[i].parent = found ? (int)found->index : -1;
    }
    if (status == HARPE_OK) status = order_groups(l, read, count, number);
    return status == HARPE_OK ? find_groups(l, names, named_count, number) : status;
}

static harpe_status check_job_names(const linker *l) {
    size_t count = l->file->job_count;
    named *names = harpe_arena_alloc(&l->file->arena, count, sizeof *names);
    if (!names) return harpe_fail_memory(l->error);
    for (size_t j = 0; j < count; j++)
        names[j] = (named){l->file->jobs[j].name, j};
    return check_once(l, "job", names, count);
}

harpe_status harpe_fleet_file_link(harpe_fleet_file *file, const char *name,
                                   harpe_fleet_file_group *read, size_t count, harpe_error *error) {
    linker l = {.name = name, .file = file, .error = error};
    harpe_status status = link_groups(&l, read, count);
    return status == HARPE_OK ? check_job_names(&l) : status;
}
