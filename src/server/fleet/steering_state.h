/* SPDX-License-Identifier: Apache-2.0 */
/* The structure of the fleet's host on the loop. steering.c and steering_work.c share it. */
#ifndef HARPE_SERVER_FLEET_STEERING_STATE_H
#define HARPE_SERVER_FLEET_STEERING_STATE_H

#include "server/engine/engine.h"
#include "server/fleet/fleet_state.h"
#include "server/fleet/history.h"

typedef struct harpe_steering harpe_steering;
struct harpe_fleet_work;

struct harpe_steering {
    harpe_jobs_options options;
    harpe_jobs *jobs;
    harpe_fleet_state state;
    harpe_fleet_history *history;
    harpe_timer *timer; /* NULL: nothing is steered, or it stops */
    bool is_stopping;
    bool was_set;                 /* at the last tick, a budget, an event or a price was set */
    bool was_counting;            /* in the store, energy is counted */
    harpe_fleet_price kept_price; /* at which the energy in the store ends */
    uint64_t stamp;               /* of the last look at the jobs */
    harpe_work solve_work;
    struct harpe_fleet_work *work; /* in flight: notes that are stored, and calls to jobs */
    int reading;                   /* frontiers that are being read */
    harpe_call_list waiting;       /* new events that wait for plans, or for the one before */
    double waiting_s;              /* since this steady time */
    bool is_posting;               /* an event is being stored; others wait */
    harpe_call_list changes;       /* of jobs, members, loads, groups and budgets; each waits
                                    * for the one before */
    bool is_changing;              /* one of them is being stored */
    harpe_call_list budgets;       /* stored; their answers wait for plans */
    double budgets_s;              /* since this steady time */
    double kept_s;                 /* steady time of the last record of sums */
};

#endif
