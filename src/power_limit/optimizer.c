/* SPDX-License-Identifier: Apache-2.0 */
/* The power limit optimizer tries one limit after another while a job trains, and then holds the
 * best. The training loop's callbacks drive the state machine, which acts on a device. A selector
 * chooses the limit. docs/power-limit.md contains the rules as a table.
 *
 * After a failure of the device, the optimizer logs one line, restores everything, and no longer
 * uses the device. The ranks of a job meet: they make the same all-reduces in the same order, even
 * after a failure. So all ranks make the same decisions, and no rank waits forever. A job of one
 * process has no meetings.
 *
 * In a fleet, the server may ask for another plan. A job of one process checks this at every step.
 * The ranks of a larger job meet every few seconds of training, in the same step. In this meeting,
 * one rank passes on the plan that the server asks for, and each rank adds its power and says
 * whether it has failed. */
#include "power_limit/optimizer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "base/platform.h"
#include "gpu/settings.h"
#include "power_limit/profile_file.h"

#define WATCH_NS INT64_C(5000000000)

enum {
    DEFAULT_WAIT_STEPS = 1,
    DEFAULT_WARMUP_STEPS = 10,
    DEFAULT_PROFILE_STEPS = 40,
    DEFAULT_STEP_W = 25,
    STEPS_MAX = 1000000000,
    POWER_LIMIT_MAX_W = 1000000,
    COMPARED_MAX = 6, /* numbers that the ranks compare at once */
};

struct harpe_power_limit_optimizer {
    const harpe_power_limit_device *device;
    harpe_power_limit_options options; /* with defaults filled in; texts are owned */
    char *profile_path, *device_model;
    harpe_selector_parameters default_parameters; /* parameters of the default selector */

    int *limits_w; /* limits to try, highest first */
    size_t limit_count;
    harpe_power_limit_measurement *measurements;
    size_t measurement_count;

    harpe_power_limit_phase phase;
    size_t trial;   /* index into limits_w of the limit under trial, or of the next limit to try */
    int steps_left; /* calls of on_step_begin until the phase ends; in the phase DONE, until the
                     * ranks meet */
    int current_w;  /* last limit set; 0: none */
    int optimum_w;
    int64_t watch_ns; /* in the phase DONE, when to look next whether the limit still holds */
    char window[64];  /* name of the open window; "": none */
    /* This rank has failed, and the other ranks do not know it yet. Steps are still counted, so
     * that this rank takes part in the next meeting, but the device is not used. */
    bool failed_here;

    harpe_power_limit_fleet *terms; /* NULL: this rank is given no fleet */
    bool is_in_fleet;               /* the job is a member of a fleet; the same on all ranks */
    bool talks_to_fleet;            /* this rank talks to the server */
    int job_gpus;                   /* GPUs of all ranks */
    harpe_power_member *member;     /* NULL: this rank does not talk to the server */
    harpe_limit_plans *plans;       /* NULL: not measured yet */
    size_t plan;                    /* the plan that runs */
    int meeting_steps;              /* steps between two meetings of the ranks about the fleet */
};

/* ---- Failures -------------------------------------------------------------------------------- */

/* Returns true if this process no longer uses its device. */
static bool has_left(const harpe_power_limit_optimizer *optimizer) {
    return optimizer->failed_here || optimizer->phase == HARPE_POWER_LIMIT_FAILED;
}

/* Leaves the device: closes the open window and restores the saved settings. */
static harpe_status leave(harpe_power_limit_optimizer *optimizer, harpe_error *error) {
    const harpe_power_limit_device *device = optimizer->device;
    if (optimizer->window[0]) {
        harpe_error reason;
        if (device->end_window(device->user, optimizer->window, true, NULL, NULL, &reason) !=
            HARPE_OK)
            harpe_log_line(&optimizer->options.log, HARPE_LOG_DEBUG, "power limit: %s",
                           reason.message);
        optimizer->window[0] = '\0';
    }
    optimizer->current_w = 0;
    return device->restore ? device->restore(device->user, error) : HARPE_OK;
}

/* Leaves the device. The same fault often makes the restoration of the limits fail too, so one line
 * of the log reports both. */
static void leave_and_tell(harpe_power_limit_optimizer *optimizer, const char *reason) {
    harpe_error not_restored;
    if (leave(optimizer, &not_restored) == HARPE_OK) {
        harpe_log_line(
            &optimizer->options.log, HARPE_LOG_ERROR,
            "power limit optimization stops, limits are restored, and training continues: %s",
            reason);
    } else {
        harpe_log_line(
            &optimizer->options.log, HARPE_LOG_ERROR,
            "power limit optimization stops, and training continues: %s; not all limits could be "
            "restored yet (%s); the guard, if there is one, tries again at the end",
            reason, not_restored.message);
    }
    optimizer->optimum_w = 0;
    harpe_power_member_give_up(optimizer->member);
}

/* Stops the optimizer, logs the reason, and restores the limits. All ranks of a job call this
 * function in the same step. */
static void give_up(harpe_power_limit_optimizer *optimizer, const char *reason) {
    if (!optimizer->failed_here) leave_and_tell(optimizer, reason);
    optimizer->failed_here = false; /* no other rank needs to know */
    optimizer->phase = HARPE_POWER_LIMIT_FAILED;
}

/* Stops using this process's device after a failure. In a job of several ranks, this rank still
 * counts steps until the next meeting, in which it reports the failure. */
static void fail_here(harpe_power_limit_optimizer *optimizer, const char *reason) {
    leave_and_tell(optimizer, reason);
    if (optimizer->options.all_reduce)
        optimizer->failed_here = true;
    else
        optimizer->phase = HARPE_POWER_LIMIT_FAILED;
}

