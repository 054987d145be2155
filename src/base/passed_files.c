/* SPDX-License-Identifier: Apache-2.0 */
/* Messages with SCM_RIGHTS. */
#include "base/passed_files.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/process.h"

typedef union control {
    struct cmsghdr align;
    /* The kernel adds credentials if the receiver has asked for them (SO_PASSCRED). */
    char bytes[CMSG_SPACE(HARPE_PASSED_FILES_MAX * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
} control;

ssize_t harpe_passed_files_send(int socket, const struct iovec *parts, size_t part_count,
                                const harpe_passed_files *files, int flags) {
    control space = {.bytes = {0}};
    size_t length = files->count * sizeof(int);
    struct msghdr message = {.msg_iov = (struct iovec *)parts, .msg_iovlen = part_count};
    if (files->count > 0) {
        message.msg_control = space.bytes;
        message.msg_controllen = CMSG_SPACE(length);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(length);
        memcpy(CMSG_DATA(header), files->each, length);
    }
    return sendmsg(socket, &message, flags | MSG_NOSIGNAL);
}

ssize_t harpe_passed_files_receive(int socket, struct iovec *parts, size_t part_count, size_t most,
                                   harpe_passed_files *files, int flags, int *message_flags) {
    control space;
    struct msghdr message = {.msg_iov = parts,
                             .msg_iovlen = part_count,
                             .msg_control = space.bytes,
                             .msg_controllen =
                                 CMSG_SPACE(sizeof(struct ucred)) + CMSG_LEN(most * sizeof(int))};
    files->count = 0;
    ssize_t got = recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
    *message_flags = got >= 0 ? message.msg_flags : 0;
    for (struct cmsghdr *header = got >= 0 ? CMSG_FIRSTHDR(&message) : NULL; header;
         header = CMSG_NXTHDR(&message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
        size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int file;
            memcpy(&file, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
            if (files->count < most) {
                files->each[files->count++] = harpe_process_holds(file);
                continue;
            }
            (void)close(file); /* there was room, because the message has no credentials */
            *message_flags |= MSG_CTRUNC;
        }
    }
    return got;
}
