/* SPDX-License-Identifier: Apache-2.0 */
/* The thread of a tuning. It finds a meter of the work, sets what the chooser asks for, measures a
 * slice of the program, and tells the chooser the result. All decisions about settings are the
 * chooser's, and a fault ends the tuning but never the program. */
#include "tune/tune_internal.h"

#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <harpe/monitor.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/wait.h"
#include "gpu/gpus.h"
#include "monitor/monitor.h"
#include "tune/chooser.h"

#define LOOK_S 0.1           /* between two looks at a running slice, in GPU time */
#define SLOW_LOOK_S 1.0      /* the same in a long slice */
#define CLOSE_LOOK_S 0.02    /* the same near the end of a slice, at least */
#define CLOSE_SHARE 0.05     /* the same as a share of the usual gap between two units */
#define OFTEN_S 0.05         /* between two marks */
#define FORCE_S 5.0          /* until a setting must be in force */
#define FORCE_LOOK_S 0.005   /* between two looks at it */
#define MARKS_FIRST_S 30.0   /* marks that come within this time are preferred to the period */
#define UNMEASURABLE_S 300.0 /* without any measure of work */
#define STANDING_S 10.0      /* after which a standing program gets the highest setting back */
#define LOST_S 60.0          /* without a period, in a slice */
#define PAUSE_GAPS 2.0       /* times the usual gap between two units */
#define REQUESTS_S 60.0      /* for a percentile of the latency */
#define LEAST_GUESS_S 1.0    /* of power, for a guess */
#define SHORTEST_NS INT64_C(1000000)
#define SLICE "tune slice" /* windows of the monitor */
#define WHOLE "tune whole"

enum {
    SETTING_SIZE = 48,
    MOST_REPEATS = 3, /* of a slice in which the program has paused */
};

struct harpe_tuning {
    harpe_tuning_options options; /* its texts are in `texts` */
    harpe_arena texts;
    harpe_meter_options meter_options;
    harpe_meter *meter;
    harpe_meter_kind kind; /* valid when work was found */
    harpe_work_count count;
    uint32_t step_source; /* which steps marks count; 0: not known yet */
    double grain;         /* by which the work rises at once; 0: not known */
    harpe_monitor *monitor;
    /* The report's totals when the window WHOLE began, and the count then and at the last totals.
     */
    double before_work, before_s, before_j, count_at_begin, count_told;
    harpe_knobs *knobs; /* NULL: not opened yet, or closed */
    harpe_chooser *chooser;
    harpe_tune_saved saved;         /* of an earlier run */
    int64_t start_ns, start_gpu_ns; /* the same moment on both clocks */
    _Atomic uint32_t is_over;       /* the thread must end; waits end at once */
    atomic_bool gives_up;
    pthread_t thread;
    bool has_thread;
    bool has_told_latency;
    bool is_unreadable;     /* the meter had no reading when it was last read */
    harpe_tune_setting now; /* what is set */
    bool is_between_units;  /* the last slice ended with a unit of work, just now */
    pthread_mutex_t lock;   /* guards the report */
    harpe_tuning_report report;
};

/* The reasons of all reports. They outlive the tuning. */
static const char *const slow_latency = "the latency is above its limit at the highest setting";
static const char *const no_work = "its work could not be counted";
static const char *const no_energy = "the energy of its GPUs could not be measured";

/* ---- Time ------------------------------------------------------------------------------------ */

static double now_s(const harpe_tuning *tuning) {
    return (double)(harpe_gpus_clock_ns(tuning->options.gpus) - tuning->start_gpu_ns) * 1e-9;
}

static bool is_over(const harpe_tuning *tuning) { return atomic_load(&tuning->is_over) != 0; }

/* Converts GPU time to real time; emulated GPUs may be faster. */
static int64_t real_ns(const harpe_tuning *tuning, double gpu_s) {
    double passed_ns = (double)(harpe_clock_ns() - tuning->start_ns);
    double gpu_ns = (double)(harpe_gpus_clock_ns(tuning->options.gpus) - tuning->start_gpu_ns);
    double ratio = passed_ns > 0 && gpu_ns > 0 ? passed_ns / gpu_ns : 1;
    int64_t pause_ns = (int64_t)(gpu_s * 1e9 * ratio);
    return pause_ns > SHORTEST_NS ? pause_ns : SHORTEST_NS;
}

static void pause_s(harpe_tuning *tuning, double gpu_s) {
    (void)harpe_wait_while(&tuning->is_over, 0, real_ns(tuning, gpu_s));
}

/* ---- The report ------------------------------------------------------------------------------ */

