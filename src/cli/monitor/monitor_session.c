/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the devices that `harpe monitor` measures, and prints the result at the end. Missing GPUs
 * are not a failure if something else can be measured. */
#include "cli/monitor/monitor_session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/number.h"
#include "cli/command.h"
#include "monitor/monitor.h"

/* ---- Opening --------------------------------------------------------------------------------- */

/* Reads "0,2". The monitor checks whether the GPUs exist. */
static harpe_status parse_gpus(const char *list, harpe_monitor_session *session,
                               harpe_error *error) {
    size_t capacity = 0;
    for (const char *cursor = list;; cursor++) {
        size_t length = strcspn(cursor, ",");
        int64_t index = -1;
        if (!harpe_parse_int(cursor, length, &index) || index < 0 || index > 4095) {
            return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                              "--gpus: expected GPU indices such as 0,2, found '%.100s'", list);
        }
        if (!HARPE_ARRAY_RESERVE(session->gpu_indices, capacity, session->gpu_count + 1))
            return harpe_fail_memory(error);
        session->gpu_indices[session->gpu_count++] = (int)index;
        cursor += length;
        if (*cursor == '\0') return HARPE_OK;
    }
}

static harpe_status open_gpus(const harpe_monitor_request *request, harpe_monitor_session *session,
                              harpe_error *reason) {
    harpe_gpus_options options = {.log = harpe_command_log("harpe monitor")};
    harpe_status status = harpe_gpus_open(&options, &session->gpus, reason);
    if (status != HARPE_OK) return status;
    if (request->gpus) return parse_gpus(request->gpus, session, reason);
    session->gpu_count = (size_t)harpe_gpus_count(session->gpus);
    session->gpu_indices = harpe_calloc(session->gpu_count, sizeof *session->gpu_indices);
    if (!session->gpu_indices) return harpe_fail_memory(reason);
    for (size_t i = 0; i < session->gpu_count; i++)
        session->gpu_indices[i] = (int)i;
    return HARPE_OK;
}

static harpe_status fail_nothing(const harpe_monitor_request *request, const harpe_error *no_gpu,
                                 harpe_error *error) {
    return harpe_fail(error, HARPE_UNAVAILABLE,
                      "nothing to measure: %.600s; CPU energy %s. To try without a GPU: harpe "
                      "emulate -- harpe monitor ...",
                      no_gpu->message,
                      request->no_cpu ? "was not asked for" : "cannot be read either");
}

harpe_status harpe_monitor_session_open(const harpe_monitor_request *request, const char *log_path,
                                        harpe_monitor_session *session, harpe_error *error) {
    harpe_error no_gpu = {.status = HARPE_OK};
    harpe_status status = open_gpus(request, session, &no_gpu);
    bool has_gpus = status == HARPE_OK;
    if (!has_gpus && (status != HARPE_UNAVAILABLE || request->gpus))
        return harpe_fail(error, status, "%s", no_gpu.message);
    harpe_monitor_options options = {
        .gpus = session->gpus,
        .gpu_indices = session->gpu_indices,
        .gpu_count = session->gpu_count,
        .with_cpu = !request->no_cpu,
        .rapl_path = request->rapl_path,
        .log_path = log_path,
        .log = harpe_command_log("harpe monitor"),
    };
    status = harpe_monitor_new(&options, &session->monitor, error);
    if (status != HARPE_OK) return status;
    session->cpu_count = harpe_monitor_cpu_count(session->monitor);
    if (!has_gpus && session->cpu_count == 0) return fail_nothing(request, &no_gpu, error);
    if (!has_gpus)
        fprintf(stderr, "harpe monitor: no GPU, only CPUs are measured: %s\n", no_gpu.message);
    return HARPE_OK;
}

void harpe_monitor_session_close(harpe_monitor_session *session) {
    harpe_monitor_free(session->monitor);
    if (session->gpus) harpe_gpus_close(session->gpus);
    free(session->gpu_indices);
    *session = (harpe_monitor_session){0};
}

/* ---- The result ------------------------------------------------------------------------------ */

