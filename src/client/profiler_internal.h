/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of an instruction profiler: the curve of energy, its comparison with power, the powers
 * of instructions, and the profiler itself. */
#ifndef HARPE_CLIENT_PROFILER_INTERNAL_H
#define HARPE_CLIENT_PROFILER_INTERNAL_H

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/instruction_profiler.h>
#include <harpe/status.h>

#include "monitor/monitor.h"

/* ---- Curve of energy ------------------------------------------------------------------------- */

/* The energy that a GPU has used, as a curve of points in time, and the rhythm of the GPU's energy
 * counter. The counter changes every 10 to 100 ms and is constant in between, so its value is exact
 * only at the moments of its changes. Each point of the curve is such a change, with the
 * uncertainty of its moment. Several readings around a change make this uncertainty small. The
 * rhythm is the time from one change to the next. If a reading takes microseconds, as
 * usual, the curve asks for enough readings to find every change. Some drivers need milliseconds
 * for a reading, and keep a processor busy meanwhile (docs/gpu.md). Then the curve asks for few
 * readings, and leaves out some changes. If a GPU has no counter, the curve integrates the GPU's
 * power. The functions use no clock, lock or driver. */

enum { HARPE_RHYTHM_LENGTH = 8 };

typedef enum harpe_rhythm_mode {
    HARPE_RHYTHM_ALL,  /* the curve looks for every change */
    HARPE_RHYTHM_SOME, /* readings are slow: the curve looks for some of the changes */
    HARPE_RHYTHM_BLIND /* readings are slow, and the rhythm is too short or not known: the curve
                        * looks for no change, but asks for readings at regular intervals. After
                        * 256 such readings, the mode is HARPE_RHYTHM_ALL again */
} harpe_rhythm_mode;

/* Initialise with zeros. */
typedef struct harpe_counter_rhythm {
    int64_t intervals_ns[HARPE_RHYTHM_LENGTH]; /* the latest times between two changes */
    size_t interval_count;                     /* found since the rhythm was last forgotten */
    int64_t readings_ns[HARPE_RHYTHM_LENGTH];  /* the durations of the latest readings */
    size_t reading_count;
    harpe_rhythm_mode mode; /* set by harpe_energy_curve_delay_ns */
    int64_t offset;  /* number of rhythms by which the search for the next change was postponed */
    int64_t blur_ns; /* uncertainty of the moment of the last known change */
    int misses;      /* searches in a row that began after the change that they looked for */
    int changes;     /* known changes since the rhythm was last forgotten, at most 16 */
    int blind_readings; /* in HARPE_RHYTHM_BLIND, since the rhythm was last forgotten */
} harpe_counter_rhythm;

enum { HARPE_CURVE_POINTS_MAX = 1 << 20 };

/* A moment at which the energy is known. All times of a curve are GPU time. */
typedef struct harpe_curve_point {
    int64_t time_ns;
    int64_t blur_ns; /* uncertainty of the moment, in both directions */
    double energy_j;
    bool follows_gap; /* the energy used since the previous point is not known */
} harpe_curve_point;

/* Initialise with zeros. */
typedef struct harpe_energy_curve {
    harpe_curve_point *points; /* ascending times */
    size_t count, capacity;
    bool is_broken; /* a reading has failed, and none has succeeded since */
    bool has_gap;   /* true if a gap precedes the next point */
    bool has_reading;
    bool is_sampled; /* true for power, false for a counter */
    uint64_t counter_mj;
    int64_t unmoved_ns;     /* start of the last reading; the next change comes after this time */
    int64_t still_since_ns; /* time at which the last change, or the first value, was seen */
    double power_w;
    int64_t sampled_ns;
    double sampled_j;
    uint64_t samples;
    harpe_counter_rhythm rhythm;
} harpe_energy_curve;

void harpe_energy_curve_clear(harpe_energy_curve *curve);

/* Adds a reading of the counter: the reading began at `began_ns` and ended at `ended_ns`.
 * `counter_mj` must not be less than in the reading before, unless harpe_energy_curve_break was
 * called in between. */
void harpe_energy_curve_add_counter(harpe_energy_curve *curve, int64_t began_ns, int64_t ended_ns,
                                    uint64_t counter_mj);
/* Adds a reading of power. If this reading is more than `gap_ns` after the reading before, the
 * curve has a gap between them. */
void harpe_energy_curve_add_power(harpe_energy_curve *curve, int64_t time_ns, double power_w,
                                  int64_t gap_ns);
/* Records a failed reading: the energy from the last point to the next one is unknown. */
void harpe_energy_curve_break(harpe_energy_curve *curve);

/* Returns the time until the next reading. For power, this time is `period_ns` on average. For a
 * counter, the time is at most `period_ns`, and shorter if the counter is about to change. If
 * readings of the counter are slow, the time can be up to about 1 s. */
