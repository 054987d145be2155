/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the conduct from the text of a result. The fast scan (profiling_result_scan.c) reads it
 * from usual results. This file reads it from all other results. */
#include <jansson.h>
#include <string.h>

#include "pfo/models.h"

/* A known member that is no number makes the conduct unknown. */
static harpe_conduct read_object(json_t *object) {
    harpe_conduct conduct = {0};
    const char *name;
    json_t *value;
    if (!json_is_object(object)) return conduct;
    json_object_foreach(object, name, value) {
        double number = json_is_number(value) ? json_number_value(value) : -1;
        harpe_conduct_set(&conduct, name, strlen(name), number);
    }
    harpe_conduct_settle(&conduct);
    return conduct;
}

harpe_conduct harpe_conduct_read(const char *text, size_t length) {
    static const char name[] = "\"conduct\"";
    int rank;
    harpe_result_totals totals;
    if (harpe_profiling_result_scan_totals(text, length, &rank, &totals)) return totals.conduct;
    if (!memmem(text, length, name, sizeof name - 1)) return (harpe_conduct){0};
    json_t *json = json_loadb(text, length, 0, NULL);
    harpe_conduct conduct = read_object(json_object_get(json, "conduct"));
    json_decref(json);
    return conduct;
}

bool harpe_profiling_result_decode_totals(const char *body, size_t length, int *rank,
                                          harpe_result_totals *totals, harpe_problems *problems) {
    harpe_profiling_result result = {0};
    bool is_valid = harpe_profiling_result_decode(body, length, &result, problems);
    *rank = result.rank;
    *totals = harpe_profiling_result_totals(&result);
    if (is_valid) totals->conduct = harpe_conduct_read(body, length);
    harpe_profiling_result_free(&result);
    return is_valid;
}
