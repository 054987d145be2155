/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler of fibers, and the platform (base/platform.h) on it. */
#include "world/world.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/array.h"
#include "base/error.h"
#include "base/helper_process.h"
#include "base/platform.h"
#include "base/wait.h"
#include "world/fiber.h"

enum {
    FIRST_PROCESS = 1000,
    BUCKET_BITS = 14,
    EVENTS = 64,
    ARGUMENTS = 5,
    YIELD_ONE_IN = 8, /* at a lock of a world that shuffles */
};
#define NEVER INT64_MAX

typedef struct process process;
typedef struct thread thread;

typedef enum thread_state { READY, WAITING, RUNNING, ENDED } thread_state;

struct thread {
    harpe_fiber fiber;
    process *process;
    char name[16];
    void *(*run)(void *user);
    void *user;
    int number; /* pthread_t of base/wait.h, from 1 */
    thread_state state;
    bool is_woken;  /* not by time */
    bool was_woken; /* before its process stood still */
    int saved_errno;
    thread *next;                 /* in the ready list */
    thread *same, **same_link;    /* in the bucket of the address for which it waits */
    const volatile void *address; /* NULL: none */
    bool waits_for_time;
    size_t place;           /* in the heap, if it waits for a time */
    struct poller *pollers; /* while it waits for descriptors */
    size_t poller_count;
    thread *sibling, **sibling_link; /* the threads of its process */
};

/* A thread that waits for a descriptor. */
typedef struct poller {
    thread *thread;
    int fd;
    short events;
    struct poller *next, **link; /* of the same descriptor */
} poller;

/* The end of a wait. */
typedef struct heap_entry {
    int64_t until_ns;
    uint64_t sequence; /* of two that are due at once, the earlier wait ends first */
    thread *thread;
} heap_entry;

/* A descriptor that a process holds. The number may be that of another file by now. */
typedef struct held_file {
    process *holder; /* NULL: nobody */
    dev_t device;
    ino_t file;
} held_file;

struct process {
    pid_t number;
    const char *name;
    bool is_alive;
    int status;
    int64_t stalled_until_ns;
    thread *threads;
    uid_t uid;
    gid_t gid;
    int end[2];     /* a pipe that is readable after the end; -1: nobody asked yet */
    int signals[2]; /* a pipe of struct signalfd_siginfo; -1: SIGTERM ends the process */
    int helper[3];  /* HARPE_HELPER_SOCKET and so on; -1: none */
    const harpe_world_program *program;
    char *arguments[ARGUMENTS];
    int argument_count;
    int (*main)(void *user);
    void *user;
    int end_word; /* its address is unparked at the end */
};

typedef struct mapping {
    dev_t device;
    ino_t file;
    void *memory;
    size_t size;
    int uses;
} mapping;

static struct world {
    harpe_world_options options;
    harpe_fiber scheduler;
    thread *current;
    thread *ready, **ready_end;
    size_t ready_count;
    heap_entry *heap;
    size_t heap_count, heap_capacity;
    thread *buckets[1 << BUCKET_BITS];
    thread **threads; /* by number - 1; NULL: ended and joined */
    size_t thread_count, thread_capacity;
    process **processes;
    size_t process_count, process_capacity;
    held_file *held; /* by descriptor */
    size_t held_capacity;
    mapping *mappings;
    size_t mapping_count, mapping_capacity;
    poller **polled; /* by descriptor */
    size_t polled_capacity;
    int epoll_fd;
    thread *buried; /* its stack is freed at the next turn */
    int64_t now_ns, wall_offset_ns;
    uint64_t random, sequence, turns_at_once;
    unsigned introduced; /* sockets */
    uint64_t turns;
    void (*step)(void *user);
    void *step_user;
    harpe_error *error;
} world;

uint64_t harpe_world_draw(uint64_t count) {
    uint64_t z = world.random += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    z ^= z >> 31;
    return count > 1 ? z % count : 0;
}

/* ---- Waits by time: a heap ------------------------------------------------------------------- */

