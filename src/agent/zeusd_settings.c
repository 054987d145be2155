/* SPDX-License-Identifier: Apache-2.0 */
/* Changes GPUs for clients of zeusd's routes, and restores them. It implements harpe_zeusd_ops.
 *
 * Before the first change of a client, this code claims the GPU (gpu/saved_settings.h) for the
 * client's process and records the saved settings on disk. So a change is refused if another job
 * has the GPU. If the daemon is killed, the next daemon restores the settings. There is one claim
 * for the clocks, and another one for the power limit and the persistence mode. Each claim has at
 * most one holder. Other processes are refused with a line that names the holder. The settings are
 * restored when the holder's process ends, and when the daemon stops. A client that has reset both
 * clocks no longer holds them.
 *
 * Changes of TCP clients are not restored, as in zeusd. With `no_restore`, no changes are restored.
 * All such changes are refused while another client or job has the GPU.
 *
 * The changes run on workers, except may_set. The loop watches the processes that hold settings,
 * and workers call the driver. */
#include "agent/zeusd_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/process.h"
#include "base/wait.h"
#include "gpu/gpus.h"
#include "gpu/saved_settings.h"
#include "gpu/settings.h"

/* One kind of setting of one GPU, and its holder. */
typedef struct held_slot {
    harpe_zeusd_settings *settings;
    int gpu;
    harpe_saved_settings_kind kind;
    char name[24]; /* for messages about work that is stuck */

    /* Held during driver calls, so only workers lock it. Protects the next members. */
    pthread_mutex_t busy;
    harpe_holding *holding; /* NULL: not held */
    unsigned locked;        /* set of 1 << harpe_setting: such a lock may be set */

    /* Protected by settings->mutex, which is held only for moments. */
    bool is_held;
    bool is_to_end; /* an administrator ends the holding */
    pid_t process;
    uid_t uid;
    int pidfd; /* -1: not held */
    int64_t since_ns;
    uint64_t number; /* of this holding, from 1 */
    harpe_saved_settings shown;
    bool is_posted;
    harpe_posted posted;

    /* Of the loop's thread. */
    harpe_watch *watch;
    int watched_fd;   /* a copy of pidfd; -1: none */
    uint64_t watched; /* the number of the holding that is watched */
    harpe_timer *again;
    int64_t pause_ms;
    bool is_working;
    harpe_work work;
    harpe_status result; /* of the work */
    bool has_put_back;
    harpe_error error;
    harpe_zeusd_held ended; /* the holder whose settings the work restores */
} held_slot;

struct harpe_zeusd_settings {
    harpe_loop *loop;
    harpe_workers *workers;
    harpe_gpus *gpus;
    harpe_zeusd_settings_options options;
    pthread_mutex_t mutex;
    int slot_count; /* two for each GPU */
    held_slot slots[];
};

#define TRY_FOR_S 0.05 /* an attempt to restore; another one follows later */

enum { CLOCKS = 1 << HARPE_SET_GRAPHICS_CLOCKS | 1 << HARPE_SET_MEMORY_CLOCKS };

static void post_slot(held_slot *slot);

static held_slot *slot_of(harpe_zeusd_settings *settings, int gpu, harpe_setting setting) {
    bool is_clock = CLOCKS >> setting & 1;
    return &settings->slots[2 * gpu + (is_clock ? HARPE_SAVED_CLOCKS : HARPE_SAVED_POWER)];
}

static bool is_kept_by(const harpe_zeusd_settings *settings, const harpe_zeusd_holder *holder) {
    return !holder->is_tcp && !settings->options.no_restore;
}

/* Returns true if the process has ended. */
static bool process_has_ended(int pidfd) {
    return (harpe_events_now(pidfd, POLLIN) & (POLLIN | POLLHUP)) != 0;
}

/* ---- Who may change -------------------------------------------------------------------------- */

