/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out which rounds are spoiled, from the results and from what the ranks say of their own
 * conduct. Results of clients that say nothing can still show misfits, jitter and missing ranks. */
#include "server/scheduler/figures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "server/scheduler/builtin.h"

const char *const harpe_spoil_names[HARPE_SPOILS] = {"misfit", "disobeyed", "jitter", "missing",
                                                     "impossible"};

/* A step is a burst of jitter if it takes over 10 % more time than the median of its round and
 * exceeds the median by more than 6 standard deviations. */
enum { JITTER_OF_AT_LEAST = 3 };
static const double jitter_factor = 1.1, jitter_deviations = 6;
static const double deviations_per_mad = 1.4826; /* of the normal distribution */

/* ---- Reasons --------------------------------------------------------------------------------- */

static bool has_jitter(const double *time_s, size_t count) {
    if (count < JITTER_OF_AT_LEAST) return false;
    double *sorted = harpe_calloc(count, sizeof *sorted);
    if (!sorted) return false;
    memcpy(sorted, time_s, count * sizeof *sorted);
    double middle_s = harpe_median(sorted, count), longest_s = sorted[count - 1];
    for (size_t i = 0; i < count; i++)
        sorted[i] = fabs(sorted[i] - middle_s);
    double deviation_s = deviations_per_mad * harpe_median(sorted, count);
    free(sorted);
    return longest_s > jitter_factor * middle_s &&
           longest_s - middle_s > jitter_deviations * deviation_s;
}

static size_t count_runs(const harpe_frequency_schedule *schedule, const char *instruction) {
    size_t runs = 0;
    for (size_t i = 0; i < schedule->instruction_count; i++)
        runs += strcmp(schedule->instructions[i].instruction, instruction) == 0;
    return runs;
}

/* Returns true if the result has an iteration in which an instruction ran more or less often than
 * in the schedule. The empty schedule allows every iteration. */
static bool has_misfit(const harpe_profiling_result *result,
                       const harpe_frequency_schedule *schedule) {
    if (!schedule || schedule->instruction_count == 0) return false;
    for (size_t b = 0; b < result->time_breakdown_count; b++) {
        const harpe_breakdown *breakdown = &result->time_breakdown[b];
        size_t runs = count_runs(schedule, breakdown->instruction);
        for (size_t i = 0; i < breakdown->iteration_count; i++)
            if (breakdown->counts[i] != runs) return true;
    }
    return false;
}

static int64_t reasons_of(const harpe_profiling_result *result, const harpe_conduct *conduct,
                          const harpe_frequency_schedule *schedule) {
    int64_t reasons = 0;
    if (result->iteration_time_count == 0 && result->time_breakdown_count == 0 &&
        conduct->impossible == 0)
        reasons |= 1 << HARPE_SPOIL_MISSING;
    if (has_misfit(result, schedule)) reasons |= 1 << HARPE_SPOIL_MISFIT;
    if (has_jitter(result->iteration_time_s, result->iteration_time_count))
        reasons |= 1 << HARPE_SPOIL_JITTER;
    return reasons;
}

/* ---- Energies -------------------------------------------------------------------------------- */

/* The largest of n differences exceeds its own 95 % interval more often than in 5 % of all cases.
 * sqrt(2 ln(n / 0.05)) standard deviations bound the largest of n normal values in at least 95 % of
 * all cases. */
bool harpe_energy_pair_agrees(const harpe_energy_pair *pair, int64_t ranks) {
    double factor = ranks > 1 ? sqrt(2 * log((double)ranks / 0.05)) / 1.96 : 1;
    return fabs(pair->counter_j - pair->power_j) <= factor * pair->uncertainty_j;
}

static double deviation_of(const harpe_energy_pair *pair) {
    return fabs(pair->counter_j - pair->power_j) / fmax(pair->uncertainty_j, 1e-9);
}

/* A rank reports the energies since its start, so its latest report replaces the earlier ones. The
 * errors of late samples have the same sign on all ranks, so they are added. All other errors are
 * independent. */
static void compare_energies(harpe_conduct_round *round, int rank, const harpe_conduct *own) {
    harpe_energy_pair pair = {own->counter_j, own->power_j, own->energy_uncertainty_j};
    if (!(pair.counter_j > 0 && pair.power_j > 0)) return;
    round->all.counter_j += pair.counter_j;
    round->all.power_j += pair.power_j;
    round->late_j += own->late_energy_j;
    round->spread_j = hypot(round->spread_j, pair.uncertainty_j - own->late_energy_j);
    round->all.uncertainty_j = round->late_j + round->spread_j;
    if (round->compared_ranks++ > 0 && deviation_of(&pair) <= deviation_of(&round->worst)) return;
    round->worst = pair;
    round->worst_rank = rank;
}

