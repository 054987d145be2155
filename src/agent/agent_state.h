/* SPDX-License-Identifier: Apache-2.0 */
/* The state of the node agent, which belongs to the thread of its loop. */
#ifndef HARPE_AGENT_AGENT_STATE_H
#define HARPE_AGENT_AGENT_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/agent.h"
#include "agent/agent_zeusd.h"
#include "agent/leases.h"
#include "agent/policy.h"
#include "agent/rates.h"
#include "agent/samples.h"
#include "agent/user_names.h"
#include "base/unix_socket.h"
#include "base/wait.h"

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

typedef struct harpe_agent {
    harpe_agent_options options;
    harpe_agent_policy policy;
    harpe_gpus *gpus;
    harpe_loop *loop;
    harpe_workers *workers;
    harpe_agent_leases *leases;
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
} harpe_agent;

#endif
