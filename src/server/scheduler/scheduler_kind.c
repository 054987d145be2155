/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the scheduler that the server runs: a built-in scheduler in a table, a shared object, or
 * another program. Checks the scheduler before the first job registers. */
#include "server/scheduler/scheduler_kind.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/array.h"
#include "base/error.h"
#include "base/helper_process.h"
#include "base/text.h"
#include "server/scheduler/builtin.h"
#include "server/scheduler/library.h"

typedef struct builtin_row {
    const char *name;
    const harpe_scheduler_class *class;
    const char *description;
} builtin_row;

static const builtin_row BUILTIN[] = {
    {"PointSolution", &harpe_point_solution, "a plan file, one list per rank"},
    {"PointSolution3D", &harpe_point_solution_3d, "a plan file, one list per stage or per GPU"},
    {"AllMaxFrequency", &harpe_all_max_frequency, "highest clocks, needs no arguments"},
    {"HighestFrequency", &harpe_all_max_frequency, "the same"},
    {"InstructionProfiler", &harpe_instruction_profiler, "measures a profile, then stops"},
    {"Perseus", &harpe_perseus_scheduler, "online: measures, plans and learns"},
};
enum { BUILTIN_COUNT = sizeof BUILTIN / sizeof BUILTIN[0], NAME_LENGTH_MAX = 64 };

static const char PREFIX_3D[] = "3D:";
static const char PREFIX_PROGRAM[] = "program:";
static const char PREFIX_PYTHON[] = "python:"; /* the package harpe runs the class in a program */

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

/* ---- Shared objects -------------------------------------------------------------------------- */

static bool is_good_name(const char *name) {
    if (!name || !*name || strlen(name) > NAME_LENGTH_MAX) return false;
    return strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") ==
           strlen(name);
}

/* Appends a word so that the shell reads it as one word. */
static void append_quoted(harpe_text *command, const char *word) {
    harpe_text_append(command, "'", 1);
    for (; *word; word++)
        harpe_text_append(command, *word == '\'' ? "'\\''" : word, *word == '\'' ? 4 : 1);
    harpe_text_append(command, "'", 1);
}

/* Examines a shared object. A separate process loads it, so that its faults do not end the
 * server. */
static harpe_status open_shared_object(harpe_scheduler_kind *kind, const char *path,
                                       const char *args_json, harpe_error *error) {
    char *program = NULL;
    harpe_text command = {0};
    harpe_status status =
        harpe_helper_process_program("the process of a scheduler library", &program, error);
    if (status != HARPE_OK) return status;
    harpe_text_printf(&command, "exec ");
    append_quoted(&command, program);
    harpe_text_printf(&command, " %s ", HARPE_LIBRARY_ARGUMENT);
    free(program);
    /* If the path has no slash, the loader would search other directories. */
    harpe_text file = {0};
    harpe_text_printf(&file, "%s%s", strchr(path, '/') ? "" : "./", path);
    append_quoted(&command, file.data ? file.data : "");
    kind->command = command.data;
    kind->what = "scheduler library";
    kind->shown = file.data;
    kind->is_library = true;
    if (command.failed || file.failed) return harpe_fail_memory(error);
    status = harpe_library_look(kind->command, kind->shown, args_json, kind->timeout_s,
                                &kind->children, &kind->library_class, &kind->library_name, error);
    if (status == HARPE_OK) kind->class = &kind->library_class;
    return status;
}

/* ---- Python ---------------------------------------------------------------------------------- */

static const char PYTHON_HOST[] = "harpe.optimizer.pipeline_frequency.server.host";
static const char PYTHON_HOST_FILE[] = "harpe/optimizer/pipeline_frequency/server/host.py";

/* Returns true for module.Class without characters that are special to a shell. */
static bool is_python_name(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot && dot != name && is_good_name(dot + 1) &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.") ==
               strlen(name);
}

/* Appends the directory of the Python package that belongs to this program. The directory is below
 * the same prefix, or in the source tree above build/NAME. If neither directory exists, appends
 * nothing, and Python must find the package itself. */
