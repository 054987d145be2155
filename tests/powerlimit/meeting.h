/* SPDX-License-Identifier: Apache-2.0 */
/* An all-reduce among the threads of a test, each of which is a rank. It counts the calls in which
 * a rank has another count or operation than the first one. */
#ifndef HARPE_TESTS_POWERLIMIT_MEETING_H
#define HARPE_TESTS_POWERLIMIT_MEETING_H

#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <harpe/status.h>

enum { MEETING_VALUES = 16 };

typedef struct meeting {
    pthread_barrier_t barrier;
    pthread_mutex_t lock;
    double values[MEETING_VALUES];
    size_t count;
    bool maximum;
    int arrived;
    int mismatches;
} meeting;

static inline void begin_meeting(meeting *self, unsigned ranks) {
    memset(self, 0, sizeof *self);
    pthread_barrier_init(&self->barrier, NULL, ranks);
    pthread_mutex_init(&self->lock, NULL);
}

/* Call this function after the threads have ended. */
static inline void end_meeting(meeting *self) {
    assert_int_equal(self->mismatches, 0);
    pthread_barrier_destroy(&self->barrier);
    pthread_mutex_destroy(&self->lock);
}

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
    pthread_mutex_lock(&self->lock);
    add_to_meeting(self, values, count, maximum);
    pthread_mutex_unlock(&self->lock);
    pthread_barrier_wait(&self->barrier);
    memcpy(values, self->values, count * sizeof *values);
    if (pthread_barrier_wait(&self->barrier) == PTHREAD_BARRIER_SERIAL_THREAD) self->arrived = 0;
    pthread_barrier_wait(&self->barrier);
    return HARPE_OK;
}

#endif
