/* SPDX-License-Identifier: Apache-2.0 */
/* Three ways to bring a fleet under its budgets. The two that operators use today are shown at
 * their best: a capped job may run between two of its plans, follows its own frontier, and accepts
 * any slowdown; a stopped job draws no power. */
#include "fleet/policies.h"

#include <math.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"
#include "fleet/fleet_state.h"
#include "fleet/hull.h"

#define CAP_STEPS 60 /* halvings of the range of caps */

struct harpe_fleet_steering {
    const harpe_fleet_file *file;
    harpe_fleet_policy policy;
    harpe_fleet *fleet;      /* of the split */
    int *number;             /* [jobs] in the fleet; -1: not there */
    harpe_fleet_member *run; /* [jobs] hulls of time over power, for the cap */
    double *share;           /* [jobs] watts of the job for each watt of the cap */
    double highest_cap;
    size_t *order;  /* [jobs] lowest priority first */
    double *room_w; /* [groups] */
};

/* ---- The split ------------------------------------------------------------------------------- */

/* Adds and removes jobs, so that the fleet has the jobs that are here. */
static harpe_status follow_jobs(harpe_fleet_steering *s, const bool *is_here, harpe_error *error) {
    harpe_status status = HARPE_OK;
    for (size_t j = 0; j < s->file->job_count && status == HARPE_OK; j++) {
        const harpe_fleet_file_job *job = &s->file->jobs[j];
        if (is_here[j] == (s->number[j] >= 0)) continue;
        harpe_fleet_job description = {.name = job->name,
                                       .group = job->group,
                                       .weight = job->weight,
                                       .max_slowdown = job->max_slowdown,
                                       .plan_count = job->plan_count,
                                       .plans = job->plans};
        if (is_here[j]) {
            status = harpe_fleet_add(s->fleet, &description, &s->number[j], error);
        } else {
            status = harpe_fleet_remove(s->fleet, s->number[j], error);
            s->number[j] = -1;
        }
    }
    return status;
}

static harpe_status steer_split(harpe_fleet_steering *s, const bool *is_here, const double *watts,
                                double at_s, harpe_fleet_pace *pace, harpe_error *error) {
    harpe_fleet_price price = harpe_fleet_file_price_at(s->file, at_s);
    harpe_fleet_split split;
    harpe_status status = follow_jobs(s, is_here, error);
    if (status == HARPE_OK) status = harpe_fleet_set_price(s->fleet, &price, error);
    if (status == HARPE_OK)
        status = harpe_fleet_set_watts(s->fleet, watts, s->file->group_count, error);
    if (status == HARPE_OK) status = harpe_fleet_solve(s->fleet, &split, error);
    for (size_t j = 0; j < s->file->job_count && status == HARPE_OK; j++) {
        if (!is_here[j]) continue;
        harpe_fleet_choice choice;
        status = harpe_fleet_choice_of(s->fleet, s->number[j], &choice, error);
        if (status == HARPE_OK)
            pace[j] = (harpe_fleet_pace){choice.power_w, 1 / choice.slowdown, choice.time_s};
    }
    return status;
}

/* ---- Rooms ----------------------------------------------------------------------------------- */

static void set_rooms(harpe_fleet_steering *s, const double *watts) {
    for (size_t g = 0; g < s->file->group_count; g++) {
        const harpe_fleet_budget *budget = &s->file->groups[g].budget;
        s->room_w[g] = watts[g] < 0 ? INFINITY : watts[g] * (1 - budget->margin) / budget->overhead;
    }
}

static void use_room(harpe_fleet_steering *s, size_t job, double power_w) {
    for (int g = s->file->jobs[job].group; g >= 0; g = s->file->groups[g].parent)
        s->room_w[g] -= power_w;
}

/* Returns true if the groups around a job have at least this room. */
static bool has_room(const harpe_fleet_steering *s, size_t job, double room_w) {
    for (int g = s->file->jobs[job].group; g >= 0; g = s->file->groups[g].parent)
        if (s->room_w[g] < room_w) return false;
    return true;
}

/* ---- One power cap --------------------------------------------------------------------------- */

