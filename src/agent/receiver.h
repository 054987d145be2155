/* SPDX-License-Identifier: Apache-2.0 */
/* Receives packets with descriptors in a process of its own. A client chooses the descriptors that
 * it sends, and can make every use of them wait for ever, even their close: it may itself serve the
 * file system of a file. Then only this process waits. It has no lock, no lease and no listener,
 * the agent stops waiting for it after a while, and it ends when the file system lets it. */
#ifndef HARPE_AGENT_RECEIVER_H
#define HARPE_AGENT_RECEIVER_H

#include <stdbool.h>
#include <sys/types.h>

#include <harpe/status.h>

#include "agent/device_node.h"
#include "lease/lease.h"

#define HARPE_RECEIVER_ARGUMENT "--agent-receiver"

/* ---- Packets without descriptors ------------------------------------------------------------- */

typedef enum harpe_packet {
    HARPE_PACKET_NONE,       /* there is none now */
    HARPE_PACKET_END,        /* nothing more can be read */
    HARPE_PACKET_PLAIN,      /* `*length` bytes; -1: longer than a request may be */
    HARPE_PACKET_WITH_FILES, /* the same, with descriptors, which are not received */
} harpe_packet;

/* Prepares a socket for harpe_packet_read. */
bool harpe_packet_prepare(int socket);
/* Reads a packet, or looks at it if `is_look`. Never receives descriptors: a packet that has some
 * loses them if it is read, so look first. Does not wait. */
harpe_packet harpe_packet_read(int socket, bool is_look, char text[HARPE_LEASE_MESSAGE_SIZE],
                               ssize_t *length);

/* ---- The agent's side ------------------------------------------------------------------------ */

/* A packet that the process has received. */
typedef struct harpe_received {
    ssize_t length; /* of its text; -1: it is longer than a request may be */
    int memory;     /* the memory that the request announces, if it is valid; -1: none */
    harpe_agent_node_proof node;
} harpe_received;

/* Starts a process, which receives one packet and examines its descriptors. Waits for it for some
 * seconds, so call it on a worker. The caller closes `*process` (a pidfd; -1: no process was
 * started) and `out->memory`. After a failure the process may still run. */
harpe_status harpe_receiver_receive(int socket, char text[HARPE_LEASE_MESSAGE_SIZE],
                                    harpe_received *out, int *process, harpe_error *error);
/* Starts a process, which drops all packets of the socket. When this function has returned success,
 * the caller closes the socket without waiting. */
harpe_status harpe_receiver_drop(int socket, int *process, harpe_error *error);

/* ---- The process ----------------------------------------------------------------------------- */

int harpe_receiver_main(int argc, char **argv);

#endif
