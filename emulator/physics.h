/* SPDX-License-Identifier: Apache-2.0 */
/* The behaviour of one emulated GPU over time: its state, and the rules by which the state changes
 * from one moment to a later one. The functions only calculate on a struct. Other files read the
 * clock and take the locks. */
#ifndef HARPE_EMULATOR_PHYSICS_H
#define HARPE_EMULATOR_PHYSICS_H

#include <stdbool.h>
#include <stdint.h>

#include "effects.h"
#include "models.h"

enum {
    EMULATOR_WORK_MAX = 16,    /* works on one GPU at the same time */
    EMULATOR_POINT_MAX = 256,  /* frequencies of one row of a profile */
    EMULATOR_HISTORY_MAX = 64, /* changes of power that are kept for the 1 s average */
    EMULATOR_CHANGE_MAX = 32,  /* changes of clock that are kept; see switching.h */
    EMULATOR_CONTEXT_MAX = 64, /* processes with a context on one GPU at the same time */
};

typedef struct emulator_owner {
    int32_t pid;
    uint64_t start_ticks; /* distinguishes a process from a later process with the same pid */
} emulator_owner;

/* A row of a measured profile, in order of rising clocks. The row belongs to the work in the slot
 * with the same index. */
typedef struct emulator_points {
    uint32_t count;
    double least_s; /* shortest time, which higher clocks do not reduce; 0: not known */
    struct {
        double clock_mhz, time_s, power_w;
    } point[EMULATOR_POINT_MAX];
} emulator_points;

typedef struct emulator_work {
    uint64_t id; /* 0: the slot is free */
    emulator_owner owner;
    bool is_done;
    bool has_points;        /* follows the slot's emulator_points, not the model */
    bool is_enqueued;       /* enqueued ahead of time by the host; see emulator_start_enqueued */
    bool ignores_lock;      /* no lock of the graphics clock slows it */
    int64_t started_ns;     /* valid when is_enqueued */
    int64_t enqueued_ns;    /* real time at which the owner made the call */
    double full_speed_s;    /* duration at the highest clock */
    double compute_share;   /* share of the duration that scales with the clock */
    uint32_t workload;      /* index of the workload plus 1; 0: the work is no iteration of one */
    double stretch;         /* factor of the duration of an iteration of a workload */
    double pace;            /* factor of the duration; 0: 1 */
    double remaining;       /* 1 at the start, 0 at the end */
    int64_t finished_ns;    /* valid when is_done */
    int64_t heartbeat_ns;   /* real time of the owner's last heartbeat */
    uint64_t used_memory_b; /* memory of the process that NVML reports */
} emulator_work;

/* The memory that a process holds on a GPU from its first work until it exits, like a CUDA context.
 */
typedef struct emulator_context {
    emulator_owner owner; /* pid 0: the slot is free */
    uint64_t memory_b;
} emulator_context;

/* The constants of one GPU. */
typedef struct emulator_chip {
    const emulator_model *model;
    const emulator_effects *effects;
    const emulator_points *points; /* EMULATOR_WORK_MAX rows */
    double energy_step_s;          /* interval of the energy counter; 0: continuous */
} emulator_chip;

/* A range of graphics clocks to which a GPU is locked. 0: not locked. */
typedef struct emulator_clock_range {
    uint32_t minimum_mhz, maximum_mhz;
} emulator_clock_range;

/* Times are emulated ns unless the name says otherwise. */
typedef struct emulator_state {
    int64_t began_ns;         /* when the GPU was created */
    int64_t now_ns;           /* the moment for which the values below are valid */
    double energy_mj;         /* energy of the module if it is counted */
    double counter_mj;        /* energy at the last step of the counter */
    double counter_origin_mj; /* energy at the last restart of the counter */
    double temperature_c;
    int32_t degrees_c;     /* what leakage, times and thermal limits follow; see heat.h */
    double leakage_growth; /* factor of the leakage at `degrees_c` */
    double busy_s;
    uint32_t power_limit_mw;
    uint32_t outside_limit_mw; /* a limit that was not set through the driver; 0: none */
    uint32_t persistence;
    emulator_clock_range graphics_lock; /* until the first entry of `change` */
    uint32_t change_count;
    struct {
        int64_t at_ns;
        emulator_clock_range range;
    } change[EMULATOR_CHANGE_MAX]; /* in order of time; the last may be in the future */
    uint64_t clock_requests;       /* number of requests to lock or unlock late clocks */
    int64_t calls_at_ns;           /* time of calls that set a clock; 0: the present */
    uint32_t memory_lock_minimum_mhz, memory_lock_maximum_mhz;
    uint32_t compute_mode;
    struct {
        uint64_t power_limit, clocks, persistence;
    } writes; /* number of calls that have changed a setting since the GPU was created */
    bool is_lost;
    int64_t lost_ns;   /* when the GPU was lost */
    bool is_waiting;   /* waits for a peer */
    double blocking_w; /* owner of that wait */
    int64_t floor_ns;  /* earlier moments cannot change: see emulator_rewind */
    emulator_owner waiting_owner;
    int64_t waiting_checked_ns; /* real time */
    uint64_t works_started;
    uint32_t slot_count; /* slots from the first to the last that has had a work; at least 1 */
    emulator_work work[EMULATOR_WORK_MAX];
    emulator_context context[EMULATOR_CONTEXT_MAX];
    int64_t contexts_checked_ns; /* real time of the last check for dead owners */
    double last_power_w;
    int32_t last_degrees_c;
    /* number of changes written so far; the last EMULATOR_HISTORY_MAX are kept */
    uint32_t history_count;
    struct {
        int64_t at_ns;
        double energy_mj, busy_s, temperature_c;
        int32_t degrees_c;
    } history[EMULATOR_HISTORY_MAX];
} emulator_state;

