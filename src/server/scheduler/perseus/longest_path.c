/* SPDX-License-Identifier: Apache-2.0 */
/* Visits the nodes whose start or duration has changed, in topological order. The latest ends show
 * early that a change does not fit. They are found again only after much other work, so most of the
 * time they are a little too late, which costs time but changes no answer. */
#include "server/scheduler/perseus/longest_path.h"

#include <math.h>
#include <stdlib.h>

#include "base/array.h"

enum { BITS = 64 };
/* The latest ends are found again when this many times the work of doing so was done. */
enum { LATEST_SHARE = 4 };

static size_t node_count(const harpe_longest_path *self) {
    return (size_t)self->trials->dag->node_count;
}

static size_t word_count(const harpe_longest_path *self) {
    return (node_count(self) + BITS - 1) / BITS;
}

/* Lists the nodes that wait for each node. */
static void reverse_arcs(const harpe_longest_path *self) {
    const harpe_dag *dag = self->trials->dag;
    for (int32_t a = 0; a < dag->arc_count; a++)
        self->first_after[dag->arc_from[a] + 1]++;
    for (int32_t i = 0; i < dag->node_count; i++)
        self->first_after[i + 1] += self->first_after[i];
    for (int32_t a = dag->arc_count; a-- > 0;) /* self->moved counts here */
        self->after[self->first_after[dag->arc_from[a]] + self->moved[dag->arc_from[a]]++] =
            dag->arc_to[a];
}

bool harpe_longest_path_begin(harpe_longest_path *self, harpe_trials *trials, double most_s) {
    *self = (harpe_longest_path){.trials = trials, .most_s = most_s};
    size_t count = node_count(self);
    self->position = harpe_calloc(count, sizeof *self->position);
    self->first_after = harpe_calloc(count + 1, sizeof *self->first_after);
    self->after = harpe_calloc((size_t)trials->dag->arc_count, sizeof *self->after);
    self->changed = harpe_calloc(word_count(self), sizeof *self->changed);
    self->moved = harpe_calloc(count, sizeof *self->moved);
    self->moved_end_s = harpe_calloc(count, sizeof *self->moved_end_s);
    if (!self->position || !self->first_after || !self->after || !self->changed || !self->moved ||
        !self->moved_end_s)
        return false;
    for (int32_t k = 0; k < trials->dag->node_count; k++)
        self->position[trials->dag->topological_order[k]] = k;
    reverse_arcs(self);
    self->first_word = word_count(self);
    (void)harpe_trials_length_s(trials);
    for (size_t i = 0; i < count; i++)
        self->too_late += trials->earliest_end_s[i] > most_s;
    return true;
}

void harpe_longest_path_end(harpe_longest_path *self) {
    free(self->position);
    free(self->first_after);
    free(self->after);
    free(self->changed);
    free(self->moved);
    free(self->moved_end_s);
}

static void mark(harpe_longest_path *self, int32_t node) {
    size_t position = (size_t)self->position[node], word = position / BITS;
    self->changed[word] |= UINT64_C(1) << position % BITS;
    if (word < self->first_word) self->first_word = word;
    if (word >= self->end_word) self->end_word = word + 1;
}

void harpe_longest_path_set(harpe_longest_path *self, size_t node, double duration_s) {
    double *own_s = &self->trials->duration_s[node];
    if (duration_s == *own_s) return;
    if (duration_s < *own_s) self->has_shorter = true;
    *own_s = duration_s;
    mark(self, (int32_t)node);
}

/* ---- Updates --------------------------------------------------------------------------------- */

static double start_s(const harpe_longest_path *self, int32_t node) {
    const harpe_dag *dag = self->trials->dag;
    double at_s = 0;
    for (int32_t a = dag->first_arc_into[node]; a < dag->first_arc_into[node + 1]; a++)
        at_s = fmax(at_s, self->trials->earliest_end_s[dag->arc_from[a]]);
    return at_s;
}

/* Finds the latest ends for the present durations, from time to time. */
static void find_latest(harpe_longest_path *self) {
    size_t all = node_count(self) + (size_t)self->trials->dag->arc_count;
    if (self->work > 0 && self->work - self->latest_work < LATEST_SHARE * all) return;
    harpe_trials_find_latest_ends(self->trials, self->most_s);
    self->work += all;
    self->latest_work = self->work;
    self->is_latest_known = true;
}

static int32_t take_first(harpe_longest_path *self) {
    uint64_t *word = &self->changed[self->first_word];
    int bit = __builtin_ctzll(*word);
    *word &= *word - 1;
    return self->trials->dag->topological_order[self->first_word * BITS + (size_t)bit];
}

static void move(harpe_longest_path *self, int32_t node, double end_s) {
    double *own_s = &self->trials->earliest_end_s[node];
    self->too_late += end_s > self->most_s;
    self->too_late -= *own_s > self->most_s;
    *own_s = end_s;
}

/* Forgets what is left to do, and puts the first `moved` ends back. */
static void give_up(harpe_longest_path *self, size_t moved) {
    for (size_t word = self->first_word; word < self->end_word; word++)
        self->changed[word] = 0;
    while (moved-- > 0)
        move(self, self->moved[moved], self->moved_end_s[moved]);
}

/* Moves the ends of all changed nodes. Returns false if one of them is later than `most_s`, or than
 * its latest end if `uses_latest`. */
static bool move_all(harpe_longest_path *self, double most_s, bool uses_latest, size_t *moved) {
    const harpe_trials *trials = self->trials;
    for (; self->first_word < self->end_word; self->first_word++) {
        while (self->changed[self->first_word] != 0) {
            int32_t node = take_first(self);
            double before_s = trials->earliest_end_s[node];
            double end_s = start_s(self, node) + trials->duration_s[node];
            self->work += 2;
            if (end_s == before_s) continue;
            self->moved[*moved] = node;
            self->moved_end_s[(*moved)++] = before_s;
            move(self, node, end_s);
            if (end_s > most_s || (uses_latest && end_s > trials->latest_end_s[node])) return false;
            for (int32_t a = self->first_after[node]; a < self->first_after[node + 1]; a++)
                mark(self, self->after[a]);
        }
    }
    return true;
}

static void forget_changes(harpe_longest_path *self) {
    self->first_word = word_count(self);
    self->end_word = 0;
    self->has_shorter = false;
}

bool harpe_longest_path_update(harpe_longest_path *self) {
    size_t moved = 0;
    bool has_shorter = self->has_shorter;
    bool fits = move_all(self, self->most_s, self->is_latest_known && !has_shorter, &moved) &&
                self->too_late == 0;
    if (!fits) give_up(self, moved);
    self->has_failed = !fits;
    forget_changes(self);
    if (!fits) return false;
    if (has_shorter) self->is_latest_known = false;
    find_latest(self);
    return true;
}

void harpe_longest_path_go_back(harpe_longest_path *self) {
    size_t moved = 0;
    (void)move_all(self, INFINITY, false, &moved);
    if (self->has_shorter && !self->has_failed) self->is_latest_known = false;
    self->has_failed = false;
    forget_changes(self);
}

double harpe_longest_path_length_s(harpe_longest_path *self) {
    double length_s = 0;
    for (size_t i = 0; i < node_count(self); i++)
        length_s = fmax(length_s, self->trials->earliest_end_s[i]);
    self->work += node_count(self);
    return length_s;
}
