/* SPDX-License-Identifier: Apache-2.0 */
/* The start, the run and the end of the node agent: opens the GPUs, restores GPUs that dead jobs
 * have left changed, answers requests, and at the end ends all leases.
 *
 * The agent gives up the privileges that it and its helper processes do not need, whatever has
 * started it. It makes the system calls itself, because libcap would be one more library in a
 * process of root. SECURITY.md gives the reason for what is kept. It reports its state to systemd
 * with the protocol of sd_notify(3): one datagram to the socket that NOTIFY_SOCKET names. */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/agent_internal.h"
#include "agent/zeusd_internal.h"
#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/number.h"
#include "client/control.h"
#include "gpu/saved_settings.h"

/* ---- The routes of zeusd --------------------------------------------------------------------- */

/* Starts zeusd's routes, and checks each change against the rules of the agent. */

enum {
    SHORTEST_KEY = 32,
    LARGEST_KEY = 65536,
    MOST_HELD = 128,
};

struct harpe_agent_zeusd {
    harpe_agent *agent;
    harpe_zeusd_settings *settings;
    harpe_zeusd_server *server;
    harpe_zeusd_ops inner; /* the functions of `settings` */
};

/* ---- Rules ----------------------------------------------------------------------------------- */

static harpe_status may_set(void *user, const harpe_zeusd_holder *holder, int gpu,
                            harpe_setting setting, harpe_error *error) {
    const harpe_agent_zeusd *zeusd = user;
    (void)gpu;
    (void)setting;
    if (holder->is_tcp || harpe_agent_policy_allows_zeusd(&zeusd->agent->policy, holder->uid))
        return HARPE_OK; /* a TCP client has sent a token with the scope gpu-control */
    return harpe_fail(error, HARPE_PERMISSION_DENIED,
                      "the node agent's rule zeusd_users does not name the user with uid %lu",
                      (unsigned long)holder->uid);
}

static harpe_lease_terms terms_of(const harpe_agent_zeusd *zeusd, int gpu) {
    return harpe_agent_policy_terms(&zeusd->agent->policy,
                                    harpe_gpu_info_at(zeusd->agent->gpus, gpu));
}

static harpe_default_locks default_locks(void *user, int gpu) { return terms_of(user, gpu).locks; }

/* A reset gives the GPU the lock of the administrator, if there is one. */
static harpe_status set(void *user, const harpe_zeusd_change *asked, harpe_error *error) {
    harpe_agent_zeusd *zeusd = user;
    harpe_lease_terms terms = terms_of(zeusd, asked->gpu);
    const harpe_default_locks *locks = &terms.locks;
    bool is_memory = asked->setting == HARPE_SET_MEMORY_CLOCKS;
    uint32_t minimum_mhz = is_memory ? locks->memory_minimum_mhz : locks->graphics_minimum_mhz;
    uint32_t maximum_mhz = is_memory ? locks->memory_maximum_mhz : locks->graphics_maximum_mhz;
    harpe_zeusd_change change = *asked;
    harpe_status status = HARPE_OK;
    if (asked->setting == HARPE_SET_POWER_LIMIT)
        status = harpe_lease_terms_check(&terms, asked->setting, asked->values[0], error);
    else if (asked->setting == HARPE_SET_GRAPHICS_CLOCKS && !asked->is_reset)
        status = harpe_lease_terms_check(&terms, asked->setting, asked->values[1], error);
    if (status != HARPE_OK) return status;
    if (change.is_reset && maximum_mhz > 0) {
        change.is_reset = false;
        change.values[0] = minimum_mhz;
        change.values[1] = maximum_mhz;
    }
    return zeusd->inner.set(zeusd->inner.user, &change, error);
}

/* ---- Holders --------------------------------------------------------------------------------- */

/* Copies the holders. Returns their number; at most MOST_HELD. */
static size_t list_holders(harpe_agent_zeusd *zeusd, harpe_zeusd_held held[MOST_HELD]) {
    size_t count = zeusd ? harpe_zeusd_settings_list(zeusd->settings, held, MOST_HELD) : 0;
    return count < MOST_HELD ? count : MOST_HELD;
}

