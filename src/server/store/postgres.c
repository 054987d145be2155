/* SPDX-License-Identifier: Apache-2.0 */
/* The state in PostgreSQL, in the schema "harpe". One connection writes. It sends a batch as a
 * pipeline of prepared statements, which takes one round trip for any number of changes. Another
 * connection reads, and a third one counts and reads heartbeats.
 *
 * If several servers share the store, the owner is the server whose writing connection holds an
 * advisory lock. Only the end of the connection's session releases the lock. A session that can
 * write is therefore the session of the owner, and batches need no check. A lost connection is
 * opened again after a pause. The ownership does not come back with it: that needs another call of
 * harpe_store_own. */
#include "server/store/postgres_connection.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/wait.h"
#include "server/store/address.h"
#include "server/store/backend.h"
#include "server/store/postgres_read.h"
#include "server/store/postgres_result.h"
#include "server/store/postgres_wait.h"
#include "server/store/schema.h"

enum { LONGEST_TEXT = 1000000000 }; /* a bytea, with its header, is below 1 GiB */

/* Pauses between attempts to connect again. */
static const int64_t first_pause_ns = 100000000;
static const int64_t longest_pause_ns = 5000000000;

typedef struct postgres_store {
    char *where;
    PGconn *writer;    /* used by the store's thread; NULL: lost */
    bool is_exclusive; /* writes only while it owns the store */
    atomic_bool is_owned;
    int64_t pause_ns, not_before_ns;
    harpe_error lost;     /* the reason why the connection was lost; used until not_before_ns */
    PGconn *reader;       /* NULL: not needed yet, or lost */
    pthread_mutex_t lock; /* protects the reader */
    PGconn *watcher;      /* of harpe_store_watch; NULL: not needed yet, or lost */
} postgres_store;

/* ---- Writing --------------------------------------------------------------------------------- */

/* The name of a prepared statement in the database: "w0", "w1" ... */
typedef struct statement_name {
    char text[8];
} statement_name;

static statement_name name_of(size_t index) {
    statement_name name;
    (void)snprintf(name.text, sizeof name.text, "w%u", (unsigned)(index % 1000));
    return name;
}

static harpe_status prepare_writes(PGconn *connection, harpe_error *error) {
    static const Oid types[HARPE_SCHEMA_PARAMETER_COUNT] = {
        HARPE_PG_TEXT, HARPE_PG_INT8, HARPE_PG_INT8, HARPE_PG_INT8, HARPE_PG_BYTEA,
    };
    for (size_t i = 0; i < HARPE_SCHEMA_WRITE_COUNT; i++) {
        harpe_status status =
            harpe_pg_prepare(connection, name_of(i).text, harpe_schema_writes[i].sql,
                             HARPE_SCHEMA_PARAMETER_COUNT, types, error);
        if (status != HARPE_OK) return status;
    }
    return HARPE_OK;
}

/* Puts the statements of one change into the pipeline. */
static bool send_change(PGconn *connection, const harpe_change *change) {
    static const int formats[HARPE_SCHEMA_PARAMETER_COUNT] = {0, 1, 1, 1, 1};
    harpe_pg_int8 round = harpe_pg_from_int(change->round);
    harpe_pg_int8 rank = harpe_pg_from_int(change->rank);
    harpe_pg_int8 number = harpe_pg_from_int(change->number);
    const char *values[HARPE_SCHEMA_PARAMETER_COUNT] = {
        change->job_id, round.bytes, rank.bytes, number.bytes, change->text ? change->text : "",
    };
    int lengths[HARPE_SCHEMA_PARAMETER_COUNT] = {0, 8, 8, 8, (int)change->length};
    for (size_t i = 0; i < HARPE_SCHEMA_WRITE_COUNT; i++) {
        if (harpe_schema_writes[i].kind != change->kind) continue;
        if (!PQsendQueryPrepared(connection, name_of(i).text, HARPE_SCHEMA_PARAMETER_COUNT, values,
                                 lengths, formats, 0))
            return false;
    }
    return true;
}

static bool send_plain(PGconn *connection, const char *sql) {
    return PQsendQueryParams(connection, sql, 0, NULL, NULL, NULL, NULL, 0) == 1;
}