static void set_phase(harpe_tuning *tuning, harpe_tuning_phase phase, const char *reason) {
    harpe_lock(&tuning->lock);
    tuning->report.phase = phase;
    tuning->report.reason = reason;
    harpe_unlock(&tuning->lock);
}

/* Leaves out what was counted since the last totals: its work or its energy is not known. */
static void leave_out(harpe_tuning *tuning) {
    const harpe_tuning_report *so_far = &tuning->report;
    tuning->count_at_begin = tuning->count_told = tuning->count.total;
    tuning->before_work = so_far->energy_j > 0 ? so_far->work : 0;
    tuning->before_s = so_far->time_s;
    tuning->before_j = so_far->energy_j;
    (void)harpe_monitor_begin(tuning->monitor, WHOLE, true, NULL);
}

/* Adds what the monitor has counted, up to the last unit of work. Before the first unit, adds time
 * and energy alone. */
static void read_totals(harpe_tuning *tuning) {
    harpe_window_measurement whole = {0};
    double total = tuning->count.total;
    harpe_status status = harpe_monitor_peek(tuning->monitor, WHOLE, &whole, NULL);
    harpe_lock(&tuning->lock);
    if (status == HARPE_OK && (total > tuning->count_told || !(total > 0))) {
        tuning->report.work = tuning->before_work + total - tuning->count_at_begin;
        tuning->report.time_s = tuning->before_s + whole.time_s;
        tuning->report.energy_j = tuning->before_j + whole.total_gpu_energy_j;
    }
    if (!(tuning->report.energy_j > 0)) tuning->report.work = total;
    harpe_unlock(&tuning->lock);
    tuning->count_told = total;
    harpe_window_measurement_clear(&whole);
    if (status != HARPE_OK) leave_out(tuning);
}

static void read_chooser(harpe_tuning *tuning) {
    harpe_lock(&tuning->lock);
    harpe_chooser_report(tuning->chooser, &tuning->report);
    tuning->report.now_mhz = tuning->now.value[HARPE_TUNE_CLOCK];
    tuning->report.now_w = tuning->now.value[HARPE_TUNE_LIMIT];
    harpe_unlock(&tuning->lock);
}

void harpe_tune_get_report(harpe_tuning *tuning, harpe_tuning_report *out) {
    harpe_lock(&tuning->lock);
    *out = tuning->report;
    harpe_unlock(&tuning->lock);
}

/* ---- Settings -------------------------------------------------------------------------------- */

/* Writes a setting for people, such as "1185 MHz, 300 W". */
static const char *describe(char text[SETTING_SIZE], int clock_mhz, int limit_w) {
    if (clock_mhz > 0 && limit_w > 0)
        snprintf(text, SETTING_SIZE, "%d MHz, %d W", clock_mhz, limit_w);
    else
        snprintf(text, SETTING_SIZE, "%d %s", clock_mhz > 0 ? clock_mhz : limit_w,
                 clock_mhz > 0 ? "MHz" : "W");
    return text;
}

/* Restores the GPUs. Returns how they are then, for people. */
static const char *close_knobs(harpe_tuning *tuning) {
    bool were_open = tuning->knobs && harpe_knobs_are_open(tuning->knobs);
    bool are_restored = harpe_knobs_close(tuning->knobs);
    tuning->knobs = NULL;
    tuning->now = (harpe_tune_setting){.value = {0}};
    harpe_lock(&tuning->lock);
    tuning->report.now_mhz = tuning->report.now_w = 0;
    tuning->report.is_restored = tuning->report.is_restored || (were_open && are_restored);
    tuning->report.is_unrestored = tuning->report.is_unrestored || !are_restored;
    harpe_unlock(&tuning->lock);
    return are_restored ? "the GPUs are as they were found" : "not all GPUs are restored";
}

/* Puts everything back after a fault. The program goes on. */
static void stop_tuning(harpe_tuning *tuning, const harpe_error *error) {
    const char *gpus = close_knobs(tuning);
    harpe_log_line(&tuning->options.log, HARPE_LOG_WARNING, "%s; %s, and the program %s untuned",
                   error->message, gpus, is_over(tuning) ? "ran" : "runs on");
    set_phase(tuning, HARPE_TUNING_STOPPED,
              error->status == HARPE_ALREADY_EXISTS
                  ? "another job holds a GPU, or has left it changed"
                  : "a fault has stopped the tuning");
}

static harpe_status open_knobs(harpe_tuning *tuning, harpe_error *error) {
    const harpe_tuning_options *options = &tuning->options;
    const bool wanted[HARPE_TUNE_KNOBS] = {
        [HARPE_TUNE_CLOCK] = options->tunes_clock, [HARPE_TUNE_LIMIT] = options->tunes_limit};
    return harpe_knobs_open(options->gpus, wanted, &tuning->gives_up, options->log, &tuning->knobs,
                            error);
}

