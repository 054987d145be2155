/* SPDX-License-Identifier: Apache-2.0 */
/* The emulated machine in shared memory. Every process that uses the file holds a shared lock on
 * the file. A new process can therefore find out whether it may create the cluster again. The
 * kernel releases the locks of killed processes. physics.c contains the physics, lock.c the locking
 * of GPUs. */
#include "cluster.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/number.h"
#include "base/wait.h"
#include "draws.h"
#include "gpu/nvml_abi.h"
#include "sensor.h"
#include "variety.h"
#include "world.h"

/* "harpe" and the version of the layout, so that a cluster of another build is not used */
#define MAGIC (UINT64_C(0x6861727065000000) ^ (sizeof(emulator_cluster) << 8) ^ 1)
#define DEFAULT_GPUS "1xA100"
#define TIME_SCALE_MIN 0.001
#define TIME_SCALE_MAX 1e6
#define BLOCKING_MAX_W 1000
#define DEFAULT_NOISE_PERCENT "0.5"
#define NOISE_MAX_PERCENT 20
#define DEFAULT_SEED "1"
#define PCI_BUSES 32     /* of a domain that have a GPU */
#define IDENTITY_SIZE 17 /* of the physics in the text of a configuration */

/* ---- Time ------------------------------------------------------------------------------------ */

int64_t emulator_from_real_ns(const emulator_cluster *cluster, int64_t real_ns) {
    int64_t since_ns = real_ns - cluster->epoch_ns;
    if (cluster->time_scale == 1.0) return real_ns;
    return cluster->epoch_ns + (int64_t)((double)since_ns * cluster->time_scale);
}

int64_t emulator_to_real_ns(const emulator_cluster *cluster, int64_t emulated_ns) {
    if (cluster->time_scale == 1.0) return emulated_ns;
    double since_ns = (double)(emulated_ns - cluster->epoch_ns);
    int64_t real_ns = cluster->epoch_ns + (int64_t)(since_ns / cluster->time_scale);
    while (emulator_from_real_ns(cluster, real_ns) < emulated_ns)
        real_ns++;
    return real_ns;
}

void emulator_sleep(const emulator_cluster *cluster, double emulated_s) {
    harpe_sleep_until(harpe_clock_ns() + (int64_t)(emulated_s / cluster->time_scale * 1e9));
}

/* ---- Making a cluster ------------------------------------------------------------------------ */

/* Writes the UUID of a GPU. The same cluster name and GPU index always give the same UUID. */
static void make_uuid(const char *cluster_name, unsigned int gpu, char *uuid, size_t size) {
    uint64_t state = gpu + 1;
    for (const char *c = cluster_name; *c; c++)
        state = emulator_random(&state) ^ (unsigned char)*c;
    uint64_t a = emulator_random(&state), b = emulator_random(&state);
    snprintf(uuid, size, "GPU-%08x-%04x-%04x-%04x-%012llx", (unsigned int)(a >> 32),
             (unsigned int)(a >> 16) & 0xffff, ((unsigned int)a & 0xfff) | 0x4000,
             ((unsigned int)(b >> 48) & 0x3fff) | 0x8000,
             (unsigned long long)(b & UINT64_C(0xffffffffffff)));
}

/* Parses "2xA100,1xV100" or "A100" into models[] of at most EMULATOR_GPU_MAX GPUs. Returns their
 * number, or 0 if the text is invalid. */
static unsigned int parse_gpus(const char *text, uint8_t *models) {
    unsigned int total = 0;
    while (true) {
        size_t length = strcspn(text, ",");
        const char *x = memchr(text, 'x', length);
        int64_t count = 1;
        const char *key = text;
        if (x && harpe_parse_int(text, (size_t)(x - text), &count)) key = x + 1;
        int model = emulator_model_find(key, length - (size_t)(key - text));
        if (model < 0 || count < 1 || count > (int64_t)(EMULATOR_GPU_MAX - total)) return 0;
        for (int64_t i = 0; i < count; i++)
            models[total++] = (uint8_t)model;
        if (text[length] == '\0') return total;
        text += length + 1;
    }
}