static void append_package_path(harpe_text *command) {
    static const char *const places[] = {"../lib/python3/dist-packages", "../../python"};
    char program[4096];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length <= 0) return;
    program[length] = '\0';
    char *slash = strrchr(program, '/');
    if (!slash) return;
    *slash = '\0';
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        char package[sizeof program + 128];
        snprintf(package, sizeof package, "%s/%s/%s", program, places[i], PYTHON_HOST_FILE);
        if (access(package, R_OK) != 0) continue;
        package[strlen(package) - strlen(PYTHON_HOST_FILE) - 1] = '\0';
        harpe_text_printf(command, "PYTHONPATH=");
        append_quoted(command, package);
        harpe_text_printf(command, "\"${PYTHONPATH:+:$PYTHONPATH}\" ");
        return;
    }
}

static harpe_status open_python(harpe_scheduler_kind *kind, const char *name, harpe_error *error) {
    if (!is_python_name(name))
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "scheduler: python: must be followed by module.Class, found '%.200s'",
                          name);
    harpe_text command = {0};
    append_package_path(&command);
    harpe_text_printf(&command, "exec \"${HARPE_PYTHON:-python3}\" -m %s %s", PYTHON_HOST, name);
    if (command.failed) {
        harpe_text_free(&command);
        return harpe_fail_memory(error);
    }
    kind->class = &harpe_program_scheduler;
    kind->command = command.data;
    kind->what = "Python scheduler";
    kind->shown = strdup(name);
    return kind->shown ? HARPE_OK : harpe_fail_memory(error);
}

/* Runs the command of a check. The check is passed if the command succeeds and prints nothing.
 * Otherwise its output is the reason for the refusal. */
static harpe_status run_check(const char *command, int timeout_s, harpe_error *error) {
    FILE *output = popen(command, "re");
    if (!output) return harpe_fail_errno(error, errno, "scheduler: cannot start Python");
    char line[1024] = "";
    bool has_spoken = fgets(line, sizeof line, output) != NULL;
    int outcome = pclose(output);
    if (has_spoken)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "scheduler: %.*s",
                          (int)strcspn(line, "\n"), line);
    if (outcome == 0) return HARPE_OK;
    return harpe_fail(
        error, HARPE_INVALID_ARGUMENT,
        "scheduler: Python did not finish the check within %d s (exit status %d): see "
        "its standard error; HARPE_PYTHON names the interpreter, PYTHONPATH where "
        "the package harpe is",
        timeout_s, WIFEXITED(outcome) ? WEXITSTATUS(outcome) : -1);
}

/* Checks that the class exists and accepts these arguments. Call it before the first job
 * registers. */
static harpe_status check_python(const harpe_scheduler_kind *kind, const char *args_json,
                                 harpe_error *error) {
    harpe_text command = {0};
    harpe_text_printf(&command, "printf %%s ");
    append_quoted(&command, args_json);
    harpe_text_printf(&command, " | %s --check %d", kind->command, kind->timeout_s);
    harpe_status status =
        command.failed ? harpe_fail_memory(error) : run_check(command.data, kind->timeout_s, error);
    harpe_text_free(&command);
    return status;
}

/* ---- By name --------------------------------------------------------------------------------- */

/* Returns the class of a dotted name: the part after the last dot. Zeus's server accepts such names
 * too. */
static const char *class_part(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

static harpe_status open_builtin(harpe_scheduler_kind *kind, const char *name, harpe_error *error) {
    for (int i = 0; i < BUILTIN_COUNT; i++) {
        if (strcmp(BUILTIN[i].name, class_part(name)) != 0) continue;
        kind->class = BUILTIN[i].class;
        /* It gives all ranks their schedules itself. */
        if (kind->class == &harpe_point_solution_3d) kind->is_3d = false;
        return HARPE_OK;
    }
    return harpe_fail(
        error, HARPE_NOT_FOUND,
        "scheduler: there is no '%.64s'; the built-in schedulers are PointSolution, "
        "PointSolution3D, AllMaxFrequency, HighestFrequency, InstructionProfiler and Perseus; "
        "yours is "
        "a path that ends in .so, python:module.Class or program:COMMAND",
        name);
}

static harpe_status open_class(harpe_scheduler_kind *kind, const char *name, const char *args_json,
                               harpe_error *error) {
    if (starts_with(name, PREFIX_PROGRAM)) {
        const char *command = name + strlen(PREFIX_PROGRAM);
        if (!*command)
            return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                              "scheduler: program: must be followed by a command");
        kind->class = &harpe_program_scheduler;
        kind->command = strdup(command);
        kind->what = "scheduler program";
        kind->shown = strdup(command);
        return kind->command && kind->shown ? HARPE_OK : harpe_fail_memory(error);
    }
    if (starts_with(name, PREFIX_PYTHON))
        return open_python(kind, name + strlen(PREFIX_PYTHON), error);
    if (ends_with(name, ".so")) return open_shared_object(kind, name, args_json, error);
    return open_builtin(kind, name, error);
}

