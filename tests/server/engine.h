/* SPDX-License-Identifier: Apache-2.0 */
/* The engine in one process, for its tests: a real loop, workers and store, calls that wait for
 * their answers, and a scheduler whose schedules depend on everything that it has observed. */
#ifndef HARPE_TESTS_SERVER_ENGINE_H
#define HARPE_TESTS_SERVER_ENGINE_H

#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "server/engine/engine.h"
#include "server/engine/engine_internal.h"
#include "server/scheduler/scheduler_host.h"

enum { WAIT_LIMIT_MS = 300000 };

/* ---- A scheduler that learns ----------------------------------------------------------------- */

/* Its schedules are one instruction at 1000 MHz plus a value from all results. The job's metadata
 * makes it fail ("fail create", "fail next", "fail observe") or be finished from the start
 * ("finished"). */
typedef struct learner {
    const harpe_scheduler_job *job;
    int observed;
    int learnt; /* depends on every result and on their order */
    int requested;
    bool is_finished;
} learner;

static inline bool learner_must(const learner *self, const char *what) {
    const char *metadata = self->job->job->job_metadata;
    return metadata && strcmp(metadata, what) == 0;
}

static inline harpe_status learner_fail(harpe_error *error, const char *message) {
    (void)snprintf(error->message, sizeof error->message, "%s", message);
    error->status = HARPE_INVALID_INPUT;
    return HARPE_INVALID_INPUT;
}

static inline harpe_status learner_create(const harpe_scheduler_job *job, void **state,
                                          harpe_error *error) {
    learner *self = calloc(1, sizeof *self);
    self->job = job;
    if (learner_must(self, "fail create")) {
        free(self);
        return learner_fail(error, "plan.py has 4 lists and the job 2 ranks");
    }
    self->is_finished = learner_must(self, "finished");
    *state = self;
    return HARPE_OK;
}

static inline harpe_status learner_next(void *state, harpe_schedule_writer *writer,
                                        harpe_error *error) {
    learner *self = state;
    if (learner_must(self, "fail next")) return learner_fail(error, "no plan fits");
    if (learner_must(self, "slow")) usleep(200000);
    for (int r = 0; r < self->job->job->world_size; r++) {
        harpe_status status = writer->add(
            writer, r, "forward", 1000 + self->learnt % 10000 + 100000 * self->requested, error);
        if (status != HARPE_OK) return status;
    }
    return HARPE_OK;
}

static inline harpe_status learner_observe(void *state, const harpe_profiling_result *results,
                                           size_t count, harpe_error *error) {
    learner *self = state;
    if (learner_must(self, "fail observe")) return learner_fail(error, "this makes no sense");
    self->observed++;
    for (size_t r = 0; r < count; r++) {
        if (results[r].rank != (int)r) return learner_fail(error, "results are not in rank order");
        int value =
            results[r].iteration_time_count ? (int)lround(results[r].iteration_time_s[0]) : 0;
        self->learnt = (self->learnt * 31 + value) % 1000003;
    }
    return HARPE_OK;
}

static inline void learner_destroy(void *state) { free(state); }

static inline bool learner_is_finished(const void *state) {
    return ((const learner *)state)->is_finished;
}

static inline harpe_status learner_save(const void *state, char **text, size_t *length,
                                        harpe_error *error) {
    const learner *self = state;
    (void)error;
    *length = (size_t)asprintf(text, "%d %d %d", self->observed, self->learnt, self->requested);
    return HARPE_OK;
}

static inline harpe_status learner_load(void *state, const char *text, size_t length,
                                        harpe_error *error) {
    learner *self = state;
    char copy[64] = "";
    memcpy(copy, text, length < sizeof copy - 1 ? length : sizeof copy - 1);
    char *end = copy;
    self->observed = (int)strtol(end, &end, 10);
    self->learnt = (int)strtol(end, &end, 10);
    self->requested = (int)strtol(end, &end, 10);
    return *end == '\0' ? HARPE_OK : learner_fail(error, "unreadable state");
}

static inline harpe_status learner_job_request(void *state, harpe_scheduler_job_request request,
                                               double value, harpe_error *error) {
    (void)request;
    if (value > 1000) return learner_fail(error, "too much");
    ((learner *)state)->requested = (int)value;
    return HARPE_OK;
}

