/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/steps.h"

harpe_sim_step_sum harpe_sim_sum_step(const harpe_sim_board *board, const harpe_sim_step *ranks) {
    int64_t late_ns = 0;
    harpe_sim_step_sum sum = {.is_whole = true,
                              .round = ranks[0].round,
                              .time_s = 1e-9 * (double)(ranks[0].end_ns - ranks[0].begin_ns)};
    for (int r = 0; r < board->world_size; r++) {
        const harpe_sim_step *rank = &ranks[r];
        sum.is_whole = sum.is_whole && rank->end_ns != 0;
        if (rank->round < sum.round) sum.round = rank->round;
        if (rank->host_late_ns > late_ns) late_ns = rank->host_late_ns;
        if (rank->ended_at_s > sum.ended_at_s) sum.ended_at_s = rank->ended_at_s;
        sum.energy_j += rank->energy_j;
        sum.clock_writes += rank->clock_writes;
    }
    sum.host_late_s = 1e-9 * (double)late_ns;
    return sum;
}

json_t *harpe_sim_show_step(const harpe_sim_board *board, const harpe_sim_step *ranks) {
    harpe_sim_step_sum sum = harpe_sim_sum_step(board, ranks);
    return json_pack("{s:f, s:I, s:f, s:f, s:I, s:f}", "ended_at", sum.ended_at_s, "round",
                     (json_int_t)sum.round, "time_s", sum.time_s, "energy_j", sum.energy_j,
                     "clock_writes", (json_int_t)sum.clock_writes, "host_late_s", sum.host_late_s);
}