static harpe_status fail_held(const held_slot *slot, harpe_error *error) {
    return harpe_fail(
        error, HARPE_ALREADY_EXISTS,
        "GPU %d: its %s held by process %ld (user %lu) for %lld s, and put back when that process "
        "ends",
        harpe_gpu_info_at(slot->settings->gpus, slot->gpu)->driver_index,
        slot->kind == HARPE_SAVED_CLOCKS ? "clocks are" : "power limit and persistence mode are",
        (long)slot->process, (unsigned long)slot->uid,
        (long long)((harpe_clock_ns() - slot->since_ns) / 1000000000));
}

static harpe_status fail_unknown(const held_slot *slot, harpe_error *error) {
    return harpe_fail(error, HARPE_PERMISSION_DENIED,
                      "GPU %d: the process of this connection is not visible, so its settings "
                      "could not be put back at its end: run it in a namespace of processes that "
                      "the agent sees",
                      harpe_gpu_info_at(slot->settings->gpus, slot->gpu)->driver_index);
}

/* Checks the holder in memory. `*has_ended` is true if the settings of a process that has ended
 * must be restored first. */
static harpe_status check_holder(held_slot *slot, const harpe_zeusd_holder *holder, bool *has_ended,
                                 harpe_error *error) {
    harpe_zeusd_settings *settings = slot->settings;
    bool is_kept = is_kept_by(settings, holder);
    harpe_status status = HARPE_OK;
    *has_ended = false;
    if (is_kept && holder->pidfd < 0) return fail_unknown(slot, error);
    harpe_lock(&settings->mutex);
    if (slot->is_held) {
        *has_ended = process_has_ended(slot->pidfd);
        bool is_same = is_kept && slot->process == holder->process && slot->uid == holder->uid;
        if (!*has_ended && !is_same) status = fail_held(slot, error);
    }
    harpe_unlock(&settings->mutex);
    return status;
}

static harpe_status may_set(void *user, const harpe_zeusd_holder *holder, int gpu,
                            harpe_setting setting, harpe_error *error) {
    bool has_ended;
    return check_holder(slot_of(user, gpu, setting), holder, &has_ended, error);
}

/* Refuses a number that may mean another GPU to the client: if a GPU with a lower number is lost, a
 * client that looks for its GPUs now can count each GPU after it differently. The process that
 * already holds the GPU has counted before. */
static harpe_status check_number(const held_slot *slot, harpe_error *error) {
    const harpe_gpus *gpus = slot->settings->gpus;
    int number = harpe_gpu_info_at(gpus, slot->gpu)->driver_index;
    int lost = harpe_gpus_first_lost(gpus);
    if (slot->holding || lost >= number) return HARPE_OK;
    return harpe_fail(
        error, HARPE_INVALID_ARGUMENT,
        "GPU %d: GPU %d was lost, so the number %d can mean another GPU than when the "
        "agent started: use a lease of the agent, which names its GPU by UUID "
        "('harpe agent hold --gpu %s'), or reset the lost GPU and restart the agent",
        number, lost, number, harpe_gpu_info_at(gpus, slot->gpu)->uuid);
}

/* ---- Holding --------------------------------------------------------------------------------- */

static void show_held(held_slot *slot, const harpe_zeusd_holder *holder, int pidfd) {
    harpe_zeusd_settings *settings = slot->settings;
    harpe_lock(&settings->mutex);
    slot->is_held = true;
    slot->process = holder->process;
    slot->uid = holder->uid;
    slot->pidfd = pidfd;
    slot->since_ns = harpe_clock_ns();
    slot->number++;
    slot->shown = slot->holding->record.state;
    post_slot(slot);
    harpe_unlock(&settings->mutex);
}

/* Ends the holding. */
static void let_go(held_slot *slot) {
    harpe_zeusd_settings *settings = slot->settings;
    harpe_holding_release(slot->holding);
    slot->holding = NULL;
    slot->locked = 0;
    harpe_lock(&settings->mutex);
    slot->is_held = slot->is_to_end = false;
    if (slot->pidfd >= 0) close(slot->pidfd);
    slot->pidfd = -1;
    post_slot(slot);
    harpe_unlock(&settings->mutex);
}

