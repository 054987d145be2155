/* SPDX-License-Identifier: Apache-2.0 */
/* A side process: the program `harpe`, started by the library, that outlives the process which
 * started it and tidies up behind it. Here is what all of them share, on both sides: starting,
 * exchanging messages, noticing the starter's end. What there is to tidy up they know themselves.
 *
 * It is a program and not a plain fork, because a process forked out of one with threads and an
 * open driver may neither allocate nor call that driver. */
#ifndef HARPE_BASE_SIDE_PROCESS_H
#define HARPE_BASE_SIDE_PROCESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

#include <harpe/status.h>

/* Descriptors of a side process. Standard streams are /dev/null, others are closed. */
enum {
    HARPE_SIDE_SOCKET = 3,  /* SOCK_SEQPACKET: every message whole or not at all */
    HARPE_SIDE_STARTER = 4, /* pidfd of the process that started it */
    HARPE_SIDE_MEMORY = 5,  /* memory shared with the starter, if it has given any */
};

/* ---- The starter's side ---- */

typedef struct harpe_side_process {
    const char *name;             /* "the power limit guard", for messages */
    const char *arguments[3];     /* after the program's name; NULL ends them */
    int memory;                   /* descriptor to hand on; -1: none */
    const struct iovec *greeting; /* messages to send at once */
    size_t greeting_count;
    void *answer; /* receives one message of exactly this size */
    size_t answer_size;
    int patience_ms;             /* for the answer; 0: 30 s */
    const atomic_bool *gives_up; /* true: do not wait any longer; may be NULL */
} harpe_side_process;

/* The path of the program `harpe`, to be freed. `name` says in messages what needs the program. */
harpe_status harpe_side_process_program(const char *name, char **out, harpe_error *error);

/* Returns once the process has answered. It is nobody's child, in a session of its own. `*socket`
 * is to be closed. HARPE_UNAVAILABLE after `patience_ms`, HARPE_INTERRUPTED soon after `*gives_up`:
 * the process then finds its socket closed. HARPE_NOT_SUPPORTED before Linux 5.9. */
harpe_status harpe_side_process_start(const harpe_side_process *process, int *socket,
                                      harpe_error *error);

/* ---- Both sides ---- */

/* One message of exactly this size. False when the other side is gone, or after `timeout_ms`
 * (negative: never) without a message. */
bool harpe_side_process_send(int socket, const void *data, size_t size);
bool harpe_side_process_receive(int socket, void *data, size_t size, int timeout_ms);

/* ---- The side process's own side ---- */

/* First of all: signals that are meant for the starter's terminal or group pass it by. */
void harpe_side_process_begin(void);

/* Waits until the starter has died, or has sent something or closed its end. False: nothing of that
 * within `timeout_ms` (negative: no limit). A process that the starter has forked may hold the
 * socket open beyond the starter's death: hence the pidfd. */
bool harpe_side_process_wait(int timeout_ms);

#endif
