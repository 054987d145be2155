/* SPDX-License-Identifier: Apache-2.0 */
/* Processes as others see them: numbers, starts, ends and signals. helper_process.h starts
 * processes. */
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

/* Returns a new descriptor for that of number `number` in the process of a pidfd, or -1 with errno.
 */
int harpe_process_take_descriptor(int pidfd, int number);

/* Reads a small file of /proc/PROCESS, such as "comm", into a text. The text is empty if there is
 * no such file. */
void harpe_process_read(pid_t process, const char *file, char *text, size_t size);

/* Blocks these signals for the calling thread. Returns a new descriptor, from which struct
 * signalfd_siginfo can be read when one of them has arrived, or -1 with errno. The caller closes
 * it. */
int harpe_process_signals(const sigset_t *signals);

/* Connects a Unix socket as connect() does. */
int harpe_process_connect(int socket, const struct sockaddr *address, socklen_t length);
/* Learns from the kernel which process is at the other end of a Unix socket. The process number is
 * 0 if this process cannot see the other. Returns false with errno on failure. */
bool harpe_process_peer(int socket, struct ucred *out);

/* Ends the calling process at once, without the calls of atexit. */
_Noreturn void harpe_process_exit(int status);

/* Maps `size` bytes of a file that processes share. Returns NULL with errno on failure. The caller
 * gives the memory back with harpe_process_unmap. */
void *harpe_process_map(int file, size_t size);
void harpe_process_unmap(void *memory, size_t size);

/* Returns the directory that a simulated world has in place of directories that all of a user's
 * processes share. Returns NULL outside of a world. */
const char *harpe_process_world_directory(void);

/* Notes that the calling process holds a descriptor whose close others wait for, such as a lock on
 * a file. Returns the descriptor. */
int harpe_process_holds(int descriptor);
/* Closes such a descriptor. */
void harpe_process_close(int descriptor);

#endif
