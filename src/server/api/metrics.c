/* SPDX-License-Identifier: Apache-2.0 */
/* /metrics: the server's counts in Prometheus' text format. To add a metric, add a row here. */
#include "server/api/api_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/text.h"
#include "base/version.h"
#include "server/engine/engine_internal.h"

/* ---- Durations of requests ------------------------------------------------------------------- */

/* Counts durations in buckets. The counts become cumulative, as Prometheus requires, when they are
 * printed. */

enum { BOUNDS_MAX = 16 };

/* A family of histograms. `bounds` are upper bounds in s, ascending. A duration above the last
 * bound counts only in +Inf. */
typedef struct family {
    const char *name, *help;
    int bound_count;
    double bounds_s[BOUNDS_MAX];
} family;

static const family REQUESTS = {
    "harpe_http_request_duration_seconds",
    "Time from a whole request to its answer, without schedules.",
    13,
    {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10},
};
static const family SCHEDULES = {
    "harpe_schedule_duration_seconds",
    "Time from a rank's request for a schedule to its answer, while it waits for the others.",
    15,
    {0.001, 0.005, 0.025, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 600, 1800, 3600},
};

typedef struct histogram {
    uint64_t counts[BOUNDS_MAX + 1]; /* of each bucket, not cumulative */
    double sum_s;
} histogram;

struct harpe_latencies {
    histogram routes[HARPE_ROUTES_MAX]; /* in the order of harpe_route_table */
};

static const family *family_of(const harpe_route *route) {
    if (route->page) return NULL; /* pages are answered at once */
    return route->call == HARPE_CALL_SCHEDULE ? &SCHEDULES : &REQUESTS;
}

harpe_latencies *harpe_latencies_new(void) { return harpe_calloc(1, sizeof(harpe_latencies)); }

void harpe_latencies_free(harpe_latencies *latencies) { free(latencies); }

void harpe_latencies_add(harpe_latencies *latencies, const harpe_route *route,
                         int64_t duration_ns) {
    const family *kind = family_of(route);
    if (!kind) return;
    histogram *own = &latencies->routes[route - harpe_route_table];
    double duration_s = (double)duration_ns / 1e9;
    int bucket = 0;
    while (bucket < kind->bound_count && duration_s > kind->bounds_s[bucket])
        bucket++;
    own->counts[bucket]++;
    own->sum_s += duration_s;
}

/* ---- Durations: shown ------------------------------------------------------------------------ */

/* Appends NAME_SUFFIX{method="M",route="R",le="B"}. If `bound` is "", there is no label le.
 * Schedules are one route, so their series have no labels method and route. */
static void append_series(harpe_text *text, const family *kind, const harpe_route *route,
                          const char *suffix, const char *bound) {
    bool has_route = kind == &REQUESTS;
    bool has_bound = *bound != '\0';
    harpe_text_printf(text, "%s_%s", kind->name, suffix);
    if (has_route || has_bound) harpe_text_append(text, "{", 1);
    if (has_route)
        harpe_text_printf(text, "method=\"%s\",route=\"%s\"%s", route->method, route->path,
                          has_bound ? "," : "");
    if (has_bound) harpe_text_printf(text, "le=\"%s\"", bound);
    harpe_text_printf(text, "%s ", has_route || has_bound ? "}" : "");
}

static void append_histogram(harpe_text *text, const family *kind, const harpe_route *route,
                             const histogram *own) {
    uint64_t count = 0;
    for (int i = 0; i <= kind->bound_count; i++) {
        char bound[32] = "+Inf";
        if (i < kind->bound_count) (void)snprintf(bound, sizeof bound, "%g", kind->bounds_s[i]);
        count += own->counts[i];
        append_series(text, kind, route, "bucket", bound);
        harpe_text_printf(text, "%llu\n", (unsigned long long)count);
    }
    append_series(text, kind, route, "sum", "");
    harpe_text_number(text, own->sum_s);
    harpe_text_append(text, "\n", 1);
    append_series(text, kind, route, "count", "");
    harpe_text_printf(text, "%llu\n", (unsigned long long)count);
}

static void append_family(const harpe_latencies *latencies, const family *kind, harpe_text *text) {
    harpe_metrics_text_head(text, kind->name, "histogram", kind->help);
    for (const harpe_route *route = harpe_route_table; route->method; route++) {
        if (family_of(route) != kind) continue;
        append_histogram(text, kind, route, &latencies->routes[route - harpe_route_table]);
    }
}

