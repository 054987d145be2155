/* SPDX-License-Identifier: Apache-2.0 */
/* Watches the processes that hold settings, and restores the settings when a process has ended. The
 * loop watches the processes, and workers call the driver. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/zeusd_settings_internal.h"
#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/process.h"
#include "base/wait.h"

enum {
    FIRST_PAUSE_MS = 200, /* before another attempt to restore; doubles each time */
    LONGEST_PAUSE_MS = 30000,
    BUSY_S = 5, /* how long harpe_zeusd_settings_put_back waits for a call that hangs */
};

/* ---- Putting back after the end of a holder -------------------------------------------------- */

static void sync_watch(harpe_zeusd_slot *slot);

/* Copies the holder for messages. The caller holds the mutex. */
static harpe_zeusd_held held_of(const harpe_zeusd_slot *slot) {
    return (harpe_zeusd_held){.gpu = slot->gpu,
                              .kind = slot->kind,
                              .process = slot->process,
                              .uid = slot->uid,
                              .since_ns = slot->since_ns,
                              .is_ending = slot->is_to_end,
                              .before = slot->shown};
}

/* Runs on a worker. A change of another client may have restored the settings already. */
static void put_back(void *user) {
    harpe_zeusd_slot *slot = user;
    harpe_zeusd_settings *settings = slot->settings;
    harpe_lock(&slot->busy);
    harpe_lock(&settings->mutex);
    bool is_due = slot->is_held && (slot->is_to_end || harpe_zeusd_has_ended(slot->pidfd));
    slot->ended = held_of(slot);
    harpe_unlock(&settings->mutex);
    slot->has_put_back = is_due;
    slot->result = is_due ? harpe_zeusd_slot_put_back(slot, &slot->error) : HARPE_OK;
    harpe_unlock(&slot->busy);
}

static void begin_putting_back(harpe_zeusd_slot *slot);

/* Returns true if an administrator ends the holding. */
static bool is_ending(harpe_zeusd_slot *slot) {
    harpe_lock(&slot->settings->mutex);
    bool is_ending_now = slot->is_held && slot->is_to_end;
    harpe_unlock(&slot->settings->mutex);
    return is_ending_now;
}

static void try_again(void *user) {
    harpe_zeusd_slot *slot = user;
    slot->again = NULL;
    begin_putting_back(slot);
}

static void end_putting_back(void *user) {
    harpe_zeusd_slot *slot = user;
    harpe_zeusd_settings *settings = slot->settings;
    const harpe_zeusd_held *ended = &slot->ended;
    const harpe_log *log = &settings->options.log;
    int index = harpe_gpu_info_at(settings->gpus, slot->gpu)->driver_index;
    char what[128];
    slot->is_working = false;
    harpe_saved_settings_describe(&ended->before, what, sizeof what);
    if (slot->result == HARPE_OK) {
        slot->pause_ms = 0;
        if (!slot->has_put_back && is_ending(slot)) { /* the work began before it was ended */
            begin_putting_back(slot);
            return;
        }
        if (slot->has_put_back)
            harpe_log_line(log, HARPE_LOG_INFO,
                           "zeusd: GPU %d: put back what process %ld (user %lu) had set: %s", index,
                           (long)ended->process, (unsigned long)ended->uid, what);
        sync_watch(slot);
        return;
    }
    if (slot->pause_ms == 0)
        harpe_log_line(log, HARPE_LOG_ERROR,
                       "zeusd: GPU %d: what process %ld (user %lu) had set is not put back and is "
                       "tried again: %s",
                       index, (long)ended->process, (unsigned long)ended->uid, slot->error.message);
    slot->pause_ms = slot->pause_ms == 0 ? FIRST_PAUSE_MS : 2 * slot->pause_ms;
    if (slot->pause_ms > LONGEST_PAUSE_MS) slot->pause_ms = LONGEST_PAUSE_MS;
    (void)harpe_loop_after(settings->loop, slot->pause_ms, try_again, slot, &slot->again, NULL);
}

static void begin_putting_back(harpe_zeusd_slot *slot) {
    if (slot->is_working || slot->again) return;
    slot->is_working = true;
    slot->work = (harpe_work){.work = put_back,
                              .done = end_putting_back,
                              .user = slot,
                              .pool = slot->settings->options.pool,
                              .subject = slot->name};
    harpe_workers_submit(slot->settings->workers, &slot->work);
}

int harpe_zeusd_settings_end(harpe_zeusd_settings *settings, int gpu) {
    int ended = 0;
    for (int i = 0; i < settings->slot_count; i++) {
        harpe_zeusd_slot *slot = &settings->slots[i];
        if (gpu >= 0 && slot->gpu != gpu) continue;
        harpe_lock(&settings->mutex);
        bool is_held = slot->is_held;
        slot->is_to_end = is_held;
        harpe_unlock(&settings->mutex);
        if (is_held) begin_putting_back(slot);
        ended += is_held;
    }
    return ended;
}

