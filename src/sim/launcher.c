/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the ranks, causes faults at the requested steps, asks the server for its progress, and
 * ends the run. If a rank dies, the launcher ends the other ranks and starts all ranks again with
 * the same job key. Launchers of real training jobs do the same, because collective operations do
 * not survive the loss of a rank. */
#include "sim/sim.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <harpe/gpu.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/terminal_progress.h"
#include "base/wait.h"
#include "world/world.h"

/* ---- The board ------------------------------------------------------------------------------- */

/* The shared memory of a simulated training job, and the messages in it. A message is a time in a
 * fixed place of the memory. The sender stores it, then wakes the receiver through a futex. The
 * meeting is a counter. A rank that waits regularly checks whether the run was aborted. */

enum { LOOK_UP_MS = 100 };

/* ---- Memory ---------------------------------------------------------------------------------- */

size_t harpe_sim_board_size(int world_size, size_t message_count) {
    size_t rows = HARPE_SIM_BASELINE_MAX + HARPE_SIM_STEP_MAX;
    return sizeof(harpe_sim_board) + message_count * sizeof(int64_t) +
           rows * (size_t)world_size * sizeof(harpe_sim_step);
}

/* Resets the meeting before ranks start again. */
static void sim_board_reset(harpe_sim_board *board) {
    atomic_store(&board->meeting.arrived, 0);
    atomic_store(&board->meeting.latest_ns, INT64_MIN);
    atomic_store(&board->meeting.stop, 0);
    atomic_store(&board->abort, 0);
}

harpe_status harpe_sim_board_create(int world_size, size_t message_count, harpe_sim_board **out,
                                    harpe_error *error) {
    size_t size = harpe_sim_board_size(world_size, message_count);
    harpe_sim_board *board =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (board == MAP_FAILED) return harpe_fail_errno(error, errno, "shared memory");
    board->world_size = world_size;
    board->message_count = message_count;
    atomic_store(&board->straggler_step, INT64_MAX);
    atomic_store(&board->turns_step, -1);
    sim_board_reset(board);
    *out = board;
    return HARPE_OK;
}

void harpe_sim_board_close(harpe_sim_board *board) {
    if (board) munmap(board, harpe_sim_board_size(board->world_size, board->message_count));
}

/* ---- Waiting --------------------------------------------------------------------------------- */

void harpe_sim_wake(_Atomic uint32_t *futex) {
    atomic_fetch_add(futex, 1);
    harpe_wake(futex);
}

void harpe_sim_wait(_Atomic uint32_t *futex, uint32_t seen, int milliseconds) {
    (void)harpe_wait_while(futex, seen, milliseconds * INT64_C(1000000));
}

/* ---- Messages -------------------------------------------------------------------------------- */

void harpe_sim_send(harpe_sim_board *board, int to, size_t message, int64_t time_ns) {
    atomic_store(&board->message_ns[message], time_ns);
    harpe_sim_wake(&board->rank[to].bell);
}

bool harpe_sim_receive(harpe_sim_board *board, int rank, size_t message, int64_t after_ns,
                       int64_t *time_ns) {
    _Atomic uint32_t *bell = &board->rank[rank].bell;
    for (;;) {
        uint32_t seen = atomic_load(bell);
        *time_ns = atomic_load(&board->message_ns[message]);
        if (*time_ns > after_ns) return true;
        if (atomic_load(&board->abort)) return false;
        harpe_sim_wait(bell, seen, LOOK_UP_MS);
    }
}

static void raise_to(_Atomic int64_t *to, int64_t value) {
    int64_t now = atomic_load(to);
    while (now < value && !atomic_compare_exchange_weak(to, &now, value)) {
    }
}

