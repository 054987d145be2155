/* SPDX-License-Identifier: Apache-2.0 */
/* Profiles inside libharpe: rows, files, switching latencies, and what is doubtful about a profile.
 * <harpe/profile.h> is the public part. Several sources define these functions. */
#ifndef HARPE_PLAN_PROFILES_H
#define HARPE_PLAN_PROFILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/profile.h>
#include <harpe/status.h>

#include "base/array.h"
#include "base/text.h"

/* ---- Rows ------------------------------------------------------------------------------------ */

/* The rows of a profile while they are collected. Every harpe_profile is made from such rows. The
 * CSV reader and harpe_profile_new add rows; profile.c sorts, checks and aggregates them. */

#define HARPE_PROFILE_ROW_MAX 10000000 /* rows of one profile */
#define HARPE_PROFILE_NAME_MAX 4096    /* different instruction names in one profile */
#define HARPE_PROFILE_GPUS_MAX 65536   /* GPUs whose energy one row sums up */

/* The numbers of a row, in the order in which they are checked. */
typedef enum harpe_profile_field {
    HARPE_FIELD_STAGE = 0,
    HARPE_FIELD_INSTRUCTION,
    HARPE_FIELD_FREQUENCY,
    HARPE_FIELD_TIME,
    HARPE_FIELD_ENERGY,
    HARPE_FIELD_RANK,
    HARPE_FIELD_GPUS,
    HARPE_FIELD_BLOCKING_POWER,
    HARPE_FIELD_SWITCH_LATENCY,
    HARPE_FIELD_COUNT,
} harpe_profile_field;

/* Returns the rule for a field, as a sentence that begins with its name. Static storage. */
const char *harpe_profile_field_rule(harpe_profile_field field);

/* Returns the first field of a row that is outside its range, or HARPE_FIELD_COUNT if there is
 * none. `name_length` is the length of row->instruction, which need not end in NUL. */
harpe_profile_field harpe_profile_row_fault(const harpe_measurement *row, size_t name_length);

/* One collected row, 48 bytes. */
typedef struct harpe_profile_row {
    double time_s;
    double energy_j;
    double blocking_power_w; /* 0: not known */
    int32_t frequency_mhz;
    int32_t rank; /* -1: rank not known */
    int32_t gpu_count;
    uint32_t source; /* line in the file, or index in the caller's array; for errors and order */
    uint16_t stage;
    uint16_t name; /* index into the names seen so far */
    uint32_t switch_latency_us;
} harpe_profile_row;

/* Initialise with zeros, add rows, then call harpe_profile_rows_finish. In the end, also after a
 * failure, call harpe_profile_rows_clear. */
typedef struct harpe_profile_rows {
    harpe_profile_row *items;
    size_t count, capacity;
    const char **names; /* point into name_memory */
    size_t name_count, name_capacity;
    uint16_t *name_slots; /* open-addressed hash of names: index + 1, 0 = free */
    harpe_arena name_memory;
} harpe_profile_rows;

/* Adds a row, which must be valid. `source` must not be lower than in the call before. */
harpe_status harpe_profile_rows_add(harpe_profile_rows *rows, const harpe_measurement *row,
                                    size_t name_length, uint32_t source, harpe_error *error);

/* Adds a copy of the row `number` of `from`. */
harpe_status harpe_profile_rows_take(harpe_profile_rows *rows, const harpe_profile_rows *from,
                                     size_t number, harpe_error *error);

void harpe_profile_rows_clear(harpe_profile_rows *rows);

/* ---- Switching latencies --------------------------------------------------------------------- */

/* Switching latencies: how long after the request a GPU has a new clock. They depend on the new
 * clock and on the stage; a problem has them for each rank. They come from a profile, or from the
 * CSV file that `harpe profile switch` writes. Private to src/plan and src/cli. */

#define HARPE_SWITCH_TABLE_ROWS_MAX ((size_t)4096)
#define HARPE_SWITCH_LATENCY_MAX_S 3600

/* The owner of a latency that holds for all stages or ranks. */
enum { HARPE_LATENCY_OF_ALL = -1 };

typedef struct harpe_latency {
    int32_t owner; /* stage, or rank of a problem, or HARPE_LATENCY_OF_ALL */
    int32_t frequency_mhz;
    double latency_s;
} harpe_latency;

/* Sorted by owner, then by rising frequency; each pair once. */
typedef struct harpe_latencies {
    harpe_latency *items; /* free it */
    size_t count;         /* 0: no latency is known */
} harpe_latencies;

/* Reads a CSV file with the columns frequency and latency_s. If it has the column gpu, all rows
 * must have the same one. Other columns are ignored. At most 1 MiB and HARPE_SWITCH_TABLE_ROWS_MAX
 * rows, and at least one. All have the owner HARPE_LATENCY_OF_ALL. Fails with HARPE_INVALID_INPUT
 * or HARPE_LIMIT_EXCEEDED, names file, line and column, and leaves `*out` as it was. */