/* Returns the highest power limits of all GPUs together, in W. */
static double highest_w(const harpe_tuning *tuning) {
    double sum_w = 0;
    for (int gpu = 0; gpu < harpe_gpus_count(tuning->options.gpus); gpu++) {
        uint32_t lowest_mw = 0;
        uint32_t highest_mw = 0;
        if (harpe_gpu_power_limit_range(tuning->options.gpus, gpu, &lowest_mw, &highest_mw, NULL) ==
            HARPE_OK)
            sum_w += highest_mw * 1e-3;
    }
    return sum_w > 0 ? sum_w : 1;
}

static harpe_status make_chooser(harpe_tuning *tuning, harpe_error *error) {
    const harpe_tuning_options *options = &tuning->options;
    harpe_chooser_options own = {.gpu_count = harpe_gpus_count(options->gpus),
                                 .max_slowdown = options->max_slowdown,
                                 .aim = options->aim,
                                 .eta = options->eta,
                                 .highest_w = highest_w(tuning),
                                 .saved = tuning->saved};
    for (int i = 0; i < HARPE_TUNE_KNOBS; i++)
        own.range[i] = harpe_knobs_range(tuning->knobs, (harpe_tune_knob)i);
    return harpe_chooser_new(&own, &tuning->chooser, error);
}

/* Sets the GPUs, and waits until the setting is in force. */
static harpe_status apply(harpe_tuning *tuning, harpe_tune_setting setting, harpe_error *error) {
    char text[SETTING_SIZE];
    bool is_in_force = false;
    double give_up_s = now_s(tuning) + FORCE_S;
    harpe_status status = harpe_knobs_set(tuning->knobs, setting, error);
    tuning->now = setting;
    while (status == HARPE_OK && !is_over(tuning)) {
        status = harpe_knobs_check(tuning->knobs, &is_in_force, error);
        if (status != HARPE_OK || is_in_force) break;
        if (now_s(tuning) > give_up_s)
            return harpe_fail(
                error, HARPE_DRIVER_ERROR, "the GPUs ignore %s, or another program sets them",
                describe(text, setting.value[HARPE_TUNE_CLOCK], setting.value[HARPE_TUNE_LIMIT]));
        pause_s(tuning, FORCE_LOOK_S);
    }
    return status;
}

/* ---- Work ------------------------------------------------------------------------------------ */

static void tell_meter(harpe_tuning *tuning) {
    const char *name = harpe_meter_name(tuning->meter, tuning->kind);
    harpe_log_line(&tuning->options.log, HARPE_LOG_INFO, "work is measured by %s", name);
    harpe_lock(&tuning->lock);
    tuning->report.meter = name;
    harpe_unlock(&tuning->lock);
}

static harpe_work_news read_work(harpe_tuning *tuning) {
    double asked_s = now_s(tuning);
    double work = harpe_meter_read(tuning->meter, tuning->kind);
    uint32_t source = harpe_meter_step_source(tuning->meter);
    /* The page shows the count of some moment between the request and the answer. */
    double read_s = (asked_s + now_s(tuning)) / 2;
    bool was_counted = tuning->count.is_known;
    harpe_work_news news = harpe_work_count_take(&tuning->count, work, read_s);
    tuning->is_unreadable = isnan(work);
    if (news == HARPE_WORK_LOST || was_counted != tuning->count.is_known) leave_out(tuning);
    if (source == tuning->step_source || tuning->kind != HARPE_METER_MARKS) return news;
    bool was_known = tuning->step_source != 0;
    tuning->step_source = source;
    if (!was_known || source == 0) return news;
    /* Steps of another kind follow, such as batches after steps of an optimizer. */
    tuning->grain = 0;
    tell_meter(tuning);
    return HARPE_WORK_LOST;
}

/* Waits until the meter may show more work, for at most `longest_s`. */
static void wait_for_work(harpe_tuning *tuning, double longest_s) {
    double own_s = harpe_meter_pause_s(tuning->kind);
    if (own_s > 0)
        pause_s(tuning, fmin(own_s, longest_s));
    else
        harpe_meter_wait_for_mark(tuning->meter, real_ns(tuning, longest_s));
}

/* Waits until a unit of work ends. Returns true if one has ended at this moment: a mark has come,
 * or a poll shows more work. Work that ended before the wait does not count. */
static bool sees_work_finish(harpe_tuning *tuning, double longest_s, harpe_work_news *news) {
    double before = tuning->count.work;
    wait_for_work(tuning, longest_s);
    *news = read_work(tuning);
    if (*news != HARPE_WORK_ROSE) return false;
    double rise = tuning->count.work - before;
    tuning->grain = tuning->grain > 0 ? 0.9 * tuning->grain + 0.1 * rise : rise;
    return true;
}

