/* SPDX-License-Identifier: Apache-2.0 */
/* A rank of a simulated job, and its steps. */
#include "sim/sim.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <harpe/gpu.h>
#include <harpe/pipeline_frequency.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/process.h"
#include "base/wait.h"
#include "client/optimizer_internal.h"

harpe_sim_step_sum harpe_sim_sum_step(const harpe_sim_board *board, const harpe_sim_step *ranks) {
    int64_t late_ns = 0;
    harpe_sim_step_sum sum = {.is_whole = true,
                              .round = ranks[0].round,
                              .time_s = 1e-9 * (double)(ranks[0].end_ns - ranks[0].begin_ns)};
    for (int r = 0; r < board->world_size; r++) {
        const harpe_sim_step *rank = &ranks[r];
        sum.is_whole = sum.is_whole && rank->end_ns != 0;
        if (rank->round < sum.round) sum.round = rank->round;
        if (rank->host_late_ns > late_ns) late_ns = rank->host_late_ns;
        if (rank->ended_at_s > sum.ended_at_s) sum.ended_at_s = rank->ended_at_s;
        sum.energy_j += rank->energy_j;
        sum.clock_writes += rank->clock_writes;
    }
    sum.host_late_s = 1e-9 * (double)late_ns;
    return sum;
}

json_t *harpe_sim_show_step(const harpe_sim_board *board, const harpe_sim_step *ranks) {
    harpe_sim_step_sum sum = harpe_sim_sum_step(board, ranks);
    return json_pack("{s:f, s:I, s:f, s:f, s:I, s:f}", "ended_at", sum.ended_at_s, "round",
                     (json_int_t)sum.round, "time_s", sum.time_s, "energy_j", sum.energy_j,
                     "clock_writes", (json_int_t)sum.clock_writes, "host_late_s", sum.host_late_s);
}

/* ---- The rank -------------------------------------------------------------------------------- */

/* Runs one rank. Its instructions run in order on its emulated GPU; each instruction first waits
 * for its messages. Between steps all ranks meet, as for the all-reduce of gradients. The rank uses
 * the optimizer in the way that <harpe/pipeline_frequency.h> describes for training processes. */

#define LATE_SHARE 0.3 /* share of the shortest instruction's real time */
#define LATE_MAX_NS 2e6
#define RARE_PERIOD_S 0.05       /* of looks of the ranks of large jobs in a world */
#define AWAIT_CLOCK_NS 900000000 /* real time; the emulator applies a clock at most 1 s late */

enum { MANY_RANKS = 64, EVENTS = 4096 }; /* EVENTS: in a world, no rank's thread reads them late */

typedef struct rank_run {
    const harpe_sim_run *job;
    int rank;
    harpe_sim_board *board;
    int pp_rank, dp_rank, tp_rank;
    void *library; /* the emulator's library and its functions */
    int (*instruction)(unsigned int, int, const char *, double, int64_t, int (*)(void *), void *,
                       int64_t *);
    int (*unlocked)(unsigned int, int, const char *, int64_t, int64_t *);
    int (*energy)(unsigned int, int64_t, double *);
    int (*wait)(unsigned int, int);
    int (*write_count)(unsigned int, uint64_t *, uint64_t *, uint64_t *);
    int64_t (*now_ns)(void);
    int (*uuid)(unsigned int, char *, unsigned int);
    harpe_gpus *gpus;
    harpe_pipeline_frequency_optimizer *optimizer; /* NULL: the rank runs without an optimizer */
    bool is_baseline;       /* the optimizer does not see this step, nor does its clock slow it */
    int64_t done_ns;        /* end of the GPU's last work */
    int64_t begin_ns;       /* start of the step */
    double late_ns;         /* real time; see look_at_clock */
    int64_t await_until_ns; /* real time; see awaits_clock */
    int64_t host_late_ns;   /* of this step; see look_at_clock */
} rank_run;

/* ---- Emulator -------------------------------------------------------------------------------- */