harpe_status harpe_latencies_read_csv(const char *path, harpe_latencies *out, harpe_error *error);
harpe_status harpe_latencies_parse_csv(const char *text, size_t length, const char *name,
                                       harpe_latencies *out, harpe_error *error);

/* Sorts the items. Of several with one owner and frequency, keeps the one with the longest latency.
 */
void harpe_latencies_sort(harpe_latencies *latencies);

/* Returns the latency of a change to a frequency, or 0 if it is not known, or for 0 MHz, which asks
 * for no clock. Items for all owners give every other frequency a latency, too: linear between two
 * items, and that of the nearest item outside of them. */
double harpe_latencies_find(const harpe_latencies *latencies, int owner, int frequency_mhz);

/* ---- Contents -------------------------------------------------------------------------------- */

/* Makes a profile from collected rows. */

/* Sorts, checks and aggregates the rows. There must be at least one row. Errors begin with
 * "<file_name>:<source>:1", or with "row <source>" if file_name is NULL. Changes the order of the
 * rows. O(n log n), or O(n) if they are already in order. */
harpe_status harpe_profile_rows_finish(harpe_profile_rows *rows, const char *file_name,
                                       harpe_profile **out, harpe_error *error);

/* Writes the measurements of a profile, without rank and number of GPUs, and returns their number.
 * If `rows` is NULL, only counts them. The profile owns the names. */
size_t harpe_profile_measurements(const harpe_profile *profile, harpe_measurement *rows);

/* ---- Files ----------------------------------------------------------------------------------- */

/* Reads the rows of profiles, and prints a profile as CSV. */

/* The GPU of a row in a profile of replicas, and the number of the row. */
typedef struct harpe_profile_gpu_row {
    int replica, peer;
    size_t row;
} harpe_profile_gpu_row;

/* The GPUs of all rows. Initialise with zeros, and free `rows` with free(), also after a failure.
 */
typedef struct harpe_profile_gpus {
    harpe_profile_gpu_row *rows;
    size_t capacity;
    int replica_count, peer_count; /* the highest numbers plus 1 */
} harpe_profile_gpus;

/* Reads all rows of a text, at least one. With `gpus`, the text is a profile of replicas, and the
 * GPU of each row is read too; NULL: the profile of a pipeline. Errors name file, line and column.
 */
harpe_status harpe_profile_csv_parse(const char *text, size_t length, const char *name,
                                     harpe_profile_gpus *gpus, harpe_profile_rows *rows,
                                     harpe_error *error);

/* Reads a file that is not too large for a profile. Free `*text` with free(). */
harpe_status harpe_profile_csv_load(const char *path, char **text, size_t *length,
                                    harpe_error *error);

/* Returns true if the profile has the blocking power of every stage. The column has no value for a
 * stage that lacks it. */
bool harpe_profile_has_blocking_powers(const harpe_profile *profile);

/* Appends the rows of a profile. Each row begins with `place`. `with_gpus` and `with_power` say
 * whether it has the columns gpus and blocking_power. */
void harpe_profile_print_rows(const harpe_profile *profile, const char *place, bool with_gpus,
                              bool with_power, harpe_text *text);

/* Appends the CSV that harpe_profile_write_csv writes. */
void harpe_profile_print_csv(const harpe_profile *profile, harpe_text *text);

/* ---- Doubts ---------------------------------------------------------------------------------- */

/* Finds rows of a profile that are probably wrong: in another unit, with a wrong digit, or measured
 * at a clock that the GPU did not reach. */

#define HARPE_PROFILE_DOUBTS_MAX 3 /* lines about single rows */
#define HARPE_PROFILE_LINES_MAX (HARPE_PROFILE_DOUBTS_MAX + 1)

/* Describes the first doubtful rows, in the order of the rows, and how many more there are. Each
 * line names its row, as the errors of harpe_profile_rows_finish do. If rows are of a file, finds
 * the clocks that were not reached, sets `throttled_count` of the entries, and adds one line about
 * them. The lines are in the arena; those that are not used follow as NULL. The rows must be sorted
 * by stage, name, falling frequency and rank, and `entries` are these rows after aggregation. O(n
 * log n) */
harpe_status harpe_profile_doubts_find(const harpe_profile_rows *rows, const char *file_name,
                                       harpe_profile_entry *entries, harpe_arena *arena,
                                       const char *lines[HARPE_PROFILE_LINES_MAX],
                                       harpe_error *error);

/* If rows were averaged, appends one sentence about them to `text`, without a full stop. `path` is
 * the path of the profile. */
void harpe_profile_note_repeats(const harpe_profile *profile, const char *path, harpe_text *text);

#endif