/* Returns the kind that the user has asked for; HARPE_METER_KINDS: none. */
static harpe_meter_kind asked_kind(const harpe_tuning *tuning) {
    for (int i = 0; i < HARPE_METER_KINDS; i++)
        if (harpe_meter_is_asked((harpe_meter_kind)i, &tuning->meter_options))
            return (harpe_meter_kind)i;
    return HARPE_METER_KINDS;
}

/* Says that there is no measure of work. */
static void set_unmeasurable(harpe_tuning *tuning) {
    const char *reason =
        "it marks no steps, and its power has no period that is stable for 20 periods";
    if (tuning->report.meter)
        reason = "it ended before its first measurement";
    else if (asked_kind(tuning) != HARPE_METER_KINDS)
        reason = "the counter that was named cannot be read, or did not move";
    else if (now_s(tuning) <= MARKS_FIRST_S)
        reason = "it marked no steps, and ended before a period of its power is looked for";
    set_phase(tuning, HARPE_TUNING_UNMEASURABLE, reason);
}

/* Looks for work until there is some. Returns false if the thread must end. */
static bool find_work(harpe_tuning *tuning) {
    harpe_meter_kind asked = asked_kind(tuning);
    bool samples = asked == HARPE_METER_KINDS && tuning->meter_options.has_period;
    bool has_told = false;
    tuning->kind = asked == HARPE_METER_KINDS ? HARPE_METER_MARKS : asked;
    while (!is_over(tuning)) {
        if (read_work(tuning) == HARPE_WORK_ROSE) return true;
        if (samples) (void)harpe_meter_read(tuning->meter, HARPE_METER_PERIOD);
        if (samples && now_s(tuning) > MARKS_FIRST_S && harpe_meter_finds_period(tuning->meter)) {
            tuning->kind = HARPE_METER_PERIOD;
            tuning->count = (harpe_work_count){.is_known = false};
            return true;
        }
        if (!has_told && now_s(tuning) > UNMEASURABLE_S) {
            set_unmeasurable(tuning);
            harpe_log_line(&tuning->options.log, HARPE_LOG_WARNING,
                           "cannot measure this program: %s; nothing is changed",
                           tuning->report.reason);
            has_told = true;
            samples = false; /* marks may still come */
        }
        if (samples)
            pause_s(tuning, harpe_meter_pause_s(HARPE_METER_PERIOD));
        else
            wait_for_work(tuning, SLOW_LOOK_S);
    }
    return false;
}

/* ---- Slices ---------------------------------------------------------------------------------- */

typedef enum slice_end {
    SLICE_TAKEN,
    SLICE_PAUSED,    /* the program paused; the slice can be repeated */
    SLICE_DROPPED,   /* a long pause, or a counter that was lost */
    SLICE_NO_ENERGY, /* an energy counter restarted, or said what cannot be */
    SLICE_FAULT,
    SLICE_OVER, /* the thread must end */
} slice_end;

static bool is_highest(const harpe_tuning *tuning) {
    harpe_tune_setting highest = harpe_chooser_highest(tuning->chooser);
    return memcmp(&highest, &tuning->now, sizeof highest) == 0;
}

/* Says that no work is counted any more: the program pauses for long, or its counter has stopped.
 */
static bool tell_standing(const harpe_tuning *tuning, double now) {
    double stood_s = now - tuning->count.changed_s;
    if (stood_s < (tuning->is_unreadable ? STANDING_S : LOST_S)) return false;
    harpe_log_line(&tuning->options.log, HARPE_LOG_WARNING, "no work was counted for %.0f s: %s %s",
                   stood_s, harpe_meter_name(tuning->meter, tuning->kind),
                   tuning->is_unreadable ? "cannot be read" : "stands still");
    return true;
}

/* Waits until the count changes, so that the slice begins with a unit. A program that stands still
 * gets the highest setting, because whatever it does now was not measured. */
static slice_end align(harpe_tuning *tuning, harpe_error *error) {
    double since_s = now_s(tuning);
    bool has_told = false;
    slice_end end = SLICE_TAKEN;
    (void)read_work(tuning);
    if (tuning->kind == HARPE_METER_PERIOD) return SLICE_TAKEN;
    while (!is_over(tuning)) {
        harpe_work_news news;
        bool has_finished = sees_work_finish(tuning, LOOK_S, &news);
        if (has_told && news != HARPE_WORK_SAME) {
            harpe_log_line(&tuning->options.log, HARPE_LOG_WARNING, "work is counted again");
            has_told = false;
        }
        if (has_finished) return end;
        double now = now_s(tuning);
        bool stands = harpe_work_count_stands(&tuning->count, now) && now > since_s + STANDING_S;
        if (stands && end == SLICE_TAKEN) {
            if (apply(tuning, harpe_chooser_highest(tuning->chooser), error) != HARPE_OK)
                return SLICE_FAULT;
            end = SLICE_DROPPED;
        }
        if (stands && !has_told) has_told = tell_standing(tuning, now);
    }
    return SLICE_OVER;
}