bool harpe_sim_meet(harpe_sim_board *board, int64_t *time_ns, bool *stop) {
    harpe_sim_meeting *meeting = &board->meeting;
    uint32_t over = atomic_load(&meeting->over);
    if (atomic_load(&board->abort)) return false; /* a single rank never waits */
    raise_to(&meeting->latest_ns, *time_ns);
    raise_to(&meeting->stop, *stop);
    if (atomic_fetch_add(&meeting->arrived, 1) + 1 == (uint32_t)board->world_size) {
        meeting->agreed_ns = atomic_load(&meeting->latest_ns);
        meeting->agreed_stop = atomic_load(&meeting->stop);
        atomic_store(&meeting->arrived, 0);
        atomic_store(&meeting->latest_ns, INT64_MIN);
        atomic_store(&meeting->stop, 0);
        harpe_sim_wake(&meeting->over);
    }
    while (atomic_load(&meeting->over) == over) {
        if (atomic_load(&board->abort)) return false;
        harpe_sim_wait(&meeting->over, over, LOOK_UP_MS);
    }
    *time_ns = meeting->agreed_ns;
    *stop = meeting->agreed_stop != 0;
    return true;
}

/* ---- Times of the launcher ------------------------------------------------------------------- */

#define LOOK_MS 20
#define ASK_PERIOD_S 0.1
/* In a world, time passes as fast as it can. The launcher shall not look more often than in real
 * time, where the time of the GPUs is 10 times as fast. */
#define WORLD_PERIODS 10
#define LINE_PERIOD_S 10.0
#define BACK_LIMIT_S 60.0
#define STRAGGLER_TRIES 5
/* Length of the run after a straggler. The server needs several rounds to notice that its answer is
 * wrong, and to correct it. */
enum { STEPS_AFTER_ANSWER = 8, ROUNDS_AFTER_ANSWER = 4 };
/* Without an answer. A round usually has 8 steps; beside a slow server it has many more. */
enum { STEPS_WITHOUT_ANSWER = 60, ROUNDS_WITHOUT_ANSWER = 4, STEPS_OF_ROUNDS = 600 };

/* ---- The log of steps ------------------------------------------------------------------------ */

/* A file with one line of JSON for each step of a simulated run. It grows while the run goes on, so
 * that another program can follow the power of the emulated GPUs. */
typedef struct step_log {
    const char *path;
    FILE *file; /* NULL: none is wanted */
    int written;
} step_log;

static harpe_status fail_write(const step_log *log, harpe_error *error) {
    return harpe_fail(error, HARPE_IO_ERROR, "cannot write %s: %s", log->path, strerror(errno));
}

/* Opens the file that the options name, if they name one. Empties it. */
static harpe_status open_step_log(const harpe_sim_options *options, step_log *out,
                                  harpe_error *error) {
    *out = (step_log){.path = options->step_log_path};
    if (!out->path) return HARPE_OK;
    out->file = fopen(out->path, "we");
    return out->file ? HARPE_OK : fail_write(out, error);
}

/* Writes the steps that were not written before, up to the step before `count`. */
static harpe_status write_step_log(step_log *log, const harpe_sim_board *board, int count,
                                   harpe_error *error) {
    if (!log->file || log->written >= count) return HARPE_OK;
    for (; log->written < count; log->written++) {
        json_t *step = harpe_sim_show_step(board, harpe_sim_step_at(board, log->written));
        bool is_written =
            step && json_dumpf(step, log->file, JSON_COMPACT | JSON_REAL_PRECISION(15)) == 0 &&
            fputc('\n', log->file) != EOF;
        json_decref(step);
        if (!is_written) return fail_write(log, error);
    }
    return fflush(log->file) == 0 ? HARPE_OK : fail_write(log, error);
}

static void close_step_log(step_log *log) {
    if (log->file) (void)fclose(log->file);
    log->file = NULL;
}

/* ---- The launcher ---------------------------------------------------------------------------- */

