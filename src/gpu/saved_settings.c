/* SPDX-License-Identifier: Apache-2.0 */
/* Implements saved_settings.h: a directory of files that belongs to one user, with a lock for each
 * GPU and kind and a record as lines of "key value"; restoring GPUs; holdings, and the recovery of
 * GPUs that dead jobs have left changed. */
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

#define HEADING "harpe-found "
#define VERSION "1\n"
#define LOCK_SUFFIX ".lock"
#define ROOT_DIRECTORY "/run/harpe"

static const char *const kind_names[HARPE_SAVED_KINDS] = {"clocks", "power"};

const char *harpe_saved_settings_kind_name(harpe_saved_settings_kind kind) {
    return kind_names[kind];
}

bool harpe_saved_settings_kind_find(const char *name, harpe_saved_settings_kind *out) {
    for (int kind = 0; name && kind < HARPE_SAVED_KINDS; kind++) {
        if (strcmp(name, kind_names[kind]) != 0) continue;
        *out = (harpe_saved_settings_kind)kind;
        return true;
    }
    return false;
}

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

typedef enum field_type { TEXT, KIND, FLAG, MODE, COUNT, NUMBER } field_type;

#define FIELD(name, type, member, is_optional) \
    { \
        name, type, offsetof(harpe_saved_settings_record, member), \
            sizeof(((harpe_saved_settings_record *)0)->member), is_optional \
    }

/* The lines of a record. A line that is optional is written only if its value is not 0 or "". Older
 * versions ignore the lines of locks, and reset the clocks. */
static const struct field {
    const char *key;
    field_type type;
    size_t offset, size;
    bool is_optional;
} fields[] = {
    FIELD("kind", KIND, state.kind, false),
    FIELD("gpu", TEXT, state.uuid, false),
    FIELD("boot", TEXT, boot, false),
    FIELD("trainer", NUMBER, trainer.process, false),
    FIELD("trainer_start", NUMBER, trainer.start_ticks, false),
    FIELD("trainer_namespace", NUMBER, trainer.namespace, false),
    FIELD("power_limit_mw", COUNT, state.power_limit_mw, false),
    FIELD("persistence", MODE, state.persistence, false),
    FIELD("resets_clocks", FLAG, state.resets_clocks, false),
    FIELD("locks_graphics", FLAG, state.locks_graphics, false),
    FIELD("locks_memory", FLAG, state.locks_memory, false),
    FIELD("yields", FLAG, state.yields, true),
    FIELD("graphics_minimum_mhz", COUNT, state.locks.graphics_minimum_mhz, true),
    FIELD("graphics_maximum_mhz", COUNT, state.locks.graphics_maximum_mhz, true),
    FIELD("memory_minimum_mhz", COUNT, state.locks.memory_minimum_mhz, true),
    FIELD("memory_maximum_mhz", COUNT, state.locks.memory_maximum_mhz, true),
    FIELD("cluster", TEXT, cluster, true),
    FIELD("zeusd", TEXT, state.zeusd.socket, true),
    FIELD("zeusd_host_port", TEXT, state.zeusd.host_port, true),
    FIELD("noted_ns", NUMBER, noted_ns, false), /* the last line: a shorter record lacks it */
};

enum { FIELDS = sizeof fields / sizeof fields[0] };

static bool read_value(const struct field *field, const char *value, void *out) {
    int64_t number = 0;
    if (field->type == TEXT) return (size_t)snprintf(out, field->size, "%s", value) < field->size;
    if (field->type == KIND) return harpe_saved_settings_kind_find(value, out);
    if (!harpe_parse_int(value, strlen(value), &number)) return false;
    switch (field->type) {
    case FLAG: *(bool *)out = number == 1; return number == 0 || number == 1;
    case MODE: *(int32_t *)out = (int32_t)number; return number >= -1 && number <= 1;
    case COUNT: *(uint32_t *)out = (uint32_t)number; return number >= 0 && number <= UINT32_MAX;
    default: memcpy(out, &number, sizeof number); return number >= 0;
    }
}

/* Reads one line, and adds its field to the set `*read`. Ignores keys that a later version has
 * added. */
static bool read_line(harpe_saved_settings_record *record, char *line, uint32_t *read) {
    const char *key = strsep(&line, " ");
    for (int i = 0; i < FIELDS; i++) {
        if (strcmp(key, fields[i].key) != 0) continue;
        *read |= UINT32_C(1) << i;
        return read_value(&fields[i], line ? line : "", (char *)record + fields[i].offset);
    }
    return true;
}

