/* SPDX-License-Identifier: Apache-2.0 */
/* The connections of the node agent. Each packet is one request, and each request gets one answer.
 * This file checks everything that arrives: which process asks, whether the rules allow the
 * request, and whether the descriptors are valid. */
#include "agent/agent_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/passed_files.h"
#include "base/process.h"
#include "client/control.h"
#include "gpu/gpus.h"

/* One event at a time, because a worker may read the request. */
#define CLIENT_EVENTS (EPOLLIN | EPOLLONESHOT)

enum {
    BACKLOG = 128,
    MOST_CLIENTS = 1024,
    MOST_CLIENTS_OF_USER = 128,
    TURNED_AWAY = 128, /* refused connections above the limit that may wait for their close */
    CLIENT_DEADLINE_S = 60,
    RECEIVERS_OF_USER = 8, /* processes that wait for descriptors of one user */
    FILES_OF_CLIENT = 6,   /* socket, pidfds, memory, and the channel of a process */
    OTHER_FILES = 256,
    ENOUGH_FILES = FILES_OF_CLIENT * MOST_CLIENTS + OTHER_FILES,
    REFUSALS_PER_SECOND = 1, /* log lines about each user, after a first burst of five */
    PAUSE_MS = 50,           /* pause after running out of descriptors or memory */
    IDLE_MS = 60000,         /* age at which a connection without an open request is closed */
};

struct harpe_agent_client {
    harpe_agent *agent;
    harpe_agent_client *previous, *next;
    int socket;
    harpe_watch *watch;
    harpe_timer *idle;
    harpe_peer peer;
    gid_t groups[HARPE_PEER_GROUPS];
    size_t group_count;
    harpe_lease_asker asker;
    bool has_asked; /* the asker waits for its answer */
    bool is_busy;   /* a request is being taken, perhaps by a worker; it writes the members below */
    bool is_closing; /* the socket is closed when the client is not busy */
    harpe_work work;
    json_t *request;    /* NULL: there was none, or it is not JSON */
    harpe_error failed; /* the request could not be received */
    int process;        /* pidfd of the process that has received it; -1: none */
    int memory;         /* descriptor of the request's memory, if the memory is valid; -1: none */
    harpe_agent_node_proof node;
    harpe_sample_wait samples; /* a request for the status waits for them */
};

/* ---- Connections ----------------------------------------------------------------------------- */

static void submit(harpe_agent_client *client, void (*work)(void *user), void (*done)(void *user)) {
    client->is_busy = true;
    client->work = (harpe_work){.work = work,
                                .done = done,
                                .user = client,
                                .pool = HARPE_AGENT_CLIENT_POOL,
                                .subject = (const char *)client};
    harpe_workers_submit(client->agent->workers, &client->work);
}

/* A process that holds descriptors of a user (receiver.c). */
struct harpe_agent_receiver {
    harpe_agent *agent;
    harpe_agent_receiver *next;
    uid_t user;
    int process; /* pidfd */
    harpe_watch *watch;
};

static void forget_receiver(void *user, uint32_t events) {
    harpe_agent_receiver *self = user;
    harpe_agent_receiver **link = &self->agent->receivers;
    (void)events;
    while (*link != self)
        link = &(*link)->next;
    *link = self->next;
    harpe_watch_remove(self->watch);
    (void)close(self->process);
    free(self);
}

/* Counts the process that has received descriptors until it ends. */
static void keep_receiver(harpe_agent_client *client) {
    harpe_agent *agent = client->agent;
    harpe_agent_receiver *self = client->process >= 0 ? harpe_calloc(1, sizeof *self) : NULL;
    if (self) {
        *self = (harpe_agent_receiver){agent, agent->receivers, client->peer.user, client->process,
                                       NULL};
        agent->receivers = self;
        if (harpe_loop_watch(agent->loop, self->process, EPOLLIN, forget_receiver, self,
                             &self->watch, NULL) != HARPE_OK)
            forget_receiver(self, 0);
    } else if (client->process >= 0) {
        (void)close(client->process);
    }
    client->process = -1;
}