static void start_mutex(pthread_mutex_t *mutex) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

typedef struct configuration {
    char name[EMULATOR_NAME_MAX];
    /* all values as one text; an existing cluster is kept only if it was created from the same
     * text */
    char text[EMULATOR_CONFIGURATION_MAX];
    bool is_given; /* true if the environment sets GPUs or the time scale */
    uint32_t gpu_count;
    uint8_t model[EMULATOR_GPU_MAX];
    double time_scale;
    double blocking_w; /* 0: the blocking power of the model */
    double noise_percent;
    int64_t seed;
    const char *physics;
    char problem[EMULATOR_PROBLEM_MAX]; /* "": the values make sense */
} configuration;

static const char *environment(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value && *value ? value : otherwise;
}

static const char *read_noise(configuration *to, const char *noise, const char *seed) {
    if (!harpe_parse_double(noise, strlen(noise), &to->noise_percent) || to->noise_percent < 0 ||
        to->noise_percent > NOISE_MAX_PERCENT)
        return "the noise of power sensors is a number of per cent from 0 to 20";
    if (!harpe_parse_int(seed, strlen(seed), &to->seed) || to->seed < 0)
        return "the seed of the noise is a whole number, 0 or more";
    return NULL;
}

/* Reads the physics once for each model, because the model decides some sizes. */
static bool read_physics(configuration *to) {
    uint64_t identity = 0;
    emulator_effects effects;
    for (uint32_t i = 0; i < to->gpu_count; i++)
        if ((i == 0 || to->model[i] != to->model[i - 1]) &&
            !emulator_effects_read(to->physics, emulator_model_at(to->model[i]), &effects,
                                   &identity, to->problem, sizeof to->problem))
            return false;
    size_t length = strlen(to->text);
    (void)snprintf(to->text + length, sizeof to->text - length, ";%016llx",
                   (unsigned long long)identity);
    return true;
}

/* Returns NULL, or a text that says what is wrong with the configuration. */
static const char *read_values(configuration *to) {
    const char *name = environment("HARPE_EMULATOR_CLUSTER", "default");
    const char *gpus = environment("HARPE_EMULATOR_GPUS", DEFAULT_GPUS);
    const char *scale = environment("HARPE_EMULATOR_TIME_SCALE", "1");
    const char *blocking = environment("HARPE_EMULATOR_BLOCKING_POWER", "0");
    const char *noise = environment("HARPE_EMULATOR_NOISE", DEFAULT_NOISE_PERCENT);
    const char *seed = environment("HARPE_EMULATOR_SEED", DEFAULT_SEED);
    to->physics = environment("HARPE_EMULATOR_PHYSICS", "ideal");
    to->is_given = getenv("HARPE_EMULATOR_GPUS") || getenv("HARPE_EMULATOR_TIME_SCALE") ||
                   getenv("HARPE_EMULATOR_BLOCKING_POWER") || getenv("HARPE_EMULATOR_NOISE") ||
                   getenv("HARPE_EMULATOR_SEED") || getenv("HARPE_EMULATOR_PHYSICS");
    if (strlen(name) >= sizeof to->name || strchr(name, '/'))
        return "a cluster's name is at most 127 characters, without a slash";
    if (emulator_is_in_world())
        snprintf(to->name, sizeof to->name, "world-%s", seed);
    else
        snprintf(to->name, sizeof to->name, "%s", name);
    int length =
        snprintf(to->text, sizeof to->text, "%s;%s;%s;%s;%s", gpus, scale, blocking, noise, seed);
    if (length >= 0 && (size_t)length < sizeof to->text - IDENTITY_SIZE)
        to->gpu_count = parse_gpus(gpus, to->model);
    if (to->gpu_count == 0) {
        return "GPUs are given as a list such as 4xA100 or 2xA100,1xV100: 1 to 4096 of the models "
               "V100, A40, A100, A100-PCIe, H100, GH200";
    }
    if (!harpe_parse_double(scale, strlen(scale), &to->time_scale) ||
        to->time_scale < TIME_SCALE_MIN || to->time_scale > TIME_SCALE_MAX)
        return "the time scale is a number from 0.001 to 1000000";
    if (!harpe_parse_double(blocking, strlen(blocking), &to->blocking_w) || to->blocking_w < 0 ||
        to->blocking_w > BLOCKING_MAX_W)
        return "the blocking power is a number of watts from 0 (the model's own) to 1000";
    return read_noise(to, noise, seed);
}