static bool has_all_lines(uint32_t read) {
    for (int i = 0; i < FIELDS; i++)
        if (!fields[i].is_optional && !(read >> i & 1)) return false;
    return true;
}

static harpe_status parse(char *text, const char *name, harpe_saved_settings_record *out,
                          harpe_error *error) {
    harpe_saved_settings_record record = {.state.persistence = -1};
    uint32_t read = 0;
    const char *version = text + strlen(HEADING);
    bool has_heading = strncmp(text, HEADING, strlen(HEADING)) == 0;
    bool is_well = has_heading && strncmp(version, VERSION, strlen(VERSION)) == 0;
    char *rest = is_well ? text + strlen(HEADING VERSION) : NULL;
    if (has_heading && strtol(version, NULL, 10) > strtol(VERSION, NULL, 10))
        return harpe_fail(error, HARPE_NOT_SUPPORTED,
                          "%.120s: run 'harpe gpus --restore' with the later version that has "
                          "written it",
                          name);
    for (char *line; is_well && (line = strsep(&rest, "\n")) && *line;)
        is_well = read_line(&record, line, &read);
    if (!is_well || !has_all_lines(read))
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%.120s: this record of saved settings is damaged, so they cannot be "
                          "restored: look at the clocks and the power limit of the GPU",
                          name);
    record.state.trainer = record.trainer.process;
    *out = record;
    return HARPE_OK;
}

/* Reads a record. HARPE_NOT_FOUND: there is no record. HARPE_INVALID_INPUT: the file is not a
 * record of Harpe. HARPE_NOT_SUPPORTED: a later version has written it, so it stays. */
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

static void print_field(harpe_text *text, const struct field *field, const void *value) {
    int64_t number = 0;
    const char *words = field->type == TEXT ? value : NULL;
    switch (field->type) {
    case TEXT: break;
    case KIND: words = kind_names[*(const harpe_saved_settings_kind *)value]; break;
    case FLAG: number = *(const bool *)value; break;
    case MODE: number = *(const int32_t *)value; break;
    case COUNT: number = *(const uint32_t *)value; break;
    case NUMBER: memcpy(&number, value, sizeof number); break;
    }
    if (field->is_optional && (words ? !*words : number == 0)) return;
    if (words)
        harpe_text_printf(text, "%s %s\n", field->key, words);
    else
        harpe_text_printf(text, "%s %" PRId64 "\n", field->key, number);
}

