/* SPDX-License-Identifier: Apache-2.0 */
/* From the relaxation to real plans. Each job begins at the vertex that the price of its group
 * allows; this fits. Then the segments at the price itself are filled in, a search looks for better
 * options of the jobs that are nearest to the price, and what is left goes to any job that can use
 * it. */
#include "fleet/rounding.h"

#include <float.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"
#include "fleet/proof.h"
#include "fleet/search.h"

#define SMALL_FLEET 16         /* jobs that are searched completely */
#define SMALL_NODES 2000000    /* nodes of that search */
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
    for (int g = job->group; g >= 0; g = fleet->groups[g].parent)
        if (more > fleet->groups[g].limit_uw - fleet->groups[g].power_uw) return false;
    for (int g = job->group; g >= 0; g = fleet->groups[g].parent)
        fleet->groups[g].power_uw += more;
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
        nearest = harpe_fleet_excess(fleet, job, hull->vertices[job->vertex + 1]);
    if (job->vertex > 0) {
        double below = harpe_fleet_excess(fleet, job, hull->vertices[job->vertex - 1]);
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
        status = harpe_fleet_search(fleet, jobs, cores[c].count, &nodes, &is_complete, error);
    }
    free(cores);
    return status;
}

/* ---- Rounding -------------------------------------------------------------------------------- */

static harpe_status search_all(harpe_fleet *fleet, bool *is_complete, harpe_error *error) {
    int jobs[SMALL_FLEET];
    size_t count = 0, nodes = SMALL_NODES;
    for (size_t j = 0; j < fleet->job_slots; j++)
        if (fleet->jobs[j].is_used) jobs[count++] = (int)j;
    return harpe_fleet_search(fleet, jobs, count, &nodes, is_complete, error);
}

harpe_status harpe_fleet_round(harpe_fleet *fleet, bool *is_complete, harpe_error *error) {
    *is_complete = false;
    begin(fleet);
    fill_segments_at_price(fleet);
    if (fleet->job_count <= SMALL_FLEET) {
        fill_rest(fleet);
        return search_all(fleet, is_complete, error);
    }
    harpe_status status = improve_cores(fleet, error);
    if (status != HARPE_OK) return status;
    fill_rest(fleet);
    return harpe_fleet_prove(fleet, is_complete, error);
}
