/* SPDX-License-Identifier: Apache-2.0 */
/* The client's side of a lease: finds the agent, proves that this process may use the GPU, and
 * receives the socket to the helper process. */
#include "lease/lease.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/helper_process.h"
#include "base/passed_files.h"
#include "base/process.h"
#include "base/wait.h"

enum { TIMEOUT_MS = 30000, LIMITS_MS = 3000, CONNECT_MS = 5000, LOOK_MS = 50, BUSY_NS = 5000000 };

harpe_status harpe_lease_terms_check(const harpe_lease_terms *terms, harpe_setting setting,
                                     uint32_t value, harpe_error *error) {
    bool is_limit = setting == HARPE_SET_POWER_LIMIT;
    uint32_t lowest = is_limit ? terms->lowest_mw : terms->lowest_mhz;
    uint32_t highest = is_limit ? terms->highest_mw : terms->highest_mhz;
    uint32_t unit = is_limit ? 1000 : 1;
    bool is_low = lowest > 0 && value < lowest;
    if (!is_low && (highest == 0 || value <= highest)) return HARPE_OK;
    return harpe_fail(
        error, HARPE_PERMISSION_DENIED,
        "the node agent refuses %.10g %s: its rule %s_%s is %u; its administrator can "
        "change the rule",
        (double)value / unit, is_limit ? "W" : "MHz", is_low ? "lowest" : "highest",
        is_limit ? "power_limit_w" : "clock_mhz", (is_low ? lowest : highest) / unit);
}

/* ---- Finding --------------------------------------------------------------------------------- */

const char *harpe_lease_agent_socket(const char *given) {
    const char *variable = secure_getenv("HARPE_AGENT_SOCKET");
    if (given) return given;
    return variable && *variable ? variable : HARPE_AGENT_SOCKET_PATH;
}

bool harpe_lease_find_agent(const harpe_gpus *gpus, char socket[HARPE_LEASE_SOCKET_SIZE]) {
    const char *path = secure_getenv("HARPE_AGENT_SOCKET");
    if (!path && gpus && harpe_gpus_are_emulated(gpus)) return false;
    if (!path) path = HARPE_AGENT_SOCKET_PATH;
    struct stat status;
    if (!*path || strlen(path) >= HARPE_LEASE_SOCKET_SIZE || stat(path, &status) != 0) return false;
    memcpy(socket, path, strlen(path) + 1);
    return S_ISSOCK(status.st_mode);
}

/* ---- Connection ------------------------------------------------------------------------------ */

static harpe_status fail_unreachable(const char *path, int failure, harpe_error *error) {
    return harpe_fail(error, HARPE_UNAVAILABLE, "the node agent at '%s' does not answer (%s)", path,
                      strerror(failure));
}

/* Checks that the agent belongs to root or to this user. */
static harpe_status check_owner(int socket, const char *path, harpe_error *error) {
    struct ucred peer;
    if (!harpe_process_peer(socket, &peer))
        return harpe_fail_errno(error, errno, "the node agent at '%s'", path);
    if (peer.uid == 0 || peer.uid == geteuid()) return HARPE_OK;
    return harpe_fail(error, HARPE_PERMISSION_DENIED,
                      "the node agent at '%s' is run by another user (uid %lu), who is not root",
                      path, (unsigned long)peer.uid);
}

static harpe_status connect_to(const char *path, int *out, harpe_error *error) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, path, strlen(path) + 1);
    int opened = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (opened < 0) return harpe_fail_errno(error, errno, "connecting to the node agent");
    (void)harpe_process_holds(opened);
    double give_up_at = harpe_clock_s() + CONNECT_MS / 1e3;
    while (harpe_process_connect(opened, (struct sockaddr *)&address, sizeof address) != 0) {
        int failure = errno;
        bool is_busy = failure == EAGAIN || failure == EINTR; /* the agent's queue is full */
        if (!is_busy || harpe_clock_s() > give_up_at) {
            harpe_process_close(opened);
            return fail_unreachable(path, failure, error);
        }
        harpe_sleep_ns(BUSY_NS);
    }
    harpe_status status = check_owner(opened, path, error);
    if (status != HARPE_OK) {
        harpe_process_close(opened);
        return status;
    }
    *out = opened;
    return HARPE_OK;
}

/* ---- Messages -------------------------------------------------------------------------------- */

static harpe_status send_request(int socket, const json_t *request, const harpe_passed_files *files,
                                 harpe_error *error) {
    char *text = json_dumps(request, JSON_COMPACT);
    if (!text) return harpe_fail_memory(error);
    struct iovec data = {text, strlen(text)};
    ssize_t sent;
    do {
        sent = harpe_passed_files_send(socket, &data, 1, files, 0);
    } while (sent < 0 && errno == EINTR);
    int failure = errno;
    free(text);
    if (sent < 0) return harpe_fail_errno(error, failure, "asking the node agent");
    return HARPE_OK;
}

