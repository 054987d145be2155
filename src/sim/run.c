/* SPDX-License-Identifier: Apache-2.0 */
/* Sets up a simulated training job and removes it again: a temporary directory, the plan, the
 * emulated GPUs, the server, the board and the ranks. */
#include "sim/sim.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup_process.h"
#include "base/error.h"
#include "base/platform.h"
#include "client/control.h"
#include "http/client/transport.h"
#include "server/scheduler/perseus/online_internal.h"
#include "world/transport.h"
#include "world/world.h"

#define WORLD_BEGINS_S INT64_C(1735689600)      /* 2025-01-01, so that reports do not differ */
#define LATENCY_NS 100000                       /* of a message in a world */
enum { FILES_OF_RANK = 16, OTHER_FILES = 512 }; /* open in a world; a rank has 15 */
#define CONTROLLERS_LIMIT_S 30.0 /* time in which the controllers must leave the cluster */

/* ---- The directory --------------------------------------------------------------------------- */

static harpe_status make_directory(char *path, size_t size, harpe_error *error) {
    const char *parent = getenv("TMPDIR");
    snprintf(path, size, "%s/harpe-train-sim-XXXXXX", parent && *parent ? parent : "/tmp");
    return mkdtemp(path) ? HARPE_OK : harpe_fail_errno(error, errno, "%s", path);
}

/* ---- The parts ------------------------------------------------------------------------------- */

static harpe_status open_cluster(const harpe_sim_options *options, const harpe_sim_plan *plan,
                                 const char *directory, harpe_emulated_cluster *cluster,
                                 harpe_error *error) {
    char gpus[64], scale[64], seed[64], blocking[64], profile[HARPE_SIM_TEXT_MAX + 16];
    snprintf(gpus, sizeof gpus, "%dx%s", harpe_sim_world_size(options), options->gpu_model);
    snprintf(scale, sizeof scale, "%.17g", options->time_scale);
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)options->seed);
    snprintf(blocking, sizeof blocking, "%.17g", plan->blocking_power_w);
    snprintf(profile, sizeof profile, "%s/profile.csv", directory);
    harpe_emulated_options emulated = {
        .gpus = gpus,
        .time_scale = scale,
        .blocking_power = blocking,
        .profile = profile,
        .physics = options->physics,
        .seed = options->physics ? seed : NULL,
    };
    return harpe_emulated_cluster_open(&emulated, cluster, error);
}

static void copy_text(char *to, size_t size, const char *from) {
    snprintf(to, size, "%s", from ? from : "");
}

/* Stores what the ranks need. */
static void fill_board(const harpe_sim_run *run, harpe_sim_board *board) {
    uint64_t random = 0;
    (void)harpe_random(&random, sizeof random);
    board->time_scale = run->options->time_scale;
    copy_text(board->library, sizeof board->library, getenv("HARPE_NVML_LIBRARY"));
    copy_text(board->server_url, sizeof board->server_url, run->server->url);
    /* With a job key, restarted ranks continue their job. The published server does not know job
     * keys. */
    if (!run->server->is_published)
        snprintf(board->job_key, sizeof board->job_key, "train-sim-%016llx",
                 (unsigned long long)random);
}

static harpe_status run_on_board(harpe_sim_run *run, const harpe_sim_staging *staging,
                                 harpe_error *error) {
    size_t pipelines = (size_t)run->options->dp * (size_t)run->options->tp;
    harpe_status status =
        harpe_sim_board_create(harpe_sim_world_size(run->options),
                               pipelines * run->plan->message_count, &run->board, error);
    if (status != HARPE_OK) return status;
    fill_board(run, run->board);
    status = staging->launch ? staging->launch(run, error) : harpe_sim_launch(run, error);
    if (status == HARPE_OK && staging->report) status = staging->report(run, error);
    json_decref(run->story.frontier);
    json_decref(run->story.job);
    harpe_sim_board_close(run->board);
    return status;
}

static harpe_status run_in_directory(const harpe_sim_options *options, const char *directory,
                                     const harpe_sim_staging *staging, harpe_error *error) {
    harpe_sim_plan plan = {0};
    harpe_sim_server server = {0};
    harpe_emulated_cluster cluster = {0};
    harpe_status status = harpe_sim_plan_load(options, directory, &plan, error);
    if (status == HARPE_OK) status = open_cluster(options, &plan, directory, &cluster, error);
    if (status == HARPE_OK)
        status = harpe_sim_server_start(options, plan.blocking_power_w, directory, &server, error);
    if (status == HARPE_OK) {
        harpe_sim_run run = {.options = options, .plan = &plan, .server = &server};
        status = run_on_board(&run, staging, error);
    }
    harpe_sim_server_stop(&server);
    harpe_emulated_cluster_close(&cluster, CONTROLLERS_LIMIT_S);
    harpe_sim_plan_free(&plan);
    return status;
}

