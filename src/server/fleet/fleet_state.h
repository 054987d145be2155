/* SPDX-License-Identifier: Apache-2.0 */
/* The structures of the server's fleet: members, groups with budgets, events, and prices. Only the
 * loop uses these structures, but while a worker solves, only the worker uses the solver. Only the
 * files of this folder call the functions, which are in the order of the files that define them.
 *
 * Three powers of a member must not be mixed up. The planned power is what the member should draw
 * with its plan. The measured power is what the member drew in its last round, as its results say.
 * The counted power is the highest power that the member may draw now, as far as the server knows.
 * The server keeps budgets by counted powers. */
#ifndef HARPE_SERVER_FLEET_FLEET_STATE_H
#define HARPE_SERVER_FLEET_FLEET_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include <harpe/fleet.h>

#include "base/text.h"
#include "fleet/fleet_tools.h"
#include "rights/tokens.h"
#include "server/engine/engine.h"

enum {
    HARPE_FLEET_TEXT_MAX = 255,      /* longest name, id or note from a client, in bytes */
    HARPE_FLEET_MEMBERS_MAX = 10000, /* declared members, and loads */
    HARPE_FLEET_EVENTS_MAX = 1000,
    HARPE_FLEET_SERIES_MAX = 10000, /* prices */
};

/* The wall clock is for events and prices, whose times are times of day. The wall clock may jump.
 * The steady clock measures how long a member has not answered. Both are in s. */
typedef struct harpe_fleet_now {
    double wall_s, steady_s;
} harpe_fleet_now;

/* ---- Members --------------------------------------------------------------------------------- */

typedef enum harpe_member_kind {
    HARPE_MEMBER_JOB,      /* a job of the engine */
    HARPE_MEMBER_DECLARED, /* declared by a client, which asks for its plan */
    HARPE_MEMBER_LOAD,     /* cannot be steered */
} harpe_member_kind;

/* The terms of a member: those that a job or declared member sets for itself, or those that an
 * operator sets for a job. NAN: this term is not set. `has_group` says whether the group is set. */
