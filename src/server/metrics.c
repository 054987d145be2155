/* SPDX-License-Identifier: Apache-2.0 */
/* /metrics: what the server counts, in Prometheus' text format. */
#include "base/text.h"
#include "server/route_table.h"

static void append(harpe_text *text, const char *name, const char *type, const char *help,
                   double value) {
    harpe_text_printf(text, "# HELP harpe_%s %s\n# TYPE harpe_%s %s\nharpe_%s ", name, help, name,
                      type, name);
    harpe_text_number(text, value);
    harpe_text_append(text, "\n", 1);
}

static void append_jobs(harpe_text *text, const harpe_jobs *jobs) {
    harpe_jobs_counts counts = harpe_jobs_count(jobs);
    append(text, "jobs", "gauge", "Jobs at present.", (double)counts.jobs);
    append(text, "jobs_failed", "gauge", "Of these, jobs that cannot go on.",
           (double)counts.failed);
    append(text, "ranks", "gauge", "Registered ranks of all jobs.", (double)counts.ranks);
    append(text, "ranks_waiting", "gauge", "Ranks whose request for a schedule is held.",
           (double)counts.ranks_waiting);
    append(text, "jobs_registered_total", "counter", "Jobs registered since the start.",
           (double)counts.registered_jobs);
    append(text, "ranks_registered_total", "counter", "Ranks registered since the start.",
           (double)counts.registered_ranks);
    append(text, "rounds_total", "counter", "Rounds handed out since the start.",
           (double)counts.rounds);
    append(text, "results_total", "counter", "Results taken since the start.",
           (double)counts.results);
    append(text, "jobs_evicted_total", "counter", "Jobs evicted since the start.",
           (double)counts.evicted);
}

static void append_store(harpe_text *text, const harpe_store *store) {
    harpe_store_counts counts = harpe_store_count(store);
    append(text, "store_changes_total", "counter", "Records written to the store.",
           (double)counts.changes);
    append(text, "store_batches_total", "counter", "Transactions that they took.",
           (double)counts.batches);
    append(text, "store_failures_total", "counter", "Transactions that failed.",
           (double)counts.failures);
    append(text, "store_queued", "gauge", "Records waiting to be written.", (double)counts.queued);
}

static void append_http(harpe_text *text, const harpe_http *http) {
    harpe_http_counts counts = harpe_http_count(http);
    append(text, "http_connections", "gauge", "Open connections.", counts.connections);
    append(text, "http_held", "gauge", "Requests that wait for an answer.", counts.held);
    append(text, "http_accepted_total", "counter", "Connections accepted.",
           (double)counts.accepted);
    append(text, "http_refused_total", "counter", "Connections refused at the door.",
           (double)counts.refused);
    append(text, "http_evicted_total", "counter", "Idle connections closed to make room.",
           (double)counts.evicted);
    append(text, "http_timeouts_total", "counter", "Requests that took too long to arrive.",
           (double)counts.timeouts);
    append(text, "http_requests_total", "counter", "Whole requests.", (double)counts.requests);
}

char *harpe_metrics_format(const harpe_jobs *jobs, const harpe_store *store,
                           const harpe_http *http) {
    harpe_text text = {0};
    append_jobs(&text, jobs);
    append_store(&text, store);
    if (http) append_http(&text, http);
    if (!text.failed) return text.data;
    harpe_text_free(&text);
    return NULL;
}