static bool is_earlier(const heap_entry *a, const heap_entry *b) {
    if (a->until_ns != b->until_ns) return a->until_ns < b->until_ns;
    return a->sequence < b->sequence;
}

static void put(heap_entry entry, size_t place) {
    world.heap[place] = entry;
    entry.thread->place = place;
}

static void settle(heap_entry entry, size_t hole) {
    const heap_entry *heap = world.heap;
    while (hole > 0 && is_earlier(&entry, &heap[(hole - 1) / 2])) {
        put(heap[(hole - 1) / 2], hole);
        hole = (hole - 1) / 2;
    }
    for (;;) {
        size_t child = 2 * hole + 1;
        if (child >= world.heap_count) break;
        if (child + 1 < world.heap_count && is_earlier(&heap[child + 1], &heap[child])) child++;
        if (!is_earlier(&heap[child], &entry)) break;
        put(heap[child], hole);
        hole = child;
    }
    put(entry, hole);
}

/* The heap has room for all threads (new_thread). */
static void wait_by_time(thread *one, int64_t until_ns) {
    one->waits_for_time = until_ns != NEVER;
    if (!one->waits_for_time) return;
    settle((heap_entry){until_ns, world.sequence++, one}, world.heap_count++);
}

static void leave_heap(thread *one) {
    if (!one->waits_for_time) return;
    one->waits_for_time = false;
    heap_entry last = world.heap[--world.heap_count];
    if (last.thread != one) settle(last, one->place);
}

/* ---- Waits by address ------------------------------------------------------------------------ */

static thread **bucket_of(const volatile void *address) {
    uint64_t hash = (uint64_t)(uintptr_t)address * UINT64_C(0x9E3779B97F4A7C15);
    return &world.buckets[hash >> (64 - BUCKET_BITS)];
}

/* Appends, so that the thread that has waited for the longest time is the first. */
static void wait_by_address(thread *one, const volatile void *address) {
    thread **link = bucket_of(address);
    one->address = address;
    while (*link)
        link = &(*link)->same;
    one->same = NULL;
    one->same_link = link;
    *link = one;
}

static void leave_bucket(thread *one) {
    if (!one->address) return;
    one->address = NULL;
    *one->same_link = one->same;
    if (one->same) one->same->same_link = one->same_link;
}

/* ---- Waits by descriptor --------------------------------------------------------------------- */

/* The kernel needs long to add one epoll instance to another, so a descriptor stays in the world's
 * instance. EPOLLONESHOT: the kernel reports a descriptor only once after each wait for it. */
static uint32_t events_of(int fd) {
    uint32_t events = EPOLLONESHOT;
    for (const poller *one = world.polled[fd]; one; one = one->next)
        events |= (uint16_t)one->events;
    return events;
}

/* Does nothing for a descriptor for which the kernel cannot wait, such as a file: poll() has found
 * it ready. */
static void begin_polling(poller *one) {
    if ((size_t)one->fd >= world.polled_capacity) {
        size_t before = world.polled_capacity;
        if (!HARPE_ARRAY_RESERVE(world.polled, world.polled_capacity, (size_t)one->fd + 1)) abort();
        memset(world.polled + before, 0, (world.polled_capacity - before) * sizeof(poller *));
        for (size_t fd = 0; fd < before; fd++)
            if (world.polled[fd]) world.polled[fd]->link = &world.polled[fd];
    }
    poller **link = &world.polled[one->fd];
    while (*link)
        link = &(*link)->next;
    one->link = link;
    one->next = NULL;
    *link = one;
    struct epoll_event event = {.events = events_of(one->fd), .data.fd = one->fd};
    if (epoll_ctl(world.epoll_fd, EPOLL_CTL_MOD, one->fd, &event) != 0 && errno == ENOENT)
        (void)epoll_ctl(world.epoll_fd, EPOLL_CTL_ADD, one->fd, &event);
}