static inline harpe_status learner_frontier(const void *state, char **json, harpe_error *error) {
    (void)error;
    return asprintf(json, "{\"observed\":%d}", ((const learner *)state)->observed) > 0
               ? HARPE_OK
               : HARPE_OUT_OF_MEMORY;
}

static const harpe_scheduler_class learner_with_history = {
    .abi = HARPE_SCHEDULER_ABI,
    .name = "Learner",
    .create = learner_create,
    .next_schedule = learner_next,
    .observe = learner_observe,
    .destroy = learner_destroy,
    .is_finished = learner_is_finished,
};

static const harpe_scheduler_class learner_with_state = {
    .abi = HARPE_SCHEDULER_ABI,
    .name = "Learner",
    .create = learner_create,
    .next_schedule = learner_next,
    .observe = learner_observe,
    .destroy = learner_destroy,
    .is_finished = learner_is_finished,
    .save = learner_save,
    .load = learner_load,
    .job_request = learner_job_request,
    .frontier = learner_frontier,
};

/* ---- The engine ------------------------------------------------------------------------------ */

typedef struct engine {
    char directory[PATH_MAX / 4], where[PATH_MAX / 2];
    harpe_settings settings;
    harpe_scheduler_kind kind;
    harpe_loop *loop;
    harpe_workers *workers;
    harpe_store *store;
    harpe_jobs *jobs;
    atomic_int warnings;
    bool is_late;
    char **ids; /* of registered jobs */
    size_t id_count;
} engine;

static double engine_clock_s = 0; /* 0: the system's clock */
static inline double engine_clock(void) {
    return engine_clock_s > 0 ? engine_clock_s : (double)time(NULL);
}

static double engine_steady_s = 0; /* 0: the system's clock */
static inline double engine_steady_clock(void) {
    return engine_steady_s > 0 ? engine_steady_s : harpe_clock_s();
}

static inline void engine_log(void *user, harpe_log_level level, const char *line) {
    engine *e = user;
    (void)line;
    if (level >= HARPE_LOG_WARNING) atomic_fetch_add(&e->warnings, 1);
}

static inline harpe_status engine_try_start(engine *e, harpe_error *error) {
    harpe_log log = {engine_log, e};
    harpe_jobs_options options = {.scheduler = &e->kind,
                                  .settings = &e->settings,
                                  .log = log,
                                  .wall_clock_s = engine_clock,
                                  .steady_clock_s = engine_steady_clock};
    harpe_status status = harpe_loop_new(&e->loop, error);
    if (status == HARPE_OK) status = harpe_workers_new(e->loop, harpe_pools, 2, &e->workers, error);
    if (status == HARPE_OK) status = harpe_store_open(e->where, e->loop, log, &e->store, error);
    options.loop = e->loop;
    options.workers = e->workers;
    options.store = e->store;
    return status != HARPE_OK ? status : harpe_jobs_new(&options, &e->jobs, error);
}

static inline void engine_start(engine *e) {
    harpe_error error = {0};
    if (engine_try_start(e, &error)) fail_msg("%s", error.message);
}

static inline void engine_stop(engine *e) {
    if (e->jobs) harpe_jobs_stop(e->jobs);
    harpe_workers_free(e->workers);
    harpe_store_close(e->store);
    harpe_jobs_free(e->jobs);
    harpe_loop_free(e->loop);
    e->jobs = NULL;
    e->workers = NULL;
    e->store = NULL;
    e->loop = NULL;
}

static inline void engine_restart(engine *e) {
    engine_stop(e);
    engine_start(e);
}

static inline void engine_free_ids(engine *e) {
    while (e->id_count > 0)
        free(e->ids[--e->id_count]);
    free(e->ids);
    e->ids = NULL;
}

static char learner_name[] = "Learner";
static char no_settings[] = "{}";

/* Not started yet: a test may first change settings. */
static inline int engine_make(void **state) {
    engine *e = calloc(1, sizeof *e);
    (void)snprintf(e->directory, sizeof e->directory, "/tmp/harpe-engine-XXXXXX");
    if (!e || !mkdtemp(e->directory)) return -1;
    (void)snprintf(e->where, sizeof e->where, "sqlite:%s/harpe.db", e->directory);
    if (harpe_settings_init(&e->settings, NULL)) return -1;
    e->settings.dump_data = false;
    e->kind = (harpe_scheduler_kind){.class = &learner_with_state,
                                     .name = learner_name,
                                     .args_json = no_settings,
                                     .settings_json = no_settings,
                                     .timeout_s = 10};
    engine_clock_s = engine_steady_s = 0;
    *state = e;
    return 0;
}

