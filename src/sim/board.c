/* SPDX-License-Identifier: Apache-2.0 */
/* The shared memory of a simulated training job, and the messages in it. A message is a time in a
 * fixed place of the memory. The sender stores it, then wakes the receiver through a futex. The
 * meeting is a counter. A rank that waits regularly checks whether the run was aborted. */
#include "sim/sim.h"

#include <errno.h>
#include <sys/mman.h>

#include "base/error.h"
#include "base/wait.h"

enum { LOOK_UP_MS = 100 };

/* ---- Memory ---------------------------------------------------------------------------------- */

size_t harpe_sim_board_size(int world_size, size_t message_count) {
    size_t rows = HARPE_SIM_BASELINE_MAX + HARPE_SIM_STEP_MAX;
    return sizeof(harpe_sim_board) + message_count * sizeof(int64_t) +
           rows * (size_t)world_size * sizeof(harpe_sim_step);
}

harpe_status harpe_sim_board_create(int world_size, size_t message_count, harpe_sim_board **out,
                                    harpe_error *error) {
    size_t size = harpe_sim_board_size(world_size, message_count);
    harpe_sim_board *board =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (board == MAP_FAILED) return harpe_fail_errno(error, errno, "shared memory");
    board->world_size = world_size;
    board->message_count = message_count;
    atomic_store(&board->straggler_step, INT64_MAX);
    atomic_store(&board->turns_step, -1);
    harpe_sim_board_reset(board);
    *out = board;
    return HARPE_OK;
}

void harpe_sim_board_close(harpe_sim_board *board) {
    if (board) munmap(board, harpe_sim_board_size(board->world_size, board->message_count));
}

void harpe_sim_board_reset(harpe_sim_board *board) {
    atomic_store(&board->meeting.arrived, 0);
    atomic_store(&board->meeting.latest_ns, INT64_MIN);
    atomic_store(&board->meeting.stop, 0);
    atomic_store(&board->abort, 0);
}

/* ---- Waiting --------------------------------------------------------------------------------- */

void harpe_sim_wake(_Atomic uint32_t *futex) {
    atomic_fetch_add(futex, 1);
    harpe_wake(futex);
}

void harpe_sim_wait(_Atomic uint32_t *futex, uint32_t seen, int milliseconds) {
    (void)harpe_wait_while(futex, seen, milliseconds * INT64_C(1000000));
}

/* ---- Messages -------------------------------------------------------------------------------- */

void harpe_sim_send(harpe_sim_board *board, int to, size_t message, int64_t time_ns) {
    atomic_store(&board->message_ns[message], time_ns);
    harpe_sim_wake(&board->rank[to].bell);
}

bool harpe_sim_receive(harpe_sim_board *board, int rank, size_t message, int64_t after_ns,
                       int64_t *time_ns) {
    _Atomic uint32_t *bell = &board->rank[rank].bell;
    for (;;) {
        uint32_t seen = atomic_load(bell);
        *time_ns = atomic_load(&board->message_ns[message]);
        if (*time_ns > after_ns) return true;
        if (atomic_load(&board->abort)) return false;
        harpe_sim_wait(bell, seen, LOOK_UP_MS);
    }
}

static void raise_to(_Atomic int64_t *to, int64_t value) {
    int64_t now = atomic_load(to);
    while (now < value && !atomic_compare_exchange_weak(to, &now, value)) {
    }
}

bool harpe_sim_meet(harpe_sim_board *board, int64_t *time_ns, bool *stop) {
    harpe_sim_meeting *meeting = &board->meeting;
    uint32_t over = atomic_load(&meeting->over);
    if (atomic_load(&board->abort)) return false; /* a single rank never waits */
    raise_to(&meeting->latest_ns, *time_ns);
    raise_to(&meeting->stop, *stop);
    if (atomic_fetch_add(&meeting->arrived, 1) + 1 == (uint32_t)board->world_size) {
        meeting->agreed_ns = atomic_load(&meeting->latest_ns);
        meeting->agreed_stop = atomic_load(&meeting->stop);
        atomic_store(&meeting->arrived, 0);
        atomic_store(&meeting->latest_ns, INT64_MIN);
        atomic_store(&meeting->stop, 0);
        harpe_sim_wake(&meeting->over);
    }
    while (atomic_load(&meeting->over) == over) {
        if (atomic_load(&board->abort)) return false;
        harpe_sim_wait(&meeting->over, over, LOOK_UP_MS);
    }
    *time_ns = meeting->agreed_ns;
    *stop = meeting->agreed_stop != 0;
    return true;
}
