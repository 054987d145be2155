/* SPDX-License-Identifier: Apache-2.0 */
/* Each instruction with several clocks gets a negative number of its own, -1 for the first
 * instruction of the pipeline. So it is read as if it had a clock of its own. The time of a stage
 * is that of its slowest rank, so the report of the rank with the lowest clocks counts, if the
 * reports agree. */
#include "server/scheduler/perseus/real_clocks.h"

#include <math.h>

/* A run counts as a run at one clock if it has at least this share. */
#define PURE_SHARE 0.98
/* Ranks agree if the shares of their clocks differ by at most this from those of the first rank. */
#define SAME_SHARE 0.03

/* ---- Reports --------------------------------------------------------------------------------- */

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

/* Returns the clocks that an instruction had on a rank. */
static harpe_run_clocks clocks_of(const harpe_online_pipeline *pipeline, int pipeline_rank,
                                  size_t instruction, const harpe_rank_clocks *clocks,
                                  int asked_mhz) {
    const harpe_run_clocks *run = report_of(pipeline, pipeline_rank, instruction, clocks);
    return run ? *run : (harpe_run_clocks){.count = 1, .parts = {{asked_mhz, 1}}};
}

static double mean_mhz(const harpe_run_clocks *run) {
    double sum = 0;
    for (int i = 0; i < run->count; i++)
        sum += run->parts[i].share * run->parts[i].mhz;
    return sum;
}

static bool agree(const harpe_run_clocks *a, const harpe_run_clocks *b) {
    for (int i = 0; i < a->count; i++)
        if (fabs(a->parts[i].share - harpe_run_share(b, a->parts[i].mhz)) > SAME_SHARE)
            return false;
    for (int i = 0; i < b->count; i++)
        if (fabs(b->parts[i].share - harpe_run_share(a, b->parts[i].mhz)) > SAME_SHARE)
            return false;
    return a->count > 0 && b->count > 0;
}

/* ---- Stages ---------------------------------------------------------------------------------- */

static size_t first_of(const harpe_rank_info *ranks, int pipeline_rank) {
    size_t r = 0;
    while (ranks[r].pp_rank != pipeline_rank)
        r++;
    return r;
}

static double main_share(const harpe_run_clocks *run) {
    double most = 0;
    for (int i = 0; i < run->count; i++)
        most = fmax(most, run->parts[i].share);
    return most;
}

static int real_mhz(const harpe_run_clocks *run, size_t instruction, int asked_mhz,
                    double share_min) {
    if (run->count < 0 || main_share(run) < share_min) return 0;
    return harpe_run_share(run, asked_mhz) >= PURE_SHARE ? asked_mhz : -(int)instruction - 1;
}

enum { NOBODY = -1, DIFFERENT = -2 };

/* Takes the report of one more rank. `whose` has the rank whose report counts for each instruction,
 * NOBODY before the first one, and DIFFERENT if the ranks do not agree. */
static void take_rank(const int *asked_mhz, const harpe_online_pipeline *pipeline,
                      const harpe_rank_info *ranks, const harpe_rank_clocks *clocks, size_t rank,
                      int *whose) {
    int p = ranks[rank].pp_rank;
    size_t first = first_of(ranks, p);
    for (size_t i = pipeline->rank_offset[p]; i < pipeline->rank_offset[p + 1]; i++) {
        if (whose[i] == DIFFERENT) continue;
        size_t best = whose[i] == NOBODY ? rank : (size_t)whose[i];
        harpe_run_clocks firsts = clocks_of(pipeline, p, i, &clocks[first], asked_mhz[i]);
        harpe_run_clocks lowest = clocks_of(pipeline, p, i, &clocks[best], asked_mhz[i]);
        harpe_run_clocks own = clocks_of(pipeline, p, i, &clocks[rank], asked_mhz[i]);
        if (mean_mhz(&own) < mean_mhz(&lowest)) best = rank;
        whose[i] = agree(&firsts, &own) ? (int)best : DIFFERENT;
    }
}

void harpe_find_real_clocks(const harpe_real_clocks *real, const harpe_online_pipeline *pipeline,
                            const harpe_rank_info *ranks, const harpe_rank_clocks *clocks,
                            size_t count, double share_min) {
    int *whose = real->ran_mhz; /* until it is replaced by the clocks */
    for (size_t i = 0; i < pipeline->instruction_count; i++)
        whose[i] = NOBODY;
    for (size_t r = 0; clocks && r < count; r++)
        take_rank(real->asked_mhz, pipeline, ranks, clocks, r, whose);
    for (int p = 0; p < pipeline->rank_count; p++) {
        for (size_t i = pipeline->rank_offset[p]; i < pipeline->rank_offset[p + 1]; i++) {
            int rank = whose[i], asked_mhz = real->asked_mhz[i];
            harpe_run_clocks run = {.count = -1};
            if (clocks && rank >= 0) run = clocks_of(pipeline, p, i, &clocks[rank], asked_mhz);
            real->ran_mhz[i] = rank == NOBODY ? asked_mhz : real_mhz(&run, i, asked_mhz, share_min);
        }
    }
}

/* A rank that ran as asked is not the one whose report counts, because then the run has one clock.
 */
const harpe_run_clocks *harpe_real_clocks_of_run(const harpe_online_pipeline *pipeline,
                                                 const harpe_rank_info *ranks,
                                                 const harpe_rank_clocks *clocks, size_t count,
                                                 int ran_mhz) {
    if (ran_mhz >= 0) return NULL;
    size_t i = (size_t)(-(ran_mhz + 1));
    const harpe_run_clocks *lowest = NULL;
    for (size_t r = 0; r < count; r++) {
        int p = ranks[r].pp_rank;
        if (i < pipeline->rank_offset[p] || i >= pipeline->rank_offset[p + 1]) continue;
        const harpe_run_clocks *run = report_of(pipeline, p, i, &clocks[r]);
        if (run && run->count > 0 && (!lowest || mean_mhz(run) < mean_mhz(lowest))) lowest = run;
    }
    return lowest;
}
