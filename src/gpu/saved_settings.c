/* SPDX-License-Identifier: Apache-2.0 */
/* Claims GPUs, records their settings before a change, and restores the settings that a dead job
 * has left changed. A GPU is not touched while its claim is held or while its trainer runs;
 * docs/limits.md describes the one exception. saved_settings_files.c reads and writes the
 * records. */
#include "gpu/saved_settings.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/process.h"
#include "base/wait.h"
#include "gpu/gpus.h"
#include "gpu/saved_settings_files.h"

#define LOOK_NS 10000000
#define LOCK_TIMEOUT_S 5.0
#define TRY_AGAIN_NS 20000000

enum { TRIES = 3 };

struct harpe_gpu_claim {
    int directory, lock;
    char name[HARPE_SAVED_NAME_SIZE];
    harpe_saved_settings_record record; /* all members except the saved settings */
};

/* The records of one machine, and a handle that reaches all of its GPUs. */
typedef struct recovery {
    harpe_saved_settings_recovery how;
    int directory;
    harpe_gpus *gpus;
    char boot[64];
    char cluster[HARPE_SAVED_CLUSTER_SIZE];
} recovery;

typedef struct listed_record {
    char name[HARPE_SAVED_NAME_SIZE];
    int64_t noted_ns;
} listed_record;

static int find_gpu(const harpe_gpus *gpus, const char *uuid) {
    for (int gpu = 0; gpu < harpe_gpus_count(gpus); gpu++)
        if (strcmp(harpe_gpu_info_at(gpus, gpu)->uuid, uuid) == 0) return gpu;
    return -1;
}

/* ---- Restoring one GPU ----------------------------------------------------------------------- */

harpe_status harpe_gpu_restore_graphics_clocks(harpe_gpus *gpus, int gpu,
                                               const harpe_default_locks *locks,
                                               harpe_error *error) {
    if (locks->graphics_maximum_mhz == 0) return harpe_gpu_reset_graphics_clocks(gpus, gpu, error);
    return harpe_gpu_lock_graphics_clocks(gpus, gpu, locks->graphics_minimum_mhz,
                                          locks->graphics_maximum_mhz, error);
}

harpe_status harpe_gpu_restore_memory_clocks(harpe_gpus *gpus, int gpu,
                                             const harpe_default_locks *locks, harpe_error *error) {
    if (locks->memory_maximum_mhz == 0) return harpe_gpu_reset_memory_clocks(gpus, gpu, error);
    return harpe_gpu_lock_memory_clocks(gpus, gpu, locks->memory_minimum_mhz,
                                        locks->memory_maximum_mhz, error);
}

/* NOT_SUPPORTED usually means that the driver has never changed the setting. But drivers also
 * return it for a moment for a setting that they have changed. So NOT_SUPPORTED is a failure for a
 * clock that the driver has locked, and for a persistence mode that differs from the saved one. */
static harpe_status restore_by_driver(harpe_gpus *gpus, int gpu, const harpe_saved_settings *state,
                                      harpe_error *error) {
    harpe_status status = HARPE_OK;
    if (state->resets_clocks) {
        status = harpe_gpu_restore_graphics_clocks(gpus, gpu, &state->locks, error);
        if (status == HARPE_NOT_SUPPORTED && !state->locks_graphics) status = HARPE_OK;
        if (status != HARPE_OK) return status;
        status = harpe_gpu_restore_memory_clocks(gpus, gpu, &state->locks, error);
        if (status == HARPE_NOT_SUPPORTED && !state->locks_memory) status = HARPE_OK;
    }
    if (status == HARPE_OK && state->power_limit_mw > 0)
        status = harpe_gpu_set_power_limit(gpus, gpu, state->power_limit_mw, error);
    if (status == HARPE_OK && state->persistence >= 0) {
        bool is_on = false;
        status = harpe_gpu_set_persistence_mode(gpus, gpu, state->persistence == 1, error);
        if (status == HARPE_NOT_SUPPORTED &&
            harpe_gpu_persistence_mode(gpus, gpu, &is_on, NULL) == HARPE_OK &&
            is_on == (state->persistence == 1))
            status = HARPE_OK;
    }
    return status;
}

