/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the events of several ranks that are one communication. */
#ifndef HARPE_TRACE_COMMUNICATIONS_H
#define HARPE_TRACE_COMMUNICATIONS_H

#include "trace/trace.h"

#define HARPE_TRACE_NONE SIZE_MAX

/* One rank's side of a communication. */
typedef struct harpe_communication_part {
    size_t trace, event; /* indices */
} harpe_communication_part;

typedef struct harpe_communication {
    size_t first_part, part_count;
    /* The shortest of its events. The event of a rank that comes early also contains the wait for
     * the others; that of the last rank does not. */
    double time_s;
} harpe_communication;

/* The communications of all traces, by their first part. */
typedef struct harpe_communications {
    size_t count, part_count;
    harpe_communication *items;
    harpe_communication_part *parts;
    size_t **of_event; /* [traces][events]: the communication, or HARPE_TRACE_NONE */
} harpe_communications;

/* Two events belong together if group, kind, ranks and tag are equal, and the sequence number is
 * equal or both are the n-th of their rank. If the traces name no group, they must also end
 * together. The order in a rank is that of the starts, or, with dependencies, that of the file.
 * Free with harpe_communications_free. O(n log n) */
harpe_status harpe_communications_match(const harpe_trace *traces, size_t trace_count,
                                        harpe_communications *out, harpe_error *error);
void harpe_communications_free(harpe_communications *communications, size_t trace_count);

#endif
