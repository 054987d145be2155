/* SPDX-License-Identifier: Apache-2.0 */
/* Combines the options of peers; see peers.h.
 *
 * If all peers are ready after the time t, peer g with the time t_g and the energy e_g needs
 * e_g + P_g (t - t_g) until then. Compared with waiting all along, the peers need the sum of e_g -
 * P_g t_g, which are their effective energies. This sum has one term for each peer, so the best
 * combination within t has, for each peer, the slowest Pareto-optimal option within t. The best
 * combination changes only at the times of the peers' options, and one pass over these times, in
 * order, finds all of them. */
#include "plan/peers.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <harpe/plan.h>

#include "base/array.h"
#include "base/error.h"
#include "plan/options.h"

/* The options of one peer, and the slowest one within the present time. */
typedef struct peer {
    harpe_option *options; /* fastest first; owned */
    size_t count, at;
} peer;

/* A time at which a peer may become slower. */
typedef struct step {
    double time_s;
    int peer;
} step;

harpe_profile_point harpe_peers_together(const harpe_profile_point *const *points,
                                         const double *power_w, int peer_count) {
    harpe_profile_point together = {0};
    for (int g = 0; g < peer_count; g++)
        if (points[g]->time_s > together.time_s) together.time_s = points[g]->time_s;
    for (int g = 0; g < peer_count; g++)
        together.energy_j +=
            points[g]->energy_j + power_w[g] * (together.time_s - points[g]->time_s);
    return together;
}

static int compare_steps(const void *left, const void *right) {
    const step *a = left, *b = right;
    if (a->time_s != b->time_s) return a->time_s < b->time_s ? -1 : 1;
    return (a->peer > b->peer) - (a->peer < b->peer);
}

/* Adds a combination. */
static void add(harpe_peer_options *out, const harpe_profile_point *const *points,
                const double *power_w) {
    harpe_profile_point together = harpe_peers_together(points, power_w, out->peer_count);
    out->time_s[out->count] = together.time_s;
    out->energy_j[out->count] = together.energy_j;
    int *mhz = out->frequency_mhz + out->count * (size_t)out->peer_count;
    for (int g = 0; g < out->peer_count; g++)
        mhz[g] = points[g]->frequency_mhz;
    out->count++;
}

/* Adds the combination of the peers' present options, unless it is the first one of all. */
static void add_present(harpe_peer_options *out, const peer *peers, harpe_profile_point *present,
                        const harpe_profile_point **points, const double *power_w) {
    bool is_first = true;
    for (int g = 0; g < out->peer_count; g++) {
        const harpe_option *option = &peers[g].options[peers[g].at];
        present[g] = (harpe_profile_point){option->frequency_mhz, option->time_s, option->energy_j};
        points[g] = &present[g];
        is_first = is_first && option->frequency_mhz == out->frequency_mhz[g];
    }
    if (!is_first) add(out, points, power_w);
}

/* Moves all peers to their slowest options within `time_s`. */
static void slow_down(peer *peers, int count, double time_s) {
    for (int g = 0; g < count; g++)
        while (peers[g].at + 1 < peers[g].count &&
               peers[g].options[peers[g].at + 1].time_s <= time_s)
            peers[g].at++;
}

/* Writes the times at which peers may become slower, in order, without those before all peers can
 * be ready. Returns their number. */
static size_t list_steps(const peer *peers, int count, double first_s, step *steps) {
    size_t found = 0;
    for (int g = 0; g < count; g++)
        for (size_t k = peers[g].at + 1; k < peers[g].count; k++)
            if (peers[g].options[k].time_s > first_s)
                steps[found++] = (step){peers[g].options[k].time_s, g};
    qsort(steps, found, sizeof *steps, compare_steps);
    return found;
}

/* Lets the peers become slower together, and adds each combination. */
static void walk(harpe_peer_options *out, peer *peers, step *steps, harpe_profile_point *present,
                 const harpe_profile_point **points, const double *power_w) {
    double first_s = 0;
    for (int g = 0; g < out->peer_count; g++)
        if (peers[g].options[0].time_s > first_s) first_s = peers[g].options[0].time_s;
    slow_down(peers, out->peer_count, first_s);
    add_present(out, peers, present, points, power_w);
    size_t count = list_steps(peers, out->peer_count, first_s, steps);
    for (size_t k = 0; k < count; k++) {
        peers[steps[k].peer].at++;
        bool is_last = k + 1 == count || steps[k + 1].time_s > steps[k].time_s;
        if (is_last) add_present(out, peers, present, points, power_w);
    }
}

static harpe_status find_options(const harpe_profile_entry *const *entries, const double *power_w,
                                 int peer_count, peer *peers, size_t *most, harpe_error *error) {
    *most = 2;
    for (int g = 0; g < peer_count; g++) {
        harpe_status status =
            harpe_options_from_points(entries[g]->points + entries[g]->throttled_count,
                                      entries[g]->point_count - entries[g]->throttled_count,
                                      power_w[g], &peers[g].options, &peers[g].count, error);
        if (status != HARPE_OK) return status;
        *most += peers[g].count - 1;
    }
    return HARPE_OK;
}

static harpe_status make_room(harpe_peer_options *out, size_t most, harpe_error *error) {
    out->time_s = harpe_calloc(most, sizeof *out->time_s);
    out->energy_j = harpe_calloc(most, sizeof *out->energy_j);
    size_t clocks;
    if (!__builtin_mul_overflow(most, (size_t)out->peer_count, &clocks))
        out->frequency_mhz = harpe_calloc(clocks, sizeof *out->frequency_mhz);
    return out->time_s && out->energy_j && out->frequency_mhz ? HARPE_OK : harpe_fail_memory(error);
}

harpe_status harpe_peers_combine(const harpe_profile_entry *const *entries, const double *power_w,
                                 int peer_count, harpe_peer_options *out, harpe_error *error) {
    size_t peers_size = (size_t)peer_count, most = 0;
    harpe_peer_options made = {.peer_count = peer_count};
    peer *peers = harpe_calloc(peers_size, sizeof *peers);
    harpe_profile_point *present = harpe_calloc(peers_size, sizeof *present);
    const harpe_profile_point **points = harpe_calloc(peers_size, sizeof *points);
    step *steps = NULL;
    harpe_status status = peers && present && points ? HARPE_OK : harpe_fail_memory(error);
    if (status == HARPE_OK)
        status = find_options(entries, power_w, peer_count, peers, &most, error);
    if (status == HARPE_OK) status = make_room(&made, most, error);
    if (status == HARPE_OK) {
        steps = harpe_calloc(most, sizeof *steps);
        if (!steps) status = harpe_fail_memory(error);
    }
    if (status == HARPE_OK) {
        for (int g = 0; g < peer_count; g++)
            points[g] = &entries[g]->points[0];
        add(&made, points, power_w);
        walk(&made, peers, steps, present, points, power_w);
        *out = made;
    } else {
        harpe_peer_options_clear(&made);
    }
    for (int g = 0; peers && g < peer_count; g++)
        free(peers[g].options);
    free(peers);
    free(present);
    free(points);
    free(steps);
    return status;
}

void harpe_peer_options_clear(harpe_peer_options *options) {
    free(options->time_s);
    free(options->energy_j);
    free(options->frequency_mhz);
    memset(options, 0, sizeof *options);
}
