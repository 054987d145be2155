/* SPDX-License-Identifier: Apache-2.0 */
/* From the relaxation to real plans. Each job begins at the vertex that the price of its group
 * allows; this fits. Then the segments at the price itself are filled in, a search looks for better
 * options of the jobs that are nearest to the price, and what is left goes to any job that can use
 * it.
 *
 * The searches are complete for some jobs, while all others keep their options: depth first, with
 * the prices of the relaxation as a bound. The objective of a choice is the lower bound, plus the
 * excess of each option (see excess_of), plus for each group its own price times the power that it
 * leaves. All parts are positive, so a branch ends when its excesses reach the total of the best
 * choice, and no better choice contains an option whose excess alone is as large as this total. In
 * most fleets only a few jobs have another option below it, and the last search, of these jobs,
 * proves that the choice is the best. */
#include "fleet/fleet_internal.h"

#include <float.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"

/* ---- The search of some jobs ----------------------------------------------------------------- */

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

/* Returns the part of a job's Lagrangian above its minimum: how much worse than the best the
 * option is, at the price of the job's group. */
static double excess_of(const harpe_fleet *fleet, const harpe_fleet_member *job, size_t option) {
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
            double excess = excess_of(w->fleet, job, o);
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
        w->best_total += excess_of(w->fleet, w->levels[k].job, w->levels[k].job->option);
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

/* Looks for better options of the given jobs. Sets `option` of the jobs and `power_uw` of their
 * groups. Visits at most `nodes` nodes, and takes those that it visits from `nodes`. `*is_complete`
 * is true if no better choice exists for these jobs. */
static harpe_status search_jobs(harpe_fleet *fleet, const int *jobs, size_t count, size_t *nodes,
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

/* ---- The last search ------------------------------------------------------------------------- */

#define PROOF_JOBS_MAX 48
#define PROOF_NODES 100000
#define SMALL_FLEET 16      /* jobs, of which this search may take longer */
#define SMALL_NODES 2000000 /* nodes then */

/* Returns how far the objective is above the lower bound. */
static double whole_excess(const harpe_fleet *fleet) {
    double sum = 0;
    for (size_t j = 0; j < fleet->job_slots; j++)
        if (fleet->jobs[j].is_used) sum += excess_of(fleet, &fleet->jobs[j], fleet->jobs[j].option);
    for (size_t g = 0; g < fleet->group_count; g++) {
        const harpe_fleet_group *group = &fleet->groups[g];
        double price = own_price(fleet, (int)g);
        if (price > 0) sum += price * (double)(group->limit_uw - group->power_uw);
    }
    return sum;
}

/* Returns true if an option between two vertices has an excess below `limit`. */
static bool has_option_below(const harpe_fleet *fleet, const harpe_fleet_member *job, size_t from,
                             size_t to, double limit) {
    for (size_t o = job->hull.vertices[from]; o <= job->hull.vertices[to]; o++)
        if (o != job->option && excess_of(fleet, job, o) < limit) return true;
    return false;
}

/* Looks at the options on both sides of the job's vertex. The excess of the vertices grows with the
 * distance, and no option lies below the hull, so the first vertex that is not below the limit ends
 * the search. */
static bool could_change(const harpe_fleet *fleet, const harpe_fleet_member *job, double limit) {
    const harpe_fleet_hull *hull = &job->hull;
    if (hull->vertices[job->vertex] != job->option) return true;
    for (size_t v = job->vertex; v + 1 < hull->vertex_count; v++) {
        if (has_option_below(fleet, job, v, v + 1, limit)) return true;
        if (excess_of(fleet, job, hull->vertices[v + 1]) >= limit) break;
    }
    for (size_t v = job->vertex; v > 0; v--) {
        if (has_option_below(fleet, job, v - 1, v, limit)) return true;
        if (excess_of(fleet, job, hull->vertices[v - 1]) >= limit) break;
    }
    return false;
}

/* Searches all jobs of which another option could be part of a better choice, if they are few.
 * `*is_complete` is true if the choice is then the best of all. */
static harpe_status prove(harpe_fleet *fleet, bool *is_complete, harpe_error *error) {
    int jobs[PROOF_JOBS_MAX];
    size_t count = 0, nodes = fleet->job_count <= SMALL_FLEET ? SMALL_NODES : PROOF_NODES;
    double limit = whole_excess(fleet);
    *is_complete = false;
    for (size_t j = 0; j < fleet->job_slots; j++) {
        if (!fleet->jobs[j].is_used || !could_change(fleet, &fleet->jobs[j], limit)) continue;
        if (count == PROOF_JOBS_MAX) return HARPE_OK;
        jobs[count++] = (int)j;
    }
    return search_jobs(fleet, jobs, count, &nodes, is_complete, error);
}

/* ---- Vertices and segments ------------------------------------------------------------------- */

#define CORE_JOBS 24           /* jobs nearest to the price of a group */
#define CORE_NODES 20000       /* nodes of the search of one core */
#define ALL_CORES_NODES 100000 /* nodes of all cores */

typedef struct near_job {
    int job;
    double distance; /* least excess of a vertex next to the job's own */
} near_job;

/* The jobs whose price is the threshold of one group. */
typedef struct core {
    int group;
    size_t count;
    near_job jobs[CORE_JOBS]; /* a heap; the farthest is first */
} core;

static bool take(harpe_fleet *fleet, harpe_fleet_member *job, size_t option) {
    int64_t more = job->hull.options[option].power_uw - job->hull.options[job->option].power_uw;
    if (!has_room(fleet, job->group, more)) return false;
    add_power(fleet, job->group, more);
    job->option = option;
    return true;
}

/* Puts each job at its vertex. */
static void begin(harpe_fleet *fleet) {
    for (size_t g = fleet->group_count; g-- > 0;)
        fleet->groups[g].power_uw = 0;
    for (size_t g = fleet->group_count; g-- > 0;) {
        harpe_fleet_group *group = &fleet->groups[g];
        for (size_t k = 0; k < group->job_count; k++) {
            harpe_fleet_member *job = &fleet->jobs[group->jobs[k]];
            job->option = job->hull.vertices[job->vertex];
            group->power_uw += job->hull.power_uw[job->vertex];
        }
        if (g > 0) fleet->groups[group->parent].power_uw += group->power_uw;
    }
}

static bool has_segment_at_price(const harpe_fleet *fleet, const harpe_fleet_member *job) {
    return job->is_used && job->vertex + 1 < job->hull.vertex_count &&
           job->hull.gain[job->vertex] == fleet->groups[job->group].price;
}

/* Gives jobs the segments whose gain is the price, in the order of the jobs: the gains are equal in
 * a group, and a dearer group lies inside of a cheaper one. */
static void fill_segments_at_price(harpe_fleet *fleet) {
    for (size_t j = 0; j < fleet->job_slots; j++) {
        harpe_fleet_member *job = &fleet->jobs[j];
        if (has_segment_at_price(fleet, job))
            (void)take(fleet, job, job->hull.vertices[job->vertex + 1]);
    }
}

/* Gives the power that is left to any job that can use it. */
static void fill_rest(harpe_fleet *fleet) {
    for (size_t j = 0; j < fleet->job_slots; j++) {
        harpe_fleet_member *job = &fleet->jobs[j];
        if (!job->is_used) continue;
        while (job->option + 1 < job->hull.option_count && take(fleet, job, job->option + 1))
            continue;
    }
}

/* ---- Cores ----------------------------------------------------------------------------------- */

static double distance(const harpe_fleet *fleet, const harpe_fleet_member *job) {
    const harpe_fleet_hull *hull = &job->hull;
    double nearest = DBL_MAX;
    if (job->vertex + 1 < hull->vertex_count)
        nearest = excess_of(fleet, job, hull->vertices[job->vertex + 1]);
    if (job->vertex > 0) {
        double below = excess_of(fleet, job, hull->vertices[job->vertex - 1]);
        if (below < nearest) nearest = below;
    }
    return nearest;
}

static void sift_down(core *c, size_t at) {
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= c->count) return;
        if (child + 1 < c->count && c->jobs[child + 1].distance > c->jobs[child].distance) child++;
        if (c->jobs[child].distance <= c->jobs[at].distance) return;
        near_job moved = c->jobs[at];
        c->jobs[at] = c->jobs[child];
        c->jobs[child] = moved;
        at = child;
    }
}

