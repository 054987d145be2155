/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the node agent share. All data and functions belong to the thread of the
 * agent's loop, unless a comment says otherwise. */
#ifndef HARPE_AGENT_AGENT_INTERNAL_H
#define HARPE_AGENT_AGENT_INTERNAL_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <jansson.h>

#include <harpe/gpu.h>

#include "agent/agent.h"
#include "base/credit.h"
#include "base/unix_socket.h"
#include "base/wait.h"
#include "gpu/backend.h"
#include "gpu/saved_settings.h"
#include "http/loop.h"
#include "lease/lease.h"

typedef struct harpe_agent harpe_agent;

/* ---- policy.c: rules ------------------------------------------------------------------------- */

/* Who may change GPUs, and within which limits. The rules come from a file of lines "name = value";
 * docs/agent.md lists them. */
#define HARPE_AGENT_CONFIG_PATH "/etc/harpe/agent.conf"

enum { HARPE_AGENT_DIRECTORY_SIZE = 256 };

/* A GPU that has a context and no work for `after_ns` gets this clock. */
typedef struct harpe_idle_rule {
    uint32_t clock_mhz; /* 0: the GPU keeps its clock */
    int64_t after_ns;
} harpe_idle_rule;

/* Locks of the administrator for one GPU, and what happens while it has no work. */
typedef struct harpe_agent_gpu_rule {
    char gpu[96]; /* UUID, PCI address or "all" */
    bool has_locks, has_idle;
    harpe_default_locks locks;
    harpe_idle_rule idle;
} harpe_agent_gpu_rule;

typedef struct harpe_agent_users {
    bool has_everybody;
    uid_t *each;
    size_t count, capacity;
} harpe_agent_users;

/* A limit of 0 means that there is no limit. */
typedef struct harpe_agent_policy {
    harpe_agent_users users;
    gid_t *groups;
    size_t group_count, group_capacity;
    /* Users who may change GPUs through zeusd's routes. Clients of these routes do not prove that
     * they may use a GPU. */
    harpe_agent_users zeusd_users;
    bool shows_others; /* everybody may read the leases of other users */
    uint32_t lowest_clock_mhz, highest_clock_mhz;
    uint32_t lowest_power_limit_w, highest_power_limit_w;
    double changes_per_second; /* for each lease; 0: no limit */
    double leases_per_second;  /* for each user, after a burst of four times as many; 0: no limit */
    char device_directory[HARPE_AGENT_DIRECTORY_SIZE]; /* "": the driver's device nodes */
    harpe_agent_gpu_rule *gpu_rules;
    size_t gpu_rule_count, gpu_rule_capacity;
} harpe_agent_policy;

/* Reads the rules. `path` NULL: HARPE_AGENT_CONFIG_PATH if there is such a file, or else the
 * defaults, which allow only root and this process's user. Fails with HARPE_INVALID_INPUT and a
 * line that names the file, the line's number and the fault. */
harpe_status harpe_agent_policy_read(const char *path, harpe_agent_policy *out, harpe_error *error);
/* Reads the rules from `length` bytes of text. `name` is the file's name in messages. */
harpe_status harpe_agent_policy_parse(const char *text, size_t length, const char *name,
                                      harpe_agent_policy *out, harpe_error *error);
void harpe_agent_policy_clear(harpe_agent_policy *policy);

/* Returns true if the rules allow a process with this user and these groups. Root and this
 * process's user are always allowed. */
bool harpe_agent_policy_allows(const harpe_agent_policy *policy, uid_t user, const gid_t *groups,
                               size_t group_count);

/* Returns true if the rules allow a user to change GPUs through zeusd's routes. */
bool harpe_agent_policy_allows_zeusd(const harpe_agent_policy *policy, uid_t user);

/* Returns the terms of a lease of the GPU. */
harpe_lease_terms harpe_agent_policy_terms(const harpe_agent_policy *policy,
                                           const harpe_gpu_info *gpu);

/* Returns the rule "idle" for the GPU. */
harpe_idle_rule harpe_agent_policy_idle(const harpe_agent_policy *policy,
                                        const harpe_gpu_info *gpu);

/* Checks the rules against the GPUs of this machine. Logs a warning for each rule that has no
 * effect or forbids everything on a GPU. Fails with HARPE_INVALID_INPUT if the device directory is
 * not a directory. */
