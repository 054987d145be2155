/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces the system below Harpe: its clocks, and all that waits, starts and ends. clock.h,
 * wait.h, process.h and the files that start helper processes and listen are the only users. They
 * call the system itself unless a simulated world (world/) has set a platform. In a world, one
 * thread runs at a time, so a platform needs no locks. */
#ifndef HARPE_BASE_PLATFORM_H
#define HARPE_BASE_PLATFORM_H

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

typedef struct harpe_platform {
    int64_t (*now_ns)(void);  /* the clocks that only go forward */
    int64_t (*wall_ns)(void); /* the time of day */

    /* Waits until the address is unparked. Returns false if `until_ns` of now_ns comes first. */
    bool (*park)(const volatile void *address, int64_t until_ns);
    void (*unpark)(const volatile void *address, bool all);
    int (*poll)(struct pollfd *waited, nfds_t count, int64_t longest_ns);
    void (*random)(void *bytes, size_t size);
    /* Called before each lock, so that another thread may run first. */
    void (*step)(void);

    int (*start_thread)(pthread_t *thread, const char *name, void *(*run)(void *user), void *user);
    void (*join_thread)(pthread_t thread);

    /* Processes of the world. `self` and the pidfds are those of process.h. */
    pid_t (*self)(void);
    uint64_t (*started)(pid_t process);
    int (*open_process)(pid_t process);
    bool (*signal_process)(int pidfd, int signal_number);
    int (*take_descriptor)(int pidfd, int number);
    void (*exit)(int status); /* does not return */
    /* Starts a helper process with these descriptors (-1: none), which stay the caller's. `socket`
     * is then the helper's end. Returns 0 or an errno. */
    int (*start_helper)(const char *const *arguments, int socket, int starter, int memory);
    int (*helper_descriptor)(int number);
    /* Returns a descriptor of the running process, from which a struct signalfd_siginfo can be read
     * after SIGTERM. */
    int (*signals)(void);
    /* Says that a descriptor belongs to the running process, and must be closed when it is killed.
     */
    void (*own)(int descriptor);
    void (*disown)(int descriptor);

    /* Unix sockets: `introduce` is called before a socket connects, and `identify_peer` corrects
     * what the kernel says of the process that has connected. */
    void (*introduce)(int socket);
    void (*identify_peer)(int socket, struct ucred *peer);
    /* Writes the text of /proc/PROCESS/FILE. */
    void (*describe)(pid_t process, const char *file, char *text, size_t size);

    /* Returns the directory for what is otherwise kept for all of the user's processes; NULL: the
     * usual one. */
    const char *(*directory)(void);
    /* Maps shared memory. All mappings of a file have one address. */
    void *(*map)(int file, size_t size);
    void (*unmap)(void *memory, size_t size);
} harpe_platform;

/* NULL: the system. The library never sets it. */
extern const harpe_platform *harpe_platform_in_use;

/* ---- Random numbers -------------------------------------------------------------------------- */

/* Random numbers of the system. No other file asks the system for them. */

/* Fills at most 256 bytes with random numbers that nobody can guess. Waits if the system has none
 * yet, early after its start. Returns false with errno if the system gives none. */
bool harpe_random(void *bytes, size_t size);
/* The same, but returns false instead of waiting. */
bool harpe_random_now(void *bytes, size_t size);

#endif
