/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a job a member of a server's fleet. A separate thread sends requests to the server. The
 * functions in the section "Training thread" only exchange values with that thread: they do not
 * wait, take no lock and do not use the network.
 *
 * The measurements of a power limit optimizer become the plans that the member declares: one plan
 * for each power limit, fastest first. docs/fleet.md describes the requests. */
#ifndef HARPE_POWER_LIMIT_MEMBER_H
#define HARPE_POWER_LIMIT_MEMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/power_limit.h>

#include "base/text.h"

/* ---- Plans ----------------------------------------------------------------------------------- */

/* The most plans that are declared. A server takes twice as many, but a body of 64 KiB at most. */
enum { HARPE_LIMIT_PLANS_MAX = 500 };

typedef struct harpe_limit_plan {
    int limit_w;    /* power limit of each GPU */
    double time_s;  /* time of one step */
    double power_w; /* mean power of all GPUs of the job */
} harpe_limit_plan;

/* The times rise strictly and the powers fall strictly, so the server's numbers of the plans are
 * the indices of `plans`. */
typedef struct harpe_limit_plans {
    size_t count;
    size_t chosen; /* index of the plan of the limit that the selector has chosen */
    harpe_limit_plan plans[];
} harpe_limit_plans;

/* Makes the plans. `optimum_w` is the limit that the selector has chosen, and `steps` is the number
 * of steps of each measurement. Leaves out a limit whose plan is not slower than the chosen plan
 * and draws no more, or not faster and draws no less; and of the others, those that another plan
 * beats. If there are more plans than HARPE_LIMIT_PLANS_MAX, keeps some of them, spread evenly.
 * Fails with HARPE_INVALID_INPUT if the chosen limit has no measurement that a server accepts. The
 * caller frees `*out`. */
harpe_status harpe_limit_plans_make(const harpe_power_limit_measurement *measurements, size_t count,
                                    int optimum_w, int steps, harpe_limit_plans **out,
                                    harpe_error *error);

/* ---- Messages -------------------------------------------------------------------------------- */

/* Appends the declaration of a member that cannot be steered: one plan with the highest power that
 * the job may draw. */
void harpe_member_declare_unsteered(const harpe_power_limit_fleet *terms, double highest_w,
                                    harpe_text *body);
/* Appends the declaration of a member with its plans. The job must never draw more than its chosen
 * plan. */
void harpe_member_declare(const harpe_power_limit_fleet *terms, const harpe_limit_plans *plans,
                          harpe_text *body);
/* Appends a report. `power_w` below 0: not measured. */
void harpe_member_report(size_t plan, double power_w, harpe_text *body);

/* Reads the answer to a report. Returns false, and leaves `*plan`, if the answer does not name one
 * of the `count` plans. */
bool harpe_member_read_answer(const char *bytes, size_t length, size_t count, size_t *plan);

/* ---- The member ------------------------------------------------------------------------------ */

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
