/* SPDX-License-Identifier: Apache-2.0 */
/* The controller's process. It sets the GPU's highest clocks and starts a thread that carries out
 * clock requests. Then it waits for the end of the trainer and restores the GPU. The process runs
 * the program harpe, or the node agent's program, and does no other work. */
#include "client/control.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/helper_process.h"
#include "base/process.h"
#include "base/wait.h"

/* ---- The thread of clock requests ------------------------------------------------------------ */

/* Carries out clock requests: reads a frequency from the slot and sets it on the GPU. While
 * requests arrive, the thread reads the slot at short intervals. It does not read the slot before
 * the time at which the next write is allowed. When no requests arrive, it sleeps until the trainer
 * wakes it. If the GPU's clock changes late, it sets clocks before they are requested
 * (anticipation.c). */

/* Belongs to the thread while the thread runs. */
typedef struct clock_thread_state {
    const harpe_controller_header *header;
    harpe_controller_slot *slot;
    const harpe_holding *holding;
    harpe_obedience *obedience;
    harpe_controller_gpu gpu; /* the thread's own handle */
    uint32_t current_mhz;     /* locked clock; 0: not known */
    _Atomic bool is_over;     /* see stop_clock_thread */
    _Atomic bool has_ended;
    harpe_status status; /* result of resetting the clocks */
    harpe_error error;
} clock_thread_state;

enum { CLOCKS = 1 << HARPE_SET_GRAPHICS_CLOCKS | 1 << HARPE_SET_MEMORY_CLOCKS };

#define SHORTEST_US 500 /* of GPU time; shorter changes of the clock are not anticipated */
#define AWAKE_NS INT64_C(1000000000) /* time from the last request until the thread sleeps */
#define FIRST_BACK_OFF_NS INT64_C(100000000)
#define LONGEST_BACK_OFF_NS INT64_C(5000000000)
#define SHORT_NAP_NS INT64_C(20000)
#define LONGEST_NAP_NS INT64_C(10000000) /* longest time between two checks for the end */

