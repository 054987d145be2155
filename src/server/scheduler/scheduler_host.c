/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the scheduler that the server runs: a built-in scheduler in a table, a shared object, or
 * another program. Checks the scheduler before the first job registers. Then runs one for each job,
 * in the form that the engine uses: keeps the last schedules, and returns them in all later rounds
 * when the scheduler has finished. With the 3D wrapper it gives the schedule of a stage to all
 * ranks of the stage. This code runs on workers. */
#include "server/scheduler/scheduler_host.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/array.h"
#include "base/error.h"
#include "base/format.h"
#include "base/helper_process.h"
#include "base/log.h"
#include "base/text.h"
#include "server/scheduler/builtin.h"
#include "server/scheduler/hosts.h"

typedef struct builtin_row {
    const char *name;
    const harpe_scheduler_class *class;
} builtin_row;

static const builtin_row BUILTIN[] = {
    {"PointSolution", &harpe_point_solution},
    {"PointSolution3D", &harpe_point_solution_3d},
    {"AllMaxFrequency", &harpe_all_max_frequency},
    {"HighestFrequency", &harpe_all_max_frequency},
    {"InstructionProfiler", &harpe_instruction_profiler},
    {"Perseus", &harpe_perseus_scheduler},
};
enum { BUILTIN_COUNT = sizeof BUILTIN / sizeof BUILTIN[0] };

static const char PREFIX_3D[] = "3D:";
static const char PREFIX_PROGRAM[] = "program:";
static const char PREFIX_PYTHON[] = "python:"; /* the package harpe runs the class in a program */

const char *harpe_scheduler_name_at(int index) {
    return index >= 0 && index < BUILTIN_COUNT ? BUILTIN[index].name : NULL;
}

