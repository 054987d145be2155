/* SPDX-License-Identifier: Apache-2.0 */
/* Tries changes of the clocks one after the other. A change is kept if the longest path of all
 * durations stays within the limit. */
#include "server/scheduler/perseus/late_trials.h"

#include <math.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"

/* Differences of this size come from the order of additions. */
#define ROUNDING 1e-9
/* A change that is shorter than this share of an instruction does not disturb its measurement. */
#define BRIEF_SHARE 0.08
/* The long block of a probe; the clock must get there before it ends: an assumption. */
#define PROBE_S 0.25
/* Blocks that are tried for one trial. */
enum { MOST_PLACES = 6 };

typedef struct late_placing {
    harpe_trials *trials;
    const harpe_late_gpus *gpus;
    int *rank_of; /* [entry] */
    harpe_longest_path path;
    harpe_late_durations durations;
    size_t own_work, work_end; /* steps of this file, and the steps of all that are permitted */
} late_placing;

/* Nodes of a rank that follow each other. */
typedef struct block {
    int rank;
    size_t first, end;
} block;

static size_t work_of(const late_placing *self) {
    return self->own_work + self->path.work + self->durations.work;
}

static bool may_work(const late_placing *self) { return work_of(self) < self->work_end; }

/* Permits a part of the steps that are left. */
static void permit(late_placing *self, size_t parts) {
    size_t done = work_of(self);
    self->work_end = done;
    if (done < HARPE_LATE_TRIALS_WORK) self->work_end += (HARPE_LATE_TRIALS_WORK - done) / parts;
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

/* Returns a block that ends with `node` and whose clock is there when `node` begins. At the begin
 * of the rank, it ends later, so that its last nodes have the clock. */
static block block_at(late_placing *self, int rank, size_t node, double least_s) {
    const size_t *offset = self->gpus->rank_offset;
    double time_s = 0;
    block found = {rank, node, node + 1};
    if (least_s <= BRIEF_SHARE * harpe_late_shortest_s(self->trials, node)) return found;
    while (found.first > offset[rank] && time_s < least_s)
        time_s += harpe_late_shortest_s(self->trials, --found.first);
    while (found.end < offset[rank + 1] && time_s < least_s)
        time_s += harpe_late_shortest_s(self->trials, found.end++);
    self->own_work += found.end - found.first;
    return found;
}

/* Undoes what try_block has done. */
static void take_back(late_placing *self, block made) {
    for (size_t i = made.first; i < made.end; i++)
        self->trials->clock[i] = self->trials->scratch[i];
    harpe_late_durations_change(&self->durations, made.rank, made.first, made.end);
    harpe_longest_path_go_back(&self->path);
}

/* Gives a block a clock, and keeps it if the iteration fits. `scratch` keeps the clocks before.
 * Nodes whose clock is lower keep it, if `keeps_lower`. Returns false if it does not fit, or if the
 * work takes too long. */
static bool try_block(late_placing *self, block wanted, size_t clock, bool keeps_lower) {
    harpe_trials *trials = self->trials;
    size_t *scratch = trials->scratch;
    if (!may_work(self)) return false;
    for (size_t i = wanted.first; i < wanted.end; i++) {
        scratch[i] = trials->clock[i];
        size_t most = harpe_late_choices(trials, i)->count - 1;
        size_t own = clock < most ? clock : most;
        if (!trials->is_trial[i] && !(keeps_lower && own < scratch[i])) trials->clock[i] = own;
    }
    harpe_late_durations_change(&self->durations, wanted.rank, wanted.first, wanted.end);
    if (harpe_longest_path_update(&self->path)) return true;
    take_back(self, wanted);
    return false;
}

/* ---- Trials ---------------------------------------------------------------------------------- */

static bool is_free(const harpe_trials *trials, block wanted) {
    for (size_t i = wanted.first; i < wanted.end; i++)
        if (trials->is_trial[i]) return false;
    return true;
}

static void mark(harpe_trials *trials, block made, size_t clock) {
    for (size_t i = made.first; i < made.end; i++) {
        trials->is_trial[i] = true;
        harpe_trial_choices *choices = &trials->entries[trials->entry_of[i]];
        if (clock < choices->count) choices->is_placed[clock] = true;
    }
}

/* Tries a clock of an entry at some places of its rank, from the end on: the last instructions of
 * an iteration often have slack. */
static bool place_clock(late_placing *self, int rank, int entry, size_t clock) {
    const size_t *offset = self->gpus->rank_offset;
    size_t runs = 0, seen = 0;
    for (size_t i = offset[rank]; i < offset[rank + 1]; i++)
        runs += self->trials->entry_of[i] == entry;
    self->own_work += 2 * (offset[rank + 1] - offset[rank]);
    size_t step = runs > MOST_PLACES ? runs / MOST_PLACES : 1;
    for (size_t i = offset[rank + 1]; i-- > offset[rank];) {
        if (self->trials->entry_of[i] != entry || seen++ % step != 0) continue;
        block wanted = block_at(self, rank, i, self->gpus->usual_s[rank][clock]);
        if (!is_free(self->trials, wanted) || !try_block(self, wanted, clock, false)) continue;
        mark(self->trials, wanted, clock);
        return true;
    }
    return false;
}

/* Tries a clock, or the lowest useful one above it that fits. */
static bool place(late_placing *self, int rank, int entry, size_t wanted) {
    const harpe_trial_choices *choices = &self->trials->entries[entry];
    for (size_t c = wanted; c > 0; c--) {
        bool is_useful =
            (choices->is_wanted[c] || choices->is_wanted_most[c]) && !choices->is_placed[c];
        if (is_useful && place_clock(self, rank, entry, c)) return true;
    }
    return false;
}

/* The entries take turns, so that each gets a part of the slack. */
static size_t place_all(late_placing *self) {
    harpe_trials *trials = self->trials;
    size_t placed = 0;
    bool has_more = true;
    for (size_t turn = 0; has_more && may_work(self); turn++) {
        has_more = false;
        for (size_t k = 0; k < trials->entry_count; k++) {
            size_t e = (trials->first_entry + k) % trials->entry_count, seen = 0;
            int rank = self->rank_of[e];
            for (size_t c = 1; c < trials->entries[e].count && rank >= 0; c++) {
                if (!trials->entries[e].is_wanted_most[c] || seen++ != turn) continue;
                has_more = true;
                placed += !trials->entries[e].is_placed[c] && place(self, rank, (int)e, c);
                break;
            }
        }
    }
    return placed;
}

/* ---- Saving energy --------------------------------------------------------------------------- */

/* Returns the clock, down to `most`, at which the block saves the most energy; 0: none saves
 * energy. Trials, and runs that are lower already, keep their clocks, and the others get only
 * clocks that were observed. */
static size_t clock_for(late_placing *self, block wanted, size_t most) {
    const harpe_trials *trials = self->trials;
    size_t best = 0;
    double best_j = 0;
    for (size_t c = 1; c <= most; c++) {
        double saved_j = 0;
        self->own_work += wanted.end - wanted.first;
        for (size_t i = wanted.first; i < wanted.end; i++) {
            const harpe_trial_choices *choices = harpe_late_choices(trials, i);
            const harpe_clock_estimate *now = &choices->estimates[trials->clock[i]];
            const harpe_clock_estimate *then =
                &choices->estimates[c < choices->count ? c : choices->count - 1];
            if (trials->is_trial[i] || c <= trials->clock[i]) continue;
            saved_j +=
                now->energy_j - then->energy_j - choices->waiting_w * (now->time_s - then->time_s);
            if (!isfinite(then->error)) saved_j = -INFINITY;
        }
        if (saved_j > best_j) {
            best = c;
            best_j = saved_j;
        }
    }
    return best;
}

static size_t lowest_planned(const harpe_trials *trials, block wanted) {
    size_t lowest = 0;
    for (size_t i = wanted.first; i < wanted.end; i++)
        if (trials->planned[i] > lowest) lowest = trials->planned[i];
    return lowest;
}

/* A whole rank at one clock changes nothing during the iteration. */
static void lower_ranks(late_placing *self) {
    for (int rank = 0; rank < self->gpus->rank_count; rank++) {
        block all = {rank, self->gpus->rank_offset[rank], self->gpus->rank_offset[rank + 1]};
        size_t clock = clock_for(self, all, lowest_planned(self->trials, all));
        while (clock > 0 && !try_block(self, all, clock, true))
            clock = clock_for(self, all, clock - 1);
    }
}

static void lower_blocks_of(late_placing *self, int rank) {
    size_t end = self->gpus->rank_offset[rank + 1];
    for (size_t i = self->gpus->rank_offset[rank]; i < end && may_work(self); i++) {
        double least_s = self->gpus->usual_s[rank][self->trials->planned[i]];
        block part = block_at(self, rank, i, least_s);
        size_t clock = clock_for(self, part, lowest_planned(self->trials, part));
        if (clock == 0 || try_block(self, part, clock, true)) continue;
        clock = clock_for(self, part, clock / 2);
        if (clock > 0) (void)try_block(self, part, clock, true);
    }
}

static void lower_blocks(late_placing *self) {
    for (int rank = 0; rank < self->gpus->rank_count; rank++) {
        permit(self, (size_t)(self->gpus->rank_count - rank));
        lower_blocks_of(self, rank);
    }
}

/* ---- The whole round ------------------------------------------------------------------------- */

static void find_ranks(const late_placing *self) {
    for (int rank = 0; rank < self->gpus->rank_count; rank++)
        for (size_t i = self->gpus->rank_offset[rank]; i < self->gpus->rank_offset[rank + 1]; i++)
            self->rank_of[self->trials->entry_of[i]] = rank;
}

/* Begins with the highest clocks. */
static harpe_status begin(late_placing *self, harpe_trials *trials, const harpe_late_gpus *gpus,
                          double limit_s, harpe_error *error) {
    *self = (late_placing){.trials = trials, .gpus = gpus};
    for (int32_t i = 0; i < trials->dag->node_count; i++) {
        trials->clock[i] = 0;
        trials->is_trial[i] = false;
        trials->duration_s[i] = harpe_late_choices(trials, (size_t)i)->estimates[0].time_s;
    }
    for (size_t e = 0; e < trials->entry_count; e++)
        for (size_t c = 0; c < trials->entries[e].count; c++)
            trials->entries[e].is_placed[c] = false;
    double most_s = fmax(limit_s, harpe_trials_length_s(trials));
    self->rank_of = harpe_calloc(trials->entry_count, sizeof *self->rank_of);
    if (!self->rank_of || !harpe_longest_path_begin(&self->path, trials, most_s * (1 + ROUNDING)) ||
        !harpe_late_durations_begin(&self->durations, trials, gpus, &self->path))
        return harpe_fail_memory(error);
    find_ranks(self);
    return HARPE_OK;
}

static void end(late_placing *self) {
    self->trials->work = work_of(self);
    free(self->rank_of);
    harpe_longest_path_end(&self->path);
    harpe_late_durations_end(&self->durations);
}

harpe_status harpe_late_trials_place(harpe_trials *trials, const harpe_late_gpus *gpus,
                                     double limit_s, size_t *placed, harpe_error *error) {
    late_placing self;
    harpe_status status = begin(&self, trials, gpus, limit_s, error);
    if (status == HARPE_OK) {
        permit(&self, 2);
        *placed = place_all(&self);
        permit(&self, 2);
        lower_ranks(&self);
        lower_blocks(&self);
    }
    end(&self);
    return status;
}

/* ---- Probes ---------------------------------------------------------------------------------- */

/* Gives a block of at least `least_s` the next lower clock where the iteration stays shortest. */
static bool probe(late_placing *self, int rank, double least_s) {
    size_t first = self->gpus->rank_offset[rank], end = self->gpus->rank_offset[rank + 1];
    size_t step = end - first > MOST_PLACES ? (end - first) / MOST_PLACES : 1;
    block best = {rank, 0, 0};
    double best_s = INFINITY;
    for (size_t i = end; i > first; i -= i - first > step ? step : i - first) {
        block wanted = block_at(self, rank, i - 1, least_s);
        if (!is_free(self->trials, wanted) || !try_block(self, wanted, 1, false)) continue;
        double length_s = harpe_longest_path_length_s(&self->path);
        take_back(self, wanted);
        if (length_s < best_s) {
            best = wanted;
            best_s = length_s;
        }
    }
    if (best.end == 0 || !try_block(self, best, 1, false)) return false;
    mark(self->trials, best, 1);
    return true;
}

harpe_status harpe_late_trials_probe(harpe_trials *trials, const harpe_late_gpus *gpus,
                                     double limit_s, size_t *placed, harpe_error *error) {
    late_placing self;
    harpe_status status = begin(&self, trials, gpus, limit_s, error);
    *placed = 0;
    permit(&self, 1);
    for (int rank = gpus->rank_count; status == HARPE_OK && rank-- > 0;) {
        if (harpe_late_choices(trials, gpus->rank_offset[rank])->count < 2) continue;
        *placed += probe(&self, rank, 0);
        *placed += probe(&self, rank, PROBE_S);
    }
    end(&self);
    return status;
}
