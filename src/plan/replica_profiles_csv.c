/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the profiles of all GPUs of a job from the rows of one CSV file, which profile_csv.c reads.
 * profile.c aggregates the rows of each GPU. */
#include <stdbool.h>
#include <stdlib.h>

#include "base/error.h"
#include "plan/profile.h"
#include "plan/profile_csv.h"
#include "plan/replica_profiles.h"

static bool is_same_gpu(const harpe_profile_gpu_row *a, const harpe_profile_gpu_row *b) {
    return a->replica == b->replica && a->peer == b->peer;
}

static int compare_rows(const void *left, const void *right) {
    const harpe_profile_gpu_row *a = left, *b = right;
    if (a->replica != b->replica) return a->replica < b->replica ? -1 : 1;
    if (a->peer != b->peer) return a->peer < b->peer ? -1 : 1;
    return (a->row > b->row) - (a->row < b->row);
}

/* Makes the profile of the GPU of rows[*first], and moves `*first` behind its rows. */
static harpe_status make_gpu(const harpe_profile_gpus *gpus, const harpe_profile_rows *all,
                             size_t *first, const char *name, harpe_profile **out,
                             harpe_error *error) {
    const harpe_profile_gpu_row *begin = &gpus->rows[*first];
    harpe_profile_rows rows = {0};
    harpe_status status = HARPE_OK;
    for (; status == HARPE_OK && *first < all->count && is_same_gpu(begin, &gpus->rows[*first]);
         ++*first)
        status = harpe_profile_rows_take(&rows, all, gpus->rows[*first].row, error);
    if (status == HARPE_OK) status = harpe_profile_rows_finish(&rows, name, out, error);
    harpe_profile_rows_clear(&rows);
    return status;
}

/* Checks that every GPU has rows, which are sorted by GPU. */
static harpe_status check_gpus(const harpe_profile_gpus *gpus, size_t row_count, const char *name,
                               harpe_error *error) {
    size_t peers = (size_t)gpus->peer_count, count = (size_t)gpus->replica_count * peers, found = 0;
    for (size_t k = 0; k < row_count; k++) {
        const harpe_profile_gpu_row *row = &gpus->rows[k];
        if (k > 0 && is_same_gpu(row, row - 1)) continue;
        if ((size_t)row->replica * peers + (size_t)row->peer != found) break;
        found++;
    }
    if (found == count) return HARPE_OK;
    return harpe_fail(error, HARPE_INVALID_INPUT,
                      "%s: gpu %zu of replica %zu has no rows; each of the %d replicas needs rows "
                      "for %d GPU%s",
                      name, found % peers, found / peers, gpus->replica_count, gpus->peer_count,
                      gpus->peer_count == 1 ? "" : "s");
}

harpe_status harpe_replica_profiles_parse_csv(const char *text, size_t length, const char *name,
                                              harpe_replica_profiles **out, harpe_error *error) {
    if (!out)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "parsing the profiles of replicas needs a place for the result");
    harpe_profile_gpus gpus = {0};
    harpe_profile_rows rows = {0};
    harpe_replica_profiles *made = NULL;
    harpe_status status = harpe_profile_csv_parse(text, length, name, &gpus, &rows, error);
    if (status == HARPE_OK) {
        qsort(gpus.rows, rows.count, sizeof *gpus.rows, compare_rows);
        status = check_gpus(&gpus, rows.count, name, error);
    }
    if (status == HARPE_OK)
        status = harpe_replica_profiles_begin(gpus.replica_count, gpus.peer_count, &made, error);
    for (size_t g = 0, at = 0; status == HARPE_OK && at < rows.count; g++)
        status = make_gpu(&gpus, &rows, &at, name, &made->gpus[g], error);
    if (status == HARPE_OK) status = harpe_replica_profiles_check(made, name, error);
    if (status == HARPE_OK)
        *out = made;
    else
        harpe_replica_profiles_free(made);
    harpe_profile_rows_clear(&rows);
    free(gpus.rows);
    return status;
}

harpe_status harpe_replica_profiles_read_csv(const char *path, harpe_replica_profiles **out,
                                             harpe_error *error) {
    char *text = NULL;
    size_t length = 0;
    harpe_status status = harpe_profile_csv_load(path, &text, &length, error);
    if (status == HARPE_OK)
        status = harpe_replica_profiles_parse_csv(text, length, path, out, error);
    free(text);
    return status;
}
