/* SPDX-License-Identifier: Apache-2.0 */
/* Makes and ends a member of a fleet, and passes plans, changes and powers between the training
 * thread and the member's thread through atomic variables. */
#include "powerlimit/member.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/process.h"
#include "base/thread.h"
#include "powerlimit/member_internal.h"

/* A server counts a member as silent after 30 s. A report comes much more often, because a job
 * follows a new budget only with its next report. */
const harpe_power_member_times harpe_power_member_usual_times = {
    .report_s = 5, .answer_s = 10, .retry_s = 5, .refused_s = 60, .leave_s = 5};

void harpe_power_member_say(const harpe_power_member *member, harpe_log_level level,
                            const char *format, ...) {
    char prefix[300];
    (void)snprintf(prefix, sizeof prefix, "fleet member %.255s: ", member->terms->member);
    va_list arguments;
    va_start(arguments, format);
    harpe_log_prefixed_line(&member->job.log, level, prefix, format, arguments);
    va_end(arguments);
}

/* ---- Joining and leaving --------------------------------------------------------------------- */

static void ring(const harpe_power_member *member) {
    uint64_t one = 1;
    int errno_before = errno;
    ssize_t ignored = write(member->bell, &one, sizeof one);
    (void)ignored;
    errno = errno_before;
}

static void free_member(harpe_power_member *member) {
    harpe_connection_free(member->talk.connection);
    if (member->bell >= 0) (void)close(member->bell);
    free(member);
}

static harpe_status start(harpe_power_member *member, harpe_error *error) {
    const harpe_power_limit_fleet *terms = member->terms;
    harpe_connection_options how = {.server_url = terms->server_url,
                                    .token = terms->token,
                                    .ca_file = terms->ca_file,
                                    .connect_limit_s = member->times.answer_s,
                                    .answer_limit_s = member->times.answer_s,
                                    .answer_limit_bytes = 1 << 20,
                                    .go_on = harpe_power_member_go_on,
                                    .user = member};
    harpe_status status = harpe_connection_new(&how, &member->talk.connection, error);
    if (status != HARPE_OK) return status;
    member->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (member->bell < 0) return harpe_fail_errno(error, errno, "a member of a fleet");
    int failure =
        harpe_thread_start(&member->thread, "harpe-fleet", harpe_power_member_run, member);
    if (failure) return harpe_fail_errno(error, failure, "a thread for a member of a fleet");
    return HARPE_OK;
}

harpe_status harpe_power_member_join(const harpe_power_limit_fleet *terms,
                                     const harpe_power_member_job *job,
                                     const harpe_power_member_times *times,
                                     harpe_power_member **out, harpe_error *error) {
    harpe_power_member *member = harpe_calloc(1, sizeof *member);
    if (!member) return harpe_fail_memory(error);
    member->terms = terms;
    member->job = *job;
    member->times = *times;
    member->owner = harpe_process_self();
    member->bell = -1;
    member->told = -1;
    member->noted_w = -1;
    member->talk.metered_changes = 1;
    member->talk.random = (unsigned)harpe_clock_ns() ^ (unsigned)member->owner;
    harpe_status status = start(member, error);
    if (status != HARPE_OK) {
        free_member(member);
        return status;
    }
    *out = member;
    return HARPE_OK;
}

void harpe_power_member_leave(harpe_power_member *member) {
    if (!member || member->owner != harpe_process_self()) return;
    atomic_store(&member->is_leaving, true);
    ring(member);
    harpe_connection_wake(member->talk.connection);
    harpe_thread_join(member->thread);
    free_member(member);
}

/* ---- Training thread ------------------------------------------------------------------------- */

void harpe_power_member_take_plans(harpe_power_member *member, const harpe_limit_plans *plans) {
    if (!member) return;
    /* Until now, limits were measured. A power from that time belongs to no plan. */
    atomic_fetch_add(&member->changes, 2);
    atomic_store(&member->plan, plans->chosen);
    atomic_store(&member->plans, plans);
    ring(member);
}

void harpe_power_member_give_up(harpe_power_member *member) {
    if (!member) return;
    atomic_store(&member->has_given_up, true);
    ring(member);
}

int64_t harpe_power_member_told(const harpe_power_member *member) {
    return member ? atomic_load(&member->told) : -1;
}

void harpe_power_member_begin_change(harpe_power_member *member) {
    if (member) atomic_fetch_add(&member->changes, 1);
}

void harpe_power_member_end_change(harpe_power_member *member, size_t plan) {
    if (!member) return;
    atomic_store(&member->plan, plan);
    atomic_fetch_add(&member->changes, 1);
    ring(member);
}

void harpe_power_member_note_power(harpe_power_member *member, double power_w) {
    if (!member) return;
    atomic_store(&member->noted_w, power_w);
    atomic_store(&member->noted_changes, atomic_load(&member->changes));
}