typedef struct launcher {
    harpe_sim_run *run;
    harpe_sim_board *board;
    harpe_sim_story *story;
    harpe_sim_ranks ranks;
    double started_s, next_ask_s;
    int64_t current_plan; /* the server's plan when the straggler was reported */
    harpe_terminal_progress terminal;
    harpe_progress progress;
    const char *shown_phase; /* of the newest line that is not on a terminal */
    double next_line_s;
    step_log step_log;
} launcher;

/* ---- Ranks ----------------------------------------------------------------------------------- */

static void tell_late(void *user, int rank) {
    launcher *self = user;
    harpe_terminal_progress_clear(&self->terminal);
    fprintf(stderr, "harpe train-sim: rank %d did not end within %.0f s, and was killed\n", rank,
            HARPE_SIM_END_LIMIT_S);
}

static void end_ranks(launcher *self) { harpe_sim_ranks_end(&self->ranks, tell_late, self); }

/* ---- State of the run ------------------------------------------------------------------------ */

/* Returns a period of the launcher: longer in a world. */
static int periods(const launcher *self) {
    return self->run->options->is_real_time ? 1 : WORLD_PERIODS;
}

static int steps_done(const launcher *self) { return (int)atomic_load(&self->board->steps); }

/* Returns the lowest of the rounds that the ranks ran in a step. Returns -2 if a rank has not
 * recorded the step yet. */
static int64_t round_of(const harpe_sim_board *board, int step) {
    int64_t lowest = INT64_MAX;
    for (int r = 0; r < board->world_size; r++) {
        const harpe_sim_step *record = &harpe_sim_step_at(board, step)[r];
        if (record->end_ns == 0) return -2;
        if (record->round < lowest) lowest = record->round;
    }
    return lowest;
}

/* Returns the round of the last step whose record is complete. The record of a step is complete
 * after the next meeting. */
static int64_t current_round(const launcher *self) {
    int step = steps_done(self) - 2;
    return step >= HARPE_SIM_WARM_UP_STEPS ? round_of(self->board, step) : -1;
}

static bool is_due(const launcher *self, const harpe_sim_event *event) {
    if (!event->is_given) return false;
    int from = event->is_after_steady ? self->story->steady_step : HARPE_SIM_WARM_UP_STEPS;
    return from >= 0 && steps_done(self) >= from + event->step;
}

/* ---- The server ------------------------------------------------------------------------------ */

static long ask_about_job(const launcher *self, const char *before, const char *after,
                          const char *body, json_t **answer) {
    char path[HARPE_SIM_TEXT_MAX];
    snprintf(path, sizeof path, "%s%s%s", before, self->board->job_id, after);
    return harpe_sim_server_ask(self->run->server, path, body, answer, NULL);
}

int64_t harpe_sim_planned_round(const harpe_sim_story *story) {
    for (int i = 0; i < story->change_count; i++)
        if (story->changes[i].is_learned) return story->changes[i].round;
    return -1;
}

static void note_change(harpe_sim_story *story, int64_t round, bool is_learned) {
    int count = story->change_count;
    if (count > 0 && story->changes[count - 1].is_learned == is_learned) return;
    if (count == HARPE_SIM_CHANGES) count--;
    story->changes[count] = (harpe_sim_change){round, is_learned};
    story->change_count = count + 1;
}

/* Asks whether the scheduler has finished. If a scheduler shows no frontier, this is how the
 * launcher learns that the plan is ready. */
static void ask_whether_finished(launcher *self) {
    json_t *job;
    long status = ask_about_job(self, "/jobs/", "", NULL, &job);
    if (status == 200 && json_is_true(json_object_get(job, "scheduler_is_finished"))) {
        int64_t round = json_integer_value(json_object_get(job, "round"));
        if (round >= 0) note_change(self->story, round, true);
    }
    json_decref(job);
}