static void end_polling(thread *one) {
    for (size_t i = 0; i < one->poller_count; i++) {
        poller *own = &one->pollers[i];
        if (!own->link) continue;
        *own->link = own->next;
        if (own->next) own->next->link = own->link;
    }
    free(one->pollers);
    one->pollers = NULL;
    one->poller_count = 0;
}

/* ---- Threads --------------------------------------------------------------------------------- */

static void make_ready(thread *one) {
    one->state = READY;
    one->next = NULL;
    *world.ready_end = one;
    world.ready_end = &one->next;
    world.ready_count++;
}

static void end_wait(thread *one, bool is_woken) {
    leave_heap(one);
    leave_bucket(one);
    end_polling(one);
    one->is_woken = is_woken || one->was_woken;
    one->was_woken = false;
    make_ready(one);
}

static thread *take_ready(void) {
    thread **link = &world.ready;
    if (world.options.shuffles)
        for (uint64_t skipped = harpe_world_draw(world.ready_count); skipped > 0; skipped--)
            link = &(*link)->next;
    thread *taken = *link;
    *link = taken->next;
    if (!taken->next) world.ready_end = link;
    world.ready_count--;
    return taken;
}

static void drop_ready(thread *one) {
    thread **link = &world.ready;
    while (*link != one)
        link = &(*link)->next;
    *link = one->next;
    if (!one->next) world.ready_end = link;
    world.ready_count--;
}

/* Gives the turn back to the scheduler. */
static void switch_away(void) {
    thread *self = world.current;
    self->saved_errno = errno;
    harpe_fiber_switch(&self->fiber, &world.scheduler);
    errno = self->saved_errno;
}

static void free_thread(thread *one) {
    harpe_fiber_free(&one->fiber);
    free(one);
}

static void leave_process(thread *one) {
    *one->sibling_link = one->sibling;
    if (one->sibling) one->sibling->sibling_link = one->sibling_link;
}

static void end_process(process *own, int status);

/* The main function of each fiber. Does not return. */
static void run_thread(void *user) {
    thread *self = user;
    process *own = self->process;
    harpe_fiber_began(&self->fiber);
    errno = 0;
    if (self->run) {
        (void)self->run(self->user);
    } else {
        int status = own->program ? own->program->main(own->argument_count, own->arguments)
                                  : own->main(own->user);
        end_process(own, status);
    }
    self->state = ENDED;
    harpe_platform_in_use->unpark(self, true);
    for (;;)
        switch_away();
}

static thread *new_thread(process *own, const char *name, void *(*run)(void *user), void *user) {
    if (!HARPE_ARRAY_RESERVE(world.threads, world.thread_capacity, world.thread_count + 1) ||
        !HARPE_ARRAY_RESERVE(world.heap, world.heap_capacity, world.thread_count + 1))
        return NULL;
    thread *new = harpe_calloc(1, sizeof *new);
    if (!new) return NULL;
    new->process = own;
    new->run = run;
    new->user = user;
    (void)snprintf(new->name, sizeof new->name, "%s", name);
    if (!harpe_fiber_make(&new->fiber, run_thread, new)) {
        free(new);
        return NULL;
    }
    world.threads[world.thread_count] = new;
    new->number = (int)++world.thread_count;
    new->sibling = own->threads;
    new->sibling_link = &own->threads;
    if (own->threads) own->threads->sibling_link = &new->sibling;
    own->threads = new;
    make_ready(new);
    return new;
}

/* ---- Processes ------------------------------------------------------------------------------- */

static process *find_process(pid_t number) {
    size_t index = (size_t)(number - FIRST_PROCESS);
    return number >= FIRST_PROCESS && index < world.process_count ? world.processes[index] : NULL;
}

static process *new_process(const char *name) {
    if (!HARPE_ARRAY_RESERVE(world.processes, world.process_capacity, world.process_count + 1))
        return NULL;
    process *new = harpe_calloc(1, sizeof *new);
    if (!new) return NULL;
    *new = (process){.number = FIRST_PROCESS + (pid_t)world.process_count,
                     .name = name,
                     .is_alive = true,
                     .uid = getuid(),
                     .gid = getgid(),
                     .end = {-1, -1},
                     .signals = {-1, -1},
                     .helper = {-1, -1, -1}};
    world.processes[world.process_count++] = new;
    return new;
}

