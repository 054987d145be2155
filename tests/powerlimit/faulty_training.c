/* SPDX-License-Identifier: Apache-2.0 */
/* The emulated driver for a training that fails at a certain step. It wraps the emulator's library
 * and counts the works while GPU 0 has a certain power limit. At the given work it writes the
 * faults to the file that every process of the test reads.
 *
 *   FAULT_LIMIT_MW, FAULT_STEP  when: before that work (from 1) at that limit
 *   FAULT                       what: the new text of HARPE_EMULATOR_FAULTS_FILE
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

int harpe_emulator_work(unsigned int gpu, double full_speed_s, double compute_share,
                        double *elapsed_s);

typedef int (*work_call)(unsigned int gpu, double full_speed_s, double compute_share,
                         double *elapsed_s);
typedef int (*init_call)(void);
typedef int (*handle_call)(unsigned int index, void **handle);
typedef int (*limit_call)(void *handle, unsigned int *limit_mw);

static void *find(const char *name) {
    static void *emulator;
    if (!emulator) emulator = dlopen(EMULATOR, RTLD_NOW);
    return emulator ? dlsym(emulator, name) : NULL;
}

static unsigned int limit_mw(void) {
    static bool is_initialized;
    init_call initialize;
    handle_call find_gpu;
    limit_call read_limit;
    void *gpu = NULL;
    unsigned int limit = 0;
    *(void **)&initialize = find("nvmlInit_v2");
    *(void **)&find_gpu = find("nvmlDeviceGetHandleByIndex_v2");
    *(void **)&read_limit = find("nvmlDeviceGetPowerManagementLimit");
    if (!is_initialized && initialize() != 0) return 0;
    is_initialized = true;
    if (find_gpu(0, &gpu) != 0 || read_limit(gpu, &limit) != 0) return 0;
    return limit;
}

static void write_faults(void) {
    const char *path = getenv("HARPE_EMULATOR_FAULTS_FILE");
    char fresh[4096];
    snprintf(fresh, sizeof fresh, "%s.fresh", path);
    FILE *file = fopen(fresh, "w");
    if (!file) abort();
    fputs(getenv("FAULT"), file);
    fclose(file);
    if (rename(fresh, path) != 0) abort(); /* no process reads a partial file */
}

int harpe_emulator_work(unsigned int gpu, double full_speed_s, double compute_share,
                        double *elapsed_s) {
    static int steps;
    const char *at_mw = getenv("FAULT_LIMIT_MW");
    if (at_mw && limit_mw() == (unsigned int)atoi(at_mw) && ++steps == atoi(getenv("FAULT_STEP")))
        write_faults();
    work_call work;
    *(void **)&work = find("harpe_emulator_work");
    return work(gpu, full_speed_s, compute_share, elapsed_s);
}
