/* SPDX-License-Identifier: Apache-2.0 */
/* The client's end of the connections, the names of servers, and the thread that delivers what
 * clients no longer wait for. Answers of HTTP/1.1 are read as
 * they come, piece by piece. */
#include "world/transport.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/process.h"
#include "base/text.h"
#include "base/wait.h"
#include "http/client/connection.h"
#include "http/client/transport.h"
#include "world/world.h"

#define TICK_NS INT64_C(100000000)

/* ---- Answers --------------------------------------------------------------------------------- */

typedef enum answer_part {
    ANSWER_STATUS,
    ANSWER_HEAD,
    ANSWER_BODY,        /* `left` bytes are missing */
    ANSWER_BODY_TO_END, /* until the connection ends */
    ANSWER_CHUNK_SIZE,
    ANSWER_CHUNK, /* `left` bytes are missing */
    ANSWER_CHUNK_END,
    ANSWER_TRAILER,
    ANSWER_COMPLETE,
} answer_part;

/* Initialise it with zeros once. */
typedef struct answer_reader {
    harpe_connection *connection;
    bool has_no_body; /* the request was HEAD */
    answer_part part;
    harpe_text line; /* the begin of the next line */
    long http_status;
    bool is_chunked, has_length, closes, has_rest;
    uint64_t left;
    uint64_t body_hash; /* FNV-1a */
} answer_reader;

enum { LINE_LIMIT = 102400 };

static void begin_answer(answer_reader *reader, harpe_connection *connection, bool has_no_body) {
    harpe_text line = reader->line;
    line.length = 0;
    line.failed = false;
    *reader = (answer_reader){.connection = connection, .has_no_body = has_no_body, .line = line};
}

static void free_answer(answer_reader *reader) { harpe_text_free(&reader->line); }

static harpe_transfer_result fail_answer(char *reason, const char *text) {
    (void)snprintf(reason, HARPE_TRANSFER_REASON_SIZE, "%s", text);
    return HARPE_TRANSFER_BROKEN;
}

/* ---- Lines of an answer ---------------------------------------------------------------------- */

static bool read_status(answer_reader *reader, const char *line) {
    char *end;
    if (strncmp(line, "HTTP/1.", 7) != 0 || (line[7] != '0' && line[7] != '1') || line[8] != ' ')
        return false;
    reader->http_status = strtol(line + 9, &end, 10);
    reader->closes = line[7] == '0';
    reader->is_chunked = reader->has_length = false;
    return end == line + 12 && reader->http_status >= 100;
}

static const char *value_of(const char *line, const char *name) {
    size_t length = strlen(name);
    if (strncasecmp(line, name, length) != 0 || line[length] != ':') return NULL;
    return line + length + 1 + strspn(line + length + 1, " \t");
}

static void read_field(answer_reader *reader, const char *line) {
    const char *length = value_of(line, "Content-Length");
    const char *coding = value_of(line, "Transfer-Encoding");
    const char *after = value_of(line, "Connection");
    if (length) {
        reader->has_length = true;
        reader->left = strtoull(length, NULL, 10);
    }
    if (coding && strncasecmp(coding, "chunked", 7) == 0) reader->is_chunked = true;
    if (after && strncasecmp(after, "close", 5) == 0) reader->closes = true;
}

/* Returns the part after the head. */
static answer_part after_head(const answer_reader *reader) {
    long status = reader->http_status;
    if (status < 200) return ANSWER_STATUS; /* the answer itself follows */
    if (reader->has_no_body || status == 204 || status == 304) return ANSWER_COMPLETE;
    if (reader->is_chunked) return ANSWER_CHUNK_SIZE;
    if (!reader->has_length) return ANSWER_BODY_TO_END;
    return reader->left > 0 ? ANSWER_BODY : ANSWER_COMPLETE;
}

/* Returns false if the line cannot be a part of an answer. */
static bool read_line(answer_reader *reader, const char *line) {
    char *end;
    bool is_empty = line[strspn(line, "\r\n")] == '\0';
    switch (reader->part) {
    case ANSWER_STATUS:
        if (!read_status(reader, line)) return false;
        reader->part = ANSWER_HEAD;
        return true;
    case ANSWER_HEAD:
        if (is_empty)
            reader->part = after_head(reader);
        else
            read_field(reader, line);
        return true;
    case ANSWER_CHUNK_SIZE:
        reader->left = strtoull(line, &end, 16);
        reader->part = reader->left > 0 ? ANSWER_CHUNK : ANSWER_TRAILER;
        return end != line;
    case ANSWER_CHUNK_END: reader->part = ANSWER_CHUNK_SIZE; return is_empty;
    default:
        if (is_empty) reader->part = ANSWER_COMPLETE;
        return true;
    }
}