/* The activity of a GPU at one moment. */
typedef struct emulator_operation {
    bool is_busy, is_waiting, is_power_capped, is_user_capped;
    bool is_thermally_capped, is_slowed_down, is_board_capped;
    uint32_t graphics_mhz, memory_mhz;
    uint32_t work_mhz; /* the graphics clock at which works run; another if they ignore a lock */
    double power_w;
    double activity;         /* share of the time in which a busy GPU computes */
    unsigned int work_count; /* works that share the GPU */
} emulator_operation;

void emulator_state_start(emulator_state *state, const emulator_chip *chip, int64_t now_ns);
/* Gives a lost GPU back as a reset does: with its default settings, without work, and with a
 * counter that starts again from 0. */
void emulator_state_reset(emulator_state *state, const emulator_chip *chip);
emulator_operation emulator_operate(const emulator_state *state, const emulator_chip *chip);
/* Returns when a GPU at its power limit changes its clock next, or INT64_MAX if it has no such
 * change before it. */
int64_t emulator_next_wander_ns(const emulator_state *state, const emulator_chip *chip,
                                const emulator_operation *operation);
/* Returns the emulated seconds until the work in `slot` is done, or until the next change of clock
 * or temperature if that is earlier. Other works that end earlier shorten this time. */
double emulator_time_left_s(const emulator_state *state, const emulator_chip *chip,
                            unsigned int slot);
/* Returns the emulated seconds until the work in `slot` would be done in this operation. */
double emulator_time_left_at_s(const emulator_state *state, const emulator_chip *chip,
                               unsigned int slot, const emulator_operation *operation);
static inline bool emulator_is_running(const emulator_work *work) {
    return work->id != 0 && !work->is_done;
}
/* Returns the power that the energy counter counts in addition to that of the GPU. */
static inline double emulator_counted_rest_w(const emulator_chip *chip) {
    return chip->effects->counts_gpu ? 0 : chip->model->module_rest_w;
}
unsigned int emulator_running_count(const emulator_state *state);
/* Returns true if a work, also one that is done, is in a slot. */
bool emulator_has_work(const emulator_state *state);

/* Returns the range of clocks that holds at a time. */
emulator_clock_range emulator_lock_in_force(const emulator_state *state, int64_t at_ns);
/* Returns the time of the next change of clock, or INT64_MAX. */
int64_t emulator_next_change_ns(const emulator_state *state);

/* Moves the state to `to_ns`. Does nothing if `to_ns` is before the state's time. */
void emulator_advance(emulator_state *state, const emulator_chip *chip, int64_t to_ns);
/* Moves the state back to an earlier moment. Since that moment the GPU must have only waited. The
 * counter keeps the value that it shows. Does not go back before `floor_ns` or before the stored
 * changes. */
void emulator_rewind(emulator_state *state, const emulator_chip *chip, int64_t to_ns);
/* Moves the state to the start of enqueued work that was ready at `ready_ns`. The start is in the
 * past if the GPU has been waiting since then. */
void emulator_start_enqueued(emulator_state *state, const emulator_chip *chip, int64_t ready_ns);
/* Applies a clock that is set late from the start of the GPU's only work. Moves the state back to
 * `delay_s` after the start of this work, if the work was enqueued at `since_real_ns` or later.
 * Does nothing if the GPU has another work. */
void emulator_start_again(emulator_state *state, const emulator_chip *chip, double delay_s,
                          int64_t since_real_ns);
/* Returns the energy drawn until `at_ns`, or until the state's time if that is earlier. */
double emulator_energy_at_mj(const emulator_state *state, int64_t at_ns);
/* Returns the lower of the limit that was set and the limit from outside. */
uint32_t emulator_enforced_limit_mw(const emulator_state *state);
/* Returns the average power of the GPU over the last emulated second, or over average_s. */
double emulator_average_power_w(const emulator_state *state, const emulator_chip *chip,
                                double instant_power_w);
double emulator_busy_share(const emulator_state *state, bool is_busy);

#endif
