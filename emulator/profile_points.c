/* SPDX-License-Identifier: Apache-2.0 */
/* Reads rows of a measured profile (see harpe-profile(5)). The times and the energies of all rows
 * with the same clock are averaged, even if the rows are from different ranks. The energy of
 * several GPUs is divided by their number. The emulator does not depend on the library, so it does
 * not use the planner's reader. The planner's reader takes the slowest rank's time, and refuses
 * repeats that differ too much. */
#include "profile_points.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/csv.h"
#include "base/file.h"
#include "base/wait.h"
#include "gpu/nvml_abi.h"

#define PROFILE_BYTES_MAX (16U << 20)

enum column {
    COLUMN_STAGE,
    COLUMN_INSTRUCTION,
    COLUMN_FREQUENCY,
    COLUMN_TIME,
    COLUMN_ENERGY,
    COLUMN_GPUS, /* optional; 1 if missing */
};
static const char *const column_names[] = {"stage", "instruction", "frequency",
                                           "time",  "energy",      "gpus"};
enum { COLUMN_COUNT = sizeof column_names / sizeof column_names[0] };

static bool is_text(const harpe_csv_field *field, const char *text) {
    return field->length == strlen(text) && memcmp(field->text, text, field->length) == 0;
}

static bool read_header(harpe_csv *csv, size_t *column) {
    bool has_record;
    if (harpe_csv_next(csv, &has_record, NULL) != HARPE_OK || !has_record) return false;
    for (int i = 0; i < COLUMN_COUNT; i++) {
        column[i] = SIZE_MAX;
        for (size_t f = 0; f < csv->field_count; f++)
            if (is_text(&csv->fields[f], column_names[i])) column[i] = f;
        if (column[i] == SIZE_MAX && i != COLUMN_GPUS) return false;
    }
    return true;
}

typedef struct sums {
    uint32_t count;
    struct {
        double clock_mhz, time_s, energy_j, rows;
    } point[EMULATOR_POINT_MAX];
} sums;

static bool add_row(sums *sum, double clock_mhz, double time_s, double energy_j) {
    uint32_t i = 0;
    while (i < sum->count && sum->point[i].clock_mhz < clock_mhz)
        i++;
    if (i == sum->count || sum->point[i].clock_mhz != clock_mhz) {
        if (sum->count == EMULATOR_POINT_MAX) return false;
        memmove(&sum->point[i + 1], &sum->point[i], (sum->count - i) * sizeof sum->point[0]);
        memset(&sum->point[i], 0, sizeof sum->point[0]);
        sum->point[i].clock_mhz = clock_mhz;
        sum->count++;
    }
    sum->point[i].time_s += time_s;
    sum->point[i].energy_j += energy_j;
    sum->point[i].rows += 1;
    return true;
}

static bool read_row(const harpe_csv *csv, const size_t *column, int wanted_stage,
                     const char *instruction, sums *sum) {
    int64_t stage, frequency, gpus = 1;
    double time_s, energy_j;
    bool has_gpus = column[COLUMN_GPUS] != SIZE_MAX;
    for (int i = 0; i < COLUMN_COUNT; i++)
        if (column[i] >= csv->field_count && (i != COLUMN_GPUS || has_gpus)) return false;
    if (harpe_csv_int(csv, column[COLUMN_STAGE], "stage", &stage, NULL) != HARPE_OK ||
        harpe_csv_int(csv, column[COLUMN_FREQUENCY], "frequency", &frequency, NULL) != HARPE_OK ||
        harpe_csv_double(csv, column[COLUMN_TIME], "time", &time_s, NULL) != HARPE_OK ||
        harpe_csv_double(csv, column[COLUMN_ENERGY], "energy", &energy_j, NULL) != HARPE_OK ||
        (has_gpus && harpe_csv_int(csv, column[COLUMN_GPUS], "gpus", &gpus, NULL) != HARPE_OK) ||
        frequency < 0 || time_s <= 0 || energy_j <= 0 || gpus < 1)
        return false;
    if (stage != wanted_stage || !is_text(&csv->fields[column[COLUMN_INSTRUCTION]], instruction))
        return true;
    return add_row(sum, (double)frequency, time_s, energy_j / (double)gpus);
}

