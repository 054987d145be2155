/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the CSV log of ended windows, in the layout that other tools read. src/powerlimit/replay.c
 * reads the log back. */
#include "monitor/log.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/text.h"
#include "base/wait.h"

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
