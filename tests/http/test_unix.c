/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP server on a Unix socket: which files at the path are replaced and which are not, the
 * mode, who is at the other end, and two servers on one loop. */
#include "test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "http/http.h"

enum { TIMEOUT_S = 120, OTHER_UID = 12345, OTHER_GID = 23456 };

typedef struct served {
    harpe_http *http;
    struct served *other; /* the other server of the loop */
    harpe_http_request *held;
} served;

typedef struct world {
    char folder[40], path[60];
    harpe_loop *loop;
    served one, two;
    pthread_t thread;
    bool is_running;
} world;

/* ---- Server ---------------------------------------------------------------------------------- */

static void answer_text(harpe_http_request *request, const char *text) {
    harpe_http_answer(request, 200, "text/plain", (char *)(uintptr_t)text, strlen(text), false,
                      NULL);
}

/* "uid gid pid pidfd's pid" */
static void tell_peer(harpe_http_request *request) {
    char text[200] = "no peer", line[100];
    harpe_http_peer peer;
    if (harpe_http_peer_of(request, &peer)) {
        long of_pidfd = -2;
        int fd = harpe_http_peer_pidfd(request);
        (void)snprintf(line, sizeof line, "/proc/self/fdinfo/%d", fd);
        FILE *file = fd >= 0 ? fopen(line, "re") : NULL;
        while (file && fgets(line, sizeof line, file))
            if (strncmp(line, "Pid:", 4) == 0) of_pidfd = strtol(line + 4, NULL, 10);
        if (file) (void)fclose(file);
        if (fd >= 0) close(fd);
        (void)snprintf(text, sizeof text, "%u %u %ld %ld", peer.uid, peer.gid, (long)peer.process,
                       of_pidfd);
    }
    answer_text(request, text);
}

static void on_request(void *user, harpe_http_request *request) {
    served *self = user;
    const char *path = harpe_http_path(request);
    if (strcmp(path, "/peer") == 0) {
        tell_peer(request);
    } else if (strcmp(path, "/query") == 0) {
        const char *query = harpe_http_raw_query(request);
        answer_text(request, query ? query : "(none)");
    } else if (strcmp(path, "/hold") == 0) {
        self->held = request;
    } else if (strcmp(path, "/release-other") == 0) {
        /* The answer belongs to the other server, which has already done its work in this turn. */
        if (self->other->held) answer_text(self->other->held, "released");
        answer_text(request, self->other->held ? "yes" : "no");
        self->other->held = NULL;
    } else {
        answer_text(request, "hello");
    }
}

static void on_gone(void *user, harpe_http_request *request) {
    served *self = user;
    (void)request;
    self->held = NULL;
}

static harpe_status serve(world *w, served *self, harpe_http_options options, harpe_error *error) {
    harpe_http_handler handler = {.request = on_request, .gone = on_gone, .user = self};
    return harpe_http_new(w->loop, &options, &handler, &self->http, error);
}

static void *run_loop(void *user) {
    world *w = user;
    harpe_loop_run(w->loop, NULL);
    return NULL;
}

static void start(world *w, harpe_http_options options) {
    harpe_error error = {0};
    if (serve(w, &w->one, options, &error) != HARPE_OK) fail_msg("%s", error.message);
    assert_int_equal(pthread_create(&w->thread, NULL, run_loop, w), 0);
    w->is_running = true;
}

static void stop(world *w) {
    if (w->is_running) {
        harpe_loop_stop(w->loop);
        pthread_join(w->thread, NULL);
    }
    harpe_http_free(w->one.http);
    harpe_http_free(w->two.http);
    w->one.http = w->two.http = NULL;
    w->is_running = false;
}

static int set_up(void **state) {
    world *w = calloc(1, sizeof *w);
    (void)snprintf(w->folder, sizeof w->folder, "/tmp/harpe-test-unix-XXXXXX");
    if (!mkdtemp(w->folder)) return -1;
    (void)snprintf(w->path, sizeof w->path, "%s/socket", w->folder);
    w->one.other = &w->two;
    w->two.other = &w->one;
    *state = w;
    return harpe_loop_new(&w->loop, NULL) == HARPE_OK ? 0 : -1;
}

static int tear_down(void **state) {
    world *w = *state;
    stop(w);
    harpe_loop_free(w->loop);
    (void)unlink(w->path);
    int failed = rmdir(w->folder); /* no other file is left */
    free(w);
    return failed;
}

/* ---- Clients --------------------------------------------------------------------------------- */

static struct sockaddr_un address_of(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    return address;
}

