/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a cluster of emulated GPUs: finds the library's file, sets the environment, and removes
 * the memory afterwards; see sim.h. */
#include "sim/sim.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <harpe/power_limit.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/number.h"
#include "base/platform.h"
#include "base/process.h"
#include "base/text.h"
#include "base/wait.h"
#include "plan/synth.h"

#ifndef HARPE_LIBDIR_FROM_BINDIR
#define HARPE_LIBDIR_FROM_BINDIR "../lib"
#endif
#define LIBRARY_NAME "libnvidia-ml.so.1"
#define MEMORY_NAME "harpe-emulator-%u-" /* in /dev/shm, followed by the cluster's name */
#define OWN_CLUSTER "emulate-"           /* followed by the process's id */
#define STRETCH_MIN 0.1
#define STRETCH_MAX 10.0
#define SECONDS_OF_HOUR 3600.0

/* ---- The library ----------------------------------------------------------------------------- */

/* Finds the directory of the emulator's library: beside the program in a build folder, or at the
 * place of installation. `*directory` receives the absolute path, which the caller frees. */
static harpe_status find_library(char **directory, harpe_error *error) {
    static const char *const places[] = {"emulator", HARPE_LIBDIR_FROM_BINDIR "/harpe",
                                         "../lib/harpe"};
    char program[4096];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length < 0) return harpe_fail_errno(error, errno, "/proc/self/exe");
    program[length] = '\0';
    char *slash = strrchr(program, '/');
    if (slash) *slash = '\0';
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        harpe_text path = {0};
        harpe_text_printf(&path, "%s/%s/" LIBRARY_NAME, program, places[i]);
        if (path.failed) return harpe_fail_memory(error);
        char *real = realpath(path.data, NULL);
        harpe_text_free(&path);
        if (!real) continue;
        /* the path of libnvidia-ml.so.1, or of the file to which it links */
        *strrchr(real, '/') = '\0';
        *directory = real;
        return HARPE_OK;
    }
    return harpe_fail(error, HARPE_UNAVAILABLE,
                      "the emulator's " LIBRARY_NAME " is neither in %s/emulator nor in %s/" //
                      HARPE_LIBDIR_FROM_BINDIR "/harpe; build or install Harpe whole",
                      program, program);
}

harpe_status harpe_emulated_library_load(const char *path, const harpe_emulated_symbol *symbols,
                                         void **library, harpe_error *error) {
    *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!*library) return harpe_fail(error, HARPE_UNAVAILABLE, "%s", dlerror());
    for (; symbols->name; symbols++) {
        *symbols->function = dlsym(*library, symbols->name);
        if (!*symbols->function)
            return harpe_fail(error, HARPE_UNAVAILABLE, "the emulator's library has no %s",
                              symbols->name);
    }
    return HARPE_OK;
}

/* ---- The environment ------------------------------------------------------------------------- */

/* Sets an environment variable. If `value` is NULL, removes the variable. */
static bool put(const char *name, const char *value) {
    return (value ? setenv(name, value, 1) : unsetenv(name)) == 0;
}

/* Writes an absolute path, because the command may change its directory. Returns false if memory
 * runs out. The caller frees `*out`; NULL: there is no path. */
static bool absolute(const char *path, char **out) {
    char *directory = path && *path != '/' ? getcwd(NULL, 0) : NULL;
    *out = directory ? harpe_path_join(directory, "/", path) : path ? strdup(path) : NULL;
    free(directory);
    return !path || *out;
}