/* ---- Limits and windows ---------------------------------------------------------------------- */

/* The functions of this section do nothing after the optimizer has left its device. If the device
 * fails in one of them, the optimizer leaves it. */

static void set_limit(harpe_power_limit_optimizer *optimizer, int limit_w) {
    const harpe_power_limit_device *device = optimizer->device;
    if (has_left(optimizer) || limit_w == optimizer->current_w) return;
    harpe_error error;
    if (device->set_limit(device->user, limit_w, &error) != HARPE_OK) {
        fail_here(optimizer, error.message);
        return;
    }
    optimizer->current_w = limit_w;
}

/* Returns true if no less than `limit_w` is in force, except for the driver's rounding. */
static bool holds_limit(int in_force_w, int limit_w) {
    return in_force_w > limit_w ||
           harpe_is_power_limit((uint32_t)in_force_w * 1000, (uint32_t)limit_w * 1000);
}

/* Returns the limit in force, in W. It is the limit that was set, except for the driver's rounding.
 * If it is lower, or if another program has raised it, the optimizer leaves the device. */
static int check_limit(harpe_power_limit_optimizer *optimizer) {
    const harpe_power_limit_device *device = optimizer->device;
    int limit_w = optimizer->current_w;
    int in_force_w = 0;
    int gpu = 0;
    harpe_error error;
    if (has_left(optimizer) || !device->limit_in_force) return limit_w;
    if (device->limit_in_force(device->user, &in_force_w, &gpu, &error) != HARPE_OK) {
        fail_here(optimizer, error.message);
    } else if (!holds_limit(in_force_w, limit_w)) {
        (void)harpe_fail(&error, HARPE_DRIVER_ERROR,
                         "GPU %d: its power limit was set to %d W, but only %d W are in force: its "
                         "board, its rack or another program limits it to less; start the job "
                         "again to measure again",
                         gpu, limit_w, in_force_w);
        fail_here(optimizer, error.message);
    }
    return in_force_w;
}

/* Checks every few seconds of the phase DONE that no other program has raised the limit. If one
 * has, the optimizer leaves the device. */
static void watch_limit(harpe_power_limit_optimizer *optimizer) {
    const harpe_power_limit_device *device = optimizer->device;
    int in_force_w = 0;
    int gpu = 0;
    harpe_error error;
    if (has_left(optimizer) || !device->limit_in_force) return;
    if (harpe_clock_ns() < optimizer->watch_ns) return;
    optimizer->watch_ns = harpe_clock_ns() + WATCH_NS;
    if (device->limit_in_force(device->user, &in_force_w, &gpu, &error) == HARPE_OK) return;
    fail_here(optimizer, error.message);
    if (optimizer->is_in_fleet) return;
    optimizer->failed_here = false; /* the ranks do not meet any more */
    optimizer->phase = HARPE_POWER_LIMIT_FAILED;
}

static void begin_window(harpe_power_limit_optimizer *optimizer) {
    const harpe_power_limit_device *device = optimizer->device;
    (void)check_limit(optimizer);
    if (has_left(optimizer)) return;
    char name[sizeof optimizer->window];
    harpe_error error;
    snprintf(name, sizeof name, "__GlobalPowerLimitOptimizer_%d",
             optimizer->limits_w[optimizer->trial]);
    if (device->begin_window(device->user, name, &error) != HARPE_OK)
        fail_here(optimizer, error.message);
    else
        memcpy(optimizer->window, name, sizeof name);
}

static void check_window(harpe_power_limit_optimizer *optimizer) {
    const harpe_power_limit_device *device = optimizer->device;
    (void)check_limit(optimizer);
    if (has_left(optimizer) || !device->check_window) return;
    harpe_error error;
    if (device->check_window(device->user, &error) != HARPE_OK) fail_here(optimizer, error.message);
}

/* Ends the window, and writes the limit in force and the measured values to `one`. If `one` is
 * NULL, cancels the window. A value that cannot be true is a failure. */
static void end_window(harpe_power_limit_optimizer *optimizer, harpe_power_limit_measurement *one) {
    const harpe_power_limit_device *device = optimizer->device;
    if (one) one->power_limit_w = check_limit(optimizer);
    if (has_left(optimizer) || !optimizer->window[0]) return;
    char name[sizeof optimizer->window];
    memcpy(name, optimizer->window, sizeof name);
    optimizer->window[0] = '\0';
    double energy_j = NAN;
    double time_s = NAN;
    harpe_error error;
    if (device->end_window(device->user, name, !one, one ? &energy_j : NULL, one ? &time_s : NULL,
                           &error) != HARPE_OK) {
        fail_here(optimizer, error.message);
        return;
    }
    if (!one) return;
    if (!(energy_j > 0) || !(time_s > 0) || !isfinite(energy_j) || !isfinite(time_s)) {
        char reason[256];
        snprintf(reason, sizeof reason,
                 "at %d W the window took %s s and %s J, which cannot be used; raise profile_steps",
                 one->power_limit_w, HARPE_DIGITS(time_s, 6), HARPE_DIGITS(energy_j, 6));
        fail_here(optimizer, reason);
        return;
    }
    one->energy_j = energy_j;
    one->time_s = time_s;
}

/* ---- Meetings of all ranks ------------------------------------------------------------------- */

static harpe_status reduce(const harpe_power_limit_options *options, double *values, size_t count,
                           bool maximum, harpe_error *error) {
    if (!options->all_reduce) return HARPE_OK;
    return options->all_reduce(options->all_reduce_user, values, count, maximum, error);
}

/* Sets `*agree` to true if all ranks have the same values, otherwise to false. The comparison is
 * exact for whole numbers below 2^53. */
