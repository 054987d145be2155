/* SPDX-License-Identifier: Apache-2.0 */
/* Stages a training job in a world (src/sim/sim.h) with a launcher of its own, which causes faults
 * and checks. Faults end some time before the job does, so that the job must recover. */
#include "world/job.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <harpe/gpu.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/process.h"
#include "base/wait.h"
#include "client/control.h"
#include "sim/sim.h"
#include "world/disk.h"

#define SECOND INT64_C(1000000000)
#define MILLISECOND INT64_C(1000000)

/* The promises, in virtual time. A rank that is killed is followed by its controller within
 * GPU_BACK_S; a driver that is slow, or a process that stands still, adds to it. After the last
 * fault a job trains in new rounds within RECOVERY_S: a client waits for at most a minute between
 * attempts, but 10 minutes for the answer of a held request. */
#define GPU_BACK_S 5.0
#define RECOVERY_S 800.0
#define LONGEST_S 40000.0
enum {
    LOOK_MS = 50,
    AUDIT_S = 5,
    RANKS_MAX = 8,
    SHORT_RANKS_MAX = 4,
    MOST_TURNS = 2000000,
    CALM_ROUNDS = 2, /* after the last fault */
    TARGET_SIZE = 256,
};

static const char *const fault_names[] = {"messages", "kills",  "store",
                                          "driver",   "clocks", "stalls"};
enum { FAULT_KINDS = sizeof fault_names / sizeof *fault_names };
const char world_fault_names[] = "messages,kills,store,driver,clocks,stalls";

/* A schedule that a server has given to a rank for a round. */
typedef struct given_schedule {
    char target[TARGET_SIZE]; /* of the request, with rank and round */
    uint64_t hash;
} given_schedule;

typedef struct world_job {
    const world_job_options *options;
    world_job_result *result;
    world_notes notes;
    harpe_sim_run *run;
    harpe_sim_ranks ranks;
    pid_t own; /* this process, which asks the server without faults */
    int wanted_steps;
    bool (*use_faults)(const char *list); /* of the driver */
    int (*energy)(unsigned int gpu, int64_t at_ns, double *energy_j);
    uint32_t idle_mhz;

    bool is_calm;                    /* no more faults */
    int64_t calm_ns;                 /* since */
    int64_t calm_round;              /* the round at that time */
    int64_t disk_until_ns;           /* the disk's fault ends; 0: it has none */
    int64_t driver_until_ns;         /* the same of the driver */
    int64_t stalled_until_ns;        /* all processes that stand still go on */
    int64_t fault_ns, next_fault_ns; /* longest time between faults, and the next one */
    pid_t doomed;                    /* to be killed after so many turns; 0: none */
    uint64_t doomed_turns;
    bool dooms_controller;
    int64_t server_back_ns; /* 0: it runs */

    /* Results that the server has accepted. */
    int64_t accepted_round;  /* the newest round of them; -1: none */
    uint32_t accepted_ranks; /* the ranks whose results of this round were accepted, as bits */
    double told_j;           /* energy of the job that the server has told last */
    int64_t told_round;
    int64_t next_audit_ns;
    bool has_lost_first;
    bool has_killed_controller; /* and all GPUs were not seen back since */

    given_schedule *schedules;
    size_t schedule_count, schedule_capacity;
} world_job;

bool world_faults_read(const char *list, unsigned *faults) {
    *faults = strcmp(list, "all") == 0 ? WORLD_ALL_FAULTS : 0;
    if (*faults || strcmp(list, "none") == 0) return true;
    while (*list) {
        size_t length = strcspn(list, ",");
        int kind = 0;
        while (kind < FAULT_KINDS && (strlen(fault_names[kind]) != length ||
                                      strncmp(fault_names[kind], list, length) != 0))
            kind++;
        if (kind == FAULT_KINDS) return false;
        *faults |= 1U << kind;
        list += length + (list[length] == ',');
    }
    return true;
}

static bool has(const world_job *job, unsigned kind) { return job->options->faults & kind; }

/* ---- Messages -------------------------------------------------------------------------------- */

