/* SPDX-License-Identifier: Apache-2.0 */
/* Receives packets with descriptors in a process of its own, the receiver. A client can send the
 * descriptor of a file whose file system it serves itself. If the client does not answer, every use
 * of the descriptor waits for ever, even its close. Then only the receiver waits. The receiver has
 * no lock, lease or listener. The agent waits for it only some seconds. */
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
/* Reads a packet. If `is_look` is true, the packet stays in the socket. Never receives descriptors:
 * reading drops those of the packet, so look at a packet before reading it. Does not wait. */
harpe_packet harpe_packet_read(int socket, bool is_look, char text[HARPE_LEASE_MESSAGE_SIZE],
                               ssize_t *length);

/* ---- The agent's side ------------------------------------------------------------------------ */

/* A packet that the process has received. */
typedef struct harpe_received {
    ssize_t length; /* of its text; -1: it is longer than a request may be */
    int memory;     /* the memory that the request announces, if it is valid; -1: none */
    harpe_agent_node_proof node;
} harpe_received;

/* Starts a receiver for one packet, which examines the descriptors of the packet. Waits some
 * seconds for it, so call this function on a worker. The caller closes `*process`, a pidfd (-1: no
 * process was started), and `out->memory`. After a failure the receiver may still run. */
harpe_status harpe_receiver_receive(int socket, char text[HARPE_LEASE_MESSAGE_SIZE],
                                    harpe_received *out, int *process, harpe_error *error);
/* Starts a receiver that drops all packets of the socket. After success, closing the socket does
 * not wait, because the receiver has it too. */
harpe_status harpe_receiver_drop(int socket, int *process, harpe_error *error);

/* ---- The process ----------------------------------------------------------------------------- */

int harpe_receiver_main(int argc, char **argv);

#endif