static harpe_status all_agree(const harpe_power_limit_options *options, const double *values,
                              size_t count, bool *agree, harpe_error *error) {
    double ends[2 * COMPARED_MAX]; /* highest and, with a minus sign, lowest */
    for (size_t i = 0; i < count; i++) {
        ends[2 * i] = values[i];
        ends[2 * i + 1] = -values[i];
    }
    *agree = true;
    harpe_status status = reduce(options, ends, 2 * count, true, error);
    for (size_t i = 0; i < count; i++)
        *agree = *agree && ends[2 * i] == -ends[2 * i + 1];
    return status;
}

/* Replaces the values by their sums over all ranks. The last value is 1 if this rank has failed
 * since the last meeting, otherwise 0. If a rank has failed, all ranks give up. Returns false if
 * the optimizer has given up. */
static bool share_sums(harpe_power_limit_optimizer *optimizer, double *sums, size_t count) {
    harpe_error error;
    bool is_shared = reduce(&optimizer->options, sums, count, false, &error) == HARPE_OK;
    if (is_shared && sums[count - 1] == 0) return true;
    give_up(optimizer, is_shared ? "it failed on another rank, whose log says why" : error.message);
    return false;
}

/* Combines this rank's measurement with those of the other ranks. Returns false if the optimizer
 * has given up. */
static bool share_measurement(harpe_power_limit_optimizer *optimizer,
                              harpe_power_limit_measurement *one) {
    double sums[2] = {optimizer->failed_here ? 0 : one->energy_j, optimizer->failed_here};
    /* Time, and the limits in force: the highest, and the lowest with a minus sign. */
    double most[3] = {optimizer->failed_here ? 0 : one->time_s, one->power_limit_w,
                      -one->power_limit_w};
    harpe_error error;
    if (!share_sums(optimizer, sums, 2)) return false;
    if (reduce(&optimizer->options, most, 3, true, &error) != HARPE_OK) {
        give_up(optimizer, error.message);
        return false;
    }
    if (most[1] != -most[2]) {
        give_up(optimizer, "the drivers of the ranks round a power limit differently");
        return false;
    }
    double time_s = most[0];
    if (!(sums[0] > 0) || !(time_s > 0) || !isfinite(sums[0]) || !isfinite(time_s)) {
        give_up(optimizer, "the all-reduce returned a value that cannot be true");
        return false;
    }
    one->energy_j = sums[0];
    one->time_s = time_s;
    return true;
}

static void share_failures(harpe_power_limit_optimizer *optimizer) {
    double failures = optimizer->failed_here;
    (void)share_sums(optimizer, &failures, 1);
}

/* The values of one rank in a meeting about the fleet, and afterwards their sums over all ranks. */
typedef struct fleet_meeting {
    double plan;       /* the plan to run; 0 on ranks that do not talk to the server */
    double power_w;    /* mean power since the last meeting */
    double unmeasured; /* 1: the rank's power is not known */
} fleet_meeting;

/* Replaces the values of the meeting by their sums. Returns false if the optimizer has given up. */
static bool share_fleet(harpe_power_limit_optimizer *optimizer, fleet_meeting *meeting) {
    double sums[4] = {meeting->plan, meeting->power_w, meeting->unmeasured, optimizer->failed_here};
    if (!share_sums(optimizer, sums, 4)) return false;
    *meeting = (fleet_meeting){sums[0], sums[1], sums[2]};
    return true;
}

/* Asks this rank's selector for a limit. If it chooses none, returns the highest measured limit. */
static int choose(const harpe_power_limit_optimizer *optimizer) {
    const harpe_power_limit_selector *selector = &optimizer->options.selector;
    int choice =
        selector->select(selector->user, optimizer->measurements, optimizer->measurement_count);
    if (choice < 0 || (size_t)choice >= optimizer->measurement_count) {
        harpe_log_line(&optimizer->options.log, HARPE_LOG_WARNING,
                       "the selector chose no power limit: the highest, %d W, is held",
                       optimizer->measurements[0].power_limit_w);
        choice = 0;
    }
    return optimizer->measurements[choice].power_limit_w;
}

/* Writes the selected limit to `*optimum_w`. All ranks get the same limit, even if their selectors
 * differ. */
static harpe_status ranks_choose(const harpe_power_limit_optimizer *optimizer, int *optimum_w,
                                 harpe_error *error) {
    int choice_w = choose(optimizer);
    double choice = choice_w;
    bool agree = true;
    harpe_status status = all_agree(&optimizer->options, &choice, 1, &agree, error);
    if (status != HARPE_OK) return status;
    if (!agree) {
        choice_w = optimizer->measurements[0].power_limit_w;
        harpe_log_line(
            &optimizer->options.log, HARPE_LOG_WARNING,
            "the ranks' selectors chose different power limits: the highest, %d W, is held",
            choice_w);
    }
    *optimum_w = choice_w;
    return HARPE_OK;
}

/* ---- The start ------------------------------------------------------------------------------- */

/* Cuts a number to the 53 bits that a double holds exactly. */
static double as_double(uint64_t bits) { return (double)(bits >> 11); }

/* Hashes the measurements with FNV-1a. The all-reduce compares the hashes as doubles. */
static double profile_hash(const harpe_power_limit_optimizer *optimizer) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < optimizer->measurement_count; i++) {
        const harpe_power_limit_measurement *one = &optimizer->measurements[i];
        const double values[] = {one->power_limit_w, one->energy_j, one->time_s};
        unsigned char bytes[sizeof values];
        memcpy(bytes, values, sizeof values);
        for (size_t k = 0; k < sizeof values; k++)
            hash = (hash ^ bytes[k]) * UINT64_C(0x100000001b3);
    }
    return as_double(hash);
}