static void close_one(int *fd) {
    if (*fd >= 0) (void)close(*fd);
    *fd = -1;
}

/* Lets a process hold a descriptor, and no other. */
static void hold(process *own, int fd) {
    struct stat status;
    if (fstat(fd, &status) != 0) return;
    size_t known = world.held_capacity;
    if (!HARPE_ARRAY_RESERVE(world.held, world.held_capacity, (size_t)fd + 1)) abort();
    if (world.held_capacity > known)
        memset(world.held + known, 0, (world.held_capacity - known) * sizeof *world.held);
    world.held[fd] = (held_file){own, status.st_dev, status.st_ino};
}

static void close_held(const process *own) {
    struct stat status;
    for (size_t fd = 0; fd < world.held_capacity; fd++) {
        held_file *one = &world.held[fd];
        if (one->holder != own) continue;
        one->holder = NULL;
        if (fstat((int)fd, &status) == 0 && status.st_dev == one->device &&
            status.st_ino == one->file)
            (void)close((int)fd);
    }
}

/* Stops a thread for ever. */
static void stop_thread(thread *one) {
    if (one->state == WAITING) {
        leave_heap(one);
        leave_bucket(one);
        end_polling(one);
    } else if (one->state == READY) {
        drop_ready(one);
    }
    world.threads[one->number - 1] = NULL;
    leave_process(one);
    if (one->state == RUNNING) {
        one->state = ENDED;
        world.buried = one; /* its stack is in use */
    } else {
        free_thread(one);
    }
}

static void end_process(process *own, int status) {
    if (!own->is_alive) return;
    own->is_alive = false;
    own->status = status;
    thread *next;
    for (thread *one = own->threads; one; one = next) {
        next = one->sibling;
        stop_thread(one);
    }
    close_held(own);
    close_one(&own->signals[0]);
    close_one(&own->signals[1]);
    if (own->end[1] >= 0) (void)!write(own->end[1], "", 1);
    harpe_platform_in_use->unpark(&own->end_word, true);
    if (world.buried && world.buried == world.current)
        for (;;)
            switch_away();
}

pid_t harpe_world_start(const char *name, int (*main)(void *user), void *user) {
    process *new = new_process(name);
    if (!new) return -1;
    new->main = main;
    new->user = user;
    return new_thread(new, name, NULL, NULL) ? new->number : -1;
}

bool harpe_world_is_alive(pid_t number) {
    const process *found = find_process(number);
    return found && found->is_alive;
}

bool harpe_world_await(pid_t number, int64_t until_ns) {
    const process *found = find_process(number);
    while (found && found->is_alive)
        if (!harpe_platform_in_use->park(&found->end_word, until_ns)) return !found->is_alive;
    return true;
}

void harpe_world_kill(pid_t number) {
    process *found = find_process(number);
    if (found) end_process(found, -1);
}

pid_t harpe_world_pick(const char *name) {
    pid_t picked = -1;
    uint64_t found = 0;
    for (size_t i = 1; i < world.process_count; i++) {
        const process *one = world.processes[i];
        if (!one->is_alive || (name && strcmp(one->name, name) != 0)) continue;
        if (harpe_world_draw(++found) == 0) picked = one->number;
    }
    return picked;
}

void harpe_world_stall(pid_t number, int64_t until_ns) {
    process *found = find_process(number);
    if (found && until_ns > found->stalled_until_ns) found->stalled_until_ns = until_ns;
}

int harpe_world_exit_status(pid_t number) {
    const process *found = find_process(number);
    return found && !found->is_alive ? found->status : -1;
}

/* ---- The platform ---------------------------------------------------------------------------- */

static int64_t now_ns(void) { return world.now_ns; }

static int64_t wall_ns(void) { return world.now_ns + world.wall_offset_ns; }

