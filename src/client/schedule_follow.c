/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the clocks of a schedule, follows it instruction by instruction, and passes schedules
 * between two threads by two atomic pointers. It sets no clock and measures nothing. */
#include "client/optimizer_internal.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/possible.h"

/* ---- Checking -------------------------------------------------------------------------------- */

/* Checks the clocks of a schedule. A driver rounds a clock that its GPU does not offer, without a
 * word, so such a schedule would not run as it was planned. */

static int compare_descending(const void *a, const void *b) {
    int one = *(const int *)a, other = *(const int *)b;
    return (one < other) - (one > other);
}

static bool is_allowed(const harpe_allowed_clocks *allowed, int mhz) {
    if (mhz == 0) return true;
    if (mhz < allowed->lowest_mhz) return false;
    if (allowed->count > 0)
        return bsearch(&mhz, allowed->clocks_mhz, allowed->count, sizeof mhz, compare_descending);
    return mhz > 0 && mhz <= HARPE_CLOCK_HIGHEST_MHZ;
}

static void describe(const harpe_allowed_clocks *allowed, int mhz, char *text, size_t size) {
    if (allowed->lowest_mhz > 0 && mhz < allowed->lowest_mhz)
        (void)snprintf(text, size, "the lowest clock of this job is %d MHz (lowest_clock_mhz)",
                       allowed->lowest_mhz);
    else if (allowed->count == 1)
        (void)snprintf(text, size, "this job may use 1 clock of its GPU, %d MHz",
                       allowed->clocks_mhz[0]);
    else if (allowed->count > 0)
        (void)snprintf(text, size, "this job may use %zu clocks of its GPU, from %d to %d MHz",
                       allowed->count, allowed->clocks_mhz[allowed->count - 1],
                       allowed->clocks_mhz[0]);
    else
        (void)snprintf(text, size, "a clock is from 1 to %d MHz", HARPE_CLOCK_HIGHEST_MHZ);
}

harpe_status harpe_schedule_check(const harpe_frequency_schedule *schedule,
                                  const harpe_allowed_clocks *allowed, harpe_error *error) {
    for (size_t i = 0; i < schedule->instruction_count; i++) {
        const harpe_scheduled_instruction *one = &schedule->instructions[i];
        if (is_allowed(allowed, one->frequency_mhz)) continue;
        char reason[128];
        describe(allowed, one->frequency_mhz, reason, sizeof reason);
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "'%.63s' (instruction %zu of %zu) is to run at %d MHz, but %s",
                          one->instruction, i + 1, schedule->instruction_count, one->frequency_mhz,
                          reason);
    }
    return HARPE_OK;
}

/* Numbers of consecutive mismatches that prove that the schedule is wrong. A few are enough if no
 * step has ever fitted. After a step that fitted, mismatches may come from a long evaluation. */
enum { MISMATCHES_IF_NEVER_FITTED = 3, MISMATCHES_AFTER_A_FIT = 1000 };

/* ---- Handing over ---------------------------------------------------------------------------- */

harpe_followed_schedule *harpe_followed_schedule_new(harpe_frequency_schedule *frequencies) {
    harpe_followed_schedule *schedule = harpe_calloc(1, sizeof *schedule);
    if (!schedule) return NULL;
    schedule->schedule = *frequencies;
    *frequencies = (harpe_frequency_schedule){0};
    return schedule;
}

void harpe_followed_schedule_free(harpe_followed_schedule *schedule) {
    if (!schedule) return;
    harpe_frequency_schedule_free(&schedule->schedule);
    free(schedule);
}

/* Schedules that were given back form a list, because the training thread may take several
 * schedules before the other thread looks at the list. */
void harpe_schedule_exchange_clear(harpe_schedule_exchange *exchange) {
    harpe_followed_schedule_free(
        atomic_exchange_explicit(&exchange->next, NULL, memory_order_acq_rel));
    harpe_followed_schedule *used =
        atomic_exchange_explicit(&exchange->used, NULL, memory_order_acq_rel);
    while (used) {
        harpe_followed_schedule *before = used->given_back_before;
        harpe_followed_schedule_free(used);
        used = before;
    }
}

void harpe_schedule_post(harpe_schedule_exchange *exchange, harpe_followed_schedule *schedule) {
    harpe_schedule_exchange_clear(exchange);
    atomic_store_explicit(&exchange->next, schedule, memory_order_release);
}

/* ---- Following ------------------------------------------------------------------------------- */

/* Gives a schedule back. Only this thread adds to the list, and the other thread takes the whole
 * list, so the loop runs twice at most. */
static void return_schedule(harpe_schedule_exchange *exchange, harpe_followed_schedule *schedule) {
    if (!schedule) return;
    harpe_followed_schedule *before = atomic_load_explicit(&exchange->used, memory_order_relaxed);
    do {
        schedule->given_back_before = before;
    } while (!atomic_compare_exchange_strong_explicit(&exchange->used, &before, schedule,
                                                      memory_order_release, memory_order_relaxed));
}

