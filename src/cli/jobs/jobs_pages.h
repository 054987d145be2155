/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the jobs of a coordination server page by page. Only one page is in memory at a time. */
#ifndef HARPE_CLI_JOBS_JOBS_PAGES_H
#define HARPE_CLI_JOBS_JOBS_PAGES_H

#include "cli/server_client.h"

/* Set `client`, and `query` and `limit` if needed, and leave the other members 0. */
typedef struct harpe_jobs_pages {
    harpe_server_client *client;
    const char *query; /* see harpe_server_client_list; NULL: none */
    size_t limit;      /* the most jobs of all pages together; 0: any number */
    json_t *answer;    /* the current page */
    char after[128];   /* the place where the next page begins; "": not known */
    size_t shown;      /* number of jobs of all pages so far */
    bool is_over;
} harpe_jobs_pages;

/* Gets the jobs of the next page, newest first. Each is an object with a "job_id". `*jobs` becomes
 * NULL after the last page. The jobs are valid until the next call. A server without jobs has one
 * empty page. */
harpe_status harpe_jobs_pages_next(harpe_jobs_pages *pages, const json_t **jobs,
                                   harpe_error *error);
/* Returns the number of all jobs according to the current page. */
json_int_t harpe_jobs_pages_count(const harpe_jobs_pages *pages);
void harpe_jobs_pages_free(harpe_jobs_pages *pages);

/* Finds the job `id`, or the only job whose id begins with `id`, or the only job whose shortened
 * form `id` may be. The caller frees `*found` with free(). Returns HARPE_NOT_FOUND if there is no
 * such job; the message names a similar id. Returns HARPE_INVALID_ARGUMENT if there are several
 * such jobs. */
harpe_status harpe_jobs_find(harpe_server_client *client, const char *id, char **found,
                             harpe_error *error);

#endif