static bool wait_now(int64_t until_ns) {
    thread *self = world.current;
    self->state = WAITING;
    wait_by_time(self, until_ns);
    switch_away();
    return self->is_woken;
}

static bool park(const volatile void *address, int64_t until_ns) {
    if (until_ns <= world.now_ns) {
        make_ready(world.current); /* the others have their turn first */
        switch_away();
        return false;
    }
    wait_by_address(world.current, address);
    return wait_now(until_ns);
}

static void unpark(const volatile void *address, bool all) {
    thread *next;
    for (thread *one = *bucket_of(address); one; one = next) {
        next = one->same;
        if (one->address != address) continue;
        end_wait(one, true);
        if (!all) return;
    }
}

static int wait_for_descriptors(struct pollfd *waited, nfds_t count, int64_t longest_ns) {
    thread *self = world.current;
    int64_t until_ns =
        longest_ns < 0 || longest_ns > NEVER - 1 - world.now_ns ? NEVER : world.now_ns + longest_ns;
    for (;;) {
        int ready = harpe_poll(waited, count, 0);
        if (ready != 0 || until_ns <= world.now_ns) return ready;
        self->pollers = harpe_calloc(count, sizeof *self->pollers);
        if (!self->pollers && count > 0) {
            errno = ENOMEM;
            return -1;
        }
        self->poller_count = count;
        for (nfds_t i = 0; i < count; i++) {
            self->pollers[i] =
                (poller){.thread = self, .fd = waited[i].fd, .events = waited[i].events};
            if (waited[i].fd >= 0) begin_polling(&self->pollers[i]);
        }
        (void)wait_now(until_ns);
    }
}

/* If no other thread is ready, and nobody looks at each turn, a turn would change nothing. */
static void step(void) {
    if (!world.options.shuffles || (!world.ready && !world.step) ||
        harpe_world_draw(YIELD_ONE_IN) != 0)
        return;
    make_ready(world.current);
    switch_away();
}

static void random_bytes(void *bytes, size_t size) {
    unsigned char *to = bytes;
    for (size_t i = 0; i < size; i++)
        to[i] = (unsigned char)harpe_world_draw(256);
}

static int start_thread(pthread_t *out, const char *name, void *(*run)(void *user), void *user) {
    const thread *new = new_thread(world.current->process, name, run, user);
    if (!new) return EAGAIN;
    *out = (pthread_t) new->number;
    return 0;
}

static void join_thread(pthread_t number) {
    thread *other = world.threads[number - 1];
    while (other && other->state != ENDED)
        (void)park(other, NEVER);
    if (!other) return;
    world.threads[number - 1] = NULL;
    leave_process(other);
    free_thread(other);
}

static pid_t self(void) { return world.current ? world.current->process->number : FIRST_PROCESS; }

/* No two processes of a world have the same number, so the number also tells the start. */
static uint64_t started(pid_t number) {
    const process *found = find_process(number);
    return found && found->is_alive ? (uint64_t)number : 0;
}

static int open_process(pid_t number) {
    process *found = find_process(number);
    if (!found || !found->is_alive) {
        errno = ESRCH;
        return -1;
    }
    if (found->end[0] < 0 && pipe2(found->end, O_CLOEXEC | O_NONBLOCK) != 0) return -1;
    return fcntl(found->end[0], F_DUPFD_CLOEXEC, 0);
}

static process *process_of(int pidfd) {
    struct stat given, own;
    if (fstat(pidfd, &given) != 0) return NULL;
    for (size_t i = 0; i < world.process_count; i++) {
        process *one = world.processes[i];
        if (one->end[0] >= 0 && fstat(one->end[0], &own) == 0 && own.st_ino == given.st_ino &&
            own.st_dev == given.st_dev)
            return one;
    }
    return NULL;
}