/* Takes the bytes of one line. Returns their number; 0: a failure. */
static size_t take_line(answer_reader *reader, const char *bytes, size_t length, char *reason) {
    const char *newline = memchr(bytes, '\n', length);
    size_t taken = newline ? (size_t)(newline - bytes) + 1 : length;
    bool is_status = reader->part == ANSWER_STATUS;
    bool is_head = is_status || reader->part == ANSWER_HEAD;
    harpe_text_append(&reader->line, bytes, taken);
    if (reader->line.failed || reader->line.length > LINE_LIMIT)
        return (void)fail_answer(reason, "Out of memory"), 0;
    if (!newline) return taken;
    if (is_head)
        harpe_connection_take_line(reader->connection, reader->line.data, reader->line.length);
    bool is_right = read_line(reader, reader->line.data);
    reader->line.length = 0;
    if (is_right) return taken;
    (void)fail_answer(reason, is_status ? "Received HTTP/0.9 when not allowed"
                                        : "Illegal or missing hexadecimal sequence");
    return 0;
}

/* ---- Bodies of an answer --------------------------------------------------------------------- */

/* Takes bytes of the body. Returns their number; 0: a failure. */
static size_t take_body(answer_reader *reader, const char *bytes, size_t length, char *reason) {
    bool is_counted = reader->part != ANSWER_BODY_TO_END;
    size_t taken = is_counted && reader->left < length ? (size_t)reader->left : length;
    if (!harpe_connection_take_body(reader->connection, bytes, taken))
        return (void)fail_answer(reason, "Failed writing received data to disk/application"), 0;
    for (size_t i = 0; i < taken; i++)
        reader->body_hash = (reader->body_hash ^ (unsigned char)bytes[i]) * UINT64_C(1099511628211);
    if (!is_counted) return taken;
    reader->left -= taken;
    if (reader->left == 0)
        reader->part = reader->part == ANSWER_CHUNK ? ANSWER_CHUNK_END : ANSWER_COMPLETE;
    return taken;
}

/* Takes the next bytes, and gives head and body to the connection. Returns
 * HARPE_TRANSFER_RUNNING, HARPE_TRANSFER_DONE, or a failure with its reason
 * (HARPE_TRANSFER_REASON_SIZE bytes). */
static harpe_transfer_result take_answer(answer_reader *reader, const char *bytes, size_t length,
                                         char *reason) {
    while (length > 0 && reader->part != ANSWER_COMPLETE) {
        bool is_body = reader->part == ANSWER_BODY || reader->part == ANSWER_CHUNK ||
                       reader->part == ANSWER_BODY_TO_END;
        size_t taken = is_body ? take_body(reader, bytes, length, reason)
                               : take_line(reader, bytes, length, reason);
        if (taken == 0) return HARPE_TRANSFER_BROKEN;
        bytes += taken;
        length -= taken;
    }
    reader->has_rest = length > 0;
    return reader->part == ANSWER_COMPLETE ? HARPE_TRANSFER_DONE : HARPE_TRANSFER_RUNNING;
}

/* Call it when the connection has ended. Returns true if the answer is complete. Otherwise returns
 * false, and writes to `reason` what is missing. */
static bool answer_ends(const answer_reader *reader, char *reason) {
    switch (reader->part) {
    case ANSWER_COMPLETE:
    case ANSWER_BODY_TO_END: return true;
    case ANSWER_STATUS:
    case ANSWER_HEAD: (void)fail_answer(reason, "Empty reply from server"); return false;
    case ANSWER_BODY:
        (void)snprintf(reason, HARPE_TRANSFER_REASON_SIZE,
                       "transfer closed with %llu bytes remaining to read",
                       (unsigned long long)reader->left);
        return false;
    default:
        (void)fail_answer(reason, "transfer closed with outstanding read data remaining");
        return false;
    }
}

/* Returns true if the connection can carry another request after this answer. */
static bool answer_keeps(const answer_reader *reader) {
    return reader->part == ANSWER_COMPLETE && !reader->closes && !reader->has_rest;
}

