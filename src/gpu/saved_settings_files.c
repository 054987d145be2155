/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes the files of saved_settings.h: a directory that belongs to one user, a lock for
 * each GPU and kind, and a record as lines of "key value". It does not use drivers. */
#include "gpu/saved_settings_files.h"

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
#include <unistd.h>

#include "base/array.h"
#include "base/error.h"
#include "base/file.h"
#include "base/file_internal.h"
#include "base/number.h"
#include "base/process.h"
#include "base/text.h"
#include "base/wait.h"

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

int harpe_saved_settings_lock(int directory, const char *name) {
    char file[HARPE_SAVED_NAME_SIZE + 8];
    suffixed(name, LOCK_SUFFIX, file);
    return harpe_file_lock_at(directory, file, 0);
}

void harpe_saved_settings_unlock(int directory, const char *name, int lock) {
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

harpe_status harpe_saved_settings_read(int directory, const char *name,
                                       harpe_saved_settings_record *out, harpe_error *error) {
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
    print_locks(text, &state->locks);
    if (record->cluster[0]) harpe_text_printf(text, "cluster %s\n", record->cluster);
    if (state->zeusd.socket[0]) harpe_text_printf(text, "zeusd %s\n", state->zeusd.socket);
    if (state->zeusd.host_port[0])
        harpe_text_printf(text, "zeusd_host_port %s\n", state->zeusd.host_port);
}

harpe_status harpe_saved_settings_write(int directory, const char *name,
                                        const harpe_saved_settings_record *record,
                                        harpe_error *error) {
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

void harpe_saved_settings_remove(int directory, const char *name) {
    (void)unlinkat(directory, name, 0);
}

/* ---- Listing --------------------------------------------------------------------------------- */

static bool is_record_name(const char *name) {
    const char *dot = strrchr(name, '.');
    harpe_saved_settings_kind kind;
    return name[0] != '.' && strlen(name) < HARPE_SAVED_NAME_SIZE && dot &&
           read_kind(dot + 1, &kind);
}

harpe_status harpe_saved_settings_list(int directory, char (**out)[HARPE_SAVED_NAME_SIZE],
                                       size_t *count, harpe_error *error) {
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

void harpe_saved_settings_read_boot(char boot[64]) {
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
