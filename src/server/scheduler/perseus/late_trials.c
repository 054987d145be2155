/* SPDX-License-Identifier: Apache-2.0 */
/* Tries changes of the clocks one after the other. A change is kept if the longest path of all
 * durations stays within the limit. */
#include "server/scheduler/perseus/late_trials.h"

#include <math.h>

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
    double limit_s;
} late_placing;

/* Nodes of a rank that follow each other. */
typedef struct block {
    int rank;
    size_t first, end;
} block;

static const harpe_trial_choices *choices_of(const harpe_trials *trials, size_t node) {
    return &trials->entries[trials->entry_of[node]];
}

static double own_s(const harpe_trials *trials, size_t node, size_t clock) {
    const harpe_clock_estimate *estimates = choices_of(trials, node)->estimates;
    return clock == 0 ? estimates[0].time_s : fmax(estimates[clock].upper_s, estimates[0].time_s);
}

/* The shortest time that a node takes at any clock. */
static double shortest_s(const harpe_trials *trials, size_t node) {
    return choices_of(trials, node)->estimates[0].lower_s;
}

/* ---- Durations ------------------------------------------------------------------------------- */

static size_t before(const late_placing *self, int rank, size_t node) {
    const size_t *offset = self->gpus->rank_offset;
    return node > offset[rank] ? node - 1 : offset[rank + 1] - 1;
}

static double latency_s(const late_placing *self, int rank, size_t clock) {
    return self->gpus->latency_s[rank][clock];
}

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

/* Returns true if the node before `node` belongs to the iteration before. */
static bool is_first(const late_placing *self, int rank, size_t node) {
    return node == self->gpus->rank_offset[rank];
}

/* Returns the lowest clock (the largest index) that the GPU may have when `later` begins, up to
 * `node` in the iteration before. An earlier clock may hold as long as no later one has held for
 * the time that the change to it takes. */
static size_t lowest_before(const late_placing *self, int rank, size_t node, size_t later) {
    const harpe_trials *trials = self->trials;
    size_t lowest = 0, clock = SIZE_MAX;
    double held_s = 0;
    for (size_t k = later;; k = before(self, rank, k)) {
        size_t from = before(self, rank, k);
        if (is_first(self, rank, k)) lowest = larger(lowest, self->gpus->last_clock[rank]);
        if (from == node) break;
        if (trials->clock[from] != clock) held_s = 0;
        clock = trials->clock[from];
        lowest = larger(lowest, clock);
        held_s += shortest_s(trials, from);
        if (held_s >= latency_s(self, rank, clock)) break;
    }
    return lowest;
}

/* Returns the longest time of a node with the present clocks. */
static double longest_s(const late_placing *self, int rank, size_t node) {
    const harpe_trials *trials = self->trials;
    size_t clock = trials->clock[node], later = node, from = before(self, rank, node);
    double own = own_s(trials, node, clock), late_s = latency_s(self, rank, clock);
    while (from != node && trials->clock[from] == clock && late_s > 0) {
        if (is_first(self, rank, later) && self->gpus->last_clock[rank] > clock) break;
        late_s -= shortest_s(trials, from);
        later = from;
        from = before(self, rank, from);
    }
    if (late_s <= 0) return own;
    size_t lowest = lowest_before(self, rank, node, later), most = choices_of(trials, node)->count;
    if (lowest >= most) lowest = most - 1;
    if (lowest <= clock) return own;
    double low_s = own_s(trials, node, lowest);
    if (low_s <= own) return own;
    return own + fmin(late_s, low_s) * (1 - own / low_s);
}

static void find_durations(const late_placing *self, int rank) {
    const size_t *offset = self->gpus->rank_offset;
    for (size_t node = offset[rank]; node < offset[rank + 1]; node++)
        self->trials->duration_s[node] = longest_s(self, rank, node);
}