/* Elects the rank that talks to the server. `candidates` is the number of ranks with a fleet in
 * their options. Each of them draws a random number, and the rank with the highest number is
 * elected. So the optimizer need not know the number of its rank, and the user may give the fleet
 * to one rank, to some ranks or to all. */
static harpe_status elect_for_fleet(harpe_power_limit_optimizer *optimizer, double candidates,
                                    harpe_error *error) {
    uint64_t random = 0;
    optimizer->is_in_fleet = candidates > 0;
    optimizer->talks_to_fleet = candidates == 1 && optimizer->terms;
    if (!(candidates > 1)) return HARPE_OK;
    /* The result is ignored, because the kernel always has this many random bytes. */
    (void)harpe_random(&random, sizeof random);
    double own = optimizer->terms ? 1 + as_double(random) : 0;
    double highest = own;
    harpe_status status = reduce(&optimizer->options, &highest, 1, true, error);
    optimizer->talks_to_fleet = optimizer->terms && own == highest;
    return status;
}

/* Meets all ranks at the start. `prepared` tells whether this rank's preparation has succeeded. A
 * rank that has failed must call this function too, because the others wait for it. Either all
 * ranks continue or none. */
static harpe_status ranks_meet_at_start(harpe_power_limit_optimizer *optimizer,
                                        harpe_status prepared, harpe_error *error) {
    const harpe_power_limit_options *options = &optimizer->options;
    double sums[3] = {prepared != HARPE_OK, optimizer->device->gpu_count, optimizer->terms ? 1 : 0};
    error = prepared == HARPE_OK ? error : NULL; /* keeps the text of the first error */
    /* With different settings, the ranks would not meet in the same steps. */
    const double settings[COMPARED_MAX] = {
        options->wait_steps, options->warmup_steps,        options->profile_steps,
        options->step_w,     optimizer->device->minimum_w, optimizer->device->maximum_w};
    double hash = profile_hash(optimizer);
    bool same_settings = true;
    bool same_profile = true;
    harpe_status status = reduce(options, sums, 3, false, error);
    if (status == HARPE_OK)
        status = all_agree(options, settings, COMPARED_MAX, &same_settings, error);
    if (status == HARPE_OK) status = all_agree(options, &hash, 1, &same_profile, error);
    if (prepared != HARPE_OK || status != HARPE_OK) return prepared ? prepared : status;
    if (sums[0] != 0) {
        return harpe_fail(error, HARPE_UNAVAILABLE,
                          "power limit: another rank could not start, its message says why");
    }
    if (!same_settings) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "power limit: the ranks differ in their step counts or in the range of "
                          "their GPUs' limits; give all the same");
    }
    if (!same_profile) {
        harpe_log_line(&optimizer->options.log, HARPE_LOG_WARNING,
                       "not every rank sees the same power limit profile: measuring again");
        optimizer->measurement_count = 0;
    }
    optimizer->job_gpus = (int)sums[1];
    if (optimizer->options.world_size == 0) optimizer->options.world_size = optimizer->job_gpus;
    return elect_for_fleet(optimizer, sums[2], error);
}

/* Returns HARPE_OK if every rank has set the limit. `set` is the outcome on this rank.
 * `*in_force_w` is the lowest limit in force on a GPU of this rank, and then of all ranks. */
static harpe_status ranks_share_first_set(const harpe_power_limit_optimizer *optimizer,
                                          harpe_status set, int limit_w, int *in_force_w,
                                          harpe_error *error) {
    double most[2] = {set != HARPE_OK, -*in_force_w}; /* the most of -x is the least of x */
    harpe_status status =
        reduce(&optimizer->options, most, 2, true, set == HARPE_OK ? error : NULL);
    if (set != HARPE_OK || status != HARPE_OK) return set ? set : status;
    *in_force_w = (int)-most[1];
    if (most[0] != 0) {
        return harpe_fail(error, HARPE_DRIVER_ERROR,
                          "power limit: another rank could not set %d W, its message says why",
                          limit_w);
    }
    return HARPE_OK;
}

/* ---- The fleet ------------------------------------------------------------------------------- */

#define MEETING_S 5.0 /* time of training between two meetings of the ranks */

enum { MEETING_STEPS_MAX = 1000000 };

/* Lets the job join the fleet, if it shall, on the rank that talks to the server. If that fails,
 * the log says why, and the job trains without a fleet. */
static void join_fleet(harpe_power_limit_optimizer *optimizer,
                       const harpe_power_member_times *times) {
    if (!optimizer->talks_to_fleet) return;
    bool is_alone = !optimizer->options.all_reduce;
    harpe_power_member_job job = {
        .highest_w = (double)optimizer->job_gpus * optimizer->device->maximum_w,
        .device = is_alone ? optimizer->device : NULL,
        .log = optimizer->options.log,
    };
    harpe_error error;
    if (harpe_power_member_join(optimizer->terms, &job, times, &optimizer->member, &error) !=
        HARPE_OK) {
        harpe_log_line(&optimizer->options.log, HARPE_LOG_WARNING,
                       "the job trains without a fleet: %s", error.message);
    }
}

/* Returns the number of steps between two meetings. It is the same on all ranks, because all have
 * the same measurements and settings. */
static int meeting_steps(const harpe_limit_plans *plans) {
    double steps = MEETING_S / plans->plans[plans->chosen].time_s;
    return steps < MEETING_STEPS_MAX ? (int)fmax(1, ceil(steps)) : MEETING_STEPS_MAX;
}

