/* SPDX-License-Identifier: Apache-2.0 */
/* Tries changes of the clocks one after the other. A change is kept if the longest path of all
 * durations stays within the limit. A run may become longer by its slack: the time by which the
 * longest path through it is shorter than the limit. */
#include "server/scheduler/perseus/explorer_internal.h"

#include <math.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"

/* Differences of this size come from the order of additions. */
#define ROUNDING 1e-9
/* A change that is shorter than this share of an instruction does not disturb its measurement. */
#define BRIEF_SHARE 0.08
/* The least time of the long block of a probe. It is assumed that changes take less. */
#define PROBE_S 0.25
/* The number of blocks that are tried for one trial, at most. */
enum { MOST_PLACES = 6 };

typedef struct placing {
    harpe_trials *trials;
    harpe_arena arena;
    double most_s;                   /* the longest that the iteration may take */
    double *time_s, *end_s, *tail_s; /* [node]: of the present clocks */
    double *old_time_s;              /* [node]: before the present change */
    double *new_end_s, *new_tail_s;  /* [node]: after it */
    size_t *old_clock;               /* [node]: before it */
    bool *is_trial;                  /* [node] */
    bool *was_tried;                 /* [node]: for the present trial */
    size_t work_end;                 /* when `work` reaches it, no more is tried */
} placing;

/* Nodes of a rank that follow each other. */
typedef struct block {
    int rank;
    size_t first, end;
} block;

static bool may_work(const placing *self) { return self->trials->work < self->work_end; }

/* Permits 1 / `parts` of the steps that are left. */
static void permit(placing *self, size_t parts) {
    size_t done = self->trials->work;
    self->work_end = done;
    if (done < HARPE_TRIALS_WORK) self->work_end += (HARPE_TRIALS_WORK - done) / parts;
}

/* ---- Durations ------------------------------------------------------------------------------- */

static harpe_trial_choices *choices_of(const placing *self, size_t node) {
    return &self->trials->entries[self->trials->entry_of[node]];
}

/* Returns the shortest time that a node takes at any clock. */
static double shortest_s(const placing *self, size_t node) {
    return choices_of(self, node)->estimates[0].lower_s;
}

/* Returns the longest time of an instruction at a clock. For the highest clock it is the measured
 * time, which the limit contains too, so that its noise does not matter. */
static double own_s(const harpe_trial_choices *choices, size_t clock) {
    const harpe_clock_estimate *estimates = choices->estimates;
    return clock == 0 ? estimates[0].time_s : fmax(estimates[clock].upper_s, estimates[0].time_s);
}

/* What is known of a GPU when an instruction begins. */
typedef struct gpu_state {
    size_t clock;  /* of the last request */
    size_t lowest; /* the lowest clock that the GPU may still have from earlier requests */
    double held_s; /* time since the last request, at least */
} gpu_state;

/* Returns the longest time of a node. The node may run at an earlier clock until the GPU has the
 * node's own clock. */
static double longest_s(const placing *self, int rank, size_t node, const gpu_state *state) {
    const harpe_trial_choices *choices = choices_of(self, node);
    double own = own_s(choices, state->clock);
    double late_s = self->trials->latency_s[rank][state->clock] - state->held_s;
    size_t lowest = state->lowest < choices->count ? state->lowest : choices->count - 1;
    if (late_s <= 0 || lowest <= state->clock) return own;
    double low_s = own_s(choices, lowest);
    return low_s > own ? own + fmin(late_s, low_s) * (1 - own / low_s) : own;
}

/* Computes the longest time of each node of a rank, in the first iteration of the round and in a
 * later one. Two iterations of the round before come first: they give the state in which the round
 * begins. After the latency of its clock, a request is carried out, and earlier clocks no longer
 * matter. */
static void find_times(placing *self, int rank) {
    const harpe_trials *trials = self->trials;
    size_t first = trials->rank_offset[rank], end = trials->rank_offset[rank + 1];
    size_t last = trials->clock_before[end - 1];
    gpu_state state = {last, last, INFINITY};
    for (int iteration = -2; iteration < 2; iteration++) {
        const size_t *clock = iteration < 0 ? trials->clock_before : trials->clock;
        for (size_t i = first; i < end; i++) {
            if (clock[i] != state.clock) {
                bool is_there = state.held_s >= trials->latency_s[rank][state.clock];
                if (is_there || state.clock > state.lowest) state.lowest = state.clock;
                state.clock = clock[i];
                state.held_s = 0;
            }
            if (iteration == 0) self->time_s[i] = longest_s(self, rank, i, &state);
            if (iteration == 1)
                self->time_s[i] = fmax(self->time_s[i], longest_s(self, rank, i, &state));
            state.held_s += shortest_s(self, i);
        }
    }
    self->trials->work += 4 * (end - first);
}