static harpe_status write_pipeline(PGconn *connection, const harpe_change *changes,
                                   harpe_error *error) {
    bool is_sent = PQenterPipelineMode(connection) == 1 && send_plain(connection, "BEGIN");
    for (const harpe_change *change = changes; change && is_sent; change = change->next)
        is_sent = send_change(connection, change);
    if (is_sent) is_sent = send_plain(connection, "COMMIT") && PQpipelineSync(connection) == 1;
    if (!is_sent) return harpe_pg_fail(connection, error);
    return harpe_pg_end_pipeline(connection, error);
}

/* Fails if a record is too large, before anything is sent. */
static harpe_status check_sizes(const harpe_change *changes, harpe_error *error) {
    for (const harpe_change *change = changes; change; change = change->next) {
        if (change->length <= LONGEST_TEXT) continue;
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED,
                          "job %s: a record of %zu bytes; PostgreSQL takes at most %d",
                          change->job_id, change->length, LONGEST_TEXT);
    }
    return HARPE_OK;
}

/* ---- The connection that writes -------------------------------------------------------------- */

static void drop_writer(postgres_store *store, const harpe_error *why) {
    store->is_owned = false;
    PQfinish(store->writer);
    store->writer = NULL;
    store->lost = *why;
    store->pause_ns = store->pause_ns == 0 ? first_pause_ns : 2 * store->pause_ns;
    if (store->pause_ns > longest_pause_ns) store->pause_ns = longest_pause_ns;
    store->not_before_ns = harpe_clock_ns() + store->pause_ns;
}

/* Opens the writing connection if it is lost. During the pause between two attempts, batches fail
 * at once with the reason of the last failure. So no client waits for a database that does not
 * run. */
static harpe_status need_writer(postgres_store *store, harpe_error *error) {
    if (store->writer) return HARPE_OK;
    if (harpe_clock_ns() < store->not_before_ns)
        return harpe_fail(error, store->lost.status, "%s", store->lost.message);
    harpe_error why = {0};
    harpe_status status = harpe_pg_connect(store->where, &store->writer, &why);
    if (status == HARPE_OK) status = prepare_writes(store->writer, &why);
    if (status == HARPE_OK) return HARPE_OK;
    drop_writer(store, &why);
    return harpe_fail(error, status, "%s", why.message);
}

static harpe_status write_batch(void *state, const harpe_change *changes, harpe_error *error) {
    postgres_store *store = state;
    harpe_status status = check_sizes(changes, error);
    if (status == HARPE_OK && store->is_exclusive && !store->is_owned) {
        return harpe_fail(error, HARPE_IO_ERROR,
                          "the connection to PostgreSQL was lost, and the jobs with it: they are "
                          "loaded again by the first server that connects");
    }
    if (status == HARPE_OK) status = need_writer(store, error);
    if (status != HARPE_OK) return status;
    harpe_error why = {0};
    status = write_pipeline(store->writer, changes, &why);
    if (status == HARPE_OK) {
        store->pause_ns = 0;
        return HARPE_OK;
    }
    /* If the connection works, the rollback undoes the failed transaction. Otherwise it is not
     * known whether the transaction was committed, and the connection is closed. */
    bool is_undone = harpe_pg_execute(store->writer, "ROLLBACK", NULL) == HARPE_OK;
    if (!is_undone) drop_writer(store, &why);
    return harpe_fail(error, status, "%s", why.message);
}

/* ---- Owning ---------------------------------------------------------------------------------- */

static harpe_status try_lock(PGconn *connection, bool *is_held, harpe_error *error) {
    PGresult *rows;
    harpe_status status = harpe_pg_query(
        connection, "SELECT pg_try_advisory_lock(" HARPE_PG_LOCKS ", 0)", NULL, &rows, error);
    if (status == HARPE_OK) *is_held = harpe_pg_to_bool(rows, 0, 0);
    PQclear(rows);
    return status;
}

/* The session that owns the store. */
#define OWNER_LOCK \
    " FROM pg_locks WHERE locktype = 'advisory' AND granted AND database =" \
    " (SELECT oid FROM pg_database WHERE datname = current_database())" \
    " AND classid = " HARPE_PG_LOCKS " AND objid = 0 AND objsubid = 2"
#define LAST_OWNER "SELECT server, beat, address FROM lead"

