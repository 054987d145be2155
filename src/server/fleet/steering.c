/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the fleet on the server's loop. A timer looks at the jobs, gives what has changed to the
 * solver on a worker, and decides caps. A cap is stored before it is given to its job. So after a
 * crash, the stored caps include every cap that a job may follow. */
#include "server/fleet/steering.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/log.h"
#include "server/engine/engine.h"
#include "server/fleet/bodies.h"
#include "server/fleet/decide.h"
#include "server/fleet/engine_link.h"
#include "server/fleet/fleet_events.h"
#include "server/fleet/fleet_life.h"
#include "server/fleet/fleet_scope.h"
#include "server/fleet/groups.h"
#include "server/fleet/history.h"
#include "server/fleet/limits.h"
#include "server/fleet/member.h"
#include "server/fleet/metrics_fleet.h"
#include "server/fleet/notes.h"
#include "server/fleet/show.h"
#include "server/fleet/steering_state.h"
#include "server/fleet/steering_work.h"

enum {
    TICK_MS = 500,
    KEEP_S = 300,      /* between two records of history and energy */
    EVENT_WAIT_S = 10, /* a new event waits so long for the plans of jobs, before it is answered */
};

static void tick(void *user);

static harpe_fleet_now now_of(const harpe_steering *self) {
    return (harpe_fleet_now){harpe_jobs_wall_s(self->jobs), harpe_jobs_steady_s(self->jobs)};
}

/* ---- Looking --------------------------------------------------------------------------------- */

static void job_is_gone(void *user, const harpe_member *member) {
    harpe_steering *self = user;
    if (member->was_steered) harpe_steering_erase(self, "cap/", member->id);
    if (member->plan_count > 0) harpe_steering_erase(self, "plans/", member->id);
}

static void look(harpe_steering *self) {
    harpe_fleet_now now = now_of(self);
    harpe_engine_link_look(&self->state, self->jobs, now, ++self->stamp, job_is_gone, self);
    harpe_limits_update(&self->state, now);
}

/* ---- Deciding -------------------------------------------------------------------------------- */

static void solve(void *user) { harpe_decide_solve(&((harpe_steering *)user)->state); }

static void is_solved(void *user) {
    harpe_steering *self = user;
    harpe_error error = {0};
    self->state.is_solving = false;
    if (self->is_stopping) return;
    if (harpe_decide_take(&self->state, &error) != HARPE_OK) {
        harpe_log_line(&self->options.log, HARPE_LOG_ERROR,
                       "the power budgets cannot be split: %s; tries again", error.message);
        return;
    }
    look(self);
    harpe_decide_caps(&self->state, now_of(self));
    harpe_steering_send_commands(self);
}

/* Splits the budgets again if something has changed. */
static void decide(harpe_steering *self) {
    harpe_fleet_state *state = &self->state;
    harpe_fleet_now now = now_of(self);
    if (state->is_solving) return;
    if (harpe_decide_prepare(state, now)) {
        state->is_solving = true;
        self->solve_work =
            (harpe_work){.work = solve, .done = is_solved, .user = self, .pool = HARPE_POOL_FLEET};
        harpe_workers_submit(self->options.workers, &self->solve_work);
        return;
    }
    harpe_limits_sum(state);
    harpe_decide_caps(state, now);
}

/* ---- What came ------------------------------------------------------------------------------- */

static void event_is_gone(void *user, int64_t id) {
    char number[24];
    (void)snprintf(number, sizeof number, "%" PRId64, id);
    harpe_steering_erase(user, "event/", number);
}

/* The terms that an operator has set for a job stay until the job is evicted. */
static void forget_gone_jobs(harpe_steering *self) {
    for (size_t i = self->state.override_count; i-- > 0;) {
        harpe_error error;
        harpe_fleet_note note;
        const char *id = self->state.overrides[i].id;
        if (harpe_jobs_have(self->jobs, id) || !harpe_notes_of_nothing("job/", id, &note)) continue;
        (void)harpe_notes_apply(&self->state, note.key, "", 0, false, &error);
        harpe_steering_store(self, &note, NULL, NULL);
    }
}