static void read_frontier(launcher *self, json_t *frontier) {
    harpe_sim_story *story = self->story;
    const char *phase = json_string_value(json_object_get(frontier, "phase"));
    int64_t next_round = json_integer_value(json_object_get(frontier, "round"));
    json_t *current = json_object_get(frontier, "current");
    bool is_learned = phase && (strcmp(phase, "plan") == 0 || strcmp(phase, "hold") == 0);
    json_t *answers = json_object_get(json_object_get(frontier, "exploration"), "answers_requests");
    /* An exploration without a plan answers with its rounds. */
    bool has_changed = current ? json_integer_value(current) != self->current_plan : !!answers;
    if (phase) note_change(story, next_round, is_learned);
    if (has_changed && !json_is_false(answers) && story->straggler_step >= 0 &&
        story->straggler_round < 0)
        story->straggler_round = next_round;
    if (current && story->straggler_step < 0) self->current_plan = json_integer_value(current);
}

static void ask_server(launcher *self) {
    harpe_sim_story *story = self->story;
    if (harpe_clock_s() < self->next_ask_s || !atomic_load(&self->board->job_id_is_known)) return;
    self->next_ask_s = harpe_clock_s() + periods(self) * ASK_PERIOD_S;
    if (self->run->server->is_published) {
        note_change(story, 0, true);
        return;
    }
    json_t *frontier;
    long status = ask_about_job(self, "/jobs/", "/frontier", NULL, &frontier);
    if (status == 200 && json_is_object(frontier)) {
        read_frontier(self, frontier);
        json_decref(story->frontier);
        story->frontier = frontier;
    } else {
        json_decref(frontier);
        if (status != 0 && harpe_sim_planned_round(story) < 0) ask_whether_finished(self);
    }
}

/* Reads the job with its report, after the last round. */
static void read_report(launcher *self) {
    json_t *job;
    if (self->run->server->is_published || !atomic_load(&self->board->job_id_is_known)) return;
    long status = ask_about_job(self, "/jobs/", "", NULL, &job);
    if (status == 200 && json_is_object(json_object_get(job, "report")))
        self->story->job = json_incref(job);
    json_decref(job);
}

/* ---- Events ---------------------------------------------------------------------------------- */

/* Reports a straggler, as a cluster monitor does when a GPU throttles. */
static harpe_status start_straggler(launcher *self, harpe_error *error) {
    const harpe_sim_event *event = &self->run->options->straggler;
    char body[64];
    json_t *answer;
    self->next_ask_s = 0;
    ask_server(self); /* reads which plan runs now */
    self->board->straggler_rank = event->rank;
    self->board->straggler_factor = event->factor;
    self->story->straggler_step = steps_done(self) + 1;
    atomic_store(&self->board->straggler_step, self->story->straggler_step);
    snprintf(body, sizeof body, "{\"slowdown\": %.17g}", event->factor);
    long status = ask_about_job(self, "/straggler/", "", body, &answer);
    /* A server on a busy machine may not answer in time. It accepts the same report several times.
     */
    for (int i = 1; i < STRAGGLER_TRIES && status == 0; i++) {
        json_decref(answer);
        status = ask_about_job(self, "/straggler/", "", body, &answer);
    }
    const char *detail = json_string_value(json_object_get(answer, "detail"));
    /* 409: this scheduler does not accept job requests; the job continues without change */
    harpe_status result =
        status == 200 || status == 409
            ? HARPE_OK
            : harpe_fail(error, HARPE_UNAVAILABLE, "POST /straggler was answered %ld: %.300s",
                         status, detail ? detail : "");
    json_decref(answer);
    return result;
}

/* Waits until the controller of a killed rank has restored the GPU. The GPU then has its lowest
 * clock, because it is idle and its clock is not locked. */
static harpe_status wait_for_gpu(int gpu, uint32_t idle_mhz, double *took_s, harpe_error *error) {
    harpe_gpus_options options = {.visible_devices = "all"};
    harpe_gpus *gpus;
    double from_s = harpe_clock_s();
    harpe_status status = harpe_gpus_open(&options, &gpus, error);
    if (status != HARPE_OK) return status;
    uint32_t clock_mhz = 0;
    do {
        status = harpe_gpu_current_clocks(gpus, gpu, &clock_mhz, NULL, error);
        *took_s = harpe_clock_s() - from_s;
        harpe_sleep_ns(1000000);
    } while (status == HARPE_OK && clock_mhz != idle_mhz && *took_s < BACK_LIMIT_S);
    harpe_gpus_close(gpus);
    return status;
}