harpe_status harpe_agent_policy_check(const harpe_agent_policy *policy, harpe_gpus *gpus,
                                      const harpe_log *log, harpe_error *error);

/* ---- peer.c: clients ------------------------------------------------------------------------- */

enum { HARPE_PEER_GROUPS = 256, HARPE_PEER_TEXT = 96 };

typedef struct harpe_peer {
    pid_t process; /* its number in the process namespace of this process */
    uid_t user;
    gid_t group;
    int pidfd;                 /* -1: not open */
    char command[32];          /* name of its program, at most 15 characters of it */
    char job[HARPE_PEER_TEXT]; /* "Slurm job 12", "pod 0123...", or ""; "... (as it says)" if only
                                * the process itself says so */
} harpe_peer;

/* Describes the process that has connected to `socket`. Fails with HARPE_PERMISSION_DENIED if this
 * process cannot see the other process, and with HARPE_NOT_FOUND if the other process has ended.
 * The caller closes the result with harpe_peer_close. */
harpe_status harpe_peer_open(int socket, harpe_peer *out, harpe_error *error);
void harpe_peer_close(harpe_peer *peer);

/* Writes the groups of the process that has connected to `socket`, at most HARPE_PEER_GROUPS.
 * Returns their number. */
size_t harpe_peer_groups(int socket, gid_t groups[HARPE_PEER_GROUPS]);

bool harpe_peer_has_ended(const harpe_peer *peer);

/* Returns true if the process runs as root or as the user of this process, and has all capabilities
 * `needed`, a bit for each. Root in a container has fewer capabilities. */
bool harpe_peer_may_administer(const harpe_peer *peer, uint64_t needed);

/* Finds the effective capabilities in the text of /proc/PID/status. */
bool harpe_peer_parse_capabilities(const char *status, uint64_t *capabilities);

/* Finds the job in the text of /proc/PID/cgroup. `job` becomes "" if there is none. */
void harpe_peer_parse_job(const char *cgroups, char job[HARPE_PEER_TEXT]);

/* Notes the Slurm job that the process itself names, if the kernel reports no job; the kernel
 * reports none if Slurm does not use cgroups. The process can write any number, so the number is
 * only for people. Does nothing if `slurm_job` is NULL or not the number of a job. */
void harpe_peer_note_job(harpe_peer *peer, const char *slurm_job);

/* A limit of how often each user may do something, such as ask for a lease. A user begins with a
 * credit of four times the limit per second, and one more. Each request uses one of the credit, and
 * the credit grows by the limit each second. */
enum { HARPE_AGENT_RATE_USERS = 64 };

typedef struct harpe_agent_rate {
    uid_t user;
    harpe_credit credit; /* requests that are allowed now; at_ns 0: not in use */
} harpe_agent_rate;

/* The users who asked last. A user who was dropped from this table begins again with a full credit.
 */
typedef struct harpe_agent_rates {
    harpe_agent_rate users[HARPE_AGENT_RATE_USERS];
} harpe_agent_rates;

/* Counts a request of the user. Returns false if the request exceeds the limit. `per_second` 0: no
 * limit. */
bool harpe_agent_rates_allow(harpe_agent_rates *rates, uid_t user, double per_second,
                             int64_t now_ns);

/* Writes the path of the GPU's device node. Returns false if the GPU is emulated and has no device
 * node. Then no proof is needed. */
bool harpe_agent_device_node(const harpe_agent_policy *policy, const harpe_gpus *gpus, int gpu,
                             char *path, size_t size);
/* What is known of a descriptor that a client has sent. */
typedef struct harpe_agent_node_proof {
    bool is_open; /* for reading and writing */
    struct stat status;
} harpe_agent_node_proof;

/* Examines a descriptor; -1: there is none. This may take long, because the descriptor can be of a
 * file system that the client itself serves. */
void harpe_agent_examine_node(int descriptor, harpe_agent_node_proof *out);
/* Checks that the examined descriptor is of the device node at `path`, and is open for reading and
 * writing. Fails with HARPE_PERMISSION_DENIED otherwise. */
harpe_status harpe_agent_check_node(const char *path, const harpe_agent_node_proof *proof,
                                    harpe_error *error);

/* ---- receiver.c: packets with descriptors ---------------------------------------------------- */

