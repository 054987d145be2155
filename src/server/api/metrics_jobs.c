/* SPDX-License-Identifier: Apache-2.0 */
/* /metrics of single jobs: energy, savings, power, plan and phase. To add a metric, add a row here.
 * Only the newest jobs have metrics, so that a scrape of a server with thousands of jobs stays
 * fast. One metric counts the jobs that are left out. */
#include "server/api/metrics_jobs.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/metrics_text.h"
#include "server/engine/job_state.h"

enum { JOBS_MAX = 1000 };

/* A metric of a job. `value` returns NAN if the job has no such value. */
typedef struct job_metric {
    const char *name, *type, *help;
    double (*value)(const harpe_figures *figures);
} job_metric;

/* ---- Values ---------------------------------------------------------------------------------- */

static double energy(const harpe_figures *figures) { return figures->used_energy_j; }
static double duration(const harpe_figures *figures) { return figures->used_time_s; }
static double iterations(const harpe_figures *figures) { return (double)figures->iterations; }

static double power(const harpe_figures *figures) {
    return figures->power_w > 0 ? figures->power_w : NAN;
}

static double if_saved(const harpe_figures *figures, double value) {
    return figures->has_savings ? value : NAN;
}

static double saved(const harpe_figures *figures) {
    return if_saved(figures, figures->saved_energy_j);
}

static double saved_uncertainty(const harpe_figures *figures) {
    return if_saved(figures, figures->saved_energy_uncertainty_j);
}

static double baseline(const harpe_figures *figures) {
    return if_saved(figures, figures->energy_baseline_j);
}

static double lost(const harpe_figures *figures) { return if_saved(figures, figures->lost_time_s); }

static double lost_uncertainty(const harpe_figures *figures) {
    return if_saved(figures, figures->lost_time_uncertainty_s);
}

static double if_planned(const harpe_figures *figures, double value) {
    return figures->phase && figures->plan >= 0 ? value : NAN;
}

static double plan(const harpe_figures *figures) {
    return if_planned(figures, (double)figures->plan);
}

static double plan_time(const harpe_figures *figures) {
    return if_planned(figures, figures->plan_time_s);
}

static double plan_energy(const harpe_figures *figures) {
    return if_planned(figures, figures->plan_energy_j);
}

static const job_metric METRICS[] = {
    {"energy_joules_total", "counter", "Energy of the reported iterations, all ranks.", energy},
    {"iteration_seconds_total", "counter", "Time of the reported iterations.", duration},
    {"iterations_total", "counter", "Reported iterations.", iterations},
    {"power_watts", "gauge", "Average power of all ranks in the last round.", power},
    {"energy_saved_joules", "gauge",
     "Energy saved against the measured baseline; negative: more was used.", saved},
    {"energy_saved_uncertainty_joules", "gauge",
     "Half-width of the 95 % confidence interval of harpe_job_energy_saved_joules.",
     saved_uncertainty},
    {"energy_baseline_joules", "gauge",
     "Energy that the same iterations would have used at the highest clocks.", baseline},
    {"time_lost_seconds", "gauge",
     "Time lost against the measured baseline; negative: it was faster.", lost},
    {"time_lost_uncertainty_seconds", "gauge",
     "Half-width of the 95 % confidence interval of harpe_job_time_lost_seconds.",
     lost_uncertainty},
    {"plan", "gauge", "Number of the running plan; 0 is the fastest.", plan},
    {"plan_iteration_seconds", "gauge", "Predicted time of an iteration of the running plan.",
     plan_time},
    {"plan_iteration_joules", "gauge", "Predicted energy of an iteration of the running plan.",
     plan_energy},
};
enum { METRIC_COUNT = sizeof METRICS / sizeof *METRICS };

static const char *const PHASES[] = {"count", "sweep", "explore", "plan", "hold"};
enum { PHASE_COUNT = sizeof PHASES / sizeof *PHASES };

/* ---- Text ------------------------------------------------------------------------------------ */

static void append_sample(harpe_text *text, const char *name, const harpe_job *job,
                          const char *phase, double value) {
    harpe_text_printf(text, "harpe_job_%s{", name);
    harpe_metrics_text_label(text, "job_id", job->id);
    if (phase) {
        harpe_text_append(text, ",", 1);
        harpe_metrics_text_label(text, "phase", phase);
    }
    harpe_text_append(text, "}", 1);
    harpe_metrics_text_value(text, value); /* infinite: an uncertainty that is not known */
}

static void append_head(harpe_text *text, const char *name, const char *type, const char *help) {
    char full_name[64];
    (void)snprintf(full_name, sizeof full_name, "harpe_job_%s", name);
    harpe_metrics_text_head(text, full_name, type, help);
}

/* Returns the next job after `job` that has metrics; NULL: none. */
static const harpe_job *next_job(const harpe_job *job) {
    while (job && !job->is_stored)
        job = job->older;
    return job;
}

static void append_metric(harpe_text *text, const harpe_jobs *jobs, const job_metric *metric) {
    append_head(text, metric->name, metric->type, metric->help);
    const harpe_job *job = next_job(jobs ? jobs->table.newest : NULL);
    for (int shown = 0; job && shown < JOBS_MAX; job = next_job(job->older), shown++) {
        double value = metric->value(&job->figures);
        if (!isnan(value)) append_sample(text, metric->name, job, NULL, value);
    }
}

static void append_phases(harpe_text *text, const harpe_jobs *jobs) {
    append_head(text, "phase", "gauge", "1 for the phase that an online job is in.");
    const harpe_job *job = next_job(jobs ? jobs->table.newest : NULL);
    for (int shown = 0; job && shown < JOBS_MAX; job = next_job(job->older), shown++) {
        const char *phase = job->figures.phase;
        for (int p = 0; phase && p < PHASE_COUNT; p++)
            append_sample(text, "phase", job, PHASES[p], strcmp(phase, PHASES[p]) == 0);
    }
}

void harpe_metrics_append_jobs(harpe_text *text, const harpe_jobs *jobs) {
    size_t count = jobs ? jobs->counts.jobs : 0;
    harpe_text_printf(text,
                      "# HELP harpe_jobs_left_out Jobs that harpe_job_ metrics leave out: only the "
                      "newest %d are included.\n# TYPE harpe_jobs_left_out gauge\n"
                      "harpe_jobs_left_out %zu\n",
                      JOBS_MAX, count > JOBS_MAX ? count - JOBS_MAX : 0);
    for (int m = 0; m < METRIC_COUNT; m++)
        append_metric(text, jobs, &METRICS[m]);
    append_phases(text, jobs);
}