/* Receives one answer and its descriptor. Writes -1 if the answer has no descriptor. */
static harpe_status receive_answer(int socket, json_t **out, int *descriptor, harpe_error *error) {
    char *text = malloc(HARPE_LEASE_ANSWER_SIZE);
    if (!text) return harpe_fail_memory(error);
    struct iovec data = {text, HARPE_LEASE_ANSWER_SIZE};
    harpe_passed_files passed;
    int flags;
    ssize_t got = harpe_passed_files_receive(socket, &data, 1, 1, &passed, 0, &flags);
    *out = got > 0 && !(flags & MSG_TRUNC) ? json_loadb(text, (size_t)got, 0, NULL) : NULL;
    free(text);
    if (json_is_object(*out)) {
        *descriptor = passed.count > 0 ? passed.each[0] : -1;
        return HARPE_OK;
    }
    json_decref(*out);
    *out = NULL;
    if (passed.count > 0) harpe_process_close(passed.each[0]);
    return got <= 0 ? harpe_fail(error, HARPE_UNAVAILABLE, "the node agent has ended")
                    : harpe_fail(error, HARPE_IO_ERROR, "the node agent's answer is not readable");
}

/* Waits until an answer can be read. */
static harpe_status wait_for_answer(int socket, int timeout_ms, const atomic_bool *gives_up,
                                    harpe_error *error) {
    if (timeout_ms == 0) timeout_ms = TIMEOUT_MS;
    double give_up_at = harpe_clock_s() + timeout_ms / 1e3;
    struct pollfd answer = {.fd = socket, .events = POLLIN};
    while (harpe_poll(&answer, 1, LOOK_MS * INT64_C(1000000)) <= 0) {
        if (gives_up && atomic_load(gives_up))
            return harpe_fail(error, HARPE_INTERRUPTED, "stopped waiting for the node agent");
        if (timeout_ms > 0 && harpe_clock_s() > give_up_at)
            return harpe_fail(error, HARPE_UNAVAILABLE,
                              "the node agent has not answered for %.0f s: does the driver answer?",
                              timeout_ms / 1e3);
    }
    return HARPE_OK;
}

/* Returns the status that an answer names. */
static harpe_status check_answer(const json_t *answer, harpe_error *error) {
    harpe_status status = (harpe_status)json_integer_value(json_object_get(answer, "status"));
    const char *text = json_string_value(json_object_get(answer, "message"));
    if (status == HARPE_OK) return HARPE_OK;
    return harpe_fail(error, status, "%s", text ? text : "the node agent refuses");
}

static harpe_status exchange(int socket, const json_t *request, int timeout_ms, json_t **answer,
                             harpe_error *error) {
    int descriptor = -1;
    harpe_status status = send_request(socket, request, &(harpe_passed_files){.count = 0}, error);
    if (status == HARPE_OK) status = wait_for_answer(socket, timeout_ms, NULL, error);
    if (status == HARPE_OK) status = receive_answer(socket, answer, &descriptor, error);
    if (descriptor >= 0) harpe_process_close(descriptor);
    if (status == HARPE_OK) status = check_answer(*answer, error);
    if (status != HARPE_OK) {
        json_decref(*answer);
        *answer = NULL;
    }
    return status;
}

harpe_status harpe_lease_ask(const char *socket, json_t *request, int timeout_ms, json_t **answer,
                             harpe_error *error) {
    int opened = -1;
    *answer = NULL;
    harpe_status status = request ? HARPE_OK : harpe_fail_memory(error);
    if (status == HARPE_OK) status = connect_to(socket, &opened, error);
    if (status == HARPE_OK) status = exchange(opened, request, timeout_ms, answer, error);
    if (opened >= 0) harpe_process_close(opened);
    json_decref(request);
    return status;
}

/* ---- Limits ---------------------------------------------------------------------------------- */

static uint32_t number(const json_t *answer, const char *key) {
    return (uint32_t)json_integer_value(json_object_get(answer, key));
}

/* Reads the limits that an answer contains. */
static harpe_lease_terms read_limits(const json_t *answer) {
    return (harpe_lease_terms){.is_lease = 1,
                               .lowest_mhz = number(answer, "lowest_clock_mhz"),
                               .highest_mhz = number(answer, "highest_clock_mhz"),
                               .lowest_mw = number(answer, "lowest_power_limit_mw"),
                               .highest_mw = number(answer, "highest_power_limit_mw")};
}