static int receivers_of(const harpe_agent *agent, uid_t user) {
    int count = 0;
    for (const harpe_agent_receiver *each = agent->receivers; each; each = each->next)
        count += each->user == user;
    return count;
}

static void free_client(void *user) {
    harpe_agent_client *client = user;
    harpe_agent *agent = client->agent;
    if (client->previous)
        client->previous->next = client->next;
    else
        agent->clients = client->next;
    if (client->next) client->next->previous = client->previous;
    agent->client_count--;
    keep_receiver(client);
    if (client->memory >= 0) harpe_process_close(client->memory);
    json_decref(client->request);
    free(client);
}

static void close_on_worker(void *user) {
    const harpe_agent_client *client = user;
    harpe_process_close(client->socket);
}

static void drop_and_close(void *user) {
    harpe_agent_client *client = user;
    (void)harpe_receiver_drop(client->socket, &client->process, NULL);
    harpe_process_close(client->socket);
}

/* The last close of a socket drops the packets that nobody has read, with their descriptors, and
 * may wait. So it is left to another process; only if there are too many of them, or none can be
 * started, it happens on a worker. */
static void close_with_files(harpe_agent_client *client) {
    uid_t user = client->peer.user;
    bool is_one_too_many = user != 0 && receivers_of(client->agent, user) >= RECEIVERS_OF_USER;
    submit(client, is_one_too_many ? close_on_worker : drop_and_close, free_client);
}

/* Closes the socket of a client that is not busy, and frees the client. */
static void close_socket(harpe_agent_client *client) {
    char text[HARPE_LEASE_MESSAGE_SIZE];
    ssize_t length;
    harpe_packet packet;
    (void)shutdown(client->socket, SHUT_RD); /* from now on, no packet can be sent */
    while ((packet = harpe_packet_read(client->socket, true, text, &length)) == HARPE_PACKET_PLAIN)
        (void)harpe_packet_read(client->socket, false, text, &length);
    if (packet == HARPE_PACKET_WITH_FILES) {
        close_with_files(client);
        return;
    }
    harpe_process_close(client->socket);
    free_client(client);
}

/* Closes a connection. It counts as a connection until its socket is closed. */
static void close_client(harpe_agent_client *client) {
    if (client->is_closing) return;
    client->is_closing = true;
    if (client->has_asked) harpe_agent_leases_leave(&client->asker);
    harpe_agent_samples_leave(&client->samples);
    if (client->asker.memory >= 0) harpe_process_close(client->asker.memory);
    client->asker.memory = -1;
    harpe_timer_cancel(client->idle);
    client->idle = NULL;
    harpe_watch_remove(client->watch);
    client->watch = NULL;
    harpe_peer_close(&client->peer);
    if (!client->is_busy) close_socket(client);
}

static void idle_too_long(void *user) {
    harpe_agent_client *client = user;
    client->idle = NULL;
    if (!client->has_asked || harpe_loop_after(client->agent->loop, IDLE_MS, idle_too_long, client,
                                               &client->idle, NULL) != HARPE_OK)
        close_client(client);
}

/* Sends an answer. A client that does not read its answers is closed. `json` is released. Returns
 * false if the client was closed. */
static bool send_answer(harpe_agent_client *client, json_t *json, int descriptor) {
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    struct iovec data = {text, text ? strlen(text) : 0};
    harpe_passed_files files = {{descriptor}, descriptor >= 0};
    bool is_sent =
        text && harpe_passed_files_send(client->socket, &data, 1, &files, MSG_DONTWAIT) >= 0;
    free(text);
    if (!is_sent) close_client(client);
    return is_sent;
}

static json_t *failure(const harpe_error *error) {
    return json_pack("{s:i,s:i,s:s}", "version", HARPE_LEASE_VERSION, "status", (int)error->status,
                     "message", error->message);
}

