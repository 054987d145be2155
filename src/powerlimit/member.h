/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a job a member of a server's fleet. A separate thread (member_thread.c) sends requests to
 * the server. The functions in the section "Training thread" only exchange values with that thread:
 * they do not wait, take no lock and do not use the network. */
#ifndef HARPE_POWERLIMIT_MEMBER_H
#define HARPE_POWERLIMIT_MEMBER_H

#include <stdbool.h>
#include <stdint.h>

#include <harpe/power_limit.h>

#include "powerlimit/limit_plans.h"

typedef struct harpe_power_member harpe_power_member;

/* Periods and time limits of the member's thread. Tests use shorter ones. */
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

/* Starts the member's thread. The thread first declares the job as a member that the server cannot
 * steer. `terms` must outlive the member. */
harpe_status harpe_power_member_join(const harpe_power_limit_fleet *terms,
                                     const harpe_power_member_job *job,
                                     const harpe_power_member_times *times,
                                     harpe_power_member **out, harpe_error *error);
/* Leaves the fleet and frees the member. Waits for the server, for at most times.leave_s. In a
 * forked child, which does not have the thread, it does nothing. NULL is allowed. */
void harpe_power_member_leave(harpe_power_member *member);

/* ---- Training thread; NULL is allowed as the member ------------------------------------------ */

/* Gives the member the plans of the job. The job runs the plan that its selector has chosen.
 * `plans` must outlive the member. */
void harpe_power_member_take_plans(harpe_power_member *member, const harpe_limit_plans *plans);
/* The job can no longer be steered: its limits are restored. */
void harpe_power_member_give_up(harpe_power_member *member);
/* Returns the plan that the server asks for; -1: none. */
int64_t harpe_power_member_told(const harpe_power_member *member);
/* Call the first function before a change of the power limit, and the second one after it. From
 * then on, the job runs `plan`. */
void harpe_power_member_begin_change(harpe_power_member *member);
void harpe_power_member_end_change(harpe_power_member *member, size_t plan);
/* Gives the member the mean power of the whole job since the last change or the last call, in W. */
void harpe_power_member_note_power(harpe_power_member *member, double power_w);

#endif
