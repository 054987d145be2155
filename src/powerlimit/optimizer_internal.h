/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a power limit optimizer, which construction.c and optimizer.c share. Private to
 * src/powerlimit. */
#ifndef HARPE_POWERLIMIT_OPTIMIZER_INTERNAL_H
#define HARPE_POWERLIMIT_OPTIMIZER_INTERNAL_H

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

/* construction.c: works like harpe_power_limit_optimizer_new with other times for the member of a
 * fleet (for tests). */
harpe_status harpe_optimizer_new_with(const harpe_power_limit_device *device,
                                      const harpe_power_limit_options *options,
                                      const harpe_power_member_times *times,
                                      harpe_power_limit_optimizer **out, harpe_error *error);

/* ---- The device ------------------------------------------------------------------------------ */

/* Returns true if this process no longer uses its device. */
bool harpe_optimizer_has_left(const harpe_power_limit_optimizer *optimizer);
/* Leaves the device: closes the open window and restores the saved settings. */
harpe_status harpe_optimizer_leave(harpe_power_limit_optimizer *optimizer, harpe_error *error);

/* Returns true if no less than `limit_w` is in force, except for the driver's rounding. */
bool harpe_optimizer_is_in_force(int in_force_w, int limit_w);

/* ---- Meetings of all ranks; in a job of one process they do nothing -------------------------- */

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

/* ---- The fleet ------------------------------------------------------------------------------- */

/* Lets the job join the fleet, if it shall, on the rank that talks to the server. If that fails,
 * the log says why, and the job trains without a fleet. */
void harpe_follow_join(harpe_power_limit_optimizer *optimizer,
                       const harpe_power_member_times *times);
/* Called when the optimizer has reached the state Done: makes the plans. */
void harpe_follow_begin(harpe_power_limit_optimizer *optimizer);

#endif