typedef enum harpe_packet {
    HARPE_PACKET_NONE,       /* there is none now */
    HARPE_PACKET_END,        /* nothing more can be read */
    HARPE_PACKET_PLAIN,      /* `*length` bytes; -1: longer than a request may be */
    HARPE_PACKET_WITH_FILES, /* the same, with descriptors, which are not received */
} harpe_packet;

/* Prepares a socket for harpe_packet_read. */
bool harpe_packet_prepare(int socket);
/* Reads a packet. If `is_look` is true, the packet stays in the socket. Never receives descriptors:
 * reading drops those of the packet, so look at a packet before reading it. Does not wait. */
harpe_packet harpe_packet_read(int socket, bool is_look, char text[HARPE_LEASE_MESSAGE_SIZE],
                               ssize_t *length);

/* A packet that the process has received. */
typedef struct harpe_received {
    ssize_t length; /* of its text; -1: it is longer than a request may be */
    int memory;     /* the memory that the request announces, if it is valid; -1: none */
    harpe_agent_node_proof node;
} harpe_received;

/* Starts a receiver for one packet, which examines the descriptors of the packet. Waits some
 * seconds for it, so call this function on a worker. The caller closes `*process`, a pidfd (-1: no
 * process was started), and `out->memory`. After a failure the receiver may still run. */
harpe_status harpe_receiver_receive(int socket, char text[HARPE_LEASE_MESSAGE_SIZE],
                                    harpe_received *out, int *process, harpe_error *error);
/* Starts a receiver that drops all packets of the socket. After success, closing the socket does
 * not wait, because the receiver has it too. */
harpe_status harpe_receiver_drop(int socket, int *process, harpe_error *error);

/* ---- samples.c: samples of the GPUs ---------------------------------------------------------- */

typedef struct harpe_agent_samples harpe_agent_samples;

/* The values of a sample, in the units of <harpe/gpu.h>. */
typedef enum harpe_sample_value {
    HARPE_SAMPLE_GRAPHICS_MHZ,
    HARPE_SAMPLE_MEMORY_MHZ,
    HARPE_SAMPLE_POWER_MW,
    HARPE_SAMPLE_MODULE_POWER_MW,
    HARPE_SAMPLE_ENERGY_MJ,
    HARPE_SAMPLE_POWER_LIMIT_MW,
    HARPE_SAMPLE_DEFAULT_POWER_LIMIT_MW,
    HARPE_SAMPLE_ENFORCED_POWER_LIMIT_MW,
    HARPE_SAMPLE_CELSIUS,
    HARPE_SAMPLE_REASONS, /* the driver's bit set of clock event reasons */
    HARPE_SAMPLE_MIG,     /* 1: MIG is enabled */
    HARPE_SAMPLE_PERSISTENCE,
    HARPE_SAMPLE_VALUES,
} harpe_sample_value;

typedef struct harpe_gpu_sample {
    int64_t taken_ns; /* harpe_clock_ns before the first value was read; 0: there is no sample */
    bool is_answered; /* false: the GPU is lost, or the driver answers no question */
    uint32_t has;     /* bit set of 1 << harpe_sample_value: the values that are known */
    uint64_t values[HARPE_SAMPLE_VALUES];
    harpe_mig_devices mig_devices; /* none, unless MIG is enabled */
} harpe_gpu_sample;

/* Returns true and writes the value if it is known. */
bool harpe_gpu_sample_get(const harpe_gpu_sample *sample, harpe_sample_value which,
                          uint64_t *value);

/* A request that waits for samples. The caller owns it, and keeps it until `done` or
 * harpe_agent_samples_leave was called. */
typedef struct harpe_sample_wait {
    void (*done)(void *user);
    void *user;
    struct harpe_sample_wait *next;      /* these members belong to samples.c */
    struct harpe_agent_samples *samples; /* NULL: does not wait */
    harpe_timer *limit;
    uint64_t number;
} harpe_sample_wait;

/* Starts a thread for each GPU. `loop` and `gpus` must outlive the samples. The threads log values
 * that a driver no longer says, or says again. */
harpe_status harpe_agent_samples_new(harpe_loop *loop, harpe_gpus *gpus, const harpe_log *log,
                                     harpe_agent_samples **out, harpe_error *error);