static bool fits(const late_placing *self, int rank) {
    find_durations(self, rank);
    return harpe_trials_length_s(self->trials) <= self->limit_s * (1 + ROUNDING);
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

/* Returns a block that ends with `node` and whose clock is there when `node` begins. At the begin
 * of the rank, it ends later, so that its last nodes have the clock. */
static block block_at(const late_placing *self, int rank, size_t node, double least_s) {
    const size_t *offset = self->gpus->rank_offset;
    double time_s = 0;
    block found = {rank, node, node + 1};
    if (least_s <= BRIEF_SHARE * shortest_s(self->trials, node)) return found;
    while (found.first > offset[rank] && time_s < least_s)
        time_s += shortest_s(self->trials, --found.first);
    while (found.end < offset[rank + 1] && time_s < least_s)
        time_s += shortest_s(self->trials, found.end++);
    return found;
}

/* Gives a block a clock, and keeps it if the iteration fits. `scratch` keeps the clocks before; no
 * duration of the rank may be missing. Nodes whose clock is lower keep it, if `keeps_lower`. */
static bool try_block(const late_placing *self, block wanted, size_t clock, bool keeps_lower) {
    harpe_trials *trials = self->trials;
    size_t *scratch = trials->scratch;
    for (size_t i = wanted.first; i < wanted.end; i++) {
        scratch[i] = trials->clock[i];
        size_t most = choices_of(trials, i)->count - 1;
        size_t own = clock < most ? clock : most;
        if (!trials->is_trial[i] && !(keeps_lower && own < scratch[i])) trials->clock[i] = own;
    }
    if (fits(self, wanted.rank)) return true;
    for (size_t i = wanted.first; i < wanted.end; i++)
        trials->clock[i] = scratch[i];
    find_durations(self, wanted.rank);
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
static bool place_clock(const late_placing *self, int rank, int entry, size_t clock) {
    const size_t *offset = self->gpus->rank_offset;
    size_t runs = 0, seen = 0;
    for (size_t i = offset[rank]; i < offset[rank + 1]; i++)
        runs += self->trials->entry_of[i] == entry;
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
static bool place(const late_placing *self, int rank, int entry, size_t wanted) {
    const harpe_trial_choices *choices = &self->trials->entries[entry];
    for (size_t c = wanted; c > 0; c--) {
        bool is_useful =
            (choices->is_wanted[c] || choices->is_wanted_most[c]) && !choices->is_placed[c];
        if (is_useful && place_clock(self, rank, entry, c)) return true;
    }
    return false;
}

static int rank_of_entry(const late_placing *self, int entry) {
    for (int rank = 0; rank < self->gpus->rank_count; rank++)
        for (size_t i = self->gpus->rank_offset[rank]; i < self->gpus->rank_offset[rank + 1]; i++)
            if (self->trials->entry_of[i] == entry) return rank;
    return -1;
}

/* The entries take turns, so that each gets a part of the slack. */
static size_t place_all(const late_placing *self) {
    harpe_trials *trials = self->trials;
    size_t placed = 0;
    bool has_more = true;
    for (size_t turn = 0; has_more; turn++) {
        has_more = false;
        for (size_t k = 0; k < trials->entry_count; k++) {
            size_t e = (trials->first_entry + k) % trials->entry_count, seen = 0;
            int rank = rank_of_entry(self, (int)e);
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

/* Returns the lowest planned clock of a block that no run of it makes dearer; 0: none. */
static size_t clock_for(const harpe_trials *trials, block wanted, size_t most) {
    size_t best = 0;
    double best_j = 0;
    for (size_t c = 1; c <= most; c++) {
        double saved_j = 0;
        for (size_t i = wanted.first; i < wanted.end; i++) {
            const harpe_trial_choices *choices = choices_of(trials, i);
            const harpe_clock_estimate *now = &choices->estimates[trials->clock[i]];
            const harpe_clock_estimate *then =
                &choices->estimates[c < choices->count ? c : choices->count - 1];
            if (trials->is_trial[i] || c <= trials->clock[i]) continue;
            saved_j +=
                now->energy_j - then->energy_j - choices->waiting_w * (now->time_s - then->time_s);
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
static void lower_ranks(const late_placing *self) {
    for (int rank = 0; rank < self->gpus->rank_count; rank++) {
        block all = {rank, self->gpus->rank_offset[rank], self->gpus->rank_offset[rank + 1]};
        size_t clock = clock_for(self->trials, all, lowest_planned(self->trials, all));
        while (clock > 0 && !try_block(self, all, clock, true))
            clock--;
    }
}

static void lower_blocks(const late_placing *self) {
    for (int rank = 0; rank < self->gpus->rank_count; rank++) {
        for (size_t i = self->gpus->rank_offset[rank]; i < self->gpus->rank_offset[rank + 1]; i++) {
            double least_s = self->gpus->usual_s[rank][self->trials->planned[i]];
            block part = block_at(self, rank, i, least_s);
            size_t clock = clock_for(self->trials, part, lowest_planned(self->trials, part));
            if (clock > 0 && !try_block(self, part, clock, true) && clock > 1)
                (void)try_block(self, part, (clock + 1) / 2, true);
        }
    }
}

/* ---- The whole round ------------------------------------------------------------------------- */

static void begin(late_placing *self) {
    harpe_trials *trials = self->trials;
    for (int32_t i = 0; i < trials->dag->node_count; i++) {
        trials->clock[i] = 0;
        trials->is_trial[i] = false;
        trials->duration_s[i] = own_s(trials, (size_t)i, 0);
    }
    for (size_t e = 0; e < trials->entry_count; e++)
        for (size_t c = 0; c < trials->entries[e].count; c++)
            trials->entries[e].is_placed[c] = false;
    self->limit_s = fmax(self->limit_s, harpe_trials_length_s(trials));
}

size_t harpe_late_trials_place(harpe_trials *trials, const harpe_late_gpus *gpus, double limit_s) {
    late_placing self = {trials, gpus, limit_s};
    begin(&self);
    size_t placed = place_all(&self);
    lower_ranks(&self);
    lower_blocks(&self);
    return placed;
}

/* ---- Probes ---------------------------------------------------------------------------------- */

/* Undoes what try_block has done. */
static void take_back(const late_placing *self, block made) {
    for (size_t i = made.first; i < made.end; i++)
        self->trials->clock[i] = self->trials->scratch[i];
    find_durations(self, made.rank);
}

/* Gives a block of at least `least_s` the next lower clock where the iteration stays shortest. */
static bool probe(const late_placing *self, int rank, double least_s) {
    size_t first = self->gpus->rank_offset[rank], end = self->gpus->rank_offset[rank + 1];
    size_t step = end - first > MOST_PLACES ? (end - first) / MOST_PLACES : 1;
    block best = {rank, 0, 0};
    double best_s = INFINITY;
    for (size_t i = end; i > first; i -= i - first > step ? step : i - first) {
        block wanted = block_at(self, rank, i - 1, least_s);
        if (!is_free(self->trials, wanted) || !try_block(self, wanted, 1, false)) continue;
        double length_s = harpe_trials_length_s(self->trials);
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

size_t harpe_late_trials_probe(harpe_trials *trials, const harpe_late_gpus *gpus, double limit_s) {
    late_placing self = {trials, gpus, limit_s};
    size_t probes = 0;
    begin(&self);
    for (int rank = gpus->rank_count; rank-- > 0;) {
        if (choices_of(trials, gpus->rank_offset[rank])->count < 2) continue;
        probes += probe(&self, rank, 0);
        probes += probe(&self, rank, PROBE_S);
    }
    return probes;
}
