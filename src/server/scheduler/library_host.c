/* SPDX-License-Identifier: Apache-2.0 */
/* The process that loads a shared object for one job and calls its functions. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/array.h"
#include "base/error.h"
#include "server/scheduler/hosts.h"

typedef struct host {
    const char *path;
    const harpe_scheduler_class *class; /* NULL: not loaded yet */
    harpe_scheduler_job job;
    harpe_job_info info;
    harpe_rank_info *ranks;
    char *settings_json, *args_json, *directory;
    void *state;
    bool is_created;
    json_t *log; /* log lines for the next answer */
    FILE *answers;
} host;

/* ---- Loading --------------------------------------------------------------------------------- */

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
    if (!harpe_scheduler_is_good_name(class->name))
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: its name must have 1 to %d letters, digits or _", path,
                          HARPE_SCHEDULER_NAME_MAX);
    if (!class->create || !class->next_schedule || !class->destroy)
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: %s lacks create, next_schedule or destroy", path, class->name);
    if (!class->save != !class->load)
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: %s has one of save and load and not the other", path, class->name);
    return HARPE_OK;
}

static harpe_status open_library(host *self, harpe_error *error) {
    if (self->class) return HARPE_OK;
    void *library = dlopen(self->path, RTLD_NOW | RTLD_LOCAL);
    if (!library) return harpe_fail(error, HARPE_NOT_FOUND, "scheduler: cannot load %s", dlerror());
    harpe_scheduler_entry_function entry = NULL;
    *(void **)&entry = dlsym(library, HARPE_SCHEDULER_ENTRY);
    if (!entry)
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "scheduler: %s does not export %s (see harpe/scheduler.h)", self->path,
                          HARPE_SCHEDULER_ENTRY);
    const harpe_scheduler_class *class = entry();
    harpe_status status = check_class(self->path, class, error);
    if (status == HARPE_OK) self->class = class;
    return status;
}

/* ---- Questions ------------------------------------------------------------------------------- */

static void log_line(void *user, harpe_log_level level, const char *line) {
    host *self = user;
    if (!self->log) self->log = json_array();
    json_t *entry = json_pack("[i, s]", (int)level, line);
    if (!entry) entry = json_pack("[i, s]", (int)level, "(a line that is not UTF-8)");
    (void)json_array_append_new(self->log, entry);
}

static harpe_status check(host *self, const json_t *value, json_t *answer, harpe_error *error) {
    const harpe_scheduler_class *class = self->class;
    harpe_status status =
        class->check_args ? class->check_args(json_string_value(value), error) : HARPE_OK;
    json_t *there = json_pack(
        "{s:s, s:b, s:b, s:b, s:b, s:b, s:b, s:b}", "name", class->name, "observe",
        class->observe != NULL, "is_finished", class->is_finished != NULL, "save",
        class->save != NULL, "load", class->load != NULL, "job_request", class->job_request != NULL,
        "frontier", class->frontier != NULL, "pipeline", class->pipeline != NULL);
    (void)json_object_update(answer, there);
    json_decref(there);
    return status;
}

static char *text_of(const json_t *value) {
    return value ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
}

static harpe_status read_ranks(host *self, const json_t *list, harpe_error *error) {
    size_t count = json_array_size(list);
    self->ranks = harpe_calloc(count, sizeof *self->ranks);
    if (!self->ranks) return harpe_fail_memory(error);
    for (size_t r = 0; r < count; r++) {
        char *text = text_of(json_array_get(list, r));
        if (!text) return harpe_fail_memory(error);
        harpe_status status = harpe_rank_info_parse(text, strlen(text), &self->ranks[r], error);
        free(text);
        if (status != HARPE_OK) return status;
    }
    return HARPE_OK;
}

