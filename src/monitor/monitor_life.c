/* SPDX-License-Identifier: Apache-2.0 */
/* Makes and frees a monitor: selects the GPUs, finds out which of them have a counter and which
 * must be sampled, checks whether the CPUs can be read, and opens the log of ended windows. The log
 * has the layout that other tools read, and src/power_limit/replay.c reads it too. windows.c
 * handles windows. */
#include "monitor/monitor_state.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/wait.h"

/* ---- The log --------------------------------------------------------------------------------- */

struct harpe_window_log {
    pthread_mutex_t lock;
    int descriptor;
    char *path;
    harpe_text line; /* buffer reused for every line */
};

static bool needs_quotes(const char *name) {
    size_t length = strlen(name);
    return length == 0 || strpbrk(name, ",\"\r\n") || strchr(" \t", name[0]) ||
           strchr(" \t", name[length - 1]);
}

static void append_name(harpe_text *line, const char *name) {
    if (!needs_quotes(name)) {
        harpe_text_append(line, name, strlen(name));
        return;
    }
    harpe_text_append(line, "\"", 1);
    for (const char *c = name; *c; c++)
        harpe_text_append(line, *c == '"' ? "\"\"" : c, *c == '"' ? 2 : 1);
    harpe_text_append(line, "\"", 1);
}

static void append_value(harpe_text *line, double value) {
    harpe_text_append(line, ",", 1);
    harpe_text_number(line, value);
}

/* Writes a line with one call, so a process that follows the file never sees half a line. */
static harpe_status write_line(harpe_window_log *log, harpe_error *error) {
    harpe_text_append(&log->line, "\n", 1);
    if (log->line.failed) return harpe_fail_memory(error);
    for (size_t done = 0; done < log->line.length;) {
        ssize_t count = write(log->descriptor, log->line.data + done, log->line.length - done);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return harpe_fail_errno(error, errno, "writing %s", log->path);
        done += (size_t)count;
    }
    return HARPE_OK;
}

static harpe_status write_header(harpe_window_log *log, const int *gpus, size_t gpu_count,
                                 const harpe_rapl *rapl, harpe_error *error) {
    harpe_text_printf(&log->line, "start_time,window_name,elapsed_time");
    for (size_t i = 0; i < gpu_count; i++)
        harpe_text_printf(&log->line, ",gpu%d_energy", gpus[i]);
    for (size_t i = 0; i < harpe_rapl_package_count(rapl); i++)
        harpe_text_printf(&log->line, ",cpu%zu_energy", i);
    for (size_t i = 0; i < harpe_rapl_package_count(rapl); i++)
        if (harpe_rapl_has_dram(rapl, i)) harpe_text_printf(&log->line, ",dram%zu_energy", i);
    return write_line(log, error);
}

harpe_status harpe_window_log_open(const char *path, const int *gpus, size_t gpu_count,
                                   const harpe_rapl *rapl, harpe_window_log **out,
                                   harpe_error *error) {
    harpe_window_log *log = calloc(1, sizeof *log);
    if (!log) return harpe_fail_memory(error);
    pthread_mutex_init(&log->lock, NULL);
    log->descriptor = -1;
    harpe_status status = HARPE_OK;
    log->path = strdup(path);
    if (!log->path) {
        status = harpe_fail_memory(error);
        goto done;
    }
    /* /dev/stdout may be a file to which another process appends. */
    int truncate = strncmp(path, "/dev/", strlen("/dev/")) == 0 ? 0 : O_TRUNC;
    log->descriptor = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | truncate, 0666);
    if (log->descriptor < 0) {
        status = harpe_fail_errno(error, errno, "opening the log file %s", path);
        goto done;
    }
    status = write_header(log, gpus, gpu_count, rapl, error);
done:
    if (status != HARPE_OK) {
        harpe_window_log_close(log);
        return status;
    }
    *out = log;
    return HARPE_OK;
}

void harpe_window_log_close(harpe_window_log *log) {
    if (!log) return;
    if (log->descriptor >= 0) close(log->descriptor);
    pthread_mutex_destroy(&log->lock);
    harpe_text_free(&log->line);
    free(log->path);
    free(log);
}