harpe_status harpe_agent_zeusd_check_free(harpe_agent_zeusd *zeusd, int gpu,
                                          harpe_saved_settings_kind control, harpe_error *error) {
    harpe_zeusd_held held[MOST_HELD];
    size_t count = list_holders(zeusd, held);
    for (size_t i = 0; i < count; i++) {
        if (held[i].gpu != gpu || held[i].kind != control) continue;
        return harpe_fail(error, HARPE_ALREADY_EXISTS,
                          "GPU %d: its %s is set by process %ld (uid %lu) through zeusd's routes",
                          harpe_gpu_info_at(zeusd->agent->gpus, gpu)->driver_index,
                          control == HARPE_SAVED_CLOCKS ? "clock" : "power limit",
                          (long)held[i].process, (unsigned long)held[i].uid);
    }
    return HARPE_OK;
}

int harpe_agent_zeusd_end(harpe_agent_zeusd *zeusd, int gpu) {
    return zeusd ? harpe_zeusd_settings_end(zeusd->settings, gpu) : 0;
}

json_t *harpe_agent_zeusd_show(harpe_agent_zeusd *zeusd, int64_t user) {
    harpe_zeusd_held held[MOST_HELD];
    size_t count = list_holders(zeusd, held);
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        char restores[160];
        if (user >= 0 && held[i].uid != user) continue;
        harpe_saved_settings_describe(&held[i].before, restores, sizeof restores);
        (void)json_array_append_new(
            list,
            json_pack("{s:i,s:s,s:s,s:s,s:i,s:I,s:s}", "gpu",
                      harpe_gpu_info_at(zeusd->agent->gpus, held[i].gpu)->driver_index, "uuid",
                      harpe_gpu_info_at(zeusd->agent->gpus, held[i].gpu)->uuid, "state",
                      held[i].is_ending ? "ending" : "held", "control",
                      harpe_saved_settings_kind_name(held[i].kind), "process", (int)held[i].process,
                      "uid", (json_int_t)held[i].uid, "restores", restores));
    }
    return list;
}

/* ---- Start and end --------------------------------------------------------------------------- */

/* Warns of a key that is easy to guess or that other users can read. */
static void warn_of_key(const harpe_agent_options *options, size_t length) {
    struct stat status;
    if (length < SHORTEST_KEY)
        harpe_log_line(&options->log, HARPE_LOG_WARNING,
                       "--zeusd-key: the key in '%s' has %zu bytes; RFC 7518 requires at least %d",
                       options->zeusd_key, length, SHORTEST_KEY);
    if (stat(options->zeusd_key, &status) == 0 && (status.st_mode & (S_IRGRP | S_IROTH)))
        harpe_log_line(&options->log, HARPE_LOG_WARNING,
                       "--zeusd-key: other users can read '%s': make its mode 600",
                       options->zeusd_key);
}

static harpe_status start_server(harpe_agent_zeusd *zeusd, harpe_error *error) {
    harpe_agent *agent = zeusd->agent;
    const harpe_agent_options *options = &agent->options;
    harpe_zeusd_options how = {.unix_socket = options->zeusd_socket,
                               .drop = harpe_agent_drop_socket,
                               .drop_user = agent,
                               .tcp_address = options->zeusd_address,
                               .tcp_port = options->zeusd_port,
                               .read_pool = HARPE_AGENT_READ_POOL,
                               .write_pool = HARPE_AGENT_WRITE_POOL,
                               .samples = agent->samples,
                               .log = options->log};
    harpe_zeusd_ops ops = {.may_set = may_set, .set = set, .user = zeusd};
    char *key = NULL;
    harpe_status status = HARPE_OK;
    if (options->zeusd_key) {
        status =
            harpe_file_read(options->zeusd_key, LARGEST_KEY, &key, &how.signing_key_length, error);
        how.signing_key = key;
    }
    if (key) warn_of_key(options, how.signing_key_length);
    if (status == HARPE_OK)
        status = harpe_zeusd_server_new(agent->loop, agent->workers, agent->gpus, &how, &ops,
                                        &zeusd->server, error);
    if (status == HARPE_OK && options->zeusd_address)
        harpe_log_line(&options->log, HARPE_LOG_INFO, "zeusd's routes: port %d of %s",
                       harpe_zeusd_server_port(zeusd->server), options->zeusd_address);
    if (key) explicit_bzero(key, how.signing_key_length);
    free(key);
    return status;
}

