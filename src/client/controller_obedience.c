/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the GPU's clock and its event reasons, and writes them into the slot. */
#include "client/control.h"

#include "base/clock.h"
#include "base/wait.h"

/* The longest time that a change of the clock takes, in us of GPU time. On measured GPUs, a change
 * takes up to some hundred milliseconds (Velicka, Vysocky, Riha, arXiv 2502.20075). */
#define SETTLE_US UINT64_C(500000)
#define IDLE_REASON UINT64_C(1) /* nvmlClocksEventReasonGpuIdle */

enum {
    TOLERANCE_MHZ = 20,   /* clocks have steps of 15 MHz and less */
    STOP_MS = 300,        /* how long a stop waits for a driver call */
    FREELY_WATCHED = 256, /* changes that are watched as they come; later ones at intervals */
};

#define LOOK_NS INT64_C(100000000)     /* between two looks, in GPU time */
#define SHORT_LOOK_NS INT64_C(2000000) /* and at least this in real time */
#define WATCH_NS 500000                /* between two samples of a change */
#define WATCHED_US UINT64_C(1000000)   /* longest time for a change, in GPU time */
#define LEARNING_US UINT64_C(1000000)  /* between two watched changes while much is unknown */
#define REPEAT_US UINT64_C(60000000)   /* and afterwards, because a GPU may change */

/* Wakes the thread, which then looks at `is_over` and `has_change`. */
static void wake(harpe_obedience *obedience) {
    atomic_fetch_add(&obedience->calls, 1);
    harpe_wake(&obedience->calls);
}

static uint64_t now_us(const harpe_obedience *obedience) {
    return (uint64_t)harpe_gpus_clock_ns(obedience->gpu->gpus) / 1000 & ((UINT64_C(1) << 48) - 1);
}

void harpe_obedience_note(harpe_obedience *obedience, uint32_t mhz) {
    if (!obedience->has_thread) return;
    uint32_t count = atomic_load_explicit(&obedience->count, memory_order_relaxed);
    atomic_store(&obedience->writes[count % HARPE_OBEDIENCE_WRITES],
                 now_us(obedience) << 16 | (mhz & 0xFFFF));
    atomic_store(&obedience->count, count + 1);
    atomic_store(&obedience->calling_mhz, 0);
}

/* ---- Learning how long changes take ---------------------------------------------------------- */

/* Returns true if nothing more is to be learnt about changes to a clock: it has enough samples, or
 * the table is full without it. */
static bool is_known(const harpe_obedience *obedience, uint32_t mhz) {
    const harpe_switch_table *table = &obedience->slot->switch_table;
    for (size_t i = 0; i < HARPE_SWITCH_TARGETS; i++) {
        harpe_switch_entry entry = harpe_switch_entry_at(table, i);
        if (entry.mhz == 0) return false;
        if (entry.mhz == mhz) return entry.samples >= HARPE_SWITCH_ENOUGH;
    }
    return true;
}

/* Adds a request to those with which the other thread compares its samples. */
static void keep_ask(harpe_obedience *obedience, uint64_t at_us, uint32_t mhz) {
    uint32_t count = atomic_load_explicit(&obedience->ask_count, memory_order_relaxed);
    atomic_store(&obedience->asks[count % HARPE_OBEDIENCE_ASKS], at_us << 16 | (mhz & 0xFFFF));
    atomic_store(&obedience->ask_count, count + 1);
}

void harpe_obedience_begin(harpe_obedience *obedience, uint32_t mhz) {
    uint64_t at_us = now_us(obedience);
    if (atomic_load(&obedience->slot->ask_count) > 0)
        harpe_clock_asks_add(obedience->slot, at_us, mhz);
    if (obedience->has_thread) keep_ask(obedience, at_us, mhz);
    harpe_obedience_note(obedience, mhz);
}

