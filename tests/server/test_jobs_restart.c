/* SPDX-License-Identifier: Apache-2.0 */
/* A server that dies at any moment. A process of a world runs a job of three ranks and is killed
 * after its n-th answer, for every n, or between any two turns, and its machine fails. The next
 * process continues with the same store, and clients repeat the requests without an answer. The
 * clients must see the same as with a server that was not killed. The schedules depend on every
 * result of every round. */
#include "test.h"

#include "base/process.h"
#include "base/wait.h"
#include "engine.h"
#include "server/scheduler/builtin.h"
#include "world/disk.h"
#include "world/world.h"

enum { RANKS = 3, ROUNDS = 4, ANSWERS = 1 + RANKS * (1 + 2 * ROUNDS) };

/* The state of the clients, which survives the server. */
typedef struct clients {
    char job[600];
    /* number of answers so far: registration, schedule 0, result 0, ... */
    int step[RANKS];
    int frequency[RANKS][ROUNDS]; /* as received */
    char mistake[300];
    int answers;
} clients;

static bool are_done(const clients *c) {
    for (int r = 0; r < RANKS; r++)
        if (c->step[r] < 1 + 2 * ROUNDS) return false;
    return true;
}

/* ---- One run of the server ------------------------------------------------------------------- */

typedef struct life {
    engine *e;
    clients *c;
    int answers_left; /* number of answers before it dies; 0: does not die */
    bool dies_before_it_is_known;
    bool names_rounds; /* clients send the number of their round */
} life;

typedef struct rank_client {
    life *life;
    int rank;
    harpe_call call;
    char *body;
} rank_client;

static bool is_doomed; /* the server dies before the next turn */

static void die(void) {
    is_doomed = true;
    harpe_sleep_ns(INT64_C(1000000000));
}

static void count_answer(life *l, bool is_known) {
    if (l->answers_left == 0 || is_known == l->dies_before_it_is_known) return;
    if (--l->answers_left == 0) die();
}

static void send_next(rank_client *self);

static void note_schedule(rank_client *self, int round, const harpe_call_answer *answer) {
    clients *c = self->life->c;
    const char *number = strstr(answer->body, "\"forward\",");
    if (answer->round != round || !number) {
        (void)snprintf(c->mistake, sizeof c->mistake, "rank %d wanted round %d, got %lld %.100s",
                       self->rank, round, (long long)answer->round, answer->body);
        return;
    }
    c->frequency[self->rank][round] = (int)strtol(number + strlen("\"forward\","), NULL, 10);
}

static void rank_is_answered(harpe_call *call, const harpe_call_answer *answer) {
    rank_client *self = call->user;
    clients *c = self->life->c;
    int *step = &c->step[self->rank];
    count_answer(self->life, false);
    if (answer->http_status != 200) {
        (void)snprintf(c->mistake, sizeof c->mistake, "rank %d at step %d: %d %.200s", self->rank,
                       *step, answer->http_status, answer->body);
        harpe_loop_stop(self->life->e->loop);
    }
    if (*step % 2 == 1) note_schedule(self, *step / 2, answer);
    free(answer->body);
    (*step)++;
    c->answers++;
    count_answer(self->life, true);
    if (c->mistake[0] || are_done(c))
        harpe_loop_stop(self->life->e->loop);
    else
        send_next(self);
}

static void send_next(rank_client *self) {
    const clients *c = self->life->c;
    int step = c->step[self->rank];
    int round = (step - 1) / 2;
    free(self->call.body);
    free(self->call.job_id);
    self->call = (harpe_call){.job_id = strdup(c->job),
                              .rank = self->rank,
                              .round = self->life->names_rounds ? round : -1,
                              .answer = rank_is_answered,
                              .user = self};
    if (step >= 1 + 2 * ROUNDS) return;
    char body[256] = "";
    self->call.kind = step == 0       ? HARPE_CALL_REGISTER_RANK
                      : step % 2 == 1 ? HARPE_CALL_SCHEDULE
                                      : HARPE_CALL_RESULT;
    if (step == 0) {
        (void)snprintf(body, sizeof body,
                       "{\"rank\":%d,\"dp_rank\":0,\"pp_rank\":%d,\"tp_rank\":0,"
                       "\"available_frequencies\":[1410]}",
                       self->rank, self->rank);
    } else if (step % 2 == 0) {
        (void)snprintf(body, sizeof body, "{\"rank\":%d,\"iter_time\":[%d],\"iter_energy\":[1]}",
                       self->rank, 10 * round + self->rank + 1);
    }
    if (body[0]) self->call.body = strdup(body);
    self->call.length = strlen(body);
    harpe_jobs_handle(self->life->e->jobs, &self->call);
}

