/* SPDX-License-Identifier: Apache-2.0 */
/* Takes a lease of a GPU's settings from the node agent (`harpe agent`) of this machine. The agent
 * has the privilege to change settings. It starts a helper process that carries out the holder's
 * requests and restores the GPU at the end. The holder gets a socket to the helper process, so the
 * lease continues if the agent is killed. The lease ends when the holder closes the socket or ends,
 * or when the agent is stopped or ends the lease.
 *
 * Each message between a process and the agent is one JSON object in one packet (SOCK_SEQPACKET).
 * src/agent answers the requests. */
#ifndef HARPE_LEASE_LEASE_H
#define HARPE_LEASE_LEASE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include <harpe/gpu.h>
#include <harpe/status.h>

#include "gpu/saved_settings.h"

/* The terms of a lease: the limits within which the holder may set the GPU, and the clock locks
 * that the GPU gets at the end. The node agent passes them to the helper process of the lease. A
 * limit of 0 means that there is no limit. */
typedef struct harpe_lease_terms {
    uint32_t is_lease; /* 0: no lease, and no other member is used */
    uint32_t lowest_mhz, highest_mhz;
    uint32_t lowest_mw, highest_mw;
    int64_t shortest_change_ns; /* shortest real time between two changes */
    harpe_default_locks locks;
} harpe_lease_terms;

/* Fails if the terms forbid a clock (in MHz) or a power limit (in mW). */
harpe_status harpe_lease_terms_check(const harpe_lease_terms *terms, harpe_setting setting,
                                     uint32_t value, harpe_error *error);

#define HARPE_AGENT_SOCKET_PATH "/run/harpe/agent.sock"

enum {
    HARPE_LEASE_VERSION = 1,         /* of the messages */
    HARPE_LEASE_MESSAGE_SIZE = 8192, /* bytes of a request, at most */
    HARPE_LEASE_ANSWER_SIZE = 1 << 20,
    HARPE_LEASE_SOCKET_SIZE = 108, /* of sun_path in sockaddr_un */
};

/* A lease permits one kind of setting: HARPE_SAVED_CLOCKS permits graphics clocks, through the slot
 * of a frequency controller, and HARPE_SAVED_POWER the power limit and the persistence mode,
 * through harpe_lease_power_set. A GPU has at most one holder for each kind. */

typedef struct harpe_lease_request {
    const char *uuid;
    harpe_saved_settings_kind control;
    int memory;                  /* descriptor of the slot; -1: none (HARPE_SAVED_POWER) */
    int64_t dwell_ns, poll_ns;   /* HARPE_SAVED_CLOCKS; see harpe_controller_header */
    bool waits;                  /* wait while another process has the lease */
    int timeout_ms;              /* 0: 30 s; negative: no limit */
    const atomic_bool *gives_up; /* stops waiting when it becomes true; may be NULL */
} harpe_lease_request;

typedef struct harpe_lease {
    int socket;      /* to the helper process; the caller closes it to end the lease */
    int32_t process; /* process id of the helper process, in the agent's namespace */
    harpe_lease_terms terms;
} harpe_lease;

/* Returns the path of the agent's socket: `given`, or else $HARPE_AGENT_SOCKET, or else the default
 * path. */
const char *harpe_lease_agent_socket(const char *given);

/* Writes the path of the agent's socket: $HARPE_AGENT_SOCKET, or else HARPE_AGENT_SOCKET_PATH.
 * Returns false if no agent is to be used: if the variable is empty, if the variable is not set and
 * the GPUs are emulated, or if there is no file at the path. */
bool harpe_lease_find_agent(const harpe_gpus *gpus, char socket[HARPE_LEASE_SOCKET_SIZE]);

/* Takes a lease. Fails with HARPE_UNAVAILABLE if no agent answers at the path, with
 * HARPE_PERMISSION_DENIED and a line with the reason if the agent refuses, with
 * HARPE_ALREADY_EXISTS if another process has the lease, with HARPE_INTERRUPTED soon after
 * `*gives_up` became true, and with the failures of the driver. */
harpe_status harpe_lease_take(const char *socket, const harpe_lease_request *request,
                              harpe_lease *out, harpe_error *error);

/* Reads the limits of the agent's rules for a GPU. Writes zeros, which stand for no limit, if no
 * agent answers. Waits at most some seconds. */
void harpe_lease_read_limits(const char *socket, const char *uuid, harpe_lease_terms *out);

/* Sends one request without descriptors and waits for the answer. `request` is released. The caller
 * releases `*answer`, which is an object. Fails with the status and the message of the answer. */
harpe_status harpe_lease_ask(const char *socket, json_t *request, int timeout_ms, json_t **answer,
                             harpe_error *error);

/* ---- A lease of the kind HARPE_SAVED_POWER --------------------------------------------------- */

/* The holder sends a request on the socket of the lease, and receives a harpe_error with the
 * result. One thread at a time may use the socket. */
typedef enum harpe_lease_power_setting {
    HARPE_LEASE_POWER_LIMIT = 1, /* value in mW */
    HARPE_LEASE_PERSISTENCE = 2, /* value 0 or 1 */
} harpe_lease_power_setting;

typedef struct harpe_lease_power_request {
    uint32_t setting, value;
} harpe_lease_power_request;

/* Makes a request, and waits until the driver has carried it out. Fails with HARPE_UNAVAILABLE if
 * the lease has ended, and with HARPE_PERMISSION_DENIED if its terms forbid the value. */
harpe_status harpe_lease_power_set(int socket, harpe_lease_power_setting setting, uint32_t value,
                                   harpe_error *error);

#endif