/* Ends the threads and frees the samples. NULL is allowed. Waits at most `wait_ms`. Returns false
 * if a driver call still hangs after this time. Then the caller must not free anything that the
 * threads use. */
bool harpe_agent_samples_free(harpe_agent_samples *samples, int64_t wait_ms);

/* Asks for new samples. Calls `wait->done` once: when all GPUs have new samples, or after 200 ms. A
 * GPU that has no new sample after this time keeps its last sample. Does not wait for a GPU whose
 * driver call has already taken longer than 200 ms. `done` may be called before this function
 * returns. */
void harpe_agent_samples_ask(harpe_agent_samples *samples, harpe_sample_wait *wait);
/* Stops waiting: `done` is not called any more. Does nothing if `wait` does not wait. */
void harpe_agent_samples_leave(harpe_sample_wait *wait);

/* Returns the last sample of a GPU. */
harpe_gpu_sample harpe_agent_samples_last(harpe_agent_samples *samples, int gpu);

/* ---- leases.c: files of leases --------------------------------------------------------------- */

typedef struct harpe_lease_record {
    uint64_t id;
    char uuid[96];
    harpe_saved_settings_kind control;
    int64_t since_s; /* seconds since 1970 */
    harpe_process_identity holder;
    harpe_process_identity helper; /* process 0: not started, or not known */
    uid_t user;
    char command[32];
    char job[HARPE_PEER_TEXT];
} harpe_lease_record;

/* Reads a record from text. Returns false if the text is not a valid record. */
bool harpe_lease_files_parse(const char *text, size_t length, harpe_lease_record *out);

/* ---- leases.c: leases ------------------------------------------------------------------------ */

typedef struct harpe_agent_leases harpe_agent_leases;
typedef struct harpe_lease_entry harpe_lease_entry;

/* A request for a lease. The caller owns it, and keeps it until `answer` or
 * harpe_agent_leases_leave was called. */
typedef struct harpe_lease_asker {
    int gpu;
    harpe_saved_settings_kind control;
    harpe_peer peer; /* closed by the owner */
    int memory;      /* descriptor of the slot, closed by the owner; -1: none */
    int64_t dwell_ns, poll_ns;
    bool waits;
    /* Called once. If `result` has the status HARPE_OK, the lease's socket and terms are valid.
     * Otherwise `result` says why there is no lease, and `lease` is NULL. The callee does not close
     * the socket. */
    void (*answer)(void *user, const harpe_error *result, const harpe_lease *lease);
    void *user;
    struct harpe_lease_asker *next; /* these three belong to leases.c */
    harpe_lease_entry *entry;
    harpe_timer *limit;
} harpe_lease_asker;

/* Makes the table. Continues the leases of an earlier agent, and restores the GPUs of leases whose
 * helper processes are gone. The agent must outlive the table. */
harpe_status harpe_agent_leases_new(const harpe_agent *agent, harpe_agent_leases **out,
                                    harpe_error *error);
/* Frees the table. The leases themselves continue. */
void harpe_agent_leases_free(harpe_agent_leases *leases);

/* Asks for a lease. */
void harpe_agent_leases_ask(harpe_agent_leases *leases, harpe_lease_asker *asker);
/* Withdraws a request that is not answered yet. If its lease is being started, the lease ends as
 * soon as it has started. */
void harpe_agent_leases_leave(harpe_lease_asker *asker);

/* Ends the leases of a GPU (-1: of all GPUs). Their helper processes restore the GPUs. Returns the
 * number of leases that end. Does not wait for their end. */
int harpe_agent_leases_end(harpe_agent_leases *leases, int gpu);
/* Refuses all waiting and all further requests. */
void harpe_agent_leases_close(harpe_agent_leases *leases);

/* Returns the number of leases that have not ended yet. */
int harpe_agent_leases_count(const harpe_agent_leases *leases);
/* Returns true if all leases have ended, except those whose GPU is lost. */
bool harpe_agent_leases_wait_for_reset(const harpe_agent_leases *leases);

typedef struct harpe_agent_lease_counts {
    uint64_t granted, refused;  /* requests */
    uint64_t ended;             /* leases */
    uint64_t restored_by_agent; /* leases whose helper process had left the GPU changed */
    uint64_t failures;          /* failed attempts to restore a GPU */
    int not_restored;           /* GPUs and kinds of control that are not restored yet */
} harpe_agent_lease_counts;
harpe_agent_lease_counts harpe_agent_leases_counts(const harpe_agent_leases *leases);

