/* SPDX-License-Identifier: Apache-2.0 */
/* Owners of sockets, by netlink and by /proc, for the sockets of the current user.
 * tests/server/test_neighbours.py tests sockets of other users. */
#include "test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "base/socket_owner.h"

typedef union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
} address;

typedef struct pair {
    int listening, client, accepted;
    address door;
} pair;

static address address_of(const char *text, int port) {
    address result = {.v6 = {0}};
    if (inet_pton(AF_INET, text, &result.v4.sin_addr) == 1) {
        result.v4.sin_family = AF_INET;
        result.v4.sin_port = htons((uint16_t)port);
        return result;
    }
    assert_int_equal(inet_pton(AF_INET6, text, &result.v6.sin6_addr), 1);
    result.v6.sin6_family = AF_INET6;
    result.v6.sin6_port = htons((uint16_t)port);
    return result;
}

static int socket_at(const address *at) {
    int fd = socket(at->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    int on = 1;
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
    return fd;
}

/* Returns false if this machine has no such address. */
static bool open_pair(pair *p, const char *listens_on, const char *connects_to) {
    address door = address_of(listens_on, 0);
    socklen_t length = sizeof door;
    p->listening = socket_at(&door);
    if (p->listening < 0 || bind(p->listening, &door.any, sizeof door) != 0) {
        if (p->listening >= 0) close(p->listening);
        return false;
    }
    assert_int_equal(listen(p->listening, 5), 0);
    assert_int_equal(getsockname(p->listening, &door.any, &length), 0);
    /* v6.sin6_port has the same position */
    p->door = address_of(connects_to, ntohs(door.v4.sin_port));
    p->client = socket_at(&p->door);
    assert_int_equal(connect(p->client, &p->door.any, sizeof p->door), 0);
    p->accepted = accept(p->listening, NULL, NULL);
    assert_true(p->accepted >= 0);
    return true;
}

static void close_pair(pair *p) {
    close(p->client);
    close(p->accepted);
    close(p->listening);
}

/* Uses netlink if the system has it, then /proc. */
static void each_source(void (*check)(harpe_socket_owners *owners, pair *p), const char *listens_on,
                        const char *connects_to) {
    for (int by_proc = 0; by_proc < 2; by_proc++) {
        harpe_socket_owners owners;
        pair p;
        if (!open_pair(&p, listens_on, connects_to)) return;
        assert_works(harpe_socket_owners_open(&owners, p.listening, &failure));
        if (by_proc) harpe_socket_owners_close(&owners);
        check(&owners, &p);
        harpe_socket_owners_close(&owners);
        close_pair(&p);
    }
}

static void expect_mine(harpe_socket_owners *owners, pair *p) {
    uid_t uid = (uid_t)-2;
    assert_true(harpe_socket_owner_of_peer(owners, p->accepted, &uid));
    assert_int_equal(uid, geteuid());
    uid = (uid_t)-2;
    assert_true(harpe_socket_owner_of_peer(owners, p->client, &uid)); /* in the other direction */
    assert_int_equal(uid, geteuid());
}

TEST(own_connections_are_known) {
    each_source(expect_mine, "127.0.0.1", "127.0.0.1");
    each_source(expect_mine, "127.255.1.2", "127.255.1.2");
    each_source(expect_mine, "127.0.0.1", "::ffff:127.0.0.1");
    each_source(expect_mine, "::1", "::1");
    each_source(expect_mine, "::", "127.0.0.1");
    each_source(expect_mine, "0.0.0.0", "127.0.0.1");
}

static void expect_unknown_after_end(harpe_socket_owners *owners, pair *p) {
    uid_t uid = 4711;
    assert_int_equal(shutdown(p->client, SHUT_WR), 0); /* it still waits for an answer */
    assert_true(harpe_socket_owner_of_peer(owners, p->accepted, &uid));
    assert_int_equal(uid, geteuid());
    uid = 4711;
    close(p->client);
    p->client = dup(p->listening);
    assert_false(harpe_socket_owner_of_peer(owners, p->accepted, &uid));
    assert_int_equal(uid, 4711);
    assert_false(harpe_socket_owner_of_peer(owners, p->listening, &uid));
    assert_false(harpe_socket_owner_of_peer(owners, -1, &uid));
}

TEST(a_closed_end_is_nobodys) {
    each_source(expect_unknown_after_end, "127.0.0.1", "127.0.0.1");
    each_source(expect_unknown_after_end, "::1", "::1");
}

/* Connects from an address that only this test uses, so that no other program can take its port in
 * between. */
static void connect_from_own_address(pair *p) {
    address own = address_of("127.83.79.67", 0);
    close(p->client);
    close(p->accepted);
    p->client = socket_at(&own);
    assert_int_equal(bind(p->client, &own.any, sizeof own.v4), 0);
    assert_int_equal(connect(p->client, &p->door.any, sizeof p->door.v4), 0);
    p->accepted = accept(p->listening, NULL, NULL);
    assert_true(p->accepted >= 0);
}

/* Makes a second connection between the same addresses and ports after the first was reset. */
static void expect_unknown_after_reuse(harpe_socket_owners *owners, pair *p) {
    uid_t uid = 4711;
    address from;
    socklen_t length = sizeof from;
    struct linger at_once = {1, 0};
    connect_from_own_address(p);
    assert_int_equal(getsockname(p->client, &from.any, &length), 0);
    assert_int_equal(setsockopt(p->client, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
    close(p->client);
    struct pollfd reset = {.fd = p->accepted, .events = POLLIN};
    do {
        assert_true(poll(&reset, 1, 60000) > 0);
    } while (!(reset.revents & POLLHUP));
    p->client = socket_at(&from);
    assert_int_equal(bind(p->client, &from.any, length), 0);
    assert_int_equal(connect(p->client, &p->door.any, sizeof p->door), 0);
    int second = accept(p->listening, NULL, NULL);
    assert_true(second >= 0);
    assert_false(harpe_socket_owner_of_peer(owners, p->accepted, &uid));
    assert_int_equal(uid, 4711);
    assert_true(harpe_socket_owner_of_peer(owners, second, &uid));
    close(second);
}

TEST(a_reused_port_is_not_the_one_that_connected) {
    each_source(expect_unknown_after_reuse, "127.0.0.1", "127.0.0.1");
}

TEST(listeners_are_known) {
    static const char *const cases[][2] = {{"127.0.0.1", "127.0.0.1"},
                                           {"0.0.0.0", "127.0.0.1"},
                                           {"::", "127.0.0.1"},
                                           {"::1", "::1"},
                                           {"::", "::1"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pair p;
        uid_t uid = (uid_t)-2;
        if (!open_pair(&p, cases[i][0], cases[i][1])) continue;
        int port = ntohs(p.door.v4.sin_port);
        assert_true(harpe_socket_owner_of_listener(cases[i][1], port, &uid));
        assert_int_equal(uid, geteuid());
        close_pair(&p);
        assert_false(harpe_socket_owner_of_listener(cases[i][1], port, &uid));
    }
    uid_t uid;
    assert_false(harpe_socket_owner_of_listener("localhost", 80, &uid));
}

TEST(a_socket_that_does_not_listen_is_no_proof) {
    harpe_socket_owners owners;
    pair p;
    assert_true(open_pair(&p, "127.0.0.1", "127.0.0.1"));
    address none = address_of("127.0.0.1", 0);
    int bound = socket_at(&none);
    assert_int_equal(bind(bound, &none.any, sizeof none), 0);
    assert_int_equal(harpe_socket_owners_open(&owners, bound, &failure), HARPE_NOT_SUPPORTED);
    assert_int_equal(owners.netlink_fd, -1);
    close(bound);
    close_pair(&p);
}
