/* SPDX-License-Identifier: Apache-2.0 */
/* The names of users. The system may have to wait for a directory server, so a worker looks names
 * up. Call all functions on the loop's thread. */
#ifndef HARPE_AGENT_USER_NAMES_H
#define HARPE_AGENT_USER_NAMES_H

#include <sys/types.h>

#include <harpe/status.h>

#include "http/workers.h"

typedef struct harpe_user_names harpe_user_names;

/* `pool` is the number of a pool of `workers`, in which names are looked up. */
harpe_status harpe_user_names_new(harpe_workers *workers, int pool, harpe_user_names **out,
                                  harpe_error *error);
/* Call it when no worker runs any more. NULL is allowed. */
void harpe_user_names_free(harpe_user_names *names);

/* Returns the name of the user. If the name is not known, starts to look it up and returns "".
 * Returns "" also if the user has no name. The text is valid until the next call. */
const char *harpe_user_names_find(harpe_user_names *names, uid_t user);

#endif