/* ---- Watching -------------------------------------------------------------------------------- */

static void end_watch(harpe_zeusd_slot *slot) {
    harpe_watch_remove(slot->watch);
    slot->watch = NULL;
    if (slot->watched_fd >= 0) close(slot->watched_fd);
    slot->watched_fd = -1;
}

static void holder_has_ended(void *user, uint32_t events) {
    harpe_zeusd_slot *slot = user;
    (void)events;
    end_watch(slot);
    begin_putting_back(slot);
}

/* Watches the present holder. If this fails, a timer tries again: if the holder has ended by then,
 * it restores the settings, and otherwise it calls this function again. */
static void sync_watch(harpe_zeusd_slot *slot) {
    harpe_zeusd_settings *settings = slot->settings;
    harpe_lock(&settings->mutex);
    bool is_held = slot->is_held;
    bool is_watched = is_held && slot->watch && slot->watched == slot->holding;
    int fd = is_held && !is_watched ? fcntl(slot->pidfd, F_DUPFD_CLOEXEC, 0) : -1;
    uint64_t holding = slot->holding;
    harpe_unlock(&settings->mutex);
    if (is_watched) return;
    end_watch(slot);
    if (!is_held) return;
    slot->watched_fd = fd;
    slot->watched = holding;
    if (fd >= 0 && harpe_loop_watch(settings->loop, fd, EPOLLIN, holder_has_ended, slot,
                                    &slot->watch, NULL) == HARPE_OK)
        return;
    if (!slot->again)
        (void)harpe_loop_after(settings->loop, FIRST_PAUSE_MS, try_again, slot, &slot->again, NULL);
}

static void come_to_loop(void *user) {
    harpe_zeusd_slot *slot = user;
    harpe_lock(&slot->settings->mutex);
    slot->is_posted = false;
    harpe_unlock(&slot->settings->mutex);
    sync_watch(slot);
}

void harpe_zeusd_slot_post(harpe_zeusd_slot *slot) {
    if (slot->is_posted) return;
    slot->is_posted = true;
    slot->posted = (harpe_posted){.call = come_to_loop, .user = slot};
    harpe_loop_post(slot->settings->loop, &slot->posted);
}

/* ---- Records of an earlier daemon ------------------------------------------------------------ */

static void begin_recovery(harpe_zeusd_former *former);

static void forget(harpe_zeusd_former *former) {
    harpe_zeusd_former **place = &former->settings->formers;
    while (*place != former)
        place = &(*place)->next;
    *place = former->next;
    harpe_watch_remove(former->watch);
    harpe_timer_cancel(former->again);
    close(former->pidfd);
    free(former);
}

/* On a worker. */
static void recover(void *user) {
    harpe_zeusd_former *former = user;
    harpe_saved_settings_recovery how = {.is_dry = false};
    former->status = harpe_saved_settings_recover(former->settings->gpus, &how, &former->error);
}

static void recover_again(void *user) {
    harpe_zeusd_former *former = user;
    former->again = NULL;
    begin_recovery(former);
}

static void end_recovery(void *user) {
    harpe_zeusd_former *former = user;
    const harpe_log *log = &former->settings->options.log;
    former->is_working = false;
    if (former->status == HARPE_OK) {
        harpe_log_line(log, HARPE_LOG_INFO,
                       "zeusd: process %ld, which held settings before this start, has ended; they "
                       "are put back",
                       (long)former->process);
        forget(former);
        return;
    }
    harpe_log_line(log, HARPE_LOG_ERROR, "zeusd: settings of process %ld are not put back: %s",
                   (long)former->process, former->error.message);
    if (harpe_loop_after(former->settings->loop, LONGEST_PAUSE_MS, recover_again, former,
                         &former->again, NULL) != HARPE_OK)
        forget(former);
}

static void begin_recovery(harpe_zeusd_former *former) {
    former->is_working = true;
    former->work = (harpe_work){.work = recover,
                                .done = end_recovery,
                                .user = former,
                                .pool = former->settings->options.pool};
    harpe_workers_submit(former->settings->workers, &former->work);
}

static void former_has_ended(void *user, uint32_t events) {
    harpe_zeusd_former *former = user;
    (void)events;
    harpe_watch_remove(former->watch);
    former->watch = NULL;
    begin_recovery(former);
}

