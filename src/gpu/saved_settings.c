/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes the files of saved_settings.h: a directory that belongs to one user, a lock for
 * each GPU and kind, and a record as lines of "key value". It does not use drivers. */
#include "gpu/saved_settings.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <syslog.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/number.h"
#include "base/process.h"
#include "base/text.h"
#include "base/wait.h"
#include "gpu/gpus.h"
#include "gpu/settings.h"

enum { RECORD_SIZE_MAX = 4096, RECORDS_MAX = 100000 };

#define HEADING "harpe-found 1\n"
#define LOCK_SUFFIX ".lock"
#define ROOT_DIRECTORY "/run/harpe"

static const char *const kind_names[HARPE_SAVED_KINDS] = {"power", "clocks"};

/* ---- Directory ------------------------------------------------------------------------------- */

/* Opens the directory, or makes it if it is missing. Refuses a directory that another user owns or
 * may write to. */
static harpe_status try_directory(const char *path, bool may_make, int *out, harpe_error *error) {
    struct stat status;
    /* Everybody may enter root's directory, because it also contains the socket of the agent. */
    mode_t mode = strcmp(path, ROOT_DIRECTORY) == 0 ? 0755 : 0700;
    if (may_make && mkdir(path, mode) != 0 && errno != EEXIST) {
        return harpe_fail_errno(error, errno, "%.300s (where saved settings of GPUs are kept)",
                                path);
    }
    int opened = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (opened < 0 || fstat(opened, &status) != 0) {
        int failure = errno;
        if (opened >= 0) close(opened);
        return harpe_fail_errno(error, failure, "%.300s (where saved settings of GPUs are kept)",
                                path);
    }
    if (status.st_uid == geteuid() && !(status.st_mode & (S_IWGRP | S_IWOTH))) {
        *out = opened;
        return HARPE_OK;
    }
    close(opened);
    return harpe_fail(error, HARPE_PERMISSION_DENIED,
                      "%.300s: saved settings of GPUs are kept in a directory of this user that "
                      "no other user can write; remove this directory",
                      path);
}

static harpe_status open_runtime_directory(bool may_make, int *out, harpe_error *error) {
    const char *runtime = secure_getenv("XDG_RUNTIME_DIR");
    if (!runtime || *runtime != '/')
        return harpe_fail(error, HARPE_NOT_FOUND, "XDG_RUNTIME_DIR is not set");
    char *path = harpe_path_join(runtime, "/", "harpe");
    if (!path) return harpe_fail_memory(error);
    harpe_status status = try_directory(path, may_make, out, error);
    free(path);
    return status;
}

harpe_status harpe_saved_settings_open_directory(bool is_emulated, bool may_make, int *out,
                                                 harpe_error *error) {
    char path[64];
    const char *own = harpe_process_world_directory();
    if (own) return try_directory(own, may_make, out, error);
    unsigned user = (unsigned)geteuid();
    snprintf(path, sizeof path, "/dev/shm/harpe-%s%u", is_emulated ? "emulated-" : "", user);
    if (is_emulated) return try_directory(path, may_make, out, error);
    harpe_status status = user == 0 ? try_directory(ROOT_DIRECTORY, may_make, out, error)
                                    : open_runtime_directory(may_make, out, error);
    return status == HARPE_OK ? HARPE_OK : try_directory(path, may_make, out, error);
}

void harpe_saved_settings_name(const char *uuid, harpe_saved_settings_kind kind,
                               char name[HARPE_SAVED_NAME_SIZE]) {
    char plain[96];
    size_t length = 0;
    for (; uuid[length] && length < sizeof plain - 1; length++) {
        unsigned char c = (unsigned char)uuid[length];
        plain[length] = (char)(isascii(c) && (isalnum(c) || c == '-') ? c : '_');
    }
    plain[length] = '\0';
    snprintf(name, HARPE_SAVED_NAME_SIZE, "%s.%s", plain, kind_names[kind]);
}

