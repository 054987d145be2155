/* SPDX-License-Identifier: Apache-2.0 */
/* A job as a member of the fleet of a server: the side of the training thread. A thread of its own
 * (member_thread.c) talks to the server. None of the functions for the training thread waits, takes
 * a lock or uses the network. */
#ifndef HARPE_POWERLIMIT_MEMBER_H
#define HARPE_POWERLIMIT_MEMBER_H

#include <stdbool.h>
#include <stdint.h>

#include <harpe/power_limit.h>

#include "powerlimit/limit_plans.h"

typedef struct harpe_power_member harpe_power_member;

/* How often the member does what. Tests use shorter times. */
typedef struct harpe_power_member_times {
    double report_s;  /* from one report to the next */
    double answer_s;  /* limit for a request */
    double retry_s;   /* longest pause after a request without an answer */
    double refused_s; /* pause after a request that the server has refused */
    double leave_s;   /* limit for everything at the end */
} harpe_power_member_times;
extern const harpe_power_member_times harpe_power_member_usual_times;

typedef struct harpe_power_member_job {
    double highest_w; /* the most that the job may draw while it has no plans */
    /* Measures the job's mean power on the member's thread; NULL: harpe_power_member_note_power. */
    const harpe_power_limit_device *device;
    harpe_log log;
} harpe_power_member_job;

/* Checks `terms`, copies it, and fills in the name and the token. `*own` is NULL if `terms` is NULL
 * or names no server. Free with harpe_power_member_forget_terms. */
harpe_status harpe_power_member_take_terms(const harpe_power_limit_fleet *terms,
                                           harpe_power_limit_fleet **own, harpe_error *error);
void harpe_power_member_forget_terms(harpe_power_limit_fleet *terms); /* NULL is allowed */

/* Starts the member's thread, which declares the job: first as a member that cannot be steered.
 * `terms` must outlive the member. */
harpe_status harpe_power_member_join(const harpe_power_limit_fleet *terms,
                                     const harpe_power_member_job *job,
                                     const harpe_power_member_times *times,
                                     harpe_power_member **out, harpe_error *error);
/* Leaves the fleet and frees the member. Waits for the server, for at most times.leave_s. In a
 * forked child, which has no such thread, it only returns. NULL is allowed. */
void harpe_power_member_leave(harpe_power_member *member);

/* ---- Training thread; NULL is allowed as the member ------------------------------------------ */

/* Hands over the plans. The chosen plan runs. `plans` must outlive the member. */
void harpe_power_member_take_plans(harpe_power_member *member, const harpe_limit_plans *plans);
/* The job can no longer be steered: its limits are restored. */
void harpe_power_member_give_up(harpe_power_member *member);
/* Returns the plan that the server asks for; -1: none. */
int64_t harpe_power_member_told(const harpe_power_member *member);
/* Enclose a change of the power limit. `plan` runs from then on. */
void harpe_power_member_begin_change(harpe_power_member *member);
void harpe_power_member_end_change(harpe_power_member *member, size_t plan);
/* Tells the mean power of the whole job since the last change or the last call, in W. */
void harpe_power_member_note_power(harpe_power_member *member, double power_w);

#endif