/* Restores a GPU. Tries a failed driver call again, because a call may fail once. A lost GPU needs
 * a reset, after which it has its default settings; its record stays until it has returned. */
static harpe_status restore_gpu(const recovery *all, int gpu, const harpe_saved_settings *state,
                                harpe_error *error) {
    harpe_status status = HARPE_OK;
    for (int tries = 0; tries < TRIES; tries++) {
        if (tries > 0) harpe_sleep_ns(TRY_AGAIN_NS);
        status = harpe_zeusd_is_given(&state->zeusd)
                     ? all->how.through_zeusd(all->gpus, gpu, state, error)
                     : restore_by_driver(all->gpus, gpu, state, error);
        if (status == HARPE_OK || status == HARPE_GPU_LOST || status == HARPE_PERMISSION_DENIED)
            return status;
    }
    return status;
}

harpe_status harpe_saved_settings_put_back(harpe_gpus *gpus, int gpu,
                                           const harpe_saved_settings *state, harpe_error *error) {
    recovery all = {.gpus = gpus};
    harpe_saved_settings by_driver = *state;
    by_driver.zeusd = (harpe_zeusd_place){.socket = ""};
    return restore_gpu(&all, gpu, &by_driver, error);
}

/* ---- Evaluating one record ------------------------------------------------------------------- */

/* Returns true if the memory of the cluster with this name exists. */
static bool cluster_is_there(const char *name, size_t length) {
    char path[HARPE_SAVED_CLUSTER_SIZE + 64];
    snprintf(path, sizeof path, "/dev/shm/harpe-emulator-%u-%.*s", (unsigned)getuid(), (int)length,
             name);
    struct stat status;
    return stat(path, &status) == 0;
}

/* Returns true if the recorded settings no longer exist, because the machine was restarted or the
 * emulated cluster is gone. */
static bool is_void(const recovery *all, const harpe_saved_settings_record *record) {
    if (strcmp(record->boot, all->boot) != 0) return true;
    const char *made = strrchr(record->cluster, '@');
    if (!made || strcmp(record->cluster, all->cluster) == 0) return false;
    size_t length = (size_t)(made - record->cluster);
    bool is_this_name = strncmp(record->cluster, all->cluster, length) == 0 &&
                        all->cluster[length] == '@' &&
                        strrchr(all->cluster, '@') == all->cluster + length;
    return is_this_name || !cluster_is_there(record->cluster, length);
}

static bool is_elsewhere(const recovery *all, const harpe_saved_settings_record *record, int gpu) {
    return gpu < 0 || strcmp(record->cluster, all->cluster) != 0 ||
           (harpe_zeusd_is_given(&record->state.zeusd) && !all->how.through_zeusd);
}

/* Returns what must be done with a record: HARPE_SAVED_RESTORED if its GPU must be restored.
 * Changes nothing. */
static harpe_saved_settings_outcome assess(const recovery *all,
                                           const harpe_saved_settings_record *record, int gpu) {
    bool is_over = all->how.is_over && all->how.is_over(all->how.user, &record->state);
    if (!is_over && harpe_process_is_alive(&record->trainer)) return HARPE_SAVED_IN_USE;
    if (is_void(all, record)) return HARPE_SAVED_VOID;
    if (is_elsewhere(all, record, gpu)) return HARPE_SAVED_ELSEWHERE;
    return HARPE_SAVED_RESTORED;
}

/* Returns true if the job of a record is over, so that the record is processed and removed. */
static bool is_due(harpe_saved_settings_outcome outcome) {
    return outcome == HARPE_SAVED_VOID || outcome == HARPE_SAVED_RESTORED;
}

static harpe_saved_settings_outcome settle(const recovery *all, const char *name,
                                           const harpe_saved_settings_record *record, int gpu,
                                           harpe_error *error) {
    harpe_saved_settings_outcome outcome = assess(all, record, gpu);
    if (!is_due(outcome) || all->how.is_dry) return outcome;
    if (outcome == HARPE_SAVED_RESTORED && restore_gpu(all, gpu, &record->state, error) != HARPE_OK)
        return HARPE_SAVED_FAILED;
    harpe_saved_settings_remove(all->directory, name);
    return outcome;
}

