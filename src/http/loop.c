/* SPDX-License-Identifier: Apache-2.0 */
/* The event loop: one epoll instance, a heap of timers, and a stack of posted calls to which any
 * thread pushes without a lock. One turn waits, calls the watches, makes the posted calls and fires
 * the timers. A watch or timer that a callback removes is freed at the end of the turn, so events
 * that were already fetched never use freed memory. */
#include "http/loop.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/process.h"
#include "base/wait.h"

enum { EVENTS_PER_TURN = 256 };

struct harpe_watch {
    harpe_loop *loop;
    int fd;
    void (*ready)(void *user, uint32_t events); /* NULL: removed, to be freed after this turn */
    void *user;
    harpe_watch *previous,
        *next; /* in the list of the loop's watches, or (next) of its removed watches */
};

struct harpe_timer {
    harpe_loop *loop;
    int64_t due_ns;
    uint64_t sequence; /* of two timers that are due at once, the older fires first */
    size_t place;      /* index in the heap */
    void (*due)(void *user);
    void *user;
};

struct harpe_loop {
    int epoll_fd;
    int wake_fd;   /* an eventfd, edge-triggered: written to wake the loop, never read */
    int signal_fd; /* -1: none */
    atomic_bool is_stopping;
    atomic_bool is_asleep; /* a post must wake it */
    _Atomic(harpe_posted *) posted;

    harpe_watch *watches, *removed;
    harpe_timer **timers; /* a binary heap */
    size_t timer_count, timer_capacity;
    uint64_t timer_sequence;

    harpe_before_wait *before_wait;
    harpe_before_wait *next_before_wait; /* the entry after the one that runs */
    void (*signal_received)(void *user, int signal_number);
    void *signal_user;
};

static void wake(harpe_loop *loop) {
    uint64_t one = 1;
    ssize_t written = write(loop->wake_fd, &one, sizeof one);
    (void)written; /* it can only fail if 2^64 wake-ups are pending */
}

/* ---- Timers ---------------------------------------------------------------------------------- */

static bool is_earlier(const harpe_timer *a, const harpe_timer *b) {
    if (a->due_ns != b->due_ns) return a->due_ns < b->due_ns;
    return a->sequence < b->sequence;
}

static void put_timer(harpe_loop *loop, harpe_timer *timer, size_t place) {
    loop->timers[place] = timer;
    timer->place = place;
}

/* Moves `timer` to its place in the heap. The place `hole` is free, and the rest of the heap is in
 * order. */
static void settle_timer(harpe_loop *loop, harpe_timer *timer, size_t hole) {
    harpe_timer **timers = loop->timers;
    while (hole > 0 && is_earlier(timer, timers[(hole - 1) / 2])) {
        put_timer(loop, timers[(hole - 1) / 2], hole);
        hole = (hole - 1) / 2;
    }
    for (;;) {
        size_t child = 2 * hole + 1;
        if (child >= loop->timer_count) break;
        if (child + 1 < loop->timer_count && is_earlier(timers[child + 1], timers[child])) child++;
        if (!is_earlier(timers[child], timer)) break;
        put_timer(loop, timers[child], hole);
        hole = child;
    }
    put_timer(loop, timer, hole);
}

harpe_status harpe_loop_after(harpe_loop *loop, int64_t delay_ms, void (*due)(void *user),
                              void *user, harpe_timer **out, harpe_error *error) {
    if (!HARPE_ARRAY_RESERVE(loop->timers, loop->timer_capacity, loop->timer_count + 1))
        return harpe_fail_memory(error);
    harpe_timer *timer = malloc(sizeof *timer);
    if (!timer) return harpe_fail_memory(error);

    if (delay_ms < 0) delay_ms = 0;
    int64_t now_ns = harpe_clock_ns();
    int64_t most_ms = (INT64_MAX - now_ns) / 1000000;
    *timer = (harpe_timer){
        .loop = loop,
        .due_ns = now_ns + (delay_ms < most_ms ? delay_ms : most_ms) * 1000000,
        .sequence = loop->timer_sequence++,
        .due = due,
        .user = user,
    };
    settle_timer(loop, timer, loop->timer_count++);
    if (out) *out = timer;
    return HARPE_OK;
}

/* Removes a timer from the heap and returns it. */
static harpe_timer *take_timer(harpe_loop *loop, size_t place) {
    harpe_timer *taken = loop->timers[place];
    harpe_timer *last = loop->timers[--loop->timer_count];
    loop->timers[loop->timer_count] = NULL;
    if (place < loop->timer_count) settle_timer(loop, last, place);
    return taken;
}

void harpe_timer_cancel(harpe_timer *timer) {
    if (timer) free(take_timer(timer->loop, timer->place));
}

