/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's table of TCP sockets contains the owner of each socket. Three checks make an
 * answer certain:
 *
 * - The socket has an inode. For a socket that no process holds, the kernel reports uid 0 and
 *   inode 0. An example is a socket that was closed while data was on its way.
 * - If uid 0 is reported, a second look finds the same inode. The kernel does not read state,
 *   uid and inode of a socket at one instant. A closed socket is never opened again, so an inode
 *   in the second look proves the uid of the first look.
 * - This process's end is still connected after the look. This end held the pair of addresses and
 *   ports all the time, so the socket that was found is the other end of the connection. */
#include "base/socket_owner.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"

enum {
    LOOKS = 2, /* looks in /proc; a single look may miss a socket while the table changes */
    ANY_STATE = 0xfff,
    ADDRESS_SIZE = 16,
    NEEDLE_SIZE = 96,
};

/* An IPv4 address is in the first four bytes, also if it had the form of an IPv6 address. The port
 * is in network order. */
typedef struct endpoint {
    bool is_ipv4;
    uint16_t port;
    uint8_t address[ADDRESS_SIZE];
} endpoint;

typedef struct finding {
    uint8_t state; /* TCP_ESTABLISHED ... */
    uid_t uid;
    uint64_t inode; /* 0: no process has the socket open */
} finding;

typedef enum look { FOUND, NOT_THERE, UNABLE } look;

/* ---- Addresses ------------------------------------------------------------------------------- */

static void set_ipv6(endpoint *out, const void *address) {
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    out->is_ipv4 = memcmp(address, mapped, sizeof mapped) == 0;
    if (out->is_ipv4)
        memcpy(out->address, (const uint8_t *)address + sizeof mapped, 4);
    else
        memcpy(out->address, address, ADDRESS_SIZE);
}

typedef union any_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
} any_address;

static bool read_endpoint(const any_address *address, endpoint *out) {
    *out = (endpoint){0};
    if (address->any.sa_family == AF_INET) {
        out->is_ipv4 = true;
        out->port = address->v4.sin_port;
        memcpy(out->address, &address->v4.sin_addr, 4);
        return true;
    }
    if (address->any.sa_family != AF_INET6) return false;
    out->port = address->v6.sin6_port;
    set_ipv6(out, &address->v6.sin6_addr);
    return true;
}

static bool own_end(int fd, endpoint *out) {
    any_address address = {.v6 = {0}};
    socklen_t length = sizeof address;
    return getsockname(fd, &address.any, &length) == 0 && read_endpoint(&address, out);
}

static bool other_end(int fd, endpoint *out) {
    any_address address = {.v6 = {0}};
    socklen_t length = sizeof address;
    return getpeername(fd, &address.any, &length) == 0 && read_endpoint(&address, out);
}

static bool is_same(const endpoint *a, const endpoint *b) {
    return a->is_ipv4 == b->is_ipv4 && a->port == b->port &&
           memcmp(a->address, b->address, a->is_ipv4 ? 4 : ADDRESS_SIZE) == 0;
}

/* ---- Netlink --------------------------------------------------------------------------------- */

typedef struct question {
    struct nlmsghdr head;
    struct inet_diag_req_v2 body;
} question;

static bool ask(const harpe_socket_owners *owners, const endpoint *local, const endpoint *remote) {
    question message = {
        .head = {.nlmsg_len = sizeof message,
                 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                 .nlmsg_flags = NLM_F_REQUEST,
                 .nlmsg_seq = owners->sequence},
        .body = {.sdiag_family = local->is_ipv4 ? AF_INET : AF_INET6,
                 .sdiag_protocol = IPPROTO_TCP,
                 .idiag_states = ANY_STATE,
                 .id = {.idiag_sport = local->port,
                        .idiag_dport = remote->port,
                        .idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}}},
    };
    memcpy(message.body.id.idiag_src, local->address, sizeof local->address);
    memcpy(message.body.id.idiag_dst, remote->address, sizeof remote->address);
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    return sendto(owners->netlink_fd, &message, sizeof message, MSG_NOSIGNAL,
                  (struct sockaddr *)&kernel, sizeof kernel) == (ssize_t)sizeof message;
}