static void agent_zeusd_free(harpe_agent_zeusd *zeusd) {
    if (!zeusd) return;
    harpe_zeusd_server_free(zeusd->server);
    harpe_zeusd_settings_free(zeusd->settings);
    free(zeusd);
}

/* Starts the routes that the agent's options name, and sets agent->zeusd. Sets it to NULL if the
 * options name none. */
static harpe_status agent_zeusd_start(harpe_agent *agent, harpe_error *error) {
    const harpe_agent_options *options = &agent->options;
    if (!options->zeusd_socket && !options->zeusd_address) return HARPE_OK;
    harpe_agent_zeusd *zeusd = harpe_calloc(1, sizeof *zeusd);
    if (!zeusd) return harpe_fail_memory(error);
    zeusd->agent = agent;
    harpe_zeusd_settings_options how = {.no_restore = options->zeusd_no_restore,
                                        .default_locks = default_locks,
                                        .user = zeusd,
                                        .pool = HARPE_AGENT_RESTORE_POOL,
                                        .log = options->log};
    harpe_status status = harpe_zeusd_settings_new(agent->loop, agent->workers, agent->gpus, &how,
                                                   &zeusd->settings, error);
    if (status == HARPE_OK) {
        zeusd->inner = harpe_zeusd_settings_ops(zeusd->settings);
        status = start_server(zeusd, error);
    }
    if (status == HARPE_OK)
        agent->zeusd = zeusd;
    else
        agent_zeusd_free(zeusd);
    return status;
}

/* The agent calls these functions in this order when it ends. It calls the last two after
 * harpe_workers_close, and the last one only if harpe_workers_close returned true. NULL is allowed.
 */
static void agent_zeusd_stop_accepting(harpe_agent_zeusd *zeusd) {
    if (zeusd) harpe_zeusd_server_stop_accepting(zeusd->server);
}

static harpe_status agent_zeusd_put_back(harpe_agent_zeusd *zeusd, harpe_error *error) {
    return zeusd ? harpe_zeusd_settings_put_back(zeusd->settings, error) : HARPE_OK;
}

/* ---- Privileges ------------------------------------------------------------------------------ */

/* NVIDIA's driver lets a process change clocks and power limits if it has this capability. */
#define KEPT (UINT64_C(1) << CAP_SYS_ADMIN)

typedef struct __user_cap_data_struct capability_words[_LINUX_CAPABILITY_U32S_3];

static bool is_kept(int capability) { return (KEPT >> capability) & 1; }

static uint64_t joined(uint32_t low, uint32_t high) { return low | (uint64_t)high << 32; }

/* Takes the capabilities that are not kept out of the bounding set, so that a program that root
 * starts does not get them back, and out of the ambient set. A process without CAP_SETPCAP cannot
 * change its bounding set. Then PR_SET_NO_NEW_PRIVS alone has this effect. */
static void limit_programs(void) {
    for (int capability = 0; prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; capability++) {
        if (is_kept(capability)) continue;
        (void)prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
        (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_LOWER, capability, 0, 0);
    }
}

/* Gives up all capabilities that the agent does not need, for this process and for those that it
 * starts. `*before` receives the effective capabilities until now, a bit for each. Call it before
 * any other thread is started. */
static harpe_status drop_privileges(uint64_t *before, harpe_error *error) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    capability_words words;
    if (syscall(SYS_capget, &header, words) != 0)
        return harpe_fail_errno(error, errno, "reading the agent's capabilities");
    uint64_t effective = joined(words[0].effective, words[1].effective);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return harpe_fail_errno(error, errno, "giving up new privileges");
    limit_programs();
    for (size_t i = 0; i < _LINUX_CAPABILITY_U32S_3; i++) {
        uint32_t kept = (uint32_t)(KEPT >> (32 * i));
        words[i].effective &= kept;
        words[i].permitted &= kept;
        words[i].inheritable &= kept;
    }
    if (syscall(SYS_capset, &header, words) != 0)
        return harpe_fail_errno(error, errno, "giving up capabilities");
    *before = effective;
    return HARPE_OK;
}

/* ---- Reports to systemd ---------------------------------------------------------------------- */

