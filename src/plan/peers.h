/* SPDX-License-Identifier: Apache-2.0 */
/* The options of an instruction that several GPUs run together. The instruction ends when the
 * slowest GPU has ended, each GPU has a clock of its own, and those that end early wait. Private to
 * src/plan. */
#ifndef HARPE_PLAN_PEERS_H
#define HARPE_PLAN_PEERS_H

#include <stddef.h>

#include <harpe/profile.h>

/* Combinations of the clocks of all peers. The first one has all peers at their highest clocks. The
 * others are the Pareto-optimal combinations that differ from it, fastest first. */
typedef struct harpe_peer_options {
    int peer_count;
    size_t count;
    double *time_s;     /* [count]: the longest time of a peer */
    double *energy_j;   /* [count]: of all peers until then, waiting included */
    int *frequency_mhz; /* [count * peer_count] */
} harpe_peer_options;

/* Combines the points of each peer. `power_w` has the power of each peer while it waits. After a
 * failure there is nothing to clear. O(n log n) for n points of all peers, plus the size of the
 * result. */
harpe_status harpe_peers_combine(const harpe_profile_entry *const *entries, const double *power_w,
                                 int peer_count, harpe_peer_options *out, harpe_error *error);
void harpe_peer_options_clear(harpe_peer_options *options);

/* Returns the time and energy of all peers at some points, one for each peer. */
harpe_profile_point harpe_peers_together(const harpe_profile_point *const *points,
                                         const double *power_w, int peer_count);

#endif
