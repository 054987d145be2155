/* SPDX-License-Identifier: Apache-2.0 */
/* A tuning finds and holds the setting (a clock, a power limit, or both) with which a program needs
 * the least energy and is hardly slower. A thread of the library tries settings while the program
 * runs unchanged, and compares each of them with the highest setting in turns. `harpe tune` tunes
 * any command in this way. docs/tune.md describes how work is measured and how a setting is chosen.
 *
 * A tuning never makes a program fail or wait. After a fault, the thread logs one line, restores
 * the GPUs and changes no more settings. If a GPU cannot be restored, the log says so. */
#ifndef HARPE_TUNE_H
#define HARPE_TUNE_H

#include <stdbool.h>
#include <stdint.h>

#include <harpe/api.h>
#include <harpe/callback.h>
#include <harpe/gpu.h>
#include <harpe/status.h>

HARPE_BEGIN_DECLS

typedef struct harpe_tuning harpe_tuning;

typedef enum harpe_tuning_aim {
    HARPE_TUNING_ENERGY = 0, /* least energy per unit of work */
    HARPE_TUNING_COST = 1,   /* least eta * energy + (1 - eta) * highest power limit * time */
    HARPE_TUNING_TIME = 2,   /* least time */
} harpe_tuning_aim;

/* Initialise with zeros, then set the members that you need. Texts are copied. */
typedef struct harpe_tuning_options {
    harpe_gpus *gpus; /* all these GPUs get the same setting; must outlive the tuning */
    bool tunes_clock, tunes_limit; /* both false: tunes the clock */
    double max_slowdown;           /* share of time, above 0; 0: 0.02; INFINITY: no limit */
    harpe_tuning_aim aim;
    double eta;  /* HARPE_TUNING_COST: 0 (time) .. 1 (energy) */
    bool is_dry; /* change no setting, and estimate from readings what could be saved */
    /* The source of the work. If rate_url and rate_file are NULL, work is counted by marks
     * (harpe_tune_mark, harpe_power_limit_mark_step). If the program makes no marks, a period in
     * the power of the first GPU is a unit of work. */
    const char *rate_url;  /* page of metrics in Prometheus' format */
    const char *rate_name; /* NAME or NAME{label="value"}: the sum of these samples is the work */
    const char *latency_name; /* a histogram of the page, in seconds; NULL: none */
    double latency_p95_s;  /* limit of the latency's 95th percentile: a setting above the limit is
                            * too slow */
    const char *rate_file; /* file with a number, the work so far */
    const char *save_path; /* file from which the result is loaded at the start, and to which it is
                            * written at the end; NULL: none */
    harpe_log log;         /* called on the thread of the tuning */
} harpe_tuning_options;

typedef enum harpe_tuning_phase {
    HARPE_TUNING_WAITING,      /* no work was seen yet; no setting is changed */
    HARPE_TUNING_MEASURING,    /* measures the highest setting */
    HARPE_TUNING_TRYING,       /* compares a setting with the highest one */
    HARPE_TUNING_SETTLED,      /* holds the chosen setting */
    HARPE_TUNING_UNMEASURABLE, /* no setting is changed, because work cannot be measured */
    HARPE_TUNING_STOPPED,      /* after a fault; the GPUs are restored */
} harpe_tuning_phase;

/* The present results of a tuning. Slowdown and savings are shares of the time and energy at the
 * highest setting. The errors are half-widths of 95 % intervals. A value of 0 is not known. */
typedef struct harpe_tuning_report {
    harpe_tuning_phase phase;
    const char *meter;      /* how work is measured, such as "the program's marks"; NULL: not yet */
    int clock_mhz, limit_w; /* the chosen setting; 0: as the GPUs were found */
    int now_mhz, now_w;     /* the present setting; 0: as the GPUs were found */
    int trials;             /* number of settings that were compared with the highest one */
    int program_phases;     /* phases of the program that were told apart */
    double slowdown, slowdown_error; /* share of time */
    double slowest_minute;           /* estimated bound of the slowdown in each minute so far */
    double saved, saved_error;       /* share of energy per unit of work */
    double guess_low, guess_high;    /* is_dry: range of the saving of 19 of 20 measured programs */
    bool is_noise;                   /* the interval of `saved` contains 0 */
    double highest_j_per_work, chosen_j_per_work;
    double highest_s_per_work, chosen_s_per_work;
    /* All work that was counted, and time and energy of all GPUs up to its last unit. Times in
     * which the work or the energy is not known are left out of all three. If no energy is known,
     * `time_s` and `energy_j` are 0, and `work` is all work. */
    double work, time_s, energy_j;
    double used_j, highest_j; /* energy of the measured work, and an estimate of the energy that
                               * this work would have needed at the highest setting */
    double latency_p95_s;     /* of the last slice; 0: not known */
    bool is_restored;         /* settings were changed, and are restored */
    bool is_unrestored; /* a GPU could not be restored, or it is not known whether it is; the log
                         * says which one, and `harpe gpus --restore` tries again */
    const char
        *reason; /* why work cannot be measured, or why the tuning has stopped; NULL: neither */
} harpe_tuning_report;

/* Starts the thread, which changes no setting before the first work is seen. Fails with
 * HARPE_INVALID_ARGUMENT if an option is out of its range, or if `save_path` cannot be read. The
 * thread needs the same rights to set clocks or limits as the frequency controller and the power
 * limit optimizer. If these rights are missing, the log says so. Free with harpe_tune_stop. */
HARPE_API harpe_status harpe_tune_start(const harpe_tuning_options *options, harpe_tuning **out,
                                        harpe_error *error);
/* Counts finished units of work, such as steps or tokens. Any thread may call this function, which
 * never waits. `tuning` may be NULL: in a program that `harpe tune` has started, the units count
 * for the command's tuning. */
HARPE_API void harpe_tune_mark(harpe_tuning *tuning, uint64_t units);
/* Writes the present results. The texts of the report are valid until harpe_tune_stop. Any thread
 * may call this function. */
HARPE_API void harpe_tune_get_report(harpe_tuning *tuning, harpe_tuning_report *out);
/* Stops the thread, restores the GPUs, and frees the tuning. Writes the last report to `report`,
 * whose texts stay valid; `report` may be NULL. Writes the result to `save_path` if there is a
 * result. */
HARPE_API void harpe_tune_stop(harpe_tuning *tuning, harpe_tuning_report *report);

HARPE_END_DECLS

#endif
