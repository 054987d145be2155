/* SPDX-License-Identifier: Apache-2.0 */
/* Environment variables that name code to run (HARPE_PROGRAM, HARPE_NVML_LIBRARY). The environment
 * of a process with privileges may come from a user without them (sudo -E). SECURITY.md has the
 * rules. */
#ifndef HARPE_BASE_TRUST_H
#define HARPE_BASE_TRUST_H

#include <stdbool.h>

/* The file that a variable names, or NULL: the variable is not set, is empty, the process runs with
 * more rights than its caller (real and effective user or group differ), or the file belongs to a
 * user who is neither root, nor the effective user, nor the owner of the program or library that
 * runs already, or everybody may write to it. A name without a slash is a name for the loader. A
 * file that does not exist is returned, because opening it gives the error. `*is_ignored` (may be
 * NULL) becomes true if the variable is set and not followed. */
const char *harpe_trusted_file_variable(const char *name, bool *is_ignored);

#endif