static harpe_status open_emulator(rank_run *run, harpe_error *error) {
    const harpe_emulated_symbol symbols[] = {
        {"harpe_emulator_instruction_held", (void **)&run->instruction},
        {"harpe_emulator_instruction_unlocked", (void **)&run->unlocked},
        {"harpe_emulator_energy", (void **)&run->energy},
        {"harpe_emulator_wait", (void **)&run->wait},
        {"harpe_emulator_write_count", (void **)&run->write_count},
        {"harpe_emulator_now_ns", (void **)&run->now_ns},
        {"harpe_emulator_uuid", (void **)&run->uuid},
        {0},
    };
    return harpe_emulated_library_load(run->board->library, symbols, &run->library, error);
}

static harpe_status emulator_failed(const rank_run *run, int code, harpe_error *error) {
    return harpe_fail(error, HARPE_DRIVER_ERROR, "rank %d: the emulated GPU failed (error %d)",
                      run->rank, code);
}

/* ---- A step ---------------------------------------------------------------------------------- */

static harpe_status aborted(harpe_error *error) {
    return harpe_fail(error, HARPE_INTERRUPTED, "the run was stopped");
}

static int rank_at(const rank_run *run, int pp_rank) {
    const harpe_sim_options *options = run->job->options;
    return (pp_rank * options->dp + run->dp_rank) * options->tp + run->tp_rank;
}

/* Returns the index of a message; each pipeline has its own messages. */
static size_t message_of(const rank_run *run, const harpe_sim_message *message) {
    size_t pipeline = (size_t)run->dp_rank * (size_t)run->job->options->tp + (size_t)run->tp_rank;
    return pipeline * run->job->plan->message_count + message->index;
}

/* Returns the optimizer that sees this step, or NULL. */
static harpe_pipeline_frequency_optimizer *optimizer_of(const rank_run *run) {
    return run->is_baseline ? NULL : run->optimizer;
}

static double slowdown_now(const rank_run *run, uint32_t step) {
    const harpe_sim_board *board = run->board;
    bool is_slow =
        (int64_t)step >= atomic_load(&board->straggler_step) && board->straggler_rank == run->rank;
    return is_slow ? board->straggler_factor : 1;
}

static void sleep_ns(double real_ns) {
    if (real_ns < 1000 || real_ns >= 1e9) return;
    harpe_sleep_ns((int64_t)real_ns);
}

/* Waits a short time. The caller then reports the beginning of an instruction or step to the
 * optimizer. The optimizer measures with the host's clock. If the host wakes up 0.2 ms late and the
 * GPU's time runs 20 times as fast, the error is 4 ms of GPU time. So every report is delayed by a
 * short fixed time, which hides late wake-ups. Longer delays are noted. Returns the host's time. */
static int64_t look_at_clock(rank_run *run, int64_t at_ns) {
    double wait_ns = (double)(at_ns - run->now_ns()) / run->board->time_scale + run->late_ns;
    double until_ns = (double)harpe_clock_ns() + wait_ns;
    sleep_ns(wait_ns);
    int64_t now_ns = harpe_clock_ns();
    int64_t late_ns = (int64_t)(((double)now_ns - until_ns) * run->board->time_scale);
    if (late_ns > run->host_late_ns) run->host_late_ns = late_ns;
    return now_ns;
}

/* Delays the report of the end by as much as that of the start, so that the measured duration is
 * right. */
static void look_after(const rank_run *run, int64_t began_ns, int64_t took_ns) {
    double end_ns = (double)began_ns + (double)took_ns / run->board->time_scale;
    sleep_ns(end_ns - (double)harpe_clock_ns());
}

/* Returns true while the rank should wait for the controller, which is a separate process. On a
 * busy machine the controller may get processor time only after the instruction would be over. A
 * real machine does not have this delay, so the emulated instruction waits for the controller. A
 * job that still learns does not wait, because its optimizer would measure the wait. */
static int awaits_clock(void *user) {
    const rank_run *run = user;
    harpe_frequency_controller_counts counts =
        harpe_pipeline_frequency_get_status(run->optimizer).controller;
    return counts.clock_requests >
               counts.written + counts.skipped + counts.superseded + counts.failed &&
           harpe_clock_ns() < run->await_until_ns;
}

