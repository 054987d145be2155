/* SPDX-License-Identifier: Apache-2.0 */
/* The structures of the server's fleet: members, groups with budgets, events, and prices. Only the
 * loop uses them, except the solver while a worker solves. This header declares no functions.
 *
 * Three powers of a member must not be mixed up. Its plans say what it draws with a plan (planned).
 * Its results say what it drew in its last round (measured). Counted is the highest power that it
 * may draw now, as far as the server knows. Budgets are kept with counted powers. */
#ifndef HARPE_SERVER_FLEET_FLEET_STATE_H
#define HARPE_SERVER_FLEET_FLEET_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/fleet.h>

#include "rights/tokens.h"

enum {
    HARPE_FLEET_TEXT_MAX = 255,      /* longest name, id or note from a client, in bytes */
    HARPE_FLEET_MEMBERS_MAX = 10000, /* declared members, and loads */
    HARPE_FLEET_EVENTS_MAX = 1000,
    HARPE_FLEET_SERIES_MAX = 10000, /* prices */
};

/* The wall clock is for events and prices, whose times are times of day. It may jump. The steady
 * clock measures how long a member has not answered. Both are in s. */
typedef struct harpe_fleet_now {
    double wall_s, steady_s;
} harpe_fleet_now;

/* ---- Members --------------------------------------------------------------------------------- */

typedef enum harpe_member_kind {
    HARPE_MEMBER_JOB,      /* a job of the engine */
    HARPE_MEMBER_DECLARED, /* declared by a client, which asks for its plan */
    HARPE_MEMBER_LOAD,     /* cannot be steered */
} harpe_member_kind;

/* What a job says of itself, or what an operator says of it. NAN or an empty group: not said. */
typedef struct harpe_member_terms {
    char group[HARPE_FLEET_TEXT_MAX + 1];
    bool has_group;
    double weight, max_slowdown, priority;
    double most_w;    /* never send it a higher cap */
    double highest_w; /* what it may draw before it has plans */
} harpe_member_terms;

/* For jobs of the engine: what engine_link.c knows of a job's rounds and plans. */
typedef struct harpe_member_rounds {
    int64_t round;         /* the round that was handed out last; -1: none */
    int64_t reported;      /* the last round with all results; -1: none */
    int64_t follows_after; /* a report of a later round confirms the cap; INT64_MAX: not known */
    double reported_s;     /* steady time of the last report; 0: none */
    bool wants_plans, is_reading;        /* the frontier must be read, and is being read */
    double read_s;                       /* steady time of the last attempt; 0: none */
    int64_t plan_count;                  /* of the frontier that was read; -1: none */
    int64_t plan, plan_from;             /* the running plan, and the first round that runs it */
    double shift_time_s, shift_energy_j; /* the job's figures minus those of its plans */
} harpe_member_rounds;

typedef struct harpe_member {
    char *id, *name;
    harpe_member_kind kind;
    harpe_member_terms said, told; /* `told` comes from PUT /fleet/jobs, and goes first */
    int group;
    size_t world_size;

    /* Plans, fastest first. The times include all of an iteration. Powers are the job's own
     * predictions. */
    harpe_fleet_plan *plans;
    size_t plan_count;
    bool is_learning; /* it runs other clocks than those of a plan */
    bool is_refused;  /* it accepts no caps; `reason` says why */
    char reason[200]; /* one line; "": none */

    double scale;       /* measured power over predicted power; at least 1 */
    double measured_w;  /* in the last round; negative: not known */
    double unplanned_w; /* the highest measured power, for the time without plans */

    /* Caps are predicted powers. INFINITY: no cap. */
    double cap_w;        /* the last one that was decided */
    double most_w;       /* the highest one that it may follow now */
    double stored_w;     /* of a declared member: the last one that is in the store */
    bool was_steered;    /* some cap was decided */
    bool is_waiting;     /* the last cap is not confirmed */
    bool has_command;    /* the last cap was not given to the member yet */
    double sent_s;       /* steady time of the last decision */
    double heard_s;      /* steady time of its last sign of life */
    double heard_wall_s; /* the same time of the wall clock */
    double round_s;      /* how long a round takes; 0: not known */
    bool is_silent;      /* has not answered for too long */
    bool has_reported;   /* a declared member, since this server runs */
    bool is_overdue;     /* does not answer while a budget needs its lower cap */

    /* The solution. */
    int solver_job;    /* -1: none */
    bool is_dirty;     /* the solver has other data */
    bool is_steered;   /* in the solver: with plans; false: with one power */
    double solver_w;   /* in the solver: this power, if it is not steered */
    size_t first_plan; /* in the solver: its first plan is this one */
    bool has_target;
    size_t target; /* the plan that the solver has chosen */
    double gain_per_w;
    bool may_exceed; /* an event permits more than max_slowdown */

    harpe_member_rounds rounds;
    uint64_t stamp; /* the last tick that saw the job */
    bool is_stored; /* its cap and scale are in the store, or on their way */
    bool is_sending;
} harpe_member;

/* ---- Groups and budgets ---------------------------------------------------------------------- */

