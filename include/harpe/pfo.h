/* SPDX-License-Identifier: Apache-2.0 */
/* The pipeline frequency optimizer's models: what server, clients and schedulers say to each other
 * about a job, its ranks, their frequency schedules and what they measured. Plain data; JSON in
 * and out; the files that the server dumps and their readers.
 *
 * A model that a function made is owned by the caller and given back with its _free, which frees
 * what it holds and not the struct itself, leaves it zeroed, and may be called on a zeroed one.
 * Everything inside is in one or few allocations: never free a member. Nothing here has threads or
 * state. */
#ifndef HARPE_PFO_H
#define HARPE_PFO_H

#include <stdbool.h>
#include <stddef.h>

#include <harpe/api.h>
#include <harpe/status.h>

HARPE_BEGIN_DECLS

/* ---- Models ------------------------------------------------------------------------------- */

/* A job of world_size = pp_degree * dp_degree * tp_degree ranks, each >= 1. */
typedef struct harpe_job_info {
    const char *job_id; /* "" until the server gives it one */
    int pp_degree, dp_degree, tp_degree, world_size;
    const char *job_metadata; /* NULL: none */
    /* Harpe's own: registering again with the key of a job that lives gives that job's id, so that
     * ranks can meet and retries do no harm. 1 to 256 bytes; NULL: none. */
    const char *job_key;
} harpe_job_info;

/* One rank: its place in the job, and the graphics clocks its GPU can be locked to, in MHz, in any
 * order. */
typedef struct harpe_rank_info {
    int rank, dp_rank, pp_rank, tp_rank; /* >= 0 */
    const int *available_frequencies_mhz;
    size_t available_frequency_count;
} harpe_rank_info;

typedef struct harpe_scheduled_instruction {
    const char *instruction; /* as the training code names it: "forward", "backward" ... */
    int frequency_mhz;       /* 0: leave the clock alone */
} harpe_scheduled_instruction;

/* One rank's instructions of one iteration, in the order in which they run. */
typedef struct harpe_frequency_schedule {
    int rank;
    const harpe_scheduled_instruction *instructions;
    size_t instruction_count;
    /* Harpe's own: these frequencies are only tried, to be measured. A rank that hears no more of
     * its server should not stay at them. In JSON "trial", only where it is true. */
    bool is_trial;
} harpe_frequency_schedule;

/* Values of one instruction name: iteration i holds counts[i] values (one per time that the
 * instruction ran in it), from values[offsets[i]] on. */
typedef struct harpe_breakdown {
    const char *instruction;
    size_t iteration_count;
    const size_t *counts, *offsets; /* iteration_count of each */
    const double *values;
} harpe_breakdown;

/* What one rank measured in one round. Lists may have any length, also 0. */
typedef struct harpe_profiling_result {
    int rank;
    const double *iteration_time_s;
    size_t iteration_time_count;
    const double *iteration_energy_j;
    size_t iteration_energy_count;
    const harpe_breakdown *time_breakdown; /* s */
    size_t time_breakdown_count;
    const harpe_breakdown *energy_breakdown; /* J */
    size_t energy_breakdown_count;
} harpe_profiling_result;

/* A value at a frequency. */
typedef struct harpe_frequency_value {
    int frequency_mhz;
    double value;
} harpe_frequency_value;

/* What one rank's instructions take at each frequency, averaged: the rows of a profile. */
typedef struct harpe_offline_profiling_result {
    int rank, dp_rank, pp_rank, tp_rank;
    const harpe_frequency_value *forward_time_s, *forward_energy_j, *backward_time_s,
        *backward_energy_j;
    size_t forward_time_count, forward_energy_count, backward_time_count, backward_energy_count;
} harpe_offline_profiling_result;

HARPE_API void harpe_job_info_free(harpe_job_info *job);
HARPE_API void harpe_rank_info_free(harpe_rank_info *rank);
HARPE_API void harpe_frequency_schedule_free(harpe_frequency_schedule *schedule);
HARPE_API void harpe_profiling_result_free(harpe_profiling_result *result);
HARPE_API void harpe_offline_profiling_result_free(harpe_offline_profiling_result *result);

/* Deep copies, for those who keep what a callback shows them. */
HARPE_API harpe_status harpe_job_info_copy(const harpe_job_info *from, harpe_job_info *to,
                                           harpe_error *error);
HARPE_API harpe_status harpe_rank_info_copy(const harpe_rank_info *from, harpe_rank_info *to,
                                            harpe_error *error);
