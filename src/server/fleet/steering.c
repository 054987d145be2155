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
#include "base/text.h"
#include "server/engine/engine.h"
#include "server/fleet/fleet_state.h"

struct work_item;

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
    struct work_item *work;  /* in flight: notes that are stored, and calls to jobs */
    int reading;             /* frontiers that are being read */
    harpe_call_list waiting; /* new events that wait for plans, or for the one before */
    double waiting_s;        /* since this steady time */
    bool is_posting;         /* an event is being stored; others wait */
    harpe_call_list changes; /* of jobs, members, loads, groups and budgets; each waits
                              * for the one before */
    bool is_changing;        /* one of them is being stored */
    harpe_call_list budgets; /* stored; their answers wait for plans */
    double budgets_s;        /* since this steady time */
    double kept_s;           /* steady time of the last record of sums */
};

/* Called when a note is on disk or could not be stored. `call` may be NULL. */
typedef void note_stored(harpe_steering *self, const harpe_fleet_note *note, harpe_call *call,
                         harpe_status status, const harpe_error *error);

enum {
    TICK_MS = 500,
    KEEP_S = 300,      /* between two records of history and energy */
    EVENT_WAIT_S = 10, /* a new event waits so long for the plans of jobs, before it is answered */
    READING_MAX = 8,   /* frontiers at a time */
};
#define READ_AGAIN_S 2.0

typedef enum work_kind { WORK_NOTE, WORK_CAP, WORK_FRONTIER } work_kind;

typedef struct work_item {
    struct work_item *previous, *following;
    harpe_steering *steering;
    work_kind kind;
    /* A note, perhaps for a client. */
    harpe_fleet_note note;
    harpe_change change;
    note_stored *stored;
    harpe_call *client; /* NULL: none, or gone */
    /* A call to the engine. */
    harpe_call call;
    bool is_called; /* the engine has the call */
    char *id;       /* of the member */
    double cap_w, given_w;
    char *json; /* the frontier */
    size_t length;
    harpe_work work;
    harpe_frontier_plans plans; /* written by the worker */
    harpe_error error;          /* written by the worker */
} work_item;

/* ---- The list -------------------------------------------------------------------------------- */

static work_item *new_work(harpe_steering *self, work_kind kind) {
    work_item *work = harpe_calloc(1, sizeof *work);
    if (!work) return NULL;
    work->steering = self;
    work->kind = kind;
    work->following = self->work;
    if (work->following) work->following->previous = work;
    self->work = work;
    if (kind == WORK_FRONTIER) self->reading++;
    return work;
}

static void free_work(work_item *work) {
    harpe_steering *self = work->steering;
    if (work->previous)
        work->previous->following = work->following;
    else
        self->work = work->following;
    if (work->following) work->following->previous = work->previous;
    if (work->kind == WORK_FRONTIER) self->reading--;
    harpe_fleet_note_clear(&work->note);
    free(work->call.job_id);
    free(work->call.body);
    free(work->id);
    free(work->json);
    free(work->plans.plans);
    free(work);
}

/* Makes a call about a job, which the caller gives to the engine. Takes over the text of `body`
 * (NULL: none). Returns NULL if memory runs out. */
static work_item *new_call(harpe_steering *self, work_kind kind, const harpe_member *member,
                           harpe_call_kind call, harpe_text *body,
                           void (*answer)(harpe_call *, const harpe_call_answer *)) {
    work_item *work = body && body->failed ? NULL : new_work(self, kind);
    if (!work) {
        if (body) harpe_text_free(body);
        return NULL;
    }
    work->id = strdup(member->id);
    work->call = (harpe_call){.kind = call,
                              .job_id = strdup(member->id),
                              .body = body ? body->data : NULL,
                              .length = body ? body->length : 0,
                              .answer = answer,
                              .user = work};
    work->is_called = work->id && work->call.job_id;
    if (work->is_called) return work;
    free_work(work);
    return NULL;
}

static void drop_work(harpe_steering *self) {
    for (work_item *work = self->work, *next; work; work = next) {
        next = work->following;
        if (work->is_called) harpe_jobs_forget(self->jobs, &work->call);
        if (work->client) harpe_reply_stopping(work->client);
        free_work(work);
    }
}