/* Reads the server that a statement finds, if it finds one. */
static harpe_status read_leader(PGconn *connection, const char *sql, harpe_store_leader *out,
                                harpe_error *error) {
    PGresult *rows;
    *out = (harpe_store_leader){0};
    harpe_status status = harpe_pg_query(connection, sql, NULL, &rows, error);
    if (status == HARPE_OK && PQntuples(rows) == 1) {
        out->id = harpe_pg_to_int(rows, 0, 0);
        out->beat = harpe_pg_to_int(rows, 0, 1);
        (void)snprintf(out->address, sizeof out->address, "%s", PQgetvalue(rows, 0, 2));
    }
    PQclear(rows);
    return status;
}

/* Writes the new owner into the table `lead`. From then on, the last owner finds there that it does
 * not lead any more. */
static harpe_status proclaim(PGconn *connection, const harpe_store_server *server,
                             harpe_error *error) {
    static const Oid types[] = {HARPE_PG_INT8, HARPE_PG_TEXT};
    static const int formats[] = {1, 0}, lengths[] = {8, 0};
    harpe_pg_int8 id = harpe_pg_from_int(server->id);
    const char *values[] = {id.bytes, server->address};
    const harpe_pg_parameters parameters = {2, types, values, lengths, formats};
    PGresult *rows;
    harpe_status status = harpe_pg_query(
        connection,
        "INSERT INTO lead (is_one, server, beat, address) VALUES (true, $1, 0, $2)"
        " ON CONFLICT (is_one) DO UPDATE SET server = excluded.server, beat = lead.beat + 1,"
        " address = excluded.address, since = now()",
        &parameters, &rows, error);
    PQclear(rows);
    return status;
}

static harpe_status own(void *state, const harpe_store_server *server, harpe_ownership *out,
                        harpe_error *error) {
    postgres_store *store = state;
    bool is_held = store->is_owned;
    harpe_store_leader former = {0};
    store->is_exclusive = true;
    harpe_error why = {0};
    harpe_status status = need_writer(store, error);
    if (status != HARPE_OK) return status;
    if (!is_held) status = try_lock(store->writer, &is_held, &why);
    if (status == HARPE_OK && is_held) {
        status = read_leader(store->writer, LAST_OWNER, &former, &why);
        if (status == HARPE_OK) status = proclaim(store->writer, server, &why);
    }
    if (status != HARPE_OK) {
        drop_writer(store, &why);
        return harpe_fail(error, status, "%s", why.message);
    }
    store->pause_ns = 0;
    store->is_owned = is_held;
    *out = (harpe_ownership){
        .is_ours = is_held, .may_have_rival = is_held && former.id != 0 && former.id != server->id};
    return HARPE_OK;
}

/* Opens the connection of harpe_store_watch if it is lost. Its heartbeats need not be durable. */
static harpe_status need_watcher(postgres_store *store, harpe_error *error) {
    if (store->watcher) return HARPE_OK;
    harpe_status status = harpe_pg_connect(store->where, &store->watcher, error);
    if (status == HARPE_OK)
        status = harpe_pg_execute(store->watcher, "SET synchronous_commit = off", error);
    return status;
}

/* Ends the session that owns the store, if the last heartbeat is `dead_beat`. */
static harpe_status end_owner(PGconn *connection, int64_t dead_beat, harpe_error *error) {
    char sql[512];
    (void)snprintf(sql, sizeof sql,
                   "SELECT pg_terminate_backend(pid)" OWNER_LOCK
                   " AND EXISTS (SELECT FROM lead WHERE beat = %lld)",
                   (long long)dead_beat);
    return harpe_pg_execute(connection, sql, error);
}

static harpe_status watch(void *state, int64_t owner, int64_t dead_beat, harpe_store_leader *out,
                          harpe_error *error) {
    postgres_store *store = state;
    char sql[100];
    (void)snprintf(sql, sizeof sql, "UPDATE lead SET beat = beat + 1 WHERE server = %lld",
                   (long long)owner);
    harpe_status status = need_watcher(store, error);
    if (status == HARPE_OK && owner != 0) status = harpe_pg_execute(store->watcher, sql, error);
    if (status == HARPE_OK && dead_beat >= 0) status = end_owner(store->watcher, dead_beat, error);
    if (status == HARPE_OK)
        status = read_leader(store->watcher, LAST_OWNER " WHERE EXISTS (SELECT" OWNER_LOCK ")", out,
                             error);
    if (status == HARPE_OK) return HARPE_OK;
    PQfinish(store->watcher);
    store->watcher = NULL;
    return status;
}

