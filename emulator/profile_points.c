/* SPDX-License-Identifier: Apache-2.0 */
/* Reads rows of a measured profile (see harpe-profile(5)). The times and the energies of all rows
 * with the same clock are averaged, even if the rows are from different ranks. The energy of
 * several GPUs is divided by their number. The emulator does not depend on the library, so it does
 * not use the planner's reader. The planner's reader takes the slowest rank's time, and refuses
 * repeats that differ too much. */
#include "profile_points.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/array.h"
#include "base/csv.h"
#include "base/file.h"
#include "gpu/nvml_abi.h"
#include "world.h"

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

/* ---- Rows ------------------------------------------------------------------------------------ */

typedef struct sums {
    double clock_mhz, time_s, energy_j, rows;
} sums;

/* The measurements of an instruction, in order of rising clocks. */
typedef struct measured {
    int64_t stage;
    char *instruction;
    sums *points;
    size_t count, capacity;
} measured;

typedef struct table {
    measured *items;
    size_t count, capacity;
} table;

static void free_table(table *rows) {
    for (size_t i = 0; i < rows->count; i++) {
        free(rows->items[i].instruction);
        free(rows->items[i].points);
    }
    free(rows->items);
    *rows = (table){0};
}

/* Finds an instruction, or adds it. Its rows are usually adjacent, so the search begins with the
 * instruction found last. Returns NULL if there is no memory. */
static measured *find_or_add(table *rows, int64_t stage, const harpe_csv_field *name) {
    for (size_t back = 1; back <= rows->count; back++) {
        measured *item = &rows->items[rows->count - back];
        if (item->stage == stage && is_text(name, item->instruction)) return item;
    }
    if (!HARPE_ARRAY_RESERVE(rows->items, rows->capacity, rows->count + 1)) return NULL;
    measured item = {.stage = stage, .instruction = strndup(name->text, name->length)};
    if (!item.instruction) return NULL;
    rows->items[rows->count] = item;
    return &rows->items[rows->count++];
}

static bool add_row(measured *to, double clock_mhz, double time_s, double energy_j) {
    size_t i = 0;
    while (i < to->count && to->points[i].clock_mhz < clock_mhz)
        i++;
    if (i == to->count || to->points[i].clock_mhz != clock_mhz) {
        if (!HARPE_ARRAY_RESERVE(to->points, to->capacity, to->count + 1)) return false;
        memmove(&to->points[i + 1], &to->points[i], (to->count - i) * sizeof to->points[0]);
        to->points[i] = (sums){.clock_mhz = clock_mhz};
        to->count++;
    }
    to->points[i].time_s += time_s;
    to->points[i].energy_j += energy_j;
    to->points[i].rows += 1;
    return true;
}

static bool read_row(const harpe_csv *csv, const size_t *column, table *rows) {
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
    measured *item = find_or_add(rows, stage, &csv->fields[column[COLUMN_INSTRUCTION]]);
    return item && add_row(item, (double)frequency, time_s, energy_j / (double)gpus);
}

static bool read_rows(harpe_csv *csv, table *rows) {
    size_t column[COLUMN_COUNT];
    bool has_record;
    if (!read_header(csv, column)) return false;
    for (;;) {
        if (harpe_csv_next(csv, &has_record, NULL) != HARPE_OK) return false;
        if (!has_record) return true;
        if (!read_row(csv, column, rows)) return false;
    }
}

static int by_instruction(const void *a, const void *b) {
    const measured *one = a, *other = b;
    if (one->stage != other->stage) return one->stage < other->stage ? -1 : 1;
    return strcmp(one->instruction, other->instruction);
}

/* Reads all rows, in order of stages and instructions. */
static int read_file(const char *path, table *rows) {
    char *text;
    size_t length;
    if (harpe_file_read(path, PROFILE_BYTES_MAX, &text, &length, NULL) != HARPE_OK)
        return NVML_ERROR_NOT_FOUND;
    harpe_csv csv;
    harpe_csv_open(&csv, text, length, path);
    bool is_read = read_rows(&csv, rows);
    harpe_csv_close(&csv);
    free(text);
    if (!is_read) free_table(rows);
    if (rows->count > 0) qsort(rows->items, rows->count, sizeof rows->items[0], by_instruction);
    return is_read ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

/* ---- Stored rows ----------------------------------------------------------------------------- */

static struct {
    pthread_mutex_t mutex;
    char *path; /* NULL: no file was read */
    struct stat file;
    int result; /* of reading the file */
    table rows;
} kept = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static bool is_same_file(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

void emulator_forget_points(void) {
    free_table(&kept.rows);
    free(kept.path);
    kept.path = NULL;
}

/* Reads the file if it is not the one that was read last. Nobody changes the profile of a world. */
static int keep_rows(const char *path) {
    struct stat file;
    bool is_kept = kept.path && strcmp(kept.path, path) == 0;
    if (is_kept && emulator_is_in_world()) return kept.result;
    if (stat(path, &file) == -1) return NVML_ERROR_NOT_FOUND;
    if (is_kept && is_same_file(&file, &kept.file)) return kept.result;
    emulator_forget_points();
    kept.file = file;
    kept.result = read_file(path, &kept.rows);
    kept.path = strdup(path);
    return kept.result;
}

static int find_points(const char *path, int stage, const char *instruction,
                       emulator_points *points) {
    const measured *items = NULL;
    measured wanted = {.stage = stage, .instruction = (char *)instruction};
    int result = keep_rows(path);
    if (result != NVML_SUCCESS) return result;
    if (kept.rows.count > 0)
        items = bsearch(&wanted, kept.rows.items, kept.rows.count, sizeof wanted, by_instruction);
    if (!items) return NVML_ERROR_NOT_FOUND;
    if (items->count > EMULATOR_POINT_MAX) return NVML_ERROR_INVALID_ARGUMENT;
    points->count = (uint32_t)items->count;
    points->least_s = 0;
    for (uint32_t i = 0; i < points->count; i++) {
        const sums *point = &items->points[i];
        points->point[i].clock_mhz = point->clock_mhz;
        points->point[i].time_s = point->time_s / point->rows;
        points->point[i].power_w = point->energy_j / point->time_s;
    }
    return NVML_SUCCESS;
}

int emulator_read_points(const char *path, int stage, const char *instruction,
                         emulator_points *points) {
    if (!path || !*path || !instruction) return NVML_ERROR_NOT_FOUND;
    emulator_hold(&kept.mutex);
    int result = find_points(path, stage, instruction, points);
    emulator_release(&kept.mutex);
    return result;
}

void emulator_copy_points(emulator_points *to, const emulator_points *from) {
    memcpy(to, from, offsetof(emulator_points, point) + from->count * sizeof from->point[0]);
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