/* Returns how a job runs under a power of its own. */
static harpe_fleet_pace pace_below(const harpe_fleet_member *run, double power_w) {
    const harpe_fleet_hull *hull = &run->hull;
    const harpe_fleet_option *options = hull->options;
    size_t v = 0;
    while (v + 1 < hull->vertex_count && (double)hull->power_uw[v + 1] * 1e-6 <= power_w)
        v++;
    const harpe_fleet_option *low = &options[hull->vertices[v]];
    double low_w = (double)low->power_uw * 1e-6, slowdown = low->cost + 1, drawn_w = low_w;
    if (v + 1 < hull->vertex_count && power_w > low_w) {
        slowdown -= hull->gain[v] * 1e6 * (power_w - low_w);
        drawn_w = power_w;
    }
    return (harpe_fleet_pace){drawn_w, 1 / slowdown, run->plans[0].time_s * slowdown};
}

static bool cap_fits(harpe_fleet_steering *s, const bool *is_here, const double *watts, double cap,
                     harpe_fleet_pace *pace) {
    set_rooms(s, watts);
    for (size_t j = 0; j < s->file->job_count; j++) {
        if (!is_here[j]) continue;
        double power_w = s->file->jobs[j].is_load ? INFINITY : cap * s->share[j];
        pace[j] = pace_below(&s->run[j], power_w);
        use_room(s, j, pace[j].power_w);
    }
    for (size_t g = 0; g < s->file->group_count; g++)
        if (s->room_w[g] < 0) return false;
    return true;
}

/* Finds the highest cap that fits all budgets. If none fits, the lowest cap holds. */
static void steer_cap(harpe_fleet_steering *s, const bool *is_here, const double *watts,
                      harpe_fleet_pace *pace) {
    double low = 0, high = s->highest_cap;
    if (cap_fits(s, is_here, watts, high, pace)) return;
    for (int step = 0; step < CAP_STEPS; step++) {
        double middle = (low + high) / 2;
        if (cap_fits(s, is_here, watts, middle, pace))
            low = middle;
        else
            high = middle;
    }
    (void)cap_fits(s, is_here, watts, low, pace);
}

/* ---- Stopping -------------------------------------------------------------------------------- */

/* Stops jobs from the lowest priority on, until all budgets hold. Then starts those again that
 * still fit, from the highest priority on. */
static void steer_stop(harpe_fleet_steering *s, const bool *is_here, const double *watts,
                       harpe_fleet_pace *pace) {
    const harpe_fleet_file_job *jobs = s->file->jobs;
    set_rooms(s, watts);
    for (size_t j = 0; j < s->file->job_count; j++) {
        if (!is_here[j]) continue;
        pace[j] = (harpe_fleet_pace){jobs[j].plans[0].power_w, 1, jobs[j].plans[0].time_s};
        use_room(s, j, pace[j].power_w);
    }
    for (size_t k = 0; k < s->file->job_count; k++) {
        size_t j = s->order[k];
        if (!is_here[j] || jobs[j].is_load || has_room(s, j, 0)) continue;
        use_room(s, j, -pace[j].power_w);
        pace[j] = (harpe_fleet_pace){.time_s = jobs[j].plans[0].time_s};
    }
    for (size_t k = s->file->job_count; k-- > 0;) {
        size_t j = s->order[k];
        double power_w = jobs[j].plans[0].power_w;
        if (!is_here[j] || pace[j].rate > 0 || !has_room(s, j, power_w)) continue;
        pace[j] = (harpe_fleet_pace){power_w, 1, jobs[j].plans[0].time_s};
        use_room(s, j, power_w);
    }
}

typedef struct ranked {
    double priority, weight;
    size_t job;
} ranked;

static int compare_ranked(const void *left, const void *right) {
    const ranked *a = left, *b = right;
    if (a->priority != b->priority) return a->priority < b->priority ? -1 : 1;
    if (a->weight != b->weight) return a->weight < b->weight ? -1 : 1;
    return (a->job < b->job) - (a->job > b->job);
}