static void keep(harpe_steering *self, harpe_fleet_now now) {
    const harpe_fleet_group_state *all = &self->state.groups[0];
    harpe_fleet_history_add(self->history, now.wall_s, all->measured_w, all->counted_w,
                            isfinite(all->limit_w) ? all->limit_w : -1);
    bool has_changed = harpe_limits_watch(&self->state, now);
    for (size_t i = 0; i < self->state.event_count; i++) {
        harpe_fleet_event *event = &self->state.events[i];
        bool is_active = harpe_fleet_event_state_of(event, now.wall_s) == HARPE_EVENT_ACTIVE;
        /* The highest power rises often, so it is stored with something else, or at the end. */
        bool is_due = is_active ? has_changed : event->highest_w > event->kept_highest_w;
        if (is_due) harpe_steering_keep_event(self, event);
    }
    if (now.steady_s - self->kept_s < KEEP_S) return;
    self->kept_s = now.steady_s;
    harpe_steering_keep_sums(self);
    forget_gone_jobs(self);
    harpe_fleet_events_prune(&self->state, now, event_is_gone, self);
}

/* ---- The timer ------------------------------------------------------------------------------- */

static bool has_commands(const harpe_steering *self) {
    for (size_t i = 0; i < self->state.member_count; i++) {
        const harpe_member *member = self->state.members[i];
        if (member->has_command || member->is_sending || member->was_steered) return true;
    }
    return false;
}

static void run_later(harpe_steering *self) {
    harpe_error error;
    if (self->timer || self->is_stopping) return;
    if (harpe_loop_after(self->options.loop, TICK_MS, tick, self, &self->timer, &error))
        harpe_log_line(&self->options.log, HARPE_LOG_ERROR,
                       "cannot steer power budgets: out of memory");
}

static void answer_waiting(harpe_steering *self);
static void answer_budgets(harpe_steering *self);

/* While nothing was set, clients may have set caps, so the frontiers must be read again. */
static void forget_own_caps(const harpe_steering *self) {
    for (size_t i = 0; i < self->state.member_count; i++)
        if (!self->state.members[i]->was_steered) self->state.members[i]->rounds.plan_count = -1;
}

/* Stores the energy when counting begins or ends, because a job that the store does not know counts
 * from its first joule. Does the same when the price changes: what a server that is killed has not
 * stored gets the price of the restart. */
static void keep_energy_of_change(harpe_steering *self, harpe_fleet_now now) {
    const harpe_fleet_energy *energy = &self->state.energy;
    harpe_fleet_price price = harpe_decide_price(&self->state, now.wall_s);
    bool is_other = price.energy_per_kwh != self->kept_price.energy_per_kwh ||
                    price.carbon_g_per_kwh != self->kept_price.carbon_g_per_kwh;
    bool is_due = energy->is_counting && energy->is_known && is_other;
    if (!is_due && self->was_counting == energy->is_counting) return;
    self->kept_price = price;
    harpe_steering_keep_energy(self);
}

static void tick(void *user) {
    harpe_steering *self = user;
    self->timer = NULL;
    if (self->is_stopping) return;
    harpe_fleet_now now = now_of(self);
    bool is_set = harpe_limits_are_set(&self->state, now.wall_s);
    bool is_asked = self->waiting.count > 0;
    if (is_set && !self->was_set) forget_own_caps(self);
    self->was_set = is_set;
    look(self);
    keep_energy_of_change(self, now);
    if (is_set || is_asked) harpe_steering_read_plans(self, now);
    if (is_set) {
        decide(self);
        keep(self, now);
    } else {
        harpe_decide_release(&self->state, now);
    }
    harpe_steering_send_commands(self);
    if (is_asked) answer_waiting(self);
    answer_budgets(self);
    if (is_set || has_commands(self) || self->waiting.count > 0 || self->budgets.count > 0)
        run_later(self);
}

/* Begins to steer if something is set. */
static void wake(harpe_steering *self) {
    if (self->timer) harpe_timer_cancel(self->timer);
    self->timer = NULL;
    tick(self);
}

/* ---- Settings -------------------------------------------------------------------------------- */

static void answer_text(harpe_call *call, harpe_text *text) {
    if (text->failed) {
        harpe_text_free(text);
        harpe_reply_out_of_memory(call);
        return;
    }
    harpe_reply(call, 200, text->data, text->length, -1);
}

