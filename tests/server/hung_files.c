/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into a server: its file system under $HUNG_FILES behaves as if its file server does not
 * answer. Calls do not return. The first call creates the file $HUNG_FILES.hangs. */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void hang_under(const char *path) {
    const char *hung = getenv("HUNG_FILES");
    char sign[4096];
    if (!hung || !path || strncmp(path, hung, strlen(hung)) != 0) return;
    (void)snprintf(sign, sizeof sign, "%s.hangs", hung);
    (void)syscall(SYS_openat, AT_FDCWD, sign, O_CREAT | O_WRONLY, 0600);
    for (;;)
        pause();
}

int mkdir(const char *path, mode_t mode) {
    hang_under(path);
    return (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

int stat(const char *restrict file, struct stat *restrict buf) {
    hang_under(file);
    return fstatat(AT_FDCWD, file, buf, 0);
}

int access(const char *name, int type) {
    hang_under(name);
    return (int)syscall(SYS_faccessat, AT_FDCWD, name, type);
}

int open(const char *file, int oflag, ...) {
    va_list arguments;
    va_start(arguments, oflag);
    mode_t mode = oflag & O_CREAT ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    hang_under(file);
    return (int)syscall(SYS_openat, AT_FDCWD, file, oflag, mode);
}
