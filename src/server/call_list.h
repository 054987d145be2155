/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of calls that wait, in order. A call is in one list at most, and knows in which. The loop's
 * thread only. */
#ifndef HARPE_SERVER_CALL_LIST_H
#define HARPE_SERVER_CALL_LIST_H

#include <stddef.h>

#include "server/jobs.h"

/* Zero-initialise. */
typedef struct harpe_call_list {
    harpe_call *first, *last;
    size_t count;
} harpe_call_list;

void harpe_calls_append(harpe_call_list *list, harpe_call *call);
/* Takes the call out of the list in which it is. */
void harpe_calls_remove(harpe_call *call);
/* Returns NULL if the list is empty. */
harpe_call *harpe_calls_take_first(harpe_call_list *list);

#endif