static void say_refused(harpe_agent *agent, const harpe_peer *peer, const harpe_error *error) {
    char more[64] = "";
    agent->refused++;
    /* Refusals because of a rate have a limit of their own. So a flood of requests does not hide
     * other refusals in the log, and other refusals do not hide the flood. */
    harpe_agent_rates *said = &agent->said[error->status == HARPE_LIMIT_EXCEEDED];
    if (!harpe_agent_rates_allow(said, peer->user, REFUSALS_PER_SECOND, harpe_clock_ns())) {
        agent->unsaid++;
        return;
    }
    if (agent->unsaid > 0)
        (void)snprintf(more, sizeof more, " (%" PRIu64 " refusals before it have no line)",
                       agent->unsaid);
    agent->unsaid = 0;
    harpe_log_line(&agent->options.log, HARPE_LOG_WARNING,
                   "refused process %ld (%s, uid %lu%s%s): %s%s", (long)peer->process,
                   peer->command, (unsigned long)peer->user, *peer->job ? ", " : "", peer->job,
                   error->message, more);
}

/* ---- Leases ---------------------------------------------------------------------------------- */

static void answer_lease(void *user, const harpe_error *result, const harpe_lease *lease) {
    harpe_agent_client *client = user;
    client->has_asked = false;
    if (client->asker.memory >= 0) harpe_process_close(client->asker.memory);
    client->asker.memory = -1;
    json_t *json = lease
                       ? json_pack("{s:i,s:i,s:i,s:I,s:I,s:I,s:I}", "version", HARPE_LEASE_VERSION,
                                   "status", 0, "process", (int)lease->process, "lowest_clock_mhz",
                                   (json_int_t)lease->terms.lowest_mhz, "highest_clock_mhz",
                                   (json_int_t)lease->terms.highest_mhz, "lowest_power_limit_mw",
                                   (json_int_t)lease->terms.lowest_mw, "highest_power_limit_mw",
                                   (json_int_t)lease->terms.highest_mw)
                       : failure(result);
    (void)send_answer(client, json, lease ? lease->socket : -1);
}

static harpe_status check_memory(int memory, harpe_error *error) {
    if (memory >= 0) return HARPE_OK;
    return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                      "the request has no sealed memory of %zu bytes for clock requests: is the "
                      "library of the same version as the agent?",
                      sizeof(harpe_controller_slot));
}

static harpe_status find_gpu(const harpe_agent *agent, const char *uuid, int *out,
                             harpe_error *error) {
    for (int gpu = 0; uuid && gpu < harpe_gpus_count(agent->gpus); gpu++) {
        if (strcmp(harpe_gpu_info_at(agent->gpus, gpu)->uuid, uuid) != 0) continue;
        *out = gpu;
        return HARPE_OK;
    }
    return harpe_fail(error, HARPE_NOT_FOUND, "this machine has no GPU '%.100s'", uuid ? uuid : "");
}

static harpe_status check_allowed(harpe_agent_client *client, harpe_error *error) {
    const harpe_agent *agent = client->agent;
    if (harpe_agent_policy_allows(&agent->policy, client->peer.user, client->groups,
                                  client->group_count))
        return HARPE_OK;
    return harpe_fail(error, HARPE_PERMISSION_DENIED,
                      "the node agent lends no GPU to the user with uid %lu: its rules allow_users "
                      "and allow_groups do not name this user; its administrator can add the user",
                      (unsigned long)client->peer.user);
}

/* Checks that the process that has connected still runs. A connection can outlive this process if
 * another process has a copy of the descriptor. */
static harpe_status check_alive(const harpe_agent_client *client, harpe_error *error) {
    if (!harpe_peer_has_ended(&client->peer)) return HARPE_OK;
    return harpe_fail(error, HARPE_PERMISSION_DENIED,
                      "the process that has connected to the node agent has ended");
}

static bool is_administrator(const harpe_agent_client *client) {
    return harpe_peer_may_administer(&client->peer, client->agent->capabilities);
}

static harpe_status check_rate(harpe_agent_client *client, harpe_error *error) {
    harpe_agent *agent = client->agent;
    double per_second = agent->policy.leases_per_second;
    if (is_administrator(client) ||
        harpe_agent_rates_allow(&agent->rates, client->peer.user, per_second, harpe_clock_ns()))
        return HARPE_OK;
    return harpe_fail(error, HARPE_LIMIT_EXCEEDED,
                      "the user with uid %lu asks for more leases than the node agent's rule "
                      "leases_per_second allows (%g)",
                      (unsigned long)client->peer.user, per_second);
}

