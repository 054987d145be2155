/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers, starts, ends and signals of processes, and what a process shares with others.
 * helper_process.h starts processes. */
#ifndef HARPE_BASE_PROCESS_H
#define HARPE_BASE_PROCESS_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

/* Returns the number of the calling process. */
pid_t harpe_process_self(void);

/* Returns the time at which a process was started, in clock ticks since the start of the machine.
 * Returns 0 if there is no such process, or if it is a zombie. */
uint64_t harpe_process_started(pid_t process);

/* Returns a new pidfd, which is readable when the process has ended. The caller closes it. Returns
 * -1 with errno if there is no such process. */
int harpe_process_open(pid_t process);

/* Sends a signal to the process of a pidfd. Returns 0, or -1 with errno. */
int harpe_process_signal(int pidfd, int signal_number);

/* Copies a descriptor of another process: `number` is its number there, and `pidfd` names the
 * process. Returns the new descriptor, or -1 with errno. */
int harpe_process_take_descriptor(int pidfd, int number);

/* Reads /proc/PROCESS/FILE, a small file such as "comm". `text` becomes "" if the file does not
 * exist.
 */
void harpe_process_read(pid_t process, const char *file, char *text, size_t size);

/* Blocks these signals for the calling thread. Returns a new descriptor. When one of the signals
 * arrives, the caller can read a struct signalfd_siginfo from it. The caller closes the descriptor.
 * Returns -1 with errno on failure. */
int harpe_process_signals(const sigset_t *signals);

/* Connects a Unix socket as connect() does. */
int harpe_process_connect(int socket, const struct sockaddr *address, socklen_t length);
/* Asks the kernel which process is at the other end of a Unix socket. The process number is 0 if
 * the other process is in a namespace that this process cannot see. Returns false with errno on
 * failure. */
bool harpe_process_peer(int socket, struct ucred *out);

/* Ends the calling process at once, without the calls of atexit. */
_Noreturn void harpe_process_exit(int status);

/* Maps `size` bytes of a file that processes share. Returns NULL with errno on failure. The caller
 * gives the memory back with harpe_process_unmap. */
void *harpe_process_map(int file, size_t size);
void harpe_process_unmap(void *memory, size_t size);

/* Returns the directory of a simulated world. It takes the place of directories that all processes
 * of a user share. Returns NULL outside of a world. */
const char *harpe_process_world_directory(void);

/* Call it for a descriptor whose end other processes wait for, such as a socket or the lock of a
 * file. A world closes the descriptor when it kills the calling process. Returns the descriptor. */
int harpe_process_holds(int descriptor);
/* Closes a descriptor that harpe_process_holds has noted. */
void harpe_process_close(int descriptor);

#endif