/* Takes the GPU for the holder's process. */
static harpe_status take(held_slot *slot, const harpe_zeusd_holder *holder, harpe_error *error) {
    harpe_holding_options options = {.kind = slot->kind, .trainer = holder->process};
    harpe_holding *holding = NULL;
    int pidfd = fcntl(holder->pidfd, F_DUPFD_CLOEXEC, 0);
    if (pidfd < 0) return harpe_fail_memory(error);
    harpe_status status =
        harpe_holding_take(slot->settings->gpus, slot->gpu, &options, &holding, error);
    /* If the process still runs now, the GPU was taken for this process and not for another process
     * with the same number. */
    if (status == HARPE_OK && process_has_ended(pidfd)) {
        harpe_holding_release(holding);
        status =
            harpe_fail(error, HARPE_PERMISSION_DENIED, "the process of this connection has ended");
    }
    if (status != HARPE_OK) {
        close(pidfd);
        return status;
    }
    slot->holding = holding;
    slot->locked = holding->record.state.resets_clocks ? CLOCKS : 0;
    show_held(slot, holder, pidfd);
    return HARPE_OK;
}

/* Restores the settings that the slot's holder has changed. The caller holds `busy`. */
static harpe_status put_back_slot(held_slot *slot, harpe_error *error) {
    if (!slot->holding) return HARPE_OK;
    harpe_status status = harpe_holding_restore(slot->holding, TRY_FOR_S, error);
    if (status == HARPE_OK) let_go(slot);
    return status;
}

/* ---- Changing -------------------------------------------------------------------------------- */

/* Writes the record of the settings that the change replaces, unless it is written already. */
static harpe_status record(held_slot *slot, harpe_setting setting, harpe_error *error) {
    const harpe_zeusd_settings_options *options = &slot->settings->options;
    harpe_saved_settings *state = &slot->holding->record.state;
    const harpe_saved_settings before = *state;
    harpe_setting_value now;
    if (harpe_saved_settings_value(state, setting, &now)) return HARPE_OK;
    harpe_status status = HARPE_OK;
    if (slot->kind == HARPE_SAVED_CLOCKS) {
        state->resets_clocks = true;
        if (options->default_locks) state->locks = options->default_locks(options->user, slot->gpu);
    } else {
        status = harpe_gpu_read_setting(slot->settings->gpus, slot->gpu, setting, &now, error);
        if (status == HARPE_OK && setting == HARPE_SET_POWER_LIMIT)
            state->power_limit_mw = now.low;
        else if (status == HARPE_OK)
            state->persistence = (int32_t)now.low;
    }
    if (status == HARPE_OK) status = harpe_holding_save(slot->holding, error);
    if (status != HARPE_OK) *state = before;
    harpe_lock(&slot->settings->mutex);
    slot->shown = *state;
    harpe_unlock(&slot->settings->mutex);
    return status;
}

/* Returns the lowest clock of a kind, or 1 if it is not known. */
static uint32_t lowest_clock(harpe_gpus *gpus, const harpe_zeusd_change *what) {
    uint32_t *clocks = NULL, memory_mhz = 0, lowest = 1;
    size_t count = 0;
    harpe_status status =
        what->setting == HARPE_SET_MEMORY_CLOCKS
            ? harpe_gpu_memory_clocks(gpus, what->gpu, &clocks, &count, NULL)
            : harpe_gpus_full_speed_clocks(gpus, what->gpu, &memory_mhz, &clocks, &count, NULL);
    if (status == HARPE_OK && count > 0) lowest = clocks[count - 1];
    free(clocks);
    return lowest;
}

