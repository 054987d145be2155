/* SPDX-License-Identifier: Apache-2.0 */
/* The jobs of a coordination server, page after page, so that a long list is never in memory. */
#ifndef HARPE_CLI_JOBS_PAGES_H
#define HARPE_CLI_JOBS_PAGES_H

#include "cli/jobs_client.h"

/* Set `client` and leave the rest zero. */
typedef struct harpe_jobs_pages {
    harpe_jobs_client *client;
    json_t *answer;  /* the current page */
    char after[128]; /* the place where the next one begins; "": not known */
    size_t shown;    /* jobs of all pages so far */
    bool is_over;
} harpe_jobs_pages;

/* The next page's jobs, the newest first, each an object with a "job_id"; NULL after the last page.
 * They are valid until the next call. A server without jobs has one page, which is empty. */
harpe_status harpe_jobs_pages_next(harpe_jobs_pages *pages, const json_t **jobs,
                                   harpe_error *error);
/* How many jobs there are, as the current page says. */
json_int_t harpe_jobs_pages_count(const harpe_jobs_pages *pages);
void harpe_jobs_pages_free(harpe_jobs_pages *pages);

/* The job that is called `id`, or the only one that begins so; `*found` is to be freed with free().
 * HARPE_NOT_FOUND names the closest id, HARPE_INVALID_ARGUMENT says that several begin so. */
harpe_status harpe_jobs_find(harpe_jobs_client *client, const char *id, char **found,
                             harpe_error *error);

#endif
