/* SPDX-License-Identifier: Apache-2.0 */
/* Marks: what the training thread wants done to clocks and time stamps, done at once, or when the
 * caller's CUDA stream comes there (by cuLaunchHostFunc, where the process has loaded CUDA). Events
 * keep their order. What they do is not known here. */
#ifndef HARPE_CLIENT_MARKS_H
#define HARPE_CLIENT_MARKS_H

#include <stdbool.h>
#include <stdint.h>

#include "client/schedule_follow.h"

typedef enum harpe_marked_kind {
    HARPE_MARKED_BEGIN_STEP,
    HARPE_MARKED_END_STEP,
    HARPE_MARKED_CANCEL_STEP,
    HARPE_MARKED_BEGIN,
    HARPE_MARKED_END,
} harpe_marked_kind;

typedef struct harpe_marked_event {
    harpe_marked_kind kind;
    bool is_measured; /* BEGIN and END: leave a time stamp */
    int set_mhz;      /* BEGIN: the clock from here on; 0: leave it alone */
    int asked_mhz;    /* BEGIN: what it runs at; 0: unknown */
    int64_t series;   /* BEGIN_STEP */
    const char *name; /* BEGIN */
} harpe_marked_event;

typedef void harpe_marked_handler(void *user, const harpe_marked_event *event);

/* Events on their way through a stream. */
typedef struct harpe_marks harpe_marks;

/* NULL: there is no CUDA in this process, or no memory. */
harpe_marks *harpe_marks_new(void *cuda_stream, harpe_marked_handler *handler, void *user);
/* Training thread. While the stream captures a CUDA graph: `handler` is called at once, on this
 * thread. False: the stream takes it not, or too many are on their way: `handler` will not see
 * it. */
bool harpe_marks_send(harpe_marks *marks, const harpe_marked_event *event);
/* After this `handler` is not called any more. Waits a little for events that are on their way;
 * when the stream does not come to them, what they need is left behind. */
void harpe_marks_free(harpe_marks *marks);

#endif
