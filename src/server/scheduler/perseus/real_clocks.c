/* SPDX-License-Identifier: Apache-2.0 */
/* Each instruction with several clocks gets a negative number of its own, -1 for the first
 * instruction of the pipeline. So it is read as if it had a clock of its own. */
#include "server/scheduler/perseus/real_clocks.h"

#include <stdlib.h>

/* A run counts as a run at one clock if it has at least this share. */
#define PURE_SHARE 0.98
enum { TOLERANCE_MHZ = 7 };

/* Returns the report of a rank about an instruction; NULL: it ran as asked. */
static const harpe_run_clocks *report_of(const harpe_online_pipeline *pipeline, int pipeline_rank,
                                         size_t instruction, const harpe_rank_clocks *clocks) {
    static const harpe_run_clocks unknown = {.count = -1};
    size_t first = pipeline->rank_offset[pipeline_rank];
    size_t length = pipeline->rank_offset[pipeline_rank + 1] - first;
    if (!clocks->is_known || clocks->run_count == 0) return NULL;
    if (clocks->run_count != length) return &unknown;
    const harpe_run_clocks *run = &clocks->runs[instruction - first];
    return run->count == 0 ? NULL : run;
}

static bool is_pure(const harpe_run_clocks *run, int mhz) {
    double share = 0;
    for (int i = 0; i < run->count; i++)
        if (abs(run->parts[i].mhz - mhz) <= TOLERANCE_MHZ) share += run->parts[i].share;
    return share >= PURE_SHARE;
}

static int real_mhz(const harpe_run_clocks *run, size_t instruction, int asked_mhz) {
    if (run->count < 0) return 0;
    return is_pure(run, asked_mhz) ? asked_mhz : -(int)instruction - 1;
}

void harpe_find_real_clocks(const harpe_real_clocks *real, const harpe_online_pipeline *pipeline,
                            const harpe_rank_info *ranks, const harpe_rank_clocks *clocks,
                            size_t count) {
    for (size_t i = 0; i < pipeline->instruction_count; i++)
        real->ran_mhz[i] = real->asked_mhz[i];
    for (size_t r = 0; clocks && r < count; r++) {
        int p = ranks[r].pp_rank;
        for (size_t i = pipeline->rank_offset[p]; i < pipeline->rank_offset[p + 1]; i++) {
            const harpe_run_clocks *run = report_of(pipeline, p, i, &clocks[r]);
            int mhz = run ? real_mhz(run, i, real->asked_mhz[i]) : real->asked_mhz[i];
            bool is_unknown = real->ran_mhz[i] == 0 || mhz == 0;
            real->ran_mhz[i] = is_unknown ? 0 : mhz < real->ran_mhz[i] ? mhz : real->ran_mhz[i];
        }
    }
}

const harpe_run_clocks *harpe_real_clocks_of_run(const harpe_online_pipeline *pipeline,
                                                 const harpe_rank_info *ranks,
                                                 const harpe_rank_clocks *clocks, size_t count,
                                                 int ran_mhz) {
    if (ran_mhz >= 0) return NULL;
    size_t i = (size_t)(-(ran_mhz + 1));
    for (size_t r = 0; r < count; r++) {
        int p = ranks[r].pp_rank;
        if (i < pipeline->rank_offset[p] || i >= pipeline->rank_offset[p + 1]) continue;
        const harpe_run_clocks *run = report_of(pipeline, p, i, &clocks[r]);
        if (run && run->count > 0) return run;
    }
    return NULL;
}