/* The answer about a budget that is stored waits for plans. The call gets the name of its group. */
static void wait_for_plans(harpe_steering *self, const harpe_fleet_note *note, harpe_call *call) {
    free(call->job_id);
    call->job_id = strdup(note->key + strlen("budget/"));
    if (!call->job_id) {
        harpe_reply_out_of_memory(call);
        return;
    }
    if (self->budgets.count == 0) self->budgets_s = now_of(self).steady_s;
    harpe_calls_append(&self->budgets, call);
    answer_budgets(self);
}

static void setting_is_stored(harpe_steering *self, const harpe_fleet_note *note, harpe_call *call,
                              harpe_status status, const harpe_error *fault) {
    harpe_error error = {0};
    harpe_text text = {0};
    if (status == HARPE_OK) {
        bool is_price = strcmp(note->key, "prices") == 0;
        if (is_price && !self->is_stopping) look(self); /* energy until now has the old price */
        status = harpe_notes_apply(&self->state, note->key, note->text, strlen(note->text), false,
                                   &error);
        fault = &error;
    }
    if (status != HARPE_OK) {
        harpe_reply_not_stored(call, fault);
        return;
    }
    if (!self->is_stopping) wake(self);
    if (!call) return;
    if (call->kind == HARPE_CALL_FLEET_POST_EVENT) {
        harpe_fleet_show_event_answer(&self->state, strtoll(note->key + strlen("event/"), NULL, 10),
                                      &text);
        answer_text(call, &text);
        return;
    }
    if (call->kind == HARPE_CALL_FLEET_PUT_BUDGET && !self->is_stopping) {
        wait_for_plans(self, note, call);
        return;
    }
    harpe_reply_null(call, -1);
}

/* Two events with the same key must be one event, so events are stored one after another. */
static void event_is_stored(harpe_steering *self, const harpe_fleet_note *note, harpe_call *call,
                            harpe_status status, const harpe_error *fault) {
    self->is_posting = false;
    setting_is_stored(self, note, call, status, fault);
    if (!self->is_stopping) answer_waiting(self);
}

/* Reads a setting, and stores it. Returns false if the call was answered instead. */
static bool change_setting(harpe_steering *self, harpe_call_kind kind, harpe_call *call,
                           const char *text, size_t length, harpe_note_stored *stored) {
    harpe_fleet_note note;
    harpe_error error = {0};
    int http_status;
    if (harpe_bodies_read(&self->state, kind, call->job_id, text, length, now_of(self).wall_s,
                          &note, &http_status, &error) != HARPE_OK) {
        harpe_reply_detail(call, http_status, "%s", error.message);
        return false;
    }
    harpe_steering_store(self, &note, call, stored);
    return true;
}

/* ---- Jobs, members, loads, groups and budgets ------------------------------------------------ */

/* Returns true, with a body for PUT /fleet/jobs, if a client's power cap is valid. */
static bool cap_body(const harpe_call *call, char *into, size_t size) {
    double watts;
    harpe_text number = {0};
    if (!harpe_bodies_read_watts(call->body, call->length, &watts)) return false;
    if (watts > 0)
        harpe_text_number(&number, watts);
    else
        harpe_text_printf(&number, "null");
    bool is_made = !number.failed && number.length < size / 2;
    if (is_made) (void)snprintf(into, size, "{\"most_w\":%s}", number.data);
    harpe_text_free(&number);
    return is_made;
}

static void make_changes(harpe_steering *self);

static void change_is_stored(harpe_steering *self, const harpe_fleet_note *note, harpe_call *call,
                             harpe_status status, const harpe_error *fault) {
    uint64_t moves = self->state.tree.moves;
    self->is_changing = false;
    setting_is_stored(self, note, call, status, fault);
    if (self->is_stopping) return;
    /* Tokens reach other jobs when a group has moved. */
    if (self->state.tree.moves != moves) harpe_jobs_regroup(self->jobs);
    make_changes(self);
}

