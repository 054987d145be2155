/* SPDX-License-Identifier: Apache-2.0 */
/* Instruction profiles contain the measured time and energy of every pipeline instruction of
 * every stage at every GPU frequency. A profile does not change after it is made, and any thread
 * may read it. */
#ifndef HARPE_PROFILE_H
#define HARPE_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/api.h>
#include <harpe/callback.h>
#include <harpe/status.h>

HARPE_BEGIN_DECLS

#define HARPE_INSTRUCTION_NAME_MAX 63 /* longest instruction name, in bytes */
#define HARPE_STAGE_MAX 65535         /* highest stage index */
#define HARPE_FREQUENCY_MAX_MHZ 100000

typedef struct harpe_profile harpe_profile;

/* One row of a profile as it was measured. */
typedef struct harpe_measurement {
    int stage;               /* 0-based (virtual) pipeline stage */
    int rank;                /* the rank that measured the row; -1: the profile has no rank
                              * column */
    const char *instruction; /* "forward" or any other name of A-Z, a-z, 0-9, '_', '.', ':', '-' */
    int frequency_mhz;       /* 0: the clock was left alone */
    double time_s;           /* 1e-9 .. 1e6 */
    double energy_j;         /* 1e-12 .. 1e9, the sum over all `gpu_count` GPUs */
    int gpu_count;           /* number of GPUs; energy_j is the sum of their energies; 0 means 1 */
    double blocking_power_w; /* watts that one GPU of the stage draws while it waits, up to 1e5;
                              * 0: not known. The same in all rows of a stage that have it */
    double switch_latency_s; /* seconds from the request for this frequency until the GPU has it, 0
                              * to 3600, rounded to microseconds. The same in all rows of a stage,
                              * rank and frequency. 0 in all rows: not known */
} harpe_measurement;

/* One aggregated point of a (stage, instruction). */
typedef struct harpe_profile_point {
    int frequency_mhz;
    double time_s;
    double energy_j;
} harpe_profile_point;

/* All points of one (stage, instruction). */
typedef struct harpe_profile_entry {
    int stage;
    const char *instruction;
    size_t point_count;                /* >= 1 */
    const harpe_profile_point *points; /* highest frequency first, each frequency once */
    /* The first points, whose frequencies the GPU did not reach, usually because of its power
     * limit; less than point_count. Only profiles of CSV text have it. Plans use none of these
     * points, except for what the highest frequencies cost. */
    size_t throttled_count;
} harpe_profile_entry;

/* Rows of one rank that repeat a (stage, instruction, frequency) are averaged if they differ by at
 * most these shares. The longest time may exceed the shortest by the first share, and the largest
 * energy may exceed the smallest by the second share. Larger differences are an error. The times of
 * two runs at one clock differ by 1 or 2 %. The power that a GPU reports is accurate to 5 %, so the
 * energies of two sound runs differ by at most about 10 %. */
#define HARPE_REPEAT_TIME_SPREAD_MAX 0.05
#define HARPE_REPEAT_ENERGY_SPREAD_MAX 0.10

/* Repeated rows of one measurement, which were averaged. */
typedef struct harpe_profile_repeat {
    int stage;
    int rank; /* -1: the rows have no rank */
    const char *instruction;
    int frequency_mhz;
    size_t row_count;           /* >= 2 */
    size_t first_row, last_row; /* lines of the file, or indices of the caller's array */
    double time_spread;         /* largest / smallest - 1 */
    double energy_spread;       /* largest / smallest - 1 */
} harpe_profile_repeat;

/* Reads a CSV file with the columns stage,instruction,frequency,time,energy in any order. The
 * columns `rank`, `gpus`, `blocking_power` and `switch_latency` are used if present; `gpus` is
 * harpe_measurement.gpu_count. The function ignores other columns.
 *
 * Rows that repeat a (stage, instruction, frequency) are aggregated. Over different ranks, the time
 * is the maximum and the energy is the sum. Rows repeated by one rank, or without a rank column,
 * are averaged first; harpe_profile_repeat_at lists them. Repeats that disagree (see
 * HARPE_REPEAT_TIME_SPREAD_MAX) are an error that names both lines. A point is left out if not all
 * ranks of its stage have measured the instruction at this frequency.
 *
 * Accepts at most 256 MiB and 10 million rows. Errors name file:line:column and the value. Free
 * `*out` with harpe_profile_free. */
HARPE_API harpe_status harpe_profile_read_csv(const char *path, harpe_profile **out,
                                              harpe_error *error);

/* Does the same with a text in memory. `name` replaces the file's name in errors. `text` need
 * not end in NUL. */
HARPE_API harpe_status harpe_profile_parse_csv(const char *text, size_t length, const char *name,
                                               harpe_profile **out, harpe_error *error);

