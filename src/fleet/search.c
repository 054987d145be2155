/* SPDX-License-Identifier: Apache-2.0 */
/* A complete search over the options of some jobs, while all others keep theirs: depth first, with
 * the prices of the relaxation as a bound.
 *
 * The objective of a choice is the lower bound, plus the excess of each option (see
 * harpe_fleet_excess), plus for each group its own price times the power that it leaves. All parts
 * are positive, so a branch ends when its excesses reach the total of the best choice. */
#include "fleet/search.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"

/* Two choices whose totals differ by less than this part are equal. */
#define EQUAL 1e-12

typedef struct branch {
    int64_t power_uw;
    double excess;
    size_t option;
} branch;

typedef struct level {
    harpe_fleet_member *job;
    size_t first, count; /* into branches */
    double spread;       /* excess of the second branch */
    size_t next;         /* the branch to try next */
    double excess;       /* of this and the earlier levels */
} level;

typedef struct walk {
    harpe_fleet *fleet;
    level *levels;
    size_t count;
    branch *branches;
    size_t *best; /* [count] options */
    double best_total;
    bool is_better;
} walk;

double harpe_fleet_excess(const harpe_fleet *fleet, const harpe_fleet_member *job, size_t option) {
    const harpe_fleet_hull *hull = &job->hull;
    const harpe_fleet_option *at = &hull->options[option];
    const harpe_fleet_option *best = &hull->options[hull->vertices[job->vertex]];
    double power = (double)(at->power_uw - best->power_uw);
    double excess = at->cost - best->cost + fleet->groups[job->group].price * power;
    return excess > 0 ? excess : 0;
}

static double own_price(const harpe_fleet *fleet, int g) {
    int parent = fleet->groups[g].parent;
    return fleet->groups[g].price - (parent < 0 ? 0 : fleet->groups[parent].price);
}

static void add_power(harpe_fleet *fleet, int g, int64_t power_uw) {
    for (; g >= 0; g = fleet->groups[g].parent)
        fleet->groups[g].power_uw += power_uw;
}

static bool has_room(const harpe_fleet *fleet, int g, int64_t power_uw) {
    for (; g >= 0; g = fleet->groups[g].parent)
        if (power_uw > fleet->groups[g].limit_uw - fleet->groups[g].power_uw) return false;
    return true;
}

/* Returns own price times power left, of all groups around the jobs of the walk. */
static double unused(const walk *w) {
    double sum = 0;
    for (size_t k = 0; k < w->count; k++) {
        for (int g = w->levels[k].job->group; g >= 0; g = w->fleet->groups[g].parent) {
            harpe_fleet_group *group = &w->fleet->groups[g];
            if (group->is_counted) break;
            group->is_counted = true;
            double price = own_price(w->fleet, g);
            if (price > 0) sum += price * (double)(group->limit_uw - group->power_uw);
        }
    }
    for (size_t k = 0; k < w->count; k++)
        for (int g = w->levels[k].job->group; g >= 0; g = w->fleet->groups[g].parent)
            w->fleet->groups[g].is_counted = false;
    return sum;
}

static int compare_branches(const void *left, const void *right) {
    const branch *a = left, *b = right;
    if (a->excess != b->excess) return a->excess < b->excess ? -1 : 1;
    return (a->power_uw < b->power_uw) - (a->power_uw > b->power_uw);
}

static int compare_levels(const void *left, const void *right) {
    const level *a = left, *b = right;
    if (a->spread != b->spread) return a->spread > b->spread ? -1 : 1;
    return (a->first > b->first) - (a->first < b->first);
}

/* Lists the options of the jobs that can be part of a better choice. */
static void list_branches(walk *w, const int *jobs) {
    size_t used = 0;
    for (size_t k = 0; k < w->count; k++) {
        harpe_fleet_member *job = &w->fleet->jobs[jobs[k]];
        level *l = &w->levels[k];
        *l = (level){.job = job, .first = used};
        for (size_t o = 0; o < job->hull.option_count; o++) {
            double excess = harpe_fleet_excess(w->fleet, job, o);
            if (excess >= w->best_total && o != job->option) continue;
            w->branches[used++] = (branch){job->hull.options[o].power_uw, excess, o};
        }
        l->count = used - l->first;
        qsort(&w->branches[l->first], l->count, sizeof *w->branches, compare_branches);
        l->spread = l->count > 1 ? w->branches[l->first + 1].excess : 0;
    }
    qsort(w->levels, w->count, sizeof *w->levels, compare_levels);
}

