/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that the launcher and the ranks share, and the functions with which ranks communicate:
 * messages between stages, and a meeting of all ranks. Both contain emulated times, so that work
 * starts at the emulated time at which it was ready. */
#ifndef HARPE_SIM_BOARD_H
#define HARPE_SIM_BOARD_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/status.h>

#include "sim/options.h"

/* One step of one rank. The rank writes it. Times are emulated. */
typedef struct harpe_sim_step {
    int64_t begin_ns, end_ns; /* the same for all ranks */
    double ended_at_s;        /* real time at the end of the step, seconds since 1970 */
    double energy_j;          /* energy of the rank's GPU */
    int64_t round;            /* round of the schedule that it ran; -1: none */
    uint64_t clock_writes;    /* number of changes of clock of the rank's GPU */
    int64_t host_late_ns; /* the longest delay with which this machine woke the rank, as GPU time */
} harpe_sim_step;

/* The meeting of all ranks. It computes a maximum, like an all-reduce. */
typedef struct harpe_sim_meeting {
    _Atomic uint32_t arrived;
    _Atomic uint32_t over; /* a futex: number of meetings held */
    _Atomic int64_t latest_ns, stop;
    int64_t agreed_ns, agreed_stop; /* written by the last rank to arrive */
} harpe_sim_meeting;

typedef struct harpe_sim_rank_state {
    _Atomic uint32_t bell; /* a futex: number of messages for this rank */
    _Atomic uint64_t mismatches, reconnects;
} harpe_sim_rank_state;

typedef struct harpe_sim_board {
    /* Set before ranks start. */
    int world_size;
    double time_scale;
    size_t message_count;
    char library[HARPE_SIM_TEXT_MAX]; /* of the emulator */
    char server_url[HARPE_SIM_TEXT_MAX];
    char job_key[64]; /* "": the ranks receive the job's id by a broadcast */
    /* Written by the launcher at any time. */
    _Atomic int32_t stop;           /* stop after the current step */
    _Atomic int32_t abort;          /* stop at once */
    _Atomic int32_t is_steady;      /* the plan runs, so the baseline may be measured */
    _Atomic int64_t straggler_step; /* applies from this training step on */
    int straggler_rank;
    double straggler_factor;
    /* Written by the ranks. */
    _Atomic uint32_t steps; /* a futex: steps that all ranks have finished, with the warm-up */
    _Atomic int32_t baseline_count; /* steps of the baseline that all ranks have finished */
    _Atomic int64_t turns_step;     /* the step before which the first of them ran; -1: none */
    char job_id[256];               /* set by rank 0 before job_id_is_known */
    _Atomic int32_t job_id_is_known;
    char shared[256]; /* data that rank 0 broadcasts, between two meetings */
    harpe_sim_meeting meeting;
    harpe_sim_rank_state rank[HARPE_SIM_RANK_MAX];
    /* Time at which the work for another rank was done; see rank.c. HARPE_SIM_BASELINE_MAX and then
     * HARPE_SIM_STEP_MAX rows of steps follow, which get memory when they are written. */
    _Atomic int64_t message_ns[];
} harpe_sim_board;

/* Return the records of all ranks in a step. Steps of the baseline run at the highest clocks, in
 * turns with the steps of the plan. */
static inline harpe_sim_step *harpe_sim_baseline_at(const harpe_sim_board *board, int index) {
    return (harpe_sim_step *)(void *)&board->message_ns[board->message_count] +
           (size_t)index * (size_t)board->world_size;
}
static inline harpe_sim_step *harpe_sim_step_at(const harpe_sim_board *board, int step) {
    return harpe_sim_baseline_at(board, HARPE_SIM_BASELINE_MAX + step);
}

/* Returns the size of a board in bytes. */
size_t harpe_sim_board_size(int world_size, size_t message_count);

/* Makes a board for this process and its children. */
harpe_status harpe_sim_board_create(int world_size, size_t message_count, harpe_sim_board **out,
                                    harpe_error *error);
void harpe_sim_board_close(harpe_sim_board *board);

/* Sends a message to a rank. A message is identified by its index among the board's messages. In
 * each step, one rank sends it once to one other rank. */
void harpe_sim_send(harpe_sim_board *board, int to, size_t message, int64_t time_ns);
/* Waits for a message to `rank` whose time is later than `after_ns`, the start of the step. Returns
 * false if the run is aborted. */
bool harpe_sim_receive(harpe_sim_board *board, int rank, size_t message, int64_t after_ns,
                       int64_t *time_ns);
/* Meets all ranks: returns the latest time, and whether any rank wants to stop. Returns false if
 * the run is aborted. */
bool harpe_sim_meet(harpe_sim_board *board, int64_t *time_ns, bool *stop);

/* Resets the meeting before ranks start again. */
void harpe_sim_board_reset(harpe_sim_board *board);

void harpe_sim_wake(_Atomic uint32_t *futex);
/* Waits until the value differs from `seen`, or until `milliseconds` have passed. May return
 * early. */
void harpe_sim_wait(_Atomic uint32_t *futex, uint32_t seen, int milliseconds);

#endif