void harpe_lease_read_limits(const char *socket, const char *uuid, harpe_lease_terms *out) {
    json_t *answer = NULL;
    json_t *request = json_pack("{s:i,s:s}", "version", HARPE_LEASE_VERSION, "request", "status");
    *out = (harpe_lease_terms){.is_lease = 0};
    if (harpe_lease_ask(socket, request, LIMITS_MS, &answer, NULL) != HARPE_OK) return;
    const json_t *gpus = json_object_get(answer, "gpus");
    for (size_t i = 0; i < json_array_size(gpus); i++) {
        const json_t *gpu = json_array_get(gpus, i);
        const char *found = json_string_value(json_object_get(gpu, "uuid"));
        if (found && strcmp(found, uuid) == 0) *out = read_limits(gpu);
    }
    json_decref(answer);
}

/* ---- Taking a lease -------------------------------------------------------------------------- */

/* Opens the GPU's device node for reading and writing. The descriptor proves to the agent that this
 * process may use the GPU: the node's file permissions, and the process's mount namespace and
 * device cgroup, allow it. Writes -1 if the agent names no node. */
static harpe_status open_node(int socket, const char *uuid, int *node, harpe_error *error) {
    json_t *answer = NULL;
    json_t *request =
        json_pack("{s:i,s:s,s:s}", "version", HARPE_LEASE_VERSION, "request", "node", "gpu", uuid);
    *node = -1;
    if (!request) return harpe_fail_memory(error);
    harpe_status status = exchange(socket, request, 0, &answer, error);
    json_decref(request);
    if (status != HARPE_OK) return status;
    const char *path = json_string_value(json_object_get(answer, "node"));
    if (path) *node = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (path && *node < 0)
        status = harpe_fail(error, HARPE_PERMISSION_DENIED,
                            "this process cannot open '%s' (%s), so the node agent does not lend "
                            "it the GPU",
                            path, strerror(errno));
    json_decref(answer);
    return status;
}

static void read_grant(const json_t *answer, int socket, harpe_lease *out) {
    *out = (harpe_lease){.socket = socket,
                         .process = (int32_t)number(answer, "process"),
                         .terms = read_limits(answer)};
}

static harpe_status ask_for_lease(int socket, const harpe_lease_request *request, int node,
                                  harpe_lease *out, harpe_error *error) {
    harpe_passed_files files = {.count = 0};
    if (request->memory >= 0) files.each[files.count++] = request->memory;
    if (node >= 0) files.each[files.count++] = node;
    json_t *json = json_pack("{s:i,s:s,s:s,s:s,s:b,s:b,s:I,s:I,s:b,s:s*}", "version",
                             HARPE_LEASE_VERSION, "request", "lease", "gpu", request->uuid,
                             "control", harpe_saved_settings_kind_name(request->control), "memory",
                             request->memory >= 0, "node", node >= 0, "dwell_ns",
                             (json_int_t)request->dwell_ns, "poll_ns", (json_int_t)request->poll_ns,
                             "wait", request->waits, "slurm_job", secure_getenv("SLURM_JOB_ID"));
    if (!json) return harpe_fail_memory(error);
    json_t *answer = NULL;
    int passed = -1;
    harpe_status status = send_request(socket, json, &files, error);
    json_decref(json);
    if (status == HARPE_OK)
        status = wait_for_answer(socket, request->timeout_ms, request->gives_up, error);
    if (status == HARPE_OK) status = receive_answer(socket, &answer, &passed, error);
    if (status == HARPE_OK) status = check_answer(answer, error);
    if (status == HARPE_OK && passed < 0)
        status = harpe_fail(error, HARPE_IO_ERROR, "the node agent's answer has no socket");
    if (status == HARPE_OK)
        read_grant(answer, passed, out);
    else if (passed >= 0)
        harpe_process_close(passed);
    json_decref(answer);
    return status;
}

harpe_status harpe_lease_take(const char *socket, const harpe_lease_request *request,
                              harpe_lease *out, harpe_error *error) {
    int opened = -1;
    int node = -1;
    harpe_status status = connect_to(socket, &opened, error);
    if (status == HARPE_OK) status = open_node(opened, request->uuid, &node, error);
    if (status == HARPE_OK) status = ask_for_lease(opened, request, node, out, error);
    if (node >= 0) close(node);
    if (opened >= 0) harpe_process_close(opened);
    return status;
}

/* ---- A lease of power limits ----------------------------------------------------------------- */

harpe_status harpe_lease_power_set(int socket, harpe_lease_power_setting setting, uint32_t value,
                                   harpe_error *error) {
    harpe_lease_power_request request = {.setting = setting, .value = value};
    harpe_error answer;
    if (!harpe_helper_process_send(socket, &request, sizeof request) ||
        !harpe_helper_process_receive(socket, &answer, sizeof answer, TIMEOUT_MS))
        return harpe_fail(error, HARPE_UNAVAILABLE,
                          "the node agent's lease of a GPU's power limit has ended");
    answer.message[sizeof answer.message - 1] = '\0';
    if (answer.status != HARPE_OK && error) *error = answer;
    return answer.status;
}