/* Does the same with rows in memory. Errors contain the row's index. */
HARPE_API harpe_status harpe_profile_new(const harpe_measurement *rows, size_t row_count,
                                         harpe_profile **out, harpe_error *error);

/* Writes the aggregated profile as CSV, completely or not at all. It has the column `gpus` if a
 * stage has more than one GPU, and `blocking_power` and `switch_latency` if they are known. */
HARPE_API harpe_status harpe_profile_write_csv(const harpe_profile *profile, const char *path,
                                               harpe_error *error);

HARPE_API void harpe_profile_free(harpe_profile *profile);

/* Returns the highest stage index + 1. Every stage below it has at least one row. */
HARPE_API int harpe_profile_stage_count(const harpe_profile *profile);

/* Returns the number of GPUs of a stage: the sum of gpu_count over the ranks that measured the
 * stage. The energy of a point is the sum over these GPUs. Returns 1 for a profile without ranks
 * and without gpu_count, and 0 if there is no such stage. */
HARPE_API int harpe_profile_gpu_count(const harpe_profile *profile, int stage);

/* Returns the blocking power of one GPU of a stage, and 0 if the profile does not have it or there
 * is no such stage. */
HARPE_API double harpe_profile_blocking_power_w(const harpe_profile *profile, int stage);

/* Returns true if the profile has switching latencies: not all are 0. */
HARPE_API bool harpe_profile_has_switch_latency(const harpe_profile *profile);
/* Returns the seconds from the request for a frequency until the GPUs of a stage have it: the
 * longest of all ranks that measured the stage. 0 if the profile has no row for them. */
HARPE_API double harpe_profile_switch_latency_s(const harpe_profile *profile, int stage,
                                                int frequency_mhz);

/* List the repeats that were averaged, ordered by stage, instruction, falling frequency and
 * rank. NULL for an index that is not 0 .. count - 1. Valid while the profile exists. */
HARPE_API size_t harpe_profile_repeat_count(const harpe_profile *profile);
HARPE_API const harpe_profile_repeat *harpe_profile_repeat_at(const harpe_profile *profile,
                                                              size_t index);

/* Returns a sentence, without a full stop, about a row that is probably wrong, and NULL if there
 * are not so many sentences. A row is doubtful if its energy divided by its time and gpu_count is a
 * power that no GPU draws (below 5 W or above 3 kW), or if its time or energy is far from those of
 * the same instruction at the next frequencies. The sentences name the line of the file, or the
 * index in the caller's array. There are at most a few; the last one tells how many more rows are
 * doubtful. One more sentence tells which frequencies were not reached, if there are any (see
 * harpe_profile_entry.throttled_count). Valid while the profile exists. */
HARPE_API const char *harpe_profile_warning_at(const harpe_profile *profile, size_t index);

/* List the entries, sorted by stage, then by instruction name. Valid while the profile exists. */
HARPE_API size_t harpe_profile_entry_count(const harpe_profile *profile);
HARPE_API const harpe_profile_entry *harpe_profile_entry_at(const harpe_profile *profile,
                                                            size_t index);

/* Returns the entry of a (stage, instruction), or NULL. */
HARPE_API const harpe_profile_entry *harpe_profile_find(const harpe_profile *profile, int stage,
                                                        const char *instruction);

/* Parameters of a synthetic profile, which `harpe synth` makes for people without measurements.
 * Its model is physically plausible. */
typedef struct harpe_synth_options {
    const char *gpu_model; /* one of harpe_synth_gpu_models(); NULL: "A100" */
    int stages;            /* 1 .. 4096 */
    double imbalance;      /* work of the slowest stage divided by the mean, from 1 (perfectly
                            * even) to 0.9 * stages + 0.1 (the other stages keep a tenth of the
                            * mean) */
    double noise;          /* relative standard deviation of each measured number, 0 .. 0.2 */
    uint64_t seed;         /* the same options and seed give the same profile on every machine */
    double forward_time_s; /* mean forward time at the highest frequency; 0: 0.050 */
    bool split_backward;   /* adds rows for backward_input and backward_weight */
} harpe_synth_options;

/* Makes a synthetic profile. `*blocking_power_w` (may be NULL) receives the model's blocking
 * power in W. */
HARPE_API harpe_status harpe_profile_synthesize(const harpe_synth_options *options,
                                                harpe_profile **out, double *blocking_power_w,
                                                harpe_error *error);

/* Returns the NULL-terminated list of GPU model names that harpe_profile_synthesize knows.
 * Static storage. */
HARPE_API const char *const *harpe_synth_gpu_models(void);

HARPE_END_DECLS

#endif
