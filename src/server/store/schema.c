/* SPDX-License-Identifier: Apache-2.0 */
/* The SQL statements for both databases. Each job has a number, so that the keys of ranks and
 * results stay small. Deletions of old results and of all records of a job need no other index than
 * the primary keys. */
#include "server/store/backend.h"

#define JOB_NUMBER "(SELECT number FROM jobs WHERE id = $1)"
#define NOTHING "CAST(0 AS BIGINT)"
#define MARKERS_KEPT "100000"
#define HEARD \
    "INSERT INTO heard (job, uptime_s) SELECT number, $2 FROM jobs WHERE id = $1" \
    " ON CONFLICT (job) DO UPDATE SET uptime_s = excluded.uptime_s"

const harpe_schema_statement harpe_schema_writes[HARPE_SCHEMA_WRITE_COUNT] = {
    {HARPE_CHANGE_JOB, "INSERT INTO jobs (id, registered_at, text) VALUES ($1, $4, $5)"
                       " ON CONFLICT (id) DO UPDATE SET registered_at = excluded.registered_at, "
                       "text = excluded.text"},
    {HARPE_CHANGE_JOB, HEARD},
    {HARPE_CHANGE_RANK,
     "INSERT INTO ranks (job, rank, text) SELECT number, $3, $5 FROM jobs WHERE id = $1"
     " ON CONFLICT (job, rank) DO UPDATE SET text = excluded.text"},
    {HARPE_CHANGE_ROUND,
     "INSERT INTO rounds (job, round, text) SELECT number, $2, $5 FROM jobs WHERE id = $1"
     " ON CONFLICT (job, round) DO UPDATE SET text = excluded.text"},
    /* A round without text has the same text as the last earlier round that has a text. */
    {HARPE_CHANGE_ROUND,
     "DELETE FROM rounds WHERE job = " JOB_NUMBER " AND round < $4"
     " AND round <> (SELECT coalesce(max(round), -1) FROM rounds WHERE job = " JOB_NUMBER
     " AND round <= $4 AND length(text) > 0)"},
    {HARPE_CHANGE_RESULT, "INSERT INTO results (job, round, rank, text)"
                          " SELECT number, $2, $3, $5 FROM jobs WHERE id = $1"
                          " ON CONFLICT (job, round, rank) DO UPDATE SET text = excluded.text"},

    {HARPE_CHANGE_STATE,
     "INSERT INTO states (job, round, text) SELECT number, $2, $5 FROM jobs WHERE id = $1"
     " ON CONFLICT (job) DO UPDATE SET round = excluded.round, text = excluded.text"},
    {HARPE_CHANGE_STATE, "DELETE FROM results WHERE job = " JOB_NUMBER " AND round < $2 - 1 - $4"},

    {HARPE_CHANGE_SUMS,
     "INSERT INTO job_sums (job, round, text) SELECT number, $2, $5 FROM jobs WHERE id = $1"
     " ON CONFLICT (job) DO UPDATE SET round = excluded.round, text = excluded.text"},

    {HARPE_CHANGE_FAILED, "UPDATE jobs SET failed = $5 WHERE id = $1"},
    {HARPE_CHANGE_SEEN, "UPDATE jobs SET seen_at = $4 WHERE id = $1"},
    {HARPE_CHANGE_SEEN, HEARD},
    /* Only the last job request of each kind is kept. The requests are read back in the order in
     * which they came. */
    {HARPE_CHANGE_JOB_REQUEST,
     "INSERT INTO job_requests (job, kind, place, round, text)"
     " SELECT number, $4, (SELECT 1 + coalesce(max(place), 0) FROM job_requests WHERE job = "
     "number),"
     " $2, $5 FROM jobs WHERE id = $1"
     " ON CONFLICT (job, kind) DO UPDATE SET place = excluded.place, round = excluded.round,"
     " text = excluded.text"},

    {HARPE_CHANGE_END,
     "INSERT INTO ends (job, rank, ended_at) SELECT number, $3, $4 FROM jobs WHERE id = $1"
     " ON CONFLICT (job, rank) DO UPDATE SET ended_at = excluded.ended_at"},
    {HARPE_CHANGE_BACK, "DELETE FROM ends WHERE job = " JOB_NUMBER " AND rank = $3"},

    {HARPE_CHANGE_DELETED,
     "INSERT INTO deleted (id, deleted_at) VALUES ($1, $4) ON CONFLICT (id) DO NOTHING"},
    {HARPE_CHANGE_DELETED,
     "DELETE FROM deleted WHERE number <= (SELECT max(number) FROM deleted) - " MARKERS_KEPT},
    {HARPE_CHANGE_DELETED, "INSERT INTO finished (id, finished_at, uptime_s, text)"
                           " SELECT $1, $4, $2, $5 WHERE length($5) > 0"
                           " ON CONFLICT (id) DO NOTHING"},
    {HARPE_CHANGE_DELETED, "DELETE FROM finished WHERE length($5) > 0"
                           " AND number <= (SELECT max(number) FROM finished) - $3"},
    {HARPE_CHANGE_DELETED, "DELETE FROM ranks WHERE job = " JOB_NUMBER},
    {HARPE_CHANGE_DELETED, "DELETE FROM rounds WHERE job = " JOB_NUMBER},
    {HARPE_CHANGE_DELETED, "DELETE FROM results WHERE job = " JOB_NUMBER},
    {HARPE_CHANGE_DELETED, "DELETE FROM states WHERE job = " JOB_NUMBER},
    {HARPE_CHANGE_DELETED, "DELETE FROM job_sums WHERE job = " JOB_NUMBER},
    {HARPE_CHANGE_DELETED, "DELETE FROM job_requests WHERE job = " JOB_NUMBER},
    {HARPE_CHANGE_DELETED, "DELETE FROM ends WHERE job = " JOB_NUMBER},
    {HARPE_CHANGE_DELETED, "DELETE FROM heard WHERE job = " JOB_NUMBER},
    {HARPE_CHANGE_DELETED, "DELETE FROM jobs WHERE id = $1"},

    {HARPE_CHANGE_PROBE, "INSERT INTO jobs (id, registered_at, text) VALUES ($1, $4, $5)"
                         " ON CONFLICT (id) DO NOTHING"},
    {HARPE_CHANGE_PROBE, "DELETE FROM jobs WHERE id = $1"},

    {HARPE_CHANGE_UPTIME, "INSERT INTO uptime (is_one, seconds) VALUES (1, $4)"
                          " ON CONFLICT (is_one) DO UPDATE SET seconds = excluded.seconds"},
    {HARPE_CHANGE_UPTIME, "DELETE FROM finished WHERE uptime_s < $2"},

    {HARPE_CHANGE_NOTE, "INSERT INTO notes (key, text) VALUES ($1, $5)"
                        " ON CONFLICT (key) DO UPDATE SET text = excluded.text"},
    {HARPE_CHANGE_NOTE, "DELETE FROM notes WHERE key = $1 AND length(text) = 0"},
};