static harpe_message_fate draw_fate(void *user, const harpe_message *message) {
    world_job *job = user;
    harpe_message_fate fate = {0};
    if (job->options->first && !job->has_lost_first &&
        strncmp(message->target, "/schedule/", 10) == 0) {
        job->has_lost_first = true;
        fate.cuts_answer = job->options->first == WORLD_FIRST_IS_CUT;
        fate.answer_bytes = 10;
        fate.is_doubled = job->options->first == WORLD_FIRST_IS_DOUBLED;
        fate.request_late_ns = fate.is_doubled ? SECOND : 0;
        fate.loses_answer = job->options->first == WORLD_FIRST_IS_LOST;
        return fate;
    }
    bool is_from_rank = message->client != job->own;
    if (!is_from_rank || !has(job, WORLD_MESSAGES) || job->is_calm || harpe_world_draw(6) != 0)
        return fate;
    job->result->message_faults++;
    int64_t late_ns = (int64_t)harpe_world_draw(20 * SECOND);
    switch (harpe_world_draw(8)) {
    case 0: fate.request_late_ns = late_ns; break;
    case 1: fate.answer_late_ns = late_ns; break;
    case 2:
    case 3: /* seldom for a held request, because the client waits 10 minutes for its answer */
        if (strncmp(message->target, "/schedule/", 10) == 0 && harpe_world_draw(10) != 0) break;
        fate.loses_request = harpe_world_draw(2);
        fate.loses_answer = !fate.loses_request;
        break;
    case 4:
        fate.cuts_request = true;
        fate.request_bytes = harpe_world_draw(message->body_length + 100);
        break;
    case 5:
        fate.cuts_answer = true;
        fate.answer_bytes = harpe_world_draw(1000);
        break;
    default:
        fate.is_doubled = true;
        fate.double_late_ns = late_ns;
        break;
    }
    world_tell(&job->notes,
               "fault: %s %s of process %d: late %.3f s, lost %d %d, cut %d %d, twice %d",
               message->method, message->target, (int)message->client,
               (double)(fate.request_late_ns + fate.answer_late_ns + fate.double_late_ns) * 1e-9,
               fate.loses_request, fate.loses_answer, fate.cuts_request, fate.cuts_answer,
               fate.is_doubled);
    return fate;
}

static void note_accepted(world_job *job, const harpe_message *message) {
    const char *round_text = strstr(message->target, "?round=");
    const char *rank_text = message->body ? strstr(message->body, "\"rank\":") : NULL;
    if (!round_text || !rank_text) return;
    int64_t round = strtoll(round_text + 7, NULL, 10);
    long rank = strtol(rank_text + 7, NULL, 10);
    if (round < job->accepted_round || rank < 0 || rank >= RANKS_MAX) return;
    if (round > job->accepted_round) job->accepted_ranks = 0;
    job->accepted_round = round;
    job->accepted_ranks |= 1U << rank;
}

/* No round is doubled: a server gives a rank the same schedule for a round, however often the rank
 * asks, and also after the server was killed. */
static void see_answer(void *user, const harpe_message *message, long http_status,
                       uint64_t body_hash) {
    world_job *job = user;
    world_tell(&job->notes, "%s %s of process %d: %ld", message->method, message->target,
               (int)message->client, http_status);
    if (http_status == 200 && strncmp(message->target, "/result/", 8) == 0)
        note_accepted(job, message);
    if (http_status != 200 || strncmp(message->target, "/schedule/", 10) != 0 ||
        !strstr(message->target, "&round="))
        return;
    for (size_t i = 0; i < job->schedule_count; i++) {
        const given_schedule *earlier = &job->schedules[i];
        if (strcmp(earlier->target, message->target) != 0) continue;
        if (earlier->hash != body_hash)
            world_accuse(&job->notes, "%s was answered with two schedules", message->target);
        return;
    }
    if (!HARPE_ARRAY_RESERVE(job->schedules, job->schedule_capacity, job->schedule_count + 1))
        return;
    given_schedule *new = &job->schedules[job->schedule_count++];
    (void)snprintf(new->target, sizeof new->target, "%s", message->target);
    new->hash = body_hash;
}

