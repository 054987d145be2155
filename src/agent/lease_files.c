/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes the files of leases: "<uuid>.<control>.lease". Each contains one JSON object. A
 * new agent reads them to continue the leases of an agent that was killed. */
#include "agent/agent_internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"

#define SUFFIX ".lease"

enum { LARGEST_FILE = 8192 };

static void make_name(const char *uuid, harpe_saved_settings_kind control,
                      char name[HARPE_SAVED_NAME_SIZE + 8]) {
    char base[HARPE_SAVED_NAME_SIZE];
    harpe_saved_settings_name(uuid, control, base);
    (void)snprintf(name, HARPE_SAVED_NAME_SIZE + 8, "%s" SUFFIX, base);
}

/* ---- Writing --------------------------------------------------------------------------------- */

static json_t *show_process(const harpe_process_identity *process) {
    return json_pack("{s:I,s:I,s:I}", "process", (json_int_t)process->process, "start_ticks",
                     (json_int_t)process->start_ticks, "namespace", (json_int_t)process->namespace);
}

static char *print_record(const harpe_lease_record *record) {
    json_t *json =
        json_pack("{s:I,s:s,s:s,s:I,s:o,s:o,s:I,s:s,s:s}", "lease", (json_int_t)record->id, "gpu",
                  record->uuid, "control", harpe_saved_settings_kind_name(record->control),
                  "since_s", (json_int_t)record->since_s, "holder", show_process(&record->holder),
                  "helper", show_process(&record->helper), "uid", (json_int_t)record->user,
                  "command", record->command, "job", record->job);
    char *text = json ? json_dumps(json, JSON_INDENT(1)) : NULL;
    json_decref(json);
    return text;
}

harpe_status harpe_lease_files_write(int directory, const harpe_lease_record *record,
                                     harpe_error *error) {
    char name[HARPE_SAVED_NAME_SIZE + 8];
    char *text = print_record(record);
    if (!text) return harpe_fail_memory(error);
    make_name(record->uuid, record->control, name);
    int failure = harpe_file_replace_at(directory, name, text, strlen(text));
    free(text);
    return failure ? harpe_fail_errno(error, failure, "writing the lease's file '%s'", name)
                   : HARPE_OK;
}

void harpe_lease_files_remove(int directory, const char *uuid, harpe_saved_settings_kind control) {
    char name[HARPE_SAVED_NAME_SIZE + 8];
    make_name(uuid, control, name);
    (void)unlinkat(directory, name, 0);
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* `lowest` is the lowest valid process number. */
static bool read_process(json_t *json, json_int_t lowest, harpe_process_identity *out) {
    json_int_t process;
    json_int_t start_ticks;
    json_int_t namespace;
    if (json_unpack(json, "{s:I,s:I,s:I}", "process", &process, "start_ticks", &start_ticks,
                    "namespace", &namespace) != 0 ||
        process < lowest || process > INT32_MAX)
        return false;
    *out = (harpe_process_identity){process, (uint64_t)start_ticks, (uint64_t) namespace};
    return true;
}

static bool copy(const char *text, char *out, size_t size) {
    size_t length = strlen(text);
    if (length >= size) return false;
    memcpy(out, text, length + 1);
    return true;
}

bool harpe_lease_files_parse(const char *text, size_t length, harpe_lease_record *out) {
    json_t *json = json_loadb(text, length, 0, NULL);
    json_t *holder;
    json_t *helper;
    json_int_t id;
    json_int_t since_s;
    json_int_t user;
    const char *uuid;
    const char *control;
    const char *command;
    const char *job;
    harpe_lease_record record = {.id = 0};
    bool is_good =
        json_unpack(json, "{s:I,s:s,s:s,s:I,s:o,s:o,s:I,s:s,s:s}", "lease", &id, "gpu", &uuid,
                    "control", &control, "since_s", &since_s, "holder", &holder, "helper", &helper,
                    "uid", &user, "command", &command, "job", &job) == 0 &&
        id > 0 && user >= 0 && user < UINT32_MAX && since_s >= 0 &&
        harpe_saved_settings_kind_find(control, &record.control) &&
        read_process(holder, 1, &record.holder) && read_process(helper, 0, &record.helper) &&
        copy(uuid, record.uuid, sizeof record.uuid) &&
        copy(command, record.command, sizeof record.command) &&
        copy(job, record.job, sizeof record.job);
    if (is_good) {
        record.id = (uint64_t)id;
        record.since_s = since_s;
        record.user = (uid_t)user;
        *out = record;
    }
    json_decref(json);
    return is_good;
}

static bool read_record(int directory, const char *name, harpe_lease_record *out) {
    char text[LARGEST_FILE];
    int file = openat(directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0) return false;
    ssize_t got = read(file, text, sizeof text);
    close(file);
    return got > 0 && harpe_lease_files_parse(text, (size_t)got, out);
}

void harpe_lease_files_read(int directory,
                            void (*each)(void *user, const harpe_lease_record *record),
                            void *user) {
    int own = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = own >= 0 ? fdopendir(own) : NULL;
    if (!entries) {
        if (own >= 0) close(own);
        return;
    }
    for (struct dirent *entry; (entry = readdir(entries));) {
        size_t length = strlen(entry->d_name);
        harpe_lease_record record;
        if (length < sizeof SUFFIX || strcmp(entry->d_name + length - strlen(SUFFIX), SUFFIX) != 0)
            continue;
        if (read_record(directory, entry->d_name, &record))
            each(user, &record);
        else
            (void)unlinkat(directory, entry->d_name, 0);
    }
    closedir(entries);
}
