/* SPDX-License-Identifier: Apache-2.0 */
/* Finds which activities wait for which, and how long after that they start. */
#ifndef HARPE_TRACE_TRACE_WAITS_H
#define HARPE_TRACE_TRACE_WAITS_H

#include "trace/activities.h"

/* An activity that must end before another one. */
typedef struct harpe_trace_wait {
    size_t activity; /* a piece, or the number of pieces plus a communication */
    double lag_s;
} harpe_trace_wait;

/* The waits of all pieces and kept communications. */
typedef struct harpe_trace_waits {
    size_t *first; /* [pieces + communications + 1]: into items */
    size_t count, capacity;
    harpe_trace_wait *items;
    double *release_s; /* [pieces + communications]: of those that wait for nothing on a rank */
} harpe_trace_waits;

/* The lag of the last activity for which another one waits is the time that passed after it in the
 * trace. What happens in this time, on the CPU for example, is not known; it is assumed to take the
 * same time always. Free with harpe_trace_waits_free, also after a failure. */
harpe_status harpe_trace_waits_find(const harpe_trace *traces, size_t trace_count,
                                    const harpe_communications *communications,
                                    const harpe_activities *activities, harpe_trace_waits *out,
                                    harpe_error *error);
void harpe_trace_waits_free(harpe_trace_waits *waits);

#endif
