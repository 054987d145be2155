/* SPDX-License-Identifier: Apache-2.0 */
/* The server's side and the client's side of the Unix socket beside an SQLite store. */
#include "server/store/store_control.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/passed_files.h"
#include "base/process.h"
#include "base/wait.h"
#include "server/store/sqlite_files.h"

/* Makes an address. The path in an address has at most 107 bytes, so the directory is named by a
 * descriptor (/proc/self/fd/N). `*directory` is -1 if the address needs none. */
static harpe_status make_address(const char *path, struct sockaddr_un *address, int *directory,
                                 harpe_error *error) {
    const harpe_store_files *files = harpe_store_files_of(path);
    *directory = -1;
    if (files) {
        int failure = files->address(path, address);
        return failure ? harpe_fail_errno(error, failure, "%s", path) : HARPE_OK;
    }
    char *parent = harpe_path_parent(path);
    if (!parent) return harpe_fail_memory(error);
    *directory = open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
    harpe_status status = *directory < 0 ? harpe_fail_errno(error, errno, "%s", parent) : HARPE_OK;
    free(parent);
    if (status != HARPE_OK) return status;
    const char *slash = strrchr(path, '/');
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    int length = snprintf(address->sun_path, sizeof address->sun_path, "/proc/self/fd/%d/%s",
                          *directory, slash ? slash + 1 : path);
    if (length < (int)sizeof address->sun_path) return HARPE_OK;
    (void)close(*directory);
    return harpe_fail(error, HARPE_LIMIT_EXCEEDED,
                      "%s: the name of the file is too long for a socket", path);
}

harpe_status harpe_store_control_listen(const char *path, int waiting, int *listener,
                                        harpe_error *error) {
    struct sockaddr_un address;
    int directory;
    harpe_status status = make_address(path, &address, &directory, error);
    if (status != HARPE_OK) return status;
    int file = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* bind gives the socket's mode to the file that it makes. */
    if (file < 0 || fchmod(file, 0600) != 0 ||
        bind(file, (const struct sockaddr *)&address, sizeof address) != 0 ||
        listen(file, waiting) != 0) {
        status = harpe_fail_errno(error, errno, "cannot listen on %s", path);
        if (file >= 0) (void)close(file);
    } else {
        *listener = harpe_process_holds(file);
    }
    if (directory >= 0) (void)close(directory);
    return status;
}

void harpe_store_control_answer(int client, int file, const char *text) {
    struct iovec part = {.iov_base = (void *)text, .iov_len = strlen(text)};
    harpe_passed_files files = {{file}, file >= 0};
    /* This does not block, because the message fits into the empty buffer. An error means that the
     * client has disconnected. */
    (void)harpe_passed_files_send(client, &part, 1, &files, MSG_DONTWAIT);
}

static harpe_status receive(int server, const char *path, int wait_s, int *file,
                            harpe_error *error) {
    char text[HARPE_ERROR_MESSAGE_SIZE];
    struct iovec part = {.iov_base = text, .iov_len = sizeof text - 1};
    harpe_passed_files files;
    int flags;
    struct pollfd answer = {.fd = server, .events = POLLIN};
    int ready = harpe_poll(&answer, 1, wait_s * INT64_C(1000000000));
    if (ready == 0) errno = EAGAIN;
    ssize_t length =
        ready <= 0 ? -1 : harpe_passed_files_receive(server, &part, 1, 1, &files, 0, &flags);
    if (length < 0 && errno == EINTR)
        return harpe_fail(error, HARPE_INTERRUPTED, "interrupted; nothing was written");
    if (length < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return harpe_fail(error, HARPE_UNAVAILABLE,
                          "%s: the server has not answered for %d s; is it stopped?", path, wait_s);
    if (length <= 0)
        return harpe_fail(error, HARPE_UNAVAILABLE, "%s: the server ended before it answered",
                          path);
    text[length] = '\0';
    if (files.count == 0) return harpe_fail(error, HARPE_IO_ERROR, "%s", text);
    *file = files.each[0];
    return HARPE_OK;
}

harpe_status harpe_store_control_connect(const char *path, int wait_s, int *connection,
                                         harpe_error *error) {
    struct sockaddr_un address;
    int directory;
    harpe_status status = make_address(path, &address, &directory, error);
    if (status != HARPE_OK) return status;
    const struct timeval limit = {.tv_sec = wait_s};
    int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (server < 0 || setsockopt(server, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0 ||
        setsockopt(server, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0)
        status = harpe_fail_errno(error, errno, "cannot make a socket");
    else if (connect(server, (const struct sockaddr *)&address, sizeof address) != 0)
        status = errno == ENOENT || errno == ECONNREFUSED
                     ? harpe_fail(error, HARPE_NOT_FOUND, "%s: no server listens", path)
                     : harpe_fail_errno(error, errno, "%s", path);
    if (directory >= 0) (void)close(directory);
    if (status != HARPE_OK && server >= 0) (void)close(server);
    if (status == HARPE_OK) *connection = server;
    return status;
}

harpe_status harpe_store_control_ask(const char *path, int wait_s, int *file, harpe_error *error) {
    int server;
    harpe_status status = harpe_store_control_connect(path, wait_s, &server, error);
    if (status != HARPE_OK) return status;
    if (send(server, "b", 1, MSG_NOSIGNAL) != 1)
        status = harpe_fail_errno(error, errno, "%s", path);
    else
        status = receive(server, path, wait_s, file, error);
    (void)close(server);
    return status;
}