/* ---- Adding ---------------------------------------------------------------------------------- */

static void add_steps(harpe_conduct_sums *sums, const harpe_conduct *own, int rank) {
    sums->steps += own->steps;
    sums->as_planned += own->as_planned;
    sums->misfits += own->misfits;
    sums->disobeyed += own->disobeyed;
    sums->lost += own->lost;
    sums->left_out += own->left_out;
    if (own->tokens_per_step > 0) sums->tokens_per_step = own->tokens_per_step;
    if (own->disobeyed == 0) return;
    sums->wanted_mhz = own->wanted_mhz;
    sums->held_mhz = own->held_mhz;
    sums->disobedient_rank = rank;
}

void harpe_conduct_sums_add_rank(harpe_conduct_sums *sums, harpe_conduct_round *round, int rank,
                                 int64_t reasons, const harpe_conduct *conduct) {
    if (conduct->misfits_measured > 0) reasons |= 1 << HARPE_SPOIL_MISFIT;
    if (conduct->disobeyed > 0) reasons |= 1 << HARPE_SPOIL_DISOBEYED;
    if (conduct->impossible > 0) reasons |= 1 << HARPE_SPOIL_IMPOSSIBLE;
    if (reasons != 0 && round->reasons == 0) round->first_rank = rank;
    round->reasons |= reasons;
    round->ranks++;
    round->is_told = round->is_told || conduct->is_known;
    compare_energies(round, rank, conduct);
    add_steps(sums, conduct, rank);
}

void harpe_conduct_sums_end_round(harpe_conduct_sums *sums, const harpe_conduct_round *round) {
    if (round->reasons != 0) {
        sums->spoiled_rounds++;
        sums->last_round = sums->rounds;
        sums->last_reasons = round->reasons;
        sums->last_rank = round->first_rank;
    }
    for (int s = 0; s < HARPE_SPOILS; s++)
        sums->spoiled[s] += round->reasons >> s & 1;
    sums->rounds++;
    sums->told_rounds += round->is_told;
    if (round->compared_ranks == 0) return;
    sums->compared_ranks = round->compared_ranks;
    sums->all = round->all;
    sums->worst = round->worst;
    sums->worst_rank = round->worst_rank;
}

void harpe_conduct_sums_add(harpe_conduct_sums *sums, const harpe_profiling_result *results,
                            const harpe_conduct *conducts,
                            const harpe_frequency_schedule *schedules, size_t count) {
    harpe_conduct_round round = {0};
    for (size_t r = 0; r < count; r++) {
        int64_t reasons = reasons_of(&results[r], &conducts[r], schedules ? &schedules[r] : NULL);
        harpe_conduct_sums_add_rank(sums, &round, results[r].rank, reasons, &conducts[r]);
    }
    harpe_conduct_sums_end_round(sums, &round);
}

/* ---- The stored state ------------------------------------------------------------------------ */

#define NUMBER(member) HARPE_STORED(harpe_conduct_sums, member, -1, 1e15)

static const harpe_stored_member MEMBERS[] = {
    NUMBER(rounds),
    NUMBER(spoiled_rounds),
    NUMBER(spoiled),
    NUMBER(last_round),
    NUMBER(last_reasons),
    NUMBER(last_rank),
    NUMBER(wanted_mhz),
    NUMBER(held_mhz),
    NUMBER(disobedient_rank),
    NUMBER(told_rounds),
    NUMBER(steps),
    NUMBER(as_planned),
    NUMBER(misfits),
    NUMBER(disobeyed),
    NUMBER(lost),
    NUMBER(left_out),
    NUMBER(tokens_per_step),
    NUMBER(compared_ranks),
    NUMBER(worst_rank),
    HARPE_STORED_DOUBLES(harpe_conduct_sums, all, -1, 1e15),
    HARPE_STORED_DOUBLES(harpe_conduct_sums, worst, -1, 1e15),
};
static const harpe_stored TABLE = HARPE_STORED_TABLE(harpe_conduct_sums, MEMBERS);

json_t *harpe_conduct_sums_save(const harpe_conduct_sums *sums) {
    return harpe_stored_save(&TABLE, sums);
}

bool harpe_conduct_sums_load(harpe_conduct_sums *sums, const json_t *json) {
    return harpe_stored_load(&TABLE, sums, json);
}