static int dial(const char *path) {
    struct sockaddr_un address = address_of(path);
    struct timeval timeout = {TIMEOUT_S, 0};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0) return fd;
    close(fd);
    return -1;
}

static void say(int fd, const char *target) {
    char text[300];
    int length = snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", target);
    assert_int_equal(send(fd, text, (size_t)length, MSG_NOSIGNAL), length);
}

/* Receives one answer with a Content-Length. Returns its body, a static text. */
static const char *hear(int fd) {
    static char text[4096];
    size_t used = 0;
    for (;;) {
        ssize_t got = recv(fd, text + used, sizeof text - 1 - used, 0);
        if (got <= 0) return "(closed)";
        used += (size_t)got;
        text[used] = '\0';
        const char *end = strstr(text, "\r\n\r\n");
        const char *field = strstr(text, "content-length: ");
        if (!end || !field) continue;
        if (strlen(end + 4) >= strtoul(field + 16, NULL, 10)) return end + 4;
    }
}

static const char *ask(int fd, const char *target) {
    say(fd, target);
    return hear(fd);
}

static void expect_refusal(world *w, const char *part) {
    harpe_error error = {0};
    harpe_http_options options = {.unix_socket = w->path};
    assert_int_not_equal(serve(w, &w->two, options, &error), HARPE_OK);
    if (!strstr(error.message, part) || !strstr(error.message, w->path))
        fail_msg("'%s' lacks '%s'", error.message, part);
    assert_null(w->two.http);
}

/* ---- The file -------------------------------------------------------------------------------- */

#define FIXTURE_TEST(name) TEST_ON(name, world *w, set_up, tear_down)

FIXTURE_TEST(requests_are_answered) {
    start(w, (harpe_http_options){.unix_socket = w->path});
    int fd = dial(w->path);
    assert_string_equal(ask(fd, "/"), "hello");
    assert_string_equal(ask(fd, "/query?a=%2C&b=+"), "a=%2C&b=+");
    assert_string_equal(ask(fd, "/query?"), "");
    assert_string_equal(ask(fd, "/query"), "(none)");
    close(fd);
}

FIXTURE_TEST(the_mode_is_as_asked_whatever_the_umask) {
    static const struct {
        mode_t asked, made, mask;
    } modes[] = {{0, 0666, 0077}, {0600, 0600, 0}, {0660, 0660, 0022}, {0666, 0666, 0777}};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        struct stat status;
        mode_t before = umask(modes[i].mask);
        start(w, (harpe_http_options){.unix_socket = w->path, .unix_mode = modes[i].asked});
        umask(before);
        assert_int_equal(stat(w->path, &status), 0);
        assert_true(S_ISSOCK(status.st_mode));
        assert_int_equal(status.st_mode & 07777, modes[i].made);
        stop(w);
        assert_int_equal(lstat(w->path, &status), -1); /* the end removes the file */
    }
}

FIXTURE_TEST(a_stale_socket_is_replaced) {
    struct sockaddr_un address = address_of(w->path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(fd, 1), 0);
    close(fd); /* the file stays, as after kill -9 */
    start(w, (harpe_http_options){.unix_socket = w->path});
    fd = dial(w->path);
    assert_string_equal(ask(fd, "/"), "hello");
    close(fd);
}

FIXTURE_TEST(a_live_socket_is_an_error_and_stays) {
    start(w, (harpe_http_options){.unix_socket = w->path});
    expect_refusal(w, "another program listens");
    int fd = dial(w->path);
    assert_string_equal(ask(fd, "/"), "hello");
    close(fd);
}

/* A program whose queue of callers is full listens too. */
FIXTURE_TEST(a_busy_socket_is_an_error) {
    struct sockaddr_un address = address_of(w->path);
    int clients[8], count = 0;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(fd, 0), 0);
    for (; count < 8; count++) {
        clients[count] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
        if (connect(clients[count], (struct sockaddr *)&address, sizeof address) != 0) break;
    }
    assert_true(count < 8); /* the queue is full */
    expect_refusal(w, "another program listens");
    for (int i = 0; i <= count; i++)
        close(clients[i]);
    close(fd);
}

FIXTURE_TEST(other_files_are_an_error_and_stay) {
    struct stat status;
    int fd = open(w->path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, "mine", 4), 4);
    close(fd);
    expect_refusal(w, "not a socket");
    assert_int_equal(stat(w->path, &status), 0);
    assert_int_equal(status.st_size, 4);
    assert_int_equal(unlink(w->path), 0);

    assert_int_equal(mkdir(w->path, 0700), 0);
    expect_refusal(w, "not a socket");
    assert_int_equal(rmdir(w->path), 0);

    assert_int_equal(mkfifo(w->path, 0600), 0);
    expect_refusal(w, "not a socket");
    assert_int_equal(unlink(w->path), 0);

    assert_int_equal(symlink("/nonexistent", w->path), 0); /* also a link that leads nowhere */
    expect_refusal(w, "not a socket");
}