/* ---- Faults ---------------------------------------------------------------------------------- */

static void spare(world_job *job) {
    job->doomed = 0;
    harpe_world_on_step(NULL, NULL);
}

/* Kills the doomed process between any two turns. */
static void count_turn(void *user) {
    world_job *job = user;
    if (job->doomed_turns-- > 0) return;
    world_tell(&job->notes, "fault: process %d is killed", (int)job->doomed);
    job->has_killed_controller = job->has_killed_controller || job->dooms_controller;
    harpe_world_kill(job->doomed);
    spare(job);
    job->result->kills++;
}

/* Kills a controller and its trainer, and does not note it. */
static void doom_pair(world_job *job) {
    pid_t controller = harpe_world_pick(HARPE_CONTROLLER_ARGUMENT);
    if (controller >= 0) harpe_world_kill(controller);
    harpe_sim_ranks_kill(&job->ranks, 0);
}

static void doom(world_job *job) {
    if (job->options->sabotage == WORLD_KILLS_PAIRS) {
        doom_pair(job);
        return;
    }
    static const char *const victims[] = {"server", "rank", "rank", HARPE_CONTROLLER_ARGUMENT};
    if (job->doomed) return;
    const char *victim = victims[harpe_world_draw(sizeof victims / sizeof *victims)];
    pid_t picked = harpe_world_pick(victim);
    if (picked < 0) return;
    job->dooms_controller = strcmp(victim, HARPE_CONTROLLER_ARGUMENT) == 0;
    job->doomed_turns = harpe_world_draw(harpe_world_draw(2) ? 10 : 1000);
    job->doomed = picked;
    harpe_world_on_step(count_turn, job);
}

static void stall(world_job *job) {
    pid_t picked = harpe_world_pick(NULL);
    int64_t until_ns = harpe_clock_ns() + (int64_t)harpe_world_draw(30 * SECOND);
    if (picked < 0) return;
    world_tell(&job->notes, "fault: process %d stands still until %.3f s", (int)picked,
               (double)until_ns * 1e-9);
    harpe_world_stall(picked, until_ns);
    if (until_ns > job->stalled_until_ns) job->stalled_until_ns = until_ns;
    job->result->stalls++;
}

static void jump(world_job *job) {
    int64_t by_ns = (int64_t)harpe_world_draw(2 * 86400 * SECOND) - 86400 * SECOND;
    if (harpe_world_draw(2)) by_ns /= 10000;
    world_tell(&job->notes, "fault: the time of day jumps by %.3f s", (double)by_ns * 1e-9);
    harpe_world_jump(by_ns);
    job->result->jumps++;
}

static void disturb_driver(world_job *job) {
    static const char *const lists[] = {"slow_set=2000", "slow_get=500", "slow_set=200",
                                        "not_supported=energy", "no_permission"};
    const char *list = lists[harpe_world_draw(sizeof lists / sizeof *lists)];
    if (!job->use_faults || job->driver_until_ns > 0) return;
    if (!job->use_faults(list)) return;
    job->driver_until_ns = harpe_clock_ns() + (int64_t)harpe_world_draw(20 * SECOND);
    world_tell(&job->notes, "fault: the driver has %s until %.3f s", list,
               (double)job->driver_until_ns * 1e-9);
    job->result->driver_faults++;
}

/* Nothing that was accepted before may be lost, and the server must serve again afterwards. */
static void disturb_disk(world_job *job) {
    harpe_disk_faults faults = {0};
    if (job->disk_until_ns > 0 || job->options->sabotage) return;
    switch (harpe_world_draw(4)) {
    case 0: faults.write_errors_ppm = 100000; break;
    case 1: faults.sync_errors_ppm = 100000; break;
    case 2: faults.room_bytes = 1; break;
    default: faults.write_ns = faults.sync_ns = (int64_t)harpe_world_draw(SECOND); break;
    }
    harpe_disk_set_faults(job->run->server->disk, &faults);
    job->disk_until_ns = harpe_clock_ns() + (int64_t)harpe_world_draw(20 * SECOND);
    world_tell(&job->notes,
               "fault: the disk has write errors %u, sync errors %u, room %lld, and takes %.3f s",
               faults.write_errors_ppm, faults.sync_errors_ppm, (long long)faults.room_bytes,
               (double)faults.write_ns * 1e-9);
    job->result->store_faults++;
}