static bool signal_process(int pidfd, int signal_number) {
    process *found = process_of(pidfd);
    if (!found || !found->is_alive) return false;
    if (signal_number == 0) return true;
    struct signalfd_siginfo signal = {.ssi_signo = (uint32_t)signal_number};
    if (signal_number == SIGTERM && found->signals[1] >= 0)
        (void)!write(found->signals[1], &signal, sizeof signal);
    else
        end_process(found, -1);
    return true;
}

static int take_descriptor(int pidfd, int number) {
    const process *found = process_of(pidfd);
    if (found && found->is_alive && number >= HARPE_HELPER_SOCKET && number <= HARPE_HELPER_MEMORY)
        return fcntl(found->helper[number - HARPE_HELPER_SOCKET], F_DUPFD_CLOEXEC, 0);
    errno = ESRCH;
    return -1;
}

static void exit_process(int status) { end_process(world.current->process, status); }

static int start_helper(const char *const *arguments, int socket, int starter, int memory) {
    static char own_name[] = "harpe";
    const harpe_world_program *program = world.options.programs;
    while (program && program->name && strcmp(program->name, arguments[0]) != 0)
        program++;
    process *new = program && program->name ? new_process(program->name) : NULL;
    if (!new) return program && program->name ? ENOMEM : ENOENT;
    const int given[] = {socket, starter, memory};
    for (int i = 0; i < 3; i++) {
        new->helper[i] = given[i] < 0 ? -1 : fcntl(given[i], F_DUPFD_CLOEXEC, 0);
        if (new->helper[i] >= 0) hold(new, new->helper[i]);
    }
    (void)!pipe2(new->signals, O_CLOEXEC | O_NONBLOCK);
    new->program = program;
    new->arguments[new->argument_count++] = own_name;
    for (int i = 0; i < 3 && arguments[i]; i++)
        memcpy(&new->arguments[new->argument_count++], &arguments[i], sizeof arguments[i]);
    return new_thread(new, program->name, NULL, NULL) ? 0 : EAGAIN;
}

static int helper_descriptor(int number) {
    return world.current->process->helper[number - HARPE_HELPER_SOCKET];
}

static int signal_descriptor(void) {
    process *own = world.current->process;
    if (own->signals[0] < 0) (void)!pipe2(own->signals, O_CLOEXEC | O_NONBLOCK);
    return own->signals[0];
}

/* A process may be killed between the calls of the kernel around these two. */
static void own_descriptor(int fd) {
    hold(world.current->process, fd);
    step();
}

void harpe_world_hold(pid_t number, int descriptor) {
    process *own = find_process(number);
    if (own) hold(own, descriptor);
}

static void disown_descriptor(int fd) {
    step();
    if (fd >= 0 && (size_t)fd < world.held_capacity) world.held[fd].holder = NULL;
}

/* ---- Unix sockets ---------------------------------------------------------------------------- */

/* The abstract name of a socket that connects: a number, and the process. */
#define PEER_NAME "harpe-world/%u/%ld"

static void introduce(int socket) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int length, failed;
    do {
        length = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, PEER_NAME,
                          ++world.introduced, (long)self());
        failed = bind(socket, (struct sockaddr *)&name,
                      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length));
    } while (failed && errno == EADDRINUSE);
}

static void identify_peer(int socket, struct ucred *peer) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    socklen_t length = sizeof name - 1;
    unsigned introduced;
    long number;
    if (getpeername(socket, (struct sockaddr *)&name, &length) != 0 || name.sun_path[0] != '\0' ||
        // NOLINTNEXTLINE(cert-err34-c): the world's own text
        sscanf(name.sun_path + 1, PEER_NAME, &introduced, &number) != 2)
        return;
    const process *found = find_process((pid_t)number);
    if (found) *peer = (struct ucred){found->number, found->uid, found->gid};
}

void harpe_world_set_user(pid_t number, uid_t user, gid_t group) {
    process *found = find_process(number);
    if (!found) return;
    found->uid = user;
    found->gid = group;
}