static harpe_status tell_outcome(const recovery *all, const harpe_saved_settings_record *record,
                                 int gpu, harpe_saved_settings_outcome outcome,
                                 const harpe_error *told, harpe_error *error) {
    if (all->how.report) {
        all->how.report(all->how.user, &record->state,
                        gpu >= 0 ? harpe_gpu_info_at(all->gpus, gpu) : NULL, outcome, told);
    }
    if (outcome != HARPE_SAVED_FAILED) return HARPE_OK;
    if (error) *error = *told;
    return told->status;
}

/* Processes a record. The caller holds the lock, so no other process restores or claims the GPU. */
static harpe_status settle_locked(const recovery *all, const char *name, harpe_error *error) {
    harpe_saved_settings_record record;
    harpe_error told = {.status = HARPE_OK};
    harpe_status status = harpe_saved_settings_read(all->directory, name, &record, &told);
    if (status == HARPE_NOT_FOUND) return HARPE_OK;
    if (status == HARPE_INVALID_INPUT && !all->how.is_dry) {
        harpe_saved_settings_remove(all->directory, name); /* the file contains no usable record */
        return HARPE_OK;
    }
    if (status != HARPE_OK) return harpe_fail(error, status, "%s", told.message);
    int gpu = find_gpu(all->gpus, record.state.uuid);
    harpe_saved_settings_outcome outcome = settle(all, name, &record, gpu, &told);
    return tell_outcome(all, &record, gpu, outcome, &told, error);
}

/* Processes a record that another process keeps locked. */
static harpe_status tell_locked(const recovery *all, const char *name,
                                const harpe_saved_settings_record *record, int gpu,
                                harpe_saved_settings_outcome outcome, harpe_error *error) {
    harpe_error told = {.status = HARPE_OK};
    if (is_due(outcome) && !all->how.is_dry) {
        if (outcome == HARPE_SAVED_VOID) return HARPE_OK; /* the next call may remove the record */
        outcome = HARPE_SAVED_FAILED;
        told.status = harpe_fail(&told, HARPE_ALREADY_EXISTS,
                                 "GPU %s is not restored: another process has kept the record %s "
                                 "locked for more than %.0f s; try again, or end that process",
                                 record->state.uuid, name, LOCK_TIMEOUT_S);
    }
    return tell_outcome(all, record, gpu, outcome, &told, error);
}

/* Processes a record. If the job of the record is over, a process that has the lock only looks at
 * the record, restores the GPU, or is being killed. It releases the lock soon, so this function
 * waits up to LOCK_TIMEOUT_S. */
static harpe_status settle_one(const recovery *all, const char *name, harpe_error *error) {
    double give_up_at = harpe_clock_s() + LOCK_TIMEOUT_S;
    for (;;) {
        int lock = harpe_saved_settings_lock(all->directory, name);
        if (lock >= 0) {
            harpe_status status = settle_locked(all, name, error);
            harpe_saved_settings_unlock(all->directory, name, lock);
            return status;
        }
        if (errno != EWOULDBLOCK) return harpe_fail_errno(error, errno, "record %.120s", name);
        harpe_saved_settings_record record;
        if (harpe_saved_settings_read(all->directory, name, &record, NULL) != HARPE_OK)
            return HARPE_OK;
        int gpu = find_gpu(all->gpus, record.state.uuid);
        harpe_saved_settings_outcome outcome = assess(all, &record, gpu);
        if (!is_due(outcome) || all->how.is_dry || harpe_clock_s() > give_up_at)
            return tell_locked(all, name, &record, gpu, outcome, error);
        harpe_sleep_ns(LOOK_NS);
    }
}

/* ---- Recovery -------------------------------------------------------------------------------- */

static int newest_first(const void *a, const void *b) {
    int64_t one = ((const listed_record *)a)->noted_ns;
    int64_t other = ((const listed_record *)b)->noted_ns;
    return (one < other) - (one > other);
}

/* Lists the records. The oldest record of a GPU has its original settings, so it is restored
 * last. */
