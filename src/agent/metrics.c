/* SPDX-License-Identifier: Apache-2.0 */
/* The node agent's HTTP server for Prometheus: /metrics and /healthz. Everybody who reaches the
 * address may read them. No request changes anything. A request for /metrics first asks for
 * samples. It is answered when the samples are taken. To add a value of the GPUs or a count of the
 * agent, add a row to a table here and to the table in docs/agent-metrics.md.
 *
 * The text has the names of users. The names of those who were asked for last are kept, and each is
 * looked up again after ten minutes. */
#include "agent/agent_internal.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "gpu/nvml_abi.h"
#include "http/http.h"

/* ---- Names of users -------------------------------------------------------------------------- */

#define NAME_AGE_NS (INT64_C(600) * 1000000000) /* age at which a name is looked up again */

enum { USERS = 256, NAME_SIZE = 64, BUFFER_SIZE = 16384 };

/* While `is_running` is true, a worker writes `found`. All other members belong to the loop. */
typedef struct user_name {
    bool is_used, is_running;
    uid_t user;
    char name[NAME_SIZE], found[NAME_SIZE];
    int64_t looked_up_ns; /* 0: never */
    int64_t asked_ns;
    harpe_work work;
} user_name;

struct harpe_user_names {
    harpe_workers *workers;
    int pool;
    user_name users[USERS];
};

/* Runs on a worker. */
static void look_up(void *given) {
    user_name *user = given;
    char buffer[BUFFER_SIZE];
    struct passwd entry, *found = NULL;
    user->found[0] = '\0';
    if (getpwuid_r(user->user, &entry, buffer, sizeof buffer, &found) == 0 && found)
        (void)snprintf(user->found, sizeof user->found, "%s", found->pw_name);
}

static void looked_up(void *given) {
    user_name *user = given;
    (void)snprintf(user->name, sizeof user->name, "%s", user->found);
    user->looked_up_ns = harpe_clock_ns();
    user->is_running = false;
}

harpe_status harpe_user_names_new(harpe_workers *workers, int pool, harpe_user_names **out,
                                  harpe_error *error) {
    harpe_user_names *names = harpe_calloc(1, sizeof *names);
    if (!names) return harpe_fail_memory(error);
    names->workers = workers;
    names->pool = pool;
    *out = names;
    return HARPE_OK;
}

void harpe_user_names_free(harpe_user_names *names) { free(names); }

/* Returns the user's place in the table. If the user has none, gives the user the place whose last
 * request is the oldest. Returns NULL if workers use all places. */
static user_name *find_place(harpe_user_names *names, uid_t user) {
    user_name *oldest = NULL;
    for (int i = 0; i < USERS; i++) {
        user_name *each = &names->users[i];
        if (each->is_used && each->user == user) return each;
        if (!each->is_running && (!oldest || each->asked_ns < oldest->asked_ns)) oldest = each;
    }
    if (oldest) *oldest = (user_name){.is_used = true, .user = user};
    return oldest;
}

const char *harpe_user_names_find(harpe_user_names *names, uid_t user) {
    user_name *place = find_place(names, user);
    int64_t now_ns = harpe_clock_ns();
    if (!place) return "";
    place->asked_ns = now_ns;
    bool is_known = place->looked_up_ns > 0 && now_ns - place->looked_up_ns < NAME_AGE_NS;
    if (is_known || place->is_running) return place->name;
    place->is_running = true;
    place->work =
        (harpe_work){.work = look_up, .done = looked_up, .user = place, .pool = names->pool};
    harpe_workers_submit(names->workers, &place->work);
    return place->name;
}

#define GAUGE "gauge"
#define TOTAL "counter" /* counts since the start of the agent, or is a counter of the GPU */

typedef struct metrics_page {
    harpe_text text;
    harpe_agent *agent;
    int gpus;
    harpe_gpu_sample *samples; /* of each GPU */
} metrics_page;

/* ---- Samples of a metric --------------------------------------------------------------------- */

static void add_head(metrics_page *page, const char *name, const char *type, const char *help) {
    char full_name[64];
    (void)snprintf(full_name, sizeof full_name, "harpe_agent_%s", name);
    harpe_metrics_text_head(&page->text, full_name, type, help);
}

static void add_label(metrics_page *page, const char *name, const char *value) {
    harpe_text_append(&page->text, ",", 1);
    harpe_metrics_text_label(&page->text, name, value);
}

/* Begins a sample with the labels that all metrics of a GPU have. */
static void begin_sample(metrics_page *page, const char *name, int gpu) {
    const harpe_gpu_info *info = harpe_gpu_info_at(page->agent->gpus, gpu);
    harpe_text_printf(&page->text, "harpe_agent_%s{gpu=\"%d\"", name, info->driver_index);
    add_label(page, "uuid", info->uuid);
    add_label(page, "pci", info->pci_bus_id);
    add_label(page, "model", info->name);
}