int64_t harpe_energy_curve_delay_ns(harpe_energy_curve *curve, int64_t now_ns, int64_t period_ns);

/* Returns the index of the last point at or before `time_ns`; SIZE_MAX: there is none. */
size_t harpe_energy_curve_find(const harpe_energy_curve *curve, int64_t time_ns);
/* Finds the points that enclose a period of time: `*first` is the last point at or before its
 * start, and `*last` is the first point at or after its end. Returns false if there are no such
 * points, or if a gap lies between them, because the energy of the period is then not known. */
bool harpe_energy_curve_covers(const harpe_energy_curve *curve, int64_t start_ns, int64_t end_ns,
                               size_t *first, size_t *last);
/* Returns true if the curve has a point at or after `time_ns`. */
bool harpe_energy_curve_has_passed(const harpe_energy_curve *curve, int64_t time_ns);
/* Removes points that are not needed for times from `time_ns` on. Some such points may remain. */
void harpe_energy_curve_trim(harpe_energy_curve *curve, int64_t time_ns);

/* ---- Comparison with power ------------------------------------------------------------------- */

/* Compares a GPU's energy counter with its integrated power, because the two may disagree
 * (https://github.com/ml-energy/zeus/issues/181). Power is sampled about ten times a second, by the
 * thread that also reads the counter. The check uses no clock, lock or driver. */

/* Initialise with zeros. */
typedef struct harpe_energy_check {
    bool has_sample;    /* there is a last sample, which the next sample is connected with */
    double wrong_share; /* probability that the last sample is wrong because it is late */
    int64_t sampled_ns;
    double sampled_w, sampled_j;
    double edge_j2; /* square of the uncertainty of the last sample's energy */
    /* Sums over all samples and over the time between connected samples. */
    double samples, sum_w, sum_w2, least_w, most_w;
    double intervals, time_s, counter_j, power_j;
    double late;     /* sum over the intervals: 0.5 for each end that is a late sample */
    double edges_j2; /* squares of the uncertainties at the begin of each unbroken stretch */
} harpe_energy_check;

/* The energies that counter and power give for the same time. All are 0 if there are too few
 * samples. */
typedef struct harpe_energy_comparison {
    double counter_j, power_j;
    double uncertainty_j; /* half-width of the 95 % confidence interval of the difference */
    double late_j;        /* the part of the uncertainty that late samples cause, with one sign */
} harpe_energy_comparison;

/* Returns the time until the next sample is due; negative: the sample is late by this time. */
int64_t harpe_energy_check_delay_ns(const harpe_energy_check *check, int64_t now_ns);
/* Adds a sample of power, which was read `late_ns` later than planned. The latest known change of
 * the counter was a change to `counter_j` at `changed_ns`, within `blur_ns` in both directions. The
 * counter may have changed since. */
void harpe_energy_check_add(harpe_energy_check *check, int64_t now_ns, int64_t late_ns,
                            double power_w, int64_t changed_ns, int64_t blur_ns, double counter_j);
/* Ends a stretch, because the counter restarted or could not be read. */
void harpe_energy_check_break(harpe_energy_check *check);
harpe_energy_comparison harpe_energy_check_compare(const harpe_energy_check *check);

/* ---- Powers ---------------------------------------------------------------------------------- */

/* These functions compute powers from steps and a curve of energy: one power per instruction and
 * frequency, one for waiting inside steps, and one for the time between steps. The powers are
 * unknowns that are fitted by least squares. Each row gives the time spent on each unknown and the
 * total energy of that time. The fit finds the powers that explain all rows best. A power that the
 * rows do not determine is the mean power, so the result is never a NaN. */

/* ---- Steps ----------------------------------------------------------------------------------- */

/* A step is a period of GPU time with the instructions that ran in it. A key identifies an
 * instruction at a frequency: the key is an index into a table of all such pairs so far. */

/* One run of an instruction, in GPU time. */
typedef struct harpe_span {
    int64_t start_ns, end_ns;
    size_t key;
} harpe_span;

typedef struct harpe_step {
    int64_t series, start_ns, end_ns;
    harpe_span *spans; /* one after the other */
    size_t span_count;
} harpe_step;

typedef struct harpe_step_key {
    int32_t frequency_mhz;
    uint8_t name; /* index of a name in the recorder */
} harpe_step_key;

typedef struct harpe_step_keys {
    harpe_step_key *items;
    size_t count, capacity;
} harpe_step_keys;

/* ---- The fit --------------------------------------------------------------------------------- */

