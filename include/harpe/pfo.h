/* SPDX-License-Identifier: Apache-2.0 */
/* The data models of the pipeline frequency optimizer. Server, clients and schedulers exchange
 * them to describe a job, its ranks, the frequency schedules and the measurements. They are
 * plain data. Functions here read and write them as JSON, and read and write the files that the
 * server dumps.
 *
 * The caller owns a model that a function made and frees it with the model's _free. That
 * function frees the contents and not the struct itself, sets the struct to zeros, and accepts a
 * struct of zeros. All contents are in one or a few allocations, so never free a member. These
 * functions keep no state and start no threads. */
#ifndef HARPE_PFO_H
#define HARPE_PFO_H

#include <stdbool.h>
#include <stddef.h>

#include <harpe/api.h>
#include <harpe/status.h>

HARPE_BEGIN_DECLS

/* ---- Models ---------------------------------------------------------------------------------- */

/* Describes a job of world_size = pp_degree * dp_degree * tp_degree ranks; each is >= 1. */
typedef struct harpe_job_info {
    const char *job_id; /* "" until the server assigns the id */
    int pp_degree, dp_degree, tp_degree, world_size;
    const char *job_metadata; /* NULL: none */
    /* Harpe's extension: 1 to 256 bytes; NULL: none. All ranks of a job give the same key. The
     * first registration with a key makes the job. Later registrations return the id of that job
     * while it runs, also to a rank that registers again. */
    const char *job_key;
} harpe_job_info;

/* Describes one rank: its place in the job, and the graphics clocks in MHz to which its GPU can
 * be locked, in any order. */
typedef struct harpe_rank_info {
    int rank, dp_rank, pp_rank, tp_rank; /* >= 0 */
    const int *available_frequencies_mhz;
    size_t available_frequency_count;
} harpe_rank_info;

typedef struct harpe_scheduled_instruction {
    const char *instruction; /* name in the training code: "forward", "backward", ... */
    int frequency_mhz;       /* 0: leave the clock alone */
} harpe_scheduled_instruction;

/* The instructions that one rank runs in an iteration, in order. */
typedef struct harpe_frequency_schedule {
    int rank;
    const harpe_scheduled_instruction *instructions;
    size_t instruction_count;
    /* Harpe's extension: the server tries these frequencies only to measure them, so a rank that
     * loses its server should not keep them. JSON has "trial" only if it is true. */
    bool is_trial;
} harpe_frequency_schedule;

/* The values of one instruction name. Iteration i has counts[i] values, one for each run of the
 * instruction. The first of them is values[offsets[i]]. */
typedef struct harpe_breakdown {
    const char *instruction;
    size_t iteration_count;
    const size_t *counts, *offsets; /* both have iteration_count elements */
    const double *values;
} harpe_breakdown;

/* The measurements of one rank in one round. Lists may have any length, also 0. */
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

/* The average time and energy of one rank's instructions at each frequency: the rows of a
 * profile. */
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

/* Make deep copies, for a caller that keeps a model beyond a callback. */
HARPE_API harpe_status harpe_job_info_copy(const harpe_job_info *from, harpe_job_info *to,
                                           harpe_error *error);
HARPE_API harpe_status harpe_rank_info_copy(const harpe_rank_info *from, harpe_rank_info *to,
                                            harpe_error *error);
HARPE_API harpe_status harpe_frequency_schedule_copy(const harpe_frequency_schedule *from,
                                                     harpe_frequency_schedule *to,
                                                     harpe_error *error);
HARPE_API harpe_status harpe_profiling_result_copy(const harpe_profiling_result *from,
                                                   harpe_profiling_result *to, harpe_error *error);

/* ---- JSON ------------------------------------------------------------------------------------ */

/* Parse one model. Unknown fields are ignored. Integers may be written as 4, 4.0 or "4". More
 * than 64 levels of nesting, NaN, and values that do not fit are refused. The message of
 * HARPE_INVALID_INPUT names the first invalid field and gives the number of invalid fields. */
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

/* Write one model as compact JSON. `*json` ends in NUL, and the caller frees it with free(). */
HARPE_API harpe_status harpe_job_info_format(const harpe_job_info *job, char **json,
                                             harpe_error *error);
HARPE_API harpe_status harpe_rank_info_format(const harpe_rank_info *rank, char **json,
                                              harpe_error *error);
HARPE_API harpe_status harpe_frequency_schedule_format(const harpe_frequency_schedule *schedule,
                                                       char **json, harpe_error *error);
HARPE_API harpe_status harpe_profiling_result_format(const harpe_profiling_result *result,
                                                     char **json, harpe_error *error);

/* ---- Files ----------------------------------------------------------------------------------- */

/* Save and load the files that the server dumps: JSON lists in rank order (ranks.json,
 * K.sched.json, K.prof.json). A file is written completely or not at all. Loading accepts at
 * most 1 GiB. Free a loaded list with its _free below, which also frees `items`. */
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

/* Writes the columns rank,dp_rank,pp_rank,tp_rank,stage,instruction,frequency,time,energy. The
 * ranks are in the order of the list. Each rank has all its forward rows, highest frequency first,
 * and then all its backward rows, in the same order. The stage is pp_rank. `path` must end in .csv.
 * Fails with HARPE_INVALID_INPUT if a frequency has a time but no energy, or an energy but no
 * time. */
HARPE_API harpe_status harpe_offline_profiling_results_write_csv(
    const char *path, const harpe_offline_profiling_result *results, size_t count,
    harpe_error *error);
/* Write and read the list as JSON. {"__root__": [...]} is also accepted. */
HARPE_API harpe_status harpe_offline_profiling_results_save(
    const char *path, const harpe_offline_profiling_result *results, size_t count,
    harpe_error *error);
HARPE_API harpe_status harpe_offline_profiling_results_load(
    const char *path, harpe_offline_profiling_result **results, size_t *count, harpe_error *error);
HARPE_API void harpe_offline_profiling_results_free(harpe_offline_profiling_result *results,
                                                    size_t count);

HARPE_END_DECLS

#endif
