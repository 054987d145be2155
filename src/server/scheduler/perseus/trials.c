/* SPDX-License-Identifier: Apache-2.0 */
/* Slack is the latest end of an instruction minus its earliest end. A run may become longer by its
 * slack. In the second part, nodes take slack in topological order: the earliest end of a node
 * contains what the nodes before it have taken, and its latest end assumes the present durations of
 * the nodes after it. So no node takes what another has taken. */
#include "server/scheduler/perseus/trials.h"

#include <math.h>

/* Differences of this size come from the order of additions. */
#define ROUNDING 1e-9

static double upper_s(const harpe_trials *trials, int32_t node, size_t clock) {
    return trials->entries[trials->entry_of[node]].estimates[clock].upper_s;
}

static double duration_at(const harpe_trials *trials, int32_t node, size_t clock) {
    const harpe_clock_estimate *estimates = trials->entries[trials->entry_of[node]].estimates;
    /* Noise of the highest clock's time is in the limit as well, because both have this time. */
    return clock == 0 ? estimates[0].time_s
                      : fmax(upper_s(trials, node, clock), estimates[0].time_s);
}

static double earliest_start_s(const harpe_trials *trials, int32_t node) {
    const harpe_dag *dag = trials->dag;
    double start_s = 0;
    for (int32_t a = dag->first_arc_into[node]; a < dag->first_arc_into[node + 1]; a++)
        start_s = fmax(start_s, trials->earliest_end_s[dag->arc_from[a]]);
    return start_s;
}

double harpe_trials_length_s(const harpe_trials *trials) {
    double length_s = 0;
    for (int32_t k = 0; k < trials->dag->node_count; k++) {
        int32_t node = trials->dag->topological_order[k];
        trials->earliest_end_s[node] = earliest_start_s(trials, node) + trials->duration_s[node];
        length_s = fmax(length_s, trials->earliest_end_s[node]);
    }
    return length_s;
}

void harpe_trials_find_latest_ends(const harpe_trials *trials, double limit_s) {
    const harpe_dag *dag = trials->dag;
    for (int32_t i = 0; i < dag->node_count; i++)
        trials->latest_end_s[i] = limit_s;
    for (int32_t k = dag->node_count; k-- > 0;) {
        int32_t node = dag->topological_order[k];
        double start_s = trials->latest_end_s[node] - trials->duration_s[node];
        for (int32_t a = dag->first_arc_into[node]; a < dag->first_arc_into[node + 1]; a++) {
            double *latest_s = &trials->latest_end_s[dag->arc_from[a]];
            if (start_s < *latest_s) *latest_s = start_s;
        }
    }
}

/* ---- Trials ---------------------------------------------------------------------------------- */

/* Returns the node of the entry that can become longest, or -1 if all are trials. */
static int32_t roomiest(const harpe_trials *trials, int entry) {
    int32_t best = -1;
    double best_s = -INFINITY;
    for (int32_t i = 0; i < trials->dag->node_count; i++) {
        if (trials->entry_of[i] != entry || trials->is_trial[i]) continue;
        double room_s = trials->latest_end_s[i] - trials->earliest_end_s[i];
        if (room_s > best_s) {
            best = i;
            best_s = room_s;
        }
    }
    return best;
}

static bool is_useful(const harpe_trial_choices *choices, size_t clock) {
    return (choices->is_wanted[clock] || choices->is_wanted_most[clock]) &&
           !choices->is_placed[clock];
}

