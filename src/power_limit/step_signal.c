/* SPDX-License-Identifier: Apache-2.0 */
/* Step signals, with which a training program reports its steps to the runner (`harpe power-limit
 * run`). The program counts its steps in memory that the runner shares. To count never waits, never
 * raises a signal of the system and never writes to a descriptor. The memory's descriptor is used
 * once, to map the memory. Its device and inode are checked first, because a launcher may have
 * closed the descriptor and reused its number. In this case the memory is opened through the
 * runner's descriptor. */
#include "power_limit/step_signal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
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

/* The memory's name: "<descriptor>:<device>:<inode>:<process>". Older runners write no process. */
typedef struct memory_name {
    int descriptor; /* its number in the runner, and in this process if it was inherited */
    int runner;     /* process id of the runner; 0: unknown */
    uint64_t device, inode;
} memory_name;

static bool parse_name(const char *text, memory_name *name) {
    enum { DESCRIPTOR, DEVICE, INODE, RUNNER, COUNT };
    int64_t numbers[COUNT] = {0};
    int count = 0;
    for (bool is_last = false; !is_last; count++) {
        size_t length = strcspn(text, ":");
        if (count == COUNT || !harpe_parse_int(text, length, &numbers[count]) || numbers[count] < 0)
            return false;
        is_last = text[length] == '\0';
        text += length + 1;
    }
    if (count <= INODE || numbers[DESCRIPTOR] > INT_MAX || numbers[RUNNER] > INT_MAX) return false;
    *name = (memory_name){(int)numbers[DESCRIPTOR], (int)numbers[RUNNER], (uint64_t)numbers[DEVICE],
                          (uint64_t)numbers[INODE]};
    return true;
}

static bool is_named(int descriptor, const memory_name *name) {
    struct stat status;
    return fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) &&
           (uint64_t)status.st_dev == name->device && (uint64_t)status.st_ino == name->inode &&
           status.st_size == (off_t)sizeof(harpe_step_memory);
}

/* Opens the memory through the descriptor of the runner, which must be a process of the same user.
 * First reads the name of the file behind this descriptor, because another process may have got the
 * runner's process id, and to open a file of that process could wait. Returns -1 if the file is not
 * the memory. */
static int open_at_runner(const memory_name *name) {
    static const char expected[] = "/memfd:" HARPE_STEP_MEMORY_FILE " ";
    char process[32], link[64], target[sizeof expected];
    struct stat status;
    snprintf(process, sizeof process, "/proc/%d", name->runner);
    snprintf(link, sizeof link, "%s/fd/%d", process, name->descriptor);
    if (name->runner == 0 || stat(process, &status) != 0 || status.st_uid != geteuid()) return -1;
    ssize_t length = readlink(link, target, sizeof target);
    if (length != (ssize_t)sizeof target || memcmp(target, expected, sizeof expected - 1) != 0)
        return -1;
    return open(link, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

/* Returns a descriptor of the memory, which the caller closes, or -1. The descriptor is a
 * duplicate, which stays the memory's even if other threads reuse the number of the original. The
 * original is checked before it is duplicated: if it were a user's file, closing the duplicate
 * would drop the file's locks. */
static int open_memory(const memory_name *name) {
    if (is_named(name->descriptor, name)) return fcntl(name->descriptor, F_DUPFD_CLOEXEC, 3);
    return open_at_runner(name);
}

static harpe_step_memory *map_memory(const memory_name *name) {
    int own = open_memory(name);
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

harpe_step_memory *harpe_step_memory_own(bool *is_runners) {
    static _Atomic(harpe_step_memory *) own_memory;
    harpe_step_memory *shared = find_memory();
    *is_runners = shared && shared != atomic_load(&own_memory);
    if (shared) return shared;
    /* The mapping is shared, so that marks of forked children count too. */
    void *memory =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return NULL;
    shared = memory;
    shared->magic = HARPE_STEP_MEMORY_MAGIC;
    atomic_store(&own_memory, shared);
    atomic_store_explicit(&known_memory, shared, memory_order_release);
    return shared;
}

/* ---- Sending --------------------------------------------------------------------------------- */

/* The count is stored before is_parked is read, and the runner stores is_parked before it reads the
 * count for the last time. So at least one of the two processes sees the store of the other. */
static void ring(harpe_step_memory *shared) {
    atomic_fetch_add(&shared->bell, 1);
    if (atomic_load(&shared->is_parked) == 0 || atomic_exchange(&shared->is_parked, 0) == 0) return;
    harpe_wake(&shared->is_parked);
}

/* Counts steps of a source, unless the memory already counts a better one. */
static void count(harpe_step_memory *shared, harpe_step_source source, uint64_t steps) {
    uint32_t best = atomic_load(&shared->source);
    while (best < (uint32_t)source &&
           !atomic_compare_exchange_weak(&shared->source, &best, (uint32_t)source)) {
    }
    if (best > (uint32_t)source) return;
    atomic_fetch_add(&shared->steps, steps);
    ring(shared);
}

void harpe_step_memory_add(harpe_step_memory *shared, uint64_t steps) {
    count(shared, HARPE_STEP_MARKS, steps);
}

void harpe_step_memory_count(uint64_t steps) {
    harpe_step_memory *shared = find_memory();
    if (shared) count(shared, HARPE_STEP_MARKS, steps);
}

void harpe_power_limit_count_step(harpe_step_source source) {
    harpe_step_memory *shared = find_memory();
    if (shared) count(shared, source, 1);
}

void harpe_power_limit_mark_step(void) { harpe_power_limit_count_step(HARPE_STEP_MARKS); }

void harpe_power_limit_end_source(harpe_step_source source) {
    harpe_step_memory *shared = find_memory();
    uint32_t ended = (uint32_t)source;
    if (shared) (void)atomic_compare_exchange_strong(&shared->source, &ended, 0);
}

void harpe_step_memory_end_epoch(harpe_step_memory *shared) {
    uint64_t epoch = atomic_load(&shared->epochs);
    atomic_store(&shared->steps_at_epoch[epoch % HARPE_STEP_EPOCHS], atomic_load(&shared->steps));
    atomic_fetch_add(&shared->epochs, 1);
    ring(shared);
}

void harpe_power_limit_mark_epoch(void) {
    harpe_step_memory *shared = find_memory();
    if (shared) harpe_step_memory_end_epoch(shared);
}