/* Reports a state: "READY=1", "STOPPING=1" or "WATCHDOG=1". */
static void notify(const char *state) {
    const char *path = secure_getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = path ? strlen(path) : 0;
    if (length < 2 || length >= sizeof address.sun_path || (*path != '/' && *path != '@')) return;
    memcpy(address.sun_path, path, length);
    if (*path == '@') address.sun_path[0] = '\0'; /* an abstract name */
    int out = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (out < 0) return;
    (void)sendto(out, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT,
                 (struct sockaddr *)&address,
                 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length));
    close(out);
}

/* Returns the time between two "WATCHDOG=1" in ms; 0: systemd does not ask for them. */
static int64_t watchdog_ms(void) {
    const char *text = secure_getenv("WATCHDOG_USEC");
    int64_t period_us;
    if (!text || !harpe_parse_int(text, strlen(text), &period_us) || period_us < 2000) return 0;
    return period_us / 2000;
}

enum {
    STOP_LOOK_MS = 20,
    LOCK_MS = 5000,
    CLOSE_MS = 1000,       /* how long a stop waits for driver calls of zeusd's routes */
    STOP_LIMIT_MS = 60000, /* how long a stop waits until all GPUs are restored */
    LEASE_DEADLINE_S = 120,
    NAME_DEADLINE_S = 60,
};

#define LOCK_NAME "agent.lock" /* in the state directory */

static const int stop_signals[] = {SIGTERM, SIGINT, SIGHUP, 0};

static const harpe_pool_kind pools[] = {{"lease", "GPU", 0},
                                        {"client", "client", 0},
                                        {"zeusd's reads", "GPU", 0},
                                        {"zeusd's writes", "GPU", 0},
                                        {"restoring", "GPU", 0},
                                        {"name", "user", 0},
                                        {0}};

/* ---- Start ----------------------------------------------------------------------------------- */

/* Opens the directory that an option names. Other users must not be able to write to it: a file of
 * a lease could name any process as the helper process, and the agent would end that process. */
static harpe_status open_given_directory(harpe_agent *agent, const char *path, harpe_error *error) {
    struct stat status;
    if (mkdir(path, 0755) != 0 && errno != EEXIST)
        return harpe_fail_errno(error, errno, "making '%s'", path);
    agent->directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (agent->directory < 0 || fstat(agent->directory, &status) != 0)
        return harpe_fail_errno(error, errno, "'%s'", path);
    if ((status.st_uid == geteuid() || status.st_uid == 0) &&
        !(status.st_mode & (S_IWGRP | S_IWOTH)))
        return HARPE_OK;
    return harpe_fail(error, HARPE_PERMISSION_DENIED,
                      "'%s': other users can write to this state directory: make it this user's "
                      "with mode 755",
                      path);
}

/* Locks the state directory against a second agent. If an agent was killed while it started a
 * process, that process keeps the lock until it has become another program, so this function waits
 * a short time. */
static harpe_status lock_state(harpe_agent *agent, harpe_error *error) {
    agent->state_lock = harpe_file_lock_at(agent->directory, LOCK_NAME, LOCK_MS);
    if (agent->state_lock >= 0) return HARPE_OK;
    if (errno != EWOULDBLOCK) return harpe_fail_errno(error, errno, "locking the state directory");
    return harpe_fail(error, HARPE_ALREADY_EXISTS,
                      "another agent runs on this machine with the same state directory");
}

/* Opens the directory of the files of leases, and locks it. */
static harpe_status open_state(harpe_agent *agent, harpe_error *error) {
    const char *path = agent->options.state_dir;
    harpe_status status = HARPE_OK;
    if (path) {
        status = open_given_directory(agent, path, error);
    } else {
        status = harpe_saved_settings_open_directory(harpe_gpus_are_emulated(agent->gpus), true,
                                                     &agent->directory, error);
    }
    return status == HARPE_OK ? lock_state(agent, error) : status;
}

static void report_record(void *user, const harpe_saved_settings *state, const harpe_gpu_info *info,
                          harpe_saved_settings_outcome outcome, const harpe_error *error) {
    harpe_agent *agent = user;
    char line[sizeof error->message + 128];
    if (harpe_saved_settings_tell(state, info, outcome, error, line, sizeof line))
        harpe_log_line(&agent->options.log,
                       outcome == HARPE_SAVED_FAILED ? HARPE_LOG_ERROR : HARPE_LOG_WARNING, "%s",
                       line);
}

