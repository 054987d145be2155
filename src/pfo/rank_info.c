/* SPDX-License-Identifier: Apache-2.0 */
/* RankInfo: a rank's place in its job, and the clocks to which its GPU can be locked. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "pfo/documents.h"
#include "pfo/fields.h"
#include "pfo/model_reads.h"
#include "pfo/models.h"
#include "pfo/writing.h"

/* ---- Reading --------------------------------------------------------------------------------- */

static void read_frequencies(harpe_fields *fields, size_t list, const harpe_place *place,
                             harpe_rank_info *rank) {
    static const char name[] = "available_frequencies";
    harpe_place here = harpe_place_member(place, name, strlen(name));
    size_t count = fields->json->nodes[list].held.count;
    int *frequencies = harpe_calloc(count, sizeof *frequencies);
    if (!frequencies) {
        fields->problems->out_of_memory = true;
        return;
    }
    size_t node = list + 1;
    for (size_t i = 0; i < count; i++) {
        harpe_place item = harpe_place_item(&here, i);
        (void)harpe_value_int(fields, node, &item, INT_MIN, &frequencies[i]);
        node = harpe_json_next(fields->json, node);
    }
    rank->available_frequencies_mhz = frequencies;
    rank->available_frequency_count = count;
}

void harpe_rank_info_read(harpe_fields *fields, size_t object, const harpe_place *place,
                          void *out) {
    harpe_rank_info rank = {0};
    (void)harpe_member_int(fields, object, place, "rank", 0, &rank.rank);
    (void)harpe_member_int(fields, object, place, "dp_rank", 0, &rank.dp_rank);
    (void)harpe_member_int(fields, object, place, "pp_rank", 0, &rank.pp_rank);
    (void)harpe_member_int(fields, object, place, "tp_rank", 0, &rank.tp_rank);
    size_t list = harpe_member_container(fields, object, place, "available_frequencies",
                                         HARPE_JSON_LIST, true);
    if (list != 0) read_frequencies(fields, list, place, &rank);
    if (fields->has_failed || fields->problems->out_of_memory) {
        harpe_rank_info_free(&rank);
        return;
    }
    *(harpe_rank_info *)out = rank;
}

bool harpe_rank_info_decode(const char *body, size_t length, harpe_rank_info *out,
                            harpe_problems *problems) {
    return harpe_body_decode(body, length, harpe_rank_info_read, out, problems);
}

harpe_status harpe_rank_info_parse(const char *json, size_t length, harpe_rank_info *out,
                                   harpe_error *error) {
    return harpe_text_decode(json, length, harpe_rank_info_read, out, error);
}

/* ---- Comparison with the job and with another rank ------------------------------------------- */

bool harpe_rank_info_fits(const harpe_rank_info *rank, const harpe_job_info *job,
                          harpe_problems *problems) {
    const struct {
        const char *name;
        int value, limit;
        const char *message;
    } coordinates[] = {
        {"rank", rank->rank, job->world_size, "rank must be below the job's world_size"},
        {"dp_rank", rank->dp_rank, job->dp_degree, "dp_rank must be below the job's dp_degree"},
        {"pp_rank", rank->pp_rank, job->pp_degree, "pp_rank must be below the job's pp_degree"},
        {"tp_rank", rank->tp_rank, job->tp_degree, "tp_rank must be below the job's tp_degree"},
    };
    bool fits = true;
    for (size_t i = 0; i < sizeof coordinates / sizeof *coordinates; i++) {
        if (coordinates[i].value < 0 || coordinates[i].value >= coordinates[i].limit) {
            harpe_problems_add(problems, json_pack("[s, s]", "body", coordinates[i].name),
                               "assertion_error", coordinates[i].message);
            fits = false;
        }
    }
    return fits;
}

bool harpe_rank_info_equal(const harpe_rank_info *a, const harpe_rank_info *b) {
    return a->rank == b->rank && a->dp_rank == b->dp_rank && a->pp_rank == b->pp_rank &&
           a->tp_rank == b->tp_rank &&
           a->available_frequency_count == b->available_frequency_count &&
           (a->available_frequency_count == 0 ||
            memcmp(a->available_frequencies_mhz, b->available_frequencies_mhz,
                   a->available_frequency_count * sizeof(int)) == 0);
}

/* ---- The rest -------------------------------------------------------------------------------- */

void harpe_rank_info_write(harpe_text *text, const void *model) {
    const harpe_rank_info *rank = model;
    harpe_write_int_member(text, "{\"rank\":", rank->rank);
    harpe_write_int_member(text, ",\"dp_rank\":", rank->dp_rank);
    harpe_write_int_member(text, ",\"pp_rank\":", rank->pp_rank);
    harpe_write_int_member(text, ",\"tp_rank\":", rank->tp_rank);
    harpe_write_raw(text, ",\"available_frequencies\":[");
    for (size_t i = 0; i < rank->available_frequency_count; i++)
        harpe_write_int_member(text, i > 0 ? "," : "", rank->available_frequencies_mhz[i]);
    harpe_write_raw(text, "]}");
}

harpe_status harpe_rank_info_format(const harpe_rank_info *rank, char **json, harpe_error *error) {
    harpe_text text = {0};
    harpe_rank_info_write(&text, rank);
    return harpe_write_end(&text, json, error);
}

harpe_status harpe_rank_info_copy(const harpe_rank_info *from, harpe_rank_info *to,
                                  harpe_error *error) {
    size_t count = from->available_frequency_count;
    int *frequencies = harpe_calloc(count, sizeof *frequencies);
    if (!frequencies) return harpe_fail_memory(error);
    if (count > 0)
        memcpy(frequencies, from->available_frequencies_mhz, count * sizeof *frequencies);
    *to = *from;
    to->available_frequencies_mhz = frequencies;
    return HARPE_OK;
}

void harpe_rank_info_free(harpe_rank_info *rank) {
    free((int *)rank->available_frequencies_mhz);
    *rank = (harpe_rank_info){0};
}