static harpe_status prepare_environment(const harpe_emulated_options *options, const char *cluster,
                                        const char *directory, harpe_error *error) {
    const char *loader_path = getenv("LD_LIBRARY_PATH");
    const char *program_path = getenv("PATH");
    harpe_text library = {0}, path = {0}, programs = {0};
    bool is_file = options->physics && strcmp(options->physics, "ideal") != 0 &&
                   strcmp(options->physics, "real") != 0;
    char *physics = is_file ? realpath(options->physics, NULL) : NULL;
    char *faults_file = NULL, *profile = NULL;
    harpe_text_printf(&library, "%s/" LIBRARY_NAME, directory);
    harpe_text_printf(&path, "%s%s%s", directory, loader_path && *loader_path ? ":" : "",
                      loader_path ? loader_path : "");
    /* The directory of the emulator's nvidia-smi. Only emulations have it in PATH. */
    harpe_text_printf(&programs, "%s/bin:%s", directory,
                      program_path && *program_path ? program_path
                                                    : "/usr/local/bin:/usr/bin:/bin");
    bool is_done =
        !library.failed && !path.failed && !programs.failed &&
        absolute(options->faults_file, &faults_file) && absolute(options->profile, &profile) &&
        put("PATH", programs.data) && put("HARPE_NVML_LIBRARY", library.data) &&
        put("LD_LIBRARY_PATH", path.data) && put("HARPE_EMULATOR_CLUSTER", cluster) &&
        put("HARPE_EMULATOR_GPUS", options->gpus) &&
        put("HARPE_EMULATOR_TIME_SCALE", options->time_scale) &&
        put("HARPE_EMULATOR_BLOCKING_POWER", options->blocking_power) &&
        put("HARPE_EMULATOR_NOISE", options->noise) && put("HARPE_EMULATOR_SEED", options->seed) &&
        put("HARPE_EMULATOR_PHYSICS", physics ? physics : options->physics) &&
        put("HARPE_EMULATOR_FAULTS", options->faults) &&
        put("HARPE_EMULATOR_FAULTS_FILE", faults_file) && put("HARPE_EMULATOR_PROFILE", profile) &&
        put("HARPE_EMULATOR_WORKLOAD", options->workload) &&
        put("HARPE_EMULATOR_TORCH", options->torch);
    harpe_text_free(&library);
    harpe_text_free(&path);
    harpe_text_free(&programs);
    free(physics);
    free(faults_file);
    free(profile);
    return is_done ? HARPE_OK : harpe_fail_memory(error);
}

/* ---- The cluster ----------------------------------------------------------------------------- */

/* Removes a cluster's memory in /dev/shm by its name, unless a process uses it. */
static void remove_if_unused(const char *memory) {
    int fd = shm_open(memory, O_RDWR | O_CLOEXEC, 0);
    if (fd == -1) return;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) shm_unlink(memory);
    close(fd);
}

/* Removes a cluster. A cluster that this process has made for itself is always removed. A cluster
 * that the user has named stays while other processes use it. */
static void remove_cluster(const char *cluster, bool is_own) {
    char memory[256];
    snprintf(memory, sizeof memory, MEMORY_NAME "%s", (unsigned int)getuid(), cluster);
    if (is_own)
        shm_unlink(memory);
    else
        remove_if_unused(memory);
}

/* Removes the memory that killed `harpe emulate` processes have left. */
static void remove_leftovers(void) {
    char prefix[64];
    int length = snprintf(prefix, sizeof prefix, MEMORY_NAME OWN_CLUSTER, (unsigned int)getuid());
    DIR *directory = opendir("/dev/shm");
    if (!directory) return;
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (strncmp(entry->d_name, prefix, (size_t)length) != 0) continue;
        const char *pid = entry->d_name + length;
        if (pid[strspn(pid, "0123456789")] == '\0') remove_if_unused(entry->d_name);
    }
    closedir(directory);
}

/* Calls the library to check the values of the options. */
static harpe_status check_values(void *library, harpe_error *error) {
    int (*check)(char *message, unsigned int size) = NULL;
    *(void **)&check = dlsym(library, "harpe_emulator_check");
    char message[512] = "";
    if (!check) return harpe_fail(error, HARPE_UNAVAILABLE, "the emulator's library is damaged");
    if (check(message, sizeof message) == 0) return HARPE_OK;
    return harpe_fail(error, HARPE_INVALID_ARGUMENT, "%s", message);
}

/* Makes the cluster and joins it, so that it exists as long as the command runs. */
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

/* ---- All of it ------------------------------------------------------------------------------- */