static void read_id(const struct inet_diag_msg *message, endpoint *local, endpoint *remote) {
    *local = (endpoint){.is_ipv4 = true, .port = message->id.idiag_sport};
    *remote = (endpoint){.is_ipv4 = true, .port = message->id.idiag_dport};
    if (message->idiag_family == AF_INET) {
        memcpy(local->address, message->id.idiag_src, 4);
        memcpy(remote->address, message->id.idiag_dst, 4);
    } else {
        set_ipv6(local, message->id.idiag_src);
        set_ipv6(remote, message->id.idiag_dst);
    }
}

/* Evaluates the answer. The kernel returns the socket that would receive a packet with these
 * addresses. If no socket is connected, this is a listening socket, which may listen on every
 * address. */
static look understand(const struct nlmsghdr *head, const endpoint *local, const endpoint *remote,
                       finding *out) {
    if (head->nlmsg_type == NLMSG_ERROR) {
        const struct nlmsgerr *fault = NLMSG_DATA(head);
        bool is_whole = head->nlmsg_len >= NLMSG_LENGTH(sizeof *fault);
        return is_whole && fault->error == -ENOENT ? NOT_THERE : UNABLE;
    }
    const struct inet_diag_msg *message = NLMSG_DATA(head);
    if (head->nlmsg_type != SOCK_DIAG_BY_FAMILY || head->nlmsg_len < NLMSG_LENGTH(sizeof *message))
        return UNABLE;
    endpoint its_local, its_remote;
    read_id(message, &its_local, &its_remote);
    bool is_it = remote->port == 0 ? message->idiag_state == TCP_LISTEN
                                   : is_same(&its_local, local) && is_same(&its_remote, remote);
    if (!is_it) return NOT_THERE;
    *out = (finding){message->idiag_state, message->idiag_uid, message->idiag_inode};
    return FOUND;
}

/* Asks the kernel by netlink. The kernel puts the answer into the socket before sendto()
 * returns. */
static look look_by_netlink(harpe_socket_owners *owners, const endpoint *local,
                            const endpoint *remote, finding *out) {
    union {
        struct nlmsghdr head;
        char bytes[4096];
    } answer;
    owners->sequence++;
    if (!ask(owners, local, remote)) return UNABLE;
    for (;;) {
        struct sockaddr_nl sender = {0};
        socklen_t length = sizeof sender;
        ssize_t got = recvfrom(owners->netlink_fd, &answer, sizeof answer, MSG_DONTWAIT,
                               (struct sockaddr *)&sender, &length);
        if (got < 0 && errno == EINTR) continue;
        if (got < (ssize_t)sizeof answer.head || !NLMSG_OK(&answer.head, (size_t)got))
            return UNABLE;
        bool is_from_kernel = length == sizeof sender && sender.nl_pid == 0;
        if (is_from_kernel && answer.head.nlmsg_seq == owners->sequence)
            return understand(&answer.head, local, remote, out);
    }
}

/* ---- /proc ----------------------------------------------------------------------------------- */

/* Prints the address in the table's form: words in the machine's byte order, in hexadecimal. */
static int print_endpoint(char *into, size_t size, const endpoint *end, bool as_ipv6) {
    uint32_t words[4] = {0};
    if (end->is_ipv4 && as_ipv6) {
        words[2] = htonl(0xffff);
        memcpy(&words[3], end->address, 4);
    } else {
        memcpy(words, end->address, sizeof words);
    }
    /* The unspecified IPv4 address is written as the unspecified IPv6 address. */
    if (as_ipv6 && end->is_ipv4 && words[3] == 0) words[2] = 0;
    if (as_ipv6)
        return snprintf(into, size, "%08X%08X%08X%08X:%04X", words[0], words[1], words[2], words[3],
                        ntohs(end->port));
    return snprintf(into, size, "%08X:%04X", words[0], ntohs(end->port));
}

