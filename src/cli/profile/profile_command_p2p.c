/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe profile p2p`: makes a GPU wait for a peer, and measures its power during the wait. The
 * emulator has a function that makes a GPU wait. On a real GPU, a Python process waits in a receive
 * operation (profile_command_torch.c). */
#include "cli/profile/profile_command_p2p.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include <harpe/gpu.h>
#include <harpe/monitor.h>

#include "base/error.h"
#include "base/wait.h"
#include "cli/command.h"
#include "cli/profile/profile_command_torch.h"
#include "gpu/gpus.h"

static const double settling_s = 2; /* time after which clocks and power of the GPU are steady */

typedef int (*emulator_wait)(unsigned int gpu, int waiting);

typedef struct wait_trial {
    const harpe_p2p_request *request;
    harpe_gpus *gpus;
    bool is_built_in; /* use the emulator's own function for waiting */
    harpe_torch_pair pair;
    double time_s, energy_j;
} wait_trial;

/* ---- Waiting --------------------------------------------------------------------------------- */

static harpe_status wait_on_emulator(harpe_gpus *gpus, int gpu, int waiting, harpe_error *error) {
    const harpe_gpu_info *info = harpe_gpu_info_at(gpus, gpu);
    const char *path = harpe_gpus_library_path(gpus);
    void *library = *path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    void *address = library ? dlsym(library, "harpe_emulator_wait") : NULL;
    emulator_wait wait = NULL;
    memcpy(&wait, &address, sizeof wait); /* ISO C does not convert between object and function
                                           * pointers */
    int code = wait ? wait((unsigned int)info->driver_index, waiting) : -1;
    if (library) dlclose(library);
    if (code == 0) return HARPE_OK;
    return harpe_fail(error, HARPE_DRIVER_ERROR,
                      "GPU %d: the emulator could not make it wait (%d); is %s the emulator of "
                      "this version?",
                      gpu, code, *path ? path : "the driver library");
}

/* Waits for `time_s` seconds of GPU time. A signal or the end of a process ends the wait early. */
static harpe_status pass(wait_trial *trial, double time_s, harpe_error *error) {
    int64_t end_ns = harpe_gpus_clock_ns(trial->gpus) + (int64_t)(time_s * 1e9);
    harpe_status status = HARPE_OK;
    while (status == HARPE_OK && harpe_gpus_clock_ns(trial->gpus) < end_ns) {
        if (trial->is_built_in) {
            harpe_sleep_ns(5000000);
            status = harpe_command_check_signal(error);
        } else {
            status = harpe_torch_pair_check(&trial->pair, 50, error);
        }
    }
    return status;
}

/* ---- Measuring ------------------------------------------------------------------------------- */

static harpe_status measure(wait_trial *trial, harpe_error *error) {
    const harpe_p2p_request *request = trial->request;
    harpe_monitor_options options = {
        .gpus = trial->gpus, .gpu_indices = &request->gpu, .gpu_count = 1};
    harpe_window_measurement measurement = {0};
    harpe_monitor *monitor = NULL;
    harpe_status status = harpe_monitor_new(&options, &monitor, error);
    if (status == HARPE_OK) status = pass(trial, settling_s, error);
    if (status == HARPE_OK) status = harpe_monitor_begin(monitor, "waiting", false, error);
    if (status == HARPE_OK) status = pass(trial, request->duration_s, error);
    if (status == HARPE_OK)
        status = harpe_monitor_end(monitor, "waiting", false, &measurement, error);
    if (status == HARPE_OK) {
        trial->time_s = measurement.time_s;
        trial->energy_j = measurement.gpu_energy_j[0];
    }
    harpe_window_measurement_clear(&measurement);
    harpe_monitor_free(monitor);
    return status;
}

static harpe_status check_gpus(const wait_trial *trial, int peer, harpe_error *error) {
    int gpu = trial->request->gpu, count = harpe_gpus_count(trial->gpus);
    if (gpu >= count) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "--gpu %d: there are %d GPUs visible here",
                          gpu, count);
    }
    if (trial->is_built_in) return HARPE_OK;
    if (count < 2) {
        return harpe_fail(error, HARPE_UNAVAILABLE,
                          "a GPU can only wait for another GPU, and only one is visible here; use "
                          "a machine with two GPUs of this kind, or 'harpe emulate'");
    }
    if (peer >= count || peer == gpu) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "--peer %d: expected another GPU than %d, below %d", peer, gpu, count);
    }
    return HARPE_OK;
}

static harpe_status try_waiting(wait_trial *trial, harpe_error *error) {
    const harpe_p2p_request *request = trial->request;
    int count = harpe_gpus_count(trial->gpus);
    int peer = request->peer >= 0 ? request->peer : (request->gpu + 1) % count;
    trial->is_built_in = harpe_gpus_are_emulated(trial->gpus) && !request->with_torch;
    harpe_status status = check_gpus(trial, peer, error);
    if (status != HARPE_OK) return status;
    if (!trial->is_built_in) {
        status = harpe_torch_pair_start(&trial->pair, request->python, request->gpu, peer, error);
        if (status == HARPE_OK) status = measure(trial, error);
        harpe_torch_pair_stop(&trial->pair);
        return status;
    }
    status = wait_on_emulator(trial->gpus, request->gpu, 1, error);
    if (status != HARPE_OK) return status;
    status = measure(trial, error);
    (void)wait_on_emulator(trial->gpus, request->gpu, 0, NULL);
    return status;
}

/* ---- The result ------------------------------------------------------------------------------ */

static harpe_status print_answer(const wait_trial *trial, harpe_error *error) {
    const harpe_p2p_request *request = trial->request;
    const harpe_gpu_info *info = harpe_gpu_info_at(trial->gpus, request->gpu);
    bool is_emulated = harpe_gpus_are_emulated(trial->gpus);
    double power_w = trial->energy_j / trial->time_s;
    char option[64];
    snprintf(option, sizeof option, "--p2p-power %.4g", power_w);
    if (request->json) {
        json_t *object =
            json_pack("{s:i, s:o, s:b, s:s, s:f, s:f, s:f, s:s}", "gpu", request->gpu, "name",
                      harpe_command_json_text(info->name), "emulated", is_emulated, "method",
                      trial->is_built_in ? "emulator" : "torch", "time_s", trial->time_s,
                      "energy_j", trial->energy_j, "power_w", power_w, "option", option);
        return harpe_command_print_json(object, error);
    }
    printf("GPU %d (%s)%s drew %.2f W while it waited %.1f s for a peer.\n", request->gpu,
           info->name, is_emulated ? ", emulated," : "", power_w, trial->time_s);
    printf("Plan with: %sharpe plan %s%s ...\n", harpe_bold_start(), option, harpe_bold_end());
    return HARPE_OK;
}

harpe_status harpe_profile_p2p(const harpe_p2p_request *request, harpe_error *error) {
    wait_trial trial = {.request = request, .pair = {.go = -1, .lines = -1, .cleanup_pipe = -1}};
    harpe_status status = harpe_gpus_open(NULL, &trial.gpus, error);
    if (status != HARPE_OK) return status;
    status = try_waiting(&trial, error);
    if (status == HARPE_OK) status = print_answer(&trial, error);
    harpe_gpus_close(trial.gpus);
    return status;
}
