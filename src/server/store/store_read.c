/* SPDX-License-Identifier: Apache-2.0 */
/* What both databases share when they read records back: the order of the records, and the text of
 * a result. The back-ends run the statements. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "server/store/backend.h"
#include "server/store/schema.h"

typedef struct loading {
    const harpe_store_rows *rows;
    harpe_record_reader *record;
    void *user;
} loading;

static harpe_status load_job(void *user, int64_t number, const char *id, harpe_error *error) {
    const loading *self = user;
    return self->rows->records(self->rows->state, 0, HARPE_SCHEMA_JOB_READ_COUNT, number, id,
                               self->record, self->user, error);
}

static harpe_status load_finished(void *user, int64_t number, const char *id, harpe_error *error) {
    const loading *self = user;
    return self->rows->records(self->rows->state, HARPE_SCHEMA_JOB_READ_COUNT,
                               HARPE_SCHEMA_READ_COUNT, number, id, self->record, self->user,
                               error);
}

static harpe_status load_deleted(void *user, int64_t number, const char *id, harpe_error *error) {
    const loading *self = user;
    harpe_change change = {
        .kind = HARPE_CHANGE_DELETED, .job_id = id, .number = number, .text = ""};
    return self->record(self->user, &change, error);
}

static harpe_status load_uptime(void *user, int64_t seconds, const char *id, harpe_error *error) {
    const loading *self = user;
    harpe_change change = {
        .kind = HARPE_CHANGE_UPTIME, .job_id = id, .number = seconds, .text = ""};
    return self->record(self->user, &change, error);
}

harpe_status harpe_store_load_rows(const harpe_store_rows *rows, const char *job_id,
                                   harpe_record_reader *record, void *user, harpe_error *error) {
    static const struct {
        const char *all, *one; /* for all jobs, and for one; NULL: nothing is read */
        harpe_id_reader *each;
    } steps[] = {
        {HARPE_SCHEMA_UPTIME, NULL, load_uptime},
        {HARPE_SCHEMA_JOBS, HARPE_SCHEMA_ONE_JOB, load_job},
        {HARPE_SCHEMA_DELETED, HARPE_SCHEMA_ONE_DELETED, load_deleted},
        {HARPE_SCHEMA_FINISHED, NULL, load_finished},
    };
    loading self = {rows, record, user};
    harpe_status status = HARPE_OK;
    for (size_t i = 0; i < sizeof steps / sizeof steps[0] && status == HARPE_OK; i++) {
        const char *sql = job_id ? steps[i].one : steps[i].all;
        if (sql) status = rows->ids(rows->state, sql, job_id, steps[i].each, &self, error);
    }
    return status;
}

harpe_status harpe_store_copy_result(const void *bytes, size_t size, char **text, size_t *length,
                                     harpe_error *error) {
    char *copy = malloc(size + 1);
    if (!copy) return harpe_fail_memory(error);
    if (size > 0) memcpy(copy, bytes, size);
    copy[size] = '\0';
    *text = copy;
    *length = size;
    return HARPE_OK;
}

harpe_status harpe_store_no_result(const char *job_id, int64_t round, int rank,
                                   harpe_error *error) {
    return harpe_fail(error, HARPE_NOT_FOUND, "job %s has no result of rank %d for round %lld",
                      job_id, rank, (long long)round);
}
