/* SPDX-License-Identifier: Apache-2.0 */
/* Inside a power limit optimizer: what its construction (construction.c), its state machine
 * (optimizer.c), its hold on the device (trial.c) and the agreement among ranks (ranks.c) share.
 * Private to src/powerlimit. */
#ifndef HARPE_POWERLIMIT_OPTIMIZER_PARTS_H
#define HARPE_POWERLIMIT_OPTIMIZER_PARTS_H

#include <stdbool.h>
#include <stddef.h>

#include <harpe/power_limit.h>

typedef enum harpe_power_limit_phase {
    HARPE_PHASE_READY,     /* at the highest limit, about to try one */
    HARPE_PHASE_WARMUP,    /* at the limit under trial, settling */
    HARPE_PHASE_PROFILING, /* the same, with a window open */
    HARPE_PHASE_DONE,      /* holding the optimum */
    HARPE_PHASE_FAILED,    /* limits are put back; nothing more is done */
} harpe_power_limit_phase;

struct harpe_power_limit_optimizer {
    const harpe_power_limit_device *device;
    harpe_power_limit_options options; /* defaults filled in; texts owned */
    char *profile_path, *device_model;
    harpe_selector_parameters default_parameters; /* of the default selector */

    int *limits_w; /* to try, highest first */
    size_t limit_count;
    harpe_power_limit_measurement *measurements;
    size_t measurement_count;

    harpe_power_limit_phase phase;
    size_t trial;   /* index into limits_w: the limit under trial, or next */
    int steps_left; /* on_step_begin calls until the phase ends */
    int current_w;  /* as last set; 0: not by us */
    int optimum_w;
    bool window_is_open;
    /* Something went wrong on this rank, and the others have not been told yet: steps are still
     * counted, so that the next meeting is kept, but the device is left alone. */
    bool failed_here;
};

/* ---- trial.c: the device, and what goes wrong with it ---- */
void harpe_optimizer_say(const harpe_power_limit_optimizer *optimizer, harpe_log_level level,
                         const char *format, ...) HARPE_PRINTF(3, 4);
/* True when this process no longer touches its device. */
bool harpe_optimizer_has_left(const harpe_power_limit_optimizer *optimizer);
/* Closes what is open and puts back what was found. */
harpe_status harpe_optimizer_leave(harpe_power_limit_optimizer *optimizer, harpe_error *error);
/* The end, on all ranks at once (or in the only process): told, put back. */
void harpe_optimizer_give_up(harpe_power_limit_optimizer *optimizer, const char *reason);
/* These do nothing once the device is left, and leave it when they fail. */
void harpe_optimizer_set_limit(harpe_power_limit_optimizer *optimizer, int limit_w);
void harpe_optimizer_begin_window(harpe_power_limit_optimizer *optimizer);
void harpe_optimizer_check_window(harpe_power_limit_optimizer *optimizer);
/* `one` NULL: cancels. A number that cannot be true is a failure, never a measurement. */
void harpe_optimizer_end_window(harpe_power_limit_optimizer *optimizer,
                                harpe_power_limit_measurement *one);

/* ---- ranks.c: meetings of all ranks; with one process they are nothing ---- */
/* Makes this rank's measurement the job's. False: the optimizer has given up. */
bool harpe_ranks_share_measurement(harpe_power_limit_optimizer *optimizer,
                                   harpe_power_limit_measurement *one);
/* Gives up when any rank has failed since the last meeting. */
void harpe_ranks_share_failures(harpe_power_limit_optimizer *optimizer);
/* The selectors' answer, one for all ranks also where they differ. */
harpe_status harpe_ranks_choose(const harpe_power_limit_optimizer *optimizer, int *optimum_w,
                                harpe_error *error);
/* Every rank comes here at the start, also one that could not be `prepared`, or the others would
 * wait for it. All go on, or none. */
harpe_status harpe_ranks_meet_at_start(harpe_power_limit_optimizer *optimizer,
                                       harpe_status prepared, harpe_error *error);
/* HARPE_OK when every rank's first set, whose outcome is `set`, has worked. */
harpe_status harpe_ranks_share_first_set(const harpe_power_limit_optimizer *optimizer,
                                         harpe_status set, int limit_w, harpe_error *error);

#endif