/* Returns false, with a text in `problem`, if the configuration makes no sense. */
static bool read_configuration(configuration *to) {
    memset(to, 0, sizeof *to);
    const char *problem = read_values(to);
    if (!problem) return read_physics(to);
    snprintf(to->problem, sizeof to->problem, "%s", problem);
    return false;
}

bool emulator_cluster_problem(char *problem, size_t size) {
    configuration values;
    if (read_configuration(&values)) return false;
    snprintf(problem, size, "%s", values.problem);
    return true;
}

/* Reads the effects of a GPU's model. They were read before without a problem; if the file has
 * changed since, the GPU is ideal. */
static void read_effects(emulator_effects *effects, const configuration *from, unsigned int gpu) {
    uint64_t identity;
    char problem[EMULATOR_PROBLEM_MAX];
    if (!emulator_effects_read(from->physics, emulator_model_at(from->model[gpu]), effects,
                               &identity, problem, sizeof problem))
        emulator_effects_ideal(effects);
}

static void start_gpu(emulator_cluster *cluster, const configuration *from, unsigned int index,
                      const emulator_effects *of_model) {
    emulator_gpu *gpu = &cluster->gpu[index];
    start_mutex(&gpu->mutex);
    gpu->model = from->model[index];
    gpu->pci_domain = index / PCI_BUSES;
    gpu->pci_bus = 0x07 + 8 * (index % PCI_BUSES);
    make_uuid(from->name, index, gpu->uuid, sizeof gpu->uuid);
    gpu->effects = *of_model;
    gpu->effects.seed = (uint64_t)from->seed;
    gpu->effects.gpu = index;
    emulator_draw_gpu(emulator_model_at(gpu->model), &gpu->effects);
    emulator_chip chip = emulator_chip_of(cluster, index, -1);
    emulator_state_start(&gpu->state[0], &chip, cluster->epoch_ns);
    if (from->blocking_w > 0) gpu->state[0].blocking_w = from->blocking_w;
}

static void start_cluster(emulator_cluster *cluster, const configuration *from) {
    size_t used = offsetof(emulator_cluster, gpu) + from->gpu_count * sizeof cluster->gpu[0];
    if (madvise(cluster, sizeof *cluster, MADV_REMOVE) == -1) /* now zeros, without memory */
        memset(cluster, 0, used);
    memcpy(cluster->name, from->name, sizeof cluster->name);
    memcpy(cluster->configuration, from->text, sizeof cluster->configuration);
    cluster->gpu_count = from->gpu_count;
    cluster->time_scale = from->time_scale;
    cluster->noise_share = from->noise_percent / 100;
    cluster->noise_seed = (uint64_t)from->seed;
    cluster->epoch_ns = harpe_clock_ns();
    emulator_effects of_model;
    for (unsigned int i = 0; i < from->gpu_count; i++) {
        if (i == 0 || from->model[i] != from->model[i - 1]) read_effects(&of_model, from, i);
        start_gpu(cluster, from, i, &of_model);
    }
    atomic_store(&cluster->magic, MAGIC);
}

/* Makes lost GPUs available again, as after a restart of the driver, and releases the locks of dead
 * processes. It runs when no other process uses the cluster. */
static void restart_driver(emulator_cluster *cluster) {
    for (unsigned int i = 0; i < cluster->gpu_count; i++) {
        start_mutex(&cluster->gpu[i].mutex);
        cluster->gpu[i].state[atomic_load(&cluster->gpu[i].current) & 1].is_lost = false;
    }
}

static bool is_usable(const emulator_cluster *cluster) {
    return atomic_load(&cluster->magic) == MAGIC && cluster->gpu_count <= EMULATOR_GPU_MAX;
}