static bool order_jobs(harpe_fleet_steering *s) {
    ranked *list = harpe_calloc(s->file->job_count, sizeof *list);
    if (!list) return false;
    for (size_t j = 0; j < s->file->job_count; j++)
        list[j] = (ranked){s->file->jobs[j].priority, s->file->jobs[j].weight, j};
    qsort(list, s->file->job_count, sizeof *list, compare_ranked);
    for (size_t j = 0; j < s->file->job_count; j++)
        s->order[j] = list[j].job;
    free(list);
    return true;
}

/* ---- All ------------------------------------------------------------------------------------- */

/* Makes the frontiers of all jobs for the cap. The cap is in watts for each GPU, or, if the GPUs of
 * a job are not known, in shares of the power of the fastest plans. */
static harpe_status make_runs(harpe_fleet_steering *s, harpe_error *error) {
    static const harpe_fleet_price none = {0};
    bool has_gpus = true;
    for (size_t j = 0; j < s->file->job_count; j++)
        has_gpus = has_gpus && (s->file->jobs[j].is_load || s->file->jobs[j].gpus > 0);
    for (size_t j = 0; j < s->file->job_count; j++) {
        const harpe_fleet_file_job *job = &s->file->jobs[j];
        s->run[j] =
            (harpe_fleet_member){.weight = 1, .plan_count = job->plan_count, .plans = job->plans};
        harpe_status status = harpe_fleet_hull_make(&s->run[j], &none, 1, error);
        if (status != HARPE_OK) return status;
        size_t last = s->run[j].hull.vertex_count - 1;
        double most_w = (double)s->run[j].hull.power_uw[last] * 1e-6;
        s->share[j] = has_gpus ? job->gpus : most_w;
        if (!job->is_load && s->share[j] > 0)
            s->highest_cap = fmax(s->highest_cap, most_w / s->share[j]);
    }
    return HARPE_OK;
}

harpe_status harpe_fleet_steering_new(const harpe_fleet_file *file, harpe_fleet_policy policy,
                                      const char *name, harpe_fleet_steering **out,
                                      harpe_error *error) {
    harpe_fleet_steering *s = harpe_calloc(1, sizeof *s);
    if (!s) return harpe_fail_memory(error);
    *s = (harpe_fleet_steering){.file = file,
                                .policy = policy,
                                .number = harpe_calloc(file->job_count, sizeof *s->number),
                                .run = harpe_calloc(file->job_count, sizeof *s->run),
                                .share = harpe_calloc(file->job_count, sizeof *s->share),
                                .order = harpe_calloc(file->job_count, sizeof *s->order),
                                .room_w = harpe_calloc(file->group_count, sizeof *s->room_w)};
    bool has_memory = s->number && s->run && s->share && s->order && s->room_w && order_jobs(s);
    harpe_status status = has_memory ? HARPE_OK : harpe_fail_memory(error);
    /* This checks the numbers of all jobs. */
    if (status == HARPE_OK) status = harpe_fleet_file_fleet(file, name, 0, &s->fleet, error);
    for (size_t j = 0; j < file->job_count && status == HARPE_OK; j++) {
        s->number[j] = -1;
        if (harpe_fleet_job_name(s->fleet, (int)j))
            status = harpe_fleet_remove(s->fleet, (int)j, error);
    }
    if (status == HARPE_OK) status = make_runs(s, error);
    if (status == HARPE_OK)
        *out = s;
    else
        harpe_fleet_steering_free(s);
    return status;
}

void harpe_fleet_steering_free(harpe_fleet_steering *s) {
    if (!s) return;
    for (size_t j = 0; s->run && j < s->file->job_count; j++)
        harpe_fleet_hull_clear(&s->run[j].hull);
    harpe_fleet_free(s->fleet);
    free(s->number);
    free(s->run);
    free(s->share);
    free(s->order);
    free(s->room_w);
    free(s);
}

harpe_status harpe_fleet_steer(harpe_fleet_steering *s, const bool *is_here, const double *watts,
                               double at_s, harpe_fleet_pace *pace, harpe_error *error) {
    if (s->policy == HARPE_FLEET_SPLIT) return steer_split(s, is_here, watts, at_s, pace, error);
    if (s->policy == HARPE_FLEET_UNIFORM_CAP)
        steer_cap(s, is_here, watts, pace);
    else
        steer_stop(s, is_here, watts, pace);
    return HARPE_OK;
}
