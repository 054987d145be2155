/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a measured workload on an emulated GPU; see workload.h. */
#include "sim/workload.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <harpe/power_limit.h>

#include "base/error.h"
#include "base/number.h"
#include "plan/synth.h"
#include "sim/cluster.h"

#define STRETCH_MIN 0.1
#define STRETCH_MAX 10.0
#define SECONDS_OF_HOUR 3600.0

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
    void *library = dlopen(getenv("HARPE_NVML_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
    if (!library) return harpe_fail(error, HARPE_UNAVAILABLE, "%s", dlerror());
    struct {
        const char *name;
        void **function;
    } symbols[] = {
        {"harpe_emulator_workload_step", (void **)&calls->step},
        {"harpe_emulator_energy", (void **)&calls->energy},
        {"harpe_emulator_now_ns", (void **)&calls->now_ns},
        {"nvmlInit_v2", (void **)&calls->initialize},
    };
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        *symbols[i].function = dlsym(library, symbols[i].name);
        if (!*symbols[i].function)
            return harpe_fail(error, HARPE_UNAVAILABLE, "the emulator's library has no %s",
                              symbols[i].name);
    }
    return HARPE_OK;
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
    void *library;
    harpe_status status = harpe_emulated_library_open(&library, error);
    if (status != HARPE_OK) return status;
    const char *(*name_of)(unsigned int index) = NULL;
    *(void **)&name_of = dlsym(library, "harpe_emulator_workload_name");
    if (!name_of)
        status = harpe_fail(error, HARPE_UNAVAILABLE, "the emulator's library is damaged");
    for (unsigned int i = 0; status == HARPE_OK && name_of(i); i++)
        puts(name_of(i));
    dlclose(library);
    return status;
}
