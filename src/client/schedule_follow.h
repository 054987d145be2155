/* SPDX-License-Identifier: Apache-2.0 */
/* The training thread follows a frequency schedule: which entry an instruction gets, and whether
 * the step fits. Also how a new schedule reaches the training thread and the old one comes back,
 * without a lock and without the training thread ever freeing anything.
 *
 * harpe_schedule_post and harpe_schedule_exchange_clear belong to the optimizer's own thread, the
 * rest to the training thread. */
#ifndef HARPE_CLIENT_SCHEDULE_FOLLOW_H
#define HARPE_CLIENT_SCHEDULE_FOLLOW_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/pfo.h>

/* What the training thread runs; never changed once it is posted. */
typedef struct harpe_followed_schedule {
    harpe_frequency_schedule schedule; /* without instructions: anything fits, at `highest_mhz` */
    int highest_mhz;                   /* 0: unknown, clocks are left alone */
    int64_t series;                    /* its number among all schedules of this optimizer */
    int64_t round;                     /* the server's; -1: unknown */
    struct harpe_followed_schedule *given_back_before; /* once it is given back */
} harpe_followed_schedule;

/* ---- Handing over ---------------------------------------------------------------------------- */

typedef struct harpe_schedule_exchange {
    _Atomic(harpe_followed_schedule *) next; /* not taken yet */
    _Atomic(harpe_followed_schedule *) used; /* given back: the latest of a list */
} harpe_schedule_exchange;

/* A schedule with `frequencies` moved into it (and zeroed); NULL: out of memory. */
harpe_followed_schedule *harpe_followed_schedule_new(harpe_frequency_schedule *frequencies);
void harpe_followed_schedule_free(harpe_followed_schedule *schedule);

/* Replaces one that was not taken, and frees what the training thread has given back. */
void harpe_schedule_post(harpe_schedule_exchange *exchange, harpe_followed_schedule *schedule);
void harpe_schedule_exchange_clear(harpe_schedule_exchange *exchange);

/* ---- Following ------------------------------------------------------------------------------- */

typedef enum harpe_misfit_kind {
    HARPE_MISFIT_NONE = 0,
    HARPE_MISFIT_NAME,   /* another instruction than the schedule's */
    HARPE_MISFIT_LONGER, /* the step has more instructions than the schedule */
    HARPE_MISFIT_SHORTER,
    HARPE_MISFIT_UNNAMED, /* the training gave NULL for a name */
    HARPE_MISFIT_KINDS,
} harpe_misfit_kind;

#define HARPE_INSTRUCTION_SIZE 64

/* How a step did not fit. Plain data, so that whoever has time can put it into words. */
typedef struct harpe_misfit {
    harpe_misfit_kind kind;
    int64_t round;
    size_t position, count;             /* of the instruction from 0; of the schedule */
    char found[HARPE_INSTRUCTION_SIZE]; /* "": none */
    char scheduled[HARPE_INSTRUCTION_SIZE];
} harpe_misfit;

typedef struct harpe_follower {
    harpe_followed_schedule *schedule; /* NULL: none yet */
    size_t position;                   /* instructions begun in this step */
    size_t fitting_steps;              /* of this schedule, whole */
    size_t misfits_in_a_row;           /* steps of this schedule, the latest */
    bool has_ever_fitted;              /* a step, any schedule that has instructions */
    bool is_in_step;
    bool fits; /* so far */
} harpe_follower;

/* Takes up what was posted, if anything. */
void harpe_follower_begin_step(harpe_follower *follower, harpe_schedule_exchange *exchange);
/* The next instruction's frequency; 0: leave the clock alone. False: it is the first that does not
 * fit, `*misfit` says how; from there on the step runs at the highest clock. */
bool harpe_follower_next(harpe_follower *follower, const char *instruction, int *frequency_mhz,
                         harpe_misfit *misfit);
/* False: the step was too short. */
bool harpe_follower_end_step(harpe_follower *follower, harpe_misfit *misfit);

/* So many steps in a row did not fit that they are the training itself, and no evaluation. */
bool harpe_follower_is_lost(const harpe_follower *follower);

/* "step does not fit its schedule (round 3): ...", one line. */
void harpe_misfit_describe(const harpe_misfit *misfit, char *line, size_t size);

#endif
