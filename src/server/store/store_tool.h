/* SPDX-License-Identifier: Apache-2.0 */
/* What `harpe store` does with SQLite stores: it backs them up, checks them, and puts one in the
 * place of another. Works beside a server that has the store open (the server hands over a copy)
 * and without one. The functions block and need no loop. Paths are those of files, without
 * "sqlite:". */
#ifndef HARPE_SERVER_STORE_STORE_TOOL_H
#define HARPE_SERVER_STORE_STORE_TOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/status.h>

#include "base/text.h"

/* What a store holds, and what is wrong with it. */
typedef struct harpe_store_report {
    bool is_in_use; /* by a server, which gave a copy */
    int64_t jobs, ranks, results;
    int64_t rounds; /* that were handed out */
    int64_t commits;
    int64_t bytes; /* of the database without its log */
    size_t problems;
    harpe_text details; /* a line for each of the first problems; NUL-terminated or NULL */
} harpe_store_report;
void harpe_store_report_free(harpe_store_report *report);

/* Fails if the file cannot be read as a store at all; anything else is a problem in the report.
 * Changes nothing. */
harpe_status harpe_store_examine(const char *path, harpe_store_report *report, harpe_error *error);

/* Writes a copy of the store to `target`, whole or not at all, for its user alone. Fails if
 * `target` exists, unless `replaces`, and if the copy has problems. */
harpe_status harpe_store_backup(const char *path, const char *target, bool replaces,
                                harpe_store_report *report, harpe_error *error);

/* Puts a copy of `backup` in the place of `path`. `*replaced`, to be freed with free(), names
 * where the old store is now; NULL: there was none. Fails while a server has `path` open, and if
 * the backup has problems. */
harpe_status harpe_store_restore(const char *path, const char *backup, char **replaced,
                                 harpe_store_report *report, harpe_error *error);

/* Lets the next server go on with what is left of a store whose newest commits are missing. `*kept`
 * names a copy of the log or record that the server will overwrite, or is NULL; to be freed with
 * free(). `*commits`: those that are there; `*missing`: those that are not, -1 if nobody knows. */
harpe_status harpe_store_accept(const char *path, char **kept, int64_t *commits, int64_t *missing,
                                harpe_error *error);

#endif
