/* SPDX-License-Identifier: Apache-2.0 */
/* The thread of a member of a fleet. The thread declares the job, reports which limit the job runs,
 * and passes on the limit that the server asks for. Each request has one of these outcomes:
 *
 *   accepted   the thread reports again after report_s, or after a change
 *   forgotten  the server does not know the member of a report: the thread declares the job again
 *   refused    the thread tries again after refused_s
 *   lost       no harpe server has answered: the thread tries again soon
 *
 * If the server gives no limit for hold_s, the job runs its own limit again.
 * The log gets a line when the outcome changes, not for each attempt. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/format.h"
#include "base/text.h"
#include "base/wait.h"
#include "http/client/exchange.h"
#include "powerlimit/member_internal.h"
#include "powerlimit/member_messages.h"

#define FIRST_PAUSE_S 0.5

typedef enum outcome { ACCEPTED, FORGOTTEN, REFUSED, LOST, ENDED } outcome;

typedef struct reply {
    outcome outcome;
    char reason[HARPE_REASON_SIZE]; /* set if REFUSED or LOST */
} reply;

/* ---- The hold -------------------------------------------------------------------------------- */

/* Returns for how many seconds the job still keeps the limit that the server has given. The time
 * begins with the first report that gets no limit, so it does not depend on the time between two
 * reports. Returns INFINITY if the last report got a limit, or if the job keeps no limit. */
static double hold_left_s(const harpe_power_member *member) {
    const harpe_member_talk *talk = &member->talk;
    if (talk->asked_ns == 0 || atomic_load(&member->told) < 0) return INFINITY;
    return member->terms->hold_s - (double)(harpe_clock_ns() - talk->asked_ns) * 1e-9;
}

/* Returns the job to its own limit if hold_s have passed since the first report that got no limit.
 */
static void end_hold_in_time(harpe_power_member *member) {
    double left_s = hold_left_s(member);
    if (left_s > 0) return;
    atomic_store(&member->told, -1);
    harpe_power_member_say(
        member, HARPE_LOG_WARNING,
        "the server has given no limit for %s: the job runs its own power limit again",
        HARPE_TIME(member->terms->hold_s - left_s));
}

/* ---- Waiting --------------------------------------------------------------------------------- */

bool harpe_power_member_go_on(void *user) {
    harpe_power_member *member = user;
    harpe_member_talk *talk = &member->talk;
    if (!atomic_load(&member->is_leaving)) {
        end_hold_in_time(member);
        return true;
    }
    if (talk->leave_until_ns == 0)
        talk->leave_until_ns = harpe_clock_ns() + (int64_t)(member->times.leave_s * 1e9);
    return harpe_clock_ns() < talk->leave_until_ns;
}

static void silence_bell(const harpe_power_member *member) {
    uint64_t rings;
    ssize_t ignored = read(member->bell, &rings, sizeof rings);
    (void)ignored;
}

/* Waits until the time has passed or the member leaves. If `hears`, also ends when the bell rings:
 * the job has changed something that this thread must tell the server. */
static void rest(harpe_power_member *member, double seconds, bool hears) {
    int64_t end_ns = harpe_clock_ns() + (int64_t)(seconds * 1e9);
    while (!atomic_load(&member->is_leaving)) {
        end_hold_in_time(member);
        double left_s = (double)(end_ns - harpe_clock_ns()) * 1e-9;
        double wait_s = fmax(0, fmin(left_s, hold_left_s(member)));
        struct pollfd bell = {.fd = member->bell, .events = POLLIN};
        if (left_s <= 0) return;
        bool has_rung = harpe_poll(&bell, 1, (int64_t)ceil(wait_s * 1e9)) > 0;
        if (has_rung) silence_bell(member);
        if (has_rung && hears) return;
    }
}

static double first_pause_s(const harpe_power_member *member) {
    return member->times.retry_s < FIRST_PAUSE_S ? member->times.retry_s : FIRST_PAUSE_S;
}

/* ---- The contact ----------------------------------------------------------------------------- */

static void tell_kept(harpe_power_member *member) {
    harpe_member_talk *talk = &member->talk;
    if (talk->contact == HARPE_MEMBER_CONTACT_NONE)
        harpe_power_member_say(member, HARPE_LOG_INFO, "declared to %.200s",
                               harpe_connection_server(talk->connection));
    else if (talk->contact != HARPE_MEMBER_CONTACT_KEPT)
        harpe_power_member_say(member, HARPE_LOG_INFO, "the server is back after %s",
                               HARPE_TIME((double)(harpe_clock_ns() - talk->lost_since_ns) * 1e-9));
    talk->contact = HARPE_MEMBER_CONTACT_KEPT;
    talk->pause_s = first_pause_s(member);
}

