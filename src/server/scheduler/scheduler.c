/* SPDX-License-Identifier: Apache-2.0 */
/* One job's scheduler, in the form that the engine uses. It keeps the last schedules, and returns
 * them in all later rounds when the scheduler has finished. With the 3D wrapper it gives the
 * schedule of a stage to all ranks of the stage. This code runs on workers. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "base/text.h"
#include "server/scheduler/builtin.h"
#include "server/scheduler/schedule_set.h"
#include "server/scheduler/scheduler_kind.h"
#include "server/scheduler/stages.h"

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

/* ---- Making it ------------------------------------------------------------------------------- */

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

static bool is_online(const harpe_scheduler *scheduler) {
    const harpe_scheduler_class *class = scheduler->kind->class;
    return class == &harpe_perseus_scheduler || class == &harpe_instruction_profiler;
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
    return harpe_scheduler_kind_has_programs(scheduler->kind) &&
           harpe_program_is_running(scheduler->state);
}

bool harpe_scheduler_is_custom(const harpe_scheduler *scheduler) {
    return harpe_scheduler_kind_has_programs(scheduler->kind);
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

/* Adds the conduct to the JSON object that an online scheduler has saved. The scheduler ignores
 * this member. */
static harpe_status save_conduct(const harpe_scheduler *scheduler, char **text, size_t *length,
                                 harpe_error *error) {
    json_t *json = harpe_conduct_sums_save(&scheduler->conduct);
    char *conduct = json ? json_dumps(json, JSON_COMPACT) : NULL;
    harpe_text whole = {0};
    json_decref(json);
    harpe_text_append(&whole, *text, *length - 1); /* without the brace at its end */
    harpe_text_printf(&whole, ",\"conduct\":%s}", conduct ? conduct : "null");
    bool is_made = conduct && !whole.failed;
    free(conduct);
    free(is_made ? *text : whole.data);
    if (!is_made) {
        free(*text);
        *text = NULL;
        return harpe_fail_memory(error);
    }
    *text = whole.data;
    *length = whole.length;
    return HARPE_OK;
}

static void load_conduct(harpe_scheduler *scheduler, const char *text, size_t length) {
    json_t *json = json_loadb(text, length, 0, NULL);
    (void)harpe_conduct_sums_load(&scheduler->conduct, json_object_get(json, "conduct"));
    json_decref(json);
}

harpe_status harpe_scheduler_save(const harpe_scheduler *scheduler, char **text, size_t *length,
                                  harpe_error *error) {
    const harpe_scheduler_class *class = scheduler->kind->class;
    if (!class->save)
        return harpe_fail(error, HARPE_NOT_SUPPORTED, "%s has no state to save", class->name);
    harpe_status status = class->save(scheduler->state, text, length, error);
    if (status != HARPE_OK || !is_online(scheduler)) return status;
    return save_conduct(scheduler, text, length, error);
}

harpe_status harpe_scheduler_load(harpe_scheduler *scheduler, const char *text, size_t length,
                                  harpe_error *error) {
    const harpe_scheduler_class *class = scheduler->kind->class;
    if (!class->load)
        return harpe_fail(error, HARPE_NOT_SUPPORTED, "%s has no state to load", class->name);
    harpe_status status = class->load(scheduler->state, text, length, error);
    if (status == HARPE_OK && is_online(scheduler)) load_conduct(scheduler, text, length);
    return status;
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
