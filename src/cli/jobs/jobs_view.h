/* SPDX-License-Identifier: Apache-2.0 */
/* Formats the jobs in a server's JSON as words and tables. A missing field is shown as 0 or '-'. */
#ifndef HARPE_CLI_JOBS_JOBS_VIEW_H
#define HARPE_CLI_JOBS_JOBS_VIEW_H

#include <jansson.h>
#include <stdbool.h>

#include "base/format.h"
#include "base/text.h"

/* A table of jobs that is printed in pages. The first page determines the layout. quiet: prints
 * only ids. columns: the width of the terminal; 0: rows may have any width. An id that does not fit
 * is shortened in the middle, and on a very narrow terminal it has its own line. Leave the other
 * members 0. */
typedef struct harpe_jobs_table {
    bool quiet;
    int columns;
    bool has_head, is_folded;
    unsigned shown;         /* bits of the columns that fit */
    harpe_unit energy_unit; /* of the whole table */
    int id_width;           /* of the column with ids */
    int id_limit;           /* longer ids are shortened; 0: no limit */
} harpe_jobs_table;

/* Replaces the middle of a shortened id. An id may also contain this text itself. */
#define HARPE_JOB_ID_GAP "..."

void harpe_jobs_view_page(harpe_jobs_table *table, const json_t *jobs, harpe_text *text);
/* Appends the page of one job. */
void harpe_jobs_view_job(const json_t *job, harpe_text *text);
/* Appends the progress of a job in one line without a newline. The line stays the same as long as
 * the job does not change. */
void harpe_jobs_view_progress(const json_t *job, bool quiet, harpe_text *text);

#endif
