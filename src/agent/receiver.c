/* SPDX-License-Identifier: Apache-2.0 */
/* Receives packets with descriptors in a process of its own, the receiver. A client can send the
 * descriptor of a file whose file system it serves itself. If the client does not answer, every use
 * of the descriptor waits for ever, even its close. Then only the receiver waits. The receiver has
 * no lock, lease or listener. The agent waits for it only some seconds. */
#include "agent/agent_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/error.h"
#include "base/helper_process.h"
#include "base/passed_files.h"
#include "base/process.h"
#include "client/control.h"

enum {
    TIMEOUT_MS = 5000,
    ERRORS_OF_SOCKET = 3, /* a socket returns its pending error once */
};

#define DROP "drop"

/* ---- Packets without descriptors ------------------------------------------------------------- */

bool harpe_packet_prepare(int socket) {
    int on = 1;
    return setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0;
}

/* The kernel adds the sender's credentials to each packet, for which alone there is room. So an
 * empty packet differs from the end, and a packet with descriptors is marked as cut. */
harpe_packet harpe_packet_read(int socket, bool is_look, char text[HARPE_LEASE_MESSAGE_SIZE],
                               ssize_t *length) {
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(struct ucred))];
    } control;
    for (int i = 0; i < ERRORS_OF_SOCKET; i++) {
        struct iovec data = {text, HARPE_LEASE_MESSAGE_SIZE};
        struct msghdr message = {.msg_iov = &data,
                                 .msg_iovlen = 1,
                                 .msg_control = control.bytes,
                                 .msg_controllen = sizeof control.bytes};
        ssize_t got = recvmsg(socket, &message, MSG_DONTWAIT | (is_look ? MSG_PEEK : 0));
        if (got < 0 && errno == EAGAIN) return HARPE_PACKET_NONE;
        if (got < 0) continue;
        *length = message.msg_flags & MSG_TRUNC ? -1 : got;
        if (message.msg_flags & MSG_CTRUNC) return HARPE_PACKET_WITH_FILES;
        return message.msg_controllen > 0 ? HARPE_PACKET_PLAIN : HARPE_PACKET_END;
    }
    return HARPE_PACKET_END;
}

/* ---- The process ----------------------------------------------------------------------------- */

/* Returns the length, or -1 if the packet is too long or has too many descriptors. */
static ssize_t receive_packet(char *text, harpe_passed_files *files) {
    struct iovec data = {text, HARPE_LEASE_MESSAGE_SIZE};
    int flags;
    ssize_t got = harpe_passed_files_receive(harpe_helper_memory(), &data, 1,
                                             HARPE_PASSED_FILES_MAX, files, MSG_DONTWAIT, &flags);
    return flags & (MSG_TRUNC | MSG_CTRUNC) ? -1 : got;
}

/* Checks the memory that a client shares with its controller, which runs as root. The memory must
 * have the right size and must be sealed against shrinking, because an access beyond its end would
 * kill the controller. Only memory from memfd_create can be sealed. */
static bool is_good_memory(int memory) {
    struct stat status;
    struct statfs system;
    int seals = memory >= 0 ? fcntl(memory, F_GET_SEALS) : -1;
    return seals >= 0 && (seals & F_SEAL_SHRINK) && !(seals & F_SEAL_WRITE) &&
           fstat(memory, &status) == 0 && status.st_size == (off_t)sizeof(harpe_controller_slot) &&
           fstatfs(memory, &system) == 0 && system.f_type == TMPFS_MAGIC;
}

/* Returns the descriptor that the request announces as `name`, in the order of the names. */
static int take_file(const json_t *request, const char *name, const harpe_passed_files *files,
                     size_t *next) {
    if (!json_is_true(json_object_get(request, name)) || *next >= files->count) return -1;
    return files->each[(*next)++];
}

