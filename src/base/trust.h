/* SPDX-License-Identifier: Apache-2.0 */
/* Reads environment variables that name code to run (HARPE_PROGRAM, HARPE_NVML_LIBRARY). The
 * environment of a process with privileges may come from a user without them (sudo -E). SECURITY.md
 * has the rules. */
#ifndef HARPE_BASE_TRUST_H
#define HARPE_BASE_TRUST_H

#include <stdbool.h>

/* Returns the file that a variable names. Returns NULL in four cases: the variable is not set or
 * empty; the process runs with more rights than its caller (real and effective user or group
 * differ); everybody may write to the file; the owner of the file is neither root, nor the
 * effective user, nor the owner of the running program or library. A name without a slash is not
 * checked, because the loader searches for it. The name of a missing file is returned, because
 * opening the file reports the error. `*is_ignored` (may be NULL) becomes true if the variable is
 * set but NULL is returned. */
const char *harpe_trusted_file_variable(const char *name, bool *is_ignored);

/* Returns true if a file may choose code for this process: not everybody may write to the file, and
 * its owner is one of those above. Also returns true if the file is missing. */
bool harpe_file_is_trusted(const char *path);

#endif