static harpe_status init(host *self, const json_t *value, harpe_error *error) {
    if (self->args_json || self->directory)
        return harpe_fail(error, HARPE_INTERNAL, "this process has a job already");
    self->settings_json = text_of(json_object_get(value, "settings"));
    self->args_json = text_of(json_object_get(value, "args"));
    const char *directory = json_string_value(json_object_get(value, "directory"));
    self->directory = directory ? strdup(directory) : NULL;
    char *info = text_of(json_object_get(value, "job_info"));
    bool is_whole = info && self->settings_json && self->args_json;
    harpe_status status = is_whole ? harpe_job_info_parse(info, strlen(info), &self->info, error)
                                   : harpe_fail_memory(error);
    free(info);
    if (status == HARPE_OK) status = read_ranks(self, json_object_get(value, "rank_infos"), error);
    if (status != HARPE_OK) return status;
    self->job = (harpe_scheduler_job){.job = &self->info,
                                      .ranks = self->ranks,
                                      .settings_json = self->settings_json,
                                      .args_json = self->args_json,
                                      .directory = self->directory,
                                      .log = {log_line, self}};
    status = self->class->create(&self->job, &self->state, error);
    self->is_created = status == HARPE_OK;
    return status;
}

static harpe_status next(host *self, json_t *answer, harpe_error *error) {
    harpe_schedule_set *set = harpe_schedule_set_new(self->info.world_size);
    if (!set) return harpe_fail_memory(error);
    json_t *list = json_array();
    harpe_status status =
        self->class->next_schedule(self->state, harpe_schedule_set_writer(set), error);
    bool is_empty = harpe_schedule_set_instruction_count(set) == 0;
    const harpe_frequency_schedule *schedules = harpe_schedule_set_schedules(set);
    for (int r = 0; status == HARPE_OK && !is_empty && r < self->info.world_size; r++) {
        char *json = NULL;
        status = harpe_frequency_schedule_format(&schedules[r], &json, error);
        if (status == HARPE_OK) (void)json_array_append_new(list, json_loads(json, 0, NULL));
        free(json);
    }
    harpe_schedule_set_free(set);
    (void)json_object_set_new(answer, "schedules", list);
    return status;
}

static harpe_status observe(host *self, const json_t *list, harpe_error *error) {
    size_t count = json_array_size(list);
    harpe_profiling_result *results = harpe_calloc(count, sizeof *results);
    harpe_status status = results ? HARPE_OK : harpe_fail_memory(error);
    for (size_t r = 0; status == HARPE_OK && r < count; r++) {
        char *text = text_of(json_array_get(list, r));
        status = text ? harpe_profiling_result_parse(text, strlen(text), &results[r], error)
                      : harpe_fail_memory(error);
        free(text);
    }
    if (status == HARPE_OK) status = self->class->observe(self->state, results, count, error);
    harpe_profiling_results_free(results, results ? count : 0);
    return status;
}

static harpe_status save(host *self, json_t *answer, harpe_error *error) {
    char *text = NULL;
    size_t length = 0;
    harpe_status status = self->class->save(self->state, &text, &length, error);
    if (status != HARPE_OK) return status;
    char *hex = harpe_library_to_hex(text, length);
    free(text);
    if (!hex) return harpe_fail_memory(error);
    (void)json_object_set_new(answer, "text", json_string_nocheck(hex));
    free(hex);
    return HARPE_OK;
}

static harpe_status load(host *self, const char *hex, harpe_error *error) {
    size_t length = 0;
    char *bytes = harpe_library_from_hex(hex ? hex : "", &length);
    if (!bytes) return harpe_fail_memory(error);
    harpe_status status = self->class->load(self->state, bytes, length, error);
    free(bytes);
    return status;
}

static harpe_status look(host *self, const json_t *question, json_t *answer, harpe_error *error) {
    const harpe_scheduler_class *class = self->class;
    const json_t *number = json_object_get(question, "pipeline");
    bool is_pipeline = number && class->pipeline;
    char *json = NULL;
    if (!is_pipeline && !(class->frontier && json_object_get(question, "frontier")))
        return harpe_fail(error, HARPE_NOT_SUPPORTED, "%s has no such function", class->name);
    harpe_status status =
        is_pipeline ? class->pipeline(self->state, json_integer_value(number), &json, error)
                    : class->frontier(self->state, &json, error);
    if (status != HARPE_OK) return status;
    json_t *text = json ? json_string(json) : NULL;
    free(json);
    if (!text)
        return harpe_fail(error, HARPE_INVALID_INPUT, "the %s of the scheduler is not UTF-8",
                          is_pipeline ? "pipeline" : "frontier");
    (void)json_object_set_new(answer, "text", text);
    return HARPE_OK;
}