static void tell_lost(harpe_power_member *member, harpe_member_contact contact,
                      const char *reason) {
    harpe_member_talk *talk = &member->talk;
    bool is_new =
        talk->contact != HARPE_MEMBER_CONTACT_LOST && talk->contact != HARPE_MEMBER_CONTACT_REFUSED;
    if (is_new) talk->lost_since_ns = harpe_clock_ns();
    if (talk->contact == contact) return;
    talk->contact = contact;
    harpe_power_member_say(member, HARPE_LOG_WARNING,
                           "no power limits from the fleet for now, training continues: %s",
                           reason);
}

/* Logs a change of the outcome, and waits if the request has failed. Returns true if the request
 * was accepted. */
static bool settle(harpe_power_member *member, const reply *got) {
    harpe_member_talk *talk = &member->talk;
    switch (got->outcome) {
    case ACCEPTED: tell_kept(member); return true;
    case REFUSED:
        tell_lost(member, HARPE_MEMBER_CONTACT_REFUSED, got->reason);
        rest(member, member->times.refused_s, false);
        return false;
    case LOST: {
        double jitter = 0.5 + (double)rand_r(&talk->random) / RAND_MAX / 2;
        tell_lost(member, HARPE_MEMBER_CONTACT_LOST, got->reason);
        rest(member, talk->pause_s * jitter, false);
        talk->pause_s =
            talk->pause_s * 2 < member->times.retry_s ? talk->pause_s * 2 : member->times.retry_s;
        return false;
    }
    case FORGOTTEN:
    case ENDED:
    default: return false;
    }
}

/* ---- Requests -------------------------------------------------------------------------------- */

static void set_nonsense(reply *got, long http_status) {
    got->outcome = LOST;
    harpe_tell_nonsense(http_status, got->reason);
}

static outcome outcome_of(long http_status) {
    switch (http_status) {
    case 404: return FORGOTTEN;
    case 400:
    case 401:
    case 403:
    case 409:
    case 413:
    case 422:
    case 429: return REFUSED;
    default: return LOST;
    }
}

/* Sends a request about the member. `*answer` is valid if the outcome is ACCEPTED. */
static void send_request(harpe_power_member *member, const char *method, const harpe_text *body,
                         harpe_answer *answer, reply *got) {
    harpe_request request = {.path = "/fleet/members/",
                             .segment = member->terms->member,
                             .body = body ? body->data : NULL,
                             .method = method};
    if (body && body->failed) {
        *got = (reply){LOST, "out of memory"};
        return;
    }
    *got = (reply){.outcome = LOST};
    switch (harpe_exchange(member->talk.connection, &request, answer, got->reason)) {
    case HARPE_EXCHANGE_ACCEPTED: got->outcome = ACCEPTED; break;
    case HARPE_EXCHANGE_REFUSED: got->outcome = outcome_of(answer->http_status); break;
    case HARPE_EXCHANGE_INTERRUPTED: got->outcome = ENDED; break;
    case HARPE_EXCHANGE_NONSENSE:
    case HARPE_EXCHANGE_UNANSWERED: break;
    }
}

/* Sends a request whose answer has no content. */
static void send_without_content(harpe_power_member *member, const char *method,
                                 const harpe_text *body, reply *got) {
    harpe_answer answer;
    send_request(member, method, body, &answer, got);
    if (got->outcome == ACCEPTED && strncmp(answer.body, "null", 4) != 0)
        set_nonsense(got, answer.http_status);
}

/* ---- Declaring ------------------------------------------------------------------------------- */

static harpe_member_standing wanted_standing(const harpe_power_member *member) {
    bool is_steered = atomic_load(&member->plans) && !atomic_load(&member->has_given_up);
    return is_steered ? HARPE_MEMBER_STEERED : HARPE_MEMBER_UNSTEERED;
}