static harpe_status list_records(int directory, size_t most, listed_record **out, size_t *count,
                                 harpe_error *error) {
    char(*names)[HARPE_SAVED_NAME_SIZE] = NULL;
    harpe_status status = harpe_saved_settings_list(directory, &names, count, error);
    if (status != HARPE_OK) return status;
    if (most > 0 && *count > most) *count = 0;
    listed_record *records = harpe_calloc(*count, sizeof *records);
    for (size_t i = 0; records && i < *count; i++) {
        harpe_saved_settings_record record = {.noted_ns = 0};
        memcpy(records[i].name, names[i], sizeof names[i]);
        (void)harpe_saved_settings_read(directory, names[i], &record, NULL);
        records[i].noted_ns = record.noted_ns;
    }
    free(names);
    if (!records) return harpe_fail_memory(error);
    qsort(records, *count, sizeof *records, newest_first);
    *out = records;
    return HARPE_OK;
}

static void identify_machine(const harpe_gpus *gpus, char boot[64],
                             char cluster[HARPE_SAVED_CLUSTER_SIZE]) {
    harpe_saved_settings_read_boot(boot);
    if (!harpe_gpus_emulated_identity(gpus, cluster, HARPE_SAVED_CLUSTER_SIZE)) cluster[0] = '\0';
}

/* Processes the records with a separate handle, so that the caller's handle does not later undo
 * these changes. */
static harpe_status settle_all(recovery *all, const harpe_gpus *like, const listed_record *records,
                               size_t count, harpe_error *error) {
    const char *library = harpe_gpus_library_path(like);
    harpe_gpus_options options = {.library_path = *library ? library : NULL,
                                  .visible_devices = "all"};
    harpe_status first = harpe_gpus_open(&options, &all->gpus, error);
    if (first != HARPE_OK) return first;
    for (size_t i = 0; i < count; i++) {
        harpe_error told;
        harpe_status status = settle_one(all, records[i].name, &told);
        if (status == HARPE_OK || first != HARPE_OK) continue;
        first = status;
        if (error) *error = told;
    }
    harpe_gpus_close(all->gpus);
    return first;
}

harpe_status harpe_saved_settings_recover(const harpe_gpus *gpus,
                                          const harpe_saved_settings_recovery *how,
                                          harpe_error *error) {
    recovery all = {.how = *how};
    listed_record *records = NULL;
    size_t count = 0;
    harpe_status status = harpe_saved_settings_open_directory(harpe_gpus_are_emulated(gpus), false,
                                                              &all.directory, error);
    if (status == HARPE_NOT_FOUND) return HARPE_OK; /* no record was ever written */
    if (status != HARPE_OK) return status;
    status = list_records(all.directory, how->most_records, &records, &count, error);
    if (status == HARPE_OK && count > 0) {
        identify_machine(gpus, all.boot, all.cluster);
        status = settle_all(&all, gpus, records, count, error);
    }
    free(records);
    close(all.directory);
    return status;
}

/* ---- Claims ---------------------------------------------------------------------------------- */

static void fill_record(harpe_saved_settings_record *record, harpe_gpus *gpus, int gpu,
                        const harpe_gpu_claim_options *options) {
    *record = (harpe_saved_settings_record){.trainer = harpe_process_identify(options->trainer)};
    record->state.kind = options->kind;
    record->state.trainer = options->trainer;
    snprintf(record->state.uuid, sizeof record->state.uuid, "%s",
             harpe_gpu_info_at(gpus, gpu)->uuid);
    identify_machine(gpus, record->boot, record->cluster);
}

static bool is_same_process(const harpe_process_identity *a, const harpe_process_identity *b) {
    return a->process == b->process && a->start_ticks == b->start_ticks &&
           a->namespace == b->namespace;
}

/* Takes over a GPU; the caller holds the lock. Sets `*is_free` to false if the trainer of an
 * earlier record still runs. */