static void end_disk_fault(world_job *job, bool at_once) {
    const harpe_disk_faults none = {0};
    if (job->disk_until_ns == 0 || (!at_once && harpe_clock_ns() < job->disk_until_ns)) return;
    harpe_disk_set_faults(job->run->server->disk, &none);
    job->disk_until_ns = 0;
    world_tell(&job->notes, "the disk is well");
}

static void end_driver_fault(world_job *job, bool at_once) {
    if (job->driver_until_ns == 0 || (!at_once && harpe_clock_ns() < job->driver_until_ns)) return;
    (void)job->use_faults("");
    job->driver_until_ns = 0;
    world_tell(&job->notes, "the driver is well");
}

/* A controller repeats a refused call for 30 s, which is longer than any fault of the driver. The
 * launcher itself cannot end a fault in time while it waits for a server or for ranks. */
static void *end_faults(void *user) {
    world_job *job = user;
    while (!job->is_calm) {
        harpe_sleep_ns(LOOK_MS * MILLISECOND);
        end_driver_fault(job, false);
        end_disk_fault(job, false);
    }
    return NULL;
}

static void cause_fault(world_job *job) {
    if (job->is_calm || harpe_clock_ns() < job->next_fault_ns) return;
    job->next_fault_ns = harpe_clock_ns() + (int64_t)harpe_world_draw((uint64_t)job->fault_ns);
    unsigned kind = 1U << harpe_world_draw(FAULT_KINDS);
    if (!has(job, kind)) return;
    if (kind == WORLD_KILLS) doom(job);
    if (kind == WORLD_STALLS) stall(job);
    if (kind == WORLD_CLOCKS) jump(job);
    if (kind == WORLD_DRIVER) disturb_driver(job);
    if (kind == WORLD_STORE) disturb_disk(job);
}

/* ---- Rounds ---------------------------------------------------------------------------------- */

static int steps_done(const world_job *job) { return (int)atomic_load(&job->run->board->steps); }

/* Returns the highest round of a step; -1: none. */
static int64_t newest_round(const world_job *job) {
    const harpe_sim_board *board = job->run->board;
    int64_t newest = -1;
    for (int step = steps_done(job) - 1; step >= 0 && step > steps_done(job) - 4; step--)
        for (int r = 0; r < board->world_size; r++) {
            const harpe_sim_step *one = &harpe_sim_step_at(board, step)[r];
            if (one->end_ns > 0 && one->round > newest) newest = one->round;
        }
    return newest;
}

/* No round is lost: a rank runs the rounds one after the other. */
static void check_rounds(world_job *job) {
    const harpe_sim_board *board = job->run->board;
    for (int r = 0; r < board->world_size; r++) {
        int64_t before = -1;
        for (int step = 0; step < steps_done(job); step++) {
            const harpe_sim_step *one = &harpe_sim_step_at(board, step)[r];
            if (one->end_ns == 0 || one->round < 0) continue;
            if (before >= 0 && (one->round < before || one->round > before + 1))
                world_accuse(&job->notes, "rank %d ran round %" PRId64 " after round %" PRId64, r,
                             one->round, before);
            before = one->round;
        }
        if (before > job->result->last_round) job->result->last_round = before;
    }
}