/* ---- The network ----------------------------------------------------------------------------- */

typedef struct service {
    char *name;
    pid_t process;
    bool (*accept)(void *user, int socket);
    void *user;
} service;

/* A request that arrives although its client no longer waits for the answer. */
typedef struct parcel {
    struct parcel *next;
    char *name; /* of the server; NULL: it has a socket */
    int socket; /* -1: not connected yet */
    int64_t due_ns;
    char *bytes;
    size_t length, sent;
    bool is_last; /* the client has closed the connection behind it */
} parcel;

static struct {
    harpe_transport_options options;
    harpe_transport table;
    atomic_flag is_locked; /* protects the following; nobody waits with it */
    service *services;
    size_t service_count, service_capacity;
    parcel *posted;
    bool is_ending;
    int news; /* an eventfd that wakes the thread */
    pthread_t thread;
} transport = {.is_locked = ATOMIC_FLAG_INIT};

typedef struct world_link {
    harpe_connection *connection;
    char *reason;
    char *name; /* of the server */
    bool is_path;
    int socket;   /* -1: not connected */
    int bell;     /* an eventfd that ends a wait for the socket */
    bool is_kept; /* the socket has carried a request before */
    _Atomic uint32_t wakes;
    uint32_t wakes_seen;
    atomic_bool is_polling;

    /* The transfer. */
    const harpe_transfer *transfer;
    harpe_message_fate fate;
    harpe_text request;
    size_t sent;
    bool is_connected; /* the request begins to arrive */
    bool has_sent;     /* all that arrives of the request */
    bool has_news;     /* bytes have come that may be read at `read_ns` */
    int64_t begun_ns, send_ns, read_ns;
    answer_reader reader;
    size_t taken; /* bytes of the answer */
    bool is_complete;
    char bytes[8192];
} world_link;

static void lock(void) {
    while (atomic_flag_test_and_set(&transport.is_locked))
        continue;
}

static void unlock(void) { atomic_flag_clear(&transport.is_locked); }

/* ---- Servers --------------------------------------------------------------------------------- */

static service *find_service(const char *name) {
    for (size_t i = 0; i < transport.service_count; i++)
        if (strcmp(transport.services[i].name, name) == 0) return &transport.services[i];
    return NULL;
}

bool harpe_transport_serve(const char *name, pid_t process, bool (*accept)(void *user, int socket),
                           void *user) {
    harpe_transport_unserve(name);
    char *copy = strdup(name);
    lock();
    bool has_room = copy && HARPE_ARRAY_RESERVE(transport.services, transport.service_capacity,
                                                transport.service_count + 1);
    if (has_room)
        transport.services[transport.service_count++] = (service){copy, process, accept, user};
    unlock();
    if (!has_room) free(copy);
    return has_room;
}

void harpe_transport_unserve(const char *name) {
    char *freed = NULL;
    lock();
    service *found = find_service(name);
    if (found) {
        freed = found->name;
        *found = transport.services[--transport.service_count];
    }
    unlock();
    free(freed);
}

/* Connects to a Unix socket that a server has made itself. */
static int connect_to_path(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(path);
    if (length >= sizeof address.sun_path) return -1;
    memcpy(address.sun_path, path, length + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || harpe_process_connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    (void)close(fd);
    return -1;
}

/* Returns the client's end of a new connection, or -1 if nobody listens. */
static int connect_to(const char *name, bool is_path) {
    int ends[2];
    lock();
    const service *found = find_service(name);
    service server = found ? *found : (service){0};
    unlock();
    if (!found) return is_path ? connect_to_path(name) : -1;
    if (server.process != 0 && !harpe_world_is_alive(server.process)) return -1;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) return -1;
    if (server.process != 0) harpe_world_hold(server.process, ends[1]);
    if (server.accept(server.user, ends[1])) return ends[0];
    (void)close(ends[0]);
    harpe_process_close(ends[1]);
    return -1;
}

/* ---- Late messages --------------------------------------------------------------------------- */

static void free_parcel(parcel *one) {
    if (one->socket >= 0) (void)close(one->socket);
    free(one->name);
    free(one->bytes);
    free(one);
}