static harpe_status read_control(const json_t *request, harpe_saved_settings_kind *out,
                                 harpe_error *error) {
    const char *name = json_string_value(json_object_get(request, "control"));
    if (harpe_saved_settings_kind_find(name, out)) return HARPE_OK;
    return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                      "a lease is of \"clocks\" or \"power\", not of '%.40s'", name ? name : "");
}

static harpe_status prepare_lease(harpe_agent_client *client, const json_t *request,
                                  harpe_error *error) {
    const harpe_agent *agent = client->agent;
    harpe_lease_asker *asker = &client->asker;
    char path[HARPE_AGENT_DIRECTORY_SIZE + 32];
    harpe_peer_note_job(&client->peer, json_string_value(json_object_get(request, "slurm_job")));
    harpe_status status = check_allowed(client, error);
    if (status == HARPE_OK) status = check_alive(client, error);
    if (status == HARPE_OK) status = check_rate(client, error);
    if (status == HARPE_OK) status = read_control(request, &asker->control, error);
    if (status == HARPE_OK)
        status =
            find_gpu(agent, json_string_value(json_object_get(request, "gpu")), &asker->gpu, error);
    /* Root must prove this too, because root in a container may have no right to use the GPU. */
    if (status == HARPE_OK &&
        harpe_agent_device_node(&agent->policy, agent->gpus, asker->gpu, path, sizeof path))
        status = harpe_agent_check_node(path, &client->node, error);
    if (status == HARPE_OK && asker->control == HARPE_SAVED_CLOCKS)
        status = check_memory(client->memory, error);
    if (status == HARPE_OK)
        status = harpe_agent_zeusd_check_free(agent->zeusd, asker->gpu, asker->control, error);
    if (status != HARPE_OK) return status;
    asker->peer = client->peer;
    asker->dwell_ns = json_integer_value(json_object_get(request, "dwell_ns"));
    asker->poll_ns = json_integer_value(json_object_get(request, "poll_ns"));
    asker->waits = json_is_true(json_object_get(request, "wait"));
    asker->memory = client->memory;
    client->memory = -1;
    return HARPE_OK;
}

/* ---- Requests -------------------------------------------------------------------------------- */

static json_t *show_node(const harpe_agent_client *client, const json_t *request,
                         harpe_error *error) {
    const harpe_agent *agent = client->agent;
    char path[HARPE_AGENT_DIRECTORY_SIZE + 32];
    int gpu = 0;
    if (find_gpu(agent, json_string_value(json_object_get(request, "gpu")), &gpu, error) !=
        HARPE_OK)
        return NULL;
    bool is_needed = harpe_agent_device_node(&agent->policy, agent->gpus, gpu, path, sizeof path);
    return json_pack("{s:i,s:i,s:s?}", "version", HARPE_LEASE_VERSION, "status", 0, "node",
                     is_needed ? path : NULL);
}

