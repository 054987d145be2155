/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that use files in place of the caller. A system call on a file system that hangs does
 * not end, and a process with a thread in such a call does not end either, not even after SIGKILL.
 * Its locks stay locked. Therefore a server lets other processes, the file processes, use the files
 * that users name. A file process has no descriptor of the server except its socket, and the server
 * can abandon it.
 *
 * A file process does one piece of work at a time. It is started when there is more work than
 * processes, and ends when the server ends. The work is a function of the caller's. */
#ifndef HARPE_BASE_FILE_PROCESSES_H
#define HARPE_BASE_FILE_PROCESSES_H

#include <stddef.h>
#include <sys/uio.h>

#include <harpe/callback.h>
#include <harpe/status.h>

#include "base/text.h"

#define HARPE_FILE_PROCESS_ARGUMENT "--file-process"

enum { HARPE_FILE_WORK_PARTS = 4 };

/* A piece of work. Each of the `parts` is followed by a NUL, so a part may be read as a string.
 * Appends what the caller should know to `answer`. It uses no other memory of the caller. If it
 * fails, its answer is lost. */
typedef harpe_status harpe_file_work(const struct iovec *parts, size_t count, harpe_text *answer,
                                     harpe_error *error);

/* ---- The caller's side ----------------------------------------------------------------------- */

typedef struct harpe_file_processes harpe_file_processes;

/* Makes a pool of processes for one use, and starts none. `name` is this use, for the command line
 * and messages, and must stay valid. If a process does not answer for `patience_s`, it is killed,
 * and another process does the work again, with twice the patience. So the work must be repeatable.
 * At most 4 killed processes that have not ended are left behind. Beyond that, and if `patience_s`
 * is 0, the caller waits on. */
harpe_status harpe_file_processes_new(const char *name, int patience_s, harpe_log log,
                                      harpe_file_processes **out, harpe_error *error);
/* Lets a process do the work, and waits for its end, for ever if necessary. Call it on a worker.
 * `parts` are as above, but need no NUL. At most HARPE_FILE_WORK_PARTS. `subject` names the file in
 * messages. On success `*answer` has the answer; it must be empty before. Fails with
 * HARPE_INTERRUPTED after harpe_file_processes_stop. Fails with HARPE_IO_ERROR if the process was
 * killed by others; the work is then done, half done, or not begun. If `processes` is NULL, the
 * calling thread does the work itself. */
harpe_status harpe_file_processes_run(harpe_file_processes *processes, const char *subject,
                                      harpe_file_work *work, const struct iovec *parts,
                                      size_t count, harpe_text *answer, harpe_error *error);
/* All callers stop to wait, also later ones. Any thread. NULL is allowed. */
void harpe_file_processes_stop(harpe_file_processes *processes);
/* Ends the processes and does not wait for their ends. No caller may wait. NULL is allowed. */
void harpe_file_processes_free(harpe_file_processes *processes);

/* ---- The process ----------------------------------------------------------------------------- */

/* Does work until the starter ends. Returns the exit status. `argv[3]` is the starter's version. */
int harpe_file_process_main(int argc, char **argv, harpe_file_work *work);

#endif