/* Takes over `socket` and `bytes`. */
static bool post(const char *name, int socket, int64_t due_ns, char *bytes, size_t length,
                 bool is_last) {
    parcel *new = harpe_calloc(1, sizeof *new);
    char *copy = socket < 0 ? strdup(name) : NULL;
    if (!new || !bytes || (socket < 0 && !copy)) {
        free(new);
        free(copy);
        free(bytes);
        if (socket >= 0) (void)close(socket);
        return false;
    }
    *new = (parcel){.name = copy,
                    .socket = socket,
                    .due_ns = due_ns,
                    .bytes = bytes,
                    .length = length,
                    .is_last = is_last};
    lock();
    parcel **end = &transport.posted;
    while (*end)
        end = &(*end)->next;
    *end = new;
    unlock();
    (void)eventfd_write(transport.news, 1);
    return true;
}

/* Does what can be done now. The answer is thrown away. Returns true at the end of the parcel. */
static bool deliver(parcel *one) {
    char thrown_away[4096];
    if (harpe_clock_ns() < one->due_ns) return false;
    if (one->socket < 0) one->socket = connect_to(one->name, *one->name == '/');
    if (one->socket < 0) return true;
    bool was_sent = one->sent == one->length;
    while (one->sent < one->length) {
        ssize_t more =
            send(one->socket, one->bytes + one->sent, one->length - one->sent, MSG_NOSIGNAL);
        if (more < 0) return errno != EAGAIN;
        one->sent += (size_t)more;
    }
    if (one->is_last && !was_sent) (void)shutdown(one->socket, SHUT_WR);
    for (;;) {
        ssize_t more = recv(one->socket, thrown_away, sizeof thrown_away, 0);
        if (more <= 0) return more == 0 || errno != EAGAIN;
    }
}

static bool collect(parcel **all) {
    while (*all)
        all = &(*all)->next;
    lock();
    *all = transport.posted;
    transport.posted = NULL;
    bool goes_on = !transport.is_ending;
    unlock();
    return goes_on;
}

/* Waits for what the parcels wait for. Returns false if memory runs out. */
static bool wait_for_parcels(const parcel *all) {
    size_t count = 1;
    int64_t longest_ns = -1;
    int64_t now_ns = harpe_clock_ns();
    for (const parcel *one = all; one; one = one->next)
        count++;
    struct pollfd *waited = harpe_calloc(count, sizeof *waited);
    if (!waited) return false;
    count = 0;
    waited[count++] = (struct pollfd){.fd = transport.news, .events = POLLIN};
    for (const parcel *one = all; one; one = one->next) {
        int64_t left_ns = one->due_ns - now_ns;
        bool is_due = left_ns <= 0;
        if (is_due && one->socket < 0) left_ns = 0;
        if ((!is_due || one->socket < 0) && (longest_ns < 0 || left_ns < longest_ns))
            longest_ns = left_ns;
        if (!is_due) continue;
        waited[count++] = (struct pollfd){.fd = one->socket,
                                          .events = one->sent < one->length ? POLLOUT : POLLIN};
    }
    (void)harpe_poll(waited, count, longest_ns);
    free(waited);
    return true;
}

static void *deliver_all(void *user) {
    (void)user;
    parcel *all = NULL;
    eventfd_t ignored;
    while (collect(&all)) {
        for (parcel **place = &all; *place;) {
            parcel *one = *place;
            if (!deliver(one)) {
                place = &one->next;
                continue;
            }
            *place = one->next;
            free_parcel(one);
        }
        if (!wait_for_parcels(all)) break;
        (void)eventfd_read(transport.news, &ignored);
    }
    while (all) {
        parcel *one = all;
        all = one->next;
        free_parcel(one);
    }
    return NULL;
}

/* ---- Links ----------------------------------------------------------------------------------- */

static void disconnect(world_link *link) {
    if (link->socket >= 0) harpe_process_close(link->socket);
    link->socket = -1;
    link->is_kept = false;
}

static void close_link(void *user) {
    world_link *link = user;
    disconnect(link);
    if (link->bell >= 0) harpe_process_close(link->bell);
    harpe_text_free(&link->request);
    free_answer(&link->reader);
    free(link->name);
    free(link);
}