static void latencies_format(const harpe_latencies *latencies, harpe_text *text) {
    append_family(latencies, &REQUESTS, text);
    append_family(latencies, &SCHEDULES, text);
}

/* /metrics of single jobs: energy, savings, power, plan and phase. To add a metric, add a row here.
 * Only the newest jobs have metrics, so that a scrape of a server with thousands of jobs stays
 * fast. One metric counts the jobs that are left out. */

enum {
    JOBS_MAX = 1000,
    NAME_BYTES = 128, /* of the metadata in the label `name` */
};

/* A metric of a job. The value is a member of the job's figures, unless `value` computes it. */
typedef struct job_metric {
    const char *name, *type, *help;
    bool (*is_known)(const harpe_figures *figures); /* NULL: always */
    size_t offset;                                  /* of the member in harpe_figures */
    bool is_count; /* the member is an int64_t; false: it is a double */
    double (*value)(const harpe_figures *figures); /* NULL: the member; returns NAN: not known */
    bool is_of_now; /* says nothing of a job that has ended or failed */
} job_metric;

/* ---- Single jobs: values --------------------------------------------------------------------- */

static bool has_power(const harpe_figures *figures) {
    return figures->is_known && figures->power_w > 0;
}

static bool has_savings(const harpe_figures *figures) { return figures->has_savings; }

static bool has_baseline(const harpe_figures *figures) {
    return figures->has_savings && figures->baseline.rounds > 0;
}

static bool has_plan(const harpe_figures *figures) { return figures->phase && figures->plan >= 0; }

static bool has_one_clock(const harpe_figures *figures) {
    return has_plan(figures) && figures->one_clock_energy_j > 0;
}

static bool has_steps(const harpe_figures *figures) { return figures->conduct.steps > 0; }

static bool has_counters(const harpe_figures *figures) {
    return figures->conduct.compared_ranks > 0;
}

static double saved_is_significant(const harpe_figures *figures) {
    return fabs(figures->saved_energy_j) > figures->saved_energy_uncertainty_j;
}

static double lost_is_significant(const harpe_figures *figures) {
    return fabs(figures->lost_time_s) > figures->lost_time_uncertainty_s;
}

static double counter_ratio(const harpe_figures *figures) {
    const harpe_energy_pair *all = &figures->conduct.all;
    return all->counter_j / all->power_j;
}

static double counter_ratio_uncertainty(const harpe_figures *figures) {
    const harpe_energy_pair *all = &figures->conduct.all;
    return all->uncertainty_j / all->power_j;
}

static double counter_agrees(const harpe_figures *figures) {
    const harpe_conduct_sums *sums = &figures->conduct;
    return harpe_energy_pair_agrees(&sums->all, 1) &&
           harpe_energy_pair_agrees(&sums->worst, sums->compared_ranks);
}

static double energy_per_token(const harpe_figures *figures) {
    double tokens = (double)figures->tokens_per_step * (double)figures->iterations;
    bool is_known = figures->is_known && tokens > 0 && figures->used_energy_j > 0;
    return is_known ? figures->used_energy_j / tokens : NAN;
}

static double value_of(const job_metric *metric, const harpe_figures *figures) {
    const char *member = (const char *)figures + metric->offset;
    int64_t count;
    double value;
    if (metric->is_known && !metric->is_known(figures)) return NAN;
    if (metric->value) return metric->value(figures);
    memcpy(&count, member, sizeof count);
    memcpy(&value, member, sizeof value);
    return metric->is_count ? (double)count : value;
}

