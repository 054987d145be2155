/* SPDX-License-Identifier: Apache-2.0 */
/* How a training program tells `harpe power-limit run` where its steps are: it counts them in
 * memory that the runner has passed on. A mark never waits, never raises a signal and never writes
 * to a descriptor. The memory's descriptor is used once, to map it, and only after its device and
 * inode have shown that it is the runner's: a launcher may have closed it and used its number
 * again. */
#include "powerlimit/mark.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <harpe/power_limit.h>

#include "base/text.h"

/* The mapping of this process and of those that are forked from it. Once found it stays. */
static harpe_mark_board *_Atomic known_board;

/* ---- Finding the memory --------------------------------------------------------------------- */

/* "<descriptor>:<device>:<inode>". */
typedef struct memory_name {
    int descriptor;
    uint64_t device, inode;
} memory_name;

static bool parse_name(const char *text, memory_name *name) {
    int64_t numbers[3];
    for (int i = 0; i < 3; i++) {
        size_t length = strcspn(text, ":");
        if (!harpe_parse_int(text, length, &numbers[i]) || numbers[i] < 0) return false;
        if ((text[length] == ':') != (i < 2)) return false;
        text += length + 1;
    }
    if (numbers[0] > INT_MAX) return false;
    *name = (memory_name){(int)numbers[0], (uint64_t)numbers[1], (uint64_t)numbers[2]};
    return true;
}

static bool is_named(int descriptor, const memory_name *name) {
    struct stat status;
    return fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) &&
           (uint64_t)status.st_dev == name->device && (uint64_t)status.st_ino == name->inode &&
           status.st_size == (off_t)sizeof(harpe_mark_board);
}

/* A duplicate refers to the same file even if other threads reuse the number. It is made only after
 * the descriptor looks right, because closing a duplicate of a user's file would drop that file's
 * locks. */
static harpe_mark_board *map_board(const memory_name *name) {
    if (!is_named(name->descriptor, name)) return NULL;
    int own = fcntl(name->descriptor, F_DUPFD_CLOEXEC, 3);
    if (own < 0) return NULL;
    int seals = fcntl(own, F_GET_SEALS);
    void *memory = MAP_FAILED;
    if (is_named(own, name) && seals >= 0 && (seals & F_SEAL_SHRINK)) {
        memory = mmap(NULL, sizeof(harpe_mark_board), PROT_READ | PROT_WRITE, MAP_SHARED, own, 0);
    }
    (void)close(own);
    if (memory == MAP_FAILED) return NULL;
    harpe_mark_board *board = memory;
    if (board->magic == HARPE_MARK_MAGIC) return board;
    (void)munmap(memory, sizeof *board);
    return NULL;
}

static harpe_mark_board *find_board(void) {
    harpe_mark_board *board = atomic_load_explicit(&known_board, memory_order_acquire);
    if (board) return board;
    const char *text = secure_getenv(HARPE_MARK_MEMORY_VARIABLE);
    memory_name name;
    if (!text || !parse_name(text, &name)) return NULL;
    int errno_before = errno;
    board = map_board(&name);
    errno = errno_before;
    harpe_mark_board *other = NULL;
    if (board && !atomic_compare_exchange_strong(&known_board, &other, board)) {
        (void)munmap(board, sizeof *board);
        board = other;
    }
    return board;
}

/* ---- Marking -------------------------------------------------------------------------------- */

/* The count is stored before is_parked is read, and the runner stores is_parked before it reads the
 * count for the last time. So at least one of the two sees the other's store. */
static void ring(harpe_mark_board *board) {
    atomic_fetch_add(&board->bell, 1);
    if (atomic_load(&board->is_parked) == 0 || atomic_exchange(&board->is_parked, 0) == 0) return;
    int errno_before = errno;
    (void)syscall(SYS_futex, &board->is_parked, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    errno = errno_before;
}

void harpe_power_limit_mark_step(void) {
    harpe_mark_board *board = find_board();
    if (!board) return;
    atomic_fetch_add(&board->steps, 1);
    ring(board);
}

void harpe_power_limit_mark_epoch(void) {
    harpe_mark_board *board = find_board();
    if (!board) return;
    uint64_t epoch = atomic_load(&board->epochs);
    atomic_store(&board->steps_at_epoch[epoch % HARPE_MARK_EPOCHS], atomic_load(&board->steps));
    atomic_fetch_add(&board->epochs, 1);
    ring(board);
}
