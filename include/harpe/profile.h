/* SPDX-License-Identifier: Apache-2.0 */
/* Instruction profiles: the measured time and energy of every pipeline instruction of every stage
 * at every GPU frequency. A profile is immutable once made and may be read from any thread. */
#ifndef HARPE_PROFILE_H
#define HARPE_PROFILE_H

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
    int rank;                /* who measured it, or -1 when the profile has no rank column */
    const char *instruction; /* "forward" or any other name of A-Z, a-z, 0-9, '_', '.', ':', '-' */
    int frequency_mhz;       /* 0: the clock was left alone */
    double time_s;           /* 1e-9 .. 1e6 */
    double energy_j;         /* 1e-12 .. 1e9, of all `gpu_count` GPUs together */
    int gpu_count;           /* number of GPUs whose summed energy is energy_j; 0 means 1 */
} harpe_measurement;

/* One aggregated point of a (stage, instruction). */
typedef struct harpe_profile_point {
    int frequency_mhz;
    double time_s;
    double energy_j;
} harpe_profile_point;

/* Everything known of one (stage, instruction). */
typedef struct harpe_profile_entry {
    int stage;
    const char *instruction;
    size_t point_count;                /* >= 1 */
    const harpe_profile_point *points; /* highest frequency first, each frequency once */
} harpe_profile_entry;

/* Rows of one rank that repeat a (stage, instruction, frequency) are averaged if the longest time
 * exceeds the shortest by at most this share, and the largest energy the smallest. Otherwise they
 * are an error. The times of two runs at one clock differ by 1 or 2 %. The power that a GPU reports
 * is accurate to 5 %, so the energies of two sound runs differ by at most about 10 %. */
#define HARPE_REPEAT_TIME_SPREAD_MAX 0.05
#define HARPE_REPEAT_ENERGY_SPREAD_MAX 0.10

/* Rows that repeat one measurement and were averaged. */
typedef struct harpe_profile_repeat {
    int stage;
    int rank; /* -1: the rows name no rank */
    const char *instruction;
    int frequency_mhz;
    size_t row_count;           /* >= 2 */
    size_t first_row, last_row; /* lines of the file, or indices of the caller's array */
    double time_spread;         /* largest / smallest - 1 */
    double energy_spread;       /* likewise */
} harpe_profile_repeat;

/* Reads a CSV file (columns stage,instruction,frequency,time,energy in any order; `rank` and `gpus`
 * used when present; other columns ignored). Rows that repeat a (stage, instruction, frequency) are
 * aggregated: over different ranks time is the maximum and energy the sum. Repeats by one rank, or
 * without a rank column, are averaged first; harpe_profile_repeat_at lists them. Repeats that
 * disagree (see HARPE_REPEAT_TIME_SPREAD_MAX) are an error that names both lines. `gpus` is
 * harpe_measurement.gpu_count. A frequency that not all ranks of a stage measured for an
 * instruction is left out of it. At most 256 MiB and 10 million rows. Errors name file:line:column
 * and the value.
 * `*out` is to be freed with harpe_profile_free. */
HARPE_API harpe_status harpe_profile_read_csv(const char *path, harpe_profile **out,
                                              harpe_error *error);

/* The same from memory; `name` stands for the file's name in errors. `text` need not end in NUL. */
HARPE_API harpe_status harpe_profile_parse_csv(const char *text, size_t length, const char *name,
                                               harpe_profile **out, harpe_error *error);

/* The same from rows already in memory. Errors name the row's index. */
HARPE_API harpe_status harpe_profile_new(const harpe_measurement *rows, size_t row_count,
                                         harpe_profile **out, harpe_error *error);

/* Writes the aggregated profile as CSV, completely or not at all. It has the column `gpus` if a
 * stage has more than one GPU. */
HARPE_API harpe_status harpe_profile_write_csv(const harpe_profile *profile, const char *path,
                                               harpe_error *error);

HARPE_API void harpe_profile_free(harpe_profile *profile);

/* Highest stage index + 1. Every stage below it has at least one row. */
HARPE_API int harpe_profile_stage_count(const harpe_profile *profile);

/* Number of GPUs whose summed energy the points of a stage have: the sum of gpu_count over the
 * ranks that measured it. 1 for a profile without ranks and gpu_count; 0 if there is no such stage.
 */
HARPE_API int harpe_profile_gpu_count(const harpe_profile *profile, int stage);

/* The repeats that were averaged, ordered by stage, instruction, falling frequency and rank. NULL
 * for an index that is not 0 .. count - 1. Valid while the profile exists. */
HARPE_API size_t harpe_profile_repeat_count(const harpe_profile *profile);
HARPE_API const harpe_profile_repeat *harpe_profile_repeat_at(const harpe_profile *profile,
                                                              size_t index);

/* Entries are sorted by stage, then by instruction name. Valid while the profile lives. */
HARPE_API size_t harpe_profile_entry_count(const harpe_profile *profile);
HARPE_API const harpe_profile_entry *harpe_profile_entry_at(const harpe_profile *profile,
                                                            size_t index);

/* The entry of one (stage, instruction), or NULL. */
HARPE_API const harpe_profile_entry *harpe_profile_find(const harpe_profile *profile, int stage,
                                                        const char *instruction);

/* What `harpe synth` makes: a physically sensible profile for people without one. */
typedef struct harpe_synth_options {
    const char *gpu_model; /* one of harpe_synth_gpu_models(); NULL: "A100" */
    int stages;            /* 1 .. 4096 */
    double imbalance;      /* slowest stage's work over the mean, 1 (perfectly even) up to
                              0.9 * stages + 0.1 (the others keep a tenth of the mean) */
    double noise;          /* relative standard deviation of each measured number, 0 .. 0.2 */
    uint64_t seed;         /* same options and seed: same profile, on every machine */
    double forward_time_s; /* mean forward time at the highest frequency; 0: 0.050 */
    bool split_backward;   /* also rows for backward_input and backward_weight */
} harpe_synth_options;

/* Makes a profile. `*blocking_power_w` (may be NULL) receives the model's blocking power in W. */
HARPE_API harpe_status harpe_profile_synthesize(const harpe_synth_options *options,
                                                harpe_profile **out, double *blocking_power_w,
                                                harpe_error *error);

/* NULL-terminated list of GPU model names known to harpe_profile_synthesize. Static storage. */
HARPE_API const char *const *harpe_synth_gpu_models(void);

HARPE_END_DECLS

#endif