static const job_metric METRICS[] = {
    {"energy_joules_total", "counter", "Energy of the reported iterations, all ranks.",
     .offset = offsetof(harpe_figures, used_energy_j)},
    {"iteration_seconds_total", "counter", "Time of the reported iterations.",
     .offset = offsetof(harpe_figures, used_time_s)},
    {"iterations_total", "counter", "Reported iterations.",
     .offset = offsetof(harpe_figures, iterations), .is_count = true},
    {"power_watts", "gauge", "Average power of all ranks in the last round.", has_power,
     .offset = offsetof(harpe_figures, power_w), .is_of_now = true},
    {"energy_saved_joules", "gauge",
     "Energy saved against the measured baseline; negative: more was used.", has_savings,
     .offset = offsetof(harpe_figures, saved_energy_j)},
    {"energy_saved_uncertainty_joules", "gauge",
     "Half-width of the 95 % confidence interval of harpe_job_energy_saved_joules.", has_savings,
     .offset = offsetof(harpe_figures, saved_energy_uncertainty_j)},
    {"energy_baseline_joules", "gauge",
     "Energy that the same iterations would have used at the highest clocks.", has_savings,
     .offset = offsetof(harpe_figures, energy_baseline_j)},
    {"time_lost_seconds", "gauge",
     "Time lost against the measured baseline; negative: it was faster.", has_savings,
     .offset = offsetof(harpe_figures, lost_time_s)},
    {"time_lost_uncertainty_seconds", "gauge",
     "Half-width of the 95 % confidence interval of harpe_job_time_lost_seconds.", has_savings,
     .offset = offsetof(harpe_figures, lost_time_uncertainty_s)},
    {"plan", "gauge", "Number of the running plan; 0 is the fastest.", has_plan,
     .offset = offsetof(harpe_figures, plan), .is_count = true, .is_of_now = true},
    {"plan_iteration_seconds", "gauge", "Predicted time of an iteration of the running plan.",
     has_plan, .offset = offsetof(harpe_figures, plan_time_s), .is_of_now = true},
    {"plan_iteration_joules", "gauge", "Predicted energy of an iteration of the running plan.",
     has_plan, .offset = offsetof(harpe_figures, plan_energy_j), .is_of_now = true},
    {"one_clock_iteration_seconds", "gauge",
     "Predicted, not measured: time of an iteration with the best one clock for all GPUs that is "
     "as fast as the running plan, or as the highest clocks.",
     has_one_clock, .offset = offsetof(harpe_figures, one_clock_time_s), .is_of_now = true},
    {"one_clock_iteration_joules", "gauge",
     "Predicted, not measured: energy of an iteration with this one clock.", has_one_clock,
     .offset = offsetof(harpe_figures, one_clock_energy_j), .is_of_now = true},
    {"baseline_iteration_joules", "gauge",
     "Energy of an iteration at the highest clocks, as the job measured it.", has_baseline,
     .offset = offsetof(harpe_figures, baseline.energy_j)},
    {"baseline_iteration_uncertainty_joules", "gauge",
     "Half-width of the 95 % confidence interval of harpe_job_baseline_iteration_joules.",
     has_baseline, .offset = offsetof(harpe_figures, baseline.energy_uncertainty_j)},
    {"baseline_iteration_seconds", "gauge",
     "Time of an iteration at the highest clocks, as the job measured it.", has_baseline,
     .offset = offsetof(harpe_figures, baseline.time_s)},
    {"baseline_iteration_uncertainty_seconds", "gauge",
     "Half-width of the 95 % confidence interval of harpe_job_baseline_iteration_seconds.",
     has_baseline, .offset = offsetof(harpe_figures, baseline.time_uncertainty_s)},
    {"baseline_iterations", "gauge", "Iterations from which the baseline was measured.",
     has_baseline, .offset = offsetof(harpe_figures, baseline.iterations), .is_count = true},
    {"baseline_measured_timestamp_seconds", "gauge",
     "Time at which the last round of the baseline ended, since 1970.", has_baseline,
     .offset = offsetof(harpe_figures, baseline.last_wall_s), .is_count = true},
    {"energy_saved_is_significant", "gauge",
     "1: the 95 % confidence interval of the saved energy does not contain 0; 0: within noise.",
     has_savings, .value = saved_is_significant},
    {"time_lost_is_significant", "gauge",
     "1: the 95 % confidence interval of the lost time does not contain 0; 0: within noise.",
     has_savings, .value = lost_is_significant},
    {"steps_total", "counter", "Steps with a schedule, summed over the ranks.", has_steps,
     .offset = offsetof(harpe_figures, conduct.steps), .is_count = true},
    {"steps_as_planned_total", "counter",
     "Steps that fitted the schedule while the GPU had the set clocks, summed over the ranks.",
     has_steps, .offset = offsetof(harpe_figures, conduct.as_planned), .is_count = true},
    {"steps_left_out_total", "counter",
     "Steps that were to be measured and are in no result, summed over the ranks.", has_steps,
     .offset = offsetof(harpe_figures, conduct.left_out), .is_count = true},
    {"rounds_observed_total", "counter", "Rounds with the results of all ranks.",
     .offset = offsetof(harpe_figures, conduct.rounds), .is_count = true},
    {"rounds_spoiled_total", "counter",
     "Rounds whose measurements are spoiled, for at least one reason.",
     .offset = offsetof(harpe_figures, conduct.spoiled_rounds), .is_count = true},
    {"energy_counter_ratio", "gauge",
     "Energy of the counters divided by the integrated power of the same time, all ranks.",
     has_counters, .value = counter_ratio},
    {"energy_counter_ratio_uncertainty", "gauge",
     "Half-width of the 95 % confidence interval of harpe_job_energy_counter_ratio.", has_counters,
     .value = counter_ratio_uncertainty},
    {"energy_counter_agrees", "gauge",
     "0: the counters of all ranks or of one rank differ from the power by more than the "
     "uncertainty; 1: they agree.",
     has_counters, .value = counter_agrees},
    {"energy_per_token_joules", "gauge",
     "Energy of the reported iterations divided by their tokens, all ranks.",
     .value = energy_per_token},
};
enum { METRIC_COUNT = sizeof METRICS / sizeof *METRICS };

