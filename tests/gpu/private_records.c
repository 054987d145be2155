/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into programs: the records of emulated GPUs are in $HARPE_TEST_RECORDS, and not where
 * the programs of other tests look at each of them and lock it for a moment. */
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *redirected(const char *path) {
    static const char usual[] = "/dev/shm/harpe-emulated-";
    const char *own = getenv("HARPE_TEST_RECORDS");
    return own && path && strncmp(path, usual, strlen(usual)) == 0 ? own : path;
}

int mkdir(const char *path, mode_t mode) {
    return (int)syscall(SYS_mkdirat, AT_FDCWD, redirected(path), mode);
}

int open(const char *file, int oflag, ...) {
    va_list arguments;
    va_start(arguments, oflag);
    mode_t mode = oflag & O_CREAT ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    return (int)syscall(SYS_openat, AT_FDCWD, redirected(file), oflag, mode);
}
