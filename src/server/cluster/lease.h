/* SPDX-License-Identifier: Apache-2.0 */
/* The times after which a server counts as dead and a leader stops answering. */
#ifndef HARPE_SERVER_CLUSTER_LEASE_H
#define HARPE_SERVER_CLUSTER_LEASE_H

#include <stdint.h>

/* A server sends a heartbeat every HARPE_HEARTBEAT_EVERY_NS. The other servers remove a server
 * whose heartbeat has not changed for HARPE_HEARTBEAT_DEAD_NS. A leader answers only if the
 * database has confirmed it within HARPE_LEASE_NS, so a server that was suspended does not continue
 * as leader. All times are in ns. */
#define HARPE_HEARTBEAT_EVERY_NS INT64_C(500000000)
#define HARPE_HEARTBEAT_DEAD_NS INT64_C(6000000000)
#define HARPE_LEASE_NS INT64_C(2000000000)

#endif
