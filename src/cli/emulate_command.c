/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe emulate`: runs any command on emulated GPUs. It finds the emulator's library, makes a
 * cluster for the command, puts both into the command's environment, waits, and takes the cluster
 * away. What an emulated GPU does is the library's business (emulator/). */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/text.h"
#include "cli/command.h"

#ifndef HARPE_LIBDIR_FROM_BINDIR
#define HARPE_LIBDIR_FROM_BINDIR "../lib"
#endif
#define LIBRARY_NAME "libnvidia-ml.so.1"
#define MEMORY_NAME "harpe-emulator-%u-" /* in /dev/shm; then the cluster's name */
#define OWN_CLUSTER "emulate-"           /* then the process's id */

enum { EXIT_CANNOT_RUN = 126, EXIT_NO_SUCH_COMMAND = 127 }; /* as env(1) has them */

typedef struct emulate_arguments {
    const char *gpus;
    const char *time_scale;
    const char *faults;
    const char *faults_file;
    const char *profile;
    const char *cluster; /* NULL: a fresh one */
    char **command;
} emulate_arguments;

enum flag {
    FLAG_GPUS = 'g',
    FLAG_TIME_SCALE = 's',
    FLAG_FAULTS = 'f',
    FLAG_PROFILE = 'p',
    FLAG_CLUSTER = 'c',
    FLAG_FAULTS_FILE = 0x400,
};

static const struct argp_option flags[] = {
    {"gpus", FLAG_GPUS, "LIST", 0,
     "GPUs of the machine: 4xA100, or a mixture such as 2xA100,1xV100 (default 1xA100; models "
     "V100, A40, A100, H100; at most 16)",
     1},
    {"time-scale", FLAG_TIME_SCALE, "X", 0, "The GPUs' time runs X times as fast (default 1)", 1},
    {"profile", FLAG_PROFILE, "FILE", 0, "Measured profile that simulated instructions follow", 1},
    {"faults", FLAG_FAULTS, "LIST", 0,
     "What goes wrong, such as no_permission,slow_set=200 (all are in the manual)", 1},
    {"faults-file", FLAG_FAULTS_FILE, "FILE", 0,
     "The same from a file, which may change while the command runs", 1},
    {"cluster", FLAG_CLUSTER, "NAME", 0,
     "Share the GPUs with others who name this cluster (default: GPUs of its own)", 1},
    {0},
};

static error_t parse_flag(int key, char *argument, struct argp_state *state) {
    emulate_arguments *arguments = state->input;
    switch (key) {
    case FLAG_GPUS: arguments->gpus = argument; return 0;
    case FLAG_TIME_SCALE:
        (void)harpe_flag_double(state, "--time-scale", argument, 0.001, 1e6);
        arguments->time_scale = argument;
        return 0;
    case FLAG_PROFILE: arguments->profile = argument; return 0;
    case FLAG_FAULTS: arguments->faults = argument; return 0;
    case FLAG_FAULTS_FILE: arguments->faults_file = argument; return 0;
    case FLAG_CLUSTER: arguments->cluster = argument; return 0;
    case ARGP_KEY_ARGS: arguments->command = state->argv + state->next; return 0;
    case ARGP_KEY_NO_ARGS:
        harpe_flag_fail(state, "which command? For example: harpe emulate --gpus 4xA100 -- "
                               "harpe gpus");
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argument_parser = {
    .options = flags,
    .parser = parse_flag,
    .args_doc = "COMMAND [ARGUMENT...]",
    .doc = "Run a command on emulated GPUs: programs that load NVIDIA's management library "
           "(libnvidia-ml.so.1) find the emulator in its place.\vExample:\n"
           "  harpe emulate --gpus 4xA100 -- harpe gpus\n\nSee also: man harpe-emulate",
};

/* ---- The library -------------------------------------------------------------------------- */

/* Directory of the emulator's library, absolute, to be freed: beside the program as it is built, or
 * where it is installed. */
static harpe_status find_library(char **directory, harpe_error *error) {
    static const char *const places[] = {"emulator", HARPE_LIBDIR_FROM_BINDIR "/harpe",
                                         "../lib/harpe"};
    char program[4096];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length < 0) return harpe_fail_errno(error, errno, "/proc/self/exe");
    program[length] = '\0';
    char *slash = strrchr(program, '/');
    if (slash) {
        *slash = '\0';
    }
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        harpe_text path = {0};
        harpe_text_printf(&path, "%s/%s/" LIBRARY_NAME, program, places[i]);
        if (path.failed) return harpe_fail_memory(error);
        char *real = realpath(path.data, NULL);
        harpe_text_free(&path);
        if (!real) continue;
        /* resolved to .../libnvidia-ml.so.1 itself or the file that it links to */
        *strrchr(real, '/') = '\0';
        *directory = real;
        return HARPE_OK;
    }
    return harpe_fail(error, HARPE_UNAVAILABLE,
                      "the emulator's " LIBRARY_NAME " is neither in %s/emulator nor in %s/" //
                      HARPE_LIBDIR_FROM_BINDIR "/harpe; build or install Harpe whole",
                      program, program);
}

/* ---- The environment ---------------------------------------------------------------------- */

/* Sets, or removes what an outer environment says. */
static bool put(const char *name, const char *value) {
    return (value ? setenv(name, value, 1) : unsetenv(name)) == 0;
}

static harpe_status prepare_environment(const emulate_arguments *arguments, const char *cluster,
                                        const char *directory, harpe_error *error) {
    const char *loader_path = getenv("LD_LIBRARY_PATH");
    harpe_text library = {0}, path = {0};
    harpe_text_printf(&library, "%s/" LIBRARY_NAME, directory);
    harpe_text_printf(&path, "%s%s%s", directory, loader_path && *loader_path ? ":" : "",
                      loader_path ? loader_path : "");
    bool is_done = !library.failed && !path.failed && put("HARPE_NVML_LIBRARY", library.data) &&
                   put("LD_LIBRARY_PATH", path.data) && put("HARPE_EMULATOR_CLUSTER", cluster) &&
                   put("HARPE_EMULATOR_GPUS", arguments->gpus) &&
                   put("HARPE_EMULATOR_TIME_SCALE", arguments->time_scale) &&
                   put("HARPE_EMULATOR_FAULTS", arguments->faults) &&
                   put("HARPE_EMULATOR_FAULTS_FILE", arguments->faults_file) &&
                   put("HARPE_EMULATOR_PROFILE", arguments->profile);
    harpe_text_free(&library);
    harpe_text_free(&path);
    return is_done ? HARPE_OK : harpe_fail_memory(error);
}

/* ---- The cluster -------------------------------------------------------------------------- */

/* By its name in /dev/shm, unless somebody uses it. */
static void remove_if_unused(const char *memory) {
    int fd = shm_open(memory, O_RDWR | O_CLOEXEC, 0);
    if (fd == -1) return;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        shm_unlink(memory);
    }
    close(fd);
}

/* A cluster of our own goes in any case, one with a name unless others still use it. */
static void remove_cluster(const char *cluster, bool is_own) {
    char memory[256];
    snprintf(memory, sizeof memory, MEMORY_NAME "%s", (unsigned int)getuid(), cluster);
    if (is_own) {
        shm_unlink(memory);
    } else {
        remove_if_unused(memory);
    }
}

/* What a killed `harpe emulate` could not remove. */
static void remove_leftovers(void) {
    char prefix[64];
    int length = snprintf(prefix, sizeof prefix, MEMORY_NAME OWN_CLUSTER, (unsigned int)getuid());
    DIR *directory = opendir("/dev/shm");
    if (!directory) return;
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (strncmp(entry->d_name, prefix, (size_t)length) != 0) continue;
        const char *pid = entry->d_name + length;
        if (pid[strspn(pid, "0123456789")] == '\0') {
            remove_if_unused(entry->d_name);
        }
    }
    closedir(directory);
}

/* The values are the library's to judge. */
static harpe_status check_values(void *library, harpe_error *error) {
    int (*check)(char *message, unsigned int size) = NULL;
    *(void **)&check = dlsym(library, "harpe_emulator_check");
    char message[512] = "";
    if (!check) return harpe_fail(error, HARPE_UNAVAILABLE, "the emulator's library is damaged");
    if (check(message, sizeof message) == 0) return HARPE_OK;
    return harpe_fail(error, HARPE_INVALID_ARGUMENT, "%s", message);
}

/* Makes the cluster and stays in it, so that it holds for as long as the command runs. */
static harpe_status join_cluster(void *library, harpe_error *error) {
    int (*initialize)(void) = NULL;
    *(void **)&initialize = dlsym(library, "nvmlInit_v2");
    int code = initialize ? initialize() : 0;
    if (code == 0) return HARPE_OK;
    return harpe_fail(error, HARPE_IO_ERROR,
                      "the emulated GPUs could not be made (error %d); is /dev/shm there, and "
                      "writable?",
                      code);
}

/* ---- The command -------------------------------------------------------------------------- */

/* The terminal sends its signals to the command as well; others are passed on. */
static void pass_on(pid_t child, const siginfo_t *info) {
    if (info->si_code != SI_KERNEL) {
        kill(child, info->si_signo);
    }
}

/* The command's exit status, a signal's as 128 + n. */
static int wait_for(pid_t child, const sigset_t *signals) {
    for (;;) {
        siginfo_t info;
        int status;
        if (waitpid(child, &status, WNOHANG) == child) {
            return WIFSIGNALED(status) ? HARPE_EXIT_SIGNAL + WTERMSIG(status) : WEXITSTATUS(status);
        }
        if (sigwaitinfo(signals, &info) > 0 && info.si_signo != SIGCHLD) {
            pass_on(child, &info);
        }
    }
}

static int start_command(char **command, const sigset_t *mask, pid_t *child) {
    posix_spawnattr_t attributes;
    sigset_t defaults;
    sigemptyset(&defaults); /* what main() ignores is not the command's business */
    sigaddset(&defaults, SIGPIPE);
    sigaddset(&defaults, SIGXFSZ);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, mask);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    int code = posix_spawnp(child, command[0], NULL, &attributes, command, environ);
    posix_spawnattr_destroy(&attributes);
    return code;
}

static int run_command(char **command, const sigset_t *signals, const sigset_t *mask) {
    pid_t child;
    int code = start_command(command, mask, &child);
    if (code == 0) return wait_for(child, signals);
    fprintf(stderr, "harpe emulate: cannot run '%.200s': %s\n", command[0], strerror(code));
    return code == ENOENT ? EXIT_NO_SUCH_COMMAND : EXIT_CANNOT_RUN;
}

/* From the first moment of the cluster to its last, signals wait: none of them leaves it behind. */
static harpe_status run_in_cluster(void *library, const char *cluster, bool is_own, char **command,
                                   int *exit_code, harpe_error *error) {
    static const int held[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGTERM,
                               SIGUSR1, SIGUSR2, SIGCONT, SIGCHLD};
    sigset_t signals, before;
    sigemptyset(&signals);
    for (size_t i = 0; i < sizeof held / sizeof held[0]; i++) {
        sigaddset(&signals, held[i]);
    }
    sigprocmask(SIG_BLOCK, &signals, &before);
    remove_leftovers();
    harpe_status status = join_cluster(library, error);
    if (status == HARPE_OK) {
        *exit_code = run_command(command, &signals, &before);
    }
    dlclose(library); /* leaves the cluster */
    remove_cluster(cluster, is_own);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return status;
}

static harpe_status emulate(const emulate_arguments *arguments, int *exit_code,
                            harpe_error *error) {
    char own_name[64], *directory = NULL;
    void *library = NULL;
    const char *cluster = arguments->cluster ? arguments->cluster : own_name;
    snprintf(own_name, sizeof own_name, OWN_CLUSTER "%ld", (long)getpid());
    harpe_status status = find_library(&directory, error);
    if (status == HARPE_OK) {
        status = prepare_environment(arguments, cluster, directory, error);
    }
    if (status == HARPE_OK) {
        library = dlopen(getenv("HARPE_NVML_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
        status = library ? check_values(library, error)
                         : harpe_fail(error, HARPE_UNAVAILABLE, "%s", dlerror());
    }
    if (status == HARPE_OK) {
        status = run_in_cluster(library, cluster, !arguments->cluster, arguments->command,
                                exit_code, error);
    } else if (library) {
        dlclose(library);
    }
    free(directory);
    return status;
}

int harpe_emulate_command(int argc, char **argv) {
    emulate_arguments arguments = {0};
    argp_parse(&argument_parser, argc, argv, ARGP_IN_ORDER, NULL, &arguments);
    harpe_error error;
    int exit_code = HARPE_EXIT_OK;
    harpe_status status = emulate(&arguments, &exit_code, &error);
    return status == HARPE_OK ? exit_code : harpe_command_fail("emulate", &error);
}