/* Called when the optimizer has reached the state Done: makes the plans. */
static void follow_begin(harpe_power_limit_optimizer *optimizer) {
    if (!optimizer->is_in_fleet || optimizer->phase != HARPE_POWER_LIMIT_DONE) return;
    harpe_error error;
    harpe_status status = harpe_limit_plans_make(
        optimizer->measurements, optimizer->measurement_count, optimizer->optimum_w,
        optimizer->options.profile_steps, &optimizer->plans, &error);
    if (status == HARPE_OK) {
        optimizer->plan = optimizer->plans->chosen;
        optimizer->steps_left = optimizer->meeting_steps = meeting_steps(optimizer->plans);
        harpe_power_member_take_plans(optimizer->member, optimizer->plans);
        return;
    }
    /* This happens on all ranks, because all have the same measurements. So none of them meets. */
    optimizer->is_in_fleet = false;
    harpe_log_line(&optimizer->options.log, HARPE_LOG_WARNING,
                   "the fleet cannot steer this job, training continues: %s", error.message);
}

/* Returns the plan to run. It is the plan that the server asks for, unless the limit of that plan
 * is higher than the limit that the selector has chosen. */
static size_t wanted_plan(const harpe_power_limit_optimizer *optimizer) {
    int64_t told = harpe_power_member_told(optimizer->member);
    size_t chosen = optimizer->plans->chosen;
    return told > (int64_t)chosen ? (size_t)told : chosen;
}

static void run_plan(harpe_power_limit_optimizer *optimizer, size_t plan) {
    if (plan == optimizer->plan) return;
    harpe_power_member_begin_change(optimizer->member);
    set_limit(optimizer, optimizer->plans->plans[plan].limit_w);
    if (!has_left(optimizer)) optimizer->plan = plan;
    harpe_power_member_end_change(optimizer->member, optimizer->plan);
}

/* Returns the mean power of this rank's GPUs since the last call, in W; 0: not known. */
static double mean_power_w(const harpe_power_limit_optimizer *optimizer) {
    const harpe_power_limit_device *device = optimizer->device;
    double power_w = 0;
    if (!device->mean_power || has_left(optimizer)) return 0;
    return device->mean_power(device->user, &power_w, NULL) == HARPE_OK ? power_w : 0;
}

static void meet(harpe_power_limit_optimizer *optimizer) {
    double power_w = mean_power_w(optimizer);
    fleet_meeting meeting = {
        .power_w = power_w,
        .unmeasured = power_w > 0 ? 0 : 1,
        .plan = optimizer->talks_to_fleet ? (double)wanted_plan(optimizer) : 0,
    };
    if (!share_fleet(optimizer, &meeting)) return;
    if (!(meeting.plan >= 0) || meeting.plan >= (double)optimizer->plans->count) {
        give_up(optimizer, "the all-reduce returned a value that cannot be true");
        return;
    }
    if (meeting.unmeasured == 0) harpe_power_member_note_power(optimizer->member, meeting.power_w);
    size_t before = optimizer->plan;
    run_plan(optimizer, (size_t)meeting.plan);
    /* After a change, the next mean power must not include the time of the old plan. */
    if (optimizer->plan != before) (void)mean_power_w(optimizer);
}

/* Called at the beginning of each step in the phase DONE. */
static void follow_step(harpe_power_limit_optimizer *optimizer) {
    if (!optimizer->is_in_fleet) return;
    if (!optimizer->options.all_reduce) {
        run_plan(optimizer, wanted_plan(optimizer));
        return;
    }
    if (--optimizer->steps_left > 0) return;
    optimizer->steps_left = optimizer->meeting_steps;
    meet(optimizer);
}

/* ---- The state machine ----------------------------------------------------------------------- */

static void save_profile(const harpe_power_limit_optimizer *optimizer) {
    if (!optimizer->profile_path) return;
    harpe_power_limit_profile profile = {
        .measurements = optimizer->measurements,
        .count = optimizer->measurement_count,
        .device_model = optimizer->device_model,
        .minimum_w = optimizer->device->minimum_w,
        .maximum_w = optimizer->device->maximum_w,
    };
    harpe_error error;
    if (harpe_power_limit_profile_write(optimizer->profile_path, &profile, &error) != HARPE_OK) {
        harpe_log_line(&optimizer->options.log, HARPE_LOG_WARNING,
                       "the power limit profile was not saved: %s", error.message);
    }
}

static void finish(harpe_power_limit_optimizer *optimizer) {
    int optimum_w = 0;
    harpe_error error;
    if (ranks_choose(optimizer, &optimum_w, &error) != HARPE_OK) {
        give_up(optimizer, error.message);
        return;
    }
    optimizer->phase = HARPE_POWER_LIMIT_DONE;
    optimizer->optimum_w = optimum_w;
    set_limit(optimizer, optimum_w);
    (void)check_limit(optimizer);
    share_failures(optimizer);
    if (optimizer->phase == HARPE_POWER_LIMIT_DONE) save_profile(optimizer);
    follow_begin(optimizer);
}

static void begin_profiling(harpe_power_limit_optimizer *optimizer) {
    optimizer->phase = HARPE_POWER_LIMIT_PROFILING;
    optimizer->steps_left = optimizer->options.profile_steps;
    begin_window(optimizer);
}

static void begin_warmup(harpe_power_limit_optimizer *optimizer) {
    optimizer->phase = HARPE_POWER_LIMIT_WARMUP;
    optimizer->steps_left = optimizer->options.warmup_steps;
    set_limit(optimizer, optimizer->limits_w[optimizer->trial]);
    if (optimizer->steps_left == 0 && optimizer->phase == HARPE_POWER_LIMIT_WARMUP)
        begin_profiling(optimizer);
}

