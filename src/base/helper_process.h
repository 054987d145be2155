/* SPDX-License-Identifier: Apache-2.0 */
/* A helper process is the program `harpe`, started by the library. Most of them outlive the process
 * that started them and clean up after it. This file contains the parts that all helper processes
 * share, on both sides: starting, exchanging messages, and noticing the starter's end. Each helper
 * process defines the work that it does at the end.
 *
 * A helper process is a separate program and not a plain fork, because a fork of a process with
 * threads and an open driver may neither allocate memory nor call the driver. */
#ifndef HARPE_BASE_HELPER_PROCESS_H
#define HARPE_BASE_HELPER_PROCESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

#include <harpe/status.h>

/* Descriptors of a helper process. Its standard streams are /dev/null. All other descriptors are
 * closed. */
enum {
    HARPE_HELPER_SOCKET = 3,  /* SOCK_SEQPACKET: a message arrives whole or not at all */
    HARPE_HELPER_STARTER = 4, /* pidfd of the starter */
    HARPE_HELPER_MEMORY = 5,  /* memory shared with the starter, if the starter passed any */
};

/* ---- The starter's side ---------------------------------------------------------------------- */

typedef struct harpe_helper_process {
    const char *name;         /* its name in messages, such as "the power limit guard" */
    const char *arguments[3]; /* after the program's name; NULL marks the end */
    int memory;               /* descriptor to pass on; -1: none */
    /* pidfd of the process at whose end the helper process cleans up. 0: the caller. */
    int starter;
    const struct iovec *greeting; /* messages that are sent first */
    size_t greeting_count;
    void *answer; /* receives one message of exactly this size */
    size_t answer_size;
    int timeout_ms;              /* for the answer; 0: 30 s */
    const atomic_bool *gives_up; /* stop waiting when it becomes true; may be NULL */
} harpe_helper_process;

/* Finds the path of the program `harpe`. The caller frees `*out` with free(). Messages use `name`
 * for the part that needs the program. */
harpe_status harpe_helper_process_program(const char *name, char **out, harpe_error *error);

/* Starts the process and returns when the process has answered. The process has its own session and
 * is not a child of the caller. The caller closes `*socket`. Fails with HARPE_UNAVAILABLE after
 * `timeout_ms`, and with HARPE_INTERRUPTED soon after `*gives_up` becomes true. In both cases the
 * process finds its socket closed. Fails with HARPE_NOT_SUPPORTED before Linux 5.9. */
harpe_status harpe_helper_process_start(const harpe_helper_process *process, int *socket,
                                        harpe_error *error);

/* Does the same for a process that calls harpe_helper_process_introduce, whose answer it receives.
 * The caller also closes `*pidfd`, a pidfd of the process, for the case that the process must be
 * killed. */
harpe_status harpe_helper_process_start_known(const harpe_helper_process *process, int *socket,
                                              int *pidfd, harpe_error *error);

/* ---- Both sides ------------------------------------------------------------------------------ */

/* Send and receive one message of exactly this size. Return false if the other side is gone, or
 * after `timeout_ms` (negative: no limit) without a message. */
bool harpe_helper_process_send(int socket, const void *data, size_t size);
/* Sends one message like harpe_helper_process_send. Returns false instead of waiting if the other
 * side does not read its messages. */
bool harpe_helper_process_send_now(int socket, const void *data, size_t size);
bool harpe_helper_process_receive(int socket, void *data, size_t size, int timeout_ms);

/* ---- Inside the helper process --------------------------------------------------------------- */

/* Return the descriptors of this helper process. */
int harpe_helper_socket(void);
int harpe_helper_memory(void);

/* Goes to the directory "/", so that the process keeps no file system busy. */
void harpe_helper_process_leave_directory(void);

/* Ignores signals that are meant for the starter's terminal or group. Call it first. */
void harpe_helper_process_begin(void);

/* The counterpart of harpe_helper_process_start_known: tells the starter the number of this
 * process. Waits until the starter has the pidfd, which is therefore of no other process. Returns
 * false if the starter is gone. */
bool harpe_helper_process_introduce(void);

/* Makes SIGTERM end harpe_helper_process_wait, as the starter's end does. Call it after
 * harpe_helper_process_begin, before any other thread is started. */
harpe_status harpe_helper_process_end_on_signal(harpe_error *error);

/* Waits until the starter has died, has sent something or has closed its end. Returns false after
 * `timeout_ms` (negative: no limit). It also watches the pidfd, because a process that the starter
 * forked may keep the socket open after the starter's death. */
bool harpe_helper_process_wait(int timeout_ms);

/* Waits until the starter has died, or SIGTERM has arrived as described above. Ignores messages of
 * the starter. Returns false after `timeout_ms`. */
bool harpe_helper_process_is_over_within(int timeout_ms);

#endif