/* Finds a pause, or a period that is not found any more. Otherwise returns SLICE_TAKEN. */
static slice_end look_for_work(const harpe_tuning *tuning, const harpe_tune_slice *slice,
                               double now) {
    if (tuning->kind == HARPE_METER_PERIOD && !(slice->work > 0))
        return slice->time_s > LOST_S ? SLICE_DROPPED : SLICE_TAKEN;
    return harpe_work_count_stands(&tuning->count, now) ? SLICE_PAUSED : SLICE_TAKEN;
}

/* Returns how long to sleep until the next look at a slice. Near the end of a slice the looks come
 * often, so that the end of its last unit is seen soon. */
static double look_after_s(const harpe_tuning *tuning, const harpe_tune_order *order,
                           const harpe_tune_slice *slice) {
    double longest_s = fmin(fmax(order->time_s / 50, LOOK_S), SLOW_LOOK_S);
    longest_s = fmax(longest_s, harpe_meter_pause_s(tuning->kind));
    double left_s = order->time_s - slice->time_s;
    if (left_s > 0) return fmin(left_s, longest_s);
    return fmax(CLOSE_LOOK_S, fmin(tuning->count.usual_gap_s * CLOSE_SHARE, LOOK_S));
}

/* Returns false while the program may be pausing. If the units of this slice came in time and then
 * stop, the cause is a pause of the program, and not the clock. */
static bool can_judge_speed(const harpe_tuning *tuning, const harpe_tune_slice *slice) {
    if (slice->work > 0) return slice->rest_s < PAUSE_GAPS * tuning->count.usual_gap_s;
    return tuning->kind != HARPE_METER_PERIOD;
}

/* A percentile of the latency needs many requests. A slice waits up to REQUESTS_S for them. */
static bool is_long_enough(harpe_tuning *tuning, const harpe_tune_order *order,
                           const harpe_tune_slice *slice) {
    if (slice->time_s < order->time_s || slice->work < order->work) return false;
    return !tuning->options.latency_name || slice->time_s > REQUESTS_S ||
           !isnan(harpe_meter_latency_s(tuning->meter));
}

/* Begins a slice. If the one before ended with a unit of work, the slice begins at once, with the
 * change of the setting. Otherwise it begins with the first unit that begins at the setting. */
static slice_end begin_slice(harpe_tuning *tuning, const harpe_tune_order *order,
                             harpe_tune_slice *slice, double *begin_s, harpe_error *error) {
    bool begins_at_once = tuning->is_between_units && tuning->kind != HARPE_METER_PERIOD;
    bool is_change = memcmp(&tuning->now, &order->setting, sizeof tuning->now) != 0;
    tuning->is_between_units = false;
    if (!begins_at_once) {
        if (apply(tuning, order->setting, error) != HARPE_OK) return SLICE_FAULT;
        harpe_meter_begin(tuning->meter);
        slice_end end = align(tuning, error);
        if (end != SLICE_TAKEN) return end;
    }
    harpe_meter_begin(tuning->meter);
    if (harpe_monitor_begin(tuning->monitor, SLICE, true, error) != HARPE_OK) return SLICE_FAULT;
    *begin_s = tuning->kind == HARPE_METER_PERIOD ? now_s(tuning) : tuning->count.changed_s;
    if (begins_at_once && is_change) {
        if (apply(tuning, order->setting, error) != HARPE_OK) return SLICE_FAULT;
        slice->late_s = now_s(tuning) - *begin_s;
    }
    harpe_knobs_begin(tuning->knobs);
    return SLICE_TAKEN;
}

/* Lets a slice run until it is long enough, too slow, or lost. A slice ends when a unit of work
 * ends. A mark shows this end at once, and frequent looks show it soon. */