typedef struct harpe_lease_view {
    const harpe_lease_record *record; /* valid until the loop continues */
    bool is_lent;                     /* false: the lease is starting or ending */
    bool is_unrestored;               /* the last attempt to restore the GPU has failed */
    uint32_t wanted_mhz; /* the clock that the holder last requested; 0: none, or not known. The
                          * holder can write any number. */
} harpe_lease_view;

/* Describes the lease of a GPU and kind of control. Returns false if there is none. */
bool harpe_agent_leases_view(const harpe_agent_leases *leases, int gpu,
                             harpe_saved_settings_kind control, harpe_lease_view *out);

/* Lists the leases as a JSON array. If `user` is not -1, lists only the leases of this user. The
 * GPUs' clocks in the list come from the last samples. */
json_t *harpe_agent_leases_show(const harpe_agent_leases *leases, int64_t user,
                                harpe_agent_samples *samples);

/* ---- idle.c: GPUs that are loaded and have no work ------------------------------------------- */

typedef enum harpe_idle_step { HARPE_IDLE_STAY, HARPE_IDLE_HOLD, HARPE_IDLE_FREE } harpe_idle_step;

/* Whether a GPU is held: the rule has locked its clock. Initialise with zeros. */
typedef struct harpe_idle_state {
    bool is_held, must_free;
    bool is_used;          /* at the last look, while it is not held */
    int64_t unused_ns;     /* since when it has had no work; 0: it was not looked at */
    int64_t not_before_ns; /* it is not to be held before this time */
    uint32_t floor_mw;     /* lowest power since it is held; 0: not known */
} harpe_idle_state;

/* Takes what a look has shown: whether the GPU has worked lately, and its power (0: not known).
 * Returns what is to be done. The caller sets `*state` anew when it has held or freed the GPU. */
harpe_idle_step harpe_idle_take(harpe_idle_state *state, const harpe_idle_rule *rule, bool is_used,
                                uint32_t power_mw, int64_t now_ns);
/* Returns the time until the next look. */
int64_t harpe_idle_pause_ns(const harpe_idle_state *state, const harpe_idle_rule *rule,
                            int64_t now_ns);

typedef struct harpe_agent_idle harpe_agent_idle;

/* What others may know of a GPU. */
typedef struct harpe_idle_view {
    uint32_t clock_mhz; /* of the rule, as the GPU offers it; 0: there is no rule */
    bool is_held;
    uint64_t entries; /* how often it was held */
    int64_t held_ns;  /* how long, with the present hold */
} harpe_idle_view;

/* Starts a thread for each GPU that has a rule. The agent must outlive it. */
harpe_status harpe_agent_idle_new(const harpe_agent *agent, harpe_agent_idle **out,
                                  harpe_error *error);
/* Frees a GPU (-1: all GPUs) soon; after `is_last`, for ever. NULL is allowed for `idle`. */
void harpe_agent_idle_end(harpe_agent_idle *idle, int gpu, bool is_last);
/* Returns true if no thread runs any more. Then the memory may be freed. NULL is allowed. */
bool harpe_agent_idle_has_ended(harpe_agent_idle *idle);
void harpe_agent_idle_free(harpe_agent_idle *idle);
harpe_idle_view harpe_agent_idle_view(harpe_agent_idle *idle, int gpu);

/* ---- agent_life.c: zeusd's routes ------------------------------------------------------------ */

typedef struct harpe_agent_zeusd harpe_agent_zeusd;

/* Restores what clients of zeusd's routes hold on a GPU (-1: on all GPUs). Returns the number of
 * holders. Does not wait until the settings are restored. `zeusd` may be NULL. */
int harpe_agent_zeusd_end(harpe_agent_zeusd *zeusd, int gpu);
/* Fails with HARPE_ALREADY_EXISTS and a line that names the holder if a client of zeusd's routes
 * holds this control of the GPU. `zeusd` may be NULL. */
harpe_status harpe_agent_zeusd_check_free(harpe_agent_zeusd *zeusd, int gpu,
                                          harpe_saved_settings_kind control, harpe_error *error);
/* Lists the clients that hold settings as a JSON array. If `user` is not -1, lists only the clients
 * of this user. `zeusd` may be NULL. */
