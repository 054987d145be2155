/* SPDX-License-Identifier: Apache-2.0 */
/* Follows a fleet. A job of one process looks at every step whether the server asks for another
 * plan. In a job of several ranks, all ranks meet every few seconds of training, in the same step:
 * the rank that talks to the server tells the plan, and the others tell their powers and faults.
 * This file does not use the network. */
#include "powerlimit/follow.h"

#include <math.h>

#include "base/error.h"
#include "base/log.h"

/* Time of training from one meeting of the ranks to the next. */
#define MEETING_S 5.0

enum { MEETING_STEPS_MAX = 1000000 };

/* ---- The beginning --------------------------------------------------------------------------- */

void harpe_follow_join(harpe_power_limit_optimizer *optimizer,
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

void harpe_follow_begin(harpe_power_limit_optimizer *optimizer) {
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
    /* All ranks have the same measurements, so no rank meets. */
    optimizer->is_in_fleet = false;
    harpe_log_line(&optimizer->options.log, HARPE_LOG_WARNING,
                   "the fleet cannot steer this job, training continues: %s", error.message);
}

/* ---- Following ------------------------------------------------------------------------------- */

/* Returns the plan to run: what the server asks for, but never a plan with a higher limit than the
 * selector has chosen. */
static size_t wanted_plan(const harpe_power_limit_optimizer *optimizer) {
    int64_t told = harpe_power_member_told(optimizer->member);
    size_t chosen = optimizer->plans->chosen;
    return told > (int64_t)chosen ? (size_t)told : chosen;
}

static void run_plan(harpe_power_limit_optimizer *optimizer, size_t plan) {
    if (plan == optimizer->plan) return;
    harpe_power_member_begin_change(optimizer->member);
    harpe_optimizer_set_limit(optimizer, optimizer->plans->plans[plan].limit_w);
    if (!harpe_optimizer_has_left(optimizer)) optimizer->plan = plan;
    harpe_power_member_end_change(optimizer->member, optimizer->plan);
}

/* Returns the mean power of this rank's GPUs since the last call; 0: not known. */
static double mean_power_w(const harpe_power_limit_optimizer *optimizer) {
    const harpe_power_limit_device *device = optimizer->device;
    double power_w = 0;
    if (!device->mean_power || harpe_optimizer_has_left(optimizer)) return 0;
    return device->mean_power(device->user, &power_w, NULL) == HARPE_OK ? power_w : 0;
}

static void meet(harpe_power_limit_optimizer *optimizer) {
    double power_w = mean_power_w(optimizer);
    harpe_fleet_meeting meeting = {
        .power_w = power_w,
        .unmeasured = power_w > 0 ? 0 : 1,
        .plan = optimizer->talks_to_fleet ? (double)wanted_plan(optimizer) : 0,
    };
    if (!harpe_ranks_share_fleet(optimizer, &meeting)) return;
    if (!(meeting.plan >= 0) || meeting.plan >= (double)optimizer->plans->count) {
        harpe_optimizer_give_up(optimizer, "the all-reduce returned a value that cannot be true");
        return;
    }
    if (meeting.unmeasured == 0) harpe_power_member_note_power(optimizer->member, meeting.power_w);
    size_t before = optimizer->plan;
    run_plan(optimizer, (size_t)meeting.plan);
    /* The next power is that of the new plan alone. */
    if (optimizer->plan != before) (void)mean_power_w(optimizer);
}

void harpe_follow_step(harpe_power_limit_optimizer *optimizer) {
    if (!optimizer->is_in_fleet) return;
    if (!optimizer->options.all_reduce) {
        run_plan(optimizer, wanted_plan(optimizer));
        return;
    }
    if (--optimizer->steps_left > 0) return;
    optimizer->steps_left = optimizer->meeting_steps;
    meet(optimizer);
}