static void end_profiling(harpe_power_limit_optimizer *optimizer) {
    harpe_power_limit_measurement one = {.power_limit_w = optimizer->limits_w[optimizer->trial]};
    end_window(optimizer, &one);
    if (optimizer->phase == HARPE_POWER_LIMIT_FAILED || !share_measurement(optimizer, &one)) return;
    /* A driver that rounds limits may make two limits equal. They then count as one limit. */
    size_t count = optimizer->measurement_count;
    if (count == 0 || optimizer->measurements[count - 1].power_limit_w != one.power_limit_w)
        optimizer->measurements[optimizer->measurement_count++] = one;
    optimizer->trial++;
    if (optimizer->trial == optimizer->limit_count)
        finish(optimizer);
    else
        begin_warmup(optimizer);
}

void harpe_power_limit_on_step_begin(harpe_power_limit_optimizer *optimizer) {
    if (!optimizer || optimizer->phase == HARPE_POWER_LIMIT_FAILED) return;
    if (optimizer->phase == HARPE_POWER_LIMIT_DONE) {
        watch_limit(optimizer);
        follow_step(optimizer);
        return;
    }
    if (--optimizer->steps_left > 0) {
        if (optimizer->phase == HARPE_POWER_LIMIT_PROFILING) check_window(optimizer);
        return;
    }
    if (optimizer->phase == HARPE_POWER_LIMIT_READY)
        begin_warmup(optimizer);
    else if (optimizer->phase == HARPE_POWER_LIMIT_WARMUP)
        begin_profiling(optimizer);
    else
        end_profiling(optimizer);
}

void harpe_power_limit_on_step_end(harpe_power_limit_optimizer *optimizer) { (void)optimizer; }

void harpe_power_limit_on_epoch_begin(harpe_power_limit_optimizer *optimizer) { (void)optimizer; }

void harpe_power_limit_on_epoch_end(harpe_power_limit_optimizer *optimizer) {
    if (!optimizer) return;
    if (optimizer->phase != HARPE_POWER_LIMIT_WARMUP &&
        optimizer->phase != HARPE_POWER_LIMIT_PROFILING)
        return;
    optimizer->phase = HARPE_POWER_LIMIT_READY;
    optimizer->steps_left = 1;
    end_window(optimizer, NULL);
    set_limit(optimizer, optimizer->limits_w[0]);
}

/* ---- Options --------------------------------------------------------------------------------- */

static int step_count(int given, int default_count) { return given == -1 ? default_count : given; }

static harpe_status check_device(const harpe_power_limit_device *device, harpe_error *error) {
    if (!device->set_limit || !device->begin_window || !device->end_window) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "power limit: the device lacks set_limit, begin_window or end_window");
    }
    if (device->gpu_count < 1)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "power limit: the device has no GPU");
    if (device->minimum_w < 1 || device->maximum_w < device->minimum_w ||
        device->maximum_w > POWER_LIMIT_MAX_W) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "power limit: a range of %d to %d W cannot be", device->minimum_w,
                          device->maximum_w);
    }
    return HARPE_OK;
}

static harpe_status check_steps(const char *name, int value, int minimum, harpe_error *error) {
    if (value >= minimum && value <= STEPS_MAX) return HARPE_OK;
    return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                      "power limit: %s must be from %d to %d, not %d", name, minimum, STEPS_MAX,
                      value);
}

static harpe_status fill_options(harpe_power_limit_options *options, harpe_error *error) {
    options->wait_steps = step_count(options->wait_steps, DEFAULT_WAIT_STEPS);
    options->warmup_steps = step_count(options->warmup_steps, DEFAULT_WARMUP_STEPS);
    options->profile_steps = step_count(options->profile_steps, DEFAULT_PROFILE_STEPS);
    options->step_w = options->step_w == 0 ? DEFAULT_STEP_W : options->step_w;
    harpe_status status = check_steps("wait_steps", options->wait_steps, 0, error);
    if (status == HARPE_OK) status = check_steps("warmup_steps", options->warmup_steps, 0, error);
    if (status == HARPE_OK) status = check_steps("profile_steps", options->profile_steps, 1, error);
    if (status == HARPE_OK && options->step_w < 1) {
        status = harpe_fail(error, HARPE_INVALID_ARGUMENT,
                            "power limit: step_w must be above 0 W, not %d", options->step_w);
    }
    if (status == HARPE_OK && options->world_size < 0) {
        status = harpe_fail(error, HARPE_INVALID_ARGUMENT,
                            "power limit: world_size must not be below 0, found %d",
                            options->world_size);
    }
    return status;
}

/* Lists the limits from the highest down in steps of step_w. The lowest allowed limit is always
 * the last. */
static harpe_status list_limits(harpe_power_limit_optimizer *optimizer, harpe_error *error) {
    int minimum_w = optimizer->device->minimum_w;
    int maximum_w = optimizer->device->maximum_w;
    int step_w = optimizer->options.step_w;
    size_t below = (size_t)((maximum_w - minimum_w) / step_w);
    size_t count = 1 + below + ((maximum_w - minimum_w) % step_w != 0);
    optimizer->limits_w = harpe_calloc(count, sizeof *optimizer->limits_w);
    optimizer->measurements = harpe_calloc(count, sizeof *optimizer->measurements);
    if (!optimizer->limits_w || !optimizer->measurements) return harpe_fail_memory(error);
    for (size_t i = 0; i <= below; i++)
        optimizer->limits_w[i] = maximum_w - (int)i * step_w;
    optimizer->limits_w[count - 1] = minimum_w;
    optimizer->limit_count = count;
    return HARPE_OK;
}