void harpe_obedience_ask(harpe_obedience *obedience, uint32_t mhz) {
    uint64_t at_us = now_us(obedience);
    obedience->asked_us = at_us;
    harpe_clock_asks_add(obedience->slot, at_us, mhz);
    if (!obedience->has_thread) return;
    atomic_store(&obedience->calling_mhz, mhz);
    keep_ask(obedience, at_us, mhz);
    bool is_new = !is_known(obedience, mhz);
    bool is_free = is_new && obedience->watched < FREELY_WATCHED;
    if (!is_free && at_us < obedience->next_watch_us) return;
    obedience->watched++;
    obedience->next_watch_us = at_us + (is_new ? LEARNING_US : REPEAT_US);
    atomic_store(&obedience->has_change, true);
    wake(obedience);
}

void harpe_obedience_fail(harpe_obedience *obedience) {
    atomic_store(&obedience->calling_mhz, 0);
    harpe_clock_asks_add(obedience->slot, obedience->asked_us, 0);
}

/* Copies the last requests, newest first. */
static size_t copy_asks(const harpe_obedience *obedience, harpe_clock_ask *asks) {
    uint32_t count = atomic_load(&obedience->ask_count);
    size_t copied = count < HARPE_OBEDIENCE_ASKS ? count : HARPE_OBEDIENCE_ASKS - 1;
    for (uint32_t i = 0; i < copied; i++) {
        uint64_t ask = atomic_load(&obedience->asks[(count - 1 - i) % HARPE_OBEDIENCE_ASKS]);
        asks[i] = (harpe_clock_ask){.asked_us = ask >> 16, .mhz = ask & 0xFFFF};
    }
    return copied;
}

/* Takes a sample of the clock. Returns true if the last request has been carried out, or takes too
 * long. */
static bool sample(harpe_obedience *obedience) {
    harpe_clock_ask asks[HARPE_OBEDIENCE_ASKS];
    uint32_t held_mhz = 0;
    harpe_gpus *gpus = obedience->gpu->gpus;
    if (harpe_gpu_current_clocks(gpus, obedience->gpu->index, &held_mhz, NULL, NULL) != HARPE_OK)
        return true;
    uint64_t at_us = now_us(obedience);
    size_t count = copy_asks(obedience, asks);
    harpe_switch_learning_sample(&obedience->learning, asks, count, at_us, held_mhz);
    return count == 0 || harpe_switch_is_same(asks[0].mhz, held_mhz) ||
           at_us > asks[0].asked_us + WATCHED_US;
}

/* Reads the clock until the last change is over, or the thread must end. */
static void watch(harpe_obedience *obedience) {
    while (!sample(obedience) && !atomic_load(&obedience->is_over))
        harpe_sleep_ns(WATCH_NS);
}

/* ---- Obedience ------------------------------------------------------------------------------- */

bool harpe_obedience_holds(uint32_t held_mhz, uint32_t lowest_mhz, uint32_t highest_mhz) {
    return held_mhz + TOLERANCE_MHZ >= lowest_mhz && held_mhz <= highest_mhz + TOLERANCE_MHZ;
}

/* Finds the range of clocks that the GPU may have at a time: the last clock that was set, the
 * clocks that were replaced shortly before, within the time that a change takes, and `calling_mhz`,
 * if it is not 0. Returns false if there were too many changes to remember. */
static bool find_range(const harpe_obedience *obedience, uint64_t at_us, uint32_t calling_mhz,
                       uint32_t *last_mhz, uint32_t *lowest_mhz, uint32_t *highest_mhz) {
    uint32_t count = atomic_load(&obedience->count);
    *lowest_mhz = calling_mhz > 0 ? calling_mhz : UINT32_MAX;
    *highest_mhz = calling_mhz;
    for (uint32_t i = 1; i <= count && i < HARPE_OBEDIENCE_WRITES; i++) {
        uint64_t write = atomic_load(&obedience->writes[(count - i) % HARPE_OBEDIENCE_WRITES]);
        uint32_t mhz = write & 0xFFFF;
        if (i == 1) *last_mhz = mhz;
        if (mhz < *lowest_mhz) *lowest_mhz = mhz;
        if (mhz > *highest_mhz) *highest_mhz = mhz;
        if ((write >> 16) + SETTLE_US <= at_us) return true;
    }
    return false;
}

