/* SPDX-License-Identifier: Apache-2.0 */
/* Backups of a store that is in use. The server has the file open exclusively, so only the server
 * can copy it. A thread listens on the Unix socket FILE.control. For a client of the same user (or
 * root) it makes a consistent copy beside the store and sends a descriptor of the copy. The client
 * copies the data to its own file, so a slow or full disk of the client does not affect the server.
 *
 * The copy is made in small steps, and writes continue between the steps. If this connection makes
 * a change meanwhile, SQLite also makes it in the copy. */
#include "server/store/sqlite_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/passed_files.h"
#include "base/platform.h"
#include "base/process.h"
#include "base/wait.h"

/* ---- The socket ------------------------------------------------------------------------------ */

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

/* Listens on a socket with the name `path` and mode 0600. The path may have any length, but its
 * file name can have at most 80 bytes. */
static harpe_status store_control_listen(const char *path, int waiting, int *listener,
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

/* Answers a client. Never blocks for long. `file` is the descriptor of the copy, or -1 if there is
 * none. */
static void store_control_answer(int client, int file, const char *text) {
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

enum {
    STEP_PAGES = 64,         /* pages of one step (0.5 MiB); a write waits for one step at most */
    SPARE_BYTES = 128 << 20, /* free space that a backup must leave for the store */
    REQUEST_MS = 1000,       /* time in which a client must send its request */
    REFUSED_MS = 100,        /* pause after a client that could not be accepted */
    PAUSE_NS = 500000,       /* pause between steps, so that another thread can take the lock */
    WAITING_CLIENTS = 16,
};

struct harpe_sqlite_backups {
    harpe_sqlite *store;
    harpe_log log;
    harpe_store_name socket_path, copy_path;
    int listener, stop;
    atomic_bool is_stopping;
    pthread_t thread;
};

/* ---- The copy -------------------------------------------------------------------------------- */

/* Checks the free space. The copy is on the same disk as the store, and the server cannot continue
 * when this disk is full. */
static harpe_status check_room(const harpe_sqlite_backups *self, harpe_error *error) {
    int64_t pages = 0;
    harpe_sqlite *store = self->store;
    harpe_lock(&store->lock);
    harpe_status status = harpe_sqlite_integers(store, "PRAGMA page_count", &pages, 1, error);
    harpe_unlock(&store->lock);
    int64_t free_bytes = harpe_store_free_bytes(store->path.text);
    if (status != HARPE_OK || free_bytes < 0) return status;
    int64_t needed = pages * HARPE_SQLITE_PAGE_BYTES + SPARE_BYTES;
    if (free_bytes >= needed) return HARPE_OK;
    return harpe_fail(
        error, HARPE_IO_ERROR,
        "%s: a backup of a running server needs %lld MiB of room beside the store, and "
        "%lld MiB are free; make room, or stop the server first",
        store->name, (long long)(needed >> 20), (long long)(free_bytes >> 20));
}

static int copy_pages(sqlite3 *from, sqlite3 *copy, bool (*goes_on)(void *user), void *user) {
    sqlite3_backup *backup = sqlite3_backup_init(copy, "main", from, "main");
    int result = backup ? SQLITE_OK : sqlite3_errcode(copy);
    while (result == SQLITE_OK) {
        result = sqlite3_backup_step(backup, goes_on ? STEP_PAGES : -1);
        if (goes_on && !goes_on(user) && result == SQLITE_OK) result = SQLITE_INTERRUPT;
    }
    if (backup) (void)sqlite3_backup_finish(backup);
    return result == SQLITE_DONE ? SQLITE_OK : result;
}

int harpe_sqlite_copy(sqlite3 *from, const char *target, bool (*goes_on)(void *user), void *user) {
    sqlite3 *copy = NULL;
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX;
    int result = sqlite3_open_v2(target, &copy, flags, harpe_store_vfs(target));
    if (result == SQLITE_OK)
        result = sqlite3_exec(copy,
                              "PRAGMA locking_mode = EXCLUSIVE; PRAGMA synchronous = OFF;"
                              "PRAGMA journal_mode = OFF",
                              NULL, NULL, NULL);
    if (result == SQLITE_OK) result = copy_pages(from, copy, goes_on, user);
    if (result == SQLITE_OK)
        result = sqlite3_exec(copy,
                              "PRAGMA locking_mode = EXCLUSIVE; PRAGMA synchronous = OFF;"
                              "PRAGMA journal_mode = DELETE",
                              NULL, NULL, NULL);
    if (result == SQLITE_OK) {
        int code = sqlite3_exec(copy, "UPDATE store SET in_use = 0", NULL, NULL, NULL);
        /* After another error the copy is damaged, and its check says so. */
        if (code == SQLITE_FULL || code == SQLITE_IOERR) result = code;
    }
    (void)sqlite3_close(copy);
    return result;
}

/* Releases the lock for a moment, so that another thread can write. */
static bool pause_copy(void *user) {
    harpe_sqlite_backups *self = user;
    harpe_unlock(&self->store->lock);
    harpe_sleep_ns(PAUSE_NS);
    harpe_lock(&self->store->lock);
    return !self->is_stopping;
}

static harpe_status fill_copy(harpe_sqlite_backups *self, harpe_error *error) {
    harpe_sqlite *store = self->store;
    harpe_lock(&store->lock);
    int result = harpe_sqlite_copy(store->db, self->copy_path.text, pause_copy, self);
    harpe_unlock(&store->lock);
    if (result == SQLITE_OK) return HARPE_OK;
    return harpe_fail(error, HARPE_IO_ERROR, "%s: the backup failed: %s", store->name,
                      sqlite3_errstr(result));
}

static void remove_copy(const harpe_sqlite_backups *self) {
    static const char *const suffixes[] = {"", HARPE_STORE_LOG, HARPE_STORE_JOURNAL};
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++)
        harpe_store_remove(harpe_store_beside(self->copy_path.text, suffixes[i]).text);
}

/* Makes a copy and opens a descriptor of it. The file name of the copy is already removed on
 * return. */
static harpe_status make_copy(harpe_sqlite_backups *self, int *file, harpe_error *error) {
    harpe_status status = check_room(self, error);
    if (status != HARPE_OK) return status;
    remove_copy(self);
    const char *path = self->copy_path.text;
    int failure = harpe_store_create(path);
    if (failure) return harpe_fail_errno(error, failure, "%s", path);
    status = fill_copy(self, error);
    if (status == HARPE_OK) *file = harpe_store_open_file(path);
    if (status == HARPE_OK && *file < 0) status = harpe_fail_errno(error, errno, "%s", path);
    remove_copy(self);
    return status;
}

/* ---- Answers --------------------------------------------------------------------------------- */

static bool may_have_it(int client) {
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (getsockopt(client, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
    return peer.uid == geteuid() || peer.uid == 0;
}

/* Returns true if the client asks for a backup. Other clients only check whether a server
 * listens. */
static bool asks(const harpe_sqlite_backups *self, int client) {
    char byte;
    struct pollfd events[] = {{.fd = client, .events = POLLIN},
                              {.fd = self->stop, .events = POLLIN}};
    if (harpe_poll(events, 2, REQUEST_MS * INT64_C(1000000)) <= 0 || self->is_stopping)
        return false;
    return recv(client, &byte, 1, MSG_DONTWAIT) == 1;
}

static void answer(harpe_sqlite_backups *self, int client) {
    harpe_error error = {.message = "only the server's user and root get a backup"};
    int file = -1;
    if (may_have_it(client) && make_copy(self, &file, &error) != HARPE_OK)
        harpe_log_line(&self->log, HARPE_LOG_WARNING, "backup: %s", error.message);
    store_control_answer(client, file, file >= 0 ? "ok" : error.message);
    if (file >= 0) (void)close(file);
}

static void *serve_backups(void *user) {
    harpe_sqlite_backups *self = user;
    struct pollfd events[] = {{.fd = self->stop, .events = POLLIN},
                              {.fd = self->listener, .events = POLLIN}};
    while (!self->is_stopping) {
        if (harpe_poll(events, 2, -1) < 0 && errno != EINTR) break;
        if (self->is_stopping || !(events[1].revents & POLLIN)) continue;
        int client = accept4(self->listener, NULL, NULL, SOCK_CLOEXEC);
        if (client < 0) { /* for example, no descriptor is free */
            (void)harpe_poll(events, 1, REFUSED_MS * INT64_C(1000000));
            continue;
        }
        if (asks(self, client)) answer(self, client);
        (void)close(client);
    }
    return NULL;
}

/* ---- Life ------------------------------------------------------------------------------------ */

static void free_backups(harpe_sqlite_backups *self) {
    if (self->listener >= 0) (void)close(self->listener);
    if (self->stop >= 0) (void)close(self->stop);
    free(self);
}

static harpe_status start(harpe_sqlite_backups *self, harpe_error *error) {
    /* This server has the store open, so files with these names were left by a server that was
     * killed. */
    harpe_store_remove(self->socket_path.text);
    remove_copy(self);
    self->stop = eventfd(0, EFD_CLOEXEC);
    if (self->stop < 0) return harpe_fail_errno(error, errno, "cannot make an eventfd");
    harpe_status status =
        store_control_listen(self->socket_path.text, WAITING_CLIENTS, &self->listener, error);
    if (status != HARPE_OK) return status;
    int failed = harpe_thread_start(&self->thread, "harpe-backup", serve_backups, self);
    if (!failed) return HARPE_OK;
    harpe_store_remove(self->socket_path.text);
    return harpe_fail_errno(error, failed, "cannot start a thread");
}

void harpe_sqlite_backups_start(harpe_sqlite *store, harpe_log log) {
    harpe_sqlite_backups *self = harpe_calloc(1, sizeof *self);
    harpe_error error;
    if (!self) return;
    self->store = store;
    self->log = log;
    self->listener = self->stop = -1;
    self->socket_path = harpe_store_beside(store->path.text, HARPE_STORE_CONTROL);
    self->copy_path = harpe_store_beside(store->path.text, HARPE_STORE_SNAPSHOT);
    if (start(self, &error) == HARPE_OK) {
        store->backups = self;
        return;
    }
    harpe_log_line(&log, HARPE_LOG_WARNING,
                   "harpe store backup cannot copy the store while this server runs: %s",
                   error.message);
    free_backups(self);
}

void harpe_sqlite_backups_stop(harpe_sqlite_backups *backups) {
    if (!backups) return;
    backups->is_stopping = true;
    (void)eventfd_write(backups->stop, 1);
    harpe_thread_join(backups->thread);
    harpe_store_remove(backups->socket_path.text);
    free_backups(backups);
}