static inline int engine_make_started(void **state) {
    int failed = engine_make(state);
    if (!failed) engine_start(*state);
    return failed;
}

static inline int engine_remove(void **state) {
    engine *e = *state;
    char command[PATH_MAX];
    if (e->loop) engine_stop(e);
    engine_free_ids(e);
    harpe_settings_free(&e->settings);
    (void)snprintf(command, sizeof command, "chmod -R u+rwx %s; rm -rf %s", e->directory,
                   e->directory);
    int result = system(command);
    free(e);
    return result;
}

/* Limits the size of files to `bytes`. Returns the earlier limit. */
static inline struct rlimit engine_limit_files(rlim_t bytes) {
    struct rlimit before, now;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    now = (struct rlimit){bytes, before.rlim_max};
    assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &now), 0);
    return before;
}

/* ---- Running the loop ------------------------------------------------------------------------ */

static inline void engine_is_late(void *user) {
    engine *e = user;
    e->is_late = true;
    harpe_loop_stop(e->loop);
}

static inline void engine_pause_is_over(void *user) { harpe_loop_stop(((engine *)user)->loop); }

/* Runs the loop for `ms`. */
static inline void engine_run_ms(engine *e, int ms) {
    harpe_timer *timer;
    assert_int_equal(harpe_loop_after(e->loop, ms, engine_pause_is_over, e, &timer, NULL),
                     HARPE_OK);
    assert_int_equal(harpe_loop_run(e->loop, NULL), HARPE_OK);
}

/* Runs the loop until nothing is in flight. */
static inline void engine_settle(engine *e) {
    for (int i = 0; i < WAIT_LIMIT_MS && !harpe_jobs_are_idle(e->jobs); i++)
        engine_run_ms(e, 1);
    assert_true(harpe_jobs_are_idle(e->jobs));
}

/* ---- Calls ----------------------------------------------------------------------------------- */

typedef struct asked {
    harpe_call call;
    engine *engine;
    bool is_answered;
    int status;
    char *body;
    int64_t round;
} asked;

static inline void engine_answered(harpe_call *call, const harpe_call_answer *answer) {
    asked *a = call->user;
    assert_false(a->is_answered);
    a->is_answered = true;
    a->status = answer->http_status;
    a->body = answer->body;
    a->round = answer->round;
    assert_non_null(a->body);
    assert_int_equal(strlen(a->body), answer->length);
    harpe_loop_stop(a->engine->loop);
}

static inline asked *ask(engine *e, harpe_call_kind kind, const char *job, int64_t rank,
                         int64_t round, const char *body) {
    asked *a = calloc(1, sizeof *a);
    a->engine = e;
    a->call = (harpe_call){.kind = kind,
                           .job_id = job ? strdup(job) : NULL,
                           .rank = rank,
                           .round = round,
                           .body = body ? strdup(body) : NULL,
                           .length = body ? strlen(body) : 0,
                           .answer = engine_answered,
                           .user = a};
    harpe_jobs_handle(e->jobs, &a->call);
    return a;
}

static inline void asked_free(asked *a) {
    free(a->call.job_id);
    free(a->call.body);
    free(a->body);
    free(a);
}

/* The client of the call leaves before the answer. */
static inline void leave(asked *a) {
    harpe_jobs_forget(a->engine->jobs, &a->call);
    asked_free(a);
}

static inline void await(asked *a) {
    engine *e = a->engine;
    harpe_timer *timer;
    assert_int_equal(harpe_loop_after(e->loop, WAIT_LIMIT_MS, engine_is_late, e, &timer, NULL),
                     HARPE_OK);
    while (!a->is_answered && !e->is_late)
        assert_int_equal(harpe_loop_run(e->loop, NULL), HARPE_OK);
    assert_false(e->is_late);
    harpe_timer_cancel(timer);
}

/* Waits for the answer and checks it. The text that it must contain may be NULL. */
static inline void expect(asked *a, int status, const char *contained) {
    await(a);
    if (a->status != status || (contained && !strstr(a->body, contained))) {
        fail_msg("expected %d with %s, got %d %s", status, contained ? contained : "anything",
                 a->status, a->body);
    }
    asked_free(a);
}

static inline void expect_held(engine *e, const asked *a) {
    engine_settle(e);
    if (a->is_answered) fail_msg("expected a held call, got %d %s", a->status, a->body);
}