/* Initialise with zeros. Unknowns are numbered from 0, and exist from their first use. */
typedef struct harpe_power_fit {
    size_t count, capacity;
    double *normal; /* capacity x capacity; lower triangle, weighted */
    double *right;
    double energy_j, time_s; /* weighted sums over all rows, from which the mean power follows */
} harpe_power_fit;

/* Adds one row: for each c in `columns`, the time time_s[c] was spent on unknown c. `columns`
 * contains no number twice. `blur_s` is the standard error of the row's length and determines its
 * weight. When out of memory, returns false and changes nothing. */
bool harpe_power_fit_add(harpe_power_fit *fit, const size_t *columns, size_t length,
                         const double *time_s, double energy_j, double blur_s);
bool harpe_power_fit_copy(const harpe_power_fit *from, harpe_power_fit *to);
void harpe_power_fit_clear(harpe_power_fit *fit);

/* Writes `count` powers, >= 0, to `power_w`. The power of an unknown that is in no row is the mean
 * (0 without rows). Returns false when out of memory. Takes time O(n^3) for n unknowns that are in
 * rows. */
bool harpe_power_fit_solve(const harpe_power_fit *fit, size_t count, double *power_w);
/* Returns true if the rows contain this unknown. */
bool harpe_power_fit_knows(const harpe_power_fit *fit, size_t column);

/* ---- Powers of steps ------------------------------------------------------------------------- */

/* Unknowns of the fit. */
enum { HARPE_COLUMN_WAITING = 0, HARPE_COLUMN_OUTSIDE, HARPE_COLUMN_FIRST_KEY };

/* Sums over everything that was measured in some steps. Initialise with zeros. */
typedef struct harpe_power_model {
    harpe_power_fit fit;
    double *time_s; /* total time of each key */
    size_t *runs;
    size_t key_count;
} harpe_power_model;

/* Adds steps in the order of time. The curve must have no gaps in the steps; gaps between steps
 * are allowed. `curve` NULL: times only. Returns false when out of memory; some steps may then
 * have been added. */
bool harpe_power_model_add(harpe_power_model *model, const harpe_step *steps, size_t count,
                           const harpe_energy_curve *curve, size_t key_count);
bool harpe_power_model_copy(const harpe_power_model *from, harpe_power_model *to);
void harpe_power_model_clear(harpe_power_model *model);

/* Returns the powers by column: HARPE_COLUMN_FIRST_KEY + key_count of them, which the caller
 * frees; NULL: out of memory. */
double *harpe_power_model_solve(const harpe_power_model *model, size_t key_count);

/* Computes the energy of each of `steps` from the curve. The energy between two points of the
 * curve is distributed according to the powers. The curve must cover every step. Returns false
 * when out of memory. */
bool harpe_step_energies(const harpe_step *steps, size_t count, const harpe_energy_curve *curve,
                         const double *power_w, size_t key_count, double *energy_j);

/* ---- The ring of time stamps ----------------------------------------------------------------- */

/* Passes time stamps from the training thread to the profiler's thread: a ring with one writer and
 * one reader. Writing is wait-free: no lock, no allocation, no system call. Reading
 * the clock is not a system call either. The recorder does not interpret the events. */

enum { HARPE_RECORDER_NAMES = 64, HARPE_RECORDER_NAME_SIZE = 64 };

typedef enum harpe_event_kind {
    HARPE_EVENT_BEGIN_STEP,
    HARPE_EVENT_END_STEP,
    HARPE_EVENT_CANCEL_STEP,
    HARPE_EVENT_BEGIN,
    HARPE_EVENT_END,
} harpe_event_kind;

typedef struct harpe_event {
    int64_t time_ns; /* CLOCK_MONOTONIC */
    int64_t value;   /* step: its series; instruction: its frequency in MHz */
    uint8_t kind;
    uint8_t name; /* instruction: index into `names` */
} harpe_event;

typedef struct harpe_recorder {
    /* Used by the writer. A name is stored before the first event that uses it. */
    alignas(64) uint64_t written;
    uint64_t known_read;
    unsigned name_count;
    bool is_recording; /* true during a step whose events have had room so far */
    char names[HARPE_RECORDER_NAMES][HARPE_RECORDER_NAME_SIZE];

    /* Written by the writer, read by both threads. */
    alignas(64) _Atomic uint64_t published;
    _Atomic uint64_t dropped_steps;
    harpe_event *events;
    uint64_t mask;

    alignas(64) _Atomic uint64_t read; /* number of events that the reader has read */
} harpe_recorder;

/* ---- Building steps -------------------------------------------------------------------------- */

enum { HARPE_STEP_KEYS_MAX = 2048 };

/* Initialise with zeros. */
typedef struct harpe_step_builder {
    harpe_step step;
    size_t capacity; /* capacity of `step.spans` */
    bool is_open, is_in_span;
    bool is_spoiled;        /* the step's instructions are invalid, or there was no memory */
    uint64_t spoiled_steps; /* number of spoiled steps since the start */
} harpe_step_builder;