static void fire_timers(harpe_loop *loop) {
    if (loop->timer_count == 0) return;
    int64_t now_ns = harpe_clock_ns();
    uint64_t first_new = loop->timer_sequence; /* timers made meanwhile wait for the next turn */
    while (loop->timer_count > 0 && loop->timers[0]->due_ns <= now_ns &&
           loop->timers[0]->sequence < first_new) {
        harpe_timer *timer = take_timer(loop, 0);
        timer->due(timer->user);
        free(timer);
    }
}

/* ---- Watches --------------------------------------------------------------------------------- */

static harpe_status control(harpe_watch *watch, int operation, uint32_t events,
                            harpe_error *error) {
    struct epoll_event event = {.events = events, .data.ptr = watch};
    if (epoll_ctl(watch->loop->epoll_fd, operation, watch->fd, &event) != 0)
        return harpe_fail_errno(error, errno, "cannot watch file descriptor %d", watch->fd);
    return HARPE_OK;
}

harpe_status harpe_loop_watch(harpe_loop *loop, int fd, uint32_t events,
                              void (*ready)(void *user, uint32_t events), void *user,
                              harpe_watch **out, harpe_error *error) {
    harpe_watch *watch = malloc(sizeof *watch);
    if (!watch) return harpe_fail_memory(error);
    *watch = (harpe_watch){.loop = loop, .fd = fd, .ready = ready, .user = user};
    harpe_status status = control(watch, EPOLL_CTL_ADD, events, error);
    if (status != HARPE_OK) {
        free(watch);
        return status;
    }
    watch->next = loop->watches;
    if (loop->watches) loop->watches->previous = watch;
    loop->watches = watch;
    if (out) *out = watch;
    return HARPE_OK;
}

harpe_status harpe_watch_change(harpe_watch *watch, uint32_t events, harpe_error *error) {
    return control(watch, EPOLL_CTL_MOD, events, error);
}

void harpe_watch_remove(harpe_watch *watch) {
    if (!watch) return;
    harpe_loop *loop = watch->loop;
    epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL); /* the fd may be closed already */
    if (watch->next) watch->next->previous = watch->previous;
    if (watch->previous)
        watch->previous->next = watch->next;
    else
        loop->watches = watch->next;
    watch->ready = NULL;
    watch->next = loop->removed;
    loop->removed = watch;
}

static void free_watches(harpe_watch **watches) {
    while (*watches) {
        harpe_watch *watch = *watches;
        *watches = watch->next;
        free(watch);
    }
}

/* ---- Posted calls ---------------------------------------------------------------------------- */

/* Pushes the call, so the newest call is on top. All these operations are sequentially consistent.
 * So either this thread sees that the loop sleeps, or the loop sees the call before it sleeps. */
void harpe_loop_post(harpe_loop *loop, harpe_posted *posted) {
    harpe_posted *top = atomic_load(&loop->posted);
    do {
        posted->next = top;
    } while (!atomic_compare_exchange_weak(&loop->posted, &top, posted));
    if (atomic_load(&loop->is_asleep)) wake(loop);
}

static void make_posted_calls(harpe_loop *loop) {
    if (!atomic_load(&loop->posted)) return;
    harpe_posted *newest = atomic_exchange(&loop->posted, NULL);
    harpe_posted *oldest = NULL;
    while (newest) {
        harpe_posted *next = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    while (oldest) {
        harpe_posted *next = oldest->next; /* the call may free or post it again */
        oldest->call(oldest->user);
        oldest = next;
    }
}

/* ---- Signals --------------------------------------------------------------------------------- */

static void read_signals(void *user, uint32_t events) {
    (void)events;
    harpe_loop *loop = user;
    struct signalfd_siginfo info;
    while (read(loop->signal_fd, &info, sizeof info) == (ssize_t)sizeof info)
        loop->signal_received(loop->signal_user, (int)info.ssi_signo);
}

harpe_status harpe_loop_on_signals(harpe_loop *loop, const int *signals,
                                   void (*received)(void *user, int signal_number), void *user,
                                   harpe_error *error) {
    if (loop->signal_fd >= 0)
        return harpe_fail(error, HARPE_ALREADY_EXISTS, "the loop takes signals already");
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; signals[i] != 0; i++)
        sigaddset(&set, signals[i]);

    int fd = harpe_process_signals(&set);
    if (fd < 0) return harpe_fail_errno(error, errno, "cannot receive signals");
    harpe_status status = harpe_loop_watch(loop, fd, EPOLLIN, read_signals, loop, NULL, error);
    if (status != HARPE_OK) {
        close(fd);
        return status;
    }
    loop->signal_fd = fd;
    loop->signal_received = received;
    loop->signal_user = user;
    return HARPE_OK;
}