static slice_end run_slice(harpe_tuning *tuning, const harpe_tune_order *order, double begin_s,
                           double begin_work, harpe_tune_slice *slice) {
    double looked_s = begin_s;
    for (;;) {
        harpe_work_news news;
        double look_s = look_after_s(tuning, order, slice);
        /* Marks that come often need not wake this thread each time. */
        if (harpe_meter_pause_s(tuning->kind) <= 0 && tuning->count.usual_gap_s < OFTEN_S) {
            pause_s(tuning, look_s);
            if (read_work(tuning) == HARPE_WORK_LOST) return SLICE_DROPPED;
        }
        bool is_close =
            harpe_meter_pause_s(tuning->kind) <= CLOSE_LOOK_S || slice->time_s >= order->time_s;
        bool has_finished = sees_work_finish(tuning, look_s, &news) && is_close;
        double now = has_finished ? tuning->count.changed_s : now_s(tuning);
        if (is_over(tuning)) return SLICE_OVER;
        if (news == HARPE_WORK_LOST) return SLICE_DROPPED;
        slice->time_s = now - begin_s;
        slice->work = tuning->count.work - begin_work;
        slice->grain = tuning->grain;
        slice->rest_s = now - fmax(tuning->count.changed_s, begin_s);
        slice->blur_s = harpe_meter_pause_s(tuning->kind) > 0 ? now - looked_s : 0;
        looked_s = now;
        slice_end end = look_for_work(tuning, slice, now);
        if (end != SLICE_TAKEN) return end;
        if (can_judge_speed(tuning, slice) && harpe_chooser_is_too_slow(tuning->chooser, slice))
            return SLICE_TAKEN;
        if (has_finished && is_long_enough(tuning, order, slice)) {
            tuning->is_between_units = true;
            return SLICE_TAKEN;
        }
    }
}

/* If the latency is above its limit, the slice counts as one without work, and so as too slow. */
static void judge_latency(harpe_tuning *tuning, harpe_tune_slice *slice) {
    if (!tuning->options.latency_name) return;
    double latency_s = harpe_meter_latency_s(tuning->meter);
    harpe_lock(&tuning->lock);
    tuning->report.latency_p95_s = isfinite(latency_s) ? latency_s : 0;
    harpe_unlock(&tuning->lock);
    if (isnan(latency_s) || latency_s <= tuning->options.latency_p95_s) return;
    if (!is_highest(tuning)) {
        slice->work = 0;
        return;
    }
    if (!tuning->has_told_latency)
        harpe_log_line(&tuning->options.log, HARPE_LOG_WARNING, "%s", slow_latency);
    tuning->has_told_latency = true;
}

static slice_end measure(harpe_tuning *tuning, const harpe_tune_order *order,
                         harpe_tune_slice *slice, harpe_error *error) {
    harpe_window_measurement window = {0};
    double begin_s = 0;
    *slice = (harpe_tune_slice){.work = 0};
    slice_end end = begin_slice(tuning, order, slice, &begin_s, error);
    double begin_work = tuning->count.work;
    if (end == SLICE_TAKEN) end = run_slice(tuning, order, begin_s, begin_work, slice);
    if (end != SLICE_TAKEN) {
        (void)harpe_monitor_end(tuning->monitor, SLICE, true, NULL, NULL);
        return end;
    }
    harpe_status status = harpe_monitor_end(tuning->monitor, SLICE, false, &window, NULL);
    /* The monitor's window begins after the change of the count, and ends after the slice. */
    if (window.time_s > 0)
        slice->energy_j = window.total_gpu_energy_j * slice->time_s / window.time_s;
    harpe_window_measurement_clear(&window);
    if (harpe_knobs_were_held(tuning->knobs, error) != HARPE_OK) return SLICE_FAULT;
    judge_latency(tuning, slice);
    return status == HARPE_OK ? SLICE_TAKEN : SLICE_NO_ENERGY;
}

/* ---- The thread ------------------------------------------------------------------------------ */

/* Guesses the saving from the power since work began, as a share of the power limits. */
static void guess(harpe_tuning *tuning) {
    harpe_window_measurement window = {0};
    double limit_w = 0;
    for (int gpu = 0; gpu < harpe_gpus_count(tuning->options.gpus); gpu++) {
        uint32_t limit_mw = 0;
        (void)harpe_gpu_power_limit(tuning->options.gpus, gpu, &limit_mw, NULL);
        limit_w += limit_mw * 1e-3;
    }
    if (harpe_monitor_peek(tuning->monitor, SLICE, &window, NULL) != HARPE_OK || !(limit_w > 0))
        return;
    if (window.time_s > LEAST_GUESS_S) {
        harpe_tune_guess guessed =
            harpe_tune_guess_saving(window.total_gpu_energy_j / window.time_s / limit_w);
        harpe_lock(&tuning->lock);
        tuning->report.phase = HARPE_TUNING_MEASURING;
        tuning->report.saved = guessed.saved;
        tuning->report.guess_low = guessed.low;
        tuning->report.guess_high = guessed.high;
        harpe_unlock(&tuning->lock);
    }
    harpe_window_measurement_clear(&window);
}

