/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps one latency for each clock of each pipeline rank. A newer report replaces an older one. */
#include "server/scheduler/perseus/switch_latencies.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

/* A clock of a driver may differ so much from the clock of a schedule. */
enum { TOLERANCE_MHZ = 7 };

#define UNKNOWN \
    (harpe_online_latency) { -1, -1 }
#define LATENCY_MAX_S 1e3

static bool is_known(const harpe_online_latency *latency) { return latency->p95_s >= 0; }

harpe_online_latencies *harpe_online_latencies_new(const harpe_sweep_clocks *clocks,
                                                   int rank_count) {
    harpe_online_latencies *self = harpe_calloc(1, sizeof *self);
    if (!self) return NULL;
    self->rank_count = rank_count;
    self->offset = harpe_calloc((size_t)rank_count + 1, sizeof *self->offset);
    for (int p = 0; self->offset && p < rank_count; p++)
        self->offset[p + 1] = self->offset[p] + clocks[p].count;
    size_t count = self->offset ? self->offset[rank_count] : 0;
    self->mhz = harpe_calloc(count, sizeof *self->mhz);
    self->latency = harpe_calloc(count, sizeof *self->latency);
    if (!self->offset || !self->mhz || !self->latency) {
        harpe_online_latencies_free(self);
        return NULL;
    }
    for (int p = 0; p < rank_count; p++)
        memcpy(self->mhz + self->offset[p], clocks[p].mhz, clocks[p].count * sizeof *self->mhz);
    for (size_t i = 0; i < count; i++)
        self->latency[i] = UNKNOWN;
    return self;
}

void harpe_online_latencies_free(harpe_online_latencies *self) {
    if (!self) return;
    free(self->offset);
    free(self->mhz);
    free(self->latency);
    free(self);
}

/* ---- Reports --------------------------------------------------------------------------------- */

static harpe_online_latency *find(const harpe_online_latencies *self, int pipeline_rank, int mhz) {
    for (size_t i = self->offset[pipeline_rank]; i < self->offset[pipeline_rank + 1]; i++)
        if (abs(self->mhz[i] - mhz) <= TOLERANCE_MHZ) return &self->latency[i];
    return NULL;
}

static void take(const harpe_online_latencies *self, int pipeline_rank,
                 const harpe_rank_clocks *clocks, bool raises) {
    for (size_t i = 0; i < clocks->latency_count; i++) {
        const harpe_clock_latency *told = &clocks->latencies[i];
        harpe_online_latency *own = find(self, pipeline_rank, told->mhz);
        if (own && (!raises || told->p95_s > own->p95_s))
            *own = (harpe_online_latency){told->median_s, told->p95_s};
    }
}

void harpe_online_latencies_take(harpe_online_latencies *self, const harpe_rank_info *ranks,
                                 const harpe_rank_clocks *clocks, size_t count) {
    for (int raises = 0; raises <= 1; raises++) {
        for (size_t r = 0; r < count; r++) {
            if (!clocks[r].is_known) continue;
            self->is_told = true;
            take(self, ranks[r].pp_rank, &clocks[r], raises);
        }
    }
}

/* ---- Answers --------------------------------------------------------------------------------- */

/* Returns the longest latencies of the pipeline ranks from `first` to `end` - 1. */
static harpe_online_latency longest(const harpe_online_latencies *self, int first, int end) {
    harpe_online_latency most = UNKNOWN;
    for (size_t i = self->offset[first]; i < self->offset[end]; i++) {
        most.median_s = fmax(most.median_s, self->latency[i].median_s);
        most.p95_s = fmax(most.p95_s, self->latency[i].p95_s);
    }
    return most;
}

static harpe_online_latency longest_for(const harpe_online_latencies *self, int pipeline_rank) {
    harpe_online_latency own = longest(self, pipeline_rank, pipeline_rank + 1);
    return is_known(&own) ? own : longest(self, 0, self->rank_count);
}

double harpe_online_latencies_longest_s(const harpe_online_latencies *self, int pipeline_rank) {
    return self->is_told ? longest_for(self, pipeline_rank).p95_s : 0;
}

double harpe_online_latencies_median_s(const harpe_online_latencies *self, int pipeline_rank,
                                       int mhz) {
    const harpe_online_latency *own = find(self, pipeline_rank, mhz);
    if (!self->is_told) return NAN;
    if (own && is_known(own)) return own->median_s;
    harpe_online_latency other = longest_for(self, pipeline_rank);
    return is_known(&other) ? other.median_s : NAN;
}

double harpe_online_latencies_planned_s(const harpe_online_latencies *self, int pipeline_rank,
                                        int mhz) {
    double median_s = self ? harpe_online_latencies_median_s(self, pipeline_rank, mhz) : NAN;
    return median_s > 0 ? median_s : 0;
}

/* ---- State ----------------------------------------------------------------------------------- */

json_t *harpe_online_latencies_save(const harpe_online_latencies *self) {
    json_t *list = json_array();
    for (int p = 0; p < self->rank_count; p++) {
        for (size_t i = self->offset[p]; i < self->offset[p + 1]; i++) {
            const harpe_online_latency *own = &self->latency[i];
            if (is_known(own))
                json_array_append_new(
                    list, json_pack("[i,i,f,f]", p, self->mhz[i], own->median_s, own->p95_s));
        }
    }
    return json_pack("{s:b,s:o}", "is_told", self->is_told, "list", list);
}

static bool load_one(const harpe_online_latencies *self, const json_t *saved) {
    double n[4];
    if (json_array_size(saved) != 4) return false;
    for (size_t i = 0; i < 4; i++) {
        n[i] = json_number_value(json_array_get(saved, i));
        if (!(n[i] >= 0 && n[i] <= 1e6)) return false;
    }
    if (n[0] >= self->rank_count || n[2] > LATENCY_MAX_S || n[3] > LATENCY_MAX_S) return false;
    harpe_online_latency *own = find(self, (int)n[0], (int)n[1]);
    if (!own) return false;
    *own = (harpe_online_latency){n[2], n[3]};
    return true;
}

bool harpe_online_latencies_load(harpe_online_latencies *self, const json_t *saved) {
    if (!saved) return true;
    const json_t *list = json_object_get(saved, "list");
    self->is_told = json_is_true(json_object_get(saved, "is_told"));
    if (!json_is_array(list)) return false;
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!load_one(self, json_array_get(list, i))) return false;
    return true;
}