static const char *const PHASES[] = {"count", "sweep", "explore", "plan", "hold"};
enum { PHASE_COUNT = sizeof PHASES / sizeof *PHASES };

/* ---- Single jobs: text ----------------------------------------------------------------------- */

/* `label` NULL: no label besides the job's id. */
static void append_sample(harpe_text *text, const char *name, const harpe_job *job,
                          const char *label, const char *label_value, double value) {
    const char *const labels[] = {"job_id", job->id, label, label_value, NULL};
    harpe_text_append(text, "harpe_job_", strlen("harpe_job_"));
    /* infinite: an uncertainty that is not known */
    harpe_metrics_text_sample(text, name, labels, value);
}

static void append_head(harpe_text *text, const char *name, const char *type, const char *help) {
    char full_name[64];
    (void)snprintf(full_name, sizeof full_name, "harpe_job_%s", name);
    harpe_metrics_text_head(text, full_name, type, help);
}

/* Returns the next job from `job` on that has metrics and is in the scope; NULL: none. */
static const harpe_job *next_job(const harpe_job *job, const char *scope) {
    while (job && !(job->is_stored && harpe_job_is_in_scope(job, scope)))
        job = job->older;
    return job;
}

static bool runs(const harpe_job *job) { return !harpe_job_has_ended(job) && !job->failure; }

/* A counter that is not known yet is absent: 0 would be a reset, and the whole value would count
 * again. */
static bool is_shown(const harpe_job *job, const job_metric *metric) {
    if (!job->figures.is_known && strcmp(metric->type, "counter") == 0) return false;
    return runs(job) || !metric->is_of_now;
}

/* The words of a job, to be joined with its other metrics by job_id. */
static void append_infos(harpe_text *text, const harpe_jobs *jobs, const char *scope) {
    append_head(text, "info", "gauge",
                "1; the labels say who runs the job and where. gpus is the number of ranks.");
    const harpe_job *job = next_job(jobs ? jobs->table.newest : NULL, scope);
    for (int shown = 0; job && shown < JOBS_MAX; job = next_job(job->older, scope), shown++) {
        const char *metadata = job->info.job_metadata ? job->info.job_metadata : "";
        char name[NAME_BYTES + 1], gpus[16];
        (void)snprintf(name, sizeof name, "%.*s", (int)harpe_cut_length(metadata, NAME_BYTES),
                       metadata);
        (void)snprintf(gpus, sizeof gpus, "%d", job->info.world_size);
        const char *labels[] = {"job_id",    job->id,
                                "name",      name,
                                "group",     job->group,
                                "user",      job->words[HARPE_WORD_USER],
                                "slurm_job", job->words[HARPE_WORD_SLURM_JOB],
                                "node",      job->words[HARPE_WORD_NODE],
                                "model",     job->words[HARPE_WORD_MODEL],
                                "gpus",      gpus,
                                NULL};
        for (size_t l = 1; l < sizeof labels / sizeof *labels; l += 2)
            if (!labels[l]) labels[l] = "";
        harpe_metrics_text_sample(text, "harpe_job_info", labels, 1);
    }
}