typedef struct harpe_member_terms {
    char group[HARPE_FLEET_TEXT_MAX + 1];
    bool has_group;
    double weight, max_slowdown, priority;
    double most_w;    /* the highest cap that the member may get */
    double highest_w; /* what the member may draw before it has plans */
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

/* What engine_link.c knows of the rounds and plans of a job of the engine. */
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
    harpe_member_terms said, told; /* `told` is from PUT /fleet/jobs, and overrides `said` */
    int group;
    size_t world_size;

    /* Plans, fastest first. Times are those of whole iterations. Powers are the job's own
     * predictions. */
    harpe_fleet_plan *plans;
    size_t plan_count;
    bool is_learning; /* it runs other clocks than those of a plan */
    bool is_refused;  /* it accepts no caps; `reason` says why */
    char reason[200]; /* one line; "": none */

    double scale;       /* measured power over predicted power; at least 1 */
    double measured_w;  /* in the last round; negative: not known */
    double unplanned_w; /* the highest power that was measured without plans */

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
    bool has_reported;   /* a declared member has reported since this server started */
    bool is_overdue;     /* does not answer while a budget needs its lower cap */

    /* The solution. */
    int solver_job;    /* -1: none */
    bool is_dirty;     /* the solver does not have its present data */
    bool is_steered;   /* the solver has its plans; false: the solver has one power */
    double solver_w;   /* the power in the solver, if is_steered is false */
    size_t first_plan; /* the first of its plans that the solver has */
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

    /* limits.c computes these members. A sum also contains the groups inside of the group.
     * `now_watts` and `ahead_watts` are powers at the meter of the budget; all other powers are
     * powers of members, without the overhead. */
    double now_watts;   /* the budget less events and ramps; negative: none */
    double ahead_watts; /* the least of now_watts from now until members can follow */
    double limit_w;     /* what members may draw by now_watts; INFINITY: any */
    double ahead_w;     /* by ahead_watts: decisions keep this limit; INFINITY: any */
    double counted_w, planned_w, least_w;
    double measured_w;  /* of the members that have measured their power */
    size_t unmeasured;  /* number of members that have not measured their power */
    double answered_w;  /* least_w if all members that are overdue, but not silent, answer */
    double price_per_w; /* of the last solution */
    bool is_over;       /* at the last tick the measured power was above the limit */
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
    double promised_w;     /* the limit at the meter that was announced when it was posted. The
                            * event is judged by this limit, whatever changes later */
    double missing_w;      /* what was missing for promised_w at that time; 0: nothing */
    double cancelled_s;    /* 0: not cancelled */
    bool may_exceed;       /* jobs may be slower than they accept */
    double reached_s;      /* when the measured power came down to promised_w; 0: not yet */
    double highest_w;      /* the highest measured power in the time to be kept; negative: none */
    double kept_highest_w; /* the highest_w that is in the store */
    int64_t breaches;      /* how often, in this time, the measured power rose above promised_w */
    bool is_breached;      /* at the last tick, the measured power was above promised_w */
    double over_since_s;   /* steady time when this server first saw that it is over; 0: not yet */
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

/* The terms that an operator has set for a job with PUT /fleet/jobs/ID. The job need not be a
 * member yet. */
typedef struct harpe_fleet_override {
    char *id;
    harpe_member_terms terms;
} harpe_fleet_override;

/* The part of the fleet's sums that comes from one job of the engine. The account exists until the
 * job is evicted. The accounts and the sums are stored in one note, so the energy of a job is added
 * to the sums exactly once, even if servers restart. */
typedef struct harpe_fleet_account {
    char *id;
    /* The job's figures at the last addition. The next addition adds what is above them. `has_used`
     * and `has_saved` say which of the two figures is valid. */
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
    int *solver_group_of; /* [group] */
    harpe_fleet_split split;
    harpe_status solve_status;
    harpe_error solve_error;
    bool has_split;
} harpe_fleet_state;

/* ---- Notes ----------------------------------------------------------------------------------- */

/* Notes are the durable state of the fleet. A note is a pair of a key and a JSON text. To change a
 * setting, the server stores a note and then applies it. After a restart, the server applies all
 * stored notes, and so has the same state.
 *
 * The keys are budget/GROUP, group/NAME, job/ID (the terms that an operator has set), load/NAME,
 * member/NAME (a declared member), event/NUMBER, prices, energy, cap/ID and cap-of/NAME (the cap
 * that was decided for a job or a declared member), and plans/ID (the plans of a job). The note
 * with the key history belongs to show.c. */
typedef struct harpe_fleet_note {
    char *key, *text; /* malloc'ed; an empty text removes the note */
} harpe_fleet_note;

/* ---- members.c ------------------------------------------------------------------------------- */

/* Adds a member. Returns NULL if memory runs out. */
harpe_member *harpe_member_add(harpe_fleet_state *state, harpe_member_kind kind, const char *id);
/* Removes the member with this place in the list, and frees it. */
void harpe_member_remove(harpe_fleet_state *state, size_t index);
/* Finds the member of this kind with this id. Returns NULL if there is no such member. */
harpe_member *harpe_member_find(const harpe_fleet_state *state, harpe_member_kind kind,
                                const char *id);

harpe_member_terms harpe_member_no_terms(void);
/* Returns the terms that an operator has set for the job `id` with PUT /fleet/jobs/ID. Returns
 * terms of which none is set if no operator has done so. */
harpe_member_terms harpe_member_told(const harpe_fleet_state *state, const char *id);
/* Reads the words fleet_group=, fleet_weight=, fleet_max_slowdown=, fleet_priority=, fleet_most_w=
 * and fleet_highest_w= of a job's metadata (NULL: none). A word that cannot be read is ignored.
 * `name` (of HARPE_FLEET_TEXT_MAX + 1 bytes) receives fleet_name=, or "". */
harpe_member_terms harpe_member_read_words(const char *metadata, char *name);
/* These functions return the term that holds for the member: the operator's, or else the member's
 * own, or else the default. */
double harpe_member_weight(const harpe_member *member);
double harpe_member_max_slowdown(const harpe_member *member); /* 0: any */
double harpe_member_priority(const harpe_member *member);
double harpe_member_own_most_w(const harpe_member *member); /* INFINITY: no cap of its own */

/* Returns the most power that the member's GPUs can draw; 1e8 W if their number is not known. */
double harpe_member_possible_w(const harpe_member *member);

/* Takes over `plans`, sorts them, and drops plans that are not valid. `count` 0: none. */
void harpe_member_set_plans(harpe_member *member, harpe_fleet_plan *plans, size_t count);
/* Returns true if the member can be given another plan now. */
bool harpe_member_can_follow(const harpe_member *member);
/* Returns the number of the fastest plan whose predicted power is within `cap_w`, or the slowest
 * plan. */
size_t harpe_member_plan_within(const harpe_member *member, double cap_w);
/* Returns the number of the first plan that the solver may choose for the member. The member's own
 * cap excludes the plans before it. */
size_t harpe_member_first_plan(const harpe_member *member);

/* Returns the highest power of the member's plans, times its scale. */
double harpe_member_highest_w(const harpe_member *member);
/* Returns the power that the member may draw now. */
double harpe_member_counted_w(const harpe_member *member);
/* Returns the power that the member may draw from now on if it gets the cap `cap_w`. */
double harpe_member_counted_with(const harpe_member *member, double cap_w);
/* Returns the predicted power, times the member's scale, of the plan that the member's last cap
 * selects. If the member cannot follow another plan now, returns its counted power. */
double harpe_member_planned_w(const harpe_member *member);
/* Returns the least counted power that the solver can give the member. `exceeds`: the solver may
 * also choose plans that are slower than the member accepts. */
double harpe_member_least_w(const harpe_member *member, bool exceeds);
/* Returns what harpe_member_least_w would return if the member answered. */
double harpe_member_answering_w(const harpe_member *member, bool exceeds);

/* Decides a cap for the member. The member counts with this cap from now on. */
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
/* Finds out whether the member is silent or overdue. `is_exceeded`: a limit of the member's groups
 * is exceeded. */
void harpe_member_watch(harpe_member *member, bool is_exceeded, harpe_fleet_now now);

/* Returns true if a member was steered, has a command that was not sent yet, or is being sent
 * one. */
bool harpe_members_have_commands(const harpe_fleet_state *state);
/* Returns true if a job has plans that the server must still read, or is reading. */
bool harpe_members_lack_plans(const harpe_fleet_state *state);
/* Makes the server read again the frontiers of all jobs that it has not steered. Call this when the
 * first budget, event or price is set, because clients may have set caps while none was set. */
void harpe_members_forget_own_caps(const harpe_fleet_state *state);

/* Returns the number of the group, or -1. "" is group 0. */
int harpe_groups_find(const harpe_fleet_state *state, const char *name);
/* Returns true if no group can be added. */
bool harpe_groups_are_full(const harpe_fleet_state *state);
/* Returns the number of the group, which is made inside of the whole fleet if it does not exist.
 * Returns -1 if memory runs out or there are too many groups. */
int harpe_groups_need(harpe_fleet_state *state, const char *name);
/* Returns true if `parent` may become the parent of `group`: `parent` is not inside of `group`, and
 * no group becomes too deep. */
bool harpe_groups_may_contain(const harpe_fleet_state *state, int parent, int group);
void harpe_groups_set_parent(harpe_fleet_state *state, int group, int parent);
/* Returns true if members, groups or a budget are in the group. */
bool harpe_groups_is_used(const harpe_fleet_state *state, int group);
/* Removes a group that is not used. The numbers of other groups change. */
void harpe_groups_remove(harpe_fleet_state *state, int group);
/* Puts a member into the group that its terms name, and makes this group if it does not exist. If
 * the group cannot be made, puts the member into group 0. */
void harpe_groups_place(harpe_fleet_state *state, harpe_member *member);

/* Makes the state of a fleet without members: group 0 and nothing else. `state` is zeroed memory.
 * Returns false if memory runs out. In this case, too, the caller must call harpe_fleet_end. */
bool harpe_fleet_begin(harpe_fleet_state *state);
/* Frees all that the state owns. Call this only when no worker is solving. */
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
/* Removes events that are over. One of the newest 200 events is removed after a week, another one
 * of the newest 1200 after an hour, and any other at once. The steady clock measures these times
 * from the moment when this server first saw that the event is over. So a wall clock that is wrong
 * for less than an hour removes none of the newest 1200 events. Calls `gone` for each removed
 * event, so that the caller can remove the event from the store. */
void harpe_fleet_events_prune(harpe_fleet_state *state, harpe_fleet_now now,
                              void (*gone)(void *user, int64_t id), void *user);

/* Returns true if a budget is set, an event is not over, or a price is set. Otherwise the server
 * steers no member. */
bool harpe_limits_are_set(const harpe_fleet_state *state, double at_s);
/* Computes the limits and sums of all groups at this time, and finds out which members may exceed
 * their highest accepted slowdown. */
void harpe_limits_update(harpe_fleet_state *state, harpe_fleet_now now);
/* Computes only the sums of powers of all groups. */
void harpe_limits_sum(harpe_fleet_state *state);
/* Returns true if the counted power of the group, or of a group around it, is above its limit, or
 * above the limit of an event for which it must be lowered now. */
bool harpe_limits_are_exceeded(const harpe_fleet_state *state, int group);
/* Compares the measured powers with the limits of groups and the promises of events. Returns true
 * if an event has changed in a way that must be stored. */
bool harpe_limits_watch(harpe_fleet_state *state, harpe_fleet_now now);
/* Returns how far the least power of the group's members, as the meter of the group shows it, is
 * above `watts`, in W. Returns 0 if it is not above. `may_exceed`: members may be slower than they
 * accept. */
double harpe_limits_missing_w(const harpe_fleet_state *state, int group, double watts,
                              bool may_exceed);

/* ---- decide.c -------------------------------------------------------------------------------- */

/* Brings the data of the solver up to date. Call this after harpe_limits_update. Returns true if
 * the solver must solve: then call harpe_decide_solve, on any thread, and after it
 * harpe_decide_take. */
bool harpe_decide_prepare(harpe_fleet_state *state, harpe_fleet_now now);
void harpe_decide_solve(harpe_fleet_state *state);
/* Takes the solution. Fails if the solver has failed. */
harpe_status harpe_decide_take(harpe_fleet_state *state, harpe_error *error);
/* Decides the caps that bring the members to the plans that the solver has chosen. Lowers a member
 * at once. Raises a member only if the counted power of all of its groups stays within their
 * limits. Sets has_command of the members that get a new cap. */
void harpe_decide_caps(harpe_fleet_state *state, harpe_fleet_now now);
/* Decides for every member that it keeps only its own cap, if it has one. Call this when no budget,
 * event or price is set any more. */
void harpe_decide_release(harpe_fleet_state *state, harpe_fleet_now now);
/* Returns the price at a moment. Zeros: there is no price. */
harpe_fleet_price harpe_decide_price(const harpe_fleet_state *state, double at_s);
void harpe_decide_free(harpe_fleet_state *state);

/* ---- requests.c ------------------------------------------------------------------------------ */

/* Checks a request that changes a setting, and makes the note that carries it out. `id` is the
 * name, in the call, of what the call changes, or NULL. On failure `*http_status` is 404, 409, 422,
 * 429 or 503, and `error` has one line. Changes nothing, except that a new event gets the next
 * number. */
harpe_status harpe_bodies_read(harpe_fleet_state *state, harpe_call_kind kind, const char *id,
                               const char *text, size_t length, double now_s, harpe_fleet_note *out,
                               int *http_status, harpe_error *error);

/* Reads what a declared member reports: the plan that it follows (-1: not said) and its measured
 * power (negative: not said). */
harpe_status harpe_bodies_read_report(const char *text, size_t length, int64_t *plan,
                                      double *power_w, harpe_error *error);

/* Reads the body of a power cap. Returns false if it is not valid. */
bool harpe_bodies_read_watts(const char *body, size_t length, double *watts);

/* Returns true if the call's scope covers all groups that the call is about, and if its client may
 * claim the power that the call claims. Otherwise writes one line that says why not. Does not check
 * that the load, declared member or event of a call exists. */
bool harpe_fleet_is_in_scope(const harpe_fleet_state *state, const harpe_call *call, char *line,
                             size_t size);

/* ---- notes.c --------------------------------------------------------------------------------- */

void harpe_fleet_note_clear(harpe_fleet_note *note);

/* Applies a note. Fails with HARPE_INVALID_INPUT if the note cannot be read; the state is then as
 * before. `is_loading`: the note comes from the store at the start. */
harpe_status harpe_notes_apply(harpe_fleet_state *state, const char *key, const char *text,
                               size_t length, bool is_loading, harpe_error *error);

/* Makes a note. Its key is `prefix` followed by `id`, and its text is that of `object`, which the
 * function takes over (NULL: memory ran out). Returns false if memory runs out. */
bool harpe_notes_make(const char *prefix, const char *id, json_t *object, harpe_fleet_note *out);
/* Does the same with a text, which the function takes over. */
bool harpe_notes_of_text(const char *prefix, const char *id, char *text, harpe_fleet_note *out);
/* These functions make notes of the present state. They return false if memory runs out. */
bool harpe_notes_of_cap(const harpe_member *member, harpe_fleet_note *out);
bool harpe_notes_of_plans(const harpe_member *member, harpe_fleet_note *out);
bool harpe_notes_of_event(const harpe_fleet_event *event, harpe_fleet_note *out);
bool harpe_notes_of_energy(const harpe_fleet_state *state, harpe_fleet_note *out);
bool harpe_notes_of_terms(const char *id, const harpe_member_terms *terms, harpe_fleet_note *out);
/* Makes a note without a text. Such a note removes the stored note with the same key, which is
 * `prefix` followed by `id`. */
bool harpe_notes_of_nothing(const char *prefix, const char *id, harpe_fleet_note *out);

/* ---- engine_link.c --------------------------------------------------------------------------- */

typedef struct harpe_frontier_plans {
    harpe_fleet_plan *plans; /* whole iterations, in the order of the frontier */
    size_t count;
    double power_cap_w; /* the cap that the job has now; 0: none */
    /* The measured time and energy outside of the pipeline, minus the time and energy that a
     * scheduler adds when it compares a plan with a cap. `plans` contain the latter. */
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
    bool has_saved;       /* false: saved_j and uncertainty_j are not known (yet) */
} harpe_fleet_used;

/* Returns what a joule at the meter costs, with the price of its carbon. */
double harpe_fleet_cost_per_j(const harpe_fleet_price *price);
/* Begin and end to count energy. Energy counts while a budget, an event or a price is set. */
void harpe_fleet_energy_begin(harpe_fleet_state *state, double at_s);
void harpe_fleet_energy_end(harpe_fleet_state *state);
/* Returns the account of a job, and adds one if there is none. `is_new`: the job has begun while
 * energy is counted, so all of its energy counts. NULL: no memory. */
harpe_fleet_account *harpe_fleet_account_need(harpe_fleet_state *state, const char *id,
                                              bool is_new);
/* Adds to the sums what the job has used and saved since the last call, with the price at
 * `at_s`. */
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
 * budget, an event or a price is set. Without any of them, the server steers no member. */
const char *harpe_fleet_member_state_name(const harpe_member *member, bool is_set);
/* Appends the answer to GET /fleet. Call harpe_limits_update before. Leaves out the jobs, budgets,
 * groups and events of each group that `scope` (NULL: all groups) does not cover. */
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

/* ---- show.c: history ------------------------------------------------------------------------- */

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
/* harpe_fleet_history_save appends all minutes, with the minute that has not ended, as a JSON
 * object. harpe_fleet_history_load reads such an object. A minute that was read from it counts as
 * one sample. */
void harpe_fleet_history_save(const harpe_fleet_history *history, harpe_text *text);
void harpe_fleet_history_load(harpe_fleet_history *history, const char *text, size_t length);

#endif
