/* SPDX-License-Identifier: Apache-2.0 */
/* Decides whether an environment variable may choose code for this process. It checks the owner
 * of the file, but not the directories above it. */
#include "base/trust.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Returns true if `user` owns `path`. This process already runs the code in `path`. */
static bool is_owner_of(const char *path, uid_t user) {
    struct stat status;
    return path && stat(path, &status) == 0 && status.st_uid == user;
}

static bool is_trusted_owner(uid_t user) {
    static const char inside[] = "";
    if (user == 0 || user == geteuid()) return true;
    if (is_owner_of("/proc/self/exe", user)) return true;
    Dl_info info = {0};
    return dladdr(inside, &info) && is_owner_of(info.dli_fname, user);
}

bool harpe_file_is_trusted(const char *path) {
    struct stat status;
    if (!strchr(path, '/') || stat(path, &status) != 0) return true;
    return is_trusted_owner(status.st_uid) && !(status.st_mode & S_IWOTH);
}

const char *harpe_trusted_file_variable(const char *name, bool *is_ignored) {
    const char *value = getenv(name);
    if (is_ignored) *is_ignored = false;
    if (!value || !*value) return NULL;
    bool is_followed = secure_getenv(name) && getuid() == geteuid() && getgid() == getegid() &&
                       harpe_file_is_trusted(value);
    if (is_ignored) *is_ignored = !is_followed;
    return is_followed ? value : NULL;
}
