/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of a tuning share: knobs, meters and their parts, and the sources of a command.
 * Private to src/tune and `harpe tune`. */
#ifndef HARPE_TUNE_TUNE_INTERNAL_H
#define HARPE_TUNE_TUNE_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/callback.h>
#include <harpe/gpu.h>
#include <harpe/status.h>
#include <harpe/tune.h>

#include "power_limit/step_signal.h"
#include "tune/chooser.h"

/* ---- Knobs ----------------------------------------------------------------------------------- */

/* What can be set on the GPUs of a program: a table with the graphics clock and the power limit.
 * All GPUs get one setting. Processes that outlive this one restore the GPUs, however it ends. */

typedef struct harpe_knobs harpe_knobs;

/* Takes control of the GPUs, which must be of one model, and finds the values that all of them
 * have. The highest ones are then set. `gpus` must outlive the knobs. After a failure, `*out` is to
 * be closed too. Fails with HARPE_ALREADY_EXISTS if another process holds a GPU. */
harpe_status harpe_knobs_open(harpe_gpus *gpus, const bool wanted[HARPE_TUNE_KNOBS],
                              const atomic_bool *gives_up, harpe_log log, harpe_knobs **out,
                              harpe_error *error);
/* Returns true if a GPU may have been changed. */
bool harpe_knobs_are_open(const harpe_knobs *knobs);
/* Restores the GPUs. Returns false, and says which GPU it is, if one could not be restored or if it
 * is not known whether it is. NULL is allowed. */
bool harpe_knobs_close(harpe_knobs *knobs);

/* Returns the values of a knob; none if it is not wanted. */
harpe_tune_range harpe_knobs_range(const harpe_knobs *knobs, harpe_tune_knob which);

/* Asks for a setting; 0: the highest value. */
harpe_status harpe_knobs_set(harpe_knobs *knobs, harpe_tune_setting setting, harpe_error *error);
/* Reads back whether the setting is in force on all GPUs. Fails if the driver refuses it. */
harpe_status harpe_knobs_check(harpe_knobs *knobs, bool *is_in_force, harpe_error *error);
/* A slice begins: faults before it do not count. */
void harpe_knobs_begin(harpe_knobs *knobs);
/* Fails if a GPU has not held the setting since then, because it ignores it or because another
 * program sets it. A GPU that is slower because of its power limit or its heat has held it. */
harpe_status harpe_knobs_were_held(harpe_knobs *knobs, harpe_error *error);

/* ---- Counts of work -------------------------------------------------------------------------- */

/* Judges the readings of a meter: how much work was finished, and whether a reading is a pause, a
 * counter that restarted, or nonsense. Computes only. */

/* Initialise with zeros. Times are GPU time in s. */
typedef struct harpe_work_count {
    bool is_known;      /* there was a reading */
    double work;        /* the last one */
    double changed_s;   /* when it was first seen */
    double total;       /* all work that was finished since the first reading */
    double rises;       /* how often the work rose */
    double usual_gap_s; /* between two rises */
    double usual_rise;
} harpe_work_count;

typedef enum harpe_work_news {
    HARPE_WORK_SAME, /* also if there was no reading */
    HARPE_WORK_ROSE,
    HARPE_WORK_LOST, /* the counter ran back or jumped: what lies between is not known */
} harpe_work_news;

/* Takes a reading; NaN: there was none. */
harpe_work_news harpe_work_count_take(harpe_work_count *count, double work, double now_s);

/* Returns true if the work stands still for so long that the program pauses or the meter has
 * stopped. Never true before some rises are known. */
bool harpe_work_count_stands(const harpe_work_count *count, double now_s);

/* ---- Pages of metrics ------------------------------------------------------------------------ */

/* Reads a page of metrics in Prometheus' text format: the sum of the samples of one name, and the
 * buckets of one histogram. The page comes from another program, so nothing in it is trusted. */