/* Reads the clock once. Ignores a GPU without work, because it may lower its clock. */
static void look(harpe_obedience *obedience) {
    harpe_controller_slot *slot = obedience->slot;
    uint32_t held_mhz = 0;
    uint32_t last_mhz = 0;
    uint32_t lowest_mhz;
    uint32_t highest_mhz;
    uint64_t reasons = 0;
    harpe_gpus *gpus = obedience->gpu->gpus;
    int gpu = obedience->gpu->index;
    uint32_t before = atomic_load(&obedience->count);
    uint32_t calling_mhz = atomic_load(&obedience->calling_mhz);
    uint64_t at_us = now_us(obedience);
    if (harpe_gpu_current_clocks(gpus, gpu, &held_mhz, NULL, NULL) != HARPE_OK) return;
    if (harpe_gpu_throttle_reasons(gpus, gpu, &reasons, NULL) != HARPE_OK) reasons = 0;
    bool is_known = find_range(obedience, at_us, calling_mhz, &last_mhz, &lowest_mhz, &highest_mhz);
    bool has_changed = before != atomic_load(&obedience->count) ||
                       calling_mhz != atomic_load(&obedience->calling_mhz);
    if (!is_known || (reasons & IDLE_REASON) || has_changed) return;
    bool disobeys = !harpe_obedience_holds(held_mhz, lowest_mhz, highest_mhz);
    atomic_store(&slot->wanted_mhz, last_mhz);
    atomic_store(&slot->held_mhz, held_mhz);
    atomic_store(&slot->reasons, reasons);
    atomic_store(&slot->disobeys, disobeys);
    if (disobeys) {
        atomic_store(&slot->disobeyed_wanted_mhz, last_mhz);
        atomic_store(&slot->disobeyed_held_mhz, held_mhz);
        atomic_fetch_add(&slot->disobeyed, 1);
    }
    atomic_fetch_add(&slot->looks, 1);
}

/* Returns the real time of the next look. GPU time may run faster for emulated GPUs. */
static int64_t next_look_ns(const harpe_obedience *obedience) {
    int64_t now_ns = harpe_clock_ns();
    double real_ns = (double)(now_ns - obedience->start_ns);
    double gpu_ns = (double)(harpe_gpus_clock_ns(obedience->gpu->gpus) - obedience->start_gpu_ns);
    double rate = real_ns > 0 && gpu_ns > 0 ? real_ns / gpu_ns : 1;
    int64_t pause_ns = (int64_t)(LOOK_NS * rate);
    return now_ns + (pause_ns > SHORT_LOOK_NS ? pause_ns : SHORT_LOOK_NS);
}

static void *run(void *argument) {
    harpe_obedience *obedience = argument;
    int64_t look_at_ns = next_look_ns(obedience);
    for (;;) {
        uint32_t seen = atomic_load(&obedience->calls);
        if (atomic_load(&obedience->is_over)) break;
        if (atomic_exchange(&obedience->has_change, false)) watch(obedience);
        int64_t left_ns = look_at_ns - harpe_clock_ns();
        if (left_ns > 0) {
            (void)harpe_wait_while(&obedience->calls, seen, left_ns);
            continue;
        }
        look_at_ns = next_look_ns(obedience);
        look(obedience);
    }
    atomic_store(&obedience->has_ended, true);
    return NULL;
}

void harpe_obedience_start(harpe_obedience *obedience, harpe_controller_slot *slot,
                           const harpe_controller_gpu *gpu) {
    obedience->slot = slot;
    obedience->gpu = gpu;
    obedience->start_ns = harpe_clock_ns();
    obedience->start_gpu_ns = harpe_gpus_clock_ns(gpu->gpus);
    harpe_switch_learning_start(&obedience->learning, &slot->switch_table);
    obedience->has_thread = true;
    if (harpe_thread_start(&obedience->thread, "harpe-look", run, obedience) != 0)
        obedience->has_thread = false;
    atomic_store(&slot->learns_switches, obedience->has_thread);
}

bool harpe_obedience_stop(harpe_obedience *obedience) {
    if (!obedience->has_thread) return true;
    atomic_store(&obedience->is_over, true);
    wake(obedience);
    for (int waited_ms = 0; !atomic_load(&obedience->has_ended); waited_ms++) {
        if (waited_ms == STOP_MS) return false;
        harpe_sleep_ns(1000000);
    }
    harpe_thread_join(obedience->thread);
    obedience->has_thread = false;
    return true;
}
