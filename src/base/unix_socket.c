/* SPDX-License-Identifier: Apache-2.0 */
/* Listens on Unix sockets, and asks the kernel who has connected. */
#include "base/unix_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#include "base/platform.h"
#include "base/process.h"
#include "base/wait.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* since Linux 6.5 */
#endif

enum {
    LOCK_TRIES = 200, /* of LOCK_PAUSE_NS each */
    LOCK_PAUSE_NS = 10000000,
};

/* ---- Listening ------------------------------------------------------------------------------- */

/* Locks the directory of the socket, so that two servers that start at the same time do not remove
 * each other's sockets. Another program could hold the lock for ever, so this gives up after 2 s.
 * Returns a descriptor, which may be -1. */
static int lock_directory(const char *path) {
    char *copy = strdup(path);
    int directory = copy ? open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    free(copy);
    if (directory >= 0) (void)harpe_process_holds(directory);
    for (int i = 0; directory >= 0 && i < LOCK_TRIES; i++) {
        if (flock(directory, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) break;
        harpe_sleep_ns(LOCK_PAUSE_NS);
    }
    return directory;
}

/* Connects to the socket. Returns 0 if a program listens there, or an errno. */
static int try_to_connect(const struct sockaddr_un *address, int type) {
    int fd = socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return errno;
    int failed = harpe_process_connect(fd, (const struct sockaddr *)address, sizeof *address) == 0
                     ? 0
                     : errno;
    close(fd);
    return failed == EAGAIN ? 0 : failed; /* EAGAIN: many clients wait to be accepted */
}

/* Removes a socket file on which nothing listens. */
static harpe_status remove_stale(const struct sockaddr_un *address, int type, harpe_error *error) {
    const char *path = address->sun_path;
    struct stat status;
    if (lstat(path, &status) != 0) {
        if (errno == ENOENT) return HARPE_OK;
        return harpe_fail_errno(error, errno, "cannot listen on %s", path);
    }
    if (!S_ISSOCK(status.st_mode))
        return harpe_fail(error, HARPE_ALREADY_EXISTS,
                          "cannot listen on %s: it exists and is not a socket; choose another path",
                          path);
    int failed = try_to_connect(address, type);
    if (failed == 0)
        return harpe_fail(error, HARPE_ALREADY_EXISTS,
                          "cannot listen on %s: another program listens there; end it or choose "
                          "another path",
                          path);
    if (failed == ENOENT) return HARPE_OK;
    if (failed != ECONNREFUSED)
        return harpe_fail_errno(error, failed,
                                "cannot listen on %s: it exists, and it is not certain that no "
                                "program listens there",
                                path);
    if (unlink(path) != 0 && errno != ENOENT)
        return harpe_fail_errno(error, errno, "cannot remove the old socket %s", path);
    return HARPE_OK;
}

static harpe_status fail_to_listen(int fd, int failed, const char *path, harpe_error *error) {
    close(fd);
    return harpe_fail_errno(error, failed, "cannot listen on %s", path);
}

/* Binds and listens. The descriptor's mode limits the mode of the file from its beginning. */
static harpe_status bind_and_listen(const struct sockaddr_un *address, int type, mode_t mode,
                                    int backlog, int *out, harpe_error *error) {
    const char *path = address->sun_path;
    int fd = socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return harpe_fail_errno(error, errno, "cannot make a socket for %s", path);
    if (fchmod(fd, mode) != 0 || bind(fd, (const struct sockaddr *)address, sizeof *address) != 0)
        return fail_to_listen(fd, errno, path, error);
    if (chmod(path, mode) != 0 || listen(fd, backlog) != 0) {
        int failed = errno;
        (void)unlink(path);
        return fail_to_listen(fd, failed, path, error);
    }
    *out = harpe_process_holds(fd);
    return HARPE_OK;
}

harpe_status harpe_unix_listen(const char *path, int type, mode_t mode, int backlog,
                               harpe_unix_listener *listener, int *fd, harpe_error *error) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat made = {0};
    size_t length = strlen(path);
    *listener = (harpe_unix_listener){.path = ""};
    if (length == 0 || length >= sizeof address.sun_path)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "cannot listen on the socket '%.200s': its path must have 1 to %zu bytes",
                          path, sizeof address.sun_path - 1);
    memcpy(address.sun_path, path, length + 1);
    int lock = lock_directory(path);
    harpe_status status = remove_stale(&address, type, error);
    if (status == HARPE_OK) status = bind_and_listen(&address, type, mode, backlog, fd, error);
    if (status == HARPE_OK) {
        memcpy(listener->path, path, length + 1);
        if (lstat(path, &made) == 0) {
            listener->device = made.st_dev;
            listener->inode = made.st_ino;
        }
    }
    if (lock >= 0) harpe_process_close(lock);
    return status;
}

void harpe_unix_remove(const harpe_unix_listener *listener) {
    struct stat found;
    if (listener->path[0] == '\0') return;
    int lock = lock_directory(listener->path);
    bool is_own = lstat(listener->path, &found) == 0 && found.st_dev == listener->device &&
                  found.st_ino == listener->inode;
    if (is_own) (void)unlink(listener->path);
    if (lock >= 0) harpe_process_close(lock);
}

int harpe_unix_accept(int listener) {
    return harpe_process_holds(accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

/* ---- Who connected --------------------------------------------------------------------------- */

/* Returns true if the process has this user as one of its users. */
static bool is_of_user(pid_t process, uid_t uid) {
    char path[64], line[256];
    bool is_found = false;
    (void)snprintf(path, sizeof path, "/proc/%ld/status", (long)process);
    FILE *file = fopen(path, "re");
    while (file && !is_found && fgets(line, sizeof line, file)) {
        if (strncmp(line, "Uid:", 4) != 0) continue;
        char *next = line + 4;
        for (int i = 0; i < 4; i++)
            is_found = strtoul(next, &next, 10) == uid || is_found;
        break;
    }
    if (file) (void)fclose(file);
    return is_found;
}

static int open_by_number(const struct ucred *peer) {
    if (peer->pid <= 0) return -1;
    int pidfd = harpe_process_open(peer->pid);
    if (pidfd < 0) return -1;
    if (is_of_user(peer->pid, peer->uid)) return pidfd;
    close(pidfd);
    return -1;
}

int harpe_unix_peer_pidfd(int fd) {
    struct ucred peer;
    int pidfd = -1;
    socklen_t length = sizeof pidfd;
    if (!harpe_process_peer(fd, &peer)) return -1;
    if (harpe_platform_in_use) return harpe_process_open(peer.pid);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &length) == 0) {
        (void)fcntl(pidfd, F_SETFD, FD_CLOEXEC);
        return pidfd;
    }
    return errno == ENOPROTOOPT ? open_by_number(&peer) : -1;
}

size_t harpe_unix_peer_groups(int fd, gid_t *groups, size_t most) {
    struct ucred peer;
    socklen_t size = (socklen_t)(most * sizeof *groups);
    size_t count = 0;
    if (!harpe_platform_in_use && getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &size) == 0)
        count = size / sizeof *groups;
    if (count < most && harpe_process_peer(fd, &peer)) groups[count++] = peer.gid;
    return count;
}