static json_t *show_status(const harpe_agent_client *client) {
    const harpe_agent *agent = client->agent;
    bool shows_all = agent->policy.shows_others || is_administrator(client);
    harpe_agent_lease_counts counts = harpe_agent_leases_counts(agent->leases);
    uint64_t refused = counts.refused + agent->refused;
    json_t *gpus = json_array();
    for (int gpu = 0; gpu < harpe_gpus_count(agent->gpus); gpu++) {
        const harpe_gpu_info *info = harpe_gpu_info_at(agent->gpus, gpu);
        harpe_lease_terms terms = harpe_agent_policy_terms(&agent->policy, info);
        harpe_gpu_sample sample = harpe_agent_samples_last(agent->samples, gpu);
        uint64_t held_mhz = 0;
        bool is_known = harpe_gpu_sample_get(&sample, HARPE_SAMPLE_GRAPHICS_MHZ, &held_mhz);
        harpe_idle_view idle = harpe_agent_idle_view(agent->idle, gpu);
        (void)json_array_append_new(
            gpus, json_pack("{s:i,s:b,s:b,s:s,s:s,s:s,s:o,s:I,s:I,s:I,s:I,s:I,s:b}", "gpu",
                            info->driver_index, "lost", harpe_gpu_is_lost(agent->gpus, gpu),
                            "was_lost", harpe_gpu_was_lost(agent->gpus, gpu), "uuid", info->uuid,
                            "pci", info->pci_bus_id, "name", info->name, "held_mhz",
                            is_known ? json_integer((json_int_t)held_mhz) : json_null(),
                            "lowest_clock_mhz", (json_int_t)terms.lowest_mhz, "highest_clock_mhz",
                            (json_int_t)terms.highest_mhz, "lowest_power_limit_mw",
                            (json_int_t)terms.lowest_mw, "highest_power_limit_mw",
                            (json_int_t)terms.highest_mw, "idle_clock_mhz",
                            (json_int_t)idle.clock_mhz, "idle", idle.is_held));
    }
    return json_pack(
        "{s:i,s:i,s:i,s:b,s:o,s:o,s:o,s:{s:I,s:I,s:I,s:I,s:I,s:i}}", "version", HARPE_LEASE_VERSION,
        "status", 0, "process", (int)harpe_process_self(), "allowed",
        harpe_agent_policy_allows(&agent->policy, client->peer.user, client->groups,
                                  client->group_count),
        "gpus", gpus, "leases",
        harpe_agent_leases_show(agent->leases, shows_all ? -1 : (int64_t)client->peer.user,
                                agent->samples),
        "zeusd", harpe_agent_zeusd_show(agent->zeusd, shows_all ? -1 : (int64_t)client->peer.user),
        "counts", "granted", (json_int_t)counts.granted, "refused", (json_int_t)refused, "ended",
        (json_int_t)counts.ended, "restored_by_agent", (json_int_t)counts.restored_by_agent,
        "failures", (json_int_t)counts.failures, "not_restored", counts.not_restored);
}

static void answer_status(void *user) {
    harpe_agent_client *client = user;
    (void)send_answer(client, show_status(client), -1);
}

/* Answers when the clocks have been sampled. The client may be closed afterwards. */
static void ask_status(harpe_agent_client *client) {
    client->samples.done = answer_status;
    client->samples.user = client;
    harpe_agent_samples_ask(client->agent->samples, &client->samples);
}

static json_t *restore(harpe_agent_client *client, const json_t *request, harpe_error *error) {
    harpe_agent *agent = client->agent;
    const char *uuid = json_string_value(json_object_get(request, "gpu"));
    int gpu = -1;
    if (!is_administrator(client)) {
        error->status = harpe_fail(error, HARPE_PERMISSION_DENIED,
                                   "only root may end leases: run 'harpe agent restore' with sudo");
        return NULL;
    }
    if (uuid) error->status = find_gpu(agent, uuid, &gpu, error);
    if (uuid && error->status != HARPE_OK) return NULL;
    harpe_log_line(&agent->options.log, HARPE_LOG_INFO, "process %ld (uid %lu) ends leases",
                   (long)client->peer.process, (unsigned long)client->peer.user);
    harpe_agent_idle_end(agent->idle, gpu, false);
    return json_pack("{s:i,s:i,s:i}", "version", HARPE_LEASE_VERSION, "status", 0, "ended",
                     harpe_agent_leases_end(agent->leases, gpu) +
                         harpe_agent_zeusd_end(agent->zeusd, gpu));
}

static void lend(harpe_agent_client *client, const json_t *request) {
    harpe_error error = {.status = HARPE_OK};
    error.status = prepare_lease(client, request, &error);
    if (error.status != HARPE_OK) {
        say_refused(client->agent, &client->peer, &error);
        (void)send_answer(client, failure(&error), -1);
        return;
    }
    (void)harpe_user_names_find(client->agent->names, client->peer.user); /* for /metrics */
    client->has_asked = true;
    client->asker.answer = answer_lease;
    client->asker.user = client;
    harpe_agent_leases_ask(client->agent->leases, &client->asker);
}