static uint32_t idle_clock_mhz(void) {
    harpe_gpus_options options = {.visible_devices = "all"};
    harpe_gpus *gpus;
    uint32_t clock_mhz = 0;
    if (harpe_gpus_open(&options, &gpus, NULL) != HARPE_OK) return 0;
    (void)harpe_gpu_current_clocks(gpus, 0, &clock_mhz, NULL, NULL);
    harpe_gpus_close(gpus);
    return clock_mhz;
}

/* Fails, because the other ranks would wait forever for this rank. */
static harpe_status fail_ended(int rank, harpe_error *error) {
    return harpe_fail(error, HARPE_INTERNAL, "rank %d ended before its time", rank);
}

static harpe_status kill_rank(launcher *self, uint32_t idle_mhz, harpe_error *error) {
    const harpe_sim_event *event = &self->run->options->kill_rank;
    harpe_sim_story *story = self->story;
    double from_s = harpe_clock_s();
    story->kill_step = steps_done(self);
    harpe_sim_ranks_kill(&self->ranks, event->rank);
    harpe_status status = wait_for_gpu(event->rank, idle_mhz, &story->gpu_back_s, error);
    end_ranks(self);
    if (status == HARPE_OK) status = harpe_sim_ranks_start(&self->ranks, error);
    while (status == HARPE_OK && steps_done(self) <= story->kill_step) {
        int failed;
        harpe_sim_wait(&self->board->steps, (uint32_t)steps_done(self), LOOK_MS);
        int left = harpe_sim_ranks_left(&self->ranks, &failed);
        if (failed >= 0) status = fail_ended(failed, error);
        if (left == 0 || harpe_terminal_progress_signal()) break;
    }
    story->downtime_s = harpe_clock_s() - from_s;
    return status;
}

static harpe_status restart_server(launcher *self, harpe_error *error) {
    double from_s = harpe_clock_s();
    self->story->restart_step = steps_done(self);
    harpe_status status = harpe_sim_server_restart(self->run->server, error);
    self->story->server_gone_s = harpe_clock_s() - from_s;
    return status;
}

static harpe_status have_events(launcher *self, uint32_t idle_mhz, harpe_error *error) {
    const harpe_sim_options *options = self->run->options;
    harpe_sim_story *story = self->story;
    harpe_status status = HARPE_OK;
    bool job_is_known = atomic_load(&self->board->job_id_is_known);
    if (story->straggler_step < 0 && job_is_known && is_due(self, &options->straggler))
        status = start_straggler(self, error);
    if (status == HARPE_OK && story->kill_step < 0 && is_due(self, &options->kill_rank))
        status = kill_rank(self, idle_mhz, error);
    if (status == HARPE_OK && story->restart_step < 0 && is_due(self, &options->restart_server))
        status = restart_server(self, error);
    return status;
}

/* ---- Until the end --------------------------------------------------------------------------- */

static void note_progress(launcher *self) {
    harpe_sim_story *story = self->story;
    int64_t round = current_round(self);
    int step = steps_done(self) - 2;
    int64_t planned = harpe_sim_planned_round(story);
    if (story->steady_step < 0 && planned >= 0 && round >= planned) {
        story->steady_step = step;
        atomic_store(&self->board->is_steady, 1);
    }
    if (story->answered_step < 0 && story->straggler_round >= 0 && round >= story->straggler_round)
        story->answered_step = step > story->straggler_step ? step : story->straggler_step;
}

/* Returns whether the server has had `rounds` rounds to act after the round `from`, or whether so
 * many steps have run since `step` that they will not come. The published server has no rounds. */