/* Counts the work on without changing anything. */
static void follow(harpe_tuning *tuning) {
    while (!is_over(tuning)) {
        (void)read_work(tuning);
        read_totals(tuning);
        if (tuning->options.is_dry) guess(tuning);
        pause_s(tuning, SLOW_LOOK_S);
    }
}

static void tell_phase(harpe_tuning *tuning, harpe_tuning_phase before) {
    char text[SETTING_SIZE];
    harpe_tuning_report report;
    harpe_tune_get_report(tuning, &report);
    if (report.phase == before) return;
    if (report.phase == HARPE_TUNING_SETTLED)
        harpe_log_line(&tuning->options.log, HARPE_LOG_INFO, "settled after %d trials: %s",
                       report.trials, describe(text, report.clock_mhz, report.limit_w));
    if (report.phase == HARPE_TUNING_UNMEASURABLE)
        harpe_log_line(&tuning->options.log, HARPE_LOG_WARNING,
                       "cannot measure this program: %s; %s", report.reason, close_knobs(tuning));
}

/* Measures slices until the chooser has no use for more. If the program pauses in a slice, the
 * slice is measured again, up to MOST_REPEATS times, before the chooser is told. Otherwise a
 * program that pauses often would never let the chooser finish a comparison. */
static void choose(harpe_tuning *tuning) {
    harpe_error error;
    int repeats = 0;
    slice_end end = SLICE_TAKEN;
    harpe_tuning_phase phase = HARPE_TUNING_MEASURING;
    while (end != SLICE_OVER && end != SLICE_FAULT && phase != HARPE_TUNING_UNMEASURABLE) {
        harpe_tune_order order = harpe_chooser_next(tuning->chooser);
        harpe_tune_slice slice;
        end = measure(tuning, &order, &slice, &error);
        if (end == SLICE_PAUSED && ++repeats > MOST_REPEATS) end = SLICE_DROPPED;
        if (end != SLICE_PAUSED) repeats = 0;
        if (end == SLICE_TAKEN) harpe_chooser_take(tuning->chooser, &slice);
        if (end == SLICE_DROPPED) harpe_chooser_drop(tuning->chooser, no_work);
        if (end == SLICE_NO_ENERGY) harpe_chooser_drop(tuning->chooser, no_energy);
        read_chooser(tuning);
        read_totals(tuning);
        tell_phase(tuning, phase);
        phase = tuning->report.phase;
    }
    if (end == SLICE_FAULT && !is_over(tuning)) stop_tuning(tuning, &error);
}

static void *run(void *user) {
    harpe_tuning *tuning = user;
    harpe_error error;
    if (!find_work(tuning)) return NULL;
    tell_meter(tuning);
    if (tuning->options.is_dry) {
        (void)harpe_monitor_begin(tuning->monitor, SLICE, true, NULL);
    } else {
        harpe_status status = open_knobs(tuning, &error);
        if (status == HARPE_OK) status = make_chooser(tuning, &error);
        if (status == HARPE_OK)
            choose(tuning);
        else if (!is_over(tuning) || status == HARPE_ALREADY_EXISTS)
            stop_tuning(tuning, &error);
    }
    follow(tuning);
    return NULL;
}

/* ---- Start and end --------------------------------------------------------------------------- */

static harpe_status check_options(const harpe_tuning_options *options, harpe_error *error) {
    if (!options || !options->gpus)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "tuning: no GPUs were given");
    if (!(options->max_slowdown >= 0) || options->eta < 0 || options->eta > 1 ||
        (unsigned)options->aim > HARPE_TUNING_TIME)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "tuning: max_slowdown must be above 0, eta 0 to 1, and aim a known one");
    if (!options->rate_url != !options->rate_name)
        return harpe_fail(
            error, HARPE_INVALID_ARGUMENT,
            "tuning: a page of metrics needs a name of its samples, and a name a page");
    if (options->latency_name && (!options->rate_url || !(options->latency_p95_s > 0)))
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "tuning: a limit of the latency needs a page of metrics, and is above 0");
    return HARPE_OK;
}

static harpe_status own_options(harpe_tuning *tuning, const harpe_tuning_options *options,
                                harpe_error *error) {
    harpe_tuning_options *own = &tuning->options;
    *own = *options;
    const char **texts[] = {&own->rate_url, &own->rate_name, &own->latency_name, &own->rate_file,
                            &own->save_path};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (!*texts[i]) continue;
        *texts[i] = harpe_arena_strdup(&tuning->texts, *texts[i], strlen(*texts[i]));
        if (!*texts[i]) return harpe_fail_memory(error);
    }
    if (!own->tunes_limit) own->tunes_clock = true;
    if (!(own->max_slowdown > 0)) own->max_slowdown = 0.02;
    return HARPE_OK;
}