static void suffixed(const char *name, const char *suffix, char out[HARPE_SAVED_NAME_SIZE + 8]) {
    snprintf(out, HARPE_SAVED_NAME_SIZE + 8, "%s%s", name, suffix);
}

/* ---- Locks ----------------------------------------------------------------------------------- */

static int lock_record(int directory, const char *name) {
    char file[HARPE_SAVED_NAME_SIZE + 8];
    suffixed(name, LOCK_SUFFIX, file);
    return harpe_file_lock_at(directory, file, 0);
}

/* Removes the lock's file and closes it. The caller holds the lock. */
static void unlock_record(int directory, const char *name, int lock) {
    char file[HARPE_SAVED_NAME_SIZE + 8];
    suffixed(name, LOCK_SUFFIX, file);
    harpe_file_unlock_at(directory, file, lock);
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* Finds the next line's key and value. Returns false at the end. */
static bool next_line(char **rest, char **key, char **value) {
    char *line = strsep(rest, "\n");
    if (!line || !*line) return false;
    *key = strsep(&line, " ");
    *value = line ? line : *key + strlen(*key);
    return true;
}

static bool read_text(const char *value, char *out, size_t size) {
    return (size_t)snprintf(out, size, "%s", value) < size;
}

static bool read_kind(const char *value, harpe_saved_settings_kind *out) {
    for (int kind = 0; kind < HARPE_SAVED_KINDS; kind++) {
        if (strcmp(value, kind_names[kind]) != 0) continue;
        *out = (harpe_saved_settings_kind)kind;
        return true;
    }
    return false;
}

enum {
    POWER_LIMIT,
    PERSISTENCE,
    RESETS_CLOCKS,
    LOCKS_GRAPHICS,
    LOCKS_MEMORY,
    YIELDS,
    GRAPHICS_MINIMUM,
    GRAPHICS_MAXIMUM,
    MEMORY_MINIMUM,
    MEMORY_MAXIMUM,
    TRAINER,
    TRAINER_START,
    TRAINER_NAMESPACE,
    NOTED,
    NUMBERS
};

static const struct {
    const char *key;
    int64_t minimum, maximum;
} number_keys[NUMBERS] = {
    [POWER_LIMIT] = {"power_limit_mw", 0, UINT32_MAX},
    [PERSISTENCE] = {"persistence", -1, 1},
    [RESETS_CLOCKS] = {"resets_clocks", 0, 1},
    [LOCKS_GRAPHICS] = {"locks_graphics", 0, 1},
    [LOCKS_MEMORY] = {"locks_memory", 0, 1},
    [YIELDS] = {"yields", 0, 1},
    [GRAPHICS_MINIMUM] = {"graphics_minimum_mhz", 0, UINT32_MAX},
    [GRAPHICS_MAXIMUM] = {"graphics_maximum_mhz", 0, UINT32_MAX},
    [MEMORY_MINIMUM] = {"memory_minimum_mhz", 0, UINT32_MAX},
    [MEMORY_MAXIMUM] = {"memory_maximum_mhz", 0, UINT32_MAX},
    [TRAINER] = {"trainer", 0, INT32_MAX},
    [TRAINER_START] = {"trainer_start", 0, INT64_MAX},
    [TRAINER_NAMESPACE] = {"trainer_namespace", 0, INT64_MAX},
    [NOTED] = {"noted_ns", 0, INT64_MAX},
};

/* Reads one line. Ignores keys that a later version has added. */
static bool read_line(harpe_saved_settings_record *record, int64_t numbers[NUMBERS],
                      const char *key, const char *value) {
    harpe_saved_settings *state = &record->state;
    if (strcmp(key, "kind") == 0) return read_kind(value, &state->kind);
    if (strcmp(key, "gpu") == 0) return read_text(value, state->uuid, sizeof state->uuid);
    if (strcmp(key, "boot") == 0) return read_text(value, record->boot, sizeof record->boot);
    if (strcmp(key, "cluster") == 0)
        return read_text(value, record->cluster, sizeof record->cluster);
    if (strcmp(key, "zeusd") == 0)
        return read_text(value, state->zeusd.socket, sizeof state->zeusd.socket);
    if (strcmp(key, "zeusd_host_port") == 0)
        return read_text(value, state->zeusd.host_port, sizeof state->zeusd.host_port);
    for (int i = 0; i < NUMBERS; i++) {
        if (strcmp(key, number_keys[i].key) != 0) continue;
        return harpe_parse_int(value, strlen(value), &numbers[i]) &&
               numbers[i] >= number_keys[i].minimum && numbers[i] <= number_keys[i].maximum;
    }
    return true;
}

static void take_numbers(harpe_saved_settings_record *record, const int64_t numbers[NUMBERS]) {
    record->state.power_limit_mw = (uint32_t)numbers[POWER_LIMIT];
    record->state.persistence = (int32_t)numbers[PERSISTENCE];
    record->state.resets_clocks = numbers[RESETS_CLOCKS] == 1;
    record->state.locks_graphics = numbers[LOCKS_GRAPHICS] == 1;
    record->state.locks_memory = numbers[LOCKS_MEMORY] == 1;
    record->state.yields = numbers[YIELDS] == 1;
    record->state.locks = (harpe_default_locks){
        .graphics_minimum_mhz = (uint32_t)numbers[GRAPHICS_MINIMUM],
        .graphics_maximum_mhz = (uint32_t)numbers[GRAPHICS_MAXIMUM],
        .memory_minimum_mhz = (uint32_t)numbers[MEMORY_MINIMUM],
        .memory_maximum_mhz = (uint32_t)numbers[MEMORY_MAXIMUM],
    };
    record->state.trainer = numbers[TRAINER];
    record->trainer.process = numbers[TRAINER];
    record->trainer.start_ticks = (uint64_t)numbers[TRAINER_START];
    record->trainer.namespace = (uint64_t)numbers[TRAINER_NAMESPACE];
    record->noted_ns = numbers[NOTED];
}

static harpe_status parse(char *text, const char *name, harpe_saved_settings_record *out,
                          harpe_error *error) {
    harpe_saved_settings_record record = {0};
    int64_t numbers[NUMBERS] = {[PERSISTENCE] = -1};
    size_t heading = strlen(HEADING);
    bool is_well = strncmp(text, HEADING, heading) == 0;
    char *rest = is_well ? text + heading : NULL;
    char *key = NULL;
    char *value = NULL;
    while (is_well && next_line(&rest, &key, &value))
        is_well = read_line(&record, numbers, key, value);
    if (!is_well || !record.state.uuid[0]) {
        return harpe_fail(error, HARPE_INVALID_INPUT, "%.120s: not a record of saved settings",
                          name);
    }
    take_numbers(&record, numbers);
    *out = record;
    return HARPE_OK;
}

/* Reads a record. HARPE_NOT_FOUND: there is no record. HARPE_INVALID_INPUT: the file is not a
 * record of Harpe. */
static harpe_status read_record(int directory, const char *name, harpe_saved_settings_record *out,
                                harpe_error *error) {
    char text[RECORD_SIZE_MAX];
    int file = openat(directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0 && errno == ENOENT)
        return harpe_fail(error, HARPE_NOT_FOUND, "%.120s: no such record", name);
    if (file < 0) return harpe_fail_errno(error, errno, "%.120s", name);
    size_t length = 0;
    ssize_t got = 0;
    while (length < sizeof text - 1 &&
           (got = read(file, text + length, sizeof text - 1 - length)) > 0)
        length += (size_t)got;
    int failure = got < 0 ? errno : 0;
    close(file);
    if (failure) return harpe_fail_errno(error, failure, "%.120s", name);
    text[length] = '\0';
    return parse(text, name, out, error);
}

/* ---- Writing --------------------------------------------------------------------------------- */

/* Older versions ignore these lines and reset the clocks. */
static void print_locks(harpe_text *text, const harpe_default_locks *locks) {
    if (locks->graphics_maximum_mhz > 0)
        harpe_text_printf(text, "graphics_minimum_mhz %u\ngraphics_maximum_mhz %u\n",
                          locks->graphics_minimum_mhz, locks->graphics_maximum_mhz);
    if (locks->memory_maximum_mhz > 0)
        harpe_text_printf(text, "memory_minimum_mhz %u\nmemory_maximum_mhz %u\n",
                          locks->memory_minimum_mhz, locks->memory_maximum_mhz);
}

static void print_record(harpe_text *text, const harpe_saved_settings_record *record) {
    const harpe_saved_settings *state = &record->state;
    harpe_text_printf(text, HEADING "kind %s\ngpu %s\nboot %s\n", kind_names[state->kind],
                      state->uuid, record->boot);
    harpe_text_printf(text, "trainer %" PRId64 "\ntrainer_start %" PRIu64 "\n",
                      record->trainer.process, record->trainer.start_ticks);
    harpe_text_printf(text, "trainer_namespace %" PRIu64 "\nnoted_ns %" PRId64 "\n",
                      record->trainer.namespace, record->noted_ns);
    harpe_text_printf(text, "power_limit_mw %" PRIu32 "\npersistence %" PRId32 "\n",
                      state->power_limit_mw, state->persistence);
    harpe_text_printf(text, "resets_clocks %d\nlocks_graphics %d\nlocks_memory %d\n",
                      state->resets_clocks, state->locks_graphics, state->locks_memory);
    if (state->yields) harpe_text_printf(text, "yields 1\n");
    print_locks(text, &state->locks);
    if (record->cluster[0]) harpe_text_printf(text, "cluster %s\n", record->cluster);
    if (state->zeusd.socket[0]) harpe_text_printf(text, "zeusd %s\n", state->zeusd.socket);
    if (state->zeusd.host_port[0])
        harpe_text_printf(text, "zeusd_host_port %s\n", state->zeusd.host_port);
}

/* Writes the record completely or not at all. */
static harpe_status write_record(int directory, const char *name,
                                 const harpe_saved_settings_record *record, harpe_error *error) {
    harpe_text text = {0};
    print_record(&text, record);
    if (text.failed) {
        harpe_text_free(&text);
        return harpe_fail_memory(error);
    }
    /* Without fsync, because the directory does not outlive a restart of the machine. The caller
     * holds the lock, so no other process writes this file. */
    int failure = harpe_file_replace_at(directory, name, text.data, text.length);
    harpe_text_free(&text);
    if (!failure) return HARPE_OK;
    return harpe_fail_errno(error, failure, "saving the settings of GPU %.96s", name);
}

static void remove_record(int directory, const char *name) { (void)unlinkat(directory, name, 0); }

/* ---- Listing --------------------------------------------------------------------------------- */

static bool is_record_name(const char *name) {
    const char *dot = strrchr(name, '.');
    harpe_saved_settings_kind kind;
    return name[0] != '.' && strlen(name) < HARPE_SAVED_NAME_SIZE && dot &&
           read_kind(dot + 1, &kind);
}

/* Lists the names of all records. The caller frees the list with free(). */
static harpe_status list_names(int directory, char (**out)[HARPE_SAVED_NAME_SIZE], size_t *count,
                               harpe_error *error) {
    int own = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = own >= 0 ? fdopendir(own) : NULL;
    if (!entries) {
        int failure = errno;
        if (own >= 0) close(own);
        return harpe_fail_errno(error, failure, "saved settings of GPUs");
    }
    char(*names)[HARPE_SAVED_NAME_SIZE] = NULL;
    size_t used = 0;
    harpe_status status = HARPE_OK;
    for (struct dirent *entry; used < RECORDS_MAX && (entry = readdir(entries));) {
        if (!is_record_name(entry->d_name)) continue;
        void *larger = harpe_realloc(names, used + 1, sizeof *names);
        if (!larger) {
            status = harpe_fail_memory(error);
            break;
        }
        names = larger;
        memcpy(names[used++], entry->d_name, strlen(entry->d_name) + 1);
    }
    closedir(entries);
    if (status != HARPE_OK) {
        free(names);
        return status;
    }
    *out = names;
    *count = used;
    return HARPE_OK;
}

/* ---- Processes ------------------------------------------------------------------------------- */

static bool read_small_file(const char *path, char *text, size_t size) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    ssize_t got = read(file, text, size - 1);
    close(file);
    text[got > 0 ? got : 0] = '\0';
    return got > 0;
}

