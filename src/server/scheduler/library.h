/* SPDX-License-Identifier: Apache-2.0 */
/* Schedulers in shared objects. The server never loads a shared object. For each job, a separate
 * process of `harpe` loads it. A crash or an endless loop in the shared object therefore affects
 * only that job. library.c is the server's side, and library_host.c is the process. They exchange
 * questions and answers as JSON lines, as the server does with scheduler programs:
 *
 * {"check": args}         once, without a job -> {"name": N, "has": [functions that are there]}
 * {"init": {...}}         as for programs, with "directory" -> {"finished": B}
 * {"next": true}          -> {"schedules": [...], "finished": B}
 * {"observe": [...]}      -> {"finished": B}
 * {"wish": [WHICH, V]}    -> {"finished": B}
 * {"save": true}          -> {"text": HEX}
 * {"load": HEX}           -> {"finished": B}
 * {"frontier": true}      -> {"text": JSON}
 * {"pipeline": NUMBER}    -> {"text": JSON}
 *
 * or {"error": LINE, "status": N}. Every answer may have "log": [[LEVEL, LINE], ...]. */
#ifndef HARPE_SERVER_SCHEDULER_LIBRARY_H
#define HARPE_SERVER_SCHEDULER_LIBRARY_H

#include <jansson.h>

#include <harpe/scheduler.h>

#include "server/scheduler/child.h"

#define HARPE_LIBRARY_ARGUMENT "--scheduler-library"

/* Starts a process that examines the shared object. Returns a class whose functions ask such
 * processes. The caller frees the scheduler's name (class->name). `command` is the command line of
 * the process. `path` is for messages. */
harpe_status harpe_library_look(const char *command, const char *path, const char *args_json,
                                int timeout_s, harpe_children *children,
                                harpe_scheduler_class *class, char **name, harpe_error *error);

/* Writes the bytes of a scheduler's state as hexadecimal digits, so that JSON can contain them.
 * Returns NULL if memory runs out. */
char *harpe_library_to_hex(const char *bytes, size_t length);
/* Reads such digits. Returns NULL if `hex` contains anything else, or if memory runs out. */
char *harpe_library_from_hex(const char *hex, size_t *length);

#endif