/* Time goes forward, and energy lies between nothing and the most that a GPU can draw. */
static void check_steps(world_job *job) {
    const harpe_sim_board *board = job->run->board;
    uint64_t digest = UINT64_C(14695981039346656037);
    for (int step = 0; step < steps_done(job); step++)
        for (int r = 0; r < board->world_size; r++) {
            const harpe_sim_step *one = &harpe_sim_step_at(board, step)[r];
            uint64_t parts[] = {(uint64_t)one->begin_ns, (uint64_t)one->end_ns,
                                (uint64_t)one->round, 0};
            memcpy(&parts[3], &one->energy_j, sizeof parts[3]);
            for (size_t i = 0; i < 4; i++)
                digest = (digest ^ parts[i]) * UINT64_C(1099511628211);
            if (one->end_ns == 0) continue;
            double duration_s = (double)(one->end_ns - one->begin_ns) * 1e-9;
            if (!(duration_s > 0) || !(one->energy_j > 0) || one->energy_j > 1000 * duration_s)
                world_accuse(&job->notes, "step %d of rank %d took %.6f s and %.3f J", step, r,
                             duration_s, one->energy_j);
            job->result->energy_j += one->energy_j;
        }
    job->result->digest = digest;
}

/* ---- What the server knows ------------------------------------------------------------------- */

/* A result that was accepted is not lost, also after the server's machine lost its power. Energy is
 * counted once: the server never knows of more than the GPUs have drawn, nor takes back what it has
 * told. */
static void check_job(world_job *job, const json_t *shown, int64_t accepted_round,
                      uint32_t accepted_ranks, double drawn_j) {
    int64_t round = json_integer_value(json_object_get(shown, "round"));
    int64_t reported = json_integer_value(json_object_get(shown, "ranks_reported"));
    const json_t *energy = json_object_get(json_object_get(shown, "figures"), "energy");
    double told_j = json_is_number(energy) ? json_number_value(energy) : job->told_j;
    if (round < accepted_round || round < job->told_round)
        world_accuse(&job->notes, "the server is in round %" PRId64 " after round %" PRId64, round,
                     accepted_round > job->told_round ? accepted_round : job->told_round);
    if (round == accepted_round && reported < __builtin_popcount(accepted_ranks))
        world_accuse(&job->notes,
                     "the server has %" PRId64 " results of round %" PRId64 ", and accepted %d",
                     reported, round, __builtin_popcount(accepted_ranks));
    if (told_j < job->told_j * (1 - 1e-9))
        world_accuse(&job->notes, "the job's energy falls from %.3f J to %.3f J", job->told_j,
                     told_j);
    if (told_j > drawn_j * 1.01 + 1)
        world_accuse(&job->notes, "the server counts %.3f J, and the GPUs have drawn %.3f J",
                     told_j, drawn_j);
    job->told_round = round;
    job->told_j = told_j;
}

/* Returns the energy that all GPUs have drawn since they exist. */
static double read_drawn_j(const world_job *job) {
    double all_j = 0;
    for (int gpu = 0; gpu < job->run->board->world_size; gpu++) {
        double own_j = 0;
        if (job->energy && job->energy((unsigned int)gpu, INT64_MAX, &own_j) == 0) all_j += own_j;
    }
    return all_j;
}

static void audit(world_job *job) {
    char path[HARPE_SIM_TEXT_MAX];
    json_t *shown = NULL;
    if (harpe_clock_ns() < job->next_audit_ns || job->server_back_ns > 0 ||
        !atomic_load(&job->run->board->job_id_is_known))
        return;
    job->next_audit_ns = harpe_clock_ns() + AUDIT_S * SECOND;
    int64_t accepted_round = job->accepted_round;
    uint32_t accepted_ranks = job->accepted_ranks;
    (void)snprintf(path, sizeof path, "/jobs/%s", job->run->board->job_id);
    long status = harpe_sim_server_ask(job->run->server, path, NULL, &shown, NULL);
    if (status == 200) check_job(job, shown, accepted_round, accepted_ranks, read_drawn_j(job));
    if (status == 404) world_accuse(&job->notes, "the server has lost the job");
    json_decref(shown);
}

/* ---- GPUs ------------------------------------------------------------------------------------ */

/* A GPU without work and without a lock has its lowest clock. Returns the first GPU that has
 * another clock; -1: none. */
