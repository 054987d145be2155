/* SPDX-License-Identifier: Apache-2.0 */
/* The table of meters: marks in shared memory, a page of metrics, a file, a command's output, and
 * the period of the GPU's power. page.c and period.c compute; this file reads. It does not judge
 * whether the work makes progress. */
#include "tune/tune_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <harpe/power_limit.h>

#include "base/array.h"
#include "base/error.h"
#include "base/number.h"
#include "base/wait.h"
#include "http/client/connection.h"

#define MOST_WORK 1e15 /* no program counts so far; a double still counts each unit */
#define CONNECT_S 2.0
#define ANSWER_S 5.0
#define LEAST_REQUESTS 20.0 /* for a percentile */
#define LEAST_PERIODS 20.0  /* for the first look at the power */
#define SLICE_PERIODS 6.0   /* for the period of a slice */
#define POLL_NS INT64_C(5000000)
#define TO_S(ns) ((double)(ns)*1e-9)

enum {
    PAGE_BYTES = 16 << 20,
    FILE_BYTES = 256,
    LONG_EVERY = 5,  /* samples to one for long periods */
    LOOK_EVERY = 50, /* samples to one computation of the period */
};

struct harpe_meter {
    harpe_meter_options options;
    harpe_connection *connection;
    char *path; /* of the page */
    harpe_page_selector rate, latency;
    harpe_page_histogram now, at_begin; /* latencies */
    bool knows_now, knows_begin;
    harpe_power_samples samples[2]; /* since the slice began: all, and few for long periods */
    int chosen;                     /* those in which the period was found */
    double period_s;                /* the first one; 0: none yet */
    double periods;                 /* up to the beginning of the slice */
    double slice_periods;           /* in the slice so far */
    double begin_s, latest_s;       /* GPU time: of the slice, and of the latest sample */
};

/* ---- Marks and output ------------------------------------------------------------------------ */

static double read_marks(harpe_meter *meter) {
    return (double)atomic_load(&meter->options.marks->steps);
}

uint32_t harpe_meter_step_source(const harpe_meter *meter) {
    return atomic_load(&meter->options.marks->source);
}

static double read_output(harpe_meter *meter) {
    const harpe_output_count *count = meter->options.output;
    if (!atomic_load(&count->has_number)) return (double)atomic_load(&count->matches);
    double number;
    uint64_t bits = atomic_load(&count->number);
    memcpy(&number, &bits, sizeof number);
    return number;
}

/* See step_signal.c for the order of stores and loads. */
void harpe_meter_wait_for_mark(harpe_meter *meter, int64_t longest_ns) {
    harpe_step_memory *shared = meter->options.marks;
    if (meter->options.is_runners) {
        int64_t pause_ns = longest_ns < POLL_NS ? longest_ns : POLL_NS;
        (void)harpe_wait_while(meter->options.is_over, 0, pause_ns);
        return;
    }
    uint32_t heard = atomic_load(&shared->bell);
    double work = read_marks(meter);
    atomic_store(&shared->is_parked, 1);
    if (atomic_load(&shared->bell) == heard && read_marks(meter) <= work &&
        !atomic_load(meter->options.is_over))
        (void)harpe_wait_while(&shared->is_parked, 1, longest_ns);
    atomic_store(&shared->is_parked, 0);
}

void harpe_meter_wake(harpe_meter *meter) {
    if (!meter || meter->options.is_runners) return;
    atomic_store(&meter->options.marks->is_parked, 0);
    harpe_wake(&meter->options.marks->is_parked);
}

/* ---- File ------------------------------------------------------------------------------------ */