static void disown(void *state) {
    postgres_store *store = state;
    if (!store->is_owned) return;
    (void)harpe_pg_execute(store->writer, "UPDATE lead SET server = 0", NULL);
    store->is_owned = false;
    PQfinish(store->writer);
    store->writer = NULL;
}

static bool is_owned(const void *state) {
    const postgres_store *store = state;
    return store->is_owned;
}

/* ---- Opening --------------------------------------------------------------------------------- */

static void close_postgres(void *state) {
    postgres_store *store = state;
    disown(store);
    PQfinish(store->writer);
    PQfinish(store->reader);
    PQfinish(store->watcher);
    pthread_mutex_destroy(&store->lock);
    free(store->where);
    free(store);
}

static harpe_status open_postgres(const char *where, harpe_log log, void **state,
                                  harpe_error *error) {
    (void)log;
    postgres_store *store = calloc(1, sizeof *store);
    if (!store) return harpe_fail_memory(error);
    pthread_mutex_init(&store->lock, NULL);
    store->where = strdup(where);
    harpe_status status = store->where ? HARPE_OK : harpe_fail_memory(error);
    if (status == HARPE_OK) status = harpe_pg_check_address(where, error);
    if (status == HARPE_OK) status = harpe_pg_connect(where, &store->writer, error);
    if (status == HARPE_OK) status = harpe_pg_create_tables(store->writer, error);
    if (status == HARPE_OK) status = prepare_writes(store->writer, error);
    if (status != HARPE_OK) {
        close_postgres(store);
        return status;
    }
    *state = store;
    return HARPE_OK;
}

/* ---- Reading --------------------------------------------------------------------------------- */

static void drop_reader(postgres_store *store) {
    PQfinish(store->reader);
    store->reader = NULL;
}

/* Opens the reading connection when it is first needed. Call it with the lock held. A connection
 * that was idle for long may have been lost without notice. */
static harpe_status need_reader(postgres_store *store, harpe_error *error) {
    if (store->reader && harpe_pg_execute(store->reader, "SELECT 1", NULL) != HARPE_OK)
        drop_reader(store);
    if (store->reader) return HARPE_OK;
    return harpe_pg_connect(store->where, &store->reader, error);
}

static harpe_status load(void *state, const char *job_id,
                         harpe_status (*record)(void *user, const harpe_change *change,
                                                harpe_error *error),
                         void *user, harpe_error *error) {
    postgres_store *store = state;
    harpe_lock(&store->lock);
    harpe_status status = need_reader(store, error);
    if (status == HARPE_OK) {
        status = harpe_pg_load(store->reader, job_id, record, user, error);
        if (status != HARPE_OK) drop_reader(store);
    }
    harpe_unlock(&store->lock);
    return status;
}

static harpe_status load_notes(void *state,
                               harpe_status (*record)(void *user, const harpe_change *change,
                                                      harpe_error *error),
                               void *user, harpe_error *error) {
    postgres_store *store = state;
    harpe_lock(&store->lock);
    harpe_status status = need_reader(store, error);
    if (status == HARPE_OK) status = harpe_pg_load_notes(store->reader, record, user, error);
    harpe_unlock(&store->lock);
    return status;
}

static harpe_status read_result(void *state, const char *job_id, int64_t round, int rank,
                                char **text, size_t *length, harpe_error *error) {
    postgres_store *store = state;
    harpe_lock(&store->lock);
    harpe_status status = need_reader(store, error);
    if (status == HARPE_OK)
        status = harpe_pg_read_result(store->reader, job_id, round, rank, text, length, error);
    harpe_unlock(&store->lock);
    return status;
}

const harpe_store_backend harpe_store_postgres = {
    .name = "postgresql",
    .accepts = harpe_store_is_postgres,
    .open = open_postgres,
    .close = close_postgres,
    .write = write_batch,
    .load = load,
    .load_notes = load_notes,
    .read_result = read_result,
    .own = own,
    .watch = watch,
    .disown = disown,
    .is_owned = is_owned,
};