/* Restores GPUs that dead jobs have left changed. Logs failures; a failure does not prevent the
 * start. */
static void recover(harpe_agent *agent) {
    harpe_saved_settings_recovery how = {.through_zeusd = harpe_controller_restore_through_zeusd,
                                         .report = report_record,
                                         .user = agent};
    (void)harpe_saved_settings_recover(agent->gpus, &how, NULL);
}

/* Gives each pool of driver calls a thread for each GPU and kind of work, so that a call that hangs
 * does not delay the others. */
static void limit_workers(harpe_agent *agent, int threads) {
    int gpus = harpe_gpus_count(agent->gpus);
    harpe_workers_limit(agent->workers, HARPE_AGENT_LEASE_POOL, threads, LEASE_DEADLINE_S);
    harpe_workers_limit(agent->workers, HARPE_AGENT_READ_POOL, gpus + 1, LEASE_DEADLINE_S);
    harpe_workers_limit(agent->workers, HARPE_AGENT_WRITE_POOL, gpus, LEASE_DEADLINE_S);
    harpe_workers_limit(agent->workers, HARPE_AGENT_RESTORE_POOL, threads, LEASE_DEADLINE_S);
    harpe_workers_limit(agent->workers, HARPE_AGENT_NAME_POOL, 1, NAME_DEADLINE_S);
}

static void beat(void *user) {
    harpe_agent *agent = user;
    notify("WATCHDOG=1");
    (void)harpe_loop_after(agent->loop, watchdog_ms(), beat, agent, NULL, NULL);
}

static void received_signal(void *user, int number);

static harpe_status start(harpe_agent *agent, harpe_error *error) {
    harpe_gpus_options how = {.visible_devices = "all", .log = agent->options.log};
    harpe_status status = harpe_agent_policy_read(agent->options.config, &agent->policy, error);
    if (status == HARPE_OK) status = harpe_loop_new(&agent->loop, error);
    if (status == HARPE_OK)
        status = harpe_loop_on_signals(agent->loop, stop_signals, received_signal, agent, error);
    if (status == HARPE_OK) status = harpe_gpus_open(&how, &agent->gpus, error);
    if (status == HARPE_OK)
        status = harpe_agent_policy_check(&agent->policy, agent->gpus, &agent->options.log, error);
    if (status == HARPE_OK) status = open_state(agent, error);
    if (status != HARPE_OK) return status;
    int threads = HARPE_SAVED_KINDS * harpe_gpus_count(agent->gpus);
    status = harpe_workers_new(agent->loop, pools, threads, &agent->workers, error);
    if (status != HARPE_OK) return status;
    limit_workers(agent, threads);
    status = harpe_agent_samples_new(agent->loop, agent->gpus, &agent->options.log, &agent->samples,
                                     error);
    if (status == HARPE_OK) status = agent_zeusd_start(agent, error);
    if (status != HARPE_OK) return status;
    recover(agent);
    status = harpe_user_names_new(agent->workers, HARPE_AGENT_NAME_POOL, &agent->names, error);
    if (status != HARPE_OK) return status;
    status = harpe_agent_leases_new(agent, &agent->leases, error);
    if (status == HARPE_OK) status = harpe_agent_idle_new(agent, &agent->idle, error);
    if (status == HARPE_OK && agent->options.metrics_address) {
        harpe_agent_metrics_prepare(agent);
        status = harpe_agent_exporter_new(agent, &agent->exporter, error);
    }
    if (status == HARPE_OK) status = harpe_agent_listen(agent, error);
    if (status == HARPE_OK && watchdog_ms() > 0) beat(agent);
    return status;
}

/* ---- End ------------------------------------------------------------------------------------- */

/* Waits until all leases have ended, except those of lost GPUs. The next agent ends these. */
static void look_for_end(void *user) {
    harpe_agent *agent = user;
    if ((harpe_agent_leases_wait_for_reset(agent->leases) &&
         harpe_agent_idle_has_ended(agent->idle)) ||
        harpe_patience_is_over(&agent->stop_patience) ||
        harpe_loop_after(agent->loop, STOP_LOOK_MS, look_for_end, agent, NULL, NULL) != HARPE_OK)
        harpe_loop_stop(agent->loop);
}