static void append_metric(harpe_text *text, const harpe_jobs *jobs, const char *scope,
                          const job_metric *metric) {
    append_head(text, metric->name, metric->type, metric->help);
    const harpe_job *job = next_job(jobs ? jobs->table.newest : NULL, scope);
    for (int shown = 0; job && shown < JOBS_MAX; job = next_job(job->older, scope), shown++) {
        double value = value_of(metric, &job->figures);
        if (!isnan(value) && is_shown(job, metric))
            append_sample(text, metric->name, job, NULL, NULL, value);
    }
}

static void append_phases(harpe_text *text, const harpe_jobs *jobs, const char *scope) {
    append_head(text, "phase", "gauge", "1 for the phase that an online job is in.");
    const harpe_job *job = next_job(jobs ? jobs->table.newest : NULL, scope);
    for (int shown = 0; job && shown < JOBS_MAX; job = next_job(job->older, scope), shown++) {
        const char *phase = runs(job) ? job->figures.phase : NULL;
        for (int p = 0; phase && p < PHASE_COUNT; p++)
            append_sample(text, "phase", job, "phase", PHASES[p], strcmp(phase, PHASES[p]) == 0);
    }
}

static void append_reasons(harpe_text *text, const harpe_jobs *jobs, const char *scope) {
    static const char name[] = "rounds_spoiled_by_reason_total";
    append_head(text, name, "counter",
                "Spoiled rounds by reason. A round with several reasons counts for each of them.");
    const harpe_job *job = next_job(jobs ? jobs->table.newest : NULL, scope);
    for (int shown = 0; job && shown < JOBS_MAX; job = next_job(job->older, scope), shown++)
        for (int s = 0; s < HARPE_SPOILS && job->figures.is_known; s++)
            append_sample(text, name, job, "reason", harpe_spoil_names[s],
                          (double)job->figures.conduct.spoiled[s]);
}

static size_t count_jobs(const harpe_jobs *jobs, const char *scope) {
    size_t count = 0;
    if (!jobs) return 0;
    if (!scope) return jobs->counts.jobs;
    for (const harpe_job *job = next_job(jobs->table.newest, scope); job;
         job = next_job(job->older, scope))
        count++;
    return count;
}

/* Appends the metrics of single jobs of the groups of `scope` (NULL: all). `jobs` may be NULL, as
 * for harpe_metrics_format. */
static void metrics_append_jobs(harpe_text *text, const harpe_jobs *jobs, const char *scope) {
    size_t count = count_jobs(jobs, scope);
    harpe_text_printf(text,
                      "# HELP harpe_jobs_left_out Jobs that harpe_job_ metrics leave out: only the "
                      "newest %d are included.\n# TYPE harpe_jobs_left_out gauge\n"
                      "harpe_jobs_left_out %zu\n",
                      JOBS_MAX, count > JOBS_MAX ? count - JOBS_MAX : 0);
    for (int m = 0; m < METRIC_COUNT; m++)
        append_metric(text, jobs, scope, &METRICS[m]);
    append_infos(text, jobs, scope);
    append_phases(text, jobs, scope);
    append_reasons(text, jobs, scope);
}

typedef struct metric {
    const char *name, *type, *help;
    double value;
} metric;

static void append(harpe_text *text, const metric *metrics, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const metric *it = &metrics[i];
        char name[64];
        (void)snprintf(name, sizeof name, "harpe_%s", it->name);
        harpe_metrics_text_head(text, name, it->type, it->help);
        harpe_metrics_text_sample(text, name, (const char *[]){NULL}, it->value);
    }
}

#define APPEND(text, metrics) append(text, metrics, sizeof metrics / sizeof *metrics)
#define GAUGE "gauge"
#define TOTAL "counter" /* since the start */

static void append_server(harpe_text *text, bool is_healthy) {
    const metric metrics[] = {
        {"healthy", GAUGE,
         "1 if the server can serve or stands by; 0: /healthz answers 503 and says why.",
         is_healthy},
    };
    harpe_metrics_text_head(text, "harpe_build_info", GAUGE, "1; the label is Harpe's version.");
    harpe_metrics_text_sample(text, "harpe_build_info",
                              (const char *[]){"version", harpe_build_version(), NULL}, 1);
    APPEND(text, metrics);
}