static int live(void *user) {
    static rank_client ranks[RANKS];
    static engine own;
    life *l = user;
    own = *l->e;
    engine *e = l->e = &own;
    harpe_error error = {0};
    harpe_timer *timer;
    if (engine_try_start(e, &error)) {
        (void)snprintf(l->c->mistake, sizeof l->c->mistake, "%.200s", error.message);
        return 1;
    }
    if (!l->c->job[0]) {
        (void)snprintf(l->c->job, sizeof l->c->job, "%s", register_job(e, RANKS, NULL));
        engine_free_ids(e);
    }
    for (int r = 0; r < RANKS; r++) {
        ranks[r] = (rank_client){.life = l, .rank = r};
        send_next(&ranks[r]);
    }
    if (harpe_loop_after(e->loop, WAIT_LIMIT_MS, engine_is_late, e, &timer, NULL)) return 1;
    while (!are_done(l->c) && !l->c->mistake[0] && !e->is_late)
        (void)harpe_loop_run(e->loop, NULL);
    if (e->is_late) (void)snprintf(l->c->mistake, sizeof l->c->mistake, "the job hangs");
    return 0;
}

static harpe_disk *disk;
static pid_t server;
static uint64_t turns_left; /* before the server is killed; 0: it is not */

static void count_turn(void *user) {
    (void)user;
    if (turns_left > 0 && --turns_left == 0) is_doomed = true;
    if (is_doomed) harpe_world_kill(server);
    is_doomed = false;
}

/* Kills it after so many turns (0: never). The machine fails when it has ended. */
static void run_life(life l, uint64_t turns) {
    static life now;
    now = l;
    turns_left = turns;
    server = harpe_world_start("server", live, &now);
    harpe_world_on_step(count_turn, NULL);
    assert_true(harpe_world_await(server, INT64_MAX));
    harpe_world_on_step(NULL, NULL);
    harpe_disk_crash(disk);
    if (l.c->mistake[0]) fail_msg("%s", l.c->mistake);
}

/* ---- Expected results ------------------------------------------------------------------------ */

static void check_schedules(const clients *c) {
    int learnt = 0;
    assert_true(are_done(c));
    for (int k = 0; k < ROUNDS; k++) {
        for (int r = 0; r < RANKS; r++)
            assert_int_equal(c->frequency[r][k], 1000 + learnt % 10000);
        for (int r = 0; r < RANKS; r++)
            learnt = (learnt * 31 + 10 * k + r + 1) % 1000003;
    }
}

/* Records as a last server finds them: one job, and every result of every kept round once. */
static void check_counts(engine *e, const clients *c) {
    engine_start(e);
    assert_int_equal(harpe_jobs_count(e->jobs).jobs, 1);
    assert_int_equal(harpe_jobs_count(e->jobs).ranks, RANKS);
    expect(ask(e, HARPE_CALL_SHOW, c->job, 0, -1, NULL), 200, "\"round\":3");
    engine_settle(e);
    engine_stop(e);
}

static void fresh_store(engine *e, clients *c) {
    static int number = 0;
    memset(c, 0, sizeof *c);
    (void)snprintf(e->where, sizeof e->where, "world:disk/%d.db", number++);
}

/* Runs each test in a world of its own. */
static void run_in_world(engine *e, void (*first)(void *user)) {
    static uint64_t seed = 1;
    const harpe_world_options options = {.seed = seed++, .shuffles = true, .most_turns = 10000000};
    harpe_error error = {.message = ""};
    setenv("CMOCKA_TEST_ABORT", "1", 1);
    assert_non_null(disk = harpe_disk_new("disk", options.seed));
    if (harpe_world_run(&options, first, e, &error) != HARPE_OK) fail_msg("%s", error.message);
    harpe_disk_free(disk);
}

