/* SPDX-License-Identifier: Apache-2.0 */
/* The import hook of Harpe's Python package. `harpe run` and `harpe tune` use it to change or count
 * the Python processes of a command. */
#ifndef HARPE_CLI_PYTHON_HOOK_H
#define HARPE_CLI_PYTHON_HOOK_H

#include <stdbool.h>

/* Puts the hook's directory first in PYTHONPATH, and sets HARPE_PROGRAM if it is not set. On
 * failure, returns false, leaves the environment unchanged, and prints the reason in a line that
 * begins with `program`, such as "harpe run". */
bool harpe_python_hook_install(const char *program);

#endif