static bool starts_with(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static bool ends_with(const char *text, const char *suffix) {
    size_t length = strlen(text);
    size_t suffix_length = strlen(suffix);
    return length >= suffix_length && strcmp(text + length - suffix_length, suffix) == 0;
}

struct harpe_scheduler {
    const harpe_scheduler_kind *kind;
    harpe_job_info job;
    harpe_rank_info *ranks;
    char *directory;
    harpe_stages *stages; /* NULL without the 3D wrapper */
    harpe_host_job seen;  /* the job that the scheduler sees: with ranks, or with stages */
    void *state;
    harpe_schedule_set *last;
    harpe_frequency_schedule *schedules; /* one per rank */
    harpe_conduct_sums conduct;
    bool is_created, has_ended, has_spoken;
    bool has_news; /* results or a job request came after the last schedules, so the scheduler must
                      be asked */
};

/* ---- Shared objects -------------------------------------------------------------------------- */

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
    return dot && dot != name && harpe_scheduler_is_good_name(dot + 1) &&
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

static harpe_status fill_kind(harpe_scheduler_kind *kind, const char *name, const char *args_json,
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
    harpe_status status = fill_kind(kind, name, args_json, settings_json, error);
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

/* Returns true if a process runs for each job. */
static bool has_programs(const harpe_scheduler_kind *kind) {
    return kind->class == &harpe_program_scheduler || kind->is_library;
}

/* After a job request a new scheduler is equal to the old one only if the old one's state can be
 * saved. */
bool harpe_scheduler_kind_can_return(const harpe_scheduler_kind *kind) {
    return has_programs(kind) && (!kind->class->job_request || kind->class->save);
}

void harpe_scheduler_kind_kill(harpe_scheduler_kind *kind) { harpe_children_kill(&kind->children); }

/* The list has its own mutex. */
void harpe_scheduler_kind_cancel(const harpe_scheduler_kind *kind, const char *job_id) {
    if (has_programs(kind)) harpe_children_cancel((harpe_children *)&kind->children, job_id);
}

void harpe_scheduler_kind_forget(const harpe_scheduler_kind *kind, const char *job_id) {
    if (has_programs(kind)) harpe_children_forget((harpe_children *)&kind->children, job_id);
}

/* ---- The scheduler of a job ------------------------------------------------------------------ */

static harpe_status copy_job(harpe_scheduler *scheduler, const harpe_job_info *job,
                             const harpe_rank_info *ranks, const char *directory,
                             harpe_error *error) {
    harpe_status status = harpe_job_info_copy(job, &scheduler->job, error);
    if (status != HARPE_OK) return status;
    size_t count = (size_t)job->world_size;
    scheduler->ranks = harpe_calloc(count, sizeof *scheduler->ranks);
    scheduler->schedules = harpe_calloc(count, sizeof *scheduler->schedules);
    if (!scheduler->ranks || !scheduler->schedules) return harpe_fail_memory(error);
    for (size_t r = 0; r < count && status == HARPE_OK; r++)
        status = harpe_rank_info_copy(&ranks[r], &scheduler->ranks[r], error);
    if (status != HARPE_OK || !directory) return status;
    scheduler->directory = strdup(directory);
    return scheduler->directory ? HARPE_OK : harpe_fail_memory(error);
}

/* A wrong word does not fail the registration, so this line is the only sign of it. */
static void tell_wrong_word(const harpe_scheduler *scheduler) {
    char word[HARPE_JOB_WORD_MAX + 1], shown[sizeof word];
    int64_t maximum;
    if (harpe_scheduler_job_wrong_word(&scheduler->job, word, &maximum))
        harpe_log_line(&scheduler->kind->log, HARPE_LOG_WARNING,
                       "%.200s: %s in the job's metadata is ignored: it is not a number from 1 to "
                       "%" PRId64,
                       scheduler->job.job_id ? scheduler->job.job_id : "",
                       harpe_clean_text(shown, sizeof shown, word), maximum);
}

static bool is_online(const harpe_scheduler *scheduler) {
    const harpe_scheduler_class *class = scheduler->kind->class;
    return class == &harpe_perseus_scheduler || class == &harpe_instruction_profiler;
}

static harpe_status start(harpe_scheduler *scheduler, harpe_error *error) {
    const harpe_scheduler_kind *kind = scheduler->kind;
    tell_wrong_word(scheduler);
    scheduler->seen = (harpe_host_job){
        .base = {&scheduler->job, scheduler->ranks, kind->settings_json, kind->args_json,
                 scheduler->directory, kind->log},
        .command = kind->command,
        .what = kind->what,
        .name = kind->shown,
        .job_id = scheduler->job.job_id ? scheduler->job.job_id : "",
        .timeout_s = kind->timeout_s,
        .children = (harpe_children *)&kind->children, /* the list has its own mutex */
    };
    if (kind->is_3d) {
        harpe_status status =
            harpe_stages_new(&scheduler->job, scheduler->ranks, &scheduler->stages, error);
        if (status != HARPE_OK) return status;
        scheduler->seen.base.job = harpe_stages_job(scheduler->stages);
        scheduler->seen.base.ranks = harpe_stages_ranks(scheduler->stages);
    }
    harpe_status status = kind->class->create(&scheduler->seen.base, &scheduler->state, error);
    scheduler->is_created = status == HARPE_OK;
    if (scheduler->is_created && is_online(scheduler))
        harpe_perseus_keep_conduct(scheduler->state, &scheduler->conduct);
    return status;
}

harpe_status harpe_scheduler_new(const harpe_scheduler_kind *kind, const harpe_job_info *job,
                                 const harpe_rank_info *ranks, const char *directory,
                                 harpe_scheduler **out, harpe_error *error) {
    harpe_scheduler *scheduler = harpe_calloc(1, sizeof *scheduler);
    if (!scheduler) return harpe_fail_memory(error);
    scheduler->kind = kind;
    harpe_status status = copy_job(scheduler, job, ranks, directory, error);
    if (status == HARPE_OK) status = start(scheduler, error);
    if (status != HARPE_OK) {
        harpe_scheduler_free(scheduler);
        return status;
    }
    *out = scheduler;
    return HARPE_OK;
}

void harpe_scheduler_free(harpe_scheduler *scheduler) {
    if (!scheduler) return;
    if (scheduler->is_created) scheduler->kind->class->destroy(scheduler->state);
    harpe_stages_free(scheduler->stages);
    harpe_schedule_set_free(scheduler->last);
    for (int r = 0; r < scheduler->job.world_size && scheduler->ranks; r++)
        harpe_rank_info_free(&scheduler->ranks[r]);
    free(scheduler->ranks);
    free(scheduler->schedules);
    free(scheduler->directory);
    harpe_job_info_free(&scheduler->job);
    free(scheduler);
}

/* ---- Rounds ---------------------------------------------------------------------------------- */

/* Gives every rank its own schedule, or the schedule of its stage. */
static void spread(harpe_scheduler *scheduler) {
    const harpe_frequency_schedule *from = harpe_schedule_set_schedules(scheduler->last);
    for (int r = 0; r < scheduler->job.world_size; r++) {
        int source = scheduler->stages ? scheduler->ranks[r].pp_rank : r;
        scheduler->schedules[r] = from[source];
        scheduler->schedules[r].rank = scheduler->ranks[r].rank;
    }
}

/* Returns true if the scheduler has not given schedules yet but still needs results, and will
 * report when it has finished. Until it gives schedules, the ranks run at their highest clocks. */
static bool may_still_learn(const harpe_scheduler *scheduler) {
    const harpe_scheduler_class *class = scheduler->kind->class;
    return !scheduler->has_spoken && class->observe && class->is_finished;
}

harpe_status harpe_scheduler_next(harpe_scheduler *scheduler,
                                  const harpe_frequency_schedule **schedules, harpe_error *error) {
    if (scheduler->last && !scheduler->has_news && harpe_scheduler_is_finished(scheduler)) {
        *schedules = scheduler->schedules;
        return HARPE_OK;
    }
    harpe_schedule_set *set = harpe_schedule_set_new(scheduler->seen.base.job->world_size);
    if (!set) return harpe_fail_memory(error);
    harpe_status status = scheduler->kind->class->next_schedule(
        scheduler->state, harpe_schedule_set_writer(set), error);
    if (status != HARPE_OK) {
        harpe_schedule_set_free(set);
        return status;
    }
    scheduler->has_news = false;
    bool is_empty = harpe_schedule_set_instruction_count(set) == 0;
    scheduler->has_spoken = scheduler->has_spoken || !is_empty;
    scheduler->has_ended = is_empty && !may_still_learn(scheduler);
    if (scheduler->last && scheduler->has_ended) {
        harpe_schedule_set_free(set);
    } else {
        harpe_schedule_set_free(scheduler->last);
        scheduler->last = set;
        spread(scheduler);
    }
    *schedules = scheduler->schedules;
    return HARPE_OK;
}

harpe_status harpe_scheduler_observe(harpe_scheduler *scheduler,
                                     const harpe_profiling_result *results, size_t count,
                                     harpe_error *error) {
    const harpe_scheduler_class *class = scheduler->kind->class;
    if (!harpe_scheduler_observes(scheduler)) return HARPE_OK;
    if (count != (size_t)scheduler->job.world_size)
        return harpe_fail(error, HARPE_INTERNAL, "%zu results of a job of %d ranks", count,
                          scheduler->job.world_size);
    if (scheduler->stages) {
        harpe_status status = harpe_stages_combine(scheduler->stages, results, &results, error);
        if (status != HARPE_OK) return status;
        count = (size_t)scheduler->job.pp_degree;
    }
    harpe_status status = class->observe(scheduler->state, results, count, error);
    if (status == HARPE_OK) scheduler->has_news = true;
    return status;
}

void harpe_scheduler_tell_clocks(harpe_scheduler *scheduler, const harpe_rank_clocks *clocks) {
    if (is_online(scheduler) && !scheduler->stages)
        harpe_perseus_tell_clocks(scheduler->state, clocks);
}

size_t harpe_scheduler_clocks_max(const harpe_scheduler *scheduler, size_t rank) {
    bool uses_clocks = is_online(scheduler) && !scheduler->stages;
    return uses_clocks ? harpe_perseus_schedule_length(scheduler->state, rank) : 0;
}

void harpe_scheduler_count_conduct(harpe_scheduler *scheduler,
                                   const harpe_profiling_result *results,
                                   const harpe_conduct *conducts, size_t count) {
    const harpe_frequency_schedule *schedules = scheduler->last ? scheduler->schedules : NULL;
    harpe_conduct_sums_add(&scheduler->conduct, results, conducts, schedules, count);
}

bool harpe_scheduler_is_lost(const harpe_scheduler *scheduler) {
    return harpe_scheduler_kind_can_return(scheduler->kind) &&
           harpe_program_is_lost(scheduler->state);
}

bool harpe_scheduler_has_process(const harpe_scheduler *scheduler) {
    return has_programs(scheduler->kind) && harpe_program_is_running(scheduler->state);
}

bool harpe_scheduler_is_custom(const harpe_scheduler *scheduler) {
    return has_programs(scheduler->kind);
}

bool harpe_scheduler_observes(const harpe_scheduler *scheduler) {
    return scheduler->kind->class->observe && !harpe_scheduler_is_finished(scheduler);
}

bool harpe_scheduler_is_finished(const harpe_scheduler *scheduler) {
    const harpe_scheduler_class *class = scheduler->kind->class;
    return scheduler->has_ended || (class->is_finished && class->is_finished(scheduler->state));
}

/* ---- State, job requests, frontier ----------------------------------------------------------- */

bool harpe_scheduler_needs_history(const harpe_scheduler *scheduler) {
    const harpe_scheduler_class *class = scheduler->kind->class;
    return class->observe && !class->save && !harpe_scheduler_is_finished(scheduler);
}

harpe_status harpe_scheduler_save(const harpe_scheduler *scheduler, char **text, size_t *length,
                                  harpe_error *error) {
    const harpe_scheduler_class *class = scheduler->kind->class;
    if (!class->save)
        return harpe_fail(error, HARPE_NOT_SUPPORTED, "%s has no state to save", class->name);
    return class->save(scheduler->state, text, length, error);
}

harpe_status harpe_scheduler_load(harpe_scheduler *scheduler, const char *text, size_t length,
                                  harpe_error *error) {
    const harpe_scheduler_class *class = scheduler->kind->class;
    if (!class->load)
        return harpe_fail(error, HARPE_NOT_SUPPORTED, "%s has no state to load", class->name);
    return class->load(scheduler->state, text, length, error);
}

harpe_status harpe_scheduler_handle_request(harpe_scheduler *scheduler,
                                            harpe_scheduler_job_request request, double value,
                                            harpe_error *error) {
    const harpe_scheduler_class *class = scheduler->kind->class;
    if (!class->job_request)
        return harpe_fail(error, HARPE_NOT_SUPPORTED,
                          "%s serves one plan and accepts no job requests: use an online scheduler "
                          "such as Perseus",
                          class->name);
    harpe_status status = class->job_request(scheduler->state, request, value, error);
    if (status == HARPE_OK) scheduler->has_news = true;
    return status;
}

harpe_status harpe_scheduler_frontier(const harpe_scheduler *scheduler, char **json,
                                      harpe_error *error) {
    const harpe_scheduler_class *class = scheduler->kind->class;
    if (!class->frontier)
        return harpe_fail(error, HARPE_NOT_SUPPORTED, "%s has no frontier", class->name);
    return class->frontier(scheduler->state, json, error);
}

harpe_conduct_sums harpe_scheduler_conduct(const harpe_scheduler *scheduler) {
    return scheduler->conduct;
}

int64_t harpe_scheduler_tokens_per_step(const harpe_scheduler *scheduler) {
    int64_t told = scheduler->conduct.tokens_per_step;
    return told > 0 ? told : harpe_scheduler_job_tokens(&scheduler->job);
}

bool harpe_scheduler_figures(const harpe_scheduler *scheduler, harpe_figures *out) {
    if (!is_online(scheduler)) return false;
    harpe_perseus_figures(scheduler->state, out);
    return true;
}

void harpe_scheduler_take_file(harpe_scheduler *scheduler, harpe_scheduler_file *out) {
    if (is_online(scheduler)) harpe_perseus_take_file(scheduler->state, out);
}

harpe_status harpe_scheduler_pipeline(const harpe_scheduler *scheduler, int64_t number, char **json,
                                      harpe_error *error) {
    const harpe_scheduler_class *class = scheduler->kind->class;
    if (!class->pipeline)
        return harpe_fail(error, HARPE_NOT_SUPPORTED, "%s shows no pipeline", class->name);
    return class->pipeline(scheduler->state, number, json, error);
}

void harpe_scheduler_file_free(harpe_scheduler_file *file) {
    free(file->path);
    free(file->text);
    free(file->directory);
    *file = (harpe_scheduler_file){0};
}
