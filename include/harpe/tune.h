/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the clock, the power limit, or both, with which a program needs the least energy while it
 * is hardly slower, and holds them. A thread of the library measures: it compares settings with the
 * highest one in turns, while the program runs unchanged. `harpe tune` is this for any command;
 * docs/tune.md describes how work is measured and how settings are chosen.
 *
 * Tuning never makes a program fail or wait. After a fault the thread logs one line, restores the
 * GPUs and changes nothing more. */
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
    harpe_gpus *gpus; /* all of them are tuned, and get one setting; must outlive the tuning */
    bool tunes_clock, tunes_limit; /* both false: the clock */
    double max_slowdown;           /* share of time, above 0; 0: 0.02; INFINITY: any */
    harpe_tuning_aim aim;
    double eta;  /* HARPE_TUNING_COST: 0 (time) .. 1 (energy) */
    bool is_dry; /* change nothing, and estimate from readings what could be saved */
    /* How work is measured. All NULL: marks (harpe_tune_mark, harpe_power_limit_mark_step); if
     * there are none, the period of the power of the first GPU. */
    const char *rate_url;  /* page of metrics in Prometheus' format */
    const char *rate_name; /* NAME or NAME{label="value"}: the sum of these samples is the work */
    const char *latency_name; /* a histogram of the page, in seconds; NULL: none */
    double latency_p95_s;     /* its 95th percentile stays below this; otherwise the setting is too
                               * slow */
    const char *rate_file;    /* file with a number, the work so far */
    const char *save_path;    /* the result is loaded from this file, and written to it at the end;
                               * NULL: none */
    harpe_log log;            /* called on the thread of the tuning */
} harpe_tuning_options;

typedef enum harpe_tuning_phase {
    HARPE_TUNING_WAITING,      /* no work was seen yet; nothing is changed */
    HARPE_TUNING_MEASURING,    /* at the highest setting */
    HARPE_TUNING_TRYING,       /* compares a setting with the highest one */
    HARPE_TUNING_SETTLED,      /* holds the choice */
    HARPE_TUNING_UNMEASURABLE, /* nothing is changed: work cannot be measured */
    HARPE_TUNING_STOPPED,      /* after a fault; the GPUs are restored */
} harpe_tuning_phase;

/* What is known now. Shares are against the highest setting, which is measured in turns with the
 * others; an error is half of the 95 % interval. 0: not known. */
typedef struct harpe_tuning_report {
    harpe_tuning_phase phase;
    const char *meter;      /* how work is measured, such as "the program's marks"; NULL: not yet */
    int clock_mhz, limit_w; /* chosen; 0: as the GPUs were found */
    int now_mhz, now_w;     /* set now; 0: as the GPUs were found */
    int trials;             /* settings that were compared with the highest one */
    int program_phases;     /* phases of the program that were told apart */
    double slowdown, slowdown_error; /* share of time */
    double saved, saved_error;       /* share of energy per unit of work */
    double guess_low, guess_high; /* is_dry: of 20 measured programs, the saving of 19 is between */
    bool is_noise;                /* the saving's interval contains 0 */
    double highest_j_per_work, chosen_j_per_work;
    double highest_s_per_work, chosen_s_per_work;
    double work, time_s, energy_j; /* since the start: all work, and time and energy of all GPUs */
    double used_j, highest_j; /* of the work that was measured: the energy, and an estimate of the
                               * energy at the highest setting */
    double latency_p95_s;     /* of the last slice; 0: not known */
    bool is_restored;         /* settings were changed, and are as they were found */
    const char
        *reason; /* why work cannot be measured, or why the tuning has stopped; NULL: neither */
} harpe_tuning_report;

/* Starts the thread. Nothing is changed before the first work is seen. Fails with
 * HARPE_INVALID_ARGUMENT for an option that is out of its range, and if `save_path` cannot be read.
 * Needs the rights to set clocks or limits later, as the frequency controller and the power limit
 * optimizer do; if they are missing, the log says so. Free with harpe_tune_stop. */
HARPE_API harpe_status harpe_tune_start(const harpe_tuning_options *options, harpe_tuning **out,
                                        harpe_error *error);
/* Counts finished units of work, such as steps or tokens. Any thread may call it, and it never
 * waits. NULL is allowed. Under `harpe tune`, the units count for the command's tuning. */
HARPE_API void harpe_tune_mark(harpe_tuning *tuning, uint64_t units);
/* Writes what is known now. Its texts are valid until harpe_tune_stop. Any thread may call it. */
HARPE_API void harpe_tune_get_report(harpe_tuning *tuning, harpe_tuning_report *out);
/* Stops the thread, restores the GPUs, and writes the last report to `report` unless it is NULL;
 * its texts stay valid. Writes `save_path` if the choice has settled. Frees the tuning. */
HARPE_API void harpe_tune_stop(harpe_tuning *tuning, harpe_tuning_report *report);

HARPE_END_DECLS

#endif
