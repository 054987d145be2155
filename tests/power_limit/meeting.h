/* SPDX-License-Identifier: Apache-2.0 */
/* An all-reduce among the threads of a test, each of which is a rank. It counts the calls in which
 * a rank has another count or operation than the first one. */
#ifndef HARPE_TESTS_POWERLIMIT_MEETING_H
#define HARPE_TESTS_POWERLIMIT_MEETING_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <harpe/status.h>

#include "base/wait.h"

enum { MEETING_VALUES = 16 };

typedef struct barrier {
    pthread_mutex_t lock;
    pthread_cond_t all_are_there;
    unsigned members, missing, meetings;
} barrier;

static inline void barrier_make(barrier *self, unsigned members) {
    *self = (barrier){.members = members, .missing = members};
    pthread_mutex_init(&self->lock, NULL);
    pthread_cond_init(&self->all_are_there, NULL);
}

/* Waits until all members wait. */
static inline void meet(barrier *self) {
    harpe_lock(&self->lock);
    unsigned now = self->meetings;
    if (--self->missing == 0) {
        self->missing = self->members;
        self->meetings++;
        harpe_broadcast(&self->all_are_there);
    }
    while (self->meetings == now)
        harpe_wait_for(&self->all_are_there, &self->lock);
    harpe_unlock(&self->lock);
}

typedef struct meeting {
    barrier barrier;
    double values[MEETING_VALUES];
    size_t count;
    bool maximum;
    int arrived;
    int mismatches;
} meeting;

static inline void begin_meeting(meeting *self, unsigned ranks) {
    memset(self, 0, sizeof *self);
    barrier_make(&self->barrier, ranks);
}

/* Call this function after the threads have ended. */
static inline void end_meeting(meeting *self) { assert_int_equal(self->mismatches, 0); }

static inline void add_to_meeting(meeting *self, const double *values, size_t count, bool maximum) {
    if (self->arrived++ == 0) {
        self->count = count;
        self->maximum = maximum;
        memcpy(self->values, values, count * sizeof *values);
    } else if (self->count != count || self->maximum != maximum) {
        self->mismatches++;
    } else {
        for (size_t i = 0; i < count; i++)
            self->values[i] =
                maximum ? fmax(self->values[i], values[i]) : self->values[i] + values[i];
    }
}

/* The all-reduce of harpe_power_limit_options. `user`: the meeting. */
static inline harpe_status all_reduce(void *user, double *values, size_t count, bool maximum,
                                      harpe_error *error) {
    (void)error;
    meeting *self = user;
    if (count > MEETING_VALUES) return HARPE_LIMIT_EXCEEDED;
    harpe_lock(&self->barrier.lock);
    add_to_meeting(self, values, count, maximum);
    harpe_unlock(&self->barrier.lock);
    meet(&self->barrier);
    memcpy(values, self->values, count * sizeof *values);
    meet(&self->barrier);
    harpe_lock(&self->barrier.lock);
    self->arrived = 0;
    harpe_unlock(&self->barrier.lock);
    meet(&self->barrier);
    return HARPE_OK;
}

#endif
