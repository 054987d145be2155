/* SPDX-License-Identifier: Apache-2.0 */
/* Obeys wishes: looks at the slot, and writes the frequency to the GPU. This is where a plan's
 * frequency finally goes to the driver. Looks often while wishes come, not at all while it may not
 * write, and sleeps until it is woken when no wishes come. */
#include "client/controller_obey.h"

#include <linux/futex.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/side_process.h"

#define AWAKE_NS INT64_C(1000000000) /* after the last wish, before it goes to sleep */
#define FIRST_BACK_OFF_NS INT64_C(100000000)
#define LONGEST_BACK_OFF_NS INT64_C(5000000000)
#define LONGEST_NAP_NS INT64_C(10000000) /* between two looks whether all is over */

typedef struct obeyer {
    harpe_obedience *shared;
    harpe_controller_slot *slot;
    uint64_t taken;         /* the last wish that was dealt with */
    int64_t awake_until_ns; /* real time, as all below */
    int64_t not_before_ns;  /* of the next write: dwell time, or back-off after a refusal */
    int64_t back_off_ns;    /* 0: the last write went well */
    harpe_status refusal;   /* the last one that was told */
    bool has_written;
    int64_t start_ns, start_gpu_ns; /* the same moment, on both clocks */
} obeyer;

/* ---- Writing -------------------------------------------------------------------------------- */

static void count(_Atomic uint64_t *counter) {
    atomic_store(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1);
}

/* The dwell time is GPU time, and emulated GPUs may live faster. */
static int64_t dwell_real_ns(const obeyer *obeying) {
    int64_t dwell_ns = obeying->shared->header->dwell_ns;
    double real_ns = (double)(harpe_clock_ns() - obeying->start_ns);
    double gpu_ns =
        (double)(harpe_gpus_clock_ns(obeying->shared->gpu.gpus) - obeying->start_gpu_ns);
    if (real_ns <= 0 || gpu_ns <= 0) return dwell_ns;
    return (int64_t)((double)dwell_ns * real_ns / gpu_ns);
}

/* Told once, until it goes well again or fails in another way. Never waits for a trainer that does
 * not listen. */
static void tell_refusal(obeyer *obeying, const harpe_error *error) {
    if (obeying->refusal == error->status) return;
    obeying->refusal = error->status;
    harpe_controller_message message = {
        .news = HARPE_CONTROLLER_REFUSED, .process = (int32_t)getpid(), .error = *error};
    (void)send(HARPE_SIDE_SOCKET, &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void back_off(obeyer *obeying) {
    int64_t longer_ns = obeying->back_off_ns > 0 ? 2 * obeying->back_off_ns : FIRST_BACK_OFF_NS;
    obeying->back_off_ns = longer_ns < LONGEST_BACK_OFF_NS ? longer_ns : LONGEST_BACK_OFF_NS;
    obeying->not_before_ns = harpe_clock_ns() + obeying->back_off_ns;
}

static void note_latency(harpe_controller_slot *slot, uint64_t wish, int64_t now_ns) {
    uint64_t age_ns = harpe_wish_age_ns(wish, now_ns);
    uint64_t write = atomic_load_explicit(&slot->written, memory_order_relaxed);
    atomic_store_explicit(&slot->latency_ns[write % HARPE_CONTROLLER_LATENCIES],
                          age_ns < UINT32_MAX ? (uint32_t)age_ns : UINT32_MAX,
                          memory_order_relaxed);
}

static void write_clock(obeyer *obeying, uint64_t wish, int64_t now_ns) {
    harpe_controller_slot *slot = obeying->slot;
    harpe_obedience *shared = obeying->shared;
    harpe_error error;
    note_latency(slot, wish, now_ns);
    obeying->has_written = true;
    harpe_status status =
        harpe_controller_gpu_lock_graphics(&shared->gpu, harpe_wish_mhz(wish), &error);
    if (status != HARPE_OK) {
        count(&slot->failed);
        shared->current_mhz = 0;
        tell_refusal(obeying, &error);
        back_off(obeying);
        return;
    }
    count(&slot->written);
    shared->current_mhz = harpe_wish_mhz(wish);
    obeying->refusal = HARPE_OK;
    obeying->back_off_ns = 0;
    obeying->not_before_ns = harpe_clock_ns() + dwell_real_ns(obeying);
}

static void take(obeyer *obeying, uint64_t wish) {
    uint32_t mhz = harpe_wish_mhz(wish);
    if (mhz == 0 || mhz == obeying->shared->current_mhz) {
        count(&obeying->slot->skipped);
    } else {
        write_clock(obeying, wish, harpe_clock_ns());
    }
    obeying->taken = wish;
    atomic_store(&obeying->slot->taken_wish, wish);
    count(&obeying->slot->taken);
}

/* ---- Waiting -------------------------------------------------------------------------------- */

static void nap(int64_t duration_ns) {
    struct timespec pause = {.tv_nsec =
                                 duration_ns < LONGEST_NAP_NS ? duration_ns : LONGEST_NAP_NS};
    (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
}

/* See harpe_frequency_controller_set for the order of stores and loads. */
static void park(obeyer *obeying) {
    harpe_controller_slot *slot = obeying->slot;
    atomic_store(&slot->is_parked, 1);
    if (atomic_load(&slot->wish) == obeying->taken && !atomic_load(&obeying->shared->is_over)) {
        (void)syscall(SYS_futex, &slot->is_parked, FUTEX_WAIT, 1, NULL, NULL, 0);
    }
    atomic_store(&slot->is_parked, 0);
}

static void wait_for_wish(obeyer *obeying, int64_t now_ns) {
    int64_t poll_ns = obeying->shared->header->poll_ns;
    if (poll_ns < 0 || now_ns > obeying->awake_until_ns) {
        park(obeying);
    } else {
        nap(poll_ns);
    }
}

/* ---- The thread ----------------------------------------------------------------------------- */

void *harpe_controller_obey(void *obedience) {
    harpe_obedience *shared = obedience;
    obeyer obeying = {.shared = shared,
                      .slot = shared->slot,
                      .taken = atomic_load(&shared->slot->taken_wish),
                      .start_ns = harpe_clock_ns(),
                      .start_gpu_ns = harpe_gpus_clock_ns(shared->gpu.gpus)};
    (void)prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    while (!atomic_load(&shared->is_over)) {
        /* Nothing may be written before, so it need not look either. */
        int64_t now_ns = harpe_clock_ns();
        if (now_ns < obeying.not_before_ns) {
            nap(obeying.not_before_ns - now_ns);
            continue;
        }
        uint64_t wish = atomic_load(&shared->slot->wish);
        if (wish == obeying.taken) {
            wait_for_wish(&obeying, now_ns);
        } else {
            obeying.awake_until_ns = now_ns + AWAKE_NS;
            take(&obeying, wish);
        }
    }
    /* Again, should another have reset them while a write of this thread was under way. */
    if (obeying.has_written) {
        atomic_fetch_or(&shared->slot->touched, HARPE_TOUCHED_GRAPHICS_CLOCKS);
    }
    shared->status = harpe_controller_gpu_put_back(
        &shared->gpu, shared->slot, HARPE_TOUCHED_GRAPHICS_CLOCKS | HARPE_TOUCHED_MEMORY_CLOCKS,
        &shared->error);
    atomic_store(&shared->has_ended, true);
    return NULL;
}

void harpe_controller_obey_no_more(harpe_obedience *obedience) {
    atomic_store(&obedience->is_over, true);
    harpe_controller_slot_wake(obedience->slot);
}