static void read_boot(char boot[64]) {
    if (!read_small_file("/proc/sys/kernel/random/boot_id", boot, 64)) boot[0] = '\0';
    boot[strcspn(boot, "\n")] = '\0';
}

static uint64_t own_namespace(void) {
    struct stat status;
    return stat("/proc/self/ns/pid", &status) == 0 ? (uint64_t)status.st_ino : 0;
}

harpe_process_identity harpe_process_identify(pid_t process) {
    return (harpe_process_identity){process, harpe_process_started(process), own_namespace()};
}

bool harpe_process_is_alive(const harpe_process_identity *identity) {
    if (identity->process < 1 || identity->process > INT_MAX) return false;
    if (identity->namespace != own_namespace()) return false;
    int watch = harpe_process_open((pid_t)identity->process);
    if (watch < 0) return errno != ESRCH && errno != EINVAL;
    bool has_ended = harpe_events_now(watch, POLLIN) != 0;
    close(watch);
    return !has_ended && (identity->start_ticks == 0 ||
                          harpe_process_started((pid_t)identity->process) == identity->start_ticks);
}

/* ---- Claims and recovery --------------------------------------------------------------------- */

/* Claims GPUs, records their settings before a change, and restores the settings that a dead job
 * has left changed. A GPU is not touched while its claim is held or while its trainer runs;
 * docs/limits.md describes the one exception. The code above reads and writes the
 * records. */

