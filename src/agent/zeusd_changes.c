/* SPDX-License-Identifier: Apache-2.0 */
/* Changes settings for clients of zeusd's routes: checks the client, claims the GPU and records its
 * settings before the first change, and makes the change. All functions except may_set run on
 * workers. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/zeusd_settings_internal.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/process.h"
#include "base/wait.h"
#include "gpu/gpus.h"
#include "gpu/settings.h"

#define RECOVER_NS INT64_C(1000000000)

/* A change to one GPU. */
typedef struct change {
    harpe_zeusd_settings *settings;
    const harpe_zeusd_holder *holder;
    int gpu;
    harpe_zeusd_setting setting;
    bool is_reset;
    uint32_t values[2];
} change;

static harpe_zeusd_slot *slot_of(harpe_zeusd_settings *settings, int gpu,
                                 harpe_zeusd_setting setting) {
    bool is_clock = setting == HARPE_ZEUSD_GRAPHICS_CLOCKS || setting == HARPE_ZEUSD_MEMORY_CLOCKS;
    return &settings->slots[2 * gpu + (is_clock ? HARPE_SAVED_CLOCKS : HARPE_SAVED_POWER)];
}

static bool is_kept_by(const harpe_zeusd_settings *settings, const harpe_zeusd_holder *holder) {
    return !holder->is_tcp && !settings->options.no_restore;
}

bool harpe_zeusd_has_ended(int pidfd) {
    return (harpe_events_now(pidfd, POLLIN) & (POLLIN | POLLHUP)) != 0;
}

/* ---- Who may change -------------------------------------------------------------------------- */

static harpe_status fail_held(const harpe_zeusd_slot *slot, harpe_error *error) {
    return harpe_fail(
        error, HARPE_ALREADY_EXISTS,
        "GPU %d: its %s held by process %ld (user %lu) for %lld s, and put back when that process "
        "ends",
        harpe_gpu_info_at(slot->settings->gpus, slot->gpu)->driver_index,
        slot->kind == HARPE_SAVED_CLOCKS ? "clocks are" : "power limit and persistence mode are",
        (long)slot->process, (unsigned long)slot->uid,
        (long long)((harpe_clock_ns() - slot->since_ns) / 1000000000));
}

static harpe_status fail_unknown(const harpe_zeusd_slot *slot, harpe_error *error) {
    return harpe_fail(error, HARPE_PERMISSION_DENIED,
                      "GPU %d: the process of this connection is not visible, so its settings "
                      "could not be put back at its end: run it in a namespace of processes that "
                      "the agent sees",
                      harpe_gpu_info_at(slot->settings->gpus, slot->gpu)->driver_index);
}

/* Checks the holder in memory. `*has_ended` is true if the settings of a process that has ended
 * must be restored first. */
static harpe_status check_holder(harpe_zeusd_slot *slot, const harpe_zeusd_holder *holder,
                                 bool *has_ended, harpe_error *error) {
    harpe_zeusd_settings *settings = slot->settings;
    bool is_kept = is_kept_by(settings, holder);
    harpe_status status = HARPE_OK;
    *has_ended = false;
    if (is_kept && holder->pidfd < 0) return fail_unknown(slot, error);
    harpe_lock(&settings->mutex);
    if (slot->is_held) {
        *has_ended = harpe_zeusd_has_ended(slot->pidfd);
        bool is_same = is_kept && slot->process == holder->process && slot->uid == holder->uid;
        if (!*has_ended && !is_same) status = fail_held(slot, error);
    }
    harpe_unlock(&settings->mutex);
    return status;
}

static harpe_status may_set(void *user, const harpe_zeusd_holder *holder, int gpu,
                            harpe_zeusd_setting setting, harpe_error *error) {
    bool has_ended;
    return check_holder(slot_of(user, gpu, setting), holder, &has_ended, error);
}

/* Refuses a number that may mean another GPU to the client: if a GPU with a lower number is lost, a
 * client that looks for its GPUs now can count each GPU after it differently. The process that
 * already holds the GPU has counted before. */
static harpe_status check_number(const harpe_zeusd_slot *slot, harpe_error *error) {
    const harpe_gpus *gpus = slot->settings->gpus;
    int number = harpe_gpu_info_at(gpus, slot->gpu)->driver_index;
    int lost = harpe_gpus_first_lost(gpus);
    if (slot->claim || lost >= number) return HARPE_OK;
    return harpe_fail(
        error, HARPE_INVALID_ARGUMENT,
        "GPU %d: GPU %d was lost, so the number %d can mean another GPU than when the "
        "agent started: use a lease of the agent, which names its GPU by UUID "
        "('harpe agent hold --gpu %s'), or reset the lost GPU and restart the agent",
        number, lost, number, harpe_gpu_info_at(gpus, slot->gpu)->uuid);
}