static void drop_call(harpe_steering *self, const harpe_call *call) {
    for (work_item *work = self->work; work; work = work->following)
        if (work->client == call) work->client = NULL;
}

/* ---- Notes ----------------------------------------------------------------------------------- */

static void note_is_stored(void *user, harpe_status status, const harpe_error *error) {
    work_item *work = user;
    harpe_call *client = work->client;
    work->client = NULL;
    if (work->stored) work->stored(work->steering, &work->note, client, status, error);
    free_work(work);
}

/* Stores a note and takes it over. The call, if there is one, is answered by `stored`, or with 503
 * if memory runs out. */
static void store_note(harpe_steering *self, harpe_fleet_note *note, harpe_call *call,
                       note_stored *stored) {
    work_item *work = new_work(self, WORK_NOTE);
    if (!work) {
        harpe_error error = {0};
        (void)harpe_fail_memory(&error);
        if (stored)
            stored(self, note, call, HARPE_OUT_OF_MEMORY, &error);
        else
            harpe_reply_out_of_memory(call);
        harpe_fleet_note_clear(note);
        return;
    }
    work->note = *note;
    work->client = call;
    work->stored = stored;
    work->change = (harpe_change){.kind = HARPE_CHANGE_NOTE,
                                  .job_id = work->note.key,
                                  .text = work->note.text,
                                  .length = strlen(work->note.text),
                                  .done = note_is_stored,
                                  .user = work};
    harpe_store_submit(self->options.store, &work->change);
}

/* Removes a note from the store. */
static void erase_note(harpe_steering *self, const char *prefix, const char *id) {
    harpe_fleet_note note;
    if (!self->is_stopping && harpe_notes_of_nothing(prefix, id, &note))
        store_note(self, &note, NULL, NULL);
}

static void keep_event(harpe_steering *self, harpe_fleet_event *event) {
    harpe_fleet_note note;
    if (!harpe_notes_of_event(event, &note)) return;
    event->kept_highest_w = event->highest_w;
    store_note(self, &note, NULL, NULL);
}

/* Stores the energy: the sums of the fleet with the accounts of the jobs. */
static void keep_energy(harpe_steering *self) {
    harpe_fleet_note note;
    harpe_fleet_energy *energy = &self->state.energy;
    if (!harpe_notes_of_energy(&self->state, &note)) return;
    self->was_counting = energy->is_counting;
    for (size_t i = 0; i < energy->account_count; i++)
        energy->accounts[i]->kept_j = energy->accounts[i]->used_j;
    store_note(self, &note, NULL, NULL);
}

/* Stores history and energy. */
static void keep_sums(harpe_steering *self) {
    harpe_fleet_note note;
    harpe_text text = {0};
    keep_energy(self);
    harpe_fleet_history_save(self->history, &text);
    if (harpe_notes_of_text("history", "", harpe_text_take(&text), &note))
        store_note(self, &note, NULL, NULL);
}

/* ---- Caps ------------------------------------------------------------------------------------ */

/* Returns the cap that the engine gets. A member that is released gets its client's cap again; 0:
 * none. Other caps are a little higher, because the job computes the power of its plan again. */
static double watts_for(const harpe_member *member) {
    double own_w = harpe_member_own_most_w(member);
    if (isinf(member->cap_w)) return isinf(own_w) ? 0 : own_w;
    return member->cap_w * (1 + 1e-9);
}

/* Takes the answer of the engine to a cap. */
static void cap_is_answered(harpe_call *call, const harpe_call_answer *answer) {
    work_item *work = call->user;
    harpe_steering *self = work->steering;
    harpe_member *member = harpe_member_find(&self->state, HARPE_MEMBER_JOB, work->id);
    work->is_called = false;
    if (member) {
        bool is_last = member->cap_w == work->cap_w && watts_for(member) == work->given_w;
        member->is_sending = false;
        if (answer->http_status == 200 && is_last) {
            member->has_command = false;
            member->rounds.follows_after = harpe_jobs_round_of(self->jobs, work->id);
            if (isinf(member->cap_w)) {
                member->was_steered = member->is_waiting = false;
                erase_note(self, "cap/", member->id);
            }
        } else if (answer->http_status != 200 && answer->http_status != 503) {
            member->is_refused = member->is_dirty = true;
            member->has_command = member->was_steered = false;
            (void)snprintf(member->reason, sizeof member->reason, "it accepts no power cap");
        }
    }
    free(answer->body);
    free_work(work);
}