static int find_held_gpu(world_job *job, uint32_t *clock_mhz) {
    harpe_gpus_options options = {.visible_devices = "all"};
    harpe_gpus *gpus;
    int held = -1;
    harpe_error error;
    if (harpe_gpus_open(&options, &gpus, &error) != HARPE_OK) {
        world_accuse(&job->notes, "the GPUs cannot be looked at: %s", error.message);
        return -1;
    }
    for (int gpu = 0; gpu < job->run->board->world_size && held < 0; gpu++)
        if (harpe_gpu_current_clocks(gpus, gpu, clock_mhz, NULL, NULL) == HARPE_OK &&
            *clock_mhz != job->idle_mhz)
            held = gpu;
    harpe_gpus_close(gpus);
    return held;
}

/* All holders have ended. Their GPUs must be back in time. If a controller was killed and then its
 * trainer, nobody is left to give the GPU back: the next controller does (docs/controller.md). */
static void check_gpus_are_back(world_job *job) {
    int64_t until_ns = harpe_clock_ns() + (int64_t)(GPU_BACK_S * 1e9);
    if (job->stalled_until_ns > harpe_clock_ns())
        until_ns += job->stalled_until_ns - harpe_clock_ns();
    if (job->driver_until_ns > harpe_clock_ns())
        until_ns += job->driver_until_ns - harpe_clock_ns();
    uint32_t clock_mhz = 0;
    int held;
    while ((held = find_held_gpu(job, &clock_mhz)) >= 0 && harpe_clock_ns() < until_ns)
        harpe_sleep_ns(LOOK_MS * MILLISECOND);
    if (held < 0) job->has_killed_controller = false;
    if (held >= 0 && !job->has_killed_controller)
        world_accuse(&job->notes, "GPU %d has %u MHz, and not its %u MHz without a holder", held,
                     clock_mhz, job->idle_mhz);
}

static uint32_t read_idle_clock(void) {
    harpe_gpus_options options = {.visible_devices = "all"};
    harpe_gpus *gpus;
    uint32_t clock_mhz = 0;
    if (harpe_gpus_open(&options, &gpus, NULL) != HARPE_OK) return 0;
    (void)harpe_gpu_current_clocks(gpus, 0, &clock_mhz, NULL, NULL);
    harpe_gpus_close(gpus);
    return clock_mhz;
}

/* ---- The launcher ---------------------------------------------------------------------------- */

static void note_late(void *user, int rank) {
    world_job *job = user;
    if (job->stalled_until_ns < harpe_clock_ns() - (int64_t)(HARPE_SIM_END_LIMIT_S * 1e9))
        world_accuse(&job->notes, "rank %d does not end", rank);
}

/* Restarts what was killed, as the operators of a cluster do. */
static void restart(world_job *job, harpe_error *error) {
    int failed;
    harpe_sim_server *server = job->run->server;
    if (job->server_back_ns == 0 && !harpe_world_is_alive(server->pid)) {
        world_tell(&job->notes, "the server has ended");
        job->server_back_ns = harpe_clock_ns() + (int64_t)harpe_world_draw(20 * SECOND);
    }
    if (job->server_back_ns > 0 && harpe_clock_ns() >= job->server_back_ns) {
        job->server_back_ns = 0;
        if (has(job, WORLD_STORE) && harpe_world_draw(2)) {
            world_tell(&job->notes, "fault: the server's machine has lost its power");
            harpe_disk_crash(server->disk);
            job->result->store_faults++;
        }
        if (harpe_sim_server_restart(server, error) != HARPE_OK &&
            !harpe_world_is_alive(server->pid)) {
            world_tell(&job->notes, "the server does not start: %s", error->message);
            job->server_back_ns = harpe_clock_ns() + SECOND;
        }
    }
    int left = harpe_sim_ranks_left(&job->ranks, &failed);
    if (failed >= 0) world_tell(&job->notes, "rank %d has failed", failed);
    if (left == job->run->board->world_size) return;
    harpe_sim_ranks_end(&job->ranks, note_late, job);
    check_gpus_are_back(job);
    world_tell(&job->notes, "the ranks start again");
    if (harpe_sim_ranks_start(&job->ranks, error) != HARPE_OK)
        world_accuse(&job->notes, "the ranks do not start: %s", error->message);
}