typedef struct applier {
    clock_thread_state *shared;
    harpe_controller_slot *slot;
    uint64_t taken;         /* the last request handled */
    int64_t awake_until_ns; /* real time, like all below */
    int64_t not_before_ns;  /* earliest time of the next write, after the dwell time or back-off */
    int64_t back_off_ns;    /* 0: the last write succeeded */
    harpe_status refusal;   /* the last refusal that was reported */
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

static int64_t pause_after_write_ns(const applier *self) {
    int64_t dwell_ns = dwell_real_ns(self);
    int64_t shortest_ns = self->shared->header->terms.shortest_change_ns;
    return dwell_ns > shortest_ns ? dwell_ns : shortest_ns;
}

/* Calls the driver. Returns true on success. */
static bool lock_clock(applier *self, uint32_t mhz) {
    clock_thread_state *shared = self->shared;
    harpe_error error;
    if (harpe_lease_terms_check(&shared->header->terms, HARPE_SET_GRAPHICS_CLOCKS, mhz, &error) !=
        HARPE_OK) {
        count(&self->slot->failed);
        tell_refusal(self, &error);
        return false;
    }
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

/* ---- The loop -------------------------------------------------------------------------------- */

/* Carries out requests until is_over, then resets the clocks. The argument is a clock_thread_state.
 * Returns NULL. */
static void *apply_clocks(void *clock_thread) {
    clock_thread_state *shared = clock_thread;
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
    /* Another thread may have reset the clocks before a write of this thread took effect. */
    shared->status =
        harpe_controller_gpu_restore(&shared->gpu, shared->holding, CLOCKS, &shared->error);
    atomic_store(&shared->has_ended, true);
    return NULL;
}

/* Makes the thread ignore further requests. Called from another thread. */
static void stop_clock_thread(clock_thread_state *clock_thread) {
    atomic_store(&clock_thread->is_over, true);
    atomic_store(&clock_thread->slot->is_parked, 0);
    harpe_wake(&clock_thread->slot->is_parked);
}

/* ---- The process ----------------------------------------------------------------------------- */

/* When the trainer ends, the request thread may still be in a driver call. After TIMEOUT_S, this
 * thread resets the clocks itself. After another LONGEST_TIMEOUT_S, the process no longer waits for
 * the call. */
#define TIMEOUT_S 0.3
#define LONGEST_TIMEOUT_S 60.0
#define LOOK_NS 2000000

typedef struct controller_process {
    harpe_controller_header header;
    harpe_controller_slot *slot;
    harpe_controller_gpu gpu; /* the handle of this thread */
    harpe_holding *holding;
    harpe_obedience obedience;
    clock_thread_state clock_thread;
    pthread_t thread;
} controller_process;

/* Does not wait for the holder of a lease at the end, because the holder may never read. The main
 * loop notices a trainer that is gone. */
static void tell(const controller_process *controller, harpe_controller_news news,
                 harpe_status status, const harpe_error *error) {
    harpe_controller_message message = {.news = news, .process = (int32_t)harpe_process_self()};
    if (status != HARPE_OK) message.error = *error;
    message.error.status = status;
    bool is_urgent = news == HARPE_CONTROLLER_RESTORED && controller->header.terms.is_lease;
    if (is_urgent)
        (void)harpe_helper_process_send_now(harpe_helper_socket(), &message, sizeof message);
    else
        (void)harpe_helper_process_send(harpe_helper_socket(), &message, sizeof message);
}

/* ---- Start ----------------------------------------------------------------------------------- */

static harpe_status receive_header(harpe_controller_header *header, harpe_error *error) {
    if (!harpe_helper_process_receive(harpe_helper_socket(), header, sizeof *header, -1) ||
        header->magic != HARPE_CONTROLLER_MAGIC || header->version != HARPE_CONTROLLER_VERSION ||
        header->slot_size != sizeof(harpe_controller_slot)) {
        return harpe_fail(error, HARPE_NOT_SUPPORTED,
                          "the program harpe is of another version than the library");
    }
    header->uuid[sizeof header->uuid - 1] = '\0';
    header->library_path[sizeof header->library_path - 1] = '\0';
    harpe_zeusd_place *place = &header->zeusd.place;
    place->socket[sizeof place->socket - 1] = '\0';
    place->host_port[sizeof place->host_port - 1] = '\0';
    header->zeusd.token[sizeof header->zeusd.token - 1] = '\0';
    return HARPE_OK;
}

static harpe_status map_slot(harpe_controller_slot **out, harpe_error *error) {
    void *memory = harpe_process_map(harpe_helper_memory(), sizeof **out);
    if (!memory) return harpe_fail_errno(error, errno, "memory shared with training");
    *out = memory;
    return HARPE_OK;
}

static harpe_status start_clock_thread(controller_process *controller, uint32_t highest_mhz,
                                       harpe_error *error) {
    clock_thread_state *clock_thread = &controller->clock_thread;
    clock_thread->header = &controller->header;
    clock_thread->slot = controller->slot;
    clock_thread->holding = controller->holding;
    clock_thread->obedience = &controller->obedience;
    clock_thread->current_mhz = highest_mhz;
    harpe_status status = harpe_controller_gpu_open(&controller->header, &clock_thread->gpu, error);
    if (status != HARPE_OK) return status;
    int result =
        harpe_thread_start(&controller->thread, "harpe-clocks", apply_clocks, clock_thread);
    if (result != 0) return harpe_fail_errno(error, result, "starting a thread");
    return HARPE_OK;
}

/* Removes the record on disk if the GPU is restored. A lost GPU returns after a reset with its
 * default settings, so its record stays. */
static void end_holding(controller_process *controller, harpe_status restored) {
    if (controller->holding && restored == HARPE_OK) controller->holding->changed = 0;
    harpe_holding_release(controller->holding);
    controller->holding = NULL;
}

/* Starts the controller. After a failure, undoes all changes to the GPU as far as the driver
 * allows. */
static harpe_status start(controller_process *controller, harpe_error *error) {
    uint32_t highest_mhz = 0;
    harpe_error ignored;
    harpe_status status = receive_header(&controller->header, error);
    if (status == HARPE_OK && controller->header.terms.is_lease)
        status = harpe_helper_process_end_on_signal(error);
    if (status == HARPE_OK) status = map_slot(&controller->slot, error);
    if (status == HARPE_OK)
        status = harpe_controller_gpu_open(&controller->header, &controller->gpu, error);
    if (status == HARPE_OK)
        status = harpe_controller_gpu_take(&controller->gpu, &controller->header, controller->slot,
                                           &controller->holding, &highest_mhz, error);
    if (status == HARPE_OK) {
        harpe_obedience_start(&controller->obedience, controller->slot, &controller->gpu);
        harpe_obedience_begin(&controller->obedience, highest_mhz);
        status = start_clock_thread(controller, highest_mhz, error);
    }
    if (status != HARPE_OK && controller->holding)
        end_holding(controller, harpe_controller_gpu_restore(&controller->gpu, controller->holding,
                                                             HARPE_ALL_SETTINGS, &ignored));
    return status;
}

/* ---- End ------------------------------------------------------------------------------------- */

static bool ends_within(clock_thread_state *clock_thread, double timeout_s) {
    double give_up_at = harpe_clock_s() + timeout_s;
    while (!atomic_load(&clock_thread->has_ended)) {
        if (harpe_clock_s() > give_up_at) return false;
        /* Again, because a hostile trainer can write to the futex on which the thread waits. */
        stop_clock_thread(clock_thread);
        harpe_sleep_ns(LOOK_NS);
    }
    return true;
}

/* Restores the GPU. The request thread resets the clocks after its present driver call. Meanwhile
 * this thread restores the power limit. */
static harpe_status restore(controller_process *controller, harpe_error *error) {
    clock_thread_state *clock_thread = &controller->clock_thread;
    stop_clock_thread(clock_thread);
    harpe_status status = harpe_controller_gpu_restore(&controller->gpu, controller->holding,
                                                       1U << HARPE_SET_POWER_LIMIT, error);
    if (!ends_within(clock_thread, TIMEOUT_S)) {
        harpe_error ignored;
        (void)harpe_controller_gpu_restore(&controller->gpu, controller->holding, CLOCKS, &ignored);
        if (!ends_within(clock_thread, LONGEST_TIMEOUT_S))
            return harpe_fail(error, HARPE_DRIVER_ERROR, "a driver call does not return");
    }
    harpe_thread_join(controller->thread);
    if (clock_thread->status != HARPE_OK) {
        *error = clock_thread->error;
        status = clock_thread->status;
    }
    harpe_controller_gpu_close(&clock_thread->gpu);
    return status;
}

int harpe_controller_main(int argc, char **argv) {
    (void)argc;
    (void)argv;
    /* Not freed if a thread hangs in the driver, which may outlive this function. */
    controller_process *controller = harpe_calloc(1, sizeof *controller);
    harpe_error error = {.status = HARPE_OK};
    harpe_helper_process_begin();
    harpe_status status = controller ? start(controller, &error) : harpe_fail_memory(&error);
    tell(controller, HARPE_CONTROLLER_READY, status, &error);
    if (status == HARPE_OK) {
        harpe_helper_process_leave_directory();
        (void)harpe_helper_process_wait(-1);
        status = restore(controller, &error);
        end_holding(controller, status);
        if (status != HARPE_OK)
            syslog(LOG_USER | LOG_ERR, "harpe: a GPU could not be restored: %s", error.message);
        tell(controller, HARPE_CONTROLLER_RESTORED, status, &error);
    }
    if (!controller) return EXIT_FAILURE;
    /* A thread is still in a call. */
    if (!harpe_obedience_stop(&controller->obedience))
        harpe_process_exit(status == HARPE_OK ? EXIT_SUCCESS : EXIT_FAILURE);
    if (controller->clock_thread.gpu.gpus) harpe_process_exit(EXIT_FAILURE);
    harpe_controller_gpu_close(&controller->gpu);
    harpe_process_unmap(controller->slot, sizeof *controller->slot);
    free(controller);
    return status == HARPE_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