static void keep_choice(walk *w, double total) {
    w->best_total = total;
    w->is_better = true;
    for (size_t k = 0; k < w->count; k++)
        w->best[k] = w->branches[w->levels[k].first + w->levels[k].next - 1].option;
}

/* Moves a level to its next branch that fits. Returns false, with no branch taken, after the
 * last. */
static bool advance(walk *w, size_t depth) {
    level *l = &w->levels[depth];
    double before = depth > 0 ? w->levels[depth - 1].excess : 0;
    const branch *branches = &w->branches[l->first];
    if (l->next > 0) add_power(w->fleet, l->job->group, -branches[l->next - 1].power_uw);
    while (l->next < l->count) {
        const branch *b = &branches[l->next++];
        if (before + b->excess >= w->best_total * (1 - EQUAL)) break;
        if (!has_room(w->fleet, l->job->group, b->power_uw)) continue;
        add_power(w->fleet, l->job->group, b->power_uw);
        l->excess = before + b->excess;
        return true;
    }
    l->next = 0;
    return false;
}

/* Visits the tree. All powers of the jobs are taken out of the groups. Returns false if the nodes
 * did not suffice. */
static bool visit(walk *w, size_t *nodes) {
    size_t depth = 0;
    while (*nodes > 0) {
        (*nodes)--;
        if (!advance(w, depth)) {
            if (depth == 0) return true;
            depth--;
        } else if (depth + 1 < w->count) {
            depth++;
        } else {
            double total = w->levels[depth].excess + unused(w);
            if (total < w->best_total * (1 - EQUAL)) keep_choice(w, total);
        }
    }
    for (size_t k = 0; k < w->count; k++) {
        level *l = &w->levels[k];
        if (l->next == 0) break;
        add_power(w->fleet, l->job->group, -w->branches[l->first + l->next - 1].power_uw);
    }
    return false;
}

static void run(walk *w, const int *jobs, size_t *nodes, bool *is_complete) {
    for (size_t k = 0; k < w->count; k++)
        w->levels[k].job = &w->fleet->jobs[jobs[k]];
    w->best_total = unused(w);
    for (size_t k = 0; k < w->count; k++)
        w->best_total += harpe_fleet_excess(w->fleet, w->levels[k].job, w->levels[k].job->option);
    list_branches(w, jobs);
    for (size_t k = 0; k < w->count; k++) {
        const harpe_fleet_member *job = w->levels[k].job;
        add_power(w->fleet, job->group, -job->hull.options[job->option].power_uw);
    }
    *is_complete = visit(w, nodes);
    for (size_t k = 0; k < w->count; k++) {
        harpe_fleet_member *job = w->levels[k].job;
        if (w->is_better) job->option = w->best[k];
        add_power(w->fleet, job->group, job->hull.options[job->option].power_uw);
    }
}

harpe_status harpe_fleet_search(harpe_fleet *fleet, const int *jobs, size_t count, size_t *nodes,
                                bool *is_complete, harpe_error *error) {
    size_t branches = 0;
    *is_complete = true;
    if (count == 0) return HARPE_OK;
    for (size_t k = 0; k < count; k++)
        branches += fleet->jobs[jobs[k]].hull.option_count;
    walk w = {.fleet = fleet,
              .count = count,
              .levels = harpe_calloc(count, sizeof *w.levels),
              .branches = harpe_calloc(branches, sizeof *w.branches),
              .best = harpe_calloc(count, sizeof *w.best)};
    bool has_memory = w.levels && w.branches && w.best;
    if (has_memory) run(&w, jobs, nodes, is_complete);
    free(w.levels);
    free(w.branches);
    free(w.best);
    return has_memory ? HARPE_OK : harpe_fail_memory(error);
}
