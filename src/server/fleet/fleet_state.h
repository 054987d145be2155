/* SPDX-License-Identifier: Apache-2.0 */
/* The structures of the server's fleet: members, groups with budgets, events, and prices. Only the
 * loop uses them, except the solver while a worker solves. The functions are in the order of the
 * files that define them, and only for the files of this folder.
 *
 * Three powers of a member must not be mixed up. Its plans say what it draws with a plan (planned).
 * Its results say what it drew in its last round (measured). Counted is the highest power that it
 * may draw now, as far as the server knows. Budgets are kept with counted powers. */
#ifndef HARPE_SERVER_FLEET_FLEET_STATE_H
#define HARPE_SERVER_FLEET_FLEET_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include <harpe/fleet.h>

#include "base/text.h"
#include "fleet/price_series.h"
#include "rights/tokens.h"
#include "server/engine/engine.h"

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

/* The numbers among the terms, with their ranges. */
enum { HARPE_TERM_COUNT = 5 };
typedef struct harpe_term {
    const char *name;
    size_t offset; /* of a double in harpe_member_terms */
    double least, most;
} harpe_term;
extern const harpe_term harpe_terms[HARPE_TERM_COUNT];

static inline double *harpe_term_in(harpe_member_terms *terms, const harpe_term *term) {
    return (double *)(void *)((char *)terms + term->offset);
}

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
    double promised_w;     /* the limit at the meter that was announced when it was posted. Its
                            * result is judged by this limit, whatever changes later */
    double missing_w;      /* what was missing for it then; 0: nothing */
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

