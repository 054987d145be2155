/* SPDX-License-Identifier: Apache-2.0 */
/* Counts results that were stored before a restart. The stored sums of a job contain all rounds
 * before the one that runs. A turn reads the results of the running round from the store and adds
 * them. It is the job's first turn and needs no scheduler, which may plan for minutes. Results that
 * come meanwhile are counted as usual. */
#include "server/engine/count_stored.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/log.h"
#include "server/engine/job_figures.h"
#include "server/engine/job_ranks.h"
#include "server/engine/pools.h"
#include "server/engine/turn.h"

typedef struct counted_result {
    int rank;
    bool is_read;
    harpe_result_totals totals;
} counted_result;

typedef struct count_turn {
    harpe_turn turn;
    counted_result *results;
    size_t count;
} count_turn;

static void free_count(harpe_turn *turn) { free(((count_turn *)turn)->results); }

static const harpe_turn_kind count_kind = {.size = sizeof(count_turn), .free_own = free_count};

/* A store of an older version has no sums. Then the scheduler's sums are needed, which come later.
 */
static bool has_sums(const harpe_job *job) { return job->sums_from >= job->round - 1; }

void harpe_count_stored_begin(harpe_job *job) {
    job->figures.is_known = has_sums(job) && job->uncounted == 0;
}

static bool read_totals(const char *text, size_t length, harpe_result_totals *totals) {
    int rank;
    harpe_problems problems = {0};
    if (harpe_profiling_result_scan_totals(text, length, &rank, totals)) return true;
    bool is_read = harpe_profiling_result_decode_totals(text, length, &rank, totals, &problems);
    harpe_problems_free(&problems);
    return is_read;
}

/* Reads the results. Runs on a worker. */
static void count(void *user) {
    count_turn *self = user;
    const harpe_job *job = self->turn.job;
    for (size_t i = 0; i < self->count && self->turn.status == HARPE_OK; i++) {
        counted_result *result = &self->results[i];
        char *text = NULL;
        size_t length = 0;
        self->turn.status =
            harpe_store_read_result(job->jobs->options.store, job->id, job->round, result->rank,
                                    &text, &length, &self->turn.error);
        if (self->turn.status != HARPE_OK) return;
        result->is_read = read_totals(text, length, &result->totals);
        free(text);
    }
}

static void is_counted(void *user) {
    count_turn *self = user;
    harpe_turn *turn = &self->turn;
    harpe_job *job = turn->job;
    if (!harpe_turn_is_back(turn)) return;
    if (turn->status != HARPE_OK)
        harpe_log_line(&job->jobs->options.log, HARPE_LOG_WARNING,
                       "%s: its energy lacks results of round %lld: %s", job->id,
                       (long long)job->round, turn->error.message);
    for (size_t i = 0; i < self->count; i++) {
        const counted_result *result = &self->results[i];
        harpe_job_rank(job, result->rank)->is_uncounted = false;
        if (result->is_read) harpe_job_count_result(job, result->rank, &result->totals);
    }
    job->uncounted = 0;
    if (has_sums(job)) job->figures.is_known = true;
    harpe_turn_end(turn);
}

void harpe_begin_count_stored(harpe_job *job) {
    counted_result *results = harpe_calloc((size_t)job->uncounted, sizeof *results);
    count_turn *self = results ? harpe_turn_new(job, &count_kind) : NULL;
    if (!self) {
        free(results);
        return;
    }
    self->results = results;
    const harpe_rank *slot;
    for (int r = 0; (slot = harpe_job_next_rank(job, &r)); r++)
        if (slot->is_uncounted) results[self->count++].rank = r;
    harpe_turn_run_in(&self->turn, HARPE_POOL_STORE, count, is_counted);
}
