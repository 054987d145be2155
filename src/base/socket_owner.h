/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the kernel which user owns a TCP socket of this machine. The server uses it to learn who
 * connected from a loopback address; a client uses it to learn who listens there. A socket belongs
 * to the user whose process made it. The source is netlink (sock_diag), or /proc/self/net where
 * netlink is refused. Only one thread at a time may use it. */
#ifndef HARPE_BASE_SOCKET_OWNER_H
#define HARPE_BASE_SOCKET_OWNER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <harpe/status.h>

typedef struct harpe_socket_owners {
    int netlink_fd; /* -1: read /proc instead */
    uint32_t sequence;
    bool has_unmapped; /* one uid of this user namespace stands for all users of other namespaces */
    uid_t unmapped;    /* that uid, if has_unmapped */
} harpe_socket_owners;

/* Finds a source that knows the listening socket `listen_fd` of this process and its owner. Fails
 * with HARPE_NOT_SUPPORTED if there is no such source. */
harpe_status harpe_socket_owners_open(harpe_socket_owners *owners, int listen_fd,
                                      harpe_error *error);
/* Closes the source. A struct that was never opened must have netlink_fd = -1. */
void harpe_socket_owners_close(harpe_socket_owners *owners);

/* Finds the user who owns the other end of the connected TCP socket `fd`, if that end is on this
 * machine and a process still has it open. Returns false if the owner is not certain. The answer
 * is false after the connection has ended, so it cannot name a process that reuses the address. */
bool harpe_socket_owner_of_peer(harpe_socket_owners *owners, int fd, uid_t *uid);

/* Finds the user who listens on a port of a numeric loopback address. Returns false if the user is
 * not known. */
bool harpe_socket_owner_of_listener(const char *address, int port, uid_t *uid);

#endif