static void take_up(harpe_follower *follower, harpe_schedule_exchange *exchange) {
    if (!atomic_load_explicit(&exchange->next, memory_order_relaxed)) return;
    harpe_followed_schedule *next =
        atomic_exchange_explicit(&exchange->next, NULL, memory_order_acq_rel);
    if (!next) return;
    return_schedule(exchange, follower->schedule);
    follower->schedule = next;
    follower->fitting_steps = 0;
    follower->mismatches_in_a_row = 0;
}

void harpe_follower_begin_step(harpe_follower *follower, harpe_schedule_exchange *exchange) {
    take_up(follower, exchange);
    follower->position = 0;
    follower->is_in_step = true;
    follower->fits = true;
}

static void copy_name(char into[HARPE_INSTRUCTION_SIZE], const char *name) {
    size_t length = strnlen(name, HARPE_INSTRUCTION_SIZE - 1);
    memcpy(into, name, length);
    into[length] = '\0';
}

static void fill_mismatch(const harpe_follower *follower, harpe_mismatch_kind kind,
                          const char *found, harpe_mismatch *mismatch) {
    const harpe_followed_schedule *followed = follower->schedule;
    const harpe_frequency_schedule *schedule = &followed->schedule;
    *mismatch = (harpe_mismatch){.kind = kind,
                                 .round = followed->round,
                                 .position = follower->position,
                                 .count = schedule->instruction_count};
    if (found) copy_name(mismatch->found, found);
    if (follower->position < schedule->instruction_count)
        copy_name(mismatch->scheduled, schedule->instructions[follower->position].instruction);
}

bool harpe_follower_next(harpe_follower *follower, const char *instruction, int *frequency_mhz,
                         harpe_mismatch *mismatch) {
    const harpe_followed_schedule *followed = follower->schedule;
    if (!followed) {
        *frequency_mhz = 0;
        return true;
    }
    const harpe_frequency_schedule *schedule = &followed->schedule;
    *frequency_mhz = followed->highest_mhz;
    if (!follower->is_in_step || !follower->fits) return true;
    harpe_mismatch_kind kind = HARPE_MISMATCH_NONE;
    if (!instruction)
        kind = HARPE_MISMATCH_UNNAMED;
    else if (schedule->instruction_count == 0)
        return true;
    else if (follower->position == schedule->instruction_count)
        kind = HARPE_MISMATCH_LONGER;
    else if (strcmp(schedule->instructions[follower->position].instruction, instruction) != 0)
        kind = HARPE_MISMATCH_NAME;
    if (kind != HARPE_MISMATCH_NONE) {
        fill_mismatch(follower, kind, instruction, mismatch);
        follower->fits = false;
        return false;
    }
    *frequency_mhz = schedule->instructions[follower->position++].frequency_mhz;
    return true;
}

bool harpe_follower_end_step(harpe_follower *follower, harpe_mismatch *mismatch) {
    const harpe_followed_schedule *followed = follower->schedule;
    follower->is_in_step = false;
    if (!followed) return true;
    bool is_told = !follower->fits;
    if (follower->fits && follower->position < followed->schedule.instruction_count) {
        fill_mismatch(follower, HARPE_MISMATCH_SHORTER, NULL, mismatch);
        follower->fits = false;
    }
    if (!follower->fits) {
        follower->mismatches_in_a_row++;
        return is_told;
    }
    follower->mismatches_in_a_row = 0;
    follower->fitting_steps++;
    if (followed->schedule.instruction_count > 0) follower->has_ever_fitted = true;
    return true;
}

bool harpe_follower_is_lost(const harpe_follower *follower) {
    size_t enough = follower->has_ever_fitted ? MISMATCHES_AFTER_A_FIT : MISMATCHES_IF_NEVER_FITTED;
    return follower->mismatches_in_a_row >= enough;
}

/* ---- In words -------------------------------------------------------------------------------- */

void harpe_mismatch_describe(const harpe_mismatch *mismatch, char *line, size_t size) {
    char what[3 * HARPE_INSTRUCTION_SIZE];
    switch (mismatch->kind) {
    case HARPE_MISMATCH_NAME:
        (void)snprintf(what, sizeof what, "instruction %zu is '%s' where '%s' is scheduled",
                       mismatch->position, mismatch->found, mismatch->scheduled);
        break;
    case HARPE_MISMATCH_LONGER:
        (void)snprintf(what, sizeof what, "instruction %zu, '%s', is one too many",
                       mismatch->position, mismatch->found);
        break;
    case HARPE_MISMATCH_UNNAMED:
        (void)snprintf(what, sizeof what, "an instruction has no name (NULL)");
        break;
    default:
        (void)snprintf(what, sizeof what, "it ended after %zu instructions, before '%s'",
                       mismatch->position, mismatch->scheduled);
        break;
    }
    (void)snprintf(line, size,
                   "a step does not fit its schedule of %zu instructions (round %lld): %s",
                   mismatch->count, (long long)mismatch->round, what);
}