/* Faults end when two thirds of the steps are done. The job must then run new rounds. */
static void become_calm(world_job *job) {
    if (job->is_calm) return;
    job->is_calm = true;
    job->calm_ns = harpe_clock_ns();
    job->calm_round = newest_round(job);
    spare(job);
    end_driver_fault(job, true);
    end_disk_fault(job, true);
    world_tell(&job->notes, "calm, at round %" PRId64, job->calm_round);
}

static bool is_over(world_job *job) {
    bool is_new = newest_round(job) >= job->calm_round + CALM_ROUNDS;
    int64_t from_ns = job->stalled_until_ns > job->calm_ns ? job->stalled_until_ns : job->calm_ns;
    if (*job->result->fault) return true;
    if (!job->is_calm) return false;
    if (!is_new && (double)(harpe_clock_ns() - from_ns) * 1e-9 > RECOVERY_S)
        world_accuse(&job->notes,
                     "no new rounds since the last fault at %.3f s: round %" PRId64 " of step %d",
                     (double)job->calm_ns * 1e-9, newest_round(job), steps_done(job));
    return is_new && steps_done(job) >= job->wanted_steps;
}

static void train(world_job *job, harpe_error *error) {
    harpe_sim_board *board = job->run->board;
    int64_t faults_end_ns = harpe_clock_ns() + (int64_t)(LONGEST_S / 2 * 1e9);
    pthread_t end_of_faults;
    if (harpe_thread_start(&end_of_faults, "faults", end_faults, job) != 0) {
        world_accuse(&job->notes, "a thread does not start");
        return;
    }
    while (!is_over(job) && steps_done(job) < HARPE_SIM_STEP_MAX - 1) {
        harpe_sim_wait(&board->steps, (uint32_t)steps_done(job), LOOK_MS);
        cause_fault(job);
        restart(job, error);
        audit(job);
        if (steps_done(job) >= job->wanted_steps * 2 / 3 || harpe_clock_ns() > faults_end_ns)
            become_calm(job);
    }
    become_calm(job);
    harpe_thread_join(end_of_faults);
}

/* At the end nothing is left: no process except the server, and no held GPU. */
static void check_end(world_job *job) {
    int failed;
    int64_t until_ns = harpe_clock_ns() + 70 * SECOND;
    atomic_store(&job->run->board->stop, 1);
    while (harpe_sim_ranks_left(&job->ranks, &failed) > 0 && harpe_clock_ns() < until_ns)
        harpe_sleep_ns(LOOK_MS * MILLISECOND);
    if (harpe_sim_ranks_left(&job->ranks, &failed) > 0)
        world_accuse(&job->notes, "the ranks do not end");
    harpe_sim_ranks_end(&job->ranks, note_late, job);
    check_gpus_are_back(job);
    int64_t end_ns = harpe_clock_ns();
    harpe_sleep_until((job->stalled_until_ns > end_ns ? job->stalled_until_ns : end_ns) + SECOND);
    if (harpe_world_pick(HARPE_CONTROLLER_ARGUMENT) >= 0)
        world_accuse(&job->notes, "a controller is left");
}

static world_job *staged; /* the job of the launcher below */

static harpe_status launch(harpe_sim_run *run, harpe_error *error) {
    world_job *job = staged;
    job->run = run;
    job->own = harpe_process_self();
    void *library = dlopen(run->board->library, RTLD_NOW | RTLD_LOCAL);
    if (library) {
        *(void **)&job->use_faults = dlsym(library, "harpe_emulator_use_faults");
        *(void **)&job->energy = dlsym(library, "harpe_emulator_energy");
    }
    job->idle_mhz = read_idle_clock();
    harpe_disk_faults lying = {.ignores_syncs = job->options->sabotage == WORLD_IGNORES_SYNCS};
    harpe_disk_set_faults(run->server->disk, &lying);
    harpe_status status = harpe_sim_ranks_init(run, &job->ranks, error);
    if (status == HARPE_OK) status = harpe_sim_ranks_start(&job->ranks, error);
    if (status == HARPE_OK) {
        train(job, error);
        check_end(job);
        check_rounds(job);
        check_steps(job);
        job->result->steps = steps_done(job);
    }
    harpe_sim_ranks_free(&job->ranks);
    if (library) (void)dlclose(library);
    job->result->turns = harpe_world_turns();
    job->result->virtual_s = (double)harpe_clock_ns() * 1e-9;
    return status;
}