static harpe_status take_over(harpe_gpu_claim *claim, harpe_gpus *gpus, bool *is_free,
                              harpe_saved_settings *earlier, harpe_error *error) {
    harpe_saved_settings_record record;
    *is_free = true;
    *earlier = (harpe_saved_settings){.persistence = -1};
    harpe_status status = harpe_saved_settings_read(claim->directory, claim->name, &record, error);
    if (status == HARPE_INVALID_INPUT) harpe_saved_settings_remove(claim->directory, claim->name);
    if (status == HARPE_NOT_FOUND || status == HARPE_INVALID_INPUT) return HARPE_OK;
    if (status != HARPE_OK) return status;
    bool is_own = is_same_process(&record.trainer, &claim->record.trainer) &&
                  strcmp(record.boot, claim->record.boot) == 0 &&
                  strcmp(record.cluster, claim->record.cluster) == 0;
    if (is_own) {
        *earlier = record.state;
        return HARPE_OK;
    }
    *is_free = !harpe_process_is_alive(&record.trainer);
    if (!*is_free) return HARPE_OK;
    recovery all = {.directory = claim->directory, .gpus = gpus};
    identify_machine(gpus, all.boot, all.cluster);
    if (is_void(&all, &record)) {
        harpe_saved_settings_remove(claim->directory, claim->name);
        return HARPE_OK;
    }
    return harpe_fail(error, HARPE_ALREADY_EXISTS,
                      "a killed job has left GPU %s changed, and it is not restored yet: run "
                      "'harpe gpus --restore'",
                      record.state.uuid);
}

static harpe_status fail_claimed(const harpe_gpus *gpus, int gpu, harpe_saved_settings_kind kind,
                                 harpe_error *error) {
    return harpe_fail(error, HARPE_ALREADY_EXISTS,
                      "GPU %d has another %s: end the training that it belongs to, or use "
                      "another GPU",
                      harpe_gpu_info_at(gpus, gpu)->driver_index,
                      kind == HARPE_SAVED_CLOCKS ? "frequency controller"
                                                 : "power limit optimizer");
}

static harpe_status wait_for_lock(harpe_gpu_claim *claim, harpe_gpus *gpus, int gpu,
                                  const harpe_gpu_claim_options *options,
                                  harpe_saved_settings *earlier, harpe_error *error) {
    double give_up_at = harpe_clock_s() + options->timeout_s;
    for (;;) {
        claim->lock = harpe_saved_settings_lock(claim->directory, claim->name);
        if (claim->lock < 0 && errno != EWOULDBLOCK) {
            return harpe_fail_errno(error, errno, "claiming GPU %d",
                                    harpe_gpu_info_at(gpus, gpu)->driver_index);
        }
        if (claim->lock >= 0) {
            bool is_free = false;
            harpe_status status = take_over(claim, gpus, &is_free, earlier, error);
            if (status == HARPE_OK && is_free) return HARPE_OK;
            harpe_process_close(claim->lock);
            claim->lock = -1;
            if (status != HARPE_OK) return status;
        }
        if (harpe_clock_s() > give_up_at) return fail_claimed(gpus, gpu, options->kind, error);
        if (options->gives_up && options->gives_up(options->user))
            return harpe_fail(error, HARPE_INTERRUPTED, "the training process has ended");
        harpe_sleep_ns(LOOK_NS);
    }
}

harpe_status harpe_gpu_claim_take(harpe_gpus *gpus, int gpu, const harpe_gpu_claim_options *options,
                                  harpe_gpu_claim **out, harpe_saved_settings *earlier,
                                  harpe_error *error) {
    harpe_gpu_claim *claim = harpe_calloc(1, sizeof *claim);
    if (!claim) return harpe_fail_memory(error);
    claim->directory = claim->lock = -1;
    fill_record(&claim->record, gpus, gpu, options);
    harpe_saved_settings_name(claim->record.state.uuid, options->kind, claim->name);
    harpe_status status = harpe_saved_settings_open_directory(harpe_gpus_are_emulated(gpus), true,
                                                              &claim->directory, error);
    if (status == HARPE_OK) status = wait_for_lock(claim, gpus, gpu, options, earlier, error);
    if (status != HARPE_OK) {
        if (claim->directory >= 0) close(claim->directory);
        free(claim);
        return status;
    }
    *out = claim;
    return HARPE_OK;
}

