/* SPDX-License-Identifier: Apache-2.0 */
/* Sends and receives messages with descriptors on Unix sockets. Whoever receives descriptors of a
 * process that he does not trust may wait for ever when he uses or closes them. */
#ifndef HARPE_BASE_PASSED_FILES_H
#define HARPE_BASE_PASSED_FILES_H

#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

enum { HARPE_PASSED_FILES_MAX = 4 };

typedef struct harpe_passed_files {
    int each[HARPE_PASSED_FILES_MAX];
    size_t count;
} harpe_passed_files;

/* Sends a message with copies of the descriptors. Returns and sets errno as sendmsg() does, without
 * a signal. */
ssize_t harpe_passed_files_send(int socket, const struct iovec *parts, size_t part_count,
                                const harpe_passed_files *files, int flags);

/* Receives a message with at most `most` descriptors, which the caller closes. Returns and sets
 * errno as recvmsg() does. `*message_flags` has MSG_TRUNC if the message did not fit, and
 * MSG_CTRUNC if it had more descriptors; those are closed. */
ssize_t harpe_passed_files_receive(int socket, struct iovec *parts, size_t part_count, size_t most,
                                   harpe_passed_files *files, int flags, int *message_flags);

#endif