static void received_signal(void *user, int number) {
    harpe_agent *agent = user;
    (void)number;
    if (agent->is_stopping || !agent->leases) return;
    agent->is_stopping = true;
    agent->stop_patience = harpe_patience_for(STOP_LIMIT_MS * 1e-3);
    notify("STOPPING=1");
    agent_zeusd_stop_accepting(agent->zeusd);
    harpe_agent_leases_close(agent->leases);
    harpe_agent_idle_end(agent->idle, -1, true);
    int count = harpe_agent_leases_end(agent->leases, -1);
    harpe_agent_stop_listening(agent);
    if (count > 0)
        harpe_log_line(&agent->options.log, HARPE_LOG_INFO, "stopping: ends %d lease%s", count,
                       count == 1 ? "" : "s");
    look_for_end(agent);
}

static harpe_status check_end(const harpe_agent *agent, harpe_error *error) {
    int left = harpe_agent_leases_count(agent->leases);
    if (left == 0 && !harpe_agent_idle_has_ended(agent->idle))
        return harpe_fail(error, HARPE_DRIVER_ERROR,
                          "the rule idle has left a clock locked: run 'harpe gpus --restore'");
    if (left == 0) return HARPE_OK;
    return harpe_fail(
        error, HARPE_DRIVER_ERROR,
        "%d lease%s could not be ended; the GPUs may be changed: when the jobs have ended and "
        "lost GPUs are reset, run 'harpe gpus --restore' or start the agent",
        left, left == 1 ? "" : "s");
}

/* Restores settings that clients of zeusd's routes have changed, and frees everything, unless a
 * thread that hangs in the driver still uses it. Returns the first failure. */
static harpe_status release(harpe_agent *agent, harpe_status status, harpe_error *error) {
    harpe_error told;
    harpe_agent_stop_listening(agent);
    harpe_agent_close_clients(agent);
    harpe_agent_exporter_free(agent->exporter);
    bool is_quiet = !agent->workers || harpe_workers_close(agent->workers, CLOSE_MS);
    agent->has_no_workers = true;
    harpe_status restored = agent_zeusd_put_back(agent->zeusd, &told);
    if (status == HARPE_OK && restored != HARPE_OK) {
        *error = told;
        status = restored;
    }
    harpe_agent_idle_end(agent->idle, -1, true);
    if (!harpe_agent_samples_free(agent->samples, STOP_LOOK_MS)) is_quiet = false;
    if (!harpe_agent_idle_has_ended(agent->idle)) is_quiet = false;
    if (!is_quiet) return status; /* a driver call hangs, and its thread uses the rest */
    agent_zeusd_free(agent->zeusd);
    if (agent->workers) harpe_workers_free(agent->workers);
    harpe_agent_free_clients(agent);
    harpe_user_names_free(agent->names);
    harpe_agent_leases_free(agent->leases);
    harpe_agent_idle_free(agent->idle);
    if (agent->loop) harpe_loop_free(agent->loop);
    harpe_gpus_close(agent->gpus);
    harpe_agent_policy_clear(&agent->policy);
    if (agent->state_lock >= 0)
        harpe_file_unlock_at(agent->directory, LOCK_NAME, agent->state_lock);
    if (agent->directory >= 0) close(agent->directory);
    free(agent);
    return status;
}

harpe_status harpe_agent_run(const harpe_agent_options *options, harpe_error *error) {
    harpe_agent *agent = harpe_calloc(1, sizeof *agent);
    if (!agent) return harpe_fail_memory(error);
    *agent = (harpe_agent){.options = *options,
                           .directory = -1,
                           .state_lock = -1,
                           .listener = -1,
                           .started_s = harpe_clock_wall_whole_s()};
    if (!agent->options.socket) agent->options.socket = HARPE_AGENT_SOCKET_PATH;
    harpe_status status =
        options->is_enclosed ? HARPE_OK : drop_privileges(&agent->capabilities, error);
    if (status == HARPE_OK) status = start(agent, error);
    if (status == HARPE_OK) {
        int count = harpe_gpus_count(agent->gpus);
        harpe_log_line(&options->log, HARPE_LOG_INFO, "lends %d GPU%s on %s", count,
                       count == 1 ? "" : "s", agent->options.socket);
        notify("READY=1");
        status = harpe_loop_run(agent->loop, error);
        if (status == HARPE_OK) status = check_end(agent, error);
    }
    return release(agent, status, error);
}
