/* SPDX-License-Identifier: Apache-2.0 */
/* Answers the optimizer's windows from a recorded log instead of measuring. The replay records the
 * limits that were set. It never invents a value that the log does not have. */
#include "power_limit/replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/csv.h"
#include "base/error.h"
#include "base/file.h"
#include "base/number.h"

enum {
    LOG_LIMIT_BYTES = 64 << 20,
    GPU_LIMIT = 1024,
    ROW_LIMIT = 4096,
    POWER_LIMIT_MAX_W = 1000000,
};

static const char window_prefix[] = "__GlobalPowerLimitOptimizer_";

struct harpe_power_limit_replay {
    harpe_power_limit_device device;
    char *name;                          /* name of the log in errors */
    harpe_power_limit_measurement *rows; /* one for each limit */
    size_t row_count, row_capacity;
    int *sets_w;
    size_t set_count, set_capacity;
    int current_w, open_w; /* 0: none */
};

/* The positions of the columns. */
typedef struct log_columns {
    size_t name, time;
    size_t energies[GPU_LIMIT];
    size_t gpu_count;
    size_t field_count;
} log_columns;

/* ---- Reading the log ------------------------------------------------------------------------- */

/* Returns true for a field "gpu<number>_energy". */
static bool is_gpu_energy(const harpe_csv_field *field) {
    static const char suffix[] = "_energy";
    size_t suffix_length = sizeof suffix - 1;
    int64_t index = 0;
    if (field->length <= 3 + suffix_length || memcmp(field->text, "gpu", 3) != 0) return false;
    size_t digits = field->length - 3 - suffix_length;
    return memcmp(field->text + 3 + digits, suffix, suffix_length) == 0 &&
           harpe_parse_int(field->text + 3, digits, &index) && index >= 0;
}

static harpe_status read_header(const harpe_csv *csv, log_columns *columns, harpe_error *error) {
    bool has_name = false;
    bool has_time = false;
    for (size_t i = 0; i < csv->field_count; i++) {
        const harpe_csv_field *field = &csv->fields[i];
        if (harpe_csv_field_is(field, "window_name")) {
            columns->name = i;
            has_name = true;
        } else if (harpe_csv_field_is(field, "elapsed_time")) {
            columns->time = i;
            has_time = true;
        } else if (is_gpu_energy(field)) {
            if (columns->gpu_count == GPU_LIMIT)
                return harpe_csv_fail(csv, i, error, "more than %d GPUs", GPU_LIMIT);
            columns->energies[columns->gpu_count++] = i;
        }
    }
    columns->field_count = csv->field_count;
    if (!has_name || !has_time || columns->gpu_count == 0) {
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s:%d: not a monitor's log: the columns window_name, elapsed_time and "
                          "gpu0_energy are needed",
                          csv->name, csv->line);
    }
    return HARPE_OK;
}

static harpe_status read_row(const harpe_csv *csv, const log_columns *columns,
                             harpe_power_limit_measurement *row, harpe_error *error) {
    const harpe_csv_field *name = &csv->fields[columns->name];
    size_t prefix_length = sizeof window_prefix - 1;
    int64_t limit_w = 0;
    if (!harpe_parse_int(name->text + prefix_length, name->length - prefix_length, &limit_w) ||
        limit_w < 1 || limit_w > POWER_LIMIT_MAX_W) {
        return harpe_csv_fail(csv, columns->name, error, "%s must be followed by whole watts",
                              window_prefix);
    }
    row->power_limit_w = (int)limit_w;
    row->energy_j = 0;
    harpe_status status = harpe_csv_double(csv, columns->time, "elapsed_time", &row->time_s, error);
    if (status == HARPE_OK && !(row->time_s > 0))
        status = harpe_csv_fail(csv, columns->time, error, "elapsed_time must be above 0 s");
    for (size_t i = 0; status == HARPE_OK && i < columns->gpu_count; i++) {
        double energy_j = 0;
        status = harpe_csv_double(csv, columns->energies[i], "energy", &energy_j, error);
        if (status == HARPE_OK && energy_j < 0)
            status = harpe_csv_fail(csv, columns->energies[i], error, "energy is below 0 J");
        row->energy_j += energy_j;
    }
    if (status == HARPE_OK && !(row->energy_j > 0))
        status = harpe_csv_fail(csv, columns->energies[0], error, "the window took no energy");
    return status;
}