/* Writes the record completely or not at all. */
static harpe_status write_record(int directory, const char *name,
                                 const harpe_saved_settings_record *record, harpe_error *error) {
    harpe_text text = {0};
    harpe_text_printf(&text, HEADING VERSION);
    for (int i = 0; i < FIELDS; i++)
        print_field(&text, &fields[i], (const char *)record + fields[i].offset);
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

typedef struct listed_record {
    char name[HARPE_SAVED_NAME_SIZE];
    int64_t noted_ns;
} listed_record;

static bool is_record_name(const char *name) {
    const char *dot = strrchr(name, '.');
    harpe_saved_settings_kind kind;
    return name[0] != '.' && strlen(name) < HARPE_SAVED_NAME_SIZE && dot &&
           harpe_saved_settings_kind_find(dot + 1, &kind);
}

static int newest_first(const void *a, const void *b) {
    int64_t one = ((const listed_record *)a)->noted_ns;
    int64_t other = ((const listed_record *)b)->noted_ns;
    return (one < other) - (one > other);
}

/* Lists the records. The oldest record of a GPU has its original settings, so it is restored last.
 * The caller frees the list with free(), also after a failure. */
static harpe_status list_records(int directory, listed_record **out, size_t *count,
                                 harpe_error *error) {
    int own = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = own >= 0 ? fdopendir(own) : NULL;
    harpe_status status = HARPE_OK;
    if (!entries) {
        status = harpe_fail_errno(error, errno, "saved settings of GPUs");
        if (own >= 0) close(own);
        return status;
    }
    for (struct dirent *entry; *count < RECORDS_MAX && (entry = readdir(entries));) {
        harpe_saved_settings_record record = {.noted_ns = 0};
        if (!is_record_name(entry->d_name)) continue;
        listed_record *larger = harpe_realloc(*out, *count + 1, sizeof **out);
        if (!larger) {
            status = harpe_fail_memory(error);
            break;
        }
        *out = larger;
        (void)read_record(directory, entry->d_name, &record, NULL);
        listed_record *listed = &larger[(*count)++];
        *listed = (listed_record){.noted_ns = record.noted_ns};
        memcpy(listed->name, entry->d_name, strlen(entry->d_name));
    }
    closedir(entries);
    if (*count > 0) qsort(*out, *count, sizeof **out, newest_first);
    return status;
}

/* ---- Processes ------------------------------------------------------------------------------- */

static void read_boot(char boot[64]) {
    int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t got = file >= 0 ? read(file, boot, 63) : 0;
    if (file >= 0) close(file);
    boot[got > 0 ? got : 0] = '\0';
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

/* ---- Restoring ------------------------------------------------------------------------------- */

#define CHECK_NS 20000000 /* between two attempts, and between setting a value and checking it */

enum {
    CLOCKS = 1 << HARPE_SET_GRAPHICS_CLOCKS | 1 << HARPE_SET_MEMORY_CLOCKS,
    TRIES = 3,         /* at least */
    CHECKS_PASSED = 3, /* checks in a row that must succeed */
};

bool harpe_saved_settings_value(const harpe_saved_settings *state, harpe_setting setting,
                                harpe_setting_value *out) {
    const harpe_default_locks *locks = &state->locks;
    switch (setting) {
    case HARPE_SET_GRAPHICS_CLOCKS:
        *out = (harpe_setting_value){locks->graphics_minimum_mhz, locks->graphics_maximum_mhz};
        return state->resets_clocks;
    case HARPE_SET_MEMORY_CLOCKS:
        *out = (harpe_setting_value){locks->memory_minimum_mhz, locks->memory_maximum_mhz};
        return state->resets_clocks;
    case HARPE_SET_POWER_LIMIT:
        *out = (harpe_setting_value){.low = state->power_limit_mw};
        return state->power_limit_mw > 0;
    default:
        *out = (harpe_setting_value){.low = state->persistence == 1};
        return state->persistence >= 0;
    }
}

static bool *locks_of(harpe_saved_settings *state, harpe_setting clock) {
    return clock == HARPE_SET_MEMORY_CLOCKS ? &state->locks_memory : &state->locks_graphics;
}

static harpe_status restore_one(const harpe_restoration *how, harpe_setting setting,
                                harpe_setting_value value, harpe_error *error) {
    harpe_status status = how->set ? how->set(how->user, setting, value, error)
                                   : harpe_gpu_set(how->gpus, how->gpu, setting, value, error);
    bool is_clock = CLOCKS >> setting & 1;
    bool may_lack = is_clock && !*locks_of(how->state, setting);
    return status == HARPE_NOT_SUPPORTED && may_lack ? HARPE_OK : status;
}

/* Returns true if the setting can be read and has this value. */
static bool has_value(const harpe_restoration *how, harpe_setting setting,
                      harpe_setting_value value) {
    harpe_setting_value now;
    return harpe_gpu_read_setting(how->gpus, how->gpu, setting, &now, NULL) == HARPE_OK &&
           now.low == value.low;
}

/* Tries once to restore the settings of the set `left`. Removes those that need no check from the
 * set. Sets `*was_set` to true if another setting differed. Returns the first failure. */
static harpe_status restore_once(const harpe_restoration *how, unsigned *left, bool *was_set,
                                 harpe_error *error) {
    harpe_status first = HARPE_OK;
    for (int i = 0; i < HARPE_SETTINGS; i++) {
        harpe_setting setting = (harpe_setting)i;
        harpe_setting_value value;
        harpe_error told;
        unsigned bit = 1U << i;
        if (!harpe_saved_settings_value(how->state, setting, &value)) *left &= ~bit;
        if (!(*left & bit)) continue;
        if (!(CLOCKS & bit) && !has_value(how, setting, value)) *was_set = true;
        harpe_status status = restore_one(how, setting, value, &told);
        if (status == HARPE_OK) *left &= ~(CLOCKS & bit);
        if (status == HARPE_OK || first != HARPE_OK) continue;
        first = status;
        if (error) *error = told;
    }
    return first;
}

harpe_status harpe_restore(const harpe_restoration *how, harpe_error *error) {
    harpe_patience patience = harpe_patience_for(how->try_for_s);
    unsigned left = how->which;
    int passed = 0;
    int late_sets = 0;
    if (!how->set) harpe_gpu_forget_clock_locks(how->gpus, how->gpu);
    for (int tries = 1;; tries++) {
        bool was_set = how->revise && !how->revise(how->user, how->state);
        /* Another process is about to set the same, and checks it: two would not end. */
        if (was_set && !harpe_patience_is_over(&patience)) {
            passed = 0;
            harpe_sleep_ns(CHECK_NS);
            continue;
        }
        harpe_status status = restore_once(how, &left, &was_set, error);
        bool is_late = harpe_patience_is_over(&patience);
        if (status == HARPE_GPU_LOST || (status != HARPE_OK && is_late && tries >= TRIES))
            return status;
        passed = status == HARPE_OK && !was_set ? passed + 1 : 0;
        if (passed == CHECKS_PASSED || (passed > 0 && (is_late || left == 0))) return HARPE_OK;
        if (status == HARPE_OK && is_late && late_sets++ > 0)
            return harpe_fail(
                error, HARPE_DRIVER_ERROR,
                "GPU %d: its power limit or persistence mode is not restored, because "
                "another program keeps changing it",
                harpe_gpu_info_at(how->gpus, how->gpu)->driver_index);
        harpe_sleep_ns(CHECK_NS);
    }
}

/* ---- Holdings and recovery ------------------------------------------------------------------- */

/* A GPU is not touched while its holding is held or while its trainer runs; docs/limits.md
 * describes the one exception. */

#define LOOK_NS 10000000
#define LOCK_TIMEOUT_S 5.0
#define YIELDING_S 1.0
#define TRY_FOR_S 0.05 /* an attempt to restore a GPU; its caller repeats it later */

/* The records of one machine, and a handle that reaches all of its GPUs. */
typedef struct recovery {
    harpe_saved_settings_recovery how;
    int directory;
    harpe_gpus *gpus;
    int64_t over; /* only the job of this trainer is over, although it may run; 0: dead jobs are */
    harpe_saved_settings_outcome outcome; /* of the last record that was processed */
    char boot[64];
    char cluster[HARPE_SAVED_CLUSTER_SIZE];
} recovery;

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
    bool is_left = all->over > 0 ? record->trainer.process != all->over
                                 : harpe_process_is_alive(&record->trainer);
    if (is_left) return HARPE_SAVED_IN_USE;
    if (is_void(all, record)) return HARPE_SAVED_VOID;
    if (is_elsewhere(all, record, gpu)) return HARPE_SAVED_ELSEWHERE;
    return HARPE_SAVED_RESTORED;
}

static harpe_status restore_record(const recovery *all, int gpu, harpe_saved_settings *state,
                                   harpe_error *error) {
    harpe_restoration how = {.gpus = all->gpus,
                             .gpu = gpu,
                             .state = state,
                             .which = HARPE_ALL_SETTINGS,
                             .try_for_s = TRY_FOR_S};
    return harpe_zeusd_is_given(&state->zeusd) ? all->how.through_zeusd(&how, error)
                                               : harpe_restore(&how, error);
}

/* Deals with a record whose job is over. Returns what happened. Without the lock (-1), another
 * process has kept it for too long. */
static harpe_saved_settings_outcome settle(const recovery *all, const char *name, int lock,
                                           harpe_saved_settings_record *record, int gpu,
                                           harpe_saved_settings_outcome outcome,
                                           harpe_error *error) {
    if (lock < 0) {
        error->status =
            harpe_fail(error, HARPE_ALREADY_EXISTS,
                       "GPU %s is not restored: another process has kept the record %s locked for "
                       "more than %.0f s; try again, or end that process",
                       record->state.uuid, name, LOCK_TIMEOUT_S);
        return HARPE_SAVED_FAILED;
    }
    if (outcome == HARPE_SAVED_RESTORED &&
        restore_record(all, gpu, &record->state, error) != HARPE_OK)
        return HARPE_SAVED_FAILED;
    remove_record(all->directory, name);
    return outcome;
}

/* Finds the kind and the UUID of a record by its name. */
static void name_of_record(const char *name, harpe_saved_settings *out) {
    const char *dot = strrchr(name, '.');
    (void)harpe_saved_settings_kind_find(dot + 1, &out->kind);
    (void)snprintf(out->uuid, sizeof out->uuid, "%.*s", (int)(dot - name), name);
}

/* Looks at a record, and deals with it if its job is over. `lock` is -1 if another process holds
 * the lock. `*must_wait` then becomes true if that process may release the lock in time, because it
 * only looks at the record, restores the GPU, or is being killed. */
static harpe_status look_at_record(recovery *all, const char *name, int lock, bool may_wait,
                                   bool *must_wait, harpe_error *error) {
    harpe_saved_settings_record record;
    harpe_error told = {.status = HARPE_OK};
    harpe_status status = read_record(all->directory, name, &record, &told);
    if (status == HARPE_NOT_FOUND || (status != HARPE_OK && lock < 0)) return HARPE_OK;
    if (status == HARPE_NOT_SUPPORTED && all->over > 0) {
        all->outcome = HARPE_SAVED_IN_USE; /* it is not of this lease */
        return HARPE_OK;
    }
    if (status == HARPE_INVALID_INPUT) {
        record = (harpe_saved_settings_record){.state.persistence = -1};
        name_of_record(name, &record.state);
        if (!all->how.is_dry) remove_record(all->directory, name);
    } else if (status != HARPE_OK) {
        return harpe_fail(error, status, "%s", told.message);
    }
    int gpu = harpe_gpus_find_uuid(all->gpus, record.state.uuid);
    told.status = status;
    harpe_saved_settings_outcome outcome =
        status == HARPE_OK ? assess(all, &record, gpu) : HARPE_SAVED_FAILED;
    bool is_due = outcome == HARPE_SAVED_VOID || outcome == HARPE_SAVED_RESTORED;
    if (is_due && !all->how.is_dry) {
        *must_wait = lock < 0 && may_wait;
        /* The next call may remove a locked record that is void. */
        if (*must_wait || (lock < 0 && outcome == HARPE_SAVED_VOID)) return HARPE_OK;
        outcome = settle(all, name, lock, &record, gpu, outcome, &told);
    }
    all->outcome = outcome;
    if (all->how.report)
        all->how.report(all->how.user, &record.state,
                        gpu >= 0 ? harpe_gpu_info_at(all->gpus, gpu) : NULL, outcome, &told);
    if (outcome != HARPE_SAVED_FAILED) return HARPE_OK;
    if (error) *error = told;
    return told.status;
}

/* Processes a record. Waits for its lock up to LOCK_TIMEOUT_S. */
static harpe_status settle_one(recovery *all, const char *name, harpe_error *error) {
    double give_up_at = harpe_clock_s() + LOCK_TIMEOUT_S;
    for (bool must_wait = true;; harpe_sleep_ns(LOOK_NS)) {
        int lock = lock_record(all->directory, name);
        if (lock < 0 && errno != EWOULDBLOCK)
            return harpe_fail_errno(error, errno, "record %.120s", name);
        must_wait = false;
        harpe_status status =
            look_at_record(all, name, lock, harpe_clock_s() <= give_up_at, &must_wait, error);
        if (lock >= 0) unlock_record(all->directory, name, lock);
        if (!must_wait) return status;
    }
}

/* ---- Recovery -------------------------------------------------------------------------------- */

static void identify_machine(const harpe_gpus *gpus, char boot[64],
                             char cluster[HARPE_SAVED_CLUSTER_SIZE]) {
    read_boot(boot);
    if (!harpe_gpus_emulated_identity(gpus, cluster, HARPE_SAVED_CLUSTER_SIZE)) cluster[0] = '\0';
}

/* Opens a separate handle for the recovery, so that the caller's handle does not later undo its
 * changes. */
static harpe_status open_all(recovery *all, const harpe_gpus *like, harpe_error *error) {
    const char *library = harpe_gpus_library_path(like);
    harpe_gpus_options options = {.library_path = *library ? library : NULL,
                                  .visible_devices = "all"};
    identify_machine(like, all->boot, all->cluster);
    return harpe_gpus_open(&options, &all->gpus, error);
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
    status = list_records(all.directory, &records, &count, error);
    if (how->most_records > 0 && count > how->most_records) count = 0;
    if (status == HARPE_OK && count > 0) status = open_all(&all, gpus, error);
    for (size_t i = 0; all.gpus && i < count; i++) {
        harpe_error told;
        harpe_status settled = settle_one(&all, records[i].name, &told);
        if (settled == HARPE_OK || status != HARPE_OK) continue;
        status = settled;
        if (error) *error = told;
    }
    harpe_gpus_close(all.gpus);
    free(records);
    close(all.directory);
    return status;
}

harpe_status harpe_saved_settings_end(const harpe_gpus *gpus, int gpu,
                                      harpe_saved_settings_kind kind, int64_t trainer,
                                      harpe_saved_settings_outcome *outcome, harpe_error *error) {
    recovery all = {.over = trainer, .outcome = HARPE_SAVED_VOID};
    const char *uuid = harpe_gpu_info_at(gpus, gpu)->uuid;
    char name[HARPE_SAVED_NAME_SIZE];
    harpe_status status = harpe_saved_settings_open_directory(harpe_gpus_are_emulated(gpus), false,
                                                              &all.directory, error);
    *outcome = HARPE_SAVED_VOID;
    if (status == HARPE_NOT_FOUND) return HARPE_OK;
    if (status != HARPE_OK) return status;
    harpe_saved_settings_name(uuid, kind, name);
    if (faccessat(all.directory, name, F_OK, 0) == 0) { /* usually there is none */
        status = open_all(&all, gpus, error);
        if (status == HARPE_OK) status = settle_one(&all, name, error);
        harpe_gpus_close(all.gpus);
    }
    close(all.directory);
    *outcome = all.outcome;
    if (all.outcome == HARPE_SAVED_ELSEWHERE)
        return harpe_fail(error, HARPE_GPU_LOST,
                          "GPU %s is lost: it is restored when it has been reset", uuid);
    return status;
}

/* ---- Holdings -------------------------------------------------------------------------------- */

static void fill_record(harpe_saved_settings_record *record, const harpe_gpus *gpus, int gpu,
                        const harpe_holding_options *options) {
    *record = (harpe_saved_settings_record){.state = {.kind = options->kind,
                                                      .persistence = -1,
                                                      .trainer = options->trainer,
                                                      .yields = options->yields},
                                            .trainer = harpe_process_identify(options->trainer)};
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
static harpe_status end_yielding(const harpe_holding *holding, harpe_saved_settings_record *record,
                                 harpe_error *error) {
    recovery all = {.gpus = holding->gpus};
    int gpu = harpe_gpus_find_uuid(holding->gpus, record->state.uuid);
    identify_machine(holding->gpus, all.boot, all.cluster);
    if (!is_void(&all, record) && gpu >= 0) {
        harpe_status status = restore_record(&all, gpu, &record->state, error);
        if (status != HARPE_OK) return status;
    }
    remove_record(holding->directory, holding->name);
    return HARPE_OK;
}

/* Takes over a GPU; the caller holds the lock. Sets `*is_free` to false if the trainer of an
 * earlier record still runs. */
static harpe_status take_over(harpe_holding *holding, bool *is_free, harpe_error *error) {
    harpe_saved_settings_record record;
    const harpe_saved_settings_record *own = &holding->record;
    *is_free = true;
    harpe_status status = read_record(holding->directory, holding->name, &record, error);
    if (status == HARPE_INVALID_INPUT) remove_record(holding->directory, holding->name);
    if (status == HARPE_NOT_FOUND || status == HARPE_INVALID_INPUT) return HARPE_OK;
    if (status != HARPE_OK) return status;
    if (record.state.yields && !own->state.yields) return end_yielding(holding, &record, error);
    if (is_same_process(&record.trainer, &own->trainer) && strcmp(record.boot, own->boot) == 0 &&
        strcmp(record.cluster, own->cluster) == 0) {
        holding->record = record;
        holding->is_continued = true;
        holding->changed = HARPE_ALL_SETTINGS;
        return HARPE_OK;
    }
    *is_free = !harpe_process_is_alive(&record.trainer);
    if (!*is_free) return HARPE_OK;
    recovery all = {.directory = holding->directory, .outcome = HARPE_SAVED_FAILED};
    bool must_wait = false;
    if (open_all(&all, holding->gpus, NULL) == HARPE_OK)
        (void)look_at_record(&all, holding->name, holding->lock, false, &must_wait, NULL);
    harpe_gpus_close(all.gpus);
    if (all.outcome == HARPE_SAVED_RESTORED || all.outcome == HARPE_SAVED_VOID) return HARPE_OK;
    return harpe_fail(error, HARPE_ALREADY_EXISTS,
                      "a killed job has left GPU %s changed, and it is not restored yet: run "
                      "'harpe gpus --restore'",
                      record.state.uuid);
}

static harpe_status fail_held(const harpe_holding *holding, harpe_error *error) {
    return harpe_fail(error, HARPE_ALREADY_EXISTS,
                      "GPU %d has another %s: end the training that it belongs to, or use "
                      "another GPU",
                      harpe_gpu_info_at(holding->gpus, holding->gpu)->driver_index,
                      holding->record.state.kind == HARPE_SAVED_CLOCKS ? "frequency controller"
                                                                       : "power limit optimizer");
}

/* Returns true if another process holds the record's lock because it is just making or ending a
 * lock that yields. It does so for as long as one driver call takes. */
static bool is_yielding_now(const harpe_holding *holding, double give_up_at) {
    harpe_saved_settings_record record;
    return !holding->record.state.yields && harpe_clock_s() < give_up_at + YIELDING_S &&
           read_record(holding->directory, holding->name, &record, NULL) == HARPE_OK &&
           record.state.yields;
}

static harpe_status wait_for_lock(harpe_holding *holding, const harpe_holding_options *options,
                                  harpe_error *error) {
    double give_up_at = harpe_clock_s() + options->timeout_s;
    for (;;) {
        holding->lock = lock_record(holding->directory, holding->name);
        if (holding->lock < 0 && errno != EWOULDBLOCK) {
            return harpe_fail_errno(error, errno, "claiming GPU %d",
                                    harpe_gpu_info_at(holding->gpus, holding->gpu)->driver_index);
        }
        if (holding->lock >= 0) {
            bool is_free = false;
            harpe_status status = take_over(holding, &is_free, error);
            if (status == HARPE_OK && is_free) return HARPE_OK;
            harpe_process_close(holding->lock);
            holding->lock = -1;
            if (status != HARPE_OK) return status;
        }
        bool may_give_up = harpe_clock_s() > give_up_at && !is_yielding_now(holding, give_up_at);
        if (may_give_up) return fail_held(holding, error);
        if (options->gives_up && options->gives_up(options->user))
            return harpe_fail(error, HARPE_INTERRUPTED, "the training process has ended");
        harpe_sleep_ns(LOOK_NS);
    }
}

harpe_status harpe_holding_take(harpe_gpus *gpus, int gpu, const harpe_holding_options *options,
                                harpe_holding **out, harpe_error *error) {
    harpe_holding *holding = harpe_calloc(1, sizeof *holding);
    if (!holding) return harpe_fail_memory(error);
    *holding = (harpe_holding){.gpus = gpus,
                               .gpu = gpu,
                               .set = options->set,
                               .user = options->user,
                               .directory = -1,
                               .lock = -1};
    fill_record(&holding->record, gpus, gpu, options);
    harpe_saved_settings_name(holding->record.state.uuid, options->kind, holding->name);
    harpe_status status = harpe_saved_settings_open_directory(harpe_gpus_are_emulated(gpus), true,
                                                              &holding->directory, error);
    if (status == HARPE_OK) status = wait_for_lock(holding, options, error);
    if (status != HARPE_OK) {
        if (holding->directory >= 0) close(holding->directory);
        free(holding);
        return status;
    }
    *out = holding;
    return HARPE_OK;
}

harpe_status harpe_holding_save(harpe_holding *holding, harpe_error *error) {
    holding->record.noted_ns = harpe_clock_boot_ns();
    return write_record(holding->directory, holding->name, &holding->record, error);
}

harpe_status harpe_holding_set(harpe_holding *holding, harpe_setting setting,
                               harpe_setting_value value, harpe_error *error) {
    unsigned before = holding->changed;
    holding->changed |= 1U << setting; /* a call that fails may still take effect */
    harpe_status status = holding->set
                              ? holding->set(holding->user, setting, value, error)
                              : harpe_gpu_set(holding->gpus, holding->gpu, setting, value, error);
    if (harpe_gpu_refused(status)) holding->changed = before;
    bool is_lock = (CLOCKS >> setting & 1) && value.high > 0;
    if (status != HARPE_OK || !is_lock || *locks_of(&holding->record.state, setting)) return status;
    *locks_of(&holding->record.state, setting) = true;
    (void)harpe_holding_save(holding, NULL); /* a failure costs only this knowledge */
    return HARPE_OK;
}

harpe_status harpe_holding_restore(harpe_holding *holding, double try_for_s, harpe_error *error) {
    harpe_restoration how = {.gpus = holding->gpus,
                             .gpu = holding->gpu,
                             .state = &holding->record.state,
                             .which = holding->changed,
                             .try_for_s = try_for_s,
                             .set = holding->set,
                             .user = holding->user};
    harpe_status status = holding->changed ? harpe_restore(&how, error) : HARPE_OK;
    if (status == HARPE_OK) holding->changed = 0;
    return status;
}

void harpe_holding_release(harpe_holding *holding) {
    if (!holding) return;
    if (holding->changed) {
        harpe_process_close(holding->lock);
    } else {
        remove_record(holding->directory, holding->name);
        unlock_record(holding->directory, holding->name, holding->lock);
    }
    close(holding->directory);
    free(holding);
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

bool harpe_saved_settings_are_left(const harpe_gpus *gpus, int gpu, harpe_saved_settings_kind kind,
                                   int64_t *trainer) {
    harpe_saved_settings_record record;
    char name[HARPE_SAVED_NAME_SIZE];
    int directory = -1;
    int lock = -1;
    harpe_saved_settings_name(harpe_gpu_info_at(gpus, gpu)->uuid, kind, name);
    if (harpe_saved_settings_open_directory(harpe_gpus_are_emulated(gpus), false, &directory,
                                            NULL) != HARPE_OK)
        return false;
    if (read_record(directory, name, &record, NULL) == HARPE_OK &&
        record.trainer.namespace == own_namespace() && !harpe_process_is_alive(&record.trainer) &&
        !harpe_zeusd_is_given(&record.state.zeusd)) {
        *trainer = record.trainer.process;
        lock = lock_record(directory, name);
        if (lock >= 0) unlock_record(directory, name, lock);
    }
    close(directory);
    return lock >= 0;
}

/* ---- A lock that yields ---------------------------------------------------------------------- */

#define YIELDING_LOOK_NS 1000000
#define LEAVE_NS 100000000 /* longer than a change of the clock takes */

enum { YIELDING_TRIES = 20, UNLOCK_TRIES = 3 };

static harpe_status take_yielding(harpe_gpus *gpus, int gpu, harpe_holding **out,
                                  harpe_error *error) {
    harpe_holding_options options = {
        .kind = HARPE_SAVED_CLOCKS, .trainer = harpe_process_self(), .yields = true};
    return harpe_holding_take(gpus, gpu, &options, out, error);
}

harpe_status harpe_gpu_lock_yielding(harpe_gpus *gpus, int gpu, uint32_t mhz,
                                     const harpe_default_locks *after, harpe_error *error) {
    harpe_holding *holding = NULL;
    harpe_status status = take_yielding(gpus, gpu, &holding, error);
    if (status == HARPE_OK) {
        holding->record.state.resets_clocks = true;
        holding->record.state.locks = *after;
        status = harpe_holding_save(holding, error);
    }
    if (status != HARPE_OK) {
        harpe_holding_release(holding);
        return status == HARPE_ALREADY_EXISTS ? status : HARPE_PERMISSION_DENIED;
    }
    harpe_gpu_forget_clock_locks(gpus, gpu);
    status = harpe_holding_set(holding, HARPE_SET_GRAPHICS_CLOCKS, (harpe_setting_value){mhz, mhz},
                               error);
    harpe_holding_release(holding);
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
    harpe_holding *holding = NULL;
    harpe_setting_value lock = {after->graphics_minimum_mhz, after->graphics_maximum_mhz};
    harpe_status status = take_yielding(gpus, gpu, &holding, error);
    for (int i = 1; status == HARPE_ALREADY_EXISTS && i < YIELDING_TRIES; i++) {
        if (!harpe_gpu_is_yielding(gpus, gpu)) return HARPE_OK;
        harpe_sleep_ns(YIELDING_LOOK_NS);
        status = take_yielding(gpus, gpu, &holding, error);
    }
    if (status != HARPE_OK) return status;
    bool is_left = false;
    for (int tries = 0; tries < UNLOCK_TRIES && status == HARPE_OK && !is_left; tries++) {
        harpe_gpu_forget_clock_locks(gpus, gpu);
        status = harpe_gpu_set(gpus, gpu, HARPE_SET_GRAPHICS_CLOCKS, lock, error);
        is_left = status == HARPE_OK && has_left_clock(gpus, gpu, mhz);
    }
    if (status == HARPE_OK) holding->changed = 0;
    harpe_holding_release(holding);
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

bool harpe_saved_settings_tell(const harpe_saved_settings *state, const harpe_gpu_info *info,
                               harpe_saved_settings_outcome outcome, const harpe_error *error,
                               char *line, size_t size) {
    char what[160];
    int gpu = info ? info->driver_index : -1;
    harpe_saved_settings_describe(state, what, sizeof what);
    if (outcome == HARPE_SAVED_RESTORED)
        (void)snprintf(line, size, "GPU %d: restored what process %" PRId64 " had left changed: %s",
                       gpu, state->trainer, what);
    else if (outcome == HARPE_SAVED_FAILED)
        (void)snprintf(line, size,
                       "GPU %d: what process %" PRId64
                       " had left changed could not be restored: %s",
                       gpu, state->trainer, error->message);
    return outcome == HARPE_SAVED_RESTORED || outcome == HARPE_SAVED_FAILED;
}

void harpe_saved_settings_report_to_syslog(void *user, const harpe_saved_settings *state,
                                           const harpe_gpu_info *info,
                                           harpe_saved_settings_outcome outcome,
                                           const harpe_error *error) {
    char line[sizeof error->message + 128];
    (void)user;
    if (harpe_saved_settings_tell(state, info, outcome, error, line, sizeof line))
        syslog(LOG_USER | (outcome == HARPE_SAVED_FAILED ? LOG_ERR : LOG_NOTICE), "harpe: %s",
               line);
}
