/* SPDX-License-Identifier: Apache-2.0 */
/* Schedulers in shared objects. The server never loads one: for each job a process of `harpe` does,
 * so a crash or an endless loop there costs only that job. The server's side is library.c, the
 * process library_host.c. They speak JSON lines, a question and an answer, as with programs:
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
#ifndef HARPE_SERVER_SCHEDULERS_LIBRARY_H
#define HARPE_SERVER_SCHEDULERS_LIBRARY_H

#include <jansson.h>

#include <harpe/scheduler.h>

#include "server/schedulers/child.h"

#define HARPE_LIBRARY_ARGUMENT "--scheduler-library"

/* Starts a process that looks into the shared object. Gives a class of functions that ask such
 * processes, and the scheduler's name (class->name, to be freed). `command` runs the process,
 * `path` is for messages. */
harpe_status harpe_library_look(const char *command, const char *path, const char *args_json,
                                int timeout_s, harpe_children *children,
                                harpe_scheduler_class *class, char **name, harpe_error *error);

/* The process: `harpe --scheduler-library FILE`. */
int harpe_library_main(int argc, char **argv);

/* The bytes of a state in JSON. NULL: out of memory, or no such text. */
char *harpe_library_to_hex(const char *bytes, size_t length);
char *harpe_library_from_hex(const char *hex, size_t *length);

#endif