/* The cap of a client. A job that has been released in the meantime gets it at once. */
static void own_cap_is_stored(harpe_steering *self, const harpe_fleet_note *note, harpe_call *call,
                              harpe_status status, const harpe_error *fault) {
    change_is_stored(self, note, call, status, fault);
    if (status != HARPE_OK || self->is_stopping) return;
    harpe_member *member =
        harpe_member_find(&self->state, HARPE_MEMBER_JOB, note->key + strlen("job/"));
    if (!member || !isinf(member->cap_w)) return;
    harpe_member_decide(member, INFINITY, now_of(self));
    wake(self);
}

/* Returns true if the change is being stored; otherwise its call was answered. */
static bool change_job(harpe_steering *self, harpe_call *call) {
    char body[120];
    if (!harpe_jobs_have(self->jobs, call->job_id)) {
        harpe_reply_detail(call, 404, "no job %.512s is known here: register it first",
                           call->job_id);
        return false;
    }
    if (call->kind == HARPE_CALL_FLEET_PUT_JOB)
        return change_setting(self, call->kind, call, call->body, call->length, change_is_stored);
    if (!cap_body(call, body, sizeof body)) {
        harpe_reply_out_of_memory(call);
        return false;
    }
    return change_setting(self, HARPE_CALL_FLEET_PUT_JOB, call, body, strlen(body),
                          own_cap_is_stored);
}

static bool is_out_of_scope(harpe_steering *self, harpe_call *call);

/* Makes these changes one after another. A change of a job or a budget starts from what is stored,
 * so one of two changes at the same time would be lost. The rights of a client are compared with
 * the groups as they are now, so its change must not follow one that is not stored yet. */
static void make_changes(harpe_steering *self) {
    while (!self->is_changing) {
        harpe_call *call = harpe_calls_take_first(&self->changes);
        if (!call) return;
        self->is_changing = true; /* harpe_steering_store may call change_is_stored at once */
        bool is_job = call->kind == HARPE_CALL_FLEET_PUT_JOB || call->kind == HARPE_CALL_POWER_CAP;
        if (is_out_of_scope(self, call) ||
            !(is_job ? change_job(self, call)
                     : change_setting(self, call->kind, call, call->body, call->length,
                                      change_is_stored)))
            self->is_changing = false;
    }
}

/* ---- Events that wait for plans -------------------------------------------------------------- */

static bool lacks_plans(const harpe_steering *self) {
    for (size_t i = 0; i < self->state.member_count; i++) {
        const harpe_member *member = self->state.members[i];
        bool has_none = member->kind == HARPE_MEMBER_JOB &&
                        (member->plan_count == 0 || harpe_member_is_unread(member));
        if (has_none && (member->rounds.wants_plans || member->rounds.is_reading)) return true;
    }
    return false;
}

/* Handles the new events that wait. They wait for plans, because the answer says what the jobs can
 * reach, and until the previous event is stored. */
static void answer_waiting(harpe_steering *self) {
    bool is_late = now_of(self).steady_s - self->waiting_s > EVENT_WAIT_S;
    if (!is_late && lacks_plans(self)) return;
    while (!self->is_posting) {
        harpe_call *call = harpe_calls_take_first(&self->waiting);
        if (!call) return;
        self->is_posting = true;
        if (is_out_of_scope(self, call) ||
            !change_setting(self, call->kind, call, call->body, call->length, event_is_stored))
            self->is_posting = false;
    }
}

/* Answers the budgets that are stored. Their answers also say what the jobs can reach. Call look
 * before. */
static void answer_budgets(harpe_steering *self) {
    bool is_late = now_of(self).steady_s - self->budgets_s > EVENT_WAIT_S;
    if (self->budgets.count == 0 || (!is_late && lacks_plans(self))) return;
    for (harpe_call *call; (call = harpe_calls_take_first(&self->budgets));) {
        harpe_text text = {0};
        harpe_fleet_show_budget_answer(&self->state, call->job_id, &text);
        answer_text(call, &text);
    }
}

static void post_event(harpe_steering *self, harpe_call *call) {
    if (self->waiting.count == 0) self->waiting_s = now_of(self).steady_s;
    harpe_calls_append(&self->waiting, call);
    answer_waiting(self);
    if (self->waiting.count == 0) return;
    harpe_steering_read_plans(self, now_of(self));
    run_later(self);
}