/* ---- The shape of the job -------------------------------------------------------------------- */

static uint64_t draw(uint64_t *random, uint64_t count) {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return *random % count;
}

static void write_log(void *user, harpe_log_level level, const char *line) {
    const world_job *job = user;
    (void)level;
    world_tell(&job->notes, "log: %s", line);
}

world_job_result world_job_run(const world_job_options *options) {
    world_job_result result = {.last_round = -1};
    world_job job = {.options = options,
                     .result = &result,
                     .notes = {options->trace, result.fault},
                     .accepted_round = -1,
                     .told_round = -1};
    uint64_t random = options->seed * UINT64_C(0x9E3779B97F4A7C15) + 88172645463325252U;
    for (int i = 0; i < 10; i++)
        (void)draw(&random, 2);
    bool is_short = draw(&random, 4) != 0;
    bool is_plain = is_short && draw(&random, 3) != 0; /* rounds without a plan */
    int ranks = options->ranks > 0 ? options->ranks
                                   : 1 + (int)draw(&random, is_short ? SHORT_RANKS_MAX : RANKS_MAX);
    int dp = ranks % 2 == 0 && draw(&random, 3) == 0 ? 2 : 1;
    job.wanted_steps = options->steps > 0
                           ? options->steps
                           : (is_short ? 12 : 30) + (int)draw(&random, is_short ? 20 : 60);
    job.fault_ns = (is_short ? 3 : 20) * SECOND;
    harpe_sim_options simulated = {.gpu_model = draw(&random, 2) ? "A100" : "H100",
                                   .imbalance =
                                       ranks > dp ? 1 + (double)draw(&random, 30) / 100 : 1,
                                   .forward_time_s = 0.02 + (double)draw(&random, 100) / 1000,
                                   .seed = 1 + draw(&random, 1000),
                                   .physics = draw(&random, 2) ? "real" : NULL,
                                   .blocking_power_w = -1,
                                   .has_no_report = true,
                                   .looks_rarely = draw(&random, 4) != 0,
                                   .schedule_name = "1f1b",
                                   .microbatches = 2 + (int)draw(&random, is_short ? 2 : 6),
                                   .scheduler = is_plain ? "AllMaxFrequency" : NULL,
                                   .scheduler_args = is_plain   ? NULL
                                                     : is_short ? "{\"frequency_stride\": 8}"
                                                                : NULL,
                                   .pp = ranks / dp,
                                   .dp = dp,
                                   .tp = 1,
                                   .steps = 10,
                                   .time_scale = 1,
                                   .learning_limit_s = LONGEST_S,
                                   .is_quiet = !options->trace,
                                   .log = {write_log, &job}};
    const harpe_world_options world = {.seed = options->seed,
                                       .shuffles = true,
                                       .longest_ns = (int64_t)(LONGEST_S * 1e9),
                                       .most_turns = MOST_TURNS};
    const harpe_transport_options messages = {
        .latency_ns = MILLISECOND / 10, .fate = draw_fate, .answered = see_answer, .user = &job};
    const harpe_sim_staging staging = {.launch = launch, .world = &world, .messages = &messages};
    harpe_error error = {.status = HARPE_OK};
    result.ranks = ranks;
    staged = &job;
    harpe_status status = harpe_sim_run_job(&simulated, &staging, &error);
    if (status != HARPE_OK && !*result.fault)
        (void)snprintf(result.fault, sizeof result.fault, "%s", error.message);
    free(job.schedules);
    return result;
}
