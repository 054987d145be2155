/* SPDX-License-Identifier: Apache-2.0 */
/* Runs several processes of Harpe inside one real process, in virtual time. Each thread is a fiber.
 * One fiber runs at a time, until it waits (base/wait.h). When all fibers wait, the time jumps to
 * the moment at which the first wait ends. Only the seed decides the order in which fibers run, so
 * a run can be repeated.
 *
 * Sockets, pipes and shared memory are those of the kernel. Code in a world may make any call of
 * the kernel that does not wait.
 *
 * Only one world exists at a time. Call all functions except harpe_world_run inside of it. */
#ifndef HARPE_WORLD_WORLD_H
#define HARPE_WORLD_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <harpe/status.h>

/* A program that harpe_helper_process_start can start, by its first argument. */
typedef struct harpe_world_program {
    const char *name;
    int (*main)(int argc, char **argv);
} harpe_world_program;

typedef struct harpe_world_options {
    uint64_t seed;
    /* True: the world draws which fiber runs next, and a fiber may lose its turn at each lock.
     * False: fibers run in the order in which they were woken, which is faster. */
    bool shuffles;
    const harpe_world_program *programs; /* ends with a NULL name; NULL: none */
    int64_t wall_ns;                     /* time of day at the start, since 1970 */
    const char *directory;               /* of harpe_process_world_directory; NULL: none */
    /* The run fails after this virtual time, or when fibers have got so many turns and time has not
     * passed. 0: no limit. */
    int64_t longest_ns;
    uint64_t most_turns;
} harpe_world_options;

/* Runs `run` as the first process, and returns after its end. The other processes are killed
 * then. Fails with HARPE_INTERNAL if all fibers wait for ever, or at a limit of the options; the
 * message says which fibers wait. */
harpe_status harpe_world_run(const harpe_world_options *options, void (*run)(void *user),
                             void *user, harpe_error *error);

/* ---- Processes ------------------------------------------------------------------------------- */

/* Starts a process. It ends when `main` returns. Returns its number, by which the functions below
 * know it, or -1 without memory. `name` is for messages and must stay valid. */
pid_t harpe_world_start(const char *name, int (*main)(void *user), void *user);
bool harpe_world_is_alive(pid_t number);
/* Waits for the end of a process. Returns false at `until_ns` (INT64_MAX: never). */
bool harpe_world_await(pid_t number, int64_t until_ns);
/* Ends a process as SIGKILL does: its fibers do not continue, and the descriptors that it holds
 * (harpe_process_holds) are closed. Its memory is lost. */
void harpe_world_kill(pid_t number);
/* Lets a process hold a descriptor, as if it had called harpe_process_holds. */
void harpe_world_hold(pid_t number, int descriptor);
/* Sets the user and the group that other processes see at the end of a Unix socket. At first they
 * are those of this process. */
void harpe_world_set_user(pid_t number, uid_t user, gid_t group);
/* Draws a living process with this name (NULL: any but the first). -1: there is none. */
pid_t harpe_world_pick(const char *name);
/* Lets a process stand still until a time, as a machine does that is suspended or overloaded. */
void harpe_world_stall(pid_t number, int64_t until_ns);
/* Returns the exit status of an ended process, -1 if it was killed. */
int harpe_world_exit_status(pid_t number);

/* ---- The world itself ------------------------------------------------------------------------ */

/* Sets the time of day forward or back. */
void harpe_world_jump(int64_t ns);
/* Returns a random number that depends on the seed, from 0 to `count` - 1. */
uint64_t harpe_world_draw(uint64_t count);
/* Calls `step` before each turn of a fiber. It does not wait. NULL: none. */
void harpe_world_on_step(void (*step)(void *user), void *user);

/* Returns how often a fiber has got a turn so far. */
uint64_t harpe_world_turns(void);

#endif
