/* SPDX-License-Identifier: Apache-2.0 */
/* The import hook of Harpe's Python package, for a command whose Python processes it changes or
 * counts (`harpe run`, `harpe tune`). */
#ifndef HARPE_CLI_PYTHON_HOOK_H
#define HARPE_CLI_PYTHON_HOOK_H

#include <stdbool.h>

/* Puts the hook's directory first in PYTHONPATH, and sets HARPE_PROGRAM if it is not set. Returns
 * false if that is not possible. It has then said why, in a line that begins with `program`, such
 * as "harpe run", and the environment is unchanged. */
bool harpe_python_hook_install(const char *program);

#endif
