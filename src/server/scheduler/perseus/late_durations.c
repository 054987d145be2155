/* SPDX-License-Identifier: Apache-2.0 */
/* Goes through a rank with what its GPU may be doing: a request is carried out at the latest when
 * it has held for the latency of its clock, and then no earlier clock matters. So each state
 * follows from the one before, and a changed block changes states only until one is as it was. */
#include "server/scheduler/perseus/late_durations.h"

#include <math.h>
#include <stdlib.h>

#include "base/array.h"

enum { FIRST_ITERATION = 0, LATER_ITERATIONS = 1 };

static double own_s(const harpe_trials *trials, size_t node, size_t clock) {
    const harpe_clock_estimate *estimates = harpe_late_choices(trials, node)->estimates;
    return clock == 0 ? estimates[0].time_s : fmax(estimates[clock].upper_s, estimates[0].time_s);
}

static double latency_s(const harpe_late_durations *self, int rank, size_t clock) {
    return self->gpus->latency_s[rank][clock];
}

/* ---- States ---------------------------------------------------------------------------------- */

/* Returns the state before a node at `clock` if the node before it, at clock `from`, began in
 * `state` and took at least `time_s`. */
static harpe_late_state state_after(const harpe_late_durations *self, int rank,
                                    harpe_late_state state, size_t from, double time_s,
                                    size_t clock) {
    double held_s = state.held_s + time_s;
    if (clock == from) return (harpe_late_state){held_s, state.lowest};
    bool is_there = held_s >= latency_s(self, rank, from);
    return (harpe_late_state){0, is_there || from > state.lowest ? from : state.lowest};
}

static harpe_late_state find_state(const harpe_late_durations *self, int rank, int iteration,
                                   size_t node) {
    const harpe_trials *trials = self->trials;
    const size_t *offset = self->gpus->rank_offset;
    size_t before = node > offset[rank] ? node - 1 : offset[rank + 1] - 1;
    if (node == offset[rank] && iteration == FIRST_ITERATION) {
        return state_after(self, rank, self->last[rank], self->gpus->clock_before[before],
                           harpe_late_shortest_s(trials, before), trials->clock[node]);
    }
    int own = node > offset[rank] ? iteration : FIRST_ITERATION;
    return state_after(self, rank, self->states[own][before], trials->clock[before],
                       harpe_late_shortest_s(trials, before), trials->clock[node]);
}

/* Finds how the last node of the round before began. Goes through that round twice, because its
 * iterations follow each other. */
static void find_last(const harpe_late_durations *self, int rank) {
    const size_t *clock = self->gpus->clock_before;
    size_t first = self->gpus->rank_offset[rank], end = self->gpus->rank_offset[rank + 1];
    size_t before = end - 1;
    harpe_late_state state = {INFINITY, clock[before]};
    for (int iteration = 0; iteration < 2; iteration++) {
        for (size_t i = first; i < end; i++) {
            double time_s = harpe_late_shortest_s(self->trials, before);
            state = state_after(self, rank, state, clock[before], time_s, clock[i]);
            before = i;
        }
    }
    self->last[rank] = state;
}

/* Returns the longest time of a node that begins in a state. */
static double longest_s(const harpe_late_durations *self, int rank, size_t node,
                        const harpe_late_state *state) {
    const harpe_trials *trials = self->trials;
    size_t clock = trials->clock[node], most = harpe_late_choices(trials, node)->count;
    double own = own_s(trials, node, clock), late_s = latency_s(self, rank, clock) - state->held_s;
    size_t lowest = state->lowest < most ? state->lowest : most - 1;
    if (late_s <= 0 || lowest <= clock) return own;
    double low_s = own_s(trials, node, lowest);
    return low_s > own ? own + fmin(late_s, low_s) * (1 - own / low_s) : own;
}

/* ---- Changes --------------------------------------------------------------------------------- */

/* Finds the states from `node` on, until one from `until` on is as it was. Returns its node, or the
 * end of the rank. */
static size_t find_states(harpe_late_durations *self, int rank, int iteration, size_t node,
                          size_t until) {
    size_t end = self->gpus->rank_offset[rank + 1];
    for (; node < end; node++) {
        harpe_late_state *own = &self->states[iteration][node];
        harpe_late_state found = find_state(self, rank, iteration, node);
        if (node >= until && found.held_s == own->held_s && found.lowest == own->lowest) break;
        *own = found;
        self->work++;
    }
    return node;
}

static void set_durations(harpe_late_durations *self, int rank, size_t first, size_t end) {
    for (size_t i = first; i < end; i++) {
        double first_s = longest_s(self, rank, i, &self->states[FIRST_ITERATION][i]);
        double later_s = longest_s(self, rank, i, &self->states[LATER_ITERATIONS][i]);
        harpe_longest_path_set(self->path, i, fmax(first_s, later_s));
        self->work++;
    }
}

void harpe_late_durations_change(harpe_late_durations *self, int rank, size_t first, size_t end) {
    size_t begin = self->gpus->rank_offset[rank], ends[3];
    ends[0] = find_states(self, rank, FIRST_ITERATION, first, end);
    bool goes_on = ends[0] == self->gpus->rank_offset[rank + 1]; /* into the next iteration */
    ends[1] = goes_on ? find_states(self, rank, LATER_ITERATIONS, begin, begin) : begin;
    ends[2] = find_states(self, rank, LATER_ITERATIONS, first, end);
    set_durations(self, rank, begin, ends[1]);
    set_durations(self, rank, first, ends[0] > ends[2] ? ends[0] : ends[2]);
}

bool harpe_late_durations_begin(harpe_late_durations *self, harpe_trials *trials,
                                const harpe_late_gpus *gpus, harpe_longest_path *path) {
    *self = (harpe_late_durations){.trials = trials, .gpus = gpus, .path = path};
    size_t count = (size_t)trials->dag->node_count;
    for (int i = 0; i < 2; i++)
        self->states[i] = harpe_calloc(count, sizeof *self->states[i]);
    self->last = harpe_calloc((size_t)gpus->rank_count, sizeof *self->last);
    if (!self->states[0] || !self->states[1] || !self->last) return false;
    for (int rank = 0; rank < gpus->rank_count; rank++) {
        size_t first = gpus->rank_offset[rank], end = gpus->rank_offset[rank + 1];
        find_last(self, rank);
        harpe_late_durations_change(self, rank, first, end);
    }
    harpe_longest_path_go_back(path);
    return true;
}

void harpe_late_durations_end(harpe_late_durations *self) {
    free(self->states[0]);
    free(self->states[1]);
    free(self->last);
}