/* Lets the GPUs exist in a world (emulator/world.h), or no longer. */
static void use_platform(void *library, const harpe_platform *platform) {
    void (*use)(const harpe_platform *platform);
    *(void **)&use = dlsym(library, "harpe_emulator_use_platform");
    if (use) use(platform);
}

static harpe_status open_library(harpe_emulated_cluster *cluster, harpe_error *error) {
    cluster->library = dlopen(getenv("HARPE_NVML_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
    if (!cluster->library) return harpe_fail(error, HARPE_UNAVAILABLE, "%s", dlerror());
    if (harpe_platform_in_use) use_platform(cluster->library, harpe_platform_in_use);
    harpe_status status = check_values(cluster->library, error);
    if (status == HARPE_OK) {
        remove_leftovers();
        status = join_cluster(cluster->library, error);
    }
    if (status != HARPE_OK) {
        dlclose(cluster->library);
        remove_cluster(cluster->name, cluster->is_own);
    }
    return status;
}

harpe_status harpe_emulated_cluster_open(const harpe_emulated_options *options,
                                         harpe_emulated_cluster *out, harpe_error *error) {
    harpe_emulated_cluster cluster = {.is_own = !options->cluster};
    char *directory = NULL;
    int length = options->cluster
                     ? snprintf(cluster.name, sizeof cluster.name, "%s", options->cluster)
                     : snprintf(cluster.name, sizeof cluster.name, OWN_CLUSTER "%ld",
                                (long)harpe_process_self());
    if ((size_t)length >= sizeof cluster.name)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "a cluster's name is at most 127 characters, without a slash");
    harpe_status status = find_library(&directory, error);
    if (status == HARPE_OK) status = prepare_environment(options, cluster.name, directory, error);
    free(directory);
    if (status == HARPE_OK) status = open_library(&cluster, error);
    if (status == HARPE_OK) *out = cluster;
    return status;
}

/* Returns true if a process uses it. */
static bool is_used(const char *name) {
    char memory[256];
    snprintf(memory, sizeof memory, MEMORY_NAME "%s", (unsigned int)getuid(), name);
    int fd = shm_open(memory, O_RDWR | O_CLOEXEC, 0);
    if (fd == -1) return false;
    bool is_free = flock(fd, LOCK_EX | LOCK_NB) == 0;
    close(fd);
    return !is_free;
}

void harpe_emulated_cluster_close(harpe_emulated_cluster *cluster, double wait_s) {
    if (!cluster->library) return;
    if (harpe_platform_in_use) use_platform(cluster->library, NULL);
    dlclose(cluster->library); /* leaves the cluster */
    cluster->library = NULL;
    double until_s = harpe_clock_s() + wait_s;
    while (wait_s > 0 && is_used(cluster->name) && harpe_clock_s() < until_s)
        harpe_sleep_ns(5000000);
    remove_cluster(cluster->name, cluster->is_own);
}

/* ---- Workloads ------------------------------------------------------------------------------- */

typedef struct emulator_calls {
    int (*step)(unsigned int gpu, const char *name, double stretch, int64_t ready_ns,
                int64_t *finished_ns);
    int (*energy)(unsigned int gpu, int64_t at_ns, double *energy_j);
    int (*initialize)(void);
    int64_t (*now_ns)(void);
} emulator_calls;

bool harpe_workload_has_gpus(void) {
    return getenv("HARPE_EMULATOR_CLUSTER") && getenv("HARPE_NVML_LIBRARY");
}

/* The library stays loaded until the process ends. */
static harpe_status load(emulator_calls *calls, harpe_error *error) {
    void *library;
    const harpe_emulated_symbol symbols[] = {
        {"harpe_emulator_workload_step", (void **)&calls->step},
        {"harpe_emulator_energy", (void **)&calls->energy},
        {"harpe_emulator_now_ns", (void **)&calls->now_ns},
        {"nvmlInit_v2", (void **)&calls->initialize},
        {0},
    };
    return harpe_emulated_library_load(getenv("HARPE_NVML_LIBRARY"), symbols, &library, error);
}

static unsigned int first_gpu(void) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int64_t index = 0;
    if (!visible || !harpe_parse_int(visible, strcspn(visible, ","), &index) || index < 0) return 0;
    return (unsigned int)index;
}