/* Waits for the answer to a registration and returns the job's id, which belongs to the engine. */
static inline const char *registered_id(asked *a) {
    engine *e = a->engine;
    await(a);
    if (a->status != 200) fail_msg("%d %s", a->status, a->body);
    e->ids = realloc(e->ids, (e->id_count + 1) * sizeof *e->ids);
    char *id = strndup(a->body + 1, strlen(a->body) - 2);
    e->ids[e->id_count++] = id;
    asked_free(a);
    return id;
}

/* `member`: "job_metadata" or "job_key", with this text; NULL: the body does not have it. */
static inline asked *ask_register_job(engine *e, int pp_degree, const char *member,
                                      const char *text) {
    char *body = NULL;
    if (asprintf(&body,
                 "{\"job_id\":\"\",\"pp_degree\":%d,\"dp_degree\":1,\"tp_degree\":1,"
                 "\"world_size\":%d%s%s%s%s%s}",
                 pp_degree, pp_degree, text ? ",\"" : "", text ? member : "", text ? "\":\"" : "",
                 text ? text : "", text ? "\"" : "") < 0)
        abort();
    asked *a = ask(e, HARPE_CALL_REGISTER_JOB, NULL, 0, -1, body);
    free(body);
    return a;
}

static inline const char *register_job(engine *e, int pp_degree, const char *metadata) {
    return registered_id(ask_register_job(e, pp_degree, "job_metadata", metadata));
}

static inline asked *ask_with_key(engine *e, const char *key, int pp_degree) {
    return ask_register_job(e, pp_degree, "job_key", key);
}

static inline asked *ask_register_rank(engine *e, const char *job, int rank, int pp_rank) {
    char body[256];
    (void)snprintf(body, sizeof body,
                   "{\"rank\":%d,\"dp_rank\":0,\"pp_rank\":%d,\"tp_rank\":0,"
                   "\"available_frequencies\":[1980,1410,%d]}",
                   rank, pp_rank, 1000 + rank);
    return ask(e, HARPE_CALL_REGISTER_RANK, job, 0, -1, body);
}

static inline const char *job_of(engine *e, int ranks, const char *metadata) {
    const char *job = register_job(e, ranks, metadata);
    for (int r = 0; r < ranks; r++)
        expect(ask_register_rank(e, job, r, r), 200, "null");
    return job;
}

static inline asked *ask_schedule(engine *e, const char *job, int rank, int64_t round) {
    return ask(e, HARPE_CALL_SCHEDULE, job, rank, round, NULL);
}

static inline asked *ask_result(engine *e, const char *job, int rank, int64_t round, int value) {
    char body[256];
    (void)snprintf(body, sizeof body,
                   "{\"rank\":%d,\"iter_time\":[%d.0],\"iter_energy\":[2.5],"
                   "\"time_breakdown\":{\"forward\":[[1.0,2.0]]}}",
                   rank, value);
    return ask(e, HARPE_CALL_RESULT, job, 0, round, body);
}

/* Sends a result for each rank in its present round: rank r reports `value` + r. */
static inline void report_all(engine *e, const char *job, int ranks, int value) {
    for (int r = 0; r < ranks; r++)
        expect(ask_result(e, job, r, -1, value + r), 200, "null");
}

/* All ranks ask and get round `round`. Then each reports `value` + its rank. Returns the schedule's
 * MHz. */
static inline int whole_round(engine *e, const char *job, int ranks, int64_t round, int value) {
    asked *all[64];
    int frequency = -1;
    for (int r = 0; r < ranks; r++)
        all[r] = ask_schedule(e, job, r, -1);
    for (int r = 0; r < ranks; r++) {
        await(all[r]);
        if (all[r]->status != 200) fail_msg("%d %s", all[r]->status, all[r]->body);
        assert_int_equal(all[r]->round, round);
        const char *number = strstr(all[r]->body, "\"forward\",");
        assert_non_null(number);
        frequency = (int)strtol(number + strlen("\"forward\","), NULL, 10);
        asked_free(all[r]);
    }
    if (value >= 0) report_all(e, job, ranks, value);
    return frequency;
}

#define ENGINE_TEST(name) TEST_ON(name, engine *e, engine_make, engine_remove)
/* The engine is started with its usual settings. */
#define STARTED_TEST(name) TEST_ON(name, engine *e, engine_make_started, engine_remove)

#endif
