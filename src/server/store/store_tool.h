/* SPDX-License-Identifier: Apache-2.0 */
/* Two functions of `harpe store` for SQLite stores: they back up a store and check it. If a server
 * has the store open, it gives them a copy. They block and need no loop. Paths are file names
 * without "sqlite:". */
#ifndef HARPE_SERVER_STORE_STORE_TOOL_H
#define HARPE_SERVER_STORE_STORE_TOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/status.h>

#include "server/store/store_check.h"

/* Examines a store without changing it. Fails if the file cannot be read as a store. Reports any
 * other fault as a problem in the report. */
harpe_status harpe_store_examine(const char *path, harpe_store_report *report, harpe_error *error);

/* Writes a copy of the store to `target`. Only the user can read it. On failure there is no
 * incomplete copy. Fails if the copy has problems, or if `target` exists and `replaces` is
 * false. */
harpe_status harpe_store_backup(const char *path, const char *target, bool replaces,
                                harpe_store_report *report, harpe_error *error);

#endif
