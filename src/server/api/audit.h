/* SPDX-License-Identifier: Apache-2.0 */
/* The audit log: who asked for a change, and what came of it. It is a file of JSON objects, one on
 * each line, to which the server only appends. A request that steers is answered when its record is
 * on disk.
 *
 * It is a file and not a table of the store, because each of several servers on one PostgreSQL has
 * requests of its own, also refused ones, and only the server that leads may write to the store. */
#ifndef HARPE_SERVER_API_AUDIT_H
#define HARPE_SERVER_API_AUDIT_H

#include <harpe/callback.h>

#include "base/file_processes.h"
#include "http/workers.h"
#include "server/api/audit_note.h"

typedef struct harpe_audit harpe_audit;

/* `path` must stay valid. `files` use the file, or the workers themselves if it is NULL. NULL: out
 * of memory. */
harpe_audit *harpe_audit_new(harpe_workers *workers, harpe_file_processes *files, const char *path,
                             harpe_log log);
/* Calls each `done` that was not called yet. Call it when no worker runs. NULL is allowed. */
void harpe_audit_free(harpe_audit *audit);

/* Appends a record. `answer` is the JSON of the answer; a "detail" in it becomes part of the
 * record. Calls `done` on the loop when the record is on disk, or when that has failed. `done` may
 * be NULL. Requests that are refused, and those of a token without the role operator, have records
 * only at a limited rate for each token; otherwise `done` is called at once. The next record of the
 * token has their number in "left_out". */
void harpe_audit_write(harpe_audit *audit, const harpe_audit_note *note, int http_status,
                       const char *answer, size_t length, void (*done)(void *user), void *user);
/* Returns true and writes a line if the last record could not be written, or if one has waited for
 * several seconds. */
bool harpe_audit_fault(harpe_audit *audit, char *line, size_t size);

/* Reads the newest `limit` records and calls `done` on the loop with a JSON list, newest first,
 * which it frees with free(). `json` is NULL if this has failed; `error` then says why. */
void harpe_audit_read(harpe_audit *audit, int limit,
                      void (*done)(void *user, char *json, const harpe_error *error), void *user);

#endif