/* ---- Other calls ----------------------------------------------------------------------------- */

static void show(harpe_steering *self, harpe_call *call) {
    harpe_text text = {0};
    harpe_fleet_show(&self->state, call->scope, now_of(self), &text);
    answer_text(call, &text);
}

static void show_history(const harpe_steering *self, harpe_call *call) {
    harpe_text text = {0};
    char *end = call->job_id;
    double now_s = now_of(self).wall_s;
    double from_s = end ? strtod(end, &end) : 0;
    double to_s = end ? strtod(end, &end) : 0;
    double points = end ? strtod(end, &end) : 0;
    harpe_fleet_history_show(self->history, from_s, to_s > 0 ? to_s : now_s,
                             points > 0 && points < 1e6 ? (size_t)points : 0, &text);
    answer_text(call, &text);
}

/* A declared member says what it does, and gets its plan. A cap that is higher than the last stored
 * one is not given to it before it is stored. */
static void take_report(harpe_steering *self, harpe_call *call) {
    harpe_member *member = harpe_member_find(&self->state, HARPE_MEMBER_DECLARED, call->job_id);
    harpe_fleet_now now = now_of(self);
    harpe_error error = {0};
    harpe_text text = {0};
    int64_t plan;
    double power_w;
    if (!member) {
        harpe_reply_detail(call, 404, "there is no member %.200s: PUT /fleet/members/ declares it",
                           call->job_id);
        return;
    }
    if (harpe_bodies_read_report(call->body, call->length, &plan, &power_w, &error) != HARPE_OK) {
        harpe_reply_detail(call, 422, "%s", error.message);
        return;
    }
    harpe_member_follow(member, plan, power_w, now);
    harpe_fleet_show_plan(member, fmin(member->cap_w, member->stored_w), &text);
    answer_text(call, &text);
}

bool harpe_steering_takes(const harpe_steering *self, const harpe_call *call) {
    char body[120];
    if (call->kind >= HARPE_CALL_FLEET_SHOW && call->kind <= HARPE_CALL_FLEET_DELETE_PRICES)
        return true;
    if (call->kind != HARPE_CALL_POWER_CAP || !self) return false;
    const harpe_member *member = harpe_member_find(&self->state, HARPE_MEMBER_JOB, call->job_id);
    /* Also before the first cap of the fleet, which would replace that of the client. */
    bool is_ours =
        member && !member->is_refused &&
        (member->was_steered || harpe_limits_are_set(&self->state, harpe_jobs_wall_s(self->jobs)));
    return is_ours && cap_body(call, body, sizeof body);
}

/* Answers the call and returns true if it is about groups for which its client has no token. */
static bool is_out_of_scope(harpe_steering *self, harpe_call *call) {
    char line[640];
    if (harpe_fleet_is_in_scope(&self->state, call, line, sizeof line)) return false;
    harpe_reply_detail(call, 403, "%s", line);
    return true;
}

void harpe_steering_handle(harpe_steering *self, harpe_call *call) {
    call->held_by = NULL;
    call->operation = NULL;
    call->next = NULL;
    if (self->is_stopping) {
        harpe_reply_stopping(call);
        return;
    }
    /* A report of a member needs nothing of the jobs, unless its client has a token of some groups.
     */
    if (call->scope || call->kind != HARPE_CALL_FLEET_REPORT) look(self);
    if (is_out_of_scope(self, call)) return;
    switch (call->kind) {
    case HARPE_CALL_FLEET_SHOW: show(self, call); break;
    case HARPE_CALL_FLEET_HISTORY: show_history(self, call); break;
    case HARPE_CALL_FLEET_REPORT: take_report(self, call); break;
    case HARPE_CALL_FLEET_POST_EVENT: post_event(self, call); break;
    case HARPE_CALL_FLEET_PUT_BUDGET:
    case HARPE_CALL_FLEET_DELETE_BUDGET:
    case HARPE_CALL_FLEET_PUT_GROUP:
    case HARPE_CALL_FLEET_DELETE_GROUP:
    case HARPE_CALL_FLEET_PUT_MEMBER:
    case HARPE_CALL_FLEET_DELETE_MEMBER:
    case HARPE_CALL_FLEET_PUT_LOAD:
    case HARPE_CALL_FLEET_DELETE_LOAD:
    case HARPE_CALL_FLEET_PUT_JOB:
    case HARPE_CALL_POWER_CAP:
        harpe_calls_append(&self->changes, call);
        make_changes(self);
        break;
    default:
        (void)change_setting(self, call->kind, call, call->body, call->length, setting_is_stored);
    }
}