/* Answers a request. The client may be closed afterwards. */
static void take_request(harpe_agent_client *client, const json_t *request) {
    const char *name = json_string_value(json_object_get(request, "request"));
    json_int_t version = json_integer_value(json_object_get(request, "version"));
    harpe_error error = {.status = HARPE_OK};
    json_t *answer = NULL;
    if (version != HARPE_LEASE_VERSION) {
        error.status = harpe_fail(&error, HARPE_NOT_SUPPORTED,
                                  "the node agent speaks version %d of its protocol, the client %d",
                                  HARPE_LEASE_VERSION, (int)version);
    } else if (client->has_asked || client->samples.samples) {
        error.status =
            harpe_fail(&error, HARPE_INVALID_ARGUMENT, "the last request has no answer yet");
    } else if (name && strcmp(name, "lease") == 0) {
        lend(client, request);
        return;
    } else if (name && strcmp(name, "node") == 0) {
        answer = show_node(client, request, &error);
    } else if (name && strcmp(name, "status") == 0) {
        ask_status(client);
        return;
    } else if (name && strcmp(name, "restore") == 0) {
        answer = restore(client, request, &error);
    } else {
        error.status = harpe_fail(&error, HARPE_INVALID_ARGUMENT, "there is no request '%.40s'",
                                  name ? name : "");
    }
    (void)send_answer(client, answer ? answer : failure(&error), -1);
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* Receives a packet with descriptors. Runs on a worker. */
static void receive_files(void *user) {
    harpe_agent_client *client = user;
    char text[HARPE_LEASE_MESSAGE_SIZE];
    harpe_received received;
    client->failed.status =
        harpe_receiver_receive(client->socket, text, &received, &client->process, &client->failed);
    if (client->failed.status == HARPE_OK && received.length < 0)
        client->failed.status = harpe_fail(&client->failed, HARPE_INVALID_ARGUMENT,
                                           "a request has at most %d bytes and %d descriptors",
                                           HARPE_LEASE_MESSAGE_SIZE, HARPE_PASSED_FILES_MAX);
    if (received.length > 0)
        client->request = json_loadb(text, (size_t)received.length, JSON_REJECT_DUPLICATES, NULL);
    client->memory = received.memory;
    client->node = received.node;
}

/* Answers the request, and waits for the next one. */
static void request_is_read(void *user) {
    harpe_agent_client *client = user;
    bool has_failed = client->failed.status != HARPE_OK;
    keep_receiver(client);
    if (!client->is_closing && has_failed)
        (void)send_answer(client, failure(&client->failed), -1);
    else if (!client->is_closing)
        take_request(client, client->request);
    json_decref(client->request);
    client->request = NULL;
    if (client->memory >= 0) harpe_process_close(client->memory);
    client->memory = -1;
    client->node = (harpe_agent_node_proof){.is_open = false};
    client->failed.status = HARPE_OK;
    client->is_busy = false;
    if (client->is_closing)
        close_socket(client);
    else if (has_failed || harpe_watch_change(client->watch, CLIENT_EVENTS, NULL) != HARPE_OK)
        close_client(client);
}

/* Decides what becomes of a packet with descriptors. Only requests for a lease need some. */
static void take_files(harpe_agent_client *client, const char *text, ssize_t length) {
    json_t *request = length > 0 ? json_loadb(text, (size_t)length, 0, NULL) : NULL;
    const char *name = json_string_value(json_object_get(request, "request"));
    bool is_lease = name && strcmp(name, "lease") == 0;
    json_decref(request);
    if (!is_lease) {
        client->failed.status =
            harpe_fail(&client->failed, HARPE_INVALID_ARGUMENT,
                       "only a request for a lease may have descriptors, and at most %d",
                       HARPE_PASSED_FILES_MAX);
    } else if (client->peer.user != 0 &&
               receivers_of(client->agent, client->peer.user) >= RECEIVERS_OF_USER) {
        client->failed.status =
            harpe_fail(&client->failed, HARPE_LIMIT_EXCEEDED,
                       "%d requests of the user with uid %lu have descriptors that do not answer: "
                       "end the file systems that hang",
                       RECEIVERS_OF_USER, (unsigned long)client->peer.user);
    } else {
        submit(client, receive_files, request_is_read);
        return;
    }
    request_is_read(client);
}

static void client_ready(void *user, uint32_t events) {
    harpe_agent_client *client = user;
    char text[HARPE_LEASE_MESSAGE_SIZE];
    ssize_t length = 0;
    (void)events;
    switch (harpe_packet_read(client->socket, true, text, &length)) {
    case HARPE_PACKET_NONE:
        if (harpe_watch_change(client->watch, CLIENT_EVENTS, NULL) != HARPE_OK)
            close_client(client);
        return;
    case HARPE_PACKET_PLAIN:
        (void)harpe_packet_read(client->socket, false, text, &length);
        if (length <= 0) break;
        client->is_busy = true;
        client->request = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, NULL);
        request_is_read(client);
        return;
    case HARPE_PACKET_WITH_FILES:
        client->is_busy = true;
        take_files(client, text, length);
        return;
    default: break;
    }
    close_client(client);
}