/* A process of root, or of the user who runs the world, has all capabilities. */
static void describe(pid_t number, const char *file, char *text, size_t size) {
    const process *found = find_process(number);
    bool is_mighty = found && (found->uid == 0 || found->uid == getuid());
    text[0] = '\0';
    if (found && strcmp(file, "comm") == 0) (void)snprintf(text, size, "%.15s\n", found->name);
    if (found && strcmp(file, "status") == 0)
        (void)snprintf(text, size, "Name:\t%.15s\nCapEff:\t%016x\n", found->name,
                       is_mighty ? ~0U : 0U);
}

/* ---- The rest -------------------------------------------------------------------------------- */

static const char *directory(void) { return world.options.directory; }

static void *map(int file, size_t size) {
    struct stat status;
    if (fstat(file, &status) != 0) return NULL;
    for (size_t i = 0; i < world.mapping_count; i++) {
        mapping *one = &world.mappings[i];
        if (one->uses == 0 || one->device != status.st_dev || one->file != status.st_ino) continue;
        one->uses++;
        return one->memory;
    }
    if (!HARPE_ARRAY_RESERVE(world.mappings, world.mapping_capacity, world.mapping_count + 1))
        return NULL;
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) return NULL;
    size_t place = 0;
    while (place < world.mapping_count && world.mappings[place].uses > 0)
        place++;
    if (place == world.mapping_count) world.mapping_count++;
    world.mappings[place] = (mapping){status.st_dev, status.st_ino, memory, size, 1};
    return memory;
}

static void unmap(void *memory, size_t size) {
    for (size_t i = 0; i < world.mapping_count; i++) {
        mapping *one = &world.mappings[i];
        if (one->memory != memory || one->uses == 0 || --one->uses > 0) continue;
        (void)munmap(memory, size);
    }
}

static const harpe_platform platform = {
    .now_ns = now_ns,
    .wall_ns = wall_ns,
    .park = park,
    .unpark = unpark,
    .poll = wait_for_descriptors,
    .random = random_bytes,
    .step = step,
    .start_thread = start_thread,
    .join_thread = join_thread,
    .self = self,
    .started = started,
    .open_process = open_process,
    .signal_process = signal_process,
    .take_descriptor = take_descriptor,
    .exit = exit_process,
    .start_helper = start_helper,
    .helper_descriptor = helper_descriptor,
    .signals = signal_descriptor,
    .own = own_descriptor,
    .disown = disown_descriptor,
    .introduce = introduce,
    .identify_peer = identify_peer,
    .describe = describe,
    .directory = directory,
    .map = map,
    .unmap = unmap,
};

/* ---- The scheduler --------------------------------------------------------------------------- */

/* Ends the waits for a descriptor that is ready. Returns false if there are none. */
static bool end_waits_for(struct epoll_event *event) {
    int fd = event->data.fd;
    bool is_any = false;
    poller *next;
    for (poller *one = world.polled[fd]; one; one = next) {
        next = one->next;
        if (!(event->events & ((uint16_t)one->events | EPOLLERR | EPOLLHUP))) continue;
        end_wait(one->thread, true);
        is_any = true;
        next = world.polled[fd]; /* the thread may have waited for it twice */
    }
    event->events = events_of(fd);
    if (world.polled[fd]) (void)epoll_ctl(world.epoll_fd, EPOLL_CTL_MOD, fd, event);
    return is_any;
}

/* Ends the waits for all descriptors that are ready now. Returns false if there are none. */
static bool look_at_descriptors(void) {
    struct epoll_event events[EVENTS];
    bool is_any = false;
    int count;
    do {
        count = epoll_wait(world.epoll_fd, events, EVENTS, 0);
        for (int i = 0; i < count; i++)
            is_any |= end_waits_for(&events[i]);
    } while (!is_any && count > 0);
    return is_any;
}

/* Lets the time jump to the end of the next wait. Returns false if nothing waits for a time. */
static bool pass_time(void) {
    if (world.heap_count == 0) return false;
    world.now_ns = world.heap[0].until_ns;
    world.turns_at_once = 0;
    while (world.heap_count > 0 && world.heap[0].until_ns <= world.now_ns)
        end_wait(world.heap[0].thread, false);
    return true;
}