/* Reads a row: " 1: LOCAL REMOTE STATE TX:RX TIMER:WHEN RETRIES UID TIMEOUT INODE ...". */
static bool read_row(const char *row, const char *needle, size_t needle_length, finding *out) {
    const char *at = strchr(row, ':');
    if (!at || at[1] != ' ' || strncmp(at + 2, needle, needle_length) != 0) return false;
    at += 2 + needle_length;
    char *end;
    unsigned long state = strtoul(at, &end, 16);
    for (int skipped = 0; skipped < 3; skipped++) { /* skips the queues, the timer and the
                                                     * retries */
        end += strspn(end, " ");
        end += strcspn(end, " ");
    }
    unsigned long uid = strtoul(end, &end, 10);
    (void)strtoul(end, &end, 10); /* the timeout */
    char *last;
    unsigned long long inode = strtoull(end, &last, 10);
    if (last == end || state == 0 || state > ANY_STATE) return false;
    *out = (finding){(uint8_t)state, (uid_t)uid, inode};
    return true;
}

/* Looks in a table in /proc. Two sockets can have the same addresses if one of them is bound to a
 * device. In this case the right socket is not known. */
static look look_in_table(const char *path, const char *needle, finding *out) {
    FILE *table = fopen(path, "re");
    if (!table) return UNABLE;
    char *row = NULL;
    size_t size = 0;
    size_t needle_length = strlen(needle);
    look result = NOT_THERE;
    while (result != UNABLE && getline(&row, &size, table) > 0) {
        finding one;
        if (!read_row(row, needle, needle_length, &one) || one.inode == 0) continue;
        result = result == FOUND && one.inode != out->inode ? UNABLE : FOUND;
        *out = one;
    }
    if (ferror(table)) result = UNABLE;
    free(row);
    (void)fclose(table);
    return result;
}

static look look_in_proc(const endpoint *local, const endpoint *remote, finding *out) {
    char needle[NEEDLE_SIZE];
    look result = NOT_THERE;
    for (int as_ipv6 = !local->is_ipv4; as_ipv6 < 2 && result == NOT_THERE; as_ipv6++) {
        int length = print_endpoint(needle, sizeof needle, local, as_ipv6);
        needle[length++] = ' ';
        length += print_endpoint(needle + length, sizeof needle - (size_t)length, remote, as_ipv6);
        (void)snprintf(needle + length, sizeof needle - (size_t)length, " ");
        result = look_in_table(as_ipv6 ? "/proc/self/net/tcp6" : "/proc/self/net/tcp", needle, out);
        /* A kernel without IPv6 does not have tcp6. */
        if (result == UNABLE && as_ipv6 && local->is_ipv4) result = NOT_THERE;
    }
    return result;
}

static look look_for(harpe_socket_owners *owners, const endpoint *local, const endpoint *remote,
                     finding *out) {
    look result = UNABLE;
    if (owners->netlink_fd >= 0) result = look_by_netlink(owners, local, remote, out);
    if (result != UNABLE) return result;
    result = NOT_THERE;
    for (int i = 0; i < LOOKS && result == NOT_THERE; i++)
        result = look_in_proc(local, remote, out);
    return result;
}

/* ---- Opening --------------------------------------------------------------------------------- */

/* Finds the uid that stands for all users that this process's user namespace does not map. */
static void find_unmapped(harpe_socket_owners *owners) {
    unsigned long first = 1, outside = 0, count = 0, overflow = 65534;
    char line[128] = "", more[8] = "";
    FILE *map = fopen("/proc/self/uid_map", "re");
    if (map && fgets(line, sizeof line, map) && !fgets(more, sizeof more, map)) {
        char *at = line;
        first = strtoul(at, &at, 10);
        outside = strtoul(at, &at, 10);
        count = strtoul(at, &at, 10);
    }
    if (map) (void)fclose(map);
    FILE *file = fopen("/proc/sys/kernel/overflowuid", "re");
    if (file && fgets(line, sizeof line, file)) overflow = strtoul(line, NULL, 10);
    if (file) (void)fclose(file);
    owners->has_unmapped = first != 0 || outside != 0 || count < UINT32_MAX;
    owners->unmapped = (uid_t)overflow;
}

static bool is_mapped(const harpe_socket_owners *owners, uid_t uid) {
    return uid != (uid_t)-1 && !(owners->has_unmapped && uid == owners->unmapped);
}

/* Returns true if the source finds the listening socket and reports this process's user as its
 * owner. */