/* Initialises or checks the cluster. The file is mapped, and no other process uses it. */
static void take_over(emulator_cluster *cluster, const configuration *from) {
    bool is_wanted =
        is_usable(cluster) && (!from->is_given || strcmp(cluster->configuration, from->text) == 0);
    if (is_wanted)
        restart_driver(cluster);
    else
        start_cluster(cluster, from);
}

static int open_shared(const configuration *from, int *fd) {
    char path[200];
    snprintf(path, sizeof path, "/harpe-emulator-%u-%s", (unsigned int)getuid(), from->name);
    *fd = shm_open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    return *fd == -1 ? NVML_ERROR_OPERATING_SYSTEM : NVML_SUCCESS;
}

/* Tries once to attach to the opened file. Returns NVML_ERROR_TIMEOUT if the caller must try again
 * with the file that now has this name. Never waits for the file lock, because the process that
 * holds it may be stopped. */
static int try_attach(int fd, const configuration *wanted, emulator_cluster **out) {
    bool is_alone = flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (!is_alone && flock(fd, LOCK_SH | LOCK_NB) == -1) return NVML_ERROR_TIMEOUT;
    struct stat status;
    if (fstat(fd, &status) == -1 || status.st_uid != getuid())
        return NVML_ERROR_OPERATING_SYSTEM; /* never uses a file of another user */
    /* the file was removed after it was opened */
    if (status.st_nlink == 0) return NVML_ERROR_TIMEOUT;
    bool is_whole = (size_t)status.st_size == sizeof(emulator_cluster);
    /* the creator has died, or another build has created the file */
    if (!is_alone && !is_whole) return NVML_ERROR_TIMEOUT;
    if (!is_whole && ftruncate(fd, sizeof(emulator_cluster)) == -1)
        return NVML_ERROR_OPERATING_SYSTEM;
    void *memory = mmap(NULL, sizeof(emulator_cluster), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) return NVML_ERROR_OPERATING_SYSTEM;
    bool is_locked = true;
    if (is_alone) {
        take_over(memory, wanted);
        is_locked = flock(fd, LOCK_SH | LOCK_NB) == 0;
    }
    if (is_locked && is_usable(memory)) {
        *out = memory;
        return NVML_SUCCESS;
    }
    munmap(memory, sizeof(emulator_cluster));
    return NVML_ERROR_TIMEOUT;
}

/* ---- A world --------------------------------------------------------------------------------- */

static emulator_cluster *of_world; /* stays when no process of the world uses it */

static int attach_in_world(const configuration *wanted, emulator_cluster **out) {
    if (!of_world) {
        void *memory = mmap(NULL, sizeof *of_world, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) return NVML_ERROR_OPERATING_SYSTEM;
        of_world = memory;
    }
    take_over(of_world, wanted);
    *out = of_world;
    return NVML_SUCCESS;
}

void emulator_forget_world(void) {
    if (of_world) munmap(of_world, sizeof *of_world);
    of_world = NULL;
}

/* ---- Attaching ------------------------------------------------------------------------------- */

int emulator_cluster_attach(emulator_cluster **out, int *fd_out) {
    configuration wanted;
    if (!read_configuration(&wanted)) return NVML_ERROR_INVALID_ARGUMENT;
    *fd_out = -1;
    if (emulator_is_in_world()) return attach_in_world(&wanted, out);
    int64_t until_ns = harpe_clock_ns() + EMULATOR_TIMEOUT_NS;
    int result;
    do {
        int fd;
        result = open_shared(&wanted, &fd);
        if (result != NVML_SUCCESS) return result;
        result = try_attach(fd, &wanted, out);
        if (result == NVML_SUCCESS) {
            *fd_out = fd;
            return NVML_SUCCESS;
        }
        close(fd); /* also releases the file lock */
        if (result == NVML_ERROR_TIMEOUT) harpe_sleep_ns(2000000);
    } while (result == NVML_ERROR_TIMEOUT && harpe_clock_ns() < until_ns);
    return result;
}

void emulator_cluster_detach(emulator_cluster *cluster, int fd) {
    if (cluster == of_world) return;
    munmap(cluster, sizeof *cluster);
    close(fd);
}
