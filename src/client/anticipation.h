/* SPDX-License-Identifier: Apache-2.0 */
/* Predicts when the instructions of a step will begin, and says when to ask for their clocks, so
 * that a clock that changes late is there in time. The schedule repeats, so the times of earlier
 * steps predict the next ones. Belongs to the thread of the controller that sets clocks. It calls
 * no driver and reads no clock: all times are arguments. */
#ifndef HARPE_CLIENT_ANTICIPATION_H
#define HARPE_CLIENT_ANTICIPATION_H

#include <stdbool.h>
#include <stdint.h>

#define HARPE_ANTICIPATION_NEVER INT64_MAX

enum {
    HARPE_ANTICIPATION_POSITIONS = 8192, /* longer steps are not anticipated */
    HARPE_POSITION_LOST = 0xFFFFFF,      /* the instruction is not part of a schedule */
};

typedef struct harpe_anticipation harpe_anticipation;

/* How long a change to a clock takes, from the request on. */
typedef struct harpe_switch_time {
    int64_t latency_ns; /* median */
    int64_t spread_ns;  /* by which nearly all changes are faster than the median and this */
} harpe_switch_time;
typedef harpe_switch_time harpe_switch_time_of(const void *user, uint32_t mhz);

/* The next request. */
typedef struct harpe_anticipated {
    int64_t at_ns;    /* when to make it, or when to ask again; HARPE_ANTICIPATION_NEVER: not before
                       * the next event */
    uint32_t mhz;     /* 0: none yet, ask again at `at_ns` */
    bool is_early;    /* its instruction has not begun */
    bool is_return;   /* a prediction has failed: back to the clock of the running instruction */
    uint32_t decided; /* see harpe_anticipation_asked */
} harpe_anticipated;

/* Returns NULL if there is no memory. */
harpe_anticipation *harpe_anticipation_new(void);
void harpe_anticipation_free(harpe_anticipation *self);

/* An instruction begins, at a position of the schedule `series` and with its clock (0: it leaves
 * the clock as it is, so it has the clock of the instruction before). A position of
 * HARPE_POSITION_LOST, or one that does not follow the last one, ends all predictions until the
 * positions follow each other again. */
void harpe_anticipation_begin(harpe_anticipation *self, uint32_t series, uint32_t position,
                              uint32_t mhz, int64_t now_ns);
void harpe_anticipation_end(harpe_anticipation *self, int64_t now_ns);

/* Forgets where the training is, because events were lost. What was learnt remains. */
void harpe_anticipation_lose(harpe_anticipation *self);

/* Returns true if the instruction that has begun last has a position in a schedule. Otherwise the
 * caller makes requests as they come. */
bool harpe_anticipation_is_following(const harpe_anticipation *self);

/* Returns the next request. Changes nothing that another call of this function would not change. */
harpe_anticipated harpe_anticipation_next(harpe_anticipation *self, int64_t now_ns,
                                          harpe_switch_time_of *switch_time, const void *user);
/* The request was made, and the driver has accepted it. */
void harpe_anticipation_asked(harpe_anticipation *self, const harpe_anticipated *request);
/* The GPU has been asked for a clock outside of predictions; 0: its clock is unknown. */
void harpe_anticipation_set(harpe_anticipation *self, uint32_t mhz);

#endif