static harpe_status open_meter(harpe_tuning *tuning, const harpe_tune_sources *sources,
                               harpe_error *error) {
    const harpe_tuning_options *own = &tuning->options;
    bool is_runners = false;
    harpe_step_memory *marks =
        sources && sources->marks ? sources->marks : harpe_step_memory_own(&is_runners);
    if (!marks) return harpe_fail_memory(error);
    tuning->meter_options = (harpe_meter_options){
        .gpus = own->gpus,
        .marks = marks,
        .is_runners = is_runners,
        .output = sources ? sources->output : NULL,
        .url = own->rate_url,
        .name = own->rate_name,
        .latency_name = own->latency_name,
        .file = own->rate_file,
        .has_period = !(sources && sources->has_marks_only),
        .is_over = &tuning->is_over,
    };
    return harpe_meter_open(&tuning->meter_options, &tuning->meter, error);
}

static harpe_status prepare(harpe_tuning *tuning, const harpe_tune_sources *sources,
                            harpe_error *error) {
    const harpe_tuning_options *own = &tuning->options;
    harpe_monitor_options monitor = {.gpus = own->gpus};
    harpe_status status = open_meter(tuning, sources, error);
    if (status == HARPE_OK && own->save_path)
        status = harpe_saved_choice_read(own->save_path, own->gpus, &tuning->saved, error);
    if (status == HARPE_OK) status = harpe_monitor_new(&monitor, &tuning->monitor, error);
    if (status == HARPE_OK) status = harpe_monitor_begin(tuning->monitor, WHOLE, true, error);
    if (status != HARPE_OK) return status;
    tuning->start_ns = harpe_clock_ns();
    tuning->start_gpu_ns = harpe_gpus_clock_ns(own->gpus);
    int failure = harpe_thread_start(&tuning->thread, "harpe-tune", run, tuning);
    if (failure) return harpe_fail_errno(error, failure, "a thread for tuning");
    tuning->has_thread = true;
    return HARPE_OK;
}

harpe_status harpe_tune_start_with(const harpe_tuning_options *options,
                                   const harpe_tune_sources *sources, harpe_tuning **out,
                                   harpe_error *error) {
    harpe_status status = check_options(options, error);
    if (status != HARPE_OK) return status;
    harpe_tuning *tuning = harpe_calloc(1, sizeof *tuning);
    if (!tuning) return harpe_fail_memory(error);
    pthread_mutex_init(&tuning->lock, NULL);
    status = own_options(tuning, options, error);
    if (status == HARPE_OK) status = prepare(tuning, sources, error);
    if (status != HARPE_OK) {
        harpe_tune_stop(tuning, NULL);
        return status;
    }
    *out = tuning;
    return HARPE_OK;
}

harpe_status harpe_tune_start(const harpe_tuning_options *options, harpe_tuning **out,
                              harpe_error *error) {
    return harpe_tune_start_with(options, NULL, out, error);
}

void harpe_tune_mark(harpe_tuning *tuning, uint64_t units) {
    (void)tuning;
    harpe_step_memory_count(units);
}

static void save(const harpe_tuning *tuning) {
    harpe_error error;
    if (!tuning->options.save_path || !tuning->chooser || tuning->options.is_dry) return;
    harpe_tune_saved saved = harpe_chooser_save(tuning->chooser);
    if (!(saved.time_ratio > 0)) {
        harpe_log_line(&tuning->options.log, HARPE_LOG_WARNING,
                       "nothing is saved in %s: there is no result yet", tuning->options.save_path);
        return;
    }
    if (harpe_saved_choice_write(tuning->options.save_path, tuning->options.gpus, &saved, &error))
        harpe_log_line(&tuning->options.log, HARPE_LOG_WARNING, "the result is not saved: %s",
                       error.message);
}

void harpe_tune_stop(harpe_tuning *tuning, harpe_tuning_report *report) {
    if (!tuning) return;
    atomic_store(&tuning->gives_up, true);
    atomic_store(&tuning->is_over, 1);
    harpe_wake(&tuning->is_over);
    harpe_meter_wake(tuning->meter);
    if (tuning->has_thread) {
        harpe_thread_join(tuning->thread);
        (void)read_work(tuning);
        read_totals(tuning);
    }
    close_knobs(tuning);
    if (tuning->report.phase == HARPE_TUNING_WAITING) set_unmeasurable(tuning);
    save(tuning);
    if (report) *report = tuning->report;
    harpe_chooser_free(tuning->chooser);
    harpe_meter_close(tuning->meter);
    harpe_monitor_free(tuning->monitor);
    pthread_mutex_destroy(&tuning->lock);
    harpe_arena_free(&tuning->texts);
    free(tuning);
}