static bool is_known(harpe_socket_owners *owners, const endpoint *listening) {
    const endpoint nobody = {.is_ipv4 = listening->is_ipv4};
    finding found;
    return look_for(owners, listening, &nobody, &found) == FOUND && found.state == TCP_LISTEN &&
           found.inode != 0 && found.uid == geteuid() && is_mapped(owners, found.uid);
}

static int open_netlink(void) {
    return socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_SOCK_DIAG);
}

harpe_status harpe_socket_owners_open(harpe_socket_owners *owners, int listen_fd,
                                      harpe_error *error) {
    endpoint listening;
    *owners = (harpe_socket_owners){.netlink_fd = open_netlink()};
    find_unmapped(owners);
    if (own_end(listen_fd, &listening)) {
        if (is_known(owners, &listening)) return HARPE_OK;
        harpe_socket_owners_close(owners);
        if (is_known(owners, &listening)) return HARPE_OK;
    }
    harpe_socket_owners_close(owners);
    return harpe_fail(error, HARPE_NOT_SUPPORTED,
                      "this system does not say which user a connection belongs to (neither "
                      "netlink nor /proc/self/net/tcp does)");
}

void harpe_socket_owners_close(harpe_socket_owners *owners) {
    if (owners->netlink_fd >= 0) (void)close(owners->netlink_fd);
    owners->netlink_fd = -1;
}

/* ---- Questions ------------------------------------------------------------------------------- */

/* Returns true if a process holds the socket. A client that has closed its sending side may still
 * wait for the answer, so TCP_FIN_WAIT1 and TCP_FIN_WAIT2 count too. */
static bool is_held(const finding *found) {
    return found->inode != 0 && (found->state == TCP_ESTABLISHED || found->state == TCP_FIN_WAIT1 ||
                                 found->state == TCP_FIN_WAIT2);
}

static bool is_connected(int fd) {
    struct tcp_info info;
    socklen_t length = sizeof info;
    memset(&info, 0, sizeof info);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return false;
    return info.tcpi_state == TCP_ESTABLISHED || info.tcpi_state == TCP_CLOSE_WAIT;
}

bool harpe_socket_owner_of_peer(harpe_socket_owners *owners, int fd, uid_t *uid) {
    endpoint here, there;
    finding found, again;
    if (!own_end(fd, &here) || !other_end(fd, &there)) return false;
    if (look_for(owners, &there, &here, &found) != FOUND || !is_held(&found)) return false;
    if (found.uid == 0 && (look_for(owners, &there, &here, &again) != FOUND || !is_held(&again) ||
                           again.inode != found.inode || again.uid != 0))
        return false;
    if (!is_mapped(owners, found.uid) || !is_connected(fd)) return false;
    *uid = found.uid;
    return true;
}

static bool is_listening(look result, const finding *found) {
    return result == FOUND && found->state == TCP_LISTEN && found->inode != 0;
}

bool harpe_socket_owner_of_listener(const char *address, int port, uid_t *uid) {
    any_address own = {.v6 = {0}};
    endpoint there;
    if (inet_pton(AF_INET, address, &own.v4.sin_addr) == 1) {
        own.v4.sin_family = AF_INET;
        own.v4.sin_port = htons((uint16_t)port);
    } else if (inet_pton(AF_INET6, address, &own.v6.sin6_addr) == 1) {
        own.v6.sin6_family = AF_INET6;
        own.v6.sin6_port = htons((uint16_t)port);
    }
    if (!read_endpoint(&own, &there)) return false;
    const endpoint nobody = {.is_ipv4 = there.is_ipv4};
    const endpoint everywhere = {.is_ipv4 = there.is_ipv4, .port = there.port};
    harpe_socket_owners owners = {.netlink_fd = open_netlink()};
    find_unmapped(&owners);
    finding found = {0};
    bool is_found = is_listening(look_for(&owners, &there, &nobody, &found), &found);
    harpe_socket_owners_close(&owners);
    if (!is_found) is_found = is_listening(look_in_proc(&everywhere, &nobody, &found), &found);
    if (!is_found || !is_mapped(&owners, found.uid)) return false;
    *uid = found.uid;
    return true;
}