/* A run in a world. */
typedef struct world_run {
    const harpe_sim_options *options;
    const char *directory;
    const harpe_sim_staging *staging;
    harpe_status status;
    harpe_error *error;
} world_run;

static void run_first(void *user) {
    static const harpe_transport_options usual = {.latency_ns = LATENCY_NS};
    world_run *run = user;
    const harpe_transport_options *messages = run->staging->messages;
    run->status = harpe_transport_begin(messages ? messages : &usual, run->error);
    if (run->status != HARPE_OK) return;
    run->status = run_in_directory(run->options, run->directory, run->staging, run->error);
    harpe_transport_end();
}

/* All descriptors of a world are open in this process. */
static harpe_status make_room_for_files(const harpe_sim_options *options, harpe_error *error) {
    struct rlimit limit;
    int ranks = harpe_sim_world_size(options);
    rlim_t needed = (rlim_t)ranks * FILES_OF_RANK + OTHER_FILES;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return HARPE_OK;
    if (limit.rlim_max < needed)
        return harpe_fail(
            error, HARPE_LIMIT_EXCEEDED,
            "%d ranks need %llu open files, but this process may have %llu: raise the "
            "hard limit of open files (ulimit -Hn)",
            ranks, (unsigned long long)needed, (unsigned long long)limit.rlim_max);
    limit.rlim_cur = needed;
    if (setrlimit(RLIMIT_NOFILE, &limit) == 0) return HARPE_OK;
    return harpe_fail_errno(error, errno, "%llu open files", (unsigned long long)needed);
}

static harpe_status run_in_world(const harpe_sim_options *options, const char *directory,
                                 const harpe_sim_staging *staging, harpe_error *error) {
    static const harpe_world_program programs[] = {
        {HARPE_CONTROLLER_ARGUMENT, harpe_controller_main}, {0}};
    world_run run = {options, directory, staging, HARPE_INTERRUPTED, error};
    harpe_world_options world = {.seed = options->seed};
    if (staging->world) world = *staging->world;
    harpe_status room = make_room_for_files(options, error);
    if (room != HARPE_OK) return room;
    world.programs = programs;
    world.directory = directory;
    world.wall_ns = WORLD_BEGINS_S * INT64_C(1000000000);
    harpe_status status = harpe_world_run(&world, run_first, &run, error);
    return status == HARPE_OK ? run.status : status;
}

harpe_status harpe_sim_run_job(const harpe_sim_options *options, const harpe_sim_staging *staging,
                               harpe_error *error) {
    char directory[HARPE_SIM_TEXT_MAX];
    int cleanup_pipe = -1;
    harpe_status status = make_directory(directory, sizeof directory, error);
    if (status != HARPE_OK) return status;
    harpe_connections_begin();
    status = harpe_cleanup_process_start(directory, &cleanup_pipe, error);
    if (status == HARPE_OK && options->is_real_time)
        status = run_in_directory(options, directory, staging, error);
    else if (status == HARPE_OK)
        status = run_in_world(options, directory, staging, error);
    harpe_remove_flat_directory(directory);
    if (cleanup_pipe >= 0) close(cleanup_pipe);
    harpe_connections_end();
    return status;
}

/* ---- Groups of steps ------------------------------------------------------------------------- */

/* Groups a run's steps by the plan that ran in them, and sums up each group. It does not
 * compare the groups with predictions. */

static const char *const kind_names[] = {
    "highest clocks", "no schedule yet",     "learning",
    "plan",           "straggler, old plan", "straggler, new plan"};

static bool is_planned(const harpe_sim_story *story, int64_t round) {
    bool is_learned = false;
    for (int i = 0; i < story->change_count && story->changes[i].round <= round; i++)
        is_learned = story->changes[i].is_learned;
    return is_learned;
}

static harpe_sim_kind kind_of(const harpe_sim_story *story, int step, int64_t round) {
    if (story->straggler_step >= 0 && step >= story->straggler_step)
        return story->answered_step >= 0 && round >= story->straggler_round ? HARPE_SIM_ANSWERED
                                                                            : HARPE_SIM_UNANSWERED;
    if (round < 0) return HARPE_SIM_NO_SCHEDULE;
    return is_planned(story, round) ? HARPE_SIM_PLANNED : HARPE_SIM_LEARNING;
}

/* Returns true if the baseline was not measured yet while this step ran the plan. */
static bool is_warm_up(const harpe_sim_board *board, int step, harpe_sim_kind kind) {
    int64_t turns_step = atomic_load(&board->turns_step);
    return kind == HARPE_SIM_PLANNED && step < turns_step;
}

static void add_step(harpe_sim_stretch *to, const harpe_sim_step_sum *step) {
    to->clock_writes += (double)step->clock_writes;
    to->times_s[to->steps] = step->time_s;
    to->energies_j[to->steps] = step->energy_j;
    to->total_s += step->time_s;
    to->total_j += step->energy_j;
    if (to->steps++ == 0 || step->round < to->first_round) to->first_round = step->round;
    if (step->round > to->last_round) to->last_round = step->round;
}