static harpe_status copy_text(const char *text, char **copy, harpe_error *error) {
    if (!text) return HARPE_OK;
    *copy = strdup(text);
    return *copy ? HARPE_OK : harpe_fail_memory(error);
}

static harpe_status load_profile(harpe_power_limit_optimizer *optimizer, harpe_error *error) {
    if (!optimizer->profile_path) return HARPE_OK;
    const harpe_power_limit_device *device = optimizer->device;
    harpe_power_limit_profile profile = {0};
    harpe_error reason;
    harpe_status status =
        harpe_power_limit_profile_read(optimizer->profile_path, &profile, &reason);
    if (status == HARPE_NOT_FOUND) return HARPE_OK; /* the first run, which will write the file */
    if (status != HARPE_OK) return harpe_fail(error, status, "%s", reason.message);
    status =
        harpe_power_limit_profile_check(&profile, optimizer->profile_path, optimizer->device_model,
                                        device->minimum_w, device->maximum_w, error);
    if (status == HARPE_OK) {
        /* Includes room for trials, because the ranks may agree not to use the file. */
        size_t room =
            profile.count > optimizer->limit_count ? profile.count : optimizer->limit_count;
        void *larger =
            harpe_realloc(optimizer->measurements, room, sizeof *optimizer->measurements);
        if (larger) {
            optimizer->measurements = larger;
            optimizer->measurement_count = profile.count;
            memcpy(larger, profile.measurements, profile.count * sizeof *profile.measurements);
        } else {
            status = harpe_fail_memory(error);
        }
    }
    harpe_power_limit_profile_clear(&profile);
    return status;
}

static harpe_status prepare(harpe_power_limit_optimizer *optimizer, harpe_error *error) {
    harpe_status status = check_device(optimizer->device, error);
    if (status == HARPE_OK) status = fill_options(&optimizer->options, error);
    if (status == HARPE_OK)
        status = copy_text(optimizer->options.profile_path, &optimizer->profile_path, error);
    if (status == HARPE_OK)
        status = copy_text(optimizer->options.device_model, &optimizer->device_model, error);
    if (status == HARPE_OK)
        status = harpe_power_member_take_terms(optimizer->options.fleet, &optimizer->terms, error);
    if (status == HARPE_OK) status = list_limits(optimizer, error);
    if (status == HARPE_OK) status = load_profile(optimizer, error);
    return status;
}

/* ---- The first limit ------------------------------------------------------------------------- */

static harpe_status choose_selector(harpe_power_limit_optimizer *optimizer, harpe_error *error) {
    if (optimizer->options.selector.select) return HARPE_OK;
    optimizer->default_parameters =
        (harpe_selector_parameters){.eta = 0.5, .world_size = optimizer->options.world_size};
    return harpe_selector_zeus_cost(&optimizer->default_parameters, &optimizer->options.selector,
                                    error);
}

/* Sets a limit on all ranks. `*in_force_w` is the lowest limit that is then in force on a GPU, and
 * `*gpu` is the number of that GPU; -1: it is a GPU of another rank. */
static harpe_status set_first(harpe_power_limit_optimizer *optimizer, int limit_w, int *in_force_w,
                              int *gpu, harpe_error *error) {
    const harpe_power_limit_device *device = optimizer->device;
    int own_w = limit_w;
    harpe_status set = device->set_limit(device->user, limit_w, error);
    if (set == HARPE_OK && device->limit_in_force)
        set = device->limit_in_force(device->user, &own_w, gpu, error);
    *in_force_w = own_w;
    harpe_status status = ranks_share_first_set(optimizer, set, limit_w, in_force_w, error);
    if (*in_force_w < own_w) *gpu = -1;
    if (status == HARPE_OK) optimizer->current_w = limit_w;
    return status;
}

/* Leaves out limits and loaded measurements above `highest_w`, because something else limits a GPU
 * to `highest_w`. With all these limits the GPU has the same limit, which is tried once. */
static harpe_status leave_out_above(harpe_power_limit_optimizer *optimizer, int highest_w, int gpu,
                                    harpe_error *error) {
    char name[32] = "a GPU of another rank";
    size_t first = 0;
    size_t first_measured = 0;
    if (gpu >= 0) snprintf(name, sizeof name, "GPU %d", gpu);
    if (highest_w < optimizer->device->minimum_w) {
        return harpe_fail(error, HARPE_UNAVAILABLE,
                          "power limit: %s is limited to %d W by its board, its rack or another "
                          "program; the lowest power limit is %d W, so none has an effect",
                          name, highest_w, optimizer->device->minimum_w);
    }
    while (optimizer->limits_w[first] > highest_w)
        first++;
    if (optimizer->limits_w[first] < highest_w) optimizer->limits_w[--first] = highest_w;
    optimizer->limit_count -= first;
    memmove(optimizer->limits_w, optimizer->limits_w + first,
            optimizer->limit_count * sizeof *optimizer->limits_w);
    while (first_measured < optimizer->measurement_count &&
           optimizer->measurements[first_measured].power_limit_w > highest_w)
        first_measured++;
    optimizer->measurement_count -= first_measured;
    memmove(optimizer->measurements, optimizer->measurements + first_measured,
            optimizer->measurement_count * sizeof *optimizer->measurements);
    harpe_log_line(&optimizer->options.log, HARPE_LOG_WARNING,
                   "%s is limited to %d W by its board, its rack or another program: power limits "
                   "above it have no effect and are left out",
                   name, highest_w);
    return HARPE_OK;
}

/* Sets the first limit. This call shows whether limits can be set at all, so its failure is
 * returned to the caller. If a fleet will be given the plans of a loaded profile, the highest of
 * them is set first, which shows whether all of them can run. */
