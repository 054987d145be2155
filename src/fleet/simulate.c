/* SPDX-License-Identifier: Apache-2.0 */
/* Simulates a fleet over time under one policy: from one moment at which something changes to the
 * next. Between two such moments all powers are constant. The two policies that operators use today
 * are shown at their best: a capped job may run between two of its plans, follows its own frontier,
 * and accepts any slowdown; a stopped job draws no power. */
#include "fleet/fleet_tools.h"

#include <math.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"
#include "base/format.h"
#include "fleet/fleet_internal.h"

#define CAP_STEPS 60 /* halvings of the range of caps */

/* How a job runs. */
typedef struct job_pace {
    double power_w;
    double rate;   /* work of the fastest plan for each second; 0: the job is stopped */
    double time_s; /* of an iteration */
} job_pace;

/* All arrays of the simulation are in `arena`. */
typedef struct steering {
    harpe_arena *arena;
    const harpe_fleet_file *file;
    harpe_fleet_policy policy;
    harpe_fleet *fleet;      /* of the split */
    int *number;             /* [jobs] in the fleet; -1: not there */
    harpe_fleet_member *run; /* [jobs] hulls of time over power, for the cap */
    double *share;           /* [jobs] watts of the job for each watt of the cap */
    double highest_cap;
    size_t *order;  /* [jobs] lowest priority first */
    double *room_w; /* [groups] */
} steering;

/* ---- The split ------------------------------------------------------------------------------- */

/* Adds and removes jobs, so that the fleet has the jobs that are here. */
static harpe_status follow_jobs(steering *s, const bool *is_here, harpe_error *error) {
    harpe_status status = HARPE_OK;
    for (size_t j = 0; j < s->file->job_count && status == HARPE_OK; j++) {
        const harpe_fleet_file_job *job = &s->file->jobs[j];
        if (is_here[j] == (s->number[j] >= 0)) continue;
        const harpe_fleet_job description = harpe_fleet_file_description(job);
        if (is_here[j]) {
            status = harpe_fleet_add(s->fleet, &description, &s->number[j], error);
        } else {
            status = harpe_fleet_remove(s->fleet, s->number[j], error);
            s->number[j] = -1;
        }
    }
    return status;
}

static harpe_status steer_split(steering *s, const bool *is_here, const double *watts, double at_s,
                                job_pace *pace, harpe_error *error) {
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
            pace[j] = (job_pace){choice.power_w, 1 / choice.slowdown, choice.time_s};
    }
    return status;
}

/* ---- Rooms ----------------------------------------------------------------------------------- */

static void set_rooms(steering *s, const double *watts) {
    for (size_t g = 0; g < s->file->group_count; g++) {
        const harpe_fleet_budget *budget = &s->file->groups[g].budget;
        s->room_w[g] = watts[g] < 0 ? INFINITY : watts[g] * (1 - budget->margin) / budget->overhead;
    }
}

static void use_room(steering *s, size_t job, double power_w) {
    for (int g = s->file->jobs[job].group; g >= 0; g = s->file->groups[g].parent)
        s->room_w[g] -= power_w;
}

/* Returns true if the groups around a job have at least this room. */
static bool has_room(const steering *s, size_t job, double room_w) {
    for (int g = s->file->jobs[job].group; g >= 0; g = s->file->groups[g].parent)
        if (s->room_w[g] < room_w) return false;
    return true;
}

/* ---- One power cap --------------------------------------------------------------------------- */

/* Returns how a job runs under a power of its own. */
static job_pace pace_below(const harpe_fleet_member *run, double power_w) {
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
    return (job_pace){drawn_w, 1 / slowdown, run->plans[0].time_s * slowdown};
}