/* ---- Holding --------------------------------------------------------------------------------- */

static void show_held(harpe_zeusd_slot *slot, const harpe_zeusd_holder *holder, int pidfd) {
    harpe_zeusd_settings *settings = slot->settings;
    harpe_lock(&settings->mutex);
    slot->is_held = true;
    slot->process = holder->process;
    slot->uid = holder->uid;
    slot->pidfd = pidfd;
    slot->since_ns = harpe_clock_ns();
    slot->holding++;
    slot->shown = slot->before;
    harpe_zeusd_slot_post(slot);
    harpe_unlock(&settings->mutex);
}

static void show_before(harpe_zeusd_slot *slot) {
    harpe_lock(&slot->settings->mutex);
    slot->shown = slot->before;
    harpe_unlock(&slot->settings->mutex);
}

/* Ends the holding. */
static void let_go(harpe_zeusd_slot *slot) {
    harpe_zeusd_settings *settings = slot->settings;
    harpe_gpu_claim_release(slot->claim, true);
    slot->claim = NULL;
    slot->locks_graphics = slot->locks_memory = false;
    harpe_lock(&settings->mutex);
    slot->is_held = slot->is_to_end = false;
    if (slot->pidfd >= 0) close(slot->pidfd);
    slot->pidfd = -1;
    harpe_zeusd_slot_post(slot);
    harpe_unlock(&settings->mutex);
}

/* Takes a claim. If the claim fails, another job may have died and left the GPU changed. Then
 * restores GPUs that dead jobs have left changed, at most once a second, and tries again. */
static harpe_status claim_gpu(harpe_zeusd_slot *slot, pid_t process, harpe_gpu_claim **out,
                              harpe_saved_settings *earlier, harpe_error *error) {
    harpe_gpus *gpus = slot->settings->gpus;
    harpe_gpu_claim_options options = {.kind = slot->kind, .trainer = process};
    harpe_saved_settings_recovery how = {.is_dry = false};
    int64_t now_ns = harpe_clock_ns();
    harpe_status status = harpe_gpu_claim_take(gpus, slot->gpu, &options, out, earlier, error);
    bool is_lately = slot->recovered_ns != 0 && now_ns - slot->recovered_ns < RECOVER_NS;
    if (status != HARPE_ALREADY_EXISTS || is_lately) return status;
    slot->recovered_ns = now_ns;
    (void)harpe_saved_settings_recover(gpus, &how, NULL);
    return harpe_gpu_claim_take(gpus, slot->gpu, &options, out, earlier, error);
}

/* Claims the GPU for the holder's process. */
static harpe_status take(harpe_zeusd_slot *slot, const harpe_zeusd_holder *holder,
                         harpe_error *error) {
    harpe_saved_settings earlier = {.persistence = -1};
    harpe_gpu_claim *claim = NULL;
    int pidfd = fcntl(holder->pidfd, F_DUPFD_CLOEXEC, 0);
    if (pidfd < 0) return harpe_fail_memory(error);
    harpe_status status = claim_gpu(slot, holder->process, &claim, &earlier, error);
    /* If the process still runs now, the claim was made for this process and not for another
     * process with the same number. */
    bool is_new = earlier.uuid[0] == '\0';
    if (status == HARPE_OK && harpe_zeusd_has_ended(pidfd)) {
        harpe_gpu_claim_release(claim, is_new);
        status =
            harpe_fail(error, HARPE_PERMISSION_DENIED, "the process of this connection has ended");
    }
    if (status != HARPE_OK) {
        close(pidfd);
        return status;
    }
    slot->claim = claim;
    slot->before = (harpe_saved_settings){.kind = slot->kind, .persistence = -1};
    if (!is_new) {
        slot->before.power_limit_mw = earlier.power_limit_mw;
        slot->before.persistence = earlier.persistence;
        slot->before.resets_clocks = earlier.resets_clocks;
        slot->before.locks_graphics = earlier.locks_graphics;
        slot->before.locks_memory = earlier.locks_memory;
    }
    slot->locks_graphics = slot->locks_memory = !is_new && earlier.resets_clocks;
    show_held(slot, holder, pidfd);
    return HARPE_OK;
}

harpe_status harpe_zeusd_slot_put_back(harpe_zeusd_slot *slot, harpe_error *error) {
    harpe_zeusd_settings *settings = slot->settings;
    if (!slot->claim) return HARPE_OK;
    if (slot->before.resets_clocks) harpe_gpu_forget_clock_locks(settings->gpus, slot->gpu);
    harpe_status status =
        harpe_saved_settings_put_back(settings->gpus, slot->gpu, &slot->before, error);
    harpe_lock(&settings->mutex);
    if (status == HARPE_OK)
        settings->counts.put_back++;
    else
        settings->counts.failed++;
    harpe_unlock(&settings->mutex);
    if (status == HARPE_OK) let_go(slot);
    return status;
}