/* Gives a cap to a job. */
static void send_cap(harpe_steering *self, harpe_member *member) {
    harpe_text body = {0};
    harpe_text_printf(&body, "{\"watts\":");
    harpe_text_number(&body, watts_for(member));
    harpe_text_printf(&body, "}");
    work_item *work =
        new_call(self, WORK_CAP, member, HARPE_CALL_POWER_CAP, &body, cap_is_answered);
    member->is_sending = work != NULL; /* else the next tick tries again */
    if (!work) return;
    work->cap_w = member->cap_w;
    work->given_w = watts_for(member);
    harpe_jobs_handle(self->jobs, &work->call);
}

static void cap_is_stored(harpe_steering *self, const harpe_fleet_note *note, harpe_call *call,
                          harpe_status status, const harpe_error *error) {
    (void)call, (void)error;
    bool is_job = strncmp(note->key, "cap/", 4) == 0;
    const char *id = strchr(note->key, '/') + 1;
    harpe_member *member =
        harpe_member_find(&self->state, is_job ? HARPE_MEMBER_JOB : HARPE_MEMBER_DECLARED, id);
    if (!member) return;
    if (status != HARPE_OK || self->is_stopping || !member->is_stored) {
        member->is_sending = false; /* the next tick tries again, with the cap of then */
        member->is_stored = false;
        return;
    }
    if (is_job) {
        send_cap(self, member);
        return;
    }
    member->is_sending = member->has_command = false;
    member->stored_w = member->cap_w;
    if (isinf(member->cap_w)) {
        member->was_steered = member->is_waiting = false;
        erase_note(self, "cap-of/", member->id);
    }
}

/* Gives the caps that were decided to their members: stores them, and then sends them. */
static void send_commands(harpe_steering *self) {
    harpe_fleet_note note;
    for (size_t i = 0; i < self->state.member_count && !self->is_stopping; i++) {
        harpe_member *member = self->state.members[i];
        bool is_old = member->was_steered && !member->is_stored;
        if (member->is_sending || !(member->has_command || is_old)) continue;
        if (!harpe_notes_of_cap(member, &note)) continue;
        /* harpe_member_decide takes this back if the cap changes before it is stored. */
        member->is_stored = true;
        member->is_sending = member->has_command;
        store_note(self, &note, NULL, member->has_command ? cap_is_stored : NULL);
    }
}

/* ---- Frontiers ------------------------------------------------------------------------------- */

static void parse_frontier(void *user) {
    work_item *work = user;
    (void)harpe_frontier_plans_read(work->json, work->length, &work->plans, &work->error);
}

/* Keeps a cap that a client had set before the fleet began to steer the job. Returns false if the
 * frontier must be read again for it. */
static bool keep_own_cap(harpe_steering *self, const harpe_member *member, double cap_w) {
    harpe_fleet_note note;
    harpe_error error;
    harpe_member_terms terms = member->told;
    if (member->was_steered || !(cap_w > 0) || !isnan(terms.most_w)) return true;
    if (self->is_changing) return false; /* the change would replace it */
    terms.most_w = cap_w;
    if (!harpe_notes_of_terms(member->id, &terms, &note)) return false;
    if (harpe_notes_apply(&self->state, note.key, note.text, strlen(note.text), false, &error) !=
        HARPE_OK) {
        harpe_fleet_note_clear(&note);
        return false;
    }
    store_note(self, &note, NULL, NULL);
    return true;
}

/* Stops steering the member. */
static void refuse_member(const harpe_steering *self, harpe_member *member, const char *what,
                          const char *detail) {
    (void)snprintf(member->reason, sizeof member->reason, "%s: %.150s", what, detail ? detail : "");
    harpe_clean_in_place(member->reason);
    member->is_refused = member->is_dirty = true;
    harpe_log_line(&self->options.log, HARPE_LOG_WARNING, "job %.200s is not steered: %s",
                   member->id, member->reason);
}