/* Calls the driver. */
static harpe_status apply(harpe_holding *holding, const harpe_zeusd_change *what,
                          harpe_error *error) {
    harpe_setting_value value = {what->values[0], what->values[1]};
    bool is_lock = (CLOCKS >> what->setting & 1) && !what->is_reset;
    /* NVML takes 0 for "no lower bound". */
    if (is_lock && value.low == 0 && value.high > 0) {
        value.low = lowest_clock(holding->gpus, what);
        if (value.low > value.high) value.low = value.high;
    }
    if (is_lock && (value.low == 0 || value.low > value.high))
        return harpe_fail(
            error, HARPE_INVALID_ARGUMENT,
            "GPU %d: clocks cannot be locked to %u-%u MHz: expected a minimum above 0 "
            "and no lower maximum",
            what->gpu, value.low, value.high);
    /* Another program may have changed the lock since this handle set it. */
    harpe_gpu_forget_clock_locks(holding->gpus, what->gpu);
    return harpe_holding_set(holding, what->setting, value, error);
}

/* Makes a change that is restored later. The caller holds `busy`. */
static harpe_status change_and_keep(held_slot *slot, const harpe_zeusd_change *what,
                                    harpe_error *error) {
    harpe_status status = slot->holding ? HARPE_OK : take(slot, what->holder, error);
    if (status != HARPE_OK) return status;
    status = record(slot, what->setting, error);
    if (status == HARPE_OK) {
        unsigned bit = 1U << what->setting;
        status = apply(slot->holding, what, error);
        if (!what->is_reset && !harpe_gpu_refused(status)) slot->locked |= bit;
        if (what->is_reset && status == HARPE_OK) slot->locked &= ~bit;
    }
    bool holds_no_clock = slot->kind == HARPE_SAVED_CLOCKS && !(slot->locked & CLOCKS);
    if (holds_no_clock) slot->holding->changed = 0;
    if (slot->holding->changed == 0) let_go(slot);
    return status;
}

/* Makes a change that is not restored. The holding only shows that no other job has the GPU. */
static harpe_status change_for_good(held_slot *slot, const harpe_zeusd_change *what,
                                    harpe_error *error) {
    harpe_holding_options options = {.kind = slot->kind, .trainer = harpe_process_self()};
    harpe_holding *holding = NULL;
    harpe_status status =
        harpe_holding_take(slot->settings->gpus, slot->gpu, &options, &holding, error);
    if (status != HARPE_OK) return status;
    status = apply(holding, what, error);
    holding->changed = 0;
    harpe_holding_release(holding);
    return status;
}

static harpe_status set(void *user, const harpe_zeusd_change *what, harpe_error *error) {
    harpe_zeusd_settings *settings = user;
    held_slot *slot = slot_of(settings, what->gpu, what->setting);
    bool has_ended;
    harpe_lock(&slot->busy);
    harpe_status status = check_holder(slot, what->holder, &has_ended, error);
    if (status == HARPE_OK && has_ended) status = put_back_slot(slot, error);
    if (status == HARPE_OK) status = check_number(slot, error);
    if (status == HARPE_OK)
        status = is_kept_by(settings, what->holder) ? change_and_keep(slot, what, error)
                                                    : change_for_good(slot, what, error);
    harpe_unlock(&slot->busy);
    return status;
}

harpe_zeusd_ops harpe_zeusd_settings_ops(harpe_zeusd_settings *settings) {
    return (harpe_zeusd_ops){.may_set = may_set, .set = set, .user = settings};
}

/* ---- Putting back after the end of a holder -------------------------------------------------- */

enum {
    FIRST_PAUSE_MS = 200, /* before another attempt to restore; doubles each time */
    LONGEST_PAUSE_MS = 30000,
    BUSY_S = 5, /* how long harpe_zeusd_settings_put_back waits for a call that hangs */
};

static void sync_watch(held_slot *slot);