/* ---- Accepting ------------------------------------------------------------------------------- */

static int clients_of(const harpe_agent *agent, uid_t user) {
    int count = 0;
    for (const harpe_agent_client *each = agent->clients; each; each = each->next)
        count += each->peer.user == user;
    return count;
}

static harpe_status check_room(const harpe_agent *agent, const harpe_peer *peer,
                               harpe_error *error) {
    /* The list already contains the new connection. One connection in 16 is kept free for root. */
    bool is_root = peer->user == 0;
    int most = is_root ? agent->most_clients : agent->most_clients - agent->most_clients / 16;
    if (agent->client_count <= most &&
        (is_root || clients_of(agent, peer->user) <= MOST_CLIENTS_OF_USER))
        return HARPE_OK;
    return harpe_fail(error, HARPE_LIMIT_EXCEEDED,
                      "the node agent has no free connection for the user with uid %lu",
                      (unsigned long)peer->user);
}

/* Sends the reason to a client that is not accepted. */
static void turn_away(int socket, const harpe_error *error) {
    json_t *json = failure(error);
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    if (text) (void)send(socket, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT);
    free(text);
}

static harpe_status let_in(harpe_agent_client *client, harpe_error *error) {
    harpe_agent *agent = client->agent;
    if (!harpe_packet_prepare(client->socket))
        return harpe_fail_errno(error, errno, "preparing a connection");
    harpe_status status = harpe_peer_open(client->socket, &client->peer, error);
    if (status == HARPE_OK) status = check_room(agent, &client->peer, error);
    if (status != HARPE_OK) return status;
    client->group_count = harpe_peer_groups(client->socket, client->groups);
    status = harpe_loop_watch(agent->loop, client->socket, CLIENT_EVENTS, client_ready, client,
                              &client->watch, error);
    if (status != HARPE_OK) return status;
    return harpe_loop_after(agent->loop, IDLE_MS, idle_too_long, client, &client->idle, error);
}

static harpe_agent_client *add_client(harpe_agent *agent, int socket) {
    harpe_agent_client *client = harpe_calloc(1, sizeof *client);
    if (!client) return NULL;
    client->agent = agent;
    client->socket = socket;
    client->peer.pidfd = client->asker.memory = client->memory = client->process = -1;
    client->next = agent->clients;
    if (client->next) client->next->previous = client;
    agent->clients = client;
    agent->client_count++;
    return client;
}

static void accept_again(void *user) {
    harpe_agent *agent = user;
    agent->accept_again = NULL;
    (void)harpe_watch_change(agent->listener_watch, EPOLLIN, NULL);
}

/* Stops accepting connections for a short time. Without free descriptors or memory, accept() would
 * fail again and again. */
static void pause_accepting(harpe_agent *agent) {
    if (harpe_loop_after(agent->loop, PAUSE_MS, accept_again, agent, &agent->accept_again, NULL) ==
        HARPE_OK)
        (void)harpe_watch_change(agent->listener_watch, 0, NULL);
}

