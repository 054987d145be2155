/* SPDX-License-Identifier: Apache-2.0 */
/* Removes a temporary directory even if the program is killed: a small separate process waits for
 * the end of the program, whatever its cause, and removes the remaining files. */
#ifndef HARPE_BASE_CLEANUP_PROCESS_H
#define HARPE_BASE_CLEANUP_PROCESS_H

#include <harpe/status.h>

/* Starts a cleanup process for a directory that contains only files. The cleanup process waits
 * until no process has `*fd` open. A child of the program that still runs has `*fd` open too, so
 * the directory stays until this child has ended. */
harpe_status harpe_cleanup_process_start(const char *directory, int *fd, harpe_error *error);

/* Removes the directory and the files in it, as far as it can. */
void harpe_remove_flat_directory(const char *path);

#endif