/* Copies the holder for messages. The caller holds the mutex. */
static harpe_zeusd_held held_of(const held_slot *slot) {
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
    held_slot *slot = user;
    harpe_zeusd_settings *settings = slot->settings;
    harpe_lock(&slot->busy);
    harpe_lock(&settings->mutex);
    bool is_due = slot->is_held && (slot->is_to_end || process_has_ended(slot->pidfd));
    slot->ended = held_of(slot);
    harpe_unlock(&settings->mutex);
    slot->has_put_back = is_due;
    slot->result = is_due ? put_back_slot(slot, &slot->error) : HARPE_OK;
    harpe_unlock(&slot->busy);
}

static void begin_putting_back(held_slot *slot);

/* Returns true if an administrator ends the holding. */
static bool is_ending(held_slot *slot) {
    harpe_lock(&slot->settings->mutex);
    bool is_ending_now = slot->is_held && slot->is_to_end;
    harpe_unlock(&slot->settings->mutex);
    return is_ending_now;
}

static void try_again(void *user) {
    held_slot *slot = user;
    slot->again = NULL;
    begin_putting_back(slot);
}

static void end_putting_back(void *user) {
    held_slot *slot = user;
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

static void begin_putting_back(held_slot *slot) {
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
        held_slot *slot = &settings->slots[i];
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

static void end_watch(held_slot *slot) {
    harpe_watch_remove(slot->watch);
    slot->watch = NULL;
    if (slot->watched_fd >= 0) close(slot->watched_fd);
    slot->watched_fd = -1;
}

static void holder_has_ended(void *user, uint32_t events) {
    held_slot *slot = user;
    (void)events;
    end_watch(slot);
    begin_putting_back(slot);
}

/* Watches the present holder, if there is one. If this fails, a timer is set. If the process has
 * ended by then, the timer restores the settings. Otherwise it calls this function again. */
static void sync_watch(held_slot *slot) {
    harpe_zeusd_settings *settings = slot->settings;
    harpe_lock(&settings->mutex);
    bool is_held = slot->is_held;
    bool is_watched = is_held && slot->watch && slot->watched == slot->number;
    int fd = is_held && !is_watched ? fcntl(slot->pidfd, F_DUPFD_CLOEXEC, 0) : -1;
    uint64_t number = slot->number;
    harpe_unlock(&settings->mutex);
    if (is_watched) return;
    end_watch(slot);
    if (!is_held) return;
    slot->watched_fd = fd;
    slot->watched = number;
    if (fd >= 0 && harpe_loop_watch(settings->loop, fd, EPOLLIN, holder_has_ended, slot,
                                    &slot->watch, NULL) == HARPE_OK)
        return;
    if (!slot->again)
        (void)harpe_loop_after(settings->loop, FIRST_PAUSE_MS, try_again, slot, &slot->again, NULL);
}

static void come_to_loop(void *user) {
    held_slot *slot = user;
    harpe_lock(&slot->settings->mutex);
    slot->is_posted = false;
    harpe_unlock(&slot->settings->mutex);
    sync_watch(slot);
}

/* Makes the loop watch the slot's holder. Call it after each change of is_held, with the mutex
 * held. */
static void post_slot(held_slot *slot) {
    if (slot->is_posted) return;
    slot->is_posted = true;
    slot->posted = (harpe_posted){.call = come_to_loop, .user = slot};
    harpe_loop_post(slot->settings->loop, &slot->posted);
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
        held_slot *slot = &settings->slots[i];
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
        held_slot *slot = &settings->slots[i];
        int64_t until_wall_ns = harpe_clock_wall_ns() + BUSY_S * INT64_C(1000000000);
        harpe_error told;
        harpe_status status;
        if (harpe_lock_until(&slot->busy, until_wall_ns) == 0) {
            status = put_back_slot(slot, &told);
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
    for (int i = 0; i < settings->slot_count; i++) {
        held_slot *slot = &settings->slots[i];
        end_watch(slot);
        harpe_timer_cancel(slot->again);
        harpe_holding_release(slot->holding);
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
        const held_slot *slot = &settings->slots[i];
        if (!slot->is_held) continue;
        if (count < size) out[count] = held_of(slot);
        count++;
    }
    harpe_unlock(&settings->mutex);
    return count;
}