/* ---- Changing -------------------------------------------------------------------------------- */

/* Writes the record of the settings that the change replaces, unless it is written already. */
static harpe_status record(harpe_zeusd_slot *slot, harpe_zeusd_setting setting,
                           harpe_error *error) {
    harpe_gpus *gpus = slot->settings->gpus;
    const harpe_zeusd_settings_options *options = &slot->settings->options;
    harpe_saved_settings before = slot->before;
    harpe_status status = HARPE_OK;
    bool is_on = false;
    if (slot->kind == HARPE_SAVED_CLOCKS) {
        if (before.resets_clocks) return HARPE_OK;
        before.resets_clocks = true;
        if (options->default_locks) before.locks = options->default_locks(options->user, slot->gpu);
    } else if (setting == HARPE_ZEUSD_POWER_LIMIT) {
        if (before.power_limit_mw > 0) return HARPE_OK;
        status = harpe_gpu_power_limit(gpus, slot->gpu, &before.power_limit_mw, error);
    } else {
        if (before.persistence >= 0) return HARPE_OK;
        status = harpe_gpu_persistence_mode(gpus, slot->gpu, &is_on, error);
        before.persistence = is_on;
    }
    if (status == HARPE_OK) status = harpe_gpu_claim_save(slot->claim, &before, error);
    if (status != HARPE_OK) return status;
    slot->before = before;
    show_before(slot);
    return HARPE_OK;
}

/* Returns the lowest clock of a kind, or 1 if it is not known. */
static uint32_t lowest_clock(const change *what) {
    harpe_gpus *gpus = what->settings->gpus;
    uint32_t *clocks = NULL, memory_mhz = 0, lowest = 1;
    size_t count = 0;
    harpe_status status =
        what->setting == HARPE_ZEUSD_MEMORY_CLOCKS
            ? harpe_gpu_memory_clocks(gpus, what->gpu, &clocks, &count, NULL)
            : harpe_gpus_full_speed_clocks(gpus, what->gpu, &memory_mhz, &clocks, &count, NULL);
    if (status == HARPE_OK && count > 0) lowest = clocks[count - 1];
    free(clocks);
    return lowest;
}

/* Calls the driver. */
static harpe_status apply(const change *what, harpe_error *error) {
    harpe_gpus *gpus = what->settings->gpus;
    uint32_t minimum = what->values[0], maximum = what->values[1];
    if (what->setting == HARPE_ZEUSD_POWER_LIMIT)
        return harpe_gpu_set_power_limit(gpus, what->gpu, what->values[0], error);
    if (what->setting == HARPE_ZEUSD_PERSISTENCE)
        return harpe_gpu_set_persistence_mode(gpus, what->gpu, what->values[0] != 0, error);
    bool is_memory = what->setting == HARPE_ZEUSD_MEMORY_CLOCKS;
    /* Another program may have changed the lock since this handle set it. */
    harpe_gpu_forget_clock_locks(gpus, what->gpu);
    if (what->is_reset)
        return is_memory ? harpe_gpu_reset_memory_clocks(gpus, what->gpu, error)
                         : harpe_gpu_reset_graphics_clocks(gpus, what->gpu, error);
    /* NVML takes 0 for "no lower bound". */
    if (minimum == 0 && maximum > 0) {
        minimum = lowest_clock(what);
        if (minimum > maximum) minimum = maximum;
    }
    return is_memory ? harpe_gpu_lock_memory_clocks(gpus, what->gpu, minimum, maximum, error)
                     : harpe_gpu_lock_graphics_clocks(gpus, what->gpu, minimum, maximum, error);
}

static void note_lock(harpe_zeusd_slot *slot, const change *what, harpe_status status) {
    bool *locks =
        what->setting == HARPE_ZEUSD_MEMORY_CLOCKS ? &slot->locks_memory : &slot->locks_graphics;
    if (slot->kind != HARPE_SAVED_CLOCKS) return;
    if (!what->is_reset && !harpe_gpu_refused(status)) *locks = true;
    if (what->is_reset && status == HARPE_OK) *locks = false;
    if (what->is_reset || status != HARPE_OK) return;
    bool *was_locked = what->setting == HARPE_ZEUSD_MEMORY_CLOCKS ? &slot->before.locks_memory
                                                                  : &slot->before.locks_graphics;
    if (*was_locked) return;
    *was_locked = true;
    /* A failure costs only this knowledge. */
    (void)harpe_gpu_claim_save(slot->claim, &slot->before, NULL);
}

