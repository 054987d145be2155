/* SPDX-License-Identifier: Apache-2.0 */
/* The server's side of a scheduler that is a shared object. Each function of the class asks the
 * process that has loaded the shared object. */
#include "server/scheduler/library.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/number.h"
#include "server/scheduler/program.h"

static const char WHAT[] = "scheduler library";

/* ---- States in JSON -------------------------------------------------------------------------- */

char *harpe_library_to_hex(const char *bytes, size_t length) {
    char *hex = malloc(2 * length + 1);
    if (hex) harpe_hex_put(hex, bytes, length);
    return hex;
}

char *harpe_library_from_hex(const char *hex, size_t *length) {
    size_t digits = strlen(hex);
    char *bytes = digits % 2 == 0 ? malloc(digits / 2 + 1) : NULL;
    if (!bytes) return NULL;
    if (!harpe_hex_take(hex, bytes, digits / 2)) {
        free(bytes);
        return NULL;
    }
    bytes[digits / 2] = '\0';
    *length = digits / 2;
    return bytes;
}

/* ---- Asking ---------------------------------------------------------------------------------- */

static void pass_log(const harpe_program *self, const json_t *answer) {
    size_t index;
    const json_t *entry;
    if (!self->job) return;
    json_array_foreach(json_object_get(answer, "log"), index, entry) {
        json_int_t level = json_integer_value(json_array_get(entry, 0));
        const char *line = json_string_value(json_array_get(entry, 1));
        bool is_level = level >= HARPE_LOG_DEBUG && level <= HARPE_LOG_ERROR;
        if (line)
            harpe_log_line(&self->job->log, is_level ? (harpe_log_level)level : HARPE_LOG_INFO,
                           "%s", line);
    }
}

/* Asks a question. The caller frees the answer. If the answer is an error, returns that error. */
static harpe_status ask(const void *state, json_t *question, json_t **answer, harpe_error *error) {
    harpe_program *self = (harpe_program *)state; /* the server sees no change of it */
    harpe_status status = harpe_program_ask(self, question, answer, error);
    if (status != HARPE_OK) return status;
    pass_log(self, *answer);
    const json_t *finished = json_object_get(*answer, "finished");
    if (finished) self->is_finished = json_is_true(finished);
    return HARPE_OK;
}

static harpe_status tell(void *state, json_t *question, harpe_error *error) {
    json_t *answer;
    harpe_status status = ask(state, question, &answer, error);
    if (status == HARPE_OK) json_decref(answer);
    return status;
}

/* Asks a question and returns the "text" of the answer, to be freed with free(). */
static harpe_status ask_text(const void *state, json_t *question, char **text, harpe_error *error) {
    json_t *answer;
    harpe_status status = ask(state, question, &answer, error);
    if (status != HARPE_OK) return status;
    const char *said = json_string_value(json_object_get(answer, "text"));
    char *copy = said ? strdup(said) : NULL;
    json_decref(answer);
    if (!copy) return harpe_fail_memory(error);
    *text = copy;
    return HARPE_OK;
}

/* ---- The class ------------------------------------------------------------------------------- */

static harpe_status create(const harpe_scheduler_job *job, void **state, harpe_error *error) {
    harpe_program *self;
    harpe_status status = harpe_program_new_for_job(job, &self, error);
    if (status != HARPE_OK) return status;
    json_t *init = harpe_program_init_value(job);
    if (init && job->directory)
        (void)json_object_set_new(init, "directory", json_string(job->directory));
    status = tell(self, json_pack("{s:o}", "init", init), error);
    if (status != HARPE_OK) {
        harpe_program_free(self);
        return status;
    }
    *state = self;
    return HARPE_OK;
}

static void destroy(void *state) { harpe_program_free(state); }