static harpe_power_limit_measurement *find_row(const harpe_power_limit_replay *replay,
                                               int limit_w) {
    for (size_t i = 0; i < replay->row_count; i++)
        if (replay->rows[i].power_limit_w == limit_w) return &replay->rows[i];
    return NULL;
}

static harpe_status keep_row(harpe_power_limit_replay *replay,
                             const harpe_power_limit_measurement *row, harpe_error *error) {
    harpe_power_limit_measurement *known = find_row(replay, row->power_limit_w);
    if (!known) {
        if (replay->row_count == ROW_LIMIT) {
            return harpe_fail(error, HARPE_LIMIT_EXCEEDED, "%s: more than %d power limits",
                              replay->name, ROW_LIMIT);
        }
        if (!HARPE_ARRAY_RESERVE(replay->rows, replay->row_capacity, replay->row_count + 1))
            return harpe_fail_memory(error);
        known = &replay->rows[replay->row_count++];
    }
    *known = *row;
    return HARPE_OK;
}

static bool is_optimizer_row(const harpe_csv *csv, const log_columns *columns) {
    const harpe_csv_field *name = &csv->fields[columns->name];
    size_t prefix_length = sizeof window_prefix - 1;
    return name->length >= prefix_length && memcmp(name->text, window_prefix, prefix_length) == 0;
}

static harpe_status read_rows(harpe_power_limit_replay *replay, harpe_csv *csv,
                              log_columns *columns, harpe_error *error) {
    bool has_record = false;
    harpe_status status = harpe_csv_next(csv, &has_record, error);
    if (status != HARPE_OK) return status;
    if (!has_record) {
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: the file is empty: expected a monitor's log with the columns "
                          "window_name, elapsed_time and gpu0_energy",
                          csv->name);
    }
    status = read_header(csv, columns, error);
    while (status == HARPE_OK) {
        status = harpe_csv_next(csv, &has_record, error);
        if (status != HARPE_OK || !has_record) break;
        if (csv->field_count != columns->field_count) {
            return harpe_fail(error, HARPE_INVALID_INPUT, "%s:%d: %zu fields, the header has %zu",
                              csv->name, csv->line, csv->field_count, columns->field_count);
        }
        if (!is_optimizer_row(csv, columns)) continue;
        harpe_power_limit_measurement row = {0};
        status = read_row(csv, columns, &row, error);
        if (status == HARPE_OK) status = keep_row(replay, &row, error);
    }
    if (status == HARPE_OK && replay->row_count == 0) {
        status = harpe_fail(error, HARPE_INVALID_INPUT,
                            "%s: no window is named %s<watts>: not the log of a power limit "
                            "optimizer",
                            csv->name, window_prefix);
    }
    return status;
}

/* ---- The device ------------------------------------------------------------------------------ */

static harpe_status replay_set_limit(void *user, int limit_w, harpe_error *error) {
    harpe_power_limit_replay *replay = user;
    if (!HARPE_ARRAY_RESERVE(replay->sets_w, replay->set_capacity, replay->set_count + 1))
        return harpe_fail_memory(error);
    replay->sets_w[replay->set_count++] = limit_w;
    replay->current_w = limit_w;
    return HARPE_OK;
}

static harpe_status replay_begin_window(void *user, const char *name, harpe_error *error) {
    harpe_power_limit_replay *replay = user;
    if (!find_row(replay, replay->current_w)) {
        return harpe_fail(error, HARPE_NOT_FOUND, "%s: no window was recorded at %d W (%s)",
                          replay->name, replay->current_w, name);
    }
    replay->open_w = replay->current_w;
    return HARPE_OK;
}

static harpe_status replay_end_window(void *user, const char *name, bool cancel, double *energy_j,
                                      double *time_s, harpe_error *error) {
    harpe_power_limit_replay *replay = user;
    const harpe_power_limit_measurement *row = find_row(replay, replay->open_w);
    if (!row)
        return harpe_fail(error, HARPE_NOT_FOUND, "%s: no window '%s' is open", replay->name, name);
    replay->open_w = 0;
    if (cancel) return HARPE_OK;
    *energy_j = row->energy_j;
    *time_s = row->time_s;
    return HARPE_OK;
}

