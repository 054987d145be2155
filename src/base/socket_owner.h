/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the kernel which user owns a TCP socket of this machine. The server uses it to learn who
 * connected from a loopback address; a client uses it to learn who listens there. A socket belongs
 * to the user whose process made it. The source is netlink (sock_diag), or /proc/self/net where
 * netlink is refused. One thread at a time. */
#ifndef HARPE_BASE_SOCKET_OWNER_H
#define HARPE_BASE_SOCKET_OWNER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <harpe/status.h>

typedef struct harpe_socket_owners {
    int netlink_fd; /* -1: /proc is read */
    uint32_t sequence;
    bool has_unmapped; /* in this user namespace a uid may stand for users of other namespaces */
    uid_t unmapped;    /* then it is this one */
} harpe_socket_owners;

/* Finds a source that knows `listen_fd`, a listening socket of this process, and its owner. Fails
 * with HARPE_NOT_SUPPORTED if there is none. */
harpe_status harpe_socket_owners_open(harpe_socket_owners *owners, int listen_fd,
                                      harpe_error *error);
/* A struct that was never opened must have netlink_fd = -1. */
void harpe_socket_owners_close(harpe_socket_owners *owners);

/* The user who owns the other end of the connected TCP socket `fd`, if that end is on this machine
 * and a process still has it open. False: it is not known for certain. Another process cannot have
 * taken the place of the one that connected: if the connection has ended, the answer is false. */
bool harpe_socket_owner_of_peer(harpe_socket_owners *owners, int fd, uid_t *uid);

/* The user who listens on a port of a numeric loopback address. False: it is not known. */
bool harpe_socket_owner_of_listener(const char *address, int port, uid_t *uid);

#endif