HARPE_API harpe_status harpe_frequency_schedule_copy(const harpe_frequency_schedule *from,
                                                     harpe_frequency_schedule *to,
                                                     harpe_error *error);
HARPE_API harpe_status harpe_profiling_result_copy(const harpe_profiling_result *from,
                                                   harpe_profiling_result *to, harpe_error *error);

/* ---- JSON --------------------------------------------------------------------------------- */

/* Parse one model. Unknown fields are ignored; integers may come as 4, 4.0 or "4"; nesting beyond
 * 64 levels, NaN and what does not fit is refused. HARPE_INVALID_INPUT names the first bad field
 * and says how many there are. */
HARPE_API harpe_status harpe_job_info_parse(const char *json, size_t length, harpe_job_info *out,
                                            harpe_error *error);
HARPE_API harpe_status harpe_rank_info_parse(const char *json, size_t length, harpe_rank_info *out,
                                             harpe_error *error);
HARPE_API harpe_status harpe_frequency_schedule_parse(const char *json, size_t length,
                                                      harpe_frequency_schedule *out,
                                                      harpe_error *error);
HARPE_API harpe_status harpe_profiling_result_parse(const char *json, size_t length,
                                                    harpe_profiling_result *out,
                                                    harpe_error *error);

/* Write one model as compact JSON. `*json` is NUL-terminated and to be freed with free(). */
HARPE_API harpe_status harpe_job_info_format(const harpe_job_info *job, char **json,
                                             harpe_error *error);
HARPE_API harpe_status harpe_rank_info_format(const harpe_rank_info *rank, char **json,
                                              harpe_error *error);
HARPE_API harpe_status harpe_frequency_schedule_format(const harpe_frequency_schedule *schedule,
                                                       char **json, harpe_error *error);
HARPE_API harpe_status harpe_profiling_result_format(const harpe_profiling_result *result,
                                                     char **json, harpe_error *error);

/* ---- Files -------------------------------------------------------------------------------- */

/* What the server dumps: JSON lists in rank order (ranks.json, K.sched.json, K.prof.json). Written
 * whole or not at all; reading takes at most 1 GiB. A list that was read is freed with its _free
 * below, which frees `items` too. */
HARPE_API harpe_status harpe_ranks_save(const char *path, const harpe_rank_info *ranks,
                                        size_t count, harpe_error *error);
HARPE_API harpe_status harpe_ranks_load(const char *path, harpe_rank_info **ranks, size_t *count,
                                        harpe_error *error);
HARPE_API void harpe_ranks_free(harpe_rank_info *ranks, size_t count);

HARPE_API harpe_status harpe_schedules_save(const char *path,
                                            const harpe_frequency_schedule *schedules, size_t count,
                                            harpe_error *error);
HARPE_API harpe_status harpe_schedules_load(const char *path, harpe_frequency_schedule **schedules,
                                            size_t *count, harpe_error *error);
HARPE_API void harpe_schedules_free(harpe_frequency_schedule *schedules, size_t count);

HARPE_API harpe_status harpe_profiling_results_save(const char *path,
                                                    const harpe_profiling_result *results,
                                                    size_t count, harpe_error *error);
HARPE_API harpe_status harpe_profiling_results_load(const char *path,
                                                    harpe_profiling_result **results, size_t *count,
                                                    harpe_error *error);
HARPE_API void harpe_profiling_results_free(harpe_profiling_result *results, size_t count);

/* Writes rank,dp_rank,pp_rank,tp_rank,stage,instruction,frequency,time,energy: all forward rows of
 * a rank, highest frequency first as they come, then its backward rows; stage is pp_rank. `path`
 * must end in .csv. A frequency that has a time and no energy, or the other way round, is
 * HARPE_INVALID_INPUT. */
HARPE_API harpe_status harpe_offline_profiling_results_write_csv(
    const char *path, const harpe_offline_profiling_result *results, size_t count,
    harpe_error *error);
/* The list as JSON ({"__root__": [...]} is accepted too). */
HARPE_API harpe_status harpe_offline_profiling_results_save(
    const char *path, const harpe_offline_profiling_result *results, size_t count,
    harpe_error *error);
HARPE_API harpe_status harpe_offline_profiling_results_load(
    const char *path, harpe_offline_profiling_result **results, size_t *count, harpe_error *error);
HARPE_API void harpe_offline_profiling_results_free(harpe_offline_profiling_result *results,
                                                    size_t count);

HARPE_END_DECLS

#endif