static harpe_status fill(harpe_scheduler_kind *kind, const char *name, const char *args_json,
                         const char *settings_json, harpe_error *error) {
    const char *inner = name;
    if (starts_with(name, PREFIX_3D)) {
        kind->is_3d = true;
        inner = name + strlen(PREFIX_3D);
    }
    harpe_status status = open_class(kind, inner, args_json, error);
    if (status != HARPE_OK) return status;
    if (kind->class->check_args) {
        status = kind->class->check_args(args_json, error);
        if (status != HARPE_OK) return status;
    }
    bool is_python = starts_with(inner, PREFIX_PYTHON);
    if (is_python) {
        status = check_python(kind, args_json, error);
        if (status != HARPE_OK) return status;
    }
    kind->args_json = strdup(args_json);
    kind->settings_json = strdup(settings_json);
    const char *shown = is_python ? class_part(inner) : kind->class->name;
    if (asprintf(&kind->name, "%s%s", shown, kind->is_3d ? "3D" : "") < 0) kind->name = NULL;
    if (!kind->args_json || !kind->settings_json || !kind->name) return harpe_fail_memory(error);
    return HARPE_OK;
}

harpe_status harpe_scheduler_kind_open(const char *name, const char *args_json,
                                       const char *settings_json, int timeout_s, harpe_log log,
                                       harpe_scheduler_kind **out, harpe_error *error) {
    harpe_scheduler_kind *kind = harpe_calloc(1, sizeof *kind);
    if (!kind) return harpe_fail_memory(error);
    harpe_children_init(&kind->children);
    kind->timeout_s = timeout_s;
    kind->log = log;
    harpe_status status = fill(kind, name, args_json, settings_json, error);
    if (status != HARPE_OK) {
        harpe_scheduler_kind_close(kind);
        return status;
    }
    *out = kind;
    return HARPE_OK;
}

void harpe_scheduler_kind_close(harpe_scheduler_kind *kind) {
    if (!kind) return;
    harpe_children_destroy(&kind->children);
    free(kind->command);
    free(kind->shown);
    free(kind->library_name);
    free(kind->name);
    free(kind->args_json);
    free(kind->settings_json);
    free(kind);
}

const char *harpe_scheduler_kind_name(const harpe_scheduler_kind *kind) { return kind->name; }

bool harpe_scheduler_kind_is_called(const harpe_scheduler_kind *kind, const char *name) {
    bool is_other_name = false;
    for (int i = 0; i < BUILTIN_COUNT; i++)
        is_other_name |= BUILTIN[i].class == kind->class && strcmp(BUILTIN[i].name, name) == 0;
    return is_other_name || strcmp(kind->name, name) == 0;
}

bool harpe_scheduler_kind_plans(const harpe_scheduler_kind *kind) {
    return kind->class == &harpe_perseus_scheduler;
}

bool harpe_scheduler_kind_is_foreign(const harpe_scheduler_kind *kind) { return kind->is_library; }

bool harpe_scheduler_kind_has_programs(const harpe_scheduler_kind *kind) {
    return kind->class == &harpe_program_scheduler || kind->is_library;
}

/* After a job request a new scheduler is equal to the old one only if the old one's state can be
 * saved. */
bool harpe_scheduler_kind_can_return(const harpe_scheduler_kind *kind) {
    return harpe_scheduler_kind_has_programs(kind) &&
           (!kind->class->job_request || kind->class->save);
}

void harpe_scheduler_kind_kill(harpe_scheduler_kind *kind) { harpe_children_kill(&kind->children); }

/* The list has its own mutex. */
void harpe_scheduler_kind_cancel(const harpe_scheduler_kind *kind, const char *job_id) {
    if (harpe_scheduler_kind_has_programs(kind))
        harpe_children_cancel((harpe_children *)&kind->children, job_id);
}

void harpe_scheduler_kind_forget(const harpe_scheduler_kind *kind, const char *job_id) {
    if (harpe_scheduler_kind_has_programs(kind))
        harpe_children_forget((harpe_children *)&kind->children, job_id);
}