harpe_status harpe_window_log_write(harpe_window_log *log, double start_time_s, const char *name,
                                    const harpe_window_measurement *measurement,
                                    harpe_error *error) {
    harpe_lock(&log->lock);
    harpe_text *line = &log->line;
    line->length = 0;
    harpe_text_number(line, start_time_s);
    harpe_text_append(line, ",", 1);
    append_name(line, name);
    append_value(line, measurement->time_s);
    for (size_t i = 0; i < measurement->gpu_count; i++)
        append_value(line, measurement->gpu_energy_j[i]);
    for (size_t i = 0; i < measurement->cpu_count; i++)
        append_value(line, measurement->cpu_energy_j[i]);
    for (size_t i = 0; i < measurement->cpu_count; i++)
        if (!isnan(measurement->dram_energy_j[i]))
            append_value(line, measurement->dram_energy_j[i]);
    harpe_status status = write_line(log, error);
    line->failed = false;
    harpe_unlock(&log->lock);
    return status;
}

static const double default_sample_period_s = 0.02;

/* ---- Which GPUs ------------------------------------------------------------------------------ */

static bool is_listed_before(const int *indices, size_t i) {
    for (size_t k = 0; k < i; k++)
        if (indices[k] == indices[i]) return true;
    return false;
}

static harpe_status check_options(const harpe_monitor_options *options, int available,
                                  harpe_error *error) {
    double period_s = options->sample_period_s;
    if (!(period_s == 0 || (period_s >= 0.001 && period_s <= 10))) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "sample period: expected 0.001 to 10 s, or 0 for the default");
    }
    if (!options->gpu_indices) {
        if (options->gpu_count == 0) return HARPE_OK;
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "gpu_count is given without gpu_indices");
    }
    for (size_t i = 0; i < options->gpu_count; i++) {
        int index = options->gpu_indices[i];
        if (index < 0 || index >= available) {
            return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                              "there is no GPU %d to monitor: %d visible here", index, available);
        }
        if (is_listed_before(options->gpu_indices, i))
            return harpe_fail(error, HARPE_INVALID_ARGUMENT, "GPU %d is listed twice", index);
    }
    return HARPE_OK;
}

static harpe_status choose_gpus(harpe_monitor *monitor, const harpe_monitor_options *options,
                                harpe_error *error) {
    int available = monitor->source.count(monitor->source.user);
    harpe_status status = check_options(options, available, error);
    if (status != HARPE_OK) return status;
    monitor->gpu_count = options->gpu_indices ? options->gpu_count : (size_t)available;
    monitor->gpus = harpe_calloc(monitor->gpu_count, sizeof *monitor->gpus);
    monitor->gpu_indices = harpe_calloc(monitor->gpu_count, sizeof *monitor->gpu_indices);
    if (!monitor->gpus || !monitor->gpu_indices) return harpe_fail_memory(error);
    for (size_t i = 0; i < monitor->gpu_count; i++) {
        int index = options->gpu_indices ? options->gpu_indices[i] : (int)i;
        monitor->gpus[i].index = index;
        pthread_mutex_init(&monitor->gpus[i].counter.lock, NULL);
        monitor->gpu_indices[i] = index;
    }
    return HARPE_OK;
}

/* ---- Which GPUs must be sampled -------------------------------------------------------------- */

static harpe_status start_sampler(harpe_monitor *monitor, double period_s, harpe_error *error) {
    harpe_status status = HARPE_OK;
    size_t sampled_count = 0;
    int *sampled = harpe_calloc(monitor->gpu_count, sizeof *sampled);
    if (!sampled) return harpe_fail_memory(error);
    for (size_t i = 0; i < monitor->gpu_count; i++) {
        harpe_monitor_gpu *gpu = &monitor->gpus[i];
        const harpe_energy_source *source = &monitor->source;
        uint64_t energy_mj = 0;
        status = source->energy_mj(source->user, gpu->index, &energy_mj, error);
        if (status == HARPE_OK) continue;
        if (status != HARPE_NOT_SUPPORTED) goto done;
        status = HARPE_OK;
        gpu->is_sampled = true;
        gpu->place = sampled_count;
        sampled[sampled_count++] = gpu->index;
    }
    if (sampled_count > 0) {
        harpe_log_line(&monitor->log, HARPE_LOG_INFO,
                       "%zu of %zu GPUs have no energy counter: their power is sampled",
                       sampled_count, monitor->gpu_count);
        status = harpe_sampler_new(&monitor->source, sampled, sampled_count,
                                   period_s > 0 ? period_s : default_sample_period_s,
                                   &monitor->sampler, error);
    }
done:
    free(sampled);
    return status;
}