static void examine_files(const json_t *request, const harpe_passed_files *files,
                          harpe_received *out) {
    size_t next = 0;
    int memory = take_file(request, "memory", files, &next);
    int node = take_file(request, "node", files, &next);
    out->memory = is_good_memory(memory) ? memory : -1;
    harpe_agent_examine_node(node, &out->node);
}

/* Sends the packet, with the memory in place of all descriptors, before any of them is closed. */
static void pass_on(const harpe_received *received, char *text) {
    harpe_passed_files memory = {{received->memory}, received->memory >= 0};
    size_t length = received->length > 0 ? (size_t)received->length : 0;
    struct iovec data[2] = {{(void *)received, sizeof *received}, {text, length}};
    (void)harpe_passed_files_send(harpe_helper_socket(), data, 2, &memory, 0);
}

static void receive_one(void) {
    char text[HARPE_LEASE_MESSAGE_SIZE];
    harpe_passed_files files = {.count = 0};
    harpe_received received = {.memory = -1};
    received.length = receive_packet(text, &files);
    json_t *request =
        received.length > 0 ? json_loadb(text, (size_t)received.length, 0, NULL) : NULL;
    if (request) examine_files(request, &files, &received);
    pass_on(&received, text);
}

/* The end of the process drops what is left. */
static void drop_all(void) {
    char text[HARPE_LEASE_MESSAGE_SIZE];
    ssize_t length;
    while (harpe_packet_read(harpe_helper_memory(), false, text, &length) >= HARPE_PACKET_PLAIN)
        ;
}

/* The end of the process closes the descriptors. */
int harpe_receiver_main(int argc, char **argv) {
    harpe_helper_process_begin();
    (void)signal(SIGTERM, SIG_DFL);
    if (!harpe_helper_process_introduce()) return EXIT_FAILURE;
    if (argc > 2 && strcmp(argv[2], DROP) == 0)
        drop_all();
    else
        receive_one();
    return EXIT_SUCCESS;
}

/* ---- The agent's side ------------------------------------------------------------------------ */

static harpe_status start(int socket, const char *what, int *channel, int *process,
                          harpe_error *error) {
    harpe_helper_process helper = {.name = "the receiver of the node agent",
                                   .arguments = {HARPE_RECEIVER_ARGUMENT, what},
                                   .memory = socket,
                                   .timeout_ms = TIMEOUT_MS};
    return harpe_helper_process_start_known(&helper, channel, process, error);
}

static bool await_packet(int channel, char *text, harpe_received *out) {
    struct pollfd wait = {.fd = channel, .events = POLLIN};
    struct iovec data[2] = {{out, sizeof *out}, {text, HARPE_LEASE_MESSAGE_SIZE}};
    harpe_passed_files memory;
    int ready, flags;
    do {
        ready = harpe_poll(&wait, 1, TIMEOUT_MS * INT64_C(1000000));
    } while (ready < 0 && errno == EINTR);
    if (ready <= 0 ||
        harpe_passed_files_receive(channel, data, 2, 1, &memory, 0, &flags) < (ssize_t)sizeof *out)
        return false;
    out->memory = memory.count > 0 ? memory.each[0] : -1;
    return true;
}

harpe_status harpe_receiver_receive(int socket, char text[HARPE_LEASE_MESSAGE_SIZE],
                                    harpe_received *out, int *process, harpe_error *error) {
    int channel = -1;
    *process = -1;
    *out = (harpe_received){.length = -1, .memory = -1};
    harpe_status status = start(socket, "receive", &channel, process, error);
    if (status != HARPE_OK) return status;
    if (!await_packet(channel, text, out))
        status = harpe_fail(error, HARPE_PERMISSION_DENIED,
                            "the descriptors of the request do not answer: are they of a file "
                            "system that hangs?");
    harpe_process_close(channel);
    return status;
}

harpe_status harpe_receiver_drop(int socket, int *process, harpe_error *error) {
    int channel = -1;
    *process = -1;
    harpe_status status = start(socket, DROP, &channel, process, error);
    if (status == HARPE_OK) harpe_process_close(channel);
    return status;
}
