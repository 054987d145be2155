/* SPDX-License-Identifier: Apache-2.0 */
/* Carries out clock requests: reads a frequency from the slot and sets it on the GPU. While
 * requests arrive, the thread reads the slot at short intervals. It does not read the slot before
 * the time at which the next write is allowed. When no requests arrive, it sleeps until the trainer
 * wakes it. If the GPU's clock changes late, it sets clocks before they are requested
 * (anticipation.h). */
#include "client/controller_apply_clock.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/helper_process.h"
#include "base/process.h"
#include "base/wait.h"
#include "client/anticipation.h"

#define SHORTEST_US 500 /* of GPU time; shorter changes of the clock are not anticipated */
#define AWAKE_NS INT64_C(1000000000) /* time from the last request until the thread sleeps */
#define FIRST_BACK_OFF_NS INT64_C(100000000)
#define LONGEST_BACK_OFF_NS INT64_C(5000000000)
#define SHORT_NAP_NS INT64_C(20000)
#define LONGEST_NAP_NS INT64_C(10000000) /* longest time between two checks for the end */

typedef struct applier {
    harpe_clock_thread *shared;
    harpe_controller_slot *slot;
    uint64_t taken;         /* the last request handled */
    int64_t awake_until_ns; /* real time, like all below */
    int64_t not_before_ns;  /* earliest time of the next write, after the dwell time or back-off */
    int64_t back_off_ns;    /* 0: the last write succeeded */
    harpe_status refusal;   /* the last refusal that was reported */
    bool has_written;
    int64_t start_ns, start_gpu_ns;   /* the same moment on both clocks */
    harpe_anticipation *anticipation; /* NULL: no memory, so no clock is set early */
    double real_per_gpu_time;         /* the function's result at the last call of anticipates() */
    uint64_t notes_read;
    int64_t begun_ns; /* time of the last note that an instruction begins */
} applier;

/* ---- Writing --------------------------------------------------------------------------------- */

static void count(_Atomic uint64_t *counter) {
    atomic_store(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1);
}

/* Returns the real time in which one unit of GPU time passes. GPU time may run faster for emulated
 * GPUs. */
static double real_per_gpu_time(const applier *self) {
    double real_ns = (double)(harpe_clock_ns() - self->start_ns);
    double gpu_ns = (double)(harpe_gpus_clock_ns(self->shared->gpu.gpus) - self->start_gpu_ns);
    return real_ns > 0 && gpu_ns > 0 ? real_ns / gpu_ns : 1;
}

/* Converts the dwell time from GPU time to real time. */
static int64_t dwell_real_ns(const applier *self) {
    return (int64_t)((double)self->shared->header->dwell_ns * real_per_gpu_time(self));
}

/* Reports a failed write. Does not report the same status again before a write has succeeded or has
 * failed in another way. Never waits for a trainer that does not read. */