#define WORLD_ENGINE_TEST(name) \
    static void name##_in_world(engine *e); \
    static void name##_first(void *user) { name##_in_world(user); } \
    ENGINE_TEST(name) { run_in_world(e, name##_first); } \
    static void name##_in_world(engine *e)

/* Dies at answer n, and after a restart at answer m. */
static void die_everywhere(engine *e, bool names_rounds, bool dies_before_it_is_known) {
    static clients all;
    clients *c = &all;
    for (int n = 1; n < ANSWERS; n++) {
        fresh_store(e, c);
        life l = {e, c, n, dies_before_it_is_known, names_rounds};
        run_life(l, 0);
        l.answers_left = 1 + n % 5;
        run_life(l, 0);
        l.answers_left = 0;
        run_life(l, 0);
        check_schedules(c);
    }
    check_counts(e, c);
}

WORLD_ENGINE_TEST(server_may_die_after_any_answer) { die_everywhere(e, false, false); }

WORLD_ENGINE_TEST(server_may_die_before_an_answer_is_known) { die_everywhere(e, false, true); }

WORLD_ENGINE_TEST(job_with_history_is_lived_through_again) {
    e->kind.class = &learner_with_history;
    die_everywhere(e, false, true);
}

WORLD_ENGINE_TEST(clients_may_name_rounds) { die_everywhere(e, true, true); }

WORLD_ENGINE_TEST(server_may_die_at_any_moment) {
    static clients all;
    clients *c = &all;
    for (int i = 0; i < few_trials(12); i++) {
        e->kind.class = i % 2 ? &learner_with_history : &learner_with_state;
        fresh_store(e, c);
        life l = {e, c, 1, false, false};
        for (int lives = 0; lives < 100 && !are_done(c); lives++) {
            l.answers_left = 0;
            run_life(l, 1 + harpe_world_draw(400));
        }
        l.answers_left = 0;
        run_life(l, 0);
        check_schedules(c);
    }
}

/* ---- In one process -------------------------------------------------------------------------- */

STARTED_TEST(job_requests_survive) {
    const char *job = job_of(e, 2, NULL);
    expect(ask(e, HARPE_CALL_PLAN, job, 0, -1, "{\"time\":2}"), 200, "null");
    engine_restart(e); /* before the first round */
    assert_int_equal(whole_round(e, job, 2, 0, -1), 201000);
    expect(ask(e, HARPE_CALL_PLAN, job, 0, -1, "{\"time\":3}"), 200, "null");
    engine_restart(e); /* within a round */
    expect(ask_schedule(e, job, 0, -1), 200, "201000");
    for (int r = 0; r < 2; r++)
        expect(ask_result(e, job, r, -1, 0), 200, "null");
    engine_restart(e); /* after it */
    assert_int_equal(whole_round(e, job, 2, 1, 0), 301000);
    expect(ask(e, HARPE_CALL_POWER_CAP, job, 0, -1, "{\"watts\":4}"), 200, "null");
    engine_restart(e); /* between rounds */
    assert_int_equal(whole_round(e, job, 2, 2, 0), 401001);
    engine_restart(e); /* and after it is part of the state */
    assert_int_equal(whole_round(e, job, 2, 3, 0) / 100000, 4);
}

ENGINE_TEST(finished_job_goes_on_without_its_scheduler) {
    e->kind.class = &learner_with_history;
    engine_start(e);
    const char *job = job_of(e, 2, "finished");
    for (int k = 0; k < 4; k++) {
        (void)whole_round(e, job, 2, k, k);
        engine_restart(e);
    }
    assert_int_equal(whole_round(e, job, 2, 4, 1), 1000);
}

ENGINE_TEST(another_scheduler_does_not_go_on_with_a_job) {
    char other_name[] = "Other";
    char *own_name = e->kind.name;
    engine_start(e);
    const char *job = job_of(e, 2, NULL);
    (void)whole_round(e, job, 2, 0, 1);
    engine_settle(e);
    engine_stop(e);
    e->kind.name = other_name;
    engine_start(e);
    expect(ask_schedule(e, job, 0, -1), 500, "restarted with Other");
    engine_stop(e);
    e->kind.name = own_name;
    engine_start(e);
    (void)whole_round(e, job, 2, 1, 1);
}

/* An earlier version stored the name with which the scheduler was chosen. */
ENGINE_TEST(another_name_of_the_scheduler_goes_on_with_a_job) {
    char other_name[] = "HighestFrequency", own_name[] = "AllMaxFrequency";
    e->kind.class = &harpe_all_max_frequency;
    e->kind.name = other_name;
    engine_start(e);
    const char *job = job_of(e, 2, NULL);
    engine_settle(e);
    engine_stop(e);
    e->kind.name = own_name;
    engine_start(e);
    asked *first = ask_schedule(e, job, 0, -1), *second = ask_schedule(e, job, 1, -1);
    expect(first, 200, "frequencies");
    expect(second, 200, "frequencies");
}

/* ---- Ends ------------------------------------------------------------------------------------ */

static asked *ask_end(engine *e, const char *job, int rank) {
    char body[32];
    (void)snprintf(body, sizeof body, "{\"rank\":%d}", rank);
    return ask(e, HARPE_CALL_END, job, 0, -1, body);
}

static void expect_state(engine *e, const char *job, const char *state) {
    char text[64];
    engine_settle(e);
    (void)snprintf(text, sizeof text, "\"state\":\"%s\"", state);
    expect(ask(e, HARPE_CALL_SHOW, job, 0, -1, NULL), 200, text);
}

STARTED_TEST(job_has_ended_when_all_ranks_have) {
    const char *job = job_of(e, 3, NULL);
    (void)whole_round(e, job, 3, 0, 1);
    asked *held = ask_schedule(e, job, 2, -1);
    expect(ask_end(e, job, 0), 200, "null");
    expect(ask_end(e, job, 0), 200, "null");
    expect(ask_end(e, job, 1), 200, "null");
    expect_state(e, job, "gathering");
    expect_held(e, held);
    engine_restart(e);
    expect(held, 503, "stopping");
    expect_state(e, job, "gathering");
    expect(ask_end(e, job, 2), 200, "null");
    expect_state(e, job, "ended");
    assert_int_equal(harpe_jobs_count(e->jobs).ended, 1);
    engine_restart(e);
    expect_state(e, job, "ended");
    expect(ask(e, HARPE_CALL_SHOW, job, 0, -1, NULL), 200, "\"rank\":1,\"state\":\"ended\"");
}

STARTED_TEST(ended_job_goes_on_when_its_ranks_register_again) {
    const char *job = job_of(e, 2, NULL);
    (void)whole_round(e, job, 2, 0, 1);
    for (int r = 0; r < 2; r++)
        expect(ask_end(e, job, r), 200, "null");
    expect_state(e, job, "ended");
    expect(ask_register_rank(e, job, 0, 0), 200, "null");
    expect_state(e, job, "gathering");
    engine_restart(e);
    expect_state(e, job, "gathering");
    expect(ask_register_rank(e, job, 1, 1), 200, "null");
    (void)whole_round(e, job, 2, 1, 1);
    assert_int_equal(harpe_jobs_count(e->jobs).ended, 0);
}

STARTED_TEST(end_of_nobody_is_refused) {
    const char *job = register_job(e, 2, NULL);
    expect(ask_end(e, job, 0), 409, "rank 0 is not registered");
    expect(ask_end(e, job, 2), 422, "rank 2 is not in a job of 2 ranks");
    expect(ask_end(e, job, -1), 422, "not_ge");
    expect(ask(e, HARPE_CALL_END, job, 0, -1, NULL), 422, "value_error.missing");
    expect(ask(e, HARPE_CALL_END, job, 0, -1, "[]"), 422, "type_error.dict");
    expect(ask_end(e, "another", 0), 404, "no job another");
    expect(ask(e, HARPE_CALL_EVICT, job, 0, -1, NULL), 200, "null");
    expect(ask_end(e, job, 0), 410, "evicted");
}

STARTED_TEST(failed_job_stays_failed) {
    const char *job = job_of(e, 1, "fail next");
    expect(ask_schedule(e, job, 0, -1), 500, "no plan fits");
    expect(ask_end(e, job, 0), 200, "null");
    expect_state(e, job, "failed");
}

STARTED_TEST(key_of_an_ended_job_may_get_another_shape) {
    const char *job = registered_id(ask_with_key(e, "slurm 7", 1));
    expect(ask_register_rank(e, job, 0, 0), 200, "null");
    expect(ask_with_key(e, "slurm 7", 2), 409, NULL); /* the job has not ended */
    expect(ask_end(e, job, 0), 200, "null");
    assert_string_equal(registered_id(ask_with_key(e, "slurm 7", 1)), job);
    const char *other = registered_id(ask_with_key(e, "slurm 7", 2));
    assert_string_not_equal(other, job);
    assert_string_equal(registered_id(ask_with_key(e, "slurm 7", 2)), other);
}

int main(void) { return run_listed_tests(); }