static void declare(harpe_power_member *member, harpe_member_standing standing) {
    harpe_member_talk *talk = &member->talk;
    harpe_text body = {0};
    reply got;
    if (standing == HARPE_MEMBER_STEERED)
        harpe_member_declare(member->terms, atomic_load(&member->plans), &body);
    else
        harpe_member_declare_unsteered(member->terms, member->job.highest_w, &body);
    talk->may_be_known = true;
    send_without_content(member, "PUT", &body, &got);
    harpe_text_free(&body);
    if (got.outcome == FORGOTTEN) got.outcome = REFUSED; /* it is the route that is not known */
    if (settle(member, &got)) talk->standing = standing;
}

/* ---- Reporting ------------------------------------------------------------------------------- */

/* Returns the mean power of the job since the last report. `changes`: the value of member->changes
 * before the plan was read. If the limit has changed since the last report, the power belongs to no
 * plan, and the function returns -1. Also returns -1 if the power is not known. */
static double measured_w(harpe_power_member *member, uint64_t changes) {
    harpe_member_talk *talk = &member->talk;
    const harpe_power_limit_device *device = member->job.device;
    double power_w = 0;
    if (!device || !device->mean_power) {
        bool is_current = changes % 2 == 0 && atomic_load(&member->noted_changes) == changes;
        if (!is_current) return -1;
        power_w = atomic_exchange(&member->noted_w, -1);
        return atomic_load(&member->changes) == changes && power_w > 0 ? power_w : -1;
    }
    harpe_status status = device->mean_power(device->user, &power_w, NULL);
    bool has_changed =
        status != HARPE_OK || changes % 2 != 0 || atomic_load(&member->changes) != changes;
    bool is_of_plan = !has_changed && talk->metered_changes == changes;
    talk->metered_changes = has_changed ? 1 : changes;
    return is_of_plan && power_w > 0 ? power_w : -1;
}

static void tell_forgotten(harpe_power_member *member) {
    harpe_member_talk *talk = &member->talk;
    if (!talk->has_told_forgotten)
        harpe_power_member_say(member, HARPE_LOG_WARNING,
                               "the server does not know this member any more: declaring it again");
    talk->has_told_forgotten = true;
    talk->standing = HARPE_MEMBER_UNDECLARED;
}

/* Sends a report, and takes the limit of the answer. Returns true if the report was accepted. */
static bool report(harpe_power_member *member) {
    harpe_member_talk *talk = &member->talk;
    bool is_steered = talk->standing == HARPE_MEMBER_STEERED;
    size_t count = is_steered ? atomic_load(&member->plans)->count : 1;
    size_t plan = 0;
    harpe_text body = {0};
    harpe_answer answer;
    reply got;
    /* If the plan changes after this line, measured_w returns -1. */
    uint64_t changes = atomic_load(&member->changes);
    size_t running = is_steered ? atomic_load(&member->plan) : 0;
    double power_w = measured_w(member, changes);
    if (talk->asked_ns == 0) talk->asked_ns = harpe_clock_ns();
    harpe_member_report(running, power_w, &body);
    send_request(member, "POST", &body, &answer, &got);
    harpe_text_free(&body);
    if (got.outcome == ACCEPTED &&
        !harpe_member_read_answer(answer.body, answer.length, count, &plan))
        set_nonsense(&got, answer.http_status);
    if (got.outcome == FORGOTTEN) {
        tell_forgotten(member);
        rest(member, first_pause_s(member), false);
    }
    if (!settle(member, &got)) return false;
    talk->has_told_forgotten = false;
    talk->asked_ns = 0;
    atomic_store(&member->told, is_steered ? (int64_t)plan : -1);
    return true;
}

/* ---- The end --------------------------------------------------------------------------------- */

static void leave(harpe_power_member *member) {
    reply got;
    if (!member->talk.may_be_known) return;
    send_without_content(member, "DELETE", NULL, &got);
    if (got.outcome == ACCEPTED || got.outcome == FORGOTTEN) return;
    harpe_power_member_say(member, HARPE_LOG_WARNING,
                           "the server may still count this member (%s): when the server answers, "
                           "remove it with 'harpe fleet member remove'",
                           got.outcome == ENDED ? "it does not answer" : got.reason);
}

/* ---- The thread ------------------------------------------------------------------------------ */

void *harpe_power_member_run(void *user) {
    harpe_power_member *member = user;
    member->talk.pause_s = first_pause_s(member);
    while (!atomic_load(&member->is_leaving)) {
        harpe_member_standing wanted = wanted_standing(member);
        if (member->talk.standing != wanted)
            declare(member, wanted);
        else if (report(member))
            rest(member, member->times.report_s, true);
    }
    leave(member);
    return NULL;
}