/* ---- Changes --------------------------------------------------------------------------------- */

/* Returns a block that ends with `node` and begins at least `least_s` before `node` begins, so that
 * the GPU then has the block's clock. If the rank's list begins too late for this, the block ends
 * after `node`. */
static block block_at(const placing *self, int rank, size_t node, double least_s) {
    const size_t *offset = self->trials->rank_offset;
    double time_s = 0;
    block found = {rank, node, node + 1};
    if (least_s <= BRIEF_SHARE * shortest_s(self, node)) return found;
    while (found.first > offset[rank] && time_s < least_s)
        time_s += shortest_s(self, --found.first);
    while (found.end < offset[rank + 1] && time_s < least_s)
        time_s += shortest_s(self, found.end++);
    self->trials->work += found.end - found.first;
    return found;
}

/* Returns false if a node has become longer by more than its slack. Returns true if another node
 * has become shorter, because the slack is then not known. */
static bool may_fit(const placing *self, size_t first, size_t end) {
    bool fits = true;
    for (size_t i = first; i < end; i++) {
        double path_s = self->end_s[i] + self->tail_s[i],
               added_s = self->time_s[i] - self->old_time_s[i];
        if (added_s < 0) return true;
        if (added_s > 0 && path_s + added_s > self->most_s) fits = false;
    }
    return fits;
}

static size_t rank_length(const placing *self, int rank) {
    return self->trials->rank_offset[rank + 1] - self->trials->rank_offset[rank];
}

/* Saves the clocks and times of a rank before a change, or restores them (`takes_back`). */
static void keep_old(placing *self, int rank, bool takes_back) {
    size_t first = self->trials->rank_offset[rank], count = rank_length(self, rank);
    size_t *clock = self->trials->clock + first, *old_clock = self->old_clock + first;
    double *time_s = self->time_s + first, *old_time_s = self->old_time_s + first;
    memcpy(takes_back ? clock : old_clock, takes_back ? old_clock : clock, count * sizeof *clock);
    memcpy(takes_back ? time_s : old_time_s, takes_back ? old_time_s : time_s,
           count * sizeof *time_s);
}

/* Gives the nodes of a block a clock. Trials keep their clocks. With `keeps_lower`, nodes whose
 * clock is lower keep theirs too. */
static void set_clock(placing *self, block wanted, size_t clock, bool keeps_lower) {
    size_t *own = self->trials->clock;
    keep_old(self, wanted.rank, false);
    for (size_t i = wanted.first; i < wanted.end; i++) {
        size_t most = choices_of(self, i)->count - 1, new = clock < most ? clock : most;
        if (!self->is_trial[i] && !(keeps_lower && new < own[i])) own[i] = new;
    }
}

/* Returns the length of the iteration after a change of a rank, or INFINITY if a node has too
 * little slack for the change. */
static double changed_s(placing *self, int rank) {
    const harpe_dag *dag = self->trials->dag;
    size_t first = self->trials->rank_offset[rank];
    find_times(self, rank);
    if (!may_fit(self, first, first + rank_length(self, rank))) return INFINITY;
    self->trials->work += 2 * ((size_t)dag->node_count + (size_t)dag->arc_count);
    return harpe_dag_run(dag, self->time_s, self->new_end_s, self->new_tail_s);
}

/* Keeps a change of a rank if the iteration fits and work is permitted, and otherwise takes it
 * back. Returns whether the change is kept. */
static bool keep(placing *self, int rank) {
    double length_s = may_work(self) ? changed_s(self, rank) : INFINITY;
    if (length_s > self->most_s) {
        keep_old(self, rank, true);
        return false;
    }
    double *end_s = self->end_s, *tail_s = self->tail_s;
    self->end_s = self->new_end_s;
    self->tail_s = self->new_tail_s;
    self->new_end_s = end_s;
    self->new_tail_s = tail_s;
    self->trials->length_s = length_s;
    return true;
}

static bool try_block(placing *self, block wanted, size_t clock, bool keeps_lower) {
    set_clock(self, wanted, clock, keeps_lower);
    return keep(self, wanted.rank);
}

/* ---- Trials ---------------------------------------------------------------------------------- */

static bool is_free(const placing *self, block wanted) {
    for (size_t i = wanted.first; i < wanted.end; i++)
        if (self->is_trial[i]) return false;
    return true;
}

static void mark(placing *self, block made, size_t clock) {
    self->trials->placed++;
    for (size_t i = made.first; i < made.end; i++) {
        self->is_trial[i] = true;
        if (clock < choices_of(self, i)->count) choices_of(self, i)->is_placed[clock] = true;
    }
}

/* Returns the node with the most slack among those of the entry that are no trials and were not
 * tried; `end`: there is none. */