static harpe_status run_instruction(rank_run *run, const harpe_sim_instruction *what,
                                    double slowdown, harpe_error *error) {
    int64_t ready_ns = run->done_ns;
    for (int i = 0; i < what->wait_count; i++) {
        int64_t time_ns;
        if (!harpe_sim_receive(run->board, run->rank, message_of(run, &what->waits[i]),
                               run->begin_ns, &time_ns))
            return aborted(error);
        if (time_ns > ready_ns) ready_ns = time_ns;
    }
    harpe_pipeline_frequency_optimizer *optimizer = optimizer_of(run);
    int64_t began_ns = 0;
    if (optimizer) {
        began_ns = look_at_clock(run, ready_ns);
        harpe_pipeline_frequency_on_instruction_begin(optimizer, what->name);
    }
    run->await_until_ns = harpe_clock_ns() + AWAIT_CLOCK_NS;
    const harpe_sim_options *options = run->job->options;
    bool has_plan = options->is_offline || options->plan_path;
    unsigned int gpu = (unsigned int)run->rank;
    int code =
        run->is_baseline
            ? run->unlocked(gpu, what->stage, what->name, ready_ns, &run->done_ns)
            : run->instruction(gpu, what->stage, what->name, slowdown, ready_ns,
                               optimizer && has_plan ? awaits_clock : NULL, run, &run->done_ns);
    if (code != 0) return emulator_failed(run, code, error);
    for (int i = 0; i < what->send_count; i++)
        harpe_sim_send(run->board, rank_at(run, what->sends[i].peer),
                       message_of(run, &what->sends[i]), run->done_ns);
    if (optimizer) {
        look_after(run, began_ns, run->done_ns - ready_ns);
        harpe_pipeline_frequency_on_instruction_end(optimizer, what->name);
    }
    return HARPE_OK;
}

static void tell_status(const rank_run *run, harpe_sim_step *record) {
    harpe_sim_board *board = run->board;
    record->round = -1;
    if (!optimizer_of(run)) return;
    harpe_pipeline_frequency_status status = harpe_pipeline_frequency_get_status(run->optimizer);
    record->round = status.round;
    atomic_store(&board->rank[run->rank].mismatches, status.misfits);
    atomic_store(&board->rank[run->rank].reconnects, status.reconnects);
    if (run->rank == 0 && status.job_id[0] && !atomic_load(&board->job_id_is_known)) {
        (void)snprintf(board->job_id, sizeof board->job_id, "%s", status.job_id);
        atomic_store(&board->job_id_is_known, 1);
    }
}

/* Reads the GPU's energy at a moment on which all ranks agree, and its number of clock changes. */
static harpe_status read_meters(const rank_run *run, int64_t at_ns, double *energy_j,
                                uint64_t *writes, harpe_error *error) {
    unsigned int gpu = (unsigned int)run->rank;
    int code = run->energy(gpu, at_ns, energy_j);
    if (code == 0) code = run->write_count(gpu, NULL, writes, NULL);
    return code == 0 ? HARPE_OK : emulator_failed(run, code, error);
}

/* Runs a step. `out` receives the record of this rank. */
static harpe_status run_step(rank_run *run, double slowdown, harpe_sim_step *out, bool *stop,
                             harpe_error *error) {
    const harpe_sim_plan *plan = run->job->plan;
    harpe_pipeline_frequency_optimizer *optimizer = optimizer_of(run);
    harpe_sim_step record = {.begin_ns = run->begin_ns};
    double before_j, after_j;
    uint64_t before, after;
    harpe_status status = read_meters(run, run->begin_ns, &before_j, &before, error);
    if (status != HARPE_OK) return status;
    if (optimizer) {
        (void)look_at_clock(run, run->begin_ns);
        harpe_pipeline_frequency_on_step_begin(optimizer);
    }
    tell_status(run, &record);
    run->done_ns = run->begin_ns;
    run->host_late_ns = 0;
    for (size_t i = plan->rank_start[run->pp_rank]; i < plan->rank_start[run->pp_rank + 1]; i++) {
        status = run_instruction(run, &plan->instructions[i], slowdown, error);
        if (status != HARPE_OK) return status;
    }
    int64_t agreed_ns = run->done_ns;
    *stop = atomic_load(&run->board->stop) != 0;
    if (!harpe_sim_meet(run->board, &agreed_ns, stop)) return aborted(error);
    status = read_meters(run, agreed_ns, &after_j, &after, error);
    if (status != HARPE_OK) return status;
    if (optimizer) {
        (void)look_at_clock(run, agreed_ns);
        harpe_pipeline_frequency_on_step_end(optimizer);
    }
    record.end_ns = agreed_ns;
    record.ended_at_s = harpe_clock_wall_s();
    record.energy_j = after_j - before_j;
    record.clock_writes = after - before;
    record.host_late_ns = run->host_late_ns;
    *out = record;
    return HARPE_OK;
}

