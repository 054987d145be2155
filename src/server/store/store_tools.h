/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of `harpe store` for SQLite stores. If a server has the store open, it gives them a
 * copy. They block and need no loop. Paths are file names without "sqlite:". */
#ifndef HARPE_SERVER_STORE_STORE_TOOLS_H
#define HARPE_SERVER_STORE_STORE_TOOLS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/status.h>

#include "base/text.h"

/* The name of a file of a store. The system refuses a name that does not fit, because it has more
 * than PATH_MAX bytes. */
typedef struct harpe_store_name {
    char text[PATH_MAX + 128];
} harpe_store_name;

/* The contents of a store and its problems. */
typedef struct harpe_store_report {
    bool is_in_use; /* a server uses the store, and a copy was checked */
    int64_t jobs, ranks, results;
    int64_t rounds; /* number of rounds that were handed out */
    int64_t commits;
    int64_t bytes; /* size of the database without its log */
    size_t problems;
    harpe_text details; /* a line for each of the first problems; NUL-terminated or NULL */
} harpe_store_report;

void harpe_store_report_free(harpe_store_report *report);

/* Examines a store without changing it. Fails if the file cannot be read as a store. Reports any
 * other fault as a problem in the report. */
harpe_status harpe_store_examine(const char *path, harpe_store_report *report, harpe_error *error);
/* Writes a copy of the store to `target`. Only the user can read it. On failure there is no
 * incomplete copy. Fails if the copy has problems, or if `target` exists and `replaces` is
 * false. */
harpe_status harpe_store_backup(const char *path, const char *target, bool replaces,
                                harpe_store_report *report, harpe_error *error);

/* Replaces the store `path` by a copy of `backup`. `*replaced` becomes the new name of the old
 * store, or empty if there was none. Fails while a server has `path` open, and if the backup has
 * problems. */
harpe_status harpe_store_restore(const char *path, const char *backup, harpe_store_name *replaced,
                                 harpe_store_report *report, harpe_error *error);
/* Accepts that the newest commits of a store are missing, so that the next server starts with it.
 * First keeps the store's log or record under another name, which `*kept` becomes. It is empty if
 * there is no such file. `*commits` becomes the number of commits in the store, and `*missing` the
 * number of missing commits (-1: not known). */
harpe_status harpe_store_accept(const char *path, harpe_store_name *kept, int64_t *commits,
                                int64_t *missing, harpe_error *error);

/* ---- Addresses ------------------------------------------------------------------------------- */

/* Handles connection strings of PostgreSQL in the setting `store`: recognises them, shows them
 * without their secrets, and adds a password. Opens no connection. */

/* Returns true if the text is meant for PostgreSQL: a URI (postgresql://...) or a list of key=value
 * pairs. Also returns true if such a text has a mistake. Otherwise it would be taken for a file
 * name and shown with its password. */
bool harpe_store_is_postgres(const char *where);

/* Returns true if libpq probably splits the string as the user intended. An '@' in the host, or a
 * port that is not a number, comes from a password with special characters that are not escaped. */
bool harpe_store_address_is_sound(const char *where);

/* Returns the setting in a form that may be shown. A file name is unchanged. A connection string
 * has "***" in the place of each password. For a string that cannot be parsed, returns only the
 * scheme. Free it with free(). NULL: out of memory. */
char *harpe_store_address_shown(const char *where);

/* Writes a connection string with this password, which replaces any password in `where`. `where`
 * must be sound. Free `*out` with free(). */
harpe_status harpe_store_address_with_password(const char *where, const char *password, char **out,
                                               harpe_error *error);

#endif