static bool had_rounds(const launcher *self, int64_t from, int rounds, int step) {
    return self->run->server->is_published || current_round(self) >= from + rounds ||
           steps_done(self) > step + STEPS_OF_ROUNDS;
}

static bool is_over(const launcher *self) {
    const harpe_sim_options *options = self->run->options;
    const harpe_sim_story *story = self->story;
    int done = steps_done(self);
    int64_t from = atomic_load(&self->board->turns_step);
    if (from < 0 || done - from <= options->steps) return false;
    if (options->straggler.is_given) {
        if (story->straggler_step < 0) return false;
        if (story->answered_step < 0)
            return done > story->straggler_step + STEPS_WITHOUT_ANSWER &&
                   had_rounds(self, round_of(self->board, story->straggler_step),
                              ROUNDS_WITHOUT_ANSWER, story->straggler_step);
        if (done <= story->answered_step + STEPS_AFTER_ANSWER ||
            !had_rounds(self, story->straggler_round, ROUNDS_AFTER_ANSWER, story->answered_step))
            return false;
    }
    return (!options->kill_rank.is_given || story->kill_step >= 0) &&
           (!options->restart_server.is_given || story->restart_step >= 0);
}

static harpe_status check_limits(const launcher *self, int failed, harpe_error *error) {
    if (failed >= 0) return fail_ended(failed, error);
    if (harpe_terminal_progress_signal())
        return harpe_fail(error, HARPE_INTERRUPTED, "interrupted after %d steps", steps_done(self));
    if (self->story->steady_step < 0 &&
        harpe_clock_s() - self->started_s > self->run->options->learning_limit_s) {
        json_t *answer;
        long answered = harpe_sim_server_ask(self->run->server, "/healthz", NULL, &answer, NULL);
        json_decref(answer);
        return harpe_fail(error, HARPE_UNAVAILABLE, "no plan after %g s and %d steps; %s",
                          self->run->options->learning_limit_s, steps_done(self),
                          answered ? "give it longer with --learning-limit"
                                   : "the server does not answer");
    }
    return HARPE_OK;
}

/* Returns the part of the clocks that the scheduler has already measured, 0 to 1. Returns
 * -1 if the part is not known. An exploration knows how many clocks it wants once it has made its
 * first plan. */
static double fraction_learned(const launcher *self) {
    json_t *exploration = json_object_get(self->story->frontier, "exploration");
    json_t *sweep = json_object_get(self->story->frontier, "sweep");
    bool explores = json_is_true(json_object_get(exploration, "is_running"));
    json_int_t done = json_integer_value(explores ? json_object_get(exploration, "measured")
                                                  : json_object_get(sweep, "done"));
    json_int_t left = explores ? json_integer_value(json_object_get(exploration, "wanted"))
                               : json_integer_value(json_object_get(sweep, "frequencies")) - done;
    return left > 0 ? (double)done / (double)(done + left) : -1;
}

static double fraction_measured(const launcher *self) {
    int64_t from = atomic_load(&self->board->turns_step);
    return from < 0 ? 0 : (double)(steps_done(self) - from) / self->run->options->steps;
}

/* Shows the progress: on a terminal in one line, which is rewritten; elsewhere in a line for each
 * phase, and in one every LINE_PERIOD_S. */
static void show(launcher *self) {
    char text[80];
    const harpe_sim_story *story = self->story;
    int done = steps_done(self);
    bool is_learning = story->steady_step < 0;
    double fraction = is_learning ? fraction_learned(self) : fraction_measured(self);
    const char *phase = done < HARPE_SIM_WARM_UP_STEPS ? "warm-up"
                        : is_learning                  ? "learning"
                        : story->straggler_step >= 0   ? "straggler"
                                                       : "plan";
    long long round = current_round(self);
    if (round >= 0)
        snprintf(text, sizeof text, "step %d, round %lld: %s", done, round, phase);
    else
        snprintf(text, sizeof text, "step %d: %s", done, phase);
    (void)self->progress.report(self->progress.user, text, fraction);
    if (self->terminal.visible || self->run->options->is_quiet) return;
    if (phase == self->shown_phase && harpe_clock_s() < self->next_line_s) return;
    fprintf(stderr, fraction >= 0 ? "harpe train-sim: %s %d %%\n" : "harpe train-sim: %s\n", text,
            (int)(fraction < 1 ? fraction * 100 : 100));
    self->shown_phase = phase;
    self->next_line_s = harpe_clock_s() + periods(self) * LINE_PERIOD_S;
}