/* ---- The optimizer --------------------------------------------------------------------------- */

/* Returns the delay of reports to the optimizer. It is limited, so that a clock that is requested
 * for an instruction does not arrive after the end of the instruction. */
static double lateness_ns(const rank_run *run) {
    const harpe_sim_plan *plan = run->job->plan;
    double shortest_s = 1;
    for (size_t i = 0; i < harpe_profile_entry_count(plan->profile); i++) {
        const harpe_profile_entry *entry = harpe_profile_entry_at(plan->profile, i);
        if (entry->points[0].time_s < shortest_s) shortest_s = entry->points[0].time_s;
    }
    if (!run->job->options->is_real_time) return 0;
    double late_ns = LATE_SHARE * 1e9 * shortest_s / run->board->time_scale;
    return late_ns < LATE_MAX_NS ? late_ns : LATE_MAX_NS;
}

static void pass_log(void *user, harpe_log_level level, const char *line) {
    const rank_run *run = user;
    if (level < HARPE_LOG_WARNING || run->job->options->is_quiet) return;
    harpe_log_line(&run->job->options->log, level, "rank %d: %s", run->rank, line);
}

/* Begins a step on all ranks at the present time. A delay of this machine in the step before then
 * does not affect the next step. If `*wish` is true on any rank, it becomes true on all ranks. */
static harpe_status begin_together(rank_run *run, bool *wish, harpe_error *error) {
    run->begin_ns = run->now_ns();
    return harpe_sim_meet(run->board, &run->begin_ns, wish) ? HARPE_OK : aborted(error);
}

/* Broadcasts data of rank 0, as a training framework does. It is used with a published server,
 * which does not know job keys. */
static harpe_status broadcast(void *user, void *data, size_t size, harpe_error *error) {
    rank_run *run = user;
    char *shared = run->board->shared;
    if (size > sizeof run->board->shared)
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED, "%zu bytes are too many to broadcast", size);
    if (run->rank == 0) memcpy(shared, data, size);
    bool wish = false;
    harpe_status status = begin_together(run, &wish, error);
    if (status == HARPE_OK && run->rank != 0) memcpy(data, shared, size);
    return status;
}

/* In a world one processor does the work of all ranks. The ranks of a large job look less often at
 * their GPU's energy and at what they have measured. */
static harpe_pipeline_timeouts optimizer_times(const harpe_sim_options *options) {
    harpe_pipeline_timeouts times = harpe_pipeline_usual_timeouts;
    bool is_large = harpe_sim_world_size(options) > MANY_RANKS;
    if (!options->is_real_time) times.event_capacity = EVENTS;
    if (options->is_real_time || !(is_large || options->looks_rarely)) return times;
    times.sample_period_s = RARE_PERIOD_S;
    times.measuring_period_s = RARE_PERIOD_S;
    return times;
}

static harpe_status start_optimizer(rank_run *run, harpe_error *error) {
    const harpe_sim_options *job = run->job->options;
    char uuid[96];
    int code = run->uuid((unsigned int)run->rank, uuid, sizeof uuid);
    if (code != 0) return emulator_failed(run, code, error);
    harpe_gpus_options gpus = {.visible_devices = uuid, .log = {pass_log, run}};
    harpe_status status = harpe_gpus_open(&gpus, &run->gpus, error);
    if (status != HARPE_OK) return status;
    harpe_pipeline_frequency_options options = {
        .rank = run->rank,
        .dp_rank = run->dp_rank,
        .pp_rank = run->pp_rank,
        .tp_rank = run->tp_rank,
        .dp_degree = job->dp,
        .pp_degree = job->pp,
        .tp_degree = job->tp,
        .world_size = harpe_sim_world_size(job),
        .server_url = run->board->server_url,
        .job_metadata = "train-sim",
        .job_key = *run->board->job_key ? run->board->job_key : NULL,
        .broadcast = broadcast,
        .broadcast_user = run,
        .gpus = run->gpus,
        /* many ranks share few cores here, so no rank may poll without a pause */
        .controller = {.may_anticipate = job->may_anticipate,
                       .poll_interval_s = -1,
                       .zeusd_socket = ""},
        .log = {pass_log, run},
    };
    harpe_pipeline_timeouts times = optimizer_times(job);
    return harpe_pipeline_new_with(&options, &times, &run->optimizer, error);
}