static bool cap_fits(steering *s, const bool *is_here, const double *watts, double cap,
                     job_pace *pace) {
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
static void steer_cap(steering *s, const bool *is_here, const double *watts, job_pace *pace) {
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
static void steer_stop(steering *s, const bool *is_here, const double *watts, job_pace *pace) {
    const harpe_fleet_file_job *jobs = s->file->jobs;
    set_rooms(s, watts);
    for (size_t j = 0; j < s->file->job_count; j++) {
        if (!is_here[j]) continue;
        pace[j] = (job_pace){jobs[j].plans[0].power_w, 1, jobs[j].plans[0].time_s};
        use_room(s, j, pace[j].power_w);
    }
    for (size_t k = 0; k < s->file->job_count; k++) {
        size_t j = s->order[k];
        if (!is_here[j] || jobs[j].is_load || has_room(s, j, 0)) continue;
        use_room(s, j, -pace[j].power_w);
        pace[j] = (job_pace){.time_s = jobs[j].plans[0].time_s};
    }
    for (size_t k = s->file->job_count; k-- > 0;) {
        size_t j = s->order[k];
        double power_w = jobs[j].plans[0].power_w;
        if (!is_here[j] || pace[j].rate > 0 || !has_room(s, j, power_w)) continue;
        pace[j] = (job_pace){power_w, 1, jobs[j].plans[0].time_s};
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

static bool order_jobs(steering *s) {
    ranked *list = harpe_arena_alloc(s->arena, s->file->job_count, sizeof *list);
    if (!list) return false;
    for (size_t j = 0; j < s->file->job_count; j++)
        list[j] = (ranked){s->file->jobs[j].priority, s->file->jobs[j].weight, j};
    qsort(list, s->file->job_count, sizeof *list, compare_ranked);
    for (size_t j = 0; j < s->file->job_count; j++)
        s->order[j] = list[j].job;
    return true;
}

/* ---- Steering -------------------------------------------------------------------------------- */

/* Makes the frontiers of all jobs for the cap. The cap is in watts for each GPU, or, if the GPUs of
 * a job are not known, in shares of the power of the fastest plans. */
static harpe_status make_runs(steering *s, harpe_error *error) {
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

static void end_steering(steering *s) {
    for (size_t j = 0; s->run && j < s->file->job_count; j++)
        harpe_fleet_hull_clear(&s->run[j].hull);
    harpe_fleet_free(s->fleet);
}

/* Makes the state of a policy for the jobs of a file, of which none is there yet. End it with
 * end_steering, also after a failure. */
static harpe_status begin_steering(steering *s, const char *name, harpe_error *error) {
    const harpe_fleet_file *file = s->file;
    size_t jobs = file->job_count;
    s->number = harpe_arena_alloc(s->arena, jobs, sizeof *s->number);
    s->run = harpe_arena_alloc(s->arena, jobs, sizeof *s->run);
    s->share = harpe_arena_alloc(s->arena, jobs, sizeof *s->share);
    s->order = harpe_arena_alloc(s->arena, jobs, sizeof *s->order);
    s->room_w = harpe_arena_alloc(s->arena, file->group_count, sizeof *s->room_w);
    if (!s->number || !s->run || !s->share || !s->order || !s->room_w || !order_jobs(s))
        return harpe_fail_memory(error);
    /* This checks the numbers of all jobs. */
    harpe_status status = harpe_fleet_file_fleet(file, name, 0, &s->fleet, error);
    for (size_t j = 0; j < jobs && status == HARPE_OK; j++) {
        s->number[j] = -1;
        if (harpe_fleet_job_name(s->fleet, (int)j))
            status = harpe_fleet_remove(s->fleet, (int)j, error);
    }
    return status == HARPE_OK ? make_runs(s, error) : status;
}

/* Chooses how the jobs run for which `is_here` is set, under `watts` for each group and the price
 * of the moment. Sets `pace` of these jobs. */
static harpe_status steer(steering *s, const bool *is_here, const double *watts, double at_s,
                          job_pace *pace, harpe_error *error) {
    if (s->policy == HARPE_FLEET_SPLIT) return steer_split(s, is_here, watts, at_s, pace, error);
    if (s->policy == HARPE_FLEET_UNIFORM_CAP)
        steer_cap(s, is_here, watts, pace);
    else
        steer_stop(s, is_here, watts, pace);
    return HARPE_OK;
}

/* ---- The simulation -------------------------------------------------------------------------- */

#define RAMP_STEP_S 60.0    /* how often budgets grow on a ramp */
#define MOMENTS_MAX 2000000 /* of one simulation */
#define ROUNDING_S 1e-6
#define ROUNDING_W 1e-3 /* powers of capped jobs are not exact */

typedef struct runner {
    harpe_arena arena;
    const harpe_fleet_file *file;
    steering steering;
    harpe_fleet_day *day;
    double now_s;
    bool *is_here;         /* [jobs] */
    job_pace *pace, *next; /* [jobs] now; after a change */
    double *change_s;      /* [jobs] when `next` takes effect; INFINITY: no change */
    double *moments;       /* known from the start, by time */
    size_t moment_count, moment_at;
    double *allowed_w;   /* [groups] what the policy may use; negative: any */
    double *grown_s;     /* [groups] when a budget that grows on a ramp last grew; INFINITY: none */
    double again_s;      /* when to decide again, for a ramp or a job that waits; INFINITY: none */
    double reach_s;      /* a little more than the longest reaction of a job */
    double *power_w;     /* [groups] */
    size_t *open_breach; /* [groups] the breach that goes on; SIZE_MAX: none */
    bool must_decide;
} runner;

/* ---- Moments --------------------------------------------------------------------------------- */

static void add_moment(runner *r, double at_s) {
    if (at_s > 0 && at_s < r->file->horizon_s) r->moments[r->moment_count++] = at_s;
}

static bool list_moments(runner *r) {
    const harpe_fleet_file *file = r->file;
    size_t most = 2 * file->job_count + file->price_count + 4 * file->event_count;
    r->moments = harpe_arena_alloc(&r->arena, most, sizeof *r->moments);
    if (!r->moments) return false;
    for (size_t j = 0; j < file->job_count; j++) {
        add_moment(r, file->jobs[j].arrival_s);
        add_moment(r, file->jobs[j].end_s);
    }
    for (size_t p = 0; p < file->price_count; p++)
        add_moment(r, file->prices[p].from_s);
    for (size_t e = 0; e < file->event_count; e++) {
        const harpe_fleet_file_event *event = &file->events[e];
        add_moment(r, event->from_s - event->notice_s);
        add_moment(r, event->from_s - fmin(event->notice_s, r->reach_s));
        add_moment(r, event->from_s);
        add_moment(r, event->from_s + event->duration_s);
    }
    qsort(r->moments, r->moment_count, sizeof *r->moments, harpe_compare_doubles);
    return true;
}

static double reaction_of(const runner *r, size_t job, double time_s) {
    return r->file->jobs[job].is_load ? 0 : fmax(r->file->reaction_s, time_s);
}

static double longest_reaction(const runner *r) {
    double longest = r->file->reaction_s;
    for (size_t j = 0; j < r->file->job_count; j++) {
        const harpe_fleet_file_job *job = &r->file->jobs[j];
        if (!job->is_load) longest = fmax(longest, job->plans[job->plan_count - 1].time_s);
    }
    return longest;
}

/* Returns the next moment at which something changes. */
static double next_moment(const runner *r) {
    double next = fmin(r->file->horizon_s, r->again_s);
    if (r->moment_at < r->moment_count) next = fmin(next, r->moments[r->moment_at]);
    for (size_t j = 0; j < r->file->job_count; j++) {
        if (!r->is_here[j]) continue;
        next = fmin(next, r->change_s[j]);
        double left_s = r->file->jobs[j].work_s - r->day->jobs[j].done_s;
        if (r->pace[j].rate > 0) next = fmin(next, r->now_s + left_s / r->pace[j].rate);
    }
    return fmax(next, r->now_s);
}

/* ---- Decisions ------------------------------------------------------------------------------- */

/* Returns the least watts that a group will have while jobs react to a decision made now. The
 * differences are those of list_moments, so that a decision at such a moment sees the event. */
static double watts_in_reach(const runner *r, int group) {
    double least = harpe_fleet_file_watts(r->file, group, r->now_s, r->now_s);
    for (size_t e = 0; e < r->file->event_count; e++) {
        double from_s = r->file->events[e].from_s;
        if (from_s <= r->now_s || from_s - r->reach_s > r->now_s) continue;
        least = fmin(least, harpe_fleet_file_watts(r->file, group, from_s, r->now_s));
    }
    return least;
}

/* Returns what a policy may use of `watts`: a budget that grows follows the ramp. */
static double on_ramp(runner *r, size_t group, double watts) {
    double ramp_w_per_s = r->file->ramp_w_per_s;
    bool grows = r->day->decisions > 0 && watts > r->allowed_w[group] && isfinite(ramp_w_per_s);
    double since_s = r->grown_s[group];
    r->grown_s[group] = INFINITY;
    if (!grows) return watts;
    double passed_s = isfinite(since_s) ? r->now_s - since_s : 0;
    double allowed_w = r->allowed_w[group] + ramp_w_per_s * passed_s;
    if (allowed_w >= watts) return watts;
    r->grown_s[group] = r->now_s;
    r->again_s = fmin(r->again_s, r->now_s + RAMP_STEP_S);
    return allowed_w;
}

static void set_allowed(runner *r) {
    r->again_s = INFINITY;
    for (size_t g = 0; g < r->file->group_count; g++)
        r->allowed_w[g] = on_ramp(r, g, watts_in_reach(r, (int)g));
}

/* Returns true if a job waits for a pace that needs less power. */
static bool is_falling(const runner *r, size_t job) {
    return isfinite(r->change_s[job]) && r->next[job].power_w < r->pace[job].power_w;
}

/* Sets when the jobs that need less power follow their new pace. A job that already waits to need
 * less than it may have now keeps that, because others may count on it; then there is a decision
 * again when all have changed. Returns the moment of the last change. */
static double set_falls(runner *r, const job_pace *wanted) {
    double last_s = r->now_s;
    bool waits = false;
    for (size_t j = 0; j < r->file->job_count; j++) {
        bool was_falling = is_falling(r, j);
        if (!r->is_here[j] || (!was_falling && wanted[j].power_w >= r->pace[j].power_w)) continue;
        if (was_falling && r->next[j].power_w < wanted[j].power_w) {
            waits = true;
        } else {
            r->next[j] = wanted[j];
            r->change_s[j] = fmin(r->change_s[j], r->now_s + reaction_of(r, j, r->pace[j].time_s));
        }
        last_s = fmax(last_s, r->change_s[j]);
    }
    if (waits) r->again_s = fmin(r->again_s, last_s);
    return last_s;
}

/* Sets when each job follows its new pace. Jobs that need more power wait for those that need less.
 * A job that already waits for a change takes the new pace at the same moment. */
static void set_changes(runner *r, const job_pace *wanted) {
    double last_s = set_falls(r, wanted);
    for (size_t j = 0; j < r->file->job_count; j++) {
        if (!r->is_here[j] || is_falling(r, j)) continue;
        bool is_same = wanted[j].power_w == r->pace[j].power_w && wanted[j].rate == r->pace[j].rate;
        double latest_s = last_s + reaction_of(r, j, r->pace[j].time_s);
        r->next[j] = wanted[j];
        r->change_s[j] = is_same ? INFINITY : fmax(last_s, fmin(r->change_s[j], latest_s));
        if (r->day->decisions == 0 || r->file->jobs[j].is_load) r->change_s[j] = r->now_s;
    }
}

static harpe_status decide(runner *r, job_pace *wanted, harpe_error *error) {
    set_allowed(r);
    harpe_status status = steer(&r->steering, r->is_here, r->allowed_w, r->now_s, wanted, error);
    if (status != HARPE_OK) return status;
    set_changes(r, wanted);
    r->day->decisions++;
    r->must_decide = false;
    return HARPE_OK;
}

/* ---- Jobs that come and go ------------------------------------------------------------------- */

static void update_jobs(runner *r) {
    for (size_t j = 0; j < r->file->job_count; j++) {
        const harpe_fleet_file_job *job = &r->file->jobs[j];
        harpe_fleet_job_day *day = &r->day->jobs[j];
        if (day->done_s >= job->work_s - ROUNDING_S) day->is_done = true;
        bool is_here = r->now_s >= job->arrival_s && r->now_s < job->end_s && !day->is_done;
        if (is_here == r->is_here[j]) continue;
        r->is_here[j] = is_here;
        r->pace[j] = (job_pace){0};
        r->change_s[j] = INFINITY;
        r->must_decide = true;
    }
}

static void apply_changes(runner *r) {
    for (size_t j = 0; j < r->file->job_count; j++) {
        if (!r->is_here[j] || r->change_s[j] > r->now_s) continue;
        r->pace[j] = r->next[j];
        r->change_s[j] = INFINITY;
    }
}

/* ---- Accounts -------------------------------------------------------------------------------- */

static bool note_breach(runner *r, size_t group, double over_w, double to_s) {
    harpe_fleet_day *day = r->day;
    size_t at = r->open_breach[group];
    if (over_w <= ROUNDING_W) {
        r->open_breach[group] = SIZE_MAX;
        return true;
    }
    if (at == SIZE_MAX) {
        if (!HARPE_ARRAY_RESERVE(day->breaches, day->breach_capacity, day->breach_count + 1))
            return false;
        at = r->open_breach[group] = day->breach_count++;
        day->breaches[at] = (harpe_fleet_breach){.group = (int)group, .from_s = r->now_s};
    }
    day->breaches[at].to_s = to_s;
    day->breaches[at].worst_w = fmax(day->breaches[at].worst_w, over_w);
    return true;
}

static bool note_sample(runner *r, double power_w, double budget_w) {
    harpe_fleet_day *day = r->day;
    const harpe_fleet_sample *last =
        day->sample_count > 0 ? &day->samples[day->sample_count - 1] : NULL;
    if (last && last->power_w == power_w && last->budget_w == budget_w) return true;
    if (!HARPE_ARRAY_RESERVE(day->samples, day->sample_capacity, day->sample_count + 1))
        return false;
    day->samples[day->sample_count++] = (harpe_fleet_sample){r->now_s, power_w, budget_w};
    return true;
}

static void add_work(runner *r, double length_s) {
    for (size_t g = 0; g < r->file->group_count; g++)
        r->power_w[g] = 0;
    for (size_t j = 0; j < r->file->job_count; j++) {
        if (!r->is_here[j]) continue;
        harpe_fleet_job_day *job = &r->day->jobs[j];
        job->here_s += length_s;
        job->done_s += length_s * r->pace[j].rate;
        job->energy_j += length_s * r->pace[j].power_w;
        if (r->pace[j].rate == 0) job->stopped_s += length_s;
        for (int g = r->file->jobs[j].group; g >= 0; g = r->file->groups[g].parent)
            r->power_w[g] += r->pace[j].power_w;
    }
}

/* Accounts for the time from now to `to_s`. */
static bool account(runner *r, double to_s) {
    double length_s = to_s - r->now_s;
    if (length_s <= 0) return true;
    add_work(r, length_s);
    for (size_t g = 0; g < r->file->group_count; g++) {
        double watts = harpe_fleet_file_watts(r->file, (int)g, r->now_s, r->now_s);
        double metered_w = r->power_w[g] * r->file->groups[g].budget.overhead;
        if (!note_breach(r, g, watts < 0 ? 0 : metered_w - watts, to_s)) return false;
        if (g > 0) continue;
        harpe_fleet_price price = harpe_fleet_file_price_at(r->file, r->now_s);
        double kwh = metered_w * length_s / HARPE_JOULES_PER_KWH;
        r->day->energy_j += metered_w * length_s;
        r->day->carbon_kg += kwh * price.carbon_g_per_kwh / 1000;
        r->day->cost +=
            kwh * (price.energy_per_kwh + price.carbon_g_per_kwh / 1000 * price.carbon_per_kg);
        if (!note_sample(r, metered_w, watts)) return false;
    }
    return true;
}

static void sum_up(runner *r) {
    harpe_fleet_day *day = r->day;
    for (size_t j = 0; j < r->file->job_count; j++) {
        const harpe_fleet_file_job *job = &r->file->jobs[j];
        const harpe_fleet_job_day *got = &day->jobs[j];
        if (job->is_load || got->here_s <= 0) continue;
        day->lost_s += job->weight * (got->here_s - got->done_s);
        day->stopped_s += got->stopped_s;
        if (got->done_s <= 0) {
            day->without_work++;
            continue;
        }
        double slowdown = got->here_s / got->done_s;
        day->weighted_slowdown += job->weight * (slowdown - 1);
        if (job->max_slowdown > 0 && slowdown > job->max_slowdown * (1 + 1e-9)) day->too_slow++;
    }
}

/* ---- The loop -------------------------------------------------------------------------------- */

static harpe_status run(runner *r, job_pace *wanted, harpe_status (*check)(harpe_error *),
                        harpe_error *error) {
    harpe_status status = HARPE_OK;
    for (size_t count = 0; r->now_s < r->file->horizon_s; count++) {
        if (count == MOMENTS_MAX) {
            return harpe_fail(error, HARPE_LIMIT_EXCEEDED,
                              "the simulation has more than %d moments; shorten the horizon",
                              MOMENTS_MAX);
        }
        apply_changes(r);
        while (r->moment_at < r->moment_count && r->moments[r->moment_at] <= r->now_s) {
            r->moment_at++;
            r->must_decide = true;
        }
        if (r->again_s <= r->now_s) r->must_decide = true;
        update_jobs(r);
        if (r->must_decide) {
            if (check) status = check(error);
            if (status == HARPE_OK) status = decide(r, wanted, error);
            if (status != HARPE_OK) return status;
            apply_changes(r);
        }
        double to_s = next_moment(r);
        if (!account(r, to_s)) return harpe_fail_memory(error);
        r->now_s = to_s;
    }
    sum_up(r);
    return HARPE_OK;
}

static bool start(runner *r) {
    size_t jobs = r->file->job_count, groups = r->file->group_count;
    r->is_here = harpe_arena_alloc(&r->arena, jobs, sizeof *r->is_here);
    r->pace = harpe_arena_alloc(&r->arena, jobs, sizeof *r->pace);
    r->next = harpe_arena_alloc(&r->arena, jobs, sizeof *r->next);
    r->change_s = harpe_arena_alloc(&r->arena, jobs, sizeof *r->change_s);
    r->allowed_w = harpe_arena_alloc(&r->arena, groups, sizeof *r->allowed_w);
    r->grown_s = harpe_arena_alloc(&r->arena, groups, sizeof *r->grown_s);
    r->power_w = harpe_arena_alloc(&r->arena, groups, sizeof *r->power_w);
    r->open_breach = harpe_arena_alloc(&r->arena, groups, sizeof *r->open_breach);
    r->day->jobs = harpe_calloc(jobs, sizeof *r->day->jobs);
    if (!r->is_here || !r->pace || !r->next || !r->change_s || !r->allowed_w || !r->grown_s ||
        !r->power_w || !r->open_breach || !r->day->jobs)
        return false;
    for (size_t g = 0; g < groups; g++) {
        r->open_breach[g] = SIZE_MAX;
        r->grown_s[g] = INFINITY;
    }
    for (size_t j = 0; j < jobs; j++)
        r->change_s[j] = INFINITY;
    r->reach_s = longest_reaction(r) + ROUNDING_S;
    return list_moments(r);
}

harpe_status harpe_fleet_simulate(const harpe_fleet_file *file, const char *name,
                                  harpe_fleet_policy policy, harpe_status (*check)(harpe_error *),
                                  harpe_fleet_day *day, harpe_error *error) {
    harpe_fleet_day made = {.jobs = NULL};
    runner r = {.file = file, .day = &made, .again_s = INFINITY, .must_decide = true};
    r.steering = (steering){.arena = &r.arena, .file = file, .policy = policy};
    job_pace *wanted = harpe_arena_alloc(&r.arena, file->job_count, sizeof *wanted);
    harpe_status status =
        wanted ? begin_steering(&r.steering, name, error) : harpe_fail_memory(error);
    if (status == HARPE_OK)
        status = start(&r) ? run(&r, wanted, check, error) : harpe_fail_memory(error);
    end_steering(&r.steering);
    harpe_arena_free(&r.arena);
    if (status == HARPE_OK)
        *day = made;
    else
        harpe_fleet_day_clear(&made);
    return status;
}

void harpe_fleet_day_clear(harpe_fleet_day *day) {
    free(day->jobs);
    free(day->breaches);
    free(day->samples);
    *day = (harpe_fleet_day){0};
}
