/* SPDX-License-Identifier: Apache-2.0 */
/* JobInfo: a job as its first rank registers it, and as the server stores it with its id. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "pfo/documents.h"
#include "pfo/fields.h"
#include "pfo/models.h"
#include "pfo/writing.h"

enum { JOB_KEY_BYTES = 256 };

/* Copies all texts into one allocation, which begins with job_id. */
static bool put_texts(harpe_job_info *job, harpe_slice id, harpe_slice metadata, harpe_slice key) {
    char *room = malloc(id.length + 1 + metadata.length + 1 + key.length + 1);
    if (!room) return false;
    job->job_id = harpe_slice_put(id, &room);
    job->job_metadata = harpe_slice_put(metadata, &room);
    job->job_key = harpe_slice_put(key, &room);
    return true;
}

static harpe_slice slice_of(const char *text) {
    return text ? (harpe_slice){text, strlen(text)} : (harpe_slice){0};
}

/* ---- Reading --------------------------------------------------------------------------------- */

static void check_product(harpe_fields *fields, const harpe_place *place,
                          const harpe_job_info *job) {
    int64_t product;
    if (!__builtin_mul_overflow((int64_t)job->pp_degree * job->dp_degree, job->tp_degree,
                                &product) &&
        product == job->world_size)
        return;
    harpe_place here = harpe_place_member(place, "world_size", strlen("world_size"));
    harpe_fields_problem(fields, &here, "assertion_error",
                         "world_size must be pp_degree * dp_degree * tp_degree");
}

static void read_key(harpe_fields *fields, size_t object, const harpe_place *place,
                     harpe_slice *key) {
    if (!harpe_member_text(fields, object, place, "job_key", true, key) || !key->bytes) return;
    if (key->length >= 1 && key->length <= JOB_KEY_BYTES) return;
    harpe_place here = harpe_place_member(place, "job_key", strlen("job_key"));
    harpe_fields_problem(fields, &here, "assertion_error", "job_key must have 1 to 256 bytes");
}

static void read_job(harpe_fields *fields, size_t object, const harpe_place *place, bool is_new,
                     harpe_job_info *out) {
    harpe_job_info job = {0};
    harpe_slice id = {"", 0};
    harpe_slice metadata = {0};
    harpe_slice key = {0};
    if (harpe_member_text(fields, object, place, "job_id", false, &id) && is_new && id.length > 0) {
        harpe_place here = harpe_place_member(place, "job_id", strlen("job_id"));
        harpe_fields_problem(fields, &here, "assertion_error",
                             "job_id must be empty: the server chooses it");
    }
    bool has_degrees = harpe_member_int(fields, object, place, "pp_degree", 1, &job.pp_degree);
    has_degrees &= harpe_member_int(fields, object, place, "dp_degree", 1, &job.dp_degree);
    has_degrees &= harpe_member_int(fields, object, place, "tp_degree", 1, &job.tp_degree);
    has_degrees &= harpe_member_int(fields, object, place, "world_size", 1, &job.world_size);
    if (has_degrees) check_product(fields, place, &job);
    (void)harpe_member_text(fields, object, place, "job_metadata", true, &metadata);
    read_key(fields, object, place, &key);
    if (fields->has_failed) return;
    if (!put_texts(&job, id, metadata, key)) {
        fields->problems->out_of_memory = true;
        return;
    }
    *out = job;
}

static void read_new_job(harpe_fields *fields, size_t object, const harpe_place *place, void *out) {
    read_job(fields, object, place, true, out);
}

static void read_any_job(harpe_fields *fields, size_t object, const harpe_place *place, void *out) {
    read_job(fields, object, place, false, out);
}

bool harpe_job_info_decode(const char *body, size_t length, harpe_job_info *out,
                           harpe_problems *problems) {
    return harpe_body_decode(body, length, read_new_job, out, problems);
}

harpe_status harpe_job_info_parse(const char *json, size_t length, harpe_job_info *out,
                                  harpe_error *error) {
    return harpe_text_decode(json, length, read_any_job, out, error);
}

/* ---- The rest -------------------------------------------------------------------------------- */

harpe_status harpe_job_info_format(const harpe_job_info *job, char **json, harpe_error *error) {
    harpe_text text = {0};
    harpe_write_text_member(&text, "{\"job_id\":", job->job_id ? job->job_id : "");
    harpe_write_int_member(&text, ",\"pp_degree\":", job->pp_degree);
    harpe_write_int_member(&text, ",\"dp_degree\":", job->dp_degree);
    harpe_write_int_member(&text, ",\"tp_degree\":", job->tp_degree);
    harpe_write_int_member(&text, ",\"world_size\":", job->world_size);
    harpe_write_text_member(&text, ",\"job_metadata\":", job->job_metadata);
    if (job->job_key) harpe_write_text_member(&text, ",\"job_key\":", job->job_key);
    harpe_write_raw(&text, "}");
    return harpe_write_end(&text, json, error);
}

harpe_status harpe_job_info_copy(const harpe_job_info *from, harpe_job_info *to,
                                 harpe_error *error) {
    harpe_job_info job = *from;
    if (!put_texts(&job, slice_of(from->job_id ? from->job_id : ""), slice_of(from->job_metadata),
                   slice_of(from->job_key)))
        return harpe_fail_memory(error);
    *to = job;
    return HARPE_OK;
}

void harpe_job_info_free(harpe_job_info *job) {
    free((char *)job->job_id);
    *job = (harpe_job_info){0};
}