static harpe_status next_schedule(void *state, harpe_schedule_writer *writer, harpe_error *error) {
    json_t *answer;
    harpe_status status = ask(state, json_pack("{s:b}", "next", 1), &answer, error);
    if (status != HARPE_OK) return status;
    status = harpe_program_write_schedules(json_object_get(answer, "schedules"), writer, error);
    json_decref(answer);
    return status;
}

static harpe_status observe(void *state, const harpe_profiling_result *results, size_t count,
                            harpe_error *error) {
    json_t *list = harpe_program_observe_value(results, count);
    return tell(state, json_pack("{s:o}", "observe", list), error);
}

static bool is_finished(const void *state) { return ((const harpe_program *)state)->is_finished; }

static harpe_status save(const void *state, char **text, size_t *length, harpe_error *error) {
    char *hex;
    harpe_status status = ask_text(state, json_pack("{s:b}", "save", 1), &hex, error);
    if (status != HARPE_OK) return status;
    char *bytes = harpe_library_from_hex(hex, length);
    free(hex);
    if (!bytes) return harpe_fail_memory(error);
    *text = bytes;
    return HARPE_OK;
}

static harpe_status load(void *state, const char *text, size_t length, harpe_error *error) {
    char *hex = harpe_library_to_hex(text, length);
    if (!hex) return harpe_fail_memory(error);
    json_t *question = json_pack("{s:s}", "load", hex);
    free(hex);
    return tell(state, question, error);
}

static harpe_status job_request(void *state, harpe_scheduler_job_request request, double value,
                                harpe_error *error) {
    return tell(state, json_pack("{s:[i, f]}", "wish", (int)request, value), error);
}

static harpe_status frontier(const void *state, char **json, harpe_error *error) {
    return ask_text(state, json_pack("{s:b}", "frontier", 1), json, error);
}

static harpe_status pipeline(const void *state, int64_t number, char **json, harpe_error *error) {
    return ask_text(state, json_pack("{s:I}", "pipeline", (json_int_t)number), json, error);
}

/* ---- Looking --------------------------------------------------------------------------------- */

static bool has(const json_t *answer, const char *function) {
    size_t index;
    const json_t *entry;
    json_array_foreach(json_object_get(answer, "has"), index, entry) {
        if (strcmp(json_string_value(entry) ? json_string_value(entry) : "", function) == 0)
            return true;
    }
    return false;
}

/* Returns the class. The class has an optional function only if the shared object has the
 * function. */
static harpe_scheduler_class class_of(const json_t *answer, const char *name) {
    return (harpe_scheduler_class){
        .abi = HARPE_SCHEDULER_ABI,
        .name = name,
        .create = create,
        .next_schedule = next_schedule,
        .observe = has(answer, "observe") ? observe : NULL,
        .destroy = destroy,
        .is_finished = has(answer, "is_finished") ? is_finished : NULL,
        .save = has(answer, "save") ? save : NULL,
        .load = has(answer, "load") ? load : NULL,
        .job_request = has(answer, "wish") ? job_request : NULL,
        .frontier = has(answer, "frontier") ? frontier : NULL,
        .pipeline = has(answer, "pipeline") ? pipeline : NULL,
    };
}

harpe_status harpe_library_look(const char *command, const char *path, const char *args_json,
                                int timeout_s, harpe_children *children,
                                harpe_scheduler_class *class, char **name, harpe_error *error) {
    json_t *answer = NULL;
    harpe_program constants = {
        .command = command, .what = WHAT, .name = path, .timeout_s = timeout_s};
    harpe_program *self;
    harpe_status status = harpe_program_new(&constants, children, "", &self, error);
    if (status != HARPE_OK) return status;
    status = ask(self, json_pack("{s:s}", "check", args_json), &answer, error);
    if (status == HARPE_OK) {
        const char *said = json_string_value(json_object_get(answer, "name"));
        *name = said ? strdup(said) : NULL;
        *class = class_of(answer, *name);
        if (!*name) status = harpe_fail_memory(error);
    }
    json_decref(answer);
    harpe_program_free(self);
    return status;
}