static void frontier_is_parsed(void *user) {
    work_item *work = user;
    harpe_steering *self = work->steering;
    harpe_member *member = harpe_member_find(&self->state, HARPE_MEMBER_JOB, work->id);
    harpe_fleet_note note;
    if (member) member->rounds.is_reading = false;
    if (member && work->plans.count > 0 && !self->is_stopping) {
        harpe_member_rounds *rounds = &member->rounds;
        bool is_kept = keep_own_cap(self, member, work->plans.power_cap_w);
        rounds->plan_count = is_kept ? (int64_t)work->plans.count : -1;
        rounds->shift_time_s = work->plans.shift_time_s;
        rounds->shift_energy_j = work->plans.shift_energy_j;
        harpe_member_set_plans(member, work->plans.plans, work->plans.count);
        work->plans.plans = NULL;
        if (harpe_notes_of_plans(member, &note)) store_note(self, &note, NULL, NULL);
    } else if (member && work->error.status != HARPE_OK &&
               work->error.status != HARPE_OUT_OF_MEMORY) {
        refuse_member(self, member, "its frontier cannot be read", work->error.message);
    }
    free_work(work);
}

static void frontier_is_answered(harpe_call *call, const harpe_call_answer *answer) {
    work_item *work = call->user;
    harpe_steering *self = work->steering;
    harpe_member *member = harpe_member_find(&self->state, HARPE_MEMBER_JOB, work->id);
    work->is_called = false;
    if (answer->http_status == 200 && member && !self->is_stopping) {
        work->json = answer->body;
        work->length = answer->length;
        work->work = (harpe_work){.work = parse_frontier,
                                  .done = frontier_is_parsed,
                                  .user = work,
                                  .pool = HARPE_POOL_FLEET};
        harpe_workers_submit(self->options.workers, &work->work);
        return;
    }
    if (member) member->rounds.is_reading = false;
    if (member && answer->http_status == 409)
        refuse_member(self, member, "it has no frontier", answer->body);
    free(answer->body);
    free_work(work);
}

static void read_frontier(harpe_steering *self, harpe_member *member, harpe_fleet_now now) {
    work_item *work =
        new_call(self, WORK_FRONTIER, member, HARPE_CALL_FRONTIER, NULL, frontier_is_answered);
    if (!work) return;
    member->rounds.is_reading = true;
    member->rounds.read_s = now.steady_s;
    harpe_jobs_handle(self->jobs, &work->call);
}

/* Reads the frontiers of the jobs whose plans are not known. */
static void read_frontiers(harpe_steering *self, harpe_fleet_now now) {
    for (size_t i = 0; i < self->state.member_count && self->reading < READING_MAX; i++) {
        harpe_member *member = self->state.members[i];
        const harpe_member_rounds *rounds = &member->rounds;
        bool is_due = rounds->read_s == 0 || now.steady_s - rounds->read_s >= READ_AGAIN_S;
        if (rounds->wants_plans && !rounds->is_reading && is_due) read_frontier(self, member, now);
    }
}

static harpe_fleet_now now_of(const harpe_steering *self) {
    return (harpe_fleet_now){harpe_jobs_wall_s(self->jobs), harpe_jobs_steady_s(self->jobs)};
}

/* ---- Looking --------------------------------------------------------------------------------- */

static void job_is_gone(void *user, const harpe_member *member) {
    harpe_steering *self = user;
    if (member->was_steered) erase_note(self, "cap/", member->id);
    if (member->plan_count > 0) erase_note(self, "plans/", member->id);
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
    send_commands(self);
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
    erase_note(user, "event/", number);
}

