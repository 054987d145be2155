/* SPDX-License-Identifier: Apache-2.0 */
/* Removes a temporary directory even if the program is killed: a small separate process waits for
 * the end of the program, whatever its cause, and removes the remaining files. */
#ifndef HARPE_CLI_JANITOR_H
#define HARPE_CLI_JANITOR_H

#include <harpe/status.h>

/* Starts a janitor for a directory that contains only files. It waits until no process has `*fd`
 * open; children that continue to run keep it open, and so keep the directory. */
harpe_status harpe_janitor_start(const char *directory, int *fd, harpe_error *error);

/* Removes the directory and the files in it, as far as it can. */
void harpe_remove_flat_directory(const char *path);

#endif
