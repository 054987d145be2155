/* SPDX-License-Identifier: Apache-2.0 */
/* Listens on a Unix socket that has a path, and finds the process at the other end of a connection.
 * A socket file that a killed server has left is removed; a socket on which a program listens is
 * not. For programs only, not for the library. */
#ifndef HARPE_BASE_UNIX_SOCKET_H
#define HARPE_BASE_UNIX_SOCKET_H

#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <harpe/status.h>

typedef struct harpe_unix_listener {
    char path[108]; /* "": it does not listen */
    dev_t device;   /* of the socket's file, so that only this file is removed */
    ino_t inode;
} harpe_unix_listener;

/* Makes a non-blocking socket of a type (SOCK_STREAM, SOCK_SEQPACKET) that listens at the path, and
 * writes its descriptor to `*fd`. The file gets the mode `mode`. Servers that start at the same
 * time do not remove each other's sockets. Fails with HARPE_ALREADY_EXISTS if a program listens
 * there, or if the file is not a socket. */
harpe_status harpe_unix_listen(const char *path, int type, mode_t mode, int backlog,
                               harpe_unix_listener *listener, int *fd, harpe_error *error);
/* Removes the socket's file, unless another server has replaced it. Close the descriptor
 * afterwards with harpe_process_close. */
void harpe_unix_remove(const harpe_unix_listener *listener);

/* Accepts a connection. The socket is non-blocking. Returns -1 with errno if there is none. The
 * caller closes it with harpe_process_close. */
int harpe_unix_accept(int listener);

/* Returns the pidfd of the process that has connected, or -1. Linux 6.5 and newer know it. On older
 * systems, the process number can belong to a new process if the peer has ended since it connected.
 * A new process of another user is refused. The caller closes the descriptor. */
int harpe_unix_peer_pidfd(int fd);
/* Writes the groups of the process that has connected, at most `most`. Returns their number. */
size_t harpe_unix_peer_groups(int fd, gid_t *groups, size_t most);

#endif