/* Reads the number at the beginning of a regular file, and never waits for it. */
static double read_number_file(harpe_meter *meter) {
    char text[FILE_BYTES];
    struct stat status;
    double number = NAN;
    int file = open(meter->options.file, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (file < 0) return NAN;
    bool is_regular = fstat(file, &status) == 0 && S_ISREG(status.st_mode);
    ssize_t got = is_regular ? read(file, text, sizeof text - 1) : -1;
    (void)close(file);
    if (got <= 0) return NAN;
    text[got] = '\0';
    const char *begin = text + strspn(text, " \t\r\n");
    (void)harpe_parse_double(begin, strcspn(begin, " \t\r\n"), &number);
    return number;
}

/* ---- Page ------------------------------------------------------------------------------------ */

static bool goes_on(void *user) {
    const harpe_meter *meter = user;
    return !atomic_load(meter->options.is_over);
}

/* Cuts a URL into server and path, and makes the connection. */
static harpe_status open_page(harpe_meter *meter, harpe_error *error) {
    const char *url = meter->options.url;
    const char *host = strstr(url, "://");
    const char *path = host ? strchr(host + 3, '/') : NULL;
    char *server = path ? strndup(url, (size_t)(path - url)) : strdup(url);
    meter->path = strdup(path ? path : "/metrics");
    harpe_connection_options options = {.server_url = server,
                                        .has_no_token = true,
                                        .url_name = "--rate-url",
                                        .connect_limit_s = CONNECT_S,
                                        .answer_limit_s = ANSWER_S,
                                        .answer_limit_bytes = PAGE_BYTES,
                                        .go_on = goes_on,
                                        .user = meter};
    harpe_status status = server && meter->path ? HARPE_OK : harpe_fail_memory(error);
    if (status == HARPE_OK) status = harpe_server_url_check("--rate-url", server, error);
    if (status == HARPE_OK)
        status = harpe_page_selector_parse("--rate", meter->options.name, &meter->rate, error);
    if (status == HARPE_OK && meter->options.latency_name)
        status = harpe_page_selector_parse("--latency-p95", meter->options.latency_name,
                                           &meter->latency, error);
    if (status == HARPE_OK) status = harpe_connection_new(&options, &meter->connection, error);
    free(server);
    return status;
}

static double read_page(harpe_meter *meter) {
    harpe_request request = {.path = meter->path};
    harpe_answer answer;
    double sum = NAN;
    meter->knows_now = false;
    if (harpe_connection_call(meter->connection, &request, &answer, NULL) != HARPE_OK ||
        answer.http_status != 200)
        return NAN;
    if (meter->options.latency_name)
        meter->knows_now =
            harpe_page_read_histogram(answer.body, answer.length, &meter->latency, &meter->now);
    (void)harpe_page_sum(answer.body, answer.length, &meter->rate, &sum);
    return sum;
}

double harpe_meter_latency_s(harpe_meter *meter) {
    if (!meter->knows_now || !meter->knows_begin) return NAN;
    return harpe_page_quantile_s(&meter->at_begin, &meter->now, 0.95, LEAST_REQUESTS);
}

/* ---- Period ---------------------------------------------------------------------------------- */

/* Returns true if it has added a sample. */
static bool sample_power(harpe_meter *meter) {
    uint32_t power_mw = 0;
    double now_s = TO_S(harpe_gpus_clock_ns(meter->options.gpus));
    if (harpe_gpu_instant_power(meter->options.gpus, 0, &power_mw, NULL) != HARPE_OK) return false;
    meter->latest_s = now_s;
    bool is_for_long = meter->samples[0].count % LONG_EVERY == 0;
    harpe_power_samples_add(&meter->samples[0], now_s, power_mw * 1e-3);
    if (is_for_long) harpe_power_samples_add(&meter->samples[1], now_s, power_mw * 1e-3);
    return true;
}

/* Computes the periods of the slice from time to time, because that takes long. In between there is
 * no reading. The first reading of a slice is where it begins. */
static double read_period(harpe_meter *meter) {
    double period_s = 0;
    if (!sample_power(meter) || meter->period_s <= 0) return NAN;
    if (meter->samples[0].count == 1) return meter->periods;
    if (meter->samples[0].count % LOOK_EVERY != 0 ||
        !harpe_period_find(&meter->samples[meter->chosen], meter->period_s, SLICE_PERIODS,
                           &period_s))
        return NAN;
    meter->slice_periods = (meter->latest_s - meter->begin_s) / period_s;
    return meter->periods + meter->slice_periods;
}

bool harpe_meter_finds_period(harpe_meter *meter) {
    double period_s = 0;
    if (meter->samples[0].count % LOOK_EVERY != 0) return false;
    for (int i = 0; i < 2; i++) {
        if (!harpe_period_find(&meter->samples[i], 0, LEAST_PERIODS, &period_s)) continue;
        meter->period_s = period_s;
        meter->chosen = i;
        return true;
    }
    return false;
}

/* ---- The table ------------------------------------------------------------------------------- */

typedef struct meter_row {
    const char *name;
    double pause_s;
    bool is_asked; /* by a flag, so that it is the only one */
    double (*read)(harpe_meter *meter);
} meter_row;

static const meter_row rows[HARPE_METER_KINDS] = {
    [HARPE_METER_PAGE] = {"the counter on the page of metrics", 0.3, true, read_page},
    [HARPE_METER_FILE] = {"the number in the file", 0.02, true, read_number_file},
    [HARPE_METER_OUTPUT] = {"the command's output", 0.02, true, read_output},
    [HARPE_METER_MARKS] = {"the program's marks", 0, false, read_marks},
    [HARPE_METER_PERIOD] = {"the period of the GPU's power", 0.02, false, read_period},
};

const char *harpe_meter_name(const harpe_meter *meter, harpe_meter_kind kind) {
    static const char *const sources[] = {
        [HARPE_STEP_FORWARDS] = "calls of the program's model",
        [HARPE_STEP_BATCHES] = "batches of the program's data",
        [HARPE_STEP_UPDATES] = "steps of the program's optimizer",
    };
    uint32_t source = kind == HARPE_METER_MARKS ? harpe_meter_step_source(meter) : 0;
    return source > 0 && source < HARPE_STEP_MARKS ? sources[source] : rows[kind].name;
}

double harpe_meter_pause_s(harpe_meter_kind kind) { return rows[kind].pause_s; }

static bool is_there(harpe_meter_kind kind, const harpe_meter_options *options) {
    switch (kind) {
    case HARPE_METER_PAGE: return options->url != NULL;
    case HARPE_METER_FILE: return options->file != NULL;
    case HARPE_METER_OUTPUT: return options->output != NULL;
    case HARPE_METER_MARKS: return true;
    default: return options->has_period;
    }
}

bool harpe_meter_is_asked(harpe_meter_kind kind, const harpe_meter_options *options) {
    return rows[kind].is_asked && is_there(kind, options);
}

harpe_status harpe_meter_open(const harpe_meter_options *options, harpe_meter **out,
                              harpe_error *error) {
    harpe_meter *meter = harpe_calloc(1, sizeof *meter);
    if (!meter) return harpe_fail_memory(error);
    meter->options = *options;
    harpe_status status = options->url ? open_page(meter, error) : HARPE_OK;
    if (status != HARPE_OK) {
        harpe_meter_close(meter);
        return status;
    }
    *out = meter;
    return HARPE_OK;
}

void harpe_meter_close(harpe_meter *meter) {
    if (!meter) return;
    harpe_connection_free(meter->connection);
    free(meter->path);
    free(meter);
}

double harpe_meter_read(harpe_meter *meter, harpe_meter_kind kind) {
    if (!is_there(kind, &meter->options)) return NAN;
    double work = rows[kind].read(meter);
    return isfinite(work) && fabs(work) < MOST_WORK ? work : NAN;
}

void harpe_meter_begin(harpe_meter *meter) {
    meter->at_begin = meter->now;
    meter->knows_begin = meter->knows_now;
    meter->periods += meter->slice_periods;
    meter->slice_periods = 0;
    meter->samples[0].count = meter->samples[1].count = 0;
    meter->begin_s = TO_S(harpe_gpus_clock_ns(meter->options.gpus));
}