/* Says which threads wait. */
static harpe_status stuck(const char *why) {
    char list[400] = "";
    size_t length = 0;
    for (size_t i = 0; i < world.thread_count && length + 60 < sizeof list; i++) {
        const thread *one = world.threads[i];
        if (!one || one->state == ENDED) continue;
        int added = snprintf(list + length, sizeof list - length, " %s(%d)/%s", one->process->name,
                             (int)one->process->number, one->name);
        length += (size_t)(added > 0 ? added : 0);
    }
    return harpe_fail(world.error, HARPE_INTERNAL, "%s at %.9f s; threads:%s", why,
                      (double)world.now_ns * 1e-9, list);
}

static void take_turn(void) {
    thread *one = take_ready();
    int64_t stalled_ns = one->process->stalled_until_ns;
    if (stalled_ns > world.now_ns) {
        one->state = WAITING;
        one->was_woken = one->is_woken;
        wait_by_time(one, stalled_ns);
        return;
    }
    world.turns++;
    world.turns_at_once++;
    world.current = one;
    one->state = RUNNING;
    harpe_fiber_switch(&world.scheduler, &one->fiber);
    world.current = NULL;
    if (world.buried) free_thread(world.buried);
    world.buried = NULL;
}

static harpe_status run_until_end(const process *first) {
    const harpe_world_options *options = &world.options;
    while (first->is_alive) {
        if (options->most_turns && world.turns_at_once > options->most_turns)
            return stuck("the time stands still");
        if (world.ready && world.step) world.step(world.step_user); /* it may kill */
        if (world.ready) {
            take_turn();
        } else if (!look_at_descriptors()) {
            if (!pass_time()) return stuck("all threads wait for ever");
            if (options->longest_ns && world.now_ns > options->longest_ns)
                return stuck("the run does not end");
        }
    }
    return HARPE_OK;
}

typedef struct first_process {
    void (*run)(void *user);
    void *user;
} first_process;

static int run_first(void *user) {
    const first_process *first = user;
    first->run(first->user);
    return 0;
}

static void tear_down(void) {
    world.current = NULL;
    for (size_t i = 0; i < world.process_count; i++) {
        process *one = world.processes[i];
        end_process(one, -1);
        close_one(&one->end[0]);
        close_one(&one->end[1]);
        free(one);
    }
    for (size_t i = 0; i < world.mapping_count; i++)
        if (world.mappings[i].uses > 0)
            (void)munmap(world.mappings[i].memory, world.mappings[i].size);
    if (world.buried) free_thread(world.buried);
    free(world.heap);
    free(world.threads);
    free(world.processes);
    free(world.held);
    free(world.mappings);
    free(world.polled);
    close_one(&world.epoll_fd);
    harpe_fiber_end_all();
}

harpe_status harpe_world_run(const harpe_world_options *options, void (*run)(void *user),
                             void *user, harpe_error *error) {
    memset(&world, 0, sizeof world);
    world.options = *options;
    world.random = options->seed;
    world.now_ns = 1000000000;
    world.wall_offset_ns = options->wall_ns - world.now_ns;
    world.ready_end = &world.ready;
    world.error = error;
    json_object_seed(1); /* otherwise jansson draws the seed of its hash tables */
    world.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (world.epoll_fd < 0) return harpe_fail_errno(error, errno, "cannot make a world");
    harpe_platform_in_use = &platform;
    first_process first = {run, user};
    pid_t number = harpe_world_start("world", run_first, &first);
    harpe_status status =
        number > 0 ? run_until_end(find_process(number)) : harpe_fail_memory(error);
    tear_down();
    harpe_platform_in_use = NULL;
    return status;
}

void harpe_world_jump(int64_t ns) { world.wall_offset_ns += ns; }

void harpe_world_on_step(void (*step_function)(void *user), void *user) {
    world.step = step_function;
    world.step_user = user;
}

uint64_t harpe_world_turns(void) { return world.turns; }