static void stop_optimizer(rank_run *run) {
    if (run->optimizer) harpe_pipeline_frequency_free(run->optimizer);
    run->optimizer = NULL;
    harpe_gpus_close(run->gpus);
    run->gpus = NULL;
}

/* ---- The baseline ---------------------------------------------------------------------------- */

/* Returns true if the ranks must run a step of the baseline before the step `step`. Steps of the
 * baseline alternate with steps of the plan, so both run at the same temperatures and under the
 * same load of this machine. The first and the last of these steps belong to the baseline. A drift
 * at a constant rate therefore changes the means of both by the same amount. */
static bool wishes_baseline(const rank_run *run, uint32_t step) {
    harpe_sim_board *board = run->board;
    const harpe_sim_options *options = run->job->options;
    int64_t since = (int64_t)step - atomic_load(&board->turns_step);
    if (!run->optimizer || !atomic_load(&board->is_steady) ||
        atomic_load(&board->baseline_count) == HARPE_SIM_BASELINE_MAX)
        return false;
    if (atomic_load(&board->turns_step) < 0) return true;
    return since <= options->steps && since % harpe_sim_turn_steps(options) == 0;
}

/* Runs a step without the optimizer at the highest clocks, and begins the step after it. */
static harpe_status run_baseline(rank_run *run, uint32_t step, harpe_error *error) {
    harpe_sim_board *board = run->board;
    bool ignored = false;
    bool is_first = run->rank == 0 && atomic_load(&board->turns_step) < 0;
    int count = atomic_load(&board->baseline_count);
    if (is_first) atomic_store(&board->turns_step, step);
    run->is_baseline = true;
    harpe_status status =
        run_step(run, 1, &harpe_sim_baseline_at(board, count)[run->rank], &ignored, error);
    run->is_baseline = false;
    if (status != HARPE_OK) return status;
    status = begin_together(run, &ignored, error);
    if (run->rank == 0) atomic_fetch_add(&board->baseline_count, 1);
    return status;
}

/* ---- The run --------------------------------------------------------------------------------- */

static harpe_status train(rank_run *run, harpe_error *error) {
    harpe_sim_board *board = run->board;
    bool stop = false;
    uint32_t step = atomic_load(&board->steps);
    (void)run->wait((unsigned int)run->rank, 1);
    while (!stop && step < HARPE_SIM_STEP_MAX) {
        harpe_status status = HARPE_OK;
        if (step >= HARPE_SIM_WARM_UP_STEPS && !run->optimizer)
            status = start_optimizer(run, error);
        bool has_baseline = wishes_baseline(run, step);
        if (status == HARPE_OK) status = begin_together(run, &has_baseline, error);
        if (status == HARPE_OK && has_baseline) status = run_baseline(run, step, error);
        harpe_sim_step *record = &harpe_sim_step_at(board, (int)step)[run->rank];
        if (status == HARPE_OK)
            status = run_step(run, slowdown_now(run, step), record, &stop, error);
        if (status != HARPE_OK) return status;
        step++;
        if (run->rank == 0) harpe_sim_wake(&board->steps);
    }
    return HARPE_OK;
}

harpe_status harpe_sim_rank_run(const harpe_sim_run *job, int rank, harpe_error *error) {
    const harpe_sim_options *options = job->options;
    rank_run run = {.job = job,
                    .rank = rank,
                    .board = job->board,
                    .tp_rank = rank % options->tp,
                    .dp_rank = rank / options->tp % options->dp,
                    .pp_rank = rank / options->tp / options->dp};
    harpe_status status = open_emulator(&run, error);
    if (options->is_real_time) prctl(PR_SET_TIMERSLACK, 1UL);
    run.late_ns = lateness_ns(&run);
    if (status == HARPE_OK) status = train(&run, error);
    stop_optimizer(&run);
    if (run.wait) (void)run.wait((unsigned int)rank, 0);
    if (run.library) dlclose(run.library);
    return status;
}
