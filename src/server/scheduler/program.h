/* SPDX-License-Identifier: Apache-2.0 */
/* A scheduler in a process that answers questions in JSON lines: a program, or a shared object. The
 * server never loads a shared object. For each job, a separate process of `harpe` loads it
 * (library_host.c). A crash or an endless loop in the shared object therefore affects only that
 * job. The questions to a program stand in program.c. These are the questions to a shared object,
 * and the answers:
 *
 * {"check": args}         once, without a job -> {"name": N, FUNCTION: whether it is there ...}
 * {"init": {...}}         as for programs, with "directory" -> {"finished": B}
 * {"next": true}          -> {"schedules": [...], "finished": B}
 * {"observe": [...]}      -> {"finished": B}
 * {"job_request": [W, V]} -> {"finished": B}
 * {"save": true}          -> {"text": HEX}
 * {"load": HEX}           -> {"finished": B}
 * {"frontier": true}      -> {"text": JSON}
 * {"pipeline": NUMBER}    -> {"text": JSON}
 *
 * or {"error": LINE, "status": N}. Every answer may have "log": [[LEVEL, LINE], ...]. */
#ifndef HARPE_SERVER_SCHEDULER_PROGRAM_H
#define HARPE_SERVER_SCHEDULER_PROGRAM_H

#include <jansson.h>
#include <stdbool.h>

#include "server/scheduler/builtin.h"
#include "server/scheduler/child.h"

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

/* Returns true if a class can have this name: 1 to HARPE_SCHEDULER_NAME_MAX letters, digits or _.
 */
enum { HARPE_SCHEDULER_NAME_MAX = 64 };
bool harpe_scheduler_is_good_name(const char *name);

#endif
