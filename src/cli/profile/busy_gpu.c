/* SPDX-License-Identifier: Apache-2.0 */
/* A thread gives work to an emulated GPU again and again. A command of the user runs in a process
 * group of its own, which gets SIGTERM at the end, and SIGKILL if it does not end soon. */
#include "cli/profile/busy_gpu.h"

#include <dlfcn.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/thread.h"
#include "base/wait.h"
#include "cli/command.h"
#include "gpu/gpus.h"

#define WORK_S 0.1 /* of one piece of work, in GPU time */
#define COMPUTE_SHARE 0.8

enum { END_TRIES = 300, END_TRY_NS = 10000000 };

static void *work(void *user) {
    harpe_busy_gpu *busy = user;
    while (!atomic_load(&busy->is_over))
        if (busy->work(busy->gpu, WORK_S, COMPUTE_SHARE, NULL) != 0) break;
    return NULL;
}

static harpe_status start_work(harpe_busy_gpu *busy, const harpe_gpus *gpus, int gpu,
                               harpe_error *error) {
    const char *path = harpe_gpus_library_path(gpus);
    busy->gpu = (unsigned int)harpe_gpu_info_at(gpus, gpu)->driver_index;
    busy->library = *path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    void *address = busy->library ? dlsym(busy->library, "harpe_emulator_work") : NULL;
    memcpy(&busy->work, &address, sizeof busy->work);
    if (!busy->work)
        return harpe_fail(error, HARPE_DRIVER_ERROR,
                          "GPU %d: the emulator could not make it busy; is %s the emulator of this "
                          "version?",
                          gpu, *path ? path : "the driver library");
    int result = harpe_thread_start(&busy->thread, "harpe-work", work, busy);
    busy->has_thread = result == 0;
    return result == 0 ? HARPE_OK : harpe_fail_errno(error, result, "starting a thread");
}

static harpe_status start_command(harpe_busy_gpu *busy, char **command, harpe_error *error) {
    sigset_t none;
    (void)sigemptyset(&none);
    int code = harpe_command_spawn(command, NULL, &none, &busy->child);
    if (code != 0) {
        busy->child = 0;
        return harpe_fail_errno(error, code, "cannot run '%s'", command[0]);
    }
    busy->program = command[0];
    (void)setpgid(busy->child, busy->child); /* fails if the child is too fast; then the child alone
                                              * gets the signals */
    return HARPE_OK;
}

harpe_status harpe_busy_gpu_start(harpe_busy_gpu *busy, harpe_gpus *gpus, int gpu, char **command,
                                  harpe_error *error) {
    *busy = (harpe_busy_gpu){.child = 0};
    if (command) return start_command(busy, command, error);
    if (harpe_gpus_are_emulated(gpus)) return start_work(busy, gpus, gpu, error);
    return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                      "a GPU without work may lower its clock: give a command that keeps GPU %d "
                      "busy, as in 'harpe profile switch -- COMMAND'",
                      gpu);
}

harpe_status harpe_busy_gpu_check(harpe_busy_gpu *busy, harpe_error *error) {
    if (busy->child == 0 || waitpid(busy->child, NULL, WNOHANG) == 0) return HARPE_OK;
    busy->child = 0;
    return harpe_fail(error, HARPE_UNAVAILABLE,
                      "'%s' ended before the measurement; it must keep the GPU busy until it is "
                      "stopped",
                      busy->program);
}

static void signal_child(const harpe_busy_gpu *busy, int signal) {
    if (kill(-busy->child, signal) != 0) (void)kill(busy->child, signal);
}

static void stop_command(harpe_busy_gpu *busy) {
    signal_child(busy, SIGTERM);
    for (int i = 0; i < END_TRIES; i++) {
        if (waitpid(busy->child, NULL, WNOHANG) != 0) return;
        harpe_sleep_ns(END_TRY_NS);
    }
    signal_child(busy, SIGKILL);
    (void)waitpid(busy->child, NULL, 0);
}

void harpe_busy_gpu_stop(harpe_busy_gpu *busy) {
    atomic_store(&busy->is_over, true);
    if (busy->has_thread) harpe_thread_join(busy->thread);
    if (busy->library) (void)dlclose(busy->library);
    if (busy->child > 0) stop_command(busy);
    *busy = (harpe_busy_gpu){.child = 0};
}