static harpe_status start(harpe_power_limit_optimizer *optimizer, harpe_error *error) {
    bool is_loaded = optimizer->measurement_count > 0;
    bool tries_highest = !is_loaded || optimizer->is_in_fleet;
    bool is_lowered = false;
    for (bool is_set = false; !is_set;) {
        int limit_w = is_loaded ? optimizer->measurements[0].power_limit_w : optimizer->limits_w[0];
        int in_force_w = 0;
        int gpu = 0;
        harpe_status status = HARPE_OK;
        if (is_loaded && !tries_highest) status = ranks_choose(optimizer, &limit_w, error);
        if (status == HARPE_OK) status = set_first(optimizer, limit_w, &in_force_w, &gpu, error);
        if (status != HARPE_OK) return status;
        /* A slightly lower limit may be the driver's rounding, and setting it decides this. */
        bool is_in_force = in_force_w >= limit_w ||
                           ((is_loaded || is_lowered) && holds_limit(in_force_w, limit_w));
        is_lowered = !is_in_force;
        if (!is_in_force) status = leave_out_above(optimizer, in_force_w, gpu, error);
        if (status != HARPE_OK) return status;
        is_set = is_in_force && (!is_loaded || !tries_highest);
        if (is_in_force) tries_highest = false;
        is_loaded = optimizer->measurement_count > 0;
    }
    optimizer->optimum_w = is_loaded ? optimizer->current_w : 0;
    optimizer->phase = is_loaded ? HARPE_POWER_LIMIT_DONE : HARPE_POWER_LIMIT_READY;
    optimizer->steps_left = optimizer->options.wait_steps + 1;
    return HARPE_OK;
}

static void free_memory(harpe_power_limit_optimizer *optimizer) {
    free(optimizer->profile_path);
    free(optimizer->device_model);
    free(optimizer->limits_w);
    free(optimizer->measurements);
    free(optimizer->plans);
    harpe_power_member_forget_terms(optimizer->terms);
    free(optimizer);
}

harpe_status harpe_optimizer_new_with(const harpe_power_limit_device *device,
                                      const harpe_power_limit_options *options,
                                      const harpe_power_member_times *times,
                                      harpe_power_limit_optimizer **out, harpe_error *error) {
    if (!device || !out)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "power limit: no device was given");
    harpe_power_limit_optimizer *optimizer = harpe_calloc(1, sizeof *optimizer);
    if (!optimizer) return harpe_fail_memory(error);
    optimizer->device = device;
    optimizer->options = options ? *options
                                 : (harpe_power_limit_options){
                                       .wait_steps = -1, .warmup_steps = -1, .profile_steps = -1};
    harpe_status status = ranks_meet_at_start(optimizer, prepare(optimizer, error), error);
    if (status == HARPE_OK) status = choose_selector(optimizer, error);
    if (status == HARPE_OK) {
        status = start(optimizer, error);
        if (status != HARPE_OK) (void)leave(optimizer, NULL);
    }
    if (status != HARPE_OK) {
        free_memory(optimizer);
        return status;
    }
    join_fleet(optimizer, times);
    follow_begin(optimizer);
    *out = optimizer;
    return HARPE_OK;
}

harpe_status harpe_power_limit_optimizer_new(const harpe_power_limit_device *device,
                                             const harpe_power_limit_options *options,
                                             harpe_power_limit_optimizer **out,
                                             harpe_error *error) {
    return harpe_optimizer_new_with(device, options, &harpe_power_member_usual_times, out, error);
}

void harpe_power_limit_optimizer_free(harpe_power_limit_optimizer *optimizer) {
    if (!optimizer) return;
    harpe_error error;
    if (!has_left(optimizer) && leave(optimizer, &error) != HARPE_OK) {
        harpe_log_line(
            &optimizer->options.log, HARPE_LOG_ERROR,
            "power limits could not be restored yet: %s; the guard, if there is one, tries again",
            error.message);
    }
    harpe_power_member_leave(optimizer->member);
    free_memory(optimizer);
}

/* ---- State for the caller -------------------------------------------------------------------- */

harpe_power_limit_state harpe_power_limit_get_state(const harpe_power_limit_optimizer *optimizer) {
    if (!optimizer || has_left(optimizer))
        return (harpe_power_limit_state){.phase = HARPE_POWER_LIMIT_FAILED};
    if (optimizer->phase == HARPE_POWER_LIMIT_DONE)
        return (harpe_power_limit_state){HARPE_POWER_LIMIT_DONE, optimizer->optimum_w, 0};
    /* After the last measurement there is no next limit, until the best limit is chosen. */
    size_t trial =
        optimizer->trial < optimizer->limit_count ? optimizer->trial : optimizer->limit_count - 1;
    return (harpe_power_limit_state){optimizer->phase, optimizer->limits_w[trial],
                                     optimizer->steps_left};
}

bool harpe_power_limit_is_done(const harpe_power_limit_optimizer *optimizer) {
    return optimizer && optimizer->phase == HARPE_POWER_LIMIT_DONE;
}

bool harpe_power_limit_has_failed(const harpe_power_limit_optimizer *optimizer) {
    return optimizer && has_left(optimizer);
}

int harpe_power_limit_current_w(const harpe_power_limit_optimizer *optimizer) {
    return optimizer ? optimizer->current_w : 0;
}

int harpe_power_limit_optimum_w(const harpe_power_limit_optimizer *optimizer) {
    return optimizer ? optimizer->optimum_w : 0;
}

const harpe_power_limit_measurement *
harpe_power_limit_measurements(const harpe_power_limit_optimizer *optimizer, size_t *count) {
    if (count) *count = optimizer ? optimizer->measurement_count : 0;
    return optimizer ? optimizer->measurements : NULL;
}