static size_t roomiest(const placing *self, int entry, size_t first, size_t end) {
    size_t best = end;
    double least_s = INFINITY;
    self->trials->work += end - first;
    for (size_t i = first; i < end; i++) {
        double path_s = self->end_s[i] + self->tail_s[i];
        if (self->trials->entry_of[i] != entry || self->is_trial[i] || self->was_tried[i] ||
            path_s >= least_s)
            continue;
        best = i;
        least_s = path_s;
    }
    return best;
}

/* Places a trial of a clock of an entry. Returns false if it fits at no place tried. */
static bool place_clock(placing *self, int entry, size_t clock) {
    int rank = self->trials->entries[entry].rank;
    size_t first = self->trials->rank_offset[rank], end = self->trials->rank_offset[rank + 1];
    memset(self->was_tried + first, 0, (end - first) * sizeof *self->was_tried);
    for (int tries = 0; tries < MOST_PLACES; tries++) {
        size_t i = roomiest(self, entry, first, end);
        if (i == end) return false;
        self->was_tried[i] = true;
        block wanted = block_at(self, rank, i, self->trials->usual_s[rank][clock]);
        if (!is_free(self, wanted) || !try_block(self, wanted, clock, false)) continue;
        mark(self, wanted, clock);
        return true;
    }
    return false;
}

/* Places a trial of a clock, or of the lowest useful clock above it that fits. */
static void place(placing *self, int entry, size_t wanted) {
    const harpe_trial_choices *choices = &self->trials->entries[entry];
    for (size_t c = wanted; c > 0; c--) {
        bool is_useful =
            (choices->is_wanted[c] || choices->is_wanted_most[c]) && !choices->is_placed[c];
        if (is_useful && place_clock(self, entry, c)) return;
    }
}

/* The entries take turns, so that each gets a part of the slack. */
static void place_all(placing *self) {
    const harpe_trials *trials = self->trials;
    bool has_more = true;
    for (size_t turn = 0; has_more && may_work(self); turn++) {
        has_more = false;
        for (size_t k = 0; k < trials->entry_count; k++) {
            size_t e = (trials->first_entry + k) % trials->entry_count, seen = 0;
            for (size_t c = 1; c < trials->entries[e].count; c++) {
                if (!trials->entries[e].is_wanted_most[c] || seen++ != turn) continue;
                has_more = true;
                if (!trials->entries[e].is_placed[c]) place(self, (int)e, c);
                break;
            }
        }
    }
}

/* ---- Saving energy --------------------------------------------------------------------------- */

/* Returns the clock from 1 to `most` at which the block saves the most energy; 0: none saves
 * energy. Trials, and nodes whose clock is lower already, keep their clocks. For all others the
 * clock must have been observed. */
static size_t clock_for(const placing *self, block wanted, size_t most) {
    size_t best = 0;
    double best_j = 0;
    for (size_t c = 1; c <= most; c++) {
        double saved_j = 0;
        for (size_t i = wanted.first; i < wanted.end; i++) {
            const harpe_trial_choices *choices = choices_of(self, i);
            size_t own = self->trials->clock[i];
            const harpe_clock_estimate *now = &choices->estimates[own];
            const harpe_clock_estimate *then =
                &choices->estimates[c < choices->count ? c : choices->count - 1];
            if (self->is_trial[i] || c <= own) continue;
            saved_j +=
                now->energy_j - then->energy_j - choices->waiting_w * (now->time_s - then->time_s);
            if (!isfinite(then->error)) saved_j = -INFINITY;
        }
        if (saved_j > best_j) {
            best = c;
            best_j = saved_j;
        }
    }
    self->trials->work += most * (wanted.end - wanted.first);
    return best;
}

/* Lowers the clock of a block to the one that saves the most energy. While that does not fit,
 * leaves out this clock and the lowest 1 / `parts` of those above it, and takes the best of the
 * others. */
static void lower(placing *self, block wanted, size_t parts) {
    size_t lowest = 0;
    for (size_t i = wanted.first; i < wanted.end; i++)
        if (self->trials->planned[i] > lowest) lowest = self->trials->planned[i];
    size_t clock = clock_for(self, wanted, lowest);
    while (clock > 0 && !try_block(self, wanted, clock, true))
        clock = clock_for(self, wanted, clock - 1 - (clock - 1) / parts);
}

/* Lowers each node of a block to the clock at which it saves the most energy. If the iteration then
 * does not fit, does this in each half of the block. For immediate changes only. */
static void lower_each(placing *self, block wanted) {
    size_t middle = wanted.first + (wanted.end - wanted.first) / 2;
    if (middle == wanted.first) {
        lower(self, wanted, 4);
        return;
    }
    keep_old(self, wanted.rank, false);
    for (size_t i = wanted.first; i < wanted.end; i++) {
        size_t clock = clock_for(self, (block){wanted.rank, i, i + 1}, self->trials->planned[i]);
        if (clock > 0) self->trials->clock[i] = clock;
    }
    if (keep(self, wanted.rank) || !may_work(self)) return;
    lower_each(self, (block){wanted.rank, wanted.first, middle});
    lower_each(self, (block){wanted.rank, middle, wanted.end});
}

