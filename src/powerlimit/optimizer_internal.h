/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a power limit optimizer, which construction.c, optimizer.c (the state machine),
 * trial.c (the device), ranks.c (agreement among ranks) and follow.c (the fleet) share. Private to
 * src/powerlimit. */
#ifndef HARPE_POWERLIMIT_OPTIMIZER_INTERNAL_H
#define HARPE_POWERLIMIT_OPTIMIZER_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/power_limit.h>

#include "powerlimit/limit_plans.h"
#include "powerlimit/member.h"

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
    bool window_is_open;
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

/* construction.c: works like harpe_power_limit_optimizer_new with other times for the member of a
 * fleet (for tests). */
harpe_status harpe_optimizer_new_with(const harpe_power_limit_device *device,
                                      const harpe_power_limit_options *options,
                                      const harpe_power_member_times *times,
                                      harpe_power_limit_optimizer **out, harpe_error *error);

/* ---- trial.c: the device and its failures ---------------------------------------------------- */
/* Returns true if this process no longer uses its device. */
bool harpe_optimizer_has_left(const harpe_power_limit_optimizer *optimizer);
/* Leaves the device: closes the open window and restores the saved settings. */
harpe_status harpe_optimizer_leave(harpe_power_limit_optimizer *optimizer, harpe_error *error);
/* Stops the optimizer on all ranks at once (or in the only process), logs the reason, and
 * restores. */
void harpe_optimizer_give_up(harpe_power_limit_optimizer *optimizer, const char *reason);
/* After the optimizer has left its device, these functions do nothing. If one of them fails, it
 * leaves the device. */
void harpe_optimizer_set_limit(harpe_power_limit_optimizer *optimizer, int limit_w);
/* Returns the limit in force, in W. Usually this is the limit that was set. A driver may round it.
 * If the limit in force is lower, or if another program has raised it, the optimizer leaves the
 * device. */
int harpe_optimizer_check_limit(harpe_power_limit_optimizer *optimizer);
/* In the phase DONE: fails if another program has raised the limit. Looks every few seconds. */
void harpe_optimizer_watch_limit(harpe_power_limit_optimizer *optimizer);
void harpe_optimizer_begin_window(harpe_power_limit_optimizer *optimizer);
void harpe_optimizer_check_window(harpe_power_limit_optimizer *optimizer);
/* Ends the window, and writes the limit in force and the measured values. `one` NULL: cancels it.
 * An impossible value is a failure and never a measurement. */
void harpe_optimizer_end_window(harpe_power_limit_optimizer *optimizer,
                                harpe_power_limit_measurement *one);

/* Returns true if no less than `limit_w` is in force, except for the driver's rounding. */
bool harpe_optimizer_is_in_force(int in_force_w, int limit_w);

/* ---- ranks.c: meetings of all ranks; in a job of one process they do nothing ----------------- */
/* Combines this rank's measurement with the others. Returns false if the optimizer has given up. */
bool harpe_ranks_share_measurement(harpe_power_limit_optimizer *optimizer,
                                   harpe_power_limit_measurement *one);
/* Gives up if any rank has failed since the last meeting. */
void harpe_ranks_share_failures(harpe_power_limit_optimizer *optimizer);
/* What the ranks tell each other in a meeting about the fleet; then the sums. */
typedef struct harpe_fleet_meeting {
    double plan;       /* the plan to run; 0 on ranks that do not talk to the server */
    double power_w;    /* mean power since the last meeting */
    double unmeasured; /* 1: this rank's power is not known */
} harpe_fleet_meeting;
/* Replaces the values by the sums over all ranks. Returns false if the optimizer has given up. */
bool harpe_ranks_share_fleet(harpe_power_limit_optimizer *optimizer, harpe_fleet_meeting *meeting);
/* Writes the selected limit to `*optimum_w`. All ranks get the same limit, even if their selectors
 * differ. */
harpe_status harpe_ranks_choose(const harpe_power_limit_optimizer *optimizer, int *optimum_w,
                                harpe_error *error);
/* Meets all ranks at the start. `prepared` tells whether this rank's preparation has succeeded. A
 * rank that has failed must call this function too, because the others wait for it. Either all
 * ranks continue or none. */
harpe_status harpe_ranks_meet_at_start(harpe_power_limit_optimizer *optimizer,
                                       harpe_status prepared, harpe_error *error);
/* Returns HARPE_OK if every rank has set the limit. `set` is the outcome on this rank.
 * `*in_force_w` is the lowest limit in force on a GPU of this rank, and then of all ranks. */
harpe_status harpe_ranks_share_first_set(const harpe_power_limit_optimizer *optimizer,
                                         harpe_status set, int limit_w, int *in_force_w,
                                         harpe_error *error);

#endif
