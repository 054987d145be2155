/* SPDX-License-Identifier: Apache-2.0 */
/* Work of the fleet that takes time: notes that are stored, caps that are given to jobs, and
 * frontiers that are read. The fleet and the engine answer each other through calls, as if a client
 * had asked. */
#include "server/fleet/steering_work.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "server/engine/engine.h"
#include "server/fleet/frontier_read.h"
#include "server/fleet/member.h"

enum { READING_MAX = 8 /* frontiers at a time */ };
#define READ_AGAIN_S 2.0

typedef enum work_kind { WORK_NOTE, WORK_CAP, WORK_FRONTIER } work_kind;

typedef struct harpe_fleet_work {
    struct harpe_fleet_work *previous, *following;
    harpe_steering *steering;
    work_kind kind;
    /* A note, perhaps for a client. */
    harpe_fleet_note note;
    harpe_change change;
    harpe_note_stored *stored;
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
} fleet_work;

/* ---- The list -------------------------------------------------------------------------------- */

static fleet_work *new_work(harpe_steering *self, work_kind kind) {
    fleet_work *work = harpe_calloc(1, sizeof *work);
    if (!work) return NULL;
    work->steering = self;
    work->kind = kind;
    work->following = self->work;
    if (work->following) work->following->previous = work;
    self->work = work;
    return work;
}

static void free_work(fleet_work *work) {
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

bool harpe_steering_has_no_work(const harpe_steering *self) { return !self->work; }

void harpe_steering_drop_work(harpe_steering *self) {
    for (fleet_work *work = self->work, *next; work; work = next) {
        next = work->following;
        if (work->is_called) harpe_jobs_forget(self->jobs, &work->call);
        if (work->client) harpe_reply_stopping(work->client);
        free_work(work);
    }
}

void harpe_steering_drop_call(harpe_steering *self, const harpe_call *call) {
    for (fleet_work *work = self->work; work; work = work->following)
        if (work->client == call) work->client = NULL;
}

/* ---- Notes ----------------------------------------------------------------------------------- */

static void note_is_stored(void *user, harpe_status status, const harpe_error *error) {
    fleet_work *work = user;
    harpe_call *client = work->client;
    work->client = NULL;
    if (work->stored) work->stored(work->steering, &work->note, client, status, error);
    free_work(work);
}

void harpe_steering_store(harpe_steering *self, harpe_fleet_note *note, harpe_call *call,
                          harpe_note_stored *stored) {
    fleet_work *work = new_work(self, WORK_NOTE);
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

void harpe_steering_erase(harpe_steering *self, const char *prefix, const char *id) {
    harpe_fleet_note note;
    if (!self->is_stopping && harpe_notes_of_nothing(prefix, id, &note))
        harpe_steering_store(self, &note, NULL, NULL);
}

void harpe_steering_keep_event(harpe_steering *self, harpe_fleet_event *event) {
    harpe_fleet_note note;
    if (!harpe_notes_of_event(event, &note)) return;
    event->kept_highest_w = event->highest_w;
    harpe_steering_store(self, &note, NULL, NULL);
}

void harpe_steering_keep_energy(harpe_steering *self) {
    harpe_fleet_note note;
    harpe_fleet_energy *energy = &self->state.energy;
    if (!harpe_notes_of_energy(&self->state, &note)) return;
    self->was_counting = energy->is_counting;
    for (size_t i = 0; i < energy->account_count; i++)
        energy->accounts[i]->kept_j = energy->accounts[i]->used_j;
    harpe_steering_store(self, &note, NULL, NULL);
}

void harpe_steering_keep_sums(harpe_steering *self) {
    harpe_fleet_note note;
    harpe_text text = {0};
    harpe_steering_keep_energy(self);
    harpe_fleet_history_save(self->history, &text);
    note = (harpe_fleet_note){strdup("history"), text.failed ? NULL : text.data};
    if (text.failed) harpe_text_free(&text);
    if (note.key && note.text)
        harpe_steering_store(self, &note, NULL, NULL);
    else
        harpe_fleet_note_clear(&note);
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
    fleet_work *work = call->user;
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
                harpe_steering_erase(self, "cap/", member->id);
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
    fleet_work *work = new_work(self, WORK_CAP);
    harpe_text body = {0};
    harpe_text_printf(&body, "{\"watts\":");
    harpe_text_number(&body, watts_for(member));
    harpe_text_printf(&body, "}");
    if (work) {
        work->id = strdup(member->id);
        work->call = (harpe_call){.kind = HARPE_CALL_POWER_CAP,
                                  .job_id = strdup(member->id),
                                  .body = body.failed ? NULL : body.data,
                                  .length = body.length,
                                  .answer = cap_is_answered,
                                  .user = work};
        work->cap_w = member->cap_w;
        work->given_w = watts_for(member);
    }
    if (!work || body.failed || !work->id || !work->call.job_id) {
        member->is_sending = false; /* the next tick tries again */
        if (work) free_work(work);
        if (!work || body.failed) harpe_text_free(&body);
        return;
    }
    work->is_called = true;
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
        harpe_steering_erase(self, "cap-of/", member->id);
    }
}

void harpe_steering_send_commands(harpe_steering *self) {
    harpe_fleet_note note;
    for (size_t i = 0; i < self->state.member_count && !self->is_stopping; i++) {
        harpe_member *member = self->state.members[i];
        bool is_old = member->was_steered && !member->is_stored;
        if (member->is_sending || !(member->has_command || is_old)) continue;
        if (!harpe_notes_of_cap(member, &note)) continue;
        /* harpe_member_decide takes this back if the cap changes before it is stored. */
        member->is_stored = true;
        member->is_sending = member->has_command;
        harpe_steering_store(self, &note, NULL, member->has_command ? cap_is_stored : NULL);
    }
}

/* ---- Frontiers ------------------------------------------------------------------------------- */

static void parse_frontier(void *user) {
    fleet_work *work = user;
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
    harpe_steering_store(self, &note, NULL, NULL);
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
    fleet_work *work = user;
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
        if (harpe_notes_of_plans(member, &note)) harpe_steering_store(self, &note, NULL, NULL);
    } else if (member && work->error.status != HARPE_OK &&
               work->error.status != HARPE_OUT_OF_MEMORY) {
        refuse_member(self, member, "its frontier cannot be read", work->error.message);
    }
    free_work(work);
}

static void frontier_is_answered(harpe_call *call, const harpe_call_answer *answer) {
    fleet_work *work = call->user;
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
    fleet_work *work = new_work(self, WORK_FRONTIER);
    if (!work) return;
    self->reading++;
    work->id = strdup(member->id);
    work->call = (harpe_call){.kind = HARPE_CALL_FRONTIER,
                              .job_id = strdup(member->id),
                              .answer = frontier_is_answered,
                              .user = work};
    if (!work->id || !work->call.job_id) {
        free_work(work);
        return;
    }
    member->rounds.is_reading = true;
    member->rounds.read_s = now.steady_s;
    work->is_called = true;
    harpe_jobs_handle(self->jobs, &work->call);
}

void harpe_steering_read_plans(harpe_steering *self, harpe_fleet_now now) {
    for (size_t i = 0; i < self->state.member_count && self->reading < READING_MAX; i++) {
        harpe_member *member = self->state.members[i];
        const harpe_member_rounds *rounds = &member->rounds;
        bool is_due = rounds->read_s == 0 || now.steady_s - rounds->read_s >= READ_AGAIN_S;
        if (rounds->wants_plans && !rounds->is_reading && is_due) read_frontier(self, member, now);
    }
}
