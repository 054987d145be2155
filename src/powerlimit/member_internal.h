/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a member of a fleet, which member_life.c (the training thread's side) and
 * member_thread.c (the conversation with the server) share. */
#ifndef HARPE_POWERLIMIT_MEMBER_INTERNAL_H
#define HARPE_POWERLIMIT_MEMBER_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "http/client/connection.h"
#include "powerlimit/member.h"

typedef enum harpe_member_standing {
    HARPE_MEMBER_UNDECLARED, /* the server does not know the member */
    HARPE_MEMBER_UNSTEERED,  /* declared with one plan, the highest power */
    HARPE_MEMBER_STEERED,    /* declared with its plans */
} harpe_member_standing;

typedef enum harpe_member_contact {
    HARPE_MEMBER_CONTACT_NONE,    /* nothing has been answered yet */
    HARPE_MEMBER_CONTACT_KEPT,    /* the server answers */
    HARPE_MEMBER_CONTACT_LOST,    /* no answer of a harpe server */
    HARPE_MEMBER_CONTACT_REFUSED, /* the server refuses the member */
} harpe_member_contact;

/* Used by the member's thread alone. */
typedef struct harpe_member_talk {
    harpe_connection *connection;
    harpe_member_standing standing;
    harpe_member_contact contact;
    bool may_be_known;        /* a declaration was sent, so the server may know the member */
    bool has_told_forgotten;  /* the log says that the server has forgotten the member */
    int64_t asked_ns;         /* time of the first report that got no limit; 0: the last report got
                               * one */
    int64_t lost_since_ns;    /* time at which the contact was lost */
    int64_t leave_until_ns;   /* limit for the requests at the end; 0: the end has not come */
    uint64_t metered_changes; /* the value of `changes` at the last reading of the power; odd: the
                               * reading is of no use */
    double pause_s;           /* before the next attempt */
    unsigned random;
} harpe_member_talk;

struct harpe_power_member {
    const harpe_power_limit_fleet *terms;
    harpe_power_member_job job;
    harpe_power_member_times times;
    pid_t owner;
    pthread_t thread;
    int bell; /* eventfd: something has changed for the thread */

    /* Written by the training thread. */
    atomic_bool is_leaving, has_given_up;
    _Atomic(const harpe_limit_plans *) plans; /* NULL: not measured yet */
    _Atomic size_t plan;                      /* the plan that runs */
    _Atomic uint64_t changes;                 /* odd while the power limit is being changed */
    _Atomic double noted_w;                   /* below 0: reported already */
    _Atomic uint64_t noted_changes;           /* the value of `changes` for `noted_w` */

    _Atomic int64_t told; /* written by the member's thread; -1: nothing */

    harpe_member_talk talk;
};

/* member_thread.c: the thread's main function. `user`: the member. */
void *harpe_power_member_run(void *user);
/* member_thread.c: the connection's `go_on`. `user`: the member. */
bool harpe_power_member_go_on(void *user);

/* member_life.c: writes a line to the log. */
void harpe_power_member_say(const harpe_power_member *member, harpe_log_level level,
                            const char *format, ...) HARPE_PRINTF(3, 4);

#endif