typedef struct harpe_fleet_group_state {
    char *name;                /* "" for group 0, the whole fleet */
    int parent;                /* -1 for group 0 */
    harpe_fleet_budget budget; /* watts < 0: none; the overhead is at least 1 */

    /* Computed by limits.c. Sums include the groups inside. They are powers of members, without the
     * overhead, except the first two, which are powers at the meter of the budget. */
    double now_watts;   /* the budget less events and ramps; negative: none */
    double ahead_watts; /* the least of now_watts from now until members can follow */
    double limit_w;     /* of now_watts; INFINITY: none */
    double ahead_w;     /* of ahead_watts: what is decided for; INFINITY: none */
    double counted_w, planned_w, least_w;
    double measured_w;  /* of the members that have measured their power */
    size_t unmeasured;  /* members that have not */
    double answered_w;  /* least_w if all members that are overdue, but not silent, answer */
    double price_per_w; /* of the last solution */
    bool is_over;       /* the last tick has measured more than the limit */
    uint64_t breaches;
} harpe_fleet_group_state;

/* ---- Events ---------------------------------------------------------------------------------- */

typedef struct harpe_fleet_event {
    int64_t id;
    char group[HARPE_FLEET_TEXT_MAX + 1];
    char note[HARPE_FLEET_TEXT_MAX + 1];
    char key[HARPE_FLEET_TEXT_MAX + 1]; /* of the client, so that a repeated request changes
                                         * nothing; "": none */
    double posted_s, from_s, duration_s, notice_s, ramp_s;
    double watts, share;   /* one of them is NAN */
    double base_w;         /* the counted power when it was posted, for a group without budget */
    double promised_w;     /* the limit at the meter that was announced when it was posted; NAN: it
                            * comes from a store of an older version, which did not keep this */
    double missing_w;      /* what was missing for it then; NAN: as above */
    double cancelled_s;    /* 0: not cancelled */
    bool may_exceed;       /* jobs may be slower than they accept */
    double reached_s;      /* when the measured power came below the promise; 0: not yet */
    double highest_w;      /* the highest measured power while it had to hold; negative: none */
    double kept_highest_w; /* the one that is in the store */
    int64_t breaches;      /* how often the measured power was above the promise meanwhile */
    bool is_breached;      /* it was, in the last tick */
    double over_since_s; /* when this server first saw that it is over; steady clock; 0: not yet */
} harpe_fleet_event;

typedef enum harpe_fleet_event_state {
    HARPE_EVENT_PLANNED,
    HARPE_EVENT_ANNOUNCED,
    HARPE_EVENT_ACTIVE,
    HARPE_EVENT_RAMP,
    HARPE_EVENT_OVER,
    HARPE_EVENT_CANCELLED,
} harpe_fleet_event_state;

/* ---- Prices ---------------------------------------------------------------------------------- */

typedef struct harpe_fleet_price_point {
    double at_s, energy_per_kwh, carbon_g_per_kwh;
} harpe_fleet_price_point;

typedef struct harpe_fleet_prices {
    char currency[16];
    double carbon_per_kg;
    double value_per_s; /* 0: not said. Then prices only value energy, and splits ignore them */
    harpe_fleet_price_point *points; /* by time */
    size_t count;
    double set_s;
} harpe_fleet_prices;

/* ---- All of it ------------------------------------------------------------------------------- */

/* What an operator has said of a job, by the job's id. */
typedef struct harpe_fleet_override {
    char *id;
    harpe_member_terms terms;
} harpe_fleet_override;

/* What the fleet's sums contain of a job of the engine, until the job is evicted. It is stored in
 * the same note as the sums. So what a job has used is added once, whatever restarts. */
typedef struct harpe_fleet_account {
    char *id;
    /* The job's figures when they were last added: what is above them is added next. Each of them
     * is valid or not. */
    bool has_used, has_saved;
    double used_j, saved_j;
    double counted_j;     /* how much of used_j the sums contain */
    double uncertainty_j; /* of the savings in the sums */
    double kept_j;        /* the used_j that is in the store */
    uint64_t stamp;       /* the last look that saw the job */
} harpe_fleet_account;

typedef struct harpe_fleet_energy {
    double since_s; /* 0: nothing was counted yet */
    double used_j, saved_j, cost, cost_saved, carbon_kg, carbon_kg_saved;
    double kept_uncertainty_j; /* of the savings whose accounts an older version has not stored */
    double gone_variance;      /* of the savings of jobs that are gone, in J^2 */
    harpe_fleet_account **accounts;
    size_t account_count, account_capacity;
    bool is_counting; /* jobs that begin now count from their first joule */
    bool is_known;    /* after a restart: the figures of all jobs have been added */
    bool has_price;
    bool has_currency; /* false: not known, as in notes of older versions; the next prices set it */
    char currency[16]; /* of the costs; "": the prices have none */
} harpe_fleet_energy;

typedef struct harpe_fleet_state {
    harpe_member **members;
    size_t member_count, member_capacity;
    harpe_fleet_group_state *groups; /* [0]: the whole fleet */
    size_t group_count, group_capacity;
    harpe_group_tree tree;     /* the same groups by name, for the rights of tokens */
    harpe_fleet_event *events; /* by id */
    size_t event_count, event_capacity;
    int64_t last_event;
    harpe_fleet_override *overrides;
    size_t override_count, override_capacity;
    harpe_fleet_prices prices;
    harpe_fleet_energy energy;
    uint64_t revision; /* grows with every change of settings and with every solution */

    /* The solver. While `is_solving`, only the worker uses it. */
    harpe_fleet *solver;
    bool needs_solver; /* it must be made anew, because the groups have changed */
    bool is_solving, must_solve;
    int *removed; /* jobs of the solver whose members are gone */
    size_t removed_count, removed_capacity;
    double *solver_watts; /* [group] the limit in the solver; NAN: not set yet */
    int *solver_group_of; /* [group] */
    harpe_fleet_price solver_price;
    harpe_fleet_split split;
    harpe_status solve_status;
    harpe_error solve_error;
    bool has_split;
} harpe_fleet_state;

#endif
