/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the import hook of Harpe's Python package, and puts it into the environment. The adapters
 * and the hook are in python/harpe/_run. */
#include "cli/python_hook.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

/* The directory inside the Python package, and the file that Python imports when it starts. */
#define HOOK_DIRECTORY "_run"
#define HOOK_FILE "sitecustomize.py"

/* Returns the directory `package`/_run if it has the hook, and if no other user may write to the
 * directory or the hook. Otherwise returns NULL. The caller frees the path. */
static char *hook_in(const char *package) {
    char *directory = harpe_path_join(package, "/", HOOK_DIRECTORY);
    char *file = directory ? harpe_path_join(directory, "/", HOOK_FILE) : NULL;
    bool is_found = file && access(file, R_OK) == 0 && harpe_file_is_trusted(file) &&
                    harpe_file_is_trusted(directory);
    char *real = is_found ? realpath(directory, NULL) : NULL;
    free(file);
    free(directory);
    return real;
}

/* Returns the hook of the Python package that belongs to this program. In a wheel, the program is
 * _bundled/bin/harpe of the package. Otherwise the package is in the source tree of the build, or
 * installed below the same prefix. Returns NULL if there is no hook. The caller frees the path. */
static char *hook_near_program(void) {
    static const char *const places[] = {"../..", "../../python/harpe",
                                         "../lib/python3*/*-packages/harpe"};
    char *program = realpath("/proc/self/exe", NULL);
    char *folder = program ? harpe_path_parent(program) : NULL;
    char *found = NULL;
    for (size_t i = 0; folder && !found && i < sizeof places / sizeof places[0]; i++) {
        char *pattern = harpe_path_join(folder, "/", places[i]);
        glob_t matches = {0};
        if (pattern && glob(pattern, 0, NULL, &matches) == 0)
            for (size_t j = 0; j < matches.gl_pathc && !found; j++)
                found = hook_in(matches.gl_pathv[j]);
        globfree(&matches);
        free(pattern);
    }
    free(folder);
    free(program);
    return found;
}

static char *find_hook(void) {
    const char *package = harpe_trusted_file_variable("HARPE_PYTHON_PACKAGE", NULL);
    return package ? hook_in(package) : hook_near_program();
}

/* Puts the hook's directory first in PYTHONPATH. */
static harpe_status set_python_path(const char *hook, harpe_error *error) {
    const char *before = getenv("PYTHONPATH");
    harpe_text path = {0};
    harpe_text_printf(&path, "%s%s%s", hook, before && *before ? ":" : "", before ? before : "");
    if (!path.data || setenv("PYTHONPATH", path.data, 1) != 0) {
        free(path.data);
        return harpe_fail_memory(error);
    }
    free(path.data);
    return HARPE_OK;
}

static void report_missing_hook(const char *program) {
    const char *package = harpe_trusted_file_variable("HARPE_PYTHON_PACKAGE", NULL);
    if (package)
        fprintf(stderr,
                "%s: HARPE_PYTHON_PACKAGE: %.200s has no " HOOK_DIRECTORY "/" HOOK_FILE
                " that nobody else may change: name the directory harpe of the Python package; the "
                "command runs unchanged\n",
                program, package);
    else
        fprintf(stderr,
                "%s: the Python package harpe is not near this program: install it, or name its "
                "directory in HARPE_PYTHON_PACKAGE; the command runs unchanged\n",
                program);
}

bool harpe_python_hook_install(const char *program) {
    harpe_error error;
    char *hook = find_hook();
    if (!hook) {
        report_missing_hook(program);
        return false;
    }
    bool has_colon = strchr(hook, ':');
    bool is_set = !has_colon && set_python_path(hook, &error) == HARPE_OK;
    if (has_colon)
        fprintf(stderr,
                "%s: the Python package harpe is in '%.200s', and PYTHONPATH cannot contain a path "
                "with a colon: move the package; the command runs unchanged\n",
                program, hook);
    else if (!is_set)
        fprintf(stderr, "%s: %s; the command runs unchanged\n", program, error.message);
    free(hook);
    char *own = is_set ? realpath("/proc/self/exe", NULL) : NULL;
    if (own) (void)setenv("HARPE_PROGRAM", own, 0);
    free(own);
    return is_set;
}
