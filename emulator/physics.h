/* SPDX-License-Identifier: Apache-2.0 */
/* What one emulated GPU does over time: its state, and the law by which the state moves from one
 * moment to a later one. Pure arithmetic on a struct: no clock is read and no lock is taken here
 * (cluster.c does both). */
#ifndef HARPE_EMULATOR_PHYSICS_H
#define HARPE_EMULATOR_PHYSICS_H

#include <stdbool.h>
#include <stdint.h>

#include "models.h"

enum {
    EMULATOR_WORK_MAX = 16,    /* works on one GPU at once */
    EMULATOR_POINT_MAX = 256,  /* frequencies of one profile row */
    EMULATOR_HISTORY_MAX = 64, /* changes of power remembered for the 1 s average */
    EMULATOR_CONTEXT_MAX = 64, /* processes with a context on one GPU at once */
};

typedef struct emulator_owner {
    int32_t pid;
    uint64_t start_ticks; /* tells a process from a later one with the same pid */
} emulator_owner;

/* A row of a measured profile: ascending clocks. Belongs to the work in the slot of its index. */
typedef struct emulator_points {
    uint32_t count;
    double least_s; /* no clock makes it faster; 0: not known */
    struct {
        double clock_mhz, time_s, power_w;
    } point[EMULATOR_POINT_MAX];
} emulator_points;

typedef struct emulator_work {
    uint64_t id; /* 0: the slot is free */
    emulator_owner owner;
    bool is_done;
    bool has_points;        /* follows the slot's emulator_points instead of the next two */
    bool is_enqueued;       /* by a host that ran ahead: see emulator_start_enqueued */
    int64_t started_ns;     /* valid when is_enqueued */
    int64_t enqueued_ns;    /* real time: when its owner really came */
    double full_speed_s;    /* duration at the highest clock */
    double compute_share;   /* of that, what scales with the clock */
    double remaining;       /* 1 at the start, 0 at the end */
    int64_t finished_ns;    /* valid when is_done */
    int64_t heartbeat_ns;   /* real time: when its owner was last seen waiting for it */
    uint64_t used_memory_b; /* what its process is shown to hold */
} emulator_work;

/* What a process holds on a GPU from its first work until it exits, as a CUDA context. */
typedef struct emulator_context {
    emulator_owner owner; /* pid 0: the slot is free */
    uint64_t memory_b;
} emulator_context;

/* Times are emulated ns unless the name says otherwise. */
typedef struct emulator_state {
    int64_t now_ns;           /* everything below holds for this moment */
    double energy_mj;         /* of the module where the GPU is part of one */
    double counter_mj;        /* energy when the counter last stepped */
    double counter_origin_mj; /* energy when the counter last restarted */
    double temperature_c;
    double busy_s;
    uint32_t power_limit_mw;
    uint32_t outside_limit_mw; /* one that does not come through the driver; 0: none */
    uint32_t persistence;
    uint32_t graphics_lock_minimum_mhz, graphics_lock_maximum_mhz; /* 0: not locked */
    uint32_t memory_lock_minimum_mhz, memory_lock_maximum_mhz;
    uint32_t compute_mode;
    struct {
        uint64_t power_limit, clocks, persistence;
    } writes; /* set calls that were obeyed, ever */
    bool is_lost;
    bool is_waiting;   /* for a peer */
    double blocking_w; /* while it does */
    int64_t floor_ns;  /* what was before is settled: see emulator_rewind */
    emulator_owner waiting_owner;
    int64_t waiting_checked_ns; /* real time */
    uint64_t works_started;
    emulator_work work[EMULATOR_WORK_MAX];
    emulator_context context[EMULATOR_CONTEXT_MAX];
    double last_power_w;
    uint32_t history_count; /* ever written; the last EMULATOR_HISTORY_MAX are kept */
    struct {
        int64_t at_ns;
        double energy_mj, busy_s;
    } history[EMULATOR_HISTORY_MAX];
} emulator_state;

/* What a GPU does at one moment. */
typedef struct emulator_operation {
    bool is_busy, is_waiting, is_power_capped, is_user_capped;
    uint32_t graphics_mhz, memory_mhz;
    double power_w;
    unsigned int work_count; /* that share the GPU */
} emulator_operation;

void emulator_state_start(emulator_state *state, const emulator_model *model, int64_t now_ns);
emulator_operation emulator_operate(const emulator_state *state, const emulator_model *model,
                                    const emulator_points *points);
/* Emulated seconds until the work in `slot` is done if nothing changes (other works ending make it
 * sooner). */
double emulator_time_left_s(const emulator_state *state, const emulator_model *model,
                            const emulator_points *points, unsigned int slot);
/* Moves the state to `to_ns`; nothing happens when that is in the past. */
void emulator_advance(emulator_state *state, const emulator_model *model,
                      const emulator_points *points, double energy_step_s, int64_t to_ns);
/* Takes the state back to an earlier moment, since which the GPU did nothing but wait; the counter
 * keeps what it has shown. Not before `floor_ns`, nor beyond what is remembered. */
void emulator_rewind(emulator_state *state, int64_t to_ns);
/* Moves the state to where enqueued work that was ready at `ready_ns` starts: the past, when the
 * GPU has been waiting since. */
void emulator_start_enqueued(emulator_state *state, int64_t ready_ns);
/* A clock that is set now was wished for before the GPU's only work was enqueued: takes the state
 * back to `delay_s` after the start of that work, if there is one that was enqueued at
 * `since_real_ns` or later. */
void emulator_start_again(emulator_state *state, const emulator_model *model,
                          const emulator_points *points, double energy_step_s, double delay_s,
                          int64_t since_real_ns);
/* Drawn until then; a moment ahead of the state counts as the state's. */
double emulator_energy_at_mj(const emulator_state *state, int64_t at_ns);
/* The lower of the limit that was set and the one from outside. */
uint32_t emulator_enforced_limit_mw(const emulator_state *state);
/* Of the GPU, over the last emulated second. */
double emulator_average_power_w(const emulator_state *state, const emulator_model *model,
                                double instant_power_w);
double emulator_busy_share(const emulator_state *state, bool is_busy);

#endif