static uint64_t noise_seed(void) {
    const char *text = getenv("HARPE_EMULATOR_SEED");
    int64_t seed = 1;
    if (text) (void)harpe_parse_int(text, strlen(text), &seed);
    return (uint64_t)seed;
}

static double stretch(const harpe_workload_options *options, uint64_t *random, double since_s) {
    double factor = 1 + options->noise_share * harpe_synth_random_normal(random);
    factor *= 1 + options->drift_share_h * since_s / SECONDS_OF_HOUR;
    return fmin(fmax(factor, STRETCH_MIN), STRETCH_MAX);
}

/* Returns the workload whose turn it is, in a list that commas separate. */
static const char *workload_at(const harpe_workload_options *options, double since_s) {
    const char *list = getenv("HARPE_EMULATOR_WORKLOAD");
    size_t count = 1;
    for (const char *c = list; c && *c; c++)
        count += *c == ',';
    if (count == 1) return list;
    for (size_t turn = (size_t)(since_s / options->phase_s) % count; turn > 0; turn--)
        list += strcspn(list, ",") + 1;
    return list;
}

static harpe_status failed(int code, harpe_error *error) {
    return harpe_fail(error, HARPE_DRIVER_ERROR, "the emulated GPU failed (error %d)", code);
}

static harpe_status run_steps(const emulator_calls *calls, const harpe_workload_options *options,
                              harpe_workload_result *result, harpe_error *error) {
    unsigned int gpu = first_gpu();
    uint64_t random = harpe_synth_random_stream(noise_seed(), gpu, 0, 0);
    int64_t begin_ns = calls->now_ns(), end_ns = begin_ns;
    double begin_j = 0, end_j = 0;
    int code = calls->energy(gpu, begin_ns, &begin_j);
    for (int64_t step = 0; code == 0 && (options->steps == 0 || step < options->steps); step++) {
        harpe_power_limit_mark_step();
        double since_s = 1e-9 * (double)(end_ns - begin_ns);
        double factor = stretch(options, &random, since_s);
        code = calls->step(gpu, workload_at(options, since_s), factor, end_ns, &end_ns);
        if (code != 0 || !options->prints_steps) continue;
        if (printf("step %" PRId64 "\n", step + 1) < 0 || fflush(stdout) != 0)
            return harpe_fail(error, HARPE_IO_ERROR, "standard output is closed");
    }
    if (code == 0) code = calls->energy(gpu, end_ns, &end_j);
    if (code != 0) return failed(code, error);
    result->step_s = 1e-9 * (double)(end_ns - begin_ns) / (double)options->steps;
    result->step_j = (end_j - begin_j) / (double)options->steps;
    return HARPE_OK;
}

harpe_status harpe_workload_run(const harpe_workload_options *options,
                                harpe_workload_result *result, harpe_error *error) {
    emulator_calls calls;
    harpe_status status = load(&calls, error);
    if (status != HARPE_OK) return status;
    int code = calls.initialize();
    return code == 0 ? run_steps(&calls, options, result, error) : failed(code, error);
}

harpe_status harpe_workload_list(harpe_error *error) {
    char *directory = NULL;
    harpe_text path = {0};
    void *library = NULL;
    const char *(*name_of)(unsigned int index) = NULL;
    const harpe_emulated_symbol symbols[] = {{"harpe_emulator_workload_name", (void **)&name_of},
                                             {0}};
    harpe_status status = find_library(&directory, error);
    if (status != HARPE_OK) return status;
    harpe_text_printf(&path, "%s/" LIBRARY_NAME, directory);
    status = path.failed ? harpe_fail_memory(error)
                         : harpe_emulated_library_load(path.data, symbols, &library, error);
    harpe_text_free(&path);
    free(directory);
    for (unsigned int i = 0; status == HARPE_OK && name_of(i); i++)
        puts(name_of(i));
    if (library) dlclose(library);
    return status;
}