/* ---- The loop -------------------------------------------------------------------------------- */

static void woken(void *user, uint32_t events) {
    (void)user;
    (void)events;
}

harpe_status harpe_loop_new(harpe_loop **out, harpe_error *error) {
    harpe_loop *loop = calloc(1, sizeof *loop);
    if (!loop) return harpe_fail_memory(error);
    loop->signal_fd = -1;
    harpe_status status = HARPE_OK;
    loop->epoll_fd = harpe_process_holds(epoll_create1(EPOLL_CLOEXEC));
    loop->wake_fd = harpe_process_holds(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (loop->epoll_fd < 0 || loop->wake_fd < 0)
        status = harpe_fail_errno(error, errno, "cannot make an event loop");
    else
        status = harpe_loop_watch(loop, loop->wake_fd, EPOLLIN | EPOLLET, woken, loop, NULL, error);
    if (status != HARPE_OK) {
        harpe_loop_free(loop);
        return status;
    }
    *out = loop;
    return HARPE_OK;
}

void harpe_loop_free(harpe_loop *loop) {
    if (!loop) return;
    for (size_t i = 0; i < loop->timer_count; i++)
        free(loop->timers[i]);
    free(loop->timers);
    free_watches(&loop->watches);
    free_watches(&loop->removed);
    if (loop->signal_fd >= 0) close(loop->signal_fd);
    if (loop->wake_fd >= 0) harpe_process_close(loop->wake_fd);
    if (loop->epoll_fd >= 0) harpe_process_close(loop->epoll_fd);
    free(loop);
}

void harpe_loop_before_wait_add(harpe_loop *loop, harpe_before_wait *entry) {
    harpe_before_wait **end = &loop->before_wait;
    while (*end)
        end = &(*end)->next;
    entry->next = NULL;
    *end = entry;
}

void harpe_loop_before_wait_remove(harpe_loop *loop, harpe_before_wait *entry) {
    harpe_before_wait **place = &loop->before_wait;
    while (*place && *place != entry)
        place = &(*place)->next;
    if (!*place) return;
    *place = entry->next;
    if (loop->next_before_wait == entry) loop->next_before_wait = entry->next;
}

/* Does the work that comes before a wait. An entry may be removed meanwhile. */
static void run_before_wait(harpe_loop *loop) {
    for (harpe_before_wait *entry = loop->before_wait; entry; entry = loop->next_before_wait) {
        loop->next_before_wait = entry->next;
        entry->run(entry->user);
    }
}

/* Returns the longest time to wait, in ns; -1: no limit. */
static int64_t wait_ns(harpe_loop *loop) {
    int64_t most_ns = -1;
    run_before_wait(loop);
    for (const harpe_before_wait *entry = loop->before_wait; entry; entry = entry->next) {
        int64_t entry_ns = entry->wait_ns(entry->user);
        if (entry_ns >= 0 && (most_ns < 0 || entry_ns < most_ns)) most_ns = entry_ns;
    }
    if (loop->timer_count > 0) {
        int64_t left_ns = loop->timers[0]->due_ns - harpe_clock_ns();
        if (left_ns < 0) left_ns = 0;
        if (most_ns < 0 || left_ns < most_ns) most_ns = left_ns;
    }
    return most_ns;
}

static int wait_for_events(harpe_loop *loop, struct epoll_event *events) {
    int64_t most_ns = wait_ns(loop);
    atomic_store(&loop->is_asleep, true);
    if (atomic_load(&loop->posted) || atomic_load(&loop->is_stopping)) most_ns = 0;
    int count = harpe_epoll(loop->epoll_fd, events, EVENTS_PER_TURN, most_ns);
    atomic_store(&loop->is_asleep, false);
    return count;
}

harpe_status harpe_loop_run(harpe_loop *loop, harpe_error *error) {
    struct epoll_event events[EVENTS_PER_TURN];
    while (!atomic_load(&loop->is_stopping)) {
        int count = wait_for_events(loop, events);
        if (count < 0 && errno != EINTR)
            return harpe_fail_errno(error, errno, "cannot wait for events");
        for (int i = 0; i < count; i++) {
            harpe_watch *watch = events[i].data.ptr;
            if (watch->ready) watch->ready(watch->user, events[i].events);
        }
        make_posted_calls(loop);
        fire_timers(loop);
        free_watches(&loop->removed);
    }
    atomic_store(&loop->is_stopping, false); /* the loop may be run again */
    return HARPE_OK;
}

void harpe_loop_stop(harpe_loop *loop) {
    atomic_store(&loop->is_stopping, true);
    wake(loop);
}
