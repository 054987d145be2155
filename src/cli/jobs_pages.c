/* SPDX-License-Identifier: Apache-2.0 */
/* Each page says where the next one begins. Servers that do not say so are asked for the jobs
 * beyond those that were shown. */
#include "cli/jobs_pages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "cli/command.h"

/* ---- Pages ---------------------------------------------------------------------------------- */

static bool is_list(const json_t *jobs) {
    size_t index;
    const json_t *job;
    bool is_good = json_is_array(jobs);
    json_array_foreach(jobs, index, job) {
        is_good &= json_is_string(json_object_get(job, "job_id"));
    }
    return is_good;
}

/* What comes after the current page. */
static harpe_status look_ahead(harpe_jobs_pages *pages, size_t count, harpe_error *error) {
    const json_t *next = json_object_get(pages->answer, "next");
    const char *place = json_string_value(next);
    pages->shown += count;
    pages->is_over = count == 0 || (next && !place) ||
                     (!next && harpe_jobs_pages_count(pages) <= (json_int_t)pages->shown);
    if (place && strlen(place) >= sizeof pages->after)
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "the answer's \"next\" is too long: is harpe serve running at the "
                          "address?");
    (void)snprintf(pages->after, sizeof pages->after, "%s", place ? place : "");
    return HARPE_OK;
}

harpe_status harpe_jobs_pages_next(harpe_jobs_pages *pages, const json_t **jobs,
                                   harpe_error *error) {
    json_decref(pages->answer);
    pages->answer = NULL;
    *jobs = NULL;
    if (pages->is_over) return HARPE_OK;
    harpe_status status = harpe_jobs_client_list(pages->client, *pages->after ? pages->after : NULL,
                                                 pages->shown, &pages->answer, error);
    if (status) return status;
    *jobs = json_object_get(pages->answer, "jobs");
    if (!is_list(*jobs))
        return harpe_fail(
            error, HARPE_INVALID_INPUT,
            "the answer is not a list of jobs: is harpe serve running at the address?");
    return look_ahead(pages, json_array_size(*jobs), error);
}

json_int_t harpe_jobs_pages_count(const harpe_jobs_pages *pages) {
    return json_integer_value(json_object_get(pages->answer, "count"));
}

void harpe_jobs_pages_free(harpe_jobs_pages *pages) {
    json_decref(pages->answer);
    pages->answer = NULL;
}

/* ---- Which job ------------------------------------------------------------------------------ */

typedef struct search {
    const char *id;
    char *match;   /* the first that begins so, or the one that is called so */
    char *closest; /* while there is no match */
    size_t matches;
    bool is_exact;
} search;

/* Keeps the closest of all pages so far. */
static harpe_status note_closest(search *self, const json_t *jobs, harpe_error *error) {
    size_t count = json_array_size(jobs);
    const char **names = harpe_calloc(count + 2, sizeof *names);
    if (!names) return harpe_fail_memory(error);
    for (size_t i = 0; i < count; i++)
        names[i] = json_string_value(json_object_get(json_array_get(jobs, i), "job_id"));
    names[count] = self->closest;
    const char *closest = harpe_closest_name(self->id, names);
    char *copy = closest ? strdup(closest) : NULL;
    free(names);
    if (closest && !copy) return harpe_fail_memory(error);
    free(self->closest);
    self->closest = copy;
    return HARPE_OK;
}

static harpe_status search_page(search *self, const json_t *jobs, harpe_error *error) {
    size_t index;
    const json_t *job;
    json_array_foreach(jobs, index, job) {
        const char *name = json_string_value(json_object_get(job, "job_id"));
        if (strncmp(name, self->id, strlen(self->id)) != 0) continue;
        self->is_exact = strcmp(name, self->id) == 0;
        if (self->matches++ == 0 || self->is_exact) {
            free(self->match);
            self->match = strdup(name);
            if (!self->match) return harpe_fail_memory(error);
        }
        if (self->is_exact) return HARPE_OK;
    }
    return self->matches == 0 ? note_closest(self, jobs, error) : HARPE_OK;
}

static harpe_status tell_found(search *self, char **found, harpe_error *error) {
    if (self->matches == 0 && self->closest)
        return harpe_fail(error, HARPE_NOT_FOUND, "there is no job '%.200s'; did you mean '%s'?",
                          self->id, self->closest);
    if (self->matches == 0)
        return harpe_fail(error, HARPE_NOT_FOUND, "there is no job '%.200s'; harpe jobs lists them",
                          self->id);
    if (self->matches > 1 && !self->is_exact)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "%zu jobs begin with '%.200s'; give more of the id", self->matches,
                          self->id);
    *found = self->match;
    self->match = NULL;
    return HARPE_OK;
}

harpe_status harpe_jobs_find(harpe_jobs_client *client, const char *id, char **found,
                             harpe_error *error) {
    harpe_jobs_pages pages = {.client = client};
    search self = {.id = id};
    const json_t *jobs;
    harpe_status status;
    do {
        status = harpe_jobs_pages_next(&pages, &jobs, error);
        if (!status && jobs) status = search_page(&self, jobs, error);
    } while (!status && jobs && !self.is_exact);
    if (!status) status = tell_found(&self, found, error);
    harpe_jobs_pages_free(&pages);
    free(self.match);
    free(self.closest);
    return status;
}