enum { HARPE_PAGE_NAME_SIZE = 256, HARPE_PAGE_LABELS = 8, HARPE_PAGE_BUCKETS = 128 };

typedef struct harpe_page_label {
    char name[HARPE_PAGE_NAME_SIZE], value[HARPE_PAGE_NAME_SIZE];
} harpe_page_label;

/* The samples that count: those of a name, with at least these labels. */
typedef struct harpe_page_selector {
    char name[HARPE_PAGE_NAME_SIZE];
    harpe_page_label labels[HARPE_PAGE_LABELS];
    size_t label_count;
} harpe_page_selector;

/* Reads NAME or NAME{a="b",c="d"}. Fails with HARPE_INVALID_ARGUMENT; `what` is the user's name for
 * the text. */
harpe_status harpe_page_selector_parse(const char *what, const char *text, harpe_page_selector *out,
                                       harpe_error *error);

/* Adds the selected samples. Returns false, and writes nothing, if there are none, or if a sample
 * or the sum is not finite. Lines that are not understood are skipped. */
bool harpe_page_sum(const char *text, size_t length, const harpe_page_selector *selector,
                    double *sum);

/* How many observations were at most so large, in seconds, for all label sets together. Sorted by
 * the bounds, of which the last may be infinite. */
typedef struct harpe_page_histogram {
    double bound_s[HARPE_PAGE_BUCKETS], count[HARPE_PAGE_BUCKETS];
    size_t bucket_count;
} harpe_page_histogram;

/* Reads the samples <name>_bucket with the label `le`. Returns false, and leaves `out` undefined,
 * if there are none, too many, or one that cannot be. */
bool harpe_page_read_histogram(const char *text, size_t length, const harpe_page_selector *selector,
                               harpe_page_histogram *out);

/* Returns the quantile `share` (0 to 1) of the observations between two readings of one histogram,
 * interpolated inside of its bucket; infinite above the last finite bound. Returns NaN if fewer
 * than `least` observations lie between them, or if the histogram has restarted or changed. */
double harpe_page_quantile_s(const harpe_page_histogram *before, const harpe_page_histogram *after,
                             double share, double least);

/* ---- Periods of the power -------------------------------------------------------------------- */

/* Finds the period of a GPU's own activity in samples of its power: the time that a program needs
 * for one round of what it repeats. Computes only; meter.c takes the samples. */

enum { HARPE_PERIOD_SAMPLES = 2048 };

typedef struct harpe_power_samples {
    double time_s[HARPE_PERIOD_SAMPLES], power_w[HARPE_PERIOD_SAMPLES]; /* a ring */
    size_t count; /* of all samples so far; sample i is at index i modulo its size */
} harpe_power_samples;

void harpe_power_samples_add(harpe_power_samples *samples, double time_s, double power_w);

/* Finds the period of the power in the samples. They must contain at least `least` periods. If a
 * period is known, `near_s` is this period, and the new one is 0.8 to 1.7 times as long; 0: no
 * period is known. Returns false if the power does not repeat with the same period over all
 * samples. */
bool harpe_period_find(const harpe_power_samples *samples, double near_s, double least,
                       double *period_s);

/* ---- Meters ---------------------------------------------------------------------------------- */

/* Counts the work of a program: a table of sources, from marks of the program itself to the period
 * of its GPU's power. A reading may be missing or absurd at any time; it then only counts as no
 * reading. */

/* What a reader of a command's output has found (the regular expression of --rate-regex). */
typedef struct harpe_output_count {
    _Atomic uint64_t matches;
    _Atomic uint64_t number; /* bits of the last number, a double */
    _Atomic bool has_number; /* the expression has a group, and it was a number */
} harpe_output_count;

