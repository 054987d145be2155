/* SPDX-License-Identifier: Apache-2.0 */
/* The leases of the node agent: at most one for each GPU and kind of control. The agent starts a
 * helper process for each lease, outside of the job. The helper process restores the GPU when the
 * holder ends. If a helper process dies without restoring the GPU, the agent restores it. Each
 * lease has a file, so that a new agent can continue the leases of an agent that was killed. Work
 * that may take long runs on worker threads. */
#include "agent/agent_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/helper_process.h"
#include "base/log.h"
#include "base/process.h"
#include "client/control.h"
#include "gpu/saved_settings.h"
#include "power_limit/guard.h"

/* ---- Files ----------------------------------------------------------------------------------- */

/* Reads and writes the files of leases: "<uuid>.<control>.lease". Each contains one JSON object. A
 * new agent reads them to continue the leases of an agent that was killed. */

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

/* Writes the file completely or not at all. */
static harpe_status lease_files_write(int directory, const harpe_lease_record *record,
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

static void lease_files_remove(int directory, const char *uuid, harpe_saved_settings_kind control) {
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

static bool ends_with(const char *name, const char *suffix) {
    size_t length = strlen(name);
    size_t end = strlen(suffix);
    return length > end && strcmp(name + length - end, suffix) == 0;
}

/* Calls `each` for each readable file. Removes the others, and files that an agent has not finished
 * because it was killed. */
static void lease_files_read(int directory,
                             void (*each)(void *user, const harpe_lease_record *record),
                             void *user) {
    int own = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = own >= 0 ? fdopendir(own) : NULL;
    if (!entries) {
        if (own >= 0) close(own);
        return;
    }
    for (struct dirent *entry; (entry = readdir(entries));) {
        harpe_lease_record record;
        bool is_lease = ends_with(entry->d_name, SUFFIX);
        if (is_lease && read_record(directory, entry->d_name, &record))
            each(user, &record);
        else if (is_lease || ends_with(entry->d_name, SUFFIX ".new"))
            (void)unlinkat(directory, entry->d_name, 0);
    }
    closedir(entries);
}

/* ---- Leases ---------------------------------------------------------------------------------- */

#define SHORTEST_POLL_NS INT64_C(20000)
#define LONGEST_POLL_NS INT64_C(1000000000)
#define LONGEST_DWELL_NS INT64_C(1000000000000)

enum {
    TRY_AGAIN_MS = 1000,
    LOOK_MS = 2000, /* between two looks for settings that dead jobs have left */
    START_MS = 30000,
    SOON_MS = 10000, /* how long an asker waits for a lease that is about to end */
};

typedef enum entry_state {
    IS_FREE,
    IS_STARTING, /* a worker starts the helper process */
    IS_LENT,     /* the helper process runs */
    IS_ENDING,   /* a worker restores settings that the helper process has left changed */
} entry_state;

/* A GPU and a kind of control. A worker reads `starting` and writes the members below `work` while
 * the state is IS_STARTING or IS_ENDING. */
struct harpe_lease_entry {
    harpe_agent_leases *all;
    int gpu;
    harpe_saved_settings_kind control;
    entry_state state;
    harpe_lease_record record;   /* valid while the state is not IS_FREE */
    harpe_lease_asker *starting; /* waits for the start; NULL: it has left */
    harpe_lease_asker *first_waiting, *last_waiting;
    int helper; /* pidfd of the helper process; -1: none */
    harpe_watch *watch;
    harpe_timer *again;
    const harpe_controller_slot *slot; /* the holder's slot, read-only; NULL: not known. The holder
                                        * owns the memory and can write anything in it. */
    bool was_granted;
    bool is_to_end; /* the lease must end as soon as it has started */
    harpe_error
        failure; /* of the last attempt to restore; its status is HARPE_OK if there is none */

    harpe_work work;
    harpe_lease_terms terms;
    int memory, holder; /* copies of the asker's descriptors; -1: closed */
    int64_t dwell_ns, poll_ns;
    int socket;
    harpe_error result;
    harpe_saved_settings_outcome outcome; /* of the attempt to restore */
};

struct harpe_agent_leases {
    const harpe_agent *agent;
    harpe_lease_entry *entries; /* for each GPU, HARPE_SAVED_KINDS entries */
    size_t count;
    uint64_t last_id;
    harpe_timer *look;
    bool is_closed;
    harpe_agent_lease_counts counts;
};

static const harpe_gpu_info *info_of(const harpe_lease_entry *entry) {
    return harpe_gpu_info_at(entry->all->agent->gpus, entry->gpu);
}

static void say(const harpe_lease_entry *entry, harpe_log_level level, const char *what) {
    const harpe_lease_record *record = &entry->record;
    harpe_log_line(&entry->all->agent->options.log, level,
                   "lease %" PRIu64 ", GPU %d (%s), %s, process %d (%s, uid %u%s%s): %s",
                   record->id, info_of(entry)->driver_index, record->uuid,
                   harpe_saved_settings_kind_name(entry->control), (int)record->holder.process,
                   record->command, record->user, *record->job ? ", " : "", record->job, what);
}

static bool is_unrestored(const harpe_lease_entry *entry) {
    return entry->failure.status != HARPE_OK;
}

/* ---- Answers --------------------------------------------------------------------------------- */

static void answer(harpe_agent_leases *all, harpe_lease_asker *asker, const harpe_error *result,
                   const harpe_lease *lease) {
    asker->entry = NULL;
    harpe_timer_cancel(asker->limit);
    asker->limit = NULL;
    if (result->status == HARPE_OK)
        all->counts.granted++;
    else
        all->counts.refused++;
    asker->answer(asker->user, result, lease);
}

static void refuse(harpe_agent_leases *all, harpe_lease_asker *asker, const harpe_error *reason) {
    answer(all, asker, reason, NULL);
}

static void refuse_taken(harpe_lease_entry *entry, harpe_lease_asker *asker) {
    const harpe_lease_record *record = &entry->record;
    harpe_error reason = {.status = HARPE_OK};
    char since[32];
    time_t since_s = (time_t)record->since_s;
    struct tm local;
    (void)strftime(since, sizeof since, "%Y-%m-%d %H:%M:%S", localtime_r(&since_s, &local));
    reason.status = harpe_fail(&reason, HARPE_ALREADY_EXISTS,
                               "GPU %d: its %s is lent to process %d (%s, uid %u%s%s) since %s",
                               info_of(entry)->driver_index,
                               entry->control == HARPE_SAVED_CLOCKS ? "clock" : "power limit",
                               (int)record->holder.process, record->command, record->user,
                               *record->job ? ", " : "", record->job, since);
    refuse(entry->all, asker, &reason);
}

/* ---- Starting (on a worker) ------------------------------------------------------------------ */

static int64_t clamp(int64_t value, int64_t lowest, int64_t highest) {
    return value < lowest ? lowest : value > highest ? highest : value;
}

static harpe_status start_controller(harpe_lease_entry *entry, int32_t *helper,
                                     harpe_error *error) {
    harpe_controller_header header = harpe_controller_header_for(
        entry->all->agent->gpus, entry->gpu, (pid_t)entry->record.holder.process);
    header.dwell_ns = clamp(entry->dwell_ns, 0, LONGEST_DWELL_NS);
    header.poll_ns =
        entry->poll_ns < 0 ? -1 : clamp(entry->poll_ns, SHORTEST_POLL_NS, LONGEST_POLL_NS);
    header.terms = entry->terms;
    return harpe_controller_start_process(&header, entry->memory, entry->holder, START_MS, NULL,
                                          &entry->socket, helper, error);
}

static void start_helper(void *user) {
    harpe_lease_entry *entry = user;
    int32_t helper = 0;
    harpe_error *error = &entry->result;
    entry->socket = -1;
    harpe_status status = entry->control == HARPE_SAVED_CLOCKS
                              ? start_controller(entry, &helper, error)
                              : harpe_guard_lend(entry->all->agent->gpus, entry->gpu,
                                                 (pid_t)entry->record.holder.process, entry->holder,
                                                 &entry->terms, &entry->socket, &helper, error);
    if (status == HARPE_OK) {
        entry->helper = harpe_process_open(helper);
        entry->record.helper = harpe_process_identify(helper);
        if (entry->helper < 0)
            status = harpe_fail_errno(error, errno, "watching the process of a lease");
    }
    error->status = status;
}

/* ---- Restoring (on a worker) ----------------------------------------------------------------- */

/* Restores settings that the helper process has left changed. Usually there are none. A job that
 * does not use the agent may have a record of the same GPU, which is left alone. */
static void restore_rest(void *user) {
    harpe_lease_entry *entry = user;
    entry->result.status =
        harpe_saved_settings_end(entry->all->agent->gpus, entry->gpu, entry->control,
                                 entry->record.holder.process, &entry->outcome, &entry->result);
}

/* ---- The life of an entry -------------------------------------------------------------------- */

static void begin(harpe_lease_entry *entry, harpe_lease_asker *asker);

/* Gives the lease to the first asker whose process has not ended meanwhile. */
static void serve_next(harpe_lease_entry *entry) {
    for (;;) {
        harpe_lease_asker *asker = entry->first_waiting;
        if (!asker) return;
        entry->first_waiting = asker->next;
        if (!entry->first_waiting) entry->last_waiting = NULL;
        if (!harpe_peer_has_ended(&asker->peer)) {
            begin(entry, asker);
            return;
        }
        harpe_error reason = {.status = HARPE_OK};
        reason.status = harpe_fail(&reason, HARPE_NOT_FOUND, "the process that asked has ended");
        refuse(entry->all, asker, &reason);
    }
}

static void forget_slot(harpe_lease_entry *entry) {
    if (entry->slot) (void)munmap((void *)entry->slot, sizeof *entry->slot);
    entry->slot = NULL;
}

/* Maps the slot, to read the clock that the holder requests. agent_clients.c has checked that the
 * memory has the size of a slot and cannot shrink. Without the mapping, the requested clock is not
 * known. */
static void map_slot(harpe_lease_entry *entry, int memory) {
    forget_slot(entry);
    if (memory < 0) return;
    void *slot = mmap(NULL, sizeof *entry->slot, PROT_READ, MAP_SHARED, memory, 0);
    entry->slot = slot == MAP_FAILED ? NULL : slot;
}

/* Maps the slot of a lease that an earlier agent has granted. Takes a copy of the controller's
 * descriptor. */
static void map_slot_of_helper(harpe_lease_entry *entry) {
    struct stat status;
    if (entry->control != HARPE_SAVED_CLOCKS) return;
    int memory = harpe_process_take_descriptor(entry->helper, HARPE_HELPER_MEMORY);
    if (memory < 0) return; /* the agent lacks the capability CAP_SYS_PTRACE */
    int seals = fcntl(memory, F_GET_SEALS);
    if (seals >= 0 && (seals & F_SEAL_SHRINK) && fstat(memory, &status) == 0 &&
        status.st_size == (off_t)sizeof *entry->slot)
        map_slot(entry, memory);
    close(memory);
}

static void become_free(harpe_lease_entry *entry) {
    forget_slot(entry);
    lease_files_remove(entry->all->agent->directory, entry->record.uuid, entry->control);
    entry->state = IS_FREE;
    entry->is_to_end = false;
    entry->all->counts.ended += entry->was_granted;
    entry->was_granted = false;
    serve_next(entry);
}

static void end_entry(harpe_lease_entry *entry);

static void refuse_waiting(harpe_lease_entry *entry, const harpe_error *reason) {
    while (entry->first_waiting) {
        harpe_lease_asker *asker = entry->first_waiting;
        entry->first_waiting = asker->next;
        refuse(entry->all, asker, reason);
    }
    entry->last_waiting = NULL;
}

static void try_again(void *user) {
    harpe_lease_entry *entry = user;
    entry->again = NULL;
    end_entry(entry);
}

static void restored(void *user) {
    harpe_lease_entry *entry = user;
    harpe_agent_leases *all = entry->all;
    bool was_unrestored = is_unrestored(entry);
    entry->failure = entry->result;
    all->counts.not_restored += is_unrestored(entry) - was_unrestored;
    all->counts.restored_by_agent += entry->outcome == HARPE_SAVED_RESTORED;
    if (!is_unrestored(entry)) {
        if (entry->outcome == HARPE_SAVED_RESTORED)
            say(entry, HARPE_LOG_WARNING, "ended; the agent has restored the GPU");
        else if (entry->outcome == HARPE_SAVED_IN_USE)
            say(entry, HARPE_LOG_INFO, "ended; a process without a lease has the GPU");
        else if (entry->was_granted)
            say(entry, HARPE_LOG_INFO, "ended; the GPU is restored");
        become_free(entry);
        return;
    }
    all->counts.failures++;
    if (!was_unrestored) {
        char line[sizeof entry->result.message + 64];
        (void)snprintf(line, sizeof line, "the GPU is not restored, the agent tries again: %s",
                       entry->result.message);
        say(entry, HARPE_LOG_ERROR, line);
    }
    refuse_waiting(entry, &entry->result);
    if (harpe_loop_after(all->agent->loop, TRY_AGAIN_MS, try_again, entry, &entry->again, NULL) !=
        HARPE_OK)
        say(entry, HARPE_LOG_ERROR, "out of memory: run 'harpe agent restore'");
}

static void submit(harpe_lease_entry *entry, void (*work)(void *user), void (*done)(void *user)) {
    entry->work = (harpe_work){.work = work,
                               .done = done,
                               .user = entry,
                               .pool = HARPE_AGENT_LEASE_POOL,
                               .subject = (const char *)entry};
    harpe_workers_submit(entry->all->agent->workers, &entry->work);
}

static void end_entry(harpe_lease_entry *entry) {
    harpe_watch_remove(entry->watch);
    entry->watch = NULL;
    if (entry->helper >= 0) close(entry->helper);
    entry->helper = -1;
    entry->state = IS_ENDING;
    submit(entry, restore_rest, restored);
}

static void helper_ended(void *user, uint32_t events) {
    (void)events;
    end_entry(user);
}

/* Watches the helper process. If that is impossible, ends the lease. */
static void watch_helper(harpe_lease_entry *entry) {
    harpe_error error;
    entry->state = IS_LENT;
    if (harpe_loop_watch(entry->all->agent->loop, entry->helper, EPOLLIN, helper_ended, entry,
                         &entry->watch, &error) == HARPE_OK)
        return;
    say(entry, HARPE_LOG_ERROR, error.message);
    (void)harpe_process_signal(entry->helper, SIGTERM);
    end_entry(entry);
}

static void close_inputs(harpe_lease_entry *entry) {
    if (entry->memory >= 0) close(entry->memory);
    if (entry->holder >= 0) close(entry->holder);
    entry->memory = entry->holder = -1;
}

static void write_record(const harpe_lease_entry *entry) {
    harpe_error error;
    if (lease_files_write(entry->all->agent->directory, &entry->record, &error) != HARPE_OK)
        say(entry, HARPE_LOG_WARNING, error.message);
}

static void started(void *user) {
    harpe_lease_entry *entry = user;
    harpe_agent_leases *all = entry->all;
    harpe_lease_asker *asker = entry->starting;
    entry->starting = NULL;
    close_inputs(entry);
    if (entry->result.status == HARPE_OK && all->is_closed)
        entry->result.status =
            harpe_fail(&entry->result, HARPE_UNAVAILABLE, "the node agent is being stopped");
    bool is_granted = entry->result.status == HARPE_OK && asker && !entry->is_to_end;
    if (entry->result.status == HARPE_OK && asker && entry->is_to_end)
        entry->result.status =
            harpe_fail(&entry->result, HARPE_UNAVAILABLE, "the administrator has ended the lease");
    harpe_lease lease = {.socket = entry->socket,
                         .process = (int32_t)entry->record.helper.process,
                         .terms = entry->terms};
    if (is_granted) {
        write_record(entry);
        say(entry, HARPE_LOG_INFO, "granted");
        entry->was_granted = true;
    }
    if (asker) answer(all, asker, &entry->result, is_granted ? &lease : NULL);
    /* The holder now has the socket. Without a holder, the helper process ends. */
    if (entry->socket >= 0) harpe_process_close(entry->socket);
    entry->socket = -1;
    if (entry->helper >= 0)
        watch_helper(entry);
    else
        end_entry(entry);
}

static harpe_lease_record make_record(harpe_lease_entry *entry, const harpe_lease_asker *asker) {
    harpe_lease_record record = {.id = ++entry->all->last_id,
                                 .control = entry->control,
                                 .since_s = harpe_clock_wall_whole_s(),
                                 .user = asker->peer.user,
                                 .holder = harpe_process_identify(asker->peer.process)};
    (void)snprintf(record.uuid, sizeof record.uuid, "%s", info_of(entry)->uuid);
    (void)snprintf(record.command, sizeof record.command, "%s", asker->peer.command);
    (void)snprintf(record.job, sizeof record.job, "%s", asker->peer.job);
    return record;
}

static void begin(harpe_lease_entry *entry, harpe_lease_asker *asker) {
    harpe_agent_idle_end(entry->all->agent->idle, entry->gpu, false);
    entry->state = IS_STARTING;
    entry->starting = asker;
    asker->entry = entry;
    entry->record = make_record(entry, asker);
    entry->terms = harpe_agent_policy_terms(&entry->all->agent->policy, info_of(entry));
    entry->dwell_ns = asker->dwell_ns;
    entry->poll_ns = asker->poll_ns;
    entry->memory = asker->memory >= 0 ? dup(asker->memory) : -1;
    entry->holder = dup(asker->peer.pidfd);
    map_slot(entry, entry->memory);
    if (entry->holder >= 0 && (asker->memory < 0 || entry->memory >= 0)) {
        /* Before the helper process changes the GPU: if agent and helper process are killed during
         * the start, a new agent restores the GPU. */
        write_record(entry);
        submit(entry, start_helper, started);
        return;
    }
    entry->result.status = harpe_fail_errno(&entry->result, errno, "lending a GPU");
    entry->socket = -1;
    started(entry);
}

/* ---- Questions ------------------------------------------------------------------------------- */

/* Returns true if the present lease will end soon: the lease is ending, the holder itself asks
 * again, or the holder or the helper process has ended. */
static bool is_nearly_over(const harpe_lease_entry *entry, const harpe_lease_asker *asker) {
    if (entry->state == IS_ENDING) return !is_unrestored(entry);
    return entry->record.holder.process == asker->peer.process ||
           (entry->helper >= 0 && harpe_events_now(entry->helper, POLLIN) != 0) ||
           !harpe_process_is_alive(&entry->record.holder);
}

/* Removes an asker from the queue, if it is there. */
static void leave_queue(harpe_lease_entry *entry, harpe_lease_asker *asker) {
    harpe_lease_asker *before = NULL;
    for (harpe_lease_asker *each = entry->first_waiting; each; each = each->next) {
        if (each != asker) {
            before = each;
            continue;
        }
        if (before)
            before->next = asker->next;
        else
            entry->first_waiting = asker->next;
        if (entry->last_waiting == asker) entry->last_waiting = before;
        return;
    }
}

/* Refuses an asker that does not want to wait, because the present lease has not ended in time. */
static void limit_is_over(void *user) {
    harpe_lease_asker *asker = user;
    asker->limit = NULL;
    leave_queue(asker->entry, asker);
    refuse_taken(asker->entry, asker);
}

static void join_queue(harpe_lease_entry *entry, harpe_lease_asker *asker) {
    harpe_error error;
    asker->entry = entry;
    asker->next = NULL;
    if (entry->last_waiting)
        entry->last_waiting->next = asker;
    else
        entry->first_waiting = asker;
    entry->last_waiting = asker;
    if (!asker->waits && harpe_loop_after(entry->all->agent->loop, SOON_MS, limit_is_over, asker,
                                          &asker->limit, &error) != HARPE_OK) {
        leave_queue(entry, asker);
        error.status = HARPE_OUT_OF_MEMORY;
        refuse(entry->all, asker, &error);
    }
}

void harpe_agent_leases_ask(harpe_agent_leases *leases, harpe_lease_asker *asker) {
    size_t index = (size_t)asker->gpu * HARPE_SAVED_KINDS + (size_t)asker->control;
    harpe_lease_entry *entry = &leases->entries[index];
    harpe_error reason = {.status = HARPE_OK};
    if (leases->is_closed) {
        reason.status = harpe_fail(&reason, HARPE_UNAVAILABLE, "the node agent is being stopped");
        refuse(leases, asker, &reason);
    } else if (entry->state == IS_FREE) {
        begin(entry, asker);
    } else if (is_unrestored(entry)) {
        refuse(leases, asker, &entry->failure);
    } else if (asker->waits || is_nearly_over(entry, asker)) {
        join_queue(entry, asker);
    } else {
        refuse_taken(entry, asker);
    }
}

void harpe_agent_leases_leave(harpe_lease_asker *asker) {
    harpe_lease_entry *entry = asker->entry;
    harpe_timer_cancel(asker->limit);
    asker->limit = NULL;
    if (!entry) return;
    asker->entry = NULL;
    if (entry->starting == asker) entry->starting = NULL;
    leave_queue(entry, asker);
}

int harpe_agent_leases_end(harpe_agent_leases *leases, int gpu) {
    int ended = 0;
    for (size_t i = 0; i < leases->count; i++) {
        harpe_lease_entry *entry = &leases->entries[i];
        if ((gpu >= 0 && entry->gpu != gpu) || entry->state == IS_FREE) continue;
        ended++;
        entry->is_to_end = true;
        if (entry->state == IS_LENT) (void)harpe_process_signal(entry->helper, SIGTERM);
    }
    return ended;
}

void harpe_agent_leases_close(harpe_agent_leases *leases) {
    harpe_error reason = {.status = HARPE_OK};
    leases->is_closed = true;
    reason.status = harpe_fail(&reason, HARPE_UNAVAILABLE, "the node agent is being stopped");
    for (size_t i = 0; i < leases->count; i++)
        refuse_waiting(&leases->entries[i], &reason);
}

int harpe_agent_leases_count(const harpe_agent_leases *leases) {
    int count = 0;
    for (size_t i = 0; i < leases->count; i++)
        count += leases->entries[i].state != IS_FREE;
    return count;
}

bool harpe_agent_leases_wait_for_reset(const harpe_agent_leases *leases) {
    for (size_t i = 0; i < leases->count; i++) {
        const harpe_lease_entry *entry = &leases->entries[i];
        if (entry->state != IS_FREE && entry->failure.status != HARPE_GPU_LOST) return false;
    }
    return true;
}

harpe_agent_lease_counts harpe_agent_leases_counts(const harpe_agent_leases *leases) {
    return leases->counts;
}

/* ---- Showing --------------------------------------------------------------------------------- */

/* Returns the clock that the holder last requested; 0: none, or not known. */
static uint32_t wanted_mhz_of(const harpe_lease_entry *entry) {
    bool has_holder = entry->slot && entry->state == IS_LENT;
    return has_holder ? harpe_clock_request_mhz(atomic_load(&entry->slot->request)) : 0;
}

bool harpe_agent_leases_view(const harpe_agent_leases *leases, int gpu,
                             harpe_saved_settings_kind control, harpe_lease_view *out) {
    const harpe_lease_entry *entry =
        &leases->entries[(size_t)gpu * HARPE_SAVED_KINDS + (size_t)control];
    if (entry->state == IS_FREE) return false;
    *out = (harpe_lease_view){.record = &entry->record,
                              .is_lent = entry->state == IS_LENT,
                              .is_unrestored = is_unrestored(entry),
                              .wanted_mhz = wanted_mhz_of(entry)};
    return true;
}

/* Describes the settings that will be restored, from the record on disk. */
static void describe_restore(const harpe_lease_entry *entry, char *text, size_t size) {
    harpe_saved_settings saved;
    text[0] = '\0';
    if (harpe_saved_settings_find(entry->all->agent->gpus, entry->gpu, entry->control, &saved,
                                  NULL))
        harpe_saved_settings_describe(&saved, text, size);
}

/* Returns null if the clock is not known. */
static json_t *clock_or_null(bool is_known, uint64_t mhz) {
    return is_known ? json_integer((json_int_t)mhz) : json_null();
}

/* Adds the clock that the holder wants and the clock that the GPU has. */
static void show_clocks(const harpe_lease_entry *entry, harpe_agent_samples *samples,
                        json_t *shown) {
    if (entry->control != HARPE_SAVED_CLOCKS) return;
    harpe_gpu_sample sample = harpe_agent_samples_last(samples, entry->gpu);
    uint32_t wanted_mhz = wanted_mhz_of(entry);
    uint64_t held_mhz = 0;
    bool is_known = harpe_gpu_sample_get(&sample, HARPE_SAMPLE_GRAPHICS_MHZ, &held_mhz);
    (void)json_object_set_new(shown, "wanted_mhz", clock_or_null(wanted_mhz > 0, wanted_mhz));
    (void)json_object_set_new(shown, "held_mhz", clock_or_null(is_known, held_mhz));
}

static json_t *show(const harpe_lease_entry *entry) {
    char restores[160];
    describe_restore(entry, restores, sizeof restores);
    static const char *const states[] = {"free", "starting", "lent", "ending"};
    const harpe_lease_record *record = &entry->record;
    int waiting = 0;
    for (const harpe_lease_asker *each = entry->first_waiting; each; each = each->next)
        waiting++;
    return json_pack("{s:I,s:i,s:s,s:s,s:s,s:i,s:i,s:s,s:s,s:I,s:i,s:i,s:b,s:s}", "lease",
                     (json_int_t)record->id, "gpu", info_of(entry)->driver_index, "uuid",
                     record->uuid, "control", harpe_saved_settings_kind_name(entry->control),
                     "state", states[entry->is_to_end ? IS_ENDING : entry->state], "process",
                     (int)record->holder.process, "uid", (int)record->user, "command",
                     record->command, "job", record->job, "since_s", (json_int_t)record->since_s,
                     "helper", (int)record->helper.process, "waiting", waiting, "unrestored",
                     is_unrestored(entry), "restores", restores);
}

json_t *harpe_agent_leases_show(const harpe_agent_leases *leases, int64_t user,
                                harpe_agent_samples *samples) {
    json_t *list = json_array();
    for (size_t i = 0; i < leases->count; i++) {
        const harpe_lease_entry *entry = &leases->entries[i];
        if (entry->state == IS_FREE || (user >= 0 && entry->record.user != user)) continue;
        json_t *shown = show(entry);
        if (shown) show_clocks(entry, samples, shown);
        (void)json_array_append_new(list, shown);
    }
    return list;
}

/* ---- The table ------------------------------------------------------------------------------- */

static harpe_lease_entry *find_entry(harpe_agent_leases *leases, const harpe_lease_record *record) {
    for (size_t i = 0; i < leases->count; i++) {
        harpe_lease_entry *entry = &leases->entries[i];
        if (entry->control == record->control && strcmp(info_of(entry)->uuid, record->uuid) == 0)
            return entry;
    }
    return NULL;
}

/* Continues a lease of an earlier agent. If its helper process is gone, restores the GPU. */
static void adopt(void *user, const harpe_lease_record *record) {
    harpe_agent_leases *leases = user;
    harpe_lease_entry *entry = find_entry(leases, record);
    if (!entry || entry->state != IS_FREE) return;
    entry->record = *record;
    entry->was_granted = record->helper.process > 0;
    if (record->id > leases->last_id) leases->last_id = record->id;
    if (harpe_process_is_alive(&record->helper))
        entry->helper = harpe_process_open((pid_t)record->helper.process);
    if (entry->helper >= 0) {
        say(entry, HARPE_LOG_INFO, "continued");
        map_slot_of_helper(entry);
        watch_helper(entry);
    } else {
        end_entry(entry);
    }
}

/* Restores a GPU that a job without a lease has left changed, after all processes of the job were
 * killed. Until it is restored, the GPU counts as lent. */
static void take_over_left(harpe_lease_entry *entry, int64_t trainer) {
    entry->record = (harpe_lease_record){.id = ++entry->all->last_id,
                                         .control = entry->control,
                                         .since_s = harpe_clock_wall_whole_s(),
                                         .user = geteuid(),
                                         .holder.process = trainer,
                                         .command = "without a lease"};
    (void)snprintf(entry->record.uuid, sizeof entry->record.uuid, "%s", info_of(entry)->uuid);
    end_entry(entry);
}

static void look_for_left(void *user) {
    harpe_agent_leases *leases = user;
    int64_t trainer = 0;
    leases->look = NULL;
    if (leases->is_closed) return;
    for (size_t i = 0; i < leases->count; i++) {
        harpe_lease_entry *entry = &leases->entries[i];
        if (entry->state == IS_FREE &&
            harpe_saved_settings_are_left(leases->agent->gpus, entry->gpu, entry->control,
                                          &trainer))
            take_over_left(entry, trainer);
    }
    (void)harpe_loop_after(leases->agent->loop, LOOK_MS, look_for_left, leases, &leases->look,
                           NULL);
}

harpe_status harpe_agent_leases_new(const harpe_agent *agent, harpe_agent_leases **out,
                                    harpe_error *error) {
    size_t gpus = (size_t)harpe_gpus_count(agent->gpus);
    harpe_agent_leases *leases = harpe_calloc(1, sizeof *leases);
    if (leases) leases->entries = harpe_calloc(gpus * HARPE_SAVED_KINDS, sizeof *leases->entries);
    if (!leases || !leases->entries) {
        free(leases);
        return harpe_fail_memory(error);
    }
    leases->agent = agent;
    leases->count = gpus * HARPE_SAVED_KINDS;
    for (size_t i = 0; i < leases->count; i++) {
        leases->entries[i] =
            (harpe_lease_entry){.all = leases,
                                .gpu = (int)(i / HARPE_SAVED_KINDS),
                                .control = (harpe_saved_settings_kind)(i % HARPE_SAVED_KINDS),
                                .helper = -1,
                                .memory = -1,
                                .holder = -1,
                                .socket = -1};
    }
    lease_files_read(agent->directory, adopt, leases);
    *out = leases;
    return harpe_loop_after(agent->loop, LOOK_MS, look_for_left, leases, &leases->look, error);
}

void harpe_agent_leases_free(harpe_agent_leases *leases) {
    if (!leases) return;
    harpe_timer_cancel(leases->look);
    for (size_t i = 0; i < leases->count; i++) {
        harpe_lease_entry *entry = &leases->entries[i];
        harpe_watch_remove(entry->watch);
        harpe_timer_cancel(entry->again);
        if (entry->helper >= 0) close(entry->helper);
        close_inputs(entry);
        forget_slot(entry);
    }
    free(leases->entries);
    free(leases);
}