static double total_cpu_j(const harpe_window_measurement *measurement) {
    double energy_j = 0;
    for (size_t i = 0; i < measurement->cpu_count; i++) {
        double dram_j = measurement->dram_energy_j[i];
        energy_j += measurement->cpu_energy_j[i] + (isnan(dram_j) ? 0 : dram_j);
    }
    return energy_j;
}

static void print_row(FILE *stream, const char *label, const char *name, double energy_j,
                      double time_s) {
    fprintf(stream, "  %-8s%-32.32s%14.3f J", label, name, energy_j);
    if (time_s > 0) fprintf(stream, "%11.1f W", energy_j / time_s);
    fputc('\n', stream);
}

static bool covers_module(const harpe_monitor_session *session, int gpu) {
    return session->gpus && harpe_gpu_energy_scope(session->gpus, gpu) == HARPE_ENERGY_OF_MODULE;
}

void harpe_monitor_summary_print(FILE *stream, const harpe_monitor_session *session,
                                 const harpe_window_measurement *measurement) {
    double time_s = measurement->time_s;
    bool is_emulated = session->gpus && harpe_gpus_are_emulated(session->gpus);
    char label[32];
    fprintf(stream, "%.3f s%s\n", time_s, is_emulated ? " (emulated GPUs)" : "");
    for (size_t i = 0; i < measurement->gpu_count; i++) {
        snprintf(label, sizeof label, "GPU %d", measurement->gpu_index[i]);
        const harpe_gpu_info *info = harpe_gpu_info_at(session->gpus, measurement->gpu_index[i]);
        print_row(stream, label, info ? info->name : "", measurement->gpu_energy_j[i], time_s);
        if (covers_module(session, measurement->gpu_index[i]))
            fprintf(stream, "         (that of the whole module, CPU included)\n");
    }
    for (size_t i = 0; i < measurement->cpu_count; i++) {
        snprintf(label, sizeof label, "CPU %zu", i);
        print_row(stream, label, harpe_monitor_cpu_name(session->monitor, i),
                  measurement->cpu_energy_j[i], time_s);
        if (!isnan(measurement->dram_energy_j[i]))
            print_row(stream, "", "dram", measurement->dram_energy_j[i], time_s);
    }
    if (measurement->gpu_count + measurement->cpu_count > 1) {
        print_row(stream, "total", "", measurement->total_gpu_energy_j + total_cpu_j(measurement),
                  time_s);
    }
}

static json_t *number_or_null(double value) {
    return isnan(value) ? json_null() : json_real(value);
}

json_t *harpe_monitor_summary_json(const harpe_monitor_session *session,
                                   const harpe_window_measurement *measurement) {
    json_t *gpus = json_array();
    json_t *cpus = json_array();
    double time_s = measurement->time_s;
    for (size_t i = 0; i < measurement->gpu_count; i++) {
        const harpe_gpu_info *info = harpe_gpu_info_at(session->gpus, measurement->gpu_index[i]);
        double energy_j = measurement->gpu_energy_j[i];
        json_array_append_new(
            gpus, json_pack("{s:i, s:o, s:s, s:f, s:o}", "index", measurement->gpu_index[i], "name",
                            harpe_command_json_text(info ? info->name : ""), "energy_scope",
                            covers_module(session, measurement->gpu_index[i]) ? "module" : "gpu",
                            "energy_j", energy_j, "average_power_w",
                            time_s > 0 ? json_real(energy_j / time_s) : json_null()));
    }
    for (size_t i = 0; i < measurement->cpu_count; i++) {
        json_array_append_new(
            cpus, json_pack("{s:i, s:o, s:f, s:o}", "index", (int)i, "name",
                            harpe_command_json_text(harpe_monitor_cpu_name(session->monitor, i)),
                            "energy_j", measurement->cpu_energy_j[i], "dram_energy_j",
                            number_or_null(measurement->dram_energy_j[i])));
    }
    double cpu_j = total_cpu_j(measurement);
    return json_pack("{s:f, s:b, s:o, s:o, s:f, s:f, s:f}", "time_s", time_s, "emulated",
                     session->gpus && harpe_gpus_are_emulated(session->gpus), "gpus", gpus, "cpus",
                     cpus, "gpu_energy_j", measurement->total_gpu_energy_j, "cpu_energy_j", cpu_j,
                     "total_energy_j", measurement->total_gpu_energy_j + cpu_j);
}
