/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the clocks at which a profile has every instruction. A GPU that follows the profile
 * supports no other clocks, so that a program gets only measured values. profile_points.c reads
 * time and energy of an instruction at a clock. */
#include "profile_clocks.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/array.h"
#include "base/csv.h"
#include "base/file.h"
#include "world.h"

#define PROFILE_BYTES_MAX (16U << 20)

enum { CLOCK_WORDS = 64, CLOCK_END_MHZ = 64 * CLOCK_WORDS };

/* A set of clocks. Clock c, in MHz, is bit c % 64 of word c / 64. */
typedef struct clock_set {
    uint64_t words[CLOCK_WORDS];
} clock_set;

/* A (stage, instruction) and the clocks at which it was measured. */
typedef struct measured {
    int64_t stage;
    char instruction[64];
    clock_set clocks;
} measured;

typedef struct reading {
    measured *items;
    size_t count, capacity;
    size_t stage, instruction, frequency; /* columns */
} reading;

static bool has_clock(const clock_set *set, unsigned int mhz) {
    return mhz < CLOCK_END_MHZ && (set->words[mhz / 64] >> (mhz % 64) & 1);
}

static bool find_column(const harpe_csv *csv, const char *name, size_t *column) {
    for (size_t i = 0; i < csv->field_count; i++) {
        const harpe_csv_field *field = &csv->fields[i];
        if (field->length != strlen(name) || memcmp(field->text, name, field->length) != 0)
            continue;
        *column = i;
        return true;
    }
    return false;
}

/* Finds the item of an instruction, or adds it. Rows of an instruction are usually adjacent, so the
 * search begins with the item found last. */
static measured *find_item(reading *r, int64_t stage, const harpe_csv_field *name) {
    for (size_t back = 1; back <= r->count; back++) {
        measured *item = &r->items[r->count - back];
        bool is_it = item->stage == stage && strlen(item->instruction) == name->length &&
                     memcmp(item->instruction, name->text, name->length) == 0;
        if (is_it) return item;
    }
    if (name->length >= sizeof r->items->instruction ||
        !HARPE_ARRAY_RESERVE(r->items, r->capacity, r->count + 1))
        return NULL;
    measured *item = &r->items[r->count++];
    memset(item, 0, sizeof *item);
    item->stage = stage;
    memcpy(item->instruction, name->text, name->length);
    return item;
}

/* Rows at 0 MHz were measured without a set clock. */
static bool read_row(const harpe_csv *csv, reading *r) {
    int64_t stage, frequency;
    if (r->stage >= csv->field_count || r->instruction >= csv->field_count ||
        r->frequency >= csv->field_count ||
        harpe_csv_int(csv, r->stage, "stage", &stage, NULL) != HARPE_OK ||
        harpe_csv_int(csv, r->frequency, "frequency", &frequency, NULL) != HARPE_OK)
        return false;
    if (frequency <= 0 || frequency >= CLOCK_END_MHZ) return true;
    measured *item = find_item(r, stage, &csv->fields[r->instruction]);
    if (!item) return false;
    item->clocks.words[frequency / 64] |= UINT64_C(1) << (frequency % 64);
    return true;
}

static bool read_rows(harpe_csv *csv, reading *r) {
    bool has_record;
    if (harpe_csv_next(csv, &has_record, NULL) != HARPE_OK || !has_record) return false;
    if (!find_column(csv, "stage", &r->stage) ||
        !find_column(csv, "instruction", &r->instruction) ||
        !find_column(csv, "frequency", &r->frequency))
        return false;
    for (;;) {
        if (harpe_csv_next(csv, &has_record, NULL) != HARPE_OK) return false;
        if (!has_record) return r->count > 0;
        if (!read_row(csv, r)) return false;
    }
}

/* Reads the clocks at which every instruction was measured. Returns false if the profile cannot be
 * used. */
static bool read_common(const char *path, clock_set *common) {
    char *text;
    size_t length;
    if (harpe_file_read(path, PROFILE_BYTES_MAX, &text, &length, NULL) != HARPE_OK) return false;
    harpe_csv csv;
    reading r = {0};
    harpe_csv_open(&csv, text, length, path);
    bool is_read = read_rows(&csv, &r);
    harpe_csv_close(&csv);
    free(text);
    if (is_read) *common = r.items[0].clocks;
    for (size_t i = 1; is_read && i < r.count; i++)
        for (int w = 0; w < CLOCK_WORDS; w++)
            common->words[w] &= r.items[i].clocks.words[w];
    free(r.items);
    return is_read;
}

/* ---- Stored results -------------------------------------------------------------------------- */

static struct {
    pthread_mutex_t mutex;
    struct stat file;
    bool is_read; /* `common` holds the clocks from the file */
    clock_set common;
} kept = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static bool is_same_file(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static bool find_common(const char *path, clock_set *common) {
    struct stat file;
    if (!path || !*path || stat(path, &file) == -1) return false;
    emulator_hold(&kept.mutex);
    if (!is_same_file(&file, &kept.file)) {
        kept.file = file;
        kept.is_read = read_common(path, &kept.common);
    }
    bool is_read = kept.is_read;
    *common = kept.common;
    emulator_release(&kept.mutex);
    return is_read;
}

void emulator_forget_clocks(void) { kept.file = (struct stat){0}; }

/* ---- Supported clocks ------------------------------------------------------------------------ */

unsigned int emulator_offered_clocks(const emulator_model *model, const char *path,
                                     unsigned int *clocks) {
    clock_set common;
    bool follows = find_common(path, &common);
    unsigned int count = 0, all = emulator_clock_count(model);
    /* The first pass lists the clocks of the profile. If there are none, the second lists all. */
    for (int pass = 0; pass < 2 && count == 0; pass++) {
        for (unsigned int i = 0; i < all; i++) {
            unsigned int mhz = emulator_clock_mhz(model, i);
            if (pass == 0 && follows && !has_clock(&common, mhz)) continue;
            if (clocks) clocks[count] = mhz;
            count++;
        }
    }
    return count;
}
