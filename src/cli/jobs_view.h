/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs of a coordination server, as its JSON tells them, in words and tables. A field that is
 * missing shows as 0 or '-'. */
#ifndef HARPE_CLI_JOBS_VIEW_H
#define HARPE_CLI_JOBS_VIEW_H

#include <jansson.h>
#include <stdbool.h>

#include "base/text.h"

/* A table of jobs that comes in pages; the first page decides its shape. quiet: prints only ids.
 * columns: the width of the terminal; if a row does not fit, a job's id is on a line of its own.
 * 0: the rows may have any width. Leave the rest zero. */
typedef struct harpe_jobs_table {
    bool quiet;
    int columns;
    bool has_head, is_folded;
    int id_width;
} harpe_jobs_table;
void harpe_jobs_view_page(harpe_jobs_table *table, const json_t *jobs, harpe_text *text);
/* Some lines about one job. */
void harpe_jobs_view_job(const json_t *job, harpe_text *text);
/* How far the job is, in one line without a newline: the same while nothing happens. */
void harpe_jobs_view_progress(const json_t *job, bool quiet, harpe_text *text);

#endif