typedef struct harpe_fleet_prices {
    char currency[16];
    double carbon_per_kg;
    double value_per_s; /* 0: not said. Then prices only value energy, and splits ignore them */
    harpe_fleet_file_price *points; /* by time */
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
    double gone_variance; /* of the savings of jobs that are gone, in J^2 */
    harpe_fleet_account **accounts;
    size_t account_count, account_capacity;
    bool is_counting; /* jobs that begin now count from their first joule */
    bool is_known;    /* after a restart: the figures of all jobs have been added */
    bool has_price;
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

/* ---- Notes ----------------------------------------------------------------------------------- */

/* Notes are the fleet's durable state, as pairs of a key and a JSON text. A change of a setting is
 * made by applying the note that was stored, and a restart applies all stored notes, so both lead
 * to the same state.
 *
 * budget/GROUP, group/NAME, job/ID (what an operator said), load/NAME, member/NAME (declared),
 * event/NUMBER, prices, energy, cap/ID and cap-of/NAME (what was decided for a job or a declared
 * member), plans/ID (of a job). history belongs to history.c. */
typedef struct harpe_fleet_note {
    char *key, *text; /* malloc'ed; an empty text removes the note */
} harpe_fleet_note;

/* ---- members.c ------------------------------------------------------------------------------- */

/* Adds a member. Returns NULL if memory runs out. */
harpe_member *harpe_member_add(harpe_fleet_state *state, harpe_member_kind kind, const char *id);
/* Removes the member with this place in the list, and frees it. */
void harpe_member_remove(harpe_fleet_state *state, size_t index);
/* Returns NULL if there is none. */
harpe_member *harpe_member_find(const harpe_fleet_state *state, harpe_member_kind kind,
                                const char *id);

harpe_member_terms harpe_member_no_terms(void);
/* Returns what an operator has said of a job. */
harpe_member_terms harpe_member_told(const harpe_fleet_state *state, const char *id);
/* Reads the words fleet_group=, fleet_weight=, fleet_max_slowdown=, fleet_priority=, fleet_most_w=
 * and fleet_highest_w= of a job's metadata (NULL: none). A word that cannot be read says nothing.
 * `name` (of HARPE_FLEET_TEXT_MAX + 1 bytes) receives fleet_name=, or "". */
harpe_member_terms harpe_member_read_words(const char *metadata, char *name);
/* The terms that hold: those of the operator, then those of the job, then defaults. */
double harpe_member_weight(const harpe_member *member);
double harpe_member_max_slowdown(const harpe_member *member); /* 0: any */
double harpe_member_priority(const harpe_member *member);
double harpe_member_own_most_w(const harpe_member *member); /* INFINITY: no cap of its own */

/* Returns the most power that the member's GPUs can draw, if their number is known. */
double harpe_member_possible_w(const harpe_member *member);

/* Takes over `plans`, sorts them, and drops plans that are not valid. `count` 0: none. */
void harpe_member_set_plans(harpe_member *member, harpe_fleet_plan *plans, size_t count);
/* Returns true if the member can be given another plan now. */
bool harpe_member_can_follow(const harpe_member *member);
/* Returns the number of the fastest plan whose predicted power is within `cap_w`, or the slowest
 * plan. */
size_t harpe_member_plan_within(const harpe_member *member, double cap_w);
/* Returns the first plan that the solver may choose: its own cap excludes those before. */
size_t harpe_member_first_plan(const harpe_member *member);

/* Returns the highest power of its plans, with its scale. */
double harpe_member_highest_w(const harpe_member *member);
/* Returns the power that the member may draw now. */
double harpe_member_counted_w(const harpe_member *member);
/* Returns the power that it may draw if it gets `cap_w` now. */
double harpe_member_counted_with(const harpe_member *member, double cap_w);
/* Returns the power that its present plan predicts, with its scale. */
double harpe_member_planned_w(const harpe_member *member);
/* Returns the least counted power that the solver can give it. `exceeds`: slower than it accepts.
 */
double harpe_member_least_w(const harpe_member *member, bool exceeds);
/* Returns what harpe_member_least_w would return if the member answered. */
double harpe_member_answering_w(const harpe_member *member, bool exceeds);

/* Decides a cap. It counts from now on. */
void harpe_member_decide(harpe_member *member, double cap_w, harpe_fleet_now now);
/* The member has shown a sign of life. */
void harpe_member_hear(harpe_member *member, harpe_fleet_now now);
/* The member has run a whole round under its last cap. */
void harpe_member_confirm(harpe_member *member);
/* The member has measured its power in a round. `predicted_w` is what its plan predicts for this
 * round (0: it ran no plan). */
void harpe_member_measure(harpe_member *member, double power_w, double predicted_w);
/* A declared member reports the plan that it runs (-1: not said) and its power (negative: not
 * said). */
void harpe_member_follow(harpe_member *member, int64_t plan, double power_w, harpe_fleet_now now);
/* Finds out whether the member is silent or overdue. `is_exceeded`: a limit of its groups is. */
void harpe_member_watch(harpe_member *member, bool is_exceeded, harpe_fleet_now now);

/* Returns true if a member was steered, or has a command or gets one. */
bool harpe_members_have_commands(const harpe_fleet_state *state);
/* Returns true if the plans of a job that has some are not read yet. */
bool harpe_members_lack_plans(const harpe_fleet_state *state);
/* While nothing was set, clients may have set caps, so the frontiers must be read again. */
void harpe_members_forget_own_caps(const harpe_fleet_state *state);

/* Returns the number of the group, or -1. "" is group 0. */
int harpe_groups_find(const harpe_fleet_state *state, const char *name);
/* Returns true if no group can be added. */
bool harpe_groups_are_full(const harpe_fleet_state *state);
/* Returns the number of the group, which is made inside of the whole fleet if it does not exist.
 * Returns -1 if memory runs out or there are too many groups. */
int harpe_groups_need(harpe_fleet_state *state, const char *name);
/* Returns true if `parent` may become the parent of `group`: it is not inside of it, and not too
 * deep. */
bool harpe_groups_may_contain(const harpe_fleet_state *state, int parent, int group);
void harpe_groups_set_parent(harpe_fleet_state *state, int group, int parent);
/* Returns true if members, groups or a budget are in the group. */
bool harpe_groups_is_used(const harpe_fleet_state *state, int group);
/* Removes a group that is not used. The numbers of other groups change. */
void harpe_groups_remove(harpe_fleet_state *state, int group);
/* Gives a member its group. */
void harpe_groups_place(harpe_fleet_state *state, harpe_member *member);

/* Makes the state of a fleet without members: group 0 and nothing else. `state` is zeroed memory.
 * Returns false if memory runs out. Then, too, call harpe_fleet_end. */
bool harpe_fleet_begin(harpe_fleet_state *state);
/* Frees all that the state owns. No worker may solve any more. */
void harpe_fleet_end(harpe_fleet_state *state);

/* ---- limits.c -------------------------------------------------------------------------------- */

harpe_fleet_event *harpe_fleet_event_find(const harpe_fleet_state *state, int64_t id);
harpe_fleet_event_state harpe_fleet_event_state_of(const harpe_fleet_event *event, double at_s);
const char *harpe_fleet_event_state_name(harpe_fleet_event_state state);
/* Returns the time at which the event ends. */
double harpe_fleet_event_end_s(const harpe_fleet_event *event);
/* Returns the watts at the meter that a group may have at a moment: its budget less the events that
 * run then. Negative: any. */
double harpe_fleet_events_watts(const harpe_fleet_state *state, int group, double at_s);
/* Returns the highest limit at the meter that the event's group has while the event runs. The event
 * is not in the state yet. */
double harpe_fleet_event_limit_w(const harpe_fleet_state *state, const harpe_fleet_event *event);
/* Returns true if the event has begun or begins before `until_s`, and its ramp is not over. */
bool harpe_fleet_event_counts(const harpe_fleet_event *event, double at_s, double until_s);
/* Removes each event that has been over for a week, or for an hour if it is not among the newest
 * 200, in the time of the steady clock since this server first saw that it is over. Such a one that
 * is not among the newest 1200 is removed at once. So a wall clock that is wrong for a while
 * removes no event of a usual number. Calls `gone` for each of them, so that the caller can
 * remove it from the store. */
void harpe_fleet_events_prune(harpe_fleet_state *state, harpe_fleet_now now,
                              void (*gone)(void *user, int64_t id), void *user);

/* Returns true if a budget is set, an event is not over, or a price is set. Otherwise nothing is
 * steered. */
bool harpe_limits_are_set(const harpe_fleet_state *state, double at_s);
/* Computes the members of all groups that depend on time and on members, and which members may
 * exceed their slowdown. */
void harpe_limits_update(harpe_fleet_state *state, harpe_fleet_now now);
/* Computes only the sums of powers. */
void harpe_limits_sum(harpe_fleet_state *state);
/* Returns true if the counted power of the group, or of a group around it, is above its limit, or
 * above the limit of an event for which it must be lowered now. */
bool harpe_limits_are_exceeded(const harpe_fleet_state *state, int group);
/* Compares the measured power with limits and promises. Returns true if an event has changed in a
 * way that must be stored. */
bool harpe_limits_watch(harpe_fleet_state *state, harpe_fleet_now now);
/* Returns what is missing for `watts` at the meter of the group: how much more its members draw at
 * least. 0: nothing. */
double harpe_limits_missing_w(const harpe_fleet_state *state, int group, double watts,
                              bool may_exceed);

/* ---- decide.c -------------------------------------------------------------------------------- */

/* Brings the solver up to date, after harpe_limits_update. Returns true if it must solve. Then call
 * harpe_decide_solve, on any thread, and after it harpe_decide_take. */
bool harpe_decide_prepare(harpe_fleet_state *state, harpe_fleet_now now);
void harpe_decide_solve(harpe_fleet_state *state);
/* Takes the solution. Fails if the solver has failed. */
harpe_status harpe_decide_take(harpe_fleet_state *state, harpe_error *error);
/* Decides caps so that the members come to their plans of the solution. Lowers at once. Raises a
 * member only if the counted power of all of its groups stays within their limits. Sets has_command
 * of the members that get a new cap. */
void harpe_decide_caps(harpe_fleet_state *state, harpe_fleet_now now);
/* Decides for all members that they get no cap but their own, because nothing is set any more. */
void harpe_decide_release(harpe_fleet_state *state, harpe_fleet_now now);
/* Returns the price at a moment. Zeros: none. */
harpe_fleet_price harpe_decide_price(const harpe_fleet_state *state, double at_s);
void harpe_decide_free(harpe_fleet_state *state);

/* ---- requests.c ------------------------------------------------------------------------------ */

/* Checks a request that changes a setting, and makes the note that carries it out. `id` is the
 * call's name of what it changes, or NULL. On failure `*http_status` is 404, 409, 422 or 503, and
 * `error` has one line. Changes nothing, except that a new event gets the next number. */
harpe_status harpe_bodies_read(harpe_fleet_state *state, harpe_call_kind kind, const char *id,
                               const char *text, size_t length, double now_s, harpe_fleet_note *out,
                               int *http_status, harpe_error *error);

/* Reads what a declared member reports: the plan that it follows (-1: not said) and its measured
 * power (negative: not said). */
harpe_status harpe_bodies_read_report(const char *text, size_t length, int64_t *plan,
                                      double *power_w, harpe_error *error);

/* Reads the body of a power cap. Returns false if it is not valid. */
bool harpe_bodies_read_watts(const char *body, size_t length, double *watts);

/* Returns true if the call's scope covers all groups that the call is about. Otherwise writes one
 * line that says which group is needed. What does not exist is left to the caller. */
bool harpe_fleet_is_in_scope(const harpe_fleet_state *state, const harpe_call *call, char *line,
                             size_t size);

/* ---- notes.c --------------------------------------------------------------------------------- */

void harpe_fleet_note_clear(harpe_fleet_note *note);

/* Applies a note. Fails with HARPE_INVALID_INPUT if it cannot be read; then the state is as
 * before. `is_loading`: the note comes from the store at the start. */
harpe_status harpe_notes_apply(harpe_fleet_state *state, const char *key, const char *text,
                               size_t length, bool is_loading, harpe_error *error);

/* Makes the note KEY, where KEY is `prefix` and `id`. Takes over `object` (NULL: memory ran out).
 * Returns false if memory runs out. */
bool harpe_notes_make(const char *prefix, const char *id, json_t *object, harpe_fleet_note *out);
/* Make notes of the present state. They return false if memory runs out. */
bool harpe_notes_of_cap(const harpe_member *member, harpe_fleet_note *out);
bool harpe_notes_of_plans(const harpe_member *member, harpe_fleet_note *out);
bool harpe_notes_of_event(const harpe_fleet_event *event, harpe_fleet_note *out);
bool harpe_notes_of_energy(const harpe_fleet_state *state, harpe_fleet_note *out);
bool harpe_notes_of_terms(const char *id, const harpe_member_terms *terms, harpe_fleet_note *out);
/* Makes a note without text, which removes KEY. */
bool harpe_notes_of_nothing(const char *prefix, const char *id, harpe_fleet_note *out);

/* ---- engine_link.c --------------------------------------------------------------------------- */

typedef struct harpe_frontier_plans {
    harpe_fleet_plan *plans; /* whole iterations, in the order of the frontier */
    size_t count;
    double power_cap_w; /* the cap that the job has now; 0: none */
    /* The measured time and energy outside of the pipeline, less those that caps count. */
    double shift_time_s, shift_energy_j;
} harpe_frontier_plans;

/* Reads the JSON of GET /jobs/{id}/frontier. `count` is 0 if the job has no plans yet. Free the
 * plans with free(). Can be called on any thread. */
harpe_status harpe_frontier_plans_read(const char *text, size_t length, harpe_frontier_plans *out,
                                       harpe_error *error);

/* What a job has used and saved since it began, in J. */
typedef struct harpe_fleet_used {
    double used_j, saved_j;
    double uncertainty_j; /* of saved_j */
    bool has_saved;       /* false: the two above are not known (yet) */
} harpe_fleet_used;

/* Returns what a joule at the meter costs, with the price of its carbon. */
double harpe_fleet_cost_per_j(const harpe_fleet_price *price);
/* Begins or ends to count. Energy counts while a budget, an event or a price is set. */
void harpe_fleet_energy_begin(harpe_fleet_state *state, double at_s);
void harpe_fleet_energy_end(harpe_fleet_state *state);
/* Returns the account of a job, or adds one. `is_new`: the job has begun while energy is counted,
 * so all of its energy counts. NULL: no memory. */
harpe_fleet_account *harpe_fleet_account_need(harpe_fleet_state *state, const char *id,
                                              bool is_new);
/* Adds what the job has used and saved since the last call, with the price of this moment. */
void harpe_fleet_account_take(harpe_fleet_state *state, harpe_fleet_account *account, double at_s,
                              harpe_fleet_used figures);
void harpe_fleet_accounts_free(harpe_fleet_state *state);
/* Returns the uncertainty of the savings in the sums, in J. */
double harpe_fleet_energy_uncertainty_j(const harpe_fleet_state *state);

/* Brings the members up to date with the jobs. `gone` is called for each member that is removed
 * because its job is gone. `stamp` must be a new number in each call. */
void harpe_engine_link_look(harpe_fleet_state *state, harpe_jobs *jobs, harpe_fleet_now now,
                            uint64_t stamp, void (*gone)(void *user, const harpe_member *member),
                            void *user);
/* Adds the last energy of a job that will be evicted. Returns true if the store does not have it
 * yet. */
bool harpe_engine_link_settle(harpe_fleet_state *state, const harpe_job_glance *glance,
                              double at_s);

/* ---- show.c ---------------------------------------------------------------------------------- */

/* Returns "none", "within", "lowering", "over" or "infeasible". */
const char *harpe_fleet_state_name(const harpe_fleet_state *state, double at_s);
/* Returns "follows", "lowering", "raising", "learning", "silent" or "not steered". `is_set`: a
 * budget, an event or a price is set. Without one, nothing is steered. */
const char *harpe_fleet_member_state_name(const harpe_member *member, bool is_set);
/* Appends everything. Call harpe_limits_update before. Leaves out jobs, budgets, groups and events
 * of groups that `scope` (NULL: all) does not cover. */
void harpe_fleet_show(const harpe_fleet_state *state, const char *scope, harpe_fleet_now now,
                      harpe_text *text);
/* Appends what POST /fleet/events answers. */
void harpe_fleet_show_event_answer(const harpe_fleet_state *state, int64_t id, harpe_text *text);
/* Appends what PUT /fleet/budget answers. Call harpe_limits_update before. */
void harpe_fleet_show_budget_answer(const harpe_fleet_state *state, const char *group,
                                    harpe_text *text);
/* Appends what a declared member gets: its plan and its cap. */
void harpe_fleet_show_plan(const harpe_member *member, double cap_w, harpe_text *text);

/* Appends the metrics for Prometheus. Appends nothing if no budget, event or price is set. */
void harpe_fleet_metrics(const harpe_fleet_state *state, harpe_fleet_now now, harpe_text *text);

/* ---- history.c ------------------------------------------------------------------------------- */

typedef struct harpe_fleet_history harpe_fleet_history;

/* Returns NULL if memory runs out. */
harpe_fleet_history *harpe_fleet_history_new(void);
void harpe_fleet_history_free(harpe_fleet_history *history);
/* Adds a sample. Call it as often as you like; samples of the same 10 s are averaged. `limit_w` is
 * negative if there is no limit. */
void harpe_fleet_history_add(harpe_fleet_history *history, double at_s, double measured_w,
                             double counted_w, double limit_w);
/* Appends at most `points` points from `from_s` to `to_s` as JSON. */
void harpe_fleet_history_show(const harpe_fleet_history *history, double from_s, double to_s,
                              size_t points, harpe_text *text);
/* _save appends all minutes as a JSON object, also the minute that has not ended. _load reads them
 * back. A minute that was read back counts as one sample. */
void harpe_fleet_history_save(const harpe_fleet_history *history, harpe_text *text);
void harpe_fleet_history_load(harpe_fleet_history *history, const char *text, size_t length);

#endif
