/* SPDX-License-Identifier: Apache-2.0 */
/* Counts durations in buckets. The counts become cumulative, as Prometheus requires, when they are
 * printed. */
#include "server/api/latencies.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/text.h"

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

/* ---- Shown ----------------------------------------------------------------------------------- */

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

void harpe_latencies_format(const harpe_latencies *latencies, harpe_text *text) {
    append_family(latencies, &REQUESTS, text);
    append_family(latencies, &SCHEDULES, text);
}