static void lower_all(placing *self) {
    const harpe_trials *trials = self->trials;
    const size_t *offset = trials->rank_offset;
    /* A rank with one clock has no late changes, so whole ranks come first. */
    for (int rank = 0; rank < trials->rank_count; rank++) {
        block whole = {rank, offset[rank], offset[rank + 1]};
        if (trials->is_late)
            lower(self, whole, SIZE_MAX);
        else
            lower_each(self, whole);
    }
    for (int rank = 0; rank < trials->rank_count && trials->is_late; rank++) {
        permit(self, (size_t)(trials->rank_count - rank));
        for (size_t i = offset[rank]; i < offset[rank + 1] && may_work(self); i++)
            lower(self, block_at(self, rank, i, trials->usual_s[rank][trials->planned[i]]), 4);
    }
}

/* ---- The whole round ------------------------------------------------------------------------- */

/* Gives all nodes the highest clocks, and computes the times of the iteration. */
static harpe_status begin(placing *self, harpe_trials *trials, double limit_s, harpe_error *error) {
    size_t count = (size_t)trials->dag->node_count;
    *self = (placing){.trials = trials};
    double **seconds[] = {&self->time_s,     &self->end_s,     &self->tail_s,
                          &self->old_time_s, &self->new_end_s, &self->new_tail_s};
    for (size_t k = 0; k < sizeof seconds / sizeof *seconds; k++)
        *seconds[k] = harpe_arena_alloc(&self->arena, count, sizeof **seconds[k]);
    self->old_clock = harpe_arena_alloc(&self->arena, count, sizeof *self->old_clock);
    self->is_trial = harpe_arena_alloc(&self->arena, count, sizeof *self->is_trial);
    self->was_tried = harpe_arena_alloc(&self->arena, count, sizeof *self->was_tried);
    if (self->arena.has_failed) return harpe_fail_memory(error);
    for (size_t i = 0; i < count; i++) {
        trials->clock[i] = 0;
        self->time_s[i] = own_s(choices_of(self, i), 0);
    }
    for (size_t e = 0; e < trials->entry_count; e++)
        for (size_t c = 0; c < trials->entries[e].count; c++)
            trials->entries[e].is_placed[c] = false;
    double highest_s = harpe_dag_run(trials->dag, self->time_s, self->end_s, self->tail_s);
    self->most_s = fmax(limit_s, highest_s) * (1 + ROUNDING);
    for (int rank = 0; rank < trials->rank_count; rank++)
        find_times(self, rank);
    trials->length_s = harpe_dag_run(trials->dag, self->time_s, self->end_s, self->tail_s);
    trials->placed = trials->work = 0;
    return HARPE_OK;
}

harpe_status harpe_trials_place(harpe_trials *trials, double limit_s, harpe_error *error) {
    placing self;
    harpe_status status = begin(&self, trials, limit_s, error);
    if (status == HARPE_OK) {
        permit(&self, 2);
        place_all(&self);
        permit(&self, 2);
        lower_all(&self);
    }
    harpe_arena_free(&self.arena);
    return status;
}

/* Gives a block of a rank the next lower clock. The block takes at least `least_s`, and is the one
 * of some places with which the iteration is shortest. */
static void probe(placing *self, int rank, double least_s) {
    size_t first = self->trials->rank_offset[rank], end = self->trials->rank_offset[rank + 1];
    size_t step = end - first > MOST_PLACES ? (end - first) / MOST_PLACES : 1;
    block best = {rank, 0, 0};
    double best_s = INFINITY;
    for (size_t i = end; i > first && may_work(self); i -= i - first > step ? step : i - first) {
        block wanted = block_at(self, rank, i - 1, least_s);
        if (!is_free(self, wanted)) continue;
        set_clock(self, wanted, 1, false);
        double length_s = changed_s(self, rank);
        keep_old(self, rank, true);
        if (length_s < best_s) {
            best = wanted;
            best_s = length_s;
        }
    }
    if (best.end > 0 && try_block(self, best, 1, false)) mark(self, best, 1);
}

harpe_status harpe_trials_probe(harpe_trials *trials, double limit_s, harpe_error *error) {
    placing self;
    harpe_status status = begin(&self, trials, limit_s, error);
    permit(&self, 1);
    for (int rank = trials->rank_count; status == HARPE_OK && rank-- > 0;) {
        if (choices_of(&self, trials->rank_offset[rank])->count < 2) continue;
        probe(&self, rank, 0);
        probe(&self, rank, PROBE_S);
    }
    harpe_arena_free(&self.arena);
    return status;
}