static void end_sample(metrics_page *page, double value) {
    harpe_text_append(&page->text, "}", 1);
    harpe_metrics_text_value(&page->text, value);
}

/* ---- Values of GPUs -------------------------------------------------------------------------- */

typedef struct gpu_metric {
    const char *name, *help;
    harpe_sample_value value;
    double unit; /* size of the value's unit in units of the metric */
} gpu_metric;

static const gpu_metric GPU_METRICS[] = {
    {"graphics_clock_hertz", "Graphics clock that the GPU has now.", HARPE_SAMPLE_GRAPHICS_MHZ,
     1e6},
    {"memory_clock_hertz", "Memory clock that the GPU has now.", HARPE_SAMPLE_MEMORY_MHZ, 1e6},
    {"power_limit_watts", "Power limit that is set.", HARPE_SAMPLE_POWER_LIMIT_MW, 1e-3},
    {"default_power_limit_watts", "Power limit of the GPU's model.",
     HARPE_SAMPLE_DEFAULT_POWER_LIMIT_MW, 1e-3},
    {"enforced_power_limit_watts",
     "Power limit in force: the lowest limit of the driver, the board and others.",
     HARPE_SAMPLE_ENFORCED_POWER_LIMIT_MW, 1e-3},
    {"temperature_celsius", "Temperature of the GPU.", HARPE_SAMPLE_CELSIUS, 1},
    {"mig_enabled", "1 if the GPU is divided into MIG instances.", HARPE_SAMPLE_MIG, 1},
    {"persistence_enabled", "1 if the persistence mode is on.", HARPE_SAMPLE_PERSISTENCE, 1},
};
enum { GPU_METRIC_COUNT = sizeof GPU_METRICS / sizeof *GPU_METRICS };

static void add_gpu_metric(metrics_page *page, const gpu_metric *metric) {
    uint64_t value = 0;
    add_head(page, metric->name, GAUGE, metric->help);
    for (int gpu = 0; gpu < page->gpus; gpu++) {
        if (!harpe_gpu_sample_get(&page->samples[gpu], metric->value, &value)) continue;
        begin_sample(page, metric->name, gpu);
        /* A division by 1000 gives the closest number; a multiplication by 0.001 does not. */
        end_sample(page, metric->unit < 1 ? (double)value / (1 / metric->unit)
                                          : (double)value * metric->unit);
    }
}

/* Adds a value in thousandths with a label for the parts of the machine that it includes. */
static void add_scoped(metrics_page *page, const char *name, int gpu, harpe_sample_value which,
                       harpe_energy_scope scope) {
    uint64_t value = 0;
    if (!harpe_gpu_sample_get(&page->samples[gpu], which, &value)) return;
    begin_sample(page, name, gpu);
    add_label(page, "scope", scope == HARPE_ENERGY_OF_MODULE ? "module" : "gpu");
    end_sample(page, (double)value / 1000);
}

static void add_energy_and_power(metrics_page *page) {
    add_head(page, "energy_joules_total", TOTAL,
             "Energy since the driver was loaded, of the GPU or of the module with its CPU.");
    for (int gpu = 0; gpu < page->gpus; gpu++)
        add_scoped(page, "energy_joules_total", gpu, HARPE_SAMPLE_ENERGY_MJ,
                   harpe_gpu_energy_scope(page->agent->gpus, gpu));
    add_head(page, "power_watts", GAUGE, "Power now, of the GPU or of the module with its CPU.");
    for (int gpu = 0; gpu < page->gpus; gpu++) {
        add_scoped(page, "power_watts", gpu, HARPE_SAMPLE_POWER_MW, HARPE_ENERGY_OF_GPU);
        add_scoped(page, "power_watts", gpu, HARPE_SAMPLE_MODULE_POWER_MW, HARPE_ENERGY_OF_MODULE);
    }
}

typedef struct reason {
    const char *name;
    uint64_t bit;
} reason;

/* Only NVIDIA's driver reports reasons. */
static const reason REASONS[] = {
    {"gpu_idle", nvmlClocksEventReasonGpuIdle},
    {"applications_clocks_setting", nvmlClocksEventReasonApplicationsClocksSetting},
    {"sw_power_cap", nvmlClocksEventReasonSwPowerCap},
    {"hw_slowdown", nvmlClocksThrottleReasonHwSlowdown},
    {"sync_boost", nvmlClocksEventReasonSyncBoost},
    {"sw_thermal_slowdown", nvmlClocksEventReasonSwThermalSlowdown},
    {"hw_thermal_slowdown", nvmlClocksThrottleReasonHwThermalSlowdown},
    {"hw_power_brake_slowdown", nvmlClocksThrottleReasonHwPowerBrakeSlowdown},
    {"display_clock_setting", nvmlClocksEventReasonDisplayClockSetting},
};
enum { REASON_COUNT = sizeof REASONS / sizeof *REASONS };