/* A datagram socket refuses a stream connection with another error than "refused". */
FIXTURE_TEST(a_socket_of_another_type_is_an_error) {
    struct sockaddr_un address = address_of(w->path);
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    expect_refusal(w, "not certain");
    close(fd);
}

FIXTURE_TEST(paths_that_do_not_fit_are_refused) {
    char path[300];
    harpe_error error = {0};
    memset(path, 'a', sizeof path);
    path[0] = '/';
    path[sizeof path - 1] = '\0';
    harpe_http_options options = {.unix_socket = path};
    assert_int_equal(serve(w, &w->two, options, &error), HARPE_INVALID_ARGUMENT);
    options.unix_socket = "";
    assert_int_equal(serve(w, &w->two, options, &error), HARPE_INVALID_ARGUMENT);
    options.unix_socket = "/nonexistent/harpe/socket";
    assert_int_not_equal(serve(w, &w->two, options, &error), HARPE_OK);
    assert_non_null(strstr(error.message, "/nonexistent/harpe/socket"));
}

/* Another server has replaced the file; its socket is not removed. */
FIXTURE_TEST(a_socket_of_another_server_is_not_removed) {
    struct stat status;
    start(w, (harpe_http_options){.unix_socket = w->path});
    assert_int_equal(unlink(w->path), 0);
    struct sockaddr_un address = address_of(w->path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    stop(w);
    assert_int_equal(lstat(w->path, &status), 0);
    close(fd);
}

/* Of several servers that start at the same time over a stale socket, exactly one listens. */
FIXTURE_TEST(only_one_of_many_servers_gets_the_path) {
    enum { SERVERS = 8, ROUNDS = 10 };
    for (int round = 0; round < ROUNDS; round++) {
        int ready[2], over[2], listening = 0;
        struct sockaddr_un address = address_of(w->path);
        int stale = socket(AF_UNIX, SOCK_STREAM, 0);
        assert_int_equal(bind(stale, (struct sockaddr *)&address, sizeof address), 0);
        close(stale);
        assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
        assert_int_equal(pipe2(over, O_CLOEXEC), 0);
        for (int i = 0; i < SERVERS; i++) {
            if (fork() != 0) continue;
            harpe_http_options options = {.unix_socket = w->path};
            char said = serve(w, &w->one, options, NULL) == HARPE_OK ? 'y' : 'n';
            close(over[1]);
            (void)!write(ready[1], &said, 1);
            (void)!read(over[0], &said, 1); /* stays alive until all have tried */
            _exit(0);
        }
        for (int i = 0; i < SERVERS; i++) {
            char said = 0;
            assert_int_equal(read(ready[0], &said, 1), 1);
            listening += said == 'y';
        }
        assert_int_equal(listening, 1);
        close(over[1]);
        while (wait(NULL) > 0)
            continue;
        close(over[0]);
        close(ready[0]);
        close(ready[1]);
        assert_int_equal(unlink(w->path), 0); /* _exit leaves it */
    }
}

/* ---- Who connected --------------------------------------------------------------------------- */

FIXTURE_TEST(the_peer_is_the_process_that_connected) {
    char expected[100];
    start(w, (harpe_http_options){.unix_socket = w->path});
    bool may_change = geteuid() == 0;
    uid_t uid = may_change ? OTHER_UID : geteuid();
    gid_t gid = may_change ? OTHER_GID : getegid();
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    if (may_change) assert_int_equal(chmod(w->folder, 0755), 0);
    pid_t child = fork();
    if (child == 0) {
        if (may_change && (setgid(gid) != 0 || setuid(uid) != 0)) _exit(1);
        int fd = dial(w->path);
        const char *told = fd >= 0 ? ask(fd, "/peer") : "no connection";
        _exit(write(ends[1], told, strlen(told)) > 0 ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    char told[200] = "";
    assert_true(read(ends[0], told, sizeof told - 1) > 0);
    (void)snprintf(expected, sizeof expected, "%u %u %ld %ld", uid, gid, (long)child, (long)child);
    assert_string_equal(told, expected);
    close(ends[0]);
    close(ends[1]);
}

/* A connection that a process has passed on still belongs to the process that made it, and a
 * process that has ended is not confused with another one. */
FIXTURE_TEST(the_peer_that_has_ended_has_no_live_pidfd) {
    int ends[2];
    start(w, (harpe_http_options){.unix_socket = w->path});
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    pid_t child = fork();
    if (child == 0) {
        int fd = dial(w->path);
        struct iovec byte = {.iov_base = "f", .iov_len = 1};
        char control[CMSG_SPACE(sizeof fd)] = {0};
        struct msghdr message = {.msg_iov = &byte,
                                 .msg_iovlen = 1,
                                 .msg_control = control,
                                 .msg_controllen = sizeof control};
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(header), &fd, sizeof fd);
        _exit(sendmsg(ends[1], &message, 0) == 1 ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    int fd = -1;
    char byte, control[CMSG_SPACE(sizeof fd)];
    struct iovec part = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    assert_int_equal(recvmsg(ends[0], &message, 0), 1);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    unsigned uid, gid;
    long process, of_pidfd;
    const char *told = ask(fd, "/peer");
    assert_int_equal(sscanf(told, "%u %u %ld %ld", &uid, &gid, &process, &of_pidfd), 4);
    assert_int_equal(process, child);
    assert_true(of_pidfd < 0); /* "-1": it has ended; "-2": the kernel gives none */
    close(fd);
    close(ends[0]);
    close(ends[1]);
}

FIXTURE_TEST(own_user_only_works_without_netlink) {
    if (geteuid() != 0) skip_because("root: this user is not root");
    start(w, (harpe_http_options){.unix_socket = w->path, .own_user_only = "not for you"});
    assert_int_equal(chmod(w->folder, 0755), 0);
    int fd = dial(w->path);
    assert_string_equal(ask(fd, "/"), "hello");
    close(fd);
    pid_t child = fork();
    if (child == 0) {
        if (setuid(OTHER_UID) != 0) _exit(1);
        int own = dial(w->path);
        _exit(own >= 0 && strstr(ask(own, "/"), "not for you") ? 0 : 2);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* Makes connections until one is closed. Returns how many stay open, or -1 on another failure. */
static int connections_of_user(const world *w, uid_t uid, int most) {
    int ends[2], count = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        if (setuid(uid) != 0) _exit(1);
        for (; count < most; count++) {
            int fd = dial(w->path);
            /* A refused connection is closed at once, perhaps before this is sent. */
            static const char text[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
            (void)!send(fd, text, sizeof text - 1, MSG_NOSIGNAL);
            if (strcmp(hear(fd), "hello") != 0) break;
        }
        _exit(write(ends[1], &count, sizeof count) == sizeof count ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(read(ends[0], &count, sizeof count), sizeof count);
    close(ends[0]);
    close(ends[1]);
    return count;
}

FIXTURE_TEST(each_user_has_a_limit_of_connections) {
    if (geteuid() != 0) skip_because("root: this user is not root");
    start(w, (harpe_http_options){
                 .unix_socket = w->path, .max_connections = 30, .max_connections_per_user = 10});
    assert_int_equal(chmod(w->folder, 0755), 0);
    for (uid_t uid = OTHER_UID; uid < OTHER_UID + 5; uid++) {
        int count = connections_of_user(w, uid, 20);
        assert_int_equal(count, 10);
    }
    assert_int_equal(connections_of_user(w, OTHER_UID, 9), 9); /* the earlier ones have ended */
    assert_int_equal(connections_of_user(w, 0, 20), 20);
}

/* ---- Two servers ----------------------------------------------------------------------------- */

static int dial_tcp(const world *w) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)harpe_http_port(w->two.http)),
                                  .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct timeval timeout = {TIMEOUT_S, 0};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

/* Both answer, and each answers requests that the other one's handler releases. */
FIXTURE_TEST(two_servers_share_a_loop) {
    harpe_error error = {0};
    if (serve(w, &w->two, (harpe_http_options){.port = 0}, &error) != HARPE_OK)
        fail_msg("%s", error.message);
    start(w, (harpe_http_options){.unix_socket = w->path});
    int local = dial(w->path), remote = dial_tcp(w);
    assert_string_equal(ask(local, "/"), "hello");
    assert_string_equal(ask(remote, "/peer"), "no peer");
    for (int round = 0; round < 20; round++) {
        int holder = round % 2 ? local : remote, other = round % 2 ? remote : local;
        say(holder, "/hold");
        while (strcmp(ask(other, "/release-other"), "no") == 0)
            continue; /* the held request may not have arrived */
        assert_string_equal(hear(holder), "released");
    }
    close(local);
    close(remote);
}