/* Opens the CPU counters. If they cannot be read, logs the reason and returns success. */
static harpe_status open_cpus(harpe_monitor *monitor, const char *path, harpe_error *error) {
    harpe_error reason;
    harpe_status status = harpe_rapl_open(path, &monitor->rapl, &reason);
    if (status == HARPE_OUT_OF_MEMORY) return harpe_fail_memory(error);
    if (status != HARPE_OK) {
        harpe_log_level level = status == HARPE_UNAVAILABLE ? HARPE_LOG_INFO : HARPE_LOG_WARNING;
        harpe_log_line(&monitor->log, level, "CPU energy is not measured: %s", reason.message);
    } else if (harpe_rapl_mirror_count(monitor->rapl) > 0) {
        harpe_log_line(&monitor->log, HARPE_LOG_INFO,
                       "%zu dies show the energy counter of another die and are counted once",
                       harpe_rapl_mirror_count(monitor->rapl));
    }
    return HARPE_OK;
}

/* ---- Making and freeing ---------------------------------------------------------------------- */

harpe_status harpe_monitor_new_on(const harpe_monitor_options *options,
                                  const harpe_energy_source *source, harpe_monitor **out,
                                  harpe_error *error) {
    harpe_monitor *monitor = calloc(1, sizeof *monitor);
    if (!monitor) return harpe_fail_memory(error);
    monitor->source = *source;
    monitor->log = options->log;
    monitor->synchronize = options->synchronize;
    monitor->synchronize_user = options->synchronize_user;
    monitor->approximate_instant_energy = options->approximate_instant_energy;
    pthread_mutex_init(&monitor->lock, NULL);
    harpe_status status = choose_gpus(monitor, options, error);
    if (status == HARPE_OK) status = start_sampler(monitor, options->sample_period_s, error);
    if (status == HARPE_OK && options->with_cpu)
        status = open_cpus(monitor, options->rapl_path, error);
    if (status == HARPE_OK && options->log_path) {
        status = harpe_window_log_open(options->log_path, monitor->gpu_indices, monitor->gpu_count,
                                       monitor->rapl, &monitor->window_log, error);
    }
    if (status != HARPE_OK) {
        harpe_monitor_free(monitor);
        return status;
    }
    *out = monitor;
    return HARPE_OK;
}

harpe_status harpe_monitor_new(const harpe_monitor_options *options, harpe_monitor **out,
                               harpe_error *error) {
    if (!options || !out)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "a monitor needs options and a place");
    harpe_energy_source source = harpe_energy_source_of_gpus(options->gpus);
    return harpe_monitor_new_on(options, &source, out, error);
}

void harpe_monitor_free(harpe_monitor *monitor) {
    if (!monitor) return;
    harpe_sampler_free(monitor->sampler);
    harpe_rapl_close(monitor->rapl);
    harpe_window_log_close(monitor->window_log);
    for (size_t i = 0; i < monitor->window_count; i++)
        harpe_window_free(monitor->windows[i]);
    free(monitor->windows);
    for (size_t i = 0; monitor->gpus && i < monitor->gpu_count; i++)
        pthread_mutex_destroy(&monitor->gpus[i].counter.lock);
    free(monitor->gpus);
    free(monitor->gpu_indices);
    pthread_mutex_destroy(&monitor->lock);
    free(monitor);
}

size_t harpe_monitor_cpu_count(const harpe_monitor *monitor) {
    return harpe_rapl_package_count(monitor->rapl);
}

const char *harpe_monitor_cpu_name(const harpe_monitor *monitor, size_t cpu) {
    return harpe_rapl_package_name(monitor->rapl, cpu);
}

bool harpe_monitor_is_sampled(const harpe_monitor *monitor) { return monitor->sampler != NULL; }
