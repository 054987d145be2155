/* SPDX-License-Identifier: Apache-2.0 */
/* The last search: over all jobs that could be part of a better choice. The objective is above the
 * lower bound by a sum of positive parts (see search.c). So no better choice contains an option
 * whose excess alone is as large as this sum. In most fleets only a few jobs have another option
 * below it, and a search of these jobs proves that the choice is the best. */
#include "fleet/proof.h"

#include "fleet/search.h"

#define JOBS_MAX 48
#define NODES 100000

/* Returns how far the objective is above the lower bound. */
static double whole_excess(const harpe_fleet *fleet) {
    double sum = 0;
    for (size_t j = 0; j < fleet->job_slots; j++)
        if (fleet->jobs[j].is_used)
            sum += harpe_fleet_excess(fleet, &fleet->jobs[j], fleet->jobs[j].option);
    for (size_t g = 0; g < fleet->group_count; g++) {
        const harpe_fleet_group *group = &fleet->groups[g];
        double around = g > 0 ? fleet->groups[group->parent].price : 0;
        if (group->price > around)
            sum += (group->price - around) * (double)(group->limit_uw - group->power_uw);
    }
    return sum;
}

/* Returns true if an option between two vertices has an excess below `limit`. */
static bool has_option_below(const harpe_fleet *fleet, const harpe_fleet_member *job, size_t from,
                             size_t to, double limit) {
    for (size_t o = job->hull.vertices[from]; o <= job->hull.vertices[to]; o++)
        if (o != job->option && harpe_fleet_excess(fleet, job, o) < limit) return true;
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
        if (harpe_fleet_excess(fleet, job, hull->vertices[v + 1]) >= limit) break;
    }
    for (size_t v = job->vertex; v > 0; v--) {
        if (has_option_below(fleet, job, v - 1, v, limit)) return true;
        if (harpe_fleet_excess(fleet, job, hull->vertices[v - 1]) >= limit) break;
    }
    return false;
}

harpe_status harpe_fleet_prove(harpe_fleet *fleet, bool *is_complete, harpe_error *error) {
    int jobs[JOBS_MAX];
    size_t count = 0, nodes = NODES;
    double limit = whole_excess(fleet);
    *is_complete = false;
    for (size_t j = 0; j < fleet->job_slots; j++) {
        if (!fleet->jobs[j].is_used || !could_change(fleet, &fleet->jobs[j], limit)) continue;
        if (count == JOBS_MAX) return HARPE_OK;
        jobs[count++] = (int)j;
    }
    return harpe_fleet_search(fleet, jobs, count, &nodes, is_complete, error);
}
