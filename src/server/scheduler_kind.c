/* SPDX-License-Identifier: Apache-2.0 */
/* Which scheduler the server runs: found by name in one table, in a shared object, or as another
 * program; checked before the first job comes. */
#include "server/scheduler_kind.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "server/schedulers/builtin.h"

typedef struct builtin_row {
    const char *name;
    const harpe_scheduler_class *class;
    bool is_3d;
    const char *description;
} builtin_row;

static const builtin_row BUILTIN[] = {
    {"PointSolution", &harpe_point_solution, false, "a plan file, one list per rank"},
    {"PointSolution3D", &harpe_point_solution, true, "a plan file, one list per stage"},
    {"AllMaxFrequency", &harpe_all_max_frequency, false, "highest clocks, for comparison"},
};
enum { BUILTIN_COUNT = sizeof BUILTIN / sizeof BUILTIN[0], NAME_LENGTH_MAX = 64 };

static const char PREFIX_3D[] = "3D:";
static const char PREFIX_PROGRAM[] = "program:";

const char *harpe_scheduler_name_at(int index) {
    return index >= 0 && index < BUILTIN_COUNT ? BUILTIN[index].name : NULL;
}

const char *harpe_scheduler_description_at(int index) {
    return index >= 0 && index < BUILTIN_COUNT ? BUILTIN[index].description : NULL;
}

static bool starts_with(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static bool ends_with(const char *text, const char *suffix) {
    size_t length = strlen(text);
    size_t suffix_length = strlen(suffix);
    return length >= suffix_length && strcmp(text + length - suffix_length, suffix) == 0;
}

/* ---- Shared objects ---------------------------------------------------------------------------
 */

static bool is_good_name(const char *name) {
    if (!name || !*name || strlen(name) > NAME_LENGTH_MAX) return false;
    return strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") ==
           strlen(name);
}

static harpe_status check_class(const char *path, const harpe_scheduler_class *class,
                                harpe_error *error) {
    if (!class)
        return harpe_fail(error, HARPE_INVALID_INPUT, "%s: %s returned nothing", path,
                          HARPE_SCHEDULER_ENTRY);
    if (class->abi != HARPE_SCHEDULER_ABI)
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: made for version %d of the scheduler interface, this is version %d: "
                          "build it against this version's harpe/scheduler.h",
                          path, class->abi, HARPE_SCHEDULER_ABI);
    if (!is_good_name(class->name))
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: its name must have 1 to %d letters, digits or _", path,
                          NAME_LENGTH_MAX);
    if (!class->create || !class->next_schedule || !class->destroy)
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: %s lacks create, next_schedule or destroy", path, class->name);
    if (!class->save != !class->load)
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: %s has one of save and load and not the other", path, class->name);
    return HARPE_OK;
}

static harpe_status open_shared_object(harpe_scheduler_kind *kind, const char *path,
                                       harpe_error *error) {
    char file[4096];
    /* Without a slash the loader would look elsewhere. */
    snprintf(file, sizeof file, "%s%s", strchr(path, '/') ? "" : "./", path);
    kind->library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!kind->library)
        return harpe_fail(error, HARPE_NOT_FOUND, "scheduler: cannot load %s", dlerror());
    harpe_scheduler_entry_function entry = NULL;
    *(void **)&entry = dlsym(kind->library, HARPE_SCHEDULER_ENTRY);
    if (!entry)
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "scheduler: %s does not export %s (see harpe/scheduler.h)", path,
                          HARPE_SCHEDULER_ENTRY);
    const harpe_scheduler_class *class = entry();
    harpe_status status = check_class(path, class, error);
    if (!status) kind->class = class;
    return status;
}

/* ---- By name ----------------------------------------------------------------------------------
 */

/* The published server takes dotted names; the class is what follows the last dot. */
static const char *class_part(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

static harpe_status open_builtin(harpe_scheduler_kind *kind, const char *name, harpe_error *error) {
    for (int i = 0; i < BUILTIN_COUNT; i++) {
        if (strcmp(BUILTIN[i].name, class_part(name)) != 0) continue;
        kind->class = BUILTIN[i].class;
        kind->is_3d = kind->is_3d || BUILTIN[i].is_3d;
        return HARPE_OK;
    }
    return harpe_fail(error, HARPE_NOT_FOUND,
                      "scheduler: there is no '%.64s'; built in are PointSolution, "
                      "PointSolution3D and AllMaxFrequency; yours is a path that ends in .so, or "
                      "program:COMMAND",
                      name);
}

static harpe_status open_class(harpe_scheduler_kind *kind, const char *name, harpe_error *error) {
    if (starts_with(name, PREFIX_PROGRAM)) {
        const char *command = name + strlen(PREFIX_PROGRAM);
        if (!*command)
            return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                              "scheduler: program: must be followed by a command");
        kind->class = &harpe_program_scheduler;
        kind->command = strdup(command);
        return kind->command ? HARPE_OK : harpe_fail_memory(error);
    }
    if (ends_with(name, ".so")) return open_shared_object(kind, name, error);
    return open_builtin(kind, name, error);
}

static harpe_status fill(harpe_scheduler_kind *kind, const char *name, const char *args_json,
                         const char *settings_json, harpe_error *error) {
    const char *inner = name;
    if (starts_with(name, PREFIX_3D)) {
        kind->is_3d = true;
        inner = name + strlen(PREFIX_3D);
    }
    harpe_status status = open_class(kind, inner, error);
    if (status) return status;
    if (kind->class->check_args) {
        status = kind->class->check_args(args_json, error);
        if (status) return status;
    }
    kind->args_json = strdup(args_json);
    kind->settings_json = strdup(settings_json);
    if (asprintf(&kind->name, "%s%s", kind->class->name, kind->is_3d ? "3D" : "") < 0)
        kind->name = NULL;
    if (!kind->args_json || !kind->settings_json || !kind->name) return harpe_fail_memory(error);
    return HARPE_OK;
}

harpe_status harpe_scheduler_kind_open(const char *name, const char *args_json,
                                       const char *settings_json, int timeout_s, harpe_log log,
                                       harpe_scheduler_kind **out, harpe_error *error) {
    harpe_scheduler_kind *kind = harpe_calloc(1, sizeof *kind);
    if (!kind) return harpe_fail_memory(error);
    kind->timeout_s = timeout_s;
    kind->log = log;
    harpe_status status = fill(kind, name, args_json, settings_json, error);
    if (status) {
        harpe_scheduler_kind_close(kind);
        return status;
    }
    *out = kind;
    return HARPE_OK;
}

void harpe_scheduler_kind_close(harpe_scheduler_kind *kind) {
    if (!kind) return;
    if (kind->library) dlclose(kind->library);
    free(kind->command);
    free(kind->name);
    free(kind->args_json);
    free(kind->settings_json);
    free(kind);
}

const char *harpe_scheduler_kind_name(const harpe_scheduler_kind *kind) { return kind->name; }