static void *open_link(harpe_connection *connection, const harpe_connection_options *options,
                       char *reason) {
    world_link *link = harpe_calloc(1, sizeof *link);
    if (!link) return NULL;
    const char *name = options->unix_socket ? options->unix_socket : options->server_url;
    link->connection = connection;
    link->reason = reason;
    link->is_path = options->unix_socket != NULL;
    link->socket = -1;
    link->bell = harpe_process_holds(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    link->name = strdup(name);
    if (link->bell < 0 || !link->name) {
        close_link(link);
        return NULL;
    }
    for (size_t length = strlen(name); length > 0 && name[length - 1] == '/'; length--)
        link->name[length - 1] = '\0';
    return link;
}

/* ---- Sending --------------------------------------------------------------------------------- */

static const char *method_of(const harpe_transfer *transfer) {
    return transfer->method ? transfer->method : transfer->body ? "POST" : "GET";
}

/* Writes the request as libcurl does. `is_last`: the server closes the connection. */
static bool write_request(harpe_text *text, const harpe_transfer *transfer, bool is_last) {
    const char *host = strstr(transfer->server, "://");
    text->length = 0;
    text->failed = false;
    harpe_text_printf(text, "%s %s HTTP/1.1\r\nHost: %s\r\nAccept: */*\r\n", method_of(transfer),
                      transfer->target, host ? host + 3 : transfer->server);
    if (transfer->body && *transfer->body)
        harpe_text_printf(text, "Content-Type: application/json\r\n");
    if (is_last)
        harpe_text_printf(text, "Connection: close\r\n");
    else if (!transfer->is_alone)
        harpe_text_printf(text, "Harpe-Connection: kept\r\n");
    if (transfer->token) harpe_text_printf(text, "Authorization: Bearer %s\r\n", transfer->token);
    if (transfer->body) harpe_text_printf(text, "Content-Length: %zu\r\n", strlen(transfer->body));
    harpe_text_append(text, "\r\n", 2);
    if (transfer->body) harpe_text_append(text, transfer->body, strlen(transfer->body));
    return !text->failed;
}

static bool send_double(const world_link *link) {
    harpe_text text = {0};
    if (!write_request(&text, link->transfer, true)) {
        harpe_text_free(&text);
        return false;
    }
    return post(link->name, -1,
                link->begun_ns + transport.options.latency_ns + link->fate.double_late_ns,
                text.data, text.length, false);
}

static harpe_message message_of(const world_link *link, const harpe_transfer *transfer) {
    return (harpe_message){.server = link->name,
                           .method = method_of(transfer),
                           .target = transfer->target,
                           .body = transfer->body,
                           .body_length = transfer->body ? strlen(transfer->body) : 0,
                           .client = harpe_process_self()};
}

static bool begin(void *user, const harpe_transfer *transfer) {
    world_link *link = user;
    const harpe_transport_options *options = &transport.options;
    const harpe_message message = message_of(link, transfer);
    if (!write_request(&link->request, transfer, false)) return false;
    if (transfer->is_alone) disconnect(link);
    link->transfer = transfer;
    link->fate = options->fate ? options->fate(options->user, &message) : (harpe_message_fate){0};
    link->sent = link->taken = 0;
    link->is_connected = link->has_sent = link->has_news = link->is_complete = false;
    link->begun_ns = harpe_clock_ns();
    link->send_ns = link->begun_ns + options->latency_ns + link->fate.request_late_ns;
    begin_answer(&link->reader, link->connection, strcmp(message.method, "HEAD") == 0);
    return !link->fate.is_doubled || send_double(link);
}

static harpe_transfer_result fail(const world_link *link, const char *reason) {
    (void)snprintf(link->reason, HARPE_TRANSFER_REASON_SIZE, "%s", reason);
    return HARPE_TRANSFER_BROKEN;
}

/* Returns true if the server has closed a connection that carried a request before. */
static bool is_stale(const world_link *link) {
    char one;
    return link->is_kept && (recv(link->socket, &one, 1, MSG_PEEK) >= 0 || errno != EAGAIN);
}

static harpe_transfer_result send_request(world_link *link) {
    if (!link->is_connected && is_stale(link)) disconnect(link);
    if (link->socket < 0) {
        link->socket = harpe_process_holds(connect_to(link->name, link->is_path));
        if (link->socket < 0) {
            (void)fail(link, "Couldn't connect to server");
            return HARPE_TRANSFER_NO_SERVER;
        }
    }
    link->is_connected = true;
    size_t length = link->request.length;
    bool is_cut = link->fate.cuts_request && link->fate.request_bytes < length;
    if (is_cut) length = link->fate.request_bytes;
    while (link->sent < length) {
        ssize_t more =
            send(link->socket, link->request.data + link->sent, length - link->sent, MSG_NOSIGNAL);
        if (more < 0 && errno == EAGAIN) return HARPE_TRANSFER_RUNNING;
        if (more < 0) break; /* the server has closed it, perhaps after an answer */
        link->sent += (size_t)more;
    }
    if (is_cut) {
        disconnect(link);
        return fail(link, "Send failure: Connection reset by peer");
    }
    link->has_sent = true;
    return HARPE_TRANSFER_RUNNING;
}

/* ---- Receiving ------------------------------------------------------------------------------- */

/* Says what an answer lacks whose connection has ended. A server may close a connection at the
 * moment at which the next request is sent. Then the request is sent again. */
static harpe_transfer_result end_of_answer(world_link *link, bool is_reset) {
    bool is_cut = link->fate.cuts_answer && link->taken == link->fate.answer_bytes;
    bool was_kept = link->is_kept;
    disconnect(link);
    if (link->taken == 0 && was_kept && !is_cut) {
        link->sent = 0;
        link->is_connected = link->has_sent = link->has_news = false;
        link->send_ns = harpe_clock_ns() + transport.options.latency_ns;
        return HARPE_TRANSFER_RUNNING;
    }
    if (is_reset) return fail(link, "Recv failure: Connection reset by peer");
    if (answer_ends(&link->reader, link->reason)) {
        link->is_complete = true;
        return HARPE_TRANSFER_DONE;
    }
    return HARPE_TRANSFER_BROKEN;
}

static harpe_transfer_result take(world_link *link, size_t length) {
    link->taken += length;
    harpe_transfer_result result = take_answer(&link->reader, link->bytes, length, link->reason);
    link->is_complete = result == HARPE_TRANSFER_DONE;
    return result;
}

static harpe_transfer_result receive(world_link *link) {
    for (;;) {
        size_t room = sizeof link->bytes;
        bool is_cut = link->fate.cuts_answer;
        if (is_cut && link->fate.answer_bytes - link->taken < room)
            room = link->fate.answer_bytes - link->taken;
        if (is_cut && room == 0) return end_of_answer(link, false);
        ssize_t more = recv(link->socket, link->bytes, room, 0);
        if (more == 0) return end_of_answer(link, false);
        if (more < 0 && errno != EAGAIN) return end_of_answer(link, true);
        if (more < 0) break;
        harpe_transfer_result result = take(link, (size_t)more);
        if (result != HARPE_TRANSFER_RUNNING) return result;
    }
    link->has_news = false;
    return HARPE_TRANSFER_RUNNING;
}

/* ---- Transfers ------------------------------------------------------------------------------- */

static bool is_over_time(const world_link *link, int64_t now_ns) {
    int64_t limit_ns = link->transfer->limit_ns;
    return limit_ns > 0 && now_ns - link->begun_ns > limit_ns;
}

static harpe_transfer_result step(void *user) {
    world_link *link = user;
    int64_t now_ns = harpe_clock_ns();
    harpe_transfer_result result = HARPE_TRANSFER_RUNNING;
    if (is_over_time(link, now_ns)) {
        (void)snprintf(link->reason, HARPE_TRANSFER_REASON_SIZE,
                       "Operation timed out after %lld milliseconds with %zu bytes received",
                       (long long)((now_ns - link->begun_ns) / 1000000), link->taken);
        return HARPE_TRANSFER_BROKEN;
    }
    if (link->fate.loses_request) return HARPE_TRANSFER_RUNNING;
    if (!link->has_sent && now_ns >= link->send_ns) result = send_request(link);
    if (result == HARPE_TRANSFER_RUNNING && link->has_news && now_ns >= link->read_ns)
        result = receive(link);
    return result;
}

static bool has_begun(void *user) {
    const world_link *link = user;
    return link->taken > 0;
}

/* Waits for the socket. */
static void wait_for_socket(world_link *link, short events, int64_t longest_ns) {
    struct pollfd waited[] = {{.fd = link->bell, .events = POLLIN},
                              {.fd = link->socket, .events = events}};
    eventfd_t ignored;
    atomic_store(&link->is_polling, true);
    if (atomic_load(&link->wakes) == link->wakes_seen && harpe_poll(waited, 2, longest_ns) > 0) {
        if (waited[0].revents) (void)eventfd_read(link->bell, &ignored);
        if ((waited[1].revents & ~POLLOUT) && (events & POLLIN)) {
            int64_t late_ns = link->taken == 0 ? link->fate.answer_late_ns : 0;
            link->has_news = true;
            link->read_ns = harpe_clock_ns() + transport.options.latency_ns + late_ns;
        }
    }
    atomic_store(&link->is_polling, false);
}

static void shorten(int64_t *longest_ns, int64_t until_ns) {
    int64_t left_ns = until_ns - harpe_clock_ns();
    if (left_ns < 0) left_ns = 0;
    if (left_ns < *longest_ns) *longest_ns = left_ns;
}

static void wait_for_more(void *user, int64_t longest_ns) {
    world_link *link = user;
    const harpe_message_fate *fate = &link->fate;
    short events = 0;
    if (link->transfer->limit_ns > 0)
        shorten(&longest_ns, link->begun_ns + link->transfer->limit_ns + 1);
    if (!fate->loses_request) {
        if (!link->is_connected) shorten(&longest_ns, link->send_ns);
        if (link->has_news) shorten(&longest_ns, link->read_ns);
        if (link->is_connected && !link->has_sent) events |= POLLOUT;
        if (link->is_connected && !link->has_news && !fate->loses_answer) events |= POLLIN;
    }
    int64_t wait_ns = longest_ns == INT64_MAX ? -1 : longest_ns;
    if (events)
        wait_for_socket(link, events, wait_ns);
    else if (wait_ns != 0)
        (void)harpe_wait_while(&link->wakes, link->wakes_seen, wait_ns);
    link->wakes_seen = atomic_load(&link->wakes);
}

/* Lets a request arrive that is still under way. */
static void leave_under_way(world_link *link) {
    bool is_open = link->socket >= 0;
    int socket = is_open ? fcntl(link->socket, F_DUPFD_CLOEXEC, 0) : -1;
    char *bytes = link->request.data;
    if (is_open && socket < 0) return;
    size_t length = link->request.length;
    link->request = (harpe_text){0};
    if (link->fate.cuts_request && link->fate.request_bytes < length)
        length = link->fate.request_bytes;
    (void)post(link->name, socket, link->send_ns, bytes, length, true);
}

static long end(void *user) {
    world_link *link = user;
    bool is_under_way =
        !link->fate.loses_request && !link->is_connected && harpe_clock_ns() < link->send_ns;
    if (is_under_way) leave_under_way(link);
    if (link->is_complete && transport.options.answered) {
        const harpe_message message = message_of(link, link->transfer);
        transport.options.answered(transport.options.user, &message, link->reader.http_status,
                                   link->reader.body_hash);
    }
    link->is_kept = link->is_complete && answer_keeps(&link->reader) && link->has_sent &&
                    !link->transfer->is_alone;
    if (!link->is_kept) disconnect(link);
    link->transfer = NULL;
    return link->reader.http_status;
}

static void wake(void *user) {
    world_link *link = user;
    (void)atomic_fetch_add(&link->wakes, 1);
    harpe_wake(&link->wakes);
    if (atomic_load(&link->is_polling)) (void)eventfd_write(link->bell, 1);
}

/* ---- The transport --------------------------------------------------------------------------- */

harpe_status harpe_transport_begin(const harpe_transport_options *options, harpe_error *error) {
    transport.options = *options;
    transport.is_ending = false;
    transport.news = harpe_process_holds(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (transport.news < 0) return harpe_fail_errno(error, errno, "cannot make an eventfd");
    int failed = harpe_thread_start(&transport.thread, "harpe-messages", deliver_all, NULL);
    if (failed) {
        harpe_process_close(transport.news);
        return harpe_fail_errno(error, failed, "cannot start a thread for messages");
    }
    transport.table =
        (harpe_transport){.tick_ns = options->tick_ns > 0 ? options->tick_ns : TICK_NS,
                          .open = open_link,
                          .close = close_link,
                          .begin = begin,
                          .step = step,
                          .has_begun = has_begun,
                          .wait = wait_for_more,
                          .end = end,
                          .wake = wake};
    harpe_transport_in_use = &transport.table;
    return HARPE_OK;
}

void harpe_transport_end(void) {
    lock();
    transport.is_ending = true;
    unlock();
    (void)eventfd_write(transport.news, 1);
    harpe_thread_join(transport.thread);
    harpe_process_close(transport.news);
    while (transport.service_count > 0)
        free(transport.services[--transport.service_count].name);
    free(transport.services);
    transport.services = NULL;
    transport.service_capacity = 0;
    harpe_transport_in_use = NULL;
}