#define LOOK_NS 10000000
#define LOCK_TIMEOUT_S 5.0
#define YIELDING_S 1.0
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
    remove_record(all->directory, name);
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
    harpe_status status = read_record(all->directory, name, &record, &told);
    if (status == HARPE_NOT_FOUND) return HARPE_OK;
    if (status == HARPE_INVALID_INPUT && !all->how.is_dry) {
        remove_record(all->directory, name); /* the file contains no usable record */
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
        int lock = lock_record(all->directory, name);
        if (lock >= 0) {
            harpe_status status = settle_locked(all, name, error);
            unlock_record(all->directory, name, lock);
            return status;
        }
        if (errno != EWOULDBLOCK) return harpe_fail_errno(error, errno, "record %.120s", name);
        harpe_saved_settings_record record;
        if (read_record(all->directory, name, &record, NULL) != HARPE_OK) return HARPE_OK;
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
    harpe_status status = list_names(directory, &names, count, error);
    if (status != HARPE_OK) return status;
    if (most > 0 && *count > most) *count = 0;
    listed_record *records = harpe_calloc(*count, sizeof *records);
    for (size_t i = 0; records && i < *count; i++) {
        harpe_saved_settings_record record = {.noted_ns = 0};
        memcpy(records[i].name, names[i], sizeof names[i]);
        (void)read_record(directory, names[i], &record, NULL);
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
    read_boot(boot);
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
    record->state.yields = options->yields;
    snprintf(record->state.uuid, sizeof record->state.uuid, "%s",
             harpe_gpu_info_at(gpus, gpu)->uuid);
    identify_machine(gpus, record->boot, record->cluster);
}

static bool is_same_process(const harpe_process_identity *a, const harpe_process_identity *b) {
    return a->process == b->process && a->start_ticks == b->start_ticks &&
           a->namespace == b->namespace;
}

/* Unlocks the clock that a lock that yields has locked, and removes the record of that lock. The
 * caller holds the record's lock. */
static harpe_status end_yielding(const harpe_gpu_claim *claim, harpe_gpus *gpus,
                                 const harpe_saved_settings_record *record, harpe_error *error) {
    recovery all = {.directory = claim->directory, .gpus = gpus};
    int gpu = find_gpu(gpus, record->state.uuid);
    identify_machine(gpus, all.boot, all.cluster);
    if (!is_void(&all, record) && gpu >= 0) {
        harpe_gpu_forget_clock_locks(gpus, gpu);
        harpe_status status = restore_gpu(&all, gpu, &record->state, error);
        if (status != HARPE_OK) return status;
    }
    remove_record(claim->directory, claim->name);
    return HARPE_OK;
}

/* Takes over a GPU; the caller holds the lock. Sets `*is_free` to false if the trainer of an
 * earlier record still runs. */
static harpe_status take_over(harpe_gpu_claim *claim, harpe_gpus *gpus, bool *is_free,
                              harpe_saved_settings *earlier, harpe_error *error) {
    harpe_saved_settings_record record;
    *is_free = true;
    *earlier = (harpe_saved_settings){.persistence = -1};
    harpe_status status = read_record(claim->directory, claim->name, &record, error);
    if (status == HARPE_INVALID_INPUT) remove_record(claim->directory, claim->name);
    if (status == HARPE_NOT_FOUND || status == HARPE_INVALID_INPUT) return HARPE_OK;
    if (status != HARPE_OK) return status;
    if (record.state.yields && !claim->record.state.yields)
        return end_yielding(claim, gpus, &record, error);
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
        remove_record(claim->directory, claim->name);
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

/* Returns true if another process holds the record's lock because it is just making or ending a
 * lock that yields. It does so for as long as one driver call takes. */
static bool is_yielding_now(const harpe_gpu_claim *claim, double give_up_at) {
    harpe_saved_settings_record record;
    return !claim->record.state.yields && harpe_clock_s() < give_up_at + YIELDING_S &&
           read_record(claim->directory, claim->name, &record, NULL) == HARPE_OK &&
           record.state.yields;
}

static harpe_status wait_for_lock(harpe_gpu_claim *claim, harpe_gpus *gpus, int gpu,
                                  const harpe_gpu_claim_options *options,
                                  harpe_saved_settings *earlier, harpe_error *error) {
    double give_up_at = harpe_clock_s() + options->timeout_s;
    for (;;) {
        claim->lock = lock_record(claim->directory, claim->name);
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
        bool may_give_up = harpe_clock_s() > give_up_at && !is_yielding_now(claim, give_up_at);
        if (may_give_up) return fail_claimed(gpus, gpu, options->kind, error);
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
    record.state.yields = claim->record.state.yields;
    memcpy(record.state.uuid, claim->record.state.uuid, sizeof record.state.uuid);
    record.noted_ns = harpe_clock_boot_ns();
    return write_record(claim->directory, claim->name, &record, error);
}

void harpe_gpu_claim_release(harpe_gpu_claim *claim, bool is_restored) {
    if (!claim) return;
    if (is_restored) {
        remove_record(claim->directory, claim->name);
        unlock_record(claim->directory, claim->name, claim->lock);
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
    bool is_there = read_record(directory, name, &record, NULL) == HARPE_OK;
    close(directory);
    if (!is_there) return false;
    *out = record.state;
    if (is_in_use) *is_in_use = harpe_process_is_alive(&record.trainer);
    return true;
}

/* ---- A lock that yields ---------------------------------------------------------------------- */

#define YIELDING_LOOK_NS 1000000
#define LEAVE_NS 100000000 /* longer than a change of the clock takes */

enum { YIELDING_TRIES = 20 };

static harpe_status claim_yielding(harpe_gpus *gpus, int gpu, harpe_gpu_claim **out,
                                   harpe_error *error) {
    harpe_gpu_claim_options options = {
        .kind = HARPE_SAVED_CLOCKS, .trainer = harpe_process_self(), .yields = true};
    harpe_saved_settings earlier;
    return harpe_gpu_claim_take(gpus, gpu, &options, out, &earlier, error);
}

harpe_status harpe_gpu_lock_yielding(harpe_gpus *gpus, int gpu, uint32_t mhz,
                                     const harpe_default_locks *after, harpe_error *error) {
    harpe_saved_settings saved = {.persistence = -1, .resets_clocks = true, .locks = *after};
    harpe_gpu_claim *claim = NULL;
    harpe_status status = claim_yielding(gpus, gpu, &claim, error);
    if (status == HARPE_OK) status = harpe_gpu_claim_save(claim, &saved, error);
    if (status != HARPE_OK) {
        harpe_gpu_claim_release(claim, true);
        return status == HARPE_ALREADY_EXISTS ? status : HARPE_PERMISSION_DENIED;
    }
    harpe_gpu_forget_clock_locks(gpus, gpu);
    status = harpe_gpu_lock_graphics_clocks(gpus, gpu, mhz, mhz, error);
    saved.locks_graphics = true;
    if (status == HARPE_OK) (void)harpe_gpu_claim_save(claim, &saved, NULL);
    harpe_gpu_claim_release(claim, harpe_gpu_refused(status));
    return status;
}

bool harpe_gpu_is_yielding(const harpe_gpus *gpus, int gpu) {
    harpe_saved_settings saved;
    return harpe_saved_settings_find(gpus, gpu, HARPE_SAVED_CLOCKS, &saved, NULL) && saved.yields &&
           saved.trainer == harpe_process_self();
}

/* Waits until the GPU has another clock than `mhz`. Returns false if the clock is still `mhz`. */
static bool has_left_clock(harpe_gpus *gpus, int gpu, uint32_t mhz) {
    int64_t end_ns = harpe_clock_ns() + LEAVE_NS;
    for (;;) {
        uint32_t now_mhz = 0;
        bool is_left =
            harpe_gpu_current_clocks(gpus, gpu, &now_mhz, NULL, NULL) != HARPE_OK || now_mhz != mhz;
        if (is_left || harpe_clock_ns() >= end_ns) return is_left;
        harpe_sleep_ns(YIELDING_LOOK_NS);
    }
}

harpe_status harpe_gpu_unlock_yielding(harpe_gpus *gpus, int gpu, uint32_t mhz,
                                       const harpe_default_locks *after, harpe_error *error) {
    harpe_gpu_claim *claim = NULL;
    harpe_status status = claim_yielding(gpus, gpu, &claim, error);
    for (int i = 1; status == HARPE_ALREADY_EXISTS && i < YIELDING_TRIES; i++) {
        if (!harpe_gpu_is_yielding(gpus, gpu)) return HARPE_OK;
        harpe_sleep_ns(YIELDING_LOOK_NS);
        status = claim_yielding(gpus, gpu, &claim, error);
    }
    if (status != HARPE_OK) return status;
    bool is_left = false;
    for (int tries = 0; tries < TRIES && status == HARPE_OK && !is_left; tries++) {
        harpe_gpu_forget_clock_locks(gpus, gpu);
        status = harpe_gpu_restore_graphics_clocks(gpus, gpu, after, error);
        is_left = status == HARPE_OK && has_left_clock(gpus, gpu, mhz);
    }
    harpe_gpu_claim_release(claim, status == HARPE_OK);
    return status;
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
