/* SPDX-License-Identifier: Apache-2.0 */
/* Carries out clock requests: reads a frequency from the slot and sets it on the GPU. While
 * requests arrive, the thread reads the slot at short intervals. It does not read the slot before
 * the time at which the next write is allowed. When no requests arrive, it sleeps until the trainer
 * wakes it. */
#include "client/controller_apply_clock.h"

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
    int64_t start_ns, start_gpu_ns; /* the same moment on both clocks */
} applier;

/* ---- Writing --------------------------------------------------------------------------------- */

static void count(_Atomic uint64_t *counter) {
    atomic_store(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1);
}

/* Converts the dwell time from GPU time to real time. GPU time may run faster for emulated GPUs. */
static int64_t dwell_real_ns(const applier *self) {
    int64_t dwell_ns = self->shared->header->dwell_ns;
    double real_ns = (double)(harpe_clock_ns() - self->start_ns);
    double gpu_ns = (double)(harpe_gpus_clock_ns(self->shared->gpu.gpus) - self->start_gpu_ns);
    if (real_ns <= 0 || gpu_ns <= 0) return dwell_ns;
    return (int64_t)((double)dwell_ns * real_ns / gpu_ns);
}

/* Reports a failed write. Does not report the same status again before a write has succeeded or has
 * failed in another way. Never waits for a trainer that does not read. */
static void tell_refusal(applier *self, const harpe_error *error) {
    if (self->refusal == error->status) return;
    self->refusal = error->status;
    harpe_controller_message message = {
        .news = HARPE_CONTROLLER_REFUSED, .process = (int32_t)getpid(), .error = *error};
    (void)send(HARPE_HELPER_SOCKET, &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT);
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

static void write_clock(applier *self, uint64_t request, int64_t now_ns) {
    harpe_controller_slot *slot = self->slot;
    harpe_clock_thread *shared = self->shared;
    harpe_error error;
    if (check_terms(&shared->header->terms, harpe_clock_request_mhz(request), &error)) {
        count(&slot->failed);
        tell_refusal(self, &error);
        return;
    }
    note_latency(slot, request, now_ns);
    self->has_written = true;
    harpe_status status =
        harpe_controller_gpu_lock_graphics(&shared->gpu, harpe_clock_request_mhz(request), &error);
    if (status != HARPE_OK) {
        count(&slot->failed);
        shared->current_mhz = 0;
        tell_refusal(self, &error);
        back_off(self);
        return;
    }
    count(&slot->written);
    harpe_obedience_note(shared->obedience, harpe_clock_request_mhz(request));
    shared->current_mhz = harpe_clock_request_mhz(request);
    self->refusal = HARPE_OK;
    self->back_off_ns = 0;
    self->not_before_ns = harpe_clock_ns() + pause_after_write_ns(self);
}

static void take(applier *self, uint64_t request) {
    uint32_t mhz = harpe_clock_request_mhz(request);
    if (mhz == 0 || mhz == self->shared->current_mhz)
        count(&self->slot->skipped);
    else
        write_clock(self, request, harpe_clock_ns());
    /* The holder of a lease could keep this thread busy with requests that change nothing. */
    int64_t now_ns = harpe_clock_ns();
    if (self->shared->header->terms.is_lease && self->not_before_ns < now_ns)
        self->not_before_ns = now_ns + SHORT_NAP_NS;
    self->taken = request;
    atomic_store(&self->slot->taken_request, request);
    count(&self->slot->taken);
}

/* ---- Waiting --------------------------------------------------------------------------------- */

static void nap(int64_t duration_ns) {
    struct timespec pause = {.tv_nsec =
                                 duration_ns < LONGEST_NAP_NS ? duration_ns : LONGEST_NAP_NS};
    (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
}

/* Sleeps. See harpe_frequency_controller_set for the order of stores and loads. */
static void park(applier *self) {
    harpe_controller_slot *slot = self->slot;
    atomic_store(&slot->is_parked, 1);
    if (atomic_load(&slot->request) == self->taken && !atomic_load(&self->shared->is_over) &&
        syscall(SYS_futex, &slot->is_parked, FUTEX_WAIT, 1, NULL, NULL, 0) != 0 &&
        atomic_load(&slot->request) == self->taken)
        nap(SHORT_NAP_NS); /* a hostile trainer keeps this thread from sleeping */
    atomic_store(&slot->is_parked, 0);
}

static void wait_for_request(applier *self, int64_t now_ns) {
    int64_t poll_ns = self->shared->header->poll_ns;
    if (poll_ns < 0 || now_ns > self->awake_until_ns)
        park(self);
    else
        nap(poll_ns);
}

/* ---- The thread ------------------------------------------------------------------------------ */

void *harpe_controller_apply_clocks(void *clock_thread) {
    harpe_clock_thread *shared = clock_thread;
    applier self = {.shared = shared,
                    .slot = shared->slot,
                    .taken = atomic_load(&shared->slot->taken_request),
                    .start_ns = harpe_clock_ns(),
                    .start_gpu_ns = harpe_gpus_clock_ns(shared->gpu.gpus)};
    (void)prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    while (!atomic_load(&shared->is_over)) {
        /* No write is allowed before this time, so the slot need not be read either. */
        int64_t now_ns = harpe_clock_ns();
        if (now_ns < self.not_before_ns) {
            nap(self.not_before_ns - now_ns);
            continue;
        }
        uint64_t request = atomic_load(&shared->slot->request);
        if (request == self.taken) {
            wait_for_request(&self, now_ns);
        } else {
            self.awake_until_ns = now_ns + AWAKE_NS;
            take(&self, request);
        }
    }
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
    uint32_t *futex = (uint32_t *)&clock_thread->slot->is_parked;
    atomic_store(&clock_thread->is_over, true);
    atomic_store(&clock_thread->slot->is_parked, 0);
    (void)syscall(SYS_futex, futex, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