static harpe_status watch(launcher *self, harpe_error *error) {
    uint32_t idle_mhz = idle_clock_mhz();
    harpe_status status = harpe_sim_ranks_start(&self->ranks, error);
    int failed = -1, left = self->board->world_size;
    while (status == HARPE_OK && left > 0) {
        uint32_t seen = atomic_load(&self->board->steps);
        ask_server(self);
        note_progress(self);
        if (is_over(self)) atomic_store(&self->board->stop, 1);
        if (!atomic_load(&self->board->stop)) status = have_events(self, idle_mhz, error);
        left = harpe_sim_ranks_left(&self->ranks, &failed);
        if (status == HARPE_OK) status = check_limits(self, failed, error);
        /* Rank 0 counts a step. That the others have recorded it is certain only one step later. */
        if (status == HARPE_OK)
            status = write_step_log(&self->step_log, self->board, steps_done(self) - 1, error);
        show(self);
        if (atomic_load(&self->board->steps) == seen)
            harpe_sim_wait(&self->board->steps, seen, periods(self) * LOOK_MS);
    }
    if (status == HARPE_OK && self->story->steady_step < 0)
        return harpe_fail(error, HARPE_UNAVAILABLE,
                          "the ranks ended after %d steps, without a plan", steps_done(self));
    return status;
}

harpe_status harpe_sim_launch(harpe_sim_run *run, harpe_error *error) {
    launcher self = {.run = run,
                     .board = run->board,
                     .story = &run->story,
                     .started_s = harpe_clock_s(),
                     .current_plan = -1};
    harpe_status begun = harpe_sim_ranks_init(run, &self.ranks, error);
    if (begun != HARPE_OK) return begun;
    run->story = (harpe_sim_story){.steady_step = -1,
                                   .straggler_step = -1,
                                   .answered_step = -1,
                                   .straggler_round = -1,
                                   .kill_step = -1,
                                   .restart_step = -1};
    self.progress = harpe_terminal_progress_start(&self.terminal, run->options->is_quiet);
    harpe_status status = open_step_log(run->options, &self.step_log, error);
    if (status == HARPE_OK) status = watch(&self, error);
    end_ranks(&self);
    read_report(&self);
    harpe_terminal_progress_clear(&self.terminal);
    run->story.step_count = steps_done(&self);
    harpe_status logged = write_step_log(&self.step_log, run->board, run->story.step_count,
                                         status == HARPE_OK ? error : NULL);
    close_step_log(&self.step_log);
    harpe_sim_ranks_free(&self.ranks);
    return status == HARPE_OK ? logged : status;
}

/* ---- Processes of ranks ---------------------------------------------------------------------- */

#define LOOK_NS 2000000

typedef struct harpe_sim_rank_process {
    const harpe_sim_ranks *ranks;
    int rank;
    pid_t number; /* 0: ended */
} rank_process;

/* ---- One rank -------------------------------------------------------------------------------- */

static int run_rank(void *user) {
    const rank_process *self = user;
    harpe_error error;
    harpe_status status = harpe_sim_rank_run(self->ranks->run, self->rank, &error);
    if (status != HARPE_OK && status != HARPE_INTERRUPTED)
        harpe_log_line(&self->ranks->run->options->log, HARPE_LOG_ERROR, "rank %d: %s", self->rank,
                       error.message);
    return status == HARPE_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}

