/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps one latency for each clock of each pipeline rank. A newer report replaces an older one. */
#include "server/scheduler/perseus/online_internal.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "server/scheduler/builtin.h"

/* A clock of a driver may differ so much from the clock of a schedule. Different clocks of a GPU
 * can be as close, so the nearest one counts. */
enum { TOLERANCE_MHZ = 7 };

#define UNKNOWN \
    (harpe_online_latency) { -1, -1 }
/* Longer latencies count as this; a controller measures up to about a second. */
#define LATENCY_MAX_S 2.0
/* A change may take longer than nearly all changes so far by this factor. */
#define MARGIN 1.25
/* Shorter changes count as immediate. The second value is a share of the shortest instruction. */
#define IGNORED_S 0.0005
#define IGNORED_SHARE 0.01
/* Changes are late if at least this share of the clocks is. */
#define LATE_SHARE 0.1
/* The latencies of fewer clocks say nothing about the others. */
enum { ENOUGH_CLOCKS = 2 };

static bool is_known(const harpe_online_latency *latency) { return latency->p95_s >= 0; }

harpe_online_latencies *harpe_online_latencies_new(const harpe_tried_clocks *clocks,
                                                   int rank_count) {
    harpe_online_latencies *self = harpe_calloc(1, sizeof *self);
    if (!self) return NULL;
    size_t count = 0;
    self->rank_count = rank_count;
    self->offset = harpe_arena_alloc(&self->arena, (size_t)rank_count + 1, sizeof *self->offset);
    for (int p = 0; self->offset && p < rank_count; p++) {
        count += clocks[p].count;
        self->offset[p + 1] = count;
        self->can_change |= clocks[p].count > 1;
    }
    self->mhz = harpe_arena_alloc(&self->arena, count, sizeof *self->mhz);
    self->latency = harpe_arena_alloc(&self->arena, count, sizeof *self->latency);
    if (self->arena.has_failed) {
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
    harpe_arena_free(&self->arena);
    free(self);
}

/* ---- Clocks ---------------------------------------------------------------------------------- */

/* Returns the index of the clock that is nearest to `mhz`, or -1 if none is close enough. */
static int64_t find(const harpe_online_latencies *self, int pipeline_rank, int mhz) {
    int64_t nearest = -1;
    for (size_t i = self->offset[pipeline_rank]; i < self->offset[pipeline_rank + 1]; i++) {
        int apart_mhz = abs(self->mhz[i] - mhz);
        if (apart_mhz > TOLERANCE_MHZ) continue;
        if (nearest < 0 || apart_mhz < abs(self->mhz[nearest] - mhz)) nearest = (int64_t)i;
    }
    return nearest;
}

static size_t clock_count(const harpe_online_latencies *self) {
    return self->offset[self->rank_count];
}

/* ---- What follows ---------------------------------------------------------------------------- */

/* Returns the longest latency of a clock on any pipeline rank. */
static harpe_online_latency longest_of(const harpe_online_latencies *self, int mhz) {
    harpe_online_latency most = UNKNOWN;
    for (int p = 0; p < self->rank_count; p++) {
        int64_t at = find(self, p, mhz);
        if (at >= 0 && self->latency[at].p95_s > most.p95_s) most = self->latency[at];
    }
    return most;
}

/* Medians count, because a busy machine now and then notices a change late. */
static bool is_late(const harpe_online_latencies *self) {
    double ignored_s = fmax(IGNORED_S, IGNORED_SHARE * self->shortest_s);
    size_t late = 0;
    for (size_t i = 0; i < clock_count(self); i++)
        late += self->latency[i].median_s >= ignored_s;
    return self->is_told && late > 0 && (double)late >= LATE_SHARE * (double)self->known_count;
}

static void compute(harpe_online_latencies *self) {
    self->known_count = 0;
    self->longest_s = 0;
    for (size_t i = 0; i < clock_count(self); i++) {
        self->known_count += is_known(&self->latency[i]);
        self->longest_s = fmax(self->longest_s, self->latency[i].p95_s);
    }
    self->is_late = is_late(self);
}

/* ---- Reports --------------------------------------------------------------------------------- */

static bool tells_of(const harpe_rank_clocks *clocks, int mhz) {
    for (size_t i = 0; i < clocks->latency_count; i++)
        if (clocks->latencies[i].mhz == mhz) return true;
    return false;
}

static harpe_online_latency at_most(double median_s, double p95_s) {
    return (harpe_online_latency){fmin(median_s, LATENCY_MAX_S), fmin(p95_s, LATENCY_MAX_S)};
}

static void take(const harpe_online_latencies *self, int pipeline_rank,
                 const harpe_rank_clocks *clocks, bool raises) {
    for (size_t i = 0; i < clocks->latency_count; i++) {
        const harpe_clock_latency *told = &clocks->latencies[i];
        int64_t at = find(self, pipeline_rank, told->mhz);
        if (at < 0 || (self->mhz[at] != told->mhz && tells_of(clocks, self->mhz[at]))) continue;
        harpe_online_latency *own = &self->latency[at];
        if (!raises || told->p95_s > own->p95_s) *own = at_most(told->median_s, told->p95_s);
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
    compute(self);
}

void harpe_online_latencies_take_time(harpe_online_latencies *self, double time_s) {
    if (!(time_s > 0)) return;
    if (self->shortest_s > 0 && time_s >= self->shortest_s) return;
    self->shortest_s = time_s;
    self->is_late = is_late(self);
}

/* ---- Answers --------------------------------------------------------------------------------- */

bool harpe_online_latencies_are_unknown(const harpe_online_latencies *self) {
    return self->is_told && self->can_change && self->known_count < ENOUGH_CLOCKS;
}

bool harpe_online_latencies_are_late(const harpe_online_latencies *self) { return self->is_late; }

double harpe_online_latencies_bound_s(const harpe_online_latencies *self, int pipeline_rank,
                                      int mhz, double guess_s) {
    int64_t at = find(self, pipeline_rank, mhz);
    if (at >= 0 && is_known(&self->latency[at])) return MARGIN * self->latency[at].p95_s;
    harpe_online_latency others = longest_of(self, mhz);
    return fmax(is_known(&others) ? 0 : guess_s, MARGIN * self->longest_s);
}

double harpe_online_latencies_planned_s(const harpe_online_latencies *self, int pipeline_rank,
                                        int mhz) {
    if (!self || !harpe_online_latencies_are_late(self)) return 0;
    int64_t at = find(self, pipeline_rank, mhz);
    harpe_online_latency known = at >= 0 ? self->latency[at] : UNKNOWN;
    if (!is_known(&known)) known = longest_of(self, mhz);
    return is_known(&known) ? known.p95_s : self->longest_s;
}

/* ---- The stored state ------------------------------------------------------------------------ */

/* A latency that is known. */
typedef struct stored_latency {
    int pipeline_rank, mhz;
    harpe_online_latency latency;
} stored_latency;

static const harpe_stored_member MEMBERS[] = {
    HARPE_STORED(harpe_online_latencies, is_told, 0, 1),
    HARPE_STORED(harpe_online_latencies, shortest_s, 0, 1e6),
};
static const harpe_stored TABLE = HARPE_STORED_TABLE(harpe_online_latencies, MEMBERS);

static const harpe_stored_member KNOWN_MEMBERS[] = {
    HARPE_STORED(stored_latency, pipeline_rank, 0, 1e6),
    HARPE_STORED(stored_latency, mhz, 0, 1e6),
    HARPE_STORED_DOUBLES(stored_latency, latency, 0, 1e6),
};
static const harpe_stored KNOWN = HARPE_STORED_TABLE(stored_latency, KNOWN_MEMBERS);

json_t *harpe_online_latencies_save(const harpe_online_latencies *self) {
    json_t *json = harpe_stored_save(&TABLE, self);
    json_t *list = json_array();
    for (int p = 0; p < self->rank_count; p++)
        for (size_t i = self->offset[p]; i < self->offset[p + 1]; i++) {
            stored_latency one = {p, self->mhz[i], self->latency[i]};
            if (is_known(&self->latency[i]))
                harpe_stored_append(&list, harpe_stored_save_row(&KNOWN, &one));
        }
    harpe_stored_add(&json, "known", list);
    return json;
}

bool harpe_online_latencies_load(harpe_online_latencies *self, const json_t *saved) {
    const json_t *list = json_object_get(saved, "known");
    for (size_t i = 0; i < json_array_size(list); i++) {
        stored_latency one;
        if (!harpe_stored_load_row(&KNOWN, &one, json_array_get(list, i)) ||
            one.pipeline_rank >= self->rank_count)
            return false;
        int64_t at = find(self, one.pipeline_rank, one.mhz);
        if (at < 0 || self->mhz[at] != one.mhz) return false;
        self->latency[at] = at_most(one.latency.median_s, one.latency.p95_s);
    }
    if (!json_is_array(list) || !harpe_stored_load(&TABLE, self, saved)) return false;
    compute(self);
    return true;
}