static void add_to_core(core *c, int job, double how_far) {
    if (c->count < CORE_JOBS) {
        c->jobs[c->count++] = (near_job){job, how_far};
        if (c->count == CORE_JOBS)
            for (size_t at = CORE_JOBS / 2; at-- > 0;)
                sift_down(c, at);
    } else if (how_far < c->jobs[0].distance) {
        c->jobs[0] = (near_job){job, how_far};
        sift_down(c, 0);
    }
}

/* Sets `core` of each group: the number of the core whose threshold is the group's price, or -1.
 * Returns how many there are. */
static size_t number_cores(harpe_fleet *fleet) {
    size_t count = 0;
    for (size_t g = 0; g < fleet->group_count; g++) {
        harpe_fleet_group *group = &fleet->groups[g];
        double around = g > 0 ? fleet->groups[group->parent].price : 0;
        if (group->price > around)
            group->core = (int)count++;
        else
            group->core = g > 0 ? fleet->groups[group->parent].core : -1;
    }
    return count;
}

static void fill_cores(const harpe_fleet *fleet, core *cores) {
    for (size_t j = 0; j < fleet->job_slots; j++) {
        const harpe_fleet_member *job = &fleet->jobs[j];
        if (!job->is_used || job->hull.option_count < 2) continue;
        int number = fleet->groups[job->group].core;
        if (number >= 0) add_to_core(&cores[number], (int)j, distance(fleet, job));
    }
}

static int compare_ints(const void *left, const void *right) {
    int a = *(const int *)left, b = *(const int *)right;
    return (a > b) - (a < b);
}

/* Searches the cores one after another, the inner groups first. */
static harpe_status improve_cores(harpe_fleet *fleet, harpe_error *error) {
    size_t count = number_cores(fleet);
    if (count == 0) return HARPE_OK;
    core *cores = harpe_calloc(count, sizeof *cores);
    if (!cores) return harpe_fail_memory(error);
    fill_cores(fleet, cores);
    harpe_status status = HARPE_OK;
    size_t share = ALL_CORES_NODES / count;
    for (size_t c = count; c-- > 0 && status == HARPE_OK;) {
        int jobs[CORE_JOBS];
        for (size_t k = 0; k < cores[c].count; k++)
            jobs[k] = cores[c].jobs[k].job;
        qsort(jobs, cores[c].count, sizeof *jobs, compare_ints);
        size_t nodes = share < CORE_NODES ? share : CORE_NODES;
        bool is_complete;
        status = search_jobs(fleet, jobs, cores[c].count, &nodes, &is_complete, error);
    }
    free(cores);
    return status;
}

/* ---- Rounding -------------------------------------------------------------------------------- */

harpe_status harpe_fleet_round(harpe_fleet *fleet, bool *is_complete, harpe_error *error) {
    begin(fleet);
    fill_segments_at_price(fleet);
    harpe_status status = fleet->job_count > SMALL_FLEET ? improve_cores(fleet, error) : HARPE_OK;
    if (status != HARPE_OK) return status;
    fill_rest(fleet);
    return prove(fleet, is_complete, error);
}