/* The terms that an operator has set for a job stay until the job is evicted. */
static void forget_gone_jobs(harpe_steering *self) {
    for (size_t i = self->state.override_count; i-- > 0;) {
        harpe_error error;
        harpe_fleet_note note;
        const char *id = self->state.overrides[i].id;
        if (harpe_jobs_have(self->jobs, id) || !harpe_notes_of_nothing("job/", id, &note)) continue;
        (void)harpe_notes_apply(&self->state, note.key, "", 0, false, &error);
        store_note(self, &note, NULL, NULL);
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
        if (is_due) keep_event(self, event);
    }
    if (now.steady_s - self->kept_s < KEEP_S) return;
    self->kept_s = now.steady_s;
    keep_sums(self);
    forget_gone_jobs(self);
    harpe_fleet_events_prune(&self->state, now, event_is_gone, self);
}

/* ---- The timer ------------------------------------------------------------------------------- */

static void tick(void *user);

static void run_later(harpe_steering *self) {
    harpe_error error;
    if (self->timer || self->is_stopping) return;
    if (harpe_loop_after(self->options.loop, TICK_MS, tick, self, &self->timer, &error))
        harpe_log_line(&self->options.log, HARPE_LOG_ERROR,
                       "cannot steer power budgets: out of memory");
}

static void answer_waiting(harpe_steering *self);
static void answer_budgets(harpe_steering *self);

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
    keep_energy(self);
}

static void tick(void *user) {
    harpe_steering *self = user;
    self->timer = NULL;
    if (self->is_stopping) return;
    harpe_fleet_now now = now_of(self);
    bool is_set = harpe_limits_are_set(&self->state, now.wall_s);
    bool is_asked = self->waiting.count > 0;
    if (is_set && !self->was_set) harpe_members_forget_own_caps(&self->state);
    self->was_set = is_set;
    look(self);
    keep_energy_of_change(self, now);
    if (is_set || is_asked) read_frontiers(self, now);
    if (is_set) {
        decide(self);
        keep(self, now);
    } else {
        harpe_decide_release(&self->state, now);
    }
    send_commands(self);
    if (is_asked) answer_waiting(self);
    answer_budgets(self);
    if (is_set || harpe_members_have_commands(&self->state) || self->waiting.count > 0 ||
        self->budgets.count > 0)
        run_later(self);
}

/* Begins to steer if something is set. */
static void wake(harpe_steering *self) {
    if (self->timer) harpe_timer_cancel(self->timer);
    self->timer = NULL;
    tick(self);
}

/* ---- Settings -------------------------------------------------------------------------------- */

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
        harpe_reply_text(call, &text, -1);
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
static bool change_setting(harpe_steering *self, harpe_call *call, note_stored *stored) {
    harpe_fleet_note note;
    harpe_error error = {0};
    int http_status;
    if (harpe_bodies_read(&self->state, call->kind, call->job_id, call->body, call->length,
                          now_of(self).wall_s, &note, &http_status, &error) != HARPE_OK) {
        harpe_reply_detail(call, http_status, "%s", error.message);
        return false;
    }
    store_note(self, &note, call, stored);
    return true;
}

/* ---- Jobs, members, loads, groups and budgets ------------------------------------------------ */

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
    harpe_fleet_note note;
    double watts;
    harpe_member_terms terms = harpe_member_told(&self->state, call->job_id);
    if (!harpe_jobs_have(self->jobs, call->job_id)) {
        harpe_reply_detail(call, 404, "no job %.512s is known here: register it first",
                           call->job_id);
        return false;
    }
    if (call->kind == HARPE_CALL_FLEET_PUT_JOB) return change_setting(self, call, change_is_stored);
    /* harpe_steering_takes has seen that the cap is valid; 0 takes it back. */
    terms.most_w =
        harpe_bodies_read_watts(call->body, call->length, &watts) && watts > 0 ? watts : NAN;
    if (!harpe_notes_of_terms(call->job_id, &terms, &note)) {
        harpe_reply_out_of_memory(call);
        return false;
    }
    store_note(self, &note, call, own_cap_is_stored);
    return true;
}

static bool is_out_of_scope(harpe_steering *self, harpe_call *call);

/* Makes these changes one after another. A change of a job or a budget starts from what is stored,
 * so one of two changes at the same time would be lost. The rights of a client are compared with
 * the groups as they are now, so its change must not follow one that is not stored yet. */