static int read_rows(harpe_csv *csv, int stage, const char *instruction, sums *sum) {
    size_t column[COLUMN_COUNT];
    if (!read_header(csv, column)) return NVML_ERROR_INVALID_ARGUMENT;
    bool has_record;
    for (;;) {
        if (harpe_csv_next(csv, &has_record, NULL) != HARPE_OK) return NVML_ERROR_INVALID_ARGUMENT;
        if (!has_record) return sum->count > 0 ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
        if (!read_row(csv, column, stage, instruction, sum)) return NVML_ERROR_INVALID_ARGUMENT;
    }
}

static int read_file(const char *path, int stage, const char *instruction,
                     emulator_points *points) {
    char *text;
    size_t length;
    if (harpe_file_read(path, PROFILE_BYTES_MAX, &text, &length, NULL) != HARPE_OK)
        return NVML_ERROR_NOT_FOUND;
    sums sum = {0};
    harpe_csv csv;
    harpe_csv_open(&csv, text, length, path);
    int result = read_rows(&csv, stage, instruction, &sum);
    harpe_csv_close(&csv);
    free(text);
    if (result != NVML_SUCCESS) return result;
    points->count = sum.count;
    points->least_s = 0;
    for (uint32_t i = 0; i < sum.count; i++) {
        points->point[i].clock_mhz = sum.point[i].clock_mhz;
        points->point[i].time_s = sum.point[i].time_s / sum.point[i].rows;
        points->point[i].power_w = sum.point[i].energy_j / sum.point[i].time_s;
    }
    return NVML_SUCCESS;
}

/* ---- Stored rows ----------------------------------------------------------------------------- */

enum { KEPT_MAX = 64, KEPT_NAME_SIZE = 64 };

/* The rows that this process's works follow. A rank of a training job needs only a few. */
static struct {
    pthread_mutex_t mutex;
    struct stat file; /* the file, stage and instruction of the rows */
    unsigned int count;
    struct kept_row {
        int stage;
        char instruction[KEPT_NAME_SIZE];
        emulator_points points;
    } row[KEPT_MAX];
} kept = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static bool is_same_file(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static const struct kept_row *find_kept(int stage, const char *instruction) {
    for (unsigned int i = 0; i < kept.count; i++)
        if (kept.row[i].stage == stage && strcmp(kept.row[i].instruction, instruction) == 0)
            return &kept.row[i];
    return NULL;
}

static void keep(int stage, const char *instruction, const emulator_points *points) {
    if (kept.count == KEPT_MAX || strlen(instruction) >= KEPT_NAME_SIZE) return;
    struct kept_row *row = &kept.row[kept.count++];
    row->stage = stage;
    snprintf(row->instruction, sizeof row->instruction, "%s", instruction);
    row->points = *points;
}

static int read_with_lock(const char *path, int stage, const char *instruction,
                          emulator_points *points) {
    struct stat file;
    if (stat(path, &file) == -1) return NVML_ERROR_NOT_FOUND;
    if (!is_same_file(&file, &kept.file)) {
        kept.file = file;
        kept.count = 0;
    }
    const struct kept_row *row = find_kept(stage, instruction);
    if (row) {
        *points = row->points;
        return NVML_SUCCESS;
    }
    int result = read_file(path, stage, instruction, points);
    if (result == NVML_SUCCESS) keep(stage, instruction, points);
    return result;
}

int emulator_read_points(const char *path, int stage, const char *instruction,
                         emulator_points *points) {
    if (!path || !*path || !instruction) return NVML_ERROR_NOT_FOUND;
    harpe_lock(&kept.mutex);
    int result = read_with_lock(path, stage, instruction, points);
    harpe_unlock(&kept.mutex);
    return result;
}

/* ---- Throttling ------------------------------------------------------------------------------ */

void emulator_throttle_points(emulator_points *points, double slowdown) {
    uint32_t last = points->count - 1;
    double least_s = slowdown * points->point[last].time_s;
    if (slowdown <= 1) return;
    points->least_s = least_s;
    uint32_t low = last; /* highest clock at which the work is slow enough by itself */
    while (low > 0 && points->point[low].time_s < least_s)
        low--;
    double power_w = points->point[low].power_w;
    if (points->point[low].time_s > least_s && low < last) {
        double span_s = points->point[low].time_s - points->point[low + 1].time_s;
        double t = (points->point[low].time_s - least_s) / span_s;
        power_w += t * (points->point[low + 1].power_w - power_w);
    }
    for (uint32_t i = 0; i < points->count; i++) {
        if (points->point[i].time_s >= least_s) continue;
        points->point[i].time_s = least_s;
        points->point[i].power_w = power_w;
    }
}
