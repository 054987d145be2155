/* SPDX-License-Identifier: Apache-2.0 */
/* Two functions of `harpe store` for SQLite stores: they replace a store by a backup, and accept a
 * store whose newest commits are missing. They block and need no loop. Paths are file names without
 * "sqlite:". */
#ifndef HARPE_SERVER_STORE_STORE_RESTORE_H
#define HARPE_SERVER_STORE_STORE_RESTORE_H

#include <stdint.h>

#include <harpe/status.h>

#include "server/store/store_check.h"

/* Replaces the store `path` by a copy of `backup`. Sets `*replaced` to the new name of the old
 * store, or to NULL if there was none. Free it with free(). Fails while a server has `path` open,
 * and if the backup has problems. */
harpe_status harpe_store_restore(const char *path, const char *backup, char **replaced,
                                 harpe_store_report *report, harpe_error *error);

/* Accepts that the newest commits of a store are missing, so that the next server starts with it.
 * First keeps the store's log or record under another name, and sets `*kept` to that name, or to
 * NULL if there is no such file. The caller frees it with free(). `*commits` becomes the number of
 * commits in the store, and `*missing` the number of missing commits (-1: not known). */
harpe_status harpe_store_accept(const char *path, char **kept, int64_t *commits, int64_t *missing,
                                harpe_error *error);

#endif
