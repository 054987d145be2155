/* SPDX-License-Identifier: Apache-2.0 */
/* The cleanup process has its own session and ignores signals from a terminal, so a second Ctrl-C
 * ends the program and not the cleanup process. It notices the program's end through a pipe.
 * Nothing is written to this pipe. */
#include "base/cleanup_process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"

void harpe_remove_flat_directory(const char *path) {
    DIR *directory = opendir(path);
    if (!directory) return;
    for (struct dirent *entry; (entry = readdir(directory));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            (void)unlinkat(dirfd(directory), entry->d_name, 0);
    closedir(directory);
    (void)rmdir(path);
}

static void wait_and_remove(const char *directory, int fd) {
    static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE};
    char byte;
    (void)setsid();
    for (size_t i = 0; i < sizeof ignored / sizeof ignored[0]; i++)
        (void)signal(ignored[i], SIG_IGN);
    (void)prctl(PR_SET_NAME, "harpe-cleanup");
    /* A process that reads the program's output must not wait for the cleanup process. */
    (void)dup2(fd, STDIN_FILENO);
    (void)close_range(STDIN_FILENO + 1, ~0U, 0);
    while (read(STDIN_FILENO, &byte, 1) < 0 && errno == EINTR)
        ;
    harpe_remove_flat_directory(directory);
}

harpe_status harpe_cleanup_process_start(const char *directory, int *fd, harpe_error *error) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return harpe_fail_errno(error, errno, "making a pipe");
    /* The program forks a process, which forks the cleanup process and ends. So the cleanup process
     * is not a child of the program, and wait() in the program never returns its number. */
    pid_t child = fork();
    if (child == 0) {
        if (fork() == 0) {
            close(ends[1]);
            wait_and_remove(directory, ends[0]);
        }
        _exit(0);
    }
    int failure = child < 0 ? errno : 0;
    close(ends[0]);
    if (child > 0) (void)waitpid(child, NULL, 0);
    if (failure) {
        close(ends[1]);
        return harpe_fail_errno(error, failure, "starting a process");
    }
    *fd = ends[1];
    return HARPE_OK;
}