void harpe_steering_forget(harpe_steering *self, harpe_call *call) {
    if (!self) return;
    if (call->list == &self->waiting || call->list == &self->changes ||
        call->list == &self->budgets)
        harpe_calls_remove(call);
    harpe_steering_drop_call(self, call);
}

/* ---- Metrics --------------------------------------------------------------------------------- */

void harpe_steering_metrics(const harpe_steering *self, harpe_text *text) {
    harpe_fleet_metrics(&self->state, now_of(self), text);
}

/* ---- Life ------------------------------------------------------------------------------------ */

/* The energy of a job is stored before the job is deleted. */
static void eviction_begins(void *user, const harpe_job_glance *glance) {
    harpe_steering *self = user;
    if (!self->is_stopping && harpe_engine_link_settle(&self->state, glance, now_of(self).wall_s))
        harpe_steering_keep_energy(self);
}

static harpe_status load_note(void *user, const harpe_change *record, harpe_error *error) {
    harpe_steering *self = user;
    if (strcmp(record->job_id, "history") == 0) {
        harpe_fleet_history_load(self->history, record->text, record->length);
        return HARPE_OK;
    }
    return harpe_notes_apply(&self->state, record->job_id, record->text, record->length, true,
                             error);
}

harpe_status harpe_steering_new(const harpe_jobs_options *options, harpe_jobs *jobs,
                                harpe_steering **out, harpe_error *error) {
    harpe_steering *self = harpe_calloc(1, sizeof *self);
    if (!self) return harpe_fail_memory(error);
    self->options = *options;
    self->jobs = jobs;
    self->history = harpe_fleet_history_new();
    harpe_status status = self->history && harpe_fleet_begin(&self->state)
                              ? harpe_store_load_notes(options->store, load_note, self, error)
                              : harpe_fail_memory(error);
    if (status != HARPE_OK) {
        harpe_steering_free(self);
        return status;
    }
    self->kept_s = now_of(self).steady_s;
    for (size_t i = 0; i < self->state.member_count; i++)
        harpe_groups_place(&self->state, self->state.members[i]);
    bool is_set = harpe_limits_are_set(&self->state, now_of(self).wall_s);
    if (is_set || has_commands(self)) run_later(self);
    self->was_counting = self->state.energy.is_counting;
    harpe_jobs_use_groups(jobs, &self->state.tree);
    harpe_jobs_on_eviction(jobs, eviction_begins, self);
    *out = self;
    return HARPE_OK;
}

void harpe_steering_stop(harpe_steering *self, bool may_store) {
    if (!self || self->is_stopping) return;
    if (may_store && self->state.energy.is_counting) {
        look(self);
        harpe_steering_keep_sums(self);
    }
    harpe_timer_cancel(self->timer);
    self->timer = NULL;
    self->is_stopping = true;
    for (harpe_call *call; (call = harpe_calls_take_first(&self->waiting));)
        harpe_reply_stopping(call);
    for (harpe_call *call; (call = harpe_calls_take_first(&self->changes));)
        harpe_reply_stopping(call);
    for (harpe_call *call; (call = harpe_calls_take_first(&self->budgets));)
        harpe_reply_null(call, -1); /* it is stored */
}

bool harpe_steering_is_idle(const harpe_steering *self) {
    return !self || (!self->state.is_solving && harpe_steering_has_no_work(self));
}

void harpe_steering_free(harpe_steering *self) {
    if (!self) return;
    harpe_steering_stop(self, false);
    harpe_steering_drop_work(self);
    harpe_jobs_use_groups(self->jobs, NULL);
    harpe_jobs_on_eviction(self->jobs, NULL, NULL);
    harpe_fleet_end(&self->state);
    harpe_fleet_history_free(self->history);
    free(self);
}