/* Makes a change that is restored later. The caller holds `busy`. */
static harpe_status change_and_keep(harpe_zeusd_slot *slot, const change *what,
                                    harpe_error *error) {
    bool is_first = !slot->claim;
    harpe_status status = is_first ? take(slot, what->holder, error) : HARPE_OK;
    if (status != HARPE_OK) return status;
    bool is_adopted = slot->before.resets_clocks || slot->before.power_limit_mw > 0 ||
                      slot->before.persistence >= 0;
    status = record(slot, what->setting, error);
    if (status != HARPE_OK) {
        if (is_first && !is_adopted) let_go(slot);
        return status;
    }
    status = apply(what, error);
    note_lock(slot, what, status);
    bool holds_no_clock =
        slot->kind == HARPE_SAVED_CLOCKS && !slot->locks_graphics && !slot->locks_memory;
    bool is_refused_first = is_first && !is_adopted && harpe_gpu_refused(status);
    if (holds_no_clock || is_refused_first) let_go(slot);
    return status;
}

/* Makes a change that is not restored. The claim only shows that no other job has the GPU. */
static harpe_status change_for_good(harpe_zeusd_slot *slot, const change *what,
                                    harpe_error *error) {
    harpe_saved_settings earlier;
    harpe_gpu_claim *claim = NULL;
    harpe_status status = claim_gpu(slot, harpe_process_self(), &claim, &earlier, error);
    if (status != HARPE_OK) return status;
    status = apply(what, error);
    harpe_gpu_claim_release(claim, true);
    return status;
}

static harpe_status make(const change *what, harpe_error *error) {
    harpe_zeusd_slot *slot = slot_of(what->settings, what->gpu, what->setting);
    bool has_ended;
    harpe_lock(&slot->busy);
    harpe_status status = check_holder(slot, what->holder, &has_ended, error);
    if (status == HARPE_OK && has_ended) status = harpe_zeusd_slot_put_back(slot, error);
    if (status == HARPE_OK) status = check_number(slot, error);
    if (status == HARPE_OK)
        status = is_kept_by(what->settings, what->holder) ? change_and_keep(slot, what, error)
                                                          : change_for_good(slot, what, error);
    harpe_unlock(&slot->busy);
    return status;
}

/* ---- The functions of harpe_zeusd_ops -------------------------------------------------------- */

static harpe_status set_power_limit(void *user, const harpe_zeusd_holder *holder, int gpu,
                                    uint32_t limit_mw, harpe_error *error) {
    return make(&(change){user, holder, gpu, HARPE_ZEUSD_POWER_LIMIT, false, {limit_mw}}, error);
}

static harpe_status set_persistence(void *user, const harpe_zeusd_holder *holder, int gpu,
                                    bool is_enabled, harpe_error *error) {
    return make(&(change){user, holder, gpu, HARPE_ZEUSD_PERSISTENCE, false, {is_enabled}}, error);
}

static harpe_status lock_graphics(void *user, const harpe_zeusd_holder *holder, int gpu,
                                  uint32_t minimum_mhz, uint32_t maximum_mhz, harpe_error *error) {
    change what = {
        user, holder, gpu, HARPE_ZEUSD_GRAPHICS_CLOCKS, false, {minimum_mhz, maximum_mhz}};
    return make(&what, error);
}

static harpe_status lock_memory(void *user, const harpe_zeusd_holder *holder, int gpu,
                                uint32_t minimum_mhz, uint32_t maximum_mhz, harpe_error *error) {
    change what = {user, holder, gpu, HARPE_ZEUSD_MEMORY_CLOCKS, false, {minimum_mhz, maximum_mhz}};
    return make(&what, error);
}

static harpe_status reset_graphics(void *user, const harpe_zeusd_holder *holder, int gpu,
                                   harpe_error *error) {
    return make(&(change){user, holder, gpu, HARPE_ZEUSD_GRAPHICS_CLOCKS, true, {0}}, error);
}

static harpe_status reset_memory(void *user, const harpe_zeusd_holder *holder, int gpu,
                                 harpe_error *error) {
    return make(&(change){user, holder, gpu, HARPE_ZEUSD_MEMORY_CLOCKS, true, {0}}, error);
}

harpe_zeusd_ops harpe_zeusd_settings_ops(harpe_zeusd_settings *settings) {
    return (harpe_zeusd_ops){.may_set = may_set,
                             .set_power_limit = set_power_limit,
                             .set_persistence = set_persistence,
                             .lock_graphics = lock_graphics,
                             .lock_memory = lock_memory,
                             .reset_graphics = reset_graphics,
                             .reset_memory = reset_memory,
                             .user = settings};
}
