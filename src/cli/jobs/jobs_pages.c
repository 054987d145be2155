/* SPDX-License-Identifier: Apache-2.0 */
/* Each page contains the place where the next page begins. Older servers do not send this place. A
 * request to an older server instead contains the number of jobs already shown. */
#include "cli/jobs/jobs_pages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "cli/command.h"
#include "cli/jobs/jobs_view.h"

enum { PAGE_JOBS = 1000 };

/* ---- Pages ----------------------------------------------------------------------------------- */

static bool is_list(const json_t *jobs) {
    size_t index;
    const json_t *job;
    bool is_good = json_is_array(jobs);
    json_array_foreach(jobs, index, job) {
        is_good &= json_is_string(json_object_get(job, "job_id"));
    }
    return is_good;
}

/* Stores the place of the next page. */
static harpe_status look_ahead(harpe_jobs_pages *pages, size_t count, harpe_error *error) {
    const json_t *next = pages->query ? NULL : json_object_get(pages->answer, "next");
    const char *place = json_string_value(next);
    pages->shown += count;
    pages->is_over = count == 0 || (next && !place) ||
                     (!next && harpe_jobs_pages_count(pages) <= (json_int_t)pages->shown) ||
                     (pages->limit > 0 && pages->shown >= pages->limit);
    if (pages->query && !json_object_get(pages->answer, "all"))
        return harpe_fail(error, HARPE_NOT_SUPPORTED,
                          "the server cannot sort and search: it has an older version");
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
    size_t left = pages->limit > 0 ? pages->limit - pages->shown : PAGE_JOBS;
    harpe_status status = harpe_server_client_list(
        pages->client, pages->query, *pages->after ? pages->after : NULL, pages->shown,
        left < PAGE_JOBS ? left : PAGE_JOBS, &pages->answer, error);
    if (status != HARPE_OK) return status;
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

/* ---- Finding a job --------------------------------------------------------------------------- */

typedef struct search {
    const char *id;
    char *match;   /* the first id that begins with `id`, or `id` itself */
    char *fitting; /* the first id of which `id` may be the shortened form */
    char *closest; /* the id most similar to `id`, if there is no match */
    size_t matches, fits;
    bool is_exact;
} search;

/* Returns true if `shown` may be a table's shortened form of `name`: a beginning and an end of it,
 * with some characters left out in between. */
static bool is_shortened(const char *shown, const char *name) {
    size_t length = strlen(name);
    const char *gap = shown;
    while ((gap = strstr(gap, HARPE_JOB_ID_GAP))) {
        const char *end = gap + strlen(HARPE_JOB_ID_GAP);
        size_t head = (size_t)(gap - shown), tail = strlen(end);
        if (head > 0 && tail > 0 && head + tail < length && strncmp(shown, name, head) == 0 &&
            strcmp(name + length - tail, end) == 0)
            return true;
        gap++;
    }
    return false;
}

/* Stores the id that is most similar to the requested one, among all pages so far. */
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
        if (is_shortened(self->id, name) && self->fits++ == 0) {
            self->fitting = strdup(name);
            if (!self->fitting) return harpe_fail_memory(error);
        }
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

static harpe_status tell_found(search *self, const char *lister, char **found, harpe_error *error) {
    if (self->matches == 0 && self->fits > 1)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "%zu jobs fit '%.200s'; give more of the id (%s --quiet prints "
                          "whole ids)",
                          self->fits, self->id, lister);
    if (self->matches == 0 && self->fits == 1) {
        *found = self->fitting;
        self->fitting = NULL;
        return HARPE_OK;
    }
    if (self->matches == 0 && self->closest)
        return harpe_fail(error, HARPE_NOT_FOUND, "there is no job '%.200s'; did you mean '%s'?",
                          self->id, self->closest);
    if (self->matches == 0)
        return harpe_fail(error, HARPE_NOT_FOUND, "there is no job '%.200s'; %s lists them",
                          self->id, lister);
    if (self->matches > 1 && !self->is_exact)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "%zu jobs begin with '%.200s'; give more of the id", self->matches,
                          self->id);
    *found = self->match;
    self->match = NULL;
    return HARPE_OK;
}

harpe_status harpe_jobs_find(harpe_server_client *client, const char *id, char **found,
                             harpe_error *error) {
    harpe_jobs_pages pages = {.client = client};
    search self = {.id = id};
    const json_t *jobs;
    harpe_status status;
    do {
        status = harpe_jobs_pages_next(&pages, &jobs, error);
        if (status == HARPE_OK && jobs) status = search_page(&self, jobs, error);
    } while (status == HARPE_OK && jobs && !self.is_exact);
    if (status == HARPE_OK)
        status = tell_found(&self, harpe_server_client_lister(client), found, error);
    harpe_jobs_pages_free(&pages);
    free(self.match);
    free(self.fitting);
    free(self.closest);
    return status;
}