static harpe_status answer_question(host *self, const json_t *question, json_t *answer,
                                    harpe_error *error) {
    const json_t *value;
    harpe_status status = open_library(self, error);
    if (status != HARPE_OK) return status;
    const harpe_scheduler_class *class = self->class;
    if ((value = json_object_get(question, "check"))) return check(self, value, answer, error);
    if ((value = json_object_get(question, "init")))
        status = init(self, value, error);
    else if (!self->is_created)
        return harpe_fail(error, HARPE_INTERNAL, "a question came before the job's data");
    else if (json_object_get(question, "next"))
        status = next(self, answer, error);
    else if (class->observe && (value = json_object_get(question, "observe")))
        status = observe(self, value, error);
    else if (class->job_request && (value = json_object_get(question, "job_request")))
        status = class->job_request(
            self->state, (harpe_scheduler_job_request)json_integer_value(json_array_get(value, 0)),
            json_number_value(json_array_get(value, 1)), error);
    else if (class->save && json_object_get(question, "save"))
        return save(self, answer, error);
    else if (class->load && (value = json_object_get(question, "load")))
        status = load(self, json_string_value(value), error);
    else
        return look(self, question, answer, error);
    if (status == HARPE_OK && class->is_finished)
        (void)json_object_set_new(answer, "finished",
                                  json_boolean(class->is_finished(self->state)));
    return status;
}

/* ---- The conversation ------------------------------------------------------------------------ */

/* Adds an error to the answer. The scheduler's own code may have written any bytes into the
 * message. */
static void put_error(json_t *answer, harpe_status status, harpe_error *error) {
    error->message[sizeof error->message - 1] = '\0';
    (void)harpe_fail(error, status, "%s",
                     *error->message ? error->message : harpe_status_name(status));
    json_object_clear(answer);
    (void)json_object_set_new(answer, "error", json_string(error->message));
    (void)json_object_set_new(answer, "status", json_integer(status));
}

static bool answer_line(host *self, const char *line, size_t length) {
    harpe_error error = {0};
    json_t *answer = json_object();
    json_t *question = json_loadb(line, length, 0, NULL);
    harpe_status status = question ? answer_question(self, question, answer, &error)
                                   : harpe_fail(&error, HARPE_INTERNAL, "not a question");
    if (status != HARPE_OK) put_error(answer, status, &error);
    if (self->log) (void)json_object_set_new(answer, "log", self->log);
    self->log = NULL;
    bool is_written = json_dumpf(answer, self->answers, JSON_COMPACT) == 0 &&
                      fputc('\n', self->answers) != EOF && fflush(self->answers) == 0;
    json_decref(question);
    json_decref(answer);
    return is_written;
}

/* Reserves standard input and output for questions and answers. If the library reads standard
 * input, it gets the end of the file. If it writes to standard output, the text goes to standard
 * error. */
static bool take_streams(FILE **questions, FILE **answers) {
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int input = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    int output = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (null < 0 || input < 0 || output < 0) return false;
    *questions = fdopen(input, "r");
    *answers = fdopen(output, "w");
    return *questions && *answers && dup2(null, STDIN_FILENO) >= 0 &&
           dup2(STDERR_FILENO, STDOUT_FILENO) >= 0;
}

int harpe_library_main(int argc, char **argv) {
    host self = {0};
    FILE *questions;
    if (argc != 3 || !take_streams(&questions, &self.answers)) return 2;
    self.path = argv[2];
    (void)prctl(PR_SET_NAME, "harpe-library");
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length;
    while ((length = getline(&line, &capacity, questions)) > 0)
        if (!answer_line(&self, line, (size_t)length)) break;
    if (self.is_created) self.class->destroy(self.state);
    free(line);
    for (int r = 0; r < self.info.world_size && self.ranks; r++)
        harpe_rank_info_free(&self.ranks[r]);
    free(self.ranks);
    free(self.settings_json);
    free(self.args_json);
    free(self.directory);
    harpe_job_info_free(&self.info);
    return 0;
}
