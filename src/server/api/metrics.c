/* SPDX-License-Identifier: Apache-2.0 */
/* /metrics: the server's counts in Prometheus' text format. To add a metric, add a row here.
 * Metrics of single jobs are in metrics_jobs.c. */
#include "server/api/metrics.h"

#include <stdio.h>

#include "base/text.h"
#include "base/version.h"
#include "server/api/metrics_jobs.h"

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
        harpe_text_printf(text, "%s", name);
        harpe_metrics_text_value(text, it->value);
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
    harpe_text_printf(text, "harpe_build_info{");
    harpe_metrics_text_label(text, "version", harpe_build_version());
    harpe_text_printf(text, "}");
    harpe_metrics_text_value(text, 1);
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
    harpe_metrics_append_jobs(&text, jobs, scope);
    if (steering && !scope) harpe_steering_metrics(steering, &text);
    append_store(&text, store);
    if (http) append_http(&text, http);
    harpe_latencies_format(latencies, &text);
    if (!text.failed) return text.data;
    harpe_text_free(&text);
    return NULL;
}
