/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the GPU's clock and its event reasons, and writes them into the slot. */
#include "client/controller_obedience.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"

/* The longest time that a change of the clock takes, in us of GPU time. On measured GPUs, a change
 * takes up to some hundred milliseconds (Velicka, Vysocky, Riha, arXiv 2502.20075). */
#define SETTLE_US UINT64_C(500000)
#define IDLE_REASON UINT64_C(1) /* nvmlClocksEventReasonGpuIdle */

enum {
    TOLERANCE_MHZ = 20, /* clocks have steps of 15 MHz and less */
    LOOK_MS = 100,      /* between two looks */
    STOP_MS = 300,      /* how long a stop waits for a driver call */
};

static uint64_t now_us(const harpe_obedience *obedience) {
    return (uint64_t)harpe_gpus_clock_ns(obedience->gpu->gpus) / 1000 & ((UINT64_C(1) << 48) - 1);
}

void harpe_obedience_note(harpe_obedience *obedience, uint32_t mhz) {
    if (!obedience->has_thread) return;
    uint32_t count = atomic_load_explicit(&obedience->count, memory_order_relaxed);
    atomic_store(&obedience->writes[count % HARPE_OBEDIENCE_WRITES],
                 now_us(obedience) << 16 | (mhz & 0xFFFF));
    atomic_store(&obedience->count, count + 1);
}

bool harpe_obedience_holds(uint32_t held_mhz, uint32_t lowest_mhz, uint32_t highest_mhz) {
    return held_mhz + TOLERANCE_MHZ >= lowest_mhz && held_mhz <= highest_mhz + TOLERANCE_MHZ;
}

/* Finds the range of clocks that the GPU may have at a time: the last clock that was set, and the
 * clocks that were replaced shortly before, within the time that a change takes. Returns false if
 * there were too many changes to remember. */
static bool find_range(const harpe_obedience *obedience, uint64_t at_us, uint32_t *last_mhz,
                       uint32_t *lowest_mhz, uint32_t *highest_mhz) {
    uint32_t count = atomic_load(&obedience->count);
    *lowest_mhz = UINT32_MAX;
    *highest_mhz = 0;
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
    uint64_t at_us = now_us(obedience);
    if (harpe_gpu_current_clocks(gpus, gpu, &held_mhz, NULL, NULL) != HARPE_OK) return;
    if (harpe_gpu_throttle_reasons(gpus, gpu, &reasons, NULL) != HARPE_OK) reasons = 0;
    bool is_known = find_range(obedience, at_us, &last_mhz, &lowest_mhz, &highest_mhz);
    if (!is_known || (reasons & IDLE_REASON) || before != atomic_load(&obedience->count)) return;
    bool disobeys = !harpe_obedience_holds(held_mhz, lowest_mhz, highest_mhz);
    atomic_store(&slot->wanted_mhz, last_mhz);
    atomic_store(&slot->held_mhz, held_mhz);
    atomic_store(&slot->reasons, reasons);
    atomic_store(&slot->disobeys, disobeys);
    if (disobeys) atomic_fetch_add(&slot->disobeyed, 1);
    atomic_fetch_add(&slot->looks, 1);
}

static void *run(void *argument) {
    harpe_obedience *obedience = argument;
    struct pollfd over = {.fd = obedience->over, .events = POLLIN};
    for (;;) {
        int ready = poll(&over, 1, LOOK_MS);
        if (ready > 0 || (ready < 0 && errno != EINTR)) break;
        look(obedience);
    }
    atomic_store(&obedience->has_ended, true);
    return NULL;
}

void harpe_obedience_start(harpe_obedience *obedience, harpe_controller_slot *slot,
                           const harpe_controller_gpu *gpu) {
    obedience->slot = slot;
    obedience->gpu = gpu;
    obedience->over = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (obedience->over < 0) return;
    obedience->has_thread = true;
    if (harpe_thread_start(&obedience->thread, "harpe-look", run, obedience) == 0) return;
    obedience->has_thread = false;
    close(obedience->over);
}

bool harpe_obedience_stop(harpe_obedience *obedience) {
    uint64_t one = 1;
    if (!obedience->has_thread) return true;
    ssize_t ignored = write(obedience->over, &one, sizeof one);
    (void)ignored;
    for (int waited_ms = 0; !atomic_load(&obedience->has_ended); waited_ms++) {
        if (waited_ms == STOP_MS) return false;
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    (void)pthread_join(obedience->thread, NULL);
    obedience->has_thread = false;
    close(obedience->over);
    return true;
}