/* Tries a clock of an entry in one run. Returns true if the run has this clock, or one above it. */
static bool place(harpe_trials *trials, int entry, size_t wanted, double limit_s) {
    harpe_trial_choices *choices = &trials->entries[entry];
    int32_t node = roomiest(trials, entry);
    if (node < 0) return false;
    double room_s = trials->latest_end_s[node] - trials->earliest_end_s[node];
    double most_s = (trials->duration_s[node] + room_s) * (1 + ROUNDING);
    for (size_t c = wanted; c > 0; c--) {
        if (!is_useful(choices, c) || duration_at(trials, node, c) > most_s) continue;
        trials->clock[node] = c;
        trials->duration_s[node] = duration_at(trials, node, c);
        trials->is_trial[node] = choices->is_placed[c] = true;
        (void)harpe_trials_length_s(trials);
        harpe_trials_find_latest_ends(trials, limit_s);
        return true;
    }
    return false;
}

/* The entries take turns, so that each gets a part of the slack. */
static size_t place_all(harpe_trials *trials, double limit_s) {
    size_t placed = 0;
    bool has_placed = true;
    for (size_t turn = 0; has_placed; turn++) {
        has_placed = false;
        for (size_t k = 0; k < trials->entry_count; k++) {
            size_t e = (trials->first_entry + k) % trials->entry_count, seen = 0;
            const harpe_trial_choices *choices = &trials->entries[e];
            for (size_t c = 1; c < choices->count; c++) {
                if (!choices->is_wanted_most[c] || seen++ != turn) continue;
                has_placed = true;
                placed += !choices->is_placed[c] && place(trials, (int)e, c, limit_s);
                break;
            }
        }
    }
    return placed;
}

/* ---- Saving energy --------------------------------------------------------------------------- */

static double cost_j(const harpe_trial_choices *choices, size_t clock) {
    const harpe_clock_estimate *estimate = &choices->estimates[clock];
    return estimate->energy_j - choices->waiting_w * estimate->time_s;
}

/* Returns the cheapest clock between the highest and the planned one that was observed and takes at
 * most `most_s`. */
static size_t cheapest_within(const harpe_trials *trials, int32_t node, double most_s) {
    const harpe_trial_choices *choices = &trials->entries[trials->entry_of[node]];
    size_t best = 0;
    for (size_t c = 1; c <= trials->planned[node]; c++)
        if (isfinite(choices->estimates[c].error) && duration_at(trials, node, c) <= most_s &&
            cost_j(choices, c) < cost_j(choices, best))
            best = c;
    return best;
}

static void save_energy(harpe_trials *trials, double limit_s) {
    const harpe_dag *dag = trials->dag;
    harpe_trials_find_latest_ends(trials, limit_s);
    for (int32_t k = 0; k < dag->node_count; k++) {
        int32_t node = dag->topological_order[k];
        double start_s = earliest_start_s(trials, node);
        double most_s = trials->latest_end_s[node] - start_s;
        if (!trials->is_trial[node]) {
            size_t clock = cheapest_within(trials, node, most_s);
            if (duration_at(trials, node, clock) > trials->duration_s[node]) {
                trials->clock[node] = clock;
                trials->duration_s[node] = duration_at(trials, node, clock);
            } else if (clock > 0 && duration_at(trials, node, clock) <= trials->duration_s[node]) {
                trials->clock[node] = clock; /* a lower clock that takes no longer */
            }
        }
        trials->earliest_end_s[node] = start_s + trials->duration_s[node];
    }
}

size_t harpe_trials_place(harpe_trials *trials, double trial_limit_s, double plan_limit_s) {
    for (int32_t i = 0; i < trials->dag->node_count; i++) {
        trials->clock[i] = 0;
        trials->is_trial[i] = false;
        trials->duration_s[i] = duration_at(trials, i, 0);
    }
    for (size_t e = 0; e < trials->entry_count; e++)
        for (size_t c = 0; c < trials->entries[e].count; c++)
            trials->entries[e].is_placed[c] = false;
    double length_s = harpe_trials_length_s(trials);
    harpe_trials_find_latest_ends(trials, fmax(trial_limit_s, length_s));
    size_t placed = place_all(trials, fmax(trial_limit_s, length_s));
    length_s = harpe_trials_length_s(trials);
    save_energy(trials, fmax(plan_limit_s, length_s));
    return placed;
}