typedef struct harpe_meter_options {
    harpe_gpus *gpus;
    harpe_step_memory *marks;
    bool is_runners;                  /* another process waits for these marks */
    const harpe_output_count *output; /* NULL: none */
    const char *url, *name;           /* a page of metrics and the sum to read; NULL: none */
    const char *latency_name;         /* a histogram of the page; NULL: none */
    const char *file;                 /* a file with a number; NULL: none */
    bool has_period;                  /* may use the period of the first GPU's power */
    const _Atomic uint32_t *is_over;  /* not 0: a request to a page ends at once */
} harpe_meter_options;

typedef enum harpe_meter_kind {
    HARPE_METER_PAGE,
    HARPE_METER_FILE,
    HARPE_METER_OUTPUT,
    HARPE_METER_MARKS,
    HARPE_METER_PERIOD,
    HARPE_METER_KINDS,
} harpe_meter_kind;

typedef struct harpe_meter harpe_meter;

/* Returns what a kind counts, for people, such as "the program's marks". */
const char *harpe_meter_name(const harpe_meter *meter, harpe_meter_kind kind);
/* Returns what a mark counts, a value of harpe_step_source. It may change while the program runs:
 * the marks before the change counted other units. */
uint32_t harpe_meter_step_source(const harpe_meter *meter);
/* Returns the time between two readings, in seconds of GPU time; 0: marks wake the reader. */
double harpe_meter_pause_s(harpe_meter_kind kind);
/* Returns true if the user has asked for this kind, which is then the only one. */
bool harpe_meter_is_asked(harpe_meter_kind kind, const harpe_meter_options *options);

/* Opens every source that the options name. Fails with HARPE_INVALID_ARGUMENT for a wrong URL or
 * name. `options` and what it names must outlive the meter. */
harpe_status harpe_meter_open(const harpe_meter_options *options, harpe_meter **out,
                              harpe_error *error);
void harpe_meter_close(harpe_meter *meter);

/* Reads the cumulative work of a source. Returns NaN if it cannot be read now, is not finite, or is
 * too large to be work. For the period, also takes a sample of the power. */
double harpe_meter_read(harpe_meter *meter, harpe_meter_kind kind);
/* A slice begins: latencies and periods before it do not count. */
void harpe_meter_begin(harpe_meter *meter);
/* Returns true if the GPU's power has a stable period, of at least 20 samples of it. From then on
 * the period counts as work. */
bool harpe_meter_finds_period(harpe_meter *meter);
/* Returns the 95th percentile of the latency since the slice began, in s; NaN: not known. */
double harpe_meter_latency_s(harpe_meter *meter);

/* Waits for the next mark, for at most `longest_ns` of real time. */
void harpe_meter_wait_for_mark(harpe_meter *meter, int64_t longest_ns);
/* Ends the wait. Any thread may call it. */
void harpe_meter_wake(harpe_meter *meter);

/* ---- The file of a choice -------------------------------------------------------------------- */

/* The file of a finished choice (`harpe tune --save`), which a later run of the same program checks
 * in place of a search. */

/* Reads the file; zeros if there is none. Fails with HARPE_INVALID_INPUT if it is no such file, or
 * if it is for other GPUs. */
harpe_status harpe_saved_choice_read(const char *path, const harpe_gpus *gpus,
                                     harpe_tune_saved *out, harpe_error *error);
harpe_status harpe_saved_choice_write(const char *path, const harpe_gpus *gpus,
                                      const harpe_tune_saved *saved, harpe_error *error);

/* ---- Sources of a command -------------------------------------------------------------------- */

/* What `harpe tune` needs of a tuning beyond the public header: the sources of work that belong to
 * a command. */

typedef struct harpe_tune_sources {
    harpe_step_memory *marks;         /* NULL: this process's own */
    const harpe_output_count *output; /* NULL: none */
    bool has_marks_only;              /* true: the period of the power is not used */
} harpe_tune_sources;

/* Works like harpe_tune_start with the sources of a command, which outlive the tuning. */
harpe_status harpe_tune_start_with(const harpe_tuning_options *options,
                                   const harpe_tune_sources *sources, harpe_tuning **out,
                                   harpe_error *error);

#endif