static void accept_client(void *user, uint32_t events) {
    harpe_agent *agent = user;
    harpe_error error;
    (void)events;
    if (agent->client_count >= agent->most_clients + TURNED_AWAY) {
        pause_accepting(agent);
        return;
    }
    int socket = harpe_unix_accept(agent->listener);
    bool is_out = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
    if (socket < 0 && is_out) pause_accepting(agent);
    if (socket < 0) return;
    harpe_agent_client *client = add_client(agent, socket);
    if (!client) {
        harpe_process_close(socket);
        return;
    }
    if (let_in(client, &error) == HARPE_OK) return;
    turn_away(socket, &error);
    close_client(client);
}

/* ---- Listening ------------------------------------------------------------------------------- */

/* Raises the limit of open files, and returns the number of clients for which it suffices. */
static int make_room(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return MOST_CLIENTS / 4;
    struct rlimit raised = {limit.rlim_max, limit.rlim_max};
    if (raised.rlim_cur > ENOUGH_FILES) raised.rlim_cur = ENOUGH_FILES;
    if (raised.rlim_cur > limit.rlim_cur && setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
    if (limit.rlim_cur >= ENOUGH_FILES) return MOST_CLIENTS;
    if (limit.rlim_cur <= OTHER_FILES) return 1;
    int most = (int)(limit.rlim_cur - OTHER_FILES) / FILES_OF_CLIENT;
    return most < MOST_CLIENTS ? most : MOST_CLIENTS;
}

harpe_status harpe_agent_listen(harpe_agent *agent, harpe_error *error) {
    const char *path = agent->options.socket;
    agent->most_clients = make_room();
    harpe_workers_limit(agent->workers, HARPE_AGENT_CLIENT_POOL, agent->most_clients + TURNED_AWAY,
                        CLIENT_DEADLINE_S);
    /* Everybody may connect. The rules decide who gets a lease. */
    harpe_status status = harpe_unix_listen(path, SOCK_SEQPACKET, 0666, BACKLOG,
                                            &agent->unix_listener, &agent->listener, error);
    if (status != HARPE_OK) return status;
    return harpe_loop_watch(agent->loop, agent->listener, EPOLLIN, accept_client, agent,
                            &agent->listener_watch, error);
}

void harpe_agent_stop_listening(harpe_agent *agent) {
    harpe_timer_cancel(agent->accept_again);
    agent->accept_again = NULL;
    harpe_watch_remove(agent->listener_watch);
    agent->listener_watch = NULL;
    if (agent->listener < 0) return;
    harpe_unix_remove(&agent->unix_listener);
    /* The close of the listener would drop the packets of connections that wait. */
    for (int socket; (socket = harpe_unix_accept(agent->listener)) >= 0;) {
        harpe_agent_client *client = add_client(agent, socket);
        if (client)
            close_client(client);
        else
            harpe_process_close(socket);
    }
    harpe_process_close(agent->listener);
    agent->listener = -1;
}

void harpe_agent_drop_socket(void *user, int socket) {
    harpe_agent *agent = user;
    harpe_agent_client *client = agent->has_no_workers ? NULL : add_client(agent, socket);
    struct ucred peer;
    if (!client) {
        int process = -1;
        (void)harpe_receiver_drop(socket, &process, NULL);
        if (process >= 0) (void)close(process);
        harpe_process_close(socket);
        return;
    }
    if (harpe_process_peer(socket, &peer)) client->peer.user = peer.uid;
    client->is_closing = true;
    close_with_files(client);
}

void harpe_agent_close_clients(harpe_agent *agent) {
    for (harpe_agent_client *next, *client = agent->clients; client; client = next) {
        next = client->next;
        close_client(client);
    }
}

void harpe_agent_free_clients(harpe_agent *agent) {
    for (harpe_agent_receiver *next, *each = agent->receivers; each; each = next) {
        next = each->next;
        forget_receiver(each, 0);
    }
    for (harpe_agent_client *next, *client = agent->clients; client; client = next) {
        next = client->next;
        free_client(client);
    }
}