static void describe_device(harpe_power_limit_replay *replay, size_t gpu_count) {
    int minimum_w = replay->rows[0].power_limit_w;
    int maximum_w = minimum_w;
    for (size_t i = 1; i < replay->row_count; i++) {
        int limit_w = replay->rows[i].power_limit_w;
        minimum_w = limit_w < minimum_w ? limit_w : minimum_w;
        maximum_w = limit_w > maximum_w ? limit_w : maximum_w;
    }
    replay->device = (harpe_power_limit_device){
        .user = replay,
        .gpu_count = (int)gpu_count,
        .minimum_w = minimum_w,
        .maximum_w = maximum_w,
        .set_limit = replay_set_limit,
        .begin_window = replay_begin_window,
        .end_window = replay_end_window,
    };
}

/* ---- Opening and asking ---------------------------------------------------------------------- */

harpe_status harpe_power_limit_replay_parse(const char *text, size_t length, const char *name,
                                            harpe_power_limit_replay **out, harpe_error *error) {
    harpe_csv csv;
    log_columns columns = {0};
    harpe_power_limit_replay *replay = harpe_calloc(1, sizeof *replay);
    if (!replay) return harpe_fail_memory(error);
    harpe_csv_open(&csv, text, length, name);
    replay->name = strdup(name);
    harpe_status status =
        replay->name ? read_rows(replay, &csv, &columns, error) : harpe_fail_memory(error);
    harpe_csv_close(&csv);
    if (status != HARPE_OK) {
        harpe_power_limit_replay_free(replay);
        return status;
    }
    describe_device(replay, columns.gpu_count);
    *out = replay;
    return HARPE_OK;
}

harpe_status harpe_power_limit_replay_open(const char *path, harpe_power_limit_replay **out,
                                           harpe_error *error) {
    char *text = NULL;
    size_t length = 0;
    harpe_status status = harpe_file_read(path, LOG_LIMIT_BYTES, &text, &length, error);
    if (status != HARPE_OK) return status;
    status = harpe_power_limit_replay_parse(text, length, path, out, error);
    free(text);
    return status;
}

void harpe_power_limit_replay_free(harpe_power_limit_replay *replay) {
    if (!replay) return;
    free(replay->name);
    free(replay->rows);
    free(replay->sets_w);
    free(replay);
}

const harpe_power_limit_device *harpe_power_limit_replay_device(harpe_power_limit_replay *replay) {
    return &replay->device;
}

/* Returns the first limit that this step tries and the log lacks; 0: none. */
static int missing_limit_w(const harpe_power_limit_replay *replay, int step_w) {
    int minimum_w = replay->device.minimum_w;
    for (int limit_w = replay->device.maximum_w; limit_w > minimum_w; limit_w -= step_w)
        if (!find_row(replay, limit_w)) return limit_w;
    return 0;
}

/* Returns the distance between the limits of the log; 0: the distances differ. */
static int recorded_step_w(const harpe_power_limit_replay *replay) {
    int range_w = replay->device.maximum_w - replay->device.minimum_w;
    int step_count = (int)replay->row_count - 1; /* each limit occurs once */
    if (step_count == 0 || range_w % step_count != 0) return 0;
    int step_w = range_w / step_count;
    return missing_limit_w(replay, step_w) == 0 ? step_w : 0;
}

harpe_status harpe_power_limit_replay_check(const harpe_power_limit_replay *replay, int step_w,
                                            harpe_error *error) {
    char advice[80] = "give --pl-step as the log was made with";
    int limit_w = missing_limit_w(replay, step_w);
    int recorded_w = recorded_step_w(replay);
    if (limit_w == 0) return HARPE_OK;
    if (recorded_w > 0)
        (void)snprintf(advice, sizeof advice, "its limits are %d W apart, give --pl-step %d",
                       recorded_w, recorded_w);
    return harpe_fail(error, HARPE_INVALID_INPUT,
                      "%s: with a step of %d W, %d W is tried, which the log does not have; %s",
                      replay->name, step_w, limit_w, advice);
}

const int *harpe_power_limit_replay_sets(const harpe_power_limit_replay *replay, size_t *count) {
    *count = replay->set_count;
    return replay->sets_w;
}