static void add_reasons(metrics_page *page) {
    uint64_t bits = 0;
    add_head(page, "clock_event_active", GAUGE,
             "1 for each reason why the GPU's clocks are as they are now.");
    for (int gpu = 0; gpu < page->gpus; gpu++) {
        if (!harpe_gpu_sample_get(&page->samples[gpu], HARPE_SAMPLE_REASONS, &bits)) continue;
        for (int i = 0; i < REASON_COUNT; i++) {
            begin_sample(page, "clock_event_active", gpu);
            add_label(page, "reason", REASONS[i].name);
            end_sample(page, (bits & REASONS[i].bit) != 0);
        }
    }
}

static void add_mig_devices(metrics_page *page) {
    add_head(page, "mig_device", GAUGE,
             "1 for each MIG instance. It has no power, energy or clocks of its own.");
    for (int gpu = 0; gpu < page->gpus; gpu++) {
        const harpe_mig_devices *devices = &page->samples[gpu].mig_devices;
        for (int i = 0; i < devices->count; i++) {
            begin_sample(page, "mig_device", gpu);
            add_label(page, "device", devices->uuids[i]);
            end_sample(page, 1);
        }
    }
}

static void add_answers(metrics_page *page) {
    add_head(page, "gpu_up", GAUGE,
             "1 if the driver answered when the GPU was sampled last; 0: the GPU is lost, or was "
             "not sampled yet.");
    for (int gpu = 0; gpu < page->gpus; gpu++) {
        begin_sample(page, "gpu_up", gpu);
        end_sample(page, page->samples[gpu].is_answered);
    }
    add_head(page, "sample_age_seconds", GAUGE,
             "Age of the GPU's values. It grows while a call of the driver hangs.");
    int64_t now_ns = harpe_clock_ns();
    for (int gpu = 0; gpu < page->gpus; gpu++) {
        if (page->samples[gpu].taken_ns == 0) continue;
        begin_sample(page, "sample_age_seconds", gpu);
        end_sample(page, (double)(now_ns - page->samples[gpu].taken_ns) / 1e9);
    }
}

/* ---- Leases ---------------------------------------------------------------------------------- */

static bool find_lease(const metrics_page *page, int gpu, int control, harpe_lease_view *out) {
    return harpe_agent_leases_view(page->agent->leases, gpu, (harpe_saved_settings_kind)control,
                                   out);
}

static void add_wanted(metrics_page *page) {
    harpe_lease_view lease;
    add_head(page, "wanted_graphics_clock_hertz", GAUGE,
             "Graphics clock that the holder of the GPU's lease requested last.");
    for (int gpu = 0; gpu < page->gpus; gpu++) {
        if (!find_lease(page, gpu, HARPE_SAVED_CLOCKS, &lease) || lease.wanted_mhz == 0) continue;
        begin_sample(page, "wanted_graphics_clock_hertz", gpu);
        end_sample(page, (double)lease.wanted_mhz * 1e6);
    }
}

static void add_idle(metrics_page *page, const char *name, const char *help, bool of_time) {
    add_head(page, name, TOTAL, help);
    for (int gpu = 0; gpu < page->gpus; gpu++) {
        harpe_idle_view view = harpe_agent_idle_view(page->agent->idle, gpu);
        if (view.clock_mhz == 0) continue;
        begin_sample(page, name, gpu);
        end_sample(page, of_time ? (double)view.held_ns / 1e9 : (double)view.entries);
    }
}

/* Adds a number for each lease, with labels for its holder. */
static void add_lease(metrics_page *page, const char *name, int gpu, int control,
                      bool shows_start) {
    harpe_lease_view lease;
    char number[24];
    if (!find_lease(page, gpu, control, &lease) || !lease.is_lent) return;
    (void)snprintf(number, sizeof number, "%lu", (unsigned long)lease.record->user);
    begin_sample(page, name, gpu);
    add_label(page, "control", harpe_saved_settings_kind_name((harpe_saved_settings_kind)control));
    add_label(page, "uid", number);
    add_label(page, "user", harpe_user_names_find(page->agent->names, lease.record->user));
    add_label(page, "job", lease.record->job);
    end_sample(page, shows_start ? (double)lease.record->since_s : 1);
}

