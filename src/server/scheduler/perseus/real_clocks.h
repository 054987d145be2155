/* SPDX-License-Identifier: Apache-2.0 */
/* At which clocks the instructions of a round really ran, from the ranks' reports. An instruction
 * of a GPU that changes its clock late can run at several clocks. */
#ifndef HARPE_SERVER_SCHEDULER_PERSEUS_REAL_CLOCKS_H
#define HARPE_SERVER_SCHEDULER_PERSEUS_REAL_CLOCKS_H

#include "pfo/rank_clocks.h"
#include "server/scheduler/perseus/online_pipeline.h"

/* An error in the shares of a run can make a clock look fast, so a run teaches something about its
 * main clock only if this has at least this share. */
#define HARPE_MAIN_SHARE_MIN 0.9

/* One value per instruction of the pipeline. */
typedef struct harpe_real_clocks {
    const int *asked_mhz; /* by the schedule */
    int *ran_mhz;         /* 0: not known; negative: several clocks, see below */
} harpe_real_clocks;

/* Fills in ran_mhz. `clocks` (NULL: none) has one report per rank. A rank that reports no clocks
 * ran as its schedule asks. The clocks of a run are not known if the ranks of its stage differ by
 * more than a few percent of its time, or if it was at no clock for at least `share_min` of its
 * time. */
void harpe_find_real_clocks(const harpe_real_clocks *real, const harpe_online_pipeline *pipeline,
                            const harpe_rank_info *ranks, const harpe_rank_clocks *clocks,
                            size_t count, double share_min);

/* Returns the clocks of the instruction that a negative value of ran_mhz stands for, or NULL if the
 * value is not negative. They are those of the rank of the stage that had the lowest clocks. */
const harpe_run_clocks *harpe_real_clocks_of_run(const harpe_online_pipeline *pipeline,
                                                 const harpe_rank_info *ranks,
                                                 const harpe_rank_clocks *clocks, size_t count,
                                                 int ran_mhz);

#endif