#define ROWS(round, rank, number, text, id, of) \
    "SELECT " round ", " rank ", " number ", " text ", " id " FROM " of

const harpe_schema_statement harpe_schema_reads[HARPE_SCHEMA_READ_COUNT] = {
    {HARPE_CHANGE_JOB, ROWS("coalesce((SELECT uptime_s FROM heard WHERE job = $4), CAST(-1 AS "
                            "BIGINT))",
                            NOTHING, "registered_at", "text", "NULL", "jobs WHERE number = $4")},
    {HARPE_CHANGE_RANK,
     ROWS(NOTHING, "rank", NOTHING, "text", "NULL", "ranks WHERE job = $4 ORDER BY rank")},
    {HARPE_CHANGE_ROUND,
     ROWS("round", NOTHING, NOTHING, "text", "NULL", "rounds WHERE job = $4 ORDER BY round")},
    {HARPE_CHANGE_RESULT,
     ROWS("round", "rank", NOTHING, "NULL", "NULL", "results WHERE job = $4 ORDER BY round, rank")},
    {HARPE_CHANGE_STATE, ROWS("round", NOTHING, NOTHING, "text", "NULL", "states WHERE job = $4")},
    {HARPE_CHANGE_SUMS, ROWS("round", NOTHING, NOTHING, "text", "NULL", "job_sums WHERE job = $4")},
    {HARPE_CHANGE_JOB_REQUEST,
     ROWS("round", NOTHING, "kind", "text", "NULL", "job_requests WHERE job = $4 ORDER BY place")},
    {HARPE_CHANGE_END,
     ROWS(NOTHING, "rank", "ended_at", "NULL", "NULL", "ends WHERE job = $4 ORDER BY rank")},
    {HARPE_CHANGE_FAILED, ROWS(NOTHING, NOTHING, NOTHING, "failed", "NULL",
                               "jobs WHERE number = $4 AND failed IS NOT NULL")},
    {HARPE_CHANGE_SEEN, ROWS(NOTHING, NOTHING, "seen_at", "NULL", "NULL",
                             "jobs WHERE number = $4 AND seen_at IS NOT NULL")},

    {HARPE_CHANGE_JOB, ROWS(NOTHING, NOTHING, "number", "NULL", "id", "jobs ORDER BY number")},
    {HARPE_CHANGE_JOB, ROWS(NOTHING, NOTHING, "number", "NULL", "id", "jobs WHERE id = $1")},
    {HARPE_CHANGE_DELETED,
     ROWS(NOTHING, NOTHING, "deleted_at", "NULL", "id", "deleted ORDER BY number")},
    {HARPE_CHANGE_DELETED,
     ROWS(NOTHING, NOTHING, "deleted_at", "NULL", "id", "deleted WHERE id = $1")},
    {HARPE_CHANGE_FINISHED,
     ROWS("uptime_s", NOTHING, "finished_at", "text", "id", "finished ORDER BY number")},
    {HARPE_CHANGE_UPTIME, ROWS(NOTHING, NOTHING, "seconds", "NULL", "''", "uptime")},
    {HARPE_CHANGE_NOTE, ROWS(NOTHING, NOTHING, NOTHING, "text", "key", "notes ORDER BY key")},
    {HARPE_CHANGE_RESULT, ROWS(NOTHING, NOTHING, NOTHING, "results.text", "NULL",
                               "results JOIN jobs ON jobs.number = results.job"
                               " WHERE jobs.id = $1 AND results.round = $2 AND results.rank = $3")},
};
