/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the work of a program: a table of sources, from marks of the program itself to the period
 * of its GPU's power. A reading may be missing or absurd at any time; it then only counts as no
 * reading. */
#ifndef HARPE_TUNE_METER_H
#define HARPE_TUNE_METER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <harpe/gpu.h>
#include <harpe/status.h>

#include "powerlimit/step_signal.h"

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
/* Returns which units of work marks count (harpe_step_source). Before a change they were others. */
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

#endif