void harpe_zeusd_settings_recover_after(harpe_zeusd_settings *settings, pid_t process) {
    for (const harpe_zeusd_former *one = settings->formers; one; one = one->next)
        if (one->process == process) return;
    int pidfd = process > 0 ? harpe_process_open(process) : -1;
    harpe_zeusd_former *former = pidfd >= 0 ? calloc(1, sizeof *former) : NULL;
    if (!former) {
        if (pidfd >= 0) close(pidfd);
        return;
    }
    *former = (harpe_zeusd_former){.settings = settings, .process = process, .pidfd = pidfd};
    former->next = settings->formers;
    settings->formers = former;
    if (harpe_loop_watch(settings->loop, pidfd, EPOLLIN, former_has_ended, former, &former->watch,
                         NULL) != HARPE_OK)
        forget(former);
}

/* ---- Beginning and end ----------------------------------------------------------------------- */

harpe_status harpe_zeusd_settings_new(harpe_loop *loop, harpe_workers *workers, harpe_gpus *gpus,
                                      const harpe_zeusd_settings_options *options,
                                      harpe_zeusd_settings **out, harpe_error *error) {
    int count = gpus ? 2 * harpe_gpus_count(gpus) : 0;
    harpe_zeusd_settings *settings =
        harpe_calloc(1, sizeof *settings + (size_t)count * sizeof settings->slots[0]);
    if (!settings) return harpe_fail_memory(error);
    settings->loop = loop;
    settings->workers = workers;
    settings->gpus = gpus;
    settings->options = *options;
    settings->slot_count = count;
    pthread_mutex_init(&settings->mutex, NULL);
    for (int i = 0; i < count; i++) {
        harpe_zeusd_slot *slot = &settings->slots[i];
        slot->settings = settings;
        slot->gpu = i / 2;
        slot->kind = (harpe_saved_settings_kind)(i % 2);
        slot->pidfd = slot->watched_fd = -1;
        (void)snprintf(slot->name, sizeof slot->name, "GPU %d",
                       harpe_gpu_info_at(gpus, slot->gpu)->driver_index);
        pthread_mutex_init(&slot->busy, NULL);
    }
    *out = settings;
    return HARPE_OK;
}

harpe_status harpe_zeusd_settings_put_back(harpe_zeusd_settings *settings, harpe_error *error) {
    harpe_status first = HARPE_OK;
    for (int i = 0; i < settings->slot_count; i++) {
        harpe_zeusd_slot *slot = &settings->slots[i];
        int64_t until_wall_ns = harpe_clock_wall_ns() + BUSY_S * INT64_C(1000000000);
        harpe_error told;
        harpe_status status;
        if (harpe_lock_until(&slot->busy, until_wall_ns) == 0) {
            status = harpe_zeusd_slot_put_back(slot, &told);
            harpe_unlock(&slot->busy);
        } else {
            status = harpe_fail(&told, HARPE_DRIVER_ERROR,
                                "GPU %d: a call of the driver hangs, so its settings are put back "
                                "at the next start",
                                harpe_gpu_info_at(settings->gpus, slot->gpu)->driver_index);
        }
        if (status == HARPE_OK || first != HARPE_OK) continue;
        first = status;
        if (error) *error = told;
    }
    return first;
}

void harpe_zeusd_settings_free(harpe_zeusd_settings *settings) {
    if (!settings) return;
    for (harpe_zeusd_former *next, *former = settings->formers; former; former = next) {
        next = former->next;
        forget(former);
    }
    for (int i = 0; i < settings->slot_count; i++) {
        harpe_zeusd_slot *slot = &settings->slots[i];
        end_watch(slot);
        harpe_timer_cancel(slot->again);
        harpe_gpu_claim_release(slot->claim, false);
        if (slot->pidfd >= 0) close(slot->pidfd);
        pthread_mutex_destroy(&slot->busy);
    }
    pthread_mutex_destroy(&settings->mutex);
    free(settings);
}

/* ---- Looking --------------------------------------------------------------------------------- */

size_t harpe_zeusd_settings_list(harpe_zeusd_settings *settings, harpe_zeusd_held *out,
                                 size_t size) {
    size_t count = 0;
    harpe_lock(&settings->mutex);
    for (int i = 0; i < settings->slot_count; i++) {
        const harpe_zeusd_slot *slot = &settings->slots[i];
        if (!slot->is_held) continue;
        if (count < size) out[count] = held_of(slot);
        count++;
    }
    harpe_unlock(&settings->mutex);
    return count;
}

harpe_zeusd_settings_counts harpe_zeusd_settings_count(harpe_zeusd_settings *settings) {
    harpe_lock(&settings->mutex);
    harpe_zeusd_settings_counts counts = settings->counts;
    harpe_unlock(&settings->mutex);
    return counts;
}