static void add_leases(metrics_page *page) {
    add_head(page, "lease", GAUGE, "1 for each lease, with its kind of control and its holder.");
    for (int i = 0; i < page->gpus * HARPE_SAVED_KINDS; i++)
        add_lease(page, "lease", i / HARPE_SAVED_KINDS, i % HARPE_SAVED_KINDS, false);
    add_head(page, "lease_start_time_seconds", GAUGE,
             "Time at which each lease was granted, in seconds since 1970.");
    for (int i = 0; i < page->gpus * HARPE_SAVED_KINDS; i++)
        add_lease(page, "lease_start_time_seconds", i / HARPE_SAVED_KINDS, i % HARPE_SAVED_KINDS,
                  true);
}

static void add_not_restored(metrics_page *page) {
    add_head(page, "gpu_not_restored", GAUGE,
             "1 if the agent could not restore the settings of an ended lease; it tries again.");
    for (int i = 0; i < page->gpus * HARPE_SAVED_KINDS; i++) {
        harpe_lease_view lease = {.is_unrestored = false};
        int control = i % HARPE_SAVED_KINDS;
        bool has_lease = find_lease(page, i / HARPE_SAVED_KINDS, control, &lease);
        begin_sample(page, "gpu_not_restored", i / HARPE_SAVED_KINDS);
        add_label(page, "control",
                  harpe_saved_settings_kind_name((harpe_saved_settings_kind)control));
        end_sample(page, has_lease && lease.is_unrestored);
    }
}

/* ---- Counts of the agent --------------------------------------------------------------------- */

typedef struct count {
    const char *name, *type, *help;
    double value;
} count;

static void add_counts(metrics_page *page) {
    const harpe_agent *agent = page->agent;
    harpe_agent_lease_counts now = harpe_agent_leases_counts(agent->leases);
    const count counts[] = {
        {"leases_granted_total", TOTAL, "Leases granted.", (double)now.granted},
        {"leases_refused_total", TOTAL,
         "Questions for a lease that were refused because another process has the lease, or "
         "because the driver failed.",
         (double)now.refused},
        {"leases_ended_total", TOTAL, "Leases ended.", (double)now.ended},
        {"requests_refused_total", TOTAL, "Requests that a rule of the administrator forbids.",
         (double)agent->refused},
        {"restored_by_agent_total", TOTAL,
         "GPUs that the agent itself restored, because the process of their lease was killed.",
         (double)now.restored_by_agent},
        {"restore_failures_total", TOTAL, "Attempts to restore a GPU that failed.",
         (double)now.failures},
        {"gpus_not_restored", GAUGE, "GPUs and kinds of control that are not restored yet.",
         now.not_restored},
        {"start_time_seconds", GAUGE, "Time at which the agent was started, in seconds since 1970.",
         (double)agent->started_s},
    };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        add_head(page, counts[i].name, counts[i].type, counts[i].help);
        harpe_text_printf(&page->text, "harpe_agent_%s", counts[i].name);
        harpe_metrics_text_value(&page->text, counts[i].value);
    }
}

/* ---- The page -------------------------------------------------------------------------------- */

void harpe_agent_metrics_prepare(harpe_agent *agent) {
    harpe_lease_view lease;
    for (int i = 0; i < harpe_gpus_count(agent->gpus) * HARPE_SAVED_KINDS; i++)
        if (harpe_agent_leases_view(agent->leases, i / HARPE_SAVED_KINDS,
                                    (harpe_saved_settings_kind)(i % HARPE_SAVED_KINDS), &lease))
            (void)harpe_user_names_find(agent->names, lease.record->user);
}

/* Makes the text from the last samples and the present leases. The caller frees it with free().
 * Returns NULL if memory runs out. */
static char *format_page(harpe_agent *agent) {
    metrics_page page = {.agent = agent, .gpus = harpe_gpus_count(agent->gpus)};
    page.samples = harpe_calloc((size_t)page.gpus, sizeof *page.samples);
    if (!page.samples) return NULL;
    for (int gpu = 0; gpu < page.gpus; gpu++)
        page.samples[gpu] = harpe_agent_samples_last(agent->samples, gpu);
    add_answers(&page);
    add_energy_and_power(&page);
    for (int i = 0; i < GPU_METRIC_COUNT; i++)
        add_gpu_metric(&page, &GPU_METRICS[i]);
    add_mig_devices(&page);
    add_wanted(&page);
    add_reasons(&page);
    add_leases(&page);
    add_not_restored(&page);
    add_idle(&page, "idle_entries_total", "How often the rule idle has locked the clock.", false);
    add_idle(&page, "idle_seconds_total", "How long the rule idle has locked the clock.", true);
    add_counts(&page);
    free(page.samples);
    if (!page.text.failed) return page.text.data;
    harpe_text_free(&page.text);
    return NULL;
}

/* ---- Requests -------------------------------------------------------------------------------- */

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
    char *text = format_page(agent);
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