static _Noreturn void become_rank(rank_process *self) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGINT, SIG_IGN); /* the launcher handles it */
    signal(SIGHUP, SIG_IGN);
    signal(SIGTERM, SIG_DFL);
    _exit(run_rank(self));
}

/* Returns the number of the new process, or -1 with errno. */
static pid_t start(rank_process *self) {
    if (!self->ranks->run->options->is_real_time) return harpe_world_start("rank", run_rank, self);
    pid_t started = fork();
    if (started == 0) become_rank(self);
    return started;
}

/* Returns true if the process has ended. Sets `*is_well` to false if it ended in an unexpected way.
 */
static bool has_ended(const rank_process *self, bool *is_well) {
    int status;
    if (!self->ranks->run->options->is_real_time) {
        bool is_alive = harpe_world_is_alive(self->number);
        *is_well = is_alive || harpe_world_exit_status(self->number) == EXIT_SUCCESS;
        return !is_alive;
    }
    if (waitpid(self->number, &status, WNOHANG) != self->number) return false;
    *is_well = WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS;
    return true;
}

/* ---- All of them ----------------------------------------------------------------------------- */

harpe_status harpe_sim_ranks_init(const harpe_sim_run *run, harpe_sim_ranks *out,
                                  harpe_error *error) {
    *out = (harpe_sim_ranks){.run = run};
    out->processes = harpe_calloc((size_t)run->board->world_size, sizeof *out->processes);
    return out->processes ? HARPE_OK : harpe_fail_memory(error);
}

void harpe_sim_ranks_free(harpe_sim_ranks *ranks) {
    free(ranks->processes);
    ranks->processes = NULL;
}

harpe_status harpe_sim_ranks_start(harpe_sim_ranks *ranks, harpe_error *error) {
    sim_board_reset(ranks->run->board);
    for (int r = 0; r < ranks->run->board->world_size; r++) {
        rank_process *one = &ranks->processes[r];
        *one = (rank_process){.ranks = ranks, .rank = r};
        pid_t number = start(one);
        if (number < 0) return harpe_fail_errno(error, errno, "starting rank %d", r);
        one->number = number;
    }
    return HARPE_OK;
}

int harpe_sim_ranks_left(harpe_sim_ranks *ranks, int *failed) {
    int left = 0;
    *failed = -1;
    for (int r = 0; r < ranks->run->board->world_size; r++) {
        rank_process *one = &ranks->processes[r];
        bool is_well = true;
        if (one->number > 0 && has_ended(one, &is_well)) one->number = 0;
        if (!is_well) *failed = r;
        left += one->number > 0;
    }
    return left;
}

/* Returns the number of a rank's process; 0: it has ended. */
static pid_t process_of(const harpe_sim_ranks *ranks, int rank) {
    return ranks->processes[rank].number;
}

void harpe_sim_ranks_kill(harpe_sim_ranks *ranks, int rank) {
    pid_t number = process_of(ranks, rank);
    if (number <= 0) return;
    if (ranks->run->options->is_real_time)
        (void)kill(number, SIGKILL);
    else
        harpe_world_kill(number);
}

void harpe_sim_ranks_end(harpe_sim_ranks *ranks, void (*late)(void *user, int rank), void *user) {
    double until_s = harpe_clock_s() + HARPE_SIM_END_LIMIT_S;
    bool is_late = false;
    int failed;
    atomic_store(&ranks->run->board->abort, 1);
    while (harpe_sim_ranks_left(ranks, &failed) > 0) {
        bool was_late = is_late;
        is_late = harpe_clock_s() > until_s;
        for (int r = 0; is_late && !was_late && r < ranks->run->board->world_size; r++) {
            if (process_of(ranks, r) <= 0) continue;
            late(user, r);
            harpe_sim_ranks_kill(ranks, r);
        }
        harpe_sleep_ns(LOOK_NS);
    }
}