static void make_changes(harpe_steering *self) {
    while (!self->is_changing) {
        harpe_call *call = harpe_calls_take_first(&self->changes);
        if (!call) return;
        self->is_changing = true; /* store_note may call change_is_stored at once */
        bool is_job = call->kind == HARPE_CALL_FLEET_PUT_JOB || call->kind == HARPE_CALL_POWER_CAP;
        if (is_out_of_scope(self, call) ||
            !(is_job ? change_job(self, call) : change_setting(self, call, change_is_stored)))
            self->is_changing = false;
    }
}

/* ---- Events that wait for plans -------------------------------------------------------------- */

/* Handles the new events that wait. They wait for plans, because the answer says what the jobs can
 * reach, and until the previous event is stored. */
static void answer_waiting(harpe_steering *self) {
    bool is_late = now_of(self).steady_s - self->waiting_s > EVENT_WAIT_S;
    if (!is_late && harpe_members_lack_plans(&self->state)) return;
    while (!self->is_posting) {
        harpe_call *call = harpe_calls_take_first(&self->waiting);
        if (!call) return;
        self->is_posting = true;
        if (is_out_of_scope(self, call) || !change_setting(self, call, event_is_stored))
            self->is_posting = false;
    }
}

/* Answers the budgets that are stored. Their answers also say what the jobs can reach. Call look
 * before. */
static void answer_budgets(harpe_steering *self) {
    bool is_late = now_of(self).steady_s - self->budgets_s > EVENT_WAIT_S;
    if (self->budgets.count == 0 || (!is_late && harpe_members_lack_plans(&self->state))) return;
    for (harpe_call *call; (call = harpe_calls_take_first(&self->budgets));) {
        harpe_text text = {0};
        harpe_fleet_show_budget_answer(&self->state, call->job_id, &text);
        harpe_reply_text(call, &text, -1);
    }
}

static void post_event(harpe_steering *self, harpe_call *call) {
    if (self->waiting.count == 0) self->waiting_s = now_of(self).steady_s;
    harpe_calls_append(&self->waiting, call);
    answer_waiting(self);
    if (self->waiting.count == 0) return;
    read_frontiers(self, now_of(self));
    run_later(self);
}

/* ---- Other calls ----------------------------------------------------------------------------- */

static void show(harpe_steering *self, harpe_call *call) {
    harpe_text text = {0};
    harpe_fleet_show(&self->state, call->scope, now_of(self), &text);
    harpe_reply_text(call, &text, -1);
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
    harpe_reply_text(call, &text, -1);
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
    harpe_reply_text(call, &text, -1);
}

bool harpe_steering_takes(const harpe_steering *self, const harpe_call *call) {
    double watts;
    if (call->kind >= HARPE_CALL_FLEET_SHOW && call->kind <= HARPE_CALL_FLEET_DELETE_PRICES)
        return true;
    if (call->kind != HARPE_CALL_POWER_CAP || !self) return false;
    const harpe_member *member = harpe_member_find(&self->state, HARPE_MEMBER_JOB, call->job_id);
    /* Also before the first cap of the fleet, which would replace that of the client. */
    bool is_ours =
        member && !member->is_refused &&
        (member->was_steered || harpe_limits_are_set(&self->state, harpe_jobs_wall_s(self->jobs)));
    return is_ours && harpe_bodies_read_watts(call->body, call->length, &watts);
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
    default: (void)change_setting(self, call, setting_is_stored);
    }
}

void harpe_steering_forget(harpe_steering *self, harpe_call *call) {
    if (!self) return;
    if (call->list == &self->waiting || call->list == &self->changes ||
        call->list == &self->budgets)
        harpe_calls_remove(call);
    drop_call(self, call);
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
        keep_energy(self);
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
    if (is_set || harpe_members_have_commands(&self->state)) run_later(self);
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
        keep_sums(self);
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
    return !self || (!self->state.is_solving && !self->work);
}

void harpe_steering_free(harpe_steering *self) {
    if (!self) return;
    harpe_steering_stop(self, false);
    drop_work(self);
    harpe_jobs_use_groups(self->jobs, NULL);
    harpe_jobs_on_eviction(self->jobs, NULL, NULL);
    harpe_fleet_end(&self->state);
    harpe_fleet_history_free(self->history);
    free(self);
}