json_t *harpe_agent_zeusd_show(harpe_agent_zeusd *zeusd, int64_t user);

/* ---- metrics.c: names of users --------------------------------------------------------------- */

typedef struct harpe_user_names harpe_user_names;

/* `pool` is the number of a pool of `workers`, in which names are looked up. */
harpe_status harpe_user_names_new(harpe_workers *workers, int pool, harpe_user_names **out,
                                  harpe_error *error);
/* Call it when no worker runs any more. NULL is allowed. */
void harpe_user_names_free(harpe_user_names *names);

/* Returns the name of the user. If the name is not known, starts to look it up and returns "".
 * Returns "" also if the user has no name. The text is valid until the next call. */
const char *harpe_user_names_find(harpe_user_names *names, uid_t user);

/* ---- The agent ------------------------------------------------------------------------------- */

/* The pools of worker threads. */
enum {
    HARPE_AGENT_LEASE_POOL,
    HARPE_AGENT_CLIENT_POOL,
    HARPE_AGENT_READ_POOL,
    HARPE_AGENT_WRITE_POOL,
    HARPE_AGENT_RESTORE_POOL,
    HARPE_AGENT_NAME_POOL,
};

typedef struct harpe_agent_client harpe_agent_client;
typedef struct harpe_agent_receiver harpe_agent_receiver;
typedef struct harpe_agent_exporter harpe_agent_exporter;

struct harpe_agent {
    harpe_agent_options options;
    harpe_agent_policy policy;
    harpe_gpus *gpus;
    harpe_loop *loop;
    harpe_workers *workers;
    harpe_agent_leases *leases;
    harpe_agent_idle *idle;
    harpe_agent_zeusd *zeusd; /* NULL: zeusd's routes are not offered */
    harpe_agent_samples *samples;
    harpe_user_names *names;
    harpe_agent_exporter *exporter; /* NULL: /metrics is not wanted */
    harpe_agent_rates rates;
    int directory;  /* with the files of leases */
    int state_lock; /* shows that an agent uses the directory */
    int listener;
    harpe_unix_listener unix_listener; /* its file */
    harpe_watch *listener_watch;
    harpe_agent_client *clients; /* list of open connections */
    int client_count, most_clients;
    harpe_agent_receiver *receivers; /* list of processes that hold descriptors of clients */
    harpe_timer *accept_again; /* not NULL: the agent accepts no connection for a short time */
    bool is_stopping;
    bool has_no_workers; /* they were closed */
    harpe_patience stop_patience;
    uint64_t refused;          /* requests for a lease that the rules or other checks refuse */
    harpe_agent_rates said[2]; /* limits the log lines about refused requests of each user */
    uint64_t unsaid;           /* refused requests that were not logged since the last log line */
    int64_t started_s;         /* seconds since 1970 */
    uint64_t capabilities;     /* of the agent at its start; an administrator has them too */
};

/* ---- agent_clients.c: connections ------------------------------------------------------------ */

/* Listens on the socket and answers requests. Removes an old socket on which no process listens.
 * Fails with HARPE_ALREADY_EXISTS if the path is in use. */
harpe_status harpe_agent_listen(harpe_agent *agent, harpe_error *error);
/* Closes the listening socket and removes its file. */
void harpe_agent_stop_listening(harpe_agent *agent);
/* Closes a connection to another socket of the agent, whose unread packets have descriptors. `user`
 * is the agent. */
void harpe_agent_drop_socket(void *user, int socket);
/* Closes all connections. Workers close the sockets. */
void harpe_agent_close_clients(harpe_agent *agent);
/* Frees connections whose sockets no worker has closed. Call it when no worker runs. */
void harpe_agent_free_clients(harpe_agent *agent);

/* ---- metrics.c: /metrics --------------------------------------------------------------------- */

/* Starts to look up the names of the leases' users, which the text contains. */
void harpe_agent_metrics_prepare(harpe_agent *agent);

/* Listens on the address and port of the agent's options, and logs the address. The agent's loop,
 * leases, samples and names must outlive the exporter. */
harpe_status harpe_agent_exporter_new(harpe_agent *agent, harpe_agent_exporter **out,
                                      harpe_error *error);
void harpe_agent_exporter_free(harpe_agent_exporter *exporter); /* NULL is allowed */

#endif
