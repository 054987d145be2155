/* SPDX-License-Identifier: Apache-2.0 */
/* The training thread follows a frequency schedule: it finds the entry of each instruction, and
 * checks whether the step fits the schedule. The optimizer's own thread posts new schedules, and
 * the training thread gives old ones back, both without a lock. The training thread never frees
 * memory. The optimizer's own thread calls harpe_schedule_post and harpe_schedule_exchange_clear;
 * the training thread calls all other functions. */
#ifndef HARPE_CLIENT_SCHEDULE_FOLLOW_H
#define HARPE_CLIENT_SCHEDULE_FOLLOW_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/pfo.h>

/* A schedule for the training thread. It does not change after it is posted. */
typedef struct harpe_followed_schedule {
    harpe_frequency_schedule schedule; /* if it has no instructions, every step fits and runs at
                                        * `highest_mhz` */
    int highest_mhz;                   /* 0: unknown, clocks are left alone */
    int64_t series;                    /* number among all schedules of this optimizer */
    int64_t round;                     /* the server's round; -1: unknown */
    struct harpe_followed_schedule *given_back_before; /* list of schedules that were given back */
} harpe_followed_schedule;

/* ---- Handing over ---------------------------------------------------------------------------- */

typedef struct harpe_schedule_exchange {
    _Atomic(harpe_followed_schedule *) next; /* posted, but not yet taken */
    _Atomic(harpe_followed_schedule *) used; /* the schedule that was given back last; the head of a
                                              * list */
} harpe_schedule_exchange;

/* Makes a schedule. Moves `frequencies` into the schedule and sets `*frequencies` to zeros. NULL:
 * out of memory. */
harpe_followed_schedule *harpe_followed_schedule_new(harpe_frequency_schedule *frequencies);
void harpe_followed_schedule_free(harpe_followed_schedule *schedule);

/* Posts a schedule. Frees the previous schedule if it was not taken yet, and all schedules that the
 * training thread has given back. */
void harpe_schedule_post(harpe_schedule_exchange *exchange, harpe_followed_schedule *schedule);
void harpe_schedule_exchange_clear(harpe_schedule_exchange *exchange);

/* ---- Following ------------------------------------------------------------------------------- */

typedef enum harpe_mismatch_kind {
    HARPE_MISMATCH_NONE = 0,
    HARPE_MISMATCH_NAME,   /* the schedule has another instruction at this position */
    HARPE_MISMATCH_LONGER, /* the step has more instructions than the schedule */
    HARPE_MISMATCH_SHORTER,
    HARPE_MISMATCH_UNNAMED, /* the training passed NULL as a name */
    HARPE_MISMATCH_KINDS,
} harpe_mismatch_kind;

#define HARPE_INSTRUCTION_SIZE 64

/* Describes why a step does not fit. The structure is plain data, so another thread can later make
 * a text of it. */
typedef struct harpe_mismatch {
    harpe_mismatch_kind kind;
    int64_t round;
    size_t position, count;             /* position of the instruction from 0; length of the
                                         * schedule */
    char found[HARPE_INSTRUCTION_SIZE]; /* "": none */
    char scheduled[HARPE_INSTRUCTION_SIZE];
} harpe_mismatch;

typedef struct harpe_follower {
    harpe_followed_schedule *schedule; /* NULL: none yet */
    size_t position;                   /* instructions begun in this step */
    size_t fitting_steps;              /* complete steps that fitted this schedule */
    size_t mismatches_in_a_row;        /* latest consecutive mismatches with this schedule */
    bool has_ever_fitted;              /* a step has fitted any schedule that has instructions */
    bool is_in_step;
    bool fits; /* true if the step has fitted so far */
} harpe_follower;

/* Takes the posted schedule, if there is one. */
void harpe_follower_begin_step(harpe_follower *follower, harpe_schedule_exchange *exchange);
/* Sets `*frequency_mhz` to the frequency of the next instruction; 0: leave the clock alone. Returns
 * false at the first instruction of a step that does not fit, and describes this instruction in
 * `*mismatch`. This instruction and the rest of the step run at the highest clock. */
bool harpe_follower_next(harpe_follower *follower, const char *instruction, int *frequency_mhz,
                         harpe_mismatch *mismatch);
/* Ends the step. If the step has fitted, but has fewer instructions than the schedule, returns
 * false and describes this in `*mismatch`. */
bool harpe_follower_end_step(harpe_follower *follower, harpe_mismatch *mismatch);

/* Returns true if too many consecutive steps did not fit. So many steps cannot be an evaluation:
 * the training itself does not fit the schedule. */
bool harpe_follower_is_lost(const harpe_follower *follower);

/* Writes one line: "step does not fit its schedule (round 3): ...". */
void harpe_mismatch_describe(const harpe_mismatch *mismatch, char *line, size_t size);

/* ---- Checking -------------------------------------------------------------------------------- */

/* Checks the clocks of a schedule that a server has sent. If the job may not use one of these
 * clocks, the whole schedule is refused, because the other clocks belong to the same plan. */

/* The clocks that a job may use. */
typedef struct harpe_allowed_clocks {
    const int *clocks_mhz; /* highest first: the clocks that the rank has registered */
    size_t count;          /* 0: not known */
    int lowest_mhz;        /* the job's own lowest clock; 0: none */
} harpe_allowed_clocks;

/* Returns HARPE_OK if each instruction has an allowed clock or 0, which leaves the clock as it is.
 * If the allowed clocks are not known, every clock up to the highest of any GPU (base/possible.h)
 * is allowed, but none below the job's lowest clock. If a clock is not allowed, fails with
 * HARPE_INVALID_INPUT and names the first instruction with such a clock. Takes time proportional to
 * instructions * log(clocks). */
harpe_status harpe_schedule_check(const harpe_frequency_schedule *schedule,
                                  const harpe_allowed_clocks *allowed, harpe_error *error);

#endif
