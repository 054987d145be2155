/* SPDX-License-Identifier: Apache-2.0 */
/* A temporary directory that goes even when the program is killed: a small process of its own waits
 * for the program's end, however that comes, and removes what is left. */
#ifndef HARPE_CLI_JANITOR_H
#define HARPE_CLI_JANITOR_H

#include <harpe/status.h>

/* Starts one for a directory that holds files only. `*fd`: it waits until no process has this one
 * open any more; children that live on keep the directory with it. */
harpe_status harpe_janitor_start(const char *directory, int *fd, harpe_error *error);

/* Removes the directory and the files in it, as far as it can. */
void harpe_remove_flat_directory(const char *path);

#endif
