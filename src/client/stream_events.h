/* SPDX-License-Identifier: Apache-2.0 */
/* Stream events: changes of clocks and time stamps that the training thread requests. They are
 * handled at once, or when the caller's CUDA stream reaches them, if the process has loaded CUDA.
 * Events keep their order. The handler decides their effect. */
#ifndef HARPE_CLIENT_STREAM_EVENTS_H
#define HARPE_CLIENT_STREAM_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "client/schedule_follow.h"

typedef enum harpe_stream_event_kind {
    HARPE_STREAM_EVENT_BEGIN_STEP,
    HARPE_STREAM_EVENT_END_STEP,
    HARPE_STREAM_EVENT_CANCEL_STEP,
    HARPE_STREAM_EVENT_BEGIN,
    HARPE_STREAM_EVENT_END,
} harpe_stream_event_kind;

typedef struct harpe_stream_event {
    harpe_stream_event_kind kind;
    bool is_measured;  /* BEGIN and END: record a time stamp */
    int set_mhz;       /* BEGIN: the clock to set; 0: leave the clock alone */
    int asked_mhz;     /* BEGIN: the clock that was requested; 0: unknown */
    int64_t series;    /* BEGIN_STEP and BEGIN: the schedule's */
    uint32_t position; /* BEGIN: of the instruction in its schedule, or HARPE_POSITION_LOST */
    const char *name;  /* BEGIN */
} harpe_stream_event;

typedef void harpe_stream_event_handler(void *user, const harpe_stream_event *event);

/* Events on their way through a stream. */
typedef struct harpe_stream_events harpe_stream_events;

/* Returns NULL if this process has not loaded CUDA, or if memory is short. */
harpe_stream_events *harpe_stream_events_new(void *cuda_stream, harpe_stream_event_handler *handler,
                                             void *user);
/* Sends an event. Call it from the training thread. The first calls may set up the memory and the
 * thread that follow the stream. If the stream captures a CUDA graph, `handler`
 * is called at once on this thread. Returns false if the stream does not accept the event, or if
 * too many events are on their way; `handler` then does not receive the event. */
bool harpe_stream_events_send(harpe_stream_events *events, const harpe_stream_event *event);
/* Returns true if the stream runs host functions because it has no writes to memory. Any thread may
 * call it. */
bool harpe_stream_events_call(const harpe_stream_events *events);
/* Frees `events`. Waits a short time for events that are on their way. `handler` is not called
 * afterwards. If the stream has not reached all events by then, the memory that it still uses is
 * leaked. */
void harpe_stream_events_free(harpe_stream_events *events);

#endif
