/* SPDX-License-Identifier: Apache-2.0 */
/* Simulates a fleet over time under one policy: from one moment at which something changes to the
 * next. Between two such moments all powers are constant. */
#include "fleet/simulate.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"
#include "base/units.h"

#define RAMP_STEP_S 60.0    /* how often budgets grow on a ramp */
#define MOMENTS_MAX 2000000 /* of one simulation */
#define ROUNDING_S 1e-6
#define ROUNDING_W 1e-3 /* powers of capped jobs are not exact */

typedef struct runner {
    const harpe_fleet_file *file;
    harpe_fleet_steering *steering;
    harpe_fleet_day *day;
    double now_s;
    bool *is_here;                 /* [jobs] */
    harpe_fleet_pace *pace, *next; /* [jobs] now; after a change */
    double *change_s;              /* [jobs] when `next` takes effect; INFINITY: no change */
    double *moments;               /* known from the start, by time */
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
    r->moments = harpe_calloc(most, sizeof *r->moments);
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
static double set_falls(runner *r, const harpe_fleet_pace *wanted) {
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
static void set_changes(runner *r, const harpe_fleet_pace *wanted) {
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

static harpe_status decide(runner *r, harpe_fleet_pace *wanted, harpe_error *error) {
    set_allowed(r);
    harpe_status status =
        harpe_fleet_steer(r->steering, r->is_here, r->allowed_w, r->now_s, wanted, error);
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
        r->pace[j] = (harpe_fleet_pace){0};
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

static harpe_status run(runner *r, harpe_fleet_pace *wanted, harpe_status (*check)(harpe_error *),
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
    r->is_here = harpe_calloc(jobs, sizeof *r->is_here);
    r->pace = harpe_calloc(jobs, sizeof *r->pace);
    r->next = harpe_calloc(jobs, sizeof *r->next);
    r->change_s = harpe_calloc(jobs, sizeof *r->change_s);
    r->allowed_w = harpe_calloc(groups, sizeof *r->allowed_w);
    r->grown_s = harpe_calloc(groups, sizeof *r->grown_s);
    r->power_w = harpe_calloc(groups, sizeof *r->power_w);
    r->open_breach = harpe_calloc(groups, sizeof *r->open_breach);
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

static void stop(runner *r) {
    free(r->is_here);
    free(r->pace);
    free(r->next);
    free(r->change_s);
    free(r->moments);
    free(r->allowed_w);
    free(r->grown_s);
    free(r->power_w);
    free(r->open_breach);
}

harpe_status harpe_fleet_simulate(const harpe_fleet_file *file, const char *name,
                                  harpe_fleet_policy policy, harpe_status (*check)(harpe_error *),
                                  harpe_fleet_day *day, harpe_error *error) {
    harpe_fleet_day made = {.jobs = NULL};
    runner r = {.file = file, .day = &made, .again_s = INFINITY, .must_decide = true};
    harpe_status status = harpe_fleet_steering_new(file, policy, name, &r.steering, error);
    if (status != HARPE_OK) return status;
    harpe_fleet_pace *wanted = harpe_calloc(file->job_count, sizeof *wanted);
    status = wanted && start(&r) ? run(&r, wanted, check, error) : harpe_fail_memory(error);
    stop(&r);
    free(wanted);
    harpe_fleet_steering_free(r.steering);
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