harpe_status harpe_gpu_claim_save(harpe_gpu_claim *claim, const harpe_saved_settings *state,
                                  harpe_error *error) {
    harpe_saved_settings_record record = claim->record;
    record.state = *state;
    record.state.kind = claim->record.state.kind;
    record.state.trainer = claim->record.state.trainer;
    memcpy(record.state.uuid, claim->record.state.uuid, sizeof record.state.uuid);
    record.noted_ns = harpe_clock_boot_ns();
    return harpe_saved_settings_write(claim->directory, claim->name, &record, error);
}

void harpe_gpu_claim_release(harpe_gpu_claim *claim, bool is_restored) {
    if (!claim) return;
    if (is_restored) {
        harpe_saved_settings_remove(claim->directory, claim->name);
        harpe_saved_settings_unlock(claim->directory, claim->name, claim->lock);
    } else {
        harpe_process_close(claim->lock);
    }
    close(claim->directory);
    free(claim);
}

void harpe_saved_settings_forget(harpe_gpus *gpus, int gpu, harpe_saved_settings_kind kind) {
    harpe_gpu_claim_options options = {.kind = kind, .trainer = harpe_process_self()};
    harpe_gpu_claim *claim = NULL;
    harpe_saved_settings earlier;
    if (harpe_gpu_claim_take(gpus, gpu, &options, &claim, &earlier, NULL) == HARPE_OK)
        harpe_gpu_claim_release(claim, true);
}

bool harpe_saved_settings_find(const harpe_gpus *gpus, int gpu, harpe_saved_settings_kind kind,
                               harpe_saved_settings *out, bool *is_in_use) {
    harpe_saved_settings_record record;
    char name[HARPE_SAVED_NAME_SIZE];
    int directory = -1;
    harpe_saved_settings_name(harpe_gpu_info_at(gpus, gpu)->uuid, kind, name);
    if (harpe_saved_settings_open_directory(harpe_gpus_are_emulated(gpus), false, &directory,
                                            NULL) != HARPE_OK)
        return false;
    bool is_there = harpe_saved_settings_read(directory, name, &record, NULL) == HARPE_OK;
    close(directory);
    if (!is_there) return false;
    *out = record.state;
    if (is_in_use) *is_in_use = harpe_process_is_alive(&record.trainer);
    return true;
}

/* ---- Telling --------------------------------------------------------------------------------- */

void harpe_saved_settings_describe(const harpe_saved_settings *state, char *text, size_t size) {
    size_t length = 0;
    text[0] = '\0';
    if (state->resets_clocks && state->locks.graphics_maximum_mhz > 0)
        length +=
            (size_t)snprintf(text + length, size - length, "clock %u to %u MHz",
                             state->locks.graphics_minimum_mhz, state->locks.graphics_maximum_mhz);
    else if (state->resets_clocks)
        length += (size_t)snprintf(text + length, size - length, "clocks reset");
    if (state->power_limit_mw > 0 && length < size) {
        length += (size_t)snprintf(text + length, size - length, "%spower limit %.10g W",
                                   length ? ", " : "", state->power_limit_mw / 1e3);
    }
    if (state->persistence >= 0 && length < size) {
        (void)snprintf(text + length, size - length, "%spersistence mode %s", length ? ", " : "",
                       state->persistence ? "on" : "off");
    }
}

void harpe_saved_settings_report_to_syslog(void *user, const harpe_saved_settings *state,
                                           const harpe_gpu_info *info,
                                           harpe_saved_settings_outcome outcome,
                                           const harpe_error *error) {
    char what[128];
    (void)user;
    harpe_saved_settings_describe(state, what, sizeof what);
    if (outcome == HARPE_SAVED_RESTORED) {
        syslog(LOG_USER | LOG_NOTICE,
               "harpe: GPU %d: put back what the killed process %" PRId64 " had changed: %s",
               info ? info->driver_index : -1, state->trainer, what);
    } else if (outcome == HARPE_SAVED_FAILED) {
        syslog(LOG_USER | LOG_ERR,
               "harpe: GPU %d: what the killed process %" PRId64 " had changed could not be put "
               "back: %s",
               info ? info->driver_index : -1, state->trainer, error->message);
    }
}
