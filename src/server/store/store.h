/* SPDX-License-Identifier: Apache-2.0 */
/* Stores the state that survives a restart. A change is a small record. The loop queues changes,
 * and the store's own thread writes them in batches, each in one transaction with one fsync. The
 * loop acknowledges them in order. The changes that are queued while a batch is being written
 * become the next batch. Thousands of registrations therefore need only tens of fsyncs. When a
 * server starts, it reads the same records back.
 *
 * A back-end (backend.h) is one table of functions. */
#ifndef HARPE_SERVER_STORE_STORE_H
#define HARPE_SERVER_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/callback.h>
#include <harpe/status.h>

#include "http/loop.h"
#include "server/store/change.h"

typedef struct harpe_store harpe_store;

/* Opens `where` ("sqlite:FILE" or a path, "postgresql://...", "memory") and creates it if it is
 * missing. Refuses a file of a newer version of Harpe, and a file that another server has open. */
harpe_status harpe_store_open(const char *where, harpe_loop *loop, harpe_log log, harpe_store **out,
                              harpe_error *error);
/* Writes the queued changes, calls their `done`, and closes the store. Call it on the loop's
 * thread. */
void harpe_store_close(harpe_store *store);
/* Writes the queued changes and acknowledges them, but waits at most `wait_ms`. It is for a program
 * that must end soon. Returns false if not all changes are written. Call it on the loop's
 * thread. */
bool harpe_store_flush(harpe_store *store, int64_t wait_ms);

/* Queues a change. The changes of a job are written in the order of submission. Call it on the
 * loop's thread. */
void harpe_store_submit(harpe_store *store, harpe_change *change);
/* Does the same with two changes. The first one is stored before the second one, and usually in the
 * same transaction. */
void harpe_store_submit_both(harpe_store *store, harpe_change *first, harpe_change *second);

/* Calls `record` for every record of all jobs (job_id NULL) or of one job. Call it before any
 * change is submitted. For all jobs the first record is UPTIME, if there is one. The records of a
 * job are its JOB, RANKs by rank, ROUNDs by round, RESULTs by round and rank (without their texts),
 * the last STATE, JOB_REQUESTs, ENDs by rank, FAILED, SEEN. A deleted job has one record, DELETED.
 * Pointers are valid during the call. Blocks. */
harpe_status harpe_store_load(harpe_store *store, const char *job_id, harpe_record_reader *record,
                              void *user, harpe_error *error);

/* Calls `record` for every NOTE, by key. Call it under the conditions of harpe_store_load. */
harpe_status harpe_store_load_notes(harpe_store *store, harpe_record_reader *record, void *user,
                                    harpe_error *error);

/* Reads the text of one stored result. HARPE_NOT_FOUND: there is none. Blocks for one read, so call
 * it on a worker. */
harpe_status harpe_store_read_result(harpe_store *store, const char *job_id, int64_t round,
                                     int rank, char **text, size_t *length, harpe_error *error);

/* ---- Several servers on one store ------------------------------------------------------------ */
/* At any time, at most one of the servers owns the store, and only the owner writes. The ownership
 * belongs to the database session that writes. A server that has lost the ownership therefore
 * cannot write, even if it does not know of the loss. Without a call of harpe_store_own the
 * ownership is not checked. */

/* Returns true if several servers can share this store. */
bool harpe_store_is_shared(const harpe_store *store);
/* Makes `server` the owner if there is no owner. This function blocks, so call it on a worker,
 * while no change is submitted. Load the records afterwards, because the last owner may have
 * written more. */
harpe_status harpe_store_own(harpe_store *store, const harpe_store_server *server,
                             harpe_ownership *out, harpe_error *error);
/* Reads which server owns the store. First counts a heartbeat if the last owner's id is `owner` (0:
 * counts none), and ends the session that owns the store if the last owner's heartbeat is
 * `dead_beat` (-1: ends none). This function uses a session of its own and blocks, so call it on a
 * worker, one call at a time. */
harpe_status harpe_store_watch(harpe_store *store, int64_t owner, int64_t dead_beat,
                               harpe_store_leader *out, harpe_error *error);
/* Gives up the ownership. Call it under the conditions of harpe_store_own. */
void harpe_store_disown(harpe_store *store);
/* Returns false if the session with the ownership is lost. Then nothing is written until the next
 * harpe_store_own. */
bool harpe_store_is_owned(const harpe_store *store);

typedef struct harpe_store_counts {
    uint64_t changes, batches; /* that are on disk */
    uint64_t failures;         /* batches that could not be written */
    size_t queued;             /* changes that are not acknowledged yet */
    int64_t free_bytes;        /* of the file system, after the last batch; -1: not known */
} harpe_store_counts;
/* Returns true if the store is missing or was replaced, if a write has been running for
 * `deadline_s` or longer, or if the last write failed. Then writes the reason into `line`. After a
 * failure the store tries a small write every second, to notice when writing works again. Call it
 * on the loop's thread. */
bool harpe_store_fault(harpe_store *store, int64_t deadline_s, char *line, size_t size);
harpe_store_counts harpe_store_count(const harpe_store *store);

#endif
