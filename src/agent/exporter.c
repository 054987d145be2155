/* SPDX-License-Identifier: Apache-2.0 */
/* Answers requests for metrics on the agent's loop. A request for /metrics first asks for samples.
 * It is answered when the samples are taken. metrics.c makes the text. */
#include "agent/exporter.h"

#include <stdlib.h>
#include <string.h>

#include "agent/metrics.h"
#include "base/array.h"
#include "base/error.h"
#include "base/log.h"
#include "base/metrics_text.h"
#include "http/http.h"

enum {
    CONNECTIONS = 64,
    BODY_BYTES = 1024, /* no request needs a body */
    REQUEST_MS = 10000,
    KEEP_ALIVE_MS = 300000,
};

struct harpe_agent_exporter {
    harpe_agent *agent;
    harpe_http *http;
};

/* A request for /metrics that waits for samples. */
typedef struct scrape {
    harpe_agent *agent;
    harpe_http_request *request;
    harpe_sample_wait samples;
} scrape;

static void answer_line(harpe_http_request *request, int status, const char *line) {
    harpe_http_answer(request, status, "text/plain; charset=utf-8", (char *)line, strlen(line),
                      false, NULL);
}

static void answer_metrics(harpe_agent *agent, harpe_http_request *request) {
    char *text = harpe_agent_metrics_format(agent);
    if (text)
        harpe_http_answer(request, 200, HARPE_METRICS_CONTENT_TYPE, text, strlen(text), true, NULL);
    else
        answer_line(request, 503, "the agent is out of memory\n");
}

static void end_scrape(void *user) {
    scrape *self = user;
    harpe_http_set_data(self->request, NULL);
    answer_metrics(self->agent, self->request);
    free(self);
}

static void start_scrape(harpe_agent *agent, harpe_http_request *request) {
    scrape *self = harpe_calloc(1, sizeof *self);
    if (!self) {
        answer_metrics(agent, request); /* with the last samples */
        return;
    }
    self->agent = agent;
    self->request = request;
    self->samples = (harpe_sample_wait){.done = end_scrape, .user = self};
    harpe_http_set_data(request, self);
    harpe_agent_metrics_prepare(agent);
    harpe_agent_samples_ask(agent->samples, &self->samples);
}

static void on_request(void *user, harpe_http_request *request) {
    const harpe_agent_exporter *exporter = user;
    const char *path = harpe_http_path(request);
    bool is_get = strcmp(harpe_http_method(request), "GET") == 0;
    if (is_get && strcmp(path, "/metrics") == 0)
        start_scrape(exporter->agent, request);
    else if (is_get && strcmp(path, "/healthz") == 0)
        answer_line(request, 200, "ok\n");
    else
        answer_line(request, 404, "there is only GET /metrics and GET /healthz\n");
}

static void on_gone(void *user, harpe_http_request *request) {
    scrape *self = harpe_http_data(request);
    (void)user;
    if (!self) return;
    harpe_agent_samples_leave(&self->samples);
    free(self);
}

harpe_status harpe_agent_exporter_new(harpe_agent *agent, harpe_agent_exporter **out,
                                      harpe_error *error) {
    harpe_agent_exporter *exporter = harpe_calloc(1, sizeof *exporter);
    if (!exporter) return harpe_fail_memory(error);
    exporter->agent = agent;
    const char *address = agent->options.metrics_address;
    harpe_http_options options = {.address = address,
                                  .port = agent->options.metrics_port,
                                  .max_body_bytes = BODY_BYTES,
                                  .max_connections = CONNECTIONS,
                                  .request_timeout_ms = REQUEST_MS,
                                  .keep_alive_timeout_ms = KEEP_ALIVE_MS,
                                  .log = agent->options.log};
    harpe_http_handler handler = {.request = on_request, .gone = on_gone, .user = exporter};
    harpe_status status = harpe_http_new(agent->loop, &options, &handler, &exporter->http, error);
    if (status != HARPE_OK) {
        free(exporter);
        return status;
    }
    bool is_ipv6 = strchr(address, ':') != NULL;
    harpe_log_line(&agent->options.log, HARPE_LOG_INFO, "metrics on http://%s%s%s:%d/metrics",
                   is_ipv6 ? "[" : "", address, is_ipv6 ? "]" : "",
                   harpe_http_port(exporter->http));
    *out = exporter;
    return HARPE_OK;
}

void harpe_agent_exporter_free(harpe_agent_exporter *exporter) {
    if (!exporter) return;
    harpe_http_free(exporter->http);
    free(exporter);
}
