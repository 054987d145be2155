/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that launcher and ranks share, and how ranks speak: messages between stages and a
 * meeting of all. Times travel with both, so that work may count from when it was ready. */
#ifndef HARPE_CLI_TRAIN_SIM_BOARD_H
#define HARPE_CLI_TRAIN_SIM_BOARD_H

#include "cli/train_sim.h"

/* Makes the board in a file (`path`), or maps the one that is there. */
harpe_status harpe_sim_board_create(const char *path, size_t message_count, harpe_sim_board **out,
                                    harpe_error *error);
harpe_status harpe_sim_board_open(const char *path, harpe_sim_board **out, harpe_error *error);
void harpe_sim_board_close(harpe_sim_board *board);

/* How ranks speak. Functions return false when the run is aborted. A message is named by its index
 * among the board's; each is sent once a step, by one rank to one rank, with a time later than
 * `after_ns`, the begin of the step. */
typedef struct harpe_sim_transport {
    void *user;
    bool (*send)(void *user, int to, size_t message, int64_t time_ns);
    bool (*receive)(void *user, int from, size_t message, int64_t after_ns, int64_t *time_ns);
    /* Everybody: the latest time, and whether anybody wants to stop. */
    bool (*meet)(void *user, int64_t *time_ns, bool *stop);
} harpe_sim_transport;

/* Through the board itself. */
typedef struct harpe_sim_memory_transport {
    harpe_sim_board *board;
    int rank;
} harpe_sim_memory_transport;
harpe_sim_transport harpe_sim_memory(harpe_sim_memory_transport *user);

/* Before ranks start again: nobody is at the meeting. */
void harpe_sim_board_reset(harpe_sim_board *board);

void harpe_sim_wake(_Atomic uint32_t *futex);
/* Returns when it differs from `seen`, or after a while. */
void harpe_sim_wait(_Atomic uint32_t *futex, uint32_t seen, int milliseconds);

#endif
