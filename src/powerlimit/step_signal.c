/* SPDX-License-Identifier: Apache-2.0 */
/* Step signals, through which a training program reports its steps to `harpe power-limit run`. The
 * program counts them in memory that the runner shares. A signal never waits, never raises a signal
 * and never writes to a descriptor. The memory's descriptor is used once, to map it. Its device and
 * inode are checked first, because a launcher may have closed the descriptor and reused its
 * number. */
#include "powerlimit/step_signal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <harpe/power_limit.h>

#include "base/number.h"
#include "base/wait.h"

/* The mapping of this process and of its forked children. Once found, the mapping is kept. */
static harpe_step_memory *_Atomic known_memory;

/* ---- Finding the memory ---------------------------------------------------------------------- */

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
           status.st_size == (off_t)sizeof(harpe_step_memory);
}

/* Maps a duplicate of the descriptor. The duplicate refers to the same file even if other threads
 * reuse the descriptor's number. Checks the descriptor before duplicating it, because closing a
 * duplicate of a user's file would drop that file's locks. */
static harpe_step_memory *map_memory(const memory_name *name) {
    if (!is_named(name->descriptor, name)) return NULL;
    int own = fcntl(name->descriptor, F_DUPFD_CLOEXEC, 3);
    if (own < 0) return NULL;
    int seals = fcntl(own, F_GET_SEALS);
    void *memory = MAP_FAILED;
    if (is_named(own, name) && seals >= 0 && (seals & F_SEAL_SHRINK))
        memory = mmap(NULL, sizeof(harpe_step_memory), PROT_READ | PROT_WRITE, MAP_SHARED, own, 0);
    (void)close(own);
    if (memory == MAP_FAILED) return NULL;
    harpe_step_memory *shared = memory;
    if (shared->magic == HARPE_STEP_MEMORY_MAGIC) return shared;
    (void)munmap(memory, sizeof *shared);
    return NULL;
}

static harpe_step_memory *find_memory(void) {
    harpe_step_memory *shared = atomic_load_explicit(&known_memory, memory_order_acquire);
    if (shared) return shared;
    const char *text = secure_getenv(HARPE_STEP_MEMORY_VARIABLE);
    memory_name name;
    if (!text || !parse_name(text, &name)) return NULL;
    int errno_before = errno;
    shared = map_memory(&name);
    errno = errno_before;
    harpe_step_memory *other = NULL;
    if (shared && !atomic_compare_exchange_strong(&known_memory, &other, shared)) {
        (void)munmap(shared, sizeof *shared);
        shared = other;
    }
    return shared;
}

harpe_step_memory *harpe_step_memory_own(void) {
    harpe_step_memory *shared = find_memory();
    if (shared) return shared;
    /* Shared, so that marks of forked children count too. */
    void *memory =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return NULL;
    shared = memory;
    shared->magic = HARPE_STEP_MEMORY_MAGIC;
    harpe_step_memory *other = NULL;
    if (atomic_compare_exchange_strong(&known_memory, &other, shared)) return shared;
    (void)munmap(memory, sizeof *shared);
    return other;
}

/* ---- Sending --------------------------------------------------------------------------------- */

/* The count is stored before is_parked is read, and the runner stores is_parked before it reads the
 * count for the last time. So at least one of the two processes sees the store of the other. */
static void ring(harpe_step_memory *shared) {
    atomic_fetch_add(&shared->bell, 1);
    if (atomic_load(&shared->is_parked) == 0 || atomic_exchange(&shared->is_parked, 0) == 0) return;
    harpe_wake(&shared->is_parked);
}

void harpe_step_memory_add(harpe_step_memory *shared, uint64_t steps) {
    atomic_fetch_add(&shared->steps, steps);
    ring(shared);
}

void harpe_step_memory_count(uint64_t steps) {
    harpe_step_memory *shared = find_memory();
    if (shared) harpe_step_memory_add(shared, steps);
}

void harpe_power_limit_mark_step(void) { harpe_step_memory_count(1); }

void harpe_power_limit_mark_epoch(void) {
    harpe_step_memory *shared = find_memory();
    if (!shared) return;
    uint64_t epoch = atomic_load(&shared->epochs);
    atomic_store(&shared->steps_at_epoch[epoch % HARPE_STEP_EPOCHS], atomic_load(&shared->steps));
    atomic_fetch_add(&shared->epochs, 1);
    ring(shared);
}