static harpe_status prepare(const harpe_sim_run *run, harpe_sim_summary *sums, harpe_error *error) {
    size_t steps = (size_t)run->story.step_count;
    bool is_done = true;
    for (int k = 0; k < HARPE_SIM_KINDS; k++) {
        harpe_sim_stretch *kind = &sums->kinds[k];
        *kind = (harpe_sim_stretch){.name = kind_names[k], .first_round = -1, .last_round = -1};
        kind->times_s = harpe_calloc(steps, sizeof *kind->times_s);
        kind->energies_j = harpe_calloc(steps, sizeof *kind->energies_j);
        is_done = is_done && kind->times_s && kind->energies_j;
    }
    return is_done ? HARPE_OK : harpe_fail_memory(error);
}

static void find_slow(const harpe_sim_run *run, harpe_sim_summary *sums) {
    harpe_sim_slow *slow = &sums->slow;
    double usual_s = sums->kinds[HARPE_SIM_HIGHEST_CLOCKS].time_s;
    int end = run->story.straggler_step >= 0 ? run->story.straggler_step : run->story.step_count;
    slow->slowest = -1;
    for (int step = HARPE_SIM_WARM_UP_STEPS; step < end && usual_s > 0; step++) {
        harpe_sim_step_sum sum =
            harpe_sim_sum_step(run->board, harpe_sim_step_at(run->board, step));
        if (!sum.is_whole) continue;
        slow->steps++;
        if (sum.time_s > usual_s * (1 + HARPE_SIM_SLOW_SHARE)) {
            slow->slow_steps++;
            slow->late_steps += sum.host_late_s > HARPE_SIM_SLOW_SHARE * usual_s;
        }
        if (sum.time_s <= slow->slowest_s) continue;
        slow->slowest = step;
        slow->slowest_s = sum.time_s;
        slow->late_s = sum.host_late_s;
    }
}

static void sum_up(const harpe_sim_run *run, harpe_sim_summary *sums) {
    const harpe_sim_board *board = run->board;
    for (int i = 0; i < atomic_load(&board->baseline_count); i++) {
        harpe_sim_step_sum sum = harpe_sim_sum_step(board, harpe_sim_baseline_at(board, i));
        if (sum.is_whole) add_step(&sums->kinds[HARPE_SIM_HIGHEST_CLOCKS], &sum);
    }
    for (int step = HARPE_SIM_WARM_UP_STEPS; step < run->story.step_count; step++) {
        harpe_sim_step_sum sum = harpe_sim_sum_step(board, harpe_sim_step_at(board, step));
        harpe_sim_kind kind = kind_of(&run->story, step, sum.round);
        if (sum.is_whole && !is_warm_up(board, step, kind)) add_step(&sums->kinds[kind], &sum);
    }
    for (int k = 0; k < HARPE_SIM_KINDS; k++) {
        harpe_sim_stretch *kind = &sums->kinds[k];
        kind->time_s = harpe_median(kind->times_s, (size_t)kind->steps);
        kind->energy_j = harpe_median(kind->energies_j, (size_t)kind->steps);
        kind->deviation_j = harpe_robust_spread(kind->energies_j, (size_t)kind->steps);
    }
    find_slow(run, sums);
}

double harpe_sim_summary_uncertainty(const harpe_sim_summary *summary, harpe_sim_kind kind) {
    const harpe_sim_stretch *highest = &summary->kinds[HARPE_SIM_HIGHEST_CLOCKS];
    const harpe_sim_stretch *of = &summary->kinds[kind];
    if (highest->steps < 2 || of->steps < 2) return INFINITY;
    double variance =
        HARPE_MEDIAN_VARIANCE *
        (pow(of->deviation_j, 2) / of->steps +
         pow(highest->deviation_j * of->energy_j / highest->energy_j, 2) / highest->steps);
    double freedom = HARPE_ROBUST_EFFICIENCY * (of->steps + highest->steps - 2);
    return 100 * harpe_student_quantile(freedom) * sqrt(variance) / highest->energy_j;
}

void harpe_sim_summary_free(harpe_sim_summary *summary) {
    for (int k = 0; k < HARPE_SIM_KINDS; k++) {
        free(summary->kinds[k].times_s);
        free(summary->kinds[k].energies_j);
    }
}

harpe_status harpe_sim_summary_make(const harpe_sim_run *run, harpe_sim_summary *out,
                                    harpe_error *error) {
    harpe_sim_summary sums = {0};
    harpe_status status = prepare(run, &sums, error);
    if (status != HARPE_OK) {
        harpe_sim_summary_free(&sums);
        return status;
    }
    sum_up(run, &sums);
    *out = sums;
    return HARPE_OK;
}