static void tell_refusal(applier *self, const harpe_error *error) {
    if (self->refusal == error->status) return;
    self->refusal = error->status;
    harpe_controller_message message = {.news = HARPE_CONTROLLER_REFUSED,
                                        .process = (int32_t)harpe_process_self(),
                                        .error = *error};
    (void)send(harpe_helper_socket(), &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void back_off(applier *self) {
    int64_t longer_ns = self->back_off_ns > 0 ? 2 * self->back_off_ns : FIRST_BACK_OFF_NS;
    self->back_off_ns = longer_ns < LONGEST_BACK_OFF_NS ? longer_ns : LONGEST_BACK_OFF_NS;
    self->not_before_ns = harpe_clock_ns() + self->back_off_ns;
}

static void note_latency(harpe_controller_slot *slot, uint64_t request, int64_t now_ns) {
    uint64_t age_ns = harpe_clock_request_age_ns(request, now_ns);
    uint64_t write = atomic_load_explicit(&slot->written, memory_order_relaxed);
    atomic_store_explicit(&slot->latency_ns[write % HARPE_CONTROLLER_LATENCIES],
                          age_ns < UINT32_MAX ? (uint32_t)age_ns : UINT32_MAX,
                          memory_order_relaxed);
}

/* Fails if the terms of the lease forbid the clock. */
static harpe_status check_terms(const harpe_lease_terms *terms, uint32_t mhz, harpe_error *error) {
    if (terms->lowest_mhz > 0 && mhz < terms->lowest_mhz)
        return harpe_fail(error, HARPE_PERMISSION_DENIED,
                          "the node agent refuses %u MHz: its rule lowest_clock_mhz is %u; its "
                          "administrator can change the rule",
                          mhz, terms->lowest_mhz);
    if (terms->highest_mhz > 0 && mhz > terms->highest_mhz)
        return harpe_fail(error, HARPE_PERMISSION_DENIED,
                          "the node agent refuses %u MHz: its rule highest_clock_mhz is %u; its "
                          "administrator can change the rule",
                          mhz, terms->highest_mhz);
    return HARPE_OK;
}

static int64_t pause_after_write_ns(const applier *self) {
    int64_t dwell_ns = dwell_real_ns(self);
    int64_t shortest_ns = self->shared->header->terms.shortest_change_ns;
    return dwell_ns > shortest_ns ? dwell_ns : shortest_ns;
}

/* Calls the driver. Returns true on success. */
static bool lock_clock(applier *self, uint32_t mhz) {
    harpe_clock_thread *shared = self->shared;
    harpe_error error;
    if (check_terms(&shared->header->terms, mhz, &error)) {
        count(&self->slot->failed);
        tell_refusal(self, &error);
        return false;
    }
    self->has_written = true;
    harpe_obedience_ask(shared->obedience, mhz);
    harpe_status status = harpe_controller_gpu_lock_graphics(&shared->gpu, mhz, &error);
    if (status != HARPE_OK) {
        harpe_obedience_fail(shared->obedience);
        count(&self->slot->failed);
        shared->current_mhz = 0;
        tell_refusal(self, &error);
        back_off(self);
        return false;
    }
    harpe_obedience_note(shared->obedience, mhz);
    shared->current_mhz = mhz;
    self->refusal = HARPE_OK;
    self->back_off_ns = 0;
    self->not_before_ns = harpe_clock_ns() + pause_after_write_ns(self);
    return true;
}

/* Carries out a request with the clock `mhz`; 0: leaves the clock alone. */
static void take(applier *self, uint64_t request, uint32_t mhz) {
    if (mhz == 0 || mhz == self->shared->current_mhz) {
        count(&self->slot->skipped);
    } else {
        note_latency(self->slot, request, harpe_clock_ns());
        if (lock_clock(self, mhz)) count(&self->slot->written);
    }
    /* The holder of a lease could keep this thread busy with requests that change nothing. */
    int64_t now_ns = harpe_clock_ns();
    if (self->shared->header->terms.is_lease && self->not_before_ns < now_ns)
        self->not_before_ns = now_ns + SHORT_NAP_NS;
    self->taken = request;
    atomic_store(&self->slot->taken_request, request);
    count(&self->slot->taken);
}

/* ---- Anticipating ---------------------------------------------------------------------------- */

static void read_note(applier *self, uint64_t index) {
    const harpe_position_note *note = &self->slot->notes[index % HARPE_CONTROLLER_NOTES];
    int64_t time_ns = atomic_load_explicit(&note->time_ns, memory_order_relaxed);
    uint64_t what = atomic_load_explicit(&note->what, memory_order_relaxed);
    if (!(what >> 56)) {
        harpe_anticipation_end(self->anticipation, time_ns);
        return;
    }
    self->begun_ns = time_ns;
    harpe_anticipation_begin(self->anticipation, (uint32_t)(what >> 40) & 0xFFFF,
                             (uint32_t)(what >> 16) & 0xFFFFFF, (uint32_t)what & 0xFFFF, time_ns);
}

/* Reads the new notes. If the training has overwritten some of them, only the newest one counts. */
static void read_notes(applier *self) {
    harpe_controller_slot *slot = self->slot;
    uint64_t end = atomic_load_explicit(&slot->note_count, memory_order_acquire);
    if (end == self->notes_read) return;
    bool has_lost = end - self->notes_read > HARPE_CONTROLLER_NOTES / 2;
    uint64_t first = has_lost ? end - 1 : self->notes_read;
    for (uint64_t i = first; i < end; i++)
        read_note(self, i);
    atomic_thread_fence(memory_order_acquire);
    uint64_t now = atomic_load_explicit(&slot->note_count, memory_order_relaxed);
    if (has_lost || now - first > HARPE_CONTROLLER_NOTES)
        harpe_anticipation_lose(self->anticipation);
    self->notes_read = end;
}

/* Returns true if the anticipation knows the instruction of this request, and the GPU's clock
 * changes late. Otherwise requests are carried out as they come. */
static bool anticipates(applier *self, uint64_t request) {
    if (!self->anticipation) return false;
    read_notes(self);
    bool is_late = harpe_switch_find(&self->slot->switch_table, 0).median_us >= SHORTEST_US;
    self->real_per_gpu_time = real_per_gpu_time(self);
    bool is_wanted = is_late && atomic_load(&self->slot->may_anticipate) != 0;
    if (atomic_load_explicit(&self->slot->wants_ends, memory_order_relaxed) != is_wanted)
        atomic_store(&self->slot->wants_ends, is_wanted);
    if (!is_wanted || !harpe_anticipation_is_following(self->anticipation)) return false;
    /* A request that is younger than the last note has no position. */
    return harpe_clock_request_age_ns(request, self->begun_ns) < UINT64_C(1) << 47;
}

/* Asks for a clock that no request has asked for yet. */
static void ask_early(applier *self, const harpe_anticipated *next) {
    if (next->mhz != self->shared->current_mhz && lock_clock(self, next->mhz))
        count(next->is_return ? &self->slot->returned : &self->slot->anticipated);
}

/* A harpe_switch_time_of, in real time. */
static harpe_switch_time switch_time(const void *user, uint32_t mhz) {
    const applier *self = user;
    harpe_switch_entry entry = harpe_switch_find(&self->slot->switch_table, mhz);
    double ns = 1000 * self->real_per_gpu_time;
    uint32_t spread_us = entry.p95_us > entry.median_us ? entry.p95_us - entry.median_us : 0;
    return (harpe_switch_time){.latency_ns = (int64_t)(entry.median_us * ns),
                               .spread_ns = (int64_t)(spread_us * ns)};
}

/* Makes all calls that are due. Returns the time of the next one. */
static int64_t anticipate(applier *self, uint64_t request) {
    harpe_anticipation *anticipation = self->anticipation;
    for (;;) {
        int64_t now_ns = harpe_clock_ns();
        bool is_new = request != self->taken;
        harpe_anticipated next = harpe_anticipation_next(anticipation, now_ns, switch_time, self);
        if (is_new) take(self, request, next.is_early || next.is_return ? 0 : next.mhz);
        if (next.mhz == 0) return next.at_ns;
        if (next.is_early || next.is_return) ask_early(self, &next);
        harpe_anticipation_asked(anticipation, &next);
        /* After a failure, another call follows. If the terms forbid the clock, none follows. */
        if (self->shared->current_mhz == 0) harpe_anticipation_set(anticipation, 0);
        if (harpe_clock_ns() < self->not_before_ns) return self->not_before_ns;
    }
}

/* Handles the latest request, if it is new. Returns the time of the next call without a new
 * request. */
static int64_t handle(applier *self, uint64_t request, int64_t now_ns) {
    bool is_new = request != self->taken;
    if (is_new) self->awake_until_ns = now_ns + AWAKE_NS;
    if (anticipates(self, request)) return anticipate(self, request);
    if (is_new) {
        take(self, request, harpe_clock_request_mhz(request));
        if (self->anticipation)
            harpe_anticipation_set(self->anticipation, self->shared->current_mhz);
    }
    return HARPE_ANTICIPATION_NEVER;
}

/* ---- Waiting --------------------------------------------------------------------------------- */

static void nap(int64_t duration_ns) {
    harpe_sleep_ns(duration_ns < LONGEST_NAP_NS ? duration_ns : LONGEST_NAP_NS);
}

/* Sleeps, at most until `until_ns`. See harpe_frequency_controller_set for the order of stores and
 * loads. */
static void park(applier *self, int64_t now_ns, int64_t until_ns) {
    harpe_controller_slot *slot = self->slot;
    int64_t left_ns = until_ns == HARPE_ANTICIPATION_NEVER ? -1 : until_ns - now_ns;
    atomic_store(&slot->is_parked, 1);
    if (atomic_load(&slot->request) == self->taken && !atomic_load(&self->shared->is_over)) {
        int failure = harpe_wait_while(&slot->is_parked, 1, left_ns);
        if (failure && failure != ETIMEDOUT && atomic_load(&slot->request) == self->taken)
            nap(SHORT_NAP_NS); /* a hostile trainer keeps this thread from sleeping */
    }
    atomic_store(&slot->is_parked, 0);
}

static void wait_for_request(applier *self, int64_t until_ns) {
    int64_t now_ns = harpe_clock_ns();
    int64_t poll_ns = self->shared->header->poll_ns;
    if (until_ns <= now_ns) return;
    if (poll_ns < 0 || now_ns > self->awake_until_ns)
        park(self, now_ns, until_ns);
    else
        nap(until_ns - now_ns < poll_ns ? until_ns - now_ns : poll_ns);
}

/* ---- The thread ------------------------------------------------------------------------------ */

void *harpe_controller_apply_clocks(void *clock_thread) {
    harpe_clock_thread *shared = clock_thread;
    applier self = {.shared = shared,
                    .slot = shared->slot,
                    .taken = atomic_load(&shared->slot->taken_request),
                    .start_ns = harpe_clock_ns(),
                    .start_gpu_ns = harpe_gpus_clock_ns(shared->gpu.gpus),
                    .notes_read = atomic_load(&shared->slot->note_count)};
    self.anticipation = harpe_anticipation_new();
    if (self.anticipation) harpe_anticipation_set(self.anticipation, shared->current_mhz);
    (void)prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    while (!atomic_load(&shared->is_over)) {
        /* No write is allowed before this time, so the slot need not be read either. */
        int64_t now_ns = harpe_clock_ns();
        if (now_ns < self.not_before_ns) {
            nap(self.not_before_ns - now_ns);
            continue;
        }
        uint64_t request = atomic_load(&shared->slot->request);
        int64_t until_ns = handle(&self, request, now_ns);
        if (request == self.taken && atomic_load(&shared->slot->request) == request)
            wait_for_request(&self, until_ns);
    }
    harpe_anticipation_free(self.anticipation);
    /* Marks the clocks as changed, so that they are reset again. Another thread may have reset them
     * before a write of this thread took effect. */
    if (self.has_written) atomic_fetch_or(&shared->changes->touched, HARPE_TOUCHED_GRAPHICS_CLOCKS);
    shared->status = harpe_controller_gpu_restore(
        &shared->gpu, shared->changes, HARPE_TOUCHED_GRAPHICS_CLOCKS | HARPE_TOUCHED_MEMORY_CLOCKS,
        &shared->error);
    atomic_store(&shared->has_ended, true);
    return NULL;
}

void harpe_controller_stop_clock_thread(harpe_clock_thread *clock_thread) {
    atomic_store(&clock_thread->is_over, true);
    atomic_store(&clock_thread->slot->is_parked, 0);
    harpe_wake(&clock_thread->slot->is_parked);
}
