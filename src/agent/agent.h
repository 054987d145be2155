/* SPDX-License-Identifier: Apache-2.0 */
/* The node agent: the only part of Harpe with privileges. It lends the settings of GPUs to
 * processes without privileges, and restores the GPUs when these processes end. docs/agent.md
 * describes it for administrators. */
#ifndef HARPE_AGENT_AGENT_H
#define HARPE_AGENT_AGENT_H

#include <stdbool.h>

#include <harpe/callback.h>
#include <harpe/status.h>

/* Initialise it with zeros, then set the members that you need. */
typedef struct harpe_agent_options {
    const char *socket;    /* NULL: HARPE_AGENT_SOCKET_PATH */
    const char *state_dir; /* for the files of leases; NULL: the one of gpu/saved_settings.h */
    const char *config;    /* NULL: see harpe_agent_policy_read */
    /* zeusd's routes (zeusd_internal.h). NULL: no such socket. */
    const char *zeusd_socket;    /* path */
    const char *zeusd_address;   /* numeric address for TCP */
    int zeusd_port;              /* 0: any free port, which is logged */
    const char *zeusd_key;       /* file with the key of tokens; needed for zeusd_address */
    bool zeusd_no_restore;       /* changes through these routes are not restored */
    const char *metrics_address; /* numeric address for /metrics; NULL: no /metrics */
    int metrics_port;            /* 0: any free port, which is logged */
    bool is_enclosed;            /* the process has other tasks, and keeps its privileges */
    harpe_log log;
} harpe_agent_options;

/* Runs the agent until SIGTERM, SIGINT or SIGHUP. Then ends all leases, which restores their GPUs.
 * Fails if the agent cannot start, or if a GPU is not restored in time. */
harpe_status harpe_agent_run(const harpe_agent_options *options, harpe_error *error);

/* Runs the process that receives packets with descriptors (receiver.c), which has this argument.
 * Returns its exit code. */
#define HARPE_RECEIVER_ARGUMENT "--agent-receiver"
int harpe_receiver_main(int argc, char **argv);

#endif