/* ---- The profiler ---------------------------------------------------------------------------- */

/* CLOCK_MONOTONIC and GPU time at the same moment. */
typedef struct harpe_clock_pair {
    int64_t real_ns, gpu_ns;
} harpe_clock_pair;

/* The reasons for warnings. A member `_told` says whether the warning is logged. */
typedef struct harpe_profiler_warnings {
    bool is_unreadable_told;
    uint64_t restarts, restarts_told;
    bool is_no_room_told, is_spoiled_told;
    bool is_counter_still, is_counter_still_told; /* power is read instead of the counter */
    bool is_power_missing, is_power_missing_told; /* power cannot be read either */
} harpe_profiler_warnings;

struct harpe_instruction_profiler {
    harpe_recorder recorder;
    harpe_energy_source source;
    bool has_energy;    /* false: only times; changed with the lock held */
    bool has_counter;   /* false: power is integrated */
    bool has_no_power;  /* power cannot be compared with the counter; used only by the thread */
    bool has_had_power; /* power was read once; used only by the thread */
    harpe_counter counter;
    unsigned breaks; /* of the counter, at its last reading; used only by the thread */
    int gpu;
    int64_t period_ns; /* GPU time */
    harpe_log log;
    bool has_thread; /* false: the caller calls the ticks (for tests) */
    harpe_ticker *ticker;
    bool has_low_slack; /* true if the thread's timers have low slack; used only by the thread */
    int64_t reading_due_gpu_ns; /* when the energy is read next; used only by the thread */

    pthread_mutex_t lock; /* guards all members below */
    harpe_clock_pair origin, latest;
    int64_t last_event_ns; /* GPU time */
    harpe_energy_curve curve;
    harpe_step_builder builder;
    harpe_step_keys keys;
    harpe_step *steps; /* complete steps, in the order of time */
    size_t step_count, step_capacity;
    size_t known_count;          /* the energy of this many steps, from the first on, is known */
    size_t span_count;           /* number of spans in all steps */
    size_t kept_spans_max;       /* if there are more, the older half of the steps is removed */
    harpe_power_model forgotten; /* sums over the steps that were removed */
    harpe_profiler_warnings warnings;
    harpe_energy_check check;  /* compares the counter with the power */
    uint64_t impossible;       /* number of steps whose energy is impossible */
    uint64_t unmeasured_steps; /* steps that were removed because their energy is not known */
};

/* Does what harpe_instruction_profiler_new does, but reads energy from `source` and ignores
 * `options->gpus`. If `has_thread` is false, the profiler works only in calls of
 * harpe_profiler_tick (for tests). */
harpe_status harpe_profiler_new_on(const harpe_instruction_profiler_options *options,
                                   const harpe_energy_source *source, bool has_thread,
                                   harpe_instruction_profiler **out, harpe_error *error);

/* Reads the energy counter, and the power, if a reading is due. Then takes the recorded events out
 * of the ring and finds the steps whose energy is now known. Returns the real time in ns until the
 * next call. `user` is the profiler. */
int64_t harpe_profiler_tick(void *user);

/* Returns false in a forked child, where the lock may be held by a thread that does not exist. */
bool harpe_profiler_is_ours(const harpe_instruction_profiler *profiler);

/* What a rank reports about its measurements. */
typedef struct harpe_profiler_conduct {
    uint64_t lost_steps; /* steps whose time stamps or energies were lost, since the start */
    uint64_t impossible; /* impossible energies, since the start */
    harpe_energy_comparison energy;
} harpe_profiler_conduct;
harpe_profiler_conduct harpe_profiler_conduct_of(harpe_instruction_profiler *profiler);

/* When the instructions of some steps ran. */
typedef struct harpe_profiler_spans {
    size_t step_count, run_count; /* run_count: instructions of each step; 0: they differ */
    int *asked_mhz;               /* [run]: of the first step */
    uint64_t *us;                 /* [step][run][2]: begin and end, in GPU time */
} harpe_profiler_spans;
/* Copies the spans of the first `steps` steps of a series whose energy is known. The next result
 * reports the same steps. Returns false if there are fewer steps, or if memory runs out. Free with
 * harpe_profiler_spans_free. */
bool harpe_profiler_copy_spans(harpe_instruction_profiler *profiler, int64_t series, size_t steps,
                               harpe_profiler_spans *out);
void harpe_profiler_spans_free(harpe_profiler_spans *spans);

/* Adds the first `count` steps to the sums in `forgotten`, and removes them. Call it with the lock
 * held. */
void harpe_profiler_forget(harpe_instruction_profiler *profiler, size_t count);

#endif