static void append_jobs(harpe_text *text, const harpe_jobs *jobs) {
    harpe_jobs_counts now = jobs ? harpe_jobs_count(jobs) : (harpe_jobs_counts){0};
    const metric metrics[] = {
        {"leads", GAUGE, "1 if this server has the jobs; 0: another server or none has them.",
         jobs != NULL},
        {"jobs", GAUGE, "Jobs that the server holds.", (double)now.jobs},
        {"jobs_failed", GAUGE, "Jobs that cannot continue.", (double)now.failed},
        {"jobs_ended", GAUGE, "Jobs whose training has ended and that are not evicted yet.",
         (double)now.ended},
        {"ranks", GAUGE, "Registered ranks of all jobs.", (double)now.ranks},
        {"ranks_waiting", GAUGE, "Ranks whose request for a schedule is held.",
         (double)now.ranks_waiting},
        {"jobs_registered_total", TOTAL, "Jobs registered.", (double)now.registered_jobs},
        {"ranks_registered_total", TOTAL, "Ranks registered.", (double)now.registered_ranks},
        {"rounds_total", TOTAL, "Rounds handed out.", (double)now.rounds},
        {"results_total", TOTAL, "Results taken.", (double)now.results},
        {"jobs_evicted_total", TOTAL, "Jobs evicted.", (double)now.evicted},
    };
    APPEND(text, metrics);
}

static void append_store(harpe_text *text, const harpe_store *store) {
    harpe_store_counts now = harpe_store_count(store);
    const metric metrics[] = {
        {"store_changes_total", TOTAL, "Records written to the store.", (double)now.changes},
        {"store_batches_total", TOTAL, "Transactions that wrote records to the store.",
         (double)now.batches},
        {"store_failures_total", TOTAL, "Transactions of the store that failed.",
         (double)now.failures},
        {"store_queued", GAUGE, "Records waiting to be written.", (double)now.queued},
    };
    const metric disk = {"store_free_bytes", GAUGE,
                         "Space that is free on the disk of an SQLite store.",
                         (double)now.free_bytes};
    APPEND(text, metrics);
    if (now.free_bytes >= 0) append(text, &disk, 1);
}

static void append_http(harpe_text *text, const harpe_http *http) {
    harpe_http_counts now = harpe_http_count(http);
    const metric metrics[] = {
        {"http_connections", GAUGE, "Open connections.", now.connections},
        {"http_connections_max", GAUGE, "Connections that are possible at once.",
         now.connections_max},
        {"http_held", GAUGE, "Requests that wait for an answer.", now.held},
        {"http_streams", GAUGE, "Open streams of events.", now.streams},
        {"http_body_bytes", GAUGE, "Memory of the bodies of requests that are not answered yet.",
         (double)now.body_memory},
        {"http_unread_bytes", GAUGE, "Memory of answers that their clients have not read yet.",
         (double)now.unread_memory},
        {"http_accepted_total", TOTAL, "Connections accepted.", (double)now.accepted},
        {"http_refused_total", TOTAL, "Connections and requests refused because there was no room.",
         (double)now.refused},
        {"http_evicted_total", TOTAL, "Connections closed to make room for others.",
         (double)now.evicted},
        {"http_timeouts_total", TOTAL, "Requests that took too long to arrive.",
         (double)now.timeouts},
        {"http_requests_total", TOTAL, "Whole requests.", (double)now.requests},
        {"http_failures_total", TOTAL, "Requests answered with a status of 500 or more.",
         (double)now.failures},
    };
    APPEND(text, metrics);
}

char *harpe_metrics_format(const harpe_jobs *jobs, const harpe_steering *steering,
                           const char *scope, const harpe_store *store, const harpe_http *http,
                           const harpe_latencies *latencies, bool is_healthy) {
    harpe_text text = {0};
    append_server(&text, is_healthy);
    append_jobs(&text, jobs);
    metrics_append_jobs(&text, jobs, scope);
    if (steering && !scope) harpe_steering_metrics(steering, &text);
    append_store(&text, store);
    if (http) append_http(&text, http);
    latencies_format(latencies, &text);
    return harpe_text_take(&text);
}
